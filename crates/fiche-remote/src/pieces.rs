//! Ranges of an object that are at hand: a bounded cache.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;

/// Pieces by where they start. None is within another, so they end in the same order.
pub(crate) struct Pieces {
    pieces: BTreeMap<u64, Piece>,
    held: u64,
    limit: u64,
    clock: u64,
}

struct Piece {
    bytes: Bytes,
    used: u64,
}

impl Piece {
    fn end(&self, start: u64) -> u64 {
        start + self.bytes.len() as u64
    }
}

impl Pieces {
    /// Room for so many bytes.
    pub fn new(limit: u64) -> Pieces {
        Pieces { pieces: BTreeMap::new(), held: 0, limit, clock: 0 }
    }

    /// Fills `buf` with the bytes from `offset` on, if all of them are here.
    pub fn read(&mut self, offset: u64, buf: &mut [u8]) -> bool {
        if !self.has(offset..offset + buf.len() as u64) {
            return false;
        }
        self.clock += 1;
        let mut filled = 0;
        while filled < buf.len() {
            let at = offset + filled as u64;
            let Some((&start, piece)) = self.pieces.range_mut(..=at).next_back() else {
                return false;
            };
            let rest = &piece.bytes[(at - start) as usize..];
            let now = rest.len().min(buf.len() - filled);
            buf[filled..filled + now].copy_from_slice(&rest[..now]);
            piece.used = self.clock;
            filled += now;
        }
        true
    }

    /// True when every byte of a range is here.
    pub fn has(&self, range: Range<u64>) -> bool {
        let mut at = range.start;
        while at < range.end {
            match self.pieces.range(..=at).next_back() {
                Some((&start, piece)) if piece.end(start) > at => at = piece.end(start),
                _ => return false,
            }
        }
        true
    }

    /// What of a range is not here, without what is here at its beginning and at its end.
    pub fn missing(&self, mut range: Range<u64>) -> Range<u64> {
        while let Some((&start, piece)) = self.pieces.range(..=range.start).next_back()
            && piece.end(start) > range.start
            && range.start < range.end
        {
            range.start = piece.end(start).min(range.end);
        }
        while let Some((&start, piece)) = self.pieces.range(..range.end).next_back()
            && piece.end(start) >= range.end
            && range.start < range.end
        {
            range.end = start.max(range.start);
        }
        range
    }

    /// Keeps these bytes, in place of those that were used longest ago. What is larger than all the
    /// room is kept alone, until something else comes: somebody waits for it.
    pub fn put(&mut self, start: u64, bytes: Bytes) {
        let end = start + bytes.len() as u64;
        if bytes.is_empty()
            || self.pieces.range(..=start).next_back().is_some_and(|(&s, p)| p.end(s) >= end)
        {
            return;
        }
        let within: Vec<u64> = self
            .pieces
            .range(start..end)
            .filter(|&(&s, piece)| piece.end(s) <= end)
            .map(|(&s, _)| s)
            .collect();
        within.into_iter().for_each(|start| self.remove(start));
        while self.held + bytes.len() as u64 > self.limit
            && let Some((&oldest, _)) = self.pieces.iter().min_by_key(|(_, piece)| piece.used)
        {
            self.remove(oldest);
        }
        self.clock += 1;
        self.held += bytes.len() as u64;
        self.pieces.insert(start, Piece { bytes, used: self.clock });
    }

    fn remove(&mut self, start: u64) {
        if let Some(piece) = self.pieces.remove(&start) {
            self.held -= piece.bytes.len() as u64;
        }
    }
}

/// The ranges to ask for: in order, those that are at most `gap` bytes apart as one.
pub(crate) fn merged(ranges: &[Range<u64>], gap: u64) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> =
        ranges.iter().filter(|range| range.start < range.end).cloned().collect();
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, range| {
        let is_near = next.start <= range.end.saturating_add(gap);
        if is_near {
            range.end = range.end.max(next.end);
        }
        is_near
    });
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object() -> Vec<u8> {
        (0..1000u32).map(|i| (i * 7 % 251) as u8).collect()
    }

    fn piece(range: Range<usize>) -> (u64, Bytes) {
        (range.start as u64, Bytes::copy_from_slice(&object()[range]))
    }

    /// Any pieces in any order: what can be read is what the object has, and nothing is kept beyond
    /// the limit.
    #[test]
    fn what_is_read_is_what_was_put() {
        let mut random = 1u64;
        let mut below = move |limit: u64| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 33) % limit
        };
        let (mut pieces, mut found) = (Pieces::new(400), 0);
        for _ in 0..20_000 {
            let start = below(1000) as usize;
            let end = (start + below(120) as usize).min(1000);
            if below(2) == 0 {
                let (at, bytes) = piece(start..end);
                pieces.put(at, bytes);
                assert!(start == end || pieces.has(start as u64..end as u64));
            } else {
                let mut buf = vec![0; end - start];
                if pieces.read(start as u64, &mut buf) {
                    assert_eq!(buf, object()[start..end]);
                    found += usize::from(!buf.is_empty());
                }
            }
            assert!(pieces.held <= 400);
            assert_eq!(
                pieces.held,
                pieces.pieces.values().map(|p| p.bytes.len() as u64).sum::<u64>()
            );
        }
        assert!(found > 500, "{found}");
    }

    #[test]
    fn only_what_is_missing_is_asked_for() {
        let mut pieces = Pieces::new(10_000);
        for range in [0..100, 100..200, 500..600, 580..700] {
            let (at, bytes) = piece(range);
            pieces.put(at, bytes);
        }
        assert_eq!(pieces.missing(50..650), 200..500);
        assert_eq!(pieces.missing(250..300), 250..300);
        assert_eq!(pieces.missing(150..300), 200..300);
        assert_eq!(pieces.missing(400..560), 400..500);
        assert!(pieces.missing(510..690).is_empty() && pieces.missing(0..0).is_empty());
    }

    #[test]
    fn neighbours_are_read_as_one_and_the_oldest_go_first() {
        let mut pieces = Pieces::new(300);
        for range in [0..100, 100..200, 200..300] {
            let (at, bytes) = piece(range);
            pieces.put(at, bytes);
        }
        let mut buf = [0; 150];
        assert!(pieces.read(50, &mut buf));
        assert_eq!(buf, object()[50..200]);
        let (at, bytes) = piece(500..600);
        pieces.put(at, bytes);
        assert!(!pieces.has(200..300) && pieces.has(0..200));
        let (at, bytes) = piece(0..900);
        pieces.put(at, bytes);
        assert!(pieces.has(0..900), "what is larger than all is kept alone");
        assert_eq!(pieces.pieces.len(), 1);
    }

    #[test]
    fn ranges_are_merged_over_the_gap_and_no_more() {
        let merge = |gap| merged(&[50..60, 0..10, 20..30, 31..31, 55..58], gap);
        assert_eq!(merge(0), [0..10, 20..30, 50..60]);
        assert_eq!(merge(9), [0..10, 20..30, 50..60]);
        assert_eq!(merge(10), [0..30, 50..60]);
        assert_eq!(merge(20), [0..60]);
    }
}
