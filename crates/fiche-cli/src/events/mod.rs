//! `fiche events`

mod frontier;
mod infer;
mod print;
mod put;

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, IsTerminal, Read, Seek, Write};
use std::path::{Path, PathBuf};

use fiche::Error;
use fiche::events::{Access, Batch, Columns, Field, Options, Reader, Role, Schema, Type, Writer};
use serde_json::{Value, json};

use self::infer::Seen;
use self::print::Printer;
use self::put::Shape;
use crate::input::{self, Threads};
use crate::output::Output;
use crate::sizes::show;
use crate::ui::{self, Failed, Progress, say};

/// Files of events: records with the same fields, of which any one is read on its own
#[derive(clap::Subcommand)]
pub enum Verb {
    Pack(PackArgs),
    Append(AppendArgs),
    Ls(LsArgs),
    Info(InfoArgs),
    Cat(CatArgs),
    Take(TakeArgs),
    Find(FindArgs),
    Root(RootArgs),
    Parquet(ParquetArgs),
}

/// Files of ROOT: list them, compare, repack, and write them again, by Python's package and uproot
///
/// Runs python3 -m fiche.events.root, or another Python that FICHE_PYTHON names. It wants uproot.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct RootArgs {
    /// ls FILE, compare FILE:TREE, repack FILE:TREE -o FILE, or export FILE -o FILE; --help tells of more
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<std::ffi::OsString>,
}

/// Turn files of Parquet into files of events, and back: by Python's package, with pyarrow
///
/// Runs python3 -m fiche.events.parquet, or another Python that FICHE_PYTHON names.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct ParquetArgs {
    /// pack FILE.parquet or unpack FILE.fiche, with -o FILE; --help tells of more
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<std::ffi::OsString>,
}

/// Pack JSON lines: an object on each, whose keys are the fields
///
/// All lines are read twice: first to see what types fields have, then to write them.
#[derive(clap::Args)]
pub struct PackArgs {
    /// The lines, or - for standard input
    file: PathBuf,
    /// The file of events to write
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// What reads are to be fast: of single events, of some hundreds, or of all of them
    #[arg(long, value_enum, default_value = "event")]
    access: AccessArg,
    /// How many events are decoded for one, instead
    #[arg(long, value_name = "EVENTS")]
    packet: Option<usize>,
    /// The types of fields, instead of those that are found: {run: uint32, pt: var * float32}
    #[arg(long, value_name = "TYPES")]
    types: Option<String>,
    /// Fields that events are to be found by, numbers or texts: fiche events find
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    key: Vec<String>,
    /// Print what the first events take with each --access, and how fast they are read then
    #[arg(long)]
    frontier: bool,
    /// Replace a file that is there already
    #[arg(long, short)]
    force: bool,
    #[command(flatten)]
    threads: Threads,
    /// Print what was packed as JSON
    #[arg(long)]
    json: bool,
    /// Print nothing but errors
    #[arg(long, short)]
    quiet: bool,
}

/// Add events to a file: JSON lines with the fields that it has
///
/// The file is valid at every moment: interrupted, it is what it was.
#[derive(clap::Args)]
pub struct AppendArgs {
    /// The file of events to add to
    file: PathBuf,
    /// The lines, or - for standard input
    lines: PathBuf,
    #[command(flatten)]
    threads: Threads,
    /// Print nothing but errors
    #[arg(long, short)]
    quiet: bool,
}

