//! Rotation, cache and attention at every level against plain sums in f64.

use super::activation::Activation;
use super::attention::{self, Batch, Scratch};
use super::format::{Bf16, F32, Format, Int8};
use super::kernel_tests::{Random, close, filled, stored};
use super::kv_cache::{self, BlockShape, KvCache};
use super::query_tiles;
use super::simd::SimdLevel;
use crate::model_executor::backend::{AttentionScores, AttentionShape};
use crate::model_executor::compute_pool::ComputePool;
use crate::model_executor::rotary::{RopeParameters, RopeScaling};

/// One step of two requests through rotation, cache and attention, against sums in f64 over
/// keys and values kept beside.
fn attend<F: Format>(level: SimdLevel, shape: AttentionShape, scores: AttentionScores) {
    const BLOCK_SIZE: usize = 32;
    // The long one has three parts; one of its last rows is alone in its step.
    const LENGTHS: [usize; 2] = [523, 37];
    const BLOCKS: u32 = 17;
    // Each block of the one, in no order, and those that are left.
    let tables: [Vec<u32>; 2] = [
        (0..BLOCKS).map(|index| index * 7 % BLOCKS).collect(),
        (BLOCKS..2 * BLOCKS).collect(),
    ];
    let pool = ComputePool::new(3).unwrap();
    let mut random = Random(shape.head_dim as u64);
    let head_dim = shape.head_dim;
    let rope = RopeParameters {
        theta: 100.0,
        partial_rotary_factor: rotated_part(head_dim),
        scaling: RopeScaling::Default,
    };
    let rotary = rope.table(head_dim, 1024);
    let block = BlockShape::new(shape, BLOCK_SIZE);
    let mut cache = middle_of_three_layers::<F>(block, 2 * BLOCKS as usize);
    let mut scratch = Scratch::allocate(3, shape, 1024).unwrap();
    // Keys and values as they are stored.
    let mut history: [Vec<Vec<f64>>; 2] = [Vec::new(), Vec::new()];
    let slot = |request: usize, position: usize| {
        tables[request][position / BLOCK_SIZE] * BLOCK_SIZE as u32 + (position % BLOCK_SIZE) as u32
    };
    // Both prompts but their last six tokens, then one of the first alone, then the rest.
    let ends = [
        [0, 0],
        [LENGTHS[0] - 6, LENGTHS[1] - 6],
        [LENGTHS[0] - 5, LENGTHS[1] - 6],
        LENGTHS,
    ];
    for step in ends.windows(2) {
        let (mut starts, mut seq_lens) = (vec![0u32], Vec::new());
        let (mut positions, mut slots, mut owners) = (Vec::new(), Vec::new(), Vec::new());
        for (request, (start, end)) in std::iter::zip(step[0], step[1]).enumerate() {
            let range = start..end;
            seq_lens.push(range.end as u32);
            for position in range {
                positions.push(position as u32);
                slots.push(slot(request, position));
                owners.push(request);
            }
            starts.push(positions.len() as u32);
        }
        let rows = positions.len();
        let mut qkv = filled(rows, shape.qkv_width(), &mut random);
        let before: Vec<Vec<f32>> = (0..rows).map(|row| qkv.row(row).to_vec()).collect();
        kv_cache::rotary_and_kv_write(
            &pool,
            level,
            &mut qkv,
            shape,
            Some(&rotary),
            &positions,
            &slots,
            (&[], &[]),
            &mut cache,
        )
        .unwrap();
        for (row, before) in before.iter().enumerate() {
            check_rotation(before, qkv.row(row), shape, positions[row]);
            let kept = qkv.row(row)[shape.q_width()..].chunks_exact(head_dim);
            history[owners[row]].push(kept.flat_map(stored_head::<F>).collect());
        }
        let mut tiles = Vec::new();
        query_tiles::cut_into_tiles(shape, &starts, &seq_lens, &mut tiles);
        assert!(tiles.len() <= query_tiles::most_tiles(shape, rows, 2));
        let block_tables = tables.concat();
        let batch = Batch {
            tiles: &tiles,
            block_tables: &block_tables,
            block_table_stride: BLOCKS as usize,
        };
        let mut out = Activation::allocate(rows, shape.q_width()).unwrap();
        attention::paged_attention(
            &pool,
            level,
            &mut scratch,
            batch,
            &qkv,
            shape,
            &cache,
            scores,
            &mut out,
        )
        .unwrap();
        // Of many rows some: the reference is slow.
        for row in (0..rows).step_by(1 + rows / 64) {
            let expected = attention_reference(
                qkv.row(row),
                &history[owners[row]],
                positions[row] as usize,
                shape,
                scores,
            );
            let what = format!("{level:?} {shape:?} {scores:?} at {}", positions[row]);
            for (found, expected) in out.row(row).iter().zip(expected) {
                close(*found, expected, 2e-5, &what);
            }
        }
    }
}

/// One of the widths is rotated in part only.
fn rotated_part(head_dim: usize) -> f64 {
    if head_dim == 50 { 0.44 } else { 1.0 }
}

