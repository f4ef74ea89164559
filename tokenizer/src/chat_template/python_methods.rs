//! Methods of Python's strings and mappings that templates call.

use minijinja::value::{ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};

use super::builtins::{Gives, Looks, bounded, formatted, joined_by, replaced, split};
use super::measure::items;

/// The methods of `minijinja-contrib`, and the few that templates use and it lacks, within bounds.
pub(super) fn unknown_method_callback(
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let (looks, gives) = match (value.kind(), method) {
        (ValueKind::Map, "get") => (Looks::Kind, Gives::Part),
        (ValueKind::Map, "keys" | "values" | "items") => (Looks::Items, Gives::List),
        (ValueKind::String, "replace") => (Looks::Text, Gives::Bytes(replaced)),
        (ValueKind::String, "format") => (Looks::Text, Gives::Bytes(formatted)),
        (ValueKind::String, "split" | "rsplit" | "splitlines" | "partition" | "rpartition") => {
            (Looks::Text, Gives::Texts(split))
        }
        (ValueKind::String, "join") => (Looks::Text, Gives::Bytes(joined)),
        (ValueKind::String, _) => (Looks::Text, Gives::New),
        _ => (Looks::Content, Gives::Part),
    };
    let mut all = vec![value.clone()];
    all.extend_from_slice(args);
    bounded(looks, gives, &all, |_| call(state, value, method, args))
}

/// `separator.join(list)`.
fn joined(arguments: &[Value]) -> Result<u64, Error> {
    match arguments {
        [separator, list, ..] => joined_by(list, items(separator)),
        _ => Ok(0),
    }
}

fn call(
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    match (value.as_str(), method) {
        (Some(text), "removeprefix") => {
            let (prefix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_prefix(prefix).unwrap_or(text)))
        }
        (Some(text), "removesuffix") => {
            let (suffix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_suffix(suffix).unwrap_or(text)))
        }
        (Some(text), "partition") => {
            let (separator,): (&str,) = from_args(args)?;
            Ok(
                match non_empty(separator).and_then(|s| text.split_once(s)) {
                    Some((before, after)) => three(before, separator, after),
                    None => three(text, "", ""),
                },
            )
        }
        (Some(text), "rpartition") => {
            let (separator,): (&str,) = from_args(args)?;
            Ok(
                match non_empty(separator).and_then(|s| text.rsplit_once(s)) {
                    Some((before, after)) => three(before, separator, after),
                    None => three("", "", text),
                },
            )
        }
        (Some(text), "rsplit") => {
            let (separator, max): (&str, Option<i64>) = from_args(args)?;
            let separator = non_empty(separator).ok_or_else(|| {
                Error::new(ErrorKind::InvalidOperation, "rsplit: empty separator")
            })?;
            let mut parts: Vec<&str> = match max.and_then(|max| usize::try_from(max).ok()) {
                Some(max) => text.rsplitn(max.saturating_add(1), separator).collect(),
                None => text.rsplit(separator).collect(),
            };
            parts.reverse();
            Ok(parts.into_iter().map(Value::from).collect())
        }
        _ => minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args),
    }
}

fn non_empty(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

fn three(before: &str, separator: &str, after: &str) -> Value {
    Value::from(vec![
        Value::from(before),
        Value::from(separator),
        Value::from(after),
    ])
}
