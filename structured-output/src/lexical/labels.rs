//! Sets of characters, as tries of tokens tell them apart.
//!
//! Beyond ASCII patterns keep few characters apart, but for white space: `.` leaves out the ends of
//! lines, `\S` all of it. So it is one class of such characters, and all others are another.

use std::ops::RangeInclusive;

use super::byte_set::ByteSet;

/// Bytes from the first to the last one.
type Bytes = (u8, u8);

/// Bytes of characters beyond ASCII, after the second.
const MORE: Bytes = (0x80, 0xbf);

/// All characters beyond ASCII, by their bytes (table 3-7 of the Unicode standard).
const ALL: [&[Bytes]; 8] = [
    &[(0xc2, 0xdf), MORE],
    &[(0xe0, 0xe0), (0xa0, 0xbf), MORE],
    &[(0xe1, 0xec), MORE, MORE],
    &[(0xed, 0xed), (0x80, 0x9f), MORE],
    &[(0xee, 0xef), MORE, MORE],
    &[(0xf0, 0xf0), (0x90, 0xbf), MORE, MORE],
    &[(0xf1, 0xf3), MORE, MORE, MORE],
    &[(0xf4, 0xf4), (0x80, 0x8f), MORE, MORE],
];

/// All of them but [`is_space`].
const BUT_SPACES: [&[Bytes]; 25] = [
    &[(0xc2, 0xc2), (0x80, 0x84)],
    &[(0xc2, 0xc2), (0x86, 0x9f)],
    &[(0xc2, 0xc2), (0xa1, 0xbf)],
    &[(0xc3, 0xdf), MORE],
    &[(0xe0, 0xe0), (0xa0, 0xbf), MORE],
    &[(0xe1, 0xe1), (0x80, 0x99), MORE],
    &[(0xe1, 0xe1), (0x9a, 0x9a), (0x81, 0xbf)],
    &[(0xe1, 0xe1), (0x9b, 0xbf), MORE],
    &[(0xe2, 0xe2), (0x80, 0x80), (0x8b, 0xa7)],
    &[(0xe2, 0xe2), (0x80, 0x80), (0xaa, 0xae)],
    &[(0xe2, 0xe2), (0x80, 0x80), (0xb0, 0xbf)],
    &[(0xe2, 0xe2), (0x81, 0x81), (0x80, 0x9e)],
    &[(0xe2, 0xe2), (0x81, 0x81), (0xa0, 0xbf)],
    &[(0xe2, 0xe2), (0x82, 0xbf), MORE],
    &[(0xe3, 0xe3), (0x80, 0x80), (0x81, 0xbf)],
    &[(0xe3, 0xe3), (0x81, 0xbf), MORE],
    &[(0xe4, 0xec), MORE, MORE],
    &[(0xed, 0xed), (0x80, 0x9f), MORE],
    &[(0xee, 0xee), MORE, MORE],
    &[(0xef, 0xef), (0x80, 0xba), MORE],
    &[(0xef, 0xef), (0xbb, 0xbb), (0x80, 0xbe)],
    &[(0xef, 0xef), (0xbc, 0xbf), MORE],
    &[(0xf0, 0xf0), (0x90, 0xbf), MORE, MORE],
    &[(0xf1, 0xf3), MORE, MORE, MORE],
    &[(0xf4, 0xf4), (0x80, 0x8f), MORE, MORE],
];

/// Unicode's white space beyond ASCII, the ends of lines and the byte order mark, which ECMAScript
/// adds. Each is the only one to end as it does: a character that was begun may become another one.
fn is_space(code_point: u32) -> bool {
    matches!(
        code_point,
        0x85 | 0xa0 | 0x1680 | 0x2000
            ..=0x200a | 0x2028 | 0x2029 | 0x202f | 0x205f | 0x3000 | 0xfeff
    )
}

/// Characters beyond ASCII.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Others {
    /// Not all of them.
    Some,
    /// All but white space.
    ButSpaces,
    /// All.
    All,
}

