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
//! starts. Each holds 4 MiB of the dictionary, the last one what is left; its offset is how many bytes of
//! it are before, its number how many pieces.
//!
//! # Dictionary file
//!
//! A file of kind 2 is the header, the pieces, the section, and a trailer that leads to it. It is written
//! once and never appended to.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use crate::codec::{Scratch, pack_section};
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
/// several threads have work.
const PIECE: usize = 4 << 20;
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
        let expected = if name.is_some() { 0 } else { len.div_ceil(PIECE as u64) };
        if len > MAX_LEN || count as u64 != expected {
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
                let len = (self.len - bytes.len() as u64).min(PIECE as u64);
                if section.payload.len() as u64 != len {
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

    /// Its pieces compressed, where that makes them shorter: done once, and kept.
    pub(crate) fn packed(self: &Arc<Self>, threads: usize) -> &[Option<Vec<u8>>] {
        self.packed.get_or_init(|| {
            let count = self.len().div_ceil(PIECE);
            let mut pipeline = Pipeline::new(threads.min(count), || {
                let (dictionary, mut scratch) = (self.clone(), Scratch::default());
                move |i: usize| pack_section(dictionary.piece(i), LEVEL, &mut scratch)
            });
            let mut packed: Vec<_> = (0..count).filter_map(|i| pipeline.push(i)).collect();
            packed.extend(std::iter::from_fn(|| pipeline.pop()));
            packed
        })
    }

    /// Writes it as a file of its own, compressed, for any number of archives. As it is sorted
    /// out once, it takes its time: some 3 MB/s a core.
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
