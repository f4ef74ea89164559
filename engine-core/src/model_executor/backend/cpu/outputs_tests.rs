//! Products of which less is written than all outputs, against those that write all.

use super::activation::{self, Activation};
use super::argmax::Argmax;
use super::gated::GroupScratch;
use super::kernel_tests::{Random, bytes, filled};
use super::linear::{Conversion, Linear, Outputs, PackedMatrix, Packing};
use super::linear_tests::multiply;
use super::shared_weights::SharedWeights;
use super::simd::SimdLevel;
use super::weight_cache::WeightCache;
use super::wide_rows::{WideRowGroup, num_wide_groups};
use crate::model_executor::compute_pool::ComputePool;
use crate::model_executor::config::HiddenAct;
use crate::model_executor::weights::{StoredTensor, WeightFormat};
use crate::model_executor::wide_quantization::WideFormat;
use crate::model_executor::{Bitmask, ModelDtype};

const WIDE: [WeightFormat; 2] = [
    WeightFormat::Wide(WideFormat::Wide8),
    WeightFormat::Wide(WideFormat::Wide4),
];

fn pack(
    pool: &ComputePool,
    format: WeightFormat,
    in_features: usize,
    tensor: StoredTensor<'_>,
    bias: Option<&[f32]>,
) -> PackedMatrix {
    let packing = Packing {
        pool,
        dtype: ModelDtype::BFloat16,
        cache: &WeightCache::off(),
        shared: &SharedWeights::off(),
    };
    packing
        .pack("m", format, in_features, &[tensor], bias)
        .unwrap()
}

/// Of each group what products read.
fn parts(groups: &[WideRowGroup]) -> Vec<(Vec<i8>, u32, i32, Vec<i16>)> {
    let parts = groups.iter().map(|group| {
        let scale = group.scale.to_bits();
        (
            group.values.to_vec(),
            scale,
            group.sum,
            group.part_sums.to_vec(),
        )
    });
    parts.collect()
}

#[test]
#[cfg_attr(miri, ignore = "too much for an interpreter")]
fn gated_groups_are_those_of_gated_values() {
    let mut random = Random(23);
    // One group that is cut, groups that threads share, and whole ones for each.
    for (width, k) in [(96, 333), (3 * 256 + 64, 256), (9 * 256, 70)] {
        let (data, bias) = (
            bytes(&random.values(2 * width * k)),
            random.values(2 * width),
        );
        for (threads, format) in [(1, WIDE[0]), (2, WIDE[1]), (3, WIDE[0]), (5, WIDE[0])] {
            let pool = ComputePool::new(threads).unwrap();
            let tensor = StoredTensor::f32(2 * width, k, &data);
            let matrix = pack(&pool, format, k, tensor, Some(&bias));
            let mut scratch = GroupScratch::allocate(threads).unwrap();
            for level in SimdLevel::all_in_test() {
                let linear = Linear { pool: &pool, level };
                for rows in [1, 5, 16, 33, 300] {
                    let x = filled(rows, k, &mut random);
                    let mut gated = Activation::allocate(rows, width).unwrap();
                    gated.set_rows(rows).unwrap();
                    let (act, stride) = (HiddenAct::Silu, gated.stride());
                    let outputs = Outputs::Gated { act, stride };
                    multiply(linear, &matrix, &x.as_rows(), outputs, gated.as_mut_slice());
                    let mut expected = Conversion::allocate(rows, width).unwrap();
                    let expected = expected
                        .quantize_wide(linear, &gated.as_rows(), width)
                        .unwrap();

                    let mut conversion = Conversion::allocate(rows, k).unwrap();
                    let x = conversion.quantize_wide(linear, &x.as_rows(), k).unwrap();
                    let mut found = Activation::allocate(rows, width).unwrap();
                    found.set_rows(rows).unwrap();
                    linear
                        .multiply_gated_wide(&matrix, &x, act, &mut scratch, found.as_mut_groups())
                        .unwrap();
                    let found = found.groups_of(0..rows).unwrap();
                    assert_eq!(found.data.len(), rows * num_wide_groups(width));
                    assert!(
                        parts(found.data) == parts(expected.data),
                        "{format:?} {level:?} {threads} threads: {rows} rows, {width}"
                    );
                }
            }
        }
    }
}

