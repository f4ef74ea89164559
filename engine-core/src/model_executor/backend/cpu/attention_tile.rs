//! Attention of one tile: causal or not, grouped queries, optionally within a sliding window.
//!
//! It passes over the context in spans of 64 positions and keeps, per query, a running maximum,
//! the sum of weights and the weighted sum of values (online softmax: Milakov and Gimelshein,
//! 2018). Sums begin anew at every part; those of the parts are added up in order.

use std::ops::Range;

use super::attention_ahead::Ahead;
use super::attention_products::{add_values, score};
#[cfg(target_arch = "x86_64")]
use super::attention_products_x86::{self, SpanTiles, split_query};
use super::attention_sums::{SoftmaxSums, SumsLayout};
use super::elementwise::softcap_row;
use super::format::Format;
use super::kv_cache::KvCache;
use super::multiply::MAX_ROWS;
use super::online_softmax::{SPAN, softmax_rows};
use super::query_tiles::{QueryTile, tokens_per_tile};
use super::simd::{LANES, SimdLevel};
use crate::model_executor::backend::{AttentionScores, AttentionShape};

/// Only x86-64 has tiles.
#[cfg(not(target_arch = "x86_64"))]
type SpanTiles = std::convert::Infallible;

/// Most rows of a span's products at once, whatever computes them.
#[cfg(target_arch = "x86_64")]
const MOST_ROWS: usize = attention_products_x86::MOST_ROWS;
#[cfg(not(target_arch = "x86_64"))]
const MOST_ROWS: usize = MAX_ROWS;

/// Positions of a part, whole spans.
pub(crate) const PART: usize = 256;

/// A thread's memory while it works on a tile, by offset.
#[derive(Clone, Copy)]
pub(crate) struct TileScratch {
    rows: usize,
    head_dim: usize,
    sums: SumsLayout,
}

/// The same, by pointer.
#[derive(Clone, Copy)]
pub(crate) struct TileMemory {
    /// Sums of the whole context so far.
    total: SoftmaxSums,
    /// Sums of the part at hand.
    part: SoftmaxSums,
    /// `[rows, head_dim]`, in whatever form the products ask for.
    queries: *mut f32,
    /// Scores of a block of rows `[16, 64]`.
    scores: *mut f32,
}

impl TileScratch {
    pub(crate) fn of(shape: AttentionShape) -> Self {
        let rows = tokens_per_tile(shape) * shape.group();
        Self {
            rows,
            head_dim: shape.head_dim,
            sums: SoftmaxSums::layout(shape, rows),
        }
    }

    /// Values of memory, and a line between those of two threads.
    pub(crate) fn len(self) -> usize {
        let queries = self.rows * self.head_dim;
        (2 * self.sums.len() + queries + MOST_ROWS * SPAN).next_multiple_of(LANES) + LANES
    }

    /// The memory from `start` on.
    pub(crate) fn at(self, start: *mut f32) -> TileMemory {
        let part = start.wrapping_add(self.sums.len());
        let queries = part.wrapping_add(self.sums.len());
        TileMemory {
            total: self.sums.at(start),
            part: self.sums.at(part),
            queries,
            scores: queries.wrapping_add(self.rows * self.head_dim),
        }
    }
}

/// One tile's inputs.
pub(crate) struct Context<'a, F: Format> {
    pub(crate) tile: QueryTile,
    /// The key head.
    pub(crate) head: usize,
    pub(crate) shape: AttentionShape,
    pub(crate) scores: AttentionScores,
    /// Positions attended to, the query's own included.
    pub(crate) window: usize,
    pub(crate) block_table: &'a [u32],
    pub(crate) cache: &'a KvCache<F>,
    /// From the first query head of the tile's first row on.
    pub(crate) queries: &'a [f32],
    pub(crate) query_stride: usize,
}

