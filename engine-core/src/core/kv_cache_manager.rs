//! Blocks for requests: what a request finds in the prefix cache, what it needs, what it holds.

use std::num::NonZeroUsize;

use protocol::{BlockStored, KVCacheEvent};

use crate::core::block_hash::{BlockHash, BlockHashFunction, BlockHasher};
use crate::core::block_pool::BlockPool;
use crate::core::request::Request;

/// The shape of the KV cache, known once the model is loaded and its memory is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KVCacheConfig {
    /// Blocks, the null block included.
    pub num_blocks: u32,
    /// Tokens per block.
    pub block_size: u32,
    /// Whether requests share the blocks of equal prefixes.
    pub enable_prefix_caching: bool,
}

/// The block table of one running request, by position. Returned to the pool by
/// [`KVCacheManager::free`] and never copied, so that a block is never freed twice.
#[derive(Debug, Default)]
pub struct RequestBlocks {
    block_ids: Vec<u32>,
    /// Leading blocks that have their hash.
    num_cached_blocks: usize,
}

impl RequestBlocks {
    /// Block ids by position: tokens `i * block_size..` stand in entry `i`.
    pub fn block_ids(&self) -> &[u32] {
        &self.block_ids
    }
}

/// The longest cached prefix of a request. The blocks are not held yet: use it before anything
/// else takes blocks.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ComputedBlocks {
    /// Blocks that hold the prefix.
    pub block_ids: Vec<u32>,
    /// Tokens in them.
    pub num_tokens: usize,
}

/// Hands the blocks of a [`BlockPool`] to requests.
#[derive(Debug)]
pub struct KVCacheManager {
    block_pool: BlockPool,
    block_size: NonZeroUsize,
    enable_caching: bool,
    hash_function: BlockHashFunction,
}

impl KVCacheManager {
    /// `num_blocks` blocks of `block_size` tokens.
    pub fn new(num_blocks: u32, block_size: NonZeroUsize, enable_caching: bool) -> Self {
        Self {
            block_pool: BlockPool::new(num_blocks),
            block_size,
            enable_caching,
            hash_function: BlockHashFunction::default(),
        }
    }

    /// Names blocks by another function. Call it before any request is built.
    pub(crate) fn set_hash_function(&mut self, function: BlockHashFunction) {
        self.hash_function = function;
    }

    /// Notes from now on what changes in the prefix cache.
    pub(crate) fn enable_events(&mut self) {
        self.block_pool.enable_events();
    }

    /// The changes of the prefix cache since the last call, where they are noted.
    pub(crate) fn take_events(&mut self) -> Vec<KVCacheEvent> {
        self.block_pool.take_events()
    }

    /// The blocks.
    pub fn block_pool(&self) -> &BlockPool {
        &self.block_pool
    }

    /// Tokens per block.
    pub fn block_size(&self) -> usize {
        self.block_size.get()
    }

    /// Hashes what this cache can find again.
    pub fn block_hasher(&self) -> BlockHasher {
        if self.enable_caching {
            BlockHasher::new(self.block_size).with_function(self.hash_function)
        } else {
            BlockHasher::disabled()
        }
    }

    /// Whether `request` may start from a cached prefix.
    pub fn reads_prefix_cache(&self, request: &Request) -> bool {
        self.enable_caching && !request.skip_reading_prefix_cache()
    }

    /// The longest prefix of `request` that is cached, of those that may come from the cache.
    pub fn get_computed_blocks(&self, request: &Request) -> ComputedBlocks {
        if !self.reads_prefix_cache(request) {
            return ComputedBlocks::default();
        }
        let max_blocks = request.max_cached_tokens() / self.block_size();
        let block_ids: Vec<u32> = request
            .block_hashes()
            .iter()
            .take(max_blocks)
            .map_while(|block_hash| self.block_pool.get_cached_block(block_hash))
            .collect();
        let num_tokens = block_ids.len() * self.block_size();
        ComputedBlocks {
            block_ids,
            num_tokens,
        }
    }

