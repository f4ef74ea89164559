//! Whether the process is a fork of the one that made an object: threads that held its locks are not there.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// How many forks lie between the first process and this one.
static DEPTH: AtomicU32 = AtomicU32::new(0);
static REGISTERED: Once = Once::new();

extern "C" fn count_fork() {
    DEPTH.fetch_add(1, Ordering::Relaxed);
}

/// The process that an object was made in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Process(u32);

impl Process {
    /// This one.
    pub(crate) fn current() -> Self {
        // SAFETY: the function only counts, which is allowed in a fork.
        REGISTERED.call_once(|| unsafe {
            libc::pthread_atfork(None, None, Some(count_fork));
        });
        Self(DEPTH.load(Ordering::Relaxed))
    }

    /// An exception if this is a fork of it.
    pub(crate) fn check(self, what: &str) -> PyResult<()> {
        if self.0 == DEPTH.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(PyRuntimeError::new_err(format!(
            "this {what} was made before os.fork(), whose child has none of its threads: make one in the \
             child (a pickled GrammarCompiler or CompiledGrammar can be loaded there), or start processes \
             by \"spawn\""
        )))
    }
}
