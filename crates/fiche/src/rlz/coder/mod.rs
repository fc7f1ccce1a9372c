//! Codings of blocks relative to a dictionary.
//!
//! # Codings
//!
//! What a block stores with the help of a dictionary. Their numbers go on where those of codecs end;
//! whatever the coding, a block that does not shrink is stored as it is.
//!
//! | number | coding | stored bytes of a block |
//! |---|---|---|
//! | 16 | rlz-uv | factors: lengths as varints, offsets in 32 bits |
//! | 17 | rlz-pv | factors: lengths as varints, offsets in as few bits as they need |
//! | 18 | rlz-zz | factors: both streams deflated |
//! | 19 | rlz-zzz | factors and literals: three streams deflated |
//! | 20 | rlz-zz-primed | as rlz-zz, behind streams that are known |
//! | 21 | zlib-primed | deflate behind a part of the dictionary |
//! | 22 | zstd-dict | Zstandard behind all of the dictionary |
//! | 23 | hybrid | copies out of the dictionary and the block, with codes that all blocks share |
//! | 24 | hybrid-fast | copies out of the dictionary and the block, in whole bytes |

// Without deflate, what its streams need stays unused.
#![cfg_attr(not(feature = "zlib"), allow(dead_code, unused_variables))]

mod coding;
mod copy;
mod lens;
mod model;
mod plain;
#[cfg(feature = "zlib")]
mod streams;
#[cfg(feature = "zlib")]
mod zlib_primed;
mod zstd_dict;

use std::fmt;
use std::sync::Arc;

#[cfg(feature = "zlib")]
use crate::codec;
use crate::codec::prepared::{Decoder, Encoder, Encoding};
use crate::error::{Error, Result};
use crate::parallel::default_threads;
pub(crate) use crate::rlz::hybrid::point::{KEPT_BITS, Kept, STEP as KEPT_STEP};
use crate::rlz::hybrid::{self, Finder};
pub(crate) use crate::rlz::matcher::LANES;
use crate::rlz::matcher::{Factor, Matcher};
#[cfg(feature = "zlib")]
use crate::rlz::primed;
use crate::rlz::{Dictionary, sample};
pub use coding::Coding;
pub(crate) use model::{Model, Primes};
pub(crate) use plain::{Mark, Pending, width};

/// A coding, a dictionary and what packing with them needs, ready for any number of archives. Cheap to
/// clone.
///
/// ```
/// use std::sync::Arc;
/// use fiche::archive::{Options, Reader, Writer};
/// use fiche::rlz::{Coder, Coding, Dictionary};
/// use fiche::ReadAt;
/// use std::io::Write;
///
/// let letters = "Dear Ada, the engine has arrived. ".repeat(100);
/// let dictionary = Arc::new(Dictionary::new(letters.as_bytes()[..200].to_vec())?);
/// let coder = Coder::new(Coding::Pv, dictionary)?;
/// let mut writer = Writer::new(Vec::new(), Options::default().coder(Arc::new(coder)))?;
/// writer.write_all(letters.as_bytes())?;
/// let archive = Reader::open(Arc::new(writer.finish()?))?;
/// let mut piece = [0; 6];
/// archive.read_at(34 * 50 + 14, &mut piece)?;
/// assert_eq!(&piece, b"engine");
/// # Ok::<(), fiche::Error>(())
/// ```
#[derive(Clone)]
pub struct Coder {
    coding: Coding,
    level: i32,
    min_literal: u32,
    dictionary: Arc<Dictionary>,
    matcher: Option<Arc<Matcher>>,
    finder: Option<Arc<Finder>>,
    zstd: Option<Arc<Encoding>>,
    model: Option<Arc<Model>>,
    /// Length of the collection that the dictionary was sampled from; 0 to take its first region
    /// for every block.
    collection: u64,
}

impl fmt::Debug for Coder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Coder({} {} with {:?})", self.coding, self.level, self.dictionary)
    }
}

