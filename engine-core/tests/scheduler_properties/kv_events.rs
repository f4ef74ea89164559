//! The prefix cache as its events tell it, against the cache itself.

use std::collections::BTreeMap;

use engine_core::core::BlockHasher;
use engine_core::core::sched::Scheduler;
use protocol::KVCacheEvent;

/// A prefix: its salt and all of its tokens.
type Prefix = (Option<String>, Vec<u32>);

/// An index of the cache that is rebuilt from its events alone: prefixes by the names of their last blocks.
#[derive(Debug, Default)]
pub(crate) struct Subscriber {
    index: BTreeMap<u64, Prefix>,
    /// Every prefix that was ever stored: a block may be stored again when the one before it is gone.
    known: BTreeMap<u64, Prefix>,
}

impl Subscriber {
    /// Takes in events, each of which must make a difference, and whose names must be those of their tokens.
    pub(crate) fn hear(&mut self, hasher: &BlockHasher, events: Vec<KVCacheEvent>) {
        for event in events {
            match event {
                KVCacheEvent::BlockStored(stored) => {
                    let (mut salt, mut tokens) = match stored.parent_block_hash {
                        Some(parent) => self.known[&parent].clone(),
                        None => (stored.cache_salt.clone(), Vec::new()),
                    };
                    let block_size = stored.block_size as usize;
                    assert_eq!(
                        stored.token_ids.len(),
                        block_size * stored.block_hashes.len()
                    );
                    let blocks = stored.token_ids.chunks(block_size);
                    for (&name, block) in stored.block_hashes.iter().zip(blocks) {
                        tokens.extend_from_slice(block);
                        let hashes = hasher.hash_full_blocks(&tokens, salt.as_deref());
                        assert_eq!(hashes.last().unwrap().external(), name);
                        let prefix = (salt.take(), tokens.clone());
                        salt.clone_from(&prefix.0);
                        self.known.insert(name, prefix.clone());
                        assert_eq!(self.index.insert(name, prefix), None, "stored twice");
                    }
                }
                KVCacheEvent::BlockRemoved { block_hashes } => {
                    for name in block_hashes {
                        assert!(self.index.remove(&name).is_some(), "it was not there");
                    }
                }
                KVCacheEvent::AllBlocksCleared => self.index.clear(),
            }
        }
    }

    /// All names that the cache has now are known, and no other.
    pub(crate) fn check(&self, scheduler: &Scheduler) {
        let pool = scheduler.kv_cache_manager().block_pool();
        let block_ids = 0..pool.num_blocks() as u32;
        let hashes = block_ids.filter_map(|block_id| pool.block_hash(block_id));
        let mut names: Vec<u64> = hashes.map(|hash| hash.external()).collect();
        names.sort_unstable();
        names.dedup();
        let known: Vec<u64> = self.index.keys().copied().collect();
        assert_eq!(known, names);
    }
}
