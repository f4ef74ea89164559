//! States that keep the text of a key or an item, and what is known where it isn't.

use super::{KeyId, Machine, NO_KEY, StackId, State, UNREAD};
use crate::json::Unread;
use crate::lexical::{Fuel, Stop};

impl Machine {
    /// From here on, what follows a key or an item is what would follow if it were none of those
    /// that may come later: for walks that don't know its text.
    pub(crate) fn skip_texts(&mut self, skips: bool) {
        self.skips_texts = skips;
    }

    /// Whether the frame of a state keeps the text of its lexemes.
    pub(crate) fn keeps_text(&self, state: State) -> bool {
        let top = self.stacks.top(state.stack);
        let expansion = top.and_then(|top| self.known_expansion(top));
        expansion.is_some_and(|expansion| expansion.keeps_key || expansion.keeps_item)
    }

    /// The texts that the frame of a state keeps, with one more byte of its lexeme.
    pub(super) fn keep(&mut self, state: State, byte: u8) -> (KeyId, KeyId) {
        if self.skips_texts {
            return (NO_KEY, NO_KEY);
        }
        let top = self.stacks.top(state.stack);
        let Some(expansion) = top.and_then(|top| self.known_expansion(top)) else {
            return (NO_KEY, NO_KEY);
        };
        let mut text = |keeps: bool, before: KeyId| match keeps {
            true => self.keys.push(before, byte),
            false => NO_KEY,
        };
        (
            text(expansion.keeps_key, state.key),
            text(expansion.keeps_item, state.item),
        )
    }

    /// A place within a key, without its text, be that begun or not. `None` where none is kept, and within
    /// an item of an array of distinct items, whose end may be another by its text.
    pub(crate) fn unread_place(&self, state: State) -> Option<State> {
        let top = self.stacks.top(state.stack)?;
        let expansion = self.known_expansion(top)?;
        let is_key = expansion.keeps_key && !expansion.keeps_item && state.item == NO_KEY;
        is_key.then_some(State {
            key: UNREAD,
            ..state
        })
    }

    /// The texts of the key and of the item that a state keeps, with one more byte of its lexeme.
    pub(crate) fn kept(&mut self, state: State, byte: u8) -> (KeyId, KeyId) {
        self.keep(state, byte)
    }

    /// A state as it is after more bytes of its lexeme, which [`Machine::step_in_lexeme`] left out
    /// of its texts.
    pub(crate) fn with_text(&mut self, mut state: State, bytes: &[u8]) -> State {
        for &byte in bytes {
            (state.key, state.item) = self.keep(state, byte);
        }
        state
    }

    /// Whether a text that a state keeps has at least so many bytes.
    pub(crate) fn is_long(&self, text: KeyId, bytes: usize) -> bool {
        self.keys.is_long(text, bytes)
    }

    /// What is known of a frame without the text before it.
    pub(crate) fn unread(&mut self, stack: StackId, fuel: &mut Fuel) -> Result<Unread, Stop> {
        let Some(top) = self.stacks.top(stack) else {
            return Ok(Unread::default());
        };
        let frame = self.stacks.frame(top);
        let next = self.past_comma(stack);
        let is_infinite = match self.stacks.top(next) {
            Some(next) => {
                let entry = self.expansion(next, fuel)?.entry;
                self.lexicon.is_infinite(entry)
            }
            None => false,
        };
        self.programs
            .unread(&mut self.lexicon, &frame, is_infinite, fuel)
    }

    /// Whether a stack's top frame is one after the comma.
    pub(super) fn is_after_comma(&self, stack: StackId) -> bool {
        let frame = self.stacks.top(stack).map(|top| self.stacks.frame(top));
        frame.is_some_and(|frame| self.programs.is_after_comma(&frame))
    }

    /// A stack whose top frame, an array or object after an item or member, is past the comma.
    pub(crate) fn past_comma(&mut self, stack: StackId) -> StackId {
        let Some(top) = self.stacks.top(stack) else {
            return stack;
        };
        let frame = self.programs.after_comma(self.stacks.frame(top));
        self.stacks.push(self.stacks.below(stack), frame)
    }

    /// The array whose item's text a stack is within: the outermost array of distinct items.
    pub(crate) fn outermost_array(&self, mut stack: StackId) -> StackId {
        while let Some(top) = self.stacks.top(stack) {
            let frame = self.stacks.frame(top);
            let is_outermost = frame.is_array() && !self.programs.is_within_item(&frame);
            if is_outermost {
                break;
            }
            stack = self.stacks.below(stack);
        }
        stack
    }

    /// Whether another item of an array of distinct items is to come that is itself within an item of
    /// such an array.
    pub(crate) fn is_at_inner_item(&self, stack: StackId) -> bool {
        let frame = self.stacks.top(stack).map(|top| self.stacks.frame(top));
        frame.is_some_and(|frame| {
            self.programs.is_after_comma(&frame)
                && self.programs.is_of_distinct_items(&frame)
                && self.programs.is_within_item(&frame)
        })
    }

    /// Whether the short way to the end of the object or array that lies on `home` writes no further
    /// keys of no name and no further items: as far as that is plain.
    pub(crate) fn closes_without_texts(&self, state: State, home: StackId) -> bool {
        let mut stack = state.stack;
        while self.stacks.depth(stack) > self.stacks.depth(home) + 1 {
            stack = self.stacks.below(stack);
        }
        let Some(top) = self.stacks.top(stack) else {
            return false;
        };
        // A comma may have been read already.
        let is_begun = stack == state.stack
            && self
                .known_expansion(top)
                .is_none_or(|expansion| expansion.entry != state.lexeme);
        !is_begun && self.programs.closes_without_texts(&self.stacks.frame(top))
    }
}
