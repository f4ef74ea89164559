//! The first places of a text that leads into a grammar, and of one value of a schema.

use super::{Allowance, Engine};
use crate::automaton::{GrammarState, State};
use crate::error::MatcherError;
use crate::json::{NodeId, Style};

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

    /// Looks at what follows the first byte of a number or a string: it may have to be searched for.
    pub(crate) fn open_scalar(
        &self,
        start: State,
        allowance: &Allowance,
    ) -> Result<(), MatcherError> {
        self.run(allowance, |automaton, fuel| {
            for first in [b'1', b'"'] {
                automaton.machine().step(start, first, fuel)?;
            }
            Ok(())
        })
    }

    /// Looks whether a node has a value, and what may come within the brackets that open one, or after a
    /// digit: what a mask before such a value and the one after it need, the vocabulary apart. `has_keys`:
    /// also the mask within its first key.
    pub(crate) fn open_value(
        &self,
        node: NodeId,
        style: Style,
        has_keys: bool,
        allowance: &Allowance,
    ) -> Result<bool, MatcherError> {
        self.run(allowance, |automaton, fuel| {
            let machine = automaton.machine();
            let frames = machine.programs.value_frames(node, style);
            let start = machine.start_of_frames(&frames, fuel)?;
            // After a digit numbers may have to be searched for.
            for first in [b'[', b'1'] {
                machine.step(start, first, fuel)?;
            }
            let first = machine.step(start, b'{', fuel)?;
            if let (true, Some(first)) = (has_keys, first)
                && let Some(key) = machine.step(first, b'"', fuel)?
            {
                automaton.mask(key, fuel)?;
            }
            automaton.machine().lexicon.is_live(start.lexeme, fuel)
        })
    }
}