impl Coder {
    /// Prepares a dictionary for the coding at its default level.
    ///
    /// # Errors
    /// Those of [`with_level`](Coder::with_level).
    pub fn new(coding: Coding, dictionary: Arc<Dictionary>) -> Result<Coder> {
        Coder::with_level(coding, coding.default_level(), dictionary)
    }

    /// Prepares a dictionary: sorts its suffixes or indexes them, at some 10 to 40 MB/s.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a level that the coding does not have, [`Error::Unsupported`] when
    /// it is not compiled in, [`Error::Limit`] when the machine has less memory than this takes.
    pub fn with_level(coding: Coding, level: i32, dictionary: Arc<Dictionary>) -> Result<Coder> {
        if !coding.is_compiled_in() {
            return Err(coding.not_compiled_in());
        }
        coding.check_level(level)?;
        let coding = coding.at_level(level);
        let need = Coder::memory_for(coding, level, dictionary.len() as u64);
        crate::memory::check(need)?;
        let (mut matcher, mut finder) = (None, None);
        if coding.is_hybrid() {
            finder = Some(Arc::new(Finder::new(dictionary.clone(), level)?));
        } else if coding.has_factors() {
            matcher = Some(Arc::new(Matcher::new(dictionary.clone())?));
        }
        let zstd = match coding {
            Coding::ZstdDict => Some(Arc::new(Encoding::new(dictionary.clone(), level)?)),
            _ => None,
        };
        let model = Model::usual(coding, &dictionary).map(Arc::new);
        let min_literal = 4;
        let coder = Coder {
            coding,
            level,
            min_literal,
            dictionary,
            matcher,
            finder,
            zstd,
            model,
            collection: 0,
        };
        Ok(coder)
    }

    /// Bytes of memory that preparing a dictionary of this length takes, the dictionary included.
    #[must_use]
    pub fn memory_for(coding: Coding, level: i32, len: u64) -> u64 {
        len + match coding {
            Coding::ZstdDict => Encoding::memory_for(level, len as usize),
            Coding::ZlibPrimed => 1 << 20,
            Coding::Hybrid | Coding::Fast => Finder::memory_for(len, level),
            _ => Matcher::memory_for(len),
        }
    }

    /// For `rlz-zzz`: factors shorter than this are literals; 1 to 64, 4 as in the paper.
    ///
    /// # Errors
    /// [`Error::Invalid`] for any other.
    pub fn min_literal(self, min_literal: u32) -> Result<Coder> {
        match min_literal {
            1..=64 => Ok(Coder { min_literal, ..self }),
            _ => Err(Error::invalid("the least length of a factor is 1 to 64")),
        }
    }

    /// For `rlz-zz-primed`: text of the kind that will be packed, whose factors
    /// are what the streams of every block are primed with; 100 KiB of it are much.
    #[must_use]
    pub fn probe(self, text: &[u8]) -> Coder {
        match (&self.matcher, self.coding) {
            (Some(matcher), Coding::ZzPrimed) => {
                let model = Some(Arc::new(Model::Primes(Primes::of(matcher, text))));
                Coder { model, ..self }
            }
            _ => self,
        }
    }

    /// For `hybrid`: learns the codes from blocks of this length, sampled from what will be packed.
    /// Without this they know no more than the dictionary, and blocks become larger.
    ///
    /// # Errors
    /// Those of reading.
    pub fn learn(self, collection: &dyn crate::io::ReadAt, block_len: usize) -> Result<Coder> {
        self.learn_on(default_threads(), collection, block_len)
    }

    /// Bytes of memory that [`Coder::learn`] takes at most: text, and what it is parsed to.
    pub(in crate::rlz) fn memory_to_learn(coding: Coding, level: i32, collection: u64) -> u64 {
        match coding.is_hybrid() {
            true => 10 * (hybrid::sample_len(level) as u64).min(collection) + (1 << 20),
            false => 1 << 20,
        }
    }

