//! The texts of languages, shortest first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::composites::BYTES_A_STEP;
use super::programs::Programs;
use crate::held::{allocated, with_room};
use crate::lexical::search::DEAD;
use crate::lexical::{ByteSet, ExprId, Fuel, Lexicon, Stop};

/// What stands in a row to be listed: how long the shortest text is, its beginning, and by number what
/// may follow.
type Waiting = Reverse<(u32, Vec<u8>, usize)>;

/// What may follow a beginning.
pub(super) enum Rest {
    /// A text of a language with one value.
    One(ExprId),
    /// A text of a language, and the bytes that may stand in place of the last one.
    Language(ExprId, ByteSet),
}

/// The texts of languages, shortest first.
#[derive(Default)]
pub(super) struct Words {
    waiting: BinaryHeap<Waiting>,
    rests: Vec<Rest>,
    /// Bytes of the beginnings.
    text_bytes: usize,
}

impl Words {
    /// Adds the texts of a language, after a beginning.
    pub(super) fn push(
        &mut self,
        lexicon: &mut Lexicon,
        text: Vec<u8>,
        rest: Rest,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        let (Rest::One(language) | Rest::Language(language, _)) = rest;
        let distance = lexicon.distance(language, fuel)?;
        if distance != DEAD {
            let length = distance.saturating_add(text.len() as u32);
            self.text_bytes += allocated(text.len());
            self.waiting.push(Reverse((length, text, self.rests.len())));
            self.rests.push(rest);
        }
        Ok(())
    }

    /// The next text, where so many bytes of states are held beside these.
    pub(super) fn next(
        &mut self,
        lexicon: &mut Lexicon,
        held: usize,
        fuel: &mut Fuel,
    ) -> Result<Option<Vec<u8>>, Stop> {
        while let Some(Reverse((length, mut text, number))) = self.waiting.peek().cloned() {
            // Long beginnings are copied for each text that may follow.
            fuel.burn(1 + (text.len() / BYTES_A_STEP) as u64)?;
            fuel.check_bytes(held + self.memory_bytes())?;
            match self.rests[number] {
                Rest::One(language) => {
                    Programs::write_shortest(lexicon, language, &mut text, fuel)?;
                    self.pop();
                    return Ok(Some(text));
                }
                Rest::Language(language, others) => {
                    // It goes after what stands here, so that nothing is lost where fuel runs out.
                    for (bytes, next) in lexicon.derivatives(language, fuel)? {
                        let Some(byte) = bytes.first() else {
                            continue;
                        };
                        let mut longer = text.clone();
                        longer.push(byte);
                        let others = bytes.intersection(&ByteSet::single(byte).complement());
                        self.push(lexicon, longer, Rest::Language(next, others), fuel)?;
                    }
                    if let (Some(byte), Some(last)) = (others.first(), text.len().checked_sub(1)) {
                        let mut other = text.clone();
                        other[last] = byte;
                        let others = others.intersection(&ByteSet::single(byte).complement());
                        self.push(lexicon, other, Rest::Language(language, others), fuel)?;
                    }
                    // What was pushed is no less, and of equal length it is greater.
                    self.pop();
                    if lexicon.is_nullable(language) && text.len() as u32 == length {
                        return Ok(Some(text));
                    }
                }
            }
        }
        Ok(None)
    }

    fn pop(&mut self) {
        if let Some(Reverse((_, text, _))) = self.waiting.pop() {
            self.text_bytes -= allocated(text.len());
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.text_bytes
            + with_room(
                self.waiting.len() * size_of::<Waiting>() + self.rests.len() * size_of::<Rest>(),
            )
    }
}
