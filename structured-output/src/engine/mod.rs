//! One generation of the engine: a tokenizer's index and the automaton that all grammars compiled
//! in this generation share.
//!
//! States never move and are never freed within a generation, so ids stay valid without counting
//! references. Their memory is bounded by generations: once the states exceed their share, the
//! compiler starts a new one, and the old one goes with its last grammar. Of old ones only a few are
//! kept open: the matchers of one that is closed fail, and their grammars have to be compiled anew.
//!
//! What a matcher asks is looked up first among the answers that are known ([`ready`]), which no
//! computing holds up. Only a new answer takes the automaton's lock, for as long as it is made.

mod allowance;
mod opening;
mod own_memory;
mod ready;
mod request_memory;
mod run;
mod shares;
#[cfg(test)]
mod tests;
mod waiting;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use crate::automaton::{Base, GrammarState, TokenAutomaton, TokenStep};
use crate::error::MatcherError;
use crate::index::TokenizerIndex;
use crate::lexical::{Fuel, Stop};
use crate::mask::{Forgotten, Mask};
use crate::options::{CompilerOptions, Limits, Pause};
pub(crate) use allowance::Allowance;
pub(crate) use own_memory::OwnMemory;
use ready::{Answers, ReadyAnswers};
pub use request_memory::RequestMemory;
pub(crate) use shares::Shares;
use waiting::Waiting;

/// A generation. `Send + Sync`; grammars and matchers hold it by `Arc`.
pub(crate) struct Engine {
    index: Arc<TokenizerIndex>,
    limits: Limits,
    /// Bytes of its states before anything was compiled.
    fresh_bytes: usize,
    /// Bytes that one call of a matcher may take.
    max_call_bytes: usize,
    shares: Shares,
    pause: Pause,
    automaton: Mutex<TokenAutomaton>,
    /// Bytes of its states after the last work that added any: to be read without its lock.
    state_bytes: AtomicUsize,
    /// The same of what can be computed again.
    cache_bytes: AtomicUsize,
    ready: ReadyAnswers,
    waiting: Waiting,
    is_closed: AtomicBool,
    /// What the generations before the current one hold, all together.
    past_bytes: Arc<AtomicUsize>,
    /// Whether it is one of them.
    is_past: AtomicBool,
    /// Where it is apart from the memory that all share.
    apart: Option<Apart>,
}

/// A generation beside the one that all grammars share: only who works there waits there.
enum Apart {
    /// For some grammars that take long.
    Lane,
    /// For one grammar, which may fill it.
    Own { _leave: OwnMemory },
}

/// One of the answers.
struct Field<T> {
    of: fn(&Answers) -> &Option<T>,
    of_mut: fn(&mut Answers) -> &mut Option<T>,
}

/// The field of [`Answers`] with a name.
macro_rules! field {
    ($name:ident) => {
        Field {
            of: |known| &known.$name,
            of_mut: |known| &mut known.$name,
        }
    };
}

impl Engine {
    /// A generation; it begins with a base of the vocabulary, if there is one.
    pub(crate) fn new(
        index: Arc<TokenizerIndex>,
        base: Option<Arc<Base>>,
        options: &CompilerOptions,
        shares: Shares,
    ) -> Self {
        let mut automaton = TokenAutomaton::new(Arc::clone(&index), base, options.limits.max_items);
        automaton
            .machine()
            .lexicon
            .set_any_escapes(options.any_escapes);
        automaton.expect_state_bytes(shares.states);
        Self {
            fresh_bytes: automaton.state_bytes(),
            state_bytes: AtomicUsize::new(automaton.state_bytes()),
            cache_bytes: AtomicUsize::new(automaton.cache_bytes()),
            automaton: Mutex::new(automaton),
            ready: ReadyAnswers::new(shares.ready),
            waiting: Waiting::default(),
            is_closed: AtomicBool::new(false),
            past_bytes: Arc::default(),
            is_past: AtomicBool::new(false),
            apart: None,
            index,
            limits: options.limits.clone(),
            max_call_bytes: options.max_mask_bytes,
            pause: options.pause.clone(),
            shares,
        }
    }

    /// A generation of those that all grammars share, which together count what the past ones of them hold.
    pub(crate) fn one_of(mut self, past_bytes: &Arc<AtomicUsize>) -> Self {
        self.past_bytes = Arc::clone(past_bytes);
        self
    }

    /// The generation of one grammar alone.
    pub(crate) fn owned(mut self, leave: OwnMemory) -> Self {
        self.apart = Some(Apart::Own { _leave: leave });
        self
    }

