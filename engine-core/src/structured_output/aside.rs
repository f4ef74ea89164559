//! What a step can't wait for: a grammar's answer that takes more work than a step may, found aside,
//! and then known.

use structured_output::{CancelFlag, MatcherError, RenewError, RequestMemory};

use super::jump_forward::ForcedTokens;
use super::mask::TokenMask;
use super::request::StructuredOutputRequest;
use super::turn::{Arena, Turn};

/// Times in a row that whether a token is allowed is looked for aside, and forgotten before it is asked
/// again: the memory for answers is far too small then.
const MAX_ATTEMPTS: u32 = 8;

/// So many times in the memory that all share, where others may have it forgotten.
const MAX_SHARED_ATTEMPTS: u32 = 2;

/// Why a request with a grammar waits outside the steps.
#[derive(Debug, Clone)]
pub(crate) enum Aside {
    /// The grammar's memory is full: it has to go on in other memory.
    Exhausted,
    /// Its answer takes more work than a step may.
    Question(Question),
}

/// What a grammar was asked. `tokens_left` may still come.
#[derive(Debug, Clone)]
pub(crate) enum Question {
    /// The mask of the next token.
    Mask { tokens_left: u32 },
    /// Whether the next token may be this one, after which `tokens_left` may come.
    Token { token_id: u32, tokens_left: u32 },
    /// The tokens that come next without being sampled.
    Forced {
        forced_tokens: ForcedTokens,
        /// The last tokens of prompt and output.
        last_token_ids: Vec<u32>,
        tokens_left: u32,
    },
}

/// Where a request stood when an answer was found, all that it depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) num_answer_tokens: usize,
    pub(super) has_overshot: bool,
    pub(super) is_closing_string: bool,
    pub(super) tokens_left: u32,
}

/// An answer that was found aside, until the next one is.
#[derive(Debug, Clone, Default)]
pub(super) struct Found {
    mask: Option<(Standing, TokenMask)>,
    forced: Option<(Standing, Vec<u32>)>,
    /// After so many tokens it was told aside whether the next one is allowed, and what is asked with it as
    /// far as that can be told.
    told_after: Option<usize>,
    /// How often in a row the request waited aside at the same place, after so many tokens.
    num_attempts: u32,
    num_answer_tokens: usize,
}

impl Found {
    /// The mask that was found for a place.
    pub(super) fn mask(&self, standing: Standing) -> Option<&TokenMask> {
        let (found, mask) = self.mask.as_ref()?;
        (*found == standing).then_some(mask)
    }

    /// The forced tokens that were found for a place.
    pub(super) fn forced(&self, standing: Standing) -> Option<&[u32]> {
        let (found, forced) = self.forced.as_ref()?;
        (*found == standing).then_some(forced)
    }
}

impl StructuredOutputRequest {
    /// Lets the grammar spend so much, as [`StructuredOutputGrammar::set_allowance`] does.
    ///
    /// [`StructuredOutputGrammar::set_allowance`]: super::backend::StructuredOutputGrammar::set_allowance
    pub(crate) fn set_allowance(&mut self, steps: Option<u64>) {
        self.grammar.set_allowance(steps);
    }

    /// The same where it waits for others at work in memory apart.
    pub(super) fn set_patient_allowance(&mut self, steps: u64) {
        self.grammar.set_patient_allowance(steps);
    }

    /// Lets the grammar add so many bytes of states, as [`StructuredOutputGrammar::set_max_bytes`] does.
    ///
    /// [`StructuredOutputGrammar::set_max_bytes`]: super::backend::StructuredOutputGrammar::set_max_bytes
    pub(super) fn set_max_bytes(&mut self, max_bytes: Option<usize>) {
        self.grammar.set_max_bytes(max_bytes);
    }

    /// Counts what the grammar adds to memory that all share for a request, as
    /// [`StructuredOutputGrammar::set_request_memory`] does.
    ///
    /// [`StructuredOutputGrammar::set_request_memory`]: super::backend::StructuredOutputGrammar::set_request_memory
    pub(super) fn set_request_memory(&mut self, memory: &RequestMemory, num_added_bytes: usize) {
        self.grammar.set_request_memory(memory, num_added_bytes);
    }

    /// What is left of these; `None` where there is no limit.
    pub(super) fn bytes_left(&self) -> Option<usize> {
        self.grammar.bytes_left()
    }

    /// Lets others go first that wait for the memory it shares with them.
    pub(super) fn let_others_pass(&self) {
        self.grammar.let_others_pass();
    }

