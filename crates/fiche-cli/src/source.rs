//! What is packed: files and folders, or a stream.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::path::Path;

use fiche::archive::{Folder, Packed, Split, Writer};
use fiche::codec::deflate::Gunzip;
use fiche::streams::{Format, recognise};
use fiche::{Cursor, FileSource, ReadAt};

use crate::input::Records;
use crate::ui::{self, Failed, Progress, say};

/// What is packed.
pub enum Source {
    Folder(Folder),
    Stream(Stream),
}

/// Standard input, or what was read of it and what was not.
pub struct Stream {
    bytes: Box<dyn Read>,
    split: Option<Split>,
    /// More follows than was learned from, as far as is known.
    is_longer: bool,
}

/// Bytes of a stream that are learned from: so many are kept aside until they are packed.
const HEAD: u64 = 256 << 20;
/// Bytes of it that are kept in memory; those beyond are in a file.
const IN_MEMORY: u64 = 16 << 20;

impl Source {
    /// Looks at all inputs: none is opened, and of a stream nothing is read.
    pub fn new(
        input: &[impl AsRef<Path>],
        records: &Records,
        (exclude, keep_going): (&[String], bool),
        output: &Path,
    ) -> Result<Source, Failed> {
        let split = match records {
            Records::Split(split) => Some(split.clone()),
            Records::Files => None,
        };
        if let [only] = input
            && only.as_ref() == Path::new("-")
        {
            let stdin = io::stdin().lock();
            return match stdin.is_terminal() {
                true => {
                    Err(Failed::usage("standard input is a terminal: give it a file or a pipe"))
                }
                false => {
                    Ok(Source::Stream(Stream { bytes: Box::new(stdin), split, is_longer: true }))
                }
            };
        }
        let folder = look_at(input, exclude, keep_going, output)?;
        Ok(Source::Folder(match split {
            Some(split) => folder.split(split),
            None => folder,
        }))
    }

    /// What a gzip, zstd, xz or lz4 file holds, as it comes; `-` is a gzip file from standard input.
    pub fn unpacked(path: &Path, records: &Records) -> Result<Source, Failed> {
        let split = match records {
            Records::Split(split) => Some(split.clone()),
            Records::Files => None,
        };
        Ok(Source::Stream(Stream { bytes: unpack(path)?, split, is_longer: true }))
    }

    /// What names and metadata of files take.
    pub fn record_bytes(&self) -> fiche::Result<u64> {
        match self {
            Source::Folder(folder) => folder.record_bytes(),
            Source::Stream(..) => Ok(0),
        }
    }

    /// Gives what can be learned from before any of it is packed: of a stream its beginning.
    pub fn learn<T>(
        &mut self,
        quiet: bool,
        with: impl FnOnce(&dyn ReadAt) -> Result<T, Failed>,
    ) -> Result<T, Failed> {
        let progress = Progress::new("learning", None, quiet);
        match self {
            Source::Folder(folder) => with(&Watched { content: &folder.content(), progress }),
            Source::Stream(stream) => {
                let bytes = std::mem::replace(&mut stream.bytes, Box::new(io::empty()));
                let bytes = match &stream.split {
                    Some(split) => split.plain(bytes)?,
                    None => bytes,
                };
                let head = Head::read(bytes, &progress)?;
                let learned = with(&Watched { content: &*head.content, progress })?;
                stream.is_longer = !head.is_all;
                stream.bytes = head.whole()?;
                Ok(learned)
            }
        }
    }

    /// True where there is more than was learned from.
    pub fn is_longer(&self) -> bool {
        matches!(self, Source::Stream(stream) if stream.is_longer)
    }

    /// Writes all of it, with a progress bar.
    pub fn write<W: Write>(self, writer: &mut Writer<W>, quiet: bool) -> fiche::Result<Packed> {
        match self {
            Source::Folder(folder) => write_folder(folder, writer, quiet),
            Source::Stream(stream) => write_stream(stream, writer, quiet),
        }
    }
}

/// The content of a compressed file, front to back.
fn unpack(path: &Path) -> Result<Box<dyn Read>, Failed> {
    if path == Path::new("-") {
        let stdin = io::stdin().lock();
        return match stdin.is_terminal() {
            true => Err(Failed::usage("standard input is a terminal: give it a file or a pipe")),
            false => Ok(Box::new(Gunzip::new(stdin))),
        };
    }
    let at = |error| Failed::at(path, error);
    let source = crate::input::source(path)?;
    match recognise(&source).map_err(at)? {
        Some(Format::Gzip) => Ok(Box::new(Gunzip::new(Cursor::new(source)))),
        Some(_) => {
            let reader = crate::stream::open_anyhow(path, &source, &Default::default())?;
            Ok(Box::new(Cursor::new(reader)))
        }
        None => Err(Failed::at(
            path,
            fiche::Error::Invalid { what: "this is neither gzip nor zstd, xz or lz4".into() },
        )),
    }
}

/// Looks at all of these files and folders.
pub fn look_at(
    input: &[impl AsRef<Path>],
    exclude: &[String],
    keep_going: bool,
    output: &Path,
) -> Result<Folder, Failed> {
    if input.iter().any(|path| path.as_ref() == Path::new("-")) {
        return Err(Failed::usage("standard input is packed alone, without other inputs"));
    }
    let mut folder = Folder::new(exclude)?.keep_going(keep_going);
    folder.skip(output);
    for path in input {
        folder.add(path.as_ref())?;
        ui::check_stop()?;
    }
    Ok(folder)
}

