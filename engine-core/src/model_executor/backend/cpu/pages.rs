//! Where buffers lie: huge pages of the system's, or in this crate's own tests the heap, where a
//! sanitizer sees what reads or writes beyond them.

#[cfg(test)]
pub(super) use self::heap::Pages;
#[cfg(not(test))]
pub(super) use self::mapped::Pages;

#[cfg(not(test))]
mod mapped {
    use memmap2::MmapMut;

    /// Zeroed memory, aligned to a page.
    ///
    /// Streaming weights from huge pages was measured at 1.2 times the speed of 4 KiB pages.
    pub(in super::super) struct Pages(MmapMut);

    impl Pages {
        /// `bytes` zeros, more than none, taken from the system when they are first written; `None`
        /// where it has not that much.
        pub(in super::super) fn zeroed(bytes: usize) -> Option<Self> {
            let map = MmapMut::map_anon(bytes).ok()?;
            // A hint: where it is refused, small pages serve.
            #[cfg(target_os = "linux")]
            let _ = map.advise(memmap2::Advice::HugePage);
            Some(Self(map))
        }

        pub(in super::super) fn as_ptr(&self) -> *const u8 {
            self.0.as_ptr()
        }

        pub(in super::super) fn as_mut_ptr(&mut self) -> *mut u8 {
            self.0.as_mut_ptr()
        }
    }
}

#[cfg(test)]
mod heap {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::ptr::NonNull;

    /// Zeroed memory, aligned to a line of the cache.
    pub(in super::super) struct Pages {
        start: NonNull<u8>,
        layout: Layout,
    }

    // SAFETY: nobody else has the memory.
    unsafe impl Send for Pages {}
    // SAFETY: a shared reference gives a pointer to read from.
    unsafe impl Sync for Pages {}

    impl Pages {
        pub(in super::super) fn zeroed(bytes: usize) -> Option<Self> {
            let layout = Layout::from_size_align(bytes, 64).ok()?;
            // SAFETY: the layout is of more than no bytes, as its caller sees to.
            let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
            Some(Self { start, layout })
        }

        pub(in super::super) fn as_ptr(&self) -> *const u8 {
            self.start.as_ptr()
        }

        pub(in super::super) fn as_mut_ptr(&mut self) -> *mut u8 {
            self.start.as_ptr()
        }
    }

    impl Drop for Pages {
        fn drop(&mut self) {
            // SAFETY: allocated with this layout, and only once freed.
            unsafe { dealloc(self.start.as_ptr(), self.layout) };
        }
    }
}
