//! One request's structured output: its grammar, its thinking, and what is left of its tokens.

use std::sync::Arc;

use protocol::SamplingParams;
use structured_output::{MaskRef, MatcherError, TextSearch};

use super::aside::{Aside, Found};
use super::backend::StructuredOutputGrammar;
use super::grammar_end::{GrammarBin, TellWhenGone};
use super::mask::TokenMask;
use super::min_tokens::MinTokens;
use super::reasoning::{Phase, Reasoning};

/// Where no more tokens than this are left beyond what the shortest completion needs, only tokens
/// are allowed that keep it in reach. Far from the end any token is, and one that is not after all
/// (it opened a large part of the grammar) is taken back: see [`Accepted::Overshoots`].
const CLOSING_TOKENS: u32 = 16;

/// Masks with more tokens than this, such as those within a string, are not asked which of their
/// tokens can still finish in time: each has a state of its own after it. There the end is left to
/// the taking back, and to the shortest completion.
const MAX_WEIGHED_TOKENS: usize = 64;

/// Where the shortest text has more bytes than this, and can't fit by far, its tokens are not counted.
const MAX_WALKED_BYTES: u32 = 32 * 1024;

/// What constrains a request in flight.
pub struct StructuredOutputRequest {
    pub(super) grammar: Box<dyn StructuredOutputGrammar>,
    /// Tokens that the grammar has accepted.
    pub(super) num_answer_tokens: usize,
    /// After the grammar, since fields are dropped in their order.
    _tell_when_gone: Option<TellWhenGone>,
    /// Where it ends, if not where its request does.
    bin: Option<GrammarBin>,
    /// Why it waits outside the steps, where it does.
    pub(super) aside: Option<Aside>,
    /// What was found meanwhile.
    pub(super) found: Found,
    pub(super) reasoning: Reasoning,
    complete_within_max_tokens: bool,
    /// What a whole text of the grammar takes; 0 where it need not fit. A text that is whole when the last
    /// token is taken needs no stop token after it.
    min_tokens: MinTokens,
    /// What ends a text.
    pub(super) stop_token_ids: Arc<[u32]>,
    /// Those of them that never come in thinking: all but what closes it.
    not_in_thinking: Arc<[u32]>,
    /// Whether the last token was taken back since too few were left to complete the text.
    pub(super) has_overshot: bool,
    pub(super) was_led_to_end: bool,
    /// Whether the text was ended where it was free to go on, since what came next had no room.
    pub(super) is_cut_short: bool,
    /// Whether the last token that there was room for came to the end of the text.
    pub(super) is_whole_at_limit: bool,
    /// True if loops within strings are looked for: the request says nothing of repetition itself.
    pub(super) is_repetition_watched: bool,
    /// True while a string that repeats itself is led to its end.
    pub(super) is_closing_string: bool,
    pub(super) has_closed_repetition: bool,
}

/// What became of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// It is part of the output.
    Yes,
    /// It is not allowed here; nothing changed.
    Refused,
    /// It is allowed, but after it the output could no longer be completed in time; nothing changed,
    /// but that the next mask allows only tokens after which it can.
    Overshoots,
}

impl StructuredOutputRequest {
    /// A request at the start of its output. `reasoning_ended` is the message's; `stop_token_ids`
    /// those of the model.
    ///
    /// # Errors
    /// A limit of the grammar.
    pub fn new(
        grammar: Box<dyn StructuredOutputGrammar>,
        params: &Arc<SamplingParams>,
        reasoning_ended: Option<bool>,
        stop_token_ids: &[u32],
    ) -> Result<Self, MatcherError> {
        let mut request = Self::unmeasured(grammar, params, reasoning_ended, stop_token_ids);
        request.measure(params.max_tokens)?;
        Ok(request)
    }

