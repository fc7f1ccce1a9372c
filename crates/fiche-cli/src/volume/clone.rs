//! `fiche volume clone`

use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use fiche::volume::{self, CloneInfo};
use serde_json::json;

use super::{Open, live, snapshot};
use crate::input;
use crate::sizes::show;
use crate::ui::{self, Failed};

/// Make disks that begin as a snapshot is, and are written by themselves
///
/// A clone costs nothing when it is made; later it costs what is written to it. The volume may be served meanwhile: then whoever serves it does it, and offers each
/// clone for reading and writing as an export of its name.
#[derive(clap::Subcommand)]
#[command(
    after_help = "Example:\n  fiche volume snapshot take disk.fiche monday\n  fiche volume clone make disk.fiche monday trial\n  \
fiche volume serve disk.fiche --clone trial --nbd /tmp/trial"
)]
pub enum Verb {
    Make(Make),
    List(List),
    Delete(Delete),
}

/// Make a clone of a snapshot
#[derive(clap::Args)]
pub struct Make {
    /// The volume; it may be served
    file: PathBuf,
    /// The snapshot, which cannot be deleted as long as there is a clone of it
    snapshot: String,
    /// A name that none of its snapshots and clones has yet
    name: String,
    #[command(flatten)]
    open: Open,
}

/// List the clones of a volume, the oldest first
#[derive(clap::Args)]
pub struct List {
    /// The volume; it may be served
    file: PathBuf,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

/// Delete a clone, and what only it has
#[derive(clap::Args)]
pub struct Delete {
    /// The volume; it may be served
    file: PathBuf,
    /// The clone, which nobody may be using
    name: String,
    #[command(flatten)]
    open: Open,
}

pub fn run(verb: Verb) -> Result<(), Failed> {
    match verb {
        Verb::Make(Make { file, snapshot, name, open }) => {
            let ask = live::Ask::Clone { snapshot: &snapshot, name: &name };
            snapshot::change(&file, &open, ask, |volume| volume.clone_snapshot(&snapshot, &name))
        }
        Verb::Delete(Delete { file, name, open }) => {
            let ask = live::Ask::DeleteClone(&name);
            snapshot::change(&file, &open, ask, |volume| {
                volume.delete_clone(&name)?;
                // Nobody else does it.
                while volume.tend(false)? {}
                Ok(())
            })
        }
        Verb::List(args) => list(&args),
    }
}

fn list(args: &List) -> Result<(), Failed> {
    let at = |error| Failed::at(&args.file, error);
    let told = volume::describe(&input::source(&args.file)?).map_err(at)?;
    if args.json {
        let all: Vec<_> = told.clones.iter().map(json_of).collect();
        return ui::print(format!("{:#}\n", json!(all)).as_bytes());
    }
    let mut text = String::new();
    for info in &told.clones {
        let (made, len) = (crate::ls::date(seconds(info) as i64), show(info.len));
        text += &format!("{made}  {len:>10}  of {}  {}\n", info.snapshot, info.name);
    }
    ui::print(text.as_bytes())
}

fn seconds(info: &CloneInfo) -> u64 {
    info.made.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

pub fn json_of(info: &CloneInfo) -> serde_json::Value {
    json!({
        "name": info.name,
        "made": seconds(info),
        "logical_bytes": info.len,
        "snapshot": info.snapshot,
    })
}
