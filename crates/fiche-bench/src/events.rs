//! Events as Zhang's *Exploring Compression Techniques of ROOT IO* (2017) measures them: TDummy objects in baskets (its Figures 1 to 9), and TInt, TSmall
//! and TLarge, each event compressed alone (RAC, Figures 10 to 12), beside fiche's packets.

use std::fmt::Write as _;
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fiche::codec::{Codec, Scratch};
use fiche::events::{Access, Batch, Event, Field, Number, Options, Reader, Schema, Type, Writer};
use fiche::testing::Random;

use crate::engine::Result;

#[derive(clap::Args)]
pub struct Args {
    /// Where the table and the CSV go
    #[arg(long, short, value_name = "DIR")]
    output: PathBuf,
    /// MiB of values of each kind of events; the paper has 400
    #[arg(long, default_value_t = 64)]
    mib: usize,
    /// Rounds; times are medians of them
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Events that are read at random at most, each time
    #[arg(long, default_value_t = 20_000)]
    reads: usize,
}

/// ROOT's default: what a basket holds before it is compressed.
pub const BASKET: usize = 32_000;
/// Random events are read no longer than so.
const LONG: Duration = Duration::from_millis(500);

/// Events of one kind: the values of each, all of the same number, as numbers of four bytes.
struct Kind {
    name: String,
    what: Number,
    /// Values of an event.
    each: usize,
    values: Vec<u32>,
}

impl Kind {
    fn len(&self) -> usize {
        self.values.len() / self.each
    }

    fn bytes(&self) -> usize {
        4 * self.values.len()
    }

    /// As ROOT has them: big-endian, event behind event.
    fn serialized(&self) -> Vec<u8> {
        self.values.iter().flat_map(|value| value.to_be_bytes()).collect()
    }
}

/// Six times the same number of 31 bits.
fn tint(bytes: usize) -> Kind {
    let mut random = Random(1);
    let value = |random: &mut Random| (random.number() >> 33) as u32;
    let values = (0..bytes / 24).flat_map(|_| [value(&mut random); 6]).collect();
    Kind { name: "TInt".to_owned(), what: Number::I32, each: 6, values }
}

/// Numbers from 0 to 1, each six times.
fn repeated(name: &str, each: usize, bytes: usize) -> Kind {
    let mut random = Random(each as u64);
    let mut values = Vec::new();
    for _ in 0..(bytes / 4 / each).max(1) {
        let mut value = 0.0f32;
        values.extend((0..each).map(|i| {
            if i % 6 == 0 {
                value = random.below(1 << 24) as f32 / (1 << 24) as f32;
            }
            value.to_bits()
        }));
    }
    Kind { name: name.to_owned(), what: Number::F32, each, values }
}

/// Every byte one of four letters: 65, 25, 5 and 5 of a hundred.
fn tdummy(each: usize, bytes: usize) -> Kind {
    let mut random = Random(each as u64);
    let mut letter = || match random.below(100) {
        0..65 => b'a',
        65..90 => b'b',
        90..95 => b'c',
        _ => b'd',
    };
    let count = (bytes / 4 / each).max(1) * each;
    let values =
        (0..count).map(|_| u32::from_be_bytes([letter(), letter(), letter(), letter()])).collect();
    let name = match 4 * each {
        ..1000 => format!("{} B", 4 * each),
        1000..1_000_000 => format!("{} KB", 4 * each / 1000),
        _ => format!("{} MB", 4 * each / 1_000_000),
    };
    Kind { name, what: Number::F32, each, values }
}

/// How events are kept.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// Baskets of many events.
    Baskets(Codec, i32),
    /// Each event alone, and where it begins as four bytes.
    Alone(Codec, i32),
    Fiche(Access),
}

impl Way {
    fn name(self) -> String {
        let codec = |codec: Codec, level: i32| match codec {
            Codec::Deflate => format!("zlib-{level}"),
            codec => format!("{}-{level}", codec.name()),
        };
        match self {
            Way::Baskets(what, level) => format!("baskets {}", codec(what, level)),
            Way::Alone(what, level) => format!("RAC {}", codec(what, level)),
            Way::Fiche(access) => format!("fiche {access:?}").to_lowercase(),
        }
    }
}

/// Events that were written.
enum Written {
    Pieces {
        codec: Codec,
        bytes: Vec<u8>,
        ends: Vec<usize>,
        events: usize,
        each: usize,
        all: usize,
        stored: usize,
    },
    Fiche(Reader, usize),
}

