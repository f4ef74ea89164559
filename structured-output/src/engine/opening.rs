//! The first places of a text that leads into a grammar, and of one value of a schema.

use super::{Allowance, Engine};
use crate::automaton::GrammarState;
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

    /// Looks whether a node has a value, and what may come within the brackets that open one: what a mask
    /// before such a value and the one after it need, the vocabulary apart.
    pub(crate) fn open_value(
        &self,
        node: NodeId,
        style: Style,
        allowance: &Allowance,
    ) -> Result<bool, MatcherError> {
        self.run(allowance, |automaton, fuel| {
            let machine = automaton.machine();
            let frames = machine.programs.value_frames(node, style);
            let start = machine.start_of_frames(&frames, fuel)?;
            for bracket in [b'[', b'{'] {
                machine.step(start, bracket, fuel)?;
            }
            machine.lexicon.is_live(start.lexeme, fuel)
        })
    }
}