fn check_rotation(before: &[f32], after: &[f32], shape: AttentionShape, position: u32) {
    let width = (shape.head_dim as f64 * rotated_part(shape.head_dim)) as usize;
    let (half, rotated) = (width / 2, shape.q_width() + shape.kv_width());
    assert_eq!(
        before[rotated..],
        after[rotated..],
        "values are not rotated"
    );
    let heads = before[..rotated]
        .chunks_exact(shape.head_dim)
        .zip(after.chunks_exact(shape.head_dim));
    for (before, after) in heads {
        for pair in 0..half {
            let frequency = 100.0_f64.powf(-((2 * pair) as f64) / width as f64);
            let (sin, cos) = (f64::from(position) * frequency).sin_cos();
            let (x, y) = (f64::from(before[pair]), f64::from(before[half + pair]));
            // Angles are rounded to f32, and go up to 523.
            close(after[pair], x * cos - y * sin, 1e-4, "first of a pair");
            close(
                after[half + pair],
                y * cos + x * sin,
                1e-4,
                "second of a pair",
            );
        }
        assert_eq!(before[width..], after[width..], "not rotated");
    }
}

/// What is left of a head's keys or values in the cache.
fn stored_head<F: Format>(values: &[f32]) -> Vec<f64> {
    if !F::SCALED {
        return values.iter().map(|value| stored::<F>(*value)).collect();
    }
    let largest = values
        .iter()
        .fold(0.0f32, |most, value| most.max(value.abs()));
    // In f32, so that what is near a tie rounds the same way.
    let (factor, scale) = (127.0 / largest, f64::from(largest / 127.0));
    values
        .iter()
        .map(|value| f64::from((value * factor).round_ties_even()) * scale)
        .collect()
}

/// Writes a token into a cache that holds others' and looks at every element.
fn write_alone<F: Format>(level: SimdLevel)
where
    F::Element: PartialEq + std::fmt::Debug,
{
    const BLOCK_SIZE: usize = 32;
    let shape = AttentionShape {
        num_heads: 2,
        num_kv_heads: 2,
        head_dim: 50,
    };
    let pool = ComputePool::new(1).unwrap();
    let block = BlockShape::new(shape, BLOCK_SIZE);
    let mut random = Random(9);
    let mut cache = middle_of_three_layers::<F>(block, 3);
    let mut write = |cache: &mut KvCache<F>, slots: &[u32]| {
        let mut qkv = filled(slots.len(), shape.qkv_width(), &mut random);
        let none = (&[][..], &[][..]);
        kv_cache::rotary_and_kv_write(
            &pool, level, &mut qkv, shape, None, slots, slots, none, cache,
        )
        .unwrap();
        qkv
    };
    let all: Vec<u32> = (0..3 * BLOCK_SIZE as u32).collect();
    write(&mut cache, &all);
    for token in [0, 1, 18, 31] {
        let before: Vec<_> = (0..6).map(|i| panels(&cache, i / 2, i % 2)).collect();
        let qkv = write(&mut cache, &[(BLOCK_SIZE + token) as u32]);
        let head = |at: usize, head: usize| {
            let first = shape.q_width() + at * shape.kv_width() + head * shape.head_dim;
            &qkv.row(0)[first..][..shape.head_dim]
        };
        for (index, mut expected) in before.into_iter().enumerate() {
            if index / 2 == 1 {
                let (key, value) = (head(0, index % 2), head(1, index % 2));
                // Scales of 8 bits: the largest becomes 127.
                let scale = |values: &[f32]| match F::SCALED {
                    true => values.iter().fold(0.0f32, |most, x| most.max(x.abs())),
                    false => 127.0,
                };
                let put = |value: f32, most: f32| match F::SCALED {
                    true => F::from_f32(value * (127.0 / most)),
                    false => F::from_f32(value),
                };
                for dim in 0..shape.head_dim {
                    let key_at = F::index(dim, token, BLOCK_SIZE);
                    let value_at = F::index(token, dim, block.value_width());
                    expected.0[key_at] = put(key[dim], scale(key));
                    expected.1[value_at] = put(value[dim], scale(value));
                }
                if F::SCALED {
                    expected.2[token] = scale(key) / 127.0;
                    expected.2[BLOCK_SIZE + token] = scale(value) / 127.0;
                }
            }
            let found = panels(&cache, index / 2, index % 2);
            assert_eq!(found, expected, "{level:?} {token}");
        }
    }
}

/// The cache of a layer between others.
fn middle_of_three_layers<F: Format>(block: BlockShape, num_blocks: usize) -> KvCache<F> {
    KvCache::allocate(block, num_blocks, 3)
        .unwrap()
        .swap_remove(1)
}

/// Copies of the keys, values and scales of one head in one block.
fn panels<F: Format>(
    cache: &KvCache<F>,
    block: usize,
    head: usize,
) -> (Vec<F::Element>, Vec<F::Element>, Vec<f32>) {
    let (keys, values) = cache.scales(block, head);
    (
        cache.keys(block, head).to_vec(),
        cache.values(block, head).to_vec(),
        [keys, values].concat(),
    )
}

