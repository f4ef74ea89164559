//! The matcher: one request's place in a grammar.

mod accept_bytes;
mod history;
mod limits;
mod renewals;
mod stop_tokens;

use std::sync::Arc;

use crate::automaton::{GrammarState, MAX_FORCED_BYTES, TextSearch};
use crate::bitmask::bitmask_words;
use crate::engine::Allowance;
use crate::error::MatcherError;
use crate::grammar::CompiledGrammar;
use crate::lexical::Fuel;
use crate::mask::{Mask, MaskRef};
use history::History;
use renewals::Renewals;

/// The longest run of forced tokens that is looked for at once.
const MAX_FORCED_TOKENS: usize = 4096;

/// One request's place in a grammar: which tokens may come next, and what was accepted so far.
///
/// Memory: about 56 bytes per accepted token; the states themselves are shared, up to a bound. A call that
/// fails with [`MatcherError::StatesExhausted`] has met that: give the matcher to
/// [`GrammarCompiler::renew`](crate::GrammarCompiler::renew), and ask again. Forks share their
/// history. A matcher belongs to one thread at a time; what any matcher
/// of its compiler has asked before is looked up without waiting for others; what is new to all of them
/// they compute in turns.
#[derive(Debug, Clone)]
pub struct GrammarMatcher {
    grammar: CompiledGrammar,
    /// Stop tokens beside the vocabulary's, ascending.
    own_stop_tokens: Arc<[u32]>,
    /// Stop tokens of the vocabulary that are never allowed here, ascending.
    unused_stop_tokens: Arc<[u32]>,
    place: Place,
    history: History<Accepted>,
    renewals: Renewals,
    allowance: Allowance,
}

/// What was accepted, and the place before it.
#[derive(Debug, Clone, Copy)]
struct Accepted {
    before: Place,
    step: AcceptedStep,
}

/// One step of a matcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AcceptedStep {
    /// A token of the vocabulary.
    Token(u32),
    /// A stop token of the matcher's own, as text.
    TextOfStopToken(u32),
    /// One byte of text that was accepted without a token.
    Byte(u8),
}

/// Where the matcher stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    state: GrammarState,
    terminated: bool,
}

impl GrammarMatcher {
    /// A matcher at the start of a grammar. The vocabulary's stop tokens end the text.
    pub fn new(grammar: &CompiledGrammar) -> Self {
        Self::with_stop_tokens(grammar, &[])
    }

    /// A matcher with a request's own stop tokens beside the vocabulary's: they too are allowed
    /// where the text may end, and end it. Elsewhere they are not allowed, unless the text can go on with
    /// nothing else: there they are text. (A vocabulary may have a single token for a character: forbidden
    /// there too, the text would be a dead end.) Masks within a number of tokens also have them as text where
    /// nothing else completes it in time; [`GrammarMatcher::accept_stop_token_as_text`] takes these. Ids beyond
    /// the vocabulary are left out.
    pub fn with_stop_tokens(grammar: &CompiledGrammar, stop_token_ids: &[u32]) -> Self {
        let info = grammar.tokenizer_info();
        let mut own: Vec<u32> = stop_token_ids
            .iter()
            .copied()
            .filter(|&id| (id as usize) < info.vocab_size() && !info.is_stop_token(id))
            .collect();
        own.sort_unstable();
        own.dedup();
        Self {
            grammar: grammar.clone(),
            own_stop_tokens: own.into(),
            unused_stop_tokens: Arc::default(),
            place: Place {
                state: grammar.root(),
                terminated: false,
            },
            history: History::default(),
            renewals: Renewals::default(),
            allowance: Allowance::default().with_max_call_steps(grammar.max_call_steps()),
        }
    }

    /// A matcher with a request's own stop tokens in place of the vocabulary's: those of the vocabulary
    /// that are not among them are never allowed. Otherwise as [`GrammarMatcher::with_stop_tokens`].
    /// Without any id of the vocabulary, the vocabulary's own stop tokens hold.
    pub fn with_only_stop_tokens(grammar: &CompiledGrammar, stop_token_ids: &[u32]) -> Self {
        let info = grammar.tokenizer_info();
        let mut matcher = Self::with_stop_tokens(grammar, stop_token_ids);
        let is_named = |id: &u32| stop_token_ids.contains(id);
        let has_any =
            !matcher.own_stop_tokens.is_empty() || info.stop_token_ids().iter().any(is_named);
        if has_any {
            let unused = info.stop_token_ids().iter().copied();
            matcher.unused_stop_tokens = unused.filter(|id| !is_named(id)).collect();
        }
        matcher
    }

