//! The paged cache of one layer: where keys and values stand, and their writing.
//!
//! A block holds, per layer and key head, its keys as a panel `[head_dim, block_size]` and its values as a
//! panel `[block_size, head_dim]`, so that both products of attention are the same kernel as a
//! linear layer: 16 tokens at once for the scores, 16 dimensions at once for the output.

use super::activation::{Activation, for_each_row, rms_norm_row};
use super::buffer::SharedMut;
use super::format::Format;
use super::layer_blocks::LayerBlocks;
use super::simd::{self, LANES, Simd, SimdLevel, dispatch};
use crate::model_executor::backend::AttentionShape;
use crate::model_executor::compute_pool::ComputePool;
use crate::model_executor::error::ModelError;
use crate::model_executor::rotary::RotaryTable;

/// Sizes of a block's panels for one key head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockShape {
    pub(crate) block_size: usize,
    pub(crate) head_dim: usize,
    pub(crate) num_kv_heads: usize,
}

impl BlockShape {
    pub(crate) fn new(shape: AttentionShape, block_size: usize) -> Self {
        Self {
            block_size,
            head_dim: shape.head_dim,
            num_kv_heads: shape.num_kv_heads,
        }
    }

    /// Width of a value's row, a whole number of vectors.
    pub(crate) fn value_width(&self) -> usize {
        self.head_dim.next_multiple_of(LANES)
    }

    /// Elements of the keys of one head in one block.
    pub(crate) fn key_len<F: Format>(&self) -> usize {
        F::panel_len(self.head_dim, self.block_size)
    }

    /// Elements of the values of one head in one block.
    pub(crate) fn value_len<F: Format>(&self) -> usize {
        F::panel_len(self.block_size, self.value_width())
    }

    /// Scales of the keys, and of the values, of one head in one block.
    pub(crate) fn num_scales<F: Format>(&self) -> usize {
        if F::SCALED { self.block_size } else { 0 }
    }

    /// Bytes of one block over all key heads.
    pub(crate) fn bytes<F: Format>(&self) -> usize {
        let elements = self.key_len::<F>() + self.value_len::<F>();
        let scales = 2 * self.num_scales::<F>();
        self.num_kv_heads * (elements * size_of::<F::Element>() + scales * size_of::<f32>())
    }
}

/// Keys and values of one layer.
pub(crate) struct KvCache<F: Format> {
    pub(crate) shape: BlockShape,
    /// In each block `[num_kv_heads]` panels `[head_dim, block_size]`.
    keys: LayerBlocks<F::Element>,
    /// In each block `[num_kv_heads]` panels `[block_size, head_dim]`.
    values: LayerBlocks<F::Element>,
    /// In each block `[num_kv_heads, 2, block_size]` scales of keys and of values, where the format
    /// has any.
    scales: LayerBlocks<f32>,
}

impl<F: Format> KvCache<F> {
    /// Caches for `num_layers` layers of one model.
    pub(crate) fn allocate(
        shape: BlockShape,
        num_blocks: usize,
        num_layers: usize,
    ) -> Result<Vec<Self>, ModelError> {
        let (what, heads) = ("KV cache", shape.num_kv_heads);
        let keys = heads.saturating_mul(shape.key_len::<F>());
        let values = heads.saturating_mul(shape.value_len::<F>());
        let scales = heads.saturating_mul(2 * shape.num_scales::<F>());
        let keys = LayerBlocks::zeroed(what, num_blocks, num_layers, keys)?;
        let values = LayerBlocks::zeroed(what, num_blocks, num_layers, values)?;
        let scales = LayerBlocks::zeroed(what, num_blocks, num_layers, scales)?;
        let layers = keys.into_iter().zip(values).zip(scales);
        let layers = layers.map(|((keys, values), scales)| Self {
            shape,
            keys,
            values,
            scales,
        });
        Ok(layers.collect())
    }

    /// The keys of one head in one block.
    pub(crate) fn keys(&self, block: usize, head: usize) -> &[F::Element] {
        let len = self.shape.key_len::<F>();
        &self.keys.part(block)[head * len..][..len]
    }

    /// The values of one head in one block.
    pub(crate) fn values(&self, block: usize, head: usize) -> &[F::Element] {
        let len = self.shape.value_len::<F>();
        &self.values.part(block)[head * len..][..len]
    }

    /// The scales of the keys and of the values of one head in one block; none in a format without.
    pub(crate) fn scales(&self, block: usize, head: usize) -> (&[f32], &[f32]) {
        let len = self.shape.num_scales::<F>();
        self.scales.part(block)[head * 2 * len..][..2 * len].split_at(len)
    }
}

