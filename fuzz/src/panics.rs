//! Panics of any thread.

use std::sync::{Mutex, Once};

static MESSAGE: Mutex<Option<String>> = Mutex::new(None);

/// Takes note of panics from now on.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Without a trace of calls, whose names take more memory than inputs may.
        std::panic::set_hook(Box::new(|panic| {
            eprintln!("{panic}");
            let message = panic.to_string();
            if let Ok(mut first) = MESSAGE.lock() {
                first.get_or_insert(message);
            }
        }));
    });
    take();
}

/// The first panic since the last call.
pub(crate) fn take() -> Option<String> {
    MESSAGE.lock().ok()?.take()
}