impl Others {
    /// All of `found` of which it holds that each of its characters, by their bytes, is as `holds` asks:
    /// called with the bytes that may come at each place.
    pub(crate) fn all_that<E>(
        mut holds: impl FnMut(&[ByteSet]) -> Result<bool, E>,
    ) -> Result<Self, E> {
        let mut all_hold = |sequences: &[&[Bytes]]| {
            for sequence in sequences {
                let mut bytes = [ByteSet::EMPTY; 4];
                for (bytes, &(low, high)) in bytes.iter_mut().zip(*sequence) {
                    *bytes = ByteSet::range(low, high);
                }
                if !holds(&bytes[..sequence.len()])? {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        if all_hold(&ALL)? {
            return Ok(Self::All);
        }
        Ok(match all_hold(&BUT_SPACES)? {
            true => Self::ButSpaces,
            false => Self::Some,
        })
    }
}

/// A set of labels of bytes: ASCII characters each, characters beyond ASCII as if they were two, white
/// space and all others, also where a word ends within one, and as another one what remains: NUL, U+0001,
/// DEL, and bytes that are no character.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Labels(pub(crate) u128);

impl Labels {
    const OTHER: u128 = 1;
    /// White space beyond ASCII.
    const SPACE: u128 = 1 << 1;
    /// All other characters beyond ASCII.
    const CHARACTER: u128 = 1 << 127;

    pub(crate) fn insert(&mut self, label: u8) {
        self.0 |= match label {
            2..127 => 1 << label,
            _ => Self::OTHER,
        };
    }

    /// Adds a character beyond ASCII.
    pub(crate) fn insert_character(&mut self, code_point: u32) {
        self.0 |= match is_space(code_point) {
            true => Self::SPACE,
            false => Self::CHARACTER,
        };
    }

    /// Adds a character that is only begun.
    pub(crate) fn insert_begun(&mut self) {
        self.0 |= Self::CHARACTER;
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// The bytes that lead from a state to itself, as labels: no subset of this has a label that
    /// leads elsewhere. `others` tells which characters beyond ASCII lead there as well.
    pub(crate) fn within(bytes: &ByteSet, others: Others) -> Self {
        let mut labels = Self::default();
        for byte in bytes.iter().filter(|byte| (2..127).contains(byte)) {
            labels.insert(byte);
        }
        if (127..=255).chain([0, 1]).all(|byte| bytes.contains(byte)) {
            labels.0 |= Self::OTHER | Self::SPACE | Self::CHARACTER;
        }
        labels.0 |= match others {
            Others::Some => 0,
            Others::ButSpaces => Self::CHARACTER,
            Others::All => Self::CHARACTER | Self::SPACE,
        };
        labels
    }

    /// How many there are.
    pub(crate) fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether one of these is in another set.
    pub(crate) fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether all of these are in another set.
    pub(crate) fn is_subset(self, of: Self) -> bool {
        self.0 & !of.0 == 0
    }

    /// These, and all characters beyond ASCII.
    pub(crate) fn with_others(self) -> Self {
        Self(self.0 | Self::SPACE | Self::CHARACTER)
    }

    /// Whether there are but ASCII characters.
    pub(crate) fn is_ascii(self) -> bool {
        self.0 & (Self::OTHER | Self::SPACE | Self::CHARACTER) == 0
    }
}

/// What may come second in a character beyond ASCII that begins with a byte, how many bytes come after
/// that, and what the first byte says of the character.
pub(crate) fn characters_from(first: u8) -> Option<(RangeInclusive<u8>, u32, u32)> {
    let is_first = |sequence: &&[Bytes]| {
        let of_first = sequence.first();
        of_first.is_some_and(|&(low, high)| (low..=high).contains(&first))
    };
    let sequence = ALL.into_iter().find(is_first)?;
    let &(low, high) = sequence.get(1)?;
    let more = sequence.len() as u32 - 2;
    // Of 2, 3 and 4 bytes, the first one has 5, 4 and 3 bits of the character.
    let bits = u32::from(first) & (0x1f >> more);
    Some((low..=high, more, bits))
}

/// Bytes of characters beyond ASCII, after the second.
pub(crate) const CONTINUATION: RangeInclusive<u8> = MORE.0..=MORE.1;

#[cfg(test)]
mod tests {
    use super::*;

    /// The characters of some sequences are those of Rust's, each once.
    #[test]
    fn sequences_are_characters() {
        let of = |sequences: &[&[Bytes]], char: char| {
            let mut utf8 = [0; 4];
            let bytes = char.encode_utf8(&mut utf8).as_bytes();
            let is_one = |sequence: &&&[Bytes]| {
                sequence.len() == bytes.len()
                    && sequence
                        .iter()
                        .zip(bytes)
                        .all(|(&(low, high), byte)| (low..=high).contains(byte))
            };
            sequences.iter().filter(is_one).count()
        };
        for char in '\u{80}'..=char::MAX {
            assert_eq!(of(&ALL, char), 1, "{char:?}");
            let is_other = !is_space(u32::from(char));
            assert_eq!(of(&BUT_SPACES, char), usize::from(is_other), "{char:?}");
            assert!(is_other || char.is_whitespace() || char == '\u{feff}');
            assert!(!is_other || !char.is_whitespace(), "{char:?}");
        }
        // And there is nothing else in them.
        let size = |sequences: &[&[Bytes]]| -> u32 {
            let sizes = sequences.iter().map(|sequence| {
                let bytes = sequence.iter();
                bytes
                    .map(|&(low, high)| u32::from(high - low) + 1)
                    .product::<u32>()
            });
            sizes.sum()
        };
        assert_eq!(size(&ALL), 0x11_0000 - 0x800 - 0x80);
        let num_spaces = (0x80..0x11_0000).filter(|&code_point| is_space(code_point));
        assert_eq!(size(&ALL) - size(&BUT_SPACES), num_spaces.count() as u32);
    }

    #[test]
    fn a_first_byte_says_what_comes() {
        for char in [
            '\u{80}', '\u{a0}', '\u{7ff}', '\u{800}', '\u{3000}', '\u{ffff}', '😀',
        ] {
            let mut utf8 = [0; 4];
            let bytes = char.encode_utf8(&mut utf8).as_bytes();
            let (seconds, more, mut bits) = characters_from(bytes[0]).unwrap();
            assert!(seconds.contains(&bytes[1]));
            assert_eq!(more as usize, bytes.len() - 2);
            for byte in &bytes[1..] {
                bits = bits << 6 | u32::from(byte & 0x3f);
            }
            assert_eq!(bits, u32::from(char));
        }
        assert!(
            [0x7f, 0x80, 0xc1, 0xf5, 0xff]
                .iter()
                .all(|&b| characters_from(b).is_none())
        );
    }
}