    /// Writes the mask of the next token into a row of `ceil(vocab_size / 32)` words (further ones
    /// become 0). False where it allows every token, so that it need not be applied.
    ///
    /// # Errors
    /// [`MatcherError::RowTooShort`], or a limit; the row is then as it was.
    pub fn fill_next_token_bitmask(&self, row: &mut [u32]) -> Result<bool, MatcherError> {
        self.write(row, |matcher| matcher.next_token_mask())
    }

    /// Like [`GrammarMatcher::fill_next_token_bitmask`], with the mask of
    /// [`GrammarMatcher::next_token_mask_within`].
    ///
    /// # Errors
    /// As for both.
    pub fn fill_next_token_bitmask_within(
        &self,
        row: &mut [u32],
        num_tokens: u32,
    ) -> Result<bool, MatcherError> {
        self.write(row, |matcher| matcher.next_token_mask_within(num_tokens))
    }

    fn write(
        &self,
        row: &mut [u32],
        mask: impl FnOnce(&Self) -> Result<MaskRef, MatcherError>,
    ) -> Result<bool, MatcherError> {
        let vocab_size = self.grammar.tokenizer_info().vocab_size();
        let needed = bitmask_words(vocab_size);
        if row.len() < needed {
            return Err(MatcherError::RowTooShort {
                words: row.len(),
                needed,
            });
        }
        let mask = mask(self)?;
        mask.write_to(row);
        Ok(mask.leaves_any_out(vocab_size))
    }

    /// The tokens that may come next, without a copy. Never empty: each is a token after which the
    /// text can be completed, or a stop token where the text may end; after termination all stop
    /// tokens.
    ///
    /// # Errors
    /// A limit.
    pub fn next_token_mask(&self) -> Result<MaskRef, MatcherError> {
        self.mask_of(self.place)
    }

    /// The tokens after which the text can still be completed within `num_tokens - 1` more, stop
    /// token included, by the bound of [`GrammarMatcher::min_tokens_to_complete`]. Never empty.
    ///
    /// Where the limits don't allow to look at what each token leaves to be done, some are left out, but
    /// none of [`GrammarMatcher::next_token_mask_completing`]. With an allowance that has less left than a
    /// call may take, that is an error all the same.
    ///
    /// # Errors
    /// [`MatcherError::CannotCompleteWithin`] where that bound is above `num_tokens`, or a limit.
    pub fn next_token_mask_within(&self, num_tokens: u32) -> Result<MaskRef, MatcherError> {
        if self.place.terminated {
            return Ok(self.stop_mask());
        }
        let state = self.place.state;
        let grants_all = self.grammar.engine().grants_all(&self.allowance);
        let (mask, needed) = self
            .grammar
            .engine()
            .run(&self.allowance, |automaton, fuel| {
                let needed = automaton.tokens_to_end(state, fuel)?;
                let mask = if needed <= num_tokens {
                    Some(automaton.next_tokens_within(state, num_tokens, grants_all, fuel)?)
                } else {
                    None
                };
                Ok((mask, needed))
            })?;
        match mask {
            Some(mask) => {
                let patched = self.with_own_stop_tokens(state, &mask)?;
                Ok(patched.unwrap_or_else(|| MaskRef::new(mask)))
            }
            None => Err(MatcherError::CannotCompleteWithin { num_tokens, needed }),
        }
    }

    /// Some of the tokens of [`GrammarMatcher::next_token_mask_within`], never none: those that write
    /// the shortest completion, and stop tokens where the text may end. Made from that one text,
    /// where the other asks of every token what it leaves to be done: in the midst of a string that
    /// is the whole vocabulary.
    ///
    /// # Errors
    /// As there.
    pub fn next_token_mask_completing(&self, num_tokens: u32) -> Result<MaskRef, MatcherError> {
        if self.place.terminated {
            return Ok(self.stop_mask());
        }
        let state = self.place.state;
        let (needed, tokens, may_end) =
            self.grammar
                .engine()
                .run(&self.allowance, |automaton, fuel| {
                    Ok((
                        automaton.tokens_to_end(state, fuel)?,
                        automaton.tokens_toward_end(state, num_tokens, fuel)?,
                        automaton.may_end(state, fuel)?,
                    ))
                })?;
        let info = self.grammar.tokenizer_info();
        match tokens {
            _ if needed > num_tokens => {
                Err(MatcherError::CannotCompleteWithin { num_tokens, needed })
            }
            None => self.next_token_mask_within(num_tokens),
            Some(_) if may_end => Ok(self.stop_mask()),
            Some(mut tokens) => {
                tokens.retain(|&id| !info.is_stop_token(id));
                let (own, others): (Vec<u32>, Vec<u32>) =
                    tokens.iter().partition(|&&id| self.is_own_stop_token(id));
                match others.is_empty() {
                    true => self.beside_own_stop_tokens(own, num_tokens),
                    false => Ok(self.mask_of_tokens(others)),
                }
            }
        }
    }

