//! Types as text, as awkward arrays and datashape write them: `var * {x: float32, n: ?int64}`.

use std::fmt;
use std::str::FromStr;

use super::schema::{Field, Number, Type};
use crate::error::{Error, Result};

impl Number {
    /// What numpy calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Number::Bool => "bool",
            Number::U8 => "uint8",
            Number::U16 => "uint16",
            Number::U32 => "uint32",
            Number::U64 => "uint64",
            Number::I8 => "int8",
            Number::I16 => "int16",
            Number::I32 => "int32",
            Number::I64 => "int64",
            Number::F16 => "float16",
            Number::F32 => "float32",
            Number::F64 => "float64",
        }
    }
}

/// The value of a floating point number of 2 bytes, by its bits.
///
/// ```
/// assert_eq!([0x3C00, 0xC000, 1, 0xFC00].map(fiche::events::half), [1.0, -2.0, 2f32.powi(-24), f32::NEG_INFINITY]);
/// ```
#[must_use]
pub fn half(bits: u16) -> f32 {
    let sign = u32::from(bits >> 15) << 31;
    let (exponent, rest) = (u32::from(bits >> 10 & 0x1F), u32::from(bits & 0x3FF));
    match exponent {
        // So small that none is normal: a whole number of the smallest.
        0 => f32::from_bits((rest as f32 * 2f32.powi(-24)).to_bits() | sign),
        31 => f32::from_bits(sign | 0xFF << 23 | rest << 13),
        _ => f32::from_bits(sign | (exponent + 112) << 23 | rest << 13),
    }
}

/// Whether a name needs no quotes.
fn is_plain(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Number(number) => f.write_str(number.name()),
            Type::Optional(one) => match **one {
                Type::List(_) | Type::Array(..) => write!(f, "option[{one}]"),
                _ => write!(f, "?{one}"),
            },
            Type::List(items) => write!(f, "var * {items}"),
            Type::Array(items, len) => write!(f, "{len} * {items}"),
            Type::Record(fields) => {
                f.write_str("{")?;
                for (i, field) in fields.iter().enumerate() {
                    let comma = if i > 0 { ", " } else { "" };
                    match is_plain(&field.name) {
                        true => write!(f, "{comma}{}: {}", field.name, field.what)?,
                        false => write!(f, "{comma}{:?}: {}", field.name, field.what)?,
                    }
                }
                f.write_str("}")
            }
            Type::Text => f.write_str("string"),
            Type::Bytes => f.write_str("bytes"),
        }
    }
}

/// The type of such a text: numbers by numpy's names, `var * T`, `3 * T`, `?T` or `option[T]`, `{name: T, "any name": T}`, `string`,
/// `bytes`.
///
/// ```
/// use fiche::events::Type;
///
/// let jets: Type = "var * {pt: float32, tags: ?var * string}".parse()?;
/// assert_eq!(jets.to_string(), "var * {pt: float32, tags: option[var * string]}");
/// assert!("float33".parse::<Type>().is_err());
/// # Ok::<(), fiche::Error>(())
/// ```
impl FromStr for Type {
    type Err = Error;

    /// # Errors
    /// [`Error::Invalid`] where the text is of no type.
    fn from_str(text: &str) -> Result<Type> {
        let mut parser = Parser { text, rest: text };
        let what = parser.what(0)?;
        parser.blank();
        if parser.rest.is_empty() { Ok(what) } else { Err(parser.wrong()) }
    }
}

