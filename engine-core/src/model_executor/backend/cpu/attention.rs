//! Paged attention: causal, grouped queries, optionally within a sliding window.
//!
//! A tile is some rows of one request with all query heads of one key head. It passes over the
//! context in spans of 64 positions and keeps, per query, a running maximum, the sum of weights
//! and the weighted sum of values (online softmax: Milakov and Gimelshein, 2018). Spans begin at
//! multiples of 64 of the absolute position, so that a query's sums are the same however its
//! request was cut into chunks and whatever else is in the batch.
//!
//! A limit: a tile takes its whole context on one thread, so a single decoding request keeps no
//! more threads busy than the model has key heads, however long its context is.

use super::activation::Activation;
use super::buffer::{Buffer, SharedMut};
use super::elementwise::softcap_row;
use super::format::Format;
use super::kv_cache::KvCache;
use super::multiply::{MAX_ROWS, Product, multiply_rows};
use super::online_softmax::{SPAN, softmax_step};
use super::query_tiles::{QueryTile, tokens_per_tile};
use super::simd::{LANES, SimdLevel};
use crate::model_executor::backend::{AttentionScores, AttentionShape};
use crate::model_executor::compute_pool::ComputePool;
use crate::model_executor::error::ModelError;

/// What the threads keep while they work on a tile.
pub(crate) struct Scratch {
    data: Buffer<f32>,
    per_thread: usize,
}

/// Parts of a thread's scratch memory, by offset.
#[derive(Clone, Copy)]
struct ScratchLayout {
    rows: usize,
    head_dim: usize,
    value_width: usize,
}

impl ScratchLayout {
    fn of(shape: AttentionShape) -> Self {
        Self {
            rows: tokens_per_tile(shape) * shape.group(),
            head_dim: shape.head_dim,
            value_width: shape.head_dim.next_multiple_of(LANES),
        }
    }
    /// Weighted sums `[rows, value_width]`; queries `[rows, head_dim]` stand at 0.
    fn sums(&self) -> usize {
        self.rows * self.head_dim
    }
    /// Sums of weights `[rows, 16]`, by lane.
    fn weights(&self) -> usize {
        self.sums() + self.rows * self.value_width
    }
    /// Running maxima `[rows]`.
    fn maxima(&self) -> usize {
        self.weights() + self.rows * LANES
    }
    /// Scores of a block of rows `[8, 64]`.
    fn scores(&self) -> usize {
        self.maxima() + self.rows
    }
    fn len(&self) -> usize {
        // Whole lines, so that threads don't share one.
        (self.scores() + MAX_ROWS * SPAN).next_multiple_of(LANES) + LANES
    }
}

impl Scratch {
    pub(crate) fn allocate(num_threads: usize, shape: AttentionShape) -> Result<Self, ModelError> {
        let per_thread = ScratchLayout::of(shape).len();
        Ok(Self {
            data: Buffer::zeroed("scratch", num_threads * per_thread)?,
            per_thread,
        })
    }
}

/// The step's batch, as attention needs it.
#[derive(Clone, Copy)]
pub(crate) struct Batch<'a> {
    pub(crate) tiles: &'a [QueryTile],
    /// `[num_reqs, block_table_stride]`
    pub(crate) block_tables: &'a [u32],
    pub(crate) block_table_stride: usize,
}

