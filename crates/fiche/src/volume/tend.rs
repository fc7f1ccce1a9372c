//! What is done beside requests: segments are cleaned before there is no room any more, and when nobody asks for anything room is given
//! back.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::codec::Codec;
use crate::error::Result;
use crate::volume::clean::Victim;
use crate::volume::log::Log;
use crate::volume::pack::Packed;
use crate::volume::room::BETWEEN;
use crate::volume::{Volume, locked};

/// Bytes that are moved before others have their turn.
const AT_A_TIME: usize = 64 << 10;
/// Less is not worth the trouble.
const AT_LEAST: usize = 16 << 10;
/// Segments that are cleaned before the map is stored for them, at most.
const SOON: u32 = 16;
/// Segments that are kept free beside those that have to be, at most.
const MORE: u32 = 64;
/// When nobody asks for anything, segments are cleaned of which less than so many 32nds are still needed: it takes a third more than
/// they would, at most.
const IDLE_BELOW: u64 = 25;

/// How far [`Volume::tend`] is.
#[derive(Default)]
pub(super) struct Tender {
    victim: Option<Victim>,
    /// Whether that is packed only, since all of it is needed.
    is_extra: bool,
    /// Bytes of log that others wrote, up to the last time.
    seen: u64,
    /// Bytes that may be moved for those.
    credit: u64,
    /// As of how many a dictionary is trained.
    pub train_at: Option<u64>,
}

impl Volume {
    /// Does a little of what is due beside the requests, in as much time as some of them take. Where room becomes short it cleans segments: as many
    /// bytes as keep up with what is written, more the less room is left, so that no write has to wait
    /// for a segment. If `is_idle`, since nobody asked for anything for a while, also such that are not needed yet, until
    /// nearly all that is stored is needed. It puts blocks that were written one by one together into units, and compresses all that was
    /// written by requests harder, once; then it stores the map, and gives back the room of those that are free.
    /// Returns whether there is more to do now.
    ///
    /// Without it a write that finds no room cleans by itself, and nothing is given back but by [`trim`](Volume::trim). Usually
    /// [`Tended`] calls it.
    ///
    /// # Errors
    /// [`Error::Poisoned`](crate::Error::Poisoned), [`Error::Io`](crate::Error::Io).
    pub fn tend(&self, is_idle: bool) -> Result<bool> {
        self.check_poison()?;
        let mut tender = locked(&self.tender);
        if tender.victim.is_none() && !self.find_due(&mut tender, is_idle)? {
            return Ok(false);
        }
        let is_extra = tender.is_extra;
        let Some(victim) = &mut tender.victim else { return Ok(true) };
        // What is behind is not to be moved before it was packed.
        victim.look_at(if is_idle { AT_A_TIME } else { usize::MAX }, is_idle);
        let packed = if is_idle { self.pack(victim) } else { Packed::default() };
        let mut log = locked(&self.log);
        if is_extra && (!is_idle || victim.is_untouched() && !packed.is_worth()) {
            match is_idle {
                true => log.space.set_packed(victim.segment()),
                // Later.
                false => log.space.set_done(victim.segment(), false),
            }
            tender.victim = None;
            return Ok(true);
        }
        let most = match is_idle {
            true => AT_A_TIME,
            false => self.credit(&log, &mut tender).min(AT_A_TIME as u64) as usize,
        };
        let least = self.least(&log);
        if most < AT_LEAST || log.space.available() < least {
            return Ok(false);
        }
        self.begin_cold(&mut log)?;
        self.put_packed(&mut log, packed, least)?;
        if let Some(victim) = &mut tender.victim {
            let before = self.moved();
            let (mut log, moved) = self.move_beside(log, victim)?;
            let most = if moved > 0 { 0 } else { most };
            let is_done = self.move_some(&mut log, victim, most)?;
            tender.credit = tender.credit.saturating_sub(self.moved() - before);
            if is_done {
                tender.victim = None;
            }
        }
        Ok(true)
    }

