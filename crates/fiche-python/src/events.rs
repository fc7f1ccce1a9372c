//! What `fiche.events` is made of: columns as bytes, and events as Python's values.

use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};

use fiche::events::{
    Access, Batch, Bits, Columns, Event, Field, Number, Options, Reader as Events, Role, Schema,
    Type, Writer as Store, half,
};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use pyo3::{IntoPyObjectExt, intern};

use crate::buffer::Buffer;
use crate::error::{Failed, Result, from_python};
use crate::options::threads;
use crate::own::Own;
use crate::reader;
use crate::source;
use crate::writer::Out;

fn invalid(what: &'static str) -> fiche::Error {
    fiche::Error::Invalid { what: what.into() }
}

/// A type as tuples: its kind, and what that asks for.
fn as_tuples<'py>(py: Python<'py>, what: &Type) -> PyResult<Bound<'py, PyAny>> {
    match what {
        Type::Number(number) => ("number", number.name()).into_bound_py_any(py),
        Type::Optional(one) => ("optional", as_tuples(py, one)?).into_bound_py_any(py),
        Type::List(items) => ("list", as_tuples(py, items)?).into_bound_py_any(py),
        Type::Array(items, len) => ("array", as_tuples(py, items)?, len).into_bound_py_any(py),
        Type::Record(fields) => {
            let fields = fields.iter().map(|field| Ok((&field.name, as_tuples(py, &field.what)?)));
            ("record", fields.collect::<PyResult<Vec<_>>>()?).into_bound_py_any(py)
        }
        Type::Text => ("text",).into_bound_py_any(py),
        Type::Bytes => ("bytes",).into_bound_py_any(py),
        other => Err(PyTypeError::new_err(format!("a type that is not known here: {other}"))),
    }
}

/// A type, given as text, as tuples: for who takes columns apart.
#[pyfunction(name = "_event_type")]
pub fn event_type<'py>(py: Python<'py>, text: &str) -> Result<Bound<'py, PyAny>> {
    Ok(as_tuples(py, &text.parse::<Type>()?)?)
}

/// Names, types and notes of fields.
type Fields = Vec<(String, String, Vec<(String, String)>)>;

fn schema(fields: Fields, notes: Vec<(String, String)>) -> Result<Schema> {
    let fields = fields
        .into_iter()
        .map(|(name, what, notes)| Ok(Field { name, what: what.parse()?, notes }));
    let mut schema = Schema::new(fields.collect::<fiche::Result<Vec<_>>>()?)?;
    schema.notes = notes;
    Ok(schema)
}

/// What is made of the columns of a field.
enum Shape {
    Number(usize, Number),
    Optional(usize, Box<Shape>),
    List(usize, Box<Shape>),
    Array(Box<Shape>, u32),
    Record(Record),
    Text(usize),
    Bytes(usize),
}

struct Record {
    fields: Vec<(Py<PyString>, Shape)>,
    /// A dictionary that has these names: a copy of it never grows.
    empty: Py<PyDict>,
}

impl Record {
    /// That of fields whose first column is this.
    fn new(py: Python<'_>, fields: &[Field], column: &mut usize) -> PyResult<Record> {
        let empty = PyDict::new(py);
        let fields = fields.iter().map(|field| {
            let name = PyString::intern(py, &field.name);
            empty.set_item(&name, py.None())?;
            Ok((name.unbind(), Shape::new(py, &field.what, column)?))
        });
        let fields = fields.collect::<PyResult<_>>()?;
        Ok(Record { fields, empty: empty.unbind() })
    }
}

impl Shape {
    /// That of a type whose first column is this.
    fn new(py: Python<'_>, what: &Type, column: &mut usize) -> PyResult<Shape> {
        let mut next = |columns: usize| {
            *column += columns;
            *column - columns
        };
        Ok(match what {
            Type::Optional(one) => {
                let at = next(1);
                Shape::Optional(at, Box::new(Shape::new(py, one, column)?))
            }
            Type::List(items) => {
                let at = next(1);
                Shape::List(at, Box::new(Shape::new(py, items, column)?))
            }
            Type::Array(items, len) => Shape::Array(Box::new(Shape::new(py, items, column)?), *len),
            Type::Record(fields) => Shape::Record(Record::new(py, fields, column)?),
            Type::Text => Shape::Text(next(2)),
            Type::Number(number) => Shape::Number(next(1), *number),
            // Types that may come are not written yet.
            _ => Shape::Bytes(next(2)),
        })
    }
}