/// Attention of every row of `[queries | keys | values]` over its request's blocks.
#[allow(clippy::too_many_arguments, reason = "the step's inputs")]
pub(crate) fn paged_attention<F: Format>(
    pool: &ComputePool,
    level: SimdLevel,
    scratch: &mut Scratch,
    batch: Batch<'_>,
    qkv: &Activation,
    shape: AttentionShape,
    cache: &KvCache<F>,
    scores: AttentionScores,
    out: &mut Activation,
) -> Result<(), ModelError> {
    out.set_rows(qkv.rows())?;
    assert!(qkv.width() == shape.qkv_width() && out.width() == shape.q_width());
    assert!(
        scratch.per_thread >= ScratchLayout::of(shape).len(),
        "scratch of another model"
    );
    assert!(
        cache.shape.block_size.is_multiple_of(LANES),
        "blocks hold whole vectors of tokens"
    );
    let out_stride = out.stride();
    let out = SharedMut::new(out.as_mut_slice());
    let per_thread = scratch.per_thread;
    let scratch = SharedMut::new(&mut scratch.data);
    pool.run(batch.tiles.len() * shape.num_kv_heads, &|index, thread| {
        let tile = batch.tiles[index / shape.num_kv_heads];
        let head = index % shape.num_kv_heads;
        let row = tile.request * batch.block_table_stride;
        let width = shape.group() * shape.head_dim;
        for token in 0..tile.num_tokens {
            // SAFETY: only checks the bounds of what the kernel writes below.
            let _ = unsafe { out.ptr((tile.first_row + token) * out_stride + head * width, width) };
        }
        let context = Context {
            tile,
            head,
            shape,
            scale: scores.scale,
            softcap: scores.softcap,
            window: scores.window.unwrap_or(usize::MAX),
            block_table: &batch.block_tables[row..row + batch.block_table_stride],
            cache,
            queries: &qkv.as_slice()[tile.first_row * qkv.stride() + head * width..],
            query_stride: qkv.stride(),
        };
        // SAFETY: a thread has its own scratch memory; the outputs of a tile and head are its own
        // and lie within `out`, as just checked.
        unsafe {
            attend::<F>(
                level,
                &context,
                scratch.ptr(thread * per_thread, per_thread),
                out.ptr(tile.first_row * out_stride + head * width, width),
                out_stride,
            );
        }
    })?;
    Ok(())
}

/// One tile's inputs.
struct Context<'a, F: Format> {
    tile: QueryTile,
    /// The key head.
    head: usize,
    shape: AttentionShape,
    /// What scores are multiplied with.
    scale: f32,
    /// Bound of the scores.
    softcap: Option<f32>,
    /// Positions attended to, the query's own included.
    window: usize,
    block_table: &'a [u32],
    cache: &'a KvCache<F>,
    /// From the first query head of the tile's first row on.
    queries: &'a [f32],
    query_stride: usize,
}

impl<F: Format> Context<'_, F> {
    /// First position that the query at `position` attends to.
    #[inline(always)]
    fn first_visible(&self, position: usize) -> usize {
        (position + 1).saturating_sub(self.window)
    }

    /// Block and offset of the 16 tokens from `position` on.
    #[inline(always)]
    fn block_of(&self, position: usize) -> (usize, usize) {
        let block_size = self.cache.shape.block_size;
        (
            self.block_table[position / block_size] as usize,
            position % block_size,
        )
    }
}

/// Attention of one tile and key head.
///
/// # Safety
/// `scratch` must hold what `ScratchLayout` says and belong to this thread; `out` must be valid
/// for the tile's rows of `group * head_dim` values.
unsafe fn attend<F: Format>(
    level: SimdLevel,
    context: &Context<'_, F>,
    scratch: *mut f32,
    out: *mut f32,
    out_stride: usize,
) {
    let (tile, shape) = (context.tile, context.shape);
    let layout = ScratchLayout::of(shape);
    let group = shape.group();
    let end = tile.first_position + tile.num_tokens;
    // SAFETY: scratch memory is laid out by `ScratchLayout` for at least this tile's rows; the
    // caller vouches for the outputs.
    unsafe {
        let queries = scratch;
        let sums = scratch.add(layout.sums());
        let weights = scratch.add(layout.weights());
        let maxima = scratch.add(layout.maxima());
        let rows = tile.num_tokens * group;
        let scale = context.scale;
        for row in 0..rows {
            let from = (row / group) * context.query_stride + (row % group) * shape.head_dim;
            let query = &context.queries[from..from + shape.head_dim];
            for (dim, value) in query.iter().enumerate() {
                *queries.add(row * shape.head_dim + dim) = value * scale;
            }
            *maxima.add(row) = f32::NEG_INFINITY;
        }
        std::ptr::write_bytes(sums, 0, rows * layout.value_width);
        std::ptr::write_bytes(weights, 0, rows * LANES);

        let first_span = context.first_visible(tile.first_position) / SPAN * SPAN;
        for span in (first_span..end).step_by(SPAN) {
            // Tokens that see part of this span: not those before it, nor those whose window
            // begins after it. Both kinds stand at an end.
            let first = span.saturating_sub(tile.first_position);
            let last = (first..tile.num_tokens)
                .take_while(|token| {
                    context.first_visible(tile.first_position + token) < span + SPAN
                })
                .count()
                + first;
            let mut row = first * group;
            while row < last * group {
                let count = (last * group - row).min(MAX_ROWS);
                attend_span(level, context, scratch, layout, span, row, count);
                row += count;
            }
        }

        for row in 0..rows {
            let inverse = 1.0
                / std::slice::from_raw_parts(weights.add(row * LANES), LANES)
                    .iter()
                    .sum::<f32>();
            let to = out.add((row / group) * out_stride + (row % group) * shape.head_dim);
            for dim in 0..shape.head_dim {
                *to.add(dim) = *sums.add(row * layout.value_width + dim) * inverse;
            }
        }
    }
}