/// Which of a row's tokens has the largest logit, by looking at each.
fn largest(logits: &[f32], bitmask: Option<&[u32]>, num_tokens: usize) -> Option<u32> {
    if logits.iter().any(|logit| !logit.is_finite()) {
        return None;
    }
    let allowed =
        |token: &usize| bitmask.is_none_or(|mask| mask[token / 32] >> (token % 32) & 1 == 1);
    let tokens = (0..num_tokens.min(logits.len())).filter(allowed);
    let first_of_largest = |a: usize, b: usize| if logits[b] > logits[a] { b } else { a };
    tokens.reduce(first_of_largest).map(|token| token as u32)
}

#[test]
#[cfg_attr(miri, ignore = "too much for an interpreter")]
fn the_largest_logits_are_those_of_all_logits() {
    let mut random = Random(29);
    // Whole panels and a part of one; more than a tile has.
    for (n, k) in [(70, 64), (1024, 96), (1500, 33)] {
        let mut weights = random.values(n * k);
        // Equal rows, so that logits are equal in one panel, in neighbours and far away.
        for (from, to) in [(3, 5), (3, 40), (3, n - 1)] {
            let row = weights[from * k..(from + 1) * k].to_vec();
            weights[to * k..(to + 1) * k].copy_from_slice(&row);
        }
        let data = bytes(&weights);
        for format in [WeightFormat::Dense, WIDE[0]] {
            for threads in [1, 3] {
                let pool = ComputePool::new(threads).unwrap();
                let matrix = pack(&pool, format, k, StoredTensor::f32(n, k, &data), None);
                for level in SimdLevel::all_in_test() {
                    let linear = Linear { pool: &pool, level };
                    for rows in [1, 2, 31, 70] {
                        let mut x = filled(rows, k, &mut random);
                        // The third row isn't finite.
                        if rows > 2 {
                            let stride = x.stride();
                            x.as_mut_slice()[2 * stride] = f32::NAN;
                        }
                        let x = x.as_rows();
                        let mut logits = vec![0.0; rows * n];
                        let outputs = Outputs::All { stride: n };
                        multiply(linear, &matrix, &x, outputs, &mut logits);
                        // Some rows without a mask, masks of all kinds of words, one of nothing.
                        let words: Vec<Vec<u32>> = (0..rows)
                            .map(|row| {
                                let word = |at: usize| match (row + at) % 4 {
                                    0 => 0,
                                    1 => u32::MAX,
                                    _ => random.values(1)[0].to_bits() ^ (at as u32) << 7,
                                };
                                let nothing = row % 7 == 5;
                                let words = (0..n.div_ceil(32)).map(word);
                                words.map(|word| if nothing { 0 } else { word }).collect()
                            })
                            .collect();
                        let bitmasks: Vec<Option<Bitmask<'_>>> = (words.iter().enumerate())
                            .map(|(row, words)| (row % 3 > 0).then_some(words.as_slice().into()))
                            .collect();
                        for num_tokens in [n, n - 1, n - 33, n + 5] {
                            let mut found = Vec::new();
                            let outputs = Outputs::Argmax(Argmax {
                                bitmasks: &bitmasks,
                                num_tokens,
                                largest: &mut Vec::new(),
                                token_ids: &mut found,
                            });
                            multiply(linear, &matrix, &x, outputs, &mut []);
                            let expected =
                                logits.chunks(n).zip(&bitmasks).map(|(logits, bitmask)| {
                                    // Padding behind the last panel that holds a token isn't looked at.
                                    largest(logits, bitmask.map(|mask| mask.words), num_tokens)
                                });
                            let expected: Vec<Option<u32>> = expected.collect();
                            assert_eq!(
                                found, expected,
                                "{format:?} {level:?}: {rows} of {n}, {num_tokens}"
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn groups_are_forgotten_where_values_are_written() {
    let pool = ComputePool::new(1).unwrap();
    let level = SimdLevel::all_in_test()[0];
    let mut random = Random(37);
    let (mut residual, delta) = (filled(3, 40, &mut random), filled(3, 40, &mut random));
    let mut out = Activation::allocate(5, 40).unwrap();
    let weight = vec![1.0; 40];
    let mut norm = |quantizes: bool, out: &mut Activation| {
        activation::add_rms_norm(
            &pool,
            level,
            &mut residual,
            &delta,
            &weight,
            1e-6,
            quantizes,
            out,
        )
        .unwrap();
    };
    norm(true, &mut out);
    assert_eq!(out.groups_of(0..3).map(|groups| groups.count), Some(3));
    norm(false, &mut out);
    assert!(out.groups_of(0..3).is_none());
    norm(true, &mut out);
    // Values that are written in place, and other rows.
    let _ = out.as_mut_slice();
    assert!(out.groups_of(0..3).is_none());
    norm(true, &mut out);
    out.set_rows(5).unwrap();
    assert!(out.groups_of(0..5).is_none());
}
