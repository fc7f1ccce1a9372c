//! Where the records of a stream begin and end, and what they are called.

mod json;
mod lines;
mod mbox;
mod tar;
mod warc;

use std::fmt;
use std::io::Read;
use std::ops::Range;
use std::str::FromStr;

use crate::codec::deflate::{Gunzip, MAGIC};
use crate::error::{Error, Result};
use crate::io::into_io;

/// How content is split into records that are read by number or by name.
///
/// ```
/// use fiche::archive::Split;
///
/// let split: Split = "json:user.id".parse()?;
/// assert_eq!(split, Split::Json("user.id".into()));
/// assert!("columns".parse::<Split>().is_err());
/// # Ok::<(), fiche::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Split {
    /// Lines, each with its newline; without names.
    Lines,
    /// Lines of JSON, each named by this field: `id`, or `user.id` for one within another.
    /// A line that has no such field, or is no JSON, has no name.
    Json(String),
    /// Messages of a mailbox (mboxo, mboxrd), each from its `From ` line on and named by
    /// its Message-ID.
    Mbox,
    /// Records of a WARC file, gzipped or not, each found by its WARC-Record-ID and, unless it
    /// is a request or metadata, by its WARC-Target-URI.
    Warc,
    /// Members of a tar file that are regular files, by their names: their content without
    /// the headers.
    Tar,
    /// Pieces of this many bytes; the last one may be shorter.
    Fixed(u64),
}

impl FromStr for Split {
    type Err = Error;

    fn from_str(text: &str) -> Result<Split> {
        Ok(match text.split_once(':') {
            None if text == "lines" => Split::Lines,
            None if text == "mbox" => Split::Mbox,
            None if text == "warc" => Split::Warc,
            None if text == "tar" => Split::Tar,
            Some(("json", field)) if !field.is_empty() => Split::Json(field.to_owned()),
            Some(("fixed", len)) => {
                let len = len.parse().ok().filter(|&len| len > 0);
                Split::Fixed(len.ok_or(Error::invalid("a record has at least one byte"))?)
            }
            _ => {
                let what = "records are lines, json:FIELD, mbox, warc, tar or fixed:BYTES";
                return Err(Error::invalid(what));
            }
        })
    }
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Split::Lines => f.write_str("lines"),
            Split::Json(field) => write!(f, "json:{field}"),
            Split::Mbox => f.write_str("mbox"),
            Split::Warc => f.write_str("warc"),
            Split::Tar => f.write_str("tar"),
            Split::Fixed(len) => write!(f, "fixed:{len}"),
        }
    }
}

impl Split {
    /// What is packed of such content, as a stream: of a gzipped WARC file, in one stream or a stream
    /// a record, what it holds; everything else as it is.
    ///
    /// # Errors
    /// Those of reading. What is wrong with a gzipped file is found when that is read.
    pub fn plain<'a>(&self, content: impl Read + 'a) -> Result<Box<dyn Read + 'a>> {
        if *self != Split::Warc {
            return Ok(Box::new(content));
        }
        let (mut content, mut start) = (content, Vec::new());
        Read::by_ref(&mut content).take(2).read_to_end(&mut start)?;
        let is_gzip = start == MAGIC;
        let whole = std::io::Cursor::new(start).chain(content);
        Ok(if is_gzip { Box::new(Unzipped(Gunzip::new(whole))) } else { Box::new(whole) })
    }

    /// Fails for pieces of no bytes, of which there is no end.
    pub(crate) fn check(&self) -> Result<()> {
        match self {
            Split::Fixed(0) => Err(Error::invalid("a record has at least one byte")),
            _ => Ok(()),
        }
    }

    pub(crate) fn splitter(&self) -> Box<dyn Splitter + Send> {
        match self {
            Split::Lines => Box::new(lines::Lines::default()),
            Split::Json(field) => Box::new(json::Json::new(field)),
            Split::Mbox => Box::new(mbox::Mbox::default()),
            Split::Warc => Box::new(warc::Warc::default()),
            Split::Tar => Box::new(tar::Tar::default()),
            Split::Fixed(len) => Box::new(lines::Fixed::new(*len)),
        }
    }
}

/// A gzip stream. What is wrong with it is wrong with what was asked for: nothing of ours is damaged.
struct Unzipped<R>(Gunzip<R>);

impl<R: Read> Read for Unzipped<R> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buf).map_err(|error| match Error::from(error) {
            Error::Io(error) => error,
            error => into_io(Error::invalid(error.to_string())),
        })
    }
}

/// A record that was found in a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Its bytes, counted from the start of the stream.
    pub range: Range<u64>,
    pub name: Vec<u8>,
    /// Another name by which it is found, if there is one.
    pub key: Vec<u8>,
}

/// Takes a stream piece by piece and tells the records in it. Keeps no more of them than
/// their names and what these are found in.
pub(crate) trait Splitter {
    /// The next bytes of the stream.
    fn take(&mut self, bytes: &[u8], found: &mut Vec<Found>) -> Result<()>;
    /// The stream has ended.
    fn end(&mut self, found: &mut Vec<Found>) -> Result<()>;
}