    fn mask_of_tokens(&self, token_ids: Vec<u32>) -> MaskRef {
        let vocab_size = self.grammar.tokenizer_info().vocab_size();
        MaskRef::new(Arc::new(mask_of_ids(token_ids, vocab_size)))
    }

    fn mask_of(&self, place: Place) -> Result<MaskRef, MatcherError> {
        if place.terminated {
            return Ok(self.stop_mask());
        }
        let mask = self.grammar.engine().mask(place.state, &self.allowance)?;
        let patched = self.with_own_stop_tokens(place.state, &mask)?;
        Ok(patched.unwrap_or_else(|| MaskRef::new(mask)))
    }

    /// All stop tokens.
    fn stop_mask(&self) -> MaskRef {
        let info = self.grammar.tokenizer_info();
        let mut ids = [info.stop_token_ids(), &self.own_stop_tokens].concat();
        ids.retain(|&id| !self.is_unused_stop_token(id));
        MaskRef::new(Arc::new(mask_of_ids(ids, info.vocab_size())))
    }

    /// Accepts a token: true where [`GrammarMatcher::next_token_mask`] allows it, else nothing changes. A stop
    /// token terminates the text; after that, only stop tokens are accepted.
    ///
    /// # Errors
    /// A limit; nothing changes.
    pub fn accept_token(&mut self, token_id: u32) -> Result<bool, MatcherError> {
        let next = self.after(self.place, token_id)?;
        Ok(self.advance(AcceptedStep::Token(token_id), next))
    }

    /// Goes to the place after a step, if there is one.
    fn advance(&mut self, step: AcceptedStep, next: Option<Place>) -> bool {
        if let Some(place) = next {
            let before = self.place;
            self.history.push(Accepted { before, step });
            self.place = place;
        }
        next.is_some()
    }

    /// Accepts all of some tokens: true where each was allowed after those before it, else nothing
    /// changes.
    ///
    /// # Errors
    /// A limit; nothing changes.
    pub fn accept_tokens(&mut self, token_ids: &[u32]) -> Result<bool, MatcherError> {
        let mut ahead = self.clone();
        for &token_id in token_ids {
            if !ahead.accept_token(token_id)? {
                return Ok(false);
            }
        }
        *self = ahead;
        Ok(true)
    }

    /// How many of the tokens could be accepted one after the other. Nothing changes.
    ///
    /// # Errors
    /// A limit.
    pub fn validate_tokens(&self, token_ids: &[u32]) -> Result<usize, MatcherError> {
        let mut place = self.place;
        for (accepted, &token_id) in token_ids.iter().enumerate() {
            match self.after(place, token_id)? {
                Some(next) => place = next,
                None => return Ok(accepted),
            }
        }
        Ok(token_ids.len())
    }

    /// The place after a token, `None` where it isn't allowed.
    fn after(&self, place: Place, token_id: u32) -> Result<Option<Place>, MatcherError> {
        // Where a grammar names nothing else, the mask has it.
        if self.is_unused_stop_token(token_id)
            && (place.terminated || !self.only_own_stop_tokens_go_on(place.state)?)
        {
            return Ok(None);
        }
        let is_own = self.is_own_stop_token(token_id);
        let is_stop = is_own || self.grammar.tokenizer_info().is_stop_token(token_id);
        // Whether the text may end is asked first: that takes no mask.
        let is_text = is_own
            && !place.terminated
            && !self.may_end(place.state)?
            && self.only_own_stop_tokens_go_on(place.state)?;
        if is_stop && !is_text {
            let ends = place.terminated
                || self.may_end(place.state)?
                || self.grammar.engine().names_stop_token(
                    place.state,
                    token_id,
                    &self.allowance,
                )?;
            return Ok(ends.then_some(Place {
                terminated: true,
                ..place
            }));
        }
        match place.terminated {
            true => Ok(None),
            false => self.after_text(place, token_id),
        }
    }

