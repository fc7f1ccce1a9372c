//! The types of what JSON lines hold.

use fiche::events::{Field, Number, Type};
use serde_json::Value;

/// What a note is about that names fields whose texts are JSON themselves: on each line a path, a JSON list of names, in which
/// items of lists are null.
pub const JSON: &str = "json";

/// What was seen where a value may be.
#[derive(Default)]
pub struct Seen {
    null: bool,
    truth: bool,
    text: bool,
    float: bool,
    /// The lowest and the highest whole number.
    whole: Option<(i128, i128)>,
    items: Option<Box<Seen>>,
    records: Option<Records>,
}

/// Records that were seen.
#[derive(Default)]
struct Records {
    count: u64,
    /// Keys in the order in which they came, what was there, and how often.
    fields: Vec<(String, Seen, u64)>,
}

impl Seen {
    pub fn look(&mut self, value: &Value) {
        match value {
            Value::Null => self.null = true,
            Value::Bool(_) => self.truth = true,
            Value::String(_) => self.text = true,
            Value::Number(number) => {
                let whole = number.as_i64().map(i128::from).or(number.as_u64().map(i128::from));
                match whole {
                    None => self.float = true,
                    Some(whole) => {
                        let (low, high) = self.whole.unwrap_or((whole, whole));
                        self.whole = Some((low.min(whole), high.max(whole)));
                    }
                }
            }
            Value::Array(items) => {
                let inner = self.items.get_or_insert_default();
                items.iter().for_each(|item| inner.look(item));
            }
            Value::Object(object) => {
                let Records { count, fields } = self.records.get_or_insert_default();
                *count += 1;
                for (i, (name, value)) in object.iter().enumerate() {
                    // Mostly they come in the same order.
                    let is_next = fields.get(i).is_some_and(|field| field.0 == *name);
                    let place = match is_next {
                        true => Some(i),
                        false => fields.iter().position(|field| field.0 == *name),
                    };
                    let place = place.unwrap_or_else(|| {
                        fields.push((name.clone(), Seen::default(), 0));
                        fields.len() - 1
                    });
                    fields[place].1.look(value);
                    fields[place].2 += 1;
                }
            }
        }
    }

    /// The fields of records; paths of what is kept as JSON are appended.
    pub fn fields(&self, path: &mut Vec<Value>, json: &mut Vec<String>) -> Vec<Field> {
        let Some(Records { count: records, fields }) = &self.records else { return Vec::new() };
        let field = |(name, seen, count): &(String, Seen, u64)| {
            path.push(Value::from(name.as_str()));
            let what = seen.what(path, count < records, json);
            path.pop();
            Field::new(name.clone(), what)
        };
        fields.iter().map(field).collect()
    }

    /// The type of all that was seen.
    fn what(&self, path: &mut Vec<Value>, may_be_missing: bool, json: &mut Vec<String>) -> Type {
        /// Whole numbers up to this are told apart as floating point numbers, too.
        const EXACT: i128 = 1 << 53;
        let is_number = self.float || self.whole.is_some();
        let kinds =
            [self.truth, self.text, is_number, self.items.is_some(), self.records.is_some()];
        let what = match (kinds.iter().filter(|&&there| there).count(), self.whole) {
            (0, _) => Type::from(Number::Bool),
            (1, _) if self.truth => Type::from(Number::Bool),
            (1, _) if self.text => Type::Text,
            (1, None) if is_number => Type::from(Number::F64),
            (1, Some((low, high)))
                if !self.float && low >= i64::MIN.into() && high <= i64::MAX.into() =>
            {
                Type::from(Number::I64)
            }
            (1, Some((0.., _))) if !self.float => Type::from(Number::U64),
            (1, Some((low, high))) if self.float && low >= -EXACT && high <= EXACT => {
                Type::from(Number::F64)
            }
            (1, None) => match (&self.items, &self.records) {
                (Some(items), _) => {
                    path.push(Value::Null);
                    let items = items.what(path, false, json);
                    path.pop();
                    items.list()
                }
                _ => Type::Record(self.fields(path, json)),
            },
            _ => {
                json.push(Value::from(path.clone()).to_string());
                Type::Text
            }
        };
        if self.null || may_be_missing || kinds == [false; 5] { what.optional() } else { what }
    }
}
