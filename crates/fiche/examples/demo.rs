//! What `make demo` shows: packs the sources of the crates that fiche is built from,
//! reads all files and random pieces back, compares them with the originals, and
//! prints sizes and rates beside tar.gz and tar.zst.
//!
//! `cargo run --release --example demo -- FOLDER` keeps its files in FOLDER.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use fiche::archive::{Folder, Kind, Options, Packed, Reader, Writer};
use fiche::testing::Random;
use fiche::{FileSource, ReadAt};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// What cargo says of the library.
fn cargo(args: &[&str]) -> Outcome<String> {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let mut command = Command::new(env!("CARGO"));
    command.args(args).args(["--manifest-path", manifest]).stderr(Stdio::null());
    Ok(String::from_utf8(command.output()?.stdout)?)
}

/// The folders of the crates that the library is built and tested with here.
fn sources() -> Outcome<Vec<PathBuf>> {
    let tree = cargo(&["tree", "--package", "fiche", "--prefix", "none", "--format", "{p}"])?;
    let crates: BTreeSet<String> = tree
        .lines()
        .filter_map(|line| line.split_once(" v"))
        .map(|(name, rest)| format!("{name}-{}", rest.split(' ').next().unwrap_or(rest)))
        .collect();
    let text = cargo(&["metadata", "--format-version", "1"])?;
    let paths =
        text.split("\"manifest_path\":\"").skip(1).filter_map(|rest| rest.split('"').next());
    let folders: BTreeSet<PathBuf> = paths
        .filter_map(|path| Path::new(path).parent())
        .filter(|path| path.components().any(|part| part.as_os_str() == "registry"))
        .filter(|path| {
            path.file_name().is_some_and(|name| crates.contains(&*name.to_string_lossy()))
        })
        .map(Path::to_owned)
        .collect();
    Ok(folders.into_iter().collect())
}

/// Packs the folders with these options, or as `fiche pack` does by itself.
fn pack(folders: &[PathBuf], to: &Path, options: Option<Options>) -> Outcome<(Packed, f64)> {
    let start = Instant::now();
    let mut folder = Folder::new(&[] as &[&str])?;
    for path in folders {
        folder.add(path)?;
    }
    let options = match options {
        Some(options) => options,
        None => Options::default().learn(&folder.content())?,
    };
    let mut writer = Writer::new(std::io::BufWriter::new(fs::File::create(to)?), options)?;
    let packed = folder.write_to(&mut writer, &mut |_| Ok(()))?;
    writer.finish()?;
    Ok((packed, start.elapsed().as_secs_f64()))
}

/// Every file of the archive against the original it was made from.
fn compare_all(reader: &Reader, root: &Path) -> Outcome<(u64, u64)> {
    let (mut files, mut bytes, mut buf) = (0, 0, Vec::new());
    for item in reader.entries(0) {
        let (number, entry) = item?;
        if entry.kind != Kind::File {
            continue;
        }
        let record = reader.record_at(number)?;
        buf.resize(record.len() as usize, 0);
        record.read_at(0, &mut buf)?;
        if fs::read(root.join(std::str::from_utf8(&entry.name)?))? != buf {
            return Err(format!("{} differs", entry.display_name()).into());
        }
        files += 1;
        bytes += record.len();
    }
    Ok((files, bytes))
}

/// Random pieces of 16 KiB, each compared: microseconds for one.
fn random_pieces(reader: &Reader, count: u64, expected: &[u8]) -> Outcome<f64> {
    let (mut random, mut buf) = (Random(1), vec![0; 16 << 10]);
    let mut seconds = 0.0;
    for _ in 0..count {
        let offset = random.below(reader.len() - buf.len() as u64);
        let start = Instant::now();
        reader.read_at(offset, &mut buf)?;
        seconds += start.elapsed().as_secs_f64();
        if buf != expected[offset as usize..][..buf.len()] {
            return Err(format!("the piece at {offset} differs").into());
        }
    }
    Ok(seconds * 1e6 / count as f64)
}

