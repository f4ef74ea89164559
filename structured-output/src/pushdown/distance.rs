//! The shortest way to the end: its length, and its bytes.

use super::{Action, EMPTY_STACK, Machine, StackId, State};
use crate::json::Programs;
use crate::lexical::search::{DEAD, UNKNOWN};
use crate::lexical::{Fuel, OutOfFuel};

impl Machine {
    /// Bytes of a short completion, the shortest where the grammar is one expression; [`DEAD`] where
    /// there is none. And the mark with which its first lexeme ends, where that is now.
    ///
    /// Where what follows depends on the lexeme's text, on a key or an item, it is taken as if it
    /// didn't.
    pub(crate) fn distance(
        &mut self,
        state: State,
        fuel: &mut Fuel,
    ) -> Result<(u32, Option<u16>), OutOfFuel> {
        if state.stack == EMPTY_STACK {
            return Ok((self.lexicon.distance(state.lexeme, fuel)?, None));
        }
        let (mut least, mut ends) = (DEAD, None);
        let mut ends_of_lexeme = self.lexicon.ends(state.lexeme, fuel)?;
        // Where an array or object may end, what else may come is not looked at.
        ends_of_lexeme.sort_by_key(|&(_, mark)| Programs::is_comma(mark));
        for (bytes, mark) in ends_of_lexeme {
            if bytes >= least || (least != DEAD && Programs::is_comma(mark)) {
                break;
            }
            let stack = self.after_end(state.stack, mark, fuel)?;
            let total = bytes.saturating_add(self.total(stack, fuel)?);
            if total < least {
                (least, ends) = (total, (bytes == 0).then_some(mark));
            }
        }
        Ok((least, ends))
    }

    /// The stack after the end of a lexeme, as if what follows didn't depend on its text.
    fn after_end(
        &mut self,
        stack: StackId,
        mark: u16,
        fuel: &mut Fuel,
    ) -> Result<StackId, OutOfFuel> {
        let below = self.stacks.below(stack);
        Ok(match self.action(stack, mark, fuel)? {
            Action::Replace(frames) => self.push_all(below, frames.into_iter().flatten()),
            Action::Verdict(goal) => self.met(below, goal),
            Action::Member { next, value } => self.push_all(below, [next, value]),
        })
    }

    /// Bytes of a short completion of a stack's frames; [`DEAD`] where there is none.
    fn total(&mut self, stack: StackId, fuel: &mut Fuel) -> Result<u32, OutOfFuel> {
        let mut pending = vec![stack];
        let mut total = 0;
        while let Some(&next) = pending.last() {
            fuel.burn(1)?;
            total = self.known_total(next);
            let (UNKNOWN, Some(top)) = (total, self.stacks.top(next)) else {
                pending.pop();
                continue;
            };
            let frame = self.stacks.frame(top);
            let below = self.stacks.below(next);
            let before = pending.len();
            let mut least = DEAD;
            let num_goals = if self.programs.is_after_comma(&frame) {
                least = self.total_after_comma(next, &mut pending, fuel)?;
                0
            } else {
                self.programs.num_goals(&frame)
            };
            for goal in 0..num_goals {
                let rest = self.met(below, goal);
                match self.known_total(rest) {
                    UNKNOWN => pending.push(rest),
                    rest => {
                        let cost =
                            self.programs
                                .frame_cost(&mut self.lexicon, &frame, goal, fuel)?;
                        least = least.min(cost.saturating_add(rest));
                    }
                }
            }
            if pending.len() == before {
                let at = next.0 as usize;
                if self.totals.len() <= at {
                    self.totals.resize(at + 1, UNKNOWN);
                }
                self.totals[at] = least;
            }
        }
        Ok(total)
    }

    /// Bytes of a short completion of a stack whose top frame is one after a comma: by its first
    /// lexeme. What has to be known before is added to `pending`; then the answer means nothing.
    fn total_after_comma(
        &mut self,
        stack: StackId,
        pending: &mut Vec<StackId>,
        fuel: &mut Fuel,
    ) -> Result<u32, OutOfFuel> {
        let Some(top) = self.stacks.top(stack) else {
            return Ok(DEAD);
        };
        let entry = self.expansion(top, fuel)?.entry;
        let mut least = DEAD;
        for (bytes, mark) in self.lexicon.ends(entry, fuel)? {
            if bytes >= least {
                break;
            }
            let rest = self.after_end(stack, mark, fuel)?;
            match self.known_total(rest) {
                UNKNOWN => pending.push(rest),
                total => least = least.min(bytes.saturating_add(total)),
            }
        }
        Ok(least)
    }

    fn known_total(&self, stack: StackId) -> u32 {
        match stack {
            EMPTY_STACK => 0,
            _ => self
                .totals
                .get(stack.0 as usize)
                .copied()
                .unwrap_or(UNKNOWN),
        }
    }

    /// The first byte of the canonical completion and the state after it; `None` at an end.
    ///
    /// Each byte brings the end of a lexeme nearer, and each lexeme that of the text.
    pub(crate) fn toward_end(
        &mut self,
        state: State,
        fuel: &mut Fuel,
    ) -> Result<Option<(u8, State)>, OutOfFuel> {
        if self.is_accepting(state, fuel)? {
            return Ok(None);
        }
        let mut at = state;
        while let (_, Some(mark)) = self.distance(at, fuel)? {
            at = self.end_lexeme(at, mark, fuel)?;
        }
        let mut nearest: Option<(u32, u8)> = None;
        for (bytes, lexeme) in self.lexicon.derivatives(at.lexeme, fuel)? {
            let (distance, _) = self.distance(State { lexeme, ..at }, fuel)?;
            let Some(byte) = bytes.iter().next() else {
                continue;
            };
            if distance != DEAD && nearest.is_none_or(|known| (distance, byte) < known) {
                nearest = Some((distance, byte));
            }
        }
        let Some((_, byte)) = nearest else {
            return Ok(None);
        };
        Ok(self.step(at, byte, fuel)?.map(|next| (byte, next)))
    }
}
