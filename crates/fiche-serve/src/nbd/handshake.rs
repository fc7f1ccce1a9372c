//! How a client and the server come to terms: which export, and what both know.

use std::io::{self, Write};

use super::stream::{Input, Stream};
use super::{Device, Exports};

/// An option of the handshake that is longer is refused.
const MOST_OPTION: u32 = 64 << 10;

const OPTION_MAGIC: u64 = 0x4948_4156_454F_5054;
const OPTION_REPLY_MAGIC: u64 = 0x0003_E889_0455_65A9;

/// Options of the handshake, and what is replied.
mod option {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;

    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const REP_INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    pub const ERR_UNSUPPORTED: u32 = 1 << 31 | 1;
    pub const ERR_INVALID: u32 = 1 << 31 | 3;
    pub const ERR_TLS_REQUIRED: u32 = 1 << 31 | 5;
    pub const ERR_UNKNOWN: u32 = 1 << 31 | 6;
    pub const ERR_TOO_BIG: u32 = 1 << 31 | 9;

    pub const INFO_EXPORT: u16 = 0;
    pub const INFO_BLOCK_SIZE: u16 = 3;
}

const ALLOCATION: &str = "base:allocation";
pub(super) const ALLOCATION_ID: u32 = 1;

/// The content of an option, from front to back.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }
    fn u16(&mut self) -> Option<u16> {
        self.bytes(2)?.try_into().ok().map(u16::from_be_bytes)
    }
    fn u32(&mut self) -> Option<u32> {
        self.bytes(4)?.try_into().ok().map(u32::from_be_bytes)
    }
    fn string(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()?;
        self.bytes(len as usize)
    }
}

/// What was agreed on.
pub(super) struct Agreed {
    pub device: Device,
    pub is_structured: bool,
    pub tells_allocation: bool,
}

fn reply_option(out: &mut Stream, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
    let mut reply = Vec::with_capacity(20 + data.len());
    reply.extend(OPTION_REPLY_MAGIC.to_be_bytes());
    reply.extend(option.to_be_bytes());
    reply.extend(kind.to_be_bytes());
    reply.extend((data.len() as u32).to_be_bytes());
    reply.extend(data);
    out.write_all(&reply)
}

