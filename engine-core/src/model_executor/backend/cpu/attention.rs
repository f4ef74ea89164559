//! Paged attention: which thread does what.
//!
//! A tile is some rows of one request with all query heads of one key head. Its context is cut
//! into parts of 256 positions, counted from the sequence's beginning; each part has sums of its
//! own, which are added up in order. So a query's result is the same however its request was cut
//! into chunks and whatever else is in the batch, and also where the parts of one tile go to
//! several threads: in a step of few tiles, whose contexts would else keep few threads busy.

use super::activation::Activation;
use super::attention_ahead::Ahead;
use super::attention_sums::SoftmaxSums;
use super::attention_tile::{Context, PART, TileScratch, attend, attend_part};
use super::buffer::{Buffer, SharedMut};
use super::format::Format;
use super::kv_cache::KvCache;
use super::query_tiles::QueryTile;
use super::simd::{LANES, SimdLevel};
use crate::model_executor::backend::{AttentionScores, AttentionShape};
use crate::model_executor::compute_pool::ComputePool;
use crate::model_executor::error::ModelError;

/// Tiles times heads, per thread, from which on each goes to one thread as a whole.
const TILES_PER_THREAD: usize = 2;

/// What the threads keep while they work.
pub(crate) struct Scratch {
    /// A tile's memory, by thread.
    threads: Buffer<f32>,
    per_thread: usize,
    /// Sums of parts that wait to be added up.
    parts: Buffer<f32>,
    /// Tiles of the step whose parts go to several threads.
    split: Vec<SplitTile>,
}

/// A tile whose parts go to several threads.
#[derive(Clone, Copy)]
struct SplitTile {
    /// Place among the step's tiles.
    tile: usize,
    /// Its parts, by their number in the sequence.
    first_part: usize,
    num_parts: usize,
    /// Parts of the split tiles before it, in all heads.
    offset: usize,
}

impl Scratch {
    /// Room for steps with sequences of up to `max_model_len` tokens.
    pub(crate) fn allocate(
        num_threads: usize,
        shape: AttentionShape,
        max_model_len: usize,
    ) -> Result<Self, ModelError> {
        let per_thread = TileScratch::of(shape).len();
        let most_tiles = (TILES_PER_THREAD * num_threads).div_ceil(shape.num_kv_heads);
        let most_parts = if num_threads > 1 {
            most_tiles * shape.num_kv_heads * max_model_len.div_ceil(PART)
        } else {
            0
        };
        let per_part = SoftmaxSums::layout(shape, shape.group()).len();
        Ok(Self {
            threads: Buffer::zeroed("scratch", num_threads * per_thread)?,
            per_thread,
            // Memory that is never needed is never taken.
            parts: Buffer::zeroed("scratch", most_parts.saturating_mul(per_part))?,
            split: Vec::with_capacity(most_tiles),
        })
    }