    /// What is left of that.
    pub(crate) fn allowance(&self) -> Option<u64> {
        self.grammar.allowance()
    }

    /// Lets the grammar go on in other memory, since its own is full.
    ///
    /// # Errors
    /// There is none, or the grammar is not compiled again: nothing changes.
    pub(super) fn renew(&mut self, cancel: &CancelFlag) -> Result<(), RenewError> {
        self.grammar.renew(cancel)
    }

    /// Lets the grammar go on in memory apart.
    ///
    /// # Errors
    /// As for [`renew`](Self::renew).
    pub(super) fn move_apart(&mut self, cancel: &CancelFlag) -> Result<(), RenewError> {
        self.grammar.move_apart(cancel)
    }

    /// Whether it is there.
    pub(super) fn is_apart(&self) -> bool {
        self.grammar.is_apart()
    }

    /// Notes that the request can't go on within the steps, and why.
    pub(crate) fn set_aside(&mut self, aside: Aside) {
        if self.found.num_answer_tokens != self.num_answer_tokens {
            self.found.num_answer_tokens = self.num_answer_tokens;
            self.found.num_attempts = 0;
        }
        // Where steps are left, others were at work in memory apart, and nothing was forgotten.
        self.found.num_attempts += u32::from(self.grammar.allowance().is_none_or(|left| left == 0));
        self.aside = Some(aside);
    }

    /// The first turn of the job that finds what it waits for.
    pub(super) fn first_turn(&self) -> Turn {
        let is_forgotten = self.found.num_attempts > MAX_SHARED_ATTEMPTS;
        match self.aside {
            _ if self.grammar.is_apart() => Turn::first(Arena::Apart),
            Some(Aside::Question(_)) if is_forgotten => Turn::first(Arena::Apart),
            Some(Aside::Question(_)) | None => Turn::first(Arena::Shared),
            // A compilation takes no short turn.
            Some(Aside::Exhausted) => Turn::first(Arena::Shared).next(),
        }
    }

    /// Whether that was noted.
    pub(crate) fn is_aside(&self) -> bool {
        self.aside.is_some()
    }

    /// Why it can't go on, where that is so.
    pub(crate) fn aside(&self) -> Option<&Aside> {
        self.aside.as_ref()
    }

    /// Notes that it can.
    pub(crate) fn end_aside(&mut self) {
        self.aside = None;
    }

    /// Looks for the answer to a question, as long as it takes, so that it is known when it is asked
    /// again.
    ///
    /// # Errors
    /// A limit of the grammar; or the answers at this place are too large to be kept.
    pub(super) fn answer(&mut self, question: &Question) -> Result<(), MatcherError> {
        match question {
            Question::Mask { tokens_left } => {
                let standing = self.standing(*tokens_left);
                let mask = self.mask(*tokens_left)?;
                self.found.mask = Some((standing, mask));
            }
            Question::Token {
                token_id,
                tokens_left,
            } => {
                if self.found.num_attempts > MAX_ATTEMPTS {
                    // What could follow the last token is asked too, and may be what takes so long.
                    if *tokens_left == 0 && !self.was_told_aside() {
                        self.found.told_after = Some(self.num_answer_tokens);
                        return Ok(());
                    }
                    return Err(MatcherError::AllowanceSpent);
                }
                // As part of a draft, which is taken back.
                self.validate_tokens(&[*token_id], tokens_left.saturating_add(1))?;
                self.found.told_after = Some(self.num_answer_tokens);
            }
            Question::Forced {
                forced_tokens,
                last_token_ids,
                tokens_left,
            } => {
                let standing = self.standing(*tokens_left);
                let forced = forced_tokens.next(self, last_token_ids, *tokens_left)?;
                self.found.forced = Some((standing, forced));
            }
        }
        Ok(())
    }

    /// The forced tokens that were found aside for where it stands.
    pub(super) fn found_forced(&self, tokens_left: u32) -> Option<Vec<u32>> {
        let forced = self.found.forced(self.standing(tokens_left))?;
        Some(forced.to_vec())
    }

    /// Whether it was told aside what the next token does: what is not known then can't be told.
    pub(super) fn was_told_aside(&self) -> bool {
        self.found.told_after == Some(self.num_answer_tokens)
    }

    /// Where it stands.
    pub(super) fn standing(&self, tokens_left: u32) -> Standing {
        Standing {
            num_answer_tokens: self.num_answer_tokens,
            has_overshot: self.has_overshot,
            is_closing_string: self.is_closing_string,
            tokens_left,
        }
    }
}
