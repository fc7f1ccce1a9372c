//! Reads blocks that were written with the codes of a model.

mod copy;
mod literals;
mod sequences;

use std::ops::Range;

pub(super) use self::copy::Copy;
use self::literals::{literals_until, read_literals};
use self::sequences::{BATCH, Batch, Reader};
use super::codes::{Model, Tables};
use super::encode::{FOUR_STREAMS, LITERALS_RAW};
use super::fast;
use super::kernel::STRIDE;
use super::origin::Origin;
use crate::model::{MARGIN, Padded};
use crate::rlz::Dictionary;
use crate::rlz::coder::Scratch;
use crate::rlz::dictionary::PADDING;
use crate::wire::Take;

const _: () = assert!(STRIDE <= PADDING);
/// Of blocks with no more sequences a piece is made of what it comes from alone.
const TRACED: usize = 1 << 16;

/// What a thread keeps between blocks.
#[derive(Default)]
pub(in crate::rlz) struct Room {
    /// The stored bytes with a margin on both sides.
    padded: Padded,
    batch: Batch,
    literals: Vec<u8>,
    front: Vec<u8>,
    origin: Origin,
    pub(super) fast: fast::Room,
}

/// Where the fields of a block lie in its padded bytes, and how much there is of each.
struct Fields {
    class: usize,
    raw: bool,
    sequences: usize,
    literals: usize,
    /// Ends of the header, the commands, the first literals, the others.
    ends: [usize; 4],
    end: usize,
}

impl Fields {
    /// `limit` is how long the block is, at most.
    fn of(stored: &[u8], limit: usize) -> Option<Fields> {
        let mut take = Take::new(stored, "block", 0);
        let head = take.u8().ok()?;
        let (class, raw) = (usize::from(head & 15), head & LITERALS_RAW != 0);
        if head & !(LITERALS_RAW | 15) != 0 {
            return None;
        }
        let sequences = take.count(limit as u64).ok()?;
        let literals = take.count(limit as u64).ok()?;
        let mut size = || take.count(stored.len() as u64).ok();
        let commands = size()?;
        let (mut first, mut others) = (if raw { literals } else { 0 }, 0);
        if !raw && literals > 0 {
            first = size()?;
            if literals >= FOUR_STREAMS {
                others = size()?;
            }
        }
        let mut at = MARGIN + stored.len() - take.remaining();
        let end = MARGIN + stored.len();
        let mut ends = [0; 4];
        for (slot, size) in ends.iter_mut().zip([0, commands, first, others]) {
            at += size;
            *slot = at;
        }
        (at <= end).then_some(Fields { class, raw, sequences, literals, ends, end })
    }

    /// Streams of literals.
    fn streams(&self) -> usize {
        if self.literals < FOUR_STREAMS { 2 } else { 4 }
    }

    /// How many literals the first of them has; 1 at least.
    fn chunk(&self) -> usize {
        self.literals.div_ceil(self.streams()).max(1)
    }

    /// How many of each stream are decoded where so many are wanted: two streams go at a time, and
    /// only the second pair may be spared.
    fn counts(&self, wanted: usize) -> [usize; 4] {
        let chunk = self.chunk();
        if wanted <= 2 * chunk { [chunk, chunk, 0, 0] } else { [chunk; 4] }
    }
}

/// How long the block is, as far as its sequences say; at most `limit`.
pub(in crate::rlz) fn block_len(
    dictionary: &Dictionary,
    model: Option<&Model>,
    stored: &[u8],
    limit: usize,
    scratch: &mut Scratch,
) -> Option<usize> {
    let room = &mut scratch.hybrid;
    let fields = Fields::of(stored, limit)?;
    let tables = model?.tables(fields.class, dictionary.len())?;
    room.padded.fill(stored);
    let mut reader = Reader::new(dictionary, tables, &fields, usize::MAX);
    let (mut len, mut literals) = (fields.literals, 0);
    while reader.left > 0 {
        reader.read::<true>(&room.padded, &mut room.batch);
        for sequence in room.batch.get() {
            len += usize::from(sequence.len);
            literals += usize::from(sequence.literals);
        }
        // Both are bounded, or places would go round, and one that is not reached be waited for.
        if len > limit || literals > fields.literals {
            return None;
        }
    }
    Some(len)
}

