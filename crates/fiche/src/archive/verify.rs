//! Verifies every byte of an archive.

use std::ops::Range;

use crate::archive::decode::{Decoding, decode_block};
use crate::archive::format::Superseded;
use crate::archive::reader::Reader;
use crate::blocks::Block;
use crate::envelope::{self, Container, HEADER_LEN, Section, TRAILER_LEN};
use crate::error::{Error, Place, Result};
use crate::io::ReadAt;
use crate::parallel::Pipeline;
use crate::records::Names;
use crate::wire::{crc32c, crc64, crc64_join};

/// Stored bytes that one thread verifies at a time.
const PIECE: u64 = 1 << 20;

/// Something that is not as it was written.
#[derive(Debug)]
#[non_exhaustive]
pub struct Damage {
    /// What is wrong, and where.
    pub error: Error,
    /// The content that is lost with it, where it is known.
    pub content: Option<Range<u64>>,
}

/// What verifying found.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// Everything that is damaged, in no particular order. Empty: all is well.
    pub damage: Vec<Damage>,
    /// The records that lost content, by number and name; hard links to them too.
    pub records: Vec<(u64, Vec<u8>)>,
    /// Blocks that were decoded and found right.
    pub blocks: u64,
    /// Bytes of content that were decoded and found right.
    pub bytes: u64,
    /// Position behind which lies what an append left that was cut off, if any:
    /// no damage, for the archive is what it was before.
    pub cut_off_append: Option<u64>,
}

/// A few neighbouring blocks of a chapter.
struct Piece {
    blocks: Vec<Block>,
}

/// What came of them: checksum and length of their content, and the damage.
struct Checked {
    checksum: u64,
    len: u64,
    blocks: u64,
    damage: Vec<Damage>,
}

