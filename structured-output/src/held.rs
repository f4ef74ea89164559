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

/// Bytes that the allocator takes for a piece of memory: its own eight, in steps of sixteen. Nothing for
/// nothing.
pub(crate) fn allocated(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        _ => (bytes + 8).next_multiple_of(16),
    }
}

/// The same for what is shared by an `Arc`, which counts in front of it.
pub(crate) fn shared(bytes: usize) -> usize {
    allocated(bytes + 16)
}
