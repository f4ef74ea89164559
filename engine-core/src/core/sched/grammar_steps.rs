//! How much work grammars may do within a step of the busy loop, in steps of theirs (never in time, so
//! that a run can be repeated).

use std::panic::{AssertUnwindSafe, catch_unwind};

use structured_output::MatcherError;

use crate::panic_message::panic_message;
use crate::structured_output::StructuredOutputRequest;

/// Steps that all requests of one step may take together: some tens of milliseconds in which nobody gets
/// a token.
const MAX_PER_STEP: u64 = 100_000;

/// Steps of one request at a time. Of the masks of MaskBench, each schema's made with nothing known
/// before, one in 7,000 takes more; they take 0.05 to 0.1 microseconds a step, and what is written to be
/// dear up to 0.5.
const MAX_PER_REQUEST: u64 = 40_000;

/// Steps that every request may take, however much the others took: enough for all answers but dear
/// ones.
const MIN_PER_REQUEST: u64 = 1_000;

/// Why a grammar has no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoAnswer {
    /// It says why.
    #[error(transparent)]
    Matcher(#[from] MatcherError),
    /// Its code panicked, which concerns its request alone: its memory is left by all who are there.
    #[error("it panicked: {0}")]
    Panicked(String),
}

/// What is left of a step's work on grammars.
#[derive(Debug)]
pub(crate) struct GrammarSteps {
    left: u64,
    /// Taken in this step.
    spent: u64,
    /// The most that was taken in one step.
    most: u64,
}

impl GrammarSteps {
    pub(super) fn new() -> Self {
        Self {
            left: MAX_PER_STEP,
            spent: 0,
            most: 0,
        }
    }

    /// A new step of the loop begins.
    pub(super) fn refill(&mut self) {
        self.left = MAX_PER_STEP;
        self.spent = 0;
    }

    /// Asks a grammar something, for which it may take its part of what is left.
    ///
    /// # Errors
    /// Why it has no answer.
    pub(super) fn ask<T>(
        &mut self,
        grammar: &mut StructuredOutputRequest,
        question: impl FnOnce(&mut StructuredOutputRequest) -> Result<T, MatcherError>,
    ) -> Result<T, NoAnswer> {
        let granted = self.left.clamp(MIN_PER_REQUEST, MAX_PER_REQUEST);
        grammar.set_allowance(Some(granted));
        let answer = match catch_unwind(AssertUnwindSafe(|| question(grammar))) {
            Ok(answer) => answer.map_err(NoAnswer::Matcher),
            Err(panic) => Err(NoAnswer::Panicked(panic_message(panic))),
        };
        let spent = granted.saturating_sub(grammar.allowance().unwrap_or(granted));
        self.left = self.left.saturating_sub(spent);
        self.spent += spent;
        self.most = self.most.max(self.spent);
        answer
    }

    /// The most steps that grammars took within one step of the loop.
    pub(crate) fn most(&self) -> u64 {
        self.most
    }
}
