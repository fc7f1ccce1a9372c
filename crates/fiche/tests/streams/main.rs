//! Standard files read anywhere: those of other programs by an index, and our own.
#![cfg(feature = "zlib")]

mod foreign;
mod frames;
mod golden;
mod ours;

use std::io::{self, Read, Write};
use std::sync::Arc;

use fiche::archive::Split;
use fiche::codec::deflate::Gunzip;
use fiche::streams::{
    Foreign, Format, IndexOptions, Options, Reader, Writer, export_index, import_index, index,
    index_file, verify,
};
use fiche::testing::{Random, conformance};
use fiche::{Error, ReadAt};
use flate2::{Compression, GzBuilder};

fn gzip(content: &[u8], level: u32) -> Vec<u8> {
    let mut encoder = GzBuilder::new().filename("x").write(Vec::new(), Compression::new(level));
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// One member with a block that never ends.
fn one_block(content: &[u8]) -> Vec<u8> {
    let mut file = vec![0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 255];
    let mut compressor = libdeflater::Compressor::new(libdeflater::CompressionLvl::new(1).unwrap());
    let mut stream = vec![0; compressor.deflate_compress_bound(content.len())];
    let len = compressor.deflate_compress(content, &mut stream).unwrap();
    file.extend(&stream[..len]);
    file.extend(
        crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, content).to_le_bytes()[..4].iter(),
    );
    file.extend((content.len() as u32).to_le_bytes());
    file
}

fn indexed(file: &[u8], spacing: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let options = IndexOptions::default().spacing(spacing);
    index(file, &options, &mut out, io::sink()).unwrap();
    out
}

fn open(file: &[u8], index: Vec<u8>) -> Reader {
    Reader::with_index(Arc::new(file.to_vec()), Arc::new(index)).unwrap()
}

/// Text that is far from everywhere alike, with pieces that do not shrink.
fn content(random: &mut Random, len: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < len {
        let piece = random.below(60_000) as usize;
        match random.below(8) {
            0 => all.extend(random.bytes(piece)),
            1 => all.extend(vec![random.below(256) as u8; 3 * piece]),
            _ => all.extend(random.text(piece)),
        }
    }
    all.truncate(len);
    all
}

fn partitioned(content: &[u8], options: Options) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), options).unwrap();
    writer.write_all(content).unwrap();
    writer.finish().unwrap()
}

fn gunzip(file: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    Gunzip::new(file).read_to_end(&mut content).unwrap();
    let mut zlib = Vec::new();
    flate2::read::MultiGzDecoder::new(file).read_to_end(&mut zlib).unwrap();
    assert!(content == zlib);
    // Who knows of one member only gets all as well.
    let mut first = Vec::new();
    flate2::read::GzDecoder::new(file).read_to_end(&mut first).unwrap();
    assert!(content == first);
    content
}

fn own(file: &[u8]) -> Reader {
    Reader::open(Arc::new(file.to_vec())).unwrap().expect("an index inside")
}

/// What the golden files hold.
fn golden_content() -> Vec<u8> {
    let mut random = Random(77);
    let mut content = random.text(70_000);
    content.extend(random.bytes(4_000));
    content.extend(vec![b'\n'; 60_000]);
    content.extend(random.text(70_000));
    content
}

fn index_of(file: &[u8]) -> fiche::Result<Vec<u8>> {
    let (source, mut out): (Arc<dyn ReadAt>, _) = (Arc::new(file.to_vec()), Vec::new());
    index_file(&source, &IndexOptions::default(), &mut out, &mut |_| Ok(()))?;
    Ok(out)
}

/// By itself, by an index, and whole.
fn check_units(file: &[u8], content: &[u8], units: u64) {
    let (source, reader): (Arc<dyn ReadAt>, _) = (Arc::new(file.to_vec()), own(file));
    assert_eq!(reader.units(), units);
    assert_eq!(reader.len(), content.len() as u64);
    conformance(&reader, content, 16);
    let indexed = open(file, index_of(file).unwrap());
    conformance(&indexed, content, 17);
    let feeds = content.iter().filter(|&&byte| byte == b'\n').count() as u64;
    assert_eq!(indexed.line_feeds(), Some(feeds));
    for reader in [&reader, &indexed] {
        let len = verify(&source, Some(reader), &mut |_| Ok(())).unwrap();
        assert_eq!(len, content.len() as u64);
    }
}
