//! How many KV blocks there are, and how long a sequence may be.

use protocol::CacheConfig;

use crate::engine::memory::available_memory_bytes;

/// Share of the host's memory that is free after loading which the KV cache may take by default. It is
/// touched block by block as requests need it, so an idle engine doesn't use it.
const DEFAULT_MEMORY_SHARE: f64 = 0.5;

/// What the KV cache may be made of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CacheMemory {
    /// Bytes that are free.
    pub(crate) available: u64,
    /// What of it may be taken unasked.
    pub(crate) default_share: f64,
    /// Cores that have as much each.
    pub(crate) num_cores: u32,
}

impl CacheMemory {
    /// A core's share of the host's, where so many cores take as much each.
    pub(crate) fn of_host(num_cores: u32) -> Self {
        let num_cores = num_cores.max(1);
        Self {
            available: available_memory_bytes().unwrap_or(FALLBACK_BYTES) / u64::from(num_cores),
            default_share: DEFAULT_MEMORY_SHARE,
            num_cores,
        }
    }

    /// Bytes of a device that are the core's.
    pub(crate) fn of_device(available: u64) -> Self {
        Self {
            available,
            default_share: 1.0,
            num_cores: 1,
        }
    }
}

/// What the block pool keeps of a block beside its keys and values, at most.
const BOOKKEEPING_BYTES: u64 = 128;

/// Most blocks: their numbers are 32 bits wide.
const MAX_BLOCKS: u64 = u32::MAX as u64;

/// One prompt token and one output token.
const MIN_MODEL_LEN: u32 = 2;

/// Memory for the cache where the system doesn't say how much is free: 1 GiB.
const FALLBACK_BYTES: u64 = 1 << 30;

/// A size that fits the model, the machine and the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KvCacheSize {
    /// Blocks, the null block included.
    pub(crate) num_blocks: u32,
    /// Longest sequence; one of this length always fits into the cache.
    pub(crate) max_model_len: u32,
}

/// Why no such size exists.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum KvCacheSizeError {
    /// Blocks of no tokens.
    #[error("block_size is 0: it must be at least 1")]
    BlockSize,
    /// Longer than the model can.
    #[error(
        "max_model_len is {asked}: it must be from 2 (a prompt and an output token) to {limit}, the longest \
         sequence that the model was made for"
    )]
    MaxModelLen {
        /// The value given.
        asked: u32,
        /// The model's.
        limit: u32,
    },
    /// More than the machine has.
    #[error(
        "{setting} is too large: the KV cache would take {asked_mib} MiB ({num_blocks} blocks of {block_size} \
         tokens), and {available_mib} MiB are free for this core{}; at most {most}", of_cores(*.num_cores)
    )]
    TooLarge {
        /// The setting that asks for it.
        setting: &'static str,
        /// Blocks, the null block included.
        num_blocks: u64,
        /// Tokens per block.
        block_size: u32,
        /// What they would take, in MiB.
        asked_mib: u64,
        /// What is free, in MiB.
        available_mib: u64,
        /// Cores that share out what is free.
        num_cores: u32,
        /// What the setting may be at most.
        most: u64,
    },
    /// The cache can't hold one sequence.
    #[error(
        "the KV cache has {num_blocks} blocks of {block_size} tokens, which hold {holds} tokens: \
         not enough for one sequence of {max_model_len} tokens, which takes {needed} blocks or \
         {needed_bytes} bytes; {available_mib} MiB are free for this core{} (num_blocks_override, \
         kv_cache_memory_bytes, max_model_len)", of_cores(*.num_cores)
    )]
    TooSmall {
        /// Blocks, the null block included.
        num_blocks: u32,
        /// Tokens per block.
        block_size: u32,
        /// Tokens in all.
        holds: u64,
        /// The value given, or the least that there is.
        max_model_len: u32,
        /// Blocks that it takes, the null block included.
        needed: u64,
        /// The keys and values of so many.
        needed_bytes: u64,
        /// What is free, in MiB.
        available_mib: u64,
        /// Cores that share out what is free.
        num_cores: u32,
    },
}

/// Says that a core has a share of the memory, where there are others.
fn of_cores(num_cores: u32) -> String {
    match num_cores {
        1 => String::new(),
        _ => format!(", one of {num_cores} (data_parallel_size) that share out the memory"),
    }
}

