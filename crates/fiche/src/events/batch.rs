//! Events in memory, column by column.

use std::sync::Arc;

use super::packet::load;
use super::schema::{Count, Layout, Number, Role, Schema};
use crate::error::{Error, Result};

/// A number of Rust's that columns hold.
pub trait Value: Copy + private::Sealed {
    /// What it is called in a schema.
    const NUMBER: Number;
    /// Its bits, the lowest first; what is above them is zero.
    fn to_bits(self) -> u64;
    /// The number of these bits.
    fn from_bits(bits: u64) -> Self;
}

mod private {
    pub trait Sealed {}
}

macro_rules! values {
    ($($kind:ident $number:ident $to:expr, $from:expr;)*) => {$(
        impl private::Sealed for $kind {}
        impl Value for $kind {
            const NUMBER: Number = Number::$number;
            fn to_bits(self) -> u64 {
                let to: fn($kind) -> u64 = $to;
                to(self)
            }
            fn from_bits(bits: u64) -> $kind {
                let from: fn(u64) -> $kind = $from;
                from(bits)
            }
        }
    )*};
}

values! {
    bool Bool u64::from, |bits| bits != 0;
    u8 U8 u64::from, |bits| bits as u8;
    u16 U16 u64::from, |bits| bits as u16;
    u32 U32 u64::from, |bits| bits as u32;
    u64 U64 |value| value, |bits| bits;
    i8 I8 |value| u64::from(value as u8), |bits| bits as i8;
    i16 I16 |value| u64::from(value as u16), |bits| bits as i16;
    i32 I32 |value| u64::from(value as u32), |bits| bits as i32;
    i64 I64 |value| value as u64, |bits| bits as i64;
    f32 F32 |value| value.to_bits().into(), |bits| f32::from_bits(bits as u32);
    f64 F64 |value| value.to_bits(), f64::from_bits;
}

/// Events, column by column: what is written, and what comes of reading.
///
/// Numbers lie as bytes, the lowest first.
///
/// ```
/// use fiche::events::{Batch, Field, Number, Role, Schema, Type};
///
/// let pt = Field::new("pt", Type::from(Number::F32).list());
/// let mut batch = Batch::new(&Schema::new(vec![Field::new("run", Number::U32), pt])?)?;
/// batch.put(0, &[7u32, 7])?;
/// batch.put(1, &[3u32, 0])?; // three tracks in the first event, none in the second
/// batch.put(2, &[41.5f32, 20.25, 1.5])?;
/// assert_eq!(batch.check()?, [2, 3]); // items of each level
/// # Ok::<(), fiche::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    layout: Arc<Layout>,
    /// Of events without a column of their own.
    len: usize,
    pub(super) columns: Vec<Vec<u8>>,
}

impl Batch {
    /// An empty one of events of a schema.
    ///
    /// # Errors
    /// As of [`Schema::layout`].
    pub fn new(schema: &Schema) -> Result<Batch> {
        schema.layout().map(|layout| Batch::of(Arc::new(layout)))
    }

    pub(super) fn of(layout: Arc<Layout>) -> Batch {
        let columns = vec![Vec::new(); layout.columns().len()];
        Batch { layout, len: 0, columns }
    }

    /// The same events in a layout that has other numbers in some columns, which are left empty: others are kept.
    pub(super) fn of_columns(
        &self,
        layout: &Arc<Layout>,
        is_kept: impl Fn(usize) -> bool,
    ) -> Batch {
        let kept =
            |(i, bytes): (usize, &Vec<u8>)| if is_kept(i) { bytes.clone() } else { Vec::new() };
        let columns = self.columns.iter().enumerate().map(kept).collect();
        Batch { layout: layout.clone(), len: self.len(), columns }
    }

    /// Sees whether it is of this layout.
    pub(super) fn be_of(&mut self, layout: &Arc<Layout>) -> Result<()> {
        if self.layout != *layout {
            return Err(Error::invalid("a batch of another schema"));
        }
        // From now on the two are seen to be the same at once.
        if !Arc::ptr_eq(&self.layout, layout) {
            self.layout = layout.clone();
        }
        Ok(())
    }

    /// The columns that it has.
    #[must_use]
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Events.
    #[must_use]
    pub fn len(&self) -> usize {
        let of_events = self.layout.columns().iter().position(|column| column.level == 0);
        let columns = of_events.map_or(0, |column| self.values_in(column));
        // Of what was read not all columns may be there.
        columns.max(self.len)
    }

