//! The filters, tests and functions that templates may call, each with what it costs.
//!
//! They are minijinja's own, behind a bound. A name that is not in these tables does not exist: a later
//! version of minijinja brings no filter that nobody has looked at. Left out are `pprint`, whose
//! indentation grows with the square of the nesting, and `debug`, which prints the engine's state.

use minijinja::value::{Kwargs, Rest, ValueOrKwargs, from_args};
use minijinja::{Environment, Error, ErrorKind, State, Value, filters, functions};

use super::budget::{COPIED_PER_WORK, ITEM_BYTES, charge, made, made_text, reserve};
use super::error::Raised;
use super::measure::{charge_all, items, size, text_bytes};
use super::{jinja, namespace, python_json};

/// Work of a byte that is not compared or copied with others at a time.
const WORK_PER_CHAR: u64 = 4;

/// How much of its first argument a call looks at. All look through the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Looks {
    /// At its kind.
    Kind,
    /// At its items, or at a text's characters.
    Items,
    /// At all that is in it.
    Content,
    /// At each of its characters, and makes others of them.
    Text,
    /// Again and again, as sorting does.
    Sorts,
}

/// What comes of a call.
#[derive(Clone, Copy)]
pub(super) enum Gives {
    /// A value that was there before, or a small one.
    Part,
    /// Something new, no larger than the arguments.
    New,
    /// A list with so many items as the first argument has.
    List,
    /// Something new of at most so many bytes.
    Bytes(fn(&[Value]) -> Result<u64, Error>),
    /// A list of new texts, together of at most so many bytes.
    Texts(fn(&[Value]) -> Result<u64, Error>),
}

/// Runs a call within its bound.
///
/// # Errors
/// It would take too much, or fails.
pub(super) fn bounded(
    looks: Looks,
    gives: Gives,
    arguments: &[Value],
    call: impl FnOnce(&[Value]) -> Result<Value, Error>,
) -> Result<Value, Error> {
    if let Some((first, others)) = arguments.split_first() {
        match looks {
            Looks::Kind => charge(0)?,
            Looks::Items => charge(items(first))?,
            Looks::Content => charge_all(first).map(drop)?,
            Looks::Text => charge(size(first)?.saturating_mul(WORK_PER_CHAR))?,
            Looks::Sorts => {
                let rounds = u64::from(items(first).max(2).ilog2());
                charge(size(first)?.saturating_mul(rounds))?;
            }
        }
        for other in others {
            charge_all(other)?;
        }
        match gives {
            Gives::Part => {}
            Gives::New => reserve(items(first))?,
            Gives::List => reserve(items(first).saturating_mul(ITEM_BYTES))?,
            Gives::Bytes(bytes) | Gives::Texts(bytes) => reserve(bytes(arguments)?)?,
        }
    }
    let value = call(arguments)?;
    match gives {
        Gives::Part => Ok(value),
        Gives::New | Gives::List | Gives::Bytes(_) => made(value),
        Gives::Texts(_) => {
            let texts = value.try_iter()?.map(made_text);
            made(Value::from(texts.collect::<Result<Vec<_>, _>>()?))
        }
    }
}

/// `function` as a filter, test or function of an environment.
fn wrap(
    function: Value,
    looks: Looks,
    gives: Gives,
) -> impl Fn(&mut State<'_, '_>, Rest<ValueOrKwargs>) -> Result<Value, Error> {
    move |state, arguments| {
        let arguments = arguments.into_values();
        bounded(looks, gives, &arguments, |arguments| {
            function.call(state, arguments)
        })
    }
}

/// The filters: Jinja2's own where minijinja's differ.
mod of_filters {
    pub(super) use minijinja::filters::*;

    pub(super) use super::jinja::{escape, first, float, indent, int, items, last, length};
}

/// The tests: Jinja2's own where minijinja's differ.
mod of_tests {
    pub(super) use minijinja::tests::*;

    pub(super) use super::jinja::{is_iterable, is_sequence};
}

