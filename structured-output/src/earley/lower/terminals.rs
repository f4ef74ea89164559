//! Which rules keep their terminals apart.

use crate::grammar_syntax::{Grammar, NodeKind, RuleId};

/// The rules that keep their terminals apart: none where the whole grammar is regular, so that it
/// becomes one language, and none of which an operator needs the language.
pub(super) fn rules_with_terminals(
    grammar: &Grammar,
    used: &[RuleId],
    references: &[Vec<u32>],
    is_recursive: &[bool],
) -> Vec<bool> {
    let mut keeps = vec![false; grammar.rules.len()];
    let has = |rule: RuleId, is_such: fn(&NodeKind) -> bool| {
        let mut nodes = grammar.rules[rule].nodes.iter();
        nodes.any(|node| is_such(&node.kind))
    };
    let is_more = |kind: &NodeKind| {
        matches!(
            kind,
            NodeKind::Tokens(_)
                | NodeKind::NamedToken(_)
                | NodeKind::Json(_)
                | NodeKind::WithinTokens { .. }
        )
    };
    if !used
        .iter()
        .any(|&rule| is_recursive[rule] || has(rule, is_more))
    {
        return keeps;
    }
    for &rule in used {
        keeps[rule] = grammar.rules[rule].keeps_terminals;
    }
    let needs_language = |kind: &NodeKind| {
        matches!(
            kind,
            NodeKind::And(_)
                | NodeKind::Not(_)
                | NodeKind::Shortest(_)
                | NodeKind::WithinTokens { .. }
        )
    };
    let mut pending: Vec<RuleId> = used
        .iter()
        .copied()
        .filter(|&rule| has(rule, needs_language))
        .collect();
    let mut seen = vec![false; grammar.rules.len()];
    while let Some(rule) = pending.pop() {
        if !std::mem::replace(&mut seen[rule], true) {
            keeps[rule] = false;
            pending.extend(references[rule].iter().map(|&rule| rule as usize));
        }
    }
    keeps
}
