//! What each way to write events gives: their size, and how fast they are read.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fiche::Result;
use fiche::events::{Access, Batch, Event, Options, Reader, Writer};
use serde_json::{Value, json};

/// Bytes of values that are written in each way.
const SAMPLE: usize = 64 << 20;
/// Events that are taken together.
const TOGETHER: u64 = 1024;
/// How long each kind of reading is tried.
const LONG: Duration = Duration::from_millis(200);

/// Events written in one way, and what reading them takes.
pub struct Row {
    pub access: Access,
    pub stored: u64,
    /// Bytes of values that were written a second.
    pub written: f64,
    /// Microseconds of one event.
    pub one: f64,
    /// Events a second, some at random together.
    pub together: f64,
    /// Bytes of values a second, all in order.
    pub all: f64,
}

/// What was measured, and of how much.
pub struct Frontier {
    pub events: u64,
    pub bytes: u64,
    pub rows: Vec<Row>,
}

/// Writes the first events of a file in each way, in memory, and reads them, on one thread.
///
/// # Errors
/// Those of reading the file.
pub fn measure(reader: &Reader) -> Result<Frontier> {
    let few = reader.read(0..reader.len().min(TOGETHER), None)?;
    let each = few.size().div_ceil(few.len().max(1)).max(1);
    let events = reader.len().min((SAMPLE / each).max(1) as u64);
    let batch = reader.read(0..events, None)?;
    let bytes = batch.size() as u64;
    let rows =
        [Access::Event, Access::Block, Access::Scan].map(|access| row(reader, &batch, access));
    Ok(Frontier { events, bytes, rows: rows.into_iter().collect::<Result<_>>()? })
}

fn row(reader: &Reader, batch: &Batch, access: Access) -> Result<Row> {
    let options = Options::default().access(access).threads(1);
    let start = Instant::now();
    let mut writer = Writer::new(Vec::new(), reader.schema().clone(), options)?;
    writer.extend(batch)?;
    let file = writer.finish()?;
    let written = start.elapsed().as_secs_f64();
    let stored = file.len() as u64;
    let written = batch.size() as f64 / written;
    let reader = Reader::open(Arc::new(file))?.threads(1);
    let mut row = Row { access, stored, written, one: 0.0, together: 0.0, all: 0.0 };
    if reader.is_empty() {
        return Ok(row);
    }
    // Numbers as if by chance, the same each time (Knuth's linear congruence).
    let mut state = 1u64;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % reader.len()
    };
    let mut event = Event::default();
    row.one = 1e6 * seconds(|| reader.event_into(next(), &mut event))?;
    let some: Vec<u64> = (0..TOGETHER).map(|_| next()).collect();
    let took = seconds(|| reader.take(&some, None).map(|batch| drop(black_box(batch))))?;
    row.together = TOGETHER as f64 / took;
    let took = seconds(|| reader.read(0..reader.len(), None).map(|batch| drop(black_box(batch))))?;
    row.all = batch.size() as f64 / took;
    Ok(row)
}

/// Seconds that something takes, done for a while.
fn seconds(mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    work()?;
    let (start, mut count) = (Instant::now(), 0);
    while count == 0 || start.elapsed() < LONG {
        work()?;
        count += 1;
    }
    Ok(start.elapsed().as_secs_f64() / f64::from(count))
}

/// As it is asked for.
pub fn name(access: Access) -> &'static str {
    match access {
        Access::Block => "block",
        Access::Scan => "scan",
        _ => "event",
    }
}

impl Frontier {
    /// As a table.
    pub fn text(&self) -> String {
        let sample =
            format!("{} events, {} of values", self.events, crate::sizes::show(self.bytes));
        let mut out = format!(
            "{sample}, on one thread:\naccess      stored    ratio   written   one event  {TOGETHER} together         all\n"
        );
        for row in &self.rows {
            out += &format!(
                "{:6}  {:>10}  {:>6.2}x  {:>4.0} MB/s  {:>7.2} us  {:>9.0} /s  {:>6.0} MB/s\n",
                name(row.access),
                crate::sizes::show(row.stored),
                self.bytes as f64 / row.stored.max(1) as f64,
                row.written / 1e6,
                row.one,
                row.together,
                row.all / 1e6,
            );
        }
        out
    }

    /// As JSON: bytes, microseconds, and how many a second.
    pub fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            json!({
                "access": name(row.access),
                "stored_bytes": row.stored,
                "written_bytes_per_second": row.written as u64,
                "event_microseconds": row.one,
                "together_events_per_second": row.together as u64,
                "all_bytes_per_second": row.all as u64,
            })
        });
        let rows: Vec<Value> = rows.collect();
        json!({ "events": self.events, "bytes": self.bytes, "ways": rows })
    }
}
