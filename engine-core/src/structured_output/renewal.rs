//! Grammars that are compiled again, since the memory that they shared is full.
//!
//! Grammars share their states, and the room for them. Where it is full, a grammar that needs another
//! state fails. Its request then waits until the grammar is compiled again where there is room, and
//! the answer's tokens were accepted again; it goes on as if nothing had happened. So only a grammar
//! that has too little room alone is its request's failure.

use super::backend::{CompileGrammarError, GrammarMemory, StructuredOutputGrammar};
use super::own_memory::OwnMemoryPermit;
use super::request::StructuredOutputRequest;

/// Times that a grammar may go from one shared memory to the next.
const MAX_SHARED_RENEWALS: u32 = 8;

/// What a request's grammars went through.
#[derive(Default)]
pub(super) struct Renewals {
    num_shared: u32,
    /// Tokens of the answer when the grammar was last compiled again.
    num_answer_tokens: Option<usize>,
    /// The grammar has memory of its own.
    own_memory: Option<OwnMemoryPermit>,
}

impl StructuredOutputRequest {
    /// Where the grammar is to be compiled again, now that its memory is full; `None` where it was
    /// alone in it. One that wanders from memory to memory, or came to no token in the last, gets its
    /// own.
    pub(crate) fn renewal(&self) -> Option<GrammarMemory> {
        let Renewals {
            num_shared,
            num_answer_tokens,
            own_memory,
        } = &self.renewals;
        if own_memory.is_some() {
            return None;
        }
        let came_further = *num_answer_tokens != Some(self.num_answer_tokens);
        Some(match came_further && *num_shared < MAX_SHARED_RENEWALS {
            true => GrammarMemory::Shared,
            false => GrammarMemory::Own,
        })
    }

    /// Notes that the grammar has memory of its own, or not.
    pub(super) fn set_own_memory(&mut self, own_memory: Option<OwnMemoryPermit>) {
        self.renewals.own_memory = own_memory;
    }

    /// Tokens of the output that the grammar has accepted: its last ones.
    pub(crate) fn num_answer_tokens(&self) -> usize {
        self.num_answer_tokens
    }

    /// Notes that the grammar's memory is full.
    pub(crate) fn set_exhausted(&mut self) {
        self.is_exhausted = true;
    }

    /// Whether the grammar has to be compiled again before anything else.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    /// Goes on with another grammar of the same constraint, which stands at its start.
    ///
    /// # Errors
    /// It fails on the tokens of the answer, or on the first mask after them: nothing changed, or it
    /// is exhausted.
    pub(super) fn renew(
        &mut self,
        mut grammar: Box<dyn StructuredOutputGrammar>,
        answer_token_ids: &[u32],
        own_memory: Option<OwnMemoryPermit>,
    ) -> Result<(), CompileGrammarError> {
        for (index, &token_id) in answer_token_ids.iter().enumerate() {
            if !grammar.accept_token(token_id)? {
                return Err(CompileGrammarError::Unsupported(format!(
                    "the grammar, compiled again, refuses token {token_id} at index {index} of \
                     the answer, which it had accepted"
                )));
            }
        }
        self.grammar = grammar;
        self.renewals.num_shared += u32::from(own_memory.is_none());
        self.renewals.num_answer_tokens = Some(self.num_answer_tokens);
        self.renewals.own_memory = own_memory;
        self.grammar.next_token_mask()?;
        self.is_exhausted = false;
        Ok(())
    }
}