    /// The same on so many threads.
    pub(crate) fn learn_on(
        self,
        threads: usize,
        collection: &dyn crate::io::ReadAt,
        block_len: usize,
    ) -> Result<Coder> {
        /// Text of one piece.
        const PIECE: usize = 256 << 10;
        let Some(finder) = &self.finder else { return Ok(self) };
        let piece = block_len.clamp(1, PIECE);
        let sample = hybrid::sample_len(self.level);
        let text = sample::pieces(collection, piece, (sample / piece) as u64)?;
        if text.is_empty() {
            return Ok(self);
        }
        let blocks: Vec<&[u8]> = text.chunks(piece).collect();
        let share = text.len() as f64 / collection.len() as f64;
        let model = match self.coding {
            Coding::Fast => {
                Model::Tokens(hybrid::train_tokens(finder, self.level, &blocks, threads))
            }
            _ => Model::Hybrid(hybrid::train(finder, self.level, &blocks, share, threads)),
        };
        Ok(Coder { model: Some(Arc::new(model)), ..self })
    }

    /// For `zlib-primed`: how long the collection is that the dictionary was sampled from, so that
    /// each block is primed with its neighbourhood. Otherwise all are with the first region.
    #[must_use]
    pub fn collection(self, collection: u64) -> Coder {
        Coder { collection, ..self }
    }

    /// The coding.
    #[must_use]
    pub fn coding(&self) -> Coding {
        self.coding
    }

    /// Its level.
    #[must_use]
    pub fn level(&self) -> i32 {
        self.level
    }

    /// The dictionary.
    #[must_use]
    pub fn dictionary(&self) -> &Arc<Dictionary> {
        &self.dictionary
    }

    pub(crate) fn model(&self) -> Option<&Arc<Model>> {
        self.model.as_ref()
    }
}

/// Codes blocks; one for each thread.
pub(crate) struct Packer {
    coder: Arc<Coder>,
    factors: Vec<Vec<Factor>>,
    encoder: Option<Encoder>,
    hybrid: Option<Box<hybrid::Packer>>,
    out: Vec<u8>,
    scratch: Scratch,
}

impl Packer {
    pub fn new(coder: Arc<Coder>) -> Packer {
        let encoder = coder.zstd.clone().and_then(|encoding| Encoder::bound(encoding).ok());
        let (dictionary_len, level) = (coder.dictionary.len(), coder.level);
        let hybrid = coder.model.as_ref().and_then(|model| match &**model {
            Model::Hybrid(model) => Some(hybrid::Packer::new(model, dictionary_len, level)),
            Model::Tokens(all) => Some(hybrid::Packer::fast(all.clone(), dictionary_len, level)),
            Model::Primes(_) => None,
        });
        let hybrid = hybrid.map(Box::new);
        let (factors, out, scratch) = Default::default();
        Packer { coder, factors, encoder, hybrid, out, scratch }
    }

    /// Codes some blocks that stand one behind the other from `offset` on, and hands each over by
    /// its place; `None` where it would not shrink. Blocks are factored 16 at a time: with fewer it
    /// is slower.
    pub fn pack(
        &mut self,
        mut offset: u64,
        blocks: &[&[u8]],
        mut put: impl FnMut(usize, Option<&[u8]>),
    ) {
        let coder = self.coder.clone();
        if let Some(matcher) = &coder.matcher {
            self.factors.resize_with(blocks.len().max(self.factors.len()), Vec::new);
            matcher.factor(blocks, &mut self.factors[..blocks.len()]);
        }
        for (i, block) in blocks.iter().enumerate() {
            let len = self.pack_one(&coder, offset, i, block);
            put(i, len.filter(|&len| len < block.len()).map(|len| &self.out[..len]));
            offset += block.len() as u64;
        }
    }