/// Chooses the number of blocks: up to `num_blocks_of_first`, else `num_blocks_override`, else what
/// `kv_cache_memory_bytes` hold, else what `max_num_seqs` sequences of full length need, up to the memory's share.
///
/// A `max_model_len` that was asked for is kept or refused; the model's own is lowered to what
/// the cache holds.
pub(crate) fn size_kv_cache(
    config: &CacheConfig,
    asked_len: Option<u32>,
    model_len: usize,
    max_num_seqs: u32,
    bytes_per_block: usize,
    memory: CacheMemory,
) -> Result<KvCacheSize, KvCacheSizeError> {
    let model_len = u32::try_from(model_len).unwrap_or(u32::MAX);
    let bytes_per_block = bytes_per_block.max(1) as u64;
    let available = memory.available;
    let block_size = config.block_size;
    if block_size == 0 {
        return Err(KvCacheSizeError::BlockSize);
    }
    if let Some(asked) = asked_len
        && !(MIN_MODEL_LEN..=model_len).contains(&asked)
    {
        return Err(KvCacheSizeError::MaxModelLen {
            asked,
            limit: model_len,
        });
    }
    let wanted_len = asked_len.unwrap_or(model_len);
    // One more for the null block.
    let blocks_for = |num_tokens: u32| u64::from(num_tokens.div_ceil(block_size)) + 1;
    let most = (available / bytes_per_block.saturating_add(BOOKKEEPING_BYTES)).min(MAX_BLOCKS);
    let asked = (config.num_blocks_override, config.kv_cache_memory_bytes);
    let num_blocks = match (config.num_blocks_of_first, asked) {
        (Some(num_blocks), _) => most.min(u64::from(num_blocks)),
        (None, (Some(num_blocks), _)) => u64::from(num_blocks),
        (None, (None, Some(bytes))) => bytes / bytes_per_block,
        (None, (None, None)) => {
            let affordable = available as f64 * memory.default_share;
            let useful = (blocks_for(wanted_len) - 1) * u64::from(max_num_seqs.max(1)) + 1;
            useful.min(affordable as u64 / (bytes_per_block + BOOKKEEPING_BYTES))
        }
    };
    let fits = u32::try_from(num_blocks)
        .ok()
        .filter(|_| num_blocks <= most);
    let Some(num_blocks) = fits else {
        let (setting, most) = match config.num_blocks_override {
            Some(_) => ("num_blocks_override", most),
            None => (
                "kv_cache_memory_bytes",
                most.saturating_mul(bytes_per_block),
            ),
        };
        return Err(KvCacheSizeError::TooLarge {
            setting,
            num_blocks,
            block_size,
            asked_mib: num_blocks.saturating_mul(bytes_per_block) >> 20,
            available_mib: available >> 20,
            num_cores: memory.num_cores,
            most,
        });
    };
    let holds = u64::from(num_blocks.saturating_sub(1)) * u64::from(block_size);
    // A length that nobody asked for gives way, one that somebody did doesn't.
    let least_len = asked_len.unwrap_or(MIN_MODEL_LEN);
    if holds < u64::from(least_len) {
        return Err(KvCacheSizeError::TooSmall {
            num_blocks,
            block_size,
            holds,
            max_model_len: least_len,
            needed: blocks_for(least_len),
            needed_bytes: blocks_for(least_len).saturating_mul(bytes_per_block),
            available_mib: available >> 20,
            num_cores: memory.num_cores,
        });
    }
    let max_model_len = u32::try_from(holds).unwrap_or(u32::MAX).min(wanted_len);
    Ok(KvCacheSize {
        num_blocks,
        max_model_len,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL_LEN: u32 = 1000;

    fn size(
        config: CacheConfig,
        asked_len: Option<u32>,
        memory: u64,
    ) -> Result<KvCacheSize, KvCacheSizeError> {
        let memory = CacheMemory {
            available: memory,
            default_share: DEFAULT_MEMORY_SHARE,
            num_cores: 1,
        };
        size_kv_cache(&config, asked_len, MODEL_LEN as usize, 4, 100, memory)
    }

    #[test]
    fn a_device_gives_all_that_is_the_cores() {
        let memory = CacheMemory::of_device(11 * (100 + BOOKKEEPING_BYTES));
        let found = size_kv_cache(&CacheConfig::default(), None, 1000, 4, 100, memory);
        assert_eq!(found.unwrap().num_blocks, 11);
    }

    #[test]
    fn with_much_memory_every_sequence_has_its_blocks() {
        // 1000 tokens take 63 blocks of 16; 4 sequences and the null block.
        let found = size(CacheConfig::default(), None, 1 << 30);
        assert_eq!(
            found,
            Ok(KvCacheSize {
                num_blocks: 4 * 63 + 1,
                max_model_len: 1000
            })
        );
    }

    #[test]
    fn little_memory_shortens_a_length_that_nobody_asked_for() {
        // Half of it holds 11 blocks with what is kept beside them, one of them the null block.
        let memory = 2 * 11 * (100 + BOOKKEEPING_BYTES);
        let found = size(CacheConfig::default(), None, memory);
        assert_eq!(
            found,
            Ok(KvCacheSize {
                num_blocks: 11,
                max_model_len: 160
            })
        );
        let error = size(CacheConfig::default(), Some(161), memory).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the KV cache has 11 blocks of 16 tokens, which hold 160 tokens: not enough for one \
             sequence of 161 tokens, which takes 12 blocks or 1200 bytes; 0 MiB are free for this core \
             (num_blocks_override, kv_cache_memory_bytes, max_model_len)"
        );
        let memory = CacheMemory {
            available: 3 << 20,
            default_share: DEFAULT_MEMORY_SHARE,
            num_cores: 2,
        };
        let found = size_kv_cache(&CacheConfig::default(), Some(200), 1000, 4, 1 << 20, memory);
        let told = found.unwrap_err().to_string();
        assert!(
            told.contains("3 MiB are free for this core, one of 2 (data_parallel_size)"),
            "{told}"
        );
    }

    #[test]
    fn given_memory_and_given_blocks_are_taken_as_they_are() {
        let bytes = CacheConfig {
            kv_cache_memory_bytes: Some(1099),
            ..CacheConfig::default()
        };
        let found = size(bytes, Some(100), 1 << 20);
        assert_eq!(
            found,
            Ok(KvCacheSize {
                num_blocks: 10,
                max_model_len: 100
            })
        );
        let blocks = CacheConfig {
            num_blocks_override: Some(3),
            ..CacheConfig::default()
        };
        let found = size(blocks, None, 1 << 20);
        assert_eq!(
            found,
            Ok(KvCacheSize {
                num_blocks: 3,
                max_model_len: 32
            })
        );
    }

    /// Less memory is free by then: the first one's cache is part of what isn't.
    #[test]
    fn a_further_core_has_the_blocks_of_the_first_if_all_that_is_free_holds_its_length() {
        let memory = |num_blocks: u64| num_blocks * (100 + BOOKKEEPING_BYTES);
        let first = size(CacheConfig::default(), None, memory(22)).unwrap();
        let config = CacheConfig {
            num_blocks_of_first: Some(first.num_blocks),
            // What the first core was told has no effect on a further one.
            kv_cache_memory_bytes: Some(1 << 40),
            ..CacheConfig::default()
        };
        let asked_len = Some(first.max_model_len);
        for free in [22, 15, 11] {
            assert_eq!(size(config.clone(), asked_len, memory(free)), Ok(first));
        }
        assert!(matches!(
            size(config.clone(), asked_len, memory(10)),
            Err(KvCacheSizeError::TooSmall { .. })
        ));
        let fewer = KvCacheSize {
            num_blocks: 10,
            max_model_len: 100,
        };
        assert_eq!(size(config, Some(100), memory(10)), Ok(fewer));
    }

    #[test]
    fn lengths_that_cannot_be_are_refused() {
        let config = CacheConfig::default();
        for asked in [0, 1, MODEL_LEN + 1] {
            let error = size(config.clone(), Some(asked), 1 << 30).unwrap_err();
            // The limit may come from a GGUF file, which has no config.json.
            let message = format!(
                "max_model_len is {asked}: it must be from 2 (a prompt and an output token) to {MODEL_LEN}, \
                 the longest sequence that the model was made for"
            );
            assert_eq!(error.to_string(), message);
            assert_eq!(
                error,
                KvCacheSizeError::MaxModelLen {
                    asked,
                    limit: MODEL_LEN
                }
            );
        }
        let no_blocks = CacheConfig {
            num_blocks_override: Some(1),
            ..config.clone()
        };
        assert!(matches!(
            size(no_blocks, None, 1 << 20),
            Err(KvCacheSizeError::TooSmall { .. })
        ));
        let no_tokens = CacheConfig {
            block_size: 0,
            ..config
        };
        assert_eq!(
            size(no_tokens, None, 1 << 20),
            Err(KvCacheSizeError::BlockSize)
        );
    }

    #[test]
    fn more_than_the_machine_has_is_refused_before_it_is_taken() {
        let blocks = CacheConfig {
            num_blocks_override: Some(u32::MAX),
            ..CacheConfig::default()
        };
        let bytes = CacheConfig {
            kv_cache_memory_bytes: Some(10 << 40),
            ..CacheConfig::default()
        };
        // Memory for a thousand blocks.
        let refused = |config| size(config, None, 228 * 1000).unwrap_err().to_string();
        let told = refused(blocks);
        assert!(told.starts_with("num_blocks_override is too large: "));
        assert!(told.ends_with("; at most 1000"), "{told}");
        let told = refused(bytes);
        assert!(told.starts_with("kv_cache_memory_bytes is too large: "));
        assert!(told.ends_with("; at most 100000"), "{told}");
        // Of several cores each has its share.
        let memory = CacheMemory {
            available: 228 * 1000,
            default_share: DEFAULT_MEMORY_SHARE,
            num_cores: 4,
        };
        let blocks = CacheConfig {
            num_blocks_override: Some(u32::MAX),
            ..CacheConfig::default()
        };
        let told = size_kv_cache(&blocks, None, 1000, 4, 100, memory).unwrap_err();
        let told = told.to_string();
        let says =
            "for this core, one of 4 (data_parallel_size) that share out the memory; at most 1000";
        assert!(told.ends_with(says), "{told}");
    }
}
