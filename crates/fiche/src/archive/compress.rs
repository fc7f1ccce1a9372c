//! Compresses batches of blocks: what each thread of a writer does.

use crate::archive::options::{Options, Packing};
use crate::blocks::CHECKSUM;
use crate::codec::filter::Filter;
use crate::codec::{Codec, Scratch, Stages, compress_filtered};
use crate::envelope::Kind as SectionKind;
use crate::error::Result;
use crate::records::Page;
use crate::rlz::coder::Packer;
use crate::wire::{block_checksum, crc64};

/// Some blocks on their way to a worker.
#[derive(Default)]
pub(super) struct Batch {
    /// Decoded bytes before it in the archive.
    pub offset: u64,
    pub data: Vec<u8>,
    /// Where each block ends in `data`.
    pub ends: Vec<usize>,
    /// Room for them compressed; the first `stored_len` bytes are what is written.
    pub stored: Vec<u8>,
    pub stored_len: usize,
    /// What follows these blocks.
    pub pages: Vec<(Page, SectionKind)>,
    pub ends_chapter: bool,
}

/// The same blocks, compressed.
pub(super) struct Compressed {
    pub batch: Batch,
    /// Stored length of each, checksum included.
    pub stored_lens: Vec<usize>,
    pub content: u64,
    pub result: Result<()>,
}

/// What a thread compresses with.
pub(super) enum Worker {
    Codec(Codec, Vec<Filter>, i32, Box<Scratch>),
    /// The mark of its blocks.
    Coder(Box<Packer>, u32),
}

impl Worker {
    /// One for a thread of its own; blocks have this mark.
    pub fn new(options: &Options, mark: u32) -> Worker {
        match &options.packing {
            Packing::Codec(codec) => {
                Worker::Codec(*codec, options.filters.clone(), options.the_level(), Box::default())
            }
            Packing::Coder(coder) => Worker::Coder(Box::new(Packer::new(coder.clone())), mark),
        }
    }

    /// Compresses the blocks of a batch.
    pub fn run(&mut self, mut batch: Batch) -> Compressed {
        let blocks = batch.ends.len();
        let mut done = Compressed {
            stored_lens: Vec::with_capacity(blocks),
            content: crc64(&batch.data),
            result: Ok(()),
            batch: Batch::default(),
        };
        let room = batch.data.len() + blocks * CHECKSUM;
        if batch.stored.len() < room {
            batch.stored.resize(room, 0);
        }
        let Batch { data, ends, stored, offset, .. } = &mut batch;
        let mut filled = 0;
        // A block that does not shrink is stored as it is: so there is always room.
        let mut put = |room: &mut [u8], block: &[u8], packed: Option<(usize, u32)>| {
            let (len, mark) = packed.unwrap_or_else(|| {
                room[..block.len()].copy_from_slice(block);
                (block.len(), 0)
            });
            let (stored, rest) = room.split_at_mut(len);
            rest[..CHECKSUM].copy_from_slice(&block_checksum(stored, mark));
            done.stored_lens.push(len + CHECKSUM);
            len + CHECKSUM
        };
        let mut start = 0;
        let cut = ends.iter().map(|&end| &data[std::mem::replace(&mut start, end)..end]);
        match self {
            Worker::Codec(codec, filters, level, scratch) => {
                let mark = Stages { codec: *codec, filters: filters.len() }.number().into();
                for block in cut {
                    let room = &mut stored[filled..filled + block.len() + CHECKSUM];
                    let shorter = block.len() - 1;
                    let packed = match codec {
                        Codec::Copy => Ok(None),
                        _ => {
                            let room = &mut room[..shorter];
                            compress_filtered(filters, *codec, *level, block, room, scratch)
                        }
                    };
                    match packed {
                        Ok(len) => filled += put(room, block, len.map(|len| (len, mark))),
                        Err(error) => {
                            done.result = Err(error);
                            break;
                        }
                    }
                }
            }
            Worker::Coder(packer, mark) => {
                let cut: Vec<&[u8]> = cut.collect();
                packer.pack(*offset, &cut, |i, packed| {
                    let room = &mut stored[filled..filled + cut[i].len() + CHECKSUM];
                    let packed = packed.map(|packed| {
                        room[..packed.len()].copy_from_slice(packed);
                        (packed.len(), *mark)
                    });
                    filled += put(room, cut[i], packed);
                });
            }
        }
        batch.stored_len = filled;
        done.batch = batch;
        done
    }
}
