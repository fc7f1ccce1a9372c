//! Marks: where factors and tokens begin in blocks that lie in memory and are read again and again.
//!
//! To read a few bytes of an `rlz-uv` or `rlz-pv` block is to add up the lengths of the factors before
//! them. A mark keeps what that came to, for a place in every KiB of content: a read begins at one, and
//! knows where to look before it has looked at anything else. In a `hybrid-fast` block a read goes on to
//! what its bytes were copied from, from place to place; there is a mark for every 256 bytes.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::archive::shared::Shared;
use crate::blocks::{Block, CHECKSUM};
use crate::processor::prefetch;
use crate::rlz::Coding;
use crate::rlz::coder::{Begin, KEPT_BITS, KEPT_STEP, Kept, Mark};

/// Bytes of content for each mark of a factor.
const STEP: u64 = 1024;
/// Words that are taken from memory at once.
const PAGE: u64 = 1 << 14;
/// Pages of each kind that are kept at most: 32 MiB of memory, for 4 GiB of content that has factors, and one that
/// has tokens.
const MOST_PAGES: usize = 256;
/// Content that has marks, in pages: the first TiB, or quarter of it. What a file says of its length takes no memory.
const END: u64 = 1 << 16;
/// Each number of a mark takes so many bits: a longer block has no marks.
const BITS: u32 = 20;

type Page = Box<[AtomicU64]>;

/// A word for every `STEP` bytes of content, 0 where it is not known; none until the first block is noted.
#[derive(Default)]
struct Words<const STEP: u64> {
    pages: OnceLock<Vec<OnceLock<Page>>>,
    taken: AtomicUsize,
}

impl<const STEP: u64> Words<STEP> {
    /// Asks for the memory where the word of this byte of the content is.
    #[inline(always)]
    fn ask(&self, offset: u64) {
        if let Some(page) = self.page(offset / STEP / PAGE) {
            prefetch(page, (offset / STEP % PAGE) as usize);
        }
    }

    fn page(&self, number: u64) -> Option<&Page> {
        self.pages.get()?.get(number as usize)?.get()
    }

    /// The page of a slot, taken from memory unless that is too much.
    fn take(&self, slot: u64, content_len: u64) -> Option<&Page> {
        let pages = content_len.div_ceil(STEP * PAGE).min(END);
        let pages = self.pages.get_or_init(|| (0..pages).map(|_| OnceLock::new()).collect());
        let page = pages.get((slot / PAGE) as usize)?;
        if page.get().is_none() && self.taken.fetch_add(1, Ordering::Relaxed) >= MOST_PAGES {
            self.taken.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(page.get_or_init(|| (0..PAGE).map(|_| AtomicU64::new(0)).collect()))
    }

    /// Those of a block, and where in it the first one is. `None` where there are none, or in two pages.
    #[inline(always)]
    fn of(&self, block: &Block) -> Option<(&[AtomicU64], usize)> {
        let (first, end) = (block.offset.div_ceil(STEP), (block.offset + block.len).div_ceil(STEP));
        let slots = (first % PAGE) as usize..((first % PAGE) + end.checked_sub(first)?) as usize;
        let words = self.page(first / PAGE)?.get(slots)?;
        Some((words, (first * STEP - block.offset) as usize))
    }
}

/// The marks of an archive.
#[derive(Default)]
pub(super) struct Marks {
    factors: Words<STEP>,
    tokens: Words<{ KEPT_STEP as u64 }>,
}

impl Marks {
    /// True until the first block with factors is noted.
    pub fn has_no_factors(&self) -> bool {
        self.factors.pages.get().is_none()
    }

    /// Asks for the memory where the mark before this byte of the content is.
    #[inline(always)]
    pub fn ask(&self, offset: u64) {
        self.factors.ask(offset);
        self.tokens.ask(offset);
    }

    /// What is known where a read of a block begins.
    #[inline(always)]
    pub fn begin(&self, block: &Block, start: usize) -> Begin<'_> {
        let is_fast = block.coded.number == Coding::Fast as u8;
        let kept = if is_fast { self.tokens.of(block) } else { None };
        let kept = kept.map(|(words, first)| Kept { words, first }).filter(|kept| kept.has(start));
        let mark = if is_fast { None } else { self.before(block, start) };
        Begin { at: start, mark, kept }
    }