/// Fills `dst` with the bytes from `start` on of a block of `block_len` bytes.
pub(in crate::rlz) fn decode(
    dictionary: &Dictionary,
    model: Option<&Model>,
    stored: &[u8],
    block_len: usize,
    (start, dst): (usize, &mut [u8]),
    scratch: &mut Scratch,
) -> Option<()> {
    let room = &mut scratch.hybrid;
    if start == 0 {
        return room.decode::<true>(dictionary, model?, stored, block_len, dst);
    }
    room.decode_piece::<true>(dictionary, model?, stored, block_len, (start, dst))
}

/// [`decode`] by the safe twins of all loops.
#[cfg(feature = "testing")]
pub(in crate::rlz) fn decode_safely(
    dictionary: &Dictionary,
    model: &Model,
    stored: &[u8],
    block_len: usize,
    (start, dst): (usize, &mut [u8]),
) -> Option<()> {
    let mut room = Room::default();
    match start {
        0 => room.decode::<false>(dictionary, model, stored, block_len, dst),
        _ => room.decode_piece::<false>(dictionary, model, stored, block_len, (start, dst)),
    }
}

/// True where a piece of a block, with so many bytes before its end, takes much less than these do.
pub(in crate::rlz) fn is_piece(len: usize, end: usize) -> bool {
    len <= end / 4
}

impl Room {
    /// Fills `dst` with the front of a block; with the loops of `kernel`, or without.
    fn decode<const KERNEL: bool>(
        &mut self,
        dictionary: &Dictionary,
        model: &Model,
        stored: &[u8],
        block_len: usize,
        dst: &mut [u8],
    ) -> Option<()> {
        let fields = Fields::of(stored, block_len)?;
        let tables = model.tables(fields.class, dictionary.len())?;
        self.padded.fill(stored);
        let whole = dst.len() == block_len;
        let stop = if whole { usize::MAX } else { dst.len() };
        let mut reader = Reader::new(dictionary, tables, &fields, stop);
        if fields.sequences <= BATCH {
            // All literals that the sequences need are known before any is decoded.
            reader.read::<KERNEL>(&self.padded, &mut self.batch);
            let sequences = self.batch.get();
            let wanted = match whole {
                true => fields.literals,
                false => literals_until(sequences, dst.len(), fields.literals),
            };
            let counts = fields.counts(wanted);
            read_literals::<KERNEL>(tables, &fields, &self.padded, counts, &mut self.literals)?;
            let mut copy = Copy::new(dictionary, &self.literals[..wanted + STRIDE], dst);
            copy.run::<KERNEL>(sequences)?;
            copy.finish(fields.literals, block_len)?;
            return (!whole || reader.is_done(&fields)).then_some(());
        }
        let counts = fields.counts(fields.literals);
        read_literals::<KERNEL>(tables, &fields, &self.padded, counts, &mut self.literals)?;
        let mut copy = Copy::new(dictionary, &self.literals[..fields.literals + STRIDE], dst);
        while reader.left > 0 && copy.at < copy.dst.len() {
            reader.read::<KERNEL>(&self.padded, &mut self.batch);
            copy.run::<KERNEL>(self.batch.get())?;
        }
        copy.finish(fields.literals, block_len)?;
        (!whole || reader.is_done(&fields)).then_some(())
    }
}

impl Room {
    /// Fills `dst` with the bytes of a block from `start` on: of a short piece, with what it comes from.
    fn decode_piece<const KERNEL: bool>(
        &mut self,
        dictionary: &Dictionary,
        model: &Model,
        stored: &[u8],
        block_len: usize,
        (start, dst): (usize, &mut [u8]),
    ) -> Option<()> {
        let end = start + dst.len();
        let fields = Fields::of(stored, block_len)?;
        let mut front = std::mem::take(&mut self.front);
        // Copies may be longer than what is needed.
        front.resize(front.len().max(end + 4 * STRIDE), 0);
        let done = if is_piece(dst.len(), end) && fields.sequences <= TRACED {
            self.padded.fill(stored);
            let tables = model.tables(fields.class, dictionary.len())?;
            self.trace::<KERNEL>(dictionary, tables, &fields, start..end, &mut front)
        } else {
            self.decode::<KERNEL>(dictionary, model, stored, block_len, &mut front[..end])
        };
        dst.copy_from_slice(&front[start..end]);
        self.front = front;
        done
    }

