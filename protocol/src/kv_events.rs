//! Changes of a core's prefix cache, by vLLM's names.

use serde::{Deserialize, Serialize};

/// One change of the prefix cache. A name is in the cache from a [`Self::BlockStored`] that has it up to a
/// [`Self::BlockRemoved`] that has it, or [`Self::AllBlocksCleared`]; it is stored once between two removals.
///
/// Names of blocks are the last 64 bits of their hashes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum KVCacheEvent {
    /// Blocks can be found from now on.
    BlockStored(Box<BlockStored>),
    /// Blocks can't be found any more.
    BlockRemoved {
        /// Their names.
        block_hashes: Vec<u64>,
    },
    /// The cache is empty.
    AllBlocksCleared,
}

/// Blocks of one sequence, each the next of the one before.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BlockStored {
    /// Their names.
    pub block_hashes: Vec<u64>,
    /// The name of the block before the first; `None` where a sequence begins.
    pub parent_block_hash: Option<u64>,
    /// Their tokens, `block_size` for each.
    pub token_ids: Vec<u32>,
    /// Tokens per block.
    pub block_size: u32,
    /// What the first block's hash depends on beside its tokens: the request's salt, where a sequence begins.
    pub cache_salt: Option<String>,
}
