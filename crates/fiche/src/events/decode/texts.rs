//! Puts texts together of words.

use std::ops::Range;
use std::sync::Arc;

use super::{Bits, Decoder, KEPT, Room, Told};
use crate::codec::{Codec, Scratch};
use crate::events::model::Model;
use crate::events::words::{Vocabulary, Word, is_same, stored};
use crate::wire::load_u32;

/// Where lengths and bytes of a column of words are.
#[derive(Clone, Default)]
pub(super) struct Span {
    lens: Range<usize>,
    texts: Range<usize>,
}

/// A column of words of a model.
pub(super) struct Texts {
    column: usize,
    pub(super) vocabulary: Arc<Vocabulary>,
    /// The number of the one whose texts it has.
    pub(super) same: Option<usize>,
    /// Others have those of this one.
    is_shared: bool,
}

impl Texts {
    pub(super) fn all(model: &Model) -> Vec<Texts> {
        let place = |column: usize| model.words.iter().position(|&(other, _)| other == column);
        let texts = model.words.iter().map(|(column, vocabulary)| {
            let is_same = model.same.contains(column);
            let same = is_same.then(|| place(model.plan.columns[*column])).flatten();
            let is_shared = model.same.iter().any(|&other| model.plan.columns[other] == *column);
            Texts { column: *column, vocabulary: vocabulary.clone(), same, is_shared }
        });
        texts.collect()
    }
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
    /// The lengths or the bytes that a packet has of a column of words.
    #[inline(always)]
    pub(super) fn text(&self, packet: usize, words: usize, is_counts: bool) -> Bits<'_> {
        let span = &self.spans[packet * (self.spans.len() / self.lanes) + words];
        match is_counts {
            true => Bits::Numbers(&self.lens[span.lens.clone()]),
            false => Bits::Bytes(&self.texts[span.texts.clone()]),
        }
    }
}

impl Decoder {
    /// Puts together the texts of the packets in a room that are wanted, of these columns of their bytes. `None` where one is damaged, or
    /// where they have more than several may have at once.
    pub fn texts(&self, room: &mut Room, is_wanted: impl Fn(usize) -> bool) -> Option<()> {
        if self.words.is_empty() {
            return Some(());
        }
        self.put_texts(room, is_wanted)
    }

    fn put_texts(&self, room: &mut Room, is_wanted: impl Fn(usize) -> bool) -> Option<()> {
        let told = &mut room.told;
        let (mut lens, mut texts) =
            (std::mem::take(&mut told.lens), std::mem::take(&mut told.texts));
        let mut spans = std::mem::take(&mut told.spans);
        lens.clear();
        texts.clear();
        spans.clear();
        for packet in 0..told.lanes {
            let mut rest = room.padded.bytes().get(told.stored.get(packet)?.clone())?;
            let first = spans.len();
            let most = self.texts.saturating_add(texts.len() as u64);
            let most = if told.lanes > 1 { most.min(8 * KEPT as u64) } else { most };
            for Texts { column, vocabulary, same, is_shared } in &self.words {
                if let Some(span) = same.and_then(|same| spans.get(first + same)) {
                    spans.push(Span::clone(span));
                    continue;
                }
                let (counts, words) = (self.own[column - 1], self.own[*column]);
                let of = |level: u32| told.items.get(told.lanes * level as usize + packet);
                let (above, items) = (*of(counts.level)?, *of(words.level)?);
                let words = told.all(items, words.before as usize)?;
                let stored = match rest.is_empty() {
                    true => 0,
                    false => {
                        words.iter().fold(0usize, |sum, &word| sum.saturating_add(stored(word)))
                    }
                };
                let stored = rest.split_off(..stored)?;
                if !is_shared && !is_wanted(*column) {
                    spans.push(Span::default());
                    continue;
                }
                let counts = told.all(above, counts.before as usize)?;
                let wanted = above.from..above.to;
                let column =
                    Column { vocabulary, counts, words, stored, wanted, first: items.from };
                spans.push(column.put(&mut lens, &mut texts, most, &mut room.codec)?);
            }
            if !rest.is_empty() {
                return None;
            }
        }
        (told.lens, told.texts, told.spans) = (lens, texts, spans);
        Some(())
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
                        let done = Codec::Zstd.try_decompress(src, dst, codec).ok()?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Put, Take};

