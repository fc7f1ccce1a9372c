//! `fiche volume pack`

use std::path::PathBuf;
use std::time::{Duration, Instant};

use fiche::volume::{FileDevice, OpenOptions};

use super::{Open, taken, tell_given};
use crate::sizes::{parse, show};
use crate::ui::{self, Failed, Progress, say};

/// How blocks are packed again, when nobody asks for anything
#[derive(clap::Args)]
pub struct Harder {
    /// Bytes of a volume that are compressed together, at most, when blocks are packed again, harder: 4K to 128K and a 16th of a segment, by default as
    /// many as it was made with. Longer ones shrink more, shorter ones are read faster one by one
    #[arg(long, value_name = "SIZE", value_parser = parse)]
    pack: Option<u64>,
    /// Train no dictionary of what a volume holds; those that there are are used
    #[arg(long)]
    no_dictionary: bool,
}

impl Harder {
    pub fn apply(&self, options: OpenOptions) -> OpenOptions {
        let options = options.train(!self.no_dictionary);
        match self.pack {
            Some(bytes) => options.pack(usize::try_from(bytes).unwrap_or(usize::MAX)),
            None => options,
        }
    }
}

/// Pack all that a volume holds once more, as hard as can be, and give back what it does not need
///
/// A volume that is served does that by itself when nobody asks for anything, once with all that was written. Interrupted, it is as it was, or partly
/// packed, and nothing is lost; serving it goes on with the rest, and this with all of it.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  fiche volume import disk.img disk.fiche\n  \
fiche volume pack disk.fiche --pack 64K")]
pub struct Pack {
    /// The volume, which nobody may be using
    file: PathBuf,
    #[command(flatten)]
    harder: Harder,
    #[command(flatten)]
    open: Open,
    /// No progress
    #[arg(long, short)]
    quiet: bool,
}

/// How often the progress is looked at.
const LOOK: Duration = Duration::from_millis(200);

pub fn run(args: &Pack) -> Result<(), Failed> {
    let at = |error| Failed::at(&args.file, error);
    let before = taken(&args.file)?;
    let options = args.harder.apply(args.open.options());
    let opened = FileDevice::open(&args.file).and_then(|device| options.open(device));
    let volume = opened.map_err(at)?;
    volume.pack_again().map_err(at)?;
    ui::set_left("what was packed stays so, and the rest is as it was");
    ui::will_check();
    let left = || {
        let stats = volume.stats();
        stats.unpacked_segments * stats.segment_len
    };
    let (mut before_this, mut looked) = (left(), Instant::now());
    let progress = Progress::new("pack", Some(before_this), args.quiet);
    while volume.tend(true).map_err(at)? {
        let mut done = 0;
        // All segments are counted for that.
        if looked.elapsed() > LOOK {
            let now = left();
            (done, before_this, looked) = (before_this.saturating_sub(now), now, Instant::now());
        }
        progress.add(done)?;
    }
    progress.done();
    if left() > 0 {
        say!("{} are still to be packed: there is no room for it", show(left()));
    }
    drop(volume);
    tell_given(&args.file, before)
}
