//! Events of real files as Zhang's *Exploring Compression Techniques of ROOT IO* (2017) measures them: its table of codecs, and SquashFS below a
//! file that is not compressed, beside ROOT's baskets (Figures 13 to 19), and fiche's packets.
//!
//! ROOT itself is not here: what it would write is made of the events, branch by branch, in baskets as it has them, with numbers big-endian and
//! where events begin behind those of lists.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use fiche::ReadAt;
use fiche::codec::{Codec, Scratch};
use fiche::events::{Access, Batch, Count, Event, Layout, Options, Reader, Role, Writer};

use crate::engine::Result;
use crate::engines::mounted::Mount;
use crate::engines::{command, show};
use crate::events::{BASKET, median, speed};

#[derive(clap::Args)]
pub struct Args {
    /// Files of events
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Where the table and the CSV go
    #[arg(long, short, value_name = "DIR")]
    output: PathBuf,
    /// Rounds; times are medians of them
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// Lengths of SquashFS's blocks, and of baskets.
const BLOCKS: [usize; 9] =
    [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20];
/// Each event, every tenth, every hundredth.
const STEPS: [usize; 3] = [1, 10, 100];
/// Events that fiche hands over together.
const TOGETHER: usize = 4096;

/// A leaf of a tree: what each event has there, as ROOT writes it.
#[derive(Default)]
struct Branch {
    bytes: Vec<u8>,
    /// Where each event's end.
    ends: Vec<usize>,
    /// Whether events have different lengths, so that baskets say where each begins.
    is_jagged: bool,
}

/// Of which level all events have as many items.
fn is_fixed(layout: &Layout, level: usize) -> bool {
    let level = layout.levels()[level];
    !matches!(level.count, Count::Column(_)) && level.parent.is_none_or(|up| is_fixed(layout, up))
}

/// Events of a file as branches.
fn branches(reader: &Reader) -> Result<Vec<Branch>> {
    let layout = reader.layout();
    let mut event = Event::default();
    // How many items lists of events have is told by where these begin.
    let is_kept = |column: &fiche::events::Column| column.role != Role::Counts || column.level != 0;
    let columns: Vec<usize> =
        (0..layout.columns().len()).filter(|&c| is_kept(&layout.columns()[c])).collect();
    let mut branches: Vec<Branch> = (columns.iter())
        .map(|&c| Branch {
            is_jagged: !is_fixed(layout, layout.columns()[c].level),
            ..Branch::default()
        })
        .collect();
    for number in 0..reader.len() {
        reader.event_into(number, &mut event)?;
        for (branch, &column) in branches.iter_mut().zip(&columns) {
            let width = layout.columns()[column].number.width();
            for bits in event.bits(column).iter() {
                branch.bytes.extend_from_slice(&bits.to_be_bytes()[8 - width..]);
            }
            branch.ends.push(branch.bytes.len());
        }
    }
    // Fields of no bytes have no baskets.
    branches.retain(|branch| !branch.bytes.is_empty());
    Ok(branches)
}

/// Some events of a branch.
struct Basket {
    branch: usize,
    first: usize,
    last: usize,
    data: Vec<u8>,
}

impl Branch {
    fn start(&self, event: usize) -> usize {
        if event == 0 { 0 } else { self.ends[event - 1] }
    }

    /// The events as baskets of so many bytes, or of one event.
    fn baskets(&self, branch: usize, len: usize, baskets: &mut Vec<Basket>) {
        let each = if self.is_jagged { 4 } else { 0 };
        let mut first = 0;
        while first < self.ends.len() {
            let start = self.start(first);
            let count = |last: usize| self.ends[last] - start + each * (last + 1 - first);
            let mut last = first;
            while last + 1 < self.ends.len() && count(last + 1) <= len {
                last += 1;
            }
            let mut data = self.bytes[start..self.ends[last]].to_vec();
            if self.is_jagged {
                for event in first..=last {
                    data.extend(((self.start(event) - start) as u32).to_be_bytes());
                }
            }
            baskets.push(Basket { branch, first, last, data });
            first = last + 1;
        }
    }
}

/// All baskets as they are written: one when it is full.
fn baskets(branches: &[Branch], len: usize) -> Vec<Basket> {
    let mut all = Vec::new();
    for (i, branch) in branches.iter().enumerate() {
        branch.baskets(i, len, &mut all);
    }
    all.sort_by_key(|basket| (basket.last, basket.branch));
    all
}

/// How a basket is compressed.
#[derive(Clone, Copy)]
enum How {
    /// zlib's own format and effort, by zlib-rs.
    Zlib(u32),
    Codec(Codec, i32),
}

impl How {
    fn name(self) -> String {
        match self {
            How::Zlib(level) => format!("zlib {level}"),
            How::Codec(Codec::Deflate, level) => format!("libdeflate {level}"),
            How::Codec(codec, level) => format!("{} {level}", codec.name()),
        }
    }

