//! Zstandard's compressors, with their tables in huge pages; and dictionaries that are prepared once and shared by threads: plain content of any size, all of which is
//! searched, or one that was trained, with its entropy tables.
//!
//! The library's own way to prepare a dictionary for a level indexes 8 MiB of it at most, and takes
//! one that begins with certain bytes for something else than content; contexts of its wrapper cannot be kept beside a dictionary, and have their tables where the C library puts them. So its
//! functions are called here that take all parameters: the one place that calls C without a wrapper.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use ::zstd::zstd_safe::zstd_sys as sys;

use crate::error::{Error, Result};
use crate::memory;

/// Where the bytes of a dictionary are.
pub(crate) type Content = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// The memory of C's allocator.
const PLAIN: sys::ZSTD_customMem =
    sys::ZSTD_customMem { customAlloc: None, customFree: None, opaque: std::ptr::null_mut() };

/// Memory in huge pages, where there is much of it: compressors look into their tables at random.
const HUGE: sys::ZSTD_customMem = sys::ZSTD_customMem {
    customAlloc: Some(allocate),
    customFree: Some(release),
    opaque: std::ptr::null_mut(),
};

/// A cache line: what is allocated begins at one, and the one before it says how many there are.
#[repr(C, align(64))]
struct Line([usize; 64 / size_of::<usize>()]);

unsafe extern "C" fn allocate(_: *mut c_void, len: usize) -> *mut c_void {
    let count = len.div_ceil(size_of::<Line>()) + 1;
    let Some(room) = memory::try_room_for::<Line>(count) else { return std::ptr::null_mut() };
    let mut room = ManuallyDrop::new(room);
    let capacity = room.capacity();
    let first = room.as_mut_ptr();
    // SAFETY: there is room for the line that is written, and for one more at least or its end.
    unsafe {
        (*first).0[0] = capacity;
        first.add(1).cast()
    }
}

unsafe extern "C" fn release(_: *mut c_void, address: *mut c_void) {
    if !address.is_null() {
        // SAFETY: it comes from `allocate`, which wrote the line before it, and is given back once.
        unsafe {
            let first = address.cast::<Line>().sub(1);
            drop(Vec::from_raw_parts(first, 0, (*first).0[0]));
        }
    }
}

fn no_memory() -> Error {
    Error::Limit { what: "memory for the index of a dictionary", need: 0, allowed: 0 }
}

/// A dictionary indexed for compressing at one level; shared by threads.
pub(crate) struct Encoding {
    prepared: NonNull<sys::ZSTD_CDict>,
    /// It refers to these bytes.
    _dictionary: Content,
}

// SAFETY: once it is made the library only reads it; its documentation allows any number of threads.
unsafe impl Send for Encoding {}
// SAFETY: as above.
unsafe impl Sync for Encoding {}

/// log2, rounded up.
fn bits(len: usize) -> u32 {
    usize::BITS - len.saturating_sub(1).leading_zeros()
}

impl Encoding {
    /// Parameters with which all of a dictionary is searched: tables as large as it is.
    fn parameters(level: i32, len: usize) -> sys::ZSTD_compressionParameters {
        // SAFETY: takes and gives numbers.
        let mut p = unsafe { sys::ZSTD_getCParams(level, 0, 0) };
        let bits = bits(len.max(1 << 10));
        let is_tree = p.strategy as u32 >= sys::ZSTD_strategy::ZSTD_btlazy2 as u32;
        p.windowLog = bits.clamp(17, 30) + 1;
        // A tree has two links a position.
        p.chainLog = (bits + u32::from(is_tree)).clamp(10, 29);
        p.hashLog = bits.clamp(10, 27);
        p
    }

    /// Bytes that it takes in memory beside the dictionary.
    pub fn memory_for(level: i32, len: usize) -> u64 {
        let p = Encoding::parameters(level, len);
        4 * ((1u64 << p.chainLog) + (1 << p.hashLog))
    }

    /// Of plain content, all of which is searched.
    pub fn new(dictionary: Content, level: i32) -> Result<Encoding> {
        let len = (*dictionary).as_ref().len();
        let parameters = Encoding::parameters(level, len);
        Encoding::of(dictionary, sys::ZSTD_dictContentType_e::ZSTD_dct_rawContent, parameters)
    }

