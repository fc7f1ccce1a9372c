//! How much is saved, as the table of Makatos et al. on compression efficiency (2010): folders of one kind of files each, on file systems
//! whose disks are volumes and on those that compress, beside gzip, QEMU's images and SquashFS.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use fiche::testing::Random;

use crate::engine::Result;
use crate::report::machine;
use crate::stand::{Below, Stand};
use crate::volume::{run, shell};

#[derive(clap::Args)]
pub struct Args {
    /// Where the tables go
    #[arg(long, short, value_name = "DIR")]
    output: PathBuf,
    /// Where disks are kept meanwhile
    #[arg(long, value_name = "DIR", default_value = "target/bench/space")]
    work: PathBuf,
    /// Where the data is unpacked
    #[arg(long, value_name = "DIR", default_value = "target/data")]
    data: PathBuf,
    /// MiB that each kind is copied to make
    #[arg(long, default_value_t = 192)]
    size: u64,
    /// Seconds after the last write
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// These kinds alone
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

/// A kind: its name, a folder of the data, and how its files end, or nothing for all.
const KINDS: [(&str, &str, &[&str]); 6] = [
    ("mbox", "mbox", &[]),
    ("Word", "office-pdf", &["doc", "docx"]),
    ("Excel", "office-pdf", &["xls", "xlsx"]),
    ("PDF", "office-pdf", &["pdf"]),
    ("Linux source", "linux-6.1", &[]),
    ("compiled", "binaries", &[]),
];

/// Volumes: codec, and what else they are told.
const VOLUMES: [(&str, &str, &[&str]); 9] = [
    ("fiche zstd:1", "zstd", &[]),
    ("fiche zstd:1, no dictionary", "zstd", &["--no-dictionary"]),
    ("fiche zstd:1, units of 4K", "zstd", &["--unit", "4096"]),
    ("fiche zstd:1, 4K, no dictionary", "zstd", &["--unit", "4096", "--no-dictionary"]),
    ("fiche zstd:1, packed by 64K", "zstd", &["--pack", "65536"]),
    ("fiche zstd:1, packed by 128K", "zstd", &["--pack", "131072"]),
    ("fiche lz4", "lz4", &[]),
    ("fiche zlib", "zlib", &[]),
    ("fiche none", "none", &[]),
];

const SYSTEMS: [(&str, &str, &str); 4] = [
    ("ext4 on a file", "ext4", "defaults"),
    ("btrfs zstd:1", "btrfs", "compress-force=zstd:1"),
    ("btrfs lzo", "btrfs", "compress-force=lzo"),
    ("btrfs zlib", "btrfs", "compress-force=zlib:3"),
];

/// Files of a folder and those in it.
fn files(folder: &Path, ends: &[&str], found: &mut Vec<PathBuf>) -> Result<()> {
    let mut all: Vec<PathBuf> =
        std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    all.sort();
    for path in all {
        let end = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
        if path.is_symlink() {
        } else if path.is_dir() {
            files(&path, ends, found)?;
        } else if ends.is_empty() || ends.contains(&end.as_str()) {
            found.push(path);
        }
    }
    Ok(())
}

/// Writes each 4 KiB of all files over with what it is, in any order.
fn rewrite(all: &[PathBuf], seed: u64) -> Result<()> {
    let mut blocks = Vec::new();
    for (i, path) in all.iter().enumerate() {
        blocks.extend((0..path.metadata()?.len() / 4096).map(|block| (i, block)));
    }
    let mut random = Random(seed);
    for i in (1..blocks.len()).rev() {
        blocks.swap(i, random.below(i as u64 + 1) as usize);
    }
    let open = |path: &PathBuf| OpenOptions::new().read(true).write(true).open(path);
    let mut last: BTreeMap<usize, File> = BTreeMap::new();
    let mut buf = [0; 4096];
    for (done, (i, block)) in blocks.into_iter().enumerate() {
        if !last.contains_key(&i) {
            if last.len() > 500 {
                last.clear();
            }
            last.insert(i, open(&all[i])?);
        }
        let file = &last[&i];
        file.read_exact_at(&mut buf, block * 4096)?;
        file.write_all_at(&buf, block * 4096)?;
        // Else the system would put neighbours together again.
        if done % 512 == 511 {
            shell("sync")?;
        }
    }
    Ok(())
}

/// Bytes of a disk: with all files, as long after the last write as is said, and again when everything was written over.
struct Stored {
    seconds: f64,
    fresh: u64,
    again: u64,
}

struct Kind<'a> {
    args: &'a Args,
    /// What is copied, and how often.
    folder: PathBuf,
    copies: u64,
    /// Bytes of all.
    len: u64,
}