#[test]
#[cfg_attr(miri, ignore = "too much for an interpreter")]
fn a_token_is_written_to_its_own_elements() {
    for level in SimdLevel::all_in_test() {
        write_alone::<F32>(level);
        write_alone::<Bf16>(level);
        write_alone::<Int8>(level);
    }
}

fn attention_reference(
    query: &[f32],
    history: &[Vec<f64>],
    position: usize,
    shape: AttentionShape,
    scores: AttentionScores,
) -> Vec<f64> {
    let first = scores
        .window
        .map_or(0, |window| (position + 1).saturating_sub(window));
    let mut out = Vec::new();
    for head in 0..shape.num_heads {
        let query = &query[head * shape.head_dim..][..shape.head_dim];
        let keys = head / shape.group() * shape.head_dim;
        let values = shape.kv_width() + keys;
        let visible = match scores.is_causal {
            true => &history[first..=position],
            false => history,
        };
        let weights: Vec<f64> = visible
            .iter()
            .map(|token| {
                let products = query
                    .iter()
                    .zip(&token[keys..])
                    .map(|(query, key)| f64::from(*query) * key);
                let score = products.sum::<f64>() * f64::from(scores.scale);
                let bounded = |bound: f32| f64::from(bound) * (score / f64::from(bound)).tanh();
                scores.softcap.map_or(score, bounded).exp()
            })
            .collect();
        let total: f64 = weights.iter().sum();
        out.extend((0..shape.head_dim).map(|dim| {
            let sum: f64 = visible
                .iter()
                .zip(&weights)
                .map(|(token, weight)| weight * token[values + dim])
                .sum();
            sum / total
        }));
    }
    out
}

#[test]
fn attention_matches_at_every_level_and_shape() {
    for level in SimdLevel::all_in_test() {
        // Some go by tiles where there are any: of widths below, at and above what passes at once.
        for (num_heads, num_kv_heads, head_dim) in [
            (2, 2, 16),
            (6, 2, 18),
            (14, 2, 64),
            (5, 1, 50),
            (20, 1, 80),
            (2, 1, 128),
        ] {
            let shape = AttentionShape {
                num_heads,
                num_kv_heads,
                head_dim,
            };
            for (window, is_causal) in [
                (None, true),
                (None, false),
                (Some(1), true),
                (Some(16), true),
                (Some(70), true),
            ] {
                let scores = AttentionScores {
                    scale: 0.3,
                    softcap: (head_dim != 64).then_some(1.5),
                    window,
                    is_causal,
                };
                attend::<F32>(level, shape, scores);
                attend::<Bf16>(level, shape, scores);
                attend::<Int8>(level, shape, scores);
            }
        }
    }
}

#[test]
fn stale_values_beyond_the_sequence_do_not_leak() {
    stale_values::<Bf16>();
    stale_values::<Int8>();
}

fn stale_values<F: Format>() {
    let shape = AttentionShape {
        num_heads: 1,
        num_kv_heads: 1,
        head_dim: 16,
    };
    let pool = ComputePool::new(1).unwrap();
    let mut random = Random(1);
    let rotary = RopeParameters {
        theta: 100.0,
        partial_rotary_factor: 1.0,
        scaling: RopeScaling::Default,
    }
    .table(16, 64);
    let mut cache = middle_of_three_layers::<F>(BlockShape::new(shape, 16), 1);
    let mut scratch = Scratch::allocate(1, shape, 1024).unwrap();
    // Another request left NaN in the whole block.
    let mut qkv = filled(16, 48, &mut random);
    qkv.as_mut_slice().fill(f32::NAN);
    let all: Vec<u32> = (0..16).collect();
    let level = SimdLevel::detect();
    kv_cache::rotary_and_kv_write(
        &pool,
        level,
        &mut qkv,
        shape,
        Some(&rotary),
        &all,
        &all,
        (&[], &[]),
        &mut cache,
    )
    .unwrap();
    let mut qkv = filled(3, 48, &mut random);
    let few = &all[..3];
    kv_cache::rotary_and_kv_write(
        &pool,
        level,
        &mut qkv,
        shape,
        Some(&rotary),
        few,
        few,
        (&[], &[]),
        &mut cache,
    )
    .unwrap();
    let mut tiles = Vec::new();
    query_tiles::cut_into_tiles(shape, &[0, 3], &[3], &mut tiles);
    let batch = Batch {
        tiles: &tiles,
        block_tables: &[0],
        block_table_stride: 1,
    };
    let mut out = Activation::allocate(3, 16).unwrap();
    attention::paged_attention(
        &pool,
        level,
        &mut scratch,
        batch,
        &qkv,
        shape,
        &cache,
        AttentionScores {
            scale: 0.25,
            softcap: Some(2.0),
            window: None,
            is_causal: true,
        },
        &mut out,
    )
    .unwrap();
    for row in 0..3 {
        assert!(
            out.row(row).iter().all(|value| value.is_finite()),
            "{:?}",
            out.row(row)
        );
    }
}
