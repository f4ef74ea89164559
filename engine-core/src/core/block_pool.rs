//! All KV blocks: who holds them, which are free, which can be found by their hash.

use std::collections::HashMap;

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
        1.0 - self.num_free_blocks() as f64 / usable as f64
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

    /// Gives a full block its hash.
    pub fn cache_full_block(&mut self, block_id: u32, block_hash: BlockHash) {
        self.evict_cached_block(block_id);
        self.blocks[block_id as usize].block_hash = Some(block_hash);
        self.cached_block_hash_to_block
            .entry(block_hash)
            .and_modify(|cached| match cached {
                CachedBlocks::One(first) => *cached = CachedBlocks::Many(vec![*first, block_id]),
                CachedBlocks::Many(block_ids) => block_ids.push(block_id),
            })
            .or_insert(CachedBlocks::One(block_id));
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
        true
    }
}
