//! Memory, counted where it is allocated, for each thread by itself.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;

use structured_output::MeteredAllocator;

/// The allocator of the programs, with the most that a thread held at once.
struct Counting;

thread_local! {
    static MOST: Cell<isize> = const { Cell::new(0) };
}

// SAFETY: everything is handed to the other allocator as it is; only a number is kept beside.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract, which is the same.
        let pointer = unsafe { MeteredAllocator.alloc(layout) };
        MOST.set(MOST.get().max(held()));
        pointer
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { MeteredAllocator.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as above.
        let moved = unsafe { MeteredAllocator.realloc(pointer, layout, new_size) };
        MOST.set(MOST.get().max(held()));
        moved
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes that this thread has allocated and not given back.
pub(crate) fn held() -> isize {
    MeteredAllocator::thread_bytes()
}

/// The most bytes that some work held at once, beyond what was held before.
pub(crate) fn most_held<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = held();
    MOST.set(before);
    let result = work();
    (result, (MOST.get() - before).max(0) as usize)
}
