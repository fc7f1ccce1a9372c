//! What events are made of: fields of types, and the columns that these come down to.
//!
//! # Schema of events
//!
//! A section of kind 14, offset and number 0, which may be compressed, but not to less than a 64th of its payload.
//!
//! | size | field | meaning |
//! |---|---|---|
//! | | fields | see below |
//! | | notes | of all events together |
//!
//! Fields are a varint, how many, and then for each: its name, its type, its notes. A name is a varint, its length in bytes, and
//! these in UTF-8; no two of a record are the same. Notes are a varint, how many, and for each two such texts: what it is about,
//! and what it says. A type is one byte and what that asks for:
//!
//! | byte | type | what follows |
//! |---|---|---|
//! | 0 | boolean | |
//! | 1, 2, 3, 4 | whole number from 0 on, of 1, 2, 4, 8 bytes | |
//! | 5, 6, 7, 8 | whole number with a sign, of as many | |
//! | 9, 10, 11 | floating point number of 2, 4, 8 bytes | |
//! | 32 | one or none | the type of the one |
//! | 33 | list | the type of its items |
//! | 34 | array | varint: how many items, 1 to 2^24; their type |
//! | 35 | record | its fields |
//! | 36 | text | |
//! | 37 | bytes | |
//!
//! Below the type of a field of the events others lie up to 16 deep, and there are fewer than 65,536 columns, no more than 2^20 fields and notes, and the columns' paths have no more than 2^24 bytes together: a path is the names down to a column, with `.`
//! between them, and `[]` behind what is a list, an array, a text or bytes and `?` behind one or none where it is a column of its items.
//!
//! The *columns* are what is left when lists, arrays and records are taken apart, in the order of the fields: of a number its values;
//! of one or none whether it is there, as a boolean, and the columns of the one; of a list its counts, how many items each has, as
//! numbers of 4 bytes, and the columns of its items; of an array those of its items; of a record those of its fields; of text and
//! bytes their lengths, as counts, and their bytes, as numbers of 1 byte. A column has its values on a *level*: that of the events,
//! or of the items of a list or array, or of what is there or not, each of which is on a level of its own; fields of a record are on the record's. What is there has an item, what is not none.
//! Columns and levels are numbered from 0 on, in that order: a level where its first column is.

use crate::error::{Error, Result};
use crate::wire::{Put, Take};

/// How deep types lie within one another.
const DEEPEST: usize = 16;
/// Columns of a schema at most.
const MOST_COLUMNS: usize = 1 << 16;
/// Fields and notes of one at most.
const MOST_NOTES: usize = 1 << 20;
/// Bytes of all their paths at most.
const MOST_PATHS: usize = 1 << 24;
/// Items of an array at most.
const LONGEST_ARRAY: u64 = 1 << 24;

/// What a number is. All are kept to the last bit, whatever they mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Number {
    /// True or false.
    Bool = 0,
    /// Whole numbers from 0 on.
    U8 = 1,
    /// Of 2 bytes.
    U16 = 2,
    /// Of 4 bytes.
    U32 = 3,
    /// Of 8 bytes.
    U64 = 4,
    /// Whole numbers with a sign.
    I8 = 5,
    /// Of 2 bytes.
    I16 = 6,
    /// Of 4 bytes.
    I32 = 7,
    /// Of 8 bytes.
    I64 = 8,
    /// Floating point numbers of IEEE 754, of 2 bytes.
    F16 = 9,
    /// Of 4 bytes.
    F32 = 10,
    /// Of 8 bytes.
    F64 = 11,
}

impl Number {
    pub(crate) const ALL: [Number; 12] = [
        Number::Bool,
        Number::U8,
        Number::U16,
        Number::U32,
        Number::U64,
        Number::I8,
        Number::I16,
        Number::I32,
        Number::I64,
        Number::F16,
        Number::F32,
        Number::F64,
    ];

    /// Bytes of one.
    #[must_use]
    pub fn width(self) -> usize {
        match self {
            Number::Bool | Number::U8 | Number::I8 => 1,
            Number::U16 | Number::I16 | Number::F16 => 2,
            Number::U32 | Number::I32 | Number::F32 => 4,
            Number::U64 | Number::I64 | Number::F64 => 8,
        }
    }

    /// Bits that tell one from another.
    pub(crate) fn bits(self) -> u32 {
        if self == Number::Bool { 1 } else { 8 * self.width() as u32 }
    }