    /// Of a dictionary that was trained, for blocks of about so many bytes.
    pub fn trained(dictionary: Content, level: i32, block_len: usize) -> Result<Encoding> {
        let len = (*dictionary).as_ref().len();
        // SAFETY: takes and gives numbers.
        let parameters = unsafe { sys::ZSTD_getCParams(level, block_len as u64, len) };
        Encoding::of(dictionary, sys::ZSTD_dictContentType_e::ZSTD_dct_fullDict, parameters)
    }

    fn of(
        dictionary: Content,
        kind: sys::ZSTD_dictContentType_e,
        parameters: sys::ZSTD_compressionParameters,
    ) -> Result<Encoding> {
        let bytes = (*dictionary).as_ref();
        // SAFETY: the bytes stay where they are and as they are for as long as `dictionary`
        // lives, which is kept beside what refers to them.
        let prepared = unsafe {
            sys::ZSTD_createCDict_advanced(
                bytes.as_ptr().cast::<c_void>(),
                bytes.len(),
                sys::ZSTD_dictLoadMethod_e::ZSTD_dlm_byRef,
                kind,
                parameters,
                HUGE,
            )
        };
        let prepared = NonNull::new(prepared).ok_or_else(no_memory)?;
        Ok(Encoding { prepared, _dictionary: dictionary })
    }
}

impl Drop for Encoding {
    fn drop(&mut self) {
        // SAFETY: it was made by the library, and nobody refers to it any more.
        unsafe { sys::ZSTD_freeCDict(self.prepared.as_ptr()) };
    }
}

/// Literals, and a match behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Phrase {
    pub literals: u32,
    /// Three at least.
    pub len: u32,
    pub distance: u32,
}

/// Phrases that are given to the library block by block, as it asks for them.
struct Phrases {
    all: Vec<Phrase>,
    /// The first of those that are left, which may be cut already.
    next: usize,
}

impl Phrases {
    /// Those of a block of `left` bytes. What lies across its end is cut.
    fn block(&mut self, mut left: u32, mut put: impl FnMut(Phrase) -> Option<()>) -> Option<()> {
        let nothing = |literals| Phrase { literals, len: 0, distance: 0 };
        while let Some(phrase) = self.all.get_mut(self.next) {
            if phrase.literals >= left {
                phrase.literals -= left;
                break;
            }
            let room = left - phrase.literals;
            if phrase.len <= room {
                put(*phrase)?;
                left = room - phrase.len;
                self.next += 1;
                continue;
            }
            if room >= 3 {
                put(Phrase { len: room, ..*phrase })?;
                left = 0;
            }
            *phrase = Phrase { literals: 0, len: phrase.len - room, ..*phrase };
            if phrase.len < 3 {
                // Too short for a match.
                let rest = phrase.len;
                self.next += 1;
                if let Some(phrase) = self.all.get_mut(self.next) {
                    phrase.literals += rest;
                }
            }
            break;
        }
        put(nothing(left))
    }
}

/// What the library asks for the phrases of a block.
unsafe extern "C" fn next_block(
    phrases: *mut c_void,
    out: *mut sys::ZSTD_Sequence,
    capacity: usize,
    _: *const c_void,
    len: usize,
    _: *const c_void,
    _: usize,
    _: i32,
    _: usize,
) -> usize {
    /// What the library takes for a failure.
    const FAILED: usize = usize::MAX;
    // SAFETY: `write` gave it, and nobody else has it meanwhile.
    let phrases = unsafe { &mut *phrases.cast::<Phrases>() };
    let mut count = 0;
    let put = |Phrase { literals, len, distance }| {
        if count == capacity {
            return None;
        }
        let sequence =
            sys::ZSTD_Sequence { offset: distance, litLength: literals, matchLength: len, rep: 0 };
        // SAFETY: there is room for so many.
        unsafe { out.add(count).write(sequence) };
        count += 1;
        Some(())
    };
    match u32::try_from(len).ok().and_then(|len| phrases.block(len, put)) {
        Some(()) => count,
        None => FAILED,
    }
}

/// A compressor of one thread, of frames without their magic number.
pub(crate) struct Encoder {
    context: NonNull<sys::ZSTD_CCtx>,
    /// The dictionary that it is bound to.
    encoding: Option<Arc<Encoding>>,
}