    /// The last mark that is known before byte `start` of a block.
    #[inline(always)]
    pub fn before(&self, block: &Block, start: usize) -> Option<Mark> {
        let slot = (block.offset + start as u64) / STEP;
        let word = self.factors.page(slot / PAGE)?[(slot % PAGE) as usize].load(Ordering::Relaxed);
        // Near its start the mark is that of the block before.
        if word == 0 || slot * STEP < block.offset {
            return None;
        }
        let part = |i: u32| (word >> (3 + i * BITS)) as usize & ((1 << BITS) - 1);
        let mark = Mark { count: word as usize & 7, at: part(0), left: part(1), start: part(2) };
        (mark.start <= start).then_some(mark)
    }

    /// True near the start of a block, where no mark is needed and there is none.
    pub fn is_near(block: &Block, start: usize) -> bool {
        (block.offset + start as u64) / STEP * STEP < block.offset
    }

    /// Notes the marks of a block that has been verified, if its coding has them and there is one before
    /// byte `start` of it.
    pub fn note(
        &self,
        block: &Block,
        start: usize,
        stored: &[u8],
        content_len: u64,
        shared: &Shared,
    ) {
        let bytes = &stored[..stored.len().saturating_sub(CHECKSUM)];
        let is_raw = bytes.len() as u64 == block.len;
        match Coding::from_number(block.coded.number) {
            Some(Coding::Fast) if !is_raw && block.len >> KEPT_BITS == 0 => {
                let first = block.offset.div_ceil(KEPT_STEP as u64);
                let page = self.tokens.take(first, content_len);
                if let (Some(_), Some((words, first)), Ok(shared)) =
                    (page, self.tokens.of(block), shared.of(block.coded))
                {
                    Coding::keep(shared, bytes, Kept { words, first });
                }
            }
            Some(coding) if coding.has_marks() && !is_raw => {
                self.note_factors(block, start, bytes, content_len);
            }
            _ => {}
        }
    }

    fn note_factors(&self, block: &Block, start: usize, bytes: &[u8], content_len: u64) {
        if Marks::is_near(block, start) || block.len >> BITS != 0 {
            return;
        }
        let mut slot = block.offset.div_ceil(STEP);
        if self.factors.take(slot, content_len).is_none() {
            return;
        }
        let first = (slot * STEP - block.offset) as usize;
        Coding::marks(bytes, block.len as usize, first, STEP as usize, |mark| {
            if let Some(page) = self.factors.take(slot, content_len) {
                let parts = [mark.at, mark.left, mark.start];
                let word = parts.iter().rev().fold(1, |word, &part| word << BITS | part as u64);
                let word = word << 3 | mark.count as u64;
                page[(slot % PAGE) as usize].store(word, Ordering::Relaxed);
            }
            slot += 1;
        });
    }
}

/// Which blocks were verified: a bit for each, once the first one was.
#[derive(Default)]
pub(super) struct Verified(OnceLock<Vec<AtomicU64>>);

impl Verified {
    pub fn has(&self, block: u64) -> bool {
        let word = self.0.get().and_then(|words| words.get(block as usize / 64));
        word.is_some_and(|word| word.load(Ordering::Relaxed) >> (block % 64) & 1 == 1)
    }

    /// Notes one of so many blocks.
    pub fn set(&self, block: u64, blocks: u64) {
        let words = || (0..blocks.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        if let Some(word) = self.0.get_or_init(words).get(block as usize / 64) {
            word.fetch_or(1 << (block % 64), Ordering::Relaxed);
        }
    }
}

/// Which blocks were looked at: of those that share a place, the last one.
#[derive(Default)]
pub(super) struct Looked(OnceLock<Vec<AtomicU64>>);

impl Looked {
    /// About as many blocks as a cache of the usual size holds.
    const PLACES: u64 = 4096;

