//! Bytes as programs in C hand them around: lists of `struct iovec`, and arrays of pointers to pages.

use std::ffi::c_void;
use std::slice::{from_raw_parts, from_raw_parts_mut};

use fiche::{Dst, Segments, SegmentsMut, Src};

use crate::status::Failed;

/// `struct iovec`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Iovec {
    /// Where it begins.
    pub iov_base: *mut c_void,
    /// How many bytes it has.
    pub iov_len: usize,
}

/// The elements of an array, which may be null where there are none.
///
/// # Safety
/// There are so many, and they live as long as is said.
unsafe fn elements<'a, T>(array: *const T, count: usize, what: &str) -> Result<&'a [T], Failed> {
    if count == 0 {
        return Ok(&[]);
    }
    if array.is_null() || count > isize::MAX as usize / size_of::<T>() {
        return Err(Failed::invalid(format!("{what} are NULL, or more than there can be")));
    }
    // SAFETY: as the caller promises.
    Ok(unsafe { from_raw_parts(array, count) })
}

/// Where pieces are, and how long: those without bytes are left out.
pub(crate) type Places = Vec<(*mut u8, usize)>;

/// Pieces of a list of segments.
///
/// # Safety
/// There are so many segments.
pub(crate) unsafe fn segments(list: *const Iovec, count: usize) -> Result<Places, Failed> {
    // SAFETY: as the caller promises.
    let list = unsafe { elements(list, count, "segments") }?;
    let list = list.iter().filter(|segment| segment.iov_len > 0);
    checked(list.map(|segment| (segment.iov_base.cast(), segment.iov_len)).collect())
}

/// Pieces of an array of pages.
///
/// # Safety
/// There are as many pages as so many bytes take.
pub(crate) unsafe fn pages(
    pages: *const *mut c_void,
    len: usize,
    shift: u32,
) -> Result<Places, Failed> {
    if shift > 30 {
        return Err(Failed::invalid("pages have 2 to the power of 30 bytes at most"));
    }
    let size = 1usize << shift;
    // SAFETY: as the caller promises.
    let list = unsafe { elements(pages, len.div_ceil(size), "pages") }?;
    let place = |(i, page): (usize, &*mut c_void)| (page.cast(), (len - (i << shift)).min(size));
    checked(list.iter().enumerate().map(place).collect())
}

/// Pieces that slices may be made of: not null, and not longer together than memory is.
fn checked(places: Places) -> Result<Places, Failed> {
    if places.iter().any(|(at, _)| at.is_null()) {
        return Err(Failed::invalid("a segment or page is NULL"));
    }
    let len = places.iter().try_fold(0usize, |sum, (_, len)| sum.checked_add(*len));
    match len.is_some_and(|len| len <= isize::MAX as usize) {
        true => Ok(places),
        false => Err(Failed::invalid("segments have more bytes than there can be")),
    }
}

/// Calls a function with bytes to read, in the fastest layout that they have: one piece, pages of one length, or segments.
///
/// # Safety
/// The pieces are there, and nobody writes to them.
pub(crate) unsafe fn with_src<R>(places: &[(*mut u8, usize)], act: impl FnOnce(Src<'_>) -> R) -> R {
    // SAFETY: as the caller promises.
    let slices = places.iter().map(|&(at, len)| unsafe { from_raw_parts(at.cast_const(), len) });
    let slices: Vec<&[u8]> = slices.collect();
    match (slices.as_slice(), Src::pages(&slices)) {
        ([one], _) => act((*one).into()),
        (_, Ok(pages)) => act(pages),
        _ => act((&Segments::new(slices.iter().copied())).into()),
    }
}

/// Calls a function with room to write to, in the fastest layout that it has.
///
/// # Safety
/// The pieces are there, none overlaps another, and nobody else reads or writes them.
pub(crate) unsafe fn with_dst<R>(
    places: &[(*mut u8, usize)],
    act: impl FnOnce(Dst<'_, '_>) -> R,
) -> R {
    // SAFETY: as the caller promises.
    let slices = places.iter().map(|&(at, len)| unsafe { from_raw_parts_mut(at, len) });
    let mut slices: Vec<&mut [u8]> = slices.collect();
    if let [one] = slices.as_mut_slice() {
        return act((&mut **one).into());
    }
    if Dst::pages(&mut slices).is_err() {
        return act((&mut SegmentsMut::new(slices)).into());
    }
    match Dst::pages(&mut slices) {
        Ok(pages) => act(pages),
        Err(_) => unreachable!("they were pages"),
    }
}