fn write(kind: &Kind, way: Way) -> Result<Written> {
    let (codec, level, events) = match way {
        Way::Fiche(access) => return write_fiche(kind, access),
        Way::Baskets(codec, level) => (codec, level, (BASKET / 4 / kind.each).max(1)),
        Way::Alone(codec, level) => (codec, level, 1),
    };
    let content = kind.serialized();
    let each = 4 * kind.each;
    let (mut bytes, mut ends, mut scratch) = (Vec::new(), Vec::new(), Scratch::default());
    let mut piece = vec![0; events * each];
    for events in content.chunks(events * each) {
        let (src, dst) = (events.into(), (&mut piece[..events.len()]).into());
        match codec.compress(level, src, dst, &mut scratch)? {
            Some(len) => bytes.extend_from_slice(&piece[..len]),
            // As ROOT does where nothing is saved.
            None => bytes.extend_from_slice(events),
        }
        ends.push(bytes.len());
    }
    // Offsets of four bytes: of each event that is compressed alone, else of each basket.
    let stored = bytes.len() + 4 * ends.len();
    Ok(Written::Pieces { codec, bytes, ends, events, each, all: content.len(), stored })
}

fn write_fiche(kind: &Kind, access: Access) -> Result<Written> {
    let schema = Schema::new(match kind.name.as_str() {
        // Six fields, as the class has.
        "TInt" => (0..6).map(|i| Field::new(format!("f{i}"), kind.what)).collect(),
        _ => vec![Field::new("values", Type::from(kind.what).array(kind.each as u32))],
    })?;
    let options = Options::default().access(access).threads(1);
    let mut writer = Writer::new(Vec::new(), schema.clone(), options)?;
    let mut batch = Batch::new(&schema)?;
    let columns = schema.fields.len();
    for events in kind.values.chunks(((1 << 21) / kind.each).max(1) * kind.each) {
        batch.clear();
        for column in 0..columns {
            let of = events.iter().skip(column).step_by(columns);
            let bytes: Vec<u8> = of.flat_map(|value| value.to_le_bytes()).collect();
            batch.put_bytes(column, &bytes)?;
        }
        batch.set_len(events.len() / kind.each);
        writer.extend(&batch)?;
    }
    let file = writer.finish()?;
    let stored = file.len();
    Ok(Written::Fiche(Reader::open(Arc::new(file))?, stored))
}

/// What one thread keeps from read to read.
#[derive(Default)]
struct Room {
    scratch: Scratch,
    piece: Vec<u8>,
    event: Event,
    batch: Option<Batch>,
}

impl Written {
    fn stored(&self) -> usize {
        match self {
            Written::Pieces { stored, .. } => *stored,
            Written::Fiche(_, stored) => *stored,
        }
    }

    /// How many pieces there are, as baskets.
    fn pieces(&self) -> usize {
        match self {
            Written::Pieces { ends, .. } => ends.len(),
            Written::Fiche(..) => 0,
        }
    }

    /// Decodes a piece into the room.
    fn piece(&self, i: usize, room: &mut Room) -> Result<()> {
        let Written::Pieces { codec, bytes, ends, events, each, all, .. } = self else {
            return Ok(());
        };
        let start = if i == 0 { 0 } else { ends[i - 1] };
        let stored = &bytes[start..ends[i]];
        let len = (events * each).min(all - i * events * each);
        room.piece.resize(len, 0);
        if stored.len() == len {
            room.piece.copy_from_slice(stored);
            return Ok(());
        }
        let dst = room.piece.as_mut_slice().into();
        Ok(codec.decompress(stored.into(), dst, &mut room.scratch)?)
    }

    /// The sum of the values of an event.
    fn event(&self, number: usize, room: &mut Room) -> Result<u32> {
        match self {
            Written::Pieces { events, each, .. } => {
                self.piece(number / events, room)?;
                let at = number % events * each;
                Ok(sum(&room.piece[at..at + each]))
            }
            Written::Fiche(reader, _) => {
                reader.event_into(number as u64, &mut room.event)?;
                let layout = reader.layout();
                let columns = 0..layout.columns().len();
                let of = |column: usize| {
                    room.event.bits(column).iter().fold(0, |s: u32, v| s.wrapping_add(v as u32))
                };
                Ok(columns.map(of).fold(0, u32::wrapping_add))
            }
        }
    }

