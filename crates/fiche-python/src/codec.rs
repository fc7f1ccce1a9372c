//! `fiche.codec`: one piece of bytes compressed alone.

use std::cell::RefCell;

use fiche::codec::{Codec, Scratch};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::buffer::Buffer;
use crate::error::{Failed, Result};

thread_local! {
    /// What a thread works with, used again.
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

#[pyfunction(name = "codec_compress")]
#[pyo3(signature = (data, method = "zstd", level = None))]
pub fn compress<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyAny>,
    method: &str,
    level: Option<i32>,
) -> Result<Bound<'py, PyBytes>> {
    let codec: Codec = method.parse()?;
    let level = level.unwrap_or(codec.default_level());
    let data = Buffer::get(data)?;
    let bytes = data.as_bytes();
    let frame =
        py.detach(|| SCRATCH.with_borrow_mut(|scratch| codec.to_frame(level, bytes, scratch)))?;
    Ok(PyBytes::new(py, &frame))
}

#[pyfunction(name = "codec_decompress")]
#[pyo3(signature = (data, max_size = None))]
pub fn decompress<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyAny>,
    max_size: Option<u64>,
) -> Result<Bound<'py, PyBytes>> {
    let data = Buffer::get(data)?;
    let (frame, limit) = (data.as_bytes(), max_size.unwrap_or(u64::MAX));
    let bytes =
        py.detach(|| SCRATCH.with_borrow_mut(|scratch| Codec::from_frame(frame, limit, scratch)))?;
    Ok(PyBytes::new(py, &bytes))
}

#[pyfunction(name = "codec_size")]
pub fn size(data: &Bound<'_, PyAny>) -> Result<u64> {
    Ok(Codec::frame_len(Buffer::get(data)?.as_bytes())?)
}

/// The levels that a method has, and the usual one.
#[pyfunction(name = "codec_levels")]
pub fn levels(method: &str) -> Result<(i32, i32, i32)> {
    let codec: Codec = method.parse().map_err(Failed::from)?;
    let (first, last) = codec.levels().into_inner();
    Ok((first, last, codec.default_level()))
}
