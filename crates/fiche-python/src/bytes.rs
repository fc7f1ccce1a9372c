//! Reading from anything that is a `ReadAt`, as Python asks for it.

use fiche::ReadAt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PySlice};

use crate::buffer::Buffer;
use crate::error::{Failed, Result};

/// Fails before anything is allocated for what is not there.
fn check(source: &dyn ReadAt, offset: i64, size: usize) -> Result<u64> {
    let offset = u64::try_from(offset).map_err(|_| Failed::value("negative offset"))?;
    match offset.checked_add(size as u64) {
        Some(end) if end <= source.len() => Ok(offset),
        _ => {
            let (end, len) = (u128::from(offset) + size as u128, source.len());
            Err(Failed::index(format!("bytes {offset} to {end} of {len}")))
        }
    }
}

fn size_of(size: i64) -> Result<usize> {
    usize::try_from(size).map_err(|_| Failed::value("negative size"))
}

pub fn read_at<'py>(
    py: Python<'py>,
    source: &dyn ReadAt,
    offset: i64,
    size: i64,
) -> Result<Bound<'py, PyBytes>> {
    let size = size_of(size)?;
    let offset = check(source, offset, size)?;
    Ok(PyBytes::new_with(py, size, |buf| {
        py.detach(|| source.read_at(offset, buf)).map_err(|error| Failed::from(error).into())
    })?)
}

pub fn readinto_at(
    py: Python<'_>,
    source: &dyn ReadAt,
    offset: i64,
    buffer: &Bound<'_, PyAny>,
) -> Result<usize> {
    let mut buffer = Buffer::get(buffer)?;
    let buf = buffer.as_bytes_mut()?;
    let offset = check(source, offset, buf.len())?;
    py.detach(|| source.read_at(offset, buf))?;
    Ok(buf.len())
}

pub fn read_many<'py>(
    py: Python<'py>,
    source: &dyn ReadAt,
    reads: Vec<(i64, i64)>,
) -> Result<Bound<'py, PyList>> {
    let mut places = Vec::with_capacity(reads.len());
    let mut sum = 0usize;
    for (offset, size) in reads {
        let size = size_of(size)?;
        places.push((check(source, offset, size)?, size));
        sum = sum.checked_add(size).ok_or_else(|| Failed::value("too much at once"))?;
    }
    let mut all: Vec<u8> = Vec::new();
    let no_memory = |_| pyo3::exceptions::PyMemoryError::new_err(format!("{sum} bytes at once"));
    all.try_reserve_exact(sum).map_err(no_memory)?;
    let results = py.detach(|| {
        all.resize(sum, 0);
        let mut rest = all.as_mut_slice();
        let mut reads: Vec<(u64, &mut [u8])> = Vec::with_capacity(places.len());
        for &(offset, size) in &places {
            let (now, later) = std::mem::take(&mut rest).split_at_mut(size);
            rest = later;
            reads.push((offset, now));
        }
        source.read_many_at(&mut reads)
    });
    results.into_iter().collect::<fiche::Result<()>>()?;
    let list = PyList::empty(py);
    let mut rest = all.as_slice();
    for (_, size) in places {
        let (now, later) = rest.split_at(size);
        rest = later;
        list.append(PyBytes::new(py, now))?;
    }
    Ok(list)
}

/// `source[key]`: a byte, or the bytes of a slice.
pub fn get<'py>(
    py: Python<'py>,
    source: &dyn ReadAt,
    key: &Bound<'py, PyAny>,
) -> Result<Bound<'py, PyAny>> {
    let len = source.len() as i64;
    let Ok(slice) = key.cast::<PySlice>() else {
        let at: i64 = key.extract()?;
        let at = if at < 0 { at + len } else { at };
        if !(0..len).contains(&at) {
            return Err(Failed::index("index out of range"));
        }
        let byte = read_at(py, source, at, 1)?.as_bytes()[0];
        return Ok(byte.into_pyobject(py).map_err(PyErr::from)?.into_any());
    };
    let slice = slice.indices(len as isize)?;
    let (start, step, count) = (slice.start as i64, slice.step as i64, slice.slicelength as i64);
    if count == 0 {
        return Ok(PyBytes::new(py, b"").into_any());
    }
    if step == 1 {
        return Ok(read_at(py, source, start, count)?.into_any());
    }
    let last = start + (count - 1) * step;
    let (first, end) = (start.min(last), start.max(last) + 1);
    let all = read_at(py, source, first, end - first)?;
    let all = all.as_bytes();
    Ok(PyBytes::new_with(py, count as usize, |buf| {
        for (i, byte) in buf.iter_mut().enumerate() {
            *byte = all[(start + i as i64 * step - first) as usize];
        }
        Ok(())
    })?
    .into_any())
}