    /// Codes one block into `out`; how long it became.
    fn pack_one(&mut self, coder: &Coder, offset: u64, i: usize, block: &[u8]) -> Option<usize> {
        let (out, scratch) = (&mut self.out, &mut self.scratch);
        if !coder.coding.has_factors() {
            out.resize(out.len().max(block.len()), 0);
        } else {
            out.clear();
        }
        match coder.coding {
            Coding::Uv => plain::encode_uv(&self.factors[i], out),
            Coding::Pv => plain::encode_pv(&self.factors[i], coder.dictionary.len(), out),
            Coding::ZstdDict => {
                return self.encoder.as_mut()?.compress(block, &mut out[..block.len() - 1]);
            }
            Coding::Hybrid | Coding::Fast => {
                let (finder, packer) = (coder.finder.as_ref()?, self.hybrid.as_mut()?);
                return packer.pack(finder, block, out).then_some(out.len());
            }
            #[cfg(feature = "zlib")]
            Coding::Zz => streams::encode_zz(&self.factors[i], None, coder.level, out, scratch),
            #[cfg(feature = "zlib")]
            Coding::ZzPrimed => {
                let primes = coder.model.as_ref().and_then(|model| model.primes());
                streams::encode_zz(&self.factors[i], primes, coder.level, out, scratch);
            }
            #[cfg(feature = "zlib")]
            Coding::Zzz => {
                let (factors, least) = (&self.factors[i], coder.min_literal);
                streams::encode_zzz(block, factors, least, coder.level, out, scratch);
            }
            #[cfg(feature = "zlib")]
            Coding::ZlibPrimed => {
                let len = coder.dictionary.len();
                let unit = match coder.collection {
                    0 => 0,
                    all => zlib_primed::neighbourhood(len, offset, all),
                };
                let dst = &mut out[..block.len() - 1];
                let dictionary = &coder.dictionary;
                return zlib_primed::encode(dictionary, unit, coder.level, block, dst, scratch);
            }
            // No coder is made for it.
            #[cfg(not(feature = "zlib"))]
            _ => return None,
        }
        Some(out.len())
    }
}

/// What a thread keeps between blocks.
#[derive(Default)]
pub(crate) struct Scratch {
    lens: Vec<u32>,
    room: Vec<u8>,
    zstd: Option<Decoder>,
    pub(in crate::rlz) hybrid: hybrid::Room,
    #[cfg(feature = "zlib")]
    streams: [Vec<u8>; 3],
    #[cfg(feature = "zlib")]
    primed: primed::State,
    #[cfg(feature = "zlib")]
    codec: codec::Scratch,
}

/// What is needed beside a block's stored bytes.
#[derive(Clone, Copy)]
pub(crate) struct Shared<'a> {
    pub dictionary: &'a Dictionary,
    pub model: Option<&'a Model>,
}

impl Shared<'_> {
    #[cfg_attr(not(feature = "zlib"), allow(dead_code))]
    fn primes(&self) -> Option<&Primes> {
        self.model.and_then(Model::primes)
    }

    fn hybrid(&self) -> Option<&hybrid::Model> {
        self.model.and_then(Model::hybrid).map(Arc::as_ref)
    }

    fn tokens(&self) -> Option<&hybrid::Tokens> {
        self.model.and_then(Model::tokens).map(Arc::as_ref)
    }
}

/// Where a read of a block begins, and what is known of the block: a factor that begins there or before, or where
/// tokens are.
#[derive(Clone, Copy)]
pub(crate) struct Begin<'a> {
    pub at: usize,
    pub mark: Option<Mark>,
    pub kept: Option<Kept<'a>>,
}

impl From<usize> for Begin<'_> {
    fn from(at: usize) -> Self {
        Begin { at, mark: None, kept: None }
    }
}

