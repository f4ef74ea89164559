//! Which request runs when, and where its keys and values stand: the scheduler and the KV cache.
//!
//! Nothing here knows a tensor, a thread or a socket. Blocks are numbers; what they hold belongs
//! to the model runner.

pub mod block_hash;
pub mod block_pool;
pub mod free_block_queue;
pub mod kv_cache_manager;
pub mod request;
pub mod sched;
pub mod spec_decode;

pub use block_hash::{BlockHash, BlockHasher};
pub use block_pool::{BlockPool, KVCacheBlock, NULL_BLOCK_ID};
pub use free_block_queue::FreeKVCacheBlockQueue;
pub use kv_cache_manager::{ComputedBlocks, KVCacheConfig, KVCacheManager, RequestBlocks};