    /// The texts of a packet that are wanted of these numbers, put together by a vocabulary of two words.
    fn put(
        counts: &[u64],
        words: &[u64],
        stored: &[u8],
        wanted: Range<usize>,
    ) -> Option<Vec<Vec<u8>>> {
        let mut bytes = vec![2, 3, 2];
        bytes.put(b"onetwo"[..5].as_ref());
        let vocabulary = Vocabulary::take(&mut Take::new(&bytes, "test", 0)).unwrap();
        let first = counts[..wanted.start].iter().sum::<u64>() as usize;
        let (mut lens, mut texts) = (vec![77], b"before".to_vec());
        let column = Column { vocabulary: &vocabulary, counts, words, stored, wanted, first };
        let span = column.put(&mut lens, &mut texts, 1000, &mut Scratch::default())?;
        let mut rest = &texts[span.texts];
        let all = lens[span.lens].iter().map(|&len| rest.split_off(..len as usize).map(Vec::from));
        let all = all.collect();
        assert!(rest.is_empty());
        all
    }

    #[test]
    fn texts_are_put_together_from_any_on() {
        // "one" and "tw" are words; 31 + n are n bytes of the text before; 1 is two bytes that are stored.
        let (counts, words) = ([2, 0, 2, 1, 3], [256, 257, 1, 256, 33, 256, 33, 0]);
        let all: [&[u8]; 5] = [b"onetw", b"", b"xyone", b"xy", b"one"];
        let expected =
            |wanted: Range<usize>| all[wanted].iter().map(|text| text.to_vec()).collect::<Vec<_>>();
        // The last copies from behind the end of the one before: refused, and only if it is asked for.
        for from in 0..5 {
            for to in from..5 {
                let got = put(&counts, &words, b"xyz", from..to);
                let has_last = to == 5;
                assert_eq!(got, (!has_last).then(|| expected(from..to)), "{from}..{to}");
            }
            assert_eq!(put(&counts, &words, b"xyz", from..5), None);
        }
    }

    #[test]
    fn what_stands_for_nothing_is_refused() {
        // A number without a word, of the vocabulary and below it; more than is stored; the text before where there is none.
        for word in [258, u64::MAX, 26, 31, 5, 24, 32] {
            assert_eq!(put(&[1], &[word], b"four", 0..1), None, "{word}");
        }
        // Counts of more words than there are.
        assert_eq!(put(&[2], &[256], b"", 0..1), None);
        assert_eq!(put(&[u64::MAX], &[256], b"", 0..1), None);
        // More than a packet's texts may be.
        assert_eq!(put(&[400], &[256; 400], b"", 0..1), None);
        assert!(put(&[300], &[256; 300], b"", 0..1).is_some());
    }

    #[test]
    fn frames_are_whole_texts() {
        let text = b"so long, and over again; ".repeat(20);
        let mut frame = vec![0; 600];
        let (src, dst) = (text.as_slice().into(), frame.as_mut_slice().into());
        let len = Codec::Zstd.compress(3, src, dst, &mut Scratch::default()).unwrap().unwrap();
        let stored = |claimed: usize, len: usize| {
            let mut stored = Vec::new();
            stored.put_u32(claimed as u32);
            stored.put(&frame[..len]);
            stored
        };
        let runs = |len: usize| (0..10).rev().filter(move |bit| len >> bit & 1 == 1);
        let words = |len: usize| -> Vec<u64> {
            [25].into_iter().chain(runs(len + 4).map(|bit| bit as u64)).collect()
        };
        let right = words(len);
        let count = [right.len() as u64];
        let whole = stored(text.len(), len);
        assert_eq!(put(&count, &right, &whole, 0..1), Some(vec![text.clone()]));
        for claimed in [0, text.len() - 1, text.len() + 1, 1001, u32::MAX as usize] {
            assert_eq!(put(&count, &right, &stored(claimed, len), 0..1), None, "{claimed}");
        }
        // Cut short, with a word beside it, behind a word, and alone.
        let short = words(len - 1);
        assert_eq!(put(&[short.len() as u64], &short, &stored(text.len(), len - 1), 0..1), None);
        let beside: Vec<u64> = right.iter().copied().chain([256]).collect();
        assert_eq!(put(&[beside.len() as u64], &beside, &whole, 0..1), None);
        let behind: Vec<u64> = [256].into_iter().chain(right.clone()).collect();
        assert_eq!(put(&[behind.len() as u64], &behind, &whole, 0..1), None);
        assert_eq!(put(&[1], &[25], &whole, 0..1), None);
    }
}