    pub(crate) fn is_float(self) -> bool {
        matches!(self, Number::F16 | Number::F32 | Number::F64)
    }

    pub(crate) fn is_signed(self) -> bool {
        matches!(self, Number::I8 | Number::I16 | Number::I32 | Number::I64)
    }
}

/// What a field is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Type {
    /// A number.
    Number(Number),
    /// One or none.
    Optional(Box<Type>),
    /// As many as there are.
    List(Box<Type>),
    /// So many in every event.
    Array(Box<Type>, u32),
    /// Several, each with a name.
    Record(Vec<Field>),
    /// Text in UTF-8.
    Text,
    /// Bytes as they are.
    Bytes,
}

impl From<Number> for Type {
    fn from(number: Number) -> Type {
        Type::Number(number)
    }
}

impl Type {
    /// A list of these.
    #[must_use]
    pub fn list(self) -> Type {
        Type::List(Box::new(self))
    }

    /// One of these or none.
    #[must_use]
    pub fn optional(self) -> Type {
        Type::Optional(Box::new(self))
    }

    /// So many of these.
    #[must_use]
    pub fn array(self, len: u32) -> Type {
        Type::Array(Box::new(self), len)
    }
}

/// Something with a name that each event has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// What it is called: any text that no other field beside it is called.
    pub name: String,
    /// What it is.
    pub what: Type,
    /// Anything to be kept with it: what it is about, and what it says.
    pub notes: Vec<(String, String)>,
}

impl Field {
    /// One of this name and type.
    pub fn new(name: impl Into<String>, what: impl Into<Type>) -> Field {
        Field { name: name.into(), what: what.into(), notes: Vec::new() }
    }
}

/// What events are made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schema {
    /// What each event has.
    pub fields: Vec<Field>,
    /// Anything to be kept with all of them.
    pub notes: Vec<(String, String)>,
}

impl Schema {
    /// Of these fields.
    ///
    /// # Errors
    /// [`Error::Invalid`] where two beside one another have the same name, an array has no items, types lie more than 16 deep, or
    /// there are more than 65,536 columns.
    pub fn new(fields: Vec<Field>) -> Result<Schema> {
        let schema = Schema { fields, notes: Vec::new() };
        schema.layout().map(|_| schema)
    }

    /// The columns that it comes down to.
    ///
    /// # Errors
    /// As of [`new`](Schema::new), where it was changed since.
    pub fn layout(&self) -> Result<Layout> {
        let mut layout = Layout::default();
        layout.levels.push(Level { parent: None, count: Count::Events });
        if fields_and_notes(&self.fields) + self.notes.len() > MOST_NOTES {
            return Err(Error::invalid(format!(
                "a schema has no more than {MOST_NOTES} fields and notes"
            )));
        }
        layout.add_fields(&self.fields, "", 0, 0)?;
        for field in &self.fields {
            let start = layout.fields.last().map_or(0, |&(_, end)| end);
            layout.fields.push((start, start + columns_of(&field.what)));
        }
        Ok(layout)
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_fields(&self.fields, out);
        put_notes(&self.notes, out);
    }

    pub(super) fn take(take: &mut Take<'_>) -> Result<Schema> {
        let mut left = MOST_NOTES;
        let fields = take_fields(take, 0, &mut left)?;
        let schema = Schema { fields, notes: take_notes(take, &mut left)? };
        // What is wrong with a schema in a file is that file's fault.
        schema.layout().map(|_| schema).map_err(|_| take.corrupt())
    }
}

fn put_text(text: &str, out: &mut Vec<u8>) {
    out.put_varint(text.len() as u64);
    out.put(text.as_bytes());
}

fn take_text(take: &mut Take<'_>) -> Result<String> {
    let bytes = take.string()?;
    String::from_utf8(bytes.to_vec()).map_err(|_| take.corrupt())
}

fn put_notes(notes: &[(String, String)], out: &mut Vec<u8>) {
    out.put_varint(notes.len() as u64);
    for (about, says) in notes {
        put_text(about, out);
        put_text(says, out);
    }
}

