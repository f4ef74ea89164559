//! Matchers whose memory is full go on in other memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::GrammarCompiler;
use crate::engine::OwnMemory;
use crate::error::{CompileError, MatcherError};
use crate::grammar::CompiledGrammar;
use crate::matcher::{AcceptedStep, GrammarMatcher};
use crate::options::CancelFlag;

/// Times that a matcher may go from one shared memory to the next, without coming much further in between.
const MAX_SHARED_RENEWALS: u32 = 8;

/// Whoever has accepted so many tokens since the last time is in the way of others' memory, not the other way
/// round, and may go there as often as it has to.
const MUCH_FURTHER: usize = 64;

/// Times that a token is tried again, others going first between two, where it takes more than it may.
const MAX_ATTEMPTS: u32 = 10;

/// A text is accepted again within so many times the steps of one call: whoever waits for its next token
/// waits for that.
const MAX_REPLAY_CALLS: u64 = 2;

/// And so many steps for each of its tokens. Of texts that are read in one way a token takes some tens, once
/// a few like it were met.
const REPLAY_STEPS_PER_TOKEN: u64 = 1_000;

/// Tokens that are accepted again between two looks at the flag.
const TOKENS_PER_LOOK: usize = 256;

/// Why a matcher can't go on in other memory. It is as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RenewError {
    /// Its grammar was not compiled again: a budget, or the flag.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// Its text was not accepted again: a limit. [`MatcherError::StatesExhausted`] is final: its
    /// grammar has needed more memory than there is for one.
    #[error(transparent)]
    Matcher(#[from] MatcherError),
    /// It needs memory of its own, and enough others have that: try again once one of these is gone.
    #[error("as many grammars as may have memory of their own: {max}")]
    NoMemory {
        /// Grammars that may.
        max: usize,
    },
    /// The grammar refuses a token that it had accepted: an error of this library.
    #[error(
        "the grammar, compiled again, refuses token {token_id} at index {index}, which it had \
             accepted"
    )]
    Diverged {
        /// The token.
        token_id: u32,
        /// How many were accepted before it.
        index: usize,
    },
    /// The grammar refuses a byte that it had accepted: an error of this library.
    #[error(
        "the grammar, compiled again, refuses byte {byte:#04x} at index {index}, which it had \
             accepted"
    )]
    DivergedByte {
        /// The byte.
        byte: u8,
        /// How many tokens and bytes were accepted before it.
        index: usize,
    },
}

impl GrammarCompiler {
    /// Whether a grammar that needs memory of its own would find some now, see [`renew`](Self::renew).
    pub fn has_own_memory(&self) -> bool {
        self.num_own.load(Ordering::Relaxed) < OwnMemory::MAX
    }

