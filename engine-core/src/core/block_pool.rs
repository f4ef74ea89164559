//! All KV blocks: who holds them, which are free, which can be found by their hash.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use protocol::{BlockStored, KVCacheEvent};

use crate::core::block_hash::BlockHash;
use crate::core::free_block_queue::FreeKVCacheBlockQueue;

/// The block that padding points at. It is never handed out and never freed.
pub const NULL_BLOCK_ID: u32 = 0;

/// What is known of one block.
#[derive(Debug, Clone, Copy, Default)]
pub struct KVCacheBlock {
    /// Block tables that hold it.
    ref_cnt: u32,
    /// Its name in the prefix cache. A free block keeps it until it is handed out again.
    block_hash: Option<BlockHash>,
}

/// The blocks with one hash. Equal blocks are not merged: a block table only ever grows, so a
/// block computed twice stays twice.
#[derive(Debug)]
enum CachedBlocks {
    One(u32),
    /// At least two, in the order in which they were cached.
    Many(Vec<u32>),
}

/// All KV blocks.
#[derive(Debug)]
pub struct BlockPool {
    blocks: Vec<KVCacheBlock>,
    /// Blocks that no table holds, the next to be used first.
    free_block_queue: FreeKVCacheBlockQueue,
    cached_block_hash_to_block: HashMap<BlockHash, CachedBlocks>,
    /// Changes of the prefix cache since [`Self::take_events`]; `None` where nobody asks for them.
    kv_event_queue: Option<Vec<KVCacheEvent>>,
}

impl BlockPool {
    /// A pool of the blocks `0..num_blocks`, all free but the null block.
    pub fn new(num_blocks: u32) -> Self {
        let mut free_block_queue = FreeKVCacheBlockQueue::new(num_blocks);
        (NULL_BLOCK_ID + 1..num_blocks).for_each(|block_id| free_block_queue.append(block_id));
        Self {
            blocks: vec![KVCacheBlock::default(); num_blocks as usize],
            free_block_queue,
            cached_block_hash_to_block: HashMap::new(),
            kv_event_queue: None,
        }
    }

    /// Notes from now on what changes in the prefix cache.
    pub fn enable_events(&mut self) {
        self.kv_event_queue.get_or_insert_default();
    }

    /// True if changes of the prefix cache are noted.
    pub fn has_events_enabled(&self) -> bool {
        self.kv_event_queue.is_some()
    }

    /// True if [`Self::take_events`] has something to give.
    pub fn has_events(&self) -> bool {
        self.kv_event_queue
            .as_ref()
            .is_some_and(|queue| !queue.is_empty())
    }

    /// The changes of the prefix cache since the last call.
    pub fn take_events(&mut self) -> Vec<KVCacheEvent> {
        match &mut self.kv_event_queue {
            Some(queue) => std::mem::take(queue),
            None => Vec::new(),
        }
    }

    /// Notes blocks that can be found since [`Self::cache_full_block`] said so.
    pub fn note_stored(&mut self, stored: BlockStored) {
        if let Some(queue) = &mut self.kv_event_queue {
            queue.push(KVCacheEvent::BlockStored(Box::new(stored)));
        }
    }

    /// Notes that no block has this hash any more.
    fn note_removed(&mut self, block_hash: BlockHash) {
        let Some(queue) = &mut self.kv_event_queue else {
            return;
        };
        let block_hash = block_hash.external();
        match queue.last_mut() {
            Some(KVCacheEvent::BlockRemoved { block_hashes }) => block_hashes.push(block_hash),
            _ => queue.push(KVCacheEvent::BlockRemoved {
                block_hashes: vec![block_hash],
            }),
        }
    }

    /// Blocks in all, the null block included.
    pub fn num_blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Blocks that no table holds.
    pub fn num_free_blocks(&self) -> usize {
        self.free_block_queue.len()
    }

    /// Tables that hold `block_id`.
    pub fn ref_cnt(&self, block_id: u32) -> u32 {
        self.blocks[block_id as usize].ref_cnt
    }

    /// The hash under which `block_id` can be found.
    pub fn block_hash(&self, block_id: u32) -> Option<BlockHash> {
        self.blocks[block_id as usize].block_hash
    }

