//! What a file system says of a file beside its content: its holes and attributes.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::SeekFrom as Seek;

use crate::records::Extents;

/// Most pieces of data of a sparse file.
const MAX_PIECES: usize = 1 << 16;

/// Where a file has data, if it has holes and its file system tells.
pub(super) fn extents(file: &File, len: u64) -> std::io::Result<Option<Extents>> {
    let (mut data, mut at) = (Vec::new(), 0);
    while at < len {
        let start = match rustix::fs::seek(file, Seek::Data(at)) {
            Ok(start) => start.min(len),
            // No data behind: the rest is a hole.
            Err(rustix::io::Errno::NXIO) => break,
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let end = rustix::fs::seek(file, Seek::Hole(start))?.min(len);
        if start < end {
            data.push(start..end);
        }
        at = end.max(at + 1);
    }
    rustix::fs::seek(file, Seek::Start(0))?;
    join_small_holes(&mut data);
    let whole = matches!(data.as_slice(), [only] if *only == (0..len));
    Ok((!whole).then_some(Extents { len, data }))
}

/// Makes data of the smallest holes of a file that has very many: each piece takes
/// memory and a place in the index.
fn join_small_holes(data: &mut Vec<std::ops::Range<u64>>) {
    let mut smallest = 4096;
    while data.len() > MAX_PIECES {
        smallest *= 2;
        let mut joined: Vec<std::ops::Range<u64>> = Vec::new();
        for piece in data.drain(..) {
            match joined.last_mut().filter(|last| piece.start - last.end < smallest) {
                Some(last) => last.end = piece.end,
                None => joined.push(piece),
            }
        }
        *data = joined;
    }
}

/// The extended attributes of a file, sorted; none where there can be none.
pub(super) fn attributes(path: &Path, of_link: bool) -> std::io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut list = vec![0; 256];
    let names = loop {
        let result = match of_link {
            true => rustix::fs::llistxattr(path, list.as_mut_slice()),
            false => rustix::fs::listxattr(path, list.as_mut_slice()),
        };
        match result {
            Ok(len) => break list[..len].to_vec(),
            Err(rustix::io::Errno::RANGE) => list.resize(list.len() * 4, 0),
            Err(rustix::io::Errno::OPNOTSUPP) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        }
    };
    let mut attributes = Vec::new();
    for name in names.split(|&b| b == 0).filter(|name| !name.is_empty()) {
        let key = std::ffi::OsStr::from_bytes(name);
        let mut value = vec![0; 256];
        loop {
            let result = match of_link {
                true => rustix::fs::lgetxattr(path, key, value.as_mut_slice()),
                false => rustix::fs::getxattr(path, key, value.as_mut_slice()),
            };
            match result {
                Ok(len) => {
                    value.truncate(len);
                    attributes.push((name.to_vec(), value));
                    break;
                }
                Err(rustix::io::Errno::RANGE) => value.resize(value.len() * 4, 0),
                // It went away in between.
                Err(rustix::io::Errno::NODATA) => break,
                Err(error) => return Err(error.into()),
            }
        }
    }
    attributes.sort();
    Ok(attributes)
}