/// What an event has in its columns, and how much of each was looked at.
struct Look<'a> {
    event: &'a Event,
    at: &'a mut [usize],
}

/// What an event is decoded into, and how much of each column was looked at. A box, as it is moved twice for each event.
type Room = Box<(Event, Vec<usize>)>;

fn number<'py>(py: Python<'py>, number: Number, bits: u64) -> Bound<'py, PyAny> {
    let whole = match number {
        Number::Bool => return PyBool::new(py, bits != 0).to_owned().into_any(),
        Number::F16 => return PyFloat::new(py, half(bits as u16).into()).into_any(),
        Number::F32 => return PyFloat::new(py, f32::from_bits(bits as u32).into()).into_any(),
        Number::U8 | Number::U16 | Number::U32 | Number::U64 => {
            let Ok(made) = bits.into_pyobject(py);
            return made.into_any();
        }
        Number::I8 => i64::from(bits as i8),
        Number::I16 => i64::from(bits as i16),
        Number::I32 => i64::from(bits as i32),
        Number::I64 => bits as i64,
        _ => return PyFloat::new(py, f64::from_bits(bits)).into_any(),
    };
    let Ok(made) = whole.into_pyobject(py);
    made.into_any()
}

impl Look<'_> {
    /// The next so many values of a column; fewer where it has no more.
    fn take(&mut self, column: usize, count: usize) -> Bits<'_> {
        let all = self.event.bits(column);
        let from = self.at[column].min(all.len());
        let to = from.saturating_add(count).min(all.len());
        self.at[column] = to;
        all.of(from..to)
    }

    fn one(&mut self, column: usize) -> u64 {
        let one = self.take(column, 1);
        if one.is_empty() { 0 } else { one.get(0) }
    }

    fn value<'py>(&mut self, py: Python<'py>, shape: &Shape) -> PyResult<Bound<'py, PyAny>> {
        match shape {
            Shape::Number(column, kind) => Ok(number(py, *kind, self.one(*column))),
            Shape::Optional(there, one) => match self.one(*there) {
                0 => Ok(py.None().into_bound(py)),
                _ => self.value(py, one),
            },
            Shape::List(counts, items) => {
                let count = self.one(*counts) as usize;
                self.items(py, items, count)
            }
            Shape::Array(items, len) => self.items(py, items, *len as usize),
            Shape::Record(record) => Ok(self.record(py, record)?.into_any()),
            Shape::Text(column) => {
                let bytes = self.bytes(*column);
                match std::str::from_utf8(&bytes) {
                    Ok(text) => Ok(PyString::new(py, text).into_any()),
                    Err(_) => {
                        let how = ("utf-8", "surrogateescape");
                        PyBytes::new(py, &bytes).call_method1(intern!(py, "decode"), how)
                    }
                }
            }
            Shape::Bytes(column) => Ok(PyBytes::new(py, &self.bytes(*column)).into_any()),
        }
    }

    fn record<'py>(&mut self, py: Python<'py>, of: &Record) -> PyResult<Bound<'py, PyDict>> {
        let record = of.empty.bind(py).copy()?;
        for (name, shape) in &of.fields {
            record.set_item(name, self.value(py, shape)?)?;
        }
        Ok(record)
    }

    fn bytes(&mut self, column: usize) -> Cow<'_, [u8]> {
        let len = self.one(column) as usize;
        self.take(column + 1, len).bytes()
    }

    fn items<'py>(
        &mut self,
        py: Python<'py>,
        items: &Shape,
        count: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let Shape::Number(column, kind) = items {
            let values = self.take(*column, count);
            let values = values.iter().map(|bits| number(py, *kind, bits));
            return Ok(PyList::new(py, values)?.into_any());
        }
        let list = PyList::empty(py);
        for _ in 0..count {
            list.append(self.value(py, items)?)?;
        }
        Ok(list.into_any())
    }
}

/// Events that are open for reading: what `fiche.events.Reader` reads with.
#[pyclass(frozen, module = "fiche", name = "_EventReader")]
pub struct EventReader {
    events: Events,
    record: Record,
    /// Of a thread that is done with it.
    room: Mutex<Vec<Room>>,
}

impl EventReader {
    fn columns(&self, fields: Option<Vec<String>>) -> Result<Option<Columns>> {
        Ok(fields.map(|fields| self.events.select(&fields)).transpose()?)
    }
}

