//! Archives, and records in them.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::slice::from_raw_parts_mut;
use std::sync::Arc;

use fiche::archive::{OpenOptions, Reader};
use fiche::{Error, FileSource, InFolder, ReadAt};

use crate::status::{Failed, Status, given, given_mut, guard};

/// An archive that is open for reading. Any number of threads may use it at once.
pub struct Archive(Reader);

/// A record of an archive: a file, a line, a message. Any number of threads may use it at once; it stays when its archive is closed.
pub struct Record {
    record: fiche::archive::Record,
    /// With a zero behind it.
    name: Vec<u8>,
}

/// Bytes of the program's own that an archive is read from: memory, a device, an object of a store.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Source {
    /// What the functions are called with.
    pub context: *mut c_void,
    /// How many bytes there are.
    pub len: u64,
    /// Fills buf with the len bytes at offset, which are there, and returns 0; or a number of errno.h. Called from any thread, and from several at once.
    pub read_at: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            offset: u64,
            buf: *mut c_void,
            len: usize,
        ) -> c_int,
    >,
    /// Called once, when nobody reads any more; may be NULL.
    pub close: Option<unsafe extern "C" fn(context: *mut c_void)>,
}

/// One of many reads.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Read {
    /// The first byte of the archive's content that is wanted.
    pub offset: u64,
    /// Where bytes go.
    pub buf: *mut c_void,
    /// How many.
    pub len: usize,
    /// What came of it: written by fiche_archive_read_many.
    pub status: Status,
}

struct Own(Source);

// SAFETY: whoever gives a source promises that any thread may call it.
unsafe impl Send for Own {}
// SAFETY: the same.
unsafe impl Sync for Own {}

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(close) = self.0.close {
            // SAFETY: once, and nothing reads any more.
            unsafe { close(self.0.context) }
        }
    }
}

impl ReadAt for Own {
    fn len(&self) -> u64 {
        self.0.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> fiche::Result<()> {
        let len = self.0.len;
        let end = offset.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > len) {
            return Err(Error::OutOfBounds { range: offset..end.unwrap_or(u64::MAX), len });
        }
        if buf.is_empty() {
            return Ok(());
        }
        let Some(read_at) = self.0.read_at else {
            return Err(Error::Invalid { what: "a source without a function that reads".into() });
        };
        // SAFETY: the buffer has so many bytes, which the source has.
        match unsafe { read_at(self.0.context, offset, buf.as_mut_ptr().cast(), buf.len()) } {
            0 => Ok(()),
            code => Err(std::io::Error::from_raw_os_error(code).into()),
        }
    }
}

/// Text that ends with a zero.
///
/// # Safety
/// It is null, or does, and lives as long as is said.
unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a [u8], Failed> {
    if text.is_null() {
        return Err(Failed::invalid(format!("{what} is NULL")));
    }
    // SAFETY: as the caller promises.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// A buffer of C's as a slice; null where it is empty.
///
/// # Safety
/// It has so many bytes, and nobody else uses them.
unsafe fn buffer<'a>(buf: *mut c_void, len: usize) -> Result<&'a mut [u8], Failed> {
    if len == 0 {
        return Ok(&mut []);
    }
    if buf.is_null() || len > isize::MAX as usize {
        return Err(Failed::invalid("buf is NULL, or longer than memory"));
    }
    // SAFETY: as the caller promises.
    Ok(unsafe { from_raw_parts_mut(buf.cast(), len) })
}

/// Opens the archive in a file. Dictionaries that it names are looked for beside it. Reads a few kilobytes, and the rest when it is needed; keeps 64 MiB of blocks at most.
/// fiche_archive_close closes it. Fails with FICHE_STATUS_INVALID where it is no archive of fiche's, FICHE_STATUS_CORRUPT where it is damaged or cut.
///
/// # Safety
/// The path ends with a zero, and archive can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fiche_archive_open(
    path: *const c_char,
    archive: *mut *mut Archive,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (path, archive) = unsafe { (text(path, "path")?, given_mut(archive, "archive")?) };
        *archive = ptr::null_mut();
        let path = Path::new(OsStr::from_bytes(path));
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let beside = InFolder::new(folder.unwrap_or(Path::new(".")));
        let options = OpenOptions::default().resolve(Arc::new(beside));
        let reader = FileSource::open(path).and_then(|source| options.open(Arc::new(source)));
        let reader = reader.map_err(|error| Failed::from(error).at(path))?;
        *archive = Box::into_raw(Box::new(Archive(reader)));
        Ok(())
    })
}

/// Opens the archive in bytes of the program's own, of which a cache of so many bytes of blocks is kept at most; 0 keeps none. The structure is copied. Its function close is called when
/// archive and records are closed, or here where this fails.
///
/// # Safety
/// The source's functions can be called from any thread, with its context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fiche_archive_open_source(
    source: *const Source,
    cache: u64,
    archive: *mut *mut Archive,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let own = Own(*unsafe { given(source, "source") }?);
        // SAFETY: as the caller promises.
        let archive = unsafe { given_mut(archive, "archive") }?;
        *archive = ptr::null_mut();
        let reader = OpenOptions::default().cache(cache).open(Arc::new(own))?;
        *archive = Box::into_raw(Box::new(Archive(reader)));
        Ok(())
    })
}

/// Closes an archive; NULL is nothing to close. Records of it stay open.
///
/// # Safety
/// It comes from a function that opens one, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fiche_archive_close(archive: *mut Archive) {
    if !archive.is_null() {
        // SAFETY: as the caller promises.
        drop(unsafe { Box::from_raw(archive) });
    }
}

