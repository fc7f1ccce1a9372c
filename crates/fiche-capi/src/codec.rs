//! Codecs, on segments and pages.

use std::ffi::c_void;

use fiche::codec::Codec as Method;
use fiche::{Dst, Src};

use crate::pieces::{Iovec, Places, pages, segments, with_dst, with_src};
use crate::status::{Failed, Status, given_mut, guard};

/// The codecs. lz4, bewalgo32 and bewalgo64 read and write segments and pages where they lie; for the others bytes are copied into one piece, and out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Codec {
    /// No compression.
    Copy = 0,
    /// LZ4, its block format. Levels -64 to 12: up to 2 fast, below 0 ever faster, from 3 on small.
    Lz4 = 1,
    /// A raw deflate stream. Levels 1 to 12.
    Deflate = 2,
    /// Zstandard, without magic number and checksum. Levels -7 to 22.
    Zstd = 3,
    /// LZMA2. Levels 0 to 9.
    Lzma = 4,
    /// bzip2. Levels 1 to 9.
    Bzip2 = 5,
    /// BeWalgo with units of 4 bytes, for arrays of such. Levels -64 to 9: 1 is fast, below 0 ever faster.
    Bewalgo32 = 6,
    /// BeWalgo with units of 8 bytes. The same levels.
    Bewalgo64 = 7,
    /// LZO1X, for comparison. Level 1.
    Lzo = 8,
}

/// What codecs keep between calls, so that a call allocates little. One for each thread: never two calls at once.
pub struct Scratch(fiche::codec::Scratch);

/// A new scratch; fiche_scratch_free frees it.
#[unsafe(no_mangle)]
pub extern "C" fn fiche_scratch_new() -> *mut Scratch {
    Box::into_raw(Box::new(Scratch(fiche::codec::Scratch::default())))
}

/// Frees a scratch; NULL is nothing to free.
///
/// # Safety
/// It comes from fiche_scratch_new, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fiche_scratch_free(scratch: *mut Scratch) {
    if !scratch.is_null() {
        // SAFETY: as the caller promises.
        drop(unsafe { Box::from_raw(scratch) });
    }
}

/// The most bytes that so many may become, of lz4 and BeWalgo: with this room compressing does not fail with FICHE_STATUS_NO_ROOM. 0 of other codecs, of
/// which what does not shrink is better stored as it is; of what is no codec, and of more bytes than memory has.
#[unsafe(no_mangle)]
pub extern "C" fn fiche_bound(codec: u32, len: usize) -> usize {
    let codec = method(codec).ok().filter(|_| len <= isize::MAX as usize);
    codec.and_then(|codec| codec.bound(len)).unwrap_or(0)
}

fn method(codec: u32) -> Result<Method, Failed> {
    let codec_of = |number| Method::from_number(number).filter(|codec| codec.is_compiled_in());
    let found = u8::try_from(codec).ok().and_then(codec_of);
    found.ok_or_else(|| {
        Failed::from(fiche::Error::Unsupported { what: "codec", found: codec.into() })
    })
}

/// Calls a function with both sides: of a stream, and of what it stands for.
///
/// # Safety
/// As [`with_src`] and [`with_dst`]; the scratch is null or nobody else's.
unsafe fn with_both<T>(
    src: &Places,
    dst: &Places,
    scratch: *mut Scratch,
    act: impl FnOnce(Src<'_>, Dst<'_, '_>, &mut fiche::codec::Scratch) -> T,
) -> T {
    let mut own = fiche::codec::Scratch::default();
    // SAFETY: as the caller promises.
    let scratch = unsafe { scratch.as_mut() }.map_or(&mut own, |scratch| &mut scratch.0);
    // SAFETY: as the caller promises.
    unsafe { with_src(src, |src| with_dst(dst, |dst| act(src, dst, scratch))) }
}

/// Compresses, and says how much that gave.
///
/// # Safety
/// As [`with_both`]; `len` is null or can be written to.
unsafe fn compress(
    (codec, level): (Method, i32),
    (src, dst): (Places, Places),
    len: *mut usize,
    scratch: *mut Scratch,
) -> Result<(), Failed> {
    // SAFETY: as the caller promises.
    let len = unsafe { given_mut(len, "len") }?;
    let act =
        |src: Src<'_>, dst: Dst<'_, '_>, scratch: &mut _| codec.compress(level, src, dst, scratch);
    // SAFETY: as the caller promises.
    *len = unsafe { with_both(&src, &dst, scratch, act) }?.ok_or_else(Failed::no_room)?;
    Ok(())
}

/// Decodes, and says how much that gave.
///
/// # Safety
/// As [`compress`].
unsafe fn decompress(
    codec: Method,
    (src, dst): (Places, Places),
    len: *mut usize,
    scratch: *mut Scratch,
) -> Result<(), Failed> {
    // SAFETY: as the caller promises.
    let len = unsafe { given_mut(len, "len") }?;
    let act = |src: Src<'_>, dst: Dst<'_, '_>, scratch: &mut _| {
        codec.decompress_within(src, dst, scratch)
    };
    // SAFETY: as the caller promises.
    *len = unsafe { with_both(&src, &dst, scratch, act) }?;
    Ok(())
}

