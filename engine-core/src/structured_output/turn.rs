//! Who works on a grammar, and for how long at a time.

use structured_output::CompileEffort;

/// What a thread is there for. The first three work in the memory that requests under way share, which
/// wait meanwhile: for no more than [`SHARED_STEPS`] at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Duty {
    /// Find what running requests wait for, and bring new ones to grammars that are compiled.
    Answer,
    /// Begin new grammars.
    Begin,
    /// Go on with what takes more than a first turn; and find memory with room for grammars.
    Compile,
    /// Work on grammars in memory apart, without end.
    Apart,
}

/// Steps of one call on a grammar in memory that requests under way share, which wait meanwhile: a
/// millisecond or two. Of every sixteenth schema of MaskBench, each with nothing known before, 2 in 100
/// need twice as many and more for their shortest text.
pub(super) const SHARED_STEPS: u64 = 20_000;

/// The last turn in memory that is shared. What was computed is known the next time, so most calls come to
/// an end in some turns; what hasn't after 1.2 million steps mostly never does.
const LAST_SHARED: u32 = 5;

/// The turn in memory apart, and those after it, that last as long as it takes: until then there were 5
/// million steps, more than one call or compilation may take.
const ENDLESS: u32 = 8;

/// Steps that all calls for one answer which a running request waits for may take in its endless turns:
/// those of three calls, of which each has its own limit too. What takes more is the grammar's excess.
pub(super) const MAX_ANSWER_STEPS: u64 = 6_000_000;

/// What a job may take of a thread's time before others have theirs. Each turn is twice as long as the one
/// before it, so that what can't be computed in parts comes to its end too, and was tried for no longer than
/// it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Turn {
    /// Whose turn it is.
    pub(super) duty: Duty,
    /// How many were before it. In memory apart they are counted anew, as all is computed anew there.
    pub(super) number: u32,
}

impl Turn {
    /// A first turn of a thread with a duty.
    pub(super) fn first(duty: Duty) -> Self {
        Self { duty, number: 0 }
    }

    /// The turn after this one, where this didn't suffice.
    pub(super) fn next(self) -> Self {
        match self.duty {
            Duty::Compile if self.number >= LAST_SHARED => Self::first(Duty::Apart),
            Duty::Answer | Duty::Begin | Duty::Compile => Self {
                duty: Duty::Compile,
                number: self.number + 1,
            },
            Duty::Apart => Self {
                duty: Duty::Apart,
                number: (self.number + 1).min(ENDLESS),
            },
        }
    }

    /// This turn for a text of this weight, which is read anew in each: reading it is not to take longer than
    /// what the turn is for, or the first ones would be for nothing.
    pub(super) fn for_text(self, weight: u32) -> Self {
        let number = self.number.max(weight.min(LAST_SHARED));
        Self { number, ..self }
    }

    /// Steps that calls on a grammar may take in it; `None` for as many as each takes.
    pub(super) fn steps(self) -> Option<u64> {
        (self.number < ENDLESS).then(|| SHARED_STEPS << self.number)
    }

    /// How far a compilation may go in it.
    pub(super) fn effort(self) -> CompileEffort {
        let max_steps = self.steps().unwrap_or(u64::MAX);
        match self.duty {
            // It is compiled, unless that was forgotten meanwhile.
            Duty::Answer => CompileEffort::Shared { max_steps: 0 },
            Duty::Begin | Duty::Compile => CompileEffort::Shared { max_steps },
            Duty::Apart => CompileEffort::Apart { max_steps },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_double_and_end_in_memory_apart() {
        let mut turn = Turn::first(Duty::Begin);
        let mut turns = Vec::new();
        while turn.steps().is_some() {
            turns.push((turn.duty, turn.steps().unwrap() / SHARED_STEPS));
            turn = turn.next();
        }
        let of = |duty, steps: &[u64]| -> Vec<_> { steps.iter().map(|&n| (duty, n)).collect() };
        let expected = [
            of(Duty::Begin, &[1]),
            of(Duty::Compile, &[2, 4, 8, 16, 32]),
            of(Duty::Apart, &[1, 2, 4, 8, 16, 32, 64, 128]),
        ];
        assert_eq!(turns, expected.concat());
        // There a call or compilation is ended by its own limits.
        assert_eq!(turn.next(), turn);
        let max_steps = u64::MAX;
        assert_eq!(turn.effort(), CompileEffort::Apart { max_steps });
        assert_eq!(Turn::first(Duty::Answer).next().number, 1);
        // Who has a long text to read begins with more.
        assert_eq!(Turn::first(Duty::Apart).for_text(3).number, 3);
        assert_eq!(Turn::first(Duty::Begin).for_text(30).number, LAST_SHARED);
        assert_eq!(turn.for_text(3), turn);
    }
}
