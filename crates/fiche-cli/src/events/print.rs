//! Events as JSON.

use std::io::{self, Write};

use fiche::events::{Batch, Number, Schema, half};

use super::put::{Shape, encoded};

/// Prints events of a schema.
pub struct Printer {
    fields: Vec<(String, Shape, bool)>,
}

/// Columns of events, and how much of each was printed.
struct Look<'a> {
    batch: &'a Batch,
    at: Vec<usize>,
}

impl Printer {
    /// Of the fields that are wanted.
    pub fn new(schema: &Schema, wanted: impl Fn(&str) -> bool) -> Printer {
        let fields = Shape::all(schema).into_iter();
        let fields = fields.map(|(name, shape)| {
            let is_wanted = wanted(&name);
            (name, shape, is_wanted)
        });
        Printer { fields: fields.collect() }
    }

    /// One line for each event.
    pub fn print(&self, batch: &Batch, out: &mut impl Write) -> io::Result<()> {
        let mut look = Look { batch, at: vec![0; batch.layout().columns().len()] };
        for _ in 0..batch.len() {
            out.write_all(b"{")?;
            let wanted = self.fields.iter().filter(|(_, _, wanted)| *wanted);
            for (i, (name, shape, _)) in wanted.enumerate() {
                look.named(i, name, shape, out)?;
            }
            out.write_all(b"}\n")?;
        }
        Ok(())
    }
}

impl Look<'_> {
    /// The bits of the next value of a column.
    fn one(&mut self, column: usize) -> u64 {
        self.bytes(column, 1).iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
    }

    /// The bytes of the next values of a column.
    fn bytes(&mut self, column: usize, count: usize) -> &[u8] {
        let width = self.batch.layout().columns()[column].number.width();
        let (from, bytes) = (self.at[column], self.batch.bytes(column));
        self.at[column] += count;
        bytes.get(from * width..(from + count) * width).unwrap_or_default()
    }

    fn named(
        &mut self,
        i: usize,
        name: &str,
        shape: &Shape,
        out: &mut impl Write,
    ) -> io::Result<()> {
        out.write_all(if i > 0 { b"," } else { b"" })?;
        serde_json::to_writer(&mut *out, name)?;
        out.write_all(b":")?;
        self.value(shape, out)
    }

    fn value(&mut self, shape: &Shape, out: &mut impl Write) -> io::Result<()> {
        match shape {
            Shape::Number(column, number) => print(*number, self.one(*column), out),
            Shape::Optional(there, one) => match self.one(*there) {
                0 => out.write_all(b"null"),
                _ => self.value(one, out),
            },
            Shape::List(counts, items) => {
                let count = self.one(*counts) as usize;
                self.items(items, count, out)
            }
            Shape::Array(items, len) => self.items(items, *len as usize, out),
            Shape::Record(fields) => {
                out.write_all(b"{")?;
                for (i, (name, shape)) in fields.iter().enumerate() {
                    self.named(i, name, shape, out)?;
                }
                out.write_all(b"}")
            }
            Shape::Text(column) | Shape::Json(column) | Shape::Bytes(column) => {
                let len = self.one(*column) as usize;
                let bytes = self.bytes(column + 1, len);
                match shape {
                    // Whatever stands there: it is on this line, and JSON.
                    Shape::Json(_) => match serde_json::from_slice::<serde_json::Value>(bytes) {
                        Ok(value) => Ok(serde_json::to_writer(out, &value)?),
                        Err(_) => Ok(serde_json::to_writer(out, &String::from_utf8_lossy(bytes))?),
                    },
                    Shape::Bytes(_) => Ok(serde_json::to_writer(out, &encoded(bytes))?),
                    _ => Ok(serde_json::to_writer(out, &String::from_utf8_lossy(bytes))?),
                }
            }
        }
    }

    fn items(&mut self, items: &Shape, count: usize, out: &mut impl Write) -> io::Result<()> {
        out.write_all(b"[")?;
        for i in 0..count {
            out.write_all(if i > 0 { b"," } else { b"" })?;
            self.value(items, out)?;
        }
        out.write_all(b"]")
    }
}

/// A number; those that JSON has no word for are null.
fn print(number: Number, bits: u64, out: &mut impl Write) -> io::Result<()> {
    match number {
        Number::Bool => write!(out, "{}", bits != 0),
        Number::I8 => write!(out, "{}", bits as i8),
        Number::I16 => write!(out, "{}", bits as i16),
        Number::I32 => write!(out, "{}", bits as i32),
        Number::I64 => write!(out, "{}", bits as i64),
        Number::F16 => Ok(serde_json::to_writer(out, &half(bits as u16))?),
        Number::F32 => Ok(serde_json::to_writer(out, &f32::from_bits(bits as u32))?),
        Number::F64 => Ok(serde_json::to_writer(out, &f64::from_bits(bits))?),
        _ => write!(out, "{bits}"),
    }
}
