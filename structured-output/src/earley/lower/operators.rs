//! Operators on what nodes are: languages are joined to one where they may be.

use super::{Lowering, MAX_FOLDED_SIZE, Tree, Value};
use crate::grammar_syntax::NodeId;
use crate::lexical::{EMPTY, EPSILON, ExprId, Lexicon};

impl Lowering {
    /// Whether a language holds text, which takes a look at all its parts the first time.
    fn holds_text(&mut self, lexicon: &Lexicon, expr: ExprId) -> bool {
        let known = self.holds_text.entry(expr);
        *known.or_insert_with(|| lexicon.holds_text(expr))
    }

    /// Neighbours that are languages become one; with `apart`, none that holds text.
    pub(super) fn concat(
        &mut self,
        lexicon: &mut Lexicon,
        items: &[NodeId],
        values: &[Value],
        apart: bool,
    ) -> Value {
        let mut parts: Vec<Value> = Vec::with_capacity(items.len());
        for &item in items.iter().rev() {
            match (&values[item], parts.last_mut()) {
                (&Value::Regular(EPSILON, _), _) => {}
                (&Value::Regular(head, a), Some(Value::Regular(tail, b)))
                    if a + *b <= MAX_FOLDED_SIZE
                        && !(apart
                            && (self.holds_text(lexicon, head)
                                || self.holds_text(lexicon, *tail))) =>
                {
                    *tail = lexicon.concat(head, *tail);
                    *b += a;
                }
                (value, _) => parts.push(value.clone()),
            }
        }
        parts.reverse();
        match parts.len() {
            0 => Value::Regular(EPSILON, 1),
            1 => parts.remove(0),
            _ => self.tree(Tree::Concat(parts)),
        }
    }

    /// Alternatives that are languages become one.
    pub(super) fn alternate(
        &mut self,
        lexicon: &mut Lexicon,
        items: &[NodeId],
        values: &[Value],
    ) -> Value {
        let mut exprs = Vec::new();
        let mut total = 0;
        let mut others = Vec::new();
        for &item in items {
            match &values[item] {
                Value::Regular(expr, size) => {
                    exprs.push(*expr);
                    total += size;
                }
                tree => others.push(tree.clone()),
            }
        }
        let expr = lexicon.or(&exprs);
        if others.is_empty() {
            return Value::Regular(expr, total.max(1));
        }
        if expr != EMPTY {
            others.push(Value::Regular(expr, total));
        }
        match others.len() {
            1 => others.remove(0),
            _ => self.tree(Tree::Alternate(others)),
        }
    }
}

/// Operands that have to be regular.
pub(super) fn regular(
    items: &[NodeId],
    values: &[Value],
    operator: &str,
) -> Result<(Vec<ExprId>, usize), String> {
    let mut exprs = Vec::with_capacity(items.len());
    let mut total = 0;
    for &item in items {
        let Value::Regular(expr, size) = values[item] else {
            return Err(format!(
                "`{operator}` needs regular operands: no recursion, tokens or JSON, and at most \
                 {MAX_FOLDED_SIZE} parts"
            ));
        };
        exprs.push(expr);
        total += size;
    }
    Ok((exprs, total))
}