    /// Finds a segment to clean, or does something else that is due. Whether there was anything.
    fn find_due(&self, tender: &mut Tender, is_idle: bool) -> Result<bool> {
        tender.is_extra = false;
        let victim = {
            let mut log = locked(&self.log);
            if log.clones.has_gone() {
                return self.erase_some(&mut log).map(|_| true);
            }
            let (least, enough) = (self.least(&log), self.enough(&log));
            let is_short = log.space.available() < enough;
            let early = log.space.early();
            if is_short && early.len() as u32 >= ((enough - least) / 4).max(1) {
                return self.release_beside(log, &early).map(|()| true);
            }
            let soon = (log.space.most() / 64).clamp(4, SOON);
            let is_worth = is_short && log.space.soon() >= soon;
            // Else a write has to do it.
            let is_long = log.since > BETWEEN / 2 || self.map().dirty > self.most_dirty() / 2;
            if is_worth || is_long {
                return self.checkpoint_beside(log).map(|()| true);
            }
            let has_room = log.space.available() > least;
            let mut found = match (is_idle, is_short) {
                (true, _) => log.space.victim(IDLE_BELOW, false),
                (false, true) => log.space.victim(31, true),
                (false, false) => None,
            };
            let may_pack = is_idle && !is_short && self.packing.codec != Codec::Copy;
            if found.is_none() && may_pack && log.space.soon() < soon {
                if log.space.free_len() > self.kept(&log) + soon {
                    // It may take long until all is packed: what was won is given back before.
                    while self.punch(&mut log)? {}
                }
                if self.is_training_due(&log, tender) {
                    drop(log);
                    return self.train(tender).map(|()| true);
                }
                found = log.space.raw();
                tender.is_extra = found.is_some();
            }
            match found {
                Some(segment) if has_room => self.choose(&mut log, segment),
                _ if is_idle && (log.space.soon() > 0 || log.since > AT_A_TIME as u64) => {
                    return self.checkpoint_beside(log).map(|()| true);
                }
                _ => return if is_idle { self.punch(&mut log) } else { Ok(false) },
            }
        };
        let segment = victim.segment();
        tender.victim = self.read_victim(victim)?;
        if tender.victim.is_none() {
            locked(&self.log).space.set_stuck(segment);
        }
        Ok(true)
    }

    /// Segments that are to be free at least: those of the reserve, and one that the cleaner may begin.
    fn least(&self, log: &Log) -> u32 {
        self.reserve(log) + 1
    }

    /// Segments of which no more are needed.
    fn enough(&self, log: &Log) -> u32 {
        self.reserve(log) + 2 + (log.space.most() / 64).clamp(4, MORE)
    }

    /// Bytes that may be moved now: for those that others wrote since the last time as many as cleaning takes to win them back, half of it
    /// when room becomes short and many times of it when there is hardly any.
    fn credit(&self, log: &Log, tender: &mut Tender) -> u64 {
        let written = self.counts.written_by_others();
        let new = written - tender.seen;
        tender.seen = written;
        let (low, high) = (self.least(log), self.enough(log));
        let missing = u64::from(high.saturating_sub(log.space.available()));
        let range = u64::from(high - low);
        if missing * 5 >= range * 3 {
            tender.credit = u64::MAX;
            return tender.credit;
        }
        let part = tender.victim.as_ref().map_or(0, Victim::part);
        let needed = new * part / ((1 << 20) - part).max(1);
        // Half to twice as much, and something where nothing is to be moved.
        let paid = needed / 2 + needed * 2 * missing / range + new / 8;
        tender.credit = tender.credit.min(1 << self.bits).saturating_add(paid);
        tender.credit
    }

    fn moved(&self) -> u64 {
        self.counts.moved()
    }
}

/// Tends a volume by a thread of its own, until it is dropped.
pub struct Tended {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Tended {
    /// Begins with it. The thread ends with the volume, or when it cannot be written any more.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) where there can be no thread.
    pub fn new(volume: &Arc<Volume>) -> Result<Tended> {
        let (stop, stopped) = channel();
        let volume = Arc::downgrade(volume);
        let run = move || {
            let mut idle = Idle::new();
            let mut pause = Duration::ZERO;
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(pause) {
                let Some(next) = idle.tend(&volume) else { return };
                pause = next;
            }
        };
        let thread = std::thread::Builder::new().name("fiche tends".into()).spawn(run)?;
        Ok(Tended { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Tended {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Since when nobody asked for anything.
struct Idle {
    /// Requests that were begun.
    asked: u64,
    since: Instant,
}

impl Idle {
    /// Nobody is disturbed who did not ask for anything for so long.
    const AFTER: Duration = Duration::from_secs(1);

    fn new() -> Idle {
        Idle { asked: 0, since: Instant::now() }
    }

    /// Tends once. How long to wait then, or that it is over.
    fn tend(&mut self, volume: &Weak<Volume>) -> Option<Duration> {
        let volume = volume.upgrade()?;
        let (asked, ended) = volume.counts.asked();
        // One that takes long is one.
        if asked != self.asked || asked != ended {
            *self = Idle { asked, since: Instant::now() };
        }
        let is_idle = self.since.elapsed() >= Idle::AFTER;
        match volume.tend(is_idle).ok()? {
            true => Some(Duration::ZERO),
            false if is_idle => Some(Idle::AFTER / 5),
            false => Some(Duration::from_millis(5)),
        }
    }
}