    /// True where there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all columns.
    #[must_use]
    pub fn size(&self) -> usize {
        self.columns.iter().map(Vec::len).sum()
    }

    /// Says how many events there are, which matters where none of their columns is on the level of events.
    pub fn set_len(&mut self, events: usize) {
        self.len = events;
    }

    /// How many values a column has.
    #[must_use]
    pub fn values_in(&self, column: usize) -> usize {
        self.columns[column].len() / self.layout.columns()[column].number.width()
    }

    /// Adds values to a column.
    ///
    /// # Errors
    /// [`Error::Invalid`] where it is not of these.
    pub fn put<T: Value>(&mut self, column: usize, values: &[T]) -> Result<()> {
        let about = &self.layout.columns()[column];
        if about.number != T::NUMBER {
            let (path, number) = (&about.path, about.number);
            return Err(Error::invalid(format!("{path} has {number:?}, not {:?}", T::NUMBER)));
        }
        let width = about.number.width();
        let bytes = &mut self.columns[column];
        bytes.reserve(values.len() * width);
        for value in values {
            bytes.extend_from_slice(&crate::wire::low_bytes(value.to_bits())[..width]);
        }
        Ok(())
    }

    /// Adds values to a column, as they lie in memory with the lowest byte first.
    ///
    /// # Errors
    /// [`Error::Invalid`] for bytes that are no whole number of them, and for booleans that are neither 0 nor 1.
    pub fn put_bytes(&mut self, column: usize, values: &[u8]) -> Result<()> {
        let about = &self.layout.columns()[column];
        let is_wrong = !values.len().is_multiple_of(about.number.width())
            || about.number == Number::Bool && values.iter().any(|&value| value > 1);
        if is_wrong {
            return Err(Error::invalid(format!("{} has {:?}", about.path, about.number)));
        }
        self.columns[column].extend_from_slice(values);
        Ok(())
    }

    /// Adds texts, or anything of bytes: their lengths to this column, which is one of counts, and what they say to the next.
    ///
    /// # Errors
    /// [`Error::Invalid`] where these columns are not of texts, [`Error::Limit`] for one of 4 GiB.
    pub fn put_texts<T: AsRef<[u8]>>(&mut self, column: usize, texts: &[T]) -> Result<()> {
        let is_text = self.layout.columns().get(column + 1).is_some_and(|bytes| {
            let level = &self.layout.levels()[bytes.level];
            bytes.number == Number::U8 && level.count == Count::Column(column)
        });
        if !is_text {
            return Err(Error::invalid("these columns are not of texts"));
        }
        for text in texts {
            let (text, allowed) = (text.as_ref(), u64::from(u32::MAX));
            let limit = |_| Error::Limit { what: "a text", need: text.len() as u64, allowed };
            self.put(column, &[u32::try_from(text.len()).map_err(limit)?])?;
            self.put(column + 1, text)?;
        }
        Ok(())
    }