    /// The place after a token that is text, `None` where it isn't allowed.
    fn after_text(&self, place: Place, token_id: u32) -> Result<Option<Place>, MatcherError> {
        let engine = self.grammar.engine();
        let next = engine.after_token(place.state, token_id, &self.allowance)?;
        Ok(next.map(|state| Place { state, ..place }))
    }

    fn may_end(&self, state: GrammarState) -> Result<bool, MatcherError> {
        self.grammar.engine().may_end(state, &self.allowance)
    }

    /// Takes back the last `num_tokens` accepted tokens, without limit. Each byte of
    /// [`GrammarMatcher::accept_bytes`] counts as one.
    ///
    /// # Errors
    /// [`MatcherError::RollbackTooFar`]; nothing changes.
    pub fn rollback(&mut self, num_tokens: usize) -> Result<(), MatcherError> {
        let accepted = self.history.len();
        if num_tokens > accepted {
            return Err(MatcherError::RollbackTooFar {
                asked: num_tokens,
                accepted,
            });
        }
        for _ in 0..num_tokens {
            if let Some(accepted) = self.history.pop() {
                self.place = accepted.before;
            }
        }
        Ok(())
    }

    /// Back to the start.
    pub fn reset(&mut self) {
        self.place = Place {
            state: self.grammar.root(),
            terminated: false,
        };
        self.history = History::default();
    }

    /// A matcher that goes its own way from here. Costs no more than a clone of a few `Arc`s,
    /// however much has been accepted; both can roll back through the common past.
    pub fn fork(&self) -> Self {
        self.clone()
    }

    /// How many tokens have been accepted and not been taken back, bytes of
    /// [`GrammarMatcher::accept_bytes`] counted one by one.
    pub fn num_accepted_tokens(&self) -> usize {
        self.history.len()
    }

    /// Whether a stop token has been accepted.
    pub fn is_terminated(&self) -> bool {
        self.place.terminated
    }

    /// Whether the text could stop here: it matches the grammar as it is.
    pub fn is_completed(&self) -> bool {
        // Known since the last token was accepted; else a few frames are looked at, for which there are
        // steps, whatever is allowed.
        let always = Allowance::default();
        let may_end = |state| self.grammar.engine().may_end(state, &always);
        self.place.terminated || may_end(self.place.state).unwrap_or(false)
    }

    /// How many tokens complete the text, the stop token included; 0 after termination.
    ///
    /// A bound that some continuation achieves: the [`GrammarMatcher::next_token_mask_within`] of
    /// this number is never empty, and following such masks with one less each time ends in time.
    /// It is the length of the shortest text in as few tokens as write it; a longer text might take
    /// fewer tokens.
    ///
    /// # Errors
    /// A limit.
    pub fn min_tokens_to_complete(&self) -> Result<u32, MatcherError> {
        if self.place.terminated {
            return Ok(0);
        }
        self.grammar
            .engine()
            .tokens_to_end(self.place.state, &self.allowance)
    }

    /// The tokens of a text of few tokens that completes this one, the stop token included, where these are at most
    /// `limit` and a search of `max_steps` finds them.
    ///
    /// With [`GrammarMatcher::min_tokens_to_complete`] for the limit the number is at most that one, which masks go by.
    /// `None` where nothing is found, as by [`TextSearch::All`] under grammars with rules, and for a matcher with own
    /// stop tokens, which such a text may need and a mask may not have.
    ///
    /// # Errors
    /// A limit.
    pub fn fewest_tokens_to_complete(
        &self,
        search: TextSearch,
        limit: u32,
        max_steps: u64,
    ) -> Result<Option<u32>, MatcherError> {
        if self.place.terminated {
            return Ok(Some(0));
        }
        if !self.own_stop_tokens.is_empty() {
            return Ok(None);
        }
        let state = self.place.state;
        self.grammar
            .engine()
            .run(&self.allowance, |automaton, fuel| {
                let search =
                    |part: &mut Fuel| automaton.fewest_tokens_by(state, search, limit, part);
                Ok(fuel.all_within(max_steps, search)?.flatten())
            })
    }