    /// A table for a request that holds none: the cached blocks and new ones up to `num_tokens`
    /// tokens. `None`, and nothing changed, unless `num_tokens_to_fit` tokens would fit now with
    /// `num_watermark_blocks` to spare.
    pub fn allocate_first_slots(
        &mut self,
        computed: &ComputedBlocks,
        num_tokens: usize,
        num_tokens_to_fit: usize,
        num_watermark_blocks: usize,
    ) -> Option<RequestBlocks> {
        let num_hit_blocks = computed.block_ids.len();
        // Cached blocks that nobody holds stand in the free queue: taking them uses it up too.
        let num_free_hit_blocks = computed
            .block_ids
            .iter()
            .filter(|&&block_id| self.block_pool.ref_cnt(block_id) == 0)
            .count();
        let num_blocks_to_fit = self.num_blocks_for(num_tokens_to_fit.max(num_tokens));
        let needed = num_blocks_to_fit.saturating_sub(num_hit_blocks) + num_free_hit_blocks;
        if needed + num_watermark_blocks > self.block_pool.num_free_blocks() {
            return None;
        }
        // Touched first, so that none of them is handed out as a new block.
        self.block_pool.touch(&computed.block_ids);
        let mut blocks = RequestBlocks {
            block_ids: computed.block_ids.clone(),
            num_cached_blocks: num_hit_blocks,
        };
        if self.allocate_slots(&mut blocks, num_tokens).is_none() {
            self.free(blocks);
            return None;
        }
        Some(blocks)
    }

    /// Grows a table until it holds `num_tokens` tokens and returns the new block ids. `None`,
    /// and nothing changed, where too few blocks are free.
    pub fn allocate_slots(
        &mut self,
        blocks: &mut RequestBlocks,
        num_tokens: usize,
    ) -> Option<Vec<u32>> {
        let num_new_blocks = self
            .num_blocks_for(num_tokens)
            .saturating_sub(blocks.block_ids.len());
        if num_new_blocks == 0 {
            return Some(Vec::new());
        }
        let new_block_ids = self.block_pool.get_new_blocks(num_new_blocks)?;
        blocks.block_ids.extend_from_slice(&new_block_ids);
        Some(new_block_ids)
    }

    /// Names the blocks that are full once `num_computed_tokens` tokens of `request` are computed.
    ///
    /// Called as soon as the tokens are sure to be computed in this step: a request that is
    /// admitted later in the same step may share them, since in every layer the keys and values
    /// of all rows are written before any row reads them.
    pub fn cache_blocks(
        &mut self,
        request: &Request,
        blocks: &mut RequestBlocks,
        num_computed_tokens: usize,
    ) {
        // No hash exists beyond the request's known tokens, nor where caching is off.
        let num_full_blocks = num_computed_tokens / self.block_size();
        let named = request
            .block_hashes()
            .iter()
            .zip(&blocks.block_ids)
            .take(num_full_blocks);
        let mut run = StoredRun::new(request, self.block_size());
        for (&block_hash, &block_id) in named.skip(blocks.num_cached_blocks) {
            let is_new = self.block_pool.cache_full_block(block_id, block_hash);
            if is_new && self.block_pool.has_events_enabled() {
                run.push(blocks.num_cached_blocks, block_hash);
            } else if let Some(stored) = run.take() {
                self.block_pool.note_stored(stored);
            }
            blocks.num_cached_blocks += 1;
        }
        if let Some(stored) = run.take() {
            self.block_pool.note_stored(stored);
        }
    }

    /// Takes the names from the blocks of `blocks` that hold more than the first `num_tokens`
    /// tokens: what they should hold was not computed.
    pub fn evict_blocks_after(&mut self, blocks: &mut RequestBlocks, num_tokens: usize) {
        let num_kept = num_tokens / self.block_size();
        for &block_id in blocks.block_ids.iter().skip(num_kept) {
            self.block_pool.evict_cached_block(block_id);
        }
        blocks.num_cached_blocks = blocks.num_cached_blocks.min(num_kept);
    }

    /// Returns all blocks of a table, last first: the end of a sequence is the least likely to be
    /// shared, so it is used again first.
    pub fn free(&mut self, blocks: RequestBlocks) {
        self.block_pool
            .free_blocks(blocks.block_ids.into_iter().rev());
    }

    /// Forgets all cached prefixes; false, and nothing done, while any request holds a block.
    pub fn reset_prefix_cache(&mut self) -> bool {
        self.block_pool.reset_prefix_cache()
    }

    /// Used share of the KV cache, `0..=1`.
    pub fn usage(&self) -> f64 {
        self.block_pool.usage()
    }

    fn num_blocks_for(&self, num_tokens: usize) -> usize {
        num_tokens.div_ceil(self.block_size())
    }
}

/// Neighbouring blocks of a request that can be found since now, as one event.
struct StoredRun<'r> {
    request: &'r Request,
    block_size: usize,
    stored: Option<BlockStored>,
}

