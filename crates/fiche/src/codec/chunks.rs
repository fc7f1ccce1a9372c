//! Content in chunks, each compressed alone and by any thread, and any range of it out of them.
//!
//! What chunks become is put together as a list of pieces, and no byte of it is moved; or written one behind the other. Which thread did what is not seen: the bytes are the same for any number
//! of them (Warnke, *Page-Based Compression in the Linux Kernel*, 2017, chunks of 32 pages). A table beside them says where each ends. The streams of BeWalgo are one stream when they are put behind
//! one another, which a decoder that knows of no chunks reads; of other codecs they are not.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::codec::{Codec, Scratch};
use crate::error::{Error, Place, Result};
use crate::pages::{Dst, Segments, Src};

/// The thesis's length of a chunk: what one search for matches is good for, and a small part of what a core decodes in a millisecond.
pub const CHUNK: usize = 128 << 10;

/// Compressed chunks.
#[derive(Debug)]
pub struct Chunks {
    table: Table,
    stored: Vec<Vec<u8>>,
}

/// Where chunks end in what they became.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    codec: Codec,
    chunk: usize,
    len: usize,
    ends: Vec<usize>,
}

impl Codec {
    /// True where a stream may be longer than what it stands for, and is a stream still, as it is a part of others.
    fn is_always_a_stream(self) -> bool {
        self.bound(0).is_some()
    }

    /// Room for what a chunk becomes: where there is none for all of it, less than there is, as that is taken as it is otherwise.
    fn room(self, len: usize) -> usize {
        self.bound(len).unwrap_or(len.saturating_sub(1))
    }

    fn compress_chunk(self, level: i32, src: Src<'_>, scratch: &mut Scratch) -> Result<Vec<u8>> {
        let mut stored = vec![0; self.room(src.len())];
        let dst = stored.as_mut_slice().into();
        match self.compress(level, src, dst, scratch)? {
            Some(len) => stored.truncate(len),
            None => src.gather(&mut stored),
        }
        stored.shrink_to_fit();
        Ok(stored)
    }
}

impl Chunks {
    /// Compresses chunks of so many bytes, the last one of what is left, on so many threads.
    ///
    /// ```
    /// use fiche::codec::chunks::{CHUNK, Chunks};
    /// use fiche::codec::{Codec, Scratch};
    /// use fiche::Src;
    ///
    /// let content = b"one and two and ".repeat(40_000);
    /// let chunks = Chunks::compress(Codec::BeWalgo64, 1, content.as_slice().into(), CHUNK, 2)?;
    /// let mut piece = [0; 7];
    /// let (pieces, dst) = (chunks.segments(), piece.as_mut_slice().into());
    /// chunks.table().decompress_range(Src::from(&pieces), 400_000, dst, &mut Scratch::default())?;
    /// assert_eq!(&piece, b"one and");
    /// # Ok::<(), fiche::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Codec::compress`]; [`Error::Invalid`] for chunks of nothing, or of what is no whole number of eight bytes, without which streams of BeWalgo are not one.
    pub fn compress(
        codec: Codec,
        level: i32,
        src: Src<'_>,
        chunk: usize,
        threads: usize,
    ) -> Result<Chunks> {
        let mut table = Table::new(codec, chunk, src.len(), None)?;
        codec.check_level(level)?;
        let (count, next) = (table.count(), AtomicUsize::new(0));
        let work = || -> Result<Vec<(usize, Vec<u8>)>> {
            let mut scratch = Scratch::default();
            let mut done = Vec::new();
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= count {
                    return Ok(done);
                }
                let compress = |src: Src<'_>| codec.compress_chunk(level, src, &mut scratch);
                done.push((i, src.with_part(table.content(i), compress)?));
            }
        };
        let done = std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads.min(count)).map(|_| scope.spawn(work)).collect();
            let mut all = work()?;
            for other in others {
                all.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
            }
            Ok::<_, Error>(all)
        })?;
        let mut stored = vec![Vec::new(); count];
        done.into_iter().for_each(|(i, bytes)| stored[i] = bytes);
        table.ends = stored
            .iter()
            .scan(0, |end, bytes| {
                *end += bytes.len();
                Some(*end)
            })
            .collect();
        Ok(Chunks { table, stored })
    }

    /// What all chunks became, in their order.
    #[must_use]
    pub fn segments(&self) -> Segments<'_> {
        Segments::new(&self.stored)
    }

    /// Where they are in there.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.table
    }
}

