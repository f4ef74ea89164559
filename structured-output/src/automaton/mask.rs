//! Masks of states.

use std::sync::Arc;

use super::gather::Gather;
use super::memo::{LexemeMask, Part, frames_read};
use super::rests::RestsId;
use super::{GrammarState, State, TokenAutomaton};
use crate::lexical::{Fuel, NO_MARK, Stop};
use crate::mask::Mask;

/// Room for more ids is not kept from one mask to the next.
const MOST_IDS_KEPT: usize = 1 << 14;

impl TokenAutomaton {
    /// The tokens that may come next, the vocabulary's stop tokens included where the text may end.
    ///
    /// A look-up where the state, or one that no token can tell from it, has been asked for before.
    /// Otherwise what the lexeme allows by itself, and for the few tokens that go on after it, a
    /// walk of the machine through what they go on with.
    pub(crate) fn mask(&mut self, state: State, fuel: &mut Fuel) -> Result<Arc<Mask>, Stop> {
        // Saturation speaks of bytes: it holds where any text can be written.
        let lexeme = if self.writes_any_text {
            self.machine.lexicon.saturated(state.lexeme)
        } else {
            state.lexeme
        };
        if let Some(known) = self.masks.get(lexeme, state, self.machine.stacks()) {
            return Ok(known);
        }
        if !self.writes_any_text {
            let mask = self.completable_tokens(GrammarState::Machine(state), fuel)?;
            self.masks
                .insert_for_state(lexeme, state, true, Arc::clone(&mask));
            return Ok(mask);
        }
        self.machine.start_recording();
        let mut gather = Gather::default();
        gather.ids = std::mem::take(&mut self.ids_scratch);
        gather.ids.clear();
        self.add_stop_tokens(&mut gather, state, fuel)?;
        // What may end the text here may have asked for the end of a key or an item.
        let mut depends_on_text = self.machine.reads.text.take().is_some();
        let mut unsure = Vec::new();
        let mut at = State { lexeme, ..state };
        loop {
            for part in self.parts(at.lexeme, fuel)?.iter() {
                self.add_part(part, at, &mut gather, &mut unsure, fuel)?;
            }
            // The lexeme may end before the token begins.
            match self.machine.lexicon.end_mark(at.lexeme) {
                NO_MARK => break,
                mark => at = self.machine.end_lexeme(at, mark, fuel)?,
            }
            depends_on_text |= self.machine.reads.text.take().is_some();
            depends_on_text |= self.machine.has_key_frames();
            at.lexeme = self.machine.lexicon.saturated(at.lexeme);
        }
        let reads = self.machine.stop_recording();
        for &token in &unsure {
            let is_allowed = match self.allows_unread(state, token, fuel)? {
                Some(is_allowed) => is_allowed,
                None => self.advance(state, token, fuel)?.is_some(),
            };
            if is_allowed {
                gather.ids.push(token);
            }
        }
        // What is kept has no more room than it needs; the rest is for the next mask.
        let ids = gather.ids.clone();
        let room = std::mem::replace(&mut gather.ids, ids);
        if room.capacity() <= MOST_IDS_KEPT {
            self.ids_scratch = room;
        }
        let mask = self.finish(gather);
        let stacks = self.machine.stacks();
        let read = frames_read(stacks, state.stack, reads.lowest);
        if unsure.is_empty() && !depends_on_text {
            self.masks
                .insert(lexeme, state, read, stacks, Arc::clone(&mask));
        } else {
            // Where a walk gave up for want of a text, what lies behind was not looked at.
            let reads_bottom = reads.has_widened || read > stacks.depth(state.stack);
            self.masks
                .insert_for_state(lexeme, state, reads_bottom, Arc::clone(&mask));
        }
        Ok(mask)
    }

    /// Adds what a part of a lexeme allows, by itself and with what follows in a state.
    fn add_part(
        &mut self,
        part: &Part,
        state: State,
        gather: &mut Gather,
        unsure: &mut Vec<u32>,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        let Part { mask, mark } = part;
        gather.add_inside(mask);
        self.add_exits(mask, *mark, state, &mut gather.ids, unsure, fuel)?;
        if let Some(reference) = &mask.reference {
            let (mut ids, mut unsure_ids) = (Vec::new(), Vec::new());
            let of_reference = &reference.mask;
            self.add_exits(of_reference, *mark, state, &mut ids, &mut unsure_ids, fuel)?;
            for (found, list) in [(ids, &mut gather.ids), (unsure_ids, unsure)] {
                let kept = |id: &u32| reference.less.binary_search(id).is_err();
                list.extend(found.into_iter().filter(kept));
            }
        }
        Ok(())
    }

    /// Adds the tokens that go on after a lexeme and may, in a state. `mark` stands for mark 0.
    fn add_exits(
        &mut self,
        part: &LexemeMask,
        mark: Option<u16>,
        state: State,
        ids: &mut Vec<u32>,
        unsure: &mut Vec<u32>,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        let index = Arc::clone(&self.index);
        for (at, (own_mark, exits)) in (0..).zip(&part.exits) {
            let mark = mark.unwrap_or(*own_mark);
            let exits = (RestsId::OfPart(part.number, at), exits);
            self.walk_exits(&index, exits, state, mark, ids, unsure, fuel)?;
        }
        Ok(())
    }

    fn add_stop_tokens(
        &mut self,
        gather: &mut Gather,
        state: State,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        if self.is_accepting(state, fuel)? {
            gather
                .ids
                .extend_from_slice(self.index.info().stop_token_ids());
        }
        Ok(())
    }

    fn finish(&mut self, gather: Gather) -> Arc<Mask> {
        let num_words = self.index.text_tokens().len();
        gather.finish(&mut self.masks.store, num_words)
    }
}
