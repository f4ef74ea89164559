//! What a request is called in the core.

use std::sync::Arc;

/// Internal id of a request, cheap to clone.
pub type RequestId = Arc<str>;
