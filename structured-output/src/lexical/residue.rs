//! Decimals that are multiples of a number, as states of an automaton that is computed, not stored.
//!
//! The multiples of `modulus / 10^places` are the decimals whose digits up to `places` places after the
//! point, read as one whole number, leave no remainder. A state is the remainder of the digits so
//! far; its derivative by a digit is arithmetic, and so is the distance to the nearest multiple: any
//! `e` more digits reach ten to the power of `e` numbers in a row, one of which is a multiple if and
//! only if the gap to the next one is smaller than that. No other node would do: as expressions,
//! the states of one modulus depend on each other in circles. What two have in common is one again, so
//! that two large numbers of which something is to be a multiple are not searched for.

use hashbrown::HashMap;

use super::arena::{EMPTY, ExprId, Lexicon, Node};
use super::byte_set::ByteSet;

/// Zeros after the last other digit of a fraction, at most.
const MAX_ZEROS: u8 = 4;

/// What is left of a decimal, as an unsigned text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Residue {
    /// At least 1, at most [`MAX_MODULUS`].
    pub(crate) modulus: u64,
    /// Of the digits so far, below `modulus`.
    pub(crate) remainder: u64,
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

/// Largest [`Residue::modulus`]: eighteen digits reach a multiple of any.
pub(crate) const MAX_MODULUS: u64 = 10_u64.pow(18);

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The inverse of a number that has no divisor in common with the modulus (Euclid); 0 of the modulus 1.
fn inverse(number: u64, modulus: u64) -> u64 {
    let (mut rest, mut next) = (i128::from(modulus), i128::from(number % modulus));
    let (mut factor, mut next_factor) = (0_i128, 1_i128);
    while next != 0 {
        let times = rest / next;
        (rest, next) = (next, rest - times * next);
        (factor, next_factor) = (next_factor, factor - times * next_factor);
    }
    factor.rem_euclid(i128::from(modulus)) as u64
}

impl Residue {
    /// The step that a number with `places` places left must be a multiple of.
    fn step(self, places: u8) -> u64 {
        let power = 10_u64.pow(u32::from(places));
        self.modulus / greatest_common_divisor(self.modulus, power)
    }

    /// The least number of `digits` digits that makes a multiple with `places` places left then, or
    /// the next one.
    fn gap(self, digits: u8, places: u8, above_zero: bool) -> Option<u64> {
        let (step, power) = (self.step(places), 10_u64.pow(u32::from(digits)));
        let remainder = self.remainder % step;
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

    /// The same numbers, counted in smaller parts: to that many places. `None` where these are too many.
    fn to_places(self, places: u8) -> Option<Self> {
        // What the digits so far leave counts times ten to the power of the places, so that more of these
        // change nothing but the modulus.
        let power = 10_u64.pow(u32::from(places.checked_sub(self.places)?));
        let modulus = self.modulus.checked_mul(power)?;
        (modulus <= MAX_MODULUS).then_some(Self {
            modulus,
            places,
            ..self
        })
    }

    /// The one of the equal states that has the least remainder: what the digits so far leave counts once
    /// it is times ten to the power of the places.
    fn reduced(self) -> Self {
        Self {
            remainder: self.remainder % self.step(self.places),
            ..self
        }
    }

    /// What two have in common that are at the same place of a text: the multiples of the least common
    /// multiple (by the Chinese remainder theorem). `None` where that is too large, or where no digits so
    /// far lead to both.
    fn and(self, other: Self) -> Option<Self> {
        if self.part != other.part {
            return None;
        }
        let places = self.places.max(other.places);
        let (one, other) = (self.to_places(places)?, other.to_places(places)?);
        let divisor = greatest_common_divisor(one.modulus, other.modulus);
        let modulus = one.modulus.checked_mul(other.modulus / divisor)?;
        if modulus > MAX_MODULUS {
            return None;
        }
        let (step, other_step) = (one.step(places), other.step(places));
        let common = greatest_common_divisor(step, other_step);
        let (from, to) = (one.remainder % step, other.remainder % other_step);
        let difference = i128::from(to) - i128::from(from);
        if difference % i128::from(common) != 0 {
            return None;
        }
        // As many times the one's step as lead to what the other's leaves. All is below 2^120.
        let rest = i128::from(other_step / common);
        let times = difference / i128::from(common) % rest
            * i128::from(inverse(step / common, other_step / common));
        let remainder = i128::from(from) + i128::from(step) * times.rem_euclid(rest);
        Some(Self {
            modulus,
            remainder: remainder as u64,
            places,
            part: self.part,
        })
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
        // Below 2^64: ten times the largest modulus is.
        let appended = self.remainder * 10 + u64::from(digit);
        let remainder = appended % self.modulus;
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

/// An interned residue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct ResidueId(pub(super) u32);

/// All residues, each once.
#[derive(Clone, Default)]
pub(super) struct Residues {
    all: Vec<Residue>,
    ids: HashMap<Residue, ResidueId>,
}

impl Residues {
    pub(super) fn get(&self, id: ResidueId) -> Residue {
        self.all[id.0 as usize]
    }

    fn id_of(&mut self, residue: Residue) -> ResidueId {
        let next = ResidueId(self.all.len() as u32);
        let id = *self.ids.entry(residue).or_insert(next);
        if id == next {
            self.all.push(residue);
        }
        id
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.all.len() * (size_of::<Residue>() + size_of::<(Residue, ResidueId)>() + 1)
    }
}

impl Lexicon {
    /// The rests of decimals that make a multiple; [`EMPTY`] where there is none.
    pub(crate) fn residue(&mut self, residue: Residue) -> ExprId {
        debug_assert!((1..=MAX_MODULUS).contains(&residue.modulus) && residue.places <= MAX_PLACES);
        match residue.min_bytes() {
            Some(_) => {
                let id = self.residues.id_of(residue.reduced());
                self.intern(Node::Residue(id), &[])
            }
            None => EMPTY,
        }
    }

    /// Makes one of all residues among the operands of an intersection, as far as that can be.
    pub(super) fn join_residues(&mut self, list: &mut Vec<ExprId>) {
        let is_residue = |lexicon: &Self, expr: ExprId| match lexicon.node(expr) {
            Node::Residue(id) => Some(lexicon.residues.get(id)),
            _ => None,
        };
        let Some(first) = list.iter().position(|&one| is_residue(self, one).is_some()) else {
            return;
        };
        let Some(mut joined) = is_residue(self, list[first]) else {
            return;
        };
        let mut others = Vec::new();
        let mut has_joined = false;
        for expr in list.split_off(first + 1) {
            match is_residue(self, expr).and_then(|other| joined.and(other)) {
                Some(both) => {
                    joined = both;
                    has_joined = true;
                }
                None => others.push(expr),
            }
        }
        if has_joined {
            list[first] = self.residue(joined);
        }
        list.append(&mut others);
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