impl Kind<'_> {
    fn on(&self, name: &str, below: &Below, system: (&str, &str), again: bool) -> Result<Stored> {
        // Twice as much as there is, so that it is not the cleaner that is measured.
        let len = (self.len * 2).next_multiple_of(1 << 30);
        let mut stand = Stand::new(name, below, system, len, 0, &self.args.work)?;
        let empty = stand.stored(self.args.seconds)?;
        let start = Instant::now();
        for i in 0..self.copies {
            let to = stand.at.join(format!("copy{i}"));
            run(Command::new("cp").arg("-r").arg(&self.folder).arg(to))?;
        }
        stand.sync()?;
        let seconds = start.elapsed().as_secs_f64();
        let fresh = stand.stored(self.args.seconds)?.saturating_sub(empty);
        let mut stored = Stored { seconds, fresh, again: 0 };
        if again {
            let mut all = Vec::new();
            for i in 0..self.copies {
                files(&stand.at.join(format!("copy{i}")), &[], &mut all)?;
            }
            rewrite(&all, 1)?;
            stored.again = stand.stored(self.args.seconds)?.saturating_sub(empty);
        }
        Ok(stored)
    }
}

fn size(path: &Path) -> Result<u64> {
    Ok(path.metadata()?.len())
}

pub fn bench(args: &Args) -> Result<()> {
    std::fs::create_dir_all(&args.work)?;
    std::fs::create_dir_all(&args.output)?;
    let mut csv = String::from("kind,method,bytes,stored,rewritten,seconds\n");
    let mut table: BTreeMap<usize, Vec<(String, f64)>> = BTreeMap::new();
    let mut goals = String::new();
    let kinds: Vec<_> = KINDS
        .into_iter()
        .filter(|kind| args.only.is_empty() || args.only.iter().any(|only| only == kind.0))
        .collect();
    let mut lens = Vec::new();
    for (k, (kind, folder, ends)) in kinds.iter().enumerate() {
        let mut all = Vec::new();
        files(&args.data.join(folder), ends, &mut all)?;
        let source = args.work.join("source");
        let _ = std::fs::remove_dir_all(&source);
        for path in &all {
            let to = source.join(path.strip_prefix(args.data.join(folder))?);
            std::fs::create_dir_all(to.parent().ok_or("no folder")?)?;
            std::fs::copy(path, to)?;
        }
        let one: u64 = all.iter().map(|path| size(path)).sum::<Result<u64>>()?;
        let copies = ((args.size << 20) / one.max(1)).max(1);
        let kind_of = Kind { args, folder: source.clone(), copies, len: one * copies };
        lens.push((one, copies, all.len()));
        let at = source.display();
        let work = std::path::absolute(&args.work)?;
        let mut note = |name: &str, stored: Stored, len: u64| -> Result<()> {
            let percent = 100.0 * (1.0 - stored.fresh as f64 / len as f64);
            eprintln!(
                "{kind:14} {name:28} {percent:6.1} % saved, rewritten {:.3}, {:.1} s",
                stored.again as f64 / stored.fresh.max(1) as f64,
                stored.seconds
            );
            writeln!(
                csv,
                "{kind},\"{name}\",{len},{},{},{:.2}",
                stored.fresh, stored.again, stored.seconds
            )?;
            table.entry(k).or_default().push((name.into(), percent));
            Ok(())
        };
        let of = |fresh: u64| Stored { seconds: 0.0, fresh, again: 0 };
        let each = shell(&format!(
            "find {at} -type f -exec sh -c 'for f; do gzip -c \"$f\" | wc -c; done' sh {{}} + | awk '{{s+=$1}} END {{print s}}'"
        ))?;
        note("gzip of each file", of(each.trim().parse()?), one)?;
        let tar = shell(&format!("tar cf - -C {at} . | gzip -c | wc -c"))?;
        note("gzip of a tar", of(tar.trim().parse()?), one)?;
        let mut found: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for (name, codec, more) in VOLUMES {
            let more = more.iter().map(|&option| option.to_owned()).collect();
            let below = Below::Volume(codec, more);
            let again = matches!(codec, "zstd" | "lz4");
            let stored = kind_of.on(name, &below, ("ext4", "defaults"), again)?;
            found.insert(name, (stored.fresh, stored.again));
            note(name, stored, kind_of.len)?;
        }
        for (name, system, options) in SYSTEMS {
            let again = name == "btrfs zstd:1";
            let stored = kind_of.on(name, &Below::File, (system, options), again)?;
            found.insert(name, (stored.fresh, stored.again));
            note(name, stored, kind_of.len)?;
        }
        // What was written once: the same ext4 by QEMU's format, and SquashFS.
        let raw = work.join("image.raw");
        let len = (kind_of.len * 2).next_multiple_of(1 << 30);
        File::create(&raw)?.set_len(len)?;
        let whole = work.join("image");
        let _ = std::fs::remove_dir_all(&whole);
        std::fs::create_dir_all(&whole)?;
        for i in 0..copies {
            run(Command::new("cp").arg("-r").arg(&source).arg(whole.join(format!("copy{i}"))))?;
        }
        run(Command::new("mkfs.ext4").args(["-q", "-d"]).arg(&whole).arg(&raw))?;
        let empty = work.join("empty.raw");
        File::create(&empty)?.set_len(len)?;
        run(Command::new("mkfs.ext4").arg("-q").arg(&empty))?;
        for codec in ["zlib", "zstd"] {
            let name = if codec == "zlib" { "qcow2 zlib" } else { "qcow2 zstd" };
            let convert = |from: &Path| -> Result<u64> {
                let to = work.join("image.qcow2");
                let options = format!("compression_type={codec}");
                run(Command::new("qemu-img")
                    .args(["convert", "-c", "-f", "raw", "-O", "qcow2", "-o", &options])
                    .arg(from)
                    .arg(&to))?;
                let len = size(&to)?;
                std::fs::remove_file(to)?;
                Ok(len)
            };
            let fresh = convert(&raw)?.saturating_sub(convert(&empty)?);
            found.insert(name, (fresh, 0));
            note(name, of(fresh), kind_of.len)?;
        }
        let to = work.join("image.squashfs");
        let _ = std::fs::remove_file(&to);
        shell(&format!("mksquashfs {at} {} -comp zstd -b 128K -quiet -no-progress", to.display()))?;
        note("SquashFS zstd, 128K", of(size(&to)?), one)?;
        std::fs::remove_file(to)?;
        for old in [&raw, &empty] {
            std::fs::remove_file(old)?;
        }
        std::fs::remove_dir_all(&whole)?;
        let get = |name: &str| found.get(name).copied().unwrap_or_default();
        for (name, ..) in VOLUMES.iter().filter(|volume| volume.1 == "zstd") {
            let (fresh, again) = get(name);
            let to = |other: &str| fresh as f64 / get(other).0.max(1) as f64;
            let rewritten = again as f64 / fresh.max(1) as f64;
            writeln!(
                goals,
                "| {kind} | {name} | {:.3} | {:.3} | {rewritten:.2} |",
                to("btrfs zstd:1"),
                to("qcow2 zstd")
            )?;
        }
    }
    let mut text = format!(
        "# Space that is saved\n\n{} Percent of the bytes of the files that are not stored: what the disk takes more than with an empty file system, after at most {} seconds \
         in which nobody asks for anything (less where it does not change any more). Files that are few are copied several times, which none of these notices; \
         SquashFS and gzip have them once. QEMU's images can be written once only; NTFS and ZFS, which the paper has, cannot be had here. Higher is better.\n\n| |",
        machine(),
        args.seconds
    );
    for (kind, ..) in &kinds {
        write!(text, " {kind} |")?;
    }
    writeln!(text, "\n|---|{}", "---|".repeat(kinds.len()))?;
    write!(text, "| MB (files, copies) |")?;
    for (one, copies, files) in &lens {
        write!(text, " {:.1} ({files}, {copies}) |", *one as f64 / 1e6)?;
    }
    writeln!(text)?;
    let methods = table.get(&0).map_or(&[][..], Vec::as_slice);
    for (i, (name, _)) in methods.iter().enumerate() {
        write!(text, "| {name} |")?;
        for k in 0..kinds.len() {
            write!(text, " {:.1} |", table[&k][i].1)?;
        }
        writeln!(text)?;
    }
    writeln!(
        text,
        "\n## To others, and when everything was written over\n\nBytes by those of btrfs and of QEMU's image, and after every 4 KiB was written over in any order, by those before.\n\n\
         | | | to btrfs zstd:1 | to qcow2 zstd | rewritten |\n|---|---|---|---|---|\n{goals}"
    )?;
    std::fs::write(args.output.join("space.csv"), csv)?;
    std::fs::write(args.output.join("space.md"), text)?;
    Ok(())
}