/// Comes to terms with a client; `None` when it does not want anything.
pub(super) fn agree(
    input: &mut Input,
    out: &mut Stream,
    exports: &Exports,
) -> io::Result<Option<Agreed>> {
    const FIXED: u32 = 1;
    const NO_ZEROES: u32 = 2;
    let mut greeting = b"NBDMAGICIHAVEOPT".to_vec();
    greeting.extend(((FIXED | NO_ZEROES) as u16).to_be_bytes());
    out.write_all(&greeting)?;
    let flags = input.u32()?;
    if flags & !(FIXED | NO_ZEROES) != 0 {
        return Ok(None);
    }
    let (mut is_structured, mut context) = (false, None::<Vec<u8>>);
    loop {
        if input.u64()? != OPTION_MAGIC {
            return Ok(None);
        }
        let (number, len) = (input.u32()?, input.u32()?);
        if len > MOST_OPTION {
            if number == option::EXPORT_NAME {
                return Ok(None);
            }
            input.skip(len)?;
            reply_option(out, number, option::ERR_TOO_BIG, b"")?;
            continue;
        }
        let data = input.bytes(len)?;
        let is_secret = out.is_secret();
        // With it nothing else may be said before it is encrypted.
        let tls = exports.tls.as_ref().filter(|_| !is_secret);
        let mut reply = |kind: u32, data: &[u8]| reply_option(out, number, kind, data);
        match number {
            option::STARTTLS if is_secret || (tls.is_some() && !data.is_empty()) => {
                reply(option::ERR_INVALID, b"it is encrypted, or what follows means nothing")?;
            }
            option::STARTTLS if tls.is_some() => {
                // What came together with it came in the clear, perhaps of somebody else, and would be taken for secret.
                let Some(tls) = tls.filter(|_| input.from.buffer().is_empty()) else {
                    return Ok(None);
                };
                reply(option::ACK, b"")?;
                out.encrypt(tls)?;
                *input = Input::new(out.share());
                (is_structured, context) = (false, None);
            }
            option::EXPORT_NAME if tls.is_some() => return Ok(None),
            option::EXPORT_NAME => {
                let Some(device) = exports.find(&data) else { return Ok(None) };
                let mut answer = device.source().len().to_be_bytes().to_vec();
                answer.extend(device.flags().to_be_bytes());
                if flags & NO_ZEROES == 0 {
                    answer.extend([0; 124]);
                }
                out.write_all(&answer)?;
                let tells_allocation = context.is_some_and(|name| name == data);
                return Ok(Some(Agreed { device, is_structured, tells_allocation }));
            }
            option::ABORT => {
                reply(option::ACK, b"")?;
                return Ok(None);
            }
            _ if tls.is_some() => {
                reply(option::ERR_TLS_REQUIRED, b"only to who asks for TLS first")?
            }
            option::LIST if data.is_empty() => {
                for name in exports.names() {
                    let mut entry = (name.len() as u32).to_be_bytes().to_vec();
                    entry.extend(name.as_bytes());
                    reply(option::SERVER, &entry)?;
                }
                reply(option::ACK, b"")?;
            }
            option::INFO | option::GO => {
                let mut fields = Fields(&data);
                let name = fields.string();
                let count = fields.u16();
                let is_whole = count.is_some_and(|count| fields.0.len() == 2 * usize::from(count));
                let Some(name) = name.filter(|_| is_whole) else {
                    reply(option::ERR_INVALID, b"")?;
                    continue;
                };
                let Some(device) = exports.find(name) else {
                    reply(option::ERR_UNKNOWN, b"there is no export of this name")?;
                    continue;
                };
                let mut info = option::INFO_EXPORT.to_be_bytes().to_vec();
                info.extend(device.source().len().to_be_bytes());
                info.extend(device.flags().to_be_bytes());
                reply(option::REP_INFO, &info)?;
                // Told to who does not ask, too: it may be left out of account.
                let mut info = option::INFO_BLOCK_SIZE.to_be_bytes().to_vec();
                device.block_sizes().iter().for_each(|size| info.extend(size.to_be_bytes()));
                reply(option::REP_INFO, &info)?;
                reply(option::ACK, b"")?;
                if number == option::GO {
                    let tells_allocation = context.is_some_and(|context| context == name);
                    return Ok(Some(Agreed { device, is_structured, tells_allocation }));
                }
            }
            option::STRUCTURED_REPLY if data.is_empty() => {
                is_structured = true;
                reply(option::ACK, b"")?;
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                let is_set = number == option::SET_META_CONTEXT;
                let Some((name, queries)) = queries(&data) else {
                    reply(option::ERR_INVALID, b"")?;
                    continue;
                };
                if is_set && !is_structured {
                    reply(option::ERR_INVALID, b"structured replies come first")?;
                    continue;
                }
                if exports.find(name).is_none() {
                    reply(option::ERR_UNKNOWN, b"there is no export of this name")?;
                    continue;
                }
                let all = |query: &&[u8]| **query == *b"base:" || **query == *ALLOCATION.as_bytes();
                let wanted = match is_set {
                    true => queries.contains(&ALLOCATION.as_bytes()),
                    false => queries.is_empty() || queries.iter().any(all),
                };
                if is_set {
                    context = wanted.then(|| name.to_vec());
                }
                if wanted {
                    let id = if is_set { ALLOCATION_ID } else { 0 };
                    let mut answer = id.to_be_bytes().to_vec();
                    answer.extend(ALLOCATION.as_bytes());
                    reply(option::META_CONTEXT, &answer)?;
                }
                reply(option::ACK, b"")?;
            }
            option::LIST | option::STRUCTURED_REPLY => reply(option::ERR_INVALID, b"")?,
            _ => reply(option::ERR_UNSUPPORTED, b"")?,
        }
    }
}

/// The name of an export, and what is asked of its contexts.
fn queries(data: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let mut fields = Fields(data);
    let name = fields.string()?;
    let count = fields.u32()?;
    let mut queries = Vec::new();
    for _ in 0..count {
        queries.push(fields.string()?);
    }
    fields.0.is_empty().then_some((name, queries))
}
