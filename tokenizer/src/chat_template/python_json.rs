//! The filter `tojson` as Hugging Face's libraries define it: Python's `json.dumps` with
//! `ensure_ascii=False`, and no HTML escaping.

use std::mem;

use minijinja::value::{Kwargs, Rest, ValueKind, ValueOrKwargs, from_args};
use minijinja::{Error, ErrorKind, Value};

use super::budget::{ITEM_BYTES, charge, reserve};

/// Nesting of a value; deeper ones (or a cycle) are refused.
const MAX_DEPTH: usize = 128;

/// Spaces of one level.
const MAX_INDENT: usize = 64;

/// `value | tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
pub(super) fn tojson(value: &Value, arguments: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let arguments = arguments.into_values();
    let (positional, kwargs): (&[Value], Kwargs) = from_args(&arguments)?;
    // An argument by its place or name; `None` in the template is as good as none.
    let argument = |index: usize, name| -> Result<Option<Value>, Error> {
        let argument = match positional.get(index) {
            Some(argument) => Some(argument.clone()),
            None => kwargs.get(name)?,
        };
        Ok(argument.filter(|argument| !argument.is_none()))
    };
    let ensure_ascii = argument(0, "ensure_ascii")?.is_some_and(|flag| flag.is_true());
    let indent = argument(1, "indent")?;
    let separators = argument(2, "separators")?;
    let sort_keys = argument(3, "sort_keys")?.is_some_and(|flag| flag.is_true());
    kwargs.assert_all_used()?;

    let indent = match indent {
        None => None,
        Some(indent) => Some(match indent.as_str() {
            Some(text) => text.to_owned(),
            None => match usize::try_from(indent)? {
                width if width <= MAX_INDENT => " ".repeat(width),
                width => {
                    return Err(Error::new(
                        ErrorKind::InvalidOperation,
                        format!("tojson: indent must be at most {MAX_INDENT}, got {width}"),
                    ));
                }
            },
        }),
    };
    let (item_separator, key_separator) = match separators {
        Some(pair) => {
            let part = |index| -> Result<String, Error> {
                let part = pair.get_item_by_index(index)?;
                part.as_str().map(str::to_owned).ok_or_else(|| {
                    Error::new(
                        ErrorKind::InvalidOperation,
                        "tojson: separators must be a pair of strings",
                    )
                })
            };
            (part(0)?, part(1)?)
        }
        _ if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        _ => (", ".to_owned(), ": ".to_owned()),
    };
    let mut writer = Writer {
        ensure_ascii,
        indent,
        item_separator,
        key_separator,
        sort_keys,
        output: String::new(),
    };
    writer.write(value, 0)?;
    Ok(Value::from(writer.output))
}

struct Writer {
    ensure_ascii: bool,
    /// One level's indentation; `None` writes one line.
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
    output: String,
}