/// Compresses segments into the front of other segments, and says in len how many bytes that took. The same bytes come of the same content, codec, level and room, however they lie.
/// Segments may have any lengths; pages of 4 KiB on both sides are found to be such, and are read and written faster. A scratch may be NULL: then one is made for the call.
/// Fails with FICHE_STATUS_NO_ROOM where there is no room, FICHE_STATUS_INVALID for a level that there is not. What is in dst is then unspecified.
///
/// # Safety
/// Segments are there, those of dst overlap no other, and a scratch is in use by this call alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fiche_compress(
    codec: u32,
    level: i32,
    src: *const Iovec,
    src_count: usize,
    dst: *const Iovec,
    dst_count: usize,
    len: *mut usize,
    scratch: *mut Scratch,
) -> Status {
    guard(|| {
        let codec = method(codec)?;
        // SAFETY: as the caller promises.
        unsafe {
            let places = (segments(src, src_count)?, segments(dst, dst_count)?);
            compress((codec, level), places, len, scratch)
        }
    })
}

/// The same with pages of 2 to the power of shift bytes each: src_len bytes of content, in as many pages as that takes, and dst_len bytes of room.
///
/// # Safety
/// Pages are there, those of dst overlap no other, and a scratch is in use by this call alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fiche_compress_pages(
    codec: u32,
    level: i32,
    src: *const *const c_void,
    src_len: usize,
    dst: *const *mut c_void,
    dst_len: usize,
    shift: u32,
    len: *mut usize,
    scratch: *mut Scratch,
) -> Status {
    guard(|| {
        let codec = method(codec)?;
        // SAFETY: as the caller promises; what is read is not written to.
        unsafe {
            let places = (pages(src.cast(), src_len, shift)?, pages(dst, dst_len, shift)?);
            compress((codec, level), places, len, scratch)
        }
    })
}

/// Decodes segments into the front of other segments, and says in len how many bytes that gave. src may hold anything.
/// Fails with FICHE_STATUS_CORRUPT where src is damaged or stands for more than there is room for: of lz4 and BeWalgo fiche_message says what is wrong, and where. What is in dst is then unspecified.
///
/// # Safety
/// As fiche_compress.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fiche_decompress(
    codec: u32,
    src: *const Iovec,
    src_count: usize,
    dst: *const Iovec,
    dst_count: usize,
    len: *mut usize,
    scratch: *mut Scratch,
) -> Status {
    guard(|| {
        let codec = method(codec)?;
        // SAFETY: as the caller promises.
        unsafe {
            let places = (segments(src, src_count)?, segments(dst, dst_count)?);
            decompress(codec, places, len, scratch)
        }
    })
}

/// The same with pages of 2 to the power of shift bytes each.
///
/// # Safety
/// As fiche_compress_pages.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fiche_decompress_pages(
    codec: u32,
    src: *const *const c_void,
    src_len: usize,
    dst: *const *mut c_void,
    dst_len: usize,
    shift: u32,
    len: *mut usize,
    scratch: *mut Scratch,
) -> Status {
    guard(|| {
        let codec = method(codec)?;
        // SAFETY: as the caller promises; what is read is not written to.
        unsafe {
            let places = (pages(src.cast(), src_len, shift)?, pages(dst, dst_len, shift)?);
            decompress(codec, places, len, scratch)
        }
    })
}

/// Fills dst with the first bytes of what src stands for, block_len bytes, and stops there where the codec can.
/// Fails as fiche_decompress does, and with FICHE_STATUS_INVALID where dst has more than block_len bytes.
///
/// # Safety
/// As fiche_compress.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fiche_decompress_front(
    codec: u32,
    src: *const Iovec,
    src_count: usize,
    block_len: usize,
    dst: *const Iovec,
    dst_count: usize,
    scratch: *mut Scratch,
) -> Status {
    guard(|| {
        let codec = method(codec)?;
        // SAFETY: as the caller promises.
        unsafe {
            let (src, dst) = (segments(src, src_count)?, segments(dst, dst_count)?);
            with_both(&src, &dst, scratch, |src, dst, scratch| {
                codec.decompress_front(src, block_len, dst, scratch)
            })?;
            Ok(())
        }
    })
}

// The numbers are those of the library.
const _: () = assert!(Method::ALL.len() == 9 && Codec::Lzo as u8 == Method::Lzo as u8);
