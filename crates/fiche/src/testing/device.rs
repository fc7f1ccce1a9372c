//! A device in memory that notes what is done to it, fails where it is told to, and can be looked at as it might be after a
//! crash at any moment.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use crate::random::Random;
use crate::volume::Device;

/// What was done to a device.
#[derive(Clone, Debug)]
pub enum Step {
    /// Bytes were written.
    Write(u64, Vec<u8>),
    /// It became as long as this.
    Grow(u64),
    /// A barrier returned.
    Sync,
}

/// Where a device fails: in the call of this number, counted from 0, and in all that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Writes fail.
    Write(u64),
    /// Reads fail.
    Read(u64),
    /// Barriers fail.
    Sync(u64),
    /// There is no room.
    Allocate(u64),
}

#[derive(Default)]
struct Inside {
    bytes: Vec<u8>,
    steps: Vec<Step>,
    fault: Option<Fault>,
    /// How long it can become.
    limit: Option<u64>,
    /// Calls to write, read, sync and allocate.
    calls: [u64; 4],
    bytes_read: u64,
}

/// The device; clones are the same one.
#[derive(Clone, Default)]
pub struct TracedDevice(Arc<Mutex<Inside>>);

impl TracedDevice {
    /// One that holds these bytes, all of them durable.
    #[must_use]
    pub fn holding(bytes: Vec<u8>) -> TracedDevice {
        TracedDevice(Arc::new(Mutex::new(Inside { bytes, ..Inside::default() })))
    }

    fn with<O>(&self, run: impl FnOnce(&mut Inside) -> O) -> O {
        run(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Lets it fail, or no more.
    pub fn set_fault(&self, fault: Option<Fault>) {
        self.with(|inside| inside.fault = fault);
    }

    /// Lets there be no room behind this length, or as much as one likes.
    pub fn set_limit(&self, len: Option<u64>) {
        self.with(|inside| inside.limit = len);
    }

    /// How many calls to write, read, sync and allocate there were.
    #[must_use]
    pub fn calls(&self) -> [u64; 4] {
        self.with(|inside| inside.calls)
    }

    /// How many bytes were read.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.with(|inside| inside.bytes_read)
    }

    /// What it holds now, as those see it who use it.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.with(|inside| inside.bytes.clone())
    }

    /// How many steps there were.
    #[must_use]
    pub fn len_of_trace(&self) -> usize {
        self.with(|inside| inside.steps.len())
    }

    /// What was done so far.
    #[must_use]
    pub fn trace(&self) -> Vec<Step> {
        self.with(|inside| inside.steps.clone())
    }

    /// Changes a byte behind the back of those who use it.
    pub fn flip(&self, pos: u64, mask: u8) {
        self.with(|inside| inside.bytes[pos as usize] ^= mask);
    }
}

impl Inside {
    fn call(&mut self, which: usize) -> io::Result<()> {
        let number = self.calls[which];
        self.calls[which] += 1;
        let failing = match self.fault {
            Some(Fault::Write(from)) => which == 0 && number >= from,
            Some(Fault::Read(from)) => which == 1 && number >= from,
            Some(Fault::Sync(from)) => which == 2 && number >= from,
            Some(Fault::Allocate(from)) => which == 3 && number >= from,
            None => false,
        };
        match (failing, which) {
            (false, _) => Ok(()),
            (true, 3) => Err(io::ErrorKind::StorageFull.into()),
            (true, _) => Err(io::Error::from_raw_os_error(5)),
        }
    }

    fn grow(&mut self, end: u64) {
        if self.bytes.len() < end as usize {
            self.bytes.resize(end as usize, 0);
            self.steps.push(Step::Grow(end));
        }
    }
}

impl Device for TracedDevice {
    fn len(&self) -> io::Result<u64> {
        self.with(|inside| Ok(inside.bytes.len() as u64))
    }

