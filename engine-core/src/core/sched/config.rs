//! The rules between the scheduler's limits.

use std::num::NonZeroUsize;

use protocol::SchedulerConfig;

use crate::core::kv_cache_manager::KVCacheConfig;

/// Why a scheduler can't work with a configuration.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SchedulerError {
    /// A field has a value that it can't have.
    #[error("{field} is {value}: {expected}")]
    InvalidConfig {
        /// Name of the field.
        field: &'static str,
        /// Its value.
        value: String,
        /// What would be right.
        expected: String,
    },
}

/// An [`SchedulerError::InvalidConfig`].
fn invalid(
    field: &'static str,
    value: impl ToString,
    expected: impl Into<String>,
) -> SchedulerError {
    SchedulerError::InvalidConfig {
        field,
        value: value.to_string(),
        expected: expected.into(),
    }
}

/// Whether a scheduler can work with these limits; the block size if so.
pub(super) fn validate(
    config: &SchedulerConfig,
    kv_cache_config: &KVCacheConfig,
    max_model_len: u32,
) -> Result<NonZeroUsize, SchedulerError> {
    let SchedulerConfig {
        max_num_batched_tokens,
        max_num_seqs,
        long_prefill_token_threshold,
        enable_chunked_prefill,
        watermark,
        max_num_queued_reqs,
        max_num_queued_tokens,
        policy: _,
        scheduler_reserve_full_isl: _,
    } = *config;
    let KVCacheConfig {
        num_blocks,
        block_size,
        ..
    } = *kv_cache_config;
    if max_model_len < 2 {
        let expected = "at least 2, one prompt token and one output token";
        return Err(invalid("max_model_len", max_model_len, expected));
    }
    let Some(tokens_per_block) = NonZeroUsize::new(block_size as usize) else {
        return Err(invalid("block_size", block_size, "at least 1"));
    };
    let capacity = u64::from(num_blocks.saturating_sub(1)) * u64::from(block_size);
    if capacity < u64::from(max_model_len) {
        let expected = format!(
            "with the null block apart this holds {capacity} tokens of {block_size} per block, \
             fewer than max_model_len {max_model_len}; lower max_model_len or give the KV cache \
             at least {} blocks",
            u64::from(max_model_len).div_ceil(u64::from(block_size)) + 1,
        );
        return Err(invalid("num_blocks", num_blocks, expected));
    }
    if max_num_seqs == 0 {
        return Err(invalid("max_num_seqs", max_num_seqs, "at least 1"));
    }
    if max_num_batched_tokens < max_num_seqs {
        let expected = format!("at least max_num_seqs {max_num_seqs}");
        return Err(invalid(
            "max_num_batched_tokens",
            max_num_batched_tokens,
            expected,
        ));
    }
    if !enable_chunked_prefill && max_num_batched_tokens < max_model_len {
        let expected =
            format!("at least max_model_len {max_model_len} where enable_chunked_prefill is off",);
        return Err(invalid(
            "max_num_batched_tokens",
            max_num_batched_tokens,
            expected,
        ));
    }
    if long_prefill_token_threshold > max_model_len {
        let expected = format!("at most max_model_len {max_model_len}, or 0 for off");
        return Err(invalid(
            "long_prefill_token_threshold",
            long_prefill_token_threshold,
            expected,
        ));
    }
    if long_prefill_token_threshold > 0 && !enable_chunked_prefill {
        let expected = "0 where enable_chunked_prefill is off: a prompt may not be cut then";
        return Err(invalid(
            "long_prefill_token_threshold",
            long_prefill_token_threshold,
            expected,
        ));
    }
    if !(0.0..1.0).contains(&watermark) {
        return Err(invalid(
            "watermark",
            watermark,
            "a share of the blocks, 0 <= watermark < 1",
        ));
    }
    if max_num_queued_reqs == Some(0) {
        return Err(invalid(
            "max_num_queued_reqs",
            0,
            "at least 1, or absent for no limit",
        ));
    }
    if max_num_queued_tokens == Some(0) {
        return Err(invalid(
            "max_num_queued_tokens",
            0,
            "at least 1, or absent for no limit",
        ));
    }
    Ok(tokens_per_block)
}