// SAFETY: a context may move between threads; it is used by one at a time, as its methods
// take it exclusively.
unsafe impl Send for Encoder {}

impl Encoder {
    /// One of a level.
    pub fn new(level: i32) -> Result<Encoder> {
        // SAFETY: the functions that allocate and release belong to one another.
        let context = unsafe { sys::ZSTD_createCCtx_advanced(HUGE) };
        let context = NonNull::new(context).ok_or_else(no_memory)?;
        let mut encoder = Encoder { context, encoding: None };
        encoder.set(sys::ZSTD_cParameter::ZSTD_c_compressionLevel, level)?;
        // The format (1: magicless).
        encoder.set(sys::ZSTD_cParameter::ZSTD_c_experimentalParam2, 1)?;
        Ok(encoder)
    }

    /// One that finds matches `1 << log` bytes back.
    pub fn with_window(level: i32, log: u32) -> Result<Encoder> {
        let mut encoder = Encoder::new(level)?;
        encoder.set(sys::ZSTD_cParameter::ZSTD_c_windowLog, log as i32)?;
        Ok(encoder)
    }

    /// One for [`write`](Encoder::write), which finds no matches by itself, of so many bytes at most.
    pub fn of_phrases(len: usize) -> Result<Encoder> {
        let mut encoder = Encoder::with_window(19, bits(len).max(17))?;
        // Its own tables are not looked into.
        encoder.set(sys::ZSTD_cParameter::ZSTD_c_hashLog, 6)?;
        encoder.set(sys::ZSTD_cParameter::ZSTD_c_chainLog, 6)?;
        // Distances that come again are told from others.
        encoder.set(sys::ZSTD_cParameter::ZSTD_c_experimentalParam19, 1)?;
        Ok(encoder)
    }

    /// Writes `src` as these phrases and literals behind them; `None` when `dst` has no room, or they lead outside. That they
    /// are what `src` is made of is not looked at.
    pub fn write(&mut self, src: &[u8], phrases: Vec<Phrase>, dst: &mut [u8]) -> Option<usize> {
        // The library counts on this, and can check it only within each of its blocks.
        let mut at = 0;
        for phrase in &phrases {
            at += u64::from(phrase.literals);
            if phrase.len < 3 || phrase.distance == 0 || u64::from(phrase.distance) > at {
                return None;
            }
            at += u64::from(phrase.len);
        }
        if at > src.len() as u64 {
            return None;
        }
        let mut phrases = Phrases { all: phrases, next: 0 };
        let state = (&raw mut phrases).cast::<c_void>();
        let context = self.context.as_ptr();
        // SAFETY: the context is alive, and asks for phrases only until it is told otherwise, below.
        unsafe { sys::ZSTD_registerSequenceProducer(context, state, Some(next_block)) };
        let written = self.compress(src, dst);
        // SAFETY: as above.
        unsafe { sys::ZSTD_registerSequenceProducer(context, std::ptr::null_mut(), None) };
        written
    }

    /// One bound to a dictionary, of which its frames say nothing.
    pub fn bound(encoding: Arc<Encoding>) -> Result<Encoder> {
        let mut encoder = Encoder::new(0)?;
        // Always refers to the dictionary's tables (1), whatever the length.
        encoder.set(sys::ZSTD_cParameter::ZSTD_c_experimentalParam4, 1)?;
        encoder.set(sys::ZSTD_cParameter::ZSTD_c_dictIDFlag, 0)?;
        let prepared = encoding.prepared.as_ptr().cast_const();
        // SAFETY: the dictionary is kept beside the context and lives as long.
        check(unsafe { sys::ZSTD_CCtx_refCDict(encoder.context.as_ptr(), prepared) })?;
        encoder.encoding = Some(encoding);
        Ok(encoder)
    }

    fn set(&mut self, parameter: sys::ZSTD_cParameter, value: i32) -> Result<()> {
        // SAFETY: the context is alive; any parameter and value may be tried.
        check(unsafe { sys::ZSTD_CCtx_setParameter(self.context.as_ptr(), parameter, value) })
    }

    /// Whether it is bound to this one.
    pub fn is_of(&self, encoding: &Arc<Encoding>) -> bool {
        self.encoding.as_ref().is_some_and(|own| Arc::ptr_eq(own, encoding))
    }

