//! Memory that an input takes, counted by the allocator over all threads.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that the process may have allocated at a time; more is refused, so that a finding ends this
/// process rather than others.
const MAX_LIVE_BYTES: usize = 2 << 30;

/// Bytes that any input may take, however short.
const MAX_FIXED_BYTES: usize = 64 << 20;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, with a count.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// True if there may be so many bytes more.
fn take(bytes: usize) -> bool {
    let live = LIVE
        .fetch_add(bytes, Ordering::Relaxed)
        .saturating_add(bytes);
    if live > MAX_LIVE_BYTES {
        LIVE.fetch_sub(bytes, Ordering::Relaxed);
        return false;
    }
    PEAK.fetch_max(live, Ordering::Relaxed);
    COUNT.fetch_add(1, Ordering::Relaxed);
    true
}

// SAFETY: every method passes its arguments on to the system's allocator and returns what that
// returned, or null, which is an allocator's way to refuse. A block that is moved counts twice while it
// is moved.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !take(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promise about `layout` is the one that `System` needs.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !take(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promise about `layout` is the one that `System` needs.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if !take(new_size) {
            return std::ptr::null_mut();
        }
        // SAFETY: `pointer` came from this allocator with this layout, which is `System`'s, and the
        // caller's promise about `new_size` is the one that `System` needs.
        let moved = unsafe { System.realloc(pointer, layout, new_size) };
        let freed = if moved.is_null() {
            new_size
        } else {
            layout.size()
        };
        LIVE.fetch_sub(freed, Ordering::Relaxed);
        moved
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `pointer` came from `Self::alloc` with this layout, which is `System`'s.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// How often memory was taken: where it goes up, something works.
pub(crate) fn count() -> usize {
    COUNT.load(Ordering::Relaxed)
}

/// Counts what is taken while it exists.
pub(crate) struct Meter {
    before: usize,
}

impl Meter {
    pub(crate) fn start() -> Self {
        let before = LIVE.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        Self { before }
    }

    /// The most that was taken at a time.
    pub(crate) fn peak(&self) -> usize {
        PEAK.load(Ordering::Relaxed).saturating_sub(self.before)
    }

    /// Holds the peak against the promise for an input of so many bytes: 64 MiB and 16 bytes for each.
    ///
    /// # Panics
    /// It took more.
    pub(crate) fn check(&self, num_bytes: usize) {
        self.check_against(MAX_FIXED_BYTES + 16 * num_bytes, num_bytes);
    }

    /// Holds the peak against another limit.
    ///
    /// # Panics
    /// It took more.
    pub(crate) fn check_against(&self, most: usize, num_bytes: usize) {
        let peak = self.peak();
        let (mib, most_mib) = (peak >> 20, most >> 20);
        assert!(
            peak <= most,
            "too much memory: {mib} MiB for {num_bytes} bytes, more than {most_mib} MiB"
        );
    }
}
