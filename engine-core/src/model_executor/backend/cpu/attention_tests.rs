//! Rotation, cache and attention at every level against plain sums in f64.

use super::activation::Activation;
use super::attention::{self, Batch, Scratch};
use super::format::{Bf16, F32, Format};
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
    const LENGTHS: [usize; 2] = [150, 37];
    let tables: [&[u32]; 2] = [&[3, 9, 1, 6, 2], &[5, 4, 0, 0, 0]];
    let pool = ComputePool::new(2).unwrap();
    let mut random = Random(shape.head_dim as u64);
    let head_dim = shape.head_dim;
    let rope = RopeParameters {
        theta: 100.0,
        partial_rotary_factor: rotated_part(head_dim),
        scaling: RopeScaling::Default,
    };
    let rotary = rope.table(head_dim, 256);
    let mut cache = KvCache::<F>::allocate(BlockShape::new(shape, BLOCK_SIZE), 10).unwrap();
    let mut scratch = Scratch::allocate(2, shape).unwrap();
    let mut history: [Vec<Vec<f32>>; 2] = [Vec::new(), Vec::new()];
    let slot = |request: usize, position: usize| {
        tables[request][position / BLOCK_SIZE] * BLOCK_SIZE as u32 + (position % BLOCK_SIZE) as u32
    };
    // Both prompts but their last five tokens, then the rest: rows in the middle of sequences.
    for step in 0..2 {
        let (mut starts, mut seq_lens) = (vec![0u32], Vec::new());
        let (mut positions, mut slots, mut owners) = (Vec::new(), Vec::new(), Vec::new());
        for (request, length) in LENGTHS.into_iter().enumerate() {
            let range = if step == 0 {
                0..length - 5
            } else {
                length - 5..length
            };
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
            &mut cache,
        )
        .unwrap();
        for (row, before) in before.iter().enumerate() {
            check_rotation(before, qkv.row(row), shape, positions[row]);
            history[owners[row]].push(qkv.row(row).to_vec());
        }
        let mut tiles = Vec::new();
        query_tiles::cut_into_tiles(shape, &starts, &seq_lens, &mut tiles);
        assert!(tiles.len() <= query_tiles::most_tiles(shape, rows, 2));
        let block_tables = tables.concat();
        let batch = Batch {
            tiles: &tiles,
            block_tables: &block_tables,
            block_table_stride: 5,
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
        for row in 0..rows {
            let expected = attention_reference::<F>(
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
            close(after[pair], x * cos - y * sin, 2e-5, "first of a pair");
            close(
                after[half + pair],
                y * cos + x * sin,
                2e-5,
                "second of a pair",
            );
        }
        assert_eq!(before[width..], after[width..], "not rotated");
    }
}

fn attention_reference<F: Format>(
    query: &[f32],
    history: &[Vec<f32>],
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
        let kv = head / shape.group() * shape.head_dim;
        let (keys, values) = (
            shape.q_width() + kv,
            shape.q_width() + shape.kv_width() + kv,
        );
        let visible = &history[first..=position];
        let weights: Vec<f64> = visible
            .iter()
            .map(|token| {
                let products = query
                    .iter()
                    .zip(&token[keys..])
                    .map(|(query, key)| f64::from(*query) * stored::<F>(*key));
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
                .map(|(token, weight)| weight * stored::<F>(token[values + dim]))
                .sum();
            sum / total
        }));
    }
    out
}

#[test]
fn attention_matches_at_every_level_and_shape() {
    for level in SimdLevel::available() {
        for (num_heads, num_kv_heads, head_dim) in [(2, 2, 16), (6, 2, 18), (14, 2, 64), (5, 1, 50)]
        {
            let shape = AttentionShape {
                num_heads,
                num_kv_heads,
                head_dim,
            };
            for window in [None, Some(1), Some(16), Some(70)] {
                let scores = AttentionScores {
                    scale: 0.3,
                    softcap: (head_dim != 64).then_some(1.5),
                    window,
                };
                attend::<F32>(level, shape, scores);
                attend::<Bf16>(level, shape, scores);
            }
        }
    }
}

#[test]
fn stale_values_beyond_the_sequence_do_not_leak() {
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
    let mut cache = KvCache::<Bf16>::allocate(BlockShape::new(shape, 16), 1).unwrap();
    let mut scratch = Scratch::allocate(1, shape).unwrap();
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
