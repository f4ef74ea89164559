//! Turns of a job: how much work it may do before others have theirs.

use structured_output::CompileEffort;

/// Where a turn works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arena {
    /// In the memory that all grammars share. Requests under way wait for it meanwhile: for no more than
    /// [`SHARED_STEPS`] at a time.
    Shared,
    /// In memory apart, for what takes long. A call holds it for as long as the call takes.
    Apart,
}

/// Steps of one call on a grammar in memory that requests under way share, which wait meanwhile: a
/// millisecond or two. Of every sixteenth schema of MaskBench, each with nothing known before, 2 in 100
/// need twice as many and more for their shortest text.
pub(super) const SHARED_STEPS: u64 = 20_000;

/// Of a grammar's text so much is read in about the time of a first turn's steps.
pub(super) const BYTES_OF_TURN: usize = 16 << 10;

/// Doublings of the last turn in memory that is shared. What was computed is known the next time, so most calls
/// come to an end in some turns; what hasn't after 1.2 million steps mostly never does.
const LAST_SHARED: u32 = 5;

/// Doublings of the turn in memory apart, and those after it, that last as long as it takes: until then there
/// were 5 million steps, more than one call or compilation may take.
const ENDLESS: u32 = 8;

/// Steps that all calls for one answer which a running request waits for may take in its endless turns:
/// those of three calls, of which each has its own limit too. What takes more is the grammar's excess.
pub(super) const MAX_ANSWER_STEPS: u64 = 6_000_000;

/// A job's next turn. Each is twice as long as the one before it, so that what can't be computed in parts comes to
/// its end too, and was tried for no longer than it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) arena: Arena,
    /// How often its fuel was doubled. In memory apart that begins anew, as all is computed anew there.
    doublings: u32,
}

impl Turn {
    /// A first turn.
    pub(super) fn first(arena: Arena) -> Self {
        Self {
            arena,
            doublings: 0,
        }
    }

    /// The turn after this one, where this didn't suffice.
    pub(super) fn next(self) -> Self {
        let last = match self.arena {
            Arena::Shared if self.doublings >= LAST_SHARED => return Self::first(Arena::Apart),
            Arena::Shared => LAST_SHARED,
            Arena::Apart => ENDLESS,
        };
        Self {
            doublings: (self.doublings + 1).min(last),
            ..self
        }
    }

    /// This turn for a text of so many bytes, which is read anew in each: reading it is not to take longer than
    /// what the turn is for, or the first ones would be for nothing.
    pub(super) fn for_text(self, num_bytes: usize) -> Self {
        let of_text = (num_bytes / BYTES_OF_TURN).checked_ilog2();
        let of_text = of_text.map_or(0, |power| power + 1).min(LAST_SHARED);
        Self {
            doublings: self.doublings.max(of_text),
            ..self
        }
    }

    /// Steps that it is expected to take at most: by these the queue compares turns.
    pub(super) fn fuel(self) -> u64 {
        SHARED_STEPS << self.doublings
    }

    /// Steps that calls on a grammar may take in it; `None` for as many as each takes.
    pub(super) fn steps(self) -> Option<u64> {
        (self.doublings < ENDLESS).then(|| self.fuel())
    }

    /// True if it may be taken where others wait for no more than a millisecond or two.
    pub(super) fn is_short(self) -> bool {
        self == Self::first(Arena::Shared)
    }

    /// How far a compilation may go in it.
    pub(super) fn effort(self) -> CompileEffort {
        let max_steps = self.steps().unwrap_or(u64::MAX);
        match self.arena {
            Arena::Shared => CompileEffort::Shared { max_steps },
            Arena::Apart => CompileEffort::Apart { max_steps },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_double_and_end_in_memory_apart() {
        let mut turn = Turn::first(Arena::Shared);
        assert!(turn.is_short());
        let mut turns = Vec::new();
        while let Some(steps) = turn.steps() {
            assert_eq!(turn.is_short(), turns.is_empty());
            turns.push((turn.arena, steps / SHARED_STEPS));
            turn = turn.next();
        }
        let of = |arena, steps: &[u64]| -> Vec<_> { steps.iter().map(|&n| (arena, n)).collect() };
        let expected = [
            of(Arena::Shared, &[1, 2, 4, 8, 16, 32]),
            of(Arena::Apart, &[1, 2, 4, 8, 16, 32, 64, 128]),
        ];
        assert_eq!(turns, expected.concat());
        // There a call or compilation is ended by its own limits.
        assert_eq!(turn.next(), turn);
        let max_steps = u64::MAX;
        assert_eq!(turn.effort(), CompileEffort::Apart { max_steps });
    }

    #[test]
    fn who_has_a_long_text_to_read_begins_with_more() {
        let fuel_of = |arena, kib: usize| Turn::first(arena).for_text(kib << 10).fuel();
        for arena in [Arena::Shared, Arena::Apart] {
            for (kib, times) in [(15, 1), (16, 2), (40, 4), (300, 32), (9_000, 32)] {
                assert_eq!(fuel_of(arena, kib), times * SHARED_STEPS, "{kib}");
            }
        }
        let last = Turn::first(Arena::Apart).for_text(9_000 << 10).next();
        assert_eq!(last.for_text(40 << 10), last);
    }
}