    /// A basket, compressed; as it is where that is no less.
    fn compress(self, data: &[u8], room: &mut Room) -> Result<Vec<u8>> {
        let packed = match self {
            How::Zlib(level) => {
                let level = flate2::Compression::new(level);
                let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), level);
                encoder.write_all(data)?;
                Some(encoder.finish()?).filter(|packed| packed.len() < data.len())
            }
            How::Codec(codec, level) => {
                room.piece.resize(data.len(), 0);
                let dst = room.piece.as_mut_slice().into();
                let len = codec.compress(level, data.into(), dst, &mut room.scratch)?;
                len.map(|len| room.piece[..len].to_vec())
            }
        };
        Ok(packed.unwrap_or_else(|| data.to_vec()))
    }

    fn decompress(
        self,
        stored: &[u8],
        len: usize,
        out: &mut Vec<u8>,
        room: &mut Room,
    ) -> Result<()> {
        out.clear();
        out.resize(len, 0);
        if stored.len() == len {
            out.copy_from_slice(stored);
            return Ok(());
        }
        match self {
            How::Zlib(_) => flate2::read::ZlibDecoder::new(stored).read_exact(out)?,
            How::Codec(codec, _) => {
                codec.decompress(stored.into(), out.as_mut_slice().into(), &mut room.scratch)?;
            }
        }
        Ok(())
    }
}

#[derive(Default)]
struct Room {
    scratch: Scratch,
    piece: Vec<u8>,
    stored: Vec<u8>,
}

/// A row of the table of codecs.
#[derive(Default)]
struct Coded {
    stored: usize,
    write: Vec<f64>,
    read: Vec<f64>,
}

const CODECS: [How; 15] = [
    How::Zlib(1),
    How::Zlib(5),
    How::Zlib(6),
    How::Zlib(9),
    How::Codec(Codec::Deflate, 6),
    How::Codec(Codec::Deflate, 12),
    How::Codec(Codec::Lz4, 1),
    How::Codec(Codec::Lz4, 5),
    How::Codec(Codec::Lz4, 9),
    How::Codec(Codec::Lzma, 1),
    How::Codec(Codec::Lzma, 5),
    How::Codec(Codec::Lzma, 9),
    How::Codec(Codec::Zstd, 1),
    How::Codec(Codec::Zstd, 5),
    How::Codec(Codec::Zstd, 19),
];

/// Every basket compressed and decompressed by each codec: seconds, and bytes.
fn codecs(baskets: &[Basket], round: usize, rows: &mut BTreeMap<usize, Coded>) -> Result<()> {
    let mut room = Room::default();
    let mut out = Vec::new();
    for (i, how) in CODECS.into_iter().enumerate() {
        let row = rows.entry(i).or_default();
        let start = Instant::now();
        let packed: Result<Vec<Vec<u8>>> =
            baskets.iter().map(|basket| how.compress(&basket.data, &mut room)).collect();
        let (packed, write) = (packed?, start.elapsed().as_secs_f64());
        let start = Instant::now();
        for (basket, stored) in baskets.iter().zip(&packed) {
            how.decompress(stored, basket.data.len(), &mut out, &mut room)?;
            std::hint::black_box(&out);
        }
        let read = start.elapsed().as_secs_f64();
        for (basket, stored) in baskets.iter().zip(&packed) {
            how.decompress(stored, basket.data.len(), &mut out, &mut room)?;
            if out != basket.data {
                return Err(format!("{}: other bytes came back", how.name()).into());
            }
        }
        if round == 0 {
            row.stored += packed.iter().map(Vec::len).sum::<usize>();
        }
        row.write.resize(row.write.len().max(round + 1), 0.0);
        row.read.resize(row.read.len().max(round + 1), 0.0);
        row.write[round] += write;
        row.read[round] += read;
    }
    Ok(())
}

