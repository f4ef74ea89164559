//! Keys of clients.

/// A key that a request has shown.
#[derive(Debug)]
pub(super) struct ApiKey;
