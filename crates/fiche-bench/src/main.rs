//! `fiche-bench`: fiche measured as its papers measure, beside what people use today.
//!
//! `fiche-bench archive CORPUS... -o RESULTS` packs each corpus (a folder, whose files are taken
//! one after the other, or a file) with every engine, runs the modes of retrieval of Petri et
//! al. over all of them, and writes a table, a CSV and plots. Each measurement is a process
//! of its own, so that its memory and time are its own; repetitions of all engines are
//! interleaved; every byte that is read goes into a checksum, which has to be that of the
//! corpus.

mod ablations;
mod advise;
mod applications;
mod archive;
mod baskets;
mod cleaning;
mod codecs;
mod coding;
mod counts;
mod database;
mod engine;
mod engines;
mod events;
mod extract;
mod faces;
mod files;
mod lines;
mod mail;
mod measure;
mod model;
mod pages;
mod paper;
#[path = "../../fiche-cli/src/plot.rs"]
mod plot;
mod remote;
mod report;
mod space;
mod stand;
mod streams;
mod volume;
mod worker;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(version, about = "Measures fiche as its papers measure, beside what people use today")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Archives: FULL, BATCH and RANDOM retrieval of 16 KiB, and documents by name
    Archive(archive::Args),
    /// The same reads from Rust, from Python and in a mounted folder, beside SquashFS
    Faces(archive::Args),
    /// Gzip files read anywhere, beside rapidgzip, indexed_gzip and htslib
    Streams(archive::Args),
    /// What partitions of a gzip file cost in size, beside gzip, pigz and bgzip
    Partitions(streams::Args),
    /// A few bytes out of a unit, by recursion and from its front
    Extract(extract::Args),
    /// Files by their names from Python, beside zipfile, ratarmount and zstandard
    Files(files::Args),
    /// Files of an archive on a web server, beside others that read a piece of one
    Remote(remote::Args),
    /// Events as the paper on ROOT's compression measures them: alone, in baskets, and in fiche's packets
    Events(events::Args),
    /// Real events in ROOT's baskets by every codec, and on SquashFS, beside fiche's packets
    Baskets(baskets::Args),
    /// Codecs in one buffer, beside others: by acceleration and level, on chunks and single pages, and lengths
    Codec(coding::Args),
    /// Codecs on pages, beside copies to one buffer and back, and by threads
    Pages(coding::Args),
    /// What `fiche advise` foretells, beside what comes of it
    Advise(advise::Args),
    /// Disks by fio: volumes, plain files, file systems that compress
    Volume(volume::Args),
    /// Volumes that are full: what is written below for each byte, what writers notice, and a day of use
    Cleaning(cleaning::Args),
    /// The applications of the paper on compressing block devices: a mail server, a file server, transactions and a warehouse, on volumes and other disks
    Applications(applications::Args),
    /// What volumes save of each kind of files, beside file systems that compress, gzip and images
    Space(space::Args),
    /// Serves a volume, or a plain file, as a file of a folder
    #[command(hide = true)]
    ServeDisk(stand::ServeArgs),
    /// Serves zeros as a network block device
    #[command(hide = true)]
    ServeNull(volume::NullArgs),
    /// Instructions of reading a block, counted by Valgrind
    Counts(counts::Args),
    /// Reads blocks to be counted
    #[command(hide = true)]
    CountWorker(counts::WorkerArgs),
    /// Takes one measurement; started by the others
    #[command(hide = true)]
    Worker(worker::Args),
}

fn main() -> std::process::ExitCode {
    let done = match Cli::parse().command {
        Command::Archive(args) => archive::run(&args),
        Command::Faces(mut args) => {
            args.faces = true;
            archive::run(&args)
        }
        Command::Streams(mut args) => {
            args.streams = true;
            archive::run(&args)
        }
        Command::Partitions(args) => streams::sizes(&args),
        Command::Extract(args) => extract::run(&args),
        Command::Files(args) => files::run(&args),
        Command::Remote(args) => remote::run(&args),
        Command::Events(args) => events::run(&args),
        Command::Baskets(args) => baskets::run(&args),
        Command::Codec(args) => codecs::run(&args),
        Command::Pages(args) => pages::run(&args),
        Command::Advise(args) => advise::run(&args),
        Command::Counts(args) => counts::run(&args),
        Command::Volume(args) => volume::bench(&args),
        Command::Cleaning(args) => cleaning::bench(&args),
        Command::Applications(args) => applications::bench(&args),
        Command::Space(args) => space::bench(&args),
        Command::ServeDisk(args) => stand::serve(&args),
        Command::ServeNull(args) => volume::serve_null(&args),
        Command::CountWorker(args) => counts::work(&args),
        Command::Worker(args) => worker::run(&args),
    };
    match done {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fiche-bench: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}
