//! One call of a matcher, within its limits.

use super::{Allowance, Engine};
use crate::automaton::TokenAutomaton;
use crate::error::MatcherError;
use crate::lexical::{Fuel, Lack, Stop};

impl Engine {
    /// Does a matcher's work within its limits.
    pub(crate) fn run<T>(
        &self,
        allowance: &Allowance,
        work: impl FnOnce(&mut TokenAutomaton, &mut Fuel) -> Result<T, Stop>,
    ) -> Result<T, MatcherError> {
        self.check_open()?;
        self.run_and_note(allowance, work, |_| ())
    }

    /// Whether a matcher's allowance leaves it all the steps that a call may take.
    pub(crate) fn grants_all(&self, allowance: &Allowance) -> bool {
        let max_steps = self.limits.max_mask_steps.min(allowance.max_call_steps());
        allowance.left().is_none_or(|left| left >= max_steps)
    }

    /// Does a matcher's work within its limits, and notes what came of it before others change
    /// anything: an answer that others have forgotten meanwhile must not come back.
    pub(super) fn run_and_note<T>(
        &self,
        allowance: &Allowance,
        work: impl FnOnce(&mut TokenAutomaton, &mut Fuel) -> Result<T, Stop>,
        note: impl FnOnce(&T),
    ) -> Result<T, MatcherError> {
        let max_steps = self.limits.max_mask_steps.min(allowance.max_call_steps());
        let granted = allowance
            .left()
            .map_or(max_steps, |left| left.min(max_steps));
        let mut fuel = Fuel::new(granted);
        // Where all share, nobody is at work for long; apart, for as long as it takes.
        let mut automaton = match self.is_apart() && !allowance.is_patient() {
            true => self.try_lock().ok_or(MatcherError::AllowanceSpent)?,
            false => self.lock_before_compilations(),
        };
        self.check_open()?;
        // A request fills no two memories apart.
        let memory = allowance.request_memory().filter(|_| self.is_apart());
        if memory.is_some_and(|memory| memory.has_own_beside(self)) {
            return Err(self.exhausted());
        }
        // A call adds something before it is told that there is no room, and a request may make any number of them.
        let far_beyond = self.shares.request.saturating_add(self.shares.request / 8);
        if !self.is_apart() && allowance.is_request_beyond(far_beyond) {
            return Err(self.exhausted());
        }
        // Noted by whoever had the lock before.
        let before = self.state_bytes();
        let max_bytes = before.max(self.shares.states_at_most);
        let cached_before = self.cache_bytes();
        let allowed_bytes = before.saturating_add(allowance.bytes_left());
        let of_request = allowance.request_bytes_left(self.shares.request);
        let max_bytes = max_bytes.min(before.saturating_add(of_request));
        fuel.limit_bytes(max_bytes.min(allowed_bytes));
        let held_bytes = allowance.held_bytes_left();
        fuel.limit_thread_bytes(held_bytes.min(self.max_call_bytes));
        let answer = work(&mut automaton, &mut fuel);
        allowance.spend(granted - fuel.left());
        let stop = answer.as_ref().err().copied();
        if let Some(Stop::Bound(bound)) = stop {
            allowance.note_beyond((bound.what(), bound.max() as u64));
        }
        // Counted once for all that asks: a sum over dozens of tables.
        let after = automaton.state_bytes();
        let cached = automaton.cache_bytes();
        let all_cached = cached + automaton.forgotten_bytes();
        self.store_bytes(after, all_cached);
        if !self.is_apart() {
            let cached = all_cached.saturating_sub(cached_before);
            allowance.add_request_bytes(after.saturating_sub(before) + cached);
        }
        // What was freed since was held too.
        let was_bound = match stop {
            Some(Stop::Bytes(Lack::States)) => allowed_bytes < max_bytes,
            Some(Stop::Bytes(Lack::Thread)) => held_bytes <= self.max_call_bytes,
            _ => false,
        };
        if stop == Some(Stop::Bytes(Lack::Thread)) && !was_bound {
            // Tables that grow are made anew, by whoever comes then. A compilation looks whether that was it; a
            // matcher goes on in other memory, and ends where that is no help.
            allowance.note_beyond(("max_mask_bytes", self.max_call_bytes as u64));
        }
        allowance.spend_bytes(match was_bound {
            true => usize::MAX,
            false => after.saturating_sub(before),
        });
        if stop == Some(Stop::Items) {
            return Err(MatcherError::ItemsExhausted {
                max: self.limits.max_items,
            });
        }
        if cached > self.shares.masks {
            // Not all at once: a matcher waits.
            let forgotten = self.forget(&mut automaton);
            automaton.drop_later(forgotten);
        }
        automaton.drop_some_forgotten(self.shares.masks);
        if was_bound {
            return Err(MatcherError::BytesExhausted {
                max: allowance.max_bytes(),
            });
        }
        if self.is_beyond_past() {
            self.close();
            return Err(self.exhausted());
        }
        // Who goes on among states that are there already disturbs nobody.
        if matches!(stop, Some(Stop::Bytes(_)))
            || after > before
                && (after > self.shares.states_at_most || self.is_beyond_request(allowance))
        {
            return Err(self.exhausted());
        }
        let answer = answer.map_err(|_| match granted < max_steps {
            true => MatcherError::AllowanceSpent,
            false => MatcherError::StepsExhausted { max: max_steps },
        })?;
        note(&answer);
        Ok(answer)
    }
}