/// Adds all filters, tests and functions.
pub(super) fn add_to(environment: &mut Environment<'_>) {
    macro_rules! filters {
        ($($looks:ident $gives:expr => $($name:literal = $filter:ident),+;)+) => {$($(
            let function = Value::from_function(of_filters::$filter);
            environment.add_filter($name, wrap(function, Looks::$looks, $gives));
        )+)+};
    }
    use Gives::{Bytes, List, New, Part, Texts};
    filters! {
        Kind Part => "default" = default, "d" = default, "attr" = attr, "bool" = bool;
        Items Part => "first" = first, "last" = last, "length" = length, "count" = length;
        Items List => "list" = list, "items" = items, "reverse" = reverse, "select" = select,
            "reject" = reject, "selectattr" = selectattr, "rejectattr" = rejectattr, "map" = map,
            "zip" = zip;
        Items Bytes(counted) => "batch" = batch, "slice" = slice;
        Content Part => "abs" = abs, "int" = int, "float" = float, "round" = round;
        Text New => "lower" = lower, "upper" = upper, "title" = title,
            "capitalize" = capitalize, "trim" = trim;
        Text Bytes(as_text) => "safe" = safe, "string" = string;
        Text Bytes(escaped) => "escape" = escape, "e" = escape;
        Text Bytes(replaced) => "replace" = replace;
        Text Bytes(joined) => "join" = join;
        Text Texts(split) => "split" = split, "lines" = lines;
        Text Bytes(indented) => "indent" = indent;
        Text Bytes(formatted) => "format" = format;
        Content Bytes(summed) => "sum" = sum;
        Sorts Part => "min" = min, "max" = max;
        Sorts List => "sort" = sort, "dictsort" = dictsort, "unique" = unique, "groupby" = groupby;
    }
    let chain = wrap(Value::from_function(chain), Looks::Items, Gives::New);
    environment.add_filter("chain", chain);
    let tojson = Value::from_function(python_json::tojson);
    environment.add_filter("tojson", wrap(tojson, Looks::Kind, Gives::New));

    macro_rules! tests {
        ($($looks:ident => $($name:literal = $test:ident),+;)+) => {$($(
            let function = Value::from_function(of_tests::$test);
            environment.add_test($name, wrap(function, Looks::$looks, Part));
        )+)+};
    }
    tests! {
        Kind => "undefined" = is_undefined, "defined" = is_defined, "none" = is_none,
            "safe" = is_safe, "escaped" = is_safe, "boolean" = is_boolean, "odd" = is_odd,
            "even" = is_even, "divisibleby" = is_divisibleby, "number" = is_number,
            "integer" = is_integer, "int" = is_integer, "float" = is_float, "string" = is_string,
            "sequence" = is_sequence, "iterable" = is_iterable, "mapping" = is_mapping,
            "true" = is_true, "false" = is_false, "filter" = is_filter, "test" = is_test;
        Content => "startingwith" = is_startingwith, "endingwith" = is_endingwith,
            "lower" = is_lower, "upper" = is_upper, "sameas" = is_sameas, "in" = is_in,
            "eq" = is_eq, "equalto" = is_eq, "==" = is_eq, "ne" = is_ne, "!=" = is_ne,
            "lt" = is_lt, "lessthan" = is_lt, "<" = is_lt, "le" = is_le, "<=" = is_le,
            "gt" = is_gt, "greaterthan" = is_gt, ">" = is_gt, "ge" = is_ge, ">=" = is_ge;
    }

    let range = Value::from_function(functions::range);
    environment.add_function("range", wrap(range, Looks::Kind, Part));
    let dict = Value::from_function(functions::dict);
    environment.add_function("dict", wrap(dict, Looks::Content, List));
    let namespace = Value::from_function(namespace::namespace);
    environment.add_function("namespace", wrap(namespace, Looks::Items, Part));
    let raise = Value::from_function(|message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, "raise_exception").with_source(Raised(message)))
    });
    environment.add_function(
        "raise_exception",
        wrap(raise, Looks::Content, Bytes(as_text)),
    );
}