    /// Compresses `src` into `dst`; `None` when it has no room.
    pub fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> Option<usize> {
        // SAFETY: both slices are alive and as long as they say.
        let code = unsafe {
            sys::ZSTD_compress2(
                self.context.as_ptr(),
                dst.as_mut_ptr().cast::<c_void>(),
                dst.len(),
                src.as_ptr().cast::<c_void>(),
                src.len(),
            )
        };
        check(code).is_ok().then_some(code)
    }
}

impl Drop for Encoder {
    fn drop(&mut self) {
        // SAFETY: it was made by the library and is not used any more.
        unsafe { sys::ZSTD_freeCCtx(self.context.as_ptr()) };
    }
}

/// A dictionary of up to `len` bytes for samples that are this long each, with the library's defaults (FastCover), if they have anything in common.
pub(crate) fn train(samples: &[u8], each: usize, len: usize) -> Option<Vec<u8>> {
    let (mut bytes, sizes) = (Vec::with_capacity(len), vec![each; samples.len() / each]);
    ::zstd::zstd_safe::train_from_buffer(&mut bytes, samples.get(..each * sizes.len())?, &sizes)
        .ok()?;
    Some(bytes)
}

/// A dictionary prepared for decoding; shared by threads. Takes 30 KiB beside it.
pub(crate) struct Decoding {
    prepared: NonNull<sys::ZSTD_DDict>,
}

// SAFETY: as for `Encoding`.
unsafe impl Send for Decoding {}
// SAFETY: as for `Encoding`.
unsafe impl Sync for Decoding {}

impl Decoding {
    /// The bytes must outlive it: a dictionary keeps both.
    ///
    /// # Safety
    /// `bytes` must stay where they are and as they are for as long as this is used.
    pub unsafe fn new(bytes: &[u8]) -> Option<Decoding> {
        // SAFETY: the caller keeps the bytes.
        let prepared = unsafe {
            sys::ZSTD_createDDict_advanced(
                bytes.as_ptr().cast::<c_void>(),
                bytes.len(),
                sys::ZSTD_dictLoadMethod_e::ZSTD_dlm_byRef,
                sys::ZSTD_dictContentType_e::ZSTD_dct_rawContent,
                PLAIN,
            )
        };
        NonNull::new(prepared).map(|prepared| Decoding { prepared })
    }
}

impl Decoding {
    /// Of a dictionary that was trained; `None` where it is none. Has its own copy.
    pub fn trained(bytes: &[u8]) -> Option<Decoding> {
        // SAFETY: the slice is as long as it says, and copied.
        let prepared = unsafe {
            sys::ZSTD_createDDict_advanced(
                bytes.as_ptr().cast::<c_void>(),
                bytes.len(),
                sys::ZSTD_dictLoadMethod_e::ZSTD_dlm_byCopy,
                sys::ZSTD_dictContentType_e::ZSTD_dct_fullDict,
                PLAIN,
            )
        };
        NonNull::new(prepared).map(|prepared| Decoding { prepared })
    }
}

impl Drop for Decoding {
    fn drop(&mut self) {
        // SAFETY: it was made by the library, and nobody refers to it any more.
        unsafe { sys::ZSTD_freeDDict(self.prepared.as_ptr()) };
    }
}

/// A decompressor of one thread.
pub(crate) struct Decoder {
    context: NonNull<sys::ZSTD_DCtx>,
}

// SAFETY: as for `Encoder`.
unsafe impl Send for Decoder {}

impl Decoder {
    pub fn new() -> Option<Decoder> {
        // SAFETY: no arguments.
        let context = NonNull::new(unsafe { sys::ZSTD_createDCtx() })?;
        let decoder = Decoder { context };
        // The format (1: magicless); and that all steps of a stream fill one buffer.
        let format = sys::ZSTD_dParameter::ZSTD_d_experimentalParam1;
        let is_stable = sys::ZSTD_dParameter::ZSTD_d_experimentalParam2;
        for parameter in [format, is_stable] {
            // SAFETY: the context is alive.
            let code =
                unsafe { sys::ZSTD_DCtx_setParameter(decoder.context.as_ptr(), parameter, 1) };
            check(code).ok()?;
        }
        Some(decoder)
    }

