//! Deflate behind bytes that are known already ("priming", section 5 of the paper).

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// As much as deflate can refer back to.
pub(super) const WINDOW: usize = 32 << 10;

/// What a thread keeps between streams.
#[derive(Default)]
pub(super) struct State {
    /// The compressor of the level used last.
    compress: Option<(i32, Compress)>,
    room: Vec<u8>,
    decompress: Option<Decompress>,
}

/// The part of a prime that counts: its end.
fn window(prime: &[u8]) -> &[u8] {
    &prime[prime.len().saturating_sub(WINDOW)..]
}

impl State {
    /// Deflates `src` into `dst`; `None` when it has no room.
    pub fn deflate(
        &mut self,
        level: i32,
        prime: &[u8],
        src: &[u8],
        dst: &mut [u8],
    ) -> Option<usize> {
        let stream = match &mut self.compress {
            Some((now, stream)) if *now == level => {
                stream.reset();
                stream
            }
            other => {
                let level_of = Compression::new(level.clamp(1, 9) as u32);
                &mut other.insert((level, Compress::new(level_of, false))).1
            }
        };
        if !prime.is_empty() {
            stream.set_dictionary(window(prime)).ok()?;
        }
        // The library panics in some places where it runs out of room: so it gets more than any
        // input takes, and the result is copied.
        self.room.resize(src.len() + src.len() / 8 + 1024, 0);
        let status = stream.compress(src, &mut self.room, FlushCompress::Finish);
        let len = stream.total_out() as usize;
        if !matches!(status, Ok(Status::StreamEnd)) {
            self.compress = None;
            return None;
        }
        dst.get_mut(..len)?.copy_from_slice(&self.room[..len]);
        Some(len)
    }

    /// Inflates all of `src` into the front of `dst`; returns how much that is.
    pub fn inflate_all(&mut self, prime: &[u8], src: &[u8], dst: &mut [u8]) -> Option<usize> {
        let stream = self.start(prime)?;
        let status = stream.decompress(src, dst, FlushDecompress::Finish).ok()?;
        let is_end = status == Status::StreamEnd && stream.total_in() == src.len() as u64;
        is_end.then_some(stream.total_out() as usize)
    }

    fn start(&mut self, prime: &[u8]) -> Option<&mut Decompress> {
        let stream = self.decompress.get_or_insert_with(|| Decompress::new(false));
        stream.reset(false);
        if !prime.is_empty() {
            stream.set_dictionary(window(prime)).ok()?;
        }
        Some(stream)
    }

    /// Fills `dst` with the first bytes of what `src` holds, and stops there; with `is_all`, these
    /// must be all of them.
    pub fn inflate(
        &mut self,
        prime: &[u8],
        src: &[u8],
        dst: &mut [u8],
        is_all: bool,
    ) -> Option<()> {
        let stream = self.start(prime)?;
        // Without room for more it says that it could not go on, and has filled what there is.
        let status = stream.decompress(src, dst, FlushDecompress::Finish).ok()?;
        let is_end = status == Status::StreamEnd && stream.total_in() == src.len() as u64;
        (stream.total_out() == dst.len() as u64 && (is_end || !is_all)).then_some(())
    }
}
