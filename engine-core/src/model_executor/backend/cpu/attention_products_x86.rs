//! Attention's two products by tiles (AMX) where the cache holds bfloat16: queries with keys, and weights
//! with values.
//!
//! Queries and weights are f32. They go as two bfloat16 each, the nearest one and what is nearest to the
//! rest, which together hold 16 bits of them; so results are those of f32 but for some millionths. Every
//! sum goes by 16 of the depth in ascending order, whatever rows are beside it.

use std::arch::asm;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use super::attention_tile::Context;
use super::format::Format;
use super::online_softmax::SPAN;
use super::simd::{LANES, SimdLevel};
use super::tiles_x86::{TILE_BYTES, TILE_ROWS, Tiles};
use crate::model_executor::backend::AttentionShape;

/// Most rows at once.
pub(super) const MOST_ROWS: usize = TILE_ROWS;

/// The widest head.
const MOST_DIMS: usize = 256;

/// Pairs of the depth in a step.
const STEP: usize = LANES / 2;

/// Tiles of columns that pass at once.
const COLS: usize = 4;

const _: () = assert!(SPAN == COLS * LANES);

/// Whether attention over a cache of format `F` goes this way. All of a model's steps do, or none: sums
/// are others.
pub(super) fn are_for<F: Format>(level: SimdLevel, shape: AttentionShape) -> bool {
    F::IS_BF16
        && level.has_tiles()
        && shape.head_dim.is_multiple_of(LANES)
        && shape.head_dim <= MOST_DIMS
}

/// This thread's tiles, shaped for as many rows as came last.
pub(super) struct SpanTiles {
    shapes: Option<(usize, Tiles)>,
}

impl SpanTiles {
    /// Where [`are_for`] says so.
    pub(super) fn new<F: Format>(level: SimdLevel, shape: AttentionShape) -> Option<Self> {
        are_for::<F>(level, shape).then_some(Self { shapes: None })
    }

    /// Shapes the tiles for `rows` rows.
    ///
    /// # Safety
    /// The processor must have tiles, and no other value of [`Tiles`] may live in this thread.
    pub(super) unsafe fn shape(&mut self, rows: usize) {
        if self
            .shapes
            .as_ref()
            .is_none_or(|(shaped, _)| *shaped != rows)
        {
            // The old one ends before the new one begins.
            self.shapes = None;
            // SAFETY: passed on to the caller.
            self.shapes = Some((rows, unsafe { Tiles::for_attention(rows) }));
        }
    }

    /// Scores `[count, 64]` of the queries from `queries` on, as [`split_query`] left them, for the
    /// positions `span..span + 64`, of which those outside of `visible` become anything.
    ///
    /// # Safety
    /// [`are_for`] must hold. `queries` must be valid for `count` rows, at most 16, and `scores` for
    /// writing; `visible` must lie within the span and the sequence, and not be empty.
    pub(super) unsafe fn score<F: Format>(
        &mut self,
        context: &Context<'_, F>,
        queries: *const u32,
        count: usize,
        span: usize,
        visible: std::ops::Range<usize>,
        scores: *mut f32,
    ) {
        let head_dim = context.shape.head_dim;
        let row_bytes = context.cache.shape.block_size * size_of::<u32>();
        let keys_at = |position: usize| -> *const u8 {
            let (block, offset) = context.block_of(position);
            let keys = context.cache.keys(block, context.head).as_ptr();
            keys.cast::<u32>().wrapping_add(offset).cast()
        };
        let mut keys = [keys_at(visible.start / LANES * LANES); COLS];
        for (vec, keys) in keys.iter_mut().enumerate() {
            let position = span + vec * LANES;
            if position < visible.end && position + LANES > visible.start {
                *keys = keys_at(position);
            }
        }
        let mut steps = [MaybeUninit::<[*const u8; COLS]>::uninit(); MOST_DIMS / LANES];
        let num_steps = head_dim / LANES;
        for step in &mut steps[..num_steps] {
            step.write(keys);
            keys = keys.map(|keys| keys.wrapping_add(STEP * row_bytes));
        }
        // SAFETY: the caller vouches for queries and scores; each of the keys' panels holds its 16 tokens
        // in all of its depth, of which a step takes 16. The steps are written.
        unsafe {
            self.shape(count);
            multiply(
                Products {
                    a: queries,
                    low: head_dim / 2,
                    a_stride: head_dim,
                    steps: steps.as_ptr().cast(),
                    num_steps,
                    b_stride: row_bytes,
                    c: scores,
                    c_stride: SPAN,
                },
                COLS,
                true,
            );
        }
    }

