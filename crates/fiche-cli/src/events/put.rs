//! JSON as events.

use fiche::events::{Batch, Field, Number, Schema, Type};
use serde_json::Value;

use super::infer::JSON;

/// Where the values of a field go.
pub enum Shape {
    Number(usize, Number),
    Optional(usize, Box<Shape>),
    List(usize, Box<Shape>),
    Array(Box<Shape>, u32),
    Record(Vec<(String, Shape)>),
    Text(usize),
    /// A text that is JSON.
    Json(usize),
    Bytes(usize),
}

impl Shape {
    /// Those of all fields.
    pub fn all(schema: &Schema) -> Vec<(String, Shape)> {
        let json = schema.notes.iter().find(|(about, _)| about == JSON);
        let json: Vec<&str> =
            json.map(|(_, paths)| paths.split('\n').collect()).unwrap_or_default();
        let mut column = 0;
        let mut field = |field: &Field| {
            let mut path = vec![Value::from(field.name.as_str())];
            (field.name.clone(), Shape::new(&field.what, &mut path, &json, &mut column))
        };
        schema.fields.iter().map(&mut field).collect()
    }

    fn new(what: &Type, path: &mut Vec<Value>, json: &[&str], column: &mut usize) -> Shape {
        let mut next = |columns: usize| {
            *column += columns;
            *column - columns
        };
        let mut below = |name: Value, what: &Type, column: &mut usize| {
            path.push(name);
            let shape = Shape::new(what, path, json, column);
            path.pop();
            shape
        };
        match what {
            Type::Number(number) => Shape::Number(next(1), *number),
            Type::Optional(one) => {
                let at = next(1);
                Shape::Optional(at, Box::new(Shape::new(one, path, json, column)))
            }
            Type::List(items) => {
                let at = next(1);
                Shape::List(at, Box::new(below(Value::Null, items, column)))
            }
            Type::Array(items, len) => {
                Shape::Array(Box::new(below(Value::Null, items, column)), *len)
            }
            Type::Record(fields) => {
                let field = |field: &Field| {
                    let name = Value::from(field.name.as_str());
                    (field.name.clone(), below(name, &field.what, column))
                };
                Shape::Record(fields.iter().map(field).collect())
            }
            Type::Text if json.contains(&Value::from(path.clone()).to_string().as_str()) => {
                Shape::Json(next(2))
            }
            Type::Text => Shape::Text(next(2)),
            _ => Shape::Bytes(next(2)),
        }
    }
}

/// Adds an event. The error says which field has what.
pub fn event(shapes: &[(String, Shape)], value: &Value, batch: &mut Batch) -> Result<(), String> {
    record(shapes, value, batch)
}

fn record(fields: &[(String, Shape)], value: &Value, batch: &mut Batch) -> Result<(), String> {
    let Value::Object(object) = value else { return Err("there is no object".to_owned()) };
    let mut found = 0;
    for (name, shape) in fields {
        let value = object.get(name);
        found += usize::from(value.is_some());
        put(shape, value.unwrap_or(&Value::Null), batch)
            .map_err(|what| format!("{name}: {what}"))?;
    }
    if found < object.len() {
        let is_new = |name: &&String| fields.iter().all(|(known, _)| known != *name);
        let name = object.keys().find(is_new).cloned().unwrap_or_default();
        return Err(format!("there is no field {name:?}"));
    }
    Ok(())
}

