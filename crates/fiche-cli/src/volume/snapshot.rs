//! `fiche volume snapshot`

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use fiche::Error;
use fiche::volume::{self, SnapshotInfo, Volume};
use serde_json::json;

use super::{Open, live};
use crate::input;
use crate::sizes::show;
use crate::ui::{self, Failed};

/// Keep what a volume holds, under a name
///
/// A snapshot costs nothing when it is taken; later it costs what of it is overwritten. The volume may be served meanwhile: then
/// whoever serves it does it, and offers each snapshot for reading as an export of its name.
#[derive(clap::Subcommand)]
#[command(
    after_help = "Example:\n  fsfreeze --freeze /mnt; fiche volume snapshot take disk.fiche monday; fsfreeze --unfreeze /mnt\n  \
fiche volume export disk.fiche monday.raw --snapshot monday"
)]
pub enum Verb {
    Take(Take),
    List(List),
    Delete(Delete),
    Restore(Restore),
}

/// Take a snapshot
///
/// What a file system holds is in it as after a power cut. Freeze it meanwhile (fsfreeze), or unmount it, and it is in it whole.
#[derive(clap::Args)]
pub struct Take {
    /// The volume; it may be served
    file: PathBuf,
    /// A name that none of its snapshots and clones has yet
    name: String,
    /// Of what this clone holds, instead of the volume itself
    #[arg(long, value_name = "NAME")]
    clone: Option<String>,
    #[command(flatten)]
    open: Open,
}

/// List the snapshots of a volume, the oldest first
#[derive(clap::Args)]
pub struct List {
    /// The volume; it may be served
    file: PathBuf,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

/// Let go of a snapshot: what only it needs is room for others
#[derive(clap::Args)]
pub struct Delete {
    /// The volume; it may be served
    file: PathBuf,
    /// The snapshot
    name: String,
    #[command(flatten)]
    open: Open,
}

/// Make a volume what a snapshot holds: what was written since is gone
#[derive(clap::Args)]
pub struct Restore {
    /// The volume, which nobody may be using
    file: PathBuf,
    /// The snapshot, which stays
    name: String,
    #[command(flatten)]
    open: Open,
}

pub fn run(verb: Verb) -> Result<(), Failed> {
    match verb {
        Verb::Take(Take { file, name, clone, open }) => {
            let ask = live::Ask::Take { name: &name, clone: clone.as_deref() };
            change(&file, &open, ask, |volume| take(volume, &name, clone.as_deref()))
        }
        Verb::Delete(Delete { file, name, open }) => {
            change(&file, &open, live::Ask::Delete(&name), |volume| volume.delete_snapshot(&name))
        }
        Verb::Restore(Restore { file, name, open }) => {
            let at = |error| Failed::at(&file, error);
            open.open(&file)?.restore_snapshot(&name).map_err(at)
        }
        Verb::List(args) => list(&args),
    }
}

/// Of a volume, or of this clone of it.
pub fn take(volume: &Arc<Volume>, name: &str, clone: Option<&str>) -> fiche::Result<()> {
    match clone {
        None => volume.take_snapshot(name),
        Some(clone) => volume.writable_clone(clone)?.take_snapshot(name),
    }
}

/// Does it, or has it done by whoever serves the volume.
pub fn change(
    file: &Path,
    open: &Open,
    ask: live::Ask<'_>,
    run: impl FnOnce(&Arc<Volume>) -> fiche::Result<()>,
) -> Result<(), Failed> {
    let at = |error| Failed::at(file, error);
    match open.open_or_busy(file) {
        Ok(volume) => run(&volume).map_err(at),
        Err(Error::Busy { owner }) => match live::ask(file, ask) {
            Ok(answer) => answer.map(drop).map_err(|why| at(Error::Invalid { what: why.into() })),
            // Nobody listens there.
            Err(_) => Err(at(Error::Busy { owner })),
        },
        Err(error) => Err(at(error)),
    }
}

fn list(args: &List) -> Result<(), Failed> {
    let at = |error| Failed::at(&args.file, error);
    let told = volume::describe(&input::source(&args.file)?).map_err(at)?;
    if args.json {
        let all: Vec<_> = told.snapshots.iter().map(json_of).collect();
        return ui::print(format!("{:#}\n", json!(all)).as_bytes());
    }
    let mut text = String::new();
    for info in &told.snapshots {
        let (len, held) = (show(info.len), show(info.held_len));
        let taken = crate::ls::date(seconds(info) as i64);
        text += &format!("{taken}  {len:>10}  {held:>10} held  {}\n", info.name);
    }
    ui::print(text.as_bytes())
}

fn seconds(info: &SnapshotInfo) -> u64 {
    info.taken.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

pub fn json_of(info: &SnapshotInfo) -> serde_json::Value {
    json!({
        "name": info.name,
        "taken": seconds(info),
        "logical_bytes": info.len,
        "held_bytes": info.held_len,
    })
}
