//! JSON in which no object has a key twice: of two constraints under one name, one would be lost.

use std::cell::{Cell, RefCell};
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Why a text is no such JSON.
#[derive(Debug)]
pub(crate) enum UniqueJsonError {
    /// It isn't JSON, deeper than 128 levels, or has a number or a text that nothing can hold.
    Syntax {
        /// What is wrong and where.
        error: serde_json::Error,
        /// The outermost object's key whose value was being read.
        key: Option<String>,
    },
    /// An object has this key twice; the line is the second one's.
    DuplicateKey {
        /// The key.
        key: String,
        /// Counted from 1.
        line: usize,
    },
    /// It holds more than [`MAX_VALUES`].
    TooManyValues,
}

/// Most values in a text, counted with those in others. A value of a few bytes may take hundreds in
/// memory: so many take some hundreds of MiB.
pub(crate) const MAX_VALUES: usize = 1_000_000;

/// Reads a JSON text; returns how many values it holds, too. A byte order mark before it is passed over.
pub(crate) fn from_slice(bytes: &[u8]) -> Result<(Value, usize), UniqueJsonError> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let seen = Seen::default();
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Reader(&seen).deserialize(&mut deserializer);
    let value = value.and_then(|value| deserializer.end().map(|()| value));
    let value = value.map(|value| (value, seen.num_values.get()));
    value.map_err(|error| match seen.duplicate.take() {
        _ if seen.num_values.get() > MAX_VALUES => UniqueJsonError::TooManyValues,
        Some(key) => UniqueJsonError::DuplicateKey {
            key,
            line: error.line(),
        },
        None => UniqueJsonError::Syntax {
            error,
            key: seen.key.take(),
        },
    })
}

/// What was seen in a text so far.
#[derive(Default)]
struct Seen {
    num_values: Cell<usize>,
    /// Objects and lists around what is being read.
    depth: Cell<usize>,
    /// The outermost object's key whose value is being read.
    key: RefCell<Option<String>>,
    /// A key that came twice.
    duplicate: RefCell<Option<String>>,
}

/// Reads a value.
#[derive(Clone, Copy)]
struct Reader<'a>(&'a Seen);

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let num_values = self.0.num_values.get() + 1;
        self.0.num_values.set(num_values);
        if num_values > MAX_VALUES {
            return Err(D::Error::custom("too many values"));
        }
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
        self.0.depth.update(|depth| depth + 1);
        while let Some(element) = elements.next_element_seed(self)? {
            list.push(element);
        }
        self.0.depth.update(|depth| depth - 1);
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        let is_outermost = self.0.depth.get() == 0;
        self.0.depth.update(|depth| depth + 1);
        while let Some(key) = members.next_key::<String>()? {
            if map.contains_key(&key) {
                *self.0.duplicate.borrow_mut() = Some(key);
                return Err(A::Error::custom("duplicate key"));
            }
            if is_outermost {
                *self.0.key.borrow_mut() = Some(key.clone());
            }
            let value = members.next_value_seed(self)?;
            if is_outermost {
                self.0.key.take();
            }
            map.insert(key, value);
        }
        self.0.depth.update(|depth| depth - 1);
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
            let (read, _) = from_slice(text.as_bytes()).unwrap();
            assert_eq!(read.to_string(), plain.to_string());
        }
        let (read, num_values) = from_slice(b"\xef\xbb\xbf{}").unwrap();
        assert_eq!((read, num_values), (Value::Object(Map::new()), 1));
        for text in ["", "{", "[1,]", "{} {}", "1e999", "\u{feff}\u{feff}1"] {
            assert!(
                matches!(
                    from_slice(text.as_bytes()),
                    Err(UniqueJsonError::Syntax { .. })
                ),
                "{text}"
            );
        }
        let deep = "[".repeat(100_000);
        assert!(from_slice(deep.as_bytes()).is_err());
    }

    #[test]
    fn the_outermost_key_of_a_wrong_value_is_named() {
        for (text, wanted) in [
            (r#"{"a": 1, "k": 1e999}"#, Some("k")),
            (r#"{"a": {"b": 1}, "k": [{"a": "\ud800"}]}"#, Some("k")),
            (r#"{"a": {"b": [1]}, "k": 1 "#, None),
            (r#"[{"a": 1e999}]"#, None),
            ("1e999", None),
        ] {
            match from_slice(text.as_bytes()) {
                Err(UniqueJsonError::Syntax { key, .. }) => {
                    assert_eq!(key.as_deref(), wanted, "{text}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
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

    #[test]
    fn values_are_counted_with_those_in_others() {
        let text = |len: usize| format!("[{}0]", "[],".repeat(len - 1));
        let (_, num_values) = from_slice(text(MAX_VALUES - 1).as_bytes()).unwrap();
        assert_eq!(num_values, MAX_VALUES);
        let (_, num_values) = from_slice(b"{\"a\": [1, {\"b\": null}]}").unwrap();
        assert_eq!(num_values, 5);
        for text in [
            text(MAX_VALUES),
            format!("{{\"a\": {}", text(MAX_VALUES - 1)),
        ] {
            assert!(matches!(
                from_slice(text.as_bytes()),
                Err(UniqueJsonError::TooManyValues)
            ));
        }
    }
}