    /// A generation of grammars that take long.
    pub(crate) fn lane(mut self) -> Self {
        self.apart = Some(Apart::Lane);
        self
    }

    /// Whether it belongs to one grammar.
    pub(crate) fn is_own(&self) -> bool {
        matches!(self.apart, Some(Apart::Own { .. }))
    }

    /// Whether it is apart from the memory that all share.
    pub(crate) fn is_apart(&self) -> bool {
        self.apart.is_some()
    }

    pub(crate) fn index(&self) -> &Arc<TokenizerIndex> {
        &self.index
    }

    /// The automaton, for as long as the guard lives: keep that short.
    pub(crate) fn lock(&self) -> MutexGuard<'_, TokenAutomaton> {
        // One that a panic has left in the midst of a change is asked nothing more: see `is_broken`.
        self.automaton
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the automaton for a matcher. Compilations that wait for it too come later.
    fn lock_before_compilations(&self) -> MutexGuard<'_, TokenAutomaton> {
        match self.try_lock() {
            Some(automaton) => automaton,
            None => self.waiting.counted(|| self.lock()),
        }
    }

    /// Sleeps while a matcher waits for the automaton. A lock that is given up and taken again at once
    /// mostly goes to the same thread; without this, a matcher could wait for much of its work.
    pub(crate) fn let_others_pass(&self) {
        self.pause.call();
        self.waiting.sleep_until_none();
    }

    /// The automaton, where nobody is at work.
    fn try_lock(&self) -> Option<MutexGuard<'_, TokenAutomaton>> {
        match self.automaton.try_lock() {
            Ok(automaton) => Some(automaton),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Does a slice of a compilation, once no matcher waits for the automaton. `None` where it
    /// [is closed](Self::is_closed).
    pub(crate) fn slice<T>(&self, work: impl FnOnce(&mut TokenAutomaton) -> T) -> Option<T> {
        self.let_others_pass();
        let mut automaton = self.lock();
        if self.is_closed() {
            return None;
        }
        let result = work(&mut automaton);
        self.note_bytes(&automaton);
        Some(result)
    }

    fn note_bytes(&self, automaton: &TokenAutomaton) {
        self.store_bytes(
            automaton.state_bytes(),
            automaton.cache_bytes() + automaton.forgotten_bytes(),
        );
    }

    /// Takes note of what it holds, with the automaton's lock.
    fn store_bytes(&self, of_states: usize, of_caches: usize) {
        let before = self.state_bytes.swap(of_states, Ordering::Relaxed)
            + self.cache_bytes.swap(of_caches, Ordering::Relaxed);
        if self.is_past.load(Ordering::Relaxed) {
            self.past_bytes
                .fetch_add(of_states + of_caches, Ordering::Relaxed);
            self.past_bytes.fetch_sub(before, Ordering::Relaxed);
        }
    }

    /// The tokens that may come next at a place, the vocabulary's stop tokens included.
    pub(crate) fn mask(
        &self,
        place: GrammarState,
        allowance: &Allowance,
    ) -> Result<Arc<Mask>, MatcherError> {
        self.check_open()?;
        if let Some(known) = self.ready.of(place, |known| &known.mask) {
            return Ok(known);
        }
        let (mask, _) = self.run_and_note(
            allowance,
            |automaton, fuel| {
                let mask = automaton.next_tokens(place, fuel)?;
                Ok((mask, automaton.is_without_text(place)))
            },
            |(mask, is_without_text)| {
                self.ready.note(place, |known| {
                    known.mask = Some(Arc::clone(mask));
                    known.is_without_text = Some(*is_without_text);
                });
            },
        )?;
        Ok(mask)
    }

    /// The place after a token, `None` where it isn't allowed. Whether the text may end there is then
    /// known too.
    ///
    /// What a token does within a lexeme is looked up by the lexeme alone, where the place's mask or such a
    /// token was asked for before: a token within a string is new once, not in each object.
    pub(crate) fn after_token(
        &self,
        place: GrammarState,
        token_id: u32,
        allowance: &Allowance,
    ) -> Result<Option<GrammarState>, MatcherError> {
        self.check_open()?;
        if let Some(next) = self.ready.after_within(place, token_id) {
            return Ok(Some(next));
        }
        if let Some(next) = self.ready.after(place, token_id) {
            return Ok(next);
        }
        let (step, _) = self.run_and_note(
            allowance,
            |automaton, fuel| {
                let step = automaton.step_by_token(place, token_id, fuel)?;
                let may_end = match step {
                    Some(step) if step.within.is_none() => {
                        Some(automaton.may_end(step.next, fuel)?)
                    }
                    _ => None,
                };
                Ok((step, may_end))
            },
            |(step, may_end)| {
                if let Some(TokenStep {
                    within: Some((lexeme, next)),
                    ..
                }) = *step
                {
                    self.ready.note_within(lexeme, token_id, next);
                    if self
                        .ready
                        .of(place, |known| &known.is_without_text)
                        .is_none()
                    {
                        self.ready
                            .note(place, |known| known.is_without_text = Some(true));
                    }
                    return;
                }
                let next = step.map(|step| step.next);
                self.ready.note_after(place, token_id, next);
                if let Some(next) = next {
                    self.ready.note(next, |known| known.may_end = *may_end);
                }
            },
        )?;
        Ok(step.map(|step| step.next))
    }

    /// Whether the grammar names one of the vocabulary's stop tokens at a place, as the last of the
    /// text.
    pub(crate) fn names_stop_token(
        &self,
        place: GrammarState,
        token_id: u32,
        allowance: &Allowance,
    ) -> Result<bool, MatcherError> {
        self.check_open()?;
        if matches!(place, GrammarState::Machine(_)) || !self.index.info().is_stop_token(token_id) {
            return Ok(false);
        }
        // Such a token leads nowhere else.
        if let Some(known) = self.ready.after(place, token_id) {
            return Ok(known.is_some());
        }
        self.run_and_note(
            allowance,
            |automaton, _| Ok(automaton.names_stop_token(place, token_id)),
            |named| {
                let end = named.then_some(place);
                self.ready.note_after(place, token_id, end);
            },
        )
    }

    /// Whether the text may end at a place.
    pub(crate) fn may_end(
        &self,
        place: GrammarState,
        allowance: &Allowance,
    ) -> Result<bool, MatcherError> {
        self.check_open()?;
        if let GrammarState::Machine(state) = place
            && self.ready.is_unended(state.lexeme)
        {
            return Ok(false);
        }
        self.answer(place, field!(may_end), allowance, |automaton, fuel| {
            automaton.may_end(place, fuel)
        })
    }

    /// Whether the next byte is given.
    pub(crate) fn has_forced_byte(
        &self,
        place: GrammarState,
        allowance: &Allowance,
    ) -> Result<bool, MatcherError> {
        self.answer(
            place,
            field!(has_forced_byte),
            allowance,
            |automaton, fuel| Ok(!automaton.next_forced_bytes(place, 1, fuel)?.is_empty()),
        )
    }

    /// How many bytes a short completion has.
    pub(crate) fn bytes_to_end(
        &self,
        place: GrammarState,
        allowance: &Allowance,
    ) -> Result<u32, MatcherError> {
        self.answer(place, field!(bytes_to_end), allowance, |automaton, fuel| {
            automaton.bytes_to_end(place, fuel)
        })
    }

    /// How many tokens complete the text, the stop token included.
    pub(crate) fn tokens_to_end(
        &self,
        place: GrammarState,
        allowance: &Allowance,
    ) -> Result<u32, MatcherError> {
        self.answer(
            place,
            field!(tokens_to_end),
            allowance,
            |automaton, fuel| automaton.tokens_to_end(place, fuel),
        )
    }

    /// An answer about a place: known, or computed and noted.
    fn answer<T: Clone>(
        &self,
        place: GrammarState,
        field: Field<T>,
        allowance: &Allowance,
        work: impl FnOnce(&mut TokenAutomaton, &mut Fuel) -> Result<T, Stop>,
    ) -> Result<T, MatcherError> {
        self.check_open()?;
        if let Some(known) = self.ready.of(place, field.of) {
            return Ok(known);
        }
        self.run_and_note(allowance, work, |answer| {
            let answer = answer.clone();
            self.ready
                .note(place, |known| *(field.of_mut)(known) = Some(answer));
        })
    }

    /// The most items that a state of a parser may have.
    pub(crate) fn max_items(&self) -> usize {
        self.limits.max_items
    }

    /// Its grammars need more states than there is room for.
    pub(crate) fn exhausted(&self) -> MatcherError {
        MatcherError::StatesExhausted {
            max: self.shares.states_at_most,
        }
    }

    fn check_open(&self) -> Result<(), MatcherError> {
        match self.is_closed() {
            true => Err(self.exhausted()),
            false => Ok(()),
        }
    }

    /// Whether its matchers have to go on elsewhere: it may be empty then.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed) || self.is_broken()
    }

    /// Whether a panic has left its automaton in the midst of a change, so that no answer of it can be
    /// trusted.
    fn is_broken(&self) -> bool {
        self.automaton.is_poisoned()
    }

    /// Forgets what can be computed again, for the caller to drop.
    fn forget(&self, automaton: &mut TokenAutomaton) -> Forgotten {
        let mut forgotten = automaton.take_caches();
        self.ready.forget_places(&mut forgotten);
        self.note_bytes(automaton);
        forgotten
    }

    /// The same, with what was forgotten before and what tokens do.
    fn forget_all(&self, automaton: &mut TokenAutomaton) -> [Forgotten; 2] {
        self.ready.forget_steps();
        let before = automaton.take_forgotten();
        [before, self.forget(automaton)]
    }

    /// Lets it be one of those before the current one, and frees what can be computed again.
    pub(crate) fn end_as_current(&self) {
        let mut automaton = self.lock();
        let forgotten = self.forget_all(&mut automaton);
        if !self.is_past.swap(true, Ordering::Relaxed) {
            self.past_bytes
                .fetch_add(self.counted_bytes(), Ordering::Relaxed);
        }
        drop(automaton);
        // Dropped when nobody waits for the lock any more.
        drop(forgotten);
    }

    /// Frees what can be computed again where nobody is at work.
    pub(crate) fn try_clear_caches(&self) {
        let forgotten = self
            .try_lock()
            .map(|mut automaton| self.forget_all(&mut automaton));
        drop(forgotten);
    }

    /// Whether a request has added as much as it may.
    pub(crate) fn is_beyond_request(&self, allowance: &Allowance) -> bool {
        allowance.is_request_beyond(self.shares.request)
    }

    /// Counts what a request has added beyond one share before it was counted.
    pub(crate) fn add_beyond_share(&self, allowance: &Allowance, num_added_bytes: usize) {
        allowance.add_request_bytes(num_added_bytes.saturating_sub(self.shares.request));
    }

    /// Whether it is one of those before the current one, and these hold more than they may.
    fn is_beyond_past(&self) -> bool {
        self.is_past.load(Ordering::Relaxed)
            && self.past_bytes.load(Ordering::Relaxed) > self.shares.past
    }

    /// Lets every further call of its matchers fail.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// The same, and gives up all that it holds, for the caller to drop where nobody waits. Nothing where somebody is
    /// at work: then it goes with the last grammar.
    #[must_use]
    pub(crate) fn empty(&self) -> Option<Remains> {
        self.close();
        self.try_lock().map(|automaton| self.remains(automaton))
    }

    /// The same once whoever is at work there has ended the call.
    #[must_use]
    pub(crate) fn empty_when_free(&self) -> Remains {
        self.close();
        self.remains(self.lock())
    }

    fn remains(&self, mut automaton: MutexGuard<'_, TokenAutomaton>) -> Remains {
        let forgotten = self.forget_all(&mut automaton);
        let fresh = TokenAutomaton::new(Arc::clone(&self.index), None, self.limits.max_items);
        let states = std::mem::replace(&mut *automaton, fresh);
        self.note_bytes(&automaton);
        Remains {
            _states: states,
            _forgotten: forgotten,
        }
    }

    /// Bytes held: states, masks and answers.
    pub(crate) fn memory_bytes(&self) -> usize {
        let automaton = self.lock();
        automaton.state_bytes()
            + automaton.cache_bytes()
            + automaton.forgotten_bytes()
            + self.ready.memory_bytes()
    }

    /// Bytes of states and of what can be computed again after the last work. Waits for no work.
    fn counted_bytes(&self) -> usize {
        self.state_bytes() + self.cache_bytes()
    }

    /// Bytes of what can be computed again. Waits for no work.
    fn cache_bytes(&self) -> usize {
        self.cache_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of its states. Waits for no work.
    pub(crate) fn state_bytes(&self) -> usize {
        self.state_bytes.load(Ordering::Relaxed)
    }

    /// Whether nothing was compiled in it yet. Waits for no work.
    pub(crate) fn is_fresh(&self) -> bool {
        self.state_bytes() <= self.fresh_bytes
    }

    /// Whether the next compilation should start a new generation. Waits for no work.
    pub(crate) fn is_full(&self) -> bool {
        self.is_closed() || self.state_bytes() > self.shares.states
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if *self.is_past.get_mut() {
            self.past_bytes
                .fetch_sub(self.counted_bytes(), Ordering::Relaxed);
        }
    }
}

/// What a generation held that is closed.
pub(crate) struct Remains {
    _states: TokenAutomaton,
    _forgotten: [Forgotten; 2],
}
