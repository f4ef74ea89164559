//! Filters and tests that minijinja has in another sense than Jinja2, for which chat templates are written
//! (`jinja2/filters.py` and `jinja2/tests.py` of version 3.1).

use std::fmt::Write;

use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{Error, State, Value, filters, tests};

/// False for `none`, unlike minijinja's: templates ask `tools is iterable and tools | length > 0`.
pub(super) fn is_iterable(value: &Value) -> bool {
    !value.is_none() && tests::is_iterable(value)
}

/// True for whatever has a length and items: texts and mappings too.
pub(super) fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::String | ValueKind::Map) || tests::is_sequence(value)
}

/// 0 for what isn't defined.
pub(super) fn length(value: &Value) -> Result<usize, Error> {
    match value.is_undefined() {
        true => Ok(0),
        false => filters::length(value),
    }
}

/// Undefined for what isn't defined.
pub(super) fn first(value: &Value) -> Result<Value, Error> {
    match value.is_undefined() {
        true => Ok(Value::UNDEFINED),
        false => filters::first(value),
    }
}

/// Undefined for what isn't defined.
pub(super) fn last(value: Value) -> Result<Value, Error> {
    match value.is_undefined() {
        true => Ok(Value::UNDEFINED),
        false => filters::last(value),
    }
}

/// No pairs for what isn't defined.
pub(super) fn items(value: &Value) -> Result<Value, Error> {
    match value.is_undefined() {
        true => Ok(Value::from(Vec::<Value>::new())),
        false => filters::items(value),
    }
}

/// 0, or the default, for what is no number.
pub(super) fn int(state: &mut State<'_, '_>, arguments: Rest<Value>) -> Result<Value, Error> {
    let number = Value::from_function(filters::int).call(state, &arguments);
    number.or_else(|error| default_number(&arguments, 0.into(), error))
}

/// 0.0, or the default, for what is no number.
pub(super) fn float(state: &mut State<'_, '_>, arguments: Rest<Value>) -> Result<Value, Error> {
    let number = Value::from_function(filters::float).call(state, &arguments);
    number.or_else(|error| default_number(&arguments, 0.0.into(), error))
}

/// The number for a value that is none, where the call names no default: minijinja takes care of one that is named.
///
/// # Errors
/// `error`, where it is about other arguments.
fn default_number(arguments: &[Value], zero: Value, error: Error) -> Result<Value, Error> {
    match arguments {
        [_] => Ok(zero),
        _ => Err(error),
    }
}

/// Keeps the line end that a text ends with, which minijinja's takes away. `width` may be the indentation itself.
pub(super) fn indent(
    text: String,
    width: Option<Value>,
    first: Option<bool>,
    blank: Option<bool>,
    named: Kwargs,
) -> Result<String, Error> {
    let width = match width {
        Some(width) => Some(width),
        None => named.get("width")?,
    };
    let is_given = |given: Option<bool>, name: &str| match given {
        Some(given) => Ok(given),
        None => named
            .get::<Option<bool>>(name)
            .map(Option::unwrap_or_default),
    };
    let (first, blank) = (is_given(first, "first")?, is_given(blank, "blank")?);
    named.assert_all_used()?;
    let indentation = match &width {
        None => " ".repeat(4),
        Some(width) => match width.as_str() {
            Some(text) => text.to_owned(),
            None => " ".repeat(usize::try_from(width.clone())?),
        },
    };
    let mut indented = String::with_capacity(text.len());
    for (i, line) in (text + "\n").lines().enumerate() {
        if i > 0 {
            indented.push('\n');
        }
        let is_indented = if i == 0 {
            first
        } else {
            blank || !line.is_empty()
        };
        if is_indented {
            indented.push_str(&indentation);
        }
        indented.push_str(line);
    }
    Ok(indented)
}

/// The entities of markupsafe, which Jinja2 writes; a slash stays.
pub(super) fn escape(value: &Value) -> Value {
    if value.is_safe() {
        return value.clone();
    }
    let text = value.to_string();
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '\'' | '"' => drop(write!(escaped, "&#{};", u32::from(char))),
            other => escaped.push(other),
        }
    }
    Value::from_safe_string(escaped)
}
