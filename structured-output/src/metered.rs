//! Memory as it is taken: the system's allocator with a count for each thread.
//!
//! What a compilation takes on its way, such as the tables of a search, is too varied to be summed up from what it
//! holds. Where a program installs [`MeteredAllocator`], budgets of bytes are compared with what was in fact
//! allocated; where it doesn't, with the sums alone.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, with a count of the bytes that each thread has taken and not given back. It makes
/// [`CompileBudget::max_bytes`](crate::CompileBudget) and the memory of a matcher's call exact.
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: structured_output::MeteredAllocator = structured_output::MeteredAllocator;
///
/// let before = structured_output::MeteredAllocator::thread_bytes();
/// let held = vec![0_u8; 1000];
/// assert_eq!(structured_output::MeteredAllocator::thread_bytes() - before, 1000);
/// drop(held);
/// assert_eq!(structured_output::MeteredAllocator::thread_bytes(), before);
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct MeteredAllocator;

thread_local! {
    // Without a destructor, so that it can be read for as long as the thread allocates.
    static BYTES: Cell<isize> = const { Cell::new(0) };
}

impl MeteredAllocator {
    /// Bytes that this thread has taken and not given back; less than none where it gave back what others took.
    /// Always 0 where this isn't the program's allocator.
    pub fn thread_bytes() -> isize {
        BYTES.get()
    }
}

fn count(bytes: isize) {
    BYTES.set(BYTES.get().wrapping_add(bytes));
}

/// A layout has at most `isize::MAX` bytes.
fn size(layout: Layout) -> isize {
    layout.size() as isize
}

// SAFETY: everything is handed to the system's allocator as it is; only a number is kept beside, in a cell
// that neither allocates nor panics.
unsafe impl GlobalAlloc for MeteredAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract, which is the same.
        let pointer = unsafe { System.alloc(layout) };
        if !pointer.is_null() {
            count(size(layout));
        }
        pointer
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let pointer = unsafe { System.alloc_zeroed(layout) };
        if !pointer.is_null() {
            count(size(layout));
        }
        pointer
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-size(layout));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as above.
        let moved = unsafe { System.realloc(pointer, layout, new_size) };
        if !moved.is_null() {
            count(new_size as isize - size(layout));
        }
        moved
    }
}