    /// Lets a matcher go on that has failed with [`MatcherError::StatesExhausted`]: compiles its
    /// grammar again in other memory, and accepts its tokens again. It then stands where it stood;
    /// forks stay where they are.
    ///
    /// First in the memory that new grammars share. A matcher that has come no further since the last
    /// time, or comes for the ninth time with few tokens in between, gets memory of its own; so does one whose text and
    /// next mask don't fit beside the others. Only one has that at a time. One that is full begins anew, and is the end where less than 64 tokens were
    /// accepted in between: so a grammar that needs too much fails alone, and its neighbours go on. Costs a compilation, unless others have compiled the
    /// grammar meanwhile, and the text's tokens: together no more than twice
    /// [`Limits::max_mask_steps`](crate::Limits::max_mask_steps) and 1,000 steps for each token, beyond
    /// which it fails with [`MatcherError::StepsExhausted`].
    ///
    /// # Errors
    /// [`RenewError`].
    ///
    /// # Examples
    /// ```
    /// # use std::sync::Arc;
    /// use structured_output::{
    ///     CancelFlag, CompilerOptions, GrammarCompiler, GrammarMatcher, MatcherError, RenewError,
    ///     TokenizerInfo,
    /// };
    ///
    /// fn accept(
    ///     compiler: &GrammarCompiler,
    ///     matcher: &mut GrammarMatcher,
    ///     token_id: u32,
    /// ) -> Result<bool, RenewError> {
    ///     loop {
    ///         match matcher.accept_token(token_id) {
    ///             Err(MatcherError::StatesExhausted { .. }) => {
    ///                 compiler.renew(matcher, &CancelFlag::new())?;
    ///             }
    ///             other => return Ok(other?),
    ///         }
    ///     }
    /// }
    /// # let vocab = [b"a".to_vec(), b"<eos>".to_vec()];
    /// # let info = Arc::new(TokenizerInfo::new(&vocab, 2, &[1], &[1])?);
    /// # let compiler = GrammarCompiler::new(info, CompilerOptions::default());
    /// # let mut matcher = GrammarMatcher::new(&compiler.compile_regex("a+")?);
    /// # assert!(accept(&compiler, &mut matcher, 0)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn renew(
        &self,
        matcher: &mut GrammarMatcher,
        cancel: &CancelFlag,
    ) -> Result<(), RenewError> {
        let specification = Arc::clone(matcher.grammar().compiled_from());
        let is_own = matcher.grammar().engine().is_own();
        let exhausted = matcher.grammar().engine().exhausted();
        if !is_own {
            self.lane.leave(matcher.grammar().engine());
        }
        let mut replay = self.replay_of(matcher);
        let num_accepted = Some(matcher.num_accepted_tokens());
        let renewals = matcher.renewals_mut();
        let came_much_further =
            num_accepted >= renewals.num_accepted.map(|before| before + MUCH_FURTHER);
        if is_own {
            if !came_much_further {
                return Err(exhausted.into());
            }
            // Its text alone takes a tenth of what it took with all that was asked on the way. That goes first: there is
            // no room for both.
            renewals.num_accepted = num_accepted;
            drop(matcher.grammar().engine().empty_when_free());
            return self.renew_alone(matcher, OwnMemory::next(&self.num_own), &mut replay, cancel);
        }
        let no_memory = RenewError::NoMemory {
            max: OwnMemory::MAX,
        };
        let engine = matcher.grammar().engine();
        let memory = matcher.request_memory();
        let has_own = memory.is_some_and(|memory| memory.has_own_beside(engine));
        let goes_apart = matcher.is_apart() || matcher.is_request_beyond();
        if goes_apart && has_own {
            // A request fills no other memory apart meanwhile.
            return Err(no_memory);
        }
        let renewals = matcher.renewals_mut();
        if came_much_further {
            renewals.num_shared = 0;
        }
        let came_further = renewals.num_accepted != num_accepted;
        if came_further && renewals.num_shared < MAX_SHARED_RENEWALS {
            renewals.num_shared += 1;
            renewals.num_accepted = num_accepted;
            let mut grammar = match goes_apart {
                true => self.compile_apart(&specification, cancel)?,
                false => self.compile(&specification, cancel)?,
            };
            let max_steps = self.options.max_shared_steps;
            let mut moved = move_to(matcher, &grammar, max_steps, &mut replay, cancel);
            if let Err(RenewError::Matcher(MatcherError::AllowanceSpent)) = moved {
                grammar = self.compile_apart(&specification, cancel)?;
                moved = move_to(matcher, &grammar, None, &mut replay, cancel);
            }
            match moved {
                Err(RenewError::Matcher(MatcherError::StatesExhausted { .. })) => {
                    self.lane.leave(grammar.engine());
                }
                other => return other,
            }
        }
        let own = OwnMemory::new(&self.num_own).ok_or(no_memory)?;
        if matcher.request_memory().is_some() {
            // Its siblings may be there.
            self.lane.empty();
        }
        matcher.renewals_mut().num_accepted = num_accepted;
        self.renew_alone(matcher, own, &mut replay, cancel)
    }

    /// Lets a matcher go on in memory of its own.
    fn renew_alone(
        &self,
        matcher: &mut GrammarMatcher,
        own: OwnMemory,
        replay: &mut Replay,
        cancel: &CancelFlag,
    ) -> Result<(), RenewError> {
        let specification = Arc::clone(matcher.grammar().compiled_from());
        let engine = Arc::new(self.fresh_apart().owned(own));
        if let Some(memory) = matcher.request_memory() {
            memory.set_own(&engine);
        }
        let grammar = self.compile_alone(engine, &specification, cancel)?;
        move_to(matcher, &grammar, None, replay, cancel)
    }

    /// What accepting a matcher's text again may take, wherever that is tried.
    pub(super) fn replay_of(&self, matcher: &GrammarMatcher) -> Replay {
        let of_calls = self
            .options
            .limits
            .max_mask_steps
            .saturating_mul(MAX_REPLAY_CALLS);
        let of_tokens =
            (matcher.num_accepted_tokens() as u64).saturating_mul(REPLAY_STEPS_PER_TOKEN);
        let max = of_calls.saturating_add(of_tokens);
        Replay { max, left: max }
    }
}