/// How many fields and notes there are, within one another, too.
fn fields_and_notes(fields: &[Field]) -> usize {
    fn of(what: &Type) -> usize {
        match what {
            Type::Optional(inner) | Type::List(inner) | Type::Array(inner, _) => of(inner),
            Type::Record(fields) => fields_and_notes(fields),
            _ => 0,
        }
    }
    fields.iter().map(|field| 1 + field.notes.len() + of(&field.what)).sum()
}

fn take_notes(take: &mut Take<'_>, left: &mut usize) -> Result<Vec<(String, String)>> {
    let count = take.count(*left as u64)?;
    *left -= count;
    (0..count).map(|_| Ok((take_text(take)?, take_text(take)?))).collect()
}

fn put_fields(fields: &[Field], out: &mut Vec<u8>) {
    out.put_varint(fields.len() as u64);
    for field in fields {
        put_text(&field.name, out);
        put_type(&field.what, out);
        put_notes(&field.notes, out);
    }
}

fn take_fields(take: &mut Take<'_>, depth: usize, left: &mut usize) -> Result<Vec<Field>> {
    let count = take.count(*left as u64)?;
    *left -= count;
    (0..count)
        .map(|_| {
            let name = take_text(take)?;
            let what = take_type(take, depth, left)?;
            Ok(Field { name, what, notes: take_notes(take, left)? })
        })
        .collect()
}

fn put_type(what: &Type, out: &mut Vec<u8>) {
    match what {
        Type::Number(number) => out.put_u8(*number as u8),
        Type::Optional(one) => {
            out.put_u8(32);
            put_type(one, out);
        }
        Type::List(items) => {
            out.put_u8(33);
            put_type(items, out);
        }
        Type::Array(items, len) => {
            out.put_u8(34);
            out.put_varint(u64::from(*len));
            put_type(items, out);
        }
        Type::Record(fields) => {
            out.put_u8(35);
            put_fields(fields, out);
        }
        Type::Text => out.put_u8(36),
        Type::Bytes => out.put_u8(37),
    }
}

fn take_type(take: &mut Take<'_>, depth: usize, left: &mut usize) -> Result<Type> {
    if depth > DEEPEST {
        return Err(take.corrupt());
    }
    let mut inner = |take: &mut Take<'_>| take_type(take, depth + 1, left).map(Box::new);
    Ok(match take.u8()? {
        number if usize::from(number) < Number::ALL.len() => {
            Type::Number(Number::ALL[usize::from(number)])
        }
        32 => Type::Optional(inner(take)?),
        33 => Type::List(inner(take)?),
        34 => {
            let len = take.count(LONGEST_ARRAY)? as u32;
            Type::Array(inner(take)?, len)
        }
        35 => Type::Record(take_fields(take, depth + 1, left)?),
        36 => Type::Text,
        37 => Type::Bytes,
        other => return Err(Error::Unsupported { what: "type of a field", found: other.into() }),
    })
}

/// What a column holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Values of a field.
    #[default]
    Values,
    /// How many items lists have, or bytes texts.
    Counts,
    /// Whether one is there.
    Presence,
}

/// Numbers of one kind, as many as its level has items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Names from the outermost field on, with `.` between them; `[]` stands for the items of a list or an array, and `?` for what may be
    /// there or not. Of counts and presence the same without the last of these.
    pub path: String,
    /// What it holds.
    pub role: Role,
    /// What its numbers are.
    pub number: Number,
    /// Where it has them.
    pub level: usize,
}

/// How many items a level has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Each event is one.
    Events,
    /// So many for each item of the level above.
    Fixed(u32),
    /// As many as this column says, which is on the level above.
    Column(usize),
}

/// Where columns have values: the events, or the items of lists within them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// The level above: of the events none.
    pub parent: Option<usize>,
    /// How many items it has.
    pub count: Count,
}

/// The columns of a schema, and the levels that they are on: a level comes behind the one above.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    columns: Vec<Column>,
    levels: Vec<Level>,
    /// Of each field of the events: its first column, and the one behind its last.
    fields: Vec<(usize, usize)>,
    /// Bytes of all paths.
    paths: usize,
}

/// How many columns a type comes down to.
fn columns_of(what: &Type) -> usize {
    match what {
        Type::Number(_) => 1,
        Type::Optional(one) => 1 + columns_of(one),
        Type::List(items) => 1 + columns_of(items),
        Type::Array(items, _) => columns_of(items),
        Type::Record(fields) => fields.iter().map(|field| columns_of(&field.what)).sum(),
        Type::Text | Type::Bytes => 2,
    }
}