/// What a head's values are divided by to be stored, and by what to multiply for it.
///
/// The scale is NaN where a value is not finite, so that what is read again isn't either.
#[inline(always)]
fn scale_of<F: Format>(values: &[f32]) -> (f32, f32) {
    if !F::SCALED {
        return (1.0, 1.0);
    }
    // Magnitudes are in the order of their bits, and such a maximum goes by whole vectors. What is not
    // finite is above all that is.
    let largest = values
        .iter()
        .fold(0, |most: u32, value| most.max(value.abs().to_bits()));
    let largest = f32::from_bits(largest);
    if !largest.is_finite() {
        return (f32::NAN, 0.0);
    }
    // Below that the quotient would overflow; the values count as 0.
    let inverse = if largest > 1e-30 {
        127.0 / largest
    } else {
        0.0
    };
    (largest / 127.0, inverse)
}

/// Rotates pairs by angles. A function, since a closure that isn't inlined would be compiled without
/// the level's instructions.
#[inline(always)]
unsafe fn turn<S: Simd>(first: S::V, second: S::V, cos: S::V, sin: S::V) -> (S::V, S::V) {
    // SAFETY: lanes only; the caller vouches for the level.
    unsafe {
        let negative = S::sub(S::splat(0.0), S::mul(second, sin));
        (
            S::fma(first, cos, negative),
            S::fma(second, cos, S::mul(first, sin)),
        )
    }
}

/// Rotates the first `2 * half` values of a head in place: `(x_i, x_i+half)` by the angle of pair
/// `i`.
#[inline(always)]
unsafe fn rotate_body<S: Simd>(x: *mut f32, cos: *const f32, sin: *const f32, half: usize) {
    // SAFETY: the caller vouches for `2 * half` values of `x` and `half` of the others.
    unsafe {
        let (whole, rest) = (half - half % LANES, half % LANES);
        for i in (0..whole).step_by(LANES) {
            let (first, second) = (S::load(x.add(i)), S::load(x.add(half + i)));
            let (first, second) =
                turn::<S>(first, second, S::load(cos.add(i)), S::load(sin.add(i)));
            S::store(x.add(i), first);
            S::store(x.add(half + i), second);
        }
        if rest > 0 {
            let (first, second) = turn::<S>(
                simd::load_first::<S>(x.add(whole), rest),
                simd::load_first::<S>(x.add(half + whole), rest),
                simd::load_first::<S>(cos.add(whole), rest),
                simd::load_first::<S>(sin.add(whole), rest),
            );
            simd::store_first::<S>(x.add(whole), first, rest);
            simd::store_first::<S>(x.add(half + whole), second, rest);
        }
    }
}

dispatch! {
    /// Rotates one head in place.
    ///
    /// # Safety
    /// `x` must be valid for `2 * half` values, `cos` and `sin` for `half`.
    unsafe fn rotate(x: *mut f32, cos: *const f32, sin: *const f32, half: usize) = rotate_body
}

/// Writes a token's key and value of one head to its place in a block: a column of the keys' panel, a row
/// of the values', and their scales.
#[inline(always)]
unsafe fn write_head_body<S: Simd, F: Format>(
    block: BlockShape,
    token: usize,
    (key, value): (&[f32], &[f32]),
    keys: *mut F::Element,
    values: *mut F::Element,
    scales: *mut f32,
) {
    let (key_scale, key_factor) = scale_of::<F>(key);
    let (value_scale, value_factor) = scale_of::<F>(value);
    let value_width = block.value_width();
    // SAFETY: a panel holds these rows and columns, as the caller vouches.
    unsafe {
        if F::SCALED {
            *scales.add(token) = key_scale;
            *scales.add(block.block_size + token) = value_scale;
        }
        for (dim, key) in key.iter().enumerate() {
            let to = keys.add(F::index(dim, token, block.block_size));
            *to = F::from_f32(*key * key_factor);
        }
        for (dim, value) in value.iter().enumerate() {
            let to = values.add(F::index(token, dim, value_width));
            *to = F::from_f32(*value * value_factor);
        }
    }
}

dispatch! {
    /// Writes a token's key and value of one head, in loops that the compiler vectorises.
    ///
    /// # Safety
    /// The pointers must be those of one head of a block of this shape; `token` must be below its size,
    /// and key and value `head_dim` long. Nothing else may be reading or writing the token's elements.
    unsafe fn write_head[F: Format](
        block: BlockShape,
        token: usize,
        head: (&[f32], &[f32]),
        keys: *mut F::Element,
        values: *mut F::Element,
        scales: *mut f32,
    ) = write_head_body
}

