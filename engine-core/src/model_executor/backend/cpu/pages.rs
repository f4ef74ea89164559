//! Where buffers lie: huge pages of the system's, or in this crate's own tests the heap, where a
//! sanitizer sees what reads or writes beyond them.

#[cfg(test)]
pub(super) use self::heap::Pages;
#[cfg(not(test))]
pub(super) use self::mapped::Pages;

mod mapped {
    use std::sync::{Arc, Mutex, Weak};

    use memmap2::{MmapMut, MmapRaw};

    use crate::lock::lock;

    /// Bytes that are taken from the system at once for what is smaller. Matrices of a megabyte lie on small
    /// pages where each has a mapping of its own, and the ends of larger ones.
    const REGION: usize = 64 << 20;

    /// Fewest bytes that are on huge pages. A core whose matrices are in memory that it shares has little but vectors of
    /// its own, which would take a huge page for themselves.
    const MATRIX: usize = 64 << 10;

    /// Fewest bytes that get a mapping of their own, of whose end little is on small pages.
    const LARGE: usize = 32 << 20;

    /// Fewest bytes of rows that are on huge pages. Most steps use the first rows alone: of a smaller buffer the huge
    /// page that they are on would be most of what it ever takes.
    const LARGE_ROWS: usize = 16 << 20;

    /// Where buffers begin in a region: at a page.
    const ALIGN: usize = 4096;

    /// A region that is being filled, as long as there is a buffer in it, and the bytes given away. None
    /// is given twice: what a buffer leaves stays empty until the last one in its region is dropped.
    type Current = Mutex<(Weak<MmapRaw>, usize)>;

    /// The ones on small pages and on huge ones.
    static CURRENT: [Current; 2] = [const { Mutex::new((Weak::new(), 0)) }; 2];

    /// Zeroed memory, aligned to a page.
    ///
    /// Streaming weights from huge pages was measured at 1.2 times the speed of 4 KiB pages.
    pub(in super::super) struct Pages {
        region: Arc<MmapRaw>,
        /// Of the first byte, within the region.
        offset: usize,
        bytes: usize,
    }

    impl Drop for Pages {
        /// Gives the memory back to the system, though the region may stay for others.
        fn drop(&mut self) {
            #[cfg(target_os = "linux")]
            // SAFETY: the pages are this buffer's alone, and nobody is given them again.
            unsafe {
                let advice = memmap2::UncheckedAdvice::DontNeed;
                let (offset, len) = (self.offset, self.num_bytes());
                let _ = self.region.unchecked_advise_range(advice, offset, len);
            }
        }
    }

