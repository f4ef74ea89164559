//! What became of a constraint, and whom that concerns: requests with one constraint differ in what they
//! ask of its grammar.

use structured_output::{CompileError, MatcherError};

use super::backend::CompileGrammarError;
use super::compile_job::{CompileJob, Purpose};
use super::min_tokens::MinTokens;

/// How far a new request's grammar has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// It is compiled.
    Compiling,
    /// The shortest text is looked for.
    Measuring,
    /// The first masks are made.
    Opening,
    /// The tokens are accepted that an earlier core generated, and what follows them is looked at.
    Replaying,
}

/// Whom a refusal concerns, of all that have the constraint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Scope {
    /// Everyone.
    All,
    /// Those whose output has to be complete within `max_tokens`.
    Measured,
    /// Those that begin where its texts do, and not after tokens of an earlier core.
    Opened,
}

/// What became of the first job of a constraint.
pub(super) enum Verdict<'a> {
    /// It has its grammar. Where its shortest text was not counted, only a bound is known.
    Served { is_counted: bool },
    /// It was refused, and so is whoever this concerns, whenever they come.
    Refused(Scope, &'a CompileGrammarError),
}

/// What a job asks of its grammar beyond that it is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Demand {
    /// The most tokens that its output may have, where it has to be complete within them.
    measured: Option<Option<u32>>,
    /// It begins where the grammar's texts do.
    is_opened: bool,
}

impl Demand {
    /// That of a job.
    pub(super) fn of(job: &CompileJob) -> Self {
        let params = &job.params;
        let is_measured = params
            .structured_outputs
            .as_ref()
            .is_some_and(|structured_outputs| structured_outputs.complete_within_max_tokens);
        let is_opened = match &job.purpose {
            Purpose::Start {
                output_token_ids, ..
            } => output_token_ids.is_empty(),
            Purpose::Aside(_) => false,
        };
        Self {
            measured: is_measured.then_some(params.max_tokens),
            is_opened,
        }
    }

    /// Refusals that would concern it.
    pub(super) fn scopes(&self) -> Vec<Scope> {
        let mut scopes = vec![Scope::All];
        if self.measured.is_some() {
            scopes.push(Scope::Measured);
        }
        if self.is_opened {
            scopes.push(Scope::Opened);
        }
        scopes
    }

    /// Whether all is known that this asks of the grammar, once another that asked `other` was served. The
    /// grammar's own masks don't depend on stop tokens, so these needn't be the same.
    pub(super) fn is_met_by(&self, other: &Self, is_counted: bool) -> bool {
        let is_measured = match (self.measured, other.measured) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(own), Some(others)) => is_counted || own == others,
        };
        is_measured && (other.is_opened || !self.is_opened)
    }

    /// Whom a refusal of this job concerns; `None` where the same may be served the next time: for want of
    /// memory, since nobody waited for it, or by its own output so far.
    pub(super) fn scope_of(&self, error: &CompileGrammarError, stage: Stage) -> Option<Scope> {
        let by_stage = match stage {
            Stage::Compiling => Scope::All,
            Stage::Measuring => Scope::Measured,
            Stage::Opening => Scope::Opened,
            Stage::Replaying => return None,
        };
        match error {
            CompileGrammarError::Unsupported(_) => Some(by_stage),
            CompileGrammarError::Compile(error) => {
                (*error != CompileError::Cancelled).then_some(by_stage)
            }
            CompileGrammarError::Matcher(
                MatcherError::StepsExhausted { .. }
                | MatcherError::BytesExhausted { .. }
                | MatcherError::ItemsExhausted { .. },
            ) => Some(by_stage),
            CompileGrammarError::Matcher(_) | CompileGrammarError::Renew(_) => None,
        }
    }
}

impl Verdict<'_> {
    /// Of a job that was served, by what its output takes where that was looked for.
    pub(super) fn served(min_tokens: Option<MinTokens>) -> Self {
        Self::Served {
            is_counted: !matches!(min_tokens, Some(MinTokens::AtLeast(_))),
        }
    }
}
