//! Decimals that are multiples of a number, as states of an automaton that is computed, not stored.
//!
//! The multiples of `modulus / 10^places` are the decimals whose digits up to `places` places after the
//! point, read as one whole number, leave no remainder. A state is the remainder of the digits so
//! far; its derivative by a digit is arithmetic, and so is the distance to the nearest multiple: any
//! `e` more digits reach ten to the power of `e` numbers in a row, one of which is a multiple if and
//! only if the gap to the next one is smaller than that. No other node would do: as expressions,
//! the states of one modulus depend on each other in circles.

use super::arena::{EMPTY, ExprId, Lexicon, Node};
use super::byte_set::ByteSet;

/// Zeros after the last other digit of a fraction, at most.
const MAX_ZEROS: u8 = 4;

/// What is left of a decimal, as an unsigned text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Residue {
    /// At least 1.
    pub(crate) modulus: u32,
    /// Of the digits so far, below `modulus`.
    pub(crate) remainder: u32,
    /// Digits of a fraction that still count; further ones are zeros. At most [`MAX_PLACES`].
    pub(crate) places: u8,
    pub(crate) part: Part,
}

/// Where in the text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Part {
    /// Before the point, where more digits may follow.
    Whole,
    /// Before the point, where none may: after a zero in the first place.
    Zero,
    /// After the point and that many digits; the last `zeros` of them are zeros.
    Fraction { any: bool, zeros: u8 },
}

/// Largest [`Residue::places`].
pub(crate) const MAX_PLACES: u8 = 18;

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl Residue {
    /// The step that a number with `places` places left must be a multiple of.
    fn step(self, places: u8) -> u64 {
        let modulus = u64::from(self.modulus);
        modulus / greatest_common_divisor(modulus, 10_u64.pow(u32::from(places)))
    }

    /// The least number of `digits` digits that makes a multiple with `places` places left then, or
    /// the next one.
    fn gap(self, digits: u8, places: u8, above_zero: bool) -> Option<u64> {
        let (step, power) = (self.step(places), 10_u64.pow(u32::from(digits)));
        let remainder = u64::from(self.remainder) % step;
        let rest = (u128::from(remainder) * u128::from(power) % u128::from(step)) as u64;
        let gap = match (step - rest) % step {
            0 if above_zero => step,
            gap => gap,
        };
        (gap < power).then_some(gap)
    }

    pub(super) fn is_nullable(self) -> bool {
        let may_end = match self.part {
            Part::Whole | Part::Zero => true,
            Part::Fraction { any, zeros } => any && zeros <= MAX_ZEROS,
        };
        may_end && self.gap(0, self.places, false).is_some()
    }

    /// Length of the shortest rest; `None` where there is none.
    pub(super) fn min_bytes(self) -> Option<u32> {
        if self.is_nullable() {
            return Some(0);
        }
        match self.part {
            // Digits before the point do what digits after it would, in a smaller step.
            Part::Whole => (1..=MAX_PLACES)
                .find(|&digits| self.gap(digits, self.places, false).is_some())
                .map(u32::from),
            Part::Zero => {
                let after = self.after_point().min_bytes()?;
                Some(after + 1)
            }
            Part::Fraction { zeros, .. } => (1..=self.places)
                .find(|&digits| {
                    let too_many = zeros + digits > MAX_ZEROS;
                    self.gap(digits, self.places - digits, too_many).is_some()
                })
                .or_else(|| {
                    // Where all digits that count are used up, a zero may be what is missing.
                    let zero = self.places == 0 && zeros < MAX_ZEROS;
                    (zero && self.remainder == 0).then_some(1)
                })
                .map(u32::from),
        }
    }

    fn after_point(self) -> Self {
        Self {
            part: Part::Fraction {
                any: false,
                zeros: 0,
            },
            ..self
        }
    }

    fn after_digit(self, digit: u8) -> Option<Self> {
        let appended = u64::from(self.remainder) * 10 + u64::from(digit);
        let remainder = (appended % u64::from(self.modulus)) as u32;
        match self.part {
            Part::Whole => Some(Self { remainder, ..self }),
            Part::Zero => None,
            Part::Fraction { zeros, .. } => {
                let part = Part::Fraction {
                    any: true,
                    zeros: if digit == 0 {
                        (zeros + 1).min(MAX_ZEROS + 1)
                    } else {
                        0
                    },
                };
                match self.places {
                    0 if digit == 0 => Some(Self { part, ..self }),
                    0 => None,
                    places => Some(Self {
                        remainder,
                        places: places - 1,
                        part,
                        ..self
                    }),
                }
            }
        }
    }
}

impl Lexicon {
    /// The rests of decimals that make a multiple; [`EMPTY`] where there is none.
    pub(crate) fn residue(&mut self, residue: Residue) -> ExprId {
        debug_assert!(residue.modulus > 0 && residue.places <= MAX_PLACES);
        match residue.min_bytes() {
            Some(_) => self.intern(Node::Residue(residue), &[]),
            None => EMPTY,
        }
    }

    /// The derivatives of a residue.
    pub(super) fn residue_entries(&mut self, residue: Residue) -> Vec<(ByteSet, ExprId)> {
        let mut entries = Vec::with_capacity(11);
        for digit in 0..10 {
            if let Some(next) = residue.after_digit(digit) {
                entries.push((ByteSet::single(b'0' + digit), self.residue(next)));
            }
        }
        if matches!(residue.part, Part::Whole | Part::Zero) {
            let next = self.residue(residue.after_point());
            entries.push((ByteSet::single(b'.'), next));
        }
        entries
    }
}
