//! Answers that are known, for every thread to read while another computes new ones.

use std::hash::BuildHasher;
use std::sync::{Arc, PoisonError, RwLock};

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::automaton::{GrammarState, State};
use crate::lexical::ExprId;
use crate::mask::{Forgotten, Mask};

/// Tables, each under a lock of its own: threads seldom meet at one.
const SHARDS: usize = 32;

/// What is known of a place in a grammar.
#[derive(Debug, Clone, Default)]
pub(super) struct Answers {
    /// The tokens that may come next.
    pub(super) mask: Option<Arc<Mask>>,
    /// Whether the text may end.
    pub(super) may_end: Option<bool>,
    /// Whether the next byte is given.
    pub(super) has_forced_byte: Option<bool>,
    /// Bytes of a short completion.
    pub(super) bytes_to_end: Option<u32>,
    /// Tokens of it, stop token included.
    pub(super) tokens_to_end: Option<u32>,
    /// Whether steps within its lexeme depend on that alone.
    pub(super) is_without_text: Option<bool>,
}

/// A token at a place, and the place after it; `None` where it isn't allowed.
type Step = (GrammarState, u32, Option<GrammarState>);

/// A token within a lexeme, and what is left of the lexeme after it, which is not the end of a text.
type StepWithin = (ExprId, u32, ExprId);

#[derive(Default)]
struct Shard {
    places: HashTable<(GrammarState, Answers)>,
    steps: HashTable<Step>,
    within: HashTable<StepWithin>,
    /// Lexemes that some such step leads to: within them no text ends.
    unended: HashTable<ExprId>,
}

/// The answers, within a number of bytes. A table that is full starts anew: what it held is found
/// again where it was found first.
pub(super) struct ReadyAnswers {
    shards: [RwLock<Shard>; SHARDS],
    hasher: DefaultHashBuilder,
    /// Entries that a shard may hold of each kind.
    max_places: usize,
    max_steps: usize,
    max_within: usize,
    max_unended: usize,
}

impl ReadyAnswers {
    /// No answers, of which at most `max_bytes` will be kept, half of them places.
    pub(super) fn new(max_bytes: usize) -> Self {
        let part = max_bytes / SHARDS / 16;
        Self {
            shards: Default::default(),
            hasher: DefaultHashBuilder::default(),
            max_places: entries_within::<(GrammarState, Answers)>(8 * part),
            max_steps: entries_within::<Step>(4 * part),
            max_within: entries_within::<StepWithin>(3 * part),
            max_unended: entries_within::<ExprId>(part),
        }
    }

    fn shard(&self, hash: u64) -> &RwLock<Shard> {
        // The tables use the lowest and the highest bits.
        &self.shards[(hash >> 32) as usize % SHARDS]
    }

    /// What is known of a place, as far as `field` asks.
    pub(super) fn of<T: Clone>(
        &self,
        place: GrammarState,
        field: impl Fn(&Answers) -> &Option<T>,
    ) -> Option<T> {
        let hash = self.hasher.hash_one(place);
        let shard = self
            .shard(hash)
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let (_, known) = shard.places.find(hash, |(known, _)| *known == place)?;
        field(known).clone()
    }

    /// Notes an answer about a place.
    pub(super) fn note(&self, place: GrammarState, note: impl FnOnce(&mut Answers)) {
        let hash = self.hasher.hash_one(place);
        let mut shard = self
            .shard(hash)
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let places = &mut shard.places;
        if places.len() >= self.max_places && places.find(hash, |known| known.0 == place).is_none()
        {
            *places = HashTable::new();
        }
        let entry = places.entry(
            hash,
            |(known, _)| *known == place,
            |(known, _)| self.hasher.hash_one(known),
        );
        note(
            &mut entry
                .or_insert_with(|| (place, Answers::default()))
                .into_mut()
                .1,
        );
    }

    /// The place after a token, where that is known: `Some(None)` where the token isn't allowed.
    pub(super) fn after(&self, place: GrammarState, token_id: u32) -> Option<Option<GrammarState>> {
        let hash = self.hasher.hash_one((place, token_id));
        let shard = self
            .shard(hash)
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let step = shard
            .steps
            .find(hash, |step| (step.0, step.1) == (place, token_id));
        step.map(|step| step.2)
    }

    /// Notes the place after a token.
    pub(super) fn note_after(
        &self,
        place: GrammarState,
        token_id: u32,
        next: Option<GrammarState>,
    ) {
        let hash = self.hasher.hash_one((place, token_id));
        let mut shard = self
            .shard(hash)
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let steps = &mut shard.steps;
        if steps.len() >= self.max_steps {
            *steps = HashTable::new();
        }
        let entry = steps.entry(
            hash,
            |step| (step.0, step.1) == (place, token_id),
            |step| self.hasher.hash_one((step.0, step.1)),
        );
        entry.or_insert((place, token_id, next));
    }

    /// The place after a token that stays within the lexeme of one where nothing but that matters, where
    /// that is known of the lexeme.
    pub(super) fn after_within(&self, place: GrammarState, token_id: u32) -> Option<GrammarState> {
        let GrammarState::Machine(state) = place else {
            return None;
        };
        if state.has_text() || !self.of(place, |known| &known.is_without_text)? {
            return None;
        }
        let lexeme = state.lexeme;
        let hash = self.hasher.hash_one((lexeme, token_id));
        let shard = self
            .shard(hash)
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let known = shard
            .within
            .find(hash, |step| (step.0, step.1) == (lexeme, token_id));
        known.map(|step| {
            GrammarState::Machine(State {
                lexeme: step.2,
                ..state
            })
        })
    }

