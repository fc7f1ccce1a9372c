//! Puts texts together of words.

use std::ops::Range;

use super::{Bits, Decoder, Room, Told};
use crate::codec::{Codec, Scratch};
use crate::error::{Error, Place, Result};
use crate::events::words::{Vocabulary, Word, is_same, stored};
use crate::wire::load_u32;

/// Where lengths and bytes of a column of words are.
#[derive(Clone, Default)]
pub(super) struct Span {
    lens: Range<usize>,
    texts: Range<usize>,
}

/// A column of words, of which some texts are wanted.
struct Column<'a> {
    vocabulary: &'a Vocabulary,
    counts: &'a [u64],
    words: &'a [u64],
    /// What is stored of its texts as it is.
    stored: &'a [u8],
    /// The texts that are wanted, and the number of the first word of the first.
    wanted: Range<usize>,
    first: usize,
}

impl Told {
    /// The lengths or the bytes of a column of words.
    #[inline(always)]
    pub(super) fn text(&self, words: usize, is_counts: bool) -> Bits<'_> {
        let span = &self.spans[words];
        match is_counts {
            true => Bits::Numbers(&self.lens[span.lens.clone()]),
            false => Bits::Bytes(&self.texts[span.texts.clone()]),
        }
    }
}

impl Decoder {
    /// Puts together the texts of the packet in a room that are wanted, of these columns of their bytes. `at` is where errors are said to be.
    pub fn texts(
        &self,
        room: &mut Room,
        is_wanted: impl Fn(usize) -> bool,
        at: Place,
    ) -> Result<()> {
        if self.words.is_empty() {
            return Ok(());
        }
        self.put_texts(room, is_wanted).ok_or(Error::Corrupt { what: "texts of events", at })
    }

    fn put_texts(&self, room: &mut Room, is_wanted: impl Fn(usize) -> bool) -> Option<()> {
        let told = &mut room.told;
        let (mut lens, mut texts) =
            (std::mem::take(&mut told.lens), std::mem::take(&mut told.texts));
        let mut spans = std::mem::take(&mut told.spans);
        lens.clear();
        texts.clear();
        spans.clear();
        let mut rest = room.padded.bytes().get(told.stored.clone())?;
        for (column, vocabulary) in &self.words {
            let (counts, words) = (self.own[column - 1], self.own[*column]);
            let above = *told.items.get(counts.level as usize)?;
            let items = *told.items.get(words.level as usize)?;
            let words = told.all(items, words.before as usize)?;
            let stored = match rest.is_empty() {
                true => 0,
                false => words.iter().fold(0usize, |sum, &word| sum.saturating_add(stored(word))),
            };
            let stored = rest.split_off(..stored)?;
            if !is_wanted(*column) {
                spans.push(Span::default());
                continue;
            }
            let counts = told.all(above, counts.before as usize)?;
            let wanted = above.from..above.to;
            let column = Column { vocabulary, counts, words, stored, wanted, first: items.from };
            spans.push(column.put(&mut lens, &mut texts, self.texts, &mut room.codec)?);
        }
        (told.lens, told.texts, told.spans) = (lens, texts, spans);
        rest.is_empty().then_some(())
    }
}

impl Column<'_> {
    /// Appends lengths and bytes of the texts that are wanted, up to so many.
    fn put(
        self,
        lens: &mut Vec<u64>,
        texts: &mut Vec<u8>,
        most: u64,
        codec: &mut Scratch,
    ) -> Option<Span> {
        let Column { vocabulary, counts, words, mut stored, wanted, first: mut at } = self;
        let words_of =
            |i: usize, at: usize| words.get(at..at.checked_add(*counts.get(i)? as usize)?);
        // What the first copies is in texts before it.
        let mut first = wanted.start;
        while !wanted.is_empty()
            && first > 0
            && words_of(first, at)?.iter().any(|&word| is_same(word))
        {
            first -= 1;
            at = at.checked_sub(*counts.get(first)? as usize)?;
        }
        if !stored.is_empty() {
            stored = stored.get(words.get(..at)?.iter().map(|&word| self::stored(word)).sum()..)?;
        }
        let (lens_start, mut texts_start, mut before) = (lens.len(), texts.len(), 0..0);
        for i in first..wanted.end {
            let start = texts.len();
            if i == wanted.start {
                texts_start = start;
            }
            let words = words_of(i, at)?;
            for &word in words {
                match vocabulary.get(word)? {
                    Word::Bytes(bytes) => texts.extend_from_slice(bytes),
                    Word::Stored(len) => texts.extend_from_slice(stored.split_off(..len)?),
                    Word::Frame => {
                        let len = words.iter().map(|&word| self::stored(word)).sum();
                        let (len, frame) = stored.split_off(..len)?.split_at_checked(4)?;
                        let len = load_u32(len, 0) as usize;
                        let is_alone = words.iter().skip(1).all(|&word| self::stored(word) > 0);
                        if !is_alone || words.len() == 1 || (start + len) as u64 > most {
                            return None;
                        }
                        texts.truncate(start);
                        texts.resize(start + len, 0);
                        let (src, dst) = (frame.into(), texts.get_mut(start..)?.into());
                        let done = Codec::Zstd.decompress_within(src, dst, codec).ok()?;
                        if done != Some(len) {
                            return None;
                        }
                        break;
                    }
                    Word::Same(len) => {
                        let from = before.start + (texts.len() - start);
                        let same = from..from + len;
                        if same.end > before.end {
                            return None;
                        }
                        texts.extend_from_within(same);
                    }
                }
                if texts.len() as u64 > most {
                    return None;
                }
            }
            at += *counts.get(i)? as usize;
            before = start..texts.len();
            if i >= wanted.start {
                lens.push((texts.len() - start) as u64);
            }
        }
        let texts_start = if wanted.is_empty() { texts.len() } else { texts_start };
        Some(Span { lens: lens_start..lens.len(), texts: texts_start..texts.len() })
    }
}
