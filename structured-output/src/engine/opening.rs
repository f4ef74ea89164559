//! The first places of a text that leads into a grammar.

use super::{Allowance, Engine};
use crate::automaton::GrammarState;
use crate::error::MatcherError;

/// What opens a JSON text, by what most lies behind it.
const OPENING_BYTES: [u8; 3] = *b"{[\"";

/// Bytes that are looked at.
const MAX_BYTES: usize = 4;

impl Engine {
    /// Asks for the masks where a text opens: of JSON after its brackets, up to its first key or string.
    /// There a grammar needs most of what it ever does.
    pub(crate) fn open(
        &self,
        start: GrammarState,
        allowance: &Allowance,
    ) -> Result<(), MatcherError> {
        let GrammarState::Machine(start) = start else {
            return Ok(());
        };
        self.run(allowance, |automaton, fuel| {
            let mut state = start;
            automaton.mask(state, fuel)?;
            for _ in 0..MAX_BYTES {
                let mut opened = None;
                for byte in OPENING_BYTES {
                    if let Some(next) = automaton.machine().step(state, byte, fuel)? {
                        opened = Some((byte, next));
                        break;
                    }
                }
                let Some((byte, next)) = opened else { break };
                automaton.mask(next, fuel)?;
                if byte == b'"' {
                    break;
                }
                state = next;
            }
            Ok(())
        })
    }
}