/// The same events written by fiche, and read in order: a file in memory.
fn rewritten(reader: &Reader, access: Access) -> Result<Vec<u8>> {
    let options = Options::default().access(access).threads(1);
    let mut writer = Writer::new(Vec::new(), reader.schema().clone(), options)?;
    let all = reader.read(0..reader.len(), None)?;
    writer.extend(&all)?;
    Ok(writer.finish()?)
}

/// A file that lies somewhere, of which it is counted what is read.
struct Counted {
    file: File,
    read: Arc<AtomicU64>,
}

impl ReadAt for Counted {
    fn len(&self) -> u64 {
        self.file.metadata().map_or(0, |known| known.len())
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> fiche::Result<()> {
        self.read.fetch_add(buf.len() as u64, Ordering::Relaxed);
        Ok(self.file.read_exact_at(buf, offset)?)
    }
}

/// Events that lie in a file.
enum Laid {
    /// Baskets, each with where it is stored, and how it is compressed.
    Baskets {
        path: PathBuf,
        how: Option<How>,
        /// Of each branch its baskets: first event, place, stored bytes, bytes.
        of: Vec<Vec<(usize, u64, usize, usize)>>,
        stored: usize,
        /// The image that it lies in, and where that is mounted.
        mount: Option<(PathBuf, Mount)>,
    },
    Fiche {
        path: PathBuf,
        stored: usize,
    },
}

impl Laid {
    fn baskets(branches: &[Branch], len: usize, how: Option<How>, path: PathBuf) -> Result<Laid> {
        let mut of = vec![Vec::new(); branches.len()];
        let (mut bytes, mut room) = (Vec::new(), Room::default());
        for basket in baskets(branches, len) {
            let stored = match how {
                Some(how) => how.compress(&basket.data, &mut room)?,
                None => basket.data.clone(),
            };
            let place = (basket.first, bytes.len() as u64, stored.len(), basket.data.len());
            of[basket.branch].push(place);
            bytes.extend_from_slice(&stored);
        }
        std::fs::write(&path, &bytes)?;
        Ok(Laid::Baskets { path, how, of, stored: bytes.len(), mount: None })
    }

    /// Baskets that are not compressed, on a SquashFS of such blocks.
    fn squashed(branches: &[Branch], block: usize, folder: &Path) -> Result<Laid> {
        let tree = folder.join("tree");
        std::fs::create_dir_all(&tree)?;
        let laid = Laid::baskets(branches, BASKET, None, tree.join("baskets"))?;
        let Laid::Baskets { of, .. } = laid else {
            return Err("no baskets".into());
        };
        let (image, point) = (folder.join("image"), folder.join("mounted"));
        let (from, to) = (tree.to_string_lossy(), image.to_string_lossy());
        let size = show(block);
        let quiet = ["-noappend", "-quiet", "-no-progress", "-no-xattrs"];
        command(
            "mksquashfs",
            &[[&*from, &to, "-comp", "gzip", "-b", &size].as_slice(), &quiet].concat(),
        )?;
        std::fs::remove_dir_all(&tree)?;
        std::fs::create_dir_all(&point)?;
        let stored = std::fs::metadata(&image)?.len() as usize;
        let path = point.join("baskets");
        mount(&image, &point)?;
        let mount = Some((image, Mount { point }));
        Ok(Laid::Baskets { path, how: None, of, stored, mount })
    }

    fn fiche(reader: &Reader, access: Access, path: PathBuf) -> Result<Laid> {
        let bytes = rewritten(reader, access)?;
        std::fs::write(&path, &bytes)?;
        Ok(Laid::Fiche { path, stored: bytes.len() })
    }

