//! How often a matcher had to go to other memory.

/// How often a matcher went to other memory.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Renewals {
    /// Times from one shared memory to the next.
    pub(crate) num_shared: u32,
    /// Tokens that it had accepted the last time; none before.
    pub(crate) num_accepted: Option<usize>,
}