    /// Decompresses `src` into the front of `dst`.
    pub fn decompress(&mut self, decoding: &Decoding, src: &[u8], dst: &mut [u8]) -> Option<usize> {
        // SAFETY: the dictionary, which is alive through `decoding`, is referred to for this
        // frame and then let go; the slices are alive and as long as they say.
        let code = unsafe {
            sys::ZSTD_decompress_usingDDict(
                self.context.as_ptr(),
                dst.as_mut_ptr().cast::<c_void>(),
                dst.len(),
                src.as_ptr().cast::<c_void>(),
                src.len(),
                decoding.prepared.as_ptr().cast_const(),
            )
        };
        check(code).is_ok().then_some(code)
    }

    /// Fills the first `wanted` bytes of `room`, which has the length of the whole block. Stops
    /// behind the unit of 128 KiB in which they end.
    pub fn decompress_front(
        &mut self,
        decoding: &Decoding,
        src: &[u8],
        wanted: usize,
        room: &mut [u8],
    ) -> Option<()> {
        let context = self.context.as_ptr();
        let refer = |prepared| {
            // SAFETY: the context is alive. What went on before ends here; the dictionary, if it
            // is one and not null, is alive through `decoding` until this is called with null.
            unsafe {
                let only = sys::ZSTD_ResetDirective::ZSTD_reset_session_only;
                check(sys::ZSTD_DCtx_reset(context, only)).is_ok()
                    && check(sys::ZSTD_DCtx_refDDict(context, prepared)).is_ok()
            }
        };
        let is_ready = refer(decoding.prepared.as_ptr().cast_const());
        let mut dst = sys::ZSTD_outBuffer {
            dst: room.as_mut_ptr().cast::<c_void>(),
            size: room.len(),
            pos: 0,
        };
        // It says after each step how much it wants for the next: with more, it would go on.
        let (mut used, mut hint) = (0, usize::from(is_ready));
        while dst.pos < wanted && hint > 0 {
            let some = &src[used..src.len().min(used + hint)];
            let mut input = sys::ZSTD_inBuffer {
                src: some.as_ptr().cast::<c_void>(),
                size: some.len(),
                pos: 0,
            };
            let before = dst.pos;
            // SAFETY: both buffers are alive and as long as they say.
            hint = unsafe { sys::ZSTD_decompressStream(context, &mut dst, &mut input) };
            let is_stuck = input.pos == 0 && dst.pos == before;
            if is_stuck || check(hint).is_err() {
                break;
            }
            used += input.pos;
        }
        (refer(std::ptr::null()) && dst.pos >= wanted).then_some(())
    }
}

impl Drop for Decoder {
    fn drop(&mut self) {
        // SAFETY: it was made by the library and is not used any more.
        unsafe { sys::ZSTD_freeDCtx(self.context.as_ptr()) };
    }
}

fn check(code: usize) -> Result<()> {
    // SAFETY: takes and gives numbers.
    match unsafe { sys::ZSTD_isError(code) } {
        0 => Ok(()),
        _ => Err(Error::invalid("Zstandard refuses these parameters")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wherever blocks end, each is made of as many bytes as it has, by matches that are where they were.
    #[test]
    fn phrases_are_cut_where_blocks_end() {
        let phrase = |literals, len, distance| Phrase { literals, len, distance };
        let all = vec![phrase(3, 10, 1), phrase(0, 3, 7), phrase(2, 5, 4), phrase(9, 40, 2)];
        let mut known = Vec::new();
        for one in &all {
            known.extend(vec![0; one.literals as usize]);
            known.extend(vec![one.distance; one.len as usize]);
        }
        known.extend([0; 5]);
        for len in 1..=known.len() {
            let mut phrases = Phrases { all: all.clone(), next: 0 };
            let mut at = 0;
            for block in known.chunks(len) {
                let end = at + block.len();
                let put = |one: Phrase| {
                    at += one.literals as usize;
                    let copied = &known[at..at + one.len as usize];
                    assert!(copied.iter().all(|&distance| distance == one.distance), "{len}");
                    assert!(one.len == 0 || one.len >= 3, "{len}");
                    at += one.len as usize;
                    Some(())
                };
                phrases.block(block.len() as u32, put).unwrap();
                assert_eq!(at, end, "{len}");
            }
        }
    }
}