/// The mean time until 16 KiB at a random place of a compressed tar are there.
fn seconds_to_reach(command: &[&str], file: &Path, len: u64) -> Outcome<f64> {
    let (mut random, mut seconds) = (Random(2), 0.0);
    for _ in 0..5 {
        let offset = random.below(len - (16 << 10));
        let start = Instant::now();
        let mut child = Command::new(command[0])
            .args(&command[1..])
            .arg(file)
            .stdout(Stdio::piped())
            .spawn()?;
        let mut out = child.stdout.take().ok_or("no output")?;
        std::io::copy(&mut (&mut out).take(offset), &mut std::io::sink())?;
        out.read_exact(&mut [0; 16 << 10])?;
        seconds += start.elapsed().as_secs_f64();
        drop(out);
        child.kill()?;
        child.wait()?;
    }
    Ok(seconds / 5.0)
}

fn has(program: &str) -> bool {
    let mut command = Command::new(program);
    let command = command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn main() -> Outcome<()> {
    let folder = PathBuf::from(std::env::args().nth(1).unwrap_or("target/demo".into()));
    fs::create_dir_all(&folder)?;
    let folders = sources()?;
    let root = folders.first().and_then(|path| path.parent()).ok_or("cargo lists no sources")?;
    let file = folder.join("sources.fiche");

    println!(
        "Packing the sources of the {} crates that the library is built and tested with ...",
        folders.len()
    );
    let (packed, seconds) = pack(&folders, &file, None)?;
    let rate = packed.bytes as f64 / 1e6 / seconds;
    println!("  {} records, {} bytes, {rate:.0} MB/s", packed.records, packed.bytes);

    println!("Reading every file back, and comparing it with the original ...");
    let reader = Reader::open(Arc::new(FileSource::open(&file)?))?;
    let (files, bytes) = compare_all(&reader, root)?;
    println!("  {files} files of {bytes} bytes are equal");

    println!("Reading 20,000 random pieces of 16 KiB, and comparing them ...");
    let mut content = Vec::new();
    reader.stream(0..reader.len(), 2)?.copy_to(&mut content)?;
    let micros = random_pieces(&reader, 20_000, &content)?;
    println!("  all are equal, {:.0} pieces a second on one thread", 1e6 / micros);

    println!("Packing the same with other programs ...\n");
    let tar = folder.join("sources.tar");
    let names: Vec<_> = folders.iter().filter_map(|path| path.file_name()).collect();
    let status =
        Command::new("tar").arg("-cf").arg(&tar).arg("-C").arg(root).args(names).status()?;
    if !status.success() {
        return Err("tar failed".into());
    }
    let tar_len = fs::metadata(&tar)?.len();
    println!("{:<33} {:>11} {:>9}   one random piece of 16 KiB", "", "bytes", "of tar");
    let row = |name: &str, len: u64, piece: f64| {
        let share = 100.0 * len as f64 / tar_len as f64;
        println!("{name:<33} {len:>11} {share:>7.2} % {:>12.3} ms", piece * 1e3);
    };
    for (name, pack, unpack, ending) in [
        ("tar.gz (gzip -6)", &["gzip", "-6", "-c"][..], &["gzip", "-dc"][..], "tar.gz"),
        ("tar.zst (zstd -3)", &["zstd", "-3", "-c", "-q"], &["zstd", "-dc", "-q"], "tar.zst"),
    ] {
        if !has(pack[0]) {
            println!("{name:<33} SKIP: there is no {}", pack[0]);
            continue;
        }
        let path = tar.with_extension(ending);
        let out = fs::File::create(&path)?;
        Command::new(pack[0]).args(&pack[1..]).arg(&tar).stdout(out).status()?;
        row(name, fs::metadata(&path)?.len(), seconds_to_reach(unpack, &path, tar_len)?);
    }
    for (name, level, block) in [
        ("fiche, zstd 3, 16 KiB blocks", 3, 16),
        ("fiche, zstd 19, 16 KiB blocks", 19, 16),
        ("fiche, zstd 19, 256 KiB blocks", 19, 256),
    ] {
        let path = folder.join("small.fiche");
        let options = Options::default().level(level).block_len(block << 10);
        pack(&folders, &path, Some(options))?;
        let reader = Reader::open(Arc::new(FileSource::open(&path)?))?;
        let micros = random_pieces(&reader, 2_000, &content)?;
        row(name, fs::metadata(&path)?.len(), micros / 1e6);
    }
    row("fiche, default: hybrid, 16 KiB", fs::metadata(&file)?.len(), micros / 1e6);
    println!("\nThe archive is {0}. Try:", file.display());
    println!("  target/release/fiche ls {} | tail", file.display());
    println!("  target/release/fiche cat {} --record '#7' --range ..200", file.display());
    Ok(())
}
