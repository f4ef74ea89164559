//! What a matcher may take, and where it goes on.

use super::{AcceptedStep, GrammarMatcher, Renewals};
use crate::engine::RequestMemory;
use crate::error::MatcherError;
use crate::grammar::CompiledGrammar;

impl GrammarMatcher {
    /// From here on, this matcher's calls may together take so many steps, and beyond them fail with
    /// [`MatcherError::AllowanceSpent`], which changes nothing; so does a call that would have to wait
    /// for others at work in memory apart. For a thread that others wait for: what is known costs no
    /// steps, and what is not can be asked again on another thread without a limit (`None`, as it is at
    /// first), after which it is known. Each call has its own limit,
    /// [`Limits::max_mask_steps`](crate::Limits::max_mask_steps), beside this.
    pub fn set_allowance(&mut self, steps: Option<u64>) {
        self.allowance.grant(steps, steps.is_none());
    }

    /// The same for a thread that works in memory apart in turns: its calls wait for others there.
    pub fn set_patient_allowance(&mut self, steps: u64) {
        self.allowance.grant(Some(steps), true);
    }

    /// From here on, this matcher's calls may together add so many bytes of states to the memory that all share, and
    /// beyond them fail with [`MatcherError::BytesExhausted`]; `None` for no limit but that of this memory, as it is at
    /// first. What others have added costs nothing.
    pub fn set_max_bytes(&mut self, max_bytes: Option<usize>) {
        self.allowance.grant_bytes(max_bytes.unwrap_or(usize::MAX));
    }

    /// What is left of these; `None` where there is no limit.
    pub fn bytes_left(&self) -> Option<usize> {
        Some(self.allowance.bytes_left()).filter(|&left| left != usize::MAX)
    }

    /// From here on, what this matcher adds to the memory that all share counts for a request with other matchers. Where
    /// they have added [more than their share](RequestMemory) together, its calls fail with
    /// [`MatcherError::StatesExhausted`], and it goes on apart. Of `num_added_bytes`, which it has added before, what is
    /// beyond one share counts too.
    pub fn set_request_memory(&mut self, memory: &RequestMemory, num_added_bytes: usize) {
        self.allowance.set_request_memory(memory);
        let engine = self.grammar.engine();
        engine.add_beyond_share(&self.allowance, num_added_bytes);
    }

    /// Whether its request has added as much as it may to the memory that all share.
    pub(crate) fn is_request_beyond(&self) -> bool {
        self.grammar.engine().is_beyond_request(&self.allowance)
    }

    /// What the matchers of its request take together, where that is bounded.
    pub(crate) fn request_memory(&self) -> Option<&RequestMemory> {
        self.allowance.request_memory()
    }

    /// What is left of its steps.
    pub fn allowance(&self) -> Option<u64> {
        self.allowance.left()
    }

    /// Lets other matchers go first that wait for the memory they share. For a thread that asks again and
    /// again where a call failed with [`MatcherError::AllowanceSpent`]: what the call computed is known, so
    /// long walks come to an end that way.
    pub fn let_others_pass(&self) {
        self.grammar.engine().let_others_pass();
    }

    /// Whether its grammar is in memory apart from that which all share, see
    /// [`GrammarCompiler::move_apart`](crate::GrammarCompiler::move_apart).
    pub fn is_apart(&self) -> bool {
        self.grammar.engine().is_apart()
    }

    /// Looks at the first places of a text: the masks at the start and, of JSON, after the brackets that
    /// open it, up to a first key or string. A grammar that needs more than there is mostly fails
    /// there, before anything is written. Nothing changes.
    ///
    /// # Errors
    /// A limit.
    pub fn check_opening(&self) -> Result<(), MatcherError> {
        let start = self.grammar.root();
        self.grammar.engine().open(start, &self.allowance)
    }

    /// Its grammar.
    pub(crate) fn grammar(&self) -> &CompiledGrammar {
        &self.grammar
    }

    /// How often it went to other memory.
    pub(crate) fn renewals_mut(&mut self) -> &mut Renewals {
        &mut self.renewals
    }

    /// A matcher like this one at the start of a grammar.
    pub(crate) fn restarted(&self, grammar: &CompiledGrammar) -> Self {
        let mut restarted = Self {
            grammar: grammar.clone(),
            ..self.clone()
        };
        restarted.reset();
        restarted
    }

    /// Takes over what another's allowance has left of its steps.
    pub(crate) fn set_allowance_of(&mut self, other: &Self) {
        let is_patient = other.allowance.is_patient();
        self.allowance.grant(other.allowance.left(), is_patient);
    }

    /// What has been accepted and not been taken back.
    pub(crate) fn accepted_steps(&self) -> Vec<AcceptedStep> {
        let from_top = self.history.iter();
        let mut steps: Vec<AcceptedStep> = from_top.map(|accepted| accepted.step).collect();
        steps.reverse();
        steps
    }

    /// Accepts a step again.
    pub(crate) fn accept_step(&mut self, step: AcceptedStep) -> Result<bool, MatcherError> {
        match step {
            AcceptedStep::Token(token_id) => self.accept_token(token_id),
            AcceptedStep::TextOfStopToken(token_id) => self.accept_stop_token_as_text(token_id),
            AcceptedStep::Byte(byte) => self.accept_bytes(&[byte]),
        }
    }
}