/// The columns of a batch, each as bytes that may be written to; nothing where it was not asked for.
fn columns_of<'py>(
    py: Python<'py>,
    batch: &Batch,
    is_wanted: impl Fn(usize) -> bool,
) -> PyResult<Bound<'py, PyList>> {
    let columns = (0..batch.layout().columns().len()).map(|column| match is_wanted(column) {
        true => pyo3::types::PyByteArray::new(py, batch.bytes(column)).into_any(),
        false => py.None().into_bound(py),
    });
    PyList::new(py, columns)
}

#[pymethods]
impl EventReader {
    #[new]
    #[pyo3(signature = (object, threads_))]
    fn new(
        py: Python<'_>,
        object: &Bound<'_, PyAny>,
        threads_: Option<usize>,
    ) -> Result<EventReader> {
        let (source, origin) = source::open(object, None)?;
        let events = py.detach(|| Events::open(source));
        let events = events.map_err(|error| Failed::at(&origin, error))?;
        let events = events.threads(threads(threads_)?);
        let record = Record::new(py, &events.schema().fields, &mut 0)?;
        Ok(EventReader { events, record, room: Mutex::default() })
    }

    fn __len__(&self) -> usize {
        usize::try_from(self.events.len()).unwrap_or(usize::MAX)
    }

    /// Names, types as text and as tuples, and notes of all fields; and the notes of all together.
    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let schema = self.events.schema();
        let fields = schema.fields.iter().map(|field| {
            let what = as_tuples(py, &field.what)?;
            (&field.name, field.what.to_string(), what, field.notes.clone()).into_bound_py_any(py)
        });
        let fields: Vec<_> = fields.collect::<PyResult<_>>()?;
        (fields, schema.notes.clone()).into_pyobject(py)
    }

    /// One event as a dictionary.
    #[pyo3(signature = (number, fields=None))]
    fn event<'py>(
        &self,
        py: Python<'py>,
        number: u64,
        fields: Option<Vec<usize>>,
    ) -> Result<Bound<'py, PyDict>> {
        if number >= self.events.len() {
            let what = format!("there is no event {number}: there are {}", self.events.len());
            return Err(pyo3::exceptions::PyIndexError::new_err(what).into());
        }
        let lock = || self.room.lock().unwrap_or_else(PoisonError::into_inner);
        let mut room = lock().pop().unwrap_or_default();
        let (event, at) = &mut *room;
        // What is in memory takes less than it takes to let go of the interpreter's lock.
        if !self.events.event_at_hand(number, event)? {
            py.detach(|| self.events.event_into(number, event))?;
        }
        at.clear();
        at.resize(event.layout().map_or(0, |layout| layout.columns().len()), 0);
        let mut look = Look { event, at };
        let record = match fields {
            None => look.record(py, &self.record)?,
            Some(fields) => {
                let record = PyDict::new(py);
                for (name, shape) in fields.iter().filter_map(|&i| self.record.fields.get(i)) {
                    record.set_item(name, look.value(py, shape)?)?;
                }
                record
            }
        };
        lock().push(room);
        Ok(record)
    }

    /// The columns of events of a range.
    fn read<'py>(
        &self,
        py: Python<'py>,
        start: u64,
        stop: u64,
        fields: Option<Vec<String>>,
    ) -> Result<Bound<'py, PyList>> {
        let columns = self.columns(fields)?;
        let batch = py.detach(|| self.events.read(start..stop, columns.as_ref()))?;
        Ok(columns_of(py, &batch, |column| columns.as_ref().is_none_or(|some| some.has(column)))?)
    }

    /// The columns of events by their numbers, which are 8 bytes each.
    fn take<'py>(
        &self,
        py: Python<'py>,
        numbers: &Bound<'_, PyAny>,
        fields: Option<Vec<String>>,
    ) -> Result<Bound<'py, PyList>> {
        let columns = self.columns(fields)?;
        let numbers = Buffer::get(numbers)?;
        let numbers = numbers
            .as_bytes()
            .chunks_exact(8)
            .map(|bytes| bytes.try_into().map_or(0, u64::from_ne_bytes));
        let numbers: Vec<u64> = numbers.collect();
        let batch = py.detach(|| self.events.take(&numbers, columns.as_ref()))?;
        Ok(columns_of(py, &batch, |column| columns.as_ref().is_none_or(|some| some.has(column)))?)
    }

    /// The fields that events are found by.
    fn key(&self) -> Vec<&str> {
        self.events.key()
    }

    /// Numbers of the events in which fields have these values, as bytes.
    fn find(&self, py: Python<'_>, key: Vec<(String, Vec<u8>)>) -> Result<Vec<u64>> {
        let key: Vec<(&str, &[u8])> =
            key.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
        Ok(py.detach(|| self.events.find(&key))?)
    }

    /// Reads everything, checks every checksum, and says what is damaged: how many events were read, and of each
    /// damage what it is and the events that are lost.
    fn verify<'py>(
        &self,
        py: Python<'py>,
        threads: Option<usize>,
        progress: Option<Py<PyAny>>,
    ) -> Result<(u64, Bound<'py, PyList>)> {
        let threads = self::threads(threads)?;
        let all = self.events.len();
        let verified = py.detach(|| {
            let mut done = 0;
            self.events.clone().threads(threads).verify(&mut |events| {
                done += events;
                Python::attach(|py| {
                    py.check_signals()?;
                    progress.as_ref().map_or(Ok(()), |call| call.call1(py, (done, all)).map(drop))
                })
                .map_err(from_python)
            })
        });
        let verified = verified?;
        let damage = verified.damage.iter().map(|lost| {
            let record = PyDict::new(py);
            record.set_item("what", lost.error.to_string())?;
            let range = (!lost.events.is_empty()).then_some((lost.events.start, lost.events.end));
            record.set_item("events", range)?;
            Ok(record)
        });
        Ok((verified.events, PyList::new(py, damage.collect::<PyResult<Vec<_>>>()?)?))
    }

    /// How columns are coded, and what they take.
    fn report<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let report = py.detach(|| {
            self.events.report(|_| {
                // Who presses Ctrl-C waits for no more than some packets.
                Python::attach(|py| py.check_signals()).map_err(from_python)
            })
        });
        let report = report?;
        let columns = report.columns.iter().map(|column| {
            let record = PyDict::new(py);
            record.set_item("column", &column.path)?;
            let of = match column.role {
                Role::Values => "values",
                Role::Counts => "counts",
                Role::Presence => "presence",
            };
            record.set_item("of", of)?;
            record.set_item("bytes", column.bytes)?;
            record.set_item("stored_bytes", (column.bits / 8.0).ceil() as u64)?;
            record.set_item("coding", &column.coding)?;
            Ok(record)
        });
        let columns = columns.collect::<PyResult<Vec<_>>>()?;
        let access = match report.access {
            Access::Block => "block",
            Access::Scan => "scan",
            _ => "event",
        };
        let record = PyDict::new(py);
        record.set_item("events", self.events.len())?;
        record.set_item("segments", report.segments)?;
        record.set_item("access", access)?;
        record.set_item("key", self.events.key())?;
        record.set_item("stored_bytes", report.stored_bytes)?;
        record.set_item("model_bytes", report.model_bytes)?;
        record.set_item("columns", columns)?;
        Ok(record)
    }
}

