//! Memory of the CPU backend: allocated once, zeroed, on huge pages where the system has them.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use super::pages::Pages;
use crate::model_executor::error::ModelError;

/// What a [`Buffer`] may hold.
///
/// # Safety
/// Every bit pattern must be a value of the type, zeros above all, it must have no padding, and its
/// alignment must divide 64.
pub(crate) unsafe trait Element: Copy + Send + Sync + 'static {}
// SAFETY: any 32 bits are an f32; it is aligned to 4.
unsafe impl Element for f32 {}
// SAFETY: any 8 bits are an i8; it is aligned to 1.
unsafe impl Element for i8 {}
// SAFETY: any 8 bits are a u8; it is aligned to 1.
unsafe impl Element for u8 {}
// SAFETY: any 32 bits are a u32; it is aligned to 4.
unsafe impl Element for u32 {}
// SAFETY: any 16 bits are a u16; it is aligned to 2.
unsafe impl Element for u16 {}

/// A fixed number of zeros to begin with, aligned to a line of the cache.
pub(crate) struct Buffer<T: Element> {
    /// `None` where the length is 0.
    pages: Option<Pages>,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Element> Buffer<T> {
    /// `len` zeros. Memory is taken from the system when it is first written.
    pub(crate) fn zeroed(what: &'static str, len: usize) -> Result<Self, ModelError> {
        Self::zeroed_by(Pages::zeroed, what, len)
    }

    /// The same for rows of which a step uses as many as it has tokens, from the first on: where they are not many,
    /// they take no more memory than is used.
    pub(crate) fn zeroed_rows(what: &'static str, len: usize) -> Result<Self, ModelError> {
        Self::zeroed_by(Pages::zeroed_rows, what, len)
    }

    fn zeroed_by(
        allocate: fn(usize) -> Option<Pages>,
        what: &'static str,
        len: usize,
    ) -> Result<Self, ModelError> {
        let Some(bytes) = len.checked_mul(size_of::<T>()) else {
            return Err(ModelError::OutOfMemory {
                what,
                bytes: usize::MAX,
            });
        };
        let pages = if bytes == 0 {
            None
        } else {
            Some(allocate(bytes).ok_or(ModelError::OutOfMemory { what, bytes })?)
        };
        Ok(Self {
            pages,
            len,
            element: PhantomData,
        })
    }
}

impl<T: Element> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.pages {
            // SAFETY: the pages hold `len` elements and are aligned; `Element` vouches for the rest.
            Some(pages) => unsafe { std::slice::from_raw_parts(pages.as_ptr().cast(), self.len) },
            None => &[],
        }
    }
}

impl<T: Element> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.pages {
            // SAFETY: as in `deref`; the borrow is exclusive.
            Some(pages) => unsafe {
                std::slice::from_raw_parts_mut(pages.as_mut_ptr().cast(), self.len)
            },
            None => &mut [],
        }
    }
}

/// The bytes of a slice, as they stand in memory.
pub(crate) fn as_bytes<T: Element>(slice: &[T]) -> &[u8] {
    // SAFETY: any element is so many bytes without padding, since any bits are an element.
    unsafe { std::slice::from_raw_parts(slice.as_ptr().cast(), size_of_val(slice)) }
}

/// The bytes of a slice, for writing: any bits are elements.
pub(crate) fn as_bytes_mut<T: Element>(slice: &mut [T]) -> &mut [u8] {
    // SAFETY: as in `as_bytes`, and any bytes are elements; the borrow is exclusive.
    unsafe { std::slice::from_raw_parts_mut(slice.as_mut_ptr().cast(), size_of_val(slice)) }
}

/// A slice whose parts the tiles of a job write. Which tile writes what is up to the kernel.
#[derive(Clone, Copy)]
pub(crate) struct SharedMut<'a, T> {
    start: *mut T,
    len: usize,
    borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: access goes through `ptr` alone, whose callers vouch that no two threads touch the same
// elements.
unsafe impl<T: Send> Send for SharedMut<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SharedMut<'_, T> {}

impl<'a, T> SharedMut<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self {
            start: slice.as_mut_ptr(),
            len: slice.len(),
            borrow: PhantomData,
        }
    }

    /// Elements `offset..offset + len`, for writing.
    ///
    /// # Safety
    /// No other thread may touch what is read or written of these elements during the job.
    #[inline(always)]
    pub(crate) unsafe fn ptr(self, offset: usize, len: usize) -> *mut T {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.len),
            "kernel out of bounds"
        );
        // SAFETY: inside the slice, as just checked.
        unsafe { self.start.add(offset) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_zero_writable_and_aligned() {
        let mut buffer = Buffer::<f32>::zeroed("test", 1000).unwrap();
        assert!(buffer.iter().all(|value| *value == 0.0));
        assert_eq!(buffer.as_ptr() as usize % 64, 0);
        buffer[999] = 3.0;
        assert_eq!(buffer[999], 3.0);
        assert!(Buffer::<u16>::zeroed("test", 0).unwrap().is_empty());
    }

    #[test]
    fn an_impossible_size_is_an_error() {
        assert!(matches!(
            Buffer::<f32>::zeroed("test", usize::MAX),
            Err(ModelError::OutOfMemory { what: "test", .. })
        ));
    }

    #[test]
    #[should_panic(expected = "kernel out of bounds")]
    fn shared_parts_lie_within_the_slice() {
        let mut values = [0u16; 4];
        // SAFETY: one thread only.
        let _ = unsafe { SharedMut::new(&mut values).ptr(2, 3) };
    }
}
