//! How much memory tables take, told by what is in them.
//!
//! What a constraint needs is held against limits. So it is to be the same number whoever filled the
//! tables before: the room that a table has left, or the size that it jumps to with one entry more,
//! is no part of it.

/// Bytes of a table whose entries take so many: it doubles when it is full, so that on the average
/// half as much again is free.
pub(crate) fn with_room(bytes: usize) -> usize {
    bytes + bytes / 2
}
