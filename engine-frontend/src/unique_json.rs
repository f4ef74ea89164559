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
    /// Its values would take more memory than this many MiB.
    TooLarge(usize),
}

/// Bytes of memory that the values of any text may take.
const FREE_VALUE_BYTES: usize = 32 << 20;
/// Bytes of memory that the values of a text may take besides, per byte of it.
const VALUE_BYTES_PER_BYTE: usize = 6;
/// Bytes of memory that the values of a text may take at most, however long it is: 1.8 million numbers.
const MAX_VALUE_BYTES: usize = 128 << 20;

/// Bytes of a value in its list or object.
const VALUE: usize = size_of::<Value>();
/// Bytes of an object's member beside its value, at most: the key's place, a hash, a place in the
/// table, and as much again as three quarters of them for members to come.
const MEMBER: usize = 144;

/// Bytes of memory that the values of a text of `len` bytes may take. Their texts, which are no longer
/// than it, are not counted. With the text itself, its copy in the values and the parser's scratch space
/// this is about half of the 64 MiB and 16 bytes per byte that a request may take; the other half is for
/// what is made of it.
fn max_value_bytes(len: usize) -> usize {
    let more = len.saturating_mul(VALUE_BYTES_PER_BYTE);
    FREE_VALUE_BYTES.saturating_add(more).min(MAX_VALUE_BYTES)
}

/// Members that an object has room for from the first one on.
const FIRST_ROOM: usize = 3;

/// Bytes that an allocator takes for an allocation of `len` bytes, at most.
fn allocated(len: usize) -> usize {
    match len {
        0 => 0,
        len => (len + 8).next_multiple_of(16).max(32),
    }
}

/// Bytes of an object's members and its table: `indexmap` has room for 3, 7, 14, 28 members and so on,
/// or for as many as it is told.
fn object_bytes(len: usize) -> usize {
    const ENTRY: usize = size_of::<String>() + VALUE + size_of::<u64>();
    const INDEX: usize = size_of::<usize>() + 1;
    const GROUP: usize = 16;
    let (capacity, buckets) = match len {
        0 => return 0,
        1..=3 => (len, 4),
        _ => {
            let buckets = (len * 8).div_ceil(7).next_power_of_two();
            (buckets / 8 * 7, buckets)
        }
    };
    allocated(capacity * ENTRY) + allocated(buckets * INDEX + GROUP)
}

/// Reads a JSON text; returns the bytes of memory that its value takes, too. A byte order mark before it
/// is passed over.
pub(crate) fn from_slice(bytes: &[u8]) -> Result<(Value, usize), UniqueJsonError> {
    from_slice_within(bytes, MAX_VALUE_BYTES)
}

/// The same, for values that take at most `max` bytes of memory, their texts not counted.
pub(crate) fn from_slice_within(
    bytes: &[u8],
    max: usize,
) -> Result<(Value, usize), UniqueJsonError> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let max = max_value_bytes(bytes.len()).min(max);
    read(bytes, Seen::new(max))
}

/// Reads what a model wrote: of a key that comes twice in an object the last value counts, as everywhere.
/// No error is a [`UniqueJsonError::DuplicateKey`].
pub(crate) fn from_models_text(text: &str, max: usize) -> Result<(Value, usize), UniqueJsonError> {
    let seen = Seen {
        is_unique: false,
        ..Seen::new(max)
    };
    read(text.as_bytes(), seen)
}