fn write_folder<W: Write>(
    folder: Folder,
    writer: &mut Writer<W>,
    quiet: bool,
) -> fiche::Result<Packed> {
    let progress = Progress::new("packing", Some(folder.bytes()), quiet);
    let packed = folder.write_to(writer, &mut |bytes| progress.add(bytes))?;
    progress.done();
    for path in &packed.sockets {
        say!("{}: a socket, which is not kept", path.display());
    }
    for (_, error) in &packed.skipped {
        say!("left out: {error}");
    }
    for path in &packed.changed {
        say!("{}: changed while it was being packed", path.display());
    }
    Ok(packed)
}

fn write_stream<W: Write>(
    stream: Stream,
    writer: &mut Writer<W>,
    quiet: bool,
) -> fiche::Result<Packed> {
    let progress = Progress::new("packing", None, quiet);
    let start = writer.offset();
    let mut packed = Packed::default();
    let mut bytes = stream.bytes;
    if let Some(split) = stream.split {
        let items = writer.add_records(&split, &mut bytes, &mut |bytes| progress.add(bytes))?;
        packed.records = items.end - items.start;
    } else {
        let mut buf = vec![0; 256 << 10];
        loop {
            let len = read(&mut bytes, &mut buf)?;
            if len == 0 {
                break;
            }
            writer.write_all(&buf[..len])?;
            progress.add(len as u64)?;
        }
    }
    packed.bytes = writer.offset() - start;
    Ok(packed)
}

fn read(stream: &mut dyn Read, buf: &mut [u8]) -> fiche::Result<usize> {
    loop {
        match stream.read(buf) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return Ok(other?),
        }
    }
}

/// The beginning of a stream, and the rest of it.
struct Head {
    content: Box<dyn ReadAt>,
    /// What was read, but did not go into the content any more.
    after: Vec<u8>,
    rest: Box<dyn Read>,
    is_all: bool,
}

impl Head {
    fn read(stream: Box<dyn Read>, progress: &Progress) -> Result<Head, Failed> {
        let mut rest = stream;
        let mut memory = Vec::new();
        let mut buf = vec![0; 256 << 10];
        let in_memory = |memory: Vec<u8>, rest, is_all| {
            Ok(Head { content: Box::new(memory), after: Vec::new(), rest, is_all })
        };
        while (memory.len() as u64) < IN_MEMORY {
            let len = read(&mut rest, &mut buf)?;
            if len == 0 {
                return in_memory(memory, rest, true);
            }
            memory.extend_from_slice(&buf[..len]);
            progress.add(len as u64)?;
        }
        // A file without a name, which is gone with the program. Where there is no room for all of
        // it, what is there is enough to learn from.
        let file = tempfile::tempfile().and_then(|mut file| file.write_all(&memory).map(|()| file));
        let Ok(mut file) = file else { return in_memory(memory, rest, false) };
        let (mut filled, mut after, mut is_all) = (memory.len() as u64, Vec::new(), false);
        drop(memory);
        while filled < HEAD && !is_all {
            let len = read(&mut rest, &mut buf)?;
            if file.write_all(&buf[..len]).is_err() {
                after.extend_from_slice(&buf[..len]);
                break;
            }
            is_all = len == 0;
            filled += len as u64;
            progress.add(len as u64)?;
        }
        Ok(Head { content: Box::new(source(file, filled)?), after, rest, is_all })
    }

    /// The stream from its beginning.
    fn whole(self) -> fiche::Result<Box<dyn Read>> {
        let after = io::Cursor::new(self.after);
        Ok(Box::new(Cursor::new(self.content).chain(after).chain(self.rest)))
    }
}

/// What was written to a file, without what a write that failed left at its end.
fn source(file: File, len: u64) -> fiche::Result<FileSource> {
    file.set_len(len)?;
    FileSource::new(file)
}

/// Content that moves a bar while it is read, and stops when a signal asks to.
struct Watched<'a> {
    content: &'a dyn ReadAt,
    progress: Progress,
}

impl ReadAt for Watched<'_> {
    fn len(&self) -> u64 {
        self.content.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> fiche::Result<()> {
        self.progress.add(buf.len() as u64)?;
        self.content.read_at(offset, buf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_byte_of_a_stream_is_lost_between_what_was_kept_and_what_was_not() {
        let head = |len: usize| {
            let bytes: Vec<u8> = (0..len as u32).map(|i| (i % 251) as u8).collect();
            let stream = Box::new(io::Cursor::new(bytes.clone()));
            (bytes, Head::read(stream, &Progress::new("", None, true)).ok().unwrap())
        };
        let read = |head: Head| {
            let mut all = Vec::new();
            head.whole().unwrap().read_to_end(&mut all).unwrap();
            all
        };
        // In memory, and in a file.
        for len in [0, 1, 1 << 20, IN_MEMORY as usize - 1, IN_MEMORY as usize, 20_000_000] {
            let (bytes, head) = head(len);
            assert_eq!(head.content.len(), len as u64);
            assert!(read(head) == bytes, "{len}");
        }
        // Where there was no more room, some is behind the file.
        let (bytes, mut head) = head(1000);
        head.after = vec![7; 300];
        head.rest = Box::new(io::Cursor::new(vec![9; 50]));
        assert!(read(head) == [&bytes[..], &[7; 300], &[9; 50]].concat());
        // A write that failed half way leaves more in the file than was counted.
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"whole, and half").unwrap();
        assert_eq!(source(file, 5).unwrap().len(), 5);
    }
}
