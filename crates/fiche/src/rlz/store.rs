//! The bytes of a dictionary in a file.
//!
//! # Dictionary
//!
//! Section kind 1; offset 0. Number: in an archive, its place among the footer's other sections.
//!
//! | size | field | meaning |
//! |---|---|---|
//! | 32 | digest | BLAKE3 of its bytes |
//! | varint | length | how many bytes, up to 2^30 |
//! | varint, bytes | name | of the dictionary file that holds them; empty where they are in this one |
//! | varint | pieces | how many pieces; 0 where they are in another file |
//! | varint each | | length of each piece's section |
//!
//! The pieces are sections of kind 9, one behind the other, and the last of them ends where this section
//! starts. Each holds the next bytes of the dictionary, at least one; its offset is how many are before, its
//! number how many pieces. Writers make them of 16 MiB.
//!
//! # Dictionary file
//!
//! A file of kind 2 is the header, the pieces, the section, and a trailer that leads to it. It is written
//! once and never appended to.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use crate::codec::{Scratch, compress_large, pack_section};
use crate::envelope::{
    Container, HEADER_LEN, Kind, Section, SectionRef, header, read_header, read_trailer, trailer,
};
use crate::error::{Error, Result};
use crate::io::{FileSource, ReadAt};
use crate::parallel::{Pipeline, default_threads};
use crate::rlz::Dictionary;
use crate::rlz::dictionary::MAX_LEN;
use crate::wire::{Digest, Put};

/// Bytes of a dictionary that are compressed together: enough to compress well, few enough that
/// several threads have work with a large one.
const PIECE: usize = 16 << 20;
/// It is written once and counts for every archive.
const LEVEL: i32 = 19;

/// What a file says of a dictionary.
#[derive(Clone, Debug)]
pub(crate) struct Description {
    pub digest: Digest,
    pub len: u64,
    /// The file that holds it, if it is another.
    pub name: Option<String>,
    /// Its pieces in this file.
    pub pieces: Vec<SectionRef>,
}

/// Writes a dictionary at `pos`, or only the name of its file. Returns where its section lies.
pub(crate) fn put_dictionary(
    dictionary: &Arc<Dictionary>,
    name: Option<&str>,
    mut pos: u64,
    number: u64,
    threads: usize,
    write: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<SectionRef> {
    let mut payload = Vec::new();
    payload.put(&dictionary.digest().0);
    payload.put_varint(dictionary.len() as u64);
    payload.put_string(name.unwrap_or_default().as_bytes());
    let count = if name.is_some() { 0 } else { dictionary.len().div_ceil(PIECE) };
    payload.put_varint(count as u64);
    let mut section = Vec::new();
    let packed = if name.is_some() { &[] } else { dictionary.packed(threads) };
    for (i, packed) in packed.iter().enumerate() {
        section.clear();
        let before = ((i * PIECE) as u64, i as u64);
        let kind = Kind::DictionaryPiece;
        Section::put_packed(
            &mut section,
            pos,
            kind,
            before,
            dictionary.piece(i),
            packed.as_deref(),
        );
        write(&section)?;
        pos += section.len() as u64;
        payload.put_varint(section.len() as u64);
    }
    section.clear();
    Section::put(&mut section, pos, Kind::Dictionary, (0, number), &payload, None);
    write(&section)?;
    Ok(SectionRef { pos, len: section.len() as u64 })
}

impl Description {
    pub fn parse(section: &Section) -> Result<Description> {
        let mut take = section.take("dictionary");
        let (digest, len) = (take.digest()?, take.varint()?);
        let name = String::from_utf8(take.string()?.to_vec()).map_err(|_| take.corrupt())?;
        let name = Some(name).filter(|name| !name.is_empty());
        let count = take.count(take.remaining() as u64)?;
        let mut lens = Vec::with_capacity(count);
        for _ in 0..count {
            lens.push(take.varint()?);
        }
        take.end()?;
        let is_elsewhere = name.is_some() || len == 0;
        if len > MAX_LEN || count as u64 > len || (count == 0) != is_elsewhere {
            return Err(take.corrupt());
        }
        let all = lens.iter().try_fold(0u64, |sum, &len| sum.checked_add(len));
        let start = all.and_then(|all| section.at.pos.checked_sub(all));
        let mut pos = start.ok_or_else(|| take.corrupt())?;
        let mut pieces = Vec::with_capacity(count);
        for len in lens {
            pieces.push(SectionRef { pos, len });
            pos += len;
        }
        Ok(Description { digest, len, name, pieces })
    }

    /// Decodes the pieces that are in this file, on all cores; `load` gives each one's section.
    pub fn dictionary(
        &self,
        load: &(dyn Fn(SectionRef) -> Result<Section> + Sync),
    ) -> Result<Dictionary> {
        let mut bytes = Dictionary::room(self.len as usize);
        for some in self.pieces.chunks(default_threads()) {
            let sections: Vec<Result<Section>> = std::thread::scope(|scope| {
                let spawn = |&at| scope.spawn(move || load(at));
                let running: Vec<_> = some.iter().skip(1).map(spawn).collect();
                let first = some.iter().take(1).map(|&at| load(at));
                let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                };
                let first: Vec<_> = first.collect();
                first.into_iter().chain(running.into_iter().map(join)).collect()
            });
            for section in sections {
                let section = section?;
                let rest = self.len - bytes.len() as u64;
                if section.offset != bytes.len() as u64
                    || !(1..=rest).contains(&(section.payload.len() as u64))
                {
                    return Err(section.corrupt("dictionary piece"));
                }
                bytes.extend_from_slice(&section.payload);
            }
        }
        let dictionary = Dictionary::new(bytes)?;
        match dictionary.digest() == self.digest {
            true => Ok(dictionary),
            false => {
                let pos = self.pieces.first().map_or(0, |piece| piece.pos);
                let at = crate::error::Place::Pos(pos);
                Err(Error::Corrupt { what: "dictionary", at })
            }
        }
    }
}

