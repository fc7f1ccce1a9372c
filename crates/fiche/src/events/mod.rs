//! Events: records with columns, of which one is read without decoding others beside a few.
//!
//! An *event* has fields of types: numbers, lists of them, records, texts. They are stored in *packets* of some events, each of which is
//! decoded from its first event on; what columns have in common is known once, in a *model*: so a packet of 256 bytes takes about as
//! little space for each event as blocks of 32 KiB do with general compression. That is what ROOT's random access compression was
//! for (Zhang, *Exploring Compression Techniques of ROOT IO*, 2017), which lost its ratio on small events, and paid four bytes for each.
//!
//! ```
//! use std::sync::Arc;
//! use fiche::events::{Batch, Field, Number, Options, Reader, Schema, Writer};
//!
//! let schema = Schema::new(vec![Field::new("energy", Number::F64), Field::new("channel", Number::U16)])?;
//! let mut batch = Batch::new(&schema)?;
//! for i in 0..5000u16 {
//!     batch.put(0, &[f64::from(i % 700) / 10.0])?;
//!     batch.put(1, &[i % 12])?;
//! }
//! let mut writer = Writer::new(Vec::new(), schema, Options::default())?;
//! writer.extend(&batch)?;
//! let file = writer.finish()?;
//! assert!(file.len() * 6 < batch.size());
//!
//! let reader = Reader::open(Arc::new(file))?;
//! assert_eq!(reader.event(4321)?.values::<f64>(0).next(), Some(12.1));
//! let some = reader.take(&[9, 4000, 9], Some(&reader.select(&["channel"])?))?;
//! assert_eq!(some.values::<u16>(1).collect::<Vec<_>>(), [9, 4, 9]);
//! # Ok::<(), fiche::Error>(())
//! ```

mod batch;
mod column;
mod decode;
mod find;
mod format;
mod held;
mod keys;
mod learn;
mod loaded;
mod many;
mod model;
mod packet;
mod reader;
mod report;
mod schema;
mod segment;
mod tell;
mod types;
mod verify;
mod words;
mod writer;

pub use batch::{Batch, Value};
pub use decode::Bits;
pub use reader::{Columns, Event, Reader};
pub use report::{Report, Taken};
pub use schema::{Column, Count, Field, Layout, Level, Number, Role, Schema, Type};
pub use types::half;
pub use verify::{Lost, Verified};
pub use writer::{Access, Options, Writer};