    /// Notes what is left of a lexeme after a token, where that is not the end of a text.
    pub(super) fn note_within(&self, lexeme: ExprId, token_id: u32, next: ExprId) {
        let hash = self.hasher.hash_one((lexeme, token_id));
        let mut shard = self
            .shard(hash)
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let within = &mut shard.within;
        if within.len() >= self.max_within {
            *within = HashTable::new();
        }
        let entry = within.entry(
            hash,
            |step| (step.0, step.1) == (lexeme, token_id),
            |step| self.hasher.hash_one((step.0, step.1)),
        );
        entry.or_insert((lexeme, token_id, next));
        drop(shard);
        if self.is_unended(next) {
            return;
        }
        let hash = self.hasher.hash_one(next);
        let mut shard = self
            .shard(hash)
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let unended = &mut shard.unended;
        if unended.len() >= self.max_unended {
            *unended = HashTable::new();
        }
        let entry = unended.entry(
            hash,
            |&known| known == next,
            |known| self.hasher.hash_one(known),
        );
        entry.or_insert(next);
    }

    /// Whether a lexeme is known to be one within which no text ends.
    pub(super) fn is_unended(&self, lexeme: ExprId) -> bool {
        let hash = self.hasher.hash_one(lexeme);
        let shard = self
            .shard(hash)
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        shard.unended.find(hash, |&known| known == lexeme).is_some()
    }

    /// Forgets what is known of places, masks above all, for the caller to drop.
    pub(super) fn forget_places(&self, forgotten: &mut Forgotten) {
        for shard in &self.shards {
            let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
            let places = std::mem::take(&mut shard.places);
            drop(shard);
            forgotten.add(places);
        }
    }

    /// Forgets what tokens do, too.
    pub(super) fn forget_steps(&self) {
        for shard in &self.shards {
            let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
            shard.steps = HashTable::new();
            shard.within = HashTable::new();
            shard.unended = HashTable::new();
        }
    }

    /// Bytes of memory held; those of the masks are counted where they are made.
    pub(super) fn memory_bytes(&self) -> usize {
        let of_shard = |shard: &RwLock<Shard>| {
            let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
            shard.places.allocation_size()
                + shard.steps.allocation_size()
                + shard.within.allocation_size()
                + shard.unended.allocation_size()
        };
        self.shards.iter().map(of_shard).sum()
    }
}

/// How many entries a table may hold so that it takes no more than some bytes: a table of 2^k places
/// is grown when seven in eight are taken.
fn entries_within<T>(bytes: usize) -> usize {
    let places = (bytes / (size_of::<T>() + 1)).max(8);
    let power = usize::BITS - 1 - places.leading_zeros();
    (1 << power) / 8 * 7
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lexical::EPSILON;
    use crate::pushdown::{EMPTY_STACK, Keys, NO_KEY};

    /// Places that differ in the text of a key.
    fn places(count: usize) -> Vec<GrammarState> {
        let mut keys = Keys::default();
        let mut key = NO_KEY;
        let mut next = || {
            key = keys.push(key, b'a');
            GrammarState::Machine(State {
                lexeme: EPSILON,
                stack: EMPTY_STACK,
                key,
                item: NO_KEY,
            })
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn what_is_noted_is_known_until_there_is_too_much() {
        const BYTES: usize = 64 << 10;
        let places = places(20_001);
        let [one, two] = [places[1], places[2]];
        let ready = ReadyAnswers::new(BYTES);
        ready.note(one, |known| known.may_end = Some(true));
        assert_eq!(ready.of(one, |known| &known.may_end), Some(true));
        assert_eq!(ready.of(one, |known| &known.bytes_to_end), None);
        assert_eq!(ready.of(two, |known| &known.may_end), None);
        ready.note_after(one, 7, Some(two));
        ready.note_after(one, 8, None);
        assert_eq!(ready.after(one, 7), Some(Some(two)));
        assert_eq!(ready.after(one, 8), Some(None));
        assert_eq!(ready.after(two, 7), None);
        for (n, pair) in (0..).zip(places.windows(2)) {
            ready.note(pair[0], |known| known.tokens_to_end = Some(n));
            ready.note_after(pair[0], n, Some(pair[1]));
            // The last one always stays.
            assert_eq!(ready.of(pair[0], |known| &known.tokens_to_end), Some(n));
            assert_eq!(ready.after(pair[0], n), Some(Some(pair[1])));
        }
        let held = ready.memory_bytes();
        assert!(held <= BYTES && held > BYTES / 4, "{held} bytes");
        let mut forgotten = Forgotten::default();
        ready.forget_places(&mut forgotten);
        assert_eq!(ready.of(places[20_000], |known| &known.tokens_to_end), None);
        assert_eq!(ready.after(one, 8), None);
        assert!(ready.memory_bytes() < held);
        ready.forget_steps();
        assert_eq!(ready.memory_bytes(), 0);
    }
}
