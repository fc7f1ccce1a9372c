//! Many reads of a few bytes at once: while what one of them needs comes from memory, others are looked up.

use crate::archive::decode::has_point_reads;
use crate::archive::marks::Marks;
use crate::archive::reader::Inner;
use crate::blocks::{Block, CHECKSUM};
use crate::io::ReadAt;
use crate::rlz::Coding;
use crate::rlz::coder::{Begin, Mark, Pending};

/// Reads that are looked up together.
const GROUP: usize = 16;
/// Longer ones are asked for ahead by themselves.
const SHORT: usize = 512;

/// A read that is looked up: where it begins in which block, and the factor before it that is known.
struct Point<'a> {
    read: usize,
    block: Block,
    coding: Coding,
    stored: &'a [u8],
    start: usize,
    mark: Option<Mark>,
}

impl Inner {
    /// Answers those of the reads in `order` that are short, in blocks that lie in memory and were verified
    /// before, and takes them out of it. What cannot be read stays.
    pub fn read_points(&self, reads: &mut [(u64, &mut [u8])], order: &mut Vec<usize>) {
        let Some(all) = self.source.as_bytes().filter(|_| !self.marks.has_no_factors()) else {
            return;
        };
        let mut pending: [Pending; GROUP] = Default::default();
        let mut done = vec![false; reads.len()];
        let mut points: Vec<Point<'_>> = Vec::with_capacity(GROUP);
        for group in order.chunks(GROUP) {
            points.clear();
            points.extend(
                group.iter().filter_map(|&i| self.point(all, i, (reads[i].0, reads[i].1.len()))),
            );
            points.retain_mut(|point| {
                point.mark = self.marks.before(&point.block, point.start);
                point.mark.inspect(|mark| mark.ask(point.stored));
                // Without one the first read of a block notes them.
                point.mark.is_some() || Marks::is_near(&point.block, point.start)
            });
            for (point, pending) in points.iter().zip(&mut pending) {
                let Ok(shared) = self.shared.of(point.block.coded) else { continue };
                let begin = Begin { at: point.start, mark: point.mark, kept: None };
                let (block_len, len) = (point.block.len as usize, reads[point.read].1.len());
                let started = pending.start(
                    point.coding,
                    shared.dictionary,
                    point.stored,
                    block_len,
                    begin,
                    len,
                );
                done[point.read] = started.is_some();
            }
            for (point, pending) in points.iter().zip(&pending) {
                let Ok(shared) = self.shared.of(point.block.coded) else { continue };
                let buf = &mut *reads[point.read].1;
                done[point.read] &= pending.finish(shared.dictionary, buf).is_some();
            }
        }
        order.retain(|&i| !done[i]);
    }

    /// A read of so many bytes, if it is one of those; what it needs is asked for.
    fn point<'a>(
        &self,
        all: &'a [u8],
        read: usize,
        (offset, len): (u64, usize),
    ) -> Option<Point<'a>> {
        if len > SHORT {
            return None;
        }
        let block = self.block_at(offset).ok()?;
        let (start, block_len) = ((offset - block.offset) as usize, block.len as usize);
        if !has_point_reads(&block) || start + len >= block_len || !self.is_verified(&block) {
            return None;
        }
        let coding = Coding::from_number(block.coded.number).filter(|coding| coding.has_marks())?;
        let stored = all.get(usize::try_from(block.pos).ok()?..)?;
        let stored = stored.get(..(block.stored_len as usize).checked_sub(CHECKSUM)?)?;
        if stored.len() == block_len {
            return None;
        }
        self.marks.ask(offset);
        coding.ask(stored, start, block_len);
        Some(Point { read, block, coding, stored, start, mark: None })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use super::*;
    use crate::archive::{OpenOptions, Options, Writer};
    use crate::error::Error;
    use crate::rlz::{Coder, Dictionary};

    /// What is short and lies in one block that was verified is read here and not left to others; what is
    /// damaged is left to them, who say so.
    #[test]
    fn points_are_taken_out_of_the_order() {
        let content: Vec<u8> = (0..60_000u32).flat_map(|i| (i / 7 % 251).to_le_bytes()).collect();
        let dictionary = Arc::new(Dictionary::new(content[..9000].to_vec()).unwrap());
        let coder = Arc::new(Coder::new(Coding::Pv, dictionary).unwrap());
        let options = Options::default().coder(coder).block_len(16 << 10);
        let mut writer = Writer::new(Vec::new(), options).unwrap();
        writer.write_all(&content).unwrap();
        let mut file = writer.finish().unwrap();
        let open =
            |file: &Vec<u8>| OpenOptions::default().cache(0).open(Arc::new(file.clone())).unwrap();
        let places = [5000u64, 30_000, 40_000, 60_000, 16_380, 90_000];
        let lens = [64, 64, 64, SHORT + 1, 64, 64];
        let mut room = vec![[0; SHORT + 1]; places.len()];
        let reader = open(&file);
        let mut left = |reader: &crate::archive::Reader| {
            let mut reads: Vec<(u64, &mut [u8])> = Vec::new();
            for ((place, len), read) in places.iter().zip(lens).zip(&mut room) {
                reads.push((*place, &mut read[..len]));
            }
            let mut order: Vec<usize> = (0..places.len()).collect();
            reader.inner().read_points(&mut reads, &mut order);
            for (i, (place, read)) in reads.iter().enumerate() {
                let place = *place as usize;
                let text = &content[place..place + read.len()];
                assert!(order.contains(&i) || **read == *text, "{i}");
            }
            order
        };
        assert_eq!(left(&reader), [0, 1, 2, 3, 4, 5]);
        for _ in 0..2 {
            for place in places {
                reader.read_at(place, &mut [0; 64]).unwrap();
            }
        }
        // One is long, and one goes on in the next block.
        assert_eq!(left(&reader), [3, 4]);
        let block = reader.inner().block_at(30_000).unwrap();
        file[(block.pos + block.stored_len / 2) as usize] ^= 1;
        let reader = open(&file);
        let mut buf = [0; 64];
        for _ in 0..2 {
            for place in places {
                let is_hurt = place == 30_000 || place == 16_380;
                match reader.read_at(place, &mut buf) {
                    Err(Error::Corrupt { .. }) => assert!(is_hurt),
                    result => assert!(result.is_ok() && !is_hurt, "{place}: {result:?}"),
                }
            }
        }
        assert_eq!(left(&reader), [1, 3, 4]);
    }
}
