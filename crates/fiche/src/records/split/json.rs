//! Lines of JSON, named by a field.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{Found, LineBuffer, Splitter, name_of};
use crate::error::Result;

pub(super) struct Json {
    /// Names of the fields, from the outermost in.
    path: Vec<String>,
    lines: LineBuffer,
}

impl Json {
    pub fn new(field: &str) -> Json {
        Json { path: field.split('.').map(str::to_owned).collect(), lines: LineBuffer::default() }
    }
}

impl Splitter for Json {
    fn take(&mut self, bytes: &[u8], found: &mut Vec<Found>) -> Result<()> {
        let path = &self.path;
        self.lines.take(bytes, |line, range| found.push(named(path, line, range)));
        Ok(())
    }

    fn end(&mut self, found: &mut Vec<Found>) -> Result<()> {
        let path = &self.path;
        self.lines.end(|line, range| found.push(named(path, line, range)));
        Ok(())
    }
}

fn named(path: &[String], line: &[u8], range: std::ops::Range<u64>) -> Found {
    let mut json = serde_json::Deserializer::from_slice(line);
    let value = Field(path).deserialize(&mut json).ok().flatten();
    let name = value.map_or(Vec::new(), |value| name_of(value.as_bytes()));
    Found { range, name, key: Vec::new() }
}

/// Looks for a field and passes over all else without keeping it.
struct Field<'a>(&'a [String]);

impl<'de> DeserializeSeed<'de> for Field<'_> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(
        self,
        from: D,
    ) -> std::result::Result<Self::Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Field<'_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(
        self,
        mut map: A,
    ) -> std::result::Result<Self::Value, A::Error> {
        let mut value = None;
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            match self.0.split_first() {
                Some((first, rest)) if *first == key && value.is_none() => {
                    value = map.next_value_seed(Field(rest))?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(value)
    }

    fn visit_seq<A: SeqAccess<'de>>(
        self,
        mut seq: A,
    ) -> std::result::Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_str<E>(self, value: &str) -> std::result::Result<Self::Value, E> {
        Ok(self.0.is_empty().then(|| value.to_owned()))
    }

    fn visit_bool<E>(self, value: bool) -> std::result::Result<Self::Value, E> {
        Ok(self.0.is_empty().then(|| value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> std::result::Result<Self::Value, E> {
        Ok(self.0.is_empty().then(|| value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> std::result::Result<Self::Value, E> {
        Ok(self.0.is_empty().then(|| value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> std::result::Result<Self::Value, E> {
        Ok(self.0.is_empty().then(|| value.to_string()))
    }

    fn visit_unit<E>(self) -> std::result::Result<Self::Value, E> {
        Ok(None)
    }
}
