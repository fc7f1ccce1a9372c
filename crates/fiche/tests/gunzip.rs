//! Gzip files as programs write them, and as disks and networks damage them.
#![cfg(feature = "zlib")]

use std::io::{self, Read, Write};
use std::process::{Command, Stdio};

use fiche::codec::deflate::{Gunzip, Member};
use fiche::testing::Random;
use fiche::{Error, Place};
use flate2::{Compression, GzBuilder};

/// Gives no more bytes at once than this.
struct Slow<'a>(&'a [u8], usize);

impl Read for Slow<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = buf.len().min(self.1);
        self.0.read(&mut buf[..len])
    }
}

fn gzip(content: &[u8], level: u32) -> Vec<u8> {
    let builder = GzBuilder::new().filename("a name").comment("a comment").mtime(1_700_000_000);
    let mut encoder = builder.extra("fi\u{2}\0ab").write(Vec::new(), Compression::new(level));
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// The content as far as it goes, and what is wrong then.
fn gunzip(file: &[u8], piece: usize) -> (Vec<u8>, Option<Error>) {
    let mut content = Vec::new();
    let error = Gunzip::new(Slow(file, piece)).read_to_end(&mut content).err();
    (content, error.map(|error| error.downcast::<Error>().unwrap()))
}

fn whole(file: &[u8]) -> Vec<u8> {
    let (content, error) = gunzip(file, usize::MAX);
    assert!(error.is_none(), "{error:?}");
    content
}

#[test]
fn members_follow_one_another_and_zeros_the_last() {
    let mut random = Random(1);
    let parts = [random.text(300_000), Vec::new(), random.bytes(100_000), b"the end".to_vec()];
    let mut file: Vec<u8> = parts.iter().flat_map(|part| gzip(part, 6)).collect();
    assert!(whole(&file) == parts.concat());
    let (content, error) = gunzip(&file, 1);
    assert!(error.is_none() && content == parts.concat());
    let end = file.len();
    file.extend([0; 200_000]);
    assert!(whole(&file) == parts.concat());
    // Anything else is said, once all content is given out.
    for (behind, at) in [(&b"\0\0x"[..], end + 2), (b"x", end), (b"\x1f\x8c", end)] {
        let (content, error) = gunzip(&[&file[..end], behind].concat(), 1000);
        assert!(content == parts.concat());
        let at = Place::Pos(at as u64);
        assert!(
            matches!(error, Some(Error::Corrupt { what: "gzip header", at: found }) if found == at)
        );
    }
}

#[test]
fn a_header_says_what_it_says() {
    let file = gzip(b"some text", 6);
    let member = Member::parse(&file, 0).unwrap().unwrap();
    assert_eq!(member.name.as_deref(), Some(&b"a name"[..]));
    assert_eq!((member.extra.as_slice(), member.mtime), (&b"fi\x02\0ab"[..], 1_700_000_000));
    for len in 0..member.len {
        assert_eq!(Member::parse(&file[..len], 0).unwrap(), None);
    }
    assert_eq!(Member::parse(&file[..member.len], 0).unwrap().unwrap(), member);
    // With a checksum of its own.
    let checked = [0x1f, 0x8b, 8, 2, 0, 0, 0, 0, 0, 3, 0x66, 0x31];
    let crc = (0..=u16::MAX).filter(|crc| {
        let header = [&checked[..10], &[*crc as u8, (*crc >> 8) as u8]].concat();
        Member::parse(&header, 0).is_ok()
    });
    assert_eq!(crc.count(), 1);
    for (byte, value) in [(2, 7), (3, 0x20), (3, 0xE0)] {
        let mut other = file.clone();
        other[byte] = value;
        assert!(matches!(gunzip(&other, 99).1, Some(Error::Unsupported { .. })));
    }
}

#[test]
fn a_name_without_an_end_takes_no_memory() {
    let endless = io::Cursor::new([0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 3]).chain(io::repeat(b'n'));
    let error = Gunzip::new(endless).read(&mut [0; 10]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
}

#[test]
fn no_cut_is_silent() {
    for (content, level) in
        [(Random(2).text(3_000), 6), (Random(3).bytes(900), 6), (vec![7; 70_000], 1)]
    {
        let file = gzip(&content, level);
        for len in 0..file.len() {
            let (front, error) = gunzip(&file[..len], usize::MAX);
            assert!(content.starts_with(&front));
            let Some(Error::Corrupt { at: Place::Pos(at), .. }) = error else {
                panic!("cut at {len} of {}: {error:?}", file.len());
            };
            assert!(at <= len as u64);
        }
    }
}

#[test]
fn no_flip_gives_other_content() {
    let content = Random(4).text(500);
    let file = gzip(&content, 6);
    let header = Member::parse(&file, 0).unwrap().unwrap().len;
    let mut harmless = 0;
    for bit in 0..8 * file.len() {
        let mut damaged = file.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        if let (read, None) = gunzip(&damaged, usize::MAX) {
            assert!(read == content && bit < 8 * (file.len() - 8), "bit {bit}");
            harmless += usize::from(bit < 8 * header);
        }
    }
    // Times, names and the like have no checksum in such a header.
    assert!(harmless > 100);
}

#[test]
fn what_programs_write_is_read() {
    let content = Random(5).text(2_000_000);
    for program in ["gzip -1", "gzip -9", "bgzip", "pigz"] {
        let mut words = program.split(' ');
        let mut command = Command::new(words.next().unwrap());
        command.args(words).arg("-c").stdin(Stdio::piped()).stdout(Stdio::piped());
        let Ok(mut child) = command.spawn() else {
            println!("SKIP: {program}");
            continue;
        };
        let mut stdin = child.stdin.take().unwrap();
        let input = &content;
        let file = std::thread::scope(|scope| {
            scope.spawn(move || stdin.write_all(input).unwrap());
            child.wait_with_output().unwrap().stdout
        });
        assert!(whole(&file) == content, "{program}");
    }
}
