//! Many reads at once: in the order of the content, each block decoded once for all that need it.

use std::ops::Range;

use crate::archive::ahead::BATCH;
use crate::archive::decode::{has_point_reads, is_piece};
use crate::archive::reader::Reader;
use crate::archive::window::{FETCH, Scratch};
use crate::blocks::Block;
use crate::error::{Error, Result};
use crate::io::{ReadAt, within};

impl Reader {
    /// As [`ReadAt::read_many_at`].
    pub(super) fn read_batch(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<Result<()>> {
        let mut results: Vec<Result<()>> = reads
            .iter()
            .map(|(offset, buf)| within(*offset, buf.len(), self.len()).map(drop))
            .collect();
        let mut order: Vec<usize> =
            (0..reads.len()).filter(|&i| results[i].is_ok() && !reads[i].1.is_empty()).collect();
        order.sort_unstable_by_key(|&i| reads[i].0);
        self.inner().read_points(reads, &mut order);
        let mut scratch = self.scratch();
        // Reads that begin before the end of the block at hand and go on behind its start.
        let mut active: Vec<usize> = Vec::new();
        let mut next = 0;
        let mut offset = 0;
        let mut fetched = 0;
        let in_memory = self.inner().source.as_bytes().is_some();
        while next < order.len() || !active.is_empty() {
            if next >= fetched && self.inner().source.as_distant().is_some() {
                fetched = next + self.fetch_some(&order[next..], reads);
            }
            if active.is_empty() {
                offset = reads[order[next]].0;
            }
            let block = match self.inner().block_at(offset) {
                Ok(block) => block,
                Err(error) => {
                    // Without its table nothing of the chapter can be read.
                    let chapter = &self.inner().footer.chapters[self.inner().chapter_at(offset)];
                    let end = chapter.offset + chapter.len;
                    while next < order.len() && reads[order[next]].0 < end {
                        active.push(order[next]);
                        next += 1;
                    }
                    active.iter().for_each(|&i| results[i] = Err(error.again()));
                    active.retain(|&i| reads[i].0 + reads[i].1.len() as u64 > end);
                    offset = end;
                    continue;
                }
            };
            let block_end = block.offset + block.len;
            while next < order.len() && reads[order[next]].0 < block_end {
                active.push(order[next]);
                next += 1;
            }
            let until = match in_memory || scratch.window.holds(&block) {
                true => block.end(),
                false => self.fetch_until(&block, &active, &order[next..], reads),
            };
            let result = self.read_block_for(&block, &active, until, reads, &mut scratch);
            if let Err(error) = result {
                active.iter().for_each(|&i| results[i] = Err(error.again()));
                let is_far = self.inner().source.as_distant().is_some();
                if is_far && matches!(error, Error::Io(_) | Error::Changed { .. }) {
                    // It has been asked for often enough: the others would wait as long, one by one.
                    order[next..].iter().for_each(|&i| results[i] = Err(error.again()));
                    break;
                }
            }
            active.retain(|&i| reads[i].0 + reads[i].1.len() as u64 > block_end);
            offset = block_end;
        }
        self.give_back(scratch);
        results
    }

    /// Fetches what the first of these reads need, in order; how many these are.
    fn fetch_some(&self, order: &[usize], reads: &[(u64, &mut [u8])]) -> usize {
        // However little is read of a block, all that is stored of it is fetched.
        let (footer, end) = (&self.inner().footer, self.inner().end);
        let most = (BATCH * footer.blocks.max(1) / end.max(1)).clamp(1, 4096) as usize;
        let (mut some, mut sum) = (Vec::new(), 0);
        for &i in order {
            let (offset, len) = (reads[i].0, reads[i].1.len() as u64);
            if sum > 0 && (sum + len > BATCH || some.len() == most) {
                break;
            }
            some.push(offset..offset + len.min(BATCH));
            sum += len;
        }
        self.inner().fetch(&some);
        some.len()
    }

    /// Where the stored bytes end that should be fetched together with `block`:
    /// as far as these reads, and those that `later` lists in order, need block
    /// after block without a gap.
    fn fetch_until(
        &self,
        block: &Block,
        active: &[usize],
        later: &[usize],
        reads: &[(u64, &mut [u8])],
    ) -> u64 {
        let chapter = self.inner().chapter_at(block.offset);
        let chapter_end = {
            let c = &self.inner().footer.chapters[chapter];
            c.offset + c.len
        };
        let Ok(table) = self.inner().table(chapter) else { return block.end() };
        let end_of = |i: usize| reads[i].0 + reads[i].1.len() as u64;
        let last_of = |end: u64| table.find(end.min(chapter_end) - 1);
        let mut last = last_of(active.iter().map(|&i| end_of(i)).max().unwrap_or(block.offset + 1));
        for &i in later {
            let far = last.end() > block.pos + FETCH;
            if far || reads[i].0 > last.offset + last.len || reads[i].0 >= chapter_end {
                break;
            }
            let end = end_of(i);
            if end > last.offset + last.len {
                last = last_of(end);
            }
        }
        last.end()
    }

    /// Decodes a block once for all the reads in `active`, each of which needs some of it.
    fn read_block_for(
        &self,
        block: &Block,
        active: &[usize],
        until: u64,
        reads: &mut [(u64, &mut [u8])],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let part = |start: u64, len: usize| -> (Range<usize>, Range<usize>) {
            let from = start.max(block.offset);
            let to = (start + len as u64).min(block.offset + block.len);
            let in_read = (from - start) as usize..(to - start) as usize;
            (in_read, (from - block.offset) as usize..(to - block.offset) as usize)
        };
        let mut stop = true;
        if let &[only] = active {
            let (start, buf) = &mut reads[only];
            let (in_read, in_block) = part(*start, buf.len());
            if in_block.len() as u64 == block.len && self.inner().cache.get(block.number).is_none()
            {
                return self.inner().decode(block, until, &mut buf[in_read], scratch);
            }
            let Range { start, end } = in_block;
            if self.inner().is_lone(block, start, end - start) {
                let buf = &mut buf[in_read];
                return self.inner().decode_piece(block, start, until, buf, scratch);
            }
            stop = !is_piece(block, start, end - start);
        }
        let needed = |&i: &usize| part(reads[i].0, reads[i].1.len()).1;
        let sum: usize = active.iter().map(|i| needed(i).len()).sum();
        if has_point_reads(block) && (sum as u64) < block.len {
            for &i in active {
                let (start, buf) = &mut reads[i];
                let (in_read, in_block) = part(*start, buf.len());
                let buf = &mut buf[in_read];
                self.inner().decode_piece(block, in_block.start, until, buf, scratch)?;
            }
            return Ok(());
        }
        let end = active.iter().map(|i| needed(i).end).max().unwrap_or(0);
        self.inner().with_block(block, (end, stop), until, scratch, |bytes| {
            for &i in active {
                let (start, buf) = &mut reads[i];
                let (in_read, in_block) = part(*start, buf.len());
                buf[in_read].copy_from_slice(&bytes[in_block]);
            }
        })
    }
}
