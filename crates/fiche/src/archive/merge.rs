//! Joins archives without compressing anything again.

use std::io::Write;
use std::ops::Range;

use crate::archive::decode::verified;
use crate::archive::format::Footer;
use crate::archive::reader::Reader;
use crate::archive::writer::Sink;
use crate::blocks::{Block, Coded, Table};
use crate::codec::Scratch;
use crate::envelope::{Container, HEADER_LEN, Kind as SectionKind, Section, header};
use crate::error::{Error, Place, Result};
use crate::io::ReadAt;
use crate::records::{Entry, Kind, Names, Page, build_name_tree, parse_page};
use crate::wire::crc64_join;

/// Stored bytes that are copied at a time.
const PIECE: u64 = 1 << 20;

/// Writes an archive that holds the content and the records of all these, in this
/// order. Blocks are copied as they are stored, their checksums verified. `progress`
/// is told stored bytes as they are done, and may stop it with an error.
///
/// ```
/// use std::sync::Arc;
/// use fiche::archive::{Entry, Options, Reader, Writer, merge};
///
/// let archive = |name: &str| -> fiche::Result<Reader> {
///     let mut writer = Writer::new(Vec::new(), Options::default())?;
///     writer.add(Entry::data(name), &mut "some text".as_bytes())?;
///     Reader::open(Arc::new(writer.finish()?))
/// };
/// let both: Vec<u8> = merge(&[archive("a")?, archive("b")?], Vec::new(), &mut |_bytes| Ok(()))?;
/// assert_eq!(Reader::open(Arc::new(both))?.records(), 2);
/// # Ok::<(), fiche::Error>(())
/// ```
///
/// # Errors
/// [`Error::Invalid`] when two records have one name, unless both are directories;
/// [`Error::Corrupt`] when a block or an index is damaged; [`Error::Io`].
pub fn merge<W: Write>(
    readers: &[Reader],
    mut out: W,
    progress: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<W> {
    check_names(readers)?;
    out.write_all(&header(Container::Archive))?;
    let notes = readers.first().map(|r| r.inner().footer.notes.clone()).unwrap_or_default();
    let mut sink = Sink::new(out, HEADER_LEN, Footer { notes, ..Footer::default() });
    for reader in readers {
        copy(reader, &mut sink, progress)?;
    }
    sink.end_file()
}

/// No name may stand for two things in what comes out.
fn check_names(readers: &[Reader]) -> Result<()> {
    for (i, reader) in readers.iter().enumerate() {
        for item in reader.entries(0) {
            let (_, entry) = item?;
            for before in readers[..i].iter().filter(|_| entry.kind != Kind::Item) {
                let twin = match entry.name.is_empty() {
                    true => None,
                    false => before.inner().index.find(&entry.name)?,
                };
                let folders = twin.as_ref().is_some_and(|(_, twin)| {
                    twin.kind == Kind::Directory && entry.kind == Kind::Directory
                });
                let item = twin.as_ref().is_some_and(|(_, twin)| twin.kind == Kind::Item);
                if twin.is_some() && !folders && !item {
                    let what = format!("two archives have a record {:?}", entry.display_name());
                    return Err(Error::invalid(what));
                }
            }
        }
    }
    Ok(())
}

fn copy<W: Write>(
    reader: &Reader,
    sink: &mut Sink<W>,
    progress: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    let inner = reader.inner();
    // What lies before the content and the records of this archive.
    let (offset, record) = (sink.footer.len, sink.footer.records);
    let shared = inner.shared.copy_to(sink)?;
    let trees = inner.index.trees();
    let mut sorted_names: Vec<Vec<(Vec<u8>, u64)>> = vec![Vec::new(); trees.len()];
    let mut bytes = Vec::new();
    for (i, chapter) in inner.footer.chapters.iter().enumerate() {
        let table = inner.table(i)?;
        let mut block = 0;
        for (end, space) in table.spaces(chapter.table.pos) {
            copy_blocks(reader, &shared, table, block..end, sink, &mut bytes, progress)?;
            block = end;
            let mut pos = space.start;
            while pos < space.end {
                let section = Section::load_unknown(&inner.source, pos, space.end)?;
                pos = section.at.end();
                let kind = match section.kind {
                    k if k == SectionKind::RecordPage as u8 => SectionKind::RecordPage,
                    k if k == SectionKind::BegunRecord as u8 => SectionKind::BegunRecord,
                    _ => continue,
                };
                let entries: Vec<Entry> = parse_page(&section)?
                    .into_iter()
                    .map(|entry| shift(entry, offset, record))
                    .collect();
                let tree = trees.partition_point(|t| t.tree.first + t.tree.count <= section.number);
                if let Some(names) = sorted_names.get_mut(tree)
                    && kind == SectionKind::RecordPage
                    && matches!(trees[tree].names, Names::Sorted(_))
                {
                    for (entry, number) in entries.iter().zip(section.number..) {
                        let all = [&entry.name, &entry.key].into_iter().filter(|n| !n.is_empty());
                        names.extend(all.map(|n| (n.clone(), number - trees[tree].tree.first)));
                    }
                }
                let page = Page::of(entries, section.number + record, section.offset + offset);
                sink.put_page(&page, kind)?;
            }
        }
        sink.end_table()?;
    }
    sink.footer.content = crc64_join(sink.footer.content, inner.footer.content, inner.footer.len);
    let mut children = std::mem::take(&mut sink.children).into_iter().peekable();
    for (tree, mut names) in trees.iter().zip(sorted_names) {
        let end = record + tree.tree.first + tree.tree.count;
        while let Some(child) = children.next_if(|child| child.first < end) {
            sink.children.push(child);
        }
        names.sort_unstable();
        let names: Vec<(&[u8], u64)> = names.iter().map(|(n, number)| (&n[..], *number)).collect();
        sink.end_tree(|pos, out, scratch: &mut Scratch| match tree.names {
            Names::Sorted(_) => {
                build_name_tree(&names, pos, out, scratch).map_or(Names::Absent, Names::Sorted)
            }
            other => other,
        })?;
    }
    if sink.footer.records - record != inner.footer.records {
        return Err(Error::Corrupt { what: "record page", at: Place::Pos(inner.footer_at.pos) });
    }
    Ok(())
}

/// The same record behind so much content and so many records.
fn shift(mut entry: Entry, offset: u64, record: u64) -> Entry {
    entry.range = entry.range.start + offset..entry.range.end + offset;
    if let Kind::Hardlink(to) = &mut entry.kind {
        *to += record;
    }
    entry
}

fn copy_blocks<W: Write>(
    reader: &Reader,
    shared: &[u32],
    table: &Table,
    blocks: Range<usize>,
    sink: &mut Sink<W>,
    bytes: &mut Vec<u8>,
    progress: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    let mut piece: Vec<Block> = Vec::new();
    for i in blocks.clone() {
        let block = table.block(i);
        piece.push(block);
        let (start, end) = (piece[0].pos, block.end());
        if end - start < PIECE && i + 1 < blocks.end {
            continue;
        }
        bytes.resize((end - start) as usize, 0);
        reader.inner().source.read_at(start, bytes)?;
        for block in piece.drain(..) {
            let stored = &bytes[(block.pos - start) as usize..(block.end() - start) as usize];
            verified(&reader.inner().shared, &block, stored)?;
            // Every block that is whole has its dictionary in the list, but not one stored raw.
            let moved = |place: u32| shared.get(place as usize).copied();
            let coded = Coded {
                dictionary: block.coded.dictionary.and_then(moved),
                model: block.coded.model.and_then(moved),
                ..block.coded
            };
            sink.chapter().push(coded, block.len, block.stored_len);
        }
        sink.write(bytes)?;
        progress(end - start)?;
    }
    Ok(())
}
