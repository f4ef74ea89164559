//! The end of a lexeme: what takes the place of its frame, and the first lexeme of what follows.

use super::{Action, KeyId, Machine, NO_KEY, StackId, State, UNREAD};
use crate::json::Frame;
use crate::lexical::{Fuel, NO_MARK, Stop};

impl Machine {
    /// Whether the text may end here.
    pub(crate) fn is_accepting(&mut self, mut state: State, fuel: &mut Fuel) -> Result<bool, Stop> {
        loop {
            if !self.lexicon.is_nullable(state.lexeme) {
                return Ok(false);
            }
            match self.lexicon.end_mark(state.lexeme) {
                NO_MARK => return Ok(true),
                mark => state = self.end_lexeme(state, mark, fuel)?,
            }
        }
    }

    /// The state after the running lexeme, which ends here with a mark.
    pub(crate) fn end_lexeme(
        &mut self,
        state: State,
        mark: u16,
        fuel: &mut Fuel,
    ) -> Result<State, Stop> {
        fuel.burn(1)?;
        self.read(state.stack);
        let below = self.stacks.below(state.stack);
        let stack = match self.action(state.stack, mark, fuel)? {
            Action::Replace(frames) => {
                let stack = self.push_all(below, frames.into_iter().flatten());
                self.follow_key_frame(state.stack, stack);
                stack
            }
            Action::Verdict(goal) => {
                self.read(below);
                self.met(below, goal)
            }
            Action::Member { next, value } => {
                let next = if self.skips_texts || state.key == UNREAD {
                    next
                } else {
                    let text = self.keys.text(state.key);
                    self.programs.after_key(next, &text)
                };
                let stack = self.stacks.push(below, next);
                if self.is_recording {
                    self.key_frames.extend(self.stacks.top(stack));
                }
                self.stacks.push(stack, value)
            }
        };
        self.enter(stack, state.item, fuel)
    }

    /// The state after the running lexeme, with which a value that meets several goals is over.
    pub(super) fn end_in_ways(
        &mut self,
        state: State,
        marks: &[u16],
        fuel: &mut Fuel,
    ) -> Result<State, Stop> {
        fuel.burn(1)?;
        let ended = self
            .stacks
            .top(state.stack)
            .map(|top| self.stacks.frame(top));
        self.read(state.stack);
        let below = self.stacks.below(state.stack);
        if let Some(frame) = ended {
            let lexicon = &mut self.lexicon;
            if let Some(next) = self.programs.joint_item(lexicon, frame, marks, fuel)? {
                let stack = self.stacks.push(below, next);
                self.follow_key_frame(state.stack, stack);
                return self.enter(stack, state.item, fuel);
            }
        }
        self.read(below);
        let waiting = self.stacks.top(below).map(|top| self.stacks.frame(top));
        let stack = match waiting {
            Some(frame) => {
                let lexicon = &mut self.lexicon;
                let outcome = self.programs.joint_outcome(lexicon, frame, marks, fuel)?;
                self.replace_below(below, outcome)
            }
            None => below,
        };
        self.enter(stack, state.item, fuel)
    }

    /// The state at the first lexeme of a stack's top frame, after an item's text where the frame
    /// is within one or waits for its end.
    pub(super) fn enter(
        &mut self,
        mut stack: StackId,
        item: KeyId,
        fuel: &mut Fuel,
    ) -> Result<State, Stop> {
        self.read(stack);
        let Some(mut top) = self.stacks.top(stack) else {
            // Nothing may follow.
            return Ok(self.start_of_expression(crate::lexical::EPSILON));
        };
        let mut frame = self.stacks.frame(top);
        if self.programs.awaits_item(&frame) {
            let below = self.stacks.below(stack);
            frame = if self.skips_texts || item == UNREAD {
                self.reads.may_widen |= self.programs.may_widen(&frame);
                self.reads.has_widened |= self.reads.may_widen;
                self.programs.without_item(frame)
            } else {
                let text = self.keys.text(item);
                let lexicon = &mut self.lexicon;
                self.programs.after_item(lexicon, frame, &text, fuel)?
            };
            stack = self.stacks.push(below, frame);
            top = self.stacks.top(stack).unwrap_or(top);
            self.reads.text = Some(stack);
        }
        if self.key_frames.contains(&top) {
            self.reads.text = Some(stack);
        }
        let expansion = self.expansion(top, fuel)?;
        Ok(State {
            lexeme: expansion.entry,
            stack,
            key: NO_KEY,
            item: match self.programs.is_within_item(&frame) {
                true => item,
                false => NO_KEY,
            },
        })
    }

    /// A stack where the value above it has met a goal.
    pub(super) fn met(&mut self, stack: StackId, goal: u32) -> StackId {
        let Some(top) = self.stacks.top(stack) else {
            return stack;
        };
        let frame = self.stacks.frame(top);
        let outcome = self.programs.outcome(frame, goal);
        self.replace_below(stack, outcome)
    }

    /// A stack with another top frame, the outcome of the value above it.
    fn replace_below(&mut self, stack: StackId, outcome: Frame) -> StackId {
        let Some(top) = self.stacks.top(stack) else {
            return stack;
        };
        if outcome == self.stacks.frame(top) {
            return stack;
        }
        let below = self.stacks.below(stack);
        let stack = self.stacks.push(below, outcome);
        if self.key_frames.contains(&top) {
            self.key_frames.extend(self.stacks.top(stack));
        }
        stack
    }
}
