//! An allocator that counts what each thread holds, so that a test can say how much memory code takes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    /// Bytes allocated less bytes freed by this thread; below 0 where others' were freed.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// Adds to this thread's count.
fn count(bytes: isize) {
    // A thread that ends has no counts any more.
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
    });
}

fn size(layout: Layout) -> isize {
    isize::try_from(layout.size()).unwrap_or(isize::MAX)
}

// SAFETY: every call is the system allocator's, with the arguments as they came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(size(layout));
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-size(layout));
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(isize::try_from(new_size).unwrap_or(isize::MAX) - size(layout));
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

/// Bytes that this thread holds.
pub(crate) fn live() -> isize {
    LIVE.get()
}

/// Most bytes that this thread has held since [`reset_peak`].
pub(crate) fn peak() -> isize {
    PEAK.get()
}

/// Begins a new peak.
pub(crate) fn reset_peak() {
    PEAK.set(LIVE.get());
}