    fn read_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        self.with(|inside| {
            inside.call(1)?;
            inside.bytes_read += buf.len() as u64;
            let found = inside.bytes.get(pos as usize..).and_then(|rest| rest.get(..buf.len()));
            buf.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        })
    }

    fn write_at(&self, pos: u64, bytes: &[u8]) -> io::Result<()> {
        self.with(|inside| {
            inside.call(0)?;
            inside.grow(pos + bytes.len() as u64);
            inside.bytes[pos as usize..][..bytes.len()].copy_from_slice(bytes);
            inside.steps.push(Step::Write(pos, bytes.to_vec()));
            Ok(())
        })
    }

    fn allocate(&self, range: Range<u64>) -> io::Result<()> {
        self.with(|inside| {
            inside.call(3)?;
            if inside.limit.is_some_and(|limit| range.end > limit) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            inside.grow(range.end);
            Ok(())
        })
    }

    fn punch(&self, range: Range<u64>) -> io::Result<()> {
        self.with(|inside| {
            inside.call(0)?;
            // Like any other write it may be there after a crash, or in parts.
            let end = range.end.min(inside.bytes.len() as u64);
            let zeros = vec![0; end.saturating_sub(range.start) as usize];
            if !zeros.is_empty() {
                inside.bytes[range.start as usize..end as usize].fill(0);
                inside.steps.push(Step::Write(range.start, zeros));
            }
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.with(|inside| {
            inside.call(2)?;
            inside.steps.push(Step::Sync);
            Ok(())
        })
    }
}

/// What may be left of a device after a crash, step by step through a trace.
pub struct Crashes {
    durable: Vec<u8>,
    /// Since the last barrier.
    pending: Vec<(u64, Vec<u8>)>,
}

/// Bytes that are written as one.
const SECTOR: u64 = 512;

impl Crashes {
    /// Before the first step, with what was durable then.
    #[must_use]
    pub fn from(durable: Vec<u8>) -> Crashes {
        Crashes { durable, pending: Vec::new() }
    }

    /// Goes on by a step.
    pub fn step(&mut self, step: &Step) {
        match step {
            Step::Write(pos, bytes) => self.pending.push((*pos, bytes.clone())),
            Step::Grow(len) => self.durable.resize(self.durable.len().max(*len as usize), 0),
            Step::Sync => {
                for (pos, bytes) in self.pending.drain(..) {
                    self.durable[pos as usize..][..bytes.len()].copy_from_slice(&bytes);
                }
            }
        }
    }

    /// One of the ways in which the device may be found if the machine stopped here: of what no barrier followed each
    /// sector may be as after any of the writes to it, or as before them.
    #[must_use]
    pub fn one(&self, random: &mut Random) -> Vec<u8> {
        let mut found = self.durable.clone();
        let way = random.below(6);
        let count = self.pending.len() as u64;
        // Whole writes that are lost, or from one on.
        let some: Vec<bool> = self.pending.iter().map(|_| random.below(4) > 0).collect();
        let first = random.below(count + 1);
        // How many of the writes to a sector are there.
        let mut writes: HashMap<u64, u64> = HashMap::new();
        for (pos, bytes) in &self.pending {
            for sector in pos / SECTOR..=(pos + bytes.len() as u64 - 1) / SECTOR {
                *writes.entry(sector).or_default() += 1;
            }
        }
        let mut sectors: Vec<(u64, u64)> = writes.into_iter().collect();
        sectors.sort_unstable();
        let mut left: HashMap<u64, u64> =
            sectors.into_iter().map(|(sector, n)| (sector, random.below(n + 1))).collect();
        for (i, (pos, bytes)) in self.pending.iter().enumerate() {
            let end = pos + bytes.len() as u64;
            for sector in pos / SECTOR..=(end - 1) / SECTOR {
                let may = match way {
                    0 => false,
                    1 => true,
                    2 => some[i],
                    3 => (i as u64) < first,
                    // The one that was under way is torn.
                    4 => (i as u64) < first || (i as u64 == first && random.below(2) > 0),
                    _ => {
                        let left = left.get_mut(&sector).map_or(0, |left| {
                            let now = *left;
                            *left = left.saturating_sub(1);
                            now
                        });
                        left > 0
                    }
                };
                if may {
                    let range = (sector * SECTOR).max(*pos)..((sector + 1) * SECTOR).min(end);
                    let piece = &bytes[(range.start - pos) as usize..(range.end - pos) as usize];
                    found[range.start as usize..range.end as usize].copy_from_slice(piece);
                }
            }
        }
        found
    }
}