fn put(shape: &Shape, value: &Value, batch: &mut Batch) -> Result<(), String> {
    let said = |error: fiche::Error| error.to_string();
    match (shape, value) {
        (Shape::Optional(there, one), value) => {
            batch.put(*there, &[!value.is_null()]).map_err(said)?;
            if value.is_null() { Ok(()) } else { put(one, value, batch) }
        }
        (Shape::Json(column), value) => {
            batch.put_texts(*column, &[value.to_string()]).map_err(said)
        }
        (Shape::Text(column), Value::String(text)) => {
            batch.put_texts(*column, &[text]).map_err(said)
        }
        (Shape::Bytes(column), Value::String(text)) => {
            let bytes = decoded(text).ok_or("this is not base64")?;
            batch.put_texts(*column, &[bytes]).map_err(said)
        }
        (Shape::List(counts, items), Value::Array(array)) => {
            let count = u32::try_from(array.len()).map_err(|_| "too many items")?;
            batch.put(*counts, &[count]).map_err(said)?;
            array.iter().try_for_each(|item| put(items, item, batch))
        }
        (Shape::Array(items, len), Value::Array(array)) if array.len() == *len as usize => {
            array.iter().try_for_each(|item| put(items, item, batch))
        }
        (Shape::Record(fields), value) => record(fields, value, batch),
        (Shape::Number(column, number), value) => {
            self::number(*column, *number, value, batch).unwrap_or_else(|| Err(wrong(value)))
        }
        (_, value) => Err(wrong(value)),
    }
}

fn wrong(value: &Value) -> String {
    let mut shown = value.to_string();
    if shown.chars().count() > 40 {
        shown = shown.chars().take(40).chain(['…']).collect();
    }
    format!("{shown} is not of its type")
}

/// `None` where the number cannot be one of these.
fn number(
    column: usize,
    number: Number,
    value: &Value,
    batch: &mut Batch,
) -> Option<Result<(), String>> {
    let whole = || value.as_i64().map(i128::from).or(value.as_u64().map(i128::from));
    macro_rules! whole {
        ($kind:ty) => {
            batch.put(column, &[<$kind>::try_from(whole()?).ok()?])
        };
    }
    let done = match number {
        Number::Bool => batch.put(column, &[value.as_bool()?]),
        Number::U8 => whole!(u8),
        Number::U16 => whole!(u16),
        Number::U32 => whole!(u32),
        Number::U64 => whole!(u64),
        Number::I8 => whole!(i8),
        Number::I16 => whole!(i16),
        Number::I32 => whole!(i32),
        Number::I64 => whole!(i64),
        Number::F32 => {
            let float = value.as_f64()? as f32;
            let is_other = whole().is_some_and(|whole| float as i128 != whole);
            batch.put(column, &[Some(float).filter(|float| float.is_finite() && !is_other)?])
        }
        Number::F64 => {
            let float = value.as_f64()?;
            let is_other = whole().is_some_and(|whole| float as i128 != whole);
            batch.put(column, &[Some(float).filter(|_| !is_other)?])
        }
        _ => return None,
    };
    Some(done.map_err(|error| error.to_string()))
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Bytes in base64 (RFC 4648, section 4).
pub fn encoded(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for some in bytes.chunks(3) {
        let of = |i: usize| some.get(i).map_or(0, |&byte| u32::from(byte));
        let word = of(0) << 16 | of(1) << 8 | of(2);
        for i in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * i) & 63) as usize];
            text.push(if i > some.len() { '=' } else { digit.into() });
        }
    }
    text
}

/// Those of such a text.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let body = text.trim_end_matches('=').as_bytes();
    if !digits.len().is_multiple_of(4) || digits.len() - body.len() > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3);
    for some in body.chunks(4) {
        let mut word = 0;
        for i in 0..4 {
            let digit = match some.get(i) {
                Some(digit) => DIGITS.iter().position(|known| known == digit)? as u32,
                None => 0,
            };
            word = word << 6 | digit;
        }
        let all = [(word >> 16) as u8, (word >> 8) as u8, word as u8];
        bytes.extend_from_slice(&all[..some.len().checked_sub(1).filter(|&n| n > 0)?]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_base64_and_come_back() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(encoded(bytes.as_bytes()), text);
            assert_eq!(decoded(text).unwrap(), bytes.as_bytes());
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decoded(&encoded(&all)).unwrap(), all);
        for wrong in ["Z", "Zg=", "Z===", "Zm9?", "====", "Zg==Zg=="] {
            assert_eq!(decoded(wrong), None, "{wrong}");
        }
    }
}