/// `strftime_now(format)` for a moment.
pub(super) fn strftime_now(now: std::time::SystemTime) -> Value {
    let strftime = move |format: &str| super::strftime::strftime(format, now);
    let longest = |arguments: &[Value]| {
        // `%c` is written in 24 bytes.
        Ok(arguments.first().map_or(0, items).saturating_mul(24))
    };
    Value::from_function(wrap(
        Value::from_function(strftime),
        Looks::Content,
        Gives::Bytes(longest),
    ))
}

/// minijinja's, with a map that has its members instead of one that looks them up in all maps each time.
fn chain(state: &mut State<'_, '_>, all: Rest<Value>) -> Result<Value, Error> {
    let chained = Value::from_function(filters::chain).call(state, &all)?;
    let Some(pairs) = chained.as_object().and_then(|map| map.try_iter_pairs()) else {
        return Ok(chained);
    };
    if chained.kind() != minijinja::value::ValueKind::Map {
        return made(chained);
    }
    let mut members = Vec::new();
    for pair in pairs {
        charge(ITEM_BYTES)?;
        reserve(members.len() as u64 * ITEM_BYTES)?;
        members.push(pair);
    }
    Ok(Value::from_pairs(members))
}

/// The argument at `index`, or of that name.
fn argument(arguments: &[Value], index: usize, name: &str) -> Option<Value> {
    let (positional, named): (&[Value], Kwargs) = from_args(arguments).ok()?;
    match positional.get(index) {
        Some(argument) => Some(argument.clone()),
        None => named.peek(name).ok(),
    }
}

/// A bound on the bytes of the argument's text.
fn text_of(argument: Option<&Value>) -> Result<u64, Error> {
    argument.map_or(Ok(0), |argument| Ok(text_bytes(argument, size(argument)?)))
}

fn as_text(arguments: &[Value]) -> Result<u64, Error> {
    text_of(arguments.first())
}

fn escaped(arguments: &[Value]) -> Result<u64, Error> {
    const SPECIAL: [char; 5] = ['<', '>', '&', '"', '\''];
    let text = arguments.first().and_then(Value::as_str);
    Ok(match text {
        Some(text) => (text.len() + 4 * text.matches(SPECIAL).count()) as u64,
        None => text_of(arguments.first())?.saturating_mul(5),
    })
}

fn counted(arguments: &[Value]) -> Result<u64, Error> {
    let count = argument(arguments, 1, "count").and_then(|count| count.as_usize());
    let first = arguments.first().map_or(0, items);
    // A list of its own for each, and one item that fills it.
    Ok((count.unwrap_or(0) as u64)
        .saturating_mul(3)
        .saturating_add(first.saturating_mul(2))
        .saturating_mul(ITEM_BYTES))
}

pub(super) fn replaced(arguments: &[Value]) -> Result<u64, Error> {
    let [text, from, to, ..] = arguments else {
        return Ok(0);
    };
    let (size, to) = (text_of(Some(text))?, text_of(Some(to))?);
    let matches = match (text.as_str(), from.as_str()) {
        (Some(text), Some(from)) => text.matches(from).count() as u64,
        _ => size + 1,
    };
    Ok(size.saturating_add(matches.saturating_mul(to)))
}

fn joined(arguments: &[Value]) -> Result<u64, Error> {
    let joiner = match argument(arguments, 1, "d") {
        Some(joiner) => text_of(Some(&joiner))?,
        None => 0,
    };
    let Some(list) = arguments.first() else {
        return Ok(0);
    };
    joined_by(list, joiner)
}

/// A bound on the bytes of a list's items with a text between each two.
pub(super) fn joined_by(list: &Value, joiner: u64) -> Result<u64, Error> {
    let mut bytes = items(list).saturating_mul(joiner);
    for item in list.try_iter().into_iter().flatten() {
        bytes = bytes.saturating_add(match item.as_str() {
            Some(text) => text.len() as u64,
            None => text_bytes(&item, size(&item)?),
        });
    }
    Ok(bytes)
}