    /// Fills this piece of a block, and whatever else of its front that comes from.
    fn trace<const KERNEL: bool>(
        &mut self,
        dictionary: &Dictionary,
        tables: &Tables,
        fields: &Fields,
        piece: Range<usize>,
        front: &mut [u8],
    ) -> Option<()> {
        let Room { padded, batch, literals, origin, .. } = self;
        // All at once; few of them are copied.
        let mut reader = Reader::new(dictionary, tables, fields, piece.end);
        (reader.most, reader.asks) = (TRACED, false);
        reader.read::<KERNEL>(padded, batch);
        let sequences = batch.get();
        let text = reader.at as usize;
        let used =
            sequences.iter().map(|sequence| u32::from(sequence.literals)).sum::<u32>() as usize;
        if used + piece.end.saturating_sub(text) > fields.literals {
            return None;
        }
        let chunk = fields.chunk();
        origin.trace(dictionary, sequences, (text, used), &piece, chunk)?;
        read_literals::<KERNEL>(tables, fields, padded, origin.literals, literals)?;
        let supply = &literals[..fields.literals + STRIDE];
        for run in origin.runs.iter().rev() {
            let mut copy = Copy::new(dictionary, supply, front).from(run.at, run.literals);
            copy.run::<KERNEL>(&sequences[run.sequences.clone()])?;
        }
        if text < piece.end {
            let from = piece.start.max(text);
            let count = piece.end - from;
            let first = used + (from - text);
            front[from..piece.end].copy_from_slice(&supply[first..first + count]);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::super::encode::Encoder;
    use super::super::{Finder, LEVELS, Packer, Parse, Sequence, default_model, train};
    use super::*;
    use crate::testing::Random;
    use crate::wire::Put;

    /// Text that is in the dictionary, near by, or new.
    fn text(dictionary: &[u8], random: &mut Random, len: usize) -> Vec<u8> {
        let mut text = Vec::new();
        while text.len() < len {
            let piece = random.below(90) as usize + 1;
            match random.below(5) {
                0 => text.extend(random.bytes(piece / 10)),
                1 => text.extend(random.text(piece / 2)),
                2 if !text.is_empty() => {
                    let at = random.below(text.len() as u64) as usize;
                    (at..at + piece).for_each(|from| text.push(text[from]));
                }
                _ => {
                    let at = random.below(dictionary.len() as u64) as usize;
                    text.extend(&dictionary[at..dictionary.len().min(at + piece)]);
                }
            }
        }
        text.truncate(len);
        text
    }

    /// What the loops of the kernel and what their twins make of stored bytes.
    fn both(
        dictionary: &Dictionary,
        model: &Model,
        stored: &[u8],
        len: usize,
        end: usize,
    ) -> [Option<Vec<u8>>; 2] {
        let mut room = Room::default();
        let mut dst = vec![0xAA; end];
        let fast = room.decode::<true>(dictionary, model, stored, len, &mut dst);
        let fast = fast.map(|()| dst.clone());
        let safe = room.decode::<false>(dictionary, model, stored, len, &mut dst);
        [fast, safe.map(|()| dst)]
    }

    /// The same of a piece; and all that is before its end, decoded without regard to what is needed.
    fn pieces(
        dictionary: &Dictionary,
        model: &Model,
        stored: &[u8],
        len: usize,
        piece: Range<usize>,
    ) -> [Option<Vec<u8>>; 3] {
        // What was in the room before must not matter.
        let mut room = Room { front: vec![0xAA; len + 200], ..Room::default() };
        let mut dst = vec![0x55; piece.len()];
        let into = (piece.start, &mut dst[..]);
        let fast = room.decode_piece::<true>(dictionary, model, stored, len, into);
        let fast = fast.map(|()| dst.clone());
        room.front.fill(0xBB);
        room.literals.fill(0xBB);
        let into = (piece.start, &mut dst[..]);
        let safe = room.decode_piece::<false>(dictionary, model, stored, len, into);
        let safe = safe.map(|()| dst);
        let [_, front] = both(dictionary, model, stored, len, piece.end);
        [fast, safe, front.map(|front| front[piece].to_vec())]
    }

    #[test]
    fn a_piece_is_what_it_is_in_its_block() {
        let mut random = Random(22);
        let dictionary = Arc::new(Dictionary::new(random.text(30_000)).unwrap());
        let sample = text(dictionary.as_bytes(), &mut random, 100_000);
        let blocks: Vec<&[u8]> = sample.chunks(4096).collect();
        for level in [5, 9] {
            let finder = Finder::new(dictionary.clone(), level).unwrap();
            let model = train(&finder, level, &blocks, 1.0, 2);
            let mut packer = Packer::new(&model, dictionary.len(), level);
            for len in [40, 1000, 16_384, 120_000] {
                let block = text(dictionary.as_bytes(), &mut random, len);
                let mut stored = Vec::new();
                assert!(packer.pack(&finder, &block, &mut stored));
                let mut piece = || {
                    let most = [9, 300, 5000][random.below(3) as usize].min(len as u64 - 1);
                    let count = 1 + random.below(most) as usize;
                    let start = 1 + random.below((len - count) as u64) as usize;
                    start..start + count
                };
                let mut places = vec![len - 1..len, 1..2, len / 2..len, len - len / 8..len];
                places.extend((0..300).map(|_| piece()));
                for piece in places {
                    let all = pieces(&dictionary, &model, &stored, len, piece.clone());
                    for one in all {
                        assert_eq!(one.as_deref(), Some(&block[piece.clone()]), "{piece:?}");
                    }
                }
                for _ in 0..300 {
                    let mut damaged = stored.clone();
                    for _ in 0..=random.below(4) {
                        let at = random.below(damaged.len() as u64) as usize;
                        damaged[at] ^= 1 << random.below(8);
                    }
                    let start = 1 + random.below(len as u64 - 1) as usize;
                    let count = 1 + random.below((len - start).min(100) as u64) as usize;
                    let piece = start..start + count;
                    let [fast, safe, front] = pieces(&dictionary, &model, &damaged, len, piece);
                    // What is behind the piece is looked at by one and not by the other.
                    assert!(fast == safe, "{start} {count} of {len}");
                    let same = fast.is_none() || front.is_none() || fast == front;
                    assert!(same, "{start} {count} of {len}");
                }
            }
        }
    }

    #[test]
    fn the_kernel_does_what_its_safe_twin_does() {
        let mut random = Random(21);
        let dictionary = Arc::new(Dictionary::new(random.text(30_000)).unwrap());
        let sample = text(dictionary.as_bytes(), &mut random, 100_000);
        let blocks: Vec<&[u8]> = sample.chunks(4096).collect();
        let unlearned = Arc::new(default_model(dictionary.as_bytes()));
        for (level, learns) in LEVELS.flat_map(|level| [(level, true), (level, false)]) {
            let finder = Finder::new(dictionary.clone(), level).unwrap();
            let model = match learns {
                true => train(&finder, level, &blocks, 1.0, 2),
                false => unlearned.clone(),
            };
            assert!(!learns || model.classes.iter().any(|class| class.literals.len() > 1));
            let mut packer = Packer::new(&model, dictionary.len(), level);
            for len in [1, 100, 1000, 4096, 16_384, 120_000] {
                let block = text(dictionary.as_bytes(), &mut random, len);
                let mut stored = Vec::new();
                assert!(packer.pack(&finder, &block, &mut stored));
                for end in [0, 1, len / 3, len / 2, len - len.min(5), len] {
                    let [fast, safe] = both(&dictionary, &model, &stored, len, end);
                    assert_eq!(fast.as_deref(), Some(&block[..end]), "{end} of {len}");
                    assert!(safe == fast, "{end} of {len}");
                }
                for _ in 0..300 {
                    let mut damaged = stored.clone();
                    for _ in 0..=random.below(4) {
                        let at = random.below(damaged.len() as u64) as usize;
                        damaged[at] ^= 1 << random.below(8);
                    }
                    damaged.truncate(
                        damaged.len() - random.below(3).min(damaged.len() as u64) as usize,
                    );
                    let end = random.below(len as u64 + 1) as usize;
                    let [fast, safe] = both(&dictionary, &model, &damaged, len, end);
                    assert!(safe == fast, "{end} of {len}");
                }
            }
        }
    }

    #[test]
    fn a_block_that_uses_more_literals_than_it_has_is_no_block() {
        let dictionary = Dictionary::new(Random(5).text(2000)).unwrap();
        let model = Arc::new(default_model(dictionary.as_bytes()));
        let mut encoder = Encoder::new(&model, dictionary.len());
        let sequence = Sequence { literals: 8000, len: 0, distance: 1 };
        for (sequences, literals) in [(3000, 0), (3, 23_999), (3, 24_000)] {
            let parse =
                Parse { sequences: vec![sequence; sequences], literals: vec![b'a'; literals] };
            let mut stored = Vec::new();
            let class = encoder.best(&parse, 0).unwrap().1;
            assert!(encoder.encode(&parse, class, &mut stored));
            let mut scratch = Scratch::default();
            let len = block_len(&dictionary, Some(&model), &stored, 1 << 20, &mut scratch);
            assert_eq!(len, (literals == 24_000).then_some(24_000));
            let [fast, safe] = both(&dictionary, &model, &stored, 24_000, 24_000);
            assert!(fast == safe && fast.is_some() == (literals == 24_000));
        }
    }

    #[test]
    fn streams_of_literals_that_do_not_meet_are_no_block() {
        let dictionary = Dictionary::new(Random(5).text(2000)).unwrap();
        let model = Arc::new(default_model(dictionary.as_bytes()));
        let mut encoder = Encoder::new(&model, dictionary.len());
        for len in [200, 3000] {
            let text = Random(6).text(len);
            let parse = Parse { sequences: Vec::new(), literals: text.clone() };
            let class = encoder.best(&parse, 0).unwrap().1;
            let mut stored = Vec::new();
            assert!(encoder.encode(&parse, class, &mut stored));
            let fields = Fields::of(&stored, len).unwrap();
            assert!(!fields.raw);
            let ends = fields.ends;
            for field in 1..=fields.streams() / 2 {
                // A byte too many: at one of these places it stands between the two streams.
                for place in ends[field]..=ends[field + 1] {
                    let mut apart = vec![class as u8];
                    apart.put_varint(0);
                    apart.put_varint(len as u64);
                    for i in 0..=fields.streams() / 2 {
                        let size = ends[i + 1] - ends[i] + usize::from(i == field);
                        apart.put_varint(size as u64);
                    }
                    let place = place - MARGIN;
                    apart.extend(&stored[ends[0] - MARGIN..place]);
                    apart.push(0);
                    apart.extend(&stored[place..]);
                    let [fast, safe] = both(&dictionary, &model, &apart, len, len);
                    assert!(fast == safe && fast.as_ref() != Some(&text), "{place} of {len}");
                }
            }
        }
    }

    /// Short enough for an interpreter that watches each access to memory.
    #[test]
    fn a_small_block_stays_within_its_bytes() {
        let mut random = Random(6);
        let dictionary = Dictionary::new(random.text(500)).unwrap();
        let model = Arc::new(default_model(dictionary.as_bytes()));
        let (mut parse, mut block) = (Parse::default(), Vec::new());
        while block.len() < 1500 {
            let count = random.below(9) as usize;
            let literals = random.text(count);
            let len = 4 + random.below(60) as usize;
            block.extend(&literals);
            // In the dictionary or, where that does not reach across its end, in the block.
            let behind = dictionary.len() + block.len();
            let from = random.below((behind - len) as u64) as usize;
            let from =
                if from < dictionary.len() { from.min(dictionary.len() - len) } else { from };
            let text = |from: usize, block: &[u8]| match from.checked_sub(dictionary.len()) {
                None => dictionary.as_bytes()[from],
                Some(from) => block[from],
            };
            (from..from + len).for_each(|from| block.push(text(from, &block)));
            parse.sequences.push(Sequence {
                literals: literals.len() as u16,
                len: len as u16,
                distance: (behind - from) as u32,
            });
            parse.literals.extend(literals);
        }
        let mut encoder = Encoder::new(&model, dictionary.len());
        let mut stored = Vec::new();
        let class = encoder.best(&parse, 0).unwrap().1;
        assert!(encoder.encode(&parse, class, &mut stored));
        for end in [block.len(), block.len() - 1] {
            let [fast, safe] = both(&dictionary, &model, &stored, block.len(), end);
            assert!(fast == safe && fast.as_deref() == Some(&block[..end]));
        }
        for _ in 0..8 {
            let mut damaged = stored.clone();
            damaged[random.below(stored.len() as u64) as usize] ^= 1 << random.below(8);
            let [fast, safe] = both(&dictionary, &model, &damaged, block.len(), block.len());
            assert!(fast == safe);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused_by_both_alike(
            stored in proptest::collection::vec(any::<u8>(), 0..300),
            len in 1usize..5000,
            dictionary_len in 0usize..3000,
        ) {
            let mut random = Random(4);
            let dictionary = Dictionary::new(random.text(dictionary_len)).unwrap();
            let model = default_model(dictionary.as_bytes());
            let [fast, safe] = both(&dictionary, &model, &stored, len, len);
            prop_assert!(fast == safe);
        }
    }
}