/// Takes the positions `span..span + 64` into the running sums of the rows `first_row..+count`.
///
/// # Safety
/// As for [`attend`]; the rows must be the tile's and see something of the span.
unsafe fn attend_span<F: Format>(
    level: SimdLevel,
    context: &Context<'_, F>,
    scratch: *mut f32,
    layout: ScratchLayout,
    span: usize,
    first_row: usize,
    count: usize,
) {
    let (tile, shape) = (context.tile, context.shape);
    let (group, block) = (shape.group(), context.cache.shape);
    let position_of = |row: usize| tile.first_position + row / group;
    // What any of these rows sees of the span.
    let visible_from = context.first_visible(position_of(first_row)).max(span);
    let visible_to = (position_of(first_row + count - 1) + 1).min(span + SPAN);
    let zeros = [0.0f32; LANES];
    // SAFETY: as in `attend`; only blocks that the table holds are read, since
    // `visible_to` is at most the sequence's length.
    unsafe {
        let scores = scratch.add(layout.scores());
        let vectors = || (span..span + SPAN).step_by(LANES).enumerate();
        for (vec, position) in vectors() {
            let to = scores.add(vec * LANES);
            if position >= visible_to || position + LANES <= visible_from {
                for row in 0..count {
                    std::slice::from_raw_parts_mut(to.add(row * SPAN), LANES)
                        .fill(f32::NEG_INFINITY);
                }
                continue;
            }
            let (block_id, offset) = context.block_of(position);
            let product = Product::<F> {
                a: scratch.add(first_row * shape.head_dim),
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
        }
        if let Some(bound) = context.softcap {
            softcap_row(level, scores, count * SPAN, bound);
        }
        for row in 0..count {
            let position = position_of(first_row + row);
            let from = context.first_visible(position).max(span) - span;
            let to = (position + 1).min(span + SPAN) - span;
            softmax_step(
                level,
                scores.add(row * SPAN),
                from,
                to,
                scratch.add(layout.maxima() + first_row + row),
                scratch.add(layout.weights() + (first_row + row) * LANES),
                scratch.add(layout.sums() + (first_row + row) * layout.value_width),
                layout.value_width,
            );
        }
        for (vec, position) in vectors() {
            if position >= visible_to || position + LANES <= visible_from {
                continue;
            }
            let (block_id, offset) = context.block_of(position);
            let values = context.cache.values(block_id, context.head).as_ptr();
            // Slots after the last visible one may hold anything.
            let depth = (visible_to - position).min(LANES);
            let sums = scratch.add(layout.sums() + first_row * layout.value_width);
            let mut product = Product::<F> {
                a: scores.add(vec * LANES),
                a_stride: SPAN,
                panel: values.add(F::index(offset, 0, block.value_width())),
                col: 0,
                width: block.value_width(),
                depth,
                init: sums.cast_const(),
                init_stride: layout.value_width,
                c: sums,
                c_stride: layout.value_width,
                streams: false,
            };
            while product.col < layout.value_width {
                let wide = layout.value_width - product.col >= 2 * LANES;
                multiply_rows(level, count, wide, &product);
                product.col += if wide { 2 * LANES } else { LANES };
                product.c = sums.add(product.col);
                product.init = product.c.cast_const();
            }
        }
    }
}