    /// Adds to `sums` `[count, head_dim]`, which begin at 0 where they are `fresh`, the values of the positions
    /// in `visible` times their weights `[count, 64]`, which are those of `span..span + 64` and are lost.
    ///
    /// # Safety
    /// As [`Self::score`]; weights outside of `visible` must be 0.
    #[allow(clippy::too_many_arguments, reason = "a span of a tile")]
    pub(super) unsafe fn add_values<F: Format>(
        &mut self,
        context: &Context<'_, F>,
        weights: *mut f32,
        count: usize,
        span: usize,
        visible: std::ops::Range<usize>,
        sums: *mut f32,
        fresh: bool,
    ) {
        let width = context.shape.head_dim;
        let first = (visible.start - span) / LANES;
        let num_steps = (visible.end - span).div_ceil(LANES) - first;
        let mut cut = [MaybeUninit::<u32>::uninit(); STEP * MOST_DIMS];
        let mut values = [std::ptr::null::<u32>(); COLS];
        // SAFETY: the caller vouches for the weights and for the positions, whose values are in a panel of
        // `width` columns; the copy holds as many.
        unsafe {
            for row in 0..count {
                split_weights(weights.add(row * SPAN));
            }
            for (step, values) in values.iter_mut().enumerate().take(num_steps) {
                let position = span + (first + step) * LANES;
                let (block, offset) = context.block_of(position);
                let panel = context.cache.values(block, context.head).as_ptr();
                *values = panel.cast::<u32>().wrapping_add(offset / 2 * width);
                // Slots after the last visible one may hold anything.
                let depth = visible.end - position;
                if depth < LANES {
                    let cut = cut.as_mut_ptr().cast::<u32>();
                    copy_tokens(*values, width, depth, cut);
                    *values = cut;
                }
            }
            self.shape(count);
            let mut col = 0;
            while col < width {
                let cols = if width - col >= COLS * LANES { COLS } else { 1 };
                let steps = values.map(|values| {
                    std::array::from_fn::<*const u8, COLS, _>(|tile| {
                        values.wrapping_add(col + tile * LANES).cast()
                    })
                });
                multiply(
                    Products {
                        a: weights.cast::<u32>().add(first * STEP),
                        low: SPAN / 2,
                        a_stride: SPAN,
                        steps: steps.as_ptr(),
                        num_steps,
                        b_stride: width * size_of::<u32>(),
                        c: sums.add(col),
                        c_stride: width,
                    },
                    cols,
                    fresh,
                );
                col += cols * LANES;
            }
        }
    }
}

/// The pairs of the first `depth` of 16 tokens, and zeros.
///
/// # Safety
/// `from` and `to` must be valid for 8 rows of `width` pairs.
unsafe fn copy_tokens(from: *const u32, width: usize, depth: usize, to: *mut u32) {
    let whole = depth / 2;
    // SAFETY: the caller vouches for all rows.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, whole * width);
        to.add(whole * width).write_bytes(0, (STEP - whole) * width);
        if depth % 2 == 1 {
            for at in whole * width..(whole + 1) * width {
                // The first of a pair is in the lower half.
                *to.add(at) = *from.add(at) & 0xffff;
            }
        }
    }
}

/// 16 values as the nearest bfloat16, and as what is nearest to the rest.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
fn split(values: __m512) -> (__m256i, __m256i) {
    // SAFETY: only the type changes: 16 times 16 bits.
    let bits = |pairs: __m256bh| unsafe { std::mem::transmute::<__m256bh, __m256i>(pairs) };
    let high = bits(_mm512_cvtneps_pbh(values));
    let widened = _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(high));
    let rest = _mm512_sub_ps(values, _mm512_castsi512_ps(widened));
    (high, bits(_mm512_cvtneps_pbh(rest)))
}

/// Writes `scale * query` as pairs of bfloat16: half a row of the nearest ones, and half a row of what is
/// nearest to the rest.
///
/// # Safety
/// [`are_for`] must hold for heads of `head_dim`. `query` and `to` must be valid for as many values.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
pub(super) unsafe fn split_query(query: *const f32, head_dim: usize, scale: f32, to: *mut u32) {
    let scale = _mm512_set1_ps(scale);
    for at in (0..head_dim).step_by(LANES) {
        // SAFETY: the caller vouches for whole vectors.
        unsafe {
            let (high, low) = split(_mm512_mul_ps(_mm512_loadu_ps(query.add(at)), scale));
            _mm256_storeu_si256(to.add(at / 2).cast(), high);
            _mm256_storeu_si256(to.add((head_dim + at) / 2).cast(), low);
        }
    }
}