    /// Chooses the tiles to split: decoding ones with more than a part, in a step of few tiles.
    fn split(
        &mut self,
        num_threads: usize,
        shape: AttentionShape,
        tiles: &[QueryTile],
        window: usize,
    ) {
        self.split.clear();
        if num_threads == 1 || tiles.len() * shape.num_kv_heads >= TILES_PER_THREAD * num_threads {
            return;
        }
        let mut offset = 0;
        for (index, tile) in tiles.iter().enumerate() {
            let first_part = (tile.first_position + 1).saturating_sub(window) / PART;
            let num_parts = tile.first_position / PART + 1 - first_part;
            if tile.num_tokens == 1 && num_parts > 1 && self.split.len() < self.split.capacity() {
                self.split.push(SplitTile {
                    tile: index,
                    first_part,
                    num_parts,
                    offset,
                });
                offset += num_parts * shape.num_kv_heads;
            }
        }
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

/// What a thread takes at a time.
enum Work {
    /// A tile with all of its context.
    Whole { tile: usize, head: usize },
    /// One part of a tile's context.
    Part {
        split: SplitTile,
        head: usize,
        part: usize,
    },
}

/// The `index`th piece of work: the parts of split tiles come first, since they are the longest.
fn work(index: usize, split: &[SplitTile], num_heads: usize) -> Work {
    let parts = split
        .last()
        .map_or(0, |last| last.offset + last.num_parts * num_heads);
    if index < parts {
        let place = split.partition_point(|tile| tile.offset <= index) - 1;
        let (split, within) = (split[place], index - split[place].offset);
        return Work::Part {
            split,
            head: within / split.num_parts,
            part: within % split.num_parts,
        };
    }
    // Among the tiles that are not split.
    let (nth, head) = ((index - parts) / num_heads, (index - parts) % num_heads);
    let tile = split.iter().fold(nth, |tile, split| {
        // Split tiles ascend: each one at or before this place moves it on by one.
        if split.tile <= tile { tile + 1 } else { tile }
    });
    Work::Whole { tile, head }
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
        scratch.per_thread >= TileScratch::of(shape).len(),
        "scratch of another model"
    );
    assert!(
        cache.shape.block_size.is_multiple_of(LANES),
        "blocks hold whole vectors of tokens"
    );
    let heads = shape.num_kv_heads;
    let width = shape.group() * shape.head_dim;
    let window = scores.window.unwrap_or(usize::MAX);
    match scores.is_causal {
        true => scratch.split(pool.num_threads(), shape, batch.tiles, window),
        // Only decoding has tiles of one row whose context is long.
        false => scratch.split.clear(),
    }

    let out_stride = out.stride();
    let out = SharedMut::new(out.as_mut_slice());
    let per_thread = scratch.per_thread;
    let threads = SharedMut::new(&mut scratch.threads);
    let sums_of_part = SoftmaxSums::layout(shape, shape.group());
    let parts = SharedMut::new(&mut scratch.parts);
    let split: &[SplitTile] = &scratch.split;
    let num_parts: usize = split.iter().map(|tile| tile.num_parts * heads).sum();

    let context_of = |tile: usize, head: usize| {
        let tile = batch.tiles[tile];
        let row = tile.request * batch.block_table_stride;
        Context {
            tile,
            head,
            shape,
            scores,
            window,
            block_table: &batch.block_tables[row..row + batch.block_table_stride],
            cache,
            queries: &qkv.as_slice()[tile.first_row * qkv.stride() + head * width..],
            query_stride: qkv.stride(),
        }
    };
    let sums_at = |split: SplitTile, head: usize, part: usize| {
        let index = split.offset + head * split.num_parts + part;
        // SAFETY: the sums of a part belong to the one thread that works on it.
        sums_of_part.at(unsafe { parts.ptr(index * sums_of_part.len(), sums_of_part.len()) })
    };
    let pieces = num_parts + (batch.tiles.len() - split.len()) * heads;
    // What a piece works on, and its first part in the sequence where it isn't the whole.
    let place_of = |work: &Work| match *work {
        Work::Whole { tile, head } => (context_of(tile, head), 0),
        Work::Part { split, head, part } => (context_of(split.tile, head), split.first_part + part),
    };
    pool.run(pieces, &|index, thread| {
        // SAFETY: a thread has its own scratch memory.
        let own =
            TileScratch::of(shape).at(unsafe { threads.ptr(thread * per_thread, per_thread) });
        let piece = work(index, split, heads);
        let (context, part) = place_of(&piece);
        // Most likely: a thread's pieces follow one another.
        let next = (context.asks_ahead() && index + 1 < pieces)
            .then(|| place_of(&work(index + 1, split, heads)));
        let next = next
            .as_ref()
            .map(|(context, part)| Ahead::first_span(context, *part));
        match piece {
            Work::Whole { head, .. } => {
                let tile = context.tile;
                for token in 0..tile.num_tokens {
                    let row = (tile.first_row + token) * out_stride + head * width;
                    // SAFETY: only checks the bounds of what the kernel writes below.
                    let _ = unsafe { out.ptr(row, width) };
                }
                // SAFETY: the outputs of a tile and head are its own and lie within `out`, as just
                // checked.
                unsafe {
                    let to = out.ptr(tile.first_row * out_stride + head * width, width);
                    attend(level, &context, own, to, out_stride, next.as_ref());
                }
            }
            Work::Part {
                split,
                head,
                part: of_tile,
            } => {
                // SAFETY: the memory holds a decoding tile's sums, and they are this part's own.
                unsafe {
                    let sums = sums_at(split, head, of_tile);
                    attend_part(level, &context, own, part, sums, next.as_ref());
                }
            }
        }
    })?;
    if split.is_empty() {
        return Ok(());
    }
    pool.run(split.len() * heads, &|index, _| {
        let (split, head) = (split[index / heads], index % heads);
        let context = context_of(split.tile, head);
        let row = context.tile.first_row * out_stride + head * width;
        // SAFETY: one thread has all parts of a tile and head; its output is its own.
        unsafe {
            let sums = sums_at(split, head, 0);
            for part in 1..split.num_parts {
                sums.add(level, shape.group(), sums_at(split, head, part));
            }
            sums.finish(level, &context, out.ptr(row, width), out_stride);
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_of_work_is_done_once() {
        let split = |tile, num_parts, offset| SplitTile {
            tile,
            first_part: 7,
            num_parts,
            offset,
        };
        // Five tiles with two heads, of which 1, 2 and 4 are split.
        let tiles = [split(1, 3, 0), split(2, 2, 6), split(4, 4, 10)];
        let mut parts = Vec::new();
        let mut wholes = Vec::new();
        for index in 0..18 + 4 {
            match work(index, &tiles, 2) {
                Work::Whole { tile, head } => wholes.push((tile, head)),
                Work::Part { split, head, part } => parts.push((split.tile, head, part)),
            }
        }
        let expected = [(1, 3), (2, 2), (4, 4)]
            .into_iter()
            .flat_map(|(tile, num_parts)| {
                (0..2).flat_map(move |head| (0..num_parts).map(move |part| (tile, head, part)))
            });
        assert!(parts.into_iter().eq(expected));
        assert_eq!(wholes, [(0, 0), (0, 1), (3, 0), (3, 1)]);
        assert!(matches!(work(3, &[], 2), Work::Whole { tile: 1, head: 1 }));
    }
}