    /// The sum of all values, events in order; without `is_summed` they are only decoded.
    fn scan(&self, room: &mut Room, is_summed: bool) -> Result<u32> {
        let mut all = 0u32;
        match self {
            Written::Pieces { .. } => {
                for i in 0..self.pieces() {
                    self.piece(i, room)?;
                    if is_summed {
                        all = all.wrapping_add(sum(&room.piece));
                    }
                    black_box(&room.piece);
                }
            }
            Written::Fiche(reader, _) => {
                let columns = reader
                    .select(&reader.schema().fields.iter().map(|f| &*f.name).collect::<Vec<_>>())?;
                let batch = room.batch.get_or_insert(Batch::new(reader.schema())?);
                let step = (1 << 20) / 4 / reader.layout().columns().len().max(1) as u64;
                let each = reader.read(0..1, None)?.size() as u64 / 4;
                let step = (step / each.max(1)).max(1);
                let mut next = 0;
                while next < reader.len() {
                    let end = reader.len().min(next + step);
                    reader.read_into(next..end, &columns, batch)?;
                    for column in 0..if is_summed { batch.layout().columns().len() } else { 0 } {
                        let values = batch.bytes(column).chunks_exact(4);
                        let value = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
                        all = values.map(value).fold(all, u32::wrapping_add);
                    }
                    black_box(&*batch);
                    next = end;
                }
            }
        }
        Ok(all)
    }
}

fn sum(bytes: &[u8]) -> u32 {
    let value = |b: &[u8]| u32::from_be_bytes([b[0], b[1], b[2], b[3]]);
    bytes.chunks_exact(4).map(value).fold(0, u32::wrapping_add)
}

/// What was measured of a way, over all rounds: seconds.
#[derive(Default)]
struct Times {
    write: Vec<f64>,
    random: Vec<f64>,
    decode: Vec<f64>,
    scan: Vec<f64>,
}

pub fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = |at: usize| sorted.get(at).copied().unwrap_or(f64::NAN);
    // Of an even number both in the middle.
    (middle(sorted.len() / 2) + middle(sorted.len().saturating_sub(1) / 2)) / 2.0
}

struct Measured {
    kind: String,
    way: String,
    events: usize,
    bytes: usize,
    stored: usize,
    pieces: usize,
    times: Times,
}

/// Writes and reads events in all ways, one after the other in each round.
fn measure(kind: &Kind, ways: &[Way], args: &Args) -> Result<Vec<Measured>> {
    let expected = kind.values.iter().fold(0, |sum: u32, &value| sum.wrapping_add(value));
    let mut measured: Vec<Measured> = Vec::new();
    let mut random = Random(7);
    // Of large events no more than there is time for.
    let reads = args.reads.min(20_000_000 / kind.each).max(4);
    let numbers: Vec<usize> =
        (0..reads).map(|_| random.below(kind.len() as u64) as usize).collect();
    for round in 0..args.rounds {
        for (i, &way) in ways.iter().enumerate() {
            let start = Instant::now();
            let written = write(kind, way)?;
            let write = start.elapsed().as_secs_f64();
            if round == 0 {
                measured.push(Measured {
                    kind: kind.name.clone(),
                    way: way.name(),
                    events: kind.len(),
                    bytes: kind.bytes(),
                    stored: written.stored(),
                    pieces: written.pieces(),
                    times: Times::default(),
                });
            }
            let mut room = Room::default();
            written.event(numbers[0], &mut room)?;
            let start = Instant::now();
            let mut read = 0;
            for &number in &numbers {
                black_box(written.event(number, &mut room)?);
                read += 1;
                if start.elapsed() > LONG {
                    break;
                }
            }
            let random = start.elapsed().as_secs_f64() / f64::from(read);
            let start = Instant::now();
            written.scan(&mut room, false)?;
            let decode = start.elapsed().as_secs_f64();
            let start = Instant::now();
            let all = written.scan(&mut room, true)?;
            let scan = start.elapsed().as_secs_f64();
            if all != expected {
                return Err(
                    format!("{} by {}: other values came back", kind.name, way.name()).into()
                );
            }
            let times = &mut measured[i].times;
            times.write.push(write);
            times.random.push(random);
            times.decode.push(decode);
            times.scan.push(scan);
        }
    }
    Ok(measured)
}

