//! Attention's two products by f32, at any level and over any cache: queries with keys, and weights with
//! values.

use std::ops::Range;

use super::attention_tile::Context;
use super::format::Format;
use super::multiply::{Product, multiply_rows};
use super::online_softmax::SPAN;
use super::simd::{LANES, Simd, SimdLevel, dispatch};

/// Whether any of the 16 positions from `position` on is visible.
fn is_seen(position: usize, visible: &Range<usize>) -> bool {
    position < visible.end && position + LANES > visible.start
}

/// Scores `[count, 64]` of the queries from `queries` on for the positions `span..span + 64`; minus
/// infinity or anything for those that are not visible.
///
/// # Safety
/// The processor must have `level`. `queries` must be valid for `count` rows, `scores` for writing; `visible`
/// must lie within the span and the sequence.
pub(super) unsafe fn score<F: Format>(
    level: SimdLevel,
    context: &Context<'_, F>,
    queries: *const f32,
    count: usize,
    span: usize,
    visible: Range<usize>,
    scores: *mut f32,
) {
    let (shape, block) = (context.shape, context.cache.shape);
    let zeros = [0.0f32; LANES];
    for (vec, position) in (span..span + SPAN).step_by(LANES).enumerate() {
        // SAFETY: the caller vouches for the rows; blocks of visible positions are in the table.
        unsafe {
            let to = scores.add(vec * LANES);
            if !is_seen(position, &visible) {
                for row in 0..count {
                    std::slice::from_raw_parts_mut(to.add(row * SPAN), LANES)
                        .fill(f32::NEG_INFINITY);
                }
                continue;
            }
            let (block_id, offset) = context.block_of(position);
            let product = Product::<F> {
                a: queries,
                a_stride: shape.head_dim,
                panel: context.cache.keys(block_id, context.head).as_ptr(),
                col: offset,
                width: block.block_size,
                depth: shape.head_dim,
                init: zeros.as_ptr(),
                init_stride: 0,
                c: to,
                c_stride: SPAN,
                streams: false,
            };
            multiply_rows(level, count, false, &product);
            if F::SCALED {
                let (scales, _) = context.cache.scales(block_id, context.head);
                scale_rows(level, to, count, scales[offset..][..LANES].as_ptr());
            }
        }
    }
}

/// Adds to `sums`, which begin at 0 where they are `fresh`, the values of the positions in `visible` times
/// their weights `[count, 64]`, which may be lost.
///
/// # Safety
/// As for [`score`]; weights outside of `visible` must be 0.
#[allow(clippy::too_many_arguments, reason = "a span of a tile")]
pub(super) unsafe fn add_values<F: Format>(
    level: SimdLevel,
    context: &Context<'_, F>,
    weights: *mut f32,
    count: usize,
    span: usize,
    visible: Range<usize>,
    sums: *mut f32,
    mut fresh: bool,
) {
    let width = context.cache.shape.value_width();
    let zeros = [0.0f32; 2 * LANES];
    for (vec, position) in (span..span + SPAN).step_by(LANES).enumerate() {
        if !is_seen(position, &visible) {
            continue;
        }
        // SAFETY: the caller vouches for the rows; blocks of visible positions are in the table.
        unsafe {
            let (block_id, offset) = context.block_of(position);
            let values = context.cache.values(block_id, context.head).as_ptr();
            let weights = weights.add(vec * LANES);
            if F::SCALED {
                let (_, scales) = context.cache.scales(block_id, context.head);
                scale_rows(level, weights, count, scales[offset..][..LANES].as_ptr());
            }
            let mut product = Product::<F> {
                a: weights,
                a_stride: SPAN,
                panel: values.add(F::index(offset, 0, width)),
                col: 0,
                width,
                // Slots after the last visible one may hold anything.
                depth: (visible.end - position).min(LANES),
                init: if fresh { zeros.as_ptr() } else { sums },
                init_stride: if fresh { 0 } else { width },
                c: sums,
                c_stride: width,
                streams: false,
            };
            while product.col < width {
                let wide = width - product.col >= 2 * LANES;
                multiply_rows(level, count, wide, &product);
                product.col += if wide { 2 * LANES } else { LANES };
                product.c = sums.add(product.col);
                if !fresh {
                    product.init = product.c.cast_const();
                }
            }
            fresh = false;
        }
    }
}

/// Multiplies 16 positions of `count` rows of scores or weights by the positions' scales.
#[inline(always)]
unsafe fn scale_rows_body<S: Simd>(x: *mut f32, count: usize, scales: *const f32) {
    // SAFETY: the caller vouches for 16 values of each row and of the scales.
    unsafe {
        let scales = S::load(scales);
        for row in 0..count {
            let x = x.add(row * SPAN);
            S::store(x, S::mul(S::load(x), scales));
        }
    }
}

dispatch! {
    /// Multiplies 16 positions of `count` rows by the positions' scales.
    ///
    /// # Safety
    /// `x` must be valid for 16 values of each row, 64 apart, and `scales` for 16.
    unsafe fn scale_rows(x: *mut f32, count: usize, scales: *const f32) = scale_rows_body
}
