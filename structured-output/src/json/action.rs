//! What a frame does: the lexemes it begins with, and what follows each of their ends.

use super::frame::Frame;
use crate::lexical::ExprId;

/// What a frame does, computed when it is first on top.
#[derive(Clone, Copy)]
pub(crate) struct Expansion {
    /// The frame's lexemes, each ended by a mark.
    pub(crate) entry: ExprId,
    /// Whether an action needs the lexeme's text.
    pub(crate) keeps_key: bool,
    /// Whether the lexeme's text is a part of that of an array's item.
    pub(crate) keeps_item: bool,
}

/// What follows the end of a lexeme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Frames that replace the top one, the last on top.
    Replace([Option<Frame>; 2]),
    /// Nothing; and where the frame below waits for a verdict, it is replaced by its outcome.
    Verdict(u32),
    /// An object's member with a key of its own: the frame after it depends on the key.
    Member { next: Frame, value: Frame },
}

impl Action {
    /// A frame in place of the top one.
    pub(crate) fn replace(frame: Frame) -> Self {
        Self::Replace([Some(frame), None])
    }
}
