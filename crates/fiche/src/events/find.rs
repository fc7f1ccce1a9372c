//! Finds events by their key.

use super::batch::Batch;
use super::keys::{self, Keys, Part};
use super::reader::{Inner, Reader, Segment};
use crate::envelope::{Kind, Section};
use crate::error::{Error, Result};

impl Reader {
    /// The fields that events are found by, if they were written so; by others they are looked for among all.
    #[must_use]
    pub fn key(&self) -> Vec<&str> {
        self.0.key.iter().map(|&field| &*self.0.schema.fields[field].name).collect()
    }

    /// The numbers of the events in which these fields, numbers or texts, have these values: the bytes of a number, the lowest first, and of a text as it
    /// is. With the fields that events were written to be found by ([`Options::key`](super::Options::key)), in any order, it takes some 100 ns for each segment, of 16 MiB
    /// usually, and to decode the packet of each event that is found; with others all events are read.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use fiche::events::{Batch, Field, Number, Options, Reader, Schema, Type, Writer};
    ///
    /// let fields = vec![Field::new("run", Number::U32), Field::new("stream", Type::Text)];
    /// let schema = Schema::new(fields)?;
    /// let mut batch = Batch::new(&schema)?;
    /// batch.put(0, &[7u32, 8, 8])?;
    /// batch.put_texts(1, &["muon", "jet", "muon"])?;
    /// let options = Options::default().key(["run", "stream"]);
    /// let mut writer = Writer::new(Vec::new(), schema, options)?;
    /// writer.extend(&batch)?;
    ///
    /// let reader = Reader::open(Arc::new(writer.finish()?))?;
    /// assert_eq!(reader.find(&[("run", &8u32.to_le_bytes()), ("stream", b"muon")])?, [2]);
    /// assert_eq!(reader.find(&[("stream", b"muon")])?, [0, 2]);
    /// # Ok::<(), fiche::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] where there is no such field, for one that is neither a number nor a text, and for a number of another
    /// width; as of [`read`](Reader::read).
    pub fn find(&self, key: &[(&str, &[u8])]) -> Result<Vec<u64>> {
        let Inner { schema, layout, .. } = &*self.0;
        let names: Vec<&str> = key.iter().map(|&(name, _)| name).collect();
        let fields = keys::fields(schema, layout, &names)?;
        let columns = self.select(&names)?;
        let mut wanted: Vec<(Part, &[u8])> = Vec::with_capacity(key.len());
        for (&field, part) in fields.iter().zip(keys::parts(schema, layout, &fields)) {
            let bytes = key.iter().find(|(name, _)| *name == schema.fields[field].name);
            let bytes = bytes.map_or(&[][..], |&(_, bytes)| bytes);
            keys::check(layout, part, bytes)?;
            wanted.push((part, bytes));
        }
        let mut found = Vec::new();
        if fields.is_empty() || fields != self.0.key {
            let mut batch = Batch::of(layout.clone());
            let a_mib = self.len() / (self.stored_len() >> 20).max(1);
            let (mut next, step) = (0, a_mib.clamp(4096, 1 << 16));
            while next < self.len() {
                let some = next..self.len().min(next + step);
                self.read_into(some.clone(), &columns, &mut batch)?;
                found.extend(keys::matching(&batch, &wanted).into_iter().map(|i| next + i as u64));
                next = some.end;
            }
            return Ok(found);
        }
        let hash = keys::hash_of(&wanted);
        for (segment, &first) in self.0.segments.iter().zip(&self.0.firsts) {
            let events = self.keys(segment, first)?.find(hash);
            let events: Vec<u64> =
                events.filter(|&event| event < segment.about.events).map(|i| first + i).collect();
            // They come in order, and each packet is decoded once.
            for some in events.chunks(4096) {
                let batch = self.take(some, Some(&columns))?;
                found.extend(keys::matching(&batch, &wanted).into_iter().map(|i| some[i]));
            }
        }
        Ok(found)
    }

    /// The keys of a segment of a file that has them.
    pub(super) fn keys<'a>(&self, segment: &'a Segment, before: u64) -> Result<&'a Keys> {
        if let Some(keys) = segment.keys.get() {
            return Ok(keys);
        }
        let at = segment.about.keys.ok_or_else(|| Error::invalid("a segment without keys"))?;
        let section = Section::load(&self.0.source, at, Kind::KeyPage)?;
        let keys = Keys::parse(&section, before, segment.about.events)?;
        Ok(segment.keys.get_or_init(|| keys))
    }
}
