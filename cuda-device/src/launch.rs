//! Arguments of a kernel, as `cuLaunchKernel` takes them.

use std::ffi::c_void;

use crate::buffer::Buffer;

/// Most arguments of a kernel.
const MAX_ARGUMENTS: usize = 24;

/// Blocks of a grid.
pub(crate) type Grid = [u32; 3];

/// Arguments in order: each stands at the start of 8 bytes.
#[derive(Clone)]
pub(crate) struct Arguments {
    values: [u64; MAX_ARGUMENTS],
    len: usize,
}

impl Arguments {
    pub(crate) fn new() -> Self {
        Self {
            values: [0; MAX_ARGUMENTS],
            len: 0,
        }
    }

    fn push(mut self, value: u64) -> Self {
        // A kernel with more arguments would get too few of them: the tests launch each.
        debug_assert!(self.len < MAX_ARGUMENTS);
        if let Some(to) = self.values.get_mut(self.len) {
            *to = value;
            self.len += 1;
        }
        self
    }

    /// The address of a buffer's first byte.
    pub(crate) fn buffer(self, buffer: &Buffer) -> Self {
        self.push(buffer.address())
    }

    /// The address of a byte of a buffer.
    pub(crate) fn buffer_at(self, buffer: &Buffer, offset: usize) -> Self {
        self.push(buffer.address().wrapping_add(offset as u64))
    }

    /// An address of a room of scratch.
    pub(crate) fn address(self, address: u64) -> Self {
        self.push(address)
    }

    /// The address of a buffer's first byte, or null.
    pub(crate) fn optional(self, buffer: Option<&Buffer>) -> Self {
        self.push(buffer.map_or(0, Buffer::address))
    }

    /// The address of an entry of 4 bytes of a buffer, or null.
    pub(crate) fn optional_at(self, entry: Option<(&Buffer, usize)>) -> Self {
        match entry {
            Some((buffer, index)) => self.buffer_at(buffer, 4 * index),
            None => self.push(0),
        }
    }

    pub(crate) fn u32(self, value: u32) -> Self {
        self.push(u64::from(value))
    }

    pub(crate) fn u64(self, value: u64) -> Self {
        self.push(value)
    }

    pub(crate) fn f32(self, value: f32) -> Self {
        self.push(u64::from(value.to_bits()))
    }

    /// Pointers to the arguments; all the array, so that a kernel never reads past its end.
    pub(crate) fn pointers(&mut self) -> [*mut c_void; MAX_ARGUMENTS] {
        // The first bytes of a `u64` are those of a `u32` on the processors that have a GPU of CUDA.
        const { assert!(cfg!(target_endian = "little")) };
        self.values
            .each_mut()
            .map(|value| std::ptr::from_mut(value).cast())
    }
}