/// Show how each column is coded, and what it takes: all events are read for that
#[derive(clap::Args)]
pub struct InfoArgs {
    /// The file of events
    file: PathBuf,
    /// Print what the first events take when they are packed with each --access, and how fast they are read then
    #[arg(long)]
    frontier: bool,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// Print the events in which fields have some values, as JSON lines
///
/// By the fields that a file was packed to be found by (pack --key) it is fast; by others all events are read.
#[derive(clap::Args)]
pub struct FindArgs {
    /// The file of events
    file: PathBuf,
    /// Fields, numbers or texts, and what they are to be: run=7
    #[arg(required = true, value_name = "NAME=VALUE")]
    key: Vec<String>,
    /// Only these fields
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    fields: Option<Vec<String>>,
    /// Print the numbers of events instead
    #[arg(long)]
    numbers: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum AccessArg {
    Event,
    Block,
    Scan,
}

/// Show the fields of events, and their types
#[derive(clap::Args)]
pub struct LsArgs {
    /// The file of events
    file: PathBuf,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// Print events as JSON lines
///
/// What is not there is null, and so is a number that JSON has no word for; bytes are in base64.
#[derive(clap::Args)]
pub struct CatArgs {
    /// The file of events
    file: PathBuf,
    /// Only so many events, from one on: START+COUNT
    #[arg(long, value_name = "START+COUNT", value_parser = range)]
    range: Option<(u64, u64)>,
    /// Only these fields
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    fields: Option<Vec<String>>,
}

/// Print some events by their numbers, in the order in which they are asked for, as JSON lines
#[derive(clap::Args)]
pub struct TakeArgs {
    /// The file of events
    file: PathBuf,
    /// Numbers of events, from 0 on; - reads them from standard input
    #[arg(required = true)]
    number: Vec<String>,
    /// Only these fields
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    fields: Option<Vec<String>>,
}

/// START+COUNT.
fn range(text: &str) -> Result<(u64, u64), String> {
    let wrong = || format!("{text:?} is not START+COUNT");
    let (start, count) = text.split_once('+').ok_or_else(wrong)?;
    let number = |text: &str| text.replace('_', "").parse::<u64>().map_err(|_| wrong());
    Ok((number(start)?, number(count)?))
}

pub fn run(verb: Verb) -> Result<(), Failed> {
    match verb {
        Verb::Pack(args) => pack(args),
        Verb::Append(args) => append(args),
        Verb::Ls(args) => ls(args),
        Verb::Info(args) => info(args),
        Verb::Cat(args) => cat(args),
        Verb::Take(args) => take(args),
        Verb::Find(args) => find(args),
        Verb::Root(args) => python("fiche.events.root", &args.args),
        Verb::Parquet(args) => python("fiche.events.parquet", &args.args),
    }
}

/// Events that are gathered together at most, and bytes of them.
const TOGETHER: usize = 4096;
const BYTES: usize = 4 << 20;

/// How many events are read and printed together: as many as are some bytes of the file.
fn together(reader: &Reader) -> u64 {
    const STORED: u64 = 1 << 20;
    let each = reader.stored_len() / reader.len().max(1) + 1;
    (STORED / each).clamp(1, 1 << 16)
}

fn open(file: &Path) -> Result<Reader, Failed> {
    let reader = Reader::open(input::source(file)?).map_err(|e| Failed::at(file, e))?;
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    Ok(reader.threads(threads))
}

fn ls(args: LsArgs) -> Result<(), Failed> {
    let reader = open(&args.file)?;
    let fields = &reader.schema().fields;
    if args.json {
        let fields = fields.iter().map(|field| {
            let notes: serde_json::Map<String, Value> =
                field.notes.iter().map(|(name, note)| (name.clone(), json!(note))).collect();
            json!({"name": field.name, "type": field.what.to_string(), "notes": notes})
        });
        let notes: serde_json::Map<String, Value> =
            reader.schema().notes.iter().map(|(name, note)| (name.clone(), json!(note))).collect();
        let fields: Vec<Value> = fields.collect();
        let report = json!({"events": reader.len(), "fields": fields, "notes": notes});
        return ui::print(format!("{report:#}\n").as_bytes());
    }
    let width = fields.iter().map(|field| field.name.chars().count()).max().unwrap_or(0);
    let mut out = String::new();
    for field in fields {
        let name = ui::one_line(field.name.as_bytes());
        out += &format!("{name:width$}  {}\n", field.what);
    }
    ui::print(out.as_bytes())
}

/// That there are not so many events.
fn beyond(asked: u64, len: u64) -> Error {
    Error::Invalid {
        what: format!("events are asked for up to number {asked}: there are {len}").into(),
    }
}

/// The fields that are asked for, and what prints them.
fn printer(
    reader: &Reader,
    fields: Option<&Vec<String>>,
) -> Result<(Option<Columns>, Printer), Failed> {
    let columns = fields.map(|fields| reader.select(fields)).transpose()?;
    let wanted = |name: &str| fields.is_none_or(|fields| fields.iter().any(|field| field == name));
    Ok((columns, Printer::new(reader.schema(), wanted)))
}

fn cat(args: CatArgs) -> Result<(), Failed> {
    let at = |e| Failed::at(&args.file, e);
    let reader = open(&args.file)?;
    let (columns, printer) = printer(&reader, args.fields.as_ref())?;
    let (start, end) = match args.range {
        None => (0, reader.len()),
        Some((start, count)) => {
            let range = start..start.saturating_add(count);
            if range.end > reader.len() {
                return Err(at(beyond(range.end - 1, reader.len())));
            }
            (range.start, range.end)
        }
    };
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut next = start;
    while next < end {
        let some = next..end.min(next + together(&reader));
        next = some.end;
        let batch = reader.read(some, columns.as_ref()).map_err(at)?;
        printer.print(&batch, &mut out).map_err(Error::Io)?;
        ui::check_stop()?;
    }
    out.flush().map_err(|e| Error::Io(e).into())
}

fn take(args: TakeArgs) -> Result<(), Failed> {
    let reader = open(&args.file)?;
    let (columns, printer) = printer(&reader, args.fields.as_ref())?;
    let number = |text: &str| {
        let number = text.replace('_', "").parse::<u64>();
        number.map_err(|_| Failed::usage(format!("{text:?} is no number of an event")))
    };
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut print = |numbers: &[u64]| -> Result<(), Failed> {
        let at = |e| Failed::at(&args.file, e);
        if let Some(number) = numbers.iter().find(|&&number| number >= reader.len()) {
            return Err(at(beyond(*number, reader.len())));
        }
        let batch = reader.take(numbers, columns.as_ref()).map_err(at)?;
        printer.print(&batch, &mut out).map_err(|e| Error::Io(e).into())
    };
    let mut some = Vec::new();
    for text in &args.number {
        if text != "-" {
            some.push(number(text)?);
            continue;
        }
        for line in std::io::stdin().lock().lines() {
            let line = line.map_err(|e| Failed::io(Path::new("standard input"), e))?;
            for text in line.split_whitespace() {
                some.push(number(text)?);
            }
            if some.len() as u64 >= together(&reader) {
                print(&std::mem::take(&mut some))?;
            }
        }
    }
    print(&some)?;
    out.flush().map_err(|e| Error::Io(e).into())
}

/// Python takes the place of this program.
fn python(module: &str, args: &[std::ffi::OsString]) -> Result<(), Failed> {
    use std::os::unix::process::CommandExt;

    let python = std::env::var_os("FICHE_PYTHON").unwrap_or_else(|| "python3".into());
    let mut command = std::process::Command::new(&python);
    let error = command.args(["-m", module]).args(args).exec();
    Err(Failed::io(Path::new(&python), error))
}

/// A whole number of a line of JSON that has more than 64 bits: it would come back as another.
fn too_long(line: &[u8]) -> Option<&str> {
    let line = std::str::from_utf8(line).ok()?;
    let (mut rest, mut is_text) = (line, false);
    while let Some(at) = rest.find(['"', '\\', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']) {
        let (before, here) = rest.split_at(at);
        let len = match here.as_bytes()[0] {
            b'"' => {
                is_text = !is_text;
                1
            }
            b'\\' => 1 + here[1..].chars().next().map_or(0, char::len_utf8),
            _ => {
                let is_number = |c: char| c.is_ascii_digit() || ".eE+-".contains(c);
                let len = here.find(|c| !is_number(c)).unwrap_or(here.len());
                let digits = &here[..len];
                let sign = if before.ends_with('-') { "-" } else { "" };
                let is_whole = digits.bytes().all(|byte| byte.is_ascii_digit());
                let number = format!("{sign}{digits}");
                let fits = number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok();
                if !is_text && is_whole && !fits {
                    return Some(digits);
                }
                len
            }
        };
        rest = &here[len..];
    }
    None
}

/// Lines that can be read twice.
struct Lines {
    file: File,
    name: PathBuf,
}

impl Lines {
    /// Those of a file; what comes from standard input or a pipe is kept in a file that nobody else sees.
    fn open(path: &Path) -> Result<Lines, Failed> {
        let name = match path == Path::new("-") {
            true => PathBuf::from("standard input"),
            false => path.to_owned(),
        };
        let failed = |e| Failed::io(&name, e);
        let keep = |from: &mut dyn Read| {
            let mut file = tempfile::tempfile()?;
            std::io::copy(from, &mut file)?;
            std::io::Result::Ok(file)
        };
        let file = if path == Path::new("-") {
            let mut stdin = std::io::stdin().lock();
            if stdin.is_terminal() {
                return Err(Failed::usage(
                    "standard input is a terminal: give it a file or a pipe",
                ));
            }
            keep(&mut stdin).map_err(failed)?
        } else {
            let mut file = File::open(path).map_err(failed)?;
            match file.metadata().map_err(failed)?.is_file() {
                true => file,
                false => keep(&mut file).map_err(failed)?,
            }
        };
        Ok(Lines { file, name })
    }

    fn len(&self) -> Result<u64, Failed> {
        Ok(self.file.metadata().map_err(|e| Failed::io(&self.name, e))?.len())
    }

    /// Calls this with each object, and its line's number from 1 on.
    fn each(
        &mut self,
        progress: &Progress,
        mut with: impl FnMut(Value, u64) -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        let failed = |e| Failed::io(&self.name, e);
        self.file.rewind().map_err(failed)?;
        let mut lines = BufReader::with_capacity(1 << 20, &self.file);
        let (mut line, mut number) = (Vec::new(), 0);
        loop {
            line.clear();
            let bytes = lines.read_until(b'\n', &mut line).map_err(failed)?;
            if bytes == 0 {
                return Ok(());
            }
            number += 1;
            progress.add(bytes as u64)?;
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let value = serde_json::from_slice(&line).map_err(|e| self.wrong(number, &e))?;
            if let Some(digits) = too_long(&line) {
                let what = format!("{digits} has more than 64 bits");
                return Err(self.wrong(number, &what));
            }
            with(value, number)?;
        }
    }

    /// What is wrong with a line.
    fn wrong(&self, line: u64, what: &dyn std::fmt::Display) -> Failed {
        let what = format!("line {line}: {what}");
        Failed::at(&self.name, Error::Invalid { what: what.into() })
    }
}

fn pack(args: PackArgs) -> Result<(), Failed> {
    let mut lines = Lines::open(&args.file)?;
    ui::will_check();
    let schema = match &args.types {
        Some(types) => match types.parse::<Type>()? {
            Type::Record(fields) => Schema::new(fields)?,
            _ => return Err(Failed::usage("the types of fields are written {name: type, ...}")),
        },
        None => inferred(&mut lines, args.quiet)?,
    };
    let (access, options) = (args.access, Options::default().threads(args.threads.count()));
    let options = options.access(match access {
        AccessArg::Event => Access::Event,
        AccessArg::Block => Access::Block,
        AccessArg::Scan => Access::Scan,
    });
    let options = match args.packet {
        Some(events) => options.packet(events),
        None => options,
    };
    let output = Output::create(&args.output, args.force)?;
    if output.is_terminal() {
        return Err(Failed::usage("compressed bytes are not for a terminal: name a file with -o"));
    }
    if args.frontier && args.output.as_os_str() == "-" {
        return Err(Failed::usage("--frontier reads what was packed: name a file with -o"));
    }
    let mut writer = Writer::new(output, schema, options.key(args.key.clone()))?;
    let events = feed(&mut lines, &mut writer, &args.output, args.quiet)?;
    let output = writer.finish()?;
    output.finish()?;
    report(&args, events)
}

/// Adds all lines to a file of events; returns how many they were.
fn feed<W: Write>(
    lines: &mut Lines,
    writer: &mut Writer<W>,
    output: &Path,
    quiet: bool,
) -> Result<u64, Failed> {
    let schema = writer.schema().clone();
    let shapes = Shape::all(&schema);
    let mut batch = Batch::new(&schema)?;
    let progress = Progress::new("packing", Some(lines.len()?), quiet);
    let name = lines.name.clone();
    let (mut events, mut pending) = (0u64, 0);
    lines.each(&progress, |value, line| {
        put::event(&shapes, &value, &mut batch).map_err(|what| {
            let what = format!("line {line}: {what}");
            Failed::at(&name, Error::Invalid { what: what.into() })
        })?;
        (events, pending) = (events + 1, pending + 1);
        if pending == TOGETHER || batch.size() >= BYTES {
            batch.set_len(pending);
            writer.extend(&batch).map_err(|e| Failed::at(output, e))?;
            batch.clear();
            pending = 0;
        }
        Ok(())
    })?;
    batch.set_len(pending);
    writer.extend(&batch).map_err(|e| Failed::at(output, e))?;
    progress.done();
    Ok(events)
}

fn append(args: AppendArgs) -> Result<(), Failed> {
    if input::url(&args.file).is_some() {
        return Err(Failed::usage(
            "an object is never changed: append to the file, and put that in its place",
        ));
    }
    let at = |e| Failed::at(&args.file, e);
    let mut lines = Lines::open(&args.lines)?;
    ui::set_left("the file is what it was");
    ui::will_check();
    let options = Options::default().threads(args.threads.count());
    let mut writer = Writer::append(&args.file, options).map_err(at)?;
    let events = feed(&mut lines, &mut writer, &args.file, args.quiet)?;
    let all = writer.len();
    writer.finish().map_err(at)?.finish().map_err(at)?;
    if !args.quiet {
        let stored = std::fs::metadata(&args.file).map_err(|e| Failed::io(&args.file, e))?.len();
        say!("{}: {events} events added, {all} in {}", args.file.display(), show(stored));
    }
    Ok(())
}

fn info(args: InfoArgs) -> Result<(), Failed> {
    let reader = open(&args.file)?;
    if args.frontier {
        let found = frontier::measure(&reader).map_err(|e| Failed::at(&args.file, e))?;
        let text = if args.json { format!("{:#}\n", found.json()) } else { found.text() };
        return ui::print(text.as_bytes());
    }
    let progress = Progress::new("reading", Some(reader.stored_len()), args.json);
    let each = reader.stored_len() as f64 / reader.len().max(1) as f64;
    let report = reader.report(|events| progress.add((events as f64 * each) as u64));
    progress.done();
    let report = report.map_err(|e| Failed::at(&args.file, e))?;
    let access = frontier::name(report.access);
    let bytes: u64 = report.columns.iter().map(|column| column.bytes).sum();
    let taken = |bits: f64| (bits / 8.0).ceil() as u64;
    let role = |role: Role| match role {
        Role::Counts => "counts",
        Role::Presence => "presence",
        Role::Values => "values",
    };
    if args.json {
        let columns = report.columns.iter().map(|column| {
            json!({
                "column": column.path,
                "of": role(column.role),
                "bytes": column.bytes,
                "stored_bytes": taken(column.bits),
                "coding": column.coding,
            })
        });
        let columns: Vec<Value> = columns.collect();
        let report = json!({
            "events": reader.len(),
            "segments": report.segments,
            "access": access,
            "key": reader.key(),
            "bytes": bytes,
            "stored_bytes": report.stored_bytes,
            "model_bytes": report.model_bytes,
            "columns": columns,
        });
        return ui::print(format!("{report:#}\n").as_bytes());
    }
    let ratio = bytes as f64 / report.stored_bytes.max(1) as f64;
    let mut out = format!(
        "{} events in {} segments, for reads of {}\n{} of values in {}: {ratio:.2} to one\n{} of models\n",
        reader.len(),
        report.segments,
        match access {
            "event" => "single events",
            "block" => "some events",
            _ => "all events",
        },
        show(bytes),
        show(report.stored_bytes),
        show(report.model_bytes),
    );
    if !reader.key().is_empty() {
        out += &format!("found by {}\n", reader.key().join(", "));
    }
    let name = |path: &str, of: Role| {
        let path = ui::one_line(path.as_bytes());
        match of {
            Role::Values => path.to_string(),
            other => format!("{path}: {}", role(other)),
        }
    };
    let names: Vec<String> =
        report.columns.iter().map(|column| name(&column.path, column.role)).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    for (name, column) in names.iter().zip(&report.columns) {
        let (bytes, stored) = (show(column.bytes), show(taken(column.bits)));
        let coding = ui::one_line(column.coding.as_bytes());
        out += &format!("{name:width$}  {bytes:>10}  {stored:>10}  {coding}\n");
    }
    ui::print(out.as_bytes())
}

/// The bytes of a value of a field, as `Reader::find` wants them.
fn value_of(reader: &Reader, name: &str, text: &str) -> Result<Vec<u8>, Failed> {
    let fields = &reader.schema().fields;
    let field = fields.iter().find(|field| field.name == name);
    let field = field.ok_or_else(|| Failed::usage(format!("there is no field {name:?}")))?;
    let (value, column) = match field.what {
        Type::Text | Type::Bytes => (Value::String(text.to_owned()), 1),
        // What is no number is told as what it is not.
        _ => (serde_json::from_str(text).unwrap_or_else(|_| json!(text)), 0),
    };
    let schema = Schema::new(vec![field.clone()])?;
    let mut batch = Batch::new(&schema)?;
    put::event(&Shape::all(&schema), &json!({ name: value }), &mut batch)
        .map_err(|what| Failed::usage(format!("{name}={text}: {what}")))?;
    Ok(batch.bytes(column).to_vec())
}

fn find(args: FindArgs) -> Result<(), Failed> {
    let at = |e| Failed::at(&args.file, e);
    let reader = open(&args.file)?;
    let (columns, printer) = printer(&reader, args.fields.as_ref())?;
    let mut key = Vec::new();
    for text in &args.key {
        let wrong = || Failed::usage(format!("{text:?} is not NAME=VALUE"));
        let (name, value) = text.split_once('=').ok_or_else(wrong)?;
        key.push((name, value_of(&reader, name, value)?));
    }
    let key: Vec<(&str, &[u8])> = key.iter().map(|(name, value)| (*name, &value[..])).collect();
    let found = reader.find(&key).map_err(at)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    if args.numbers {
        found.iter().try_for_each(|number| writeln!(out, "{number}")).map_err(Error::Io)?;
    } else {
        for some in found.chunks(together(&reader) as usize) {
            let batch = reader.take(some, columns.as_ref()).map_err(at)?;
            printer.print(&batch, &mut out).map_err(Error::Io)?;
            ui::check_stop()?;
        }
    }
    out.flush().map_err(|e| Error::Io(e).into())
}

fn inferred(lines: &mut Lines, quiet: bool) -> Result<Schema, Failed> {
    let progress = Progress::new("looking", Some(lines.len()?), quiet);
    let mut seen = Seen::default();
    let name = lines.name.clone();
    lines.each(&progress, |value, line| match value {
        Value::Object(_) => {
            seen.look(&value);
            Ok(())
        }
        _ => {
            let what = format!("line {line}: there is no object");
            Err(Failed::at(&name, Error::Invalid { what: what.into() }))
        }
    })?;
    progress.done();
    let mut json = Vec::new();
    let fields: Vec<Field> = seen.fields(&mut Vec::new(), &mut json);
    let mut schema = Schema::new(fields)?;
    if !json.is_empty() {
        schema.notes.push((infer::JSON.to_owned(), json.join("\n")));
    }
    Ok(schema)
}

fn report(args: &PackArgs, events: u64) -> Result<(), Failed> {
    if args.output.as_os_str() == "-" {
        return Ok(());
    }
    let stored = std::fs::metadata(&args.output).map_err(|e| Failed::io(&args.output, e))?.len();
    let measured = || {
        let reader = open(&args.output)?;
        frontier::measure(&reader).map_err(|e| Failed::at(&args.output, e))
    };
    let found = args.frontier.then(measured).transpose()?;
    if args.json {
        let output = args.output.to_string_lossy();
        let mut report = json!({"output": output, "events": events, "stored_bytes": stored});
        if let Some(found) = found {
            report["frontier"] = found.json();
        }
        return ui::print(format!("{report:#}\n").as_bytes());
    }
    if !args.quiet {
        say!("{}: {events} events in {}", args.output.display(), show(stored));
    }
    if let Some(found) = found {
        return ui::print(found.text().as_bytes());
    }
    Ok(())
}
