//! How the characters of a text that a pattern speaks of are spelled.

use crate::lexical::{ANY, ExprId, Lexicon};

/// What one character becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// Its UTF-8.
    Utf8,
    /// What it may be within the quotes of a JSON string under a constraint
    /// ([`Lexicon::json_constrained_char`]). No spelling begins another, so that a text is read in
    /// one way.
    JsonString,
}

impl Spelling {
    /// One character of a set; ranges ascending and apart.
    pub(super) fn chars(self, lexicon: &mut Lexicon, ranges: &[(char, char)]) -> ExprId {
        match self {
            Self::Utf8 => lexicon.code_points(ranges.iter().copied()),
            Self::JsonString => lexicon.json_char_of(ranges),
        }
    }

    /// Every text. For UTF-8 every string of bytes, which is cheaper and, beside a pattern, the same.
    pub(super) fn any(self, lexicon: &mut Lexicon) -> ExprId {
        match self {
            Self::Utf8 => ANY,
            Self::JsonString => {
                let char = lexicon.json_constrained_char();
                lexicon.star(char)
            }
        }
    }
}
