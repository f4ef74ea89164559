//! Atomic groups and possessive repetitions: what they match first is not tried again.
//!
//! Which whole texts match is a set, and here nothing is tried in any order. So a group that isn't tried again is served
//! where that leaves no text out: where each next character of a text decides how to go on. Of alternatives at most one
//! begins with it; a repetition goes on with it, or what follows begins with it, not both. Then there is one way to read
//! the group, the way that is tried first. All else is refused.

use regex_syntax::hir::ClassUnicode;

use super::class::class_of;
use super::parser::MAX_RANGES;
use super::syntax::{Ast, NodeId, NodeKind, RegexError};

/// Characters that texts may begin with: those of some classes, or more.
#[derive(Clone)]
struct First {
    class: ClassUnicode,
    is_nullable: bool,
}

/// Sets of characters, of which not too many may be made.
struct Sets {
    num_ranges: usize,
}

impl Sets {
    /// Adds a set to another.
    fn union(
        &mut self,
        to: &mut ClassUnicode,
        more: &ClassUnicode,
        offset: usize,
    ) -> Result<(), RegexError> {
        self.num_ranges += to.ranges().len() + more.ranges().len() + 1;
        if self.num_ranges > 4 * MAX_RANGES {
            return Err(RegexError::new(
                offset,
                "the pattern is too large for atomic groups and possessive repetitions: leave them out",
            ));
        }
        to.union(more);
        Ok(())
    }

    /// What a node's texts may begin with, by its operands'.
    fn first(
        &mut self,
        known: &[First],
        kind: &NodeKind,
        offset: usize,
    ) -> Result<First, RegexError> {
        let mut first = First {
            class: ClassUnicode::empty(),
            is_nullable: true,
        };
        match kind {
            NodeKind::Class(class) => {
                self.union(&mut first.class, class, offset)?;
                first.is_nullable = false;
            }
            NodeKind::Concat(items) => {
                for &item in items {
                    if !first.is_nullable {
                        break;
                    }
                    self.union(&mut first.class, &known[item].class, offset)?;
                    first.is_nullable = known[item].is_nullable;
                }
            }
            NodeKind::Alternate(items) => {
                first.is_nullable = false;
                for &item in items {
                    self.union(&mut first.class, &known[item].class, offset)?;
                    first.is_nullable |= known[item].is_nullable;
                }
            }
            &NodeKind::Repeat { inner, min, .. } => {
                self.union(&mut first.class, &known[inner].class, offset)?;
                first.is_nullable = min == 0 || known[inner].is_nullable;
            }
            NodeKind::Look { .. }
            | NodeKind::WordBoundary { .. }
            | NodeKind::Start { .. }
            | NodeKind::End(_) => {}
        }
        Ok(first)
    }
}

/// Checks the atomic nodes of a pattern. `lazy` are the repetitions that end as soon as they can.
///
/// # Errors
/// One that may leave out a text, or where that takes too much to find out.
pub(super) fn check(ast: &Ast, atomic: &[NodeId], lazy: &[NodeId]) -> Result<(), RegexError> {
    if atomic.is_empty() {
        return Ok(());
    }
    let mut sets = Sets { num_ranges: 0 };
    let mut firsts: Vec<First> = Vec::with_capacity(ast.nodes.len());
    for node in &ast.nodes {
        firsts.push(sets.first(&firsts, &node.kind, node.offset)?);
    }
    // What the next character after a node may be; of those within an atomic one, the node it is.
    let mut follows = vec![ClassUnicode::empty(); ast.nodes.len()];
    let mut within: Vec<Option<NodeId>> = vec![None; ast.nodes.len()];
    for &at in atomic {
        within[at] = Some(at);
    }
    for (at, node) in ast.nodes.iter().enumerate().rev() {
        let next = std::mem::replace(&mut follows[at], ClassUnicode::empty());
        if let Some(group) = within[at] {
            let is_lazy = lazy.binary_search(&at).is_ok();
            if !is_decided(&firsts, &node.kind, is_lazy, &next) {
                return Err(RegexError::new(
                    ast.nodes[group].offset,
                    "this atomic group or possessive repetition may match less than it does without: what it goes on \
                     with, or another of its alternatives, may begin like what follows. That isn't served: write it \
                     without `?>` or `+`",
                ));
            }
            if !matches!(node.kind, NodeKind::Look { .. }) {
                for &operand in node.kind.operands() {
                    within[operand] = within[operand].or(Some(group));
                }
            }
        }
        match &node.kind {
            NodeKind::Concat(items) => {
                let mut next = next;
                for &item in items.iter().rev() {
                    sets.union(&mut follows[item], &next, node.offset)?;
                    if !firsts[item].is_nullable {
                        next = ClassUnicode::empty();
                    }
                    sets.union(&mut next, &firsts[item].class, node.offset)?;
                }
            }
            NodeKind::Alternate(items) => {
                for &item in items {
                    sets.union(&mut follows[item], &next, node.offset)?;
                }
            }
            &NodeKind::Repeat { inner, max, .. } => {
                sets.union(&mut follows[inner], &next, node.offset)?;
                if max > 1 {
                    sets.union(&mut follows[inner], &firsts[inner].class, node.offset)?;
                }
            }
            // What is looked at goes on with anything.
            &NodeKind::Look { inner, .. } => follows[inner] = class_of(&[('\0', char::MAX)]),
            NodeKind::Class(_)
            | NodeKind::WordBoundary { .. }
            | NodeKind::Start { .. }
            | NodeKind::End(_) => {}
        }
    }
    Ok(())
}

/// Whether the next character decides how a node's text goes on, where `next` may follow it.
fn is_decided(firsts: &[First], kind: &NodeKind, is_lazy: bool, next: &ClassUnicode) -> bool {
    match kind {
        NodeKind::Alternate(items) => {
            let mut seen = ClassUnicode::empty();
            for (at, &item) in items.iter().enumerate() {
                let First { class, is_nullable } = &firsts[item];
                // One that may be empty is taken where no other fits: it has to be tried last.
                if !are_apart(&seen, class) || (*is_nullable && at + 1 < items.len()) {
                    return false;
                }
                seen.union(class);
            }
            let is_nullable = items.last().is_some_and(|&last| firsts[last].is_nullable);
            !is_nullable || are_apart(&seen, next)
        }
        &NodeKind::Repeat { inner, min, max } => {
            min == max
                || (!is_lazy && !firsts[inner].is_nullable && are_apart(&firsts[inner].class, next))
        }
        NodeKind::Concat(_)
        | NodeKind::Class(_)
        | NodeKind::Look { .. }
        | NodeKind::WordBoundary { .. }
        | NodeKind::Start { .. }
        | NodeKind::End(_) => true,
    }
}

fn are_apart(one: &ClassUnicode, other: &ClassUnicode) -> bool {
    let mut both = one.clone();
    both.intersect(other);
    both.ranges().is_empty()
}