impl<F: Format> Context<'_, F> {
    /// The position after the last one that any row sees.
    #[inline(always)]
    pub(super) fn end(&self) -> usize {
        self.end_of_visible(self.tile.first_position + self.tile.num_tokens - 1)
    }

    /// The position after the last one that the query at `position` attends to.
    #[inline(always)]
    fn end_of_visible(&self, position: usize) -> usize {
        match self.scores.is_causal {
            true => position + 1,
            false => self.tile.seq_len,
        }
    }

    /// First position of the first span that any row sees.
    #[inline(always)]
    pub(super) fn first_span(&self) -> usize {
        self.first_visible(self.tile.first_position) / SPAN * SPAN
    }

    /// Whether to ask for what comes next: a single row with more than a span, which takes long enough. Of
    /// fewer positions asking took more time than it saved (16 requests with contexts of 40: 31.9 microseconds
    /// rather than 30.8), and with many rows it is the products that take the time.
    pub(crate) fn asks_ahead(&self) -> bool {
        self.tile.num_tokens == 1 && self.end() - self.first_span() > SPAN
    }

    /// First position that the query at `position` attends to.
    #[inline(always)]
    fn first_visible(&self, position: usize) -> usize {
        (position + 1).saturating_sub(self.window)
    }

    /// Block and offset of the 16 tokens from `position` on.
    #[inline(always)]
    pub(super) fn block_of(&self, position: usize) -> (usize, usize) {
        let block_size = self.cache.shape.block_size;
        (
            self.block_table[position / block_size] as usize,
            position % block_size,
        )
    }

    /// Copies the tile's queries, scaled.
    ///
    /// # Safety
    /// The processor must have `level`. `to` must be this thread's, for the tile's rows of `head_dim`
    /// values.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(unused_variables, reason = "one form")
    )]
    unsafe fn load_queries(&self, level: SimdLevel, to: *mut f32) {
        let (group, head_dim) = (self.shape.group(), self.shape.head_dim);
        #[cfg(target_arch = "x86_64")]
        let by_tiles = attention_products_x86::are_for::<F>(level, self.shape);
        for row in 0..self.tile.num_tokens * group {
            let from = (row / group) * self.query_stride + (row % group) * head_dim;
            let query = &self.queries[from..from + head_dim];
            #[cfg(target_arch = "x86_64")]
            if by_tiles {
                // SAFETY: the query is as long as a head; the caller vouches for the rows.
                unsafe {
                    let to = to.add(row * head_dim).cast();
                    split_query(query.as_ptr(), head_dim, self.scores.scale, to);
                }
                continue;
            }
            for (dim, value) in query.iter().enumerate() {
                // SAFETY: the caller vouches for the rows.
                unsafe { *to.add(row * head_dim + dim) = value * self.scores.scale };
            }
        }
    }
}

/// Attention of one tile and key head over all of its context. `next` is what this thread does afterwards.
///
/// # Safety
/// The processor must have `level`. `memory` must hold what `TileScratch` says and belong to this
/// thread; `out` must be valid for the tile's rows of `group * head_dim` values.
pub(crate) unsafe fn attend<F: Format>(
    level: SimdLevel,
    context: &Context<'_, F>,
    memory: TileMemory,
    out: *mut f32,
    out_stride: usize,
    next: Option<&Ahead<'_, F>>,
) {
    let rows = context.tile.num_tokens * context.shape.group();
    let (first, end) = (context.first_span() / PART, context.end());
    // SAFETY: passed on to the caller.
    unsafe {
        let mut tiles = span_tiles(level, context);
        context.load_queries(level, memory.queries);
        let mut attend = |part, sums| {
            attend_spans(level, context, memory, part, sums, &mut tiles, (end, next));
        };
        attend(first, memory.total);
        for part in first + 1..=(end - 1) / PART {
            attend(part, memory.part);
            memory.total.add(level, rows, memory.part);
        }
        memory.total.finish(level, context, out, out_stride);
    }
}

/// What one tile and key head gathers of one part of its context.
///
/// # Safety
/// As for [`attend`]; `sums` must be valid for the tile's rows and belong to this thread.
pub(crate) unsafe fn attend_part<F: Format>(
    level: SimdLevel,
    context: &Context<'_, F>,
    memory: TileMemory,
    part: usize,
    sums: SoftmaxSums,
    next: Option<&Ahead<'_, F>>,
) {
    let end = context.end().min((part + 1) * PART);
    // SAFETY: passed on to the caller.
    unsafe {
        let mut tiles = span_tiles(level, context);
        context.load_queries(level, memory.queries);
        attend_spans(level, context, memory, part, sums, &mut tiles, (end, next));
    }
}

/// This thread's tiles, where products go by them, shaped for the rows of most spans. Their shapes take a
/// while to be loaded, during which queries are.
///
/// # Safety
/// The processor must have `level`, and this thread no other tiles.
#[cfg_attr(
    not(target_arch = "x86_64"),
    expect(unused_variables, reason = "no tiles")
)]
unsafe fn span_tiles<F: Format>(level: SimdLevel, context: &Context<'_, F>) -> Option<SpanTiles> {
    #[cfg(target_arch = "x86_64")]
    {
        let mut tiles = SpanTiles::new::<F>(level, context.shape)?;
        let rows = context.tile.num_tokens * context.shape.group();
        // SAFETY: where there is a value the processor has tiles; the caller vouches for the thread.
        unsafe { tiles.shape(rows.div_ceil(rows.div_ceil(MOST_ROWS))) };
        Some(tiles)
    }
    #[cfg(not(target_arch = "x86_64"))]
    None
}

