//! What functions return, and what there is to say of a failure.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use fiche::Error;

/// What a function returns: what a caller does differently. fiche_message says more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum Status {
    /// All is well.
    Ok = 0,
    /// The operating system refused a read or a write.
    Io = 1,
    /// A read passes the end. Nothing is read.
    OutOfBounds = 2,
    /// There is no record of this name or number.
    NotFound = 3,
    /// The bytes are not what was written.
    Corrupt = 4,
    /// A file that this one names, such as a dictionary, could not be found.
    Missing = 5,
    /// The source is not the one that this was made for.
    Changed = 6,
    /// Written by a newer version, or for a codec that this build does not have.
    Unsupported = 7,
    /// Arguments contradict what is possible.
    Invalid = 8,
    /// More memory or space would be needed than is allowed.
    Limit = 9,
    /// Somebody else is writing to it.
    Busy = 10,
    /// An earlier write failed, so nothing more is written.
    Poisoned = 11,
    /// What comes of compressing has no room where it is to go. Of codecs without a bound this is how it is told that bytes do not shrink.
    NoRoom = 12,
    /// A defect of fiche: please report it with what fiche_message says.
    Defect = 13,
}

/// Why a function failed.
#[derive(Debug)]
pub(crate) struct Failed {
    status: Status,
    message: String,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        let status = match error {
            Error::Io(_) => Status::Io,
            Error::OutOfBounds { .. } => Status::OutOfBounds,
            Error::NotFound { .. } => Status::NotFound,
            Error::Corrupt { .. } => Status::Corrupt,
            Error::Missing { .. } => Status::Missing,
            Error::Changed { .. } => Status::Changed,
            Error::Unsupported { .. } => Status::Unsupported,
            Error::Invalid { .. } => Status::Invalid,
            Error::Limit { .. } => Status::Limit,
            Error::Busy { .. } => Status::Busy,
            Error::Poisoned => Status::Poisoned,
            _ => Status::Defect,
        };
        Failed { status, message: error.to_string() }
    }
}

impl Failed {
    pub fn invalid(message: impl Into<String>) -> Failed {
        Failed { status: Status::Invalid, message: message.into() }
    }

    /// The same, with the file that it is about.
    pub fn at(self, path: &Path) -> Failed {
        Failed { message: format!("{}: {}", path.display(), self.message), ..self }
    }

    pub fn status(&self) -> Status {
        self.status
    }

    pub fn no_room() -> Failed {
        Failed {
            status: Status::NoRoom,
            message: "what comes of it has no room where it is to go".into(),
        }
    }

    fn panicked(panic: &(dyn Any + Send)) -> Failed {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Failed { status: Status::Defect, message: text.unwrap_or_else(|| "a panic".to_owned()) }
    }
}

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::new(CString::default());
}

/// Does what a function is for, and keeps what there is to say where that fails.
pub(crate) fn guard(act: impl FnOnce() -> Result<(), Failed>) -> Status {
    let done = catch_unwind(AssertUnwindSafe(act));
    match done.unwrap_or_else(|panic| Err(Failed::panicked(&*panic))) {
        Ok(()) => Status::Ok,
        Err(Failed { status, message }) => {
            let message = CString::new(message.replace('\0', "\u{fffd}")).unwrap_or_default();
            // A thread that ends has none to ask for it.
            let _ = MESSAGE.try_with(|kept| *kept.borrow_mut() = message);
            status
        }
    }
}

/// What an argument points at.
///
/// # Safety
/// It is null, or what it points at lives as long as is said.
pub(crate) unsafe fn given<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, Failed> {
    // SAFETY: as the caller promises.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failed::invalid(format!("{what} is NULL")))
}

/// The same, of what is written.
///
/// # Safety
/// The same, and nobody else has it.
pub(crate) unsafe fn given_mut<'a, T>(pointer: *mut T, what: &str) -> Result<&'a mut T, Failed> {
    // SAFETY: as the caller promises.
    unsafe { pointer.as_mut() }.ok_or_else(|| Failed::invalid(format!("{what} is NULL")))
}

/// What there is to say of the last call of this thread that failed: text in UTF-8, which is valid until this thread's next call. Empty where none has failed.
#[unsafe(no_mangle)]
pub extern "C" fn fiche_message() -> *const c_char {
    MESSAGE.try_with(|message| message.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// The version of this library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn fiche_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
