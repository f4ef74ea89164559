//! The paged cache of keys and values.

use crate::buffer::Buffer;
use crate::device::Device;
use crate::error::{DeviceError, ensure, to_u32};

/// How keys and values are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvFormat {
    /// 4 bytes a value.
    F32,
    /// 2 bytes a value.
    Bf16,
}

impl KvFormat {
    fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }
}

/// Heads of an attention layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    /// Query heads.
    pub num_heads: usize,
    /// Key heads, and value heads; divides `num_heads`.
    pub num_kv_heads: usize,
    /// Width of a head, at most 256.
    pub head_dim: usize,
}

/// Widest head that the kernels have room for.
pub(crate) const MAX_HEAD_DIM: usize = 256;

impl Heads {
    /// Width of `[queries | keys | values]`.
    pub fn qkv_width(&self) -> usize {
        (self.num_heads + 2 * self.num_kv_heads) * self.head_dim
    }

    /// Width of all query heads.
    pub fn q_width(&self) -> usize {
        self.num_heads * self.head_dim
    }

    /// Fails for heads that the kernels can't treat.
    pub(crate) fn check(&self, operation: &'static str) -> Result<(), DeviceError> {
        let Self {
            num_heads,
            num_kv_heads,
            head_dim,
        } = *self;
        let divides = num_kv_heads > 0 && num_heads > 0 && num_heads.is_multiple_of(num_kv_heads);
        ensure(divides && num_heads <= 4096, operation, || {
            format!("{num_heads} query heads can't share {num_kv_heads} key heads")
        })?;
        ensure((1..=MAX_HEAD_DIM).contains(&head_dim), operation, || {
            format!("a head has 1 to {MAX_HEAD_DIM} dimensions, not {head_dim}")
        })
    }
}

/// Keys and values of one layer, `[num_blocks, num_kv_heads, block_size, head_dim]` each.
#[derive(Debug)]
pub struct KvCache {
    pub(crate) keys: Buffer,
    pub(crate) values: Buffer,
    format: KvFormat,
    num_blocks: usize,
    block_size: usize,
    num_kv_heads: usize,
    head_dim: usize,
}

impl KvCache {
    /// Room for `num_blocks` blocks of `block_size` positions, full of zeros.
    pub fn allocate(
        device: &Device,
        format: KvFormat,
        heads: Heads,
        num_blocks: usize,
        block_size: usize,
    ) -> Result<Self, DeviceError> {
        const NAME: &str = "KvCache::allocate";
        heads.check(NAME)?;
        ensure(num_blocks > 0 && block_size > 0, NAME, || {
            format!("{num_blocks} blocks of {block_size} positions hold nothing")
        })?;
        to_u32(NAME, "positions", num_blocks.saturating_mul(block_size))?;
        let bytes = Self::bytes_per_block(format, heads, block_size) / 2;
        let bytes = bytes.saturating_mul(num_blocks);
        Ok(Self {
            keys: device.allocate(bytes)?,
            values: device.allocate(bytes)?,
            format,
            num_blocks,
            block_size,
            num_kv_heads: heads.num_kv_heads,
            head_dim: heads.head_dim,
        })
    }

    /// Bytes of one block's keys and values in one layer.
    pub fn bytes_per_block(format: KvFormat, heads: Heads, block_size: usize) -> usize {
        let values = heads.num_kv_heads.saturating_mul(heads.head_dim);
        let keys = values
            .saturating_mul(block_size)
            .saturating_mul(format.bytes());
        keys.saturating_mul(2)
    }

    /// How keys and values are kept.
    pub fn format(&self) -> KvFormat {
        self.format
    }

    /// Blocks that there are.
    pub fn num_blocks(&self) -> usize {
        self.num_blocks
    }

    /// Positions of a block.
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// Fails unless the cache is of `device` and of layers with these heads.
    pub(crate) fn check(
        &self,
        device: &Device,
        operation: &'static str,
        heads: &Heads,
    ) -> Result<(), DeviceError> {
        heads.check(operation)?;
        self.keys.require(device, operation, "the cache", 0, 0)?;
        let same = (self.num_kv_heads, self.head_dim) == (heads.num_kv_heads, heads.head_dim);
        ensure(same, operation, || {
            let (own, dim) = (self.num_kv_heads, self.head_dim);
            format!("a cache of {own} heads of {dim} for {heads:?}")
        })
    }
}