impl Dictionary {
    /// The bytes of one of its pieces.
    fn piece(&self, i: usize) -> &[u8] {
        let bytes = &self.as_bytes()[i * PIECE..];
        &bytes[..bytes.len().min(PIECE)]
    }

    /// Starts to compress its pieces on a thread of its own; false where that is done already, or there is
    /// no thread.
    pub(crate) fn begin_packing(self: &Arc<Self>, threads: usize) -> bool {
        let dictionary = self.clone();
        // Who needs them waits for it, or does it where it could not be.
        let pack = move || dictionary.packed(threads).len();
        !self.is_packed() && std::thread::Builder::new().spawn(pack).is_ok()
    }

    /// True once its pieces are compressed.
    pub(crate) fn is_packed(&self) -> bool {
        self.packed.get().is_some()
    }

    /// Compresses its pieces once `wait` lets it.
    #[cfg(test)]
    pub(crate) fn pack_after(self: &Arc<Self>, wait: impl FnOnce()) {
        self.packed.get_or_init(|| {
            wait();
            self.pack(1)
        });
    }

    /// Its pieces compressed, where that makes them shorter: done once, and kept.
    pub(crate) fn packed(self: &Arc<Self>, threads: usize) -> &[Option<Vec<u8>>] {
        self.packed.get_or_init(|| self.pack(threads))
    }

    fn pack(self: &Arc<Self>, threads: usize) -> Vec<Option<Vec<u8>>> {
        let count = self.len().div_ceil(PIECE);
        let for_each = threads / count.max(1);
        let mut pipeline = Pipeline::new(threads.min(count), || {
            let (dictionary, mut scratch) = (self.clone(), Scratch::default());
            move |i: usize| {
                let piece = dictionary.piece(i);
                let packed = compress_large(piece, for_each);
                packed.or_else(|| pack_section(piece, LEVEL, &mut scratch))
            }
        });
        let mut packed: Vec<_> = (0..count).filter_map(|i| pipeline.push(i)).collect();
        packed.extend(std::iter::from_fn(|| pipeline.pop()));
        packed
    }

