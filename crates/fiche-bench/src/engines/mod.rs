//! The engines, each by the name that stands in the results.

mod bare;
pub mod faces;
mod fiche_archive;
mod gzip;
pub mod mounted;
mod plain;
pub mod process;
mod zstd_dictionary;
mod zstd_seekable;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use fiche::codec::Codec;

use crate::engine::{Engine, Result};

/// The engine of this name, such as `fiche zstd 19 16K`.
pub fn by_name(name: &str) -> Result<Box<dyn Engine>> {
    let words: Vec<&str> = name.split(' ').collect();
    let number = |text: &str| -> Result<i32> { Ok(text.parse()?) };
    Ok(match words.as_slice() {
        ["plain"] => Box::new(plain::Plain),
        ["bare", codec, level, block] => Box::new(bare::Bare {
            codec: codec.parse::<Codec>()?,
            level: number(level)?,
            block: size(block)?,
        }),
        ["fiche", method, level, block, rest @ ..] => Box::new(fiche_archive::Archive {
            method: match (method.strip_suffix("-first").unwrap_or(method).parse(), rest) {
                (Ok(coding), [dictionary, ..]) => fiche_archive::Method::Coding {
                    coding,
                    dictionary: match *dictionary {
                        "auto" => None,
                        len => Some(size(len)? as u64),
                    },
                    is_near: !method.ends_with("-first"),
                },
                _ => fiche_archive::Method::Codec(method.parse::<Codec>()?),
            },
            level: number(level)?,
            block: size(block)?,
            documents: rest.contains(&"documents"),
            align: rest.contains(&"aligned"),
        }),
        ["zstd-seekable", level, block] => {
            Box::new(zstd_seekable::Seekable { level: number(level)?, block: size(block)? })
        }
        ["zstd-dictionary", level, block, dictionary] => Box::new(zstd_dictionary::Dictionary {
            level: number(level)?,
            block: size(block)?,
            dictionary: match *dictionary {
                "cover" => None,
                len => Some(size(len)?),
            },
        }),
        [system @ ("squashfs" | "squashfuse" | "erofs"), method, block, rest @ ..] => {
            Box::new(mounted::Mounted {
                system: (*system).to_owned(),
                method: (*method).to_owned(),
                block: size(block)?,
                documents: rest.contains(&"documents"),
            })
        }
        ["fiche-mounted", rest @ ..] => {
            Box::new(faces::Mounted(by_name(&format!("fiche {}", rest.join(" ")))?))
        }
        ["fiche-python", rest @ .., call @ ("read_at" | "readinto_at")] => {
            Box::new(faces::Python {
                archive: by_name(&format!("fiche {}", rest.join(" ")))?,
                call: (*call).to_owned(),
            })
        }
        ["fiche-gzip", level, partition] => {
            Box::new(gzip::Gzip::Own { level: number(level)?, partition: size(partition)? })
        }
        ["fiche-index", spacing] => {
            Box::new(gzip::Gzip::Indexed { spacing: size(spacing)? as u64 })
        }
        ["fiche-zstd", level, block, rest @ ..] => Box::new(gzip::Gzip::Zstd {
            level: number(level)?,
            block: size(block)?,
            indexed: rest == ["indexed"],
        }),
        ["fiche-bgzf", rest @ ..] => Box::new(gzip::Gzip::Bgzf { indexed: rest == ["indexed"] }),
        ["bgzip"] => Box::new(process::Bgzip),
        [module @ ("indexed_gzip" | "rapidgzip" | "htslib")] => {
            Box::new(process::Python { module: (*module).to_owned() })
        }
        _ => return Err(format!("there is no engine {name:?}").into()),
    })
}

/// A size such as 16K or 1M.
pub fn size(text: &str) -> Result<usize> {
    let (digits, unit) = match text.strip_suffix(['K', 'M']) {
        Some(digits) if text.ends_with('K') => (digits, 1 << 10),
        Some(digits) => (digits, 1 << 20),
        None => (text, 1),
    };
    Ok(digits.parse::<usize>()? * unit)
}

/// Such a size as text.
pub fn show(size: usize) -> String {
    match size {
        _ if size.is_multiple_of(1 << 20) => format!("{}M", size >> 20),
        _ if size.is_multiple_of(1 << 10) => format!("{}K", size >> 10),
        _ => size.to_string(),
    }
}

/// Runs a command; an error says what it printed.
pub fn command(program: &str, args: &[&str]) -> Result<Vec<u8>> {
    let done = std::process::Command::new(program).args(args).output();
    let done = done.map_err(|error| format!("{program}: {error}"))?;
    match done.status.success() {
        true => Ok(done.stdout),
        false => {
            let text = String::from_utf8_lossy(&done.stderr);
            Err(format!("{program}: {}", text.trim().lines().last().unwrap_or("failed")).into())
        }
    }
}

/// Reads exactly at an offset of a file.
pub fn read_exact(file: &File, offset: u64, buf: &mut [u8]) -> Result<()> {
    Ok(file.read_exact_at(buf, offset)?)
}

/// Calls `each` with the corpus block by block.
pub fn blocks(
    corpus: &Path,
    block: usize,
    mut each: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let file = File::open(corpus)?;
    let len = file.metadata()?.len();
    let mut buf = vec![0; block];
    let mut offset = 0;
    while offset < len {
        let now = (len - offset).min(block as u64) as usize;
        read_exact(&file, offset, &mut buf[..now])?;
        each(&buf[..now])?;
        offset += now as u64;
    }
    Ok(())
}