/// The same, with the queries loaded. At the end stand where the thread's piece of the context ends, and what
/// it does afterwards.
///
/// # Safety
/// As for [`attend_part`].
unsafe fn attend_spans<F: Format>(
    level: SimdLevel,
    context: &Context<'_, F>,
    memory: TileMemory,
    part: usize,
    sums: SoftmaxSums,
    tiles: &mut Option<SpanTiles>,
    (piece_end, next): (usize, Option<&Ahead<'_, F>>),
) {
    let tile = context.tile;
    let group = context.shape.group();
    let end = context.end().min((part + 1) * PART);
    let first_span = context.first_span();
    let asks = context.asks_ahead();
    let most = match tiles {
        Some(_) => MOST_ROWS,
        None => MAX_ROWS,
    };
    // SAFETY: passed on to the caller; rows are the tile's.
    unsafe {
        let mut fresh = true;
        for span in (first_span.max(part * PART)..end).step_by(SPAN) {
            // Tokens that see part of this span: not those before it, nor those whose window
            // begins after it. Both kinds stand at an end.
            let first = match context.scores.is_causal {
                true => span.saturating_sub(tile.first_position),
                false => 0,
            };
            let last = (first..tile.num_tokens)
                .take_while(|token| {
                    context.first_visible(tile.first_position + token) < span + SPAN
                })
                .count()
                + first;
            // Where not all rows see the first span, others begin with nothing gathered.
            if fresh && last - first < tile.num_tokens {
                sums.clear(tile.num_tokens * group);
                fresh = false;
            }
            let following = Ahead {
                context,
                positions: span + SPAN..piece_end.min(span + 2 * SPAN),
            };
            let ahead = match following.positions.is_empty() {
                true => next,
                false => Some(&following),
            };
            let mut ahead = ahead.filter(|_| asks);
            // As even as possible.
            let (mut row, mut blocks) = (first * group, ((last - first) * group).div_ceil(most));
            while row < last * group {
                let count = (last * group - row).div_ceil(blocks);
                let rows = row..row + count;
                attend_span(
                    level,
                    context,
                    memory,
                    (sums, fresh),
                    span,
                    rows,
                    tiles.as_mut(),
                    ahead.take(),
                );
                (row, blocks) = (row + count, blocks - 1);
            }
            fresh = false;
        }
    }
}

/// Takes the positions `span..span + 64` into the sums of some rows, which are set where they are fresh, and
/// asks for what is `ahead`.
///
/// # Safety
/// As for [`attend_part`]; the rows must be the tile's, no more than pass at once, and see something of
/// the span. `tiles` must be there where products go by them.
#[allow(clippy::too_many_arguments, reason = "a span of a tile")]
unsafe fn attend_span<F: Format>(
    level: SimdLevel,
    context: &Context<'_, F>,
    memory: TileMemory,
    (sums, fresh): (SoftmaxSums, bool),
    span: usize,
    rows: Range<usize>,
    mut tiles: Option<&mut SpanTiles>,
    ahead: Option<&Ahead<'_, F>>,
) {
    let (tile, shape) = (context.tile, context.shape);
    let group = shape.group();
    let position_of = |row: usize| tile.first_position + row / group;
    // What any of these rows sees of the span.
    let visible = context.first_visible(position_of(rows.start)).max(span)
        ..context
            .end_of_visible(position_of(rows.end - 1))
            .min(span + SPAN);
    let (first_row, count) = (rows.start, rows.len());
    // SAFETY: as in `attend_part`; only blocks that the table holds are read, since what is visible ends
    // with the sequence at the latest.
    unsafe {
        let scores = memory.scores;
        if let Some(ahead) = ahead {
            ahead.ask_for_keys(level);
        }
        let queries = memory.queries.add(first_row * shape.head_dim);
        match &mut tiles {
            #[cfg(target_arch = "x86_64")]
            Some(tiles) => {
                let queries = queries.cast();
                tiles.score(context, queries, count, span, visible.clone(), scores);
            }
            _ => score(
                level,
                context,
                queries,
                count,
                span,
                visible.clone(),
                scores,
            ),
        }
        if let Some(bound) = context.scores.softcap {
            softcap_row(level, scores, count * SPAN, bound);
        }
        let mut seen = [const { 0..0 }; MOST_ROWS];
        for (row, seen) in seen.iter_mut().enumerate().take(count) {
            let position = position_of(first_row + row);
            *seen = context.first_visible(position).max(span) - span
                ..context.end_of_visible(position).min(span + SPAN) - span;
        }
        softmax_rows(
            level,
            scores,
            &seen[..count],
            sums.maxima.add(first_row),
            sums.weights.add(first_row * LANES),
            sums.values.add(first_row * sums.value_width),
            sums.value_width,
            fresh,
        );
        if let Some(ahead) = ahead {
            ahead.ask_for_values(level);
        }
        let to = sums.values.add(first_row * sums.value_width);
        match &mut tiles {
            #[cfg(target_arch = "x86_64")]
            Some(tiles) => tiles.add_values(context, scores, count, span, visible, to, fresh),
            _ => add_values(level, context, scores, count, span, visible, to, fresh),
        }
    }
}
