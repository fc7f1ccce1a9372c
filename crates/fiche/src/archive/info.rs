//! Says what an archive is made of.

use crate::archive::reader::Reader;
use crate::blocks::CHECKSUM;
use crate::codec::filter::Filter;
use crate::envelope::{HEADER_LEN, TRAILER_LEN};
use crate::error::Result;
use crate::io::ReadAt;

/// What an archive is made of. The parts add up to `stored_bytes`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// Length of the file, nothing left out.
    pub stored_bytes: u64,
    /// Length of the content.
    pub logical_bytes: u64,
    /// Stored bytes of all blocks.
    pub compressed_bytes: u64,
    /// Dictionaries in the file and what is said of them, with checksums.
    pub dictionary_bytes: u64,
    /// Models, with checksums.
    pub model_bytes: u64,
    /// Chapter tables and footers, without checksums and notes: what leads to a block.
    pub index_bytes: u64,
    /// Header, trailer and the footer's notes, without checksums.
    pub envelope_bytes: u64,
    /// Checksums of header, blocks, chapter tables, footer and trailer.
    pub checksum_bytes: u64,
    /// Record pages, nodes and name pages: names and metadata, with checksums.
    pub record_bytes: u64,
    /// Old footers and trailers that appending left behind, and what a cut-off append left.
    pub superseded_bytes: u64,
    /// How many blocks there are.
    pub blocks: u64,
    /// How many chapters.
    pub chapters: u64,
    /// How many records.
    pub records: u64,
    /// The method it was first packed with.
    pub method: String,
    /// And its level.
    pub level: i32,
    /// And the filters before it.
    pub filters: Vec<Filter>,
    /// And its block length.
    pub block_bytes: u64,
    /// CRC-64 of the content: the same for any method, block length and order
    /// of appending and merging.
    pub content_checksum: u64,
    /// What wrote it.
    pub writer: String,
}

impl Reader {
    /// What the archive is made of; loads every chapter's table.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::Error::Corrupt) when a table is damaged,
    /// [`Error::Io`](crate::Error::Io).
    pub fn info(&self) -> Result<Info> {
        let footer = &self.inner().footer;
        let mut info = Info {
            stored_bytes: self.inner().source.len(),
            logical_bytes: footer.len,
            blocks: footer.blocks,
            records: footer.records,
            chapters: footer.chapters.len() as u64,
            method: footer.note("method").unwrap_or("unknown").to_owned(),
            level: footer.note("level").and_then(|level| level.parse().ok()).unwrap_or(0),
            block_bytes: footer.note("block").and_then(|len| len.parse().ok()).unwrap_or(0),
            filters: footer
                .note("filters")
                .and_then(|names| names.split(',').map(|name| name.parse().ok()).collect())
                .unwrap_or_default(),
            content_checksum: footer.content,
            writer: footer.note("writer").unwrap_or("unknown").to_owned(),
            ..Info::default()
        };
        for (i, chapter) in footer.chapters.iter().enumerate() {
            let table = self.inner().table(i)?;
            let checksums = CHECKSUM as u64 * chapter.blocks;
            info.compressed_bytes += table.stored_len - checksums;
            // Of each block; of the section.
            info.checksum_bytes += checksums + 4;
            // A table that was lost and found out has no section.
            info.index_bytes += chapter.table.len.saturating_sub(4 + table.gaps_size);
            // Without records there would be no sections between blocks, and no list of them.
            info.record_bytes +=
                table.gap_len + table.gaps_size + (chapter.table.pos - table.end());
        }
        // Each has a length before it, of a byte.
        let notes = footer.notes.iter().map(|(k, v)| (k.len() + v.len() + 2) as u64).sum::<u64>();
        info.envelope_bytes = HEADER_LEN + TRAILER_LEN - 2 * 4 + notes;
        info.checksum_bytes += 2 * 4;
        for link in &footer.links {
            info.checksum_bytes += 4 + 8;
            info.index_bytes += link.at.len - (4 + 8);
        }
        // They are in the last footer, which need not be a long one where it is damaged.
        info.index_bytes = info.index_bytes.saturating_sub(notes);
        info.superseded_bytes = info.stored_bytes - self.inner().end;
        info.superseded_bytes += footer.superseded.iter().map(|s| s.at.len).sum::<u64>();
        (info.dictionary_bytes, info.model_bytes) = self.inner().shared.stored_bytes()?;
        // What is left are the nodes and name pages behind the chapters.
        let known = info.compressed_bytes
            + info.checksum_bytes
            + info.index_bytes
            + info.envelope_bytes
            + info.record_bytes
            + info.dictionary_bytes
            + info.model_bytes
            + info.superseded_bytes;
        info.record_bytes += info.stored_bytes.saturating_sub(known);
        Ok(info)
    }
}
