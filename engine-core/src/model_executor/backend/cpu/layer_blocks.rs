//! Memory for the blocks of all layers, in which the layers' parts of one block follow one another.
//!
//! So a block that is written takes memory in one place. Were the blocks of each layer together, every layer would
//! take a huge page for its first block: on a model of 24 layers 96 MiB before anything is cached.

use std::sync::Arc;

use super::buffer::{Buffer, Element};
use crate::model_executor::error::ModelError;

/// The blocks of all layers, for whoever has a [`LayerBlocks`] of them.
struct AllBlocks<T: Element> {
    /// Of the buffer. Each layer reads and writes its own parts through it, and nobody uses the buffer itself.
    start: *mut T,
    len: usize,
    _buffer: Buffer<T>,
}

// SAFETY: the elements may be sent and shared, and who may read or write them is up to `LayerBlocks`.
unsafe impl<T: Element> Send for AllBlocks<T> {}
// SAFETY: as above.
unsafe impl<T: Element> Sync for AllBlocks<T> {}

/// One layer's part of every block. No other layer reads or writes it.
pub(crate) struct LayerBlocks<T: Element> {
    all: Arc<AllBlocks<T>>,
    num_layers: usize,
    layer: usize,
    /// Elements of a layer's part of a block.
    part_len: usize,
}

impl<T: Element> LayerBlocks<T> {
    /// `num_blocks` blocks of zeros for each of `num_layers` layers. Memory is taken from the system when it is first
    /// written.
    pub(crate) fn zeroed(
        what: &'static str,
        num_blocks: usize,
        num_layers: usize,
        part_len: usize,
    ) -> Result<Vec<Self>, ModelError> {
        let block_len = num_layers.saturating_mul(part_len);
        let mut buffer = Buffer::zeroed(what, num_blocks.saturating_mul(block_len))?;
        let all = Arc::new(AllBlocks {
            start: buffer.as_mut_ptr(),
            len: buffer.len(),
            _buffer: buffer,
        });
        let layers = (0..num_layers).map(|layer| Self {
            all: Arc::clone(&all),
            num_layers,
            layer,
            part_len,
        });
        Ok(layers.collect())
    }

    /// Where the layer's part of a block begins.
    #[inline(always)]
    fn first_of(&self, block: usize) -> usize {
        let first = (block * self.num_layers + self.layer) * self.part_len;
        assert!(first + self.part_len <= self.all.len, "block out of range");
        first
    }

    /// The layer's part of a block.
    #[inline(always)]
    pub(crate) fn part(&self, block: usize) -> &[T] {
        let first = self.first_of(block);
        // SAFETY: within the buffer. The elements are this layer's alone, and whoever writes some of them sees to it
        // that nobody reads them.
        unsafe { std::slice::from_raw_parts(self.all.start.add(first), self.part_len) }
    }

    /// Elements `offset..offset + len` of the layer's part of a block, for writing.
    ///
    /// # Safety
    /// Nobody else may read or write what is written of these elements as long as the pointer is used.
    #[inline(always)]
    pub(crate) unsafe fn ptr(&self, block: usize, offset: usize, len: usize) -> *mut T {
        let end = offset.checked_add(len);
        assert!(
            end.is_some_and(|end| end <= self.part_len),
            "kernel out of bounds"
        );
        // SAFETY: inside the layer's part, as just checked.
        unsafe { self.all.start.add(self.first_of(block) + offset) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_have_parts_of_their_own_in_every_block() {
        let (num_blocks, num_layers, part_len) = (5, 3, 4);
        let layers = LayerBlocks::<u16>::zeroed("test", num_blocks, num_layers, part_len).unwrap();
        assert_eq!(layers.len(), num_layers);
        let value = |layer: usize, block: usize| (1 + 10 * layer + block) as u16;
        for (index, layer) in layers.iter().enumerate() {
            for block in 0..num_blocks {
                assert_eq!(layer.part(block), [0; 4]);
                for at in 0..part_len {
                    // SAFETY: nobody else uses the layers.
                    unsafe { layer.ptr(block, at, 1).write(value(index, block)) };
                }
            }
        }
        for (index, layer) in layers.iter().enumerate() {
            for block in 0..num_blocks {
                assert_eq!(layer.part(block), [value(index, block); 4]);
            }
        }
        // The layers' parts of a block follow one another.
        let starts = |block: usize| layers.iter().map(move |layer| layer.first_of(block));
        assert!(starts(0).eq([0, 4, 8]));
        assert!(starts(4).eq([48, 52, 56]));
    }

    #[test]
    fn a_layer_keeps_its_parts_when_the_others_are_gone() {
        let mut layers = LayerBlocks::<f32>::zeroed("test", 2, 2, 3).unwrap();
        let last = layers.pop().unwrap();
        drop(layers);
        // SAFETY: nobody else uses the layer.
        unsafe { last.ptr(1, 2, 1).write(7.0) };
        assert_eq!(last.part(1), [0.0, 0.0, 7.0]);
        assert_eq!(last.part(0), [0.0; 3]);
    }

    #[test]
    fn parts_may_be_empty_and_sizes_impossible() {
        let layers = LayerBlocks::<f32>::zeroed("test", 2, 2, 0).unwrap();
        assert!(layers[1].part(1).is_empty());
        for (num_blocks, num_layers, part_len) in [(usize::MAX, 2, 3), (2, usize::MAX, 3)] {
            let error = LayerBlocks::<f32>::zeroed("test", num_blocks, num_layers, part_len);
            assert!(matches!(
                error,
                Err(ModelError::OutOfMemory { what: "test", .. })
            ));
        }
    }

    #[test]
    #[should_panic(expected = "block out of range")]
    fn blocks_lie_within_the_buffer() {
        let layers = LayerBlocks::<u8>::zeroed("test", 2, 2, 3).unwrap();
        let _ = layers[0].part(2);
    }

    #[test]
    #[should_panic(expected = "kernel out of bounds")]
    fn a_layer_writes_its_own_part_alone() {
        let layers = LayerBlocks::<u8>::zeroed("test", 2, 2, 3).unwrap();
        // SAFETY: nobody else uses the layers.
        let _ = unsafe { layers[0].ptr(0, 2, 2) };
    }
}
