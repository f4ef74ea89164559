//! What a node says of a value, by plain recursion.

use super::super::super::node::{Kinds, Node, NodeId, Nodes};
use super::super::super::value::Value;
use super::super::key_language::spelled;
use crate::lexical::{ExprId, Fuel, Lexicon};

pub(in crate::json) fn holds(
    nodes: &Nodes,
    lexicon: &mut Lexicon,
    id: NodeId,
    value: &Value,
) -> bool {
    let mut is = |id: NodeId, value: &Value| holds(nodes, lexicon, id, value);
    match nodes.node(id) {
        Node::AllOf(list) => list.iter().all(|&id| is(id, value)),
        Node::AnyOf(list) => list.iter().any(|&id| is(id, value)),
        Node::OneOf(list) => list.iter().filter(|&&id| is(id, value)).count() == 1,
        Node::Not(inner) => !is(*inner, value),
        Node::Reference(number) => is(nodes.definition(*number), value),
        Node::Kinds(kinds) => kinds.contains(kind(value)),
        Node::Number(language) => match value {
            Value::Number(text) => accepts(lexicon, *language, &decimal(text)),
            _ => true,
        },
        Node::String(language) => match value {
            Value::String(text) => accepts(lexicon, *language, &spelled(text)),
            _ => true,
        },
        Node::Items { prefix, rest } => match value {
            Value::Array(items) => {
                let nodes = prefix.iter().chain(std::iter::repeat(rest));
                items.iter().zip(nodes).all(|(item, &id)| is(id, item))
            }
            _ => true,
        },
        Node::MinItems(min) => match value {
            Value::Array(items) => items.len() >= *min as usize,
            _ => true,
        },
        Node::Contains { item, min } => match value {
            Value::Array(items) => {
                items.iter().filter(|value| is(*item, value)).count() >= *min as usize
            }
            _ => true,
        },
        Node::UniqueItems => match value {
            Value::Array(items) => (0..items.len())
                .all(|at| items[..at].iter().all(|before| !equal(before, &items[at]))),
            _ => true,
        },
        Node::Members(members) => match value {
            Value::Object(entries) => entries.iter().all(|(key, value)| {
                let mut found = false;
                let mut good = true;
                for (name, id) in &members.named {
                    if **name == **key {
                        found = true;
                        good &= holds(nodes, lexicon, *id, value);
                    }
                }
                for (keys, id) in &members.patterns {
                    if accepts(lexicon, *keys, &spelled(key)) {
                        found = true;
                        good &= holds(nodes, lexicon, *id, value);
                    }
                }
                good && (found || holds(nodes, lexicon, members.additional, value))
            }),
            _ => true,
        },
        Node::Has(name) => match value {
            Value::Object(_) => value.get(name).is_some(),
            _ => true,
        },
        Node::MinProperties(min) => match value {
            Value::Object(entries) => entries.len() >= *min as usize,
            _ => true,
        },
    }
}

fn kind(value: &Value) -> Kinds {
    match value {
        Value::Null => Kinds::NULL,
        Value::Bool(false) => Kinds::FALSE,
        Value::Bool(true) => Kinds::TRUE,
        Value::Number(_) => Kinds::NUMBER,
        Value::String(_) => Kinds::STRING,
        Value::Array(_) => Kinds::ARRAY,
        Value::Object(_) => Kinds::OBJECT,
    }
}

fn accepts(lexicon: &mut Lexicon, language: ExprId, text: &str) -> bool {
    let mut state = language;
    for byte in text.bytes() {
        let mut fuel = Fuel::new(10_000_000);
        state = lexicon.derivative(state, byte, &mut fuel).unwrap();
    }
    lexicon.is_nullable(state)
}

pub(in crate::json) fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => decimal(a) == decimal(b),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| equal(a, b))
        }
        (Value::Object(a), Value::Object(members)) => {
            a.len() == members.len()
                && a.iter()
                    .all(|(key, value)| b.get(key).is_some_and(|other| equal(value, other)))
        }
        _ => a == b,
    }
}

/// A number without exponent and with no more zeros than it needs.
fn decimal(text: &str) -> String {
    let unsigned = text.trim_start_matches('-');
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut digits: Vec<u8> = [whole, fraction].concat().into_bytes();
    let mut point = whole.len() as i64 + exponent.parse::<i64>().unwrap();
    while point < 0 {
        digits.insert(0, b'0');
        point += 1;
    }
    while (digits.len() as i64) < point {
        digits.push(b'0');
    }
    let fraction = digits.split_off(point as usize);
    let whole = String::from_utf8(digits).unwrap();
    let fraction = String::from_utf8(fraction).unwrap();
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        whole => whole,
    };
    let unsigned = match fraction.trim_end_matches('0') {
        "" => whole.to_owned(),
        fraction => format!("{whole}.{fraction}"),
    };
    match text.starts_with('-') && unsigned != "0" {
        true => format!("-{unsigned}"),
        false => unsigned,
    }
}