    /// The same, yet to be [measured](Self::measure).
    pub(super) fn unmeasured(
        grammar: Box<dyn StructuredOutputGrammar>,
        params: &Arc<SamplingParams>,
        reasoning_ended: Option<bool>,
        stop_token_ids: &[u32],
    ) -> Self {
        let own = params.stop_token_ids.iter().chain(&params.eos_token_id);
        let reasoning = Reasoning::new(Arc::clone(params), reasoning_ended);
        let stop_token_ids: Arc<[u32]> = stop_token_ids.iter().chain(own).copied().collect();
        let closes_thinking = |token_id| reasoning.end_token_ids().contains(token_id);
        let not_in_thinking = match stop_token_ids.iter().any(closes_thinking) {
            true => stop_token_ids
                .iter()
                .filter(|token_id| !closes_thinking(token_id))
                .copied()
                .collect(),
            false => Arc::clone(&stop_token_ids),
        };
        let complete_within_max_tokens = params
            .structured_outputs
            .as_ref()
            .is_some_and(|structured_outputs| structured_outputs.complete_within_max_tokens);
        Self {
            min_tokens: MinTokens::Counted(0),
            grammar,
            num_answer_tokens: 0,
            _tell_when_gone: None,
            bin: None,
            aside: None,
            found: Found::default(),
            reasoning,
            complete_within_max_tokens,
            stop_token_ids,
            not_in_thinking,
            has_overshot: false,
            was_led_to_end: false,
            is_cut_short: false,
            is_whole_at_limit: false,
            is_repetition_watched: params.repetition_detection.is_none(),
            is_closing_string: false,
            has_closed_repetition: false,
        }
    }

    /// Finds out how many tokens the shortest text takes, where it has to fit in `max_tokens`.
    ///
    /// # Errors
    /// A limit of the grammar; nothing changes.
    pub(super) fn measure(&mut self, max_tokens: Option<u32>) -> Result<(), MatcherError> {
        if self.complete_within_max_tokens {
            // A long text that can't fit by far is not walked: that takes its whole length. Of
            // others the number that whoever is refused would have to allow is said.
            let at_least = self.grammar.min_tokens_bound()?.saturating_sub(1);
            let is_long = self.grammar.min_bytes_to_complete()? > MAX_WALKED_BYTES;
            self.min_tokens = match max_tokens {
                Some(max_tokens) if is_long && at_least > max_tokens => {
                    MinTokens::AtLeast(at_least)
                }
                _ => {
                    let shortest = self.grammar.min_tokens_to_complete()?.saturating_sub(1);
                    match max_tokens.is_some_and(|max_tokens| shortest > max_tokens) {
                        true => self.text_of_few_tokens(shortest)?,
                        false => MinTokens::Counted(shortest),
                    }
                }
            };
        }
        Ok(())
    }

    /// Looks for a text of fewer tokens than the one of the fewest bytes: a longer one may take fewer.
    fn text_of_few_tokens(&self, shortest: u32) -> Result<MinTokens, MatcherError> {
        for search in [TextSearch::All, TextSearch::Greedy] {
            let limit = with_stop_token(shortest);
            match self.grammar.fewest_tokens_to_complete(search, limit) {
                Err(MatcherError::AllowanceSpent) => return Err(MatcherError::AllowanceSpent),
                Ok(Some(fewest)) => return Ok(MinTokens::Fewest(search, fewest.saturating_sub(1))),
                Ok(None) | Err(_) => {}
            }
        }
        Ok(MinTokens::Counted(shortest))
    }

    /// Looks whether the grammar can go on where its texts open, be that after thinking.
    ///
    /// # Errors
    /// A limit of the grammar; nothing changes.
    pub(super) fn check_opening(&self) -> Result<(), MatcherError> {
        self.grammar.check_opening()?;
        self.grammar.next_token_mask().map(|_| ())
    }

    /// Tokens that the output takes from the start, where it has to fit: those that close thinking and
    /// those of the shortest text.
    pub(crate) fn min_tokens_if_required(&self) -> Option<MinTokens> {
        self.complete_within_max_tokens.then(|| {
            let thinking = self.reasoning.num_tokens_to_answer();
            self.min_tokens.after(thinking)
        })
    }

    /// The mask of the next token, where `tokens_left` may still come. Costs a look-up where the
    /// grammar's state was met before.
    ///
    /// # Errors
    /// A limit of the grammar.
    pub fn mask(&mut self, tokens_left: u32) -> Result<TokenMask, MatcherError> {
        if let Some(mask) = self.found.mask(self.standing(tokens_left)) {
            return Ok(mask.clone());
        }
        match &self.reasoning.phase {
            Phase::Answer => self.answer_mask(tokens_left).map(TokenMask::of),
            Phase::Undecided(taken) => {
                let taken = *taken;
                let mask = self.answer_mask(tokens_left)?;
                Ok(match self.reasoning.start_token_ids().get(taken) {
                    Some(&start) if self.has_time_to_think(tokens_left) => {
                        TokenMask::and_also(&mask, start)
                    }
                    _ => TokenMask::of(mask),
                })
            }
            Phase::Opening(taken) => {
                let start = self.reasoning.start_token_ids();
                Ok(start.get(*taken).map_or_else(
                    || TokenMask::Without(Arc::clone(&self.not_in_thinking)),
                    |&token_id| TokenMask::Only(token_id),
                ))
            }
            Phase::Separating(taken) => {
                let separator = self.reasoning.separator_token_ids();
                match separator.get(*taken) {
                    Some(&token_id) => Ok(TokenMask::Only(token_id)),
                    None => self.answer_mask(tokens_left).map(TokenMask::of),
                }
            }
            Phase::Thinking(end) => {
                let closing = self.reasoning.num_end_tokens();
                let needed = self.min_tokens.after(closing).number();
                let must_close = self.complete_within_max_tokens && tokens_left <= needed;
                Ok(match end.next() {
                    Some(token_id) if must_close => TokenMask::Only(token_id),
                    _ => TokenMask::Without(Arc::clone(&self.not_in_thinking)),
                })
            }
        }
    }