/// What `fiche.events.Reader` is made of: events, which are opened again behind a fork, as locks may be held in them by threads that are not
/// there any more; and any one of them, for which no line of Python is needed.
#[pyclass(frozen, subclass, module = "fiche", name = "_EventItems")]
pub struct EventItems {
    source: Py<PyAny>,
    threads: Option<usize>,
    /// Under how many forks it was opened. Locked only where nobody else can be running.
    opened: Mutex<(u64, Py<EventReader>)>,
}

impl EventItems {
    fn open(
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        threads: Option<usize>,
    ) -> Result<(u64, Py<EventReader>)> {
        let forks = reader::forks();
        Ok((forks, Py::new(py, EventReader::new(py, source, threads)?)?))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (u64, Py<EventReader>)> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl EventItems {
    #[new]
    #[pyo3(signature = (source, *, threads=None))]
    fn new(
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        threads: Option<usize>,
    ) -> Result<EventItems> {
        let opened = Mutex::new(EventItems::open(py, source, threads)?);
        Ok(EventItems { source: source.clone().unbind(), threads, opened })
    }

    #[getter]
    fn _reader(&self, py: Python<'_>) -> Result<Py<EventReader>> {
        {
            let opened = self.lock();
            if opened.0 == reader::forks() {
                return Ok(opened.1.clone_ref(py));
            }
        }
        let opened = EventItems::open(py, self.source.bind(py), self.threads)?;
        let reader = opened.1.clone_ref(py);
        // What was there goes when the lock is given up: what is dropped with it may be anything of Python's.
        let before = std::mem::replace(&mut *self.lock(), opened);
        drop(before);
        Ok(reader)
    }

    fn __getitem__<'py>(
        this: &Bound<'py, EventItems>,
        which: &Bound<'py, PyAny>,
    ) -> Result<Bound<'py, PyAny>> {
        let number = which.cast_exact::<PyInt>().ok().and_then(|number| number.extract().ok());
        match number {
            Some(number) => {
                let reader = this.get()._reader(this.py())?;
                Ok(reader.get().event(this.py(), number, None)?.into_any())
            }
            None => Ok(this.call_method1(intern!(this.py(), "_items"), (which,))?),
        }
    }
}

