//! Languages that begin with characters up to a count.

use super::arena::{EPSILON, ExprId, Lexicon, Node, UNBOUNDED};
use super::fuel::{Fuel, Stop};

/// `C{min,max} B`, or what of it begins with some of the characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BoundedHead {
    /// `C`.
    pub(crate) character: ExprId,
    pub(crate) min: u32,
    /// May be [`UNBOUNDED`] where a least number is asked for.
    pub(crate) max: u32,
    /// `B`.
    pub(crate) rest: ExprId,
    /// The same with any number of characters, but for the first.
    pub(crate) any_number: ExprId,
}

impl Lexicon {
    /// What a language is that begins with characters, at most so many or at least two: `C{m,n} B`, or
    /// `D C{m,n} B` with a `D` that is one of the characters.
    pub(crate) fn bounded_head(
        &mut self,
        expr: ExprId,
        fuel: &mut Fuel,
    ) -> Result<Option<BoundedHead>, Stop> {
        let (head, rest) = self.split(expr);
        if let Some(mut found) = self.counted(head, rest) {
            let any = self.star(found.character);
            found.any_number = self.concat(any, rest);
            return Ok(Some(found));
        }
        let first = head;
        let (head, rest) = self.split(rest);
        let Some(mut found) = self.counted(head, rest) else {
            return Ok(None);
        };
        let mut num_steps = 1;
        let is_character = self.are_among(first, found.character, &mut num_steps);
        fuel.burn(num_steps)?;
        if !is_character {
            return Ok(None);
        }
        found.min = found.min.saturating_add(1);
        found.max = found.max.saturating_add(1);
        let any = self.star(found.character);
        let after = self.concat(any, rest);
        found.any_number = self.concat(first, after);
        Ok(Some(found))
    }

    /// The first part of a sequence, and the others.
    fn split(&self, expr: ExprId) -> (ExprId, ExprId) {
        match self.node(expr) {
            Node::Concat(head, rest) => (head, rest),
            _ => (expr, EPSILON),
        }
    }

    fn counted(&self, head: ExprId, rest: ExprId) -> Option<BoundedHead> {
        let Node::Repeat { body, min, max } = self.node(head) else {
            return None;
        };
        let is_bounded = max != UNBOUNDED || min > 1;
        is_bounded.then_some(BoundedHead {
            character: body,
            min,
            max,
            rest,
            any_number: rest,
        })
    }
}