/// Longest header, and longest line of JSON, in which a name is looked for.
const LONGEST: usize = 1 << 20;

/// A name as an entry may have it; none if it cannot.
fn name_of(bytes: &[u8]) -> Vec<u8> {
    let fits = bytes.len() <= super::MAX_NAME && !bytes.contains(&0);
    if fits { bytes.to_vec() } else { Vec::new() }
}

/// The value of `Name: value` if the line is of this name, whatever its case.
fn header<'a>(line: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let (start, value) = line.split_at_checked(name.len())?;
    let value = value.strip_prefix(b":")?;
    start.eq_ignore_ascii_case(name.as_bytes()).then_some(value.trim_ascii())
}

/// What stands between angle brackets, or all if there are none.
fn without_brackets(value: &[u8]) -> &[u8] {
    match (value.iter().position(|&b| b == b'<'), value.iter().position(|&b| b == b'>')) {
        (Some(start), Some(end)) if start < end => &value[start + 1..end],
        _ => value,
    }
}

/// Gathers the lines of a stream: gives each that is whole, from the stream's own bytes
/// where it can. Of one longer than `LONGEST` it gives the beginning.
#[derive(Default)]
struct LineBuffer {
    kept: Vec<u8>,
    /// Offset of the line that is being gathered, and of what comes next.
    start: u64,
    pos: u64,
}