pub(super) fn split(arguments: &[Value]) -> Result<u64, Error> {
    let text = arguments
        .first()
        .and_then(Value::as_str)
        .unwrap_or_default();
    let parts = match arguments.get(1).and_then(Value::as_str) {
        Some(separator) => text.matches(separator).count(),
        // Without one, at white space; lines are fewer.
        None => text.matches(char::is_whitespace).count(),
    };
    let most = arguments.get(2).and_then(Value::as_usize);
    let parts = parts.min(most.unwrap_or(usize::MAX));
    Ok(text.len() as u64 + (parts as u64 + 2) * ITEM_BYTES)
}

fn indented(arguments: &[Value]) -> Result<u64, Error> {
    let width = argument(arguments, 1, "width");
    let width = width.and_then(|width| match width.as_str() {
        Some(indentation) => Some(indentation.len()),
        None => width.as_usize(),
    });
    let text = text_of(arguments.first())?;
    let lines = match arguments.first().and_then(Value::as_str) {
        Some(text) => text.matches('\n').count() as u64,
        None => text,
    };
    let width = width.unwrap_or(4) as u64;
    Ok(width.saturating_mul(lines + 2).saturating_add(text))
}

/// Of `%` and of `str.format`: every field may print all arguments, as wide as it says.
pub(super) fn formatted(arguments: &[Value]) -> Result<u64, Error> {
    let Some((format, others)) = arguments.split_first() else {
        return Ok(0);
    };
    let text = format.as_str().unwrap_or_default();
    let specifications = specifications(text);
    let numbers = specifications
        .iter()
        .flat_map(|spec| spec.split(|char: char| !char.is_ascii_digit()));
    let numbers = numbers.filter(|digits| !digits.is_empty());
    let mut widths = numbers
        .map(|digits| digits.parse().unwrap_or(u64::MAX))
        .fold(0, u64::saturating_add);
    // A width may be an argument itself.
    let takes_widths = specifications.iter().any(|spec| spec.contains(['*', '{']));
    let is_debug = text.contains(['r', 'a', '!']);
    let mut printed: u64 = 0;
    for other in others {
        let size = size(other)?;
        printed = printed.saturating_add(match is_debug {
            true => size.saturating_mul(6),
            false => text_bytes(other, size),
        });
        if takes_widths {
            widths = widths.saturating_add(other.as_usize().unwrap_or(0) as u64);
        }
    }
    // A fill character may have four bytes; a float has up to 310 digits.
    Ok((printed + 512)
        .saturating_mul(specifications.len() as u64)
        .saturating_add(widths.saturating_mul(4))
        .saturating_add(text.len() as u64))
}

/// What stands between a field's beginning and its type, in either style.
fn specifications(format: &str) -> Vec<&str> {
    let after = |start: char| format.split(start).skip(1);
    let percent = after('%').map(|part| {
        let part = match part.strip_prefix('(').and_then(|key| key.split_once(')')) {
            Some((_, part)) => part,
            None => part,
        };
        let end = part.find(|char| !"-+ #0123456789.*".contains(char));
        part.get(..end.unwrap_or(part.len())).unwrap_or_default()
    });
    let braces = after('{').map(|part| match (part.split_once('}'), part.split_once(':')) {
        (Some((field, _)), _) => field.split_once(':').map_or("", |(_, spec)| spec),
        // Another field begins in this one.
        (None, Some(_)) => "{",
        (None, None) => "",
    });
    percent.chain(braces).collect()
}

/// A sum of texts is copied for each of them.
fn summed(arguments: &[Value]) -> Result<u64, Error> {
    let Some((list, others)) = arguments.split_first() else {
        return Ok(0);
    };
    if others.is_empty() {
        return Ok(0);
    }
    let mut bytes = size(list)?;
    for other in others {
        bytes = bytes.saturating_add(size(other)?);
    }
    charge(bytes.saturating_mul(items(list)) / COPIED_PER_WORK)?;
    Ok(bytes)
}
