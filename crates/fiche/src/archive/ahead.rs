//! Where each read waits for something far away: what reads need is fetched together.

use std::ops::Range;
use std::sync::PoisonError;

use crate::archive::reader::Inner;
use crate::blocks::{Block, Coded};
use crate::error::Result;
use crate::io::Distant;

/// Content whose stored bytes are fetched at once.
pub(super) const BATCH: u64 = 16 << 20;

impl Inner {
    /// Fetches what reading these ranges of the content needs and is not there, if that is far away: the
    /// tables of their chapters in one go, and then blocks, dictionaries and models in another. What is
    /// wrong with them, the reads will tell.
    pub fn fetch(&self, reads: &[Range<u64>]) {
        if let Some(distant) = self.source.as_distant() {
            let _ = self.fetch_from(distant, reads);
        }
    }

    fn fetch_from(&self, distant: &dyn Distant, reads: &[Range<u64>]) -> Result<()> {
        let mut tables: Vec<Range<u64>> = Vec::new();
        for read in reads.iter().filter(|read| read.start < read.end) {
            for chapter in self.chapter_at(read.start)..=self.chapter_at(read.end - 1) {
                if !self.has_table(chapter) {
                    let at = self.footer.chapters[chapter].table;
                    tables.push(at.pos..at.end());
                }
            }
        }
        if !tables.is_empty() {
            distant.fetch(&tables);
        }
        let (mut ranges, coded) = self.stored_of(reads)?;
        let mut alone = None;
        if coded.iter().any(|coded| coded.dictionary.is_some()) {
            let first_table = self.footer.chapters.first().map_or(0, |first| first.table.pos);
            if self.shared.front(first_table).is_some() {
                let lock = self.shared.fetching.lock();
                alone = Some(lock.unwrap_or_else(PoisonError::into_inner));
            }
            match self.shared.front(first_table) {
                // Another thread has fetched it meanwhile.
                Some(front) if distant.has(front.clone()) => {}
                Some(front) => ranges.push(front),
                None => {
                    coded.iter().try_for_each(|&coded| self.shared.waiting(coded, &mut ranges))?
                }
            }
        }
        if !ranges.is_empty() {
            distant.fetch(&ranges);
        }
        drop(alone);
        Ok(())
    }

    /// Where the stored blocks are that reading these ranges of the content needs and are not cached, those
    /// of neighbours with what lies between them; and how they are coded. Loads the tables of their chapters.
    pub fn stored_of(&self, reads: &[Range<u64>]) -> Result<(Vec<Range<u64>>, Vec<Coded>)> {
        let (mut found, mut coded): (Vec<Range<u64>>, Vec<Coded>) = Default::default();
        for read in reads {
            let mut last: Option<(usize, Block)> = None;
            let mut offset = read.start;
            while offset < read.end {
                let chapter = self.chapter_at(offset);
                let block = self.table(chapter)?.find(offset);
                offset = block.offset + block.len;
                if self.is_at_hand(&block) {
                    last = None;
                    continue;
                }
                match (&last, found.last_mut()) {
                    (Some((at, before)), Some(range))
                        if *at == chapter && before.number + 1 == block.number =>
                    {
                        range.end = block.end();
                    }
                    _ => found.push(block.pos..block.end()),
                }
                if !coded.contains(&block.coded) {
                    coded.push(block.coded);
                }
                last = Some((chapter, block));
            }
        }
        Ok((found, coded))
    }
}
