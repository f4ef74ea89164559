//! Which strings a node allows.

use hashbrown::{HashMap, HashSet};

use super::super::node::{Kinds, Node, NodeId, Nodes};
use crate::lexical::{EMPTY, ExprId, Fuel, Lexicon, Stop, UNBOUNDED};

/// All keys, as they are spelled under a constraint.
pub(super) fn universe(lexicon: &mut Lexicon) -> ExprId {
    lexicon.json_string_length(0, UNBOUNDED)
}

/// What a node's truth of a string depends on.
fn operands(nodes: &Nodes, id: NodeId) -> Vec<NodeId> {
    match nodes.node(id) {
        Node::AllOf(list) | Node::AnyOf(list) | Node::OneOf(list) => list.to_vec(),
        Node::Not(inner) => vec![*inner],
        Node::Reference(number) => vec![nodes.definition(*number)],
        _ => Vec::new(),
    }
}

/// Whether a node's strings can be told without references: until all are defined, and those that need
/// themselves are known, one may lead anywhere, back to itself too.
pub(super) fn is_defined(nodes: &Nodes, id: NodeId, fuel: &mut Fuel) -> Result<bool, Stop> {
    let mut seen = HashSet::new();
    let mut pending = vec![id];
    while let Some(id) = pending.pop() {
        if matches!(nodes.node(id), Node::Reference(_)) {
            return Ok(false);
        }
        if seen.insert(id) {
            let operands = operands(nodes, id);
            fuel.burn(1 + operands.len() as u64)?;
            pending.extend(operands);
        }
    }
    Ok(true)
}

/// The strings that a node allows, in quotes, as they are spelled under a constraint. The node does
/// not need itself to say what it says of strings. Linear in the nodes that it consists of, but for
/// `oneOf`, which is quadratic.
pub(super) fn of_node(
    lexicon: &mut Lexicon,
    nodes: &Nodes,
    id: NodeId,
    fuel: &mut Fuel,
) -> Result<ExprId, Stop> {
    let all = universe(lexicon);
    let mut known: HashMap<NodeId, ExprId> = HashMap::new();
    let mut pending = vec![id];
    while let Some(&next) = pending.last() {
        if known.contains_key(&next) {
            pending.pop();
            continue;
        }
        let operands = operands(nodes, next);
        fuel.burn(1 + operands.len() as u64)?;
        let before = pending.len();
        pending.extend(operands.iter().filter(|id| !known.contains_key(*id)));
        if pending.len() > before {
            continue;
        }
        pending.pop();
        let of: Vec<ExprId> = operands.iter().map(|id| known[id]).collect();
        let language = match nodes.node(next) {
            Node::AllOf(_) => {
                let mut list = of;
                list.push(all);
                lexicon.and(&list)
            }
            Node::AnyOf(_) => lexicon.or(&of),
            Node::OneOf(_) => exactly_one(lexicon, all, &of, fuel)?,
            Node::Not(_) => others(lexicon, all, of[0]),
            Node::Reference(_) => of[0],
            Node::Kinds(kinds) if kinds.contains(Kinds::STRING) => all,
            Node::Kinds(_) => EMPTY,
            Node::String(language) => *language,
            _ => all,
        };
        known.insert(next, language);
    }
    Ok(known.get(&id).copied().unwrap_or(EMPTY))
}

fn others(lexicon: &mut Lexicon, all: ExprId, language: ExprId) -> ExprId {
    if language == all {
        return EMPTY;
    }
    let not = lexicon.not(language);
    lexicon.and(&[all, not])
}

fn exactly_one(
    lexicon: &mut Lexicon,
    all: ExprId,
    languages: &[ExprId],
    fuel: &mut Fuel,
) -> Result<ExprId, Stop> {
    let (mut none, mut one) = (all, EMPTY);
    for (before, &language) in languages.iter().enumerate() {
        // `none` is an intersection with one operand for each of those before.
        fuel.burn(1 + before as u64)?;
        fuel.check_bytes(lexicon.memory_bytes())?;
        let not = lexicon.not(language);
        let still = lexicon.and(&[one, not]);
        let now = lexicon.and(&[none, language]);
        one = lexicon.or(&[still, now]);
        none = lexicon.and(&[none, not]);
    }
    Ok(one)
}

/// Whether a key is in a language of keys.
pub(super) fn matches_key(
    lexicon: &mut Lexicon,
    keys: ExprId,
    key: &str,
    fuel: &mut Fuel,
) -> Result<bool, Stop> {
    let mut state = keys;
    for byte in spelled(key).bytes() {
        fuel.burn(1)?;
        state = lexicon.derivative(state, byte, fuel)?;
    }
    Ok(lexicon.is_nullable(state))
}

/// A string as it is spelled under a constraint: literally, escaped where it has to be.
pub(super) fn spelled(text: &str) -> String {
    let mut spelled = String::with_capacity(text.len() + 2);
    spelled.push('"');
    for char in text.chars() {
        match char {
            '"' | '\\' => spelled.extend(['\\', char]),
            '\x08' => spelled.push_str("\\b"),
            '\x0c' => spelled.push_str("\\f"),
            '\n' => spelled.push_str("\\n"),
            '\r' => spelled.push_str("\\r"),
            '\t' => spelled.push_str("\\t"),
            '\0'..='\x1f' => spelled.push_str(&format!("\\u{:04x}", u32::from(char))),
            _ => spelled.push(char),
        }
    }
    spelled.push('"');
    spelled
}
