//! How large values are.

use std::fmt;

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

use super::budget::{ITEM_BYTES, STEP, charge, work_left, wrote};
use super::error::Stopped;

/// The most bytes of a value that is measured outside of a rendering: more than any request has.
const MAX_SIZE: u64 = 1 << 30;
/// Nesting of a value that is looked through. More than JSON may have, and no more than fits a stack.
const MAX_DEPTH: usize = 256;

/// Bytes of a value and all in it. Values that are in it more than once count as often.
///
/// # Errors
/// It is nested too deep, or larger than a rendering may look at.
pub(super) fn size(value: &Value) -> Result<u64, Error> {
    let max = work_left().unwrap_or(MAX_SIZE);
    let mut bytes = 0;
    add_size(value, 0, max, &mut bytes).map_err(Stopped::into_error)?;
    Ok(bytes)
}

fn add_size(value: &Value, depth: usize, max: u64, bytes: &mut u64) -> Result<(), Stopped> {
    *bytes = bytes.saturating_add(match value.as_str() {
        Some(text) => text.len() as u64 + STEP,
        None => ITEM_BYTES,
    });
    if *bytes > max {
        return Err(Stopped::Limit("the budget of work"));
    }
    let Some(object) = value.as_object() else {
        return Ok(());
    };
    // An iterator is made for it.
    *bytes = bytes.saturating_add(ITEM_BYTES);
    if depth > MAX_DEPTH {
        return Err(Stopped::Limit("the nesting of a value"));
    }
    match value.kind() {
        ValueKind::Map => {
            for (key, item) in object.try_iter_pairs().into_iter().flatten() {
                add_size(&key, depth + 1, max, bytes)?;
                add_size(&item, depth + 1, max, bytes)?;
            }
        }
        ValueKind::Seq | ValueKind::Iterable => {
            for item in object.try_iter().into_iter().flatten() {
                add_size(&item, depth + 1, max, bytes)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Takes the work of looking through a value, and gives its size.
///
/// # Errors
/// As [`size`] and [`charge`].
pub(super) fn charge_all(value: &Value) -> Result<u64, Error> {
    let bytes = size(value)?;
    charge(bytes)?;
    Ok(bytes)
}

/// Items of a list or a map, bytes of a text.
pub(super) fn items(value: &Value) -> u64 {
    match value.as_str() {
        Some(text) => text.len() as u64,
        None => value
            .as_object()
            .and_then(|object| object.enumerator_len())
            .unwrap_or(0) as u64,
    }
}

/// A bound on the bytes of a value's text, where it has `size` bytes: in lists and maps a text is
/// quoted, and a control character is written in six bytes.
pub(super) fn text_bytes(value: &Value, size: u64) -> u64 {
    match value.as_str() {
        Some(text) => text.len() as u64,
        None => size.saturating_mul(6),
    }
}

/// Writes text as long as the budget allows it.
pub(super) struct Metered<'a, W> {
    to: &'a mut W,
    stopped: Option<Error>,
}

impl<'a, W: fmt::Write> Metered<'a, W> {
    /// Formats `value` to `to`.
    ///
    /// # Errors
    /// There was too much output.
    pub(super) fn write(to: &'a mut W, value: &Value) -> Result<(), Error> {
        let mut metered = Self { to, stopped: None };
        let written = fmt::Write::write_fmt(&mut metered, format_args!("{value}"));
        match (metered.stopped, written) {
            (Some(error), _) => Err(error),
            (None, Err(_)) => Err(Error::new(ErrorKind::BadSerialization, "formatting failed")),
            (None, Ok(())) => Ok(()),
        }
    }
}

impl<W: fmt::Write> fmt::Write for Metered<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if let Err(error) = wrote(text.len()) {
            self.stopped = Some(error);
            return Err(fmt::Error);
        }
        self.to.write_str(text)
    }
}