/// Rotates queries and keys of `[queries | keys | values]`, where a table says so, and writes keys
/// and values to `slots`. Those of `shared_rows` are then written to `shared_slots` too.
#[allow(clippy::too_many_arguments, reason = "the step's inputs")]
pub(crate) fn rotary_and_kv_write<F: Format>(
    pool: &ComputePool,
    level: SimdLevel,
    qkv: &mut Activation,
    shape: AttentionShape,
    rotary: Option<&RotaryTable>,
    positions: &[u32],
    slots: &[u32],
    (shared_rows, shared_slots): (&[u32], &[u32]),
    cache: &mut KvCache<F>,
) -> Result<(), ModelError> {
    let (rows, width, stride) = (qkv.rows(), qkv.width(), qkv.stride());
    assert!(width == shape.qkv_width() && rows == positions.len() && rows == slots.len());
    assert!(shared_rows.iter().all(|&row| (row as usize) < rows));
    assert!(
        rotary.is_none_or(|rotary| rotary.half() * 2 <= shape.head_dim),
        "rotary table of another model"
    );
    let block = cache.shape;
    let (key_len, value_len) = (block.key_len::<F>(), block.value_len::<F>());
    let qkv = SharedMut::new(qkv.as_mut_slice());
    let num_scales = 2 * block.num_scales::<F>();
    let cache: &KvCache<F> = cache;
    let write = |slot: u32, x_keys: &[f32], x_values: &[f32]| {
        let (slot_block, token) = (
            slot as usize / block.block_size,
            slot as usize % block.block_size,
        );
        let heads = x_keys.chunks_exact(shape.head_dim);
        let heads = heads.zip(x_values.chunks_exact(shape.head_dim));
        for (head, (key, value)) in heads.enumerate() {
            // SAFETY: the panels are those of one head of one block, and as long as checked here.
            // The elements of one slot are written once, since slots differ:
            // `ForwardInput::validate` has seen to it. The cache is borrowed mutably: nobody reads it.
            unsafe {
                let keys = cache.keys.ptr(slot_block, head * key_len, key_len);
                let values = cache.values.ptr(slot_block, head * value_len, value_len);
                let scales = cache.scales.ptr(slot_block, head * num_scales, num_scales);
                write_head::<F>(level, block, token, (key, value), keys, values, scales);
            }
        }
    };
    for_each_row(pool, rows, width, &|row, _| {
        // SAFETY: each row belongs to one call.
        let x = unsafe { std::slice::from_raw_parts_mut(qkv.ptr(row * stride, width), width) };
        let (rotated, x_values) = x.split_at_mut(shape.q_width() + shape.kv_width());
        if let Some(rotary) = rotary {
            let (cos, sin) = rotary.angles(positions[row] as usize);
            for head in rotated.chunks_exact_mut(shape.head_dim) {
                let head = head.as_mut_ptr();
                // SAFETY: a head has at least `2 * half` values, as asserted above, and cosines and
                // sines are `half` each.
                unsafe { rotate(level, head, cos.as_ptr(), sin.as_ptr(), cos.len()) };
            }
        }
        write(slots[row], &rotated[shape.q_width()..], x_values);
    })?;
    if shared_slots.is_empty() {
        return Ok(());
    }
    for_each_row(pool, shared_slots.len(), width, &|index, _| {
        let row = shared_rows[index] as usize;
        // SAFETY: nobody writes to a row any more.
        let x = unsafe { std::slice::from_raw_parts(qkv.ptr(row * stride, width), width) };
        let (x_keys, x_values) = x[shape.q_width()..].split_at(shape.kv_width());
        write(shared_slots[index], x_keys, x_values);
    })?;
    Ok(())
}

/// RMS norm of each query head and key head of `[queries | keys | values]`, in place.
pub(crate) fn qk_norm(
    pool: &ComputePool,
    level: SimdLevel,
    qkv: &mut Activation,
    shape: AttentionShape,
    q_weight: &[f32],
    k_weight: &[f32],
    eps: f32,
) -> Result<(), ModelError> {
    let (rows, width, stride) = (qkv.rows(), qkv.width(), qkv.stride());
    assert!(width == shape.qkv_width(), "widths differ");
    assert!(q_weight.len() == shape.head_dim && k_weight.len() == shape.head_dim);
    let qkv = SharedMut::new(qkv.as_mut_slice());
    for_each_row(pool, rows, width, &|row, _| {
        for head in 0..shape.num_heads + shape.num_kv_heads {
            let weight = if head < shape.num_heads {
                q_weight
            } else {
                k_weight
            };
            // SAFETY: each row belongs to one call; a head and its weight hold `head_dim` values.
            unsafe {
                let x = qkv.ptr(row * stride + head * shape.head_dim, shape.head_dim);
                rms_norm_row(level, x, weight.as_ptr(), shape.head_dim, eps, x);
            }
        }
    })?;
    Ok(())
}
