//! Filters, on segments.

use fiche::codec::filter::Filter as Kind;
use fiche::{Dst, Src};

use crate::pieces::{Iovec, Places, segments, with_dst, with_src};
use crate::status::{Failed, Status, guard};

/// The filters: what is alike in numbers of some bytes each is put side by side, for a codec to see. They take no byte more or less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Filter {
    /// The first bytes of all numbers, then their second ones, and so on. Of 1 to 63 bytes.
    Shuffle = 0,
    /// The same with bits, the lowest of the first bytes first. Of 1 to 63 bytes.
    Bitshuffle = 1,
    /// What each number is more than the one before, the lowest byte first. Of 1, 2, 4 or 8 bytes.
    Delta = 2,
}

fn kind(filter: u32, width: u32) -> Result<Kind, Failed> {
    let width = u8::try_from(width).unwrap_or(0);
    let kind = match filter {
        0 => Kind::Shuffle(width),
        1 => Kind::Bitshuffle(width),
        2 => Kind::Delta(width),
        _ => {
            let found = filter.into();
            return Err(fiche::Error::Unsupported { what: "filter", found }.into());
        }
    };
    kind.check()?;
    Ok(kind)
}

/// Calls a function with both sides, which have as many bytes.
///
/// # Safety
/// As [`segments`], [`with_src`] and [`with_dst`].
unsafe fn with_both(
    src: (*const Iovec, usize),
    dst: (*const Iovec, usize),
    act: impl FnOnce(Src<'_>, Dst<'_, '_>),
) -> Result<(), Failed> {
    // SAFETY: as the caller promises.
    let (src, dst) = unsafe { (segments(src.0, src.1)?, segments(dst.0, dst.1)?) };
    let len = |places: &Places| places.iter().map(|(_, len)| len).sum::<usize>();
    if len(&src) != len(&dst) {
        let what = format!("{} bytes are filtered into as many, not {}", len(&src), len(&dst));
        return Err(Failed::invalid(what));
    }
    // SAFETY: as the caller promises.
    unsafe { with_src(&src, |src| with_dst(&dst, |dst| act(src, dst))) };
    Ok(())
}

/// Filters segments into others that have as many bytes, however these and those are cut: fiche_compress then finds more in them.
/// Numbers have width bytes each; bytes behind the last whole one stay as they are. Fails with FICHE_STATUS_INVALID for another width than the filter has, or another length.
///
/// # Safety
/// Segments are there, and those of dst overlap no other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fiche_filter_apply(
    filter: u32,
    width: u32,
    src: *const Iovec,
    src_count: usize,
    dst: *const Iovec,
    dst_count: usize,
) -> Status {
    guard(|| {
        let kind = kind(filter, width)?;
        // SAFETY: as the caller promises.
        unsafe { with_both((src, src_count), (dst, dst_count), |src, dst| kind.apply(src, dst)) }
    })
}

/// The way back: what was filtered so.
///
/// # Safety
/// As fiche_filter_apply.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fiche_filter_undo(
    filter: u32,
    width: u32,
    src: *const Iovec,
    src_count: usize,
    dst: *const Iovec,
    dst_count: usize,
) -> Status {
    guard(|| {
        let kind = kind(filter, width)?;
        // SAFETY: as the caller promises.
        unsafe { with_both((src, src_count), (dst, dst_count), |src, dst| kind.undo(src, dst)) }
    })
}