    /// The free blocks, the next to be used first.
    pub fn free_block_ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.free_block_queue.iter()
    }

    /// Used share of the blocks, `0..=1`.
    pub fn usage(&self) -> f64 {
        let usable = self.num_blocks().saturating_sub(1);
        if usable == 0 {
            return 0.0;
        }
        (usable - self.num_free_blocks()) as f64 / usable as f64
    }

    /// A block with this hash, the one cached first where there are several.
    pub fn get_cached_block(&self, block_hash: &BlockHash) -> Option<u32> {
        match self.cached_block_hash_to_block.get(block_hash)? {
            CachedBlocks::One(block_id) => Some(*block_id),
            CachedBlocks::Many(block_ids) => block_ids.first().copied(),
        }
    }

    /// Takes `num_blocks` free blocks, one table each, and drops the hashes that they still had.
    /// `None`, and nothing taken, where there are fewer.
    pub fn get_new_blocks(&mut self, num_blocks: usize) -> Option<Vec<u32>> {
        if num_blocks > self.num_free_blocks() {
            return None;
        }
        let block_ids: Vec<u32> = std::iter::from_fn(|| self.free_block_queue.popleft())
            .take(num_blocks)
            .collect();
        for &block_id in &block_ids {
            self.evict_cached_block(block_id);
            self.blocks[block_id as usize].ref_cnt = 1;
        }
        Some(block_ids)
    }

    /// Adds a holder to each of these cached blocks; a free one is free no longer.
    pub fn touch(&mut self, block_ids: &[u32]) {
        for &block_id in block_ids {
            self.free_block_queue.remove(block_id);
            self.blocks[block_id as usize].ref_cnt += 1;
        }
    }

    /// Takes a holder from each block. Those without a holder become free, in this order: blocks
    /// without a hash first in the queue (used again at once), blocks with one last (least
    /// recently used).
    pub fn free_blocks(&mut self, ordered_block_ids: impl Iterator<Item = u32>) {
        let mut unhashed = Vec::new();
        for block_id in ordered_block_ids {
            let block = &mut self.blocks[block_id as usize];
            debug_assert!(
                block.ref_cnt > 0,
                "block {block_id} freed more often than taken"
            );
            block.ref_cnt = block.ref_cnt.saturating_sub(1);
            if block.ref_cnt > 0 {
                continue;
            }
            if block.block_hash.is_some() {
                self.free_block_queue.append(block_id);
            } else {
                unhashed.push(block_id);
            }
        }
        for block_id in unhashed.into_iter().rev() {
            self.free_block_queue.prepend(block_id);
        }
    }

    /// Gives a full block its hash. True if no other block had it.
    pub fn cache_full_block(&mut self, block_id: u32, block_hash: BlockHash) -> bool {
        self.evict_cached_block(block_id);
        self.blocks[block_id as usize].block_hash = Some(block_hash);
        match self.cached_block_hash_to_block.entry(block_hash) {
            Entry::Vacant(entry) => {
                entry.insert(CachedBlocks::One(block_id));
                true
            }
            Entry::Occupied(mut entry) => {
                match entry.get_mut() {
                    CachedBlocks::Many(block_ids) => block_ids.push(block_id),
                    cached @ &mut CachedBlocks::One(first) => {
                        *cached = CachedBlocks::Many(vec![first, block_id]);
                    }
                }
                false
            }
        }
    }

    /// Takes the hash from a block, so that nobody finds it any more.
    pub fn evict_cached_block(&mut self, block_id: u32) {
        let Some(block_hash) = self.blocks[block_id as usize].block_hash.take() else {
            return;
        };
        if let Some(CachedBlocks::Many(block_ids)) =
            self.cached_block_hash_to_block.get_mut(&block_hash)
        {
            block_ids.retain(|&other| other != block_id);
            if let &[last] = block_ids.as_slice() {
                self.cached_block_hash_to_block
                    .insert(block_hash, CachedBlocks::One(last));
            }
        } else {
            self.cached_block_hash_to_block.remove(&block_hash);
            self.note_removed(block_hash);
        }
    }

    /// Takes all hashes; false, and nothing done, while any table holds a block.
    pub fn reset_prefix_cache(&mut self) -> bool {
        if self.num_free_blocks() != self.num_blocks().saturating_sub(1) {
            return false;
        }
        self.cached_block_hash_to_block.clear();
        for block in &mut self.blocks {
            block.block_hash = None;
        }
        if let Some(queue) = &mut self.kv_event_queue {
            // Events from before the reset describe blocks that the cache no longer has.
            *queue = vec![KVCacheEvent::AllBlocksCleared];
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;
    use crate::core::block_hash::BlockHasher;

    /// Different hashes.
    fn hashes(count: usize) -> Vec<BlockHash> {
        let tokens: Vec<u32> = (0..count as u32).collect();
        BlockHasher::new(NonZeroUsize::MIN).hash_full_blocks(&tokens, None)
    }

    fn free(pool: &BlockPool) -> Vec<u32> {
        pool.free_block_ids().collect()
    }

    #[test]
    fn the_null_block_is_never_handed_out() {
        let mut pool = BlockPool::new(4);
        assert_eq!(pool.num_free_blocks(), 3);
        assert_eq!(pool.get_new_blocks(4), None);
        assert_eq!(pool.get_new_blocks(3), Some(vec![1, 2, 3]));
        assert_eq!(pool.get_new_blocks(1), None);
        assert_eq!(pool.get_new_blocks(0), Some(vec![]));
        assert_eq!(pool.usage(), 1.0);
    }

    #[test]
    fn plain_blocks_are_used_again_first_and_cached_ones_last() {
        let mut pool = BlockPool::new(8);
        let hash = hashes(2);
        let blocks = pool.get_new_blocks(4).unwrap();
        assert_eq!(blocks, [1, 2, 3, 4]);
        pool.cache_full_block(1, hash[0]);
        pool.cache_full_block(2, hash[1]);
        pool.free_blocks(blocks.into_iter().rev());
        assert_eq!(free(&pool), [4, 3, 5, 6, 7, 2, 1]);
        assert_eq!(pool.get_cached_block(&hash[0]), Some(1));
        assert_eq!(pool.get_cached_block(&hash[1]), Some(2));
    }

    #[test]
    fn a_cached_block_is_found_until_it_is_handed_out_again() {
        let mut pool = BlockPool::new(3);
        let hash = hashes(1)[0];
        pool.get_new_blocks(1).unwrap();
        pool.cache_full_block(1, hash);
        pool.free_blocks([1].into_iter());
        assert_eq!(pool.get_new_blocks(1), Some(vec![2]));
        assert_eq!(pool.get_cached_block(&hash), Some(1));
        assert_eq!(pool.get_new_blocks(1), Some(vec![1]));
        assert_eq!(pool.get_cached_block(&hash), None);
        assert_eq!(pool.block_hash(1), None);
    }

    #[test]
    fn a_touched_block_is_free_no_longer() {
        let mut pool = BlockPool::new(5);
        let hash = hashes(1)[0];
        pool.get_new_blocks(1).unwrap();
        pool.cache_full_block(1, hash);
        pool.touch(&[1]);
        assert_eq!(pool.ref_cnt(1), 2);
        pool.free_blocks([1].into_iter());
        assert_eq!((pool.ref_cnt(1), free(&pool)), (1, vec![2, 3, 4]));
        pool.free_blocks([1].into_iter());
        assert_eq!((pool.ref_cnt(1), free(&pool)), (0, vec![2, 3, 4, 1]));
        pool.touch(&[1]);
        assert_eq!((pool.ref_cnt(1), free(&pool)), (1, vec![2, 3, 4]));
    }

    #[test]
    fn equal_blocks_stay_apart_and_the_first_is_found() {
        let mut pool = BlockPool::new(5);
        let hash = hashes(1)[0];
        pool.get_new_blocks(3).unwrap();
        for block_id in [2, 1, 3] {
            pool.cache_full_block(block_id, hash);
        }
        assert_eq!(pool.get_cached_block(&hash), Some(2));
        pool.evict_cached_block(2);
        assert_eq!(pool.get_cached_block(&hash), Some(1));
        pool.evict_cached_block(3);
        assert_eq!(pool.get_cached_block(&hash), Some(1));
        pool.evict_cached_block(1);
        assert_eq!(pool.get_cached_block(&hash), None);
    }

    #[test]
    fn a_reset_needs_all_blocks_free() {
        let mut pool = BlockPool::new(3);
        let hash = hashes(1)[0];
        pool.get_new_blocks(1).unwrap();
        pool.cache_full_block(1, hash);
        assert!(!pool.reset_prefix_cache());
        assert_eq!(pool.get_cached_block(&hash), Some(1));
        pool.free_blocks([1].into_iter());
        assert!(pool.reset_prefix_cache());
        assert_eq!(pool.get_cached_block(&hash), None);
        assert_eq!(pool.num_free_blocks(), 2);
    }
}