/// Fills `dst` with the bytes from `begin` on of a block of `block_len` bytes; `None` where the
/// stored bytes are no such block. `stored` may hold anything.
///
/// # Errors
/// [`Error::Unsupported`] when this build does not have the coding.
pub(crate) fn decode(
    coding: Coding,
    shared: Shared<'_>,
    stored: &[u8],
    block_len: usize,
    begin: Begin<'_>,
    dst: &mut [u8],
    scratch: &mut Scratch,
) -> Result<Option<()>> {
    let start = begin.at;
    debug_assert!(start + dst.len() <= block_len);
    let dictionary = shared.dictionary;
    Ok(match coding {
        Coding::Uv => plain::decode_uv(dictionary, stored, block_len, (begin, dst), scratch),
        Coding::Pv => plain::decode_pv(dictionary, stored, block_len, (begin, dst), scratch),
        Coding::ZstdDict => zstd_dict::decode(dictionary, stored, block_len, (start, dst), scratch),
        Coding::Hybrid => {
            let piece = (start, dst);
            hybrid::decode(dictionary, shared.hybrid(), stored, block_len, piece, scratch)
        }
        Coding::Fast => {
            let piece = (start, dst, begin.kept);
            hybrid::fast::decode(dictionary, shared.tokens(), stored, block_len, piece, scratch)
        }
        #[cfg(feature = "zlib")]
        Coding::Zz | Coding::ZzPrimed => {
            streams::decode_zz(shared, stored, block_len, (start, dst), scratch)
        }
        #[cfg(feature = "zlib")]
        Coding::Zzz => streams::decode_zzz(dictionary, stored, block_len, (start, dst), scratch),
        #[cfg(feature = "zlib")]
        Coding::ZlibPrimed => {
            zlib_primed::decode(dictionary, stored, block_len, (start, dst), scratch)
        }
        #[cfg(not(feature = "zlib"))]
        other => return Err(other.not_compiled_in()),
    })
}

/// [`decode`] by the safe twins of all loops, of a coding that has some; of `hybrid-fast` from the start on only.
#[cfg(feature = "testing")]
pub(crate) fn decode_safely(
    model: &Model,
    dictionary: &Dictionary,
    stored: &[u8],
    block_len: usize,
    start: usize,
    dst: &mut [u8],
) -> Option<()> {
    match model {
        Model::Hybrid(model) => {
            hybrid::decode_safely(dictionary, model, stored, block_len, (start, dst))
        }
        Model::Tokens(all) if start == 0 => {
            hybrid::fast::decode_safely(dictionary, all, stored, block_len, dst)
        }
        _ => None,
    }
}

