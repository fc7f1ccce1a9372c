//! Partitions of a deflate stream: pieces that follow one another in one standard stream, and can be inflated
//! each by itself (section 3 of Constantinescu, Glider, Chambliss and Simha, *Random Read Speedup in
//! Compression Enabled Storage Systems*).

use flate2::{Compress, Compression, FlushCompress};
use libdeflater::{CompressionLvl, Compressor};

use super::{Inflate, Input, Marks, Pause, WINDOW};
use crate::error::{Error, Place, Result};

/// What every partition ends with: a stored block of nothing, from its length on, on a whole byte.
pub const FLUSH: [u8; 4] = [0, 0, 0xFF, 0xFF];

/// Deflates pieces into partitions.
///
/// ```
/// use fiche::codec::deflate::{Inflate, Input, LAST_BLOCK, Partitioner};
///
/// let mut partitioner = Partitioner::new(6)?;
/// let mut stream = Vec::new();
/// partitioner.put(b"to be or not to be, ", &mut stream)?;
/// let second = stream.len();
/// partitioner.put(b"that is the question", &mut stream)?;
/// stream.extend(LAST_BLOCK);
///
/// let (mut text, mut at) = ([0; 20], 0);
/// Inflate::new().run(&mut Input::new(&stream[second..], 0), &mut text, &mut at)?;
/// assert_eq!(&text, b"that is the question");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Partitioner {
    compressor: Compressor,
    inflate: Inflate,
    room: Vec<u8>,
    back: Vec<u8>,
}

impl Partitioner {
    /// One of this level, 1 to 12: those of libdeflate.
    ///
    /// # Errors
    /// [`Error::Invalid`] for any other.
    pub fn new(level: i32) -> Result<Partitioner> {
        Error::check_level("deflate", 1..=12, level)?;
        let level = CompressionLvl::new(level).map_err(|_| Error::invalid("no such level"))?;
        Ok(Partitioner {
            compressor: Compressor::new(level),
            inflate: Inflate::new(),
            room: Vec::new(),
            back: Vec::new(),
        })
    }

    /// Appends a partition: whole bytes, in which no block is the last of the stream. What was deflated has been
    /// inflated again then, and was the same.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when it was not, as only a processor or a memory does that fails.
    pub fn put(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let most = self.compressor.deflate_compress_bound(piece.len());
        self.room.resize(self.room.len().max(most), 0);
        self.back.resize(self.back.len().max(piece.len()), 0);
        let failed = || failed(out.len());
        let len = self.compressor.deflate_compress(piece, &mut self.room).map_err(|_| failed())?;
        let stream = &mut self.room[..len];
        // The encoder knows of no stream that goes on: its last block says so in its first bit, which is found by
        // inflating what it made.
        self.inflate.reset();
        let (mut last, mut at, mut is_full) = (0, 0, false);
        let mut input = Input::new(stream, 0);
        let back = &mut self.back[..piece.len()];
        loop {
            match self.inflate.run_block(&mut input, back, &mut at) {
                Ok(Pause::Block) => last = input.bit(),
                Ok(Pause::End) if back == piece => break,
                // The room is used up within the last block, or there is too little.
                Ok(Pause::Full) if !is_full => is_full = true,
                _ => return Err(failed()),
            }
        }
        let end = input.bit();
        stream[last / 8] &= !(1 << (last % 8));
        out.extend_from_slice(stream);
        // Three bits say that a stored block follows; they are zeros, as is the rest of a byte.
        if end.is_multiple_of(8) || end % 8 > 5 {
            out.push(0);
        }
        out.extend(FLUSH);
        Ok(())
    }
}

/// Deflates pieces into partitions that copy from what was before them, as the blocks of one stream do: they take no
/// more space, but each is inflated with the bytes at hand that it copies from.
pub(crate) struct Primed {
    /// libdeflate has no way to begin with a window; zlib has.
    compress: Compress,
    level: Compression,
    inflate: Inflate,
    /// What was before, and what was inflated again behind it.
    back: Vec<u8>,
}

impl Primed {
    /// One of this level, 1 to 9: those of zlib.
    ///
    /// # Errors
    /// [`Error::Invalid`] for any other.
    pub fn new(level: i32) -> Result<Primed> {
        Error::check_level("primed deflate", 1..=9, level)?;
        let level = Compression::new(level as u32);
        let compress = Compress::new(level, false);
        Ok(Primed { compress, level, inflate: Inflate::new(), back: Vec::new() })
    }

    /// Begins behind this, as far back as copies reach.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the library does not take it.
    pub fn begin(&mut self, before: &[u8]) -> Result<()> {
        // One that is reset and given a window does not forget all it knew: its output would depend on what it did before.
        self.compress = Compress::new(self.level, false);
        self.back.clear();
        self.back.extend_from_slice(&before[before.len().saturating_sub(WINDOW)..]);
        if self.back.is_empty() {
            return Ok(());
        }
        self.compress.set_dictionary(&self.back).map_err(|_| failed(0))?;
        Ok(())
    }

    /// Appends a partition of what follows: whole bytes, in which no block is the last of the stream. Returns what it
    /// copies from before it, up to its end: bytes of that which it does not copy from are 0. What was deflated has
    /// been inflated again then, and was the same.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when it was not, as only a processor or a memory does that fails.
    pub fn put(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<Vec<u8>> {
        let (start, before) = (out.len(), self.compress.total_in());
        loop {
            let used = (self.compress.total_in() - before) as usize;
            out.reserve(piece.len() / 2 + 64);
            let rest = &piece[used..];
            let done = self.compress.compress_vec(rest, out, FlushCompress::Sync);
            done.map_err(|_| failed(out.len()))?;
            if self.compress.total_in() - before == piece.len() as u64 && out.len() < out.capacity()
            {
                break;
            }
        }
        let from = self.back.len();
        self.back.resize(from + piece.len(), 0);
        self.inflate.reset();
        let (mut at, mut marks, mut is_full) = (from, Marks::default(), false);
        let mut input = Input::open(&out[start..], 0);
        loop {
            let marking = (at - from, &mut marks);
            match self.inflate.run_marking(&mut input, &mut self.back, &mut at, marking) {
                Ok(Pause::Hungry) => break,
                Ok(Pause::Block) => {}
                Ok(Pause::Full) if !is_full => is_full = true,
                _ => return Err(failed(start)),
            }
        }
        if self.back[from..] != *piece || input.bit() != 8 * (out.len() - start) {
            return Err(failed(start));
        }
        let mut window = self.back[..from].to_vec();
        let window = marks.clear(&mut window).to_vec();
        let gone = self.back.len().saturating_sub(WINDOW);
        self.back.drain(..gone);
        Ok(window)
    }
}

/// What was deflated is not what was to be.
fn failed(at: usize) -> Error {
    Error::Corrupt { what: "partition as deflated", at: Place::Pos(at as u64) }
}
