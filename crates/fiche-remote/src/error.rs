//! What can go wrong far away, in the words of the library.

use std::error::Error as _;
use std::io;

use fiche::{Error, Result};

/// What a request failed with, as an error that names the object; and what may be the reason, if the server was
/// reached and did not like us.
pub(crate) fn failed(url: &str, hint: &str, error: &object_store::Error) -> Error {
    use object_store::Error as Far;
    let io = |kind, what: &str| Error::Io(io::Error::new(kind, format!("{url}: {what}")));
    // Of an answer that breaks off, what was said when it was to go on.
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(inner) = cause {
        if let Some(Far::Precondition { .. }) = inner.downcast_ref::<Far>() {
            return Error::Changed { what: "the remote object" };
        }
        cause = inner.source();
    }
    match error {
        Far::NotFound { .. } => io(io::ErrorKind::NotFound, "there is no such object"),
        Far::PermissionDenied { .. } | Far::Unauthenticated { .. } => {
            let what = format!("the server does not let us read it{hint}");
            io(io::ErrorKind::PermissionDenied, &what)
        }
        Far::NotSupported { .. } => Error::Invalid {
            what: format!("{url}: the server does not give out parts of files; download it first")
                .into(),
        },
        other => io(io::ErrorKind::Other, &format!("{}{hint}", causes(other))),
    }
}

/// The last cause, which tells most; and what the one before adds to it.
fn causes(error: &object_store::Error) -> String {
    let mut chain = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(error) = cause {
        chain.push(error.to_string());
        cause = error.source();
    }
    let last = chain.pop().unwrap_or_default();
    let text = match chain.pop().filter(|before| !before.contains(&last)) {
        Some(before) => format!("{before}: {last}"),
        None => last,
    };
    // A server may send a page, or what should not be shown.
    text.chars().take_while(|c| !c.is_control()).take(200).collect()
}

pub(crate) fn invalid<T>(what: impl Into<String>) -> Result<T> {
    Err(Error::Invalid { what: what.into().into() })
}