    fn answer_mask(&mut self, tokens_left: u32) -> Result<MaskRef, MatcherError> {
        if let Some(closing) = self.closing_mask()? {
            return Ok(closing);
        }
        let mask = self.grammar.next_token_mask()?;
        if !self.complete_within_max_tokens || self.grammar.is_terminated() {
            return Ok(mask);
        }
        if !self.has_overshot && self.is_far_from_end(tokens_left)? {
            return Ok(mask);
        }
        let needed = self.grammar.min_tokens_to_complete()?;
        let tokens_left = with_stop_token(tokens_left);
        let Some(spare) = tokens_left.checked_sub(needed) else {
            if let Some(search) = self.min_tokens.search()
                && let Some(toward) = self
                    .grammar
                    .next_token_mask_of_fewest(search, tokens_left)?
            {
                self.was_led_to_end |= toward.num_allowed() < mask.num_allowed();
                return Ok(toward);
            }
            // A replay that was let in without this promise: it ends at its limit.
            self.complete_within_max_tokens = false;
            return Ok(mask);
        };
        let closing = if mask.num_allowed() > MAX_WEIGHED_TOKENS {
            if !self.has_overshot && spare > 0 {
                return Ok(mask);
            }
            self.grammar.next_token_mask_completing(tokens_left)?
        } else {
            if !self.has_overshot && spare > CLOSING_TOKENS {
                return Ok(mask);
            }
            match self.grammar.next_token_mask_within(tokens_left) {
                // One text costs less than what each of the tokens leads to.
                Err(MatcherError::StepsExhausted { .. }) => {
                    self.grammar.next_token_mask_completing(tokens_left)?
                }
                weighed => weighed?,
            }
        };
        self.was_led_to_end |= closing.num_allowed() < mask.num_allowed();
        Ok(closing)
    }

    /// Whether so many tokens are left that no count of what is needed is.
    fn is_far_from_end(&self, tokens_left: u32) -> Result<bool, MatcherError> {
        let bytes = self.grammar.min_bytes_to_complete()?;
        // Twice, since that is an estimate.
        Ok(bytes.saturating_mul(2).saturating_add(2 * CLOSING_TOKENS) < tokens_left)
    }

    /// Whether the next token is the answer's first, be it one that would open thinking: the prompt left
    /// that open, and there is no time for it.
    pub(crate) fn answers_for_want_of_time(&self, tokens_left: u32) -> bool {
        matches!(self.reasoning.phase, Phase::Undecided(_)) && !self.has_time_to_think(tokens_left)
    }

    /// Whether thinking that is opened now could be closed in time.
    fn has_time_to_think(&self, tokens_left: u32) -> bool {
        let taken = match self.reasoning.phase {
            Phase::Undecided(taken) => taken as u32,
            _ => 0,
        };
        let thinking = self.reasoning.num_start_and_end_tokens() - taken;
        let needed = self.min_tokens.after(thinking).number();
        !self.complete_within_max_tokens || needed <= tokens_left
    }

