//! Marks of lexemes: what a lexeme of a frame ended as.
//!
//! They are the same in every frame, so that lexemes are the same too. Below [`FIRST_GOAL`] they are
//! what JSON tells apart, with the keys of an object by their numbers; from there on two for each goal
//! of a value but the first.

/// A scalar that meets the first goal; also white space before something else.
pub(super) const SCALAR: u16 = 0;
/// `[`.
pub(super) const OPEN_ARRAY: u16 = 1;
/// `{`.
pub(super) const OPEN_OBJECT: u16 = 2;
/// A closing bracket with which the first goal is met.
pub(super) const CLOSE: u16 = 3;
/// Another item or member follows.
pub(super) const COMMA: u16 = 4;
/// That of an object's first name; those of the others follow, then those of the classes of keys.
pub(super) const FIRST_KEY: u16 = 5;
/// Two marks for each goal but the first come after it: of a scalar, and of a closing bracket.
const FIRST_GOAL: u16 = 60_000;

/// The mark of a scalar that meets a goal.
pub(super) fn scalar_mark(goal: usize) -> u16 {
    match goal {
        0 => SCALAR,
        _ => FIRST_GOAL + 2 * goal as u16,
    }
}

/// The mark of a closing bracket with which a goal is met.
pub(super) fn close_mark(goal: usize) -> u16 {
    match goal {
        0 => CLOSE,
        _ => FIRST_GOAL + 2 * goal as u16 + 1,
    }
}

/// The goal of a mark that ends a scalar, or else of one that closes.
pub(super) fn goal_of(mark: u16) -> u16 {
    mark.saturating_sub(FIRST_GOAL) / 2
}

/// The mark of one of an object's names.
pub(super) fn mark_of_name(name: u32) -> u16 {
    FIRST_KEY.saturating_add(name as u16)
}

/// Whether a mark is that of a scalar.
pub(super) fn is_scalar(mark: u16) -> bool {
    mark == SCALAR || (mark >= FIRST_GOAL && mark.is_multiple_of(2))
}

/// Whether a closing bracket ends with a mark, where it isn't that of a scalar.
pub(super) fn is_close(mark: u16) -> bool {
    mark == CLOSE || mark >= FIRST_GOAL
}
