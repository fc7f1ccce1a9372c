//! The `fiche` command: parses, calls the library once, prints.

mod advise;
mod append;
mod cat;
mod dictionary;
mod events;
mod gzip;
mod index;
mod info;
mod input;
mod ls;
mod merge;
mod mount;
mod output;
mod pack;
mod plot;
mod sizes;
mod source;
mod stream;
mod ui;
mod unpack;
mod verify;
mod volume;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::ui::Failed;

/// Packs files, folders and streams into small compressed blocks, and reads any
/// piece of them without unpacking the rest.
#[derive(Parser)]
#[command(name = "fiche", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = "Exit status: 0 done; 2 wrong arguments, or no such record or range; \
3 damaged; 4 not supported by this version; 5 the system refused, or something is missing or in \
use; 6 a limit was met; 130 interrupted.")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Pack(pack::Args),
    Unpack(unpack::Args),
    Cat(cat::Args),
    Ls(ls::Args),
    Info(info::Args),
    Verify(verify::Args),
    Append(append::Args),
    Merge(merge::Args),
    Advise(advise::Args),
    Mount(mount::Args),
    Gzip(gzip::Args),
    Index(index::Args),
    #[command(subcommand)]
    Volume(volume::Verb),
    #[command(subcommand)]
    Events(events::Verb),
    #[command(subcommand)]
    Dict(dictionary::Verb),
    /// Print a completion script for a shell
    Completions {
        /// bash, zsh, fish, elvish or powershell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a folder
    Man {
        /// The folder, which must be there
        dir: PathBuf,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    ui::watch_signals();
    #[cfg(feature = "remote")]
    fiche_remote::on_wait(ui::check_stop);
    let result = match cli.verb {
        Verb::Pack(args) => pack::run(args),
        Verb::Unpack(args) => unpack::run(args),
        Verb::Cat(args) => cat::run(args),
        Verb::Ls(args) => ls::run(args),
        Verb::Info(args) => info::run(args),
        Verb::Verify(args) => verify::run(args),
        Verb::Append(args) => append::run(args),
        Verb::Merge(args) => merge::run(args),
        Verb::Advise(args) => advise::run(args),
        Verb::Mount(args) => mount::run(args),
        Verb::Gzip(args) => gzip::run(args),
        Verb::Index(args) => index::run(args),
        Verb::Volume(verb) => volume::run(verb),
        Verb::Events(verb) => events::run(verb),
        Verb::Dict(verb) => dictionary::run(verb),
        Verb::Completions { shell } => completions(shell),
        Verb::Man { dir } => man(&dir),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => failed.report(),
    }
}

fn completions(shell: clap_complete::Shell) -> Result<(), Failed> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "fiche", &mut script);
    ui::print(&script)
}

fn man(dir: &std::path::Path) -> Result<(), Failed> {
    clap_mangen::generate_to(Cli::command(), dir).map_err(|e| Failed::io(dir, e))
}