    /// Nothing that was read stays in memory. SquashFS keeps blocks that the system does not know of.
    fn forget(&self) -> Result<()> {
        command("sync", &[])?;
        if let Laid::Baskets { mount: Some((image, Mount { point })), .. } = self {
            command("umount", &[&point.to_string_lossy()])?;
            mount(image, point)?;
        }
        Ok(std::fs::write("/proc/sys/vm/drop_caches", "3")?)
    }

    fn stored(&self) -> usize {
        match self {
            Laid::Baskets { stored, .. } | Laid::Fiche { stored, .. } => *stored,
        }
    }

    /// Reads every so-manyth event; returns the sum of their bytes, and how many bytes were fetched from the file.
    fn read(&self, branches: &[Branch], events: usize, step: usize) -> Result<(u64, u64)> {
        match self {
            Laid::Baskets { path, how, of, mount, .. } => {
                let file = File::open(path)?;
                let sectors = |mount: &(PathBuf, Mount)| sectors(&mount.1.point);
                let before = mount.as_ref().map(sectors).transpose()?;
                let mut room = Room::default();
                // Of each branch the basket that was read last, and its bytes.
                let mut last: Vec<(usize, Vec<u8>)> = vec![(usize::MAX, Vec::new()); of.len()];
                let (mut all, mut fetched) = (0, 0);
                for event in (0..events).step_by(step) {
                    for ((branch, of), (known, bytes)) in branches.iter().zip(of).zip(&mut last) {
                        let is_in = |i: usize| of.get(i + 1).is_none_or(|next| next.0 > event);
                        if *known == usize::MAX || !is_in(*known) {
                            *known = of.partition_point(|basket| basket.0 <= event) - 1;
                            let (_, place, stored, len) = of[*known];
                            fetched += stored as u64;
                            match how {
                                Some(how) => {
                                    room.stored.resize(stored, 0);
                                    let mut packed = std::mem::take(&mut room.stored);
                                    file.read_exact_at(&mut packed, place)?;
                                    how.decompress(&packed, len, bytes, &mut room)?;
                                    room.stored = packed;
                                }
                                None => {
                                    bytes.resize(len, 0);
                                    file.read_exact_at(bytes, place)?;
                                }
                            }
                        }
                        let base = branch.start(of[*known].0);
                        all += sum(&bytes[branch.start(event) - base..branch.ends[event] - base]);
                    }
                }
                if let (Some(before), Some(mount)) = (before, mount) {
                    fetched = sectors(mount)? - before;
                }
                Ok((all, fetched))
            }
            Laid::Fiche { path, .. } => {
                let read = Arc::new(AtomicU64::new(0));
                let source = Counted { file: File::open(path)?, read: read.clone() };
                let reader = Reader::open(Arc::new(source))?.threads(1);
                let names: Vec<&str> = reader.schema().fields.iter().map(|f| &*f.name).collect();
                let columns = reader.select(&names)?;
                let mut batch = Batch::new(reader.schema())?;
                let mut all = 0;
                let numbers: Vec<u64> = (0..events as u64).step_by(step).collect();
                for some in numbers.chunks(TOGETHER) {
                    let taken;
                    let batch = if step == 1 {
                        reader.read_into(
                            some[0]..some[0] + some.len() as u64,
                            &columns,
                            &mut batch,
                        )?;
                        &batch
                    } else {
                        taken = reader.take(some, None)?;
                        &taken
                    };
                    let layout = batch.layout();
                    for (c, column) in layout.columns().iter().enumerate() {
                        if column.role != Role::Counts || column.level != 0 {
                            all += sum(batch.bytes(c));
                        }
                    }
                }
                Ok((all, read.load(Ordering::Relaxed)))
            }
        }
    }
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().map(|&byte| u64::from(byte)).sum()
}

fn mount(image: &Path, point: &Path) -> Result<()> {
    let (image, point) = (image.to_string_lossy(), point.to_string_lossy());
    command("mount", &["-t", "squashfs", "-o", "loop,ro", &image, &point]).map(drop)
}

/// Bytes that were read from the device of what is mounted, since it is there.
fn sectors(point: &Path) -> Result<u64> {
    let device = std::fs::metadata(point)?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let text = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat"))?;
    let sectors = text.split_whitespace().nth(2).and_then(|n| n.parse::<u64>().ok());
    Ok(512 * sectors.ok_or("a device does not tell what was read of it")?)
}

/// What was measured of a way to lay events out.
struct Row {
    file: String,
    way: String,
    len: usize,
    bytes: usize,
    stored: usize,
    /// Of each step: bytes that a cold cache fetches, and seconds with a hot one.
    steps: [(u64, f64); 3],
}

fn ways(
    file: &str,
    reader: &Reader,
    branches: &[Branch],
    args: &Args,
    folder: &Path,
) -> Result<Vec<Row>> {
    let events = reader.len() as usize;
    let bytes = baskets(branches, BASKET).iter().map(|basket| basket.data.len()).sum();
    let wanted: Vec<u64> = (STEPS.iter())
        .map(|&step| {
            let of = |branch: &Branch| {
                let events = (0..events).step_by(step);
                events.map(|i| sum(&branch.bytes[branch.start(i)..branch.ends[i]])).sum::<u64>()
            };
            branches.iter().map(of).sum()
        })
        .collect();
    let mut rows = Vec::new();
    let mut each = |way: String, len: usize, laid: Result<Laid>| -> Result<()> {
        let laid = match laid {
            Ok(laid) => laid,
            Err(error) => {
                eprintln!("SKIP: {way} of {file}: {error}");
                return Ok(());
            }
        };
        let mut steps = [(0, 0.0); 3];
        for ((step, found), wanted) in STEPS.into_iter().zip(&mut steps).zip(&wanted) {
            laid.forget()?;
            let (all, fetched) = laid.read(branches, events, step)?;
            let mut times = Vec::new();
            for _ in 0..args.rounds {
                let start = Instant::now();
                let (again, _) = laid.read(branches, events, step)?;
                times.push(start.elapsed().as_secs_f64());
                if all != *wanted || again != all {
                    return Err(format!("{way} of {file}: other bytes came back").into());
                }
            }
            *found = (fetched, median(&times));
        }
        rows.push(Row { file: file.to_owned(), way, len, bytes, stored: laid.stored(), steps });
        Ok(())
    };
    for len in BLOCKS {
        each("SquashFS gzip".to_owned(), len, Laid::squashed(branches, len, folder))?;
        let how = How::Zlib(6);
        let laid = Laid::baskets(branches, len, Some(how), folder.join("baskets"));
        each("baskets zlib 6".to_owned(), len, laid)?;
    }
    for access in [Access::Event, Access::Block, Access::Scan] {
        let name = format!("fiche {access:?}").to_lowercase();
        each(name, 0, Laid::fiche(reader, access, folder.join("events.fiche")))?;
    }
    Ok(rows)
}

pub fn run(args: &Args) -> Result<()> {
    let folder = args.output.join("baskets.tmp");
    std::fs::create_dir_all(&folder)?;
    let mut rows = BTreeMap::new();
    let mut ours: [Coded; 3] = Default::default();
    let (mut laid, mut bytes, mut names) = (Vec::new(), 0, Vec::new());
    for path in &args.files {
        let name = path.file_stem().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
        eprintln!("{name}");
        let reader = Reader::open(Arc::new(std::fs::read(path)?))?.threads(1);
        let branches = branches(&reader)?;
        let baskets = baskets(&branches, BASKET);
        bytes += baskets.iter().map(|basket| basket.data.len()).sum::<usize>();
        for round in 0..args.rounds {
            codecs(&baskets, round, &mut rows)?;
            for (access, row) in [Access::Event, Access::Block, Access::Scan].iter().zip(&mut ours)
            {
                let start = Instant::now();
                let file = rewritten(&reader, *access)?;
                let write = start.elapsed().as_secs_f64();
                row.stored += if round == 0 { file.len() } else { 0 };
                let again = Reader::open(Arc::new(file))?.threads(1);
                let start = Instant::now();
                std::hint::black_box(again.read(0..again.len(), None)?);
                let read = start.elapsed().as_secs_f64();
                row.write.resize(row.write.len().max(round + 1), 0.0);
                row.read.resize(row.read.len().max(round + 1), 0.0);
                row.write[round] += write;
                row.read[round] += read;
            }
        }
        laid.extend(ways(&name, &reader, &branches, args, &folder)?);
        names.push(format!("{name} ({} events, {} branches)", reader.len(), branches.len()));
    }
    std::fs::remove_dir_all(&folder)?;
    let mut coded: Vec<(String, Coded)> =
        rows.into_iter().map(|(i, row)| (CODECS[i].name(), row)).collect();
    for (access, row) in [Access::Event, Access::Block, Access::Scan].iter().zip(ours) {
        coded.push((format!("fiche {access:?}").to_lowercase(), row));
    }
    std::fs::write(args.output.join("events-baskets.csv"), csv(bytes, &coded, &laid))?;
    let text = text(bytes, &coded, &laid, &names, args);
    Ok(std::fs::write(args.output.join("events-baskets.md"), text)?)
}

fn text(
    bytes: usize,
    coded: &[(String, Coded)],
    laid: &[Row],
    names: &[String],
    args: &Args,
) -> String {
    let mut out = format!(
        "# Events in baskets\n\n{}: {bytes} bytes as ROOT has them uncompressed, branch by branch in baskets of {BASKET} bytes, numbers big-endian, with where events \
         begin for lists. One thread, medians of {} rounds.\n\n## Codecs\n\nEach basket alone, as ROOT does; zlib is zlib-rs. fiche has the same events as columns, and writing them \
         includes learning.\n\n| codec | compression, s | decompression, s | bytes | ratio | compression, MB/s | decompression, MB/s |\n|---|---|---|---|---|---|---|\n",
        names.join(", "),
        args.rounds
    );
    for (name, row) in coded {
        let (write, read) = (median(&row.write), median(&row.read));
        let _ = writeln!(
            out,
            "| {name} | {write:.3} | {read:.3} | {} | {:.2} | {:.1} | {:.0} |",
            row.stored,
            bytes as f64 / row.stored as f64,
            speed(bytes, write),
            speed(bytes, read),
        );
    }
    out += "\n## SquashFS below a file that is not compressed (Figures 13 to 19)\n\nSquashFS has baskets of the length above, uncompressed, in blocks of its own, with gzip; `baskets` are \
            compressed themselves, of the length that is given. Whoever reads keeps the last basket of each branch. Every event, every tenth, every hundredth: bytes \
            fetched when nothing is in memory (of SquashFS what its device was asked for, with what the system reads ahead; of the others what they ask for, fiche with opening), and \
            milliseconds when the file is in the system's cache, where SquashFS has it decompressed.\n\n\
            | file | way | length | ratio | fetched: all | 10th | 100th | ms: all | 10th | 100th |\n|---|---|---|---|---|---|---|---|---|---|\n";
    for row in laid {
        let len = if row.len == 0 { String::new() } else { show(row.len) };
        let _ = write!(
            out,
            "| {} | {} | {len} | {:.2}",
            row.file,
            row.way,
            row.bytes as f64 / row.stored as f64
        );
        for (fetched, _) in row.steps {
            let _ = write!(out, " | {fetched}");
        }
        for (_, seconds) in row.steps {
            let _ = write!(out, " | {:.2}", seconds * 1e3);
        }
        out += " |\n";
    }
    out
}

fn csv(bytes: usize, coded: &[(String, Coded)], laid: &[Row]) -> String {
    let mut out = String::from(
        "file,way,length,bytes,stored,write s,read s,fetched all,fetched 10th,fetched 100th,all s,10th s,100th s\n",
    );
    for (name, row) in coded {
        let (write, read) = (median(&row.write), median(&row.read));
        let _ =
            writeln!(out, "all,{name},{BASKET},{bytes},{},{write:.6},{read:.6},,,,,,", row.stored);
    }
    for row in laid {
        let _ = write!(out, "{},{},{},{},{},,", row.file, row.way, row.len, row.bytes, row.stored);
        for (fetched, _) in row.steps {
            let _ = write!(out, ",{fetched}");
        }
        for (_, seconds) in row.steps {
            let _ = write!(out, ",{seconds:.6}");
        }
        out.push('\n');
    }
    out
}
