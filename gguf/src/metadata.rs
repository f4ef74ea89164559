//! The metadata: keys and typed values.

use std::collections::HashMap;

use crate::cursor::Cursor;
use crate::error::{GgufError, cut};
use crate::numbers::{self, Numbers, kind};

/// A value of the metadata. Whole numbers of all widths are one of two.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A whole number, 8 to 64 bits, unsigned.
    Unsigned(u64),
    /// A whole number, 8 to 64 bits, signed.
    Signed(i64),
    /// A number of 32 or 64 bits.
    Float(f64),
    /// True or false.
    Bool(bool),
    /// UTF-8.
    String(String),
    /// Values of one type.
    Array(Array),
}

/// An array of the metadata. Arrays of arrays, which no model has, are refused.
#[derive(Debug, Clone, PartialEq)]
pub enum Array {
    /// Numbers, as wide as the file has them.
    Numbers(Numbers),
    /// True or false.
    Bool(Vec<bool>),
    /// UTF-8.
    String(Vec<String>),
}

/// A file's metadata by key.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Metadata {
    values: HashMap<String, Value>,
}

impl Metadata {
    pub(crate) fn read(cursor: &mut Cursor<'_>, count: usize) -> Result<Self, GgufError> {
        let mut values = HashMap::new();
        for index in 0..count {
            let key = cursor.string(&format!("the key of metadata entry {index}"))?;
            let shown = format!("metadata {}", cut(key));
            let kind = cursor.u32(&shown)?;
            let value = read_value(cursor, kind, &shown)?;
            if values.insert(key.to_owned(), value).is_some() {
                return Err(GgufError::invalid(shown, "the key occurs twice"));
            }
        }
        Ok(Self { values })
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// Keys and values, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.values.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// What `read` makes of a key's value; `None` where there is no such key.
    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, GgufError> {
        let Some(value) = self.values.get(key) else {
            return Ok(None);
        };
        match read(value) {
            Some(value) => Ok(Some(value)),
            None => Err(wrong_value(key, value, expected)),
        }
    }

    /// A string, where the key is there.
    ///
    /// # Errors
    /// [`GgufError::WrongValue`] where it is something else; so below.
    pub fn str(&self, key: &str) -> Result<Option<&str>, GgufError> {
        self.typed(key, "a string", |value| match value {
            Value::String(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// A string.
    ///
    /// # Errors
    /// [`GgufError::MissingKey`], [`GgufError::WrongValue`].
    pub fn required_str(&self, key: &str) -> Result<&str, GgufError> {
        self.str(key)?.ok_or_else(|| missing(key, "a string"))
    }

    /// A whole number from 0 on, whatever its width, where the key is there.
    ///
    /// # Errors
    /// [`GgufError::WrongValue`].
    pub fn u64(&self, key: &str) -> Result<Option<u64>, GgufError> {
        self.typed(key, "a whole number from 0 on", Value::as_u64)
    }

    /// A finite number, where the key is there.
    ///
    /// # Errors
    /// [`GgufError::WrongValue`]; also of NaN and infinities, which no setting means.
    pub fn f64(&self, key: &str) -> Result<Option<f64>, GgufError> {
        self.typed(key, "a finite number", |value| match value {
            Value::Float(number) => Some(*number).filter(|number| number.is_finite()),
            Value::Unsigned(number) => Some(*number as f64),
            Value::Signed(number) => Some(*number as f64),
            _ => None,
        })
    }

    /// True or false, where the key is there.
    ///
    /// # Errors
    /// [`GgufError::WrongValue`].
    pub fn bool(&self, key: &str) -> Result<Option<bool>, GgufError> {
        self.typed(key, "true or false", |value| match value {
            Value::Bool(flag) => Some(*flag),
            _ => None,
        })
    }

    /// An array of strings, where the key is there.
    ///
    /// # Errors
    /// [`GgufError::WrongValue`].
    pub fn strings(&self, key: &str) -> Result<Option<&[String]>, GgufError> {
        self.typed(key, "an array of strings", |value| match value {
            Value::Array(Array::String(texts)) => Some(texts.as_slice()),
            _ => None,
        })
    }

    /// An array of strings.
    ///
    /// # Errors
    /// [`GgufError::MissingKey`], [`GgufError::WrongValue`].
    pub fn required_strings(&self, key: &str) -> Result<&[String], GgufError> {
        self.strings(key)?
            .ok_or_else(|| missing(key, "an array of strings"))
    }

    /// An array of numbers, where the key is there.
    ///
    /// # Errors
    /// [`GgufError::WrongValue`].
    pub fn numbers(&self, key: &str) -> Result<Option<Vec<f64>>, GgufError> {
        self.typed(key, "an array of numbers", |value| match value {
            Value::Array(Array::Numbers(numbers)) => Some(numbers.to_f64()),
            _ => None,
        })
    }

    /// The error of a value that is well-formed but can't be used; `expected` says what would be
    /// right.
    pub fn wrong(&self, key: &str, expected: &str) -> GgufError {
        match self.values.get(key) {
            Some(value) => wrong_value(key, value, expected),
            None => GgufError::invalid(
                format!("metadata {}", cut(key)),
                format!("missing; must be {expected}"),
            ),
        }
    }
}

impl Value {
    fn as_u64(&self) -> Option<u64> {
        match *self {
            Self::Unsigned(number) => Some(number),
            Self::Signed(number) => u64::try_from(number).ok(),
            _ => None,
        }
    }

    /// The value as a message shows it.
    fn shown(&self) -> String {
        match self {
            Self::Unsigned(number) => number.to_string(),
            Self::Signed(number) => number.to_string(),
            Self::Float(number) => number.to_string(),
            Self::Bool(flag) => flag.to_string(),
            Self::String(text) => format!("\"{}\"", cut(text)),
            Self::Array(array) => array.shown(),
        }
    }
}

impl Array {
    fn shown(&self) -> String {
        let (len, kind) = match self {
            Self::Numbers(values) => (values.len(), values.shown()),
            Self::Bool(values) => (values.len(), "booleans"),
            Self::String(values) => (values.len(), "strings"),
        };
        format!("an array of {len} {kind}")
    }
}

fn missing(key: &str, expected: &'static str) -> GgufError {
    GgufError::MissingKey {
        key: key.to_owned(),
        expected,
    }
}

fn wrong_value(key: &str, value: &Value, expected: &str) -> GgufError {
    GgufError::WrongValue {
        key: cut(key),
        found: value.shown(),
        expected: expected.to_owned(),
    }
}

fn read_value(cursor: &mut Cursor<'_>, kind: u32, place: &str) -> Result<Value, GgufError> {
    Ok(match kind {
        kind::UINT8 => Value::Unsigned(u8::from_le_bytes(cursor.array(place)?).into()),
        kind::UINT16 => Value::Unsigned(u16::from_le_bytes(cursor.array(place)?).into()),
        kind::UINT32 => Value::Unsigned(u32::from_le_bytes(cursor.array(place)?).into()),
        kind::UINT64 => Value::Unsigned(u64::from_le_bytes(cursor.array(place)?)),
        kind::INT8 => Value::Signed(i8::from_le_bytes(cursor.array(place)?).into()),
        kind::INT16 => Value::Signed(i16::from_le_bytes(cursor.array(place)?).into()),
        kind::INT32 => Value::Signed(i32::from_le_bytes(cursor.array(place)?).into()),
        kind::INT64 => Value::Signed(i64::from_le_bytes(cursor.array(place)?)),
        kind::FLOAT32 => Value::Float(f32::from_le_bytes(cursor.array(place)?).into()),
        kind::FLOAT64 => Value::Float(f64::from_le_bytes(cursor.array(place)?)),
        kind::BOOL => Value::Bool(read_bool(cursor.array(place)?, place)?),
        kind::STRING => Value::String(cursor.string(place)?.to_owned()),
        kind::ARRAY => Value::Array(read_array(cursor, place)?),
        other => return Err(unknown_kind(other, place)),
    })
}

fn read_array(cursor: &mut Cursor<'_>, place: &str) -> Result<Array, GgufError> {
    let element_kind = cursor.u32(place)?;
    if let Some(width) = numbers::width(element_kind) {
        let len = cursor.count(width, place)?;
        let bytes = cursor.take(len * width, place)?;
        return Ok(Array::Numbers(Numbers::new(element_kind, bytes)));
    }
    match element_kind {
        kind::BOOL => {
            let len = cursor.count(1, place)?;
            let flags = cursor.take(len, place)?.iter();
            let flags: Result<_, _> = flags.map(|byte| read_bool([*byte], place)).collect();
            Ok(Array::Bool(flags?))
        }
        kind::STRING => {
            // Of a string, its length.
            let len = cursor.count(8, place)?;
            Ok(Array::String(cursor.strings(len, place)?))
        }
        kind::ARRAY => Err(GgufError::invalid(
            place,
            "an array of arrays is not supported",
        )),
        other => Err(unknown_kind(other, place)),
    }
}

fn read_bool([byte]: [u8; 1], place: &str) -> Result<bool, GgufError> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(GgufError::invalid(
            place,
            format!("the boolean {byte} must be 0 or 1"),
        )),
    }
}

fn unknown_kind(found: u32, place: &str) -> GgufError {
    GgufError::invalid(place, format!("type {found} must be one of 0 to 12"))
}
