//! Every kernel at every level against a plain reference in f64, at odd sizes.

use super::activation::{self, Activation};
use super::elementwise;
use super::format::Format;
use super::kv_cache;
use super::layer_norm;
use super::simd::SimdLevel;
use crate::model_executor::backend::{AttentionShape, LayerNorm};
use crate::model_executor::compute_pool::ComputePool;
use crate::model_executor::config::HiddenAct;

/// SplitMix64 as uniform numbers in `-1..1`.
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    pub(super) fn values(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.next()).collect()
    }
}

pub(super) fn bytes(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

/// What is left of a value in a format.
pub(super) fn stored<F: Format>(value: f32) -> f64 {
    f64::from(F::to_f32(F::from_f32(value)))
}

pub(super) fn filled(rows: usize, width: usize, random: &mut Random) -> Activation {
    let mut x = Activation::allocate(rows, width).unwrap();
    x.set_rows(rows).unwrap();
    // The padding is filled too: no kernel may read it.
    x.as_mut_slice().fill(f32::NAN);
    let stride = x.stride();
    for row in 0..rows {
        x.as_mut_slice()[row * stride..][..width].copy_from_slice(&random.values(width));
    }
    x
}

pub(super) fn close(found: f32, expected: f64, tolerance: f64, what: &str) {
    let error = (f64::from(found) - expected).abs();
    assert!(
        error <= tolerance * (1.0 + expected.abs()),
        "{what}: {found} instead of {expected}"
    );
}

#[test]
fn norms_and_silu_match_at_every_level() {
    let pool = ComputePool::new(2).unwrap();
    let eps = 1e-5;
    for level in SimdLevel::all_in_test() {
        for width in [1, 15, 16, 17, 64, 75] {
            let mut random = Random(width as u64);
            let (mut x, delta) = (filled(9, width, &mut random), filled(9, width, &mut random));
            let weight = random.values(width);
            let before: Vec<Vec<f32>> = (0..9).map(|row| x.row(row).to_vec()).collect();
            let mut out = Activation::allocate(9, width).unwrap();
            let check = |sum: &[f64], out: &[f32]| {
                let mean = sum.iter().map(|value| value * value).sum::<f64>() / width as f64;
                for (i, found) in out.iter().enumerate() {
                    let norm = (mean + f64::from(eps)).sqrt();
                    let expected = sum[i] / norm * f64::from(weight[i]);
                    close(*found, expected, 1e-5, &format!("{level:?} width {width}"));
                }
            };
            activation::rms_norm(&pool, level, &x, &weight, eps, &mut out).unwrap();
            for (row, before) in before.iter().enumerate() {
                let x: Vec<f64> = before.iter().map(|value| f64::from(*value)).collect();
                check(&x, out.row(row));
            }
            let stride = x.stride();
            let mut normed = filled(9, width, &mut random);
            normed
                .as_mut_slice()
                .copy_from_slice(&x.as_slice()[..9 * stride]);
            activation::rms_norm_in_place(&pool, level, &mut normed, &weight, eps).unwrap();
            (0..9).for_each(|row| assert_eq!(normed.row(row), out.row(row), "in place"));

            activation::add_rms_norm(&pool, level, &mut x, &delta, &weight, eps, false, &mut out)
                .unwrap();
            for (row, before) in before.iter().enumerate() {
                let sum: Vec<f64> = before
                    .iter()
                    .zip(delta.row(row))
                    .map(|(x, delta)| f64::from(*x) + f64::from(*delta))
                    .collect();
                check(&sum, out.row(row));
                x.row(row)
                    .iter()
                    .zip(&sum)
                    .for_each(|(x, sum)| close(*x, *sum, 1e-6, "residual"));
            }

            let gate_up = filled(9, 2 * width, &mut random);
            for act in ACTIVATIONS {
                elementwise::act_and_mul(&pool, level, act, &gate_up, &mut out).unwrap();
                for row in 0..9 {
                    for i in 0..width {
                        let (gate, up) = (gate_up.row(row)[i], gate_up.row(row)[width + i]);
                        let expected = f64::from(up) * activated(act, gate.into());
                        let what = format!("{level:?} {act:?} {width}");
                        close(out.row(row)[i], expected, 1e-6, &what);
                    }
                }
                let mut x = filled(9, width, &mut random);
                let before: Vec<Vec<f32>> = (0..9).map(|row| x.row(row).to_vec()).collect();
                elementwise::activate(&pool, level, act, &mut x).unwrap();
                for (row, before) in before.iter().enumerate() {
                    for (found, before) in x.row(row).iter().zip(before) {
                        let expected = activated(act, (*before).into());
                        close(*found, expected, 1e-6, &format!("{level:?} {act:?}"));
                    }
                }
            }

            let mut x = filled(9, width, &mut random);
            let before: Vec<Vec<f32>> = (0..9).map(|row| x.row(row).to_vec()).collect();
            let norm = LayerNorm {
                weight: weight.clone(),
                bias: (0..width).map(|i| 0.1 * i as f32).collect(),
                eps: 1e-5,
            };
            layer_norm::layer_norm(&pool, level, &mut x, &norm).unwrap();
            for (row, before) in before.iter().enumerate() {
                let before: Vec<f64> = before.iter().map(|v| f64::from(*v)).collect();
                let mean = before.iter().sum::<f64>() / width as f64;
                let variance = before.iter().map(|v| (v - mean).powi(2)).sum::<f64>();
                let deviation = (variance / width as f64 + 1e-5).sqrt();
                for (i, found) in x.row(row).iter().enumerate() {
                    let normed = (before[i] - mean) / deviation;
                    let expected = normed * f64::from(norm.weight[i]) + f64::from(norm.bias[i]);
                    close(*found, expected, 1e-5, &format!("{level:?} layer norm"));
                }
            }
        }
    }
}

#[test]
fn soft_caps_match_at_every_level() {
    let pool = ComputePool::new(2).unwrap();
    for level in SimdLevel::all_in_test() {
        for len in [1, 16, 37, 8192 + 3] {
            let mut random = Random(len as u64);
            let before: Vec<f32> = random.values(len).iter().map(|x| x * 90.0).collect();
            let mut x = before.clone();
            elementwise::softcap(&pool, level, &mut x, 30.0).unwrap();
            for (found, before) in x.iter().zip(before) {
                let expected = 30.0 * (f64::from(before) / 30.0).tanh();
                close(*found, expected, 1e-5, &format!("{level:?} {len}"));
            }
        }
    }
}

#[test]
fn head_norms_match_at_every_level() {
    let pool = ComputePool::new(1).unwrap();
    let shape = AttentionShape {
        num_heads: 4,
        num_kv_heads: 2,
        head_dim: 18,
    };
    for level in SimdLevel::all_in_test() {
        let mut random = Random(3);
        let mut qkv = filled(3, shape.qkv_width(), &mut random);
        let (q_weight, k_weight) = (random.values(18), random.values(18));
        let before: Vec<Vec<f32>> = (0..3).map(|row| qkv.row(row).to_vec()).collect();
        kv_cache::qk_norm(&pool, level, &mut qkv, shape, &q_weight, &k_weight, 1e-6).unwrap();
        for (row, before) in before.iter().enumerate() {
            for head in 0..6 {
                let weight = if head < 4 { &q_weight } else { &k_weight };
                let x = &before[head * 18..][..18];
                let mean = x.iter().map(|x| f64::from(x * x)).sum::<f64>() / 18.0;
                for i in 0..18 {
                    let expected = f64::from(x[i] * weight[i]) / (mean + 1e-6).sqrt();
                    close(qkv.row(row)[head * 18 + i], expected, 1e-5, "head norm");
                }
            }
            let values = shape.q_width() + shape.kv_width()..;
            assert_eq!(qkv.row(row)[values.clone()], before[values]);
        }
    }
}

#[test]
fn levels_with_fused_multiply_add_give_the_same_bits() {
    let pool = ComputePool::new(1).unwrap();
    let mut random = Random(11);
    let (rows, k) = (9, 333);
    let weight = random.values(k);
    let (x, gate_up) = (filled(rows, k, &mut random), filled(rows, 70, &mut random));
    let mut results = Vec::new();
    for level in SimdLevel::all_in_test()
        .into_iter()
        .filter(|level| *level != SimdLevel::Portable)
    {
        let mut gated = Activation::allocate(rows, 35).unwrap();
        elementwise::act_and_mul(&pool, level, HiddenAct::Silu, &gate_up, &mut gated).unwrap();
        let mut normed = Activation::allocate(rows, k).unwrap();
        activation::rms_norm(&pool, level, &x, &weight, 1e-6, &mut normed).unwrap();
        let bits = |x: &Activation| -> Vec<u32> {
            (0..rows)
                .flat_map(|row| x.row(row))
                .map(|value| value.to_bits())
                .collect()
        };
        results.push([bits(&gated), bits(&normed)]);
    }
    assert!(results.windows(2).all(|pair| pair[0] == pair[1]));
}

const ACTIVATIONS: [HiddenAct; 4] = [
    HiddenAct::Silu,
    HiddenAct::GeluTanh,
    HiddenAct::Gelu,
    HiddenAct::Relu,
];

fn activated(act: HiddenAct, x: f64) -> f64 {
    match act {
        HiddenAct::Silu => x / (1.0 + (-x).exp()),
        HiddenAct::GeluTanh => {
            let root = (2.0 / std::f64::consts::PI).sqrt();
            let u = root * (x + 0.044715 * x.powi(3));
            x / 2.0 * (1.0 + u.tanh())
        }
        HiddenAct::Gelu => x / 2.0 * (1.0 + erf(x / 2.0_f64.sqrt())),
        HiddenAct::Relu => x.max(0.0),
    }
}

/// By its Taylor series, which is good to a few digits more than f32 has up to 4.
fn erf(x: f64) -> f64 {
    let mut term = x;
    let mut sum = x;
    for n in 1..100 {
        let n = f64::from(n);
        term *= -x * x / n;
        sum += term / (2.0 * n + 1.0);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}