    /// Writes it as a file of its own, compressed, for any number of archives. As it is sorted
    /// out once, it takes its time: some 3 MB/s.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write_to<W: Write>(self: &Arc<Self>, mut out: W) -> Result<W> {
        out.write_all(&header(Container::Dictionary))?;
        let mut write = |bytes: &[u8]| Ok(out.write_all(bytes)?);
        let at = put_dictionary(self, None, HEADER_LEN, 0, default_threads(), &mut write)?;
        out.write_all(&trailer(at))?;
        out.flush()?;
        Ok(out)
    }

    /// Reads a file that [`write_to`](Dictionary::write_to) wrote.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it is no file of fiche's, [`Error::Unsupported`] when it is one of
    /// another kind or a newer version, [`Error::Corrupt`], [`Error::Io`].
    pub fn read_from(source: &Arc<dyn ReadAt>) -> Result<Dictionary> {
        read_header(source, Container::Dictionary)?.valid?;
        let at = read_trailer(source, source.len())?;
        let description = Description::parse(&Section::load(source, at, Kind::Dictionary)?)?;
        match &description.name {
            None => {
                let kind = Kind::DictionaryPiece;
                description.dictionary(&|at| Section::load(source, at, kind))
            }
            Some(_) => {
                Err(Error::Corrupt { what: "dictionary", at: crate::error::Place::Pos(at.pos) })
            }
        }
    }

    /// Reads the dictionary file at `path`.
    ///
    /// # Errors
    /// Those of [`read_from`](Dictionary::read_from).
    pub fn open(path: impl AsRef<Path>) -> Result<Dictionary> {
        let source: Arc<dyn ReadAt> = Arc::new(FileSource::open(path)?);
        Dictionary::read_from(&source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of a dictionary in these pieces, each with the offset that it says it has.
    fn file(bytes: &[u8], pieces: &[(u64, &[u8])]) -> Arc<dyn ReadAt> {
        let dictionary = Dictionary::new(bytes.to_vec()).unwrap();
        let mut payload = Vec::new();
        payload.put(&dictionary.digest().0);
        payload.put_varint(bytes.len() as u64);
        payload.put_string(b"");
        payload.put_varint(pieces.len() as u64);
        let mut file = header(Container::Dictionary).to_vec();
        for (i, &(offset, piece)) in pieces.iter().enumerate() {
            let pos = file.len() as u64;
            let before = (offset, i as u64);
            Section::put(&mut file, pos, Kind::DictionaryPiece, before, piece, None);
            payload.put_varint(file.len() as u64 - pos);
        }
        let pos = file.len() as u64;
        Section::put(&mut file, pos, Kind::Dictionary, (0, 0), &payload, None);
        let at = SectionRef { pos, len: file.len() as u64 - pos };
        file.extend(trailer(at));
        Arc::new(file)
    }

    #[test]
    fn pieces_have_any_length_and_make_up_all_of_it() {
        let text = b"any length will do";
        let good: [&[(u64, &[u8])]; 3] =
            [&[(0, text)], &[(0, b"any"), (3, b" length will do")], &[(0, b"a"), (1, &text[1..])]];
        for pieces in good {
            assert_eq!(Dictionary::read_from(&file(text, pieces)).unwrap().as_bytes(), text);
        }
        let bad: [&[(u64, &[u8])]; 7] = [
            &[],
            &[(0, b"any")],
            &[(0, b"any"), (4, b" length will do")],
            &[(0, b""), (0, text)],
            &[(0, text), (18, b"")],
            &[(0, b"any"), (3, b" length will do so")],
            &[(0, b"AND"), (3, b" length will do")],
        ];
        for pieces in bad {
            let error = Dictionary::read_from(&file(text, pieces)).unwrap_err();
            assert!(matches!(error, Error::Corrupt { .. }), "{pieces:?}: {error}");
        }
    }

    #[test]
    fn a_large_one_comes_back_and_is_seen_through() {
        // Noise that comes again 9 MiB later costs nothing.
        let mut random = crate::random::Random(1);
        let noise: Vec<u8> = (0..1 << 20).map(|_| random.number() as u8).collect();
        let bytes = [&noise[..], &vec![0; 8 << 20], &noise, &vec![7; 7 << 20]].concat();
        let dictionary = Arc::new(Dictionary::new(bytes).unwrap());
        let file = dictionary.write_to(Vec::new()).unwrap();
        assert!(file.len() < noise.len() * 9 / 8, "{}", file.len());
        let source: Arc<dyn ReadAt> = Arc::new(file);
        assert!(Dictionary::read_from(&source).unwrap().as_bytes() == dictionary.as_bytes());
    }
}
