//! What may happen to a core.

/// What a supervisor tells of its core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoreEvent {
    /// It is gone, and another one will be started. No request is sent until then.
    Died,
    /// Another core took its place.
    Restarted,
    /// None could be started in its place: it is gone for good.
    GaveUp,
}