    /// Notes that a block is looked at. False where that is known.
    pub fn is_first(&self, block: u64) -> bool {
        let places = || (0..Looked::PLACES).map(|_| AtomicU64::new(u64::MAX)).collect();
        let place = &self.0.get_or_init(places)[(block % Looked::PLACES) as usize];
        place.swap(block, Ordering::Relaxed) != block
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use super::*;
    use crate::archive::reader::Inner;
    use crate::archive::{OpenOptions, Options, Reader, Writer};
    use crate::error::Error;
    use crate::io::ReadAt;
    use crate::rlz::{Coder, Dictionary};
    use crate::testing::Random;
    use crate::wire::Put;

    fn archive(coding: Coding, block_len: usize, content: &[u8]) -> Reader {
        let dictionary = Arc::new(Dictionary::new(content[..5000].to_vec()).unwrap());
        let coder = Arc::new(Coder::new(coding, dictionary).unwrap());
        let options = Options::default().coder(coder).block_len(block_len);
        let mut writer = Writer::new(Vec::new(), options).unwrap();
        writer.write_all(content).unwrap();
        OpenOptions::default().cache(0).open(Arc::new(writer.finish().unwrap())).unwrap()
    }

    /// Text in which factors are short, long and none, with noise that does not shrink.
    fn content(len: usize) -> Vec<u8> {
        let mut random = Random(5);
        let mut all: Vec<u8> = (0..5000).map(|_| random.number() as u8).collect();
        while all.len() < len {
            let (from, piece) = (random.below(4000) as usize, random.below(1000) as usize);
            match random.below(9) {
                0..4 => all.extend_from_within(from..from + piece / 100),
                4..8 => all.extend_from_within(from..from + piece),
                _ => all.extend((0..piece * 3).map(|_| random.number() as u8)),
            }
        }
        all.truncate(len);
        all
    }

    #[test]
    fn reads_by_marks_are_those_without() {
        for (coding, block_len, len) in [
            (Coding::Uv, 16 << 10, 200_000),
            (Coding::Pv, 16 << 10, 200_000),
            (Coding::Pv, 1100, 50_000),
            (Coding::Uv, 1024, 50_000),
            (Coding::Pv, 2 << 20, 3 << 20),
            (Coding::Fast, 16 << 10, 200_000),
            (Coding::Fast, 1100, 50_000),
            (Coding::Fast, 1024, 20_000),
            (Coding::Fast, 1 << KEPT_BITS, 3 << KEPT_BITS),
            (Coding::Fast, (1 << KEPT_BITS) - 1, 400_000),
        ] {
            let content = content(len);
            let reader = archive(coding, block_len, &content);
            let mut random = Random(8);
            for _ in 0..10_000 {
                let at = random.below(len as u64) as usize;
                let piece = (random.below(3 * block_len as u64).min(600) as usize).min(len - at);
                let mut read = vec![0; piece];
                reader.read_at(at as u64, &mut read).unwrap();
                assert_eq!(read, content[at..at + piece], "{coding} {block_len} {at} {piece}");
            }
            // Together, in any order, and with some that are outside.
            for count in [1, 7, 16, 300] {
                let mut room = vec![vec![0xAA; 700]; count];
                let mut reads: Vec<(u64, &mut [u8])> = room
                    .iter_mut()
                    .map(|read| {
                        let piece = random.below(700) as usize;
                        (random.below(len as u64), &mut read[..piece])
                    })
                    .collect();
                for (result, (at, read)) in reader.read_many_at(&mut reads).iter().zip(&reads) {
                    match content.get(*at as usize..*at as usize + read.len()) {
                        Some(text) => assert!(result.is_ok() && text == *read, "{coding} {at}"),
                        None => assert!(matches!(result, Err(Error::OutOfBounds { .. }))),
                    }
                }
            }
            let Marks { factors, tokens } = &reader.inner().marks;
            let taken = [&factors.taken, &tokens.taken].map(|n| n.load(Ordering::Relaxed) > 0);
            let bits = if coding == Coding::Fast { KEPT_BITS } else { BITS };
            let has_any = block_len < 1 << bits;
            let is_fast = coding == Coding::Fast;
            assert_eq!(taken, [has_any && !is_fast, has_any && is_fast], "{coding} {block_len}");
        }
    }

    /// A block whose lengths add up to more than it has, as only a hostile file has them: its checksum is
    /// right, and reads that need none of what is wrong are answered.
    #[test]
    fn a_hostile_block_marks_none_but_itself() {
        let reader = archive(Coding::Uv, 16 << 10, &content(100_000));
        let block = reader.inner().block_at(0).unwrap();
        let mut stored = vec![2];
        for len in [3000u64, u64::from(u32::MAX)] {
            stored.put_varint(len);
        }
        stored.extend([0; 8 + CHECKSUM]);
        let marks = Marks::default();
        marks.note(&block, 9000, &stored, 1 << 20, &reader.inner().shared);
        let next = Block { number: 1, offset: block.len, ..block };
        for start in (0..block.len as usize).step_by(100) {
            assert_eq!(marks.before(&next, start), None);
            let known = marks.before(&block, start);
            assert_eq!(
                known.map(|mark| mark.start),
                Some(if start < 4096 - 1024 { 0 } else { 3000 }),
                "{start}"
            );
        }
        // Were it there all the same, it is behind what is read.
        let short = Block { offset: 2048, len: 1500, ..block };
        assert_eq!(marks.before(&short, 1400), None);
    }

    /// Tokens of a block that say less than it has, or more, or lead outside.
    #[test]
    fn hostile_tokens_mark_none_but_their_block() {
        let reader = archive(Coding::Fast, 16 << 10, &content(100_000));
        let shared = &reader.inner().shared;
        let block = reader.inner().block_at(0).unwrap();
        let all = reader.inner().source.as_bytes().unwrap();
        let stored = &all[block.pos as usize..block.end() as usize];
        let mut random = Random(3);
        for _ in 0..300 {
            let mut stored = stored.to_vec();
            for _ in 0..random.below(40) {
                let at = random.below(stored.len() as u64) as usize;
                stored[at] = random.below(256) as u8;
            }
            let marks = Marks::default();
            // Its neighbours begin where no word does.
            let block = Block { offset: 16_300, ..block };
            marks.note(&block, 9000, &stored, 1 << 20, shared);
            let before = Block { offset: 0, len: 16_300, ..block };
            let next = Block { number: 1, offset: block.offset + block.len, ..block };
            for start in (KEPT_STEP..16_300).step_by(100) {
                assert!(marks.begin(&before, start).kept.is_none());
                assert!(marks.begin(&next, start).kept.is_none());
            }
            let mut buf = [0; 100];
            for start in (0..16_200).step_by(90) {
                // Any answer will do, as nothing here looks at a checksum.
                let begin = marks.begin(&block, start);
                let mut scratch = Default::default();
                let shared = shared.of(block.coded).unwrap();
                let bytes = &stored[..stored.len() - CHECKSUM];
                let len = block.len as usize;
                let _ = crate::rlz::coder::decode(
                    Coding::Fast,
                    shared,
                    bytes,
                    len,
                    begin,
                    &mut buf,
                    &mut scratch,
                );
            }
        }
    }

    #[test]
    fn memory_for_marks_has_an_end() {
        for (coding, step) in [(Coding::Uv, STEP), (Coding::Fast, KEPT_STEP as u64)] {
            let reader = archive(coding, 16 << 10, &content(100_000));
            let Inner { source, shared, .. } = reader.inner();
            let block = reader.inner().block_at(0).unwrap();
            let stored = &source.as_bytes().unwrap()[block.pos as usize..block.end() as usize];
            let (marks, start) = (Marks::default(), 3 * STEP as usize);
            for page in 0..2 * MOST_PAGES as u64 {
                let block = Block { offset: page * step * PAGE, ..block };
                marks.note(&block, start, stored, u64::MAX, shared);
                let begin = marks.begin(&block, start);
                let is_known = begin.mark.is_some() || begin.kept.is_some();
                assert_eq!(is_known, page < MOST_PAGES as u64, "{coding}");
            }
            let Marks { factors, tokens } = &marks;
            let pages = factors.pages.get().or(tokens.pages.get()).unwrap();
            assert_eq!(pages.len() as u64, END);
            let taken =
                factors.taken.load(Ordering::Relaxed) + tokens.taken.load(Ordering::Relaxed);
            assert_eq!(taken, MOST_PAGES);
        }
    }
}