impl<'r> StoredRun<'r> {
    fn new(request: &'r Request, block_size: usize) -> Self {
        Self {
            request,
            block_size,
            stored: None,
        }
    }

    /// Adds block `index` of the request. It follows the last one that was added since [`Self::take`].
    fn push(&mut self, index: usize, block_hash: BlockHash) {
        let (request, block_size) = (self.request, self.block_size);
        let stored = self.stored.get_or_insert_with(|| {
            let parent = index.checked_sub(1);
            let parent = parent.and_then(|before| request.block_hashes().get(before));
            let salt = request.cache_salt().filter(|_| index == 0);
            BlockStored {
                parent_block_hash: parent.map(|hash| hash.external()),
                block_size: block_size as u32,
                cache_salt: salt.map(str::to_owned),
                ..BlockStored::default()
            }
        });
        stored.block_hashes.push(block_hash.external());
        let tokens = index * block_size..(index + 1) * block_size;
        let tokens = request.all_token_ids().get(tokens);
        stored.token_ids.extend_from_slice(tokens.unwrap_or(&[]));
    }

    /// The blocks so far, if any; the next one begins another run.
    fn take(&mut self) -> Option<BlockStored> {
        self.stored.take()
    }
}

#[cfg(test)]
mod tests {
    use protocol::EngineCoreRequest;

    use super::*;

    fn manager(num_blocks: u32) -> KVCacheManager {
        KVCacheManager::new(num_blocks + 1, NonZeroUsize::new(4).unwrap(), true)
    }

    fn request(manager: &KVCacheManager, num_tokens: u32) -> Request {
        let message = EngineCoreRequest {
            prompt_token_ids: (0..num_tokens).collect(),
            ..EngineCoreRequest::default()
        };
        Request::from_engine_core_request(message, &manager.block_hasher())
    }

    fn first(
        manager: &mut KVCacheManager,
        request: &Request,
        num_watermark_blocks: usize,
    ) -> Option<RequestBlocks> {
        let computed = manager.get_computed_blocks(request);
        let num_tokens = request.num_tokens();
        let mut blocks = manager.allocate_first_slots(
            &computed,
            num_tokens,
            num_tokens,
            num_watermark_blocks,
        )?;
        manager.cache_blocks(request, &mut blocks, num_tokens);
        Some(blocks)
    }

    #[test]
    fn a_table_grows_by_what_is_missing() {
        let mut manager = manager(5);
        let mut blocks = RequestBlocks::default();
        assert_eq!(manager.allocate_slots(&mut blocks, 5), Some(vec![1, 2]));
        assert_eq!(manager.allocate_slots(&mut blocks, 8), Some(vec![]));
        assert_eq!(manager.allocate_slots(&mut blocks, 9), Some(vec![3]));
        assert_eq!(manager.allocate_slots(&mut blocks, 21), None);
        assert_eq!(blocks.block_ids(), [1, 2, 3]);
        assert_eq!(manager.block_pool().num_free_blocks(), 2);
        manager.free(blocks);
        assert_eq!(manager.usage(), 0.0);
    }

    #[test]
    fn free_hits_count_as_needed_blocks() {
        let mut manager = manager(5);
        let twelve = request(&manager, 12);
        let held = first(&mut manager, &twelve, 0).unwrap();
        // Two hits that another holds, two new blocks.
        let fourteen = request(&manager, 14);
        let hits = manager.get_computed_blocks(&fourteen);
        assert_eq!(
            (hits.block_ids.as_slice(), hits.num_tokens),
            (&[1, 2, 3][..], 12)
        );
        assert!(first(&mut manager, &fourteen, 2).is_none());
        assert!(first(&mut manager, &fourteen, 1).is_some_and(|blocks| {
            manager.free(blocks);
            true
        }));
        // Nobody holds the three hits now: they are taken from the free ones.
        manager.free(held);
        assert!(first(&mut manager, &fourteen, 2).is_none());
        let blocks = first(&mut manager, &fourteen, 1).unwrap();
        assert_eq!(blocks.block_ids()[..3], [1, 2, 3]);
        assert_eq!(manager.block_pool().num_free_blocks(), 1);
    }

    #[test]
    fn a_refusal_changes_nothing() {
        let mut manager = manager(4);
        let twelve = request(&manager, 12);
        let held = first(&mut manager, &twelve, 0).unwrap();
        manager.free(held);
        let before: Vec<u32> = manager.block_pool().free_block_ids().collect();
        let too_long = request(&manager, 17);
        assert!(first(&mut manager, &too_long, 0).is_none());
        assert_eq!(
            manager.block_pool().free_block_ids().collect::<Vec<_>>(),
            before
        );
        assert!((0..5).all(|block_id| manager.block_pool().ref_cnt(block_id) == 0));
    }

