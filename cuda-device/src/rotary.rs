//! Norms of heads, rotary position embedding and the write to the paged cache.

use crate::buffer::Buffer;
use crate::device::Device;
use crate::error::{DeviceError, ensure, to_u32};
use crate::kv_cache::{Heads, KvCache, KvFormat};
use crate::launch::Arguments;
use crate::vector::{Vector, upload_f32};

/// Heads of a block of the kernels: a warp each.
const HEADS_PER_BLOCK: usize = 4;

/// Cosines and sines `[max_len, half]` of every position. Pairs are `(i, i + half)` of a head's first
/// `2 * half` dimensions.
#[derive(Debug)]
pub struct Rotary {
    cosines: Buffer,
    sines: Buffer,
    half: usize,
    max_len: usize,
}

impl Rotary {
    /// Copies tables of `half` pairs to the device.
    pub fn upload(
        device: &Device,
        half: usize,
        cosines: &[f32],
        sines: &[f32],
    ) -> Result<Self, DeviceError> {
        const NAME: &str = "Rotary::upload";
        let max_len = cosines.len() / half.max(1);
        ensure(half > 0 && max_len * half == cosines.len(), NAME, || {
            format!("{} cosines are no rows of {half}", cosines.len())
        })?;
        ensure(cosines.len() == sines.len(), NAME, || {
            format!("{} cosines and {} sines", cosines.len(), sines.len())
        })?;
        Ok(Self {
            cosines: upload_f32(device, cosines)?,
            sines: upload_f32(device, sines)?,
            half,
            max_len,
        })
    }

    /// Pairs of a head.
    pub fn half(&self) -> usize {
        self.half
    }

    /// Positions in the tables.
    pub fn max_len(&self) -> usize {
        self.max_len
    }
}

/// RMS norms of each query head and each key head, by weights `[head_dim]`.
#[derive(Debug, Clone, Copy)]
pub struct QkNorm<'a> {
    /// Weight of query heads.
    pub q_weight: &'a Vector,
    /// Weight of key heads.
    pub k_weight: &'a Vector,
    /// Added to the mean square.
    pub eps: f32,
}

/// Where the rows of a batch stand in the cache.
#[derive(Debug, Clone, Copy)]
pub struct Slots<'a> {
    /// `[rows]` u32 positions, for the rotation.
    pub positions: &'a Buffer,
    /// `[rows]` u32 slots, `block * block_size + position in the block`. A slot that the cache hasn't is not written.
    pub slots: &'a Buffer,
}

impl Device {
    /// RMS norm of each query head and each key head inside `[queries | keys | values]` `[rows, qkv_width]`.
    pub fn qk_norm(
        &self,
        qkv: &mut Buffer,
        rows: usize,
        heads: Heads,
        norm: QkNorm<'_>,
    ) -> Result<(), DeviceError> {
        self.head_step(qkv, rows, heads, Some(norm), None, None)
    }

    /// Rotates queries and keys `[rows, qkv_width]` in place by their positions, where there is a rotation, and writes
    /// keys and values to their slots. Positions beyond the tables give NaN.
    pub fn rotary_and_kv_write(
        &self,
        qkv: &mut Buffer,
        rows: usize,
        heads: Heads,
        rotary: Option<&Rotary>,
        slots: Slots<'_>,
        cache: &mut KvCache,
    ) -> Result<(), DeviceError> {
        self.head_step(qkv, rows, heads, None, rotary, Some((slots, cache)))
    }

    /// [`Self::qk_norm`] and [`Self::rotary_and_kv_write`] in one launch, with the same results.
    #[allow(clippy::too_many_arguments)] // Those of the two.
    pub fn qk_norm_rotary_and_kv_write(
        &self,
        qkv: &mut Buffer,
        rows: usize,
        heads: Heads,
        norm: QkNorm<'_>,
        rotary: Option<&Rotary>,
        slots: Slots<'_>,
        cache: &mut KvCache,
    ) -> Result<(), DeviceError> {
        self.head_step(qkv, rows, heads, Some(norm), rotary, Some((slots, cache)))
    }

    fn head_step(
        &self,
        qkv: &mut Buffer,
        rows: usize,
        heads: Heads,
        norm: Option<QkNorm<'_>>,
        rotary: Option<&Rotary>,
        write: Option<(Slots<'_>, &mut KvCache)>,
    ) -> Result<(), DeviceError> {
        const NAME: &str = "rotary_and_kv_write";
        heads.check(NAME)?;
        qkv.require_rows(self, NAME, "qkv", rows, heads.qkv_width())?;
        if let Some(QkNorm {
            q_weight, k_weight, ..
        }) = norm
        {
            for weight in [q_weight, k_weight] {
                weight
                    .buffer
                    .require(self, NAME, "the norm's weight", 0, 0)?;
                ensure(weight.width() == heads.head_dim, NAME, || {
                    format!("a weight of {} for {heads:?}", weight.width())
                })?;
            }
        }
        if let Some(rotary) = rotary {
            rotary.cosines.require(self, NAME, "the rotation", 0, 0)?;
            ensure(2 * rotary.half <= heads.head_dim, NAME, || {
                format!("{} pairs for {heads:?}", rotary.half)
            })?;
        }
        if let Some((slots, cache)) = &write {
            cache.check(self, NAME, &heads)?;
            slots
                .positions
                .require_rows(self, NAME, "positions", rows, 1)?;
            slots.slots.require_rows(self, NAME, "slots", rows, 1)?;
        }
        let kernel = match write.as_ref().map(|(_, cache)| cache.format()) {
            Some(KvFormat::Bf16) => "head_step_bf16",
            _ => "head_step_f32",
        };
        let all_heads = heads.num_heads + 2 * heads.num_kv_heads;
        let items = to_u32(NAME, "rows", rows.saturating_mul(all_heads))?;
        let cache = write.as_ref().map(|(_, cache)| &**cache);
        let block_size = cache.map_or(1, KvCache::block_size);
        let num_slots = cache.map_or(0, |cache| cache.num_blocks() * cache.block_size());
        let arguments = Arguments::new()
            .buffer(qkv)
            .u32(to_u32(NAME, "rows", rows)?)
            .u32(heads.num_heads as u32)
            .u32(heads.num_kv_heads as u32)
            .u32(heads.head_dim as u32)
            .optional(norm.map(|norm| &norm.q_weight.buffer))
            .optional(norm.map(|norm| &norm.k_weight.buffer))
            .f32(norm.map_or(0.0, |norm| norm.eps))
            .optional(rotary.map(|rotary| &rotary.cosines))
            .optional(rotary.map(|rotary| &rotary.sines))
            .u32(rotary.map_or(0, |rotary| rotary.half as u32))
            .u32(rotary.map_or(0, |rotary| rotary.max_len as u32))
            .optional(write.as_ref().map(|(slots, _)| slots.positions))
            .optional(write.as_ref().map(|(slots, _)| slots.slots))
            .optional(cache.map(|cache| &cache.keys))
            .optional(cache.map(|cache| &cache.values))
            .u32(block_size as u32)
            .u32(num_slots as u32);
        let grid = [items.div_ceil(HEADS_PER_BLOCK as u32), 1, 1];
        self.launch(kernel, grid, 32 * HEADS_PER_BLOCK as u32, 0, arguments)
    }
}
