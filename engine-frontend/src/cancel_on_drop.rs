//! Work that ends with whoever waits for it.

use structured_output::CancelFlag;

/// Sets a flag when it is dropped. A future holds it: a request's time that is over, or a client that leaves,
/// drops the future, and the thread that works for it looks at the flag.
#[derive(Debug)]
pub(crate) struct CancelOnDrop(CancelFlag);

impl CancelOnDrop {
    /// A flag that isn't set yet.
    pub(crate) fn new() -> Self {
        Self(CancelFlag::new())
    }

    /// The flag, for who does the work.
    pub(crate) fn flag(&self) -> CancelFlag {
        self.0.clone()
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
