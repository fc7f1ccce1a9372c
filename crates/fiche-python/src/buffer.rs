//! Python's buffers as slices: the one place that needs `unsafe`.
#![allow(unsafe_code)]

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;

/// The bytes of an object that has them in one piece: bytes, bytearray, memoryview, an array.
///
/// They are lent by Python, which keeps them where they are as long as this lives. That nobody
/// writes to them meanwhile is up to the caller, as for all that reads and writes buffers without the
/// interpreter's lock: `file.readinto`, `zlib.compress`, `hashlib`.
pub struct Buffer(PyUntypedBuffer);

impl Buffer {
    /// Asks for the bytes of an object. `BufferError` where they are not in one piece, `TypeError`
    /// where there are none.
    pub fn get(object: &Bound<'_, PyAny>) -> PyResult<Buffer> {
        let buffer = PyUntypedBuffer::get(object)?;
        match buffer.is_c_contiguous() {
            true => Ok(Buffer(buffer)),
            false => Err(PyBufferError::new_err("the buffer is not in one piece")),
        }
    }

    pub fn as_bytes(&self) -> &[u8] {
        let len = self.0.len_bytes();
        if len == 0 {
            return &[];
        }
        // SAFETY: Python says that so many bytes are there and in one piece, and keeps them until the
        // buffer is released, which is when `self` is dropped.
        unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast(), len) }
    }

    /// The same to write to; `TypeError` where that is not allowed.
    pub fn as_bytes_mut(&mut self) -> PyResult<&mut [u8]> {
        if self.0.readonly() {
            return Err(PyTypeError::new_err("the buffer is read-only"));
        }
        let len = self.0.len_bytes();
        if len == 0 {
            return Ok(&mut []);
        }
        // SAFETY: as above; and it may be written to.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.0.buf_ptr().cast(), len) })
    }
}