pub fn run(args: &Args) -> Result<()> {
    let bytes = args.mib << 20;
    let mut all = Vec::new();
    let mut alone: Vec<Way> = Vec::new();
    for (codec, level) in
        [(Codec::Deflate, 1), (Codec::Deflate, 6), (Codec::Lz4, 1), (Codec::Zstd, 3)]
    {
        alone.extend([Way::Baskets(codec, level), Way::Alone(codec, level)]);
    }
    alone.extend([Access::Event, Access::Block, Access::Scan].map(Way::Fiche));
    let large = (bytes / 4_000_000).max(1) * 4_000_000;
    let kinds =
        [tint(bytes), repeated("TSmall", 1000, bytes), repeated("TLarge", 1_000_000, large)];
    for kind in &kinds {
        eprintln!("{}", kind.name);
        all.extend(measure(kind, &alone, args)?);
    }
    let sizes = [10, 100, 1000, 10_000, 100_000, 1_000_000];
    let mut levels: Vec<Way> = Vec::new();
    for level in [1, 6] {
        levels.push(Way::Baskets(Codec::Deflate, level));
    }
    levels.extend([1, 5, 9].map(|level| Way::Baskets(Codec::Lz4, level)));
    levels.push(Way::Baskets(Codec::Zstd, 3));
    levels.push(Way::Fiche(Access::Event));
    levels.push(Way::Fiche(Access::Scan));
    let mut dummies = Vec::new();
    for each in sizes {
        let kind = tdummy(each, bytes);
        eprintln!("TDummy {}", kind.name);
        dummies.extend(measure(&kind, &levels, args)?);
    }
    std::fs::create_dir_all(&args.output)?;
    std::fs::write(args.output.join("events.md"), text(&all, &dummies, args))?;
    Ok(std::fs::write(args.output.join("events.csv"), csv(&all, &dummies))?)
}

fn ratio(row: &Measured) -> f64 {
    row.bytes as f64 / row.stored as f64
}

pub fn speed(bytes: usize, seconds: f64) -> f64 {
    bytes as f64 / seconds / 1e6
}

fn text(all: &[Measured], dummies: &[Measured], args: &Args) -> String {
    let mut out = format!(
        "# Events\n\n{} MiB of values of each kind, {} rounds, times are their medians; one thread; everything lies in memory. zlib is libdeflate; baskets have \
         {BASKET} bytes, or one event if that has more. RAC compresses each event alone and keeps four bytes of where it begins. Values of TInt are of 31 bits, uniform, those of \
         TSmall and TLarge uniform from 0 to 1 in steps of 2^-24.\n\n## Each event alone (Figures 10 to 12)\n\n\
         | events | way | bytes an event | ratio | write, MB/s | a random event, us | all, MB/s |\n|---|---|---|---|---|---|---|\n",
        args.mib, args.rounds
    );
    for row in all {
        let random = median(&row.times.random) * 1e6;
        let _ = writeln!(
            out,
            "| {} | {} | {:.2} | {:.2} | {:.0} | {random:.2} | {:.0} |",
            row.kind,
            row.way,
            row.stored as f64 / row.events as f64,
            ratio(row),
            speed(row.bytes, median(&row.times.write)),
            speed(row.bytes, median(&row.times.scan)),
        );
    }
    out += "\n## Objects of 40 B to 4 MB (Figures 1 to 9)\n\nTDummy: floating point numbers of which each byte is one of four letters (65, 25, 5 and 5 of a hundred). \
            The share of decoding is that of reading all and adding the values up.\n\n\
            | object | way | baskets | bytes of one | ratio | write, MB/s | read all, MB/s | share of decoding |\n|---|---|---|---|---|---|---|---|\n";
    for row in dummies {
        let (decode, scan) = (median(&row.times.decode), median(&row.times.scan));
        let (count, each) = match row.pieces {
            0 => (String::new(), String::new()),
            n => (n.to_string(), (row.stored / n).to_string()),
        };
        let _ = writeln!(
            out,
            "| {} | {} | {count} | {each} | {:.2} | {:.0} | {:.0} | {:.0} % |",
            row.kind,
            row.way,
            ratio(row),
            speed(row.bytes, median(&row.times.write)),
            speed(row.bytes, scan),
            100.0 * (decode / scan).min(1.0),
        );
    }
    out
}

fn csv(all: &[Measured], dummies: &[Measured]) -> String {
    let mut out = String::from(
        "kind,way,events,bytes,stored,baskets,write s,random event s,decode s,scan s\n",
    );
    for row in all.iter().chain(dummies) {
        let Measured { kind, way, events, bytes, stored, pieces, times } = row;
        let Times { write, random, decode, scan } = times;
        let _ = writeln!(
            out,
            "{kind},{way},{events},{bytes},{stored},{pieces},{:.6},{:.9},{:.6},{:.6}",
            median(write),
            median(random),
            median(decode),
            median(scan)
        );
    }
    out
}