    #[test]
    fn only_full_blocks_of_known_tokens_are_named() {
        let mut manager = manager(8);
        let seven = request(&manager, 7);
        let mut blocks = RequestBlocks::default();
        manager.allocate_slots(&mut blocks, 16).unwrap();
        manager.cache_blocks(&seven, &mut blocks, 3);
        assert_eq!(manager.block_pool().block_hash(1), None);
        manager.cache_blocks(&seven, &mut blocks, 16);
        assert_eq!(
            manager.block_pool().block_hash(1),
            Some(seven.block_hashes()[0])
        );
        assert_eq!(manager.block_pool().block_hash(2), None);
        manager.evict_blocks_after(&mut blocks, 4);
        assert_eq!(
            manager.block_pool().block_hash(1),
            Some(seven.block_hashes()[0])
        );
        manager.evict_blocks_after(&mut blocks, 3);
        assert_eq!(manager.block_pool().block_hash(1), None);
    }

    /// The tables of requests by themselves, without any cached block found for them: what two of the same step do.
    fn fill(manager: &mut KVCacheManager, request: &Request) -> RequestBlocks {
        let mut blocks = RequestBlocks::default();
        let num_tokens = request.num_tokens();
        manager.allocate_slots(&mut blocks, num_tokens).unwrap();
        manager.cache_blocks(request, &mut blocks, num_tokens);
        blocks
    }

    #[test]
    fn a_name_is_stored_with_its_first_block_and_removed_with_its_last() {
        let mut manager = manager(8);
        manager.enable_events();
        let message = EngineCoreRequest {
            prompt_token_ids: (0..9).collect(),
            cache_salt: Some("s".to_owned()),
            ..EngineCoreRequest::default()
        };
        let nine = Request::from_engine_core_request(message, &manager.block_hasher());
        let names: Vec<u64> = nine.block_hashes().iter().map(|h| h.external()).collect();
        let first = fill(&mut manager, &nine);
        let stored = BlockStored {
            block_hashes: names.clone(),
            parent_block_hash: None,
            token_ids: (0..8).collect(),
            block_size: 4,
            cache_salt: Some("s".to_owned()),
        };
        let expected = [KVCacheEvent::BlockStored(Box::new(stored))];
        assert_eq!(manager.take_events(), expected);
        // Equal blocks are nothing new, and the first of two that goes is no loss.
        let mut second = fill(&mut manager, &nine);
        assert_eq!(manager.take_events(), []);
        manager.evict_blocks_after(&mut second, 4);
        assert_eq!(manager.take_events(), []);
        // The table's last block again: what was there before it is no part of the event.
        manager.free(first);
        manager
            .allocate_slots(&mut RequestBlocks::default(), 20)
            .unwrap();
        let removed = |names: &[u64]| KVCacheEvent::BlockRemoved {
            block_hashes: names.to_vec(),
        };
        assert_eq!(manager.take_events(), [removed(&names[1..])]);
        manager.cache_blocks(&nine, &mut second, 9);
        let stored = BlockStored {
            block_hashes: names[1..].to_vec(),
            parent_block_hash: Some(names[0]),
            token_ids: (4..8).collect(),
            block_size: 4,
            cache_salt: None,
        };
        let expected = [KVCacheEvent::BlockStored(Box::new(stored))];
        assert_eq!(manager.take_events(), expected);
    }

    #[test]
    fn nothing_is_noted_where_nobody_asks() {
        let mut manager = manager(8);
        let nine = request(&manager, 9);
        let blocks = fill(&mut manager, &nine);
        manager.free(blocks);
        assert!(manager.reset_prefix_cache());
        assert!(!manager.block_pool().has_events());
        assert_eq!(manager.take_events(), []);
    }

    #[test]
    fn a_reset_stands_for_all_that_came_before_it() {
        let mut manager = manager(8);
        manager.enable_events();
        let nine = request(&manager, 9);
        let blocks = fill(&mut manager, &nine);
        assert!(!manager.reset_prefix_cache());
        manager.free(blocks);
        assert!(manager.reset_prefix_cache());
        assert_eq!(manager.take_events(), [KVCacheEvent::AllBlocksCleared]);
    }
}