/// Decodes a block whose length is not known into the front of `room`. Returns its length;
/// `None` where the stored bytes are no block, or one that is longer than the room.
///
/// # Errors
/// [`Error::Unsupported`] when this build does not have the coding.
pub(crate) fn decode_within(
    coding: Coding,
    shared: Shared<'_>,
    stored: &[u8],
    room: &mut [u8],
    scratch: &mut Scratch,
) -> Result<Option<usize>> {
    let len = match coding {
        Coding::Uv | Coding::Pv => plain::block_len(stored, room.len(), scratch),
        Coding::ZstdDict => {
            return Ok(zstd_dict::decode_within(shared.dictionary, stored, room, scratch));
        }
        Coding::Hybrid => {
            let (dictionary, model) = (shared.dictionary, shared.hybrid());
            hybrid::block_len(dictionary, model, stored, room.len(), scratch)
        }
        Coding::Fast => hybrid::fast::block_len(shared.tokens(), stored, room.len()),
        #[cfg(feature = "zlib")]
        Coding::Zz | Coding::ZzPrimed => {
            streams::block_len_zz(shared.primes(), stored, room.len(), scratch)
        }
        #[cfg(feature = "zlib")]
        Coding::Zzz => streams::block_len_zzz(stored, room.len(), scratch),
        #[cfg(feature = "zlib")]
        Coding::ZlibPrimed => {
            return Ok(zlib_primed::decode_within(shared.dictionary, stored, room, scratch));
        }
        #[cfg(not(feature = "zlib"))]
        other => return Err(other.not_compiled_in()),
    };
    let Some(len) = len.filter(|&len| len <= room.len()) else { return Ok(None) };
    let done = decode(coding, shared, stored, len, 0.into(), &mut room[..len], scratch)?;
    Ok(done.map(|()| len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rlz::Training;
    use crate::testing::{Random, decode_as_twins, decode_with_model, model_bytes, stored_bytes};
    use proptest::prelude::*;

    fn codings() -> impl Iterator<Item = Coding> {
        Coding::ALL.into_iter().filter(|coding| coding.is_compiled_in())
    }

    /// A coder of each coding, and of `zlib-primed` and `rlz-zzz` with more than one option.
    fn coders(dictionary: &Arc<Dictionary>, text: &[u8]) -> Vec<Coder> {
        let mut coders = Vec::new();
        for coding in codings() {
            let new = || Coder::new(coding, dictionary.clone()).unwrap();
            coders.push(new().probe(&text[..text.len().min(3000)]));
            match coding {
                Coding::Zzz => [1, 64].map(|n| coders.push(new().min_literal(n).unwrap())).len(),
                Coding::ZlibPrimed => {
                    [1, text.len() as u64].map(|n| coders.push(new().collection(n))).len()
                }
                _ => 0,
            };
        }
        coders
    }

    /// Packs blocks of this length; each comes back whole and in pieces.
    fn check(dictionary: &[u8], text: &[u8], block_len: usize) -> Vec<(Coding, usize)> {
        let dictionary = Arc::new(Dictionary::new(dictionary.to_vec()).unwrap());
        let mut sizes = Vec::new();
        for coder in coders(&dictionary, text) {
            let (coding, model) = (coder.coding(), coder.model.clone());
            let mut packer = Packer::new(Arc::new(coder));
            let blocks: Vec<&[u8]> = text.chunks(block_len).collect();
            let (mut scratch, mut random) = (Scratch::default(), Random(3));
            let (mut size, mut seen) = (0, 0);
            packer.pack(0, &blocks, |i, stored| {
                assert_eq!(i, seen);
                seen += 1;
                let block = blocks[i];
                size += stored.map_or(block.len(), <[u8]>::len);
                let Some(stored) = stored else { return };
                assert!(stored.len() < block.len());
                let shared = Shared { dictionary: &dictionary, model: model.as_deref() };
                let mut read = |start: usize, len: usize| {
                    let mut dst = vec![0xAA; len];
                    decode(
                        coding,
                        shared,
                        stored,
                        block.len(),
                        start.into(),
                        &mut dst,
                        &mut scratch,
                    )
                    .unwrap()
                    .unwrap_or_else(|| panic!("{coding}: {start}+{len} of {}", block.len()));
                    assert!(dst == block[start..start + len], "{coding}: {start}+{len}");
                };
                read(0, block.len());
                let mut room = vec![0; block.len() + 100];
                let mut scratch = Scratch::default();
                let done = decode_within(coding, shared, stored, &mut room, &mut scratch).unwrap();
                assert_eq!(done, Some(block.len()), "{coding}");
                assert!(&room[..block.len()] == block, "{coding}");
                let short = &mut room[..block.len() - 1];
                let done = decode_within(coding, shared, stored, short, &mut scratch).unwrap();
                assert_eq!(done, None, "{coding}");
                for _ in 0..5 {
                    let start = random.below(block.len() as u64) as usize;
                    let len = random.below((block.len() - start) as u64 + 1) as usize;
                    read(start, len);
                    read(0, start);
                    read(start, block.len() - start);
                }
            });
            assert_eq!(seen, blocks.len());
            sizes.push((coding, size));
        }
        sizes
    }

    /// Pieces of the dictionary and other bytes in turn.
    fn text_of(dictionary: &[u8], random: &mut Random, len: usize) -> Vec<u8> {
        let mut text = Vec::new();
        while text.len() < len {
            let piece = random.below(200) as usize + 1;
            match random.below(4) {
                0 => text.extend(random.bytes(piece / 20)),
                1 => text.extend(vec![random.below(256) as u8; piece / 20]),
                _ => {
                    let at = random.below(dictionary.len().max(1) as u64) as usize;
                    text.extend(&dictionary[at..dictionary.len().min(at + piece)]);
                }
            }
        }
        text.truncate(len);
        text
    }

    #[test]
    fn every_coding_gives_back_what_it_took_and_any_piece_of_it() {
        let mut random = Random(1);
        let dictionary = random.text(200_000);
        // One block is longer than what Zstandard cuts into units.
        let text = text_of(&dictionary, &mut random, 300_000);
        for block_len in [1024, 16 << 10, 300_000] {
            for (coding, size) in check(&dictionary, &text, block_len) {
                assert!(size < text.len(), "{coding} {block_len}: {size}");
            }
        }
    }

    #[test]
    fn many_blocks_that_do_not_shrink_leave_their_codecs_whole() {
        let mut random = Random(6);
        let (dictionary, noise) = (random.text(30_000), random.bytes(66_000));
        check(&dictionary, &noise, 1024);
        let half: Vec<u8> =
            noise.chunks(500).flat_map(|n| [n, &dictionary[..500]].concat()).collect();
        check(&dictionary, &half, 1024);
    }

    #[test]
    fn odd_dictionaries_and_inputs_come_back() {
        let mut random = Random(2);
        let all: Vec<u8> = (0..=255).collect();
        let magic = [0x37, 0xA4, 0x30, 0xEC].repeat(9);
        let dictionaries: [&[u8]; 8] =
            [&[], &[0], &[0, 0], b"ab", &all, &[7; 40_000], &magic, &random.bytes(70_000)];
        for dictionary in dictionaries {
            let texts = [
                vec![0; 3000],
                vec![255],
                all.repeat(20),
                random.bytes(5000),
                b"abcabcabcab".repeat(300),
                magic.repeat(10),
                text_of(dictionary, &mut random, 9000),
            ];
            for text in texts {
                check(dictionary, &text, 4096);
            }
        }
    }

    proptest! {
        #[test]
        fn any_text_comes_back(
            dictionary in proptest::collection::vec(0u8..4, 0..500),
            text in proptest::collection::vec(0u8..5, 1..1000),
            block_len in 1usize..300,
        ) {
            check(&dictionary, &text, block_len);
        }

        #[test]
        fn any_stored_bytes_are_decoded_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            block_len in 1usize..3000,
            part in (0usize..3000, 0usize..3000),
        ) {
            let mut random = Random(9);
            let dictionary = Dictionary::new(random.text(1000)).unwrap();
            let primes = Model::Primes(Primes { lens: vec![1; 50], offsets: vec![2; 50] });
            let hybrid = Model::Hybrid(Arc::new(hybrid::default_model(dictionary.as_bytes())));
            let tokens = Model::Tokens(Arc::new(hybrid::Tokens::usual()));
            let start = part.0.min(block_len);
            let end = (start + part.1).min(block_len);
            for coding in codings() {
                let model = match coding {
                    Coding::Hybrid => &hybrid,
                    Coding::Fast => &tokens,
                    _ => &primes,
                };
                let shared = Shared { dictionary: &dictionary, model: Some(model) };
                let mut scratch = Scratch::default();
                let (mut whole, mut piece) = (vec![0; block_len], vec![0; end - start]);
                let all = decode(coding, shared, &bytes, block_len, 0.into(), &mut whole, &mut scratch).unwrap();
                let some =
                    decode(coding, shared, &bytes, block_len, start.into(), &mut piece, &mut scratch).unwrap();
                // What is refused as a whole may give a piece; what is not gives that piece.
                if all.is_some() {
                    prop_assert!(some.is_some(), "{coding}");
                    prop_assert!(piece == whole[start..end], "{coding}");
                }
            }
        }
    }

    #[test]
    fn damaged_models_are_refused_or_decode_to_something_and_never_panic() {
        let mut random = Random(14);
        let text = random.text(120_000);
        for (coding, level) in [(Coding::Fast, 1), (Coding::Hybrid, 5), (Coding::ZzPrimed, 9)] {
            let training = Training::new(coding).level(level).block_len(3_000);
            let coder = Arc::new(training.dictionary_len(20_000).run(&text).unwrap());
            let model = model_bytes(&coder).unwrap();
            let block = &text[50_000..53_000];
            let stored = stored_bytes(&coder, &[block]).remove(0);
            let decode =
                |model: &[u8]| decode_with_model(model, coder.dictionary(), &stored, 3_000);
            assert_eq!(decode(&model).unwrap(), block);
            for cut in 0..model.len() {
                assert_eq!(decode(&model[..cut]), None, "{coding}: cut at {cut}");
            }
            assert_eq!(decode(&[&model[..], b"x"].concat()), None);
            let mut refused = 0;
            for _ in 0..3_000 {
                let mut damaged = model.clone();
                for _ in 0..=random.below(4) {
                    let at = random.below(damaged.len() as u64) as usize;
                    damaged[at] ^= 1 << random.below(8);
                }
                refused += u32::from(decode(&damaged).is_none());
                let (start, len) = (random.below(2_900) as usize, random.below(99) as usize);
                decode_as_twins(
                    &damaged,
                    coder.dictionary(),
                    &stored,
                    3_000,
                    start..start + len + 1,
                );
            }
            // Codes have to be complete: most damage to them is seen at once.
            assert!(coding == Coding::ZzPrimed || refused > 1_000, "{coding}: {refused}");
        }
    }

    #[test]
    fn damaged_blocks_are_refused_or_decode_to_something_and_never_panic() {
        let mut random = Random(4);
        let bytes = random.text(20_000);
        let dictionary = Arc::new(Dictionary::new(bytes).unwrap());
        let text = text_of(dictionary.as_bytes(), &mut random, 3000);
        for coder in coders(&dictionary, &text) {
            let (coding, model) = (coder.coding(), coder.model.clone());
            let mut blocks = Vec::new();
            Packer::new(Arc::new(coder))
                .pack(0, &[&text], |_, stored| blocks.extend(stored.map(<[u8]>::to_vec)));
            let [stored] = blocks.as_slice() else { panic!("{coding}: it does not shrink") };
            let shared = Shared { dictionary: &dictionary, model: model.as_deref() };
            let (mut scratch, mut dst) = (Scratch::default(), vec![0; text.len()]);
            for cut in 0..stored.len() {
                let done = decode(
                    coding,
                    shared,
                    &stored[..cut],
                    text.len(),
                    0.into(),
                    &mut dst,
                    &mut scratch,
                );
                assert!(done.unwrap().is_none() || dst != text, "{coding}: cut at {cut}");
            }
            for _ in 0..5000 {
                let mut damaged = stored.clone();
                for _ in 0..=random.below(3) {
                    let at = random.below(damaged.len() as u64) as usize;
                    damaged[at] = random.below(256) as u8;
                }
                let _ =
                    decode(coding, shared, &damaged, text.len(), 0.into(), &mut dst, &mut scratch)
                        .unwrap();
                let _ = decode(
                    coding,
                    shared,
                    &damaged,
                    text.len(),
                    1000.into(),
                    &mut dst[..50],
                    &mut scratch,
                );
            }
            // Another length than the block's is no block.
            let mut more = vec![0; text.len() + 1];
            let done =
                decode(coding, shared, stored, text.len() + 1, 0.into(), &mut more, &mut scratch);
            assert_eq!(done.unwrap(), None, "{coding}");
        }
    }
}
