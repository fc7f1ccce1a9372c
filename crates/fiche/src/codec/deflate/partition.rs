//! Partitions of a deflate stream: pieces that follow one another in one standard stream, and can be inflated
//! each by itself (section 3 of Constantinescu, Glider, Chambliss and Simha, *Random Read Speedup in
//! Compression Enabled Storage Systems*).

use libdeflater::{CompressionLvl, Compressor};

use super::{Inflate, Input, Pause};
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
        let failed =
            || Error::Corrupt { what: "partition as deflated", at: Place::Pos(out.len() as u64) };
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