/// Deeper ones are refused by schemas, too.
const DEEPEST: usize = 16;

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn wrong(&self) -> Error {
        let at = self.text.len() - self.rest.len();
        Error::invalid(format!("{:?} is no type, from byte {at} on", self.text))
    }

    fn blank(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// Whether this comes next, which is gone then.
    fn next(&mut self, mark: &str) -> bool {
        self.blank();
        let rest = self.rest.strip_prefix(mark);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, mark: &str) -> Result<()> {
        if self.next(mark) { Ok(()) } else { Err(self.wrong()) }
    }

    /// Letters, digits and `_`.
    fn word(&mut self) -> &'a str {
        self.blank();
        let is_over = |c: char| !c.is_ascii_alphanumeric() && c != '_';
        let (word, rest) = self.rest.split_at(self.rest.find(is_over).unwrap_or(self.rest.len()));
        self.rest = rest;
        word
    }

    fn what(&mut self, depth: usize) -> Result<Type> {
        if depth > DEEPEST {
            return Err(Error::invalid(format!("types lie no more than {DEEPEST} deep")));
        }
        if self.next("?") {
            return Ok(self.what(depth + 1)?.optional());
        }
        if self.next("{") {
            return self.fields(depth);
        }
        let before = self.rest;
        let word = self.word();
        if self.next("*") {
            let inner = self.what(depth + 1)?;
            return match (word, word.parse::<u32>()) {
                ("var", _) => Ok(inner.list()),
                (_, Ok(len)) => Ok(inner.array(len)),
                _ => {
                    self.rest = before;
                    Err(self.wrong())
                }
            };
        }
        if word == "option" {
            self.expect("[")?;
            let inner = self.what(depth + 1)?;
            self.expect("]")?;
            return Ok(inner.optional());
        }
        let number = Number::ALL.into_iter().find(|number| number.name() == word);
        match (number, word) {
            (Some(number), _) => Ok(number.into()),
            (_, "string") => Ok(Type::Text),
            (_, "bytes") => Ok(Type::Bytes),
            _ => {
                self.rest = before;
                Err(self.wrong())
            }
        }
    }

    fn fields(&mut self, depth: usize) -> Result<Type> {
        let mut fields = Vec::new();
        while !self.next("}") {
            if !fields.is_empty() {
                self.expect(",")?;
            }
            self.blank();
            let name = match self.rest.starts_with('"') {
                true => self.quoted()?,
                false => self.word().to_owned(),
            };
            if !self.next(":") {
                return Err(self.wrong());
            }
            fields.push(Field::new(name, self.what(depth + 1)?));
        }
        Ok(Type::Record(fields))
    }

    /// A name in quotes, in which a backslash is before a quote, a backslash and what is not shown.
    fn quoted(&mut self) -> Result<String> {
        self.expect("\"")?;
        let mut name = String::new();
        loop {
            let mut chars = self.rest.chars();
            let next = chars.next();
            self.rest = chars.as_str();
            match next {
                None => return Err(self.wrong()),
                Some('"') => return Ok(name),
                Some('\\') => name.push(self.escaped()?),
                Some(other) => name.push(other),
            }
        }
    }

    fn escaped(&mut self) -> Result<char> {
        let mut chars = self.rest.chars();
        let next = chars.next();
        self.rest = chars.as_str();
        match next {
            Some('n') => Ok('\n'),
            Some('r') => Ok('\r'),
            Some('t') => Ok('\t'),
            Some('0') => Ok('\0'),
            Some('u') => {
                let code = self.rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
                let Some((code, rest)) = code else { return Err(self.wrong()) };
                self.rest = rest;
                let code = u32::from_str_radix(code, 16).ok().and_then(char::from_u32);
                code.ok_or_else(|| self.wrong())
            }
            Some(other @ ('"' | '\\' | '\'')) => Ok(other),
            _ => Err(self.wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn types() -> impl Strategy<Value = Type> {
        let leaf = prop_oneof![
            (0..Number::ALL.len()).prop_map(|i| Type::Number(Number::ALL[i])),
            Just(Type::Text),
            Just(Type::Bytes),
        ];
        leaf.prop_recursive(4, 20, 3, |inner| {
            prop_oneof![
                inner.clone().prop_map(Type::list),
                inner.clone().prop_map(Type::optional),
                (inner.clone(), 1u32..9).prop_map(|(inner, len)| inner.array(len)),
                proptest::collection::vec((any::<String>(), inner), 0..3).prop_map(|fields| {
                    Type::Record(fields.into_iter().map(|(name, t)| Field::new(name, t)).collect())
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn types_come_back_from_their_text(what in types()) {
            prop_assert_eq!(what.to_string().parse::<Type>().unwrap(), what);
        }

        #[test]
        fn any_text_is_a_type_or_an_error(text in "[ -~]{0,40}|([?{}:*,\\[\\]\"]|var|option|int8|x){0,24}") {
            if let Ok(what) = text.parse::<Type>() {
                prop_assert_eq!(what.to_string().parse::<Type>().unwrap(), what);
            }
        }
    }

    #[test]
    fn what_is_no_type_is_told_from_where() {
        let error = "var * {x: float32, y: flt}".parse::<Type>().unwrap_err().to_string();
        assert!(error.contains("from byte 22 on"), "{error}");
        for text in ["", "var *", "{x int8}", "{x: int8", "0x3 * int8", "option[int8", "int8 int8"]
        {
            assert!(text.parse::<Type>().is_err(), "{text}");
        }
        assert!("?".repeat(100_000).parse::<Type>().is_err());
    }
}