fn read(bytes: &[u8], seen: Seen) -> Result<(Value, usize), UniqueJsonError> {
    let max = seen.max_value_bytes;
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Reader(&seen).deserialize(&mut deserializer);
    let value = value.and_then(|value| deserializer.end().map(|()| value));
    let value = value.map(|value| (value, seen.value_bytes.get() + seen.text_bytes.get()));
    value.map_err(|error| match seen.duplicate.take() {
        _ if seen.value_bytes.get() > max => UniqueJsonError::TooLarge(max >> 20),
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
struct Seen {
    /// Bytes of memory that the values take, without their texts.
    value_bytes: Cell<usize>,
    /// Bytes of memory that the texts of keys and values take.
    text_bytes: Cell<usize>,
    /// Most [`value_bytes`](Self::value_bytes).
    max_value_bytes: usize,
    /// True where a key that comes twice in an object is an error.
    is_unique: bool,
    /// Objects and lists around what is being read.
    depth: Cell<usize>,
    /// The outermost object's key whose value is being read.
    key: RefCell<Option<String>>,
    /// A key that came twice.
    duplicate: RefCell<Option<String>>,
}

impl Seen {
    fn new(max_value_bytes: usize) -> Self {
        Self {
            value_bytes: Cell::new(0),
            text_bytes: Cell::new(0),
            max_value_bytes,
            is_unique: true,
            depth: Cell::new(0),
            key: RefCell::default(),
            duplicate: RefCell::default(),
        }
    }

    /// Counts memory before it is taken.
    fn count<E: serde::de::Error>(&self, bytes: usize) -> Result<(), E> {
        let counted = self.value_bytes.get() + bytes;
        self.value_bytes.set(counted);
        match counted > self.max_value_bytes {
            true => Err(E::custom("too many values")),
            false => Ok(()),
        }
    }

    /// Elements that a full list of `len` gets room for: as many again, but no more than may come. So
    /// what is reserved never exceeds what values may take. The first one gets room for itself alone: room
    /// given back by many short lists would be of little use to others.
    fn room_for_elements(&self, len: usize) -> usize {
        let may_come = self.max_value_bytes.saturating_sub(self.value_bytes.get()) / VALUE;
        len.max(1).min(may_come + 1)
    }

    /// Counts a text. A short one takes more than its length, which counts as of its value.
    fn count_text<E: serde::de::Error>(&self, len: usize) -> Result<(), E> {
        self.text_bytes.update(|bytes| bytes + len);
        self.count(allocated(len) - len)
    }
}

/// Reads a value.
#[derive(Clone, Copy)]
struct Reader<'a>(&'a Seen);

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.0.count::<D::Error>(VALUE)?;
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

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.0.count_text::<E>(value.len())?;
        Ok(Value::from(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        self.0.depth.update(|depth| depth + 1);
        while let Some(element) = elements.next_element_seed(self)? {
            if list.len() == list.capacity() {
                list.reserve_exact(self.0.room_for_elements(list.len()));
            }
            list.push(element);
        }
        self.0.depth.update(|depth| depth - 1);
        // Room for elements to come may be as large as the list.
        list.shrink_to_fit();
        let len = list.len() * VALUE;
        self.0.count::<A::Error>(allocated(len) - len)?;
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        let is_outermost = self.0.depth.get() == 0;
        self.0.depth.update(|depth| depth + 1);
        while let Some(key) = members.next_key::<String>()? {
            if self.0.is_unique && map.contains_key(&key) {
                *self.0.duplicate.borrow_mut() = Some(key);
                return Err(A::Error::custom("duplicate key"));
            }
            if is_outermost {
                *self.0.key.borrow_mut() = Some(key.clone());
            }
            self.0.count::<A::Error>(MEMBER)?;
            self.0.count_text::<A::Error>(key.len())?;
            let value = members.next_value_seed(self)?;
            if is_outermost {
                self.0.key.take();
            }
            map.insert(key, value);
        }
        self.0.depth.update(|depth| depth - 1);
        let len = map.len();
        if len < FIRST_ROOM {
            let mut exact = Map::with_capacity(len);
            exact.extend(std::mem::take(&mut map));
            map = exact;
        }
        // The members' values are counted, and their places were.
        let counted = len * (VALUE + MEMBER);
        self.0
            .value_bytes
            .update(|bytes| bytes - counted.min(bytes));
        self.0.count::<A::Error>(object_bytes(len))?;
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::allocations;

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
        let (read, bytes) = from_slice(b"\xef\xbb\xbf{}").unwrap();
        assert_eq!((read, bytes), (Value::Object(Map::new()), VALUE));
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

    /// The worst shapes: much memory for each byte.
    fn shapes(len: usize) -> Vec<(&'static str, String)> {
        let list = |element: &str| {
            let count = (len / (element.len() + 1)).max(1);
            format!("[{}{element}]", format!("{element},").repeat(count - 1))
        };
        let keys: Vec<String> = (0..len / 9).map(|i| format!("\"{i:x}\":1")).collect();
        let nested = "[".repeat(100) + &"]".repeat(100);
        let objects = "{\"a\":".repeat(100) + "1" + &"}".repeat(100);
        let escapes = format!("[\"{}\"]", "\\u00e9".repeat(len / 6));
        vec![
            ("numbers", list("1")),
            ("objects", list("{}")),
            ("lists", list("[]")),
            ("lists of one", list("[1]")),
            ("lists of five", list("[1,1,1,1,1]")),
            ("members", list("{\"a\":1}")),
            ("four members", list("{\"a\":1,\"b\":1,\"c\":1,\"d\":1}")),
            ("keys", format!("{{{}}}", keys.join(","))),
            ("nested lists", list(&nested)),
            ("nested objects", list(&objects)),
            ("short texts", list("\"a\"")),
            ("empty texts", list("\"\"")),
            ("long numbers", list(&format!("1{}e-300", "0".repeat(300)))),
            ("escapes", escapes),
            ("text", format!("\"{}\"", "a".repeat(len))),
        ]
    }

    #[test]
    fn what_is_counted_is_what_the_allocator_gives_at_least() {
        for (name, text) in shapes(20_000) {
            let before = allocations::live();
            let (value, counted) = from_slice(text.as_bytes()).unwrap();
            let live = usize::try_from(allocations::live() - before).unwrap();
            drop(value);
            assert!(live <= counted, "{name}: {live} bytes, {counted} counted");
            // And not much more: what is counted too high turns honest requests away.
            let most = live + live / 2 + 256;
            assert!(counted <= most, "{name}: {live} bytes, {counted} counted");
        }
    }

    #[test]
    fn parsing_takes_half_of_what_a_request_may_take() {
        for len in [100_000, 1 << 20, 4 << 20, 32 << 20] {
            for (name, text) in shapes(len) {
                let before = allocations::live();
                allocations::reset_peak();
                let parsed = from_slice(text.as_bytes());
                let peak = usize::try_from(allocations::peak() - before).unwrap();
                // The text is held as well.
                let most = (32 << 20) + 11 * text.len();
                assert!(
                    peak <= most + most / 8,
                    "{name}: {peak} bytes for {}",
                    text.len()
                );
                if let Ok((_, counted)) = parsed {
                    let held = counted + 3 * text.len();
                    assert!(held <= most, "{name}: {held} bytes for {}", text.len());
                }
            }
        }
    }

    #[test]
    fn as_many_values_as_honest_requests_have_are_taken() {
        let ids = |len: usize| format!("{{\"prompt\": [{}0]}}", "151643, ".repeat(len - 1));
        assert!(from_slice(ids(1_000_000).as_bytes()).is_ok());
        let member = |i| format!("\"name{i}\": {{\"type\": \"string\", \"maxLength\": 40}}");
        let members: Vec<String> = (0..50_000).map(member).collect();
        assert!(from_slice(format!("{{{}}}", members.join(",")).as_bytes()).is_ok());
    }

    #[test]
    fn values_are_limited_by_the_memory_that_they_take() {
        for (name, text) in shapes(2 << 20) {
            let few = ["long numbers", "escapes", "text"].contains(&name);
            assert_eq!(from_slice(text.as_bytes()).is_ok(), few, "{name}");
        }
        let list = format!("[{}0]", "0,".repeat(999));
        assert!(from_slice_within(list.as_bytes(), 1001 * VALUE + 16).is_ok());
        assert!(matches!(
            from_slice_within(list.as_bytes(), 1001 * VALUE - 1),
            Err(UniqueJsonError::TooLarge(0))
        ));
    }
}