    /// The tokens that begin the texts of [`GrammarMatcher::fewest_tokens_to_complete`], where `num_tokens` are
    /// enough for these, stop token included; a stop token where the text may end. `None` where they are not, or
    /// `max_steps` are not enough to find out.
    ///
    /// # Errors
    /// A limit.
    pub fn next_token_mask_of_fewest(
        &self,
        search: TextSearch,
        num_tokens: u32,
        max_steps: u64,
    ) -> Result<Option<MaskRef>, MatcherError> {
        if self.place.terminated {
            return Ok(Some(self.stop_mask()));
        }
        let state = self.place.state;
        let found = self
            .grammar
            .engine()
            .run(&self.allowance, |automaton, fuel| {
                let search = |part: &mut Fuel| {
                    automaton.tokens_toward_fewest(state, search, num_tokens, part)
                };
                Ok(fuel.all_within(max_steps, search)?.flatten())
            })?;
        let Some((_, mut tokens)) = found.filter(|(fewest, _)| *fewest <= num_tokens) else {
            return Ok(None);
        };
        if tokens.is_empty() {
            return Ok(Some(self.stop_mask()));
        }
        let info = self.grammar.tokenizer_info();
        tokens.retain(|&id| !info.is_stop_token(id) && !self.is_own_stop_token(id));
        Ok((!tokens.is_empty()).then(|| self.mask_of_tokens(tokens)))
    }

    /// How many bytes a short completion has; 0 after termination. Costs less than
    /// [`GrammarMatcher::min_tokens_to_complete`], which walks all of that completion: a first look
    /// where many tokens are left.
    ///
    /// # Errors
    /// A limit.
    pub fn min_bytes_to_complete(&self) -> Result<u32, MatcherError> {
        if self.place.terminated {
            return Ok(0);
        }
        self.grammar
            .engine()
            .bytes_to_end(self.place.state, &self.allowance)
    }

    /// Fewer tokens than these, the stop token included, don't hold a short completion: its bytes,
    /// in tokens as long as the vocabulary's longest. 0 after termination. Looks at no text, where
    /// [`GrammarMatcher::min_tokens_to_complete`] walks all of it.
    ///
    /// # Errors
    /// A limit.
    pub fn min_tokens_bound(&self) -> Result<u32, MatcherError> {
        if self.place.terminated {
            return Ok(0);
        }
        let state = self.place.state;
        self.grammar
            .engine()
            .run(&self.allowance, |automaton, fuel| {
                automaton.min_tokens_bound(state, fuel)
            })
    }

    /// The text that must come next, whatever tokens write it: whole characters only, at most 16 KiB,
    /// empty where there is a choice or the text may end.
    ///
    /// # Errors
    /// A limit.
    pub fn find_jump_forward_string(&self) -> Result<String, MatcherError> {
        if self.place.terminated {
            return Ok(String::new());
        }
        let state = self.place.state;
        let mut bytes = self
            .grammar
            .engine()
            .run(&self.allowance, |automaton, fuel| {
                automaton.next_forced_bytes(state, MAX_FORCED_BYTES, fuel)
            })?;
        if let Err(error) = std::str::from_utf8(&bytes) {
            bytes.truncate(error.valid_up_to());
        }
        Ok(String::from_utf8(bytes).unwrap_or_default())
    }

    /// Whether the next byte of the text is given, whatever token writes it: only then can
    /// [`GrammarMatcher::find_jump_forward_string`] have anything to say. Looks at one state, not
    /// at the vocabulary.
    ///
    /// # Errors
    /// A limit.
    pub fn has_forced_byte(&self) -> Result<bool, MatcherError> {
        if self.place.terminated {
            return Ok(false);
        }
        self.grammar
            .engine()
            .has_forced_byte(self.place.state, &self.allowance)
    }

    /// The tokens that must come next: as long as each is the only one allowed, at most 4,096. Ends
    /// with a stop token at the latest. Nothing changes.
    ///
    /// # Errors
    /// A limit.
    pub fn forced_tokens(&self) -> Result<Vec<u32>, MatcherError> {
        let mut place = self.place;
        let mut forced = Vec::new();
        while !place.terminated && forced.len() < MAX_FORCED_TOKENS {
            let Some(token_id) = self.mask_of(place)?.forced_token() else {
                break;
            };
            let Some(next) = self.after(place, token_id)? else {
                break;
            };
            forced.push(token_id);
            place = next;
        }
        Ok(forced)
    }
}

/// A mask of ids below `vocab_size`.
fn mask_of_ids(ids: Vec<u32>, vocab_size: usize) -> Mask {
    if ids.len() <= crate::mask::MAX_SPARSE {
        return Mask::from_ids(ids);
    }
    let mut words = vec![0; bitmask_words(vocab_size)];
    for &id in &ids {
        words[id as usize / 32] |= 1 << (id % 32);
    }
    Mask::from_words(words, ids.len())
}