impl Layout {
    /// All columns, in order.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// All levels; the first is that of the events.
    #[must_use]
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// The columns of a field of the events, by its number.
    #[must_use]
    pub fn columns_of(&self, field: usize) -> std::ops::Range<usize> {
        self.fields.get(field).map_or(0..0, |&(start, end)| start..end)
    }

    /// The column of this path and role.
    #[must_use]
    pub fn find(&self, path: &str, role: Role) -> Option<usize> {
        self.columns.iter().position(|column| column.role == role && column.path == path)
    }

    /// Columns of bytes of which texts are made, or lists of nothing else: behind those of their lengths.
    pub(super) fn texts(&self) -> impl Iterator<Item = usize> + '_ {
        let mut columns = vec![0; self.levels.len()];
        self.columns.iter().for_each(|column| columns[column.level] += 1);
        let mut below = vec![false; self.levels.len()];
        self.levels.iter().filter_map(|level| level.parent).for_each(|above| below[above] = true);
        let is_text = move |&i: &usize| {
            let column = &self.columns[i];
            let counts = match self.levels[column.level].count {
                Count::Column(counts) => {
                    self.columns[counts].role == Role::Counts && counts + 1 == i
                }
                _ => false,
            };
            counts
                && column.number == Number::U8
                && columns[column.level] == 1
                && !below[column.level]
        };
        (0..self.columns.len()).filter(is_text)
    }

    /// The same with numbers of words in place of bytes, in some columns of texts.
    pub(super) fn with_words(&self, is_word: impl Fn(usize) -> bool) -> Layout {
        let mut layout = self.clone();
        let words = layout.columns.iter_mut().enumerate().filter(|(i, _)| is_word(*i));
        words.for_each(|(_, column)| column.number = Number::U32);
        layout
    }

    fn add_fields(
        &mut self,
        fields: &[Field],
        path: &str,
        level: usize,
        depth: usize,
    ) -> Result<()> {
        let mut names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::invalid(format!("there are two fields {:?}", pair[0])));
        }
        fields.iter().try_for_each(|field| {
            let dot = if path.is_empty() { "" } else { "." };
            let path = format!("{path}{dot}{}", field.name);
            self.add(&field.what, path, level, depth)
        })
    }

    fn add(&mut self, what: &Type, path: String, level: usize, depth: usize) -> Result<()> {
        if depth > DEEPEST {
            return Err(Error::invalid(format!("types lie no more than {DEEPEST} deep: {path}")));
        }
        // Texts have two.
        if self.columns.len() + 2 > MOST_COLUMNS {
            return Err(Error::invalid(format!("events have {MOST_COLUMNS} columns at most")));
        }
        self.paths += path.len();
        if self.paths > MOST_PATHS {
            return Err(Error::invalid("the names of all columns are too long"));
        }
        let counted = |this: &mut Layout, role, number| {
            let count = Count::Column(this.columns.len());
            this.columns.push(Column { path: path.clone(), role, number, level });
            this.levels.push(Level { parent: Some(level), count });
            this.levels.len() - 1
        };
        match what {
            Type::Number(number) => {
                self.columns.push(Column { path, role: Role::Values, number: *number, level });
            }
            Type::Optional(one) => {
                let level = counted(self, Role::Presence, Number::Bool);
                self.add(one, format!("{path}?"), level, depth + 1)?;
            }
            Type::List(items) => {
                let level = counted(self, Role::Counts, Number::U32);
                self.add(items, format!("{path}[]"), level, depth + 1)?;
            }
            Type::Array(items, len) => {
                if *len == 0 || u64::from(*len) > LONGEST_ARRAY {
                    let what = format!("an array has 1 to {LONGEST_ARRAY} items: {path}");
                    return Err(Error::invalid(what));
                }
                self.levels.push(Level { parent: Some(level), count: Count::Fixed(*len) });
                let level = self.levels.len() - 1;
                self.add(items, format!("{path}[]"), level, depth + 1)?;
            }
            Type::Record(fields) => self.add_fields(fields, &path, level, depth + 1)?,
            Type::Text | Type::Bytes => {
                let level = counted(self, Role::Counts, Number::U32);
                let (path, role) = (format!("{path}[]"), Role::Values);
                self.columns.push(Column { path, role, number: Number::U8, level });
            }
        }
        Ok(())
    }
}