/// Steps for accepting a text again.
pub(super) struct Replay {
    max: u64,
    left: u64,
}

/// Lets a matcher go on with the same grammar in other memory, where its text and the mask after it
/// have room there. A token takes `max_steps` there at a time, some times over, unless that is memory
/// apart; and all of them no more than `replay` has left.
pub(super) fn move_to(
    matcher: &mut GrammarMatcher,
    grammar: &CompiledGrammar,
    max_steps: Option<u64>,
    replay: &mut Replay,
    cancel: &CancelFlag,
) -> Result<(), RenewError> {
    let mut moved = matcher.restarted(grammar);
    let max_steps = max_steps.filter(|_| !moved.is_apart());
    for (index, step) in matcher.accepted_steps().into_iter().enumerate() {
        if index % TOKENS_PER_LOOK == 0 && cancel.is_cancelled() {
            return Err(CompileError::Cancelled.into());
        }
        if !replay.patiently(&mut moved, max_steps, |moved| moved.accept_step(step))? {
            return Err(match step {
                AcceptedStep::Token(token_id) | AcceptedStep::TextOfStopToken(token_id) => {
                    RenewError::Diverged { token_id, index }
                }
                AcceptedStep::Byte(byte) => RenewError::DivergedByte { byte, index },
            });
        }
    }
    replay.patiently(&mut moved, max_steps, |moved| moved.next_token_mask())?;
    moved.set_allowance_of(matcher);
    *matcher = moved;
    Ok(())
}

impl Replay {
    /// Calls a matcher with so many steps at a time, as long as there are some left.
    fn patiently<T>(
        &mut self,
        matcher: &mut GrammarMatcher,
        max_steps: Option<u64>,
        mut call: impl FnMut(&mut GrammarMatcher) -> Result<T, MatcherError>,
    ) -> Result<T, MatcherError> {
        let mut num_attempts = 0;
        loop {
            let granted = match max_steps {
                Some(max_steps) => {
                    let granted = max_steps.min(self.left);
                    matcher.set_allowance(Some(granted));
                    granted
                }
                None => {
                    matcher.set_patient_allowance(self.left);
                    self.left
                }
            };
            num_attempts += 1;
            let outcome = call(matcher);
            let spent = granted.saturating_sub(matcher.allowance().unwrap_or(0));
            self.left = self.left.saturating_sub(spent);
            match outcome {
                Err(MatcherError::AllowanceSpent) if self.left == 0 => {
                    return Err(MatcherError::StepsExhausted { max: self.max });
                }
                Err(MatcherError::AllowanceSpent) if num_attempts < MAX_ATTEMPTS => {
                    matcher.let_others_pass();
                }
                outcome => return outcome,
            }
        }
    }
}