impl Table {
    /// A table of chunks of so many bytes, of so much content, that end at these places of what they became.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless there is an end for each chunk, none before the one before it.
    pub fn of(codec: Codec, chunk: usize, len: usize, ends: Vec<usize>) -> Result<Table> {
        Table::new(codec, chunk, len, Some(ends))
    }

    fn new(codec: Codec, chunk: usize, len: usize, ends: Option<Vec<usize>>) -> Result<Table> {
        if chunk == 0 || codec.width().is_some() && !chunk.is_multiple_of(8) {
            return Err(Error::invalid("chunks have some bytes, with BeWalgo a multiple of eight"));
        }
        let count = len.div_ceil(chunk);
        if ends.as_ref().is_some_and(|ends| ends.len() != count || !ends.is_sorted()) {
            return Err(Error::invalid("a table of chunks has an end for each, in their order"));
        }
        Ok(Table { codec, chunk, len, ends: ends.unwrap_or_default() })
    }

    /// Where chunks end in what they became.
    #[must_use]
    pub fn ends(&self) -> &[usize] {
        &self.ends
    }

    /// How much content there is.
    #[must_use]
    pub fn content_len(&self) -> usize {
        self.len
    }

    fn count(&self) -> usize {
        self.len.div_ceil(self.chunk)
    }

    /// What a chunk holds.
    fn content(&self, i: usize) -> std::ops::Range<usize> {
        i * self.chunk..self.chunk.saturating_mul(i + 1).min(self.len)
    }

    /// Fills `dst` with the content from a place on. `src`, which is what all chunks became, may hold anything. No chunk is decoded that has nothing of it, and none further than that, where its codec
    /// can stop; where the first or the last one is wanted in part, that is copied.
    ///
    /// # Errors
    /// [`Error::Invalid`] where there is not so much content; [`Error::Corrupt`] where a chunk is damaged, which says in what place.
    pub fn decompress_range(
        &self,
        src: Src<'_>,
        from: usize,
        mut dst: Dst<'_, '_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let end = from.checked_add(dst.len()).filter(|&end| end <= self.len);
        let end = end.ok_or(Error::invalid("a range of content that is not there"))?;
        let mut at = from;
        let mut room = Vec::new();
        while at < end {
            let i = at / self.chunk;
            let content = self.content(i);
            let start = if i == 0 { 0 } else { self.ends[i - 1] };
            let stored = start..self.ends[i];
            let corrupt = Error::Corrupt { what: "chunk", at: Place::Pos(start as u64) };
            if stored.end > src.len() {
                return Err(corrupt);
            }
            let stop = content.end.min(end);
            let (skipped, wanted) = (at - content.start, stop - content.start);
            let is_raw = !self.codec.is_always_a_stream() && stored.len() == content.len();
            let codec = if is_raw { Codec::Copy } else { self.codec };
            let done = src.with_part(stored, |src| {
                let mut decode =
                    |dst: Dst<'_, '_>| codec.decompress_front(src, content.len(), dst, scratch);
                if skipped == 0 {
                    return dst.with_part(at - from..stop - from, decode);
                }
                room.resize(wanted, 0);
                decode(room.as_mut_slice().into())?;
                dst.with_part(at - from..stop - from, |mut dst| dst.scatter(&room[skipped..]));
                Ok(())
            });
            done.map_err(
                |error| if matches!(error, Error::Corrupt { .. }) { corrupt } else { error },
            )?;
            at = stop;
        }
        Ok(())
    }
}
