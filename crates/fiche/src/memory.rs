//! Memory: how much there is of it, and what the processor is told about it.

use crate::error::{Error, Result};

/// Fails unless the system says that it has so many bytes available.
pub(crate) fn check(need: u64) -> Result<()> {
    match available() {
        Some(allowed) if allowed < need => {
            Err(Error::Limit { what: "memory to prepare a dictionary", need, allowed })
        }
        _ => Ok(()),
    }
}

/// Bytes that can be taken without swapping, as far as the system says.
fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let system = line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10;
    // In a container there may be less.
    let number = |path: &str| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let limit = number("/sys/fs/cgroup/memory.max");
    let used = number("/sys/fs/cgroup/memory.current").unwrap_or(0);
    Some(limit.map_or(system, |limit| system.min(limit.saturating_sub(used))))
}

/// Where this much is looked into at random, small pages cost more than the memory itself.
const LARGE: usize = 1 << 20;

/// An empty list with room for so many; in huge pages, where that helps and the system has them.
pub(crate) fn room_for<T>(count: usize) -> Vec<T> {
    let mut room = Vec::with_capacity(count);
    advise(&mut room);
    room
}

/// As [`room_for`]; `None` where there is no such room.
pub(crate) fn try_room_for<T>(count: usize) -> Option<Vec<T>> {
    let mut room = Vec::new();
    room.try_reserve_exact(count).ok()?;
    advise(&mut room);
    Some(room)
}

/// Asks for huge pages for the room that is left in a list.
#[allow(unsafe_code)]
fn advise<T>(room: &mut Vec<T>) {
    let len = size_of_val(room.spare_capacity_mut());
    if len >= LARGE {
        const PAGE: usize = 4096;
        let start = room.spare_capacity_mut().as_mut_ptr().cast::<u8>();
        let skip = start.align_offset(PAGE);
        if let Some(len) = len.checked_sub(skip).map(|len| len / PAGE * PAGE) {
            let advice = rustix::mm::Advice::LinuxHugepage;
            // SAFETY: whole pages within the room. The advice changes nothing of what they hold.
            let _ = unsafe { rustix::mm::madvise(start.add(skip).cast(), len, advice) };
        }
    }
}

/// A list of so many equal values; as [`room_for`].
pub(crate) fn filled<T: Clone>(value: T, count: usize) -> Vec<T> {
    let mut list = room_for(count);
    list.resize(count, value);
    list
}