    /// Takes the next token, after which `tokens_left` more may come.
    ///
    /// # Errors
    /// A limit of the grammar; nothing changed.
    pub fn accept_token(
        &mut self,
        token_id: u32,
        tokens_left: u32,
    ) -> Result<Accepted, MatcherError> {
        match &mut self.reasoning.phase {
            Phase::Answer => self.accept_answer_token(token_id, tokens_left),
            Phase::Undecided(taken) => {
                let taken = *taken;
                if self.opens_thinking(taken, token_id, tokens_left)? {
                    self.set_num_answer_tokens(0)?;
                    self.reasoning.open(taken + 1);
                    return Ok(Accepted::Yes);
                }
                let may_open = self.may_open_thinking(taken, token_id, tokens_left);
                let accepted = self.accept_answer_token(token_id, tokens_left)?;
                if accepted == Accepted::Yes {
                    self.reasoning.phase = match may_open {
                        true => Phase::Undecided(taken + 1),
                        false => Phase::Answer,
                    };
                }
                Ok(accepted)
            }
            Phase::Opening(taken) => {
                let taken = *taken;
                if self.reasoning.start_token_ids().get(taken) != Some(&token_id) {
                    return Ok(Accepted::Refused);
                }
                self.reasoning.open(taken + 1);
                Ok(Accepted::Yes)
            }
            Phase::Thinking(end) => {
                if self.not_in_thinking.contains(&token_id) {
                    return Ok(Accepted::Refused);
                }
                if end.advance(token_id) {
                    self.reasoning.separate(0);
                }
                Ok(Accepted::Yes)
            }
            Phase::Separating(taken) => {
                let taken = *taken;
                if self.reasoning.separator_token_ids().get(taken) != Some(&token_id) {
                    return Ok(Accepted::Refused);
                }
                self.reasoning.separate(taken + 1);
                Ok(Accepted::Yes)
            }
        }
    }

    /// Whether `token_id` is the next token of the marker that opens thinking, of which the output has `taken` tokens, and
    /// enough tokens are left to think.
    fn may_open_thinking(&self, taken: usize, token_id: u32, tokens_left: u32) -> bool {
        self.reasoning.start_token_ids().get(taken) == Some(&token_id)
            && self.has_time_to_think(tokens_left.saturating_add(1))
    }

    /// Whether `token_id` decides that the output is thinking: it completes the marker that opens thinking, or the answer
    /// can't go on with it. Before that the output may be either.
    fn opens_thinking(
        &self,
        taken: usize,
        token_id: u32,
        tokens_left: u32,
    ) -> Result<bool, MatcherError> {
        Ok(self.may_open_thinking(taken, token_id, tokens_left)
            && (taken + 1 == self.reasoning.start_token_ids().len()
                || self.grammar.validate_tokens(&[token_id])? == 0))
    }

    /// Brings the grammar back, or forth by tokens that may open thinking, to where it has so many tokens.
    ///
    /// # Errors
    /// A limit of the grammar.
    pub(super) fn set_num_answer_tokens(&mut self, number: usize) -> Result<(), MatcherError> {
        match self.num_answer_tokens.checked_sub(number) {
            Some(more) => self.grammar.rollback(more)?,
            None => {
                let start = self.reasoning.start_token_ids();
                for &token_id in start
                    .get(self.num_answer_tokens..number)
                    .unwrap_or_default()
                {
                    self.grammar.accept_token(token_id)?;
                }
            }
        }
        self.num_answer_tokens = number;
        Ok(())
    }

    fn accept_answer_token(
        &mut self,
        token_id: u32,
        tokens_left: u32,
    ) -> Result<Accepted, MatcherError> {
        // Here nothing had room but a stop token or what leads to the end.
        let could_go_on = self.has_overshot && self.may_go_on()?;
        if !self.grammar.accept_token(token_id)? {
            return Ok(Accepted::Refused);
        }
        let overshoots = self.overshoots(tokens_left);
        match overshoots.and_then(|overshoots| Ok((overshoots, self.is_whole(tokens_left)?))) {
            Ok((false, is_whole)) => {
                self.has_overshot = false;
                // A stop token of the request may be text as well.
                self.is_cut_short = could_go_on && self.grammar.is_terminated();
                self.is_whole_at_limit = is_whole;
                self.num_answer_tokens += 1;
                Ok(Accepted::Yes)
            }
            Ok((true, _)) => {
                self.grammar.rollback(1)?;
                // Twice at one place its mask was wrong: an error rather than a step without end.
                let accepted = match self.has_overshot {
                    true => Accepted::Refused,
                    false => Accepted::Overshoots,
                };
                self.has_overshot = true;
                Ok(accepted)
            }
            Err(error) => {
                self.grammar.rollback(1)?;
                Err(error)
            }
        }
    }

    fn overshoots(&self, tokens_left: u32) -> Result<bool, MatcherError> {
        Ok(self.complete_within_max_tokens
            && !self.grammar.is_terminated()
            && !self.is_far_from_end(tokens_left)?
            && self.grammar.min_tokens_to_complete()? > with_stop_token(tokens_left)
            && !self.fits_by_fewest(with_stop_token(tokens_left))?)
    }