/// How many bytes all of an archive's content has; 0 of NULL.
///
/// # Safety
/// The archive is open, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fiche_archive_len(archive: *const Archive) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { archive.as_ref() }.map_or(0, |archive| archive.0.len())
}

/// How many records an archive has, numbered from 0; 0 of NULL.
///
/// # Safety
/// The archive is open, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fiche_archive_records(archive: *const Archive) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { archive.as_ref() }.map_or(0, |archive| archive.0.records())
}

/// Fills buf with len bytes of an archive's content from offset on: all or none. Decodes the blocks that have them, after their checksums were verified.
/// Fails with FICHE_STATUS_OUT_OF_BOUNDS where there are not so many.
///
/// # Safety
/// The archive is open, and buf has room for len bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fiche_archive_read(
    archive: *const Archive,
    offset: u64,
    buf: *mut c_void,
    len: usize,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (archive, buf) = unsafe { (given(archive, "archive")?, buffer(buf, len)?) };
        Ok(archive.0.read_at(offset, buf)?)
    })
}

/// Does many reads, ordered so that each block is decoded once, and writes to each its status. Fails with that of the first that failed;
/// with FICHE_STATUS_INVALID, before any is done and without a status for each, where a buffer is NULL that is to have bytes.
///
/// # Safety
/// The archive is open, there are count reads, and each buffer has room, which is its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fiche_archive_read_many(
    archive: *const Archive,
    reads: *mut Read,
    count: usize,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let archive = unsafe { given(archive, "archive") }?;
        if count == 0 {
            return Ok(());
        }
        if reads.is_null() || count > isize::MAX as usize / size_of::<Read>() {
            return Err(Failed::invalid("reads are NULL, or more than there can be"));
        }
        // Statuses may be anything before they are written: no reference is made to them.
        // SAFETY: as the caller promises.
        let fields = (0..count).map(|i| unsafe {
            let read = reads.add(i);
            ((*read).offset, buffer((*read).buf, (*read).len))
        });
        let buffers = fields.map(|(offset, buf)| buf.map(|buf| (offset, buf)));
        let mut buffers = buffers.collect::<Result<Vec<_>, Failed>>()?;
        let mut first = Ok(());
        for (i, done) in archive.0.read_many_at(&mut buffers).into_iter().enumerate() {
            let done = done.map_err(Failed::from);
            let status = done.as_ref().map_or_else(Failed::status, |()| Status::Ok);
            // SAFETY: as the caller promises.
            unsafe { (&raw mut (*reads.add(i)).status).write(status) };
            first = first.and(done);
        }
        first
    })
}

/// Finds the record of this name, by reading a few pages of the index. Names of records within files have the file's name before them, as fiche ls shows them.
/// Fails with FICHE_STATUS_NOT_FOUND, and fiche_message may know a name that is similar.
///
/// # Safety
/// The archive is open, the name ends with a zero, and number can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fiche_archive_find(
    archive: *const Archive,
    name: *const c_char,
    number: *mut u64,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (archive, name, number) = unsafe {
            (given(archive, "archive")?, text(name, "name")?, given_mut(number, "number")?)
        };
        *number = archive.0.entry_of(name)?.0;
        Ok(())
    })
}

/// Opens the record of a number. fiche_record_close closes it.
///
/// # Safety
/// The archive is open, and record can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fiche_record_open(
    archive: *const Archive,
    number: u64,
    record: *mut *mut Record,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (archive, record) =
            unsafe { (given(archive, "archive")?, given_mut(record, "record")?) };
        *record = ptr::null_mut();
        let found = archive.0.record_at(number)?;
        let mut name = found.entry().name.clone();
        name.push(0);
        *record = Box::into_raw(Box::new(Record { record: found, name }));
        Ok(())
    })
}

/// Closes a record; NULL is nothing to close.
///
/// # Safety
/// It comes from fiche_record_open, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fiche_record_close(record: *mut Record) {
    if !record.is_null() {
        // SAFETY: as the caller promises.
        drop(unsafe { Box::from_raw(record) });
    }
}

/// How many bytes a record has; 0 of NULL.
///
/// # Safety
/// The record is open, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fiche_record_len(record: *const Record) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { record.as_ref() }.map_or(0, |record| record.record.len())
}

/// The name of a record, with a zero behind it, which is valid until the record is closed; its bytes are any, and so many as is said in len, which may be NULL. NULL of NULL.
///
/// # Safety
/// The record is open, or NULL, and len NULL or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fiche_record_name(
    record: *const Record,
    len: *mut usize,
) -> *const c_char {
    // SAFETY: as the caller promises.
    let (record, len) = unsafe { (record.as_ref(), len.as_mut()) };
    let Some(record) = record else { return ptr::null() };
    if let Some(len) = len {
        *len = record.name.len() - 1;
    }
    record.name.as_ptr().cast()
}

/// Fills buf with len bytes of a record from offset on: all or none. Holes of sparse files are zeros.
/// Fails with FICHE_STATUS_OUT_OF_BOUNDS where there are not so many.
///
/// # Safety
/// The record is open, and buf has room for len bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fiche_record_read(
    record: *const Record,
    offset: u64,
    buf: *mut c_void,
    len: usize,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (record, buf) = unsafe { (given(record, "record")?, buffer(buf, len)?) };
        Ok(record.record.read_at(offset, buf)?)
    })
}
