//! Memory for the weights of several cores, which each core gets as its standard input.

use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::Arc;

/// A file in memory. The first core fills and seals it while it loads, others map it.
#[derive(Debug, Clone)]
pub struct SharedWeights(Arc<OwnedFd>);

impl SharedWeights {
    /// An empty file; `None` where the system has no such files, and each core has weights of its own.
    #[cfg(target_os = "linux")]
    pub fn create() -> Option<Self> {
        use rustix::fs::{MemfdFlags, memfd_create};

        const FLAGS: MemfdFlags = MemfdFlags::CLOEXEC.union(MemfdFlags::ALLOW_SEALING);
        // Kernels before 6.3 don't know that a file is never executed.
        let file = memfd_create(c"formwork-weights", FLAGS | MemfdFlags::NOEXEC_SEAL)
            .or_else(|_| memfd_create(c"formwork-weights", FLAGS));
        match file {
            Ok(file) => Some(Self(Arc::new(file))),
            Err(error) => {
                tracing::warn!("each engine core has weights of its own: memfd_create: {error}");
                None
            }
        }
    }

    /// None here.
    #[cfg(not(target_os = "linux"))]
    pub fn create() -> Option<Self> {
        None
    }

    pub(super) fn to_stdio(&self) -> std::io::Result<Stdio> {
        Ok(self.0.try_clone()?.into())
    }
}