impl LineBuffer {
    /// `each` gets a line with its newline, and where it starts and ends.
    fn take(&mut self, mut bytes: &[u8], mut each: impl FnMut(&[u8], Range<u64>)) {
        while let Some(at) = memchr::memchr(b'\n', bytes) {
            let (line, rest) = bytes.split_at(at + 1);
            self.pos += line.len() as u64;
            if self.kept.is_empty() {
                each(line, self.start..self.pos);
            } else {
                self.keep(line);
                each(&self.kept, self.start..self.pos);
                self.kept.clear();
            }
            self.start = self.pos;
            bytes = rest;
        }
        self.pos += bytes.len() as u64;
        self.keep(bytes);
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = LONGEST.saturating_sub(self.kept.len());
        self.kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// The last line, if it has no newline.
    fn end(&mut self, mut each: impl FnMut(&[u8], Range<u64>)) {
        if self.pos > self.start {
            each(&self.kept, self.start..self.pos);
            self.start = self.pos;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split_in(split: &Split, bytes: &[u8], pieces: &[usize]) -> Result<Vec<Found>> {
        let (mut splitter, mut found) = (split.splitter(), Vec::new());
        let mut rest = bytes;
        for &piece in pieces {
            let (now, later) = rest.split_at(piece.min(rest.len()));
            splitter.take(now, &mut found)?;
            rest = later;
        }
        splitter.take(rest, &mut found)?;
        splitter.end(&mut found)?;
        Ok(found)
    }

    /// Name, other name and text of each record.
    fn texts(split: &Split, text: &str) -> Vec<(String, String, String)> {
        let found = split_in(split, text.as_bytes(), &[]).unwrap();
        let string = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let one = |f: &Found| {
            let range = f.range.start as usize..f.range.end as usize;
            (string(&f.name), string(&f.key), text[range].to_owned())
        };
        found.iter().map(one).collect()
    }

    fn record(name: &str, key: &str, text: &str) -> (String, String, String) {
        (name.into(), key.into(), text.into())
    }

    #[test]
    fn lines_end_behind_their_newlines() {
        let expected = [record("", "", "a\n"), record("", "", "\n"), record("", "", "b")];
        assert_eq!(texts(&Split::Lines, "a\n\nb"), expected);
        assert_eq!(texts(&Split::Lines, ""), []);
        let expected = [record("", "", "abc"), record("", "", "d")];
        assert_eq!(texts(&Split::Fixed(3), "abcd"), expected);
    }

    #[test]
    fn lines_of_json_are_named_by_a_field() {
        let text = "{\"a\":{\"b\":\"x\\ny\"},\"b\":1}\n{\"b\":\"no\"}\n{\"a\":{\"c\":[{\"b\":2}],\"b\":17}}\nnot json\n{\"a\":{\"b\":null}}";
        let names: Vec<String> =
            texts(&Split::Json("a.b".into()), text).into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names, ["x\ny", "", "17", "", ""]);
        let names: Vec<String> =
            texts(&Split::Json("b".into()), text).into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names, ["1", "no", "", "", ""]);
    }

    #[test]
    fn a_message_begins_at_a_from_line_behind_an_empty_one() {
        let first = "From a\nSubject: x\nMessage-Id: <1@x>\n\nbody\nFrom here it goes on\n\n";
        let second = "From b\r\nMESSAGE-ID:\r\n <2@x>\r\n\r\nMessage-ID: <no@x>\r\n>From c\r\n\r\n";
        let third = "From d\nTo: e\n\n";
        let expected = [record("1@x", "", first), record("2@x", "", second), record("", "", third)];
        assert_eq!(texts(&Split::Mbox, &[first, second, third].concat()), expected);
    }

    #[test]
    fn warc_records_are_found_by_uri_and_id() {
        let record_of = |kind: &str, id: &str, uri: &str, body: &str| {
            let len = body.len();
            format!(
                "WARC/1.0\r\nWARC-Type: {kind}\r\nwarc-target-uri: {uri}\r\nWARC-Record-ID: \
                 <urn:uuid:{id}>\r\nContent-Length: {len}\r\n\r\n{body}\r\n\r\n"
            )
        };
        let (a, b) = (
            record_of("response", "1", "<http://x/>", "WARC/1.0\r\n\r\n"),
            record_of("request", "2", "http://x/", ""),
        );
        let expected = [record("http://x/", "urn:uuid:1", &a), record("urn:uuid:2", "", &b)];
        assert_eq!(texts(&Split::Warc, &[a.as_str(), &b].concat()), expected);
        // The last one is cut.
        let cut = &b[..b.len() - 3];
        assert_eq!(texts(&Split::Warc, &[&a, cut].concat())[1], record("urn:uuid:2", "", cut));
        let error = split_in(&Split::Warc, [&a, "nothing"].concat().as_bytes(), &[]).unwrap_err();
        assert!(error.to_string().contains(&format!("at byte {}", a.len())), "{error}");
    }

    fn archive() -> (Vec<u8>, Vec<(String, Vec<u8>)>) {
        let mut builder = ::tar::Builder::new(Vec::new());
        let long = format!("{}/long", "folder".repeat(40));
        let members = vec![
            ("a".to_owned(), b"one".to_vec()),
            (long, vec![7; 1025]),
            ("empty".to_owned(), Vec::new()),
            ("b".to_owned(), vec![9; 512]),
        ];
        for (name, bytes) in &members {
            let mut header = ::tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            builder.append_data(&mut header, name, bytes.as_slice()).unwrap();
            let mut folder = ::tar::Header::new_gnu();
            folder.set_entry_type(::tar::EntryType::Directory);
            folder.set_size(0);
            builder.append_data(&mut folder, "folder/", [].as_slice()).unwrap();
        }
        builder.append_pax_extensions([("path", b"by pax".as_slice()), ("size", b"4")]).unwrap();
        let mut header = ::tar::Header::new_ustar();
        header.set_size(4);
        header.set_path("not this").unwrap();
        header.set_cksum();
        builder.append(&header, b"data".as_slice()).unwrap();
        let mut members = members;
        members.push(("by pax".to_owned(), b"data".to_vec()));
        (builder.into_inner().unwrap(), members)
    }

    #[test]
    fn members_of_a_tar_are_their_content() {
        let (bytes, members) = archive();
        let found = split_in(&Split::Tar, &bytes, &[]).unwrap();
        assert_eq!(found.len(), members.len());
        for (found, (name, content)) in found.iter().zip(&members) {
            assert_eq!(found.name, name.as_bytes());
            assert_eq!(&bytes[found.range.start as usize..found.range.end as usize], content);
        }
        let mut bad = bytes;
        bad[1] ^= 1;
        assert!(split_in(&Split::Tar, &bad, &[]).is_err());
    }

    fn samples() -> Vec<(Split, Vec<u8>)> {
        let mail = "From a\nMessage-ID: <1@x>\n\nx\n\nFrom b\nmessage-id:\n\t<2@x>\n\ny";
        let warc = "WARC/1.1\r\nContent-Length: 3\r\nWARC-Type: resource\r\nWARC-Target-URI: u\r\n\r\nabc\r\n\r\n";
        let json = "{\"id\":\"a\"}\n{\"x\":{\"id\":1},\"id\":2.5e3}\n{}\n";
        vec![
            (Split::Lines, b"one\ntwo\n\nthree".to_vec()),
            (Split::Fixed(7), b"some bytes in pieces".to_vec()),
            (Split::Json("id".into()), json.into()),
            (Split::Mbox, mail.into()),
            (Split::Warc, warc.repeat(3).into()),
            (Split::Tar, archive().0),
        ]
    }

    proptest! {
        #[test]
        fn it_makes_no_difference_in_which_pieces_a_stream_comes(
            pieces in proptest::collection::vec(0usize..700, 0..40), small in proptest::collection::vec(0usize..5, 0..60)
        ) {
            for (split, bytes) in samples() {
                let expected = split_in(&split, &bytes, &[]).unwrap();
                prop_assert_eq!(&split_in(&split, &bytes, &pieces).unwrap(), &expected);
                prop_assert_eq!(&split_in(&split, &bytes, &small).unwrap(), &expected);
            }
        }

        #[test]
        fn any_bytes_are_split_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..2000), which in 0usize..6, keep in 0usize..700
        ) {
            let (split, good) = samples().swap_remove(which);
            let bytes = [&good[..keep.min(good.len())], &bytes].concat();
            if let Ok(found) = split_in(&split, &bytes, &[100, 500]) {
                let mut end = 0;
                for found in found {
                    prop_assert!(found.range.start >= end && found.range.end <= bytes.len() as u64);
                    end = found.range.end;
                }
            }
        }
    }
}
