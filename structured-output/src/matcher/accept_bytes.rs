//! Text that is accepted without tokens: a forced text, or what another program wrote.

use super::{Accepted, AcceptedStep, GrammarMatcher, Place};
use crate::error::MatcherError;

impl GrammarMatcher {
    /// Accepts some bytes of text, whatever tokens write them: true where the text with them can still be
    /// completed by tokens of the vocabulary, else nothing changes. After termination only no bytes at
    /// all are accepted. Each byte counts as one of [`GrammarMatcher::num_accepted_tokens`] and of
    /// [`GrammarMatcher::rollback`].
    ///
    /// Costs a step of the automaton for each byte, without the shared answers by which
    /// [`GrammarMatcher::accept_token`] is fast.
    ///
    /// # Errors
    /// A limit; nothing changes.
    pub fn accept_bytes(&mut self, bytes: &[u8]) -> Result<bool, MatcherError> {
        if bytes.is_empty() {
            return Ok(true);
        }
        if self.place.terminated {
            return Ok(false);
        }
        let engine = self.grammar.engine();
        let mut states = Vec::with_capacity(bytes.len());
        let mut state = self.place.state;
        for &byte in bytes {
            // A lock for each byte: others are not kept waiting for a long text.
            let next = engine.run(&self.allowance, |automaton, fuel| {
                automaton.after_byte(state, byte, fuel)
            })?;
            let Some(next) = next else {
                return Ok(false);
            };
            states.push(next);
            state = next;
        }
        let can_end = engine.run(&self.allowance, |automaton, fuel| {
            automaton.can_end(state, fuel)
        })?;
        if !can_end {
            return Ok(false);
        }
        for (&byte, state) in bytes.iter().zip(states) {
            self.history.push(Accepted {
                before: self.place,
                step: AcceptedStep::Byte(byte),
            });
            self.place = Place {
                state,
                ..self.place
            };
        }
        Ok(true)
    }
}