/// A file of events that is being written.
enum Target {
    New(Store<Out>),
    /// One that was there before.
    Old(Store<fiche::Appending>),
}

/// Writes events: what `fiche.events.Writer` writes with.
#[pyclass(frozen, module = "fiche", name = "_EventWriter")]
pub struct EventWriter {
    schema: Schema,
    state: Own<Target>,
}

#[pymethods]
impl EventWriter {
    #[new]
    #[pyo3(signature = (output, fields, notes, access, packet, threads_, overwrite, key))]
    #[expect(clippy::too_many_arguments, reason = "what `create` takes")]
    fn new(
        output: &Bound<'_, PyAny>,
        fields: Fields,
        notes: Vec<(String, String)>,
        access: &str,
        packet: Option<usize>,
        threads_: Option<usize>,
        overwrite: bool,
        key: Vec<String>,
    ) -> Result<EventWriter> {
        let schema = schema(fields, notes)?;
        let access = match access {
            "event" => Access::Event,
            "block" => Access::Block,
            "scan" => Access::Scan,
            other => {
                let what = format!("access is event, block or scan, not {other:?}");
                return Err(Failed::value(what));
            }
        };
        let options = Options::default().access(access).threads(threads(threads_)?).key(key);
        let options = match packet {
            Some(events) => options.packet(events),
            None => options,
        };
        let out = Out::create(output, overwrite)?;
        let store = Store::new(out, schema.clone(), options)?;
        Ok(EventWriter { schema, state: Own::new(Target::New(store)) })
    }

    /// Goes on behind the events of a file; returns how many there are, too.
    #[staticmethod]
    fn append(
        py: Python<'_>,
        path: std::path::PathBuf,
        threads_: Option<usize>,
    ) -> Result<(EventWriter, u64)> {
        let options = Options::default().threads(threads(threads_)?);
        let store = py.detach(|| Store::append(&path, options))?;
        let (schema, events) = (store.schema().clone(), store.len());
        Ok((EventWriter { schema, state: Own::new(Target::Old(store)) }, events))
    }

    /// Names, types as tuples and notes of all fields.
    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let fields = self.schema.fields.iter().map(|field| {
            let what = as_tuples(py, &field.what)?;
            (&field.name, what, field.notes.clone()).into_pyobject(py)
        });
        fields.collect()
    }

    /// Adds events: a buffer for each column.
    fn extend(&self, py: Python<'_>, events: usize, columns: Vec<Bound<'_, PyAny>>) -> Result<()> {
        let buffers = columns.iter().map(Buffer::get).collect::<PyResult<Vec<Buffer>>>()?;
        self.state.with(py, |state| -> fiche::Result<()> {
            let mut batch = Batch::new(&self.schema)?;
            if buffers.len() != batch.layout().columns().len() {
                return Err(invalid("a buffer is expected for each column"));
            }
            batch.set_len(events);
            for (column, buffer) in buffers.iter().enumerate() {
                batch.put_bytes(column, buffer.as_bytes())?;
            }
            if batch.len() != events {
                return Err(invalid("columns of other numbers of events"));
            }
            match state {
                Some(Target::New(store)) => store.extend(&batch),
                Some(Target::Old(store)) => store.extend(&batch),
                None => Err(invalid("the file is finished")),
            }
        })??;
        Ok(())
    }

    /// Ends the file; returns its bytes.
    fn finish(&self, py: Python<'_>) -> Result<u64> {
        let written = self.state.with(py, |state| -> fiche::Result<u64> {
            match state.take().ok_or_else(|| invalid("the file is finished"))? {
                Target::New(store) => {
                    let out = store.finish()?;
                    let written = out.written();
                    out.finish()?;
                    Ok(written)
                }
                Target::Old(store) => {
                    let out = store.finish()?;
                    let written = out.end();
                    out.finish()?;
                    Ok(written)
                }
            }
        })??;
        Ok(written)
    }

    /// Forgets all: no file appears, and one that was there is what it was.
    fn abort(&self, py: Python<'_>) -> Result<()> {
        self.state.forget(py)
    }
}
