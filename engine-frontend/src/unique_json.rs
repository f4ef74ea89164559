//! JSON in which no object has a key twice: of two constraints under one name, one would be lost.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Why a text is no such JSON.
#[derive(Debug)]
pub(crate) enum UniqueJsonError {
    /// It isn't JSON, or deeper than 128 levels.
    Syntax(serde_json::Error),
    /// An object has this key twice; the line is the second one's.
    DuplicateKey {
        /// The key.
        key: String,
        /// Counted from 1.
        line: usize,
    },
}

/// Reads a JSON text. A byte order mark before it is passed over.
pub(crate) fn from_slice(bytes: &[u8]) -> Result<Value, UniqueJsonError> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let duplicate = RefCell::new(None);
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Reader(&duplicate).deserialize(&mut deserializer);
    let value = value.and_then(|value| deserializer.end().map(|()| value));
    value.map_err(|error| match duplicate.take() {
        Some(key) => UniqueJsonError::DuplicateKey {
            key,
            line: error.line(),
        },
        None => UniqueJsonError::Syntax(error),
    })
}

/// Reads a value, and leaves a key here that comes twice.
#[derive(Clone, Copy)]
struct Reader<'a>(&'a RefCell<Option<String>>);

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = elements.next_element_seed(self)? {
            list.push(element);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            if map.contains_key(&key) {
                *self.0.borrow_mut() = Some(key);
                return Err(A::Error::custom("duplicate key"));
            }
            let value = members.next_value_seed(self)?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_serde_json() {
        for text in [
            "null",
            " [1, -2, 2.5, 1e3, 18446744073709551615, true, \"a\\n\\u00e9\"] ",
            r#"{"b": {"a": [], "b": {}}, "a": {"a": 1}}"#,
        ] {
            let plain: Value = serde_json::from_str(text).unwrap();
            let read = from_slice(text.as_bytes()).unwrap();
            assert_eq!(read.to_string(), plain.to_string());
        }
        assert_eq!(
            from_slice(b"\xef\xbb\xbf{}").unwrap(),
            Value::Object(Map::new())
        );
        for text in ["", "{", "[1,]", "{} {}", "1e999", "\u{feff}\u{feff}1"] {
            assert!(
                matches!(from_slice(text.as_bytes()), Err(UniqueJsonError::Syntax(_))),
                "{text}"
            );
        }
        let deep = "[".repeat(100_000);
        assert!(from_slice(deep.as_bytes()).is_err());
    }

    #[test]
    fn a_key_that_comes_twice_is_named() {
        for text in [
            r#"{"k": 1, "k": 1}"#,
            "{\"a\": [{\"k\": 1,\"b\": 2, \"\\u006b\": null}]}",
            r#"{"k": {}, "b": {"k": 1}, "k": 2}"#,
        ] {
            match from_slice(text.as_bytes()) {
                Err(UniqueJsonError::DuplicateKey { key, line }) => {
                    assert_eq!((key.as_str(), line), ("k", 1), "{text}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
    }
}