impl Writer {
    fn write(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                format!("tojson: more than {MAX_DEPTH} levels deep"),
            ));
        }
        charge(0)?;
        match value.kind() {
            ValueKind::Seq | ValueKind::Iterable => {
                let items = value.try_iter()?;
                self.write_items('[', ']', depth, items, |writer, item| {
                    writer.write(&item, depth + 1)
                })
            }
            ValueKind::Map => {
                let keys = value.try_iter()?;
                let write = |writer: &mut Self, key: Value| {
                    writer.write_string(&key_text(&key)?)?;
                    writer.room_for(writer.key_separator.len())?;
                    writer.output.push_str(&writer.key_separator);
                    writer.write(&value.get_item(&key)?, depth + 1)
                };
                if !self.sort_keys {
                    return self.write_items('{', '}', depth, keys, write);
                }
                let mut sorted = Vec::new();
                for key in keys {
                    reserve(sorted.len() as u64 * 2 * ITEM_BYTES)?;
                    sorted.push((key_text(&key)?, key));
                }
                sorted.sort_by(|(a, _), (b, _)| a.cmp(b));
                let keys = sorted.into_iter().map(|(_, key)| key);
                self.write_items('{', '}', depth, keys, write)
            }
            ValueKind::String => self.write_string(value.as_str().unwrap_or_default()),
            _ => {
                let text = scalar(value)?;
                self.output.push_str(&text);
                Ok(())
            }
        }
    }

    fn write_items(
        &mut self,
        open: char,
        close: char,
        depth: usize,
        items: impl Iterator<Item = Value>,
        write: impl Fn(&mut Self, Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.output.push(open);
        let mut is_empty = true;
        for item in items {
            if !mem::replace(&mut is_empty, false) {
                self.room_for(self.item_separator.len())?;
                self.output.push_str(&self.item_separator);
            }
            self.new_line(depth + 1)?;
            write(self, item)?;
        }
        if !is_empty {
            self.new_line(depth)?;
        }
        self.output.push(close);
        Ok(())
    }

    /// Refuses text that the budget has no room for.
    fn room_for(&self, bytes: usize) -> Result<(), Error> {
        charge(bytes as u64)?;
        reserve(self.output.len() as u64 + bytes as u64)
    }

    fn new_line(&mut self, depth: usize) -> Result<(), Error> {
        if let Some(indent) = &self.indent {
            self.room_for(indent.len().saturating_mul(depth))?;
            self.output.push('\n');
            for _ in 0..depth {
                self.output.push_str(indent);
            }
        }
        Ok(())
    }

    fn write_string(&mut self, text: &str) -> Result<(), Error> {
        self.room_for(text.len())?;
        let escapes = text.bytes().filter(|byte| *byte < b' ').count();
        // Escapes beyond these only where `ensure_ascii` asks for them.
        let non_ascii = match self.ensure_ascii {
            true => text.bytes().filter(|byte| *byte > b'~').count(),
            false => 0,
        };
        self.room_for(
            text.len()
                .saturating_add((escapes + non_ascii).saturating_mul(6)),
        )?;
        self.output.push('"');
        for char in text.chars() {
            match char {
                '"' => self.output.push_str("\\\""),
                '\\' => self.output.push_str("\\\\"),
                '\n' => self.output.push_str("\\n"),
                '\r' => self.output.push_str("\\r"),
                '\t' => self.output.push_str("\\t"),
                '\u{8}' => self.output.push_str("\\b"),
                '\u{c}' => self.output.push_str("\\f"),
                '\0'..='\u{1f}' => self.write_escape(char),
                '\u{7f}'.. if self.ensure_ascii && char != '\u{7f}' => self.write_escape(char),
                _ => self.output.push(char),
            }
        }
        self.output.push('"');
        Ok(())
    }

    fn write_escape(&mut self, char: char) {
        for unit in char.encode_utf16(&mut [0; 2]) {
            self.output.push_str(&format!("\\u{unit:04x}"));
        }
    }
}

/// A key of an object as text.
fn key_text(key: &Value) -> Result<String, Error> {
    match key.as_str() {
        Some(text) => Ok(text.to_owned()),
        None => scalar(key),
    }
}

/// JSON of null, a boolean or a number.
fn scalar(value: &Value) -> Result<String, Error> {
    match value.kind() {
        ValueKind::None => Ok("null".to_owned()),
        ValueKind::Bool => Ok(if value.is_true() { "true" } else { "false" }.to_owned()),
        ValueKind::Number if value.is_integer() => Ok(value.to_string()),
        ValueKind::Number => Ok(python_float(f64::try_from(value.clone())?)),
        kind => Err(Error::new(
            ErrorKind::InvalidOperation,
            format!("tojson: {kind} can't be written as JSON"),
        )),
    }
}

/// A float as Python's `repr` writes it: shortest digits that read back as the same number, with
/// an exponent from 1e16 on and below 1e-4.
fn python_float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..16).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", exponent.abs())
        }
        _ => format!("{value:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_pythons() {
        // What Python 3 prints for the same numbers.
        for (value, expected) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (-2.5, "-2.5"),
            (0.1, "0.1"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (123_456_789_012_345.6, "123456789012345.6"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.25e100, "1.25e+100"),
            (5e-324, "5e-324"),
            (f64::INFINITY, "Infinity"),
        ] {
            assert_eq!(python_float(value), expected);
        }
    }
}