    /// The values of a column.
    ///
    /// # Panics
    /// Where it is not of these.
    pub fn values<T: Value>(&self, column: usize) -> impl ExactSizeIterator<Item = T> + '_ {
        let number = self.layout.columns()[column].number;
        assert_eq!(number, T::NUMBER, "another kind of numbers");
        let bytes = self.columns[column].chunks_exact(number.width());
        bytes.map(|bytes| T::from_bits(crate::wire::load_low(bytes)))
    }

    /// The bytes of a column, each value with its lowest byte first.
    #[must_use]
    pub fn bytes(&self, column: usize) -> &[u8] {
        &self.columns[column]
    }

    /// Events by their places, in this order, of the columns that are wanted.
    pub(super) fn pick(&self, places: &[usize], wanted: &[bool]) -> Batch {
        let mut picked = Batch::of(self.layout.clone());
        // Where each level has its first item of each event.
        let mut starts: Vec<Vec<usize>> = Vec::with_capacity(self.layout.levels().len());
        for level in self.layout.levels() {
            let above = |parent: usize| starts[parent].iter().copied();
            starts.push(match (level.count, level.parent) {
                (Count::Fixed(len), Some(parent)) => {
                    above(parent).map(|at| at * len as usize).collect()
                }
                (Count::Column(counts), Some(parent)) => {
                    let (bytes, width) =
                        (&self.columns[counts], self.layout.columns()[counts].number.width());
                    let mut sums = Vec::with_capacity(bytes.len() / width + 1);
                    let mut sum = 0;
                    sums.push(0);
                    sums.extend((0..bytes.len() / width).map(|i| {
                        sum += load(bytes, width, i) as usize;
                        sum
                    }));
                    // Of a column that was not read nothing is there.
                    above(parent).map(|at| sums.get(at).copied().unwrap_or(0)).collect()
                }
                _ => (0..=self.len()).collect(),
            });
        }
        for (i, column) in self.layout.columns().iter().enumerate().filter(|(i, _)| wanted[*i]) {
            let (from, to) = (&self.columns[i], &mut picked.columns[i]);
            let starts = (column.level > 0).then(|| &starts[column.level][..]);
            match column.number.width() {
                1 => gather::<1>(from, starts, places, to),
                2 => gather::<2>(from, starts, places, to),
                4 => gather::<4>(from, starts, places, to),
                _ => gather::<8>(from, starts, places, to),
            }
        }
        picked.len = places.len();
        picked
    }

    /// Makes room for all events, of which these are the first: others are likely to be as long. If not, or if that is more than 256 MiB,
    /// room is made when it is needed.
    pub(super) fn make_room(&mut self, first: u64, all: u64) {
        const MOST: u128 = 256 << 20;
        let need = |bytes: usize| {
            let need = bytes as u128 * u128::from(all) / u128::from(first.max(1));
            need + need / 32
        };
        if need(self.size()) > MOST {
            return;
        }
        for column in &mut self.columns {
            let more = (need(column.len()) as usize).saturating_sub(column.len());
            // Where there is none, it may yet turn out that less is needed.
            let _ = column.try_reserve_exact(more);
        }
    }

    /// Takes all events out; what room there was stays.
    pub fn clear(&mut self) {
        self.columns.iter_mut().for_each(Vec::clear);
        self.len = 0;
    }

    /// How many items each level has.
    ///
    /// # Errors
    /// [`Error::Invalid`] where a column has more or fewer values than its level has items.
    pub fn check(&self) -> Result<Vec<usize>> {
        let mut items: Vec<usize> = Vec::with_capacity(self.layout.levels().len());
        for level in self.layout.levels() {
            let above = level.parent.map_or(0, |parent| items[parent]);
            items.push(match level.count {
                Count::Events => self.len(),
                Count::Fixed(len) => above.saturating_mul(len as usize),
                Count::Column(column) => match self.layout.columns()[column].role {
                    Role::Presence => self.values::<bool>(column).filter(|&there| there).count(),
                    _ => self.values::<u32>(column).map(|count| count as usize).sum(),
                },
            });
        }
        for (i, column) in self.layout.columns().iter().enumerate() {
            let (found, wanted) = (self.values_in(i), items[column.level]);
            if found != wanted {
                let (path, role) = (&column.path, column.role);
                let what =
                    format!("{path} ({role:?}) has {found} values where {wanted} are expected");
                return Err(Error::invalid(what));
            }
        }
        Ok(items)
    }
}

/// Copies the values of events at some places, of which each has one, or those from its start to the next.
fn gather<const WIDTH: usize>(
    from: &[u8],
    starts: Option<&[usize]>,
    places: &[usize],
    to: &mut Vec<u8>,
) {
    let Some(starts) = starts else {
        to.resize(WIDTH * places.len(), 0);
        for (to, &place) in to.chunks_exact_mut(WIDTH).zip(places) {
            to.copy_from_slice(&from[WIDTH * place..WIDTH * (place + 1)]);
        }
        return;
    };
    let len = |&place: &usize| starts[place + 1] - starts[place];
    to.resize(WIDTH * places.iter().map(len).sum::<usize>(), 0);
    let mut rest = &mut to[..];
    for place in places {
        let start = WIDTH * starts[*place];
        let (here, behind) = rest.split_at_mut(WIDTH * len(place));
        let from = &from[start..start + here.len()];
        // A call takes longer than to copy a few.
        match len(place) {
            0..=4 => {
                let values = here.chunks_exact_mut(WIDTH).zip(from.chunks_exact(WIDTH));
                values.for_each(|(to, from)| to.copy_from_slice(from));
            }
            _ => here.copy_from_slice(from),
        }
        rest = behind;
    }
}