impl Reader {
    /// Reads and decodes every block, checks every checksum, and accounts for every
    /// byte of the file: a flip of any bit is found. `progress` is told bytes of
    /// content as they are done, and may stop it with an error.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use fiche::archive::{Entry, Options, Reader, Writer};
    /// # let mut writer = Writer::new(Vec::new(), Options::default())?;
    /// # writer.add(Entry::data("letter"), &mut "dear a".as_bytes())?;
    /// # let mut file = writer.finish()?;
    /// file[32] ^= 1; // the first stored byte
    /// let report = Reader::open(Arc::new(file))?.verify(1, &mut |_bytes| Ok(()))?;
    /// assert_eq!(report.damage[0].content, Some(0..6));
    /// assert_eq!(report.records, [(0, b"letter".to_vec())]);
    /// # Ok::<(), fiche::Error>(())
    /// ```
    ///
    /// # Errors
    /// Only where it cannot go on: [`Error::Io`], or what `progress` gave. Damage is in the report.
    pub fn verify(
        &self,
        threads: usize,
        progress: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Report> {
        let inner = self.inner();
        let mut report = Report::default();
        // Ranges of the file that are accounted for.
        let mut known: Vec<Range<u64>> =
            vec![0..HEADER_LEN, inner.end.saturating_sub(TRAILER_LEN)..inner.end];
        known.extend(inner.footer.links.iter().map(|link| link.at.pos..link.at.end()));
        let header = envelope::read_header(&inner.source, Container::Archive)?;
        if header.guard_damaged {
            let error =
                Error::Corrupt { what: "header guard", at: Place::Pos(envelope::GUARD_POS) };
            report.damage.push(Damage { error, content: None });
        }
        if inner.end < inner.source.len() {
            report.cut_off_append = Some(inner.end);
        }
        inner.shared.sections(|section| match section {
            Ok(at) => known.push(at.pos..at.end()),
            Err(error) => report.damage.push(Damage { error, content: None }),
        });
        self.verify_content(threads, progress, &mut known, &mut report)?;
        self.verify_index(&mut known, &mut report);
        for &Superseded { at, checksum } in &inner.footer.superseded {
            known.push(at.pos..at.end());
            let mut damaged = at.end() > inner.end;
            if !damaged {
                let mut bytes = vec![0; at.len as usize];
                inner.source.read_at(at.pos, &mut bytes)?;
                damaged = crc32c(&bytes) != checksum;
            }
            if damaged {
                let error = Error::Corrupt { what: "superseded footer", at: Place::Pos(at.pos) };
                report.damage.push(Damage { error, content: None });
            }
        }
        self.account(known, &mut report);
        self.name_damaged_records(&mut report);
        Ok(report)
    }

    fn verify_content(
        &self,
        threads: usize,
        progress: &mut dyn FnMut(u64) -> Result<()>,
        known: &mut Vec<Range<u64>>,
        report: &mut Report,
    ) -> Result<()> {
        let inner = self.inner();
        let mut pipeline = Pipeline::new(threads, || {
            let reader = self.clone();
            let (mut scratch, mut stored, mut buf) = Default::default();
            move |piece: Piece| reader.check_piece(&piece, &mut scratch, &mut stored, &mut buf)
        });
        let mut content = 0;
        let mut end = HEADER_LEN;
        for (i, chapter) in inner.footer.chapters.iter().enumerate() {
            let range = chapter.offset..chapter.offset + chapter.len;
            let table = match inner.table(i) {
                Ok(table) => table,
                Err(error) => {
                    // Where its blocks lie is not known: all before it counts as its own.
                    known.push(end..chapter.table.end());
                    end = chapter.table.end();
                    let content = Some(range).filter(|r| !r.is_empty());
                    report.damage.push(Damage { error, content });
                    continue;
                }
            };
            known.push(chapter.table.pos..chapter.table.end());
            end = chapter.table.end();
            let mut blocks_start = table.pos;
            for (_, space) in table.spaces(chapter.table.pos) {
                known.push(blocks_start..space.start);
                blocks_start = space.end;
                self.verify_space(space, known, report)?;
            }
            let mut blocks = Vec::new();
            let mut take = |done: Checked, report: &mut Report| -> Result<()> {
                content = crc64_join(content, done.checksum, done.len);
                report.blocks += done.blocks;
                report.bytes += done.len;
                report.damage.extend(done.damage);
                progress(done.len)
            };
            for i in 0..table.blocks() {
                let block = table.block(i);
                blocks.push(block);
                if block.end() - blocks[0].pos >= PIECE || i + 1 == table.blocks() {
                    let piece = Piece { blocks: std::mem::take(&mut blocks) };
                    if let Some(done) = pipeline.push(piece) {
                        take(done, report)?;
                    }
                }
            }
            while let Some(done) = pipeline.pop() {
                take(done, report)?;
            }
        }
        if report.damage.is_empty() && content != inner.footer.content {
            let error = Error::Corrupt { what: "content", at: Place::Pos(inner.footer_at.pos) };
            report.damage.push(Damage { error, content: None });
        }
        Ok(())
    }

    /// Accounts for the sections between two blocks.
    fn verify_space(
        &self,
        space: Range<u64>,
        known: &mut Vec<Range<u64>>,
        report: &mut Report,
    ) -> Result<()> {
        let mut pos = space.start;
        while pos < space.end {
            match Section::load_unknown(&self.inner().source, pos, space.end) {
                Ok(section) => {
                    known.push(pos..section.at.end());
                    pos = section.at.end();
                }
                Err(Error::Io(error)) => return Err(error.into()),
                Err(error) => {
                    // Record pages are found again through the index; what else
                    // stands here is a begun record.
                    let error = error.at(Place::Pos(pos));
                    report.damage.push(Damage { error, content: None });
                    known.push(pos..space.end);
                    break;
                }
            }
        }
        Ok(())
    }

    fn check_piece(
        &self,
        piece: &Piece,
        scratch: &mut Decoding,
        stored: &mut Vec<u8>,
        buf: &mut Vec<u8>,
    ) -> Checked {
        let mut done = Checked { checksum: 0, len: 0, blocks: 0, damage: Vec::new() };
        for block in &piece.blocks {
            stored.resize(block.stored_len as usize, 0);
            buf.resize(block.len as usize, 0);
            let result = self.inner().source.read_at(block.pos, stored).and_then(|()| {
                decode_block(&self.inner().shared, block, stored, 0.into(), buf, scratch, false)
            });
            match result {
                Ok(()) => {
                    done.checksum = crc64_join(done.checksum, crc64(buf), block.len);
                    done.len += block.len;
                    done.blocks += 1;
                }
                Err(error) => {
                    let content = Some(block.offset..block.offset + block.len);
                    done.damage.push(Damage { error, content });
                }
            }
        }
        done
    }

    fn verify_index(&self, known: &mut Vec<Range<u64>>, report: &mut Report) {
        let index = &self.inner().index;
        index.sections(|section| match section {
            Ok(at) => known.push(at.pos..at.end()),
            Err(error) => report.damage.push(Damage { error, content: None }),
        });
        for tree in index.trees() {
            let mut last: Option<Vec<u8>> = None;
            let end = tree.tree.first + tree.tree.count;
            for item in self.entries(tree.tree.first) {
                // Sections that do not load were reported above.
                let Ok((number, entry)) = item else {
                    if let Err(error @ Error::Corrupt { at: Place::Record(_), .. }) = item {
                        report.damage.push(Damage { error, content: None });
                    }
                    continue;
                };
                if number >= end {
                    break;
                }
                let increases = last.is_none_or(|last| last < entry.name);
                let backward =
                    !matches!(entry.kind, crate::records::Kind::Hardlink(to) if to >= number);
                if !backward || (tree.names == Names::Increasing && !increases) {
                    let error = Error::Corrupt { what: "record page", at: Place::Record(number) };
                    report.damage.push(Damage { error, content: None });
                }
                last = Some(entry.name);
            }
        }
    }

    /// Every byte must belong to something, and to one thing.
    fn account(&self, mut known: Vec<Range<u64>>, report: &mut Report) {
        known.sort_by_key(|range| (range.start, range.end));
        known.dedup();
        let mut end = 0;
        for range in known {
            if range.start != end && range.start < range.end {
                let (what, pos) = match range.start < end {
                    true => ("overlapping section", range.start),
                    false => ("gap between sections", end),
                };
                // With something damaged, what belongs to it is missing here.
                if report.damage.is_empty() {
                    let error = Error::Corrupt { what, at: Place::Pos(pos) };
                    report.damage.push(Damage { error, content: None });
                }
            }
            end = end.max(range.end);
        }
    }

    fn name_damaged_records(&self, report: &mut Report) {
        let mut lost: Vec<Range<u64>> =
            report.damage.iter().filter_map(|d| d.content.clone()).collect();
        if lost.is_empty() {
            return;
        }
        lost.sort_by_key(|range| range.start);
        let hit = |range: &Range<u64>| {
            let i = lost.partition_point(|l| l.end <= range.start);
            lost.get(i).is_some_and(|l| l.start < range.end)
        };
        let mut numbers = std::collections::HashSet::new();
        for (number, entry) in self.entries(0).flatten() {
            let linked =
                matches!(entry.kind, crate::records::Kind::Hardlink(to) if numbers.contains(&to));
            if linked || hit(&entry.range) {
                numbers.insert(number);
                report.records.push((number, entry.name));
            }
        }
    }
}