    /// So many zeros by themselves, on huge pages or on small ones.
    #[cfg_attr(
        not(target_os = "linux"),
        expect(unused_variables, reason = "Linux alone has a choice")
    )]
    fn map(bytes: usize, is_huge: bool) -> Option<Arc<MmapRaw>> {
        let map = MmapMut::map_anon(bytes).ok()?;
        // A hint: where it is refused, the system's usual pages serve.
        #[cfg(target_os = "linux")]
        let _ = map.advise(match is_huge {
            true => memmap2::Advice::HugePage,
            false => memmap2::Advice::NoHugePage,
        });
        Some(Arc::new(map.into()))
    }

    impl Pages {
        /// `bytes` zeros, more than none, taken from the system when they are first written; `None`
        /// where it has not that much.
        pub(in super::super) fn zeroed(bytes: usize) -> Option<Self> {
            if bytes >= LARGE {
                return Self::of_its_own(bytes, true);
            }
            let is_huge = bytes >= MATRIX;
            let mut current = lock(&CURRENT[usize::from(is_huge)]);
            let (region, used) = &mut *current;
            let offset = used.next_multiple_of(ALIGN);
            if let Some(region) = region.upgrade()
                && offset + bytes <= REGION
            {
                *used = offset + bytes;
                return Some(Self {
                    region,
                    offset,
                    bytes,
                });
            }
            let Some(fresh) = map(REGION, is_huge) else {
                return Self::of_its_own(bytes, is_huge);
            };
            (*region, *used) = (Arc::downgrade(&fresh), bytes);
            Some(Self {
                region: fresh,
                offset: 0,
                bytes,
            })
        }

        /// The same for rows of which a step uses as many as it has tokens, from the first on.
        pub(in super::super) fn zeroed_rows(bytes: usize) -> Option<Self> {
            Self::of_its_own(bytes, bytes >= LARGE_ROWS)
        }

        /// Zeros in a region of their own.
        fn of_its_own(bytes: usize, is_huge: bool) -> Option<Self> {
            let region = map(bytes, is_huge)?;
            Some(Self {
                region,
                offset: 0,
                bytes,
            })
        }

        /// Of the pages that are this buffer's alone.
        fn num_bytes(&self) -> usize {
            self.bytes
                .next_multiple_of(ALIGN)
                .min(self.region.len() - self.offset)
        }

        pub(in super::super) fn as_ptr(&self) -> *const u8 {
            self.region.as_ptr().wrapping_add(self.offset)
        }

        pub(in super::super) fn as_mut_ptr(&mut self) -> *mut u8 {
            self.region.as_mut_ptr().wrapping_add(self.offset)
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

        pub(in super::super) fn zeroed_rows(bytes: usize) -> Option<Self> {
            Self::zeroed(bytes)
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

#[cfg(test)]
mod tests {
    use super::mapped::Pages;

    #[test]
    #[cfg(target_os = "linux")]
    #[cfg_attr(miri, ignore = "asks the system")]
    fn few_rows_of_a_small_buffer_take_few_small_pages() {
        let bytes = (16 << 20) - 1;
        let mut pages = Pages::zeroed_rows(bytes).unwrap();
        let start = pages.as_mut_ptr();
        let mut residency = vec![0; bytes.div_ceil(4096)];
        // SAFETY: within the pages, which are this test's; the system writes a byte for each page of 4 KiB.
        let result = unsafe {
            start.write_bytes(1, 5000);
            libc::mincore(start.cast(), bytes, residency.as_mut_ptr())
        };
        assert_eq!(result, 0);
        let resident: Vec<usize> = (0..residency.len())
            .filter(|page| residency[*page] & 1 == 1)
            .collect();
        assert_eq!(resident, [0, 1]);
    }

    #[test]
    #[cfg(target_os = "linux")]
    #[cfg_attr(miri, ignore = "asks the system")]
    fn vectors_take_small_pages() {
        let mut pages: Vec<_> = (0..3).map(|_| Pages::zeroed(5000).unwrap()).collect();
        for pages in &mut pages {
            let start = pages.as_mut_ptr();
            let mut residency = [0; 2];
            // SAFETY: within the pages, which are this test's; the system writes a byte for each page of 4 KiB.
            let result = unsafe {
                start.write(1);
                libc::mincore(start.cast(), 8192, residency.as_mut_ptr())
            };
            assert_eq!(result, 0);
            assert_eq!(residency.map(|page| page & 1), [1, 0]);
        }
    }

    #[test]
    fn mapped_pages_are_zero_aligned_and_their_owners_alone() {
        // Many in a region, more than fit one, some with a mapping of their own.
        let sizes = [
            1,
            4096,
            5000,
            1 << 20,
            (9 << 20) + 64,
            (31 << 20) + 1,
            33 << 20,
        ];
        let mut all = Vec::new();
        for (index, bytes) in sizes.iter().cycle().take(21).enumerate() {
            let mut pages = match index % 3 {
                0 => Pages::zeroed_rows(*bytes).unwrap(),
                _ => Pages::zeroed(*bytes).unwrap(),
            };
            let start = pages.as_mut_ptr();
            assert_eq!(start as usize % 4096, 0);
            assert_eq!(start.cast_const(), pages.as_ptr());
            for at in [0, bytes / 2, bytes - 1] {
                // SAFETY: within the pages, which are this test's.
                unsafe {
                    assert!(*start.add(at) == 0 || *bytes < 3, "{index} {at}");
                    *start.add(at) = index as u8 + 1;
                }
            }
            all.push((pages, *bytes));
        }
        // Other tests' pages end meanwhile, too.
        for (index, (pages, bytes)) in all.iter().enumerate() {
            for at in [0, bytes / 2, bytes - 1] {
                // SAFETY: as above.
                let value = unsafe { *pages.as_ptr().add(at) };
                assert_eq!(value, index as u8 + 1, "{at} of {bytes}");
            }
        }
    }
}
