//! Reads everything, and holds it against what it should be.

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::volume::format::{ALIGN, BLOCK, FAN, FAN_BITS};
use crate::volume::log::Log;
use crate::volume::read::read_unit;
use crate::volume::{Volume, Work, locked};

/// What [`Volume::check`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Blocks that are not zero because nothing was written.
    pub blocks: u64,
    /// Units and patterns that hold them.
    pub units: u64,
    /// Bytes in which these are stored, heads included.
    pub stored_len: u64,
    /// Blocks that cannot be read: their number, and where their unit lies. At most a thousand are listed.
    pub damaged: Vec<(u64, u64)>,
    /// Positions of nodes of the map that cannot be read.
    pub damaged_nodes: Vec<u64>,
    /// Segments of which something else is used than the usage pages say.
    pub miscounted: u64,
}

impl Checked {
    /// True where nothing is wrong.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.damaged.is_empty() && self.has_whole_map()
    }

    /// True where the map and the usage are right, whatever the units are.
    #[must_use]
    pub fn has_whole_map(&self) -> bool {
        self.damaged_nodes.is_empty() && self.miscounted == 0
    }
}

impl Volume {
    /// Reads the whole map and each unit, verifies all checksums, decodes all units, and counts what is used of each segment again.
    /// Writes wait until it is done.
    ///
    /// # Errors
    /// [`Error::Io`]; damage is no error but what it returns.
    pub fn check(&self) -> Result<Checked> {
        const MOST: usize = 1000;
        let mut log = locked(&self.log);
        let mut checked = Checked::default();
        let mut used: HashMap<u32, u32> = HashMap::new();
        let mut leaves = Vec::new();
        self.walk(&mut log, &mut checked, &mut used, &mut leaves)?;
        let mut work = Work::default();
        let mut buf = vec![0; FAN * BLOCK];
        for leaf in leaves {
            let first = leaf << FAN_BITS;
            let count = (self.blocks() - first).min(FAN as u64);
            let load = self.load();
            let entries: Vec<u64> = (first..first + count)
                .map(|block| self.map().get(block, &load))
                .collect::<Result<_>>()?;
            let mut at = 0;
            for run in entries.chunk_by(|a, b| a == b) {
                let (start, entry) = (first + at as u64, run[0]);
                at += run.len();
                if entry == 0 {
                    continue;
                }
                *used.entry(log.space.segment(entry)).or_default() += run.len() as u32;
                checked.blocks += run.len() as u64;
                let buf = &mut buf[..run.len() * BLOCK];
                match read_unit(self.from(), start, entry, buf, &mut work) {
                    Ok((block, len)) => {
                        // Where blocks in its middle were written again it comes more than once.
                        let mut is_first = true;
                        for before in block..start {
                            is_first &= self.map().get(before, &load)? != entry;
                        }
                        if is_first {
                            checked.units += 1;
                            checked.stored_len += len;
                        }
                    }
                    Err(Error::Io(error)) => return Err(error.into()),
                    Err(_) => {
                        let more = (start..first + at as u64).map(|block| (block, entry * ALIGN));
                        checked.damaged.extend(more);
                        checked.damaged.truncate(MOST);
                    }
                }
            }
            self.map().shrink(0);
        }
        let is_wrong = |&segment: &u32| {
            log.space.used(segment).live != used.get(&segment).copied().unwrap_or(0)
        };
        checked.miscounted = (0..log.space.segments()).filter(is_wrong).count() as u64;
        Ok(checked)
    }

    /// Counts the nodes of the map as they are stored, and lists those of level 0.
    fn walk(
        &self,
        log: &mut Log,
        checked: &mut Checked,
        used: &mut HashMap<u32, u32>,
        leaves: &mut Vec<u64>,
    ) -> Result<()> {
        let load = self.load();
        let mut open = vec![self.map().top()];
        while let Some(place) = open.pop() {
            let entry = self.map().stored(place, &load)?;
            if entry > 0 {
                *used.entry(log.space.segment(entry)).or_default() += 1;
            }
            let children = self.map().children(place, &load);
            let children = match children {
                Ok(children) => children,
                Err(Error::Io(error)) => return Err(error.into()),
                Err(_) => {
                    checked.damaged_nodes.push(entry * ALIGN);
                    continue;
                }
            };
            match place.0 {
                0 => leaves.push(place.1),
                _ => open.extend(children),
            }
        }
        leaves.sort_unstable();
        Ok(())
    }
}