/// The same of 64 weights, in place.
///
/// # Safety
/// The processor must have bfloat16; `weights` must be valid for 64 values.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
unsafe fn split_weights(weights: *mut f32) {
    // SAFETY: the caller vouches for the values; all are read before the first is written.
    unsafe {
        let values: [__m512; COLS] = [
            _mm512_loadu_ps(weights),
            _mm512_loadu_ps(weights.add(LANES)),
            _mm512_loadu_ps(weights.add(2 * LANES)),
            _mm512_loadu_ps(weights.add(3 * LANES)),
        ];
        for (vec, values) in values.into_iter().enumerate() {
            let (high, low) = split(values);
            let to = weights.add(vec * STEP);
            _mm256_storeu_si256(to.cast(), high);
            _mm256_storeu_si256(to.add(SPAN / 2).cast(), low);
        }
    }
}

/// Rows of pairs of bfloat16 times panels. Strides of rows are in words, that of panels in bytes.
struct Products {
    /// The nearest bfloat16 of the first row.
    a: *const u32,
    /// Words from there to what is nearest to the rest.
    low: usize,
    a_stride: usize,
    /// For every 8 pairs of the depth their rows, from the first column of each tile on.
    steps: *const [*const u8; COLS],
    num_steps: usize,
    b_stride: usize,
    c: *mut f32,
    c_stride: usize,
}

/// One block of assembly: what it leaves in tiles nobody reads.
macro_rules! products_block {
    ($products:ident, [$($begin:literal),*], [$($product:literal),*], [$($store:literal),*]) => {
        asm!(
            $($begin,)*
            "2:",
            "tileloadd tmm4, [{a} + {s}]",
            "tileloadd tmm5, [{l} + {s}]",
            $($product,)*
            "add {a}, 32",
            "add {l}, 32",
            "add {b}, 32",
            "dec {n}",
            "jnz 2b",
            $($store,)*
            a = inout(reg) $products.a => _,
            l = inout(reg) $products.a.add($products.low) => _,
            s = in(reg) $products.a_stride * size_of::<u32>(),
            b = inout(reg) $products.steps => _,
            bs = in(reg) $products.b_stride,
            n = inout(reg) $products.num_steps => _,
            c = in(reg) $products.c,
            cs = in(reg) $products.c_stride * size_of::<f32>(),
            p = out(reg) _,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        )
    };
}

/// The same for four tiles of columns.
macro_rules! wide_block {
    ($products:ident, [$($begin:literal),*]) => {
        products_block!(
            $products,
            [$($begin),*],
            [
                "mov {p}, [{b}]",
                "tileloadd tmm6, [{p} + {bs}]",
                "mov {p}, [{b} + 8]",
                "tileloadd tmm7, [{p} + {bs}]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm0, tmm5, tmm6",
                "tdpbf16ps tmm1, tmm5, tmm7",
                "mov {p}, [{b} + 16]",
                "tileloadd tmm6, [{p} + {bs}]",
                "mov {p}, [{b} + 24]",
                "tileloadd tmm7, [{p} + {bs}]",
                "tdpbf16ps tmm2, tmm4, tmm6",
                "tdpbf16ps tmm3, tmm4, tmm7",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7"
            ],
            [
                "tilestored [{c} + {cs}], tmm0",
                "tilestored [{c} + {cs} + 64], tmm1",
                "tilestored [{c} + {cs} + 128], tmm2",
                "tilestored [{c} + {cs} + 192], tmm3"
            ]
        )
    };
}

/// The same for one tile of columns.
macro_rules! narrow_block {
    ($products:ident, $begin:literal) => {
        products_block!(
            $products,
            [$begin],
            [
                "mov {p}, [{b}]",
                "tileloadd tmm6, [{p} + {bs}]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm0, tmm5, tmm6"
            ],
            ["tilestored [{c} + {cs}], tmm0"]
        )
    };
}

/// `c += a * b`, or (`from_zero`) `c = a * b`, for four tiles of columns or one.
///
/// # Safety
/// This thread's [`Tiles::for_attention`] must be of as many rows as `a` and `c` are valid for. The steps
/// must be at least one, each valid for 8 rows of 16 pairs at every tile of columns, and `c` for those.
unsafe fn multiply(products: Products, cols: usize, from_zero: bool) {
    // SAFETY: the caller vouches for the shapes and for what is read and written.
    unsafe {
        match (cols, from_zero) {
            (COLS, true) => wide_block!(
                products,
                [
                    "tilezero tmm0",
                    "tilezero tmm1",
                    "tilezero tmm2",
                    "tilezero tmm3"
                ]
            ),
            (COLS, false) => wide_block!(
                products,
                [
                    "tileloadd tmm0, [{c} + {cs}]",
                    "tileloadd tmm1, [{c} + {cs} + 64]",
                    "tileloadd tmm2, [{c} + {cs} + 128]",
                    "tileloadd tmm3, [{c} + {cs} + 192]"
                ]
            ),
            (_, true) => narrow_block!(products, "tilezero tmm0"),
            (_, false) => narrow_block!(products, "tileloadd tmm0, [{c} + {cs}]"),
        }
    }
}

const _: () = assert!(TILE_BYTES == LANES * size_of::<f32>());