    /// True if a text of few tokens fits where the shortest doesn't. Only asked where the request was let in
    /// for the sake of one.
    fn fits_by_fewest(&self, tokens_left: u32) -> Result<bool, MatcherError> {
        let fewest = match self.min_tokens.search() {
            Some(search) => self
                .grammar
                .fewest_tokens_to_complete(search, tokens_left)?,
            None => None,
        };
        Ok(fewest.is_some_and(|fewest| fewest <= tokens_left))
    }

    /// Whether the text has come to an end of its own with the last token that there is room for.
    fn is_whole(&self, tokens_left: u32) -> Result<bool, MatcherError> {
        if tokens_left > 0 || !self.grammar.is_completed() {
            return Ok(false);
        }
        match self.may_go_on() {
            Ok(may_go_on) => Ok(!may_go_on),
            Err(MatcherError::AllowanceSpent) if !self.was_told_aside() => {
                Err(MatcherError::AllowanceSpent)
            }
            // Where that can't be told, aside neither, the limit is what ended it.
            Err(_) => Ok(false),
        }
    }

    /// Whether more may come than the white space behind a JSON text. Stop tokens are no text, however many the
    /// request has.
    fn may_go_on(&self) -> Result<bool, MatcherError> {
        let mask = self.grammar.next_token_mask()?;
        let info = self.grammar.tokenizer_info();
        let is_text = |token_id: &u32| {
            let is_space = info.token_bytes(*token_id).trim_ascii().is_empty();
            !is_space && !self.stop_token_ids.contains(token_id)
        };
        Ok(mask.token_ids().iter().any(is_text))
    }

    /// The next token where there is only one, as far as that can be told without a walk of the
    /// vocabulary.
    ///
    /// # Errors
    /// A limit of the grammar.
    pub fn forced_token(&mut self, tokens_left: u32) -> Result<Option<u32>, MatcherError> {
        let may_be_forced = match self.reasoning.phase {
            Phase::Answer => {
                !self.is_terminated()
                    && (self.grammar.is_completed() || self.grammar.has_forced_byte()?)
            }
            Phase::Undecided(_) => false,
            Phase::Opening(_) | Phase::Thinking(_) | Phase::Separating(_) => true,
        };
        if !may_be_forced {
            return Ok(None);
        }
        Ok(self.mask(tokens_left)?.forced_token())
    }

    /// The text that must come next; empty outside the answer.
    ///
    /// # Errors
    /// A limit of the grammar.
    pub(super) fn forced_text(&self) -> Result<String, MatcherError> {
        match self.reasoning.phase {
            Phase::Answer if self.grammar.has_forced_byte()? => {
                self.grammar.find_jump_forward_string()
            }
            _ => Ok(String::new()),
        }
    }

    /// Whether the output so far is a complete text of the grammar.
    pub fn is_completed(&self) -> bool {
        matches!(self.reasoning.phase, Phase::Answer) && self.grammar.is_completed()
    }

    /// Whether a stop token ended the text: nothing may follow.
    pub fn is_terminated(&self) -> bool {
        self.grammar.is_terminated()
    }

    /// From here on, `tell` is told when the grammar is gone.
    pub(super) fn tell_when_gone(&mut self, tell: TellWhenGone) {
        self._tell_when_gone = Some(tell);
    }

    /// From here on, it ends in `bin` when it is [discarded](Self::discard).
    pub(super) fn end_in(&mut self, bin: GrammarBin) {
        self.bin = Some(bin);
    }

    /// Drops it where that holds up nobody: with the last grammar of some memory all that goes.
    pub(crate) fn discard(self: Box<Self>) {
        if let Some(bin) = self.bin.clone() {
            bin.discard(self);
        }
    }

    /// Whether a stop token ended the text only since what came next had no room: where it was free,
    /// so that it could have gone on. What has an end of its own, such as JSON, never is.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.is_cut_short
    }

    /// Whether the text has come to an end of its own with the last token that there was room for: a
    /// stop token would have come next, or a few others at most.
    pub(crate) fn is_whole_at_limit(&self) -> bool {
        self.is_whole_at_limit
    }

    /// Whether tokens were masked since too few were left for them.
    pub(crate) fn was_led_to_end(&self) -> bool {
        self.was_led_to_end
    }
}

/// The tokens that a text may still take, counted as the grammar does, with its stop token: that one
/// needs no room, since a text that is whole at the limit is over without it.
fn with_stop_token(tokens_left: u32) -> u32 {
    tokens_left.saturating_add(1)
}
