//! Linear layers in every weight format at every level against a plain reference in f64.

use super::activation::Activation;
use super::buffer::SharedMut;
use super::elementwise;
use super::experts::ExpertRows;
use super::kernel_tests::{Random, bytes, close, filled};
use super::linear::{Conversion, Linear, Outputs, PackedMatrix, Packing};
use super::panels::{PANEL_WIDTH, Rows};
use super::shared_weights::SharedWeights;
use super::simd::SimdLevel;
use super::weight_cache::WeightCache;
use crate::model_executor::ModelDtype;
use crate::model_executor::compute_pool::ComputePool;
use crate::model_executor::config::HiddenAct;
use crate::model_executor::quantization::{GROUP, QuantizedFormat};
use crate::model_executor::weights::{StoredTensor, WeightFormat};
use crate::model_executor::wide_quantization::{WIDE_GROUP, WideFormat};

type WeightKind = (ModelDtype, WeightFormat);

const Q8_0: WeightFormat = WeightFormat::Quantized(QuantizedFormat::Q8_0);
const Q4_0: WeightFormat = WeightFormat::Quantized(QuantizedFormat::Q4_0);
const WIDE_8: WeightFormat = WeightFormat::Wide(WideFormat::Wide8);
const WIDE_4: WeightFormat = WeightFormat::Wide(WideFormat::Wide4);

const KINDS: [WeightKind; 7] = [
    (ModelDtype::Float32, WeightFormat::Dense),
    (ModelDtype::BFloat16, WeightFormat::Dense),
    (ModelDtype::Float16, WeightFormat::Dense),
    (ModelDtype::BFloat16, Q8_0),
    (ModelDtype::Float32, Q4_0),
    (ModelDtype::BFloat16, WIDE_8),
    (ModelDtype::Float32, WIDE_4),
];

fn pack(
    pool: &ComputePool,
    kind: WeightKind,
    in_features: usize,
    parts: &[StoredTensor<'_>],
    bias: Option<&[f32]>,
) -> PackedMatrix {
    let packing = Packing {
        pool,
        dtype: kind.0,
        cache: &WeightCache::off(),
        shared: &SharedWeights::off(),
    };
    packing.pack("m", kind.1, in_features, parts, bias).unwrap()
}

/// The weights as the kind keeps them.
fn kept(kind: WeightKind, tensor: StoredTensor<'_>) -> Vec<f32> {
    match kind {
        (dtype, WeightFormat::Dense) => {
            let values = tensor.to_f32().into_iter();
            values.map(|value| dtype.round(value)).collect()
        }
        _ => tensor.to_f32_in(kind.1),
    }
}

/// Whether bfloat16 itself is multiplied, rather than widened.
fn rounds_activations_to_bf16(kind: WeightKind, level: SimdLevel) -> bool {
    level.has_bf16_dot() && kind == (ModelDtype::BFloat16, WeightFormat::Dense)
}

/// A row as the kind's products read it.
fn read(kind: WeightKind, level: SimdLevel, x: &[f32]) -> Vec<f64> {
    if rounds_activations_to_bf16(kind, level) {
        let rounded = x.iter().map(|x| half::bf16::from_f32(*x).to_f64());
        return rounded.collect();
    }
    match kind.1 {
        WeightFormat::Wide(_) => quantized(x, WIDE_GROUP),
        WeightFormat::Quantized(_) => quantized(x, GROUP),
        _ => x.iter().map(|x| f64::from(*x)).collect(),
    }
}

/// A row as products with quantized weights read it: in groups, in steps of a 127th of the largest.
pub(super) fn quantized(x: &[f32], group: usize) -> Vec<f64> {
    x.chunks(group)
        .flat_map(|group| {
            let largest = group.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            group.iter().map(move |x| match largest {
                0.0 => 0.0,
                _ => {
                    f64::from((x * (127.0 / largest)).round_ties_even())
                        * f64::from(largest / 127.0)
                }
            })
        })
        .collect()
}

pub(super) fn multiply(
    linear: Linear<'_>,
    matrix: &PackedMatrix,
    x: &Rows<'_, f32>,
    outputs: Outputs<'_>,
    out: &mut [f32],
) {
    let mut conversion = Conversion::allocate(x.count, matrix.in_features()).unwrap();
    linear
        .multiply(matrix, x, &mut conversion, outputs, out)
        .unwrap();
}

fn check(kind: WeightKind, rows: usize, n: usize, k: usize, linear: Linear<'_>) {
    let mut random = Random((rows * 1000 + n * 10 + k) as u64);
    let (first, second) = (n / 3, n - n / 3);
    let (weights, bias) = (random.values(n * k), random.values(n));
    let data = bytes(&weights);
    let (upper, lower) = data.split_at(first * k * 4);
    let parts = [
        StoredTensor::f32(first, k, upper),
        StoredTensor::f32(second, k, lower),
    ];
    let weights = kept(kind, StoredTensor::f32(n, k, &data));
    let matrix = pack(linear.pool, kind, k, &parts, Some(&bias));
    let x = filled(rows, k, &mut random);
    // Results at a stride of their own; what lies between them must stay.
    let stride = n + 3;
    let mut out = vec![7.0f32; rows * stride];
    multiply(
        linear,
        &matrix,
        &x.as_rows(),
        Outputs::All { stride },
        &mut out,
    );
    for row in 0..rows {
        let x = read(kind, linear.level, x.row(row));
        for feature in 0..n {
            let weights = &weights[feature * k..][..k];
            let sum: f64 = std::iter::zip(&x, weights)
                .map(|(x, w)| x * f64::from(*w))
                .sum();
            let what = format!(
                "{kind:?} {:?} [{rows}, {k}] x [{n}, {k}] at {row}, {feature}",
                linear.level
            );
            let expected = sum + f64::from(bias[feature]);
            close(out[row * stride + feature], expected, 1e-4, &what);
        }
        let between = &out[row * stride + n..(row + 1) * stride];
        assert!(between.iter().all(|value| *value == 7.0));
    }
    check_maxima(linear, &matrix, &x.as_rows(), &out);
    let features: Vec<u32> = (0..n as u32).rev().step_by(2).collect();
    let mut chosen = vec![0.0; features.len()];
    let row = Rows {
        data: x.row(0),
        count: 1,
        stride: k,
    };
    multiply(
        linear,
        &matrix,
        &row,
        Outputs::Chosen(&features),
        &mut chosen,
    );
    for (feature, found) in features.iter().zip(&chosen) {
        let all = out[*feature as usize];
        assert_eq!(found.to_bits(), all.to_bits(), "{kind:?} {feature}");
    }
    let mut table_row = vec![0.0; k];
    matrix.read_row(n - 1, &mut table_row);
    assert_eq!(table_row, weights[(n - 1) * k..]);
}

/// The largest result of each panel, of a product that is `expected` at a stride of 3 more than its width.
fn check_maxima(linear: Linear<'_>, matrix: &PackedMatrix, x: &Rows<'_, f32>, expected: &[f32]) {
    let stride = matrix.out_features() + 3;
    let num_panels = matrix.out_features().div_ceil(PANEL_WIDTH);
    let mut out = vec![7.0f32; x.count * stride];
    let mut maxima = vec![7.0f32; x.count * num_panels];
    let outputs = Outputs::WithMaxima {
        stride,
        maxima: SharedMut::new(&mut maxima),
    };
    multiply(linear, matrix, x, outputs, &mut out);
    assert_eq!(out, expected);
    for (row, maxima) in out.chunks(stride).zip(maxima.chunks(num_panels)) {
        let panels = row[..matrix.out_features()].chunks(PANEL_WIDTH);
        let largest = panels.map(|panel| panel.iter().copied().fold(f32::MIN, f32::max));
        assert_eq!(maxima, largest.collect::<Vec<f32>>());
    }
}

#[test]
fn a_maximum_tells_of_what_is_no_number() {
    let pool = ComputePool::new(1).unwrap();
    let (n, k) = (3 * PANEL_WIDTH + 5, 8);
    let kind = (ModelDtype::Float32, WeightFormat::Dense);
    let x = vec![2.0f32; k];
    let rows = Rows {
        data: &x,
        count: 1,
        stride: k,
    };
    for level in SimdLevel::all_in_test() {
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for feature in 0..n {
                let mut weights = vec![1.0f32; n * k];
                weights[feature * k + 3] = value;
                let data = bytes(&weights);
                let matrix = pack(&pool, kind, k, &[StoredTensor::f32(n, k, &data)], None);
                let (mut out, mut maxima) = (vec![0.0; n], vec![0.0; 4]);
                let outputs = Outputs::WithMaxima {
                    stride: n,
                    maxima: SharedMut::new(&mut maxima),
                };
                let linear = Linear { pool: &pool, level };
                multiply(linear, &matrix, &rows, outputs, &mut out);
                let tells = match value.is_nan() {
                    true => maxima.iter().any(|maximum| maximum.is_nan()),
                    // Infinite ones are told of, or counted.
                    false => {
                        maxima.iter().any(|maximum| maximum.is_nan())
                            || maxima[feature / PANEL_WIDTH] == value.max(16.0)
                    }
                };
                assert!(tells, "{level:?} {value} at {feature}: {maxima:?}");
            }
        }
    }
}

#[test]
fn linear_matches_at_every_level_and_size() {
    let pool = ComputePool::new(2).unwrap();
    // An interpreter takes minutes for what a processor does in microseconds.
    let (shapes, row_counts): (&[(usize, usize)], &[usize]) = match cfg!(miri) {
        true => (&[(33, 7)], &[1, 5]),
        false => (
            &[
                (1, 1),
                (31, 7),
                (32, 16),
                (33, 40),
                (97, 129),
                (64, 256),
                (64, 1100),
            ],
            &[1, 2, 3, 5, 7, 12, 13, 20, 100],
        ),
    };
    for level in SimdLevel::all_in_test() {
        let linear = Linear { pool: &pool, level };
        for &(n, k) in shapes {
            for &rows in row_counts {
                for kind in KINDS {
                    check(kind, rows, n, k, linear);
                }
            }
        }
    }
}

/// Rows of three of five experts: one alone, more than a block, and an odd number.
pub(super) const GROUPS: [ExpertRows; 3] = {
    const fn group(expert: usize, first: usize, count: usize) -> ExpertRows {
        ExpertRows {
            expert,
            first,
            count,
        }
    }
    [group(0, 0, 1), group(2, 1, 17), group(3, 18, 5)]
};

/// Products of [`GROUPS`] by five matrices against sums in f64; `weights` are the matrices' values and
/// `read` is a row as the products read it.
pub(super) fn check_groups(
    linear: Linear<'_>,
    matrices: &[PackedMatrix],
    weights: &[Vec<f32>],
    read: &dyn Fn(&[f32]) -> Vec<f64>,
    what: &str,
) {
    let (n, k) = (matrices[0].out_features(), matrices[0].in_features());
    let rows = GROUPS.iter().map(|group| group.count).sum();
    let x = filled(rows, k, &mut Random(n as u64));
    let mut conversion = Conversion::allocate(rows, k).unwrap();
    let stride = n + 3;
    let mut out = vec![7.0f32; rows * stride];
    let rows = x.as_rows();
    linear
        .multiply_groups(matrices, &GROUPS, &rows, &mut conversion, &mut out, stride)
        .unwrap();
    for group in GROUPS {
        let (matrix, weights) = (&matrices[group.expert], &weights[group.expert]);
        for row in group.first..group.first + group.count {
            let found = &out[row * stride..][..stride];
            let row = x.row(row);
            let factors = read(row);
            for (feature, weights) in weights.chunks_exact(k).enumerate() {
                let products = std::iter::zip(&factors, weights).map(|(x, w)| x * f64::from(*w));
                let what = format!("{what} [{n}, {k}] at {group:?}, {feature}");
                close(found[feature], products.sum(), 1e-4, &what);
            }
            assert!(found[n..].iter().all(|value| *value == 7.0), "{what}");
            // The same as by the matrix alone.
            let row = Rows {
                data: row,
                count: 1,
                stride: k,
            };
            let mut alone = vec![0.0; n];
            let outputs = Outputs::All { stride: n };
            multiply(linear, matrix, &row, outputs, &mut alone);
            assert!(found[..n] == alone, "{what}");
        }
    }
}

#[test]
fn experts_match_at_every_level_and_size() {
    let pool = ComputePool::new(2).unwrap();
    let shapes: &[(usize, usize)] = match cfg!(miri) {
        true => &[(5, 7)],
        false => &[(1, 1), (33, 40), (97, 129), (64, 1100)],
    };
    for &(n, k) in shapes {
        for kind in KINDS {
            let mut random = Random((n * 10 + k) as u64);
            let data: Vec<Vec<u8>> = (0..5).map(|_| bytes(&random.values(n * k))).collect();
            let tensors = data.iter().map(|data| StoredTensor::f32(n, k, data));
            let (matrices, weights): (Vec<_>, Vec<_>) = tensors
                .map(|tensor| {
                    let matrix = pack(&pool, kind, k, std::slice::from_ref(&tensor), None);
                    (matrix, kept(kind, tensor))
                })
                .unzip();
            for level in SimdLevel::all_in_test() {
                let linear = Linear { pool: &pool, level };
                let read = |x: &[f32]| read(kind, level, x);
                let what = format!("{kind:?} {level:?}");
                check_groups(linear, &matrices, &weights, &read, &what);
            }
        }
    }
}

/// By how much a layer's outputs are off those of weights and inputs that nothing has rounded, relative
/// to them, in the mean of squares.
fn error_of_layer(linear: Linear<'_>, kind: WeightKind, spread: i32) -> f64 {
    let mut random = Random(13);
    let (rows, n, k) = (20, 64, 896);
    let mut values = |len| -> Vec<f32> {
        let values = random.values(len).into_iter();
        values.map(|value| value.powi(spread)).collect()
    };
    let (weights, x) = (values(n * k), values(rows * k));
    let data = bytes(&weights);
    let matrix = pack(
        linear.pool,
        kind,
        k,
        &[StoredTensor::f32(n, k, &data)],
        None,
    );
    let mut out = vec![0.0; rows * n];
    let x_rows = Rows {
        data: x.as_slice(),
        count: rows,
        stride: k,
    };
    let outputs = Outputs::All { stride: n };
    multiply(linear, &matrix, &x_rows, outputs, &mut out);
    let (mut error, mut total) = (0.0, 0.0);
    for (x, out) in x.chunks_exact(k).zip(out.chunks_exact(n)) {
        for (weights, found) in weights.chunks_exact(k).zip(out) {
            let products = std::iter::zip(x, weights).map(|(x, w)| f64::from(*x) * f64::from(*w));
            let exact: f64 = products.sum();
            error += (f64::from(*found) - exact).powi(2);
            total += exact.powi(2);
        }
    }
    (error / total).sqrt()
}

#[test]
#[cfg_attr(miri, ignore = "too much for an interpreter")]
fn quantized_layers_stay_near_the_layer_in_f32() {
    let pool = ComputePool::new(2).unwrap();
    // Uniform numbers, and some with few large ones among many small, which steps of one size suit worse.
    for (format, bounds) in [
        (WeightFormat::Dense, [1e-5, 1e-5]),
        (Q8_0, [0.006, 0.009]),
        (Q4_0, [0.07, 0.085]),
        (WIDE_8, [0.006, 0.009]),
        (WIDE_4, [0.07, 0.085]),
    ] {
        for (spread, bound) in [1, 3].into_iter().zip(bounds) {
            for level in SimdLevel::all_in_test() {
                let linear = Linear { pool: &pool, level };
                let kind = (ModelDtype::Float32, format);
                let error = error_of_layer(linear, kind, spread);
                println!("{format:?} {level:?} {spread}: {error}");
                assert!(error < bound, "{format:?} {level:?} {spread}: {error}");
                // Neither was the layer left as it was.
                let is_rounded = format != WeightFormat::Dense;
                assert_eq!(error > bound / 3.0 && error > 1e-4, is_rounded);
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "too much for an interpreter")]
fn a_row_is_the_same_in_any_number_of_rows() {
    let pool = ComputePool::new(1).unwrap();
    let mut random = Random(5);
    let (n, k) = (70, 1301);
    let data = bytes(&random.values(n * k));
    let x = filled(256, k, &mut random);
    for kind in KINDS {
        let matrix = pack(&pool, kind, k, &[StoredTensor::f32(n, k, &data)], None);
        for level in SimdLevel::all_in_test() {
            let linear = Linear { pool: &pool, level };
            let mut all = vec![0.0; 256 * n];
            let outputs = Outputs::All { stride: n };
            multiply(linear, &matrix, &x.as_rows(), outputs, &mut all);
            // Beyond 30 those at which tiles begin, and at which none asks for what follows any more.
            for rows in (1..=30).chain([31, 32, 33, 47, 96, 97]) {
                let some = Rows {
                    count: rows,
                    ..x.as_rows()
                };
                let mut out = vec![0.0; rows * n];
                let outputs = Outputs::All { stride: n };
                multiply(linear, &matrix, &some, outputs, &mut out);
                assert!(out == all[..rows * n], "{kind:?} {level:?}: {rows} rows");
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "too much for an interpreter")]
fn gated_outputs_are_those_of_two_steps() {
    let pool = ComputePool::new(2).unwrap();
    let (width, k) = (96, 333);
    let mut random = Random(17);
    let (data, bias) = (
        bytes(&random.values(2 * width * k)),
        random.values(2 * width),
    );
    let tensor = StoredTensor::f32(2 * width, k, &data);
    for kind in KINDS {
        let matrix = pack(&pool, kind, k, std::slice::from_ref(&tensor), Some(&bias));
        assert!(matrix.is_gateable());
        for level in SimdLevel::all_in_test() {
            let linear = Linear { pool: &pool, level };
            for rows in [1, 3, 17, 40, 100, 300] {
                let x = filled(rows, k, &mut random);
                let mut gate_up = Activation::allocate(rows, 2 * width).unwrap();
                let mut expected = Activation::allocate(rows, width).unwrap();
                let mut found = Activation::allocate(rows, width).unwrap();
                gate_up.set_rows(rows).unwrap();
                found.set_rows(rows).unwrap();
                let stride = gate_up.stride();
                let outputs = Outputs::All { stride };
                multiply(
                    linear,
                    &matrix,
                    &x.as_rows(),
                    outputs,
                    gate_up.as_mut_slice(),
                );
                let act = HiddenAct::Silu;
                elementwise::act_and_mul(&pool, level, act, &gate_up, &mut expected).unwrap();
                let stride = found.stride();
                let outputs = Outputs::Gated { act, stride };
                multiply(linear, &matrix, &x.as_rows(), outputs, found.as_mut_slice());
                for row in 0..rows {
                    assert!(
                        found.row(row) == expected.row(row),
                        "{kind:?} {level:?} {rows}"
                    );
                }
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "has one level")]
fn levels_with_fused_multiply_add_give_the_same_bits() {
    let pool = ComputePool::new(1).unwrap();
    let mut random = Random(11);
    let (rows, n, k) = (9, 70, 333);
    let data = bytes(&random.values(n * k));
    let x = filled(rows, k, &mut random);
    for kind in KINDS {
        let matrix = pack(&pool, kind, k, &[StoredTensor::f32(n, k, &data)], None);
        let results: Vec<Vec<u32>> = SimdLevel::all_in_test()
            .into_iter()
            .filter(|level| *level != SimdLevel::Portable)
            .filter(|level| !rounds_activations_to_bf16(kind, *level))
            .map(|level| {
                let linear = Linear { pool: &pool, level };
                let mut out = vec![0.0; rows * n];
                let outputs = Outputs::All { stride: n };
                multiply(linear, &matrix, &x.as_rows(), outputs, &mut out);
                out.into_iter().map(f32::to_bits).collect()
            })
            .collect();
        assert!(
            results.windows(2).all(|pair| pair[0] == pair[1]),
            "{kind:?}"
        );
    }
}

/// The largest integers that there are, all of one sign: sums of whole groups must be exact at every level.
#[test]
#[cfg_attr(miri, ignore = "too much for an interpreter")]
fn sums_of_the_largest_integers_are_exact() {
    let pool = ComputePool::new(1).unwrap();
    let (rows, n, k) = (40, 64, 700);
    for format in [Q8_0, Q4_0, WIDE_8, WIDE_4] {
        for (weight, value) in [(1.0f32, 1.0f32), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0)] {
            let data = bytes(&vec![weight; n * k]);
            let tensor = StoredTensor::f32(n, k, &data);
            let kind = (ModelDtype::Float32, format);
            let matrix = pack(&pool, kind, k, std::slice::from_ref(&tensor), None);
            let kept = f64::from(kept(kind, tensor)[0]);
            let x = vec![value; rows * k];
            let x = Rows {
                data: x.as_slice(),
                count: rows,
                stride: k,
            };
            for level in SimdLevel::all_in_test() {
                let linear = Linear { pool: &pool, level };
                let mut out = vec![0.0; rows * n];
                multiply(linear, &matrix, &x, Outputs::All { stride: n }, &mut out);
                for found in out {
                    let expected = kept * f64::from(value) * k as f64;
                    close(found, expected, 1e-6, &format!("{format:?} {level:?}"));
                }
            }
        }
    }
}

#[test]
fn what_is_not_finite_stays_so_and_what_is_tiny_counts_as_nothing() {
    let pool = ComputePool::new(1).unwrap();
    let (n, k) = (32, 64);
    let data = bytes(&Random(3).values(n * k));
    for format in [Q8_0, Q4_0, WIDE_8, WIDE_4] {
        let kind = (ModelDtype::Float32, format);
        let matrix = pack(&pool, kind, k, &[StoredTensor::f32(n, k, &data)], None);
        for level in SimdLevel::all_in_test() {
            let linear = Linear { pool: &pool, level };
            for (value, is_nan) in [
                (f32::NAN, true),
                (f32::INFINITY, true),
                (f32::NEG_INFINITY, true),
                (1e-40, false),
            ] {
                let mut row = vec![0.0; k];
                row[40] = value;
                let x = Rows {
                    data: row.as_slice(),
                    count: 1,
                    stride: k,
                };
                let mut out = vec![0.0; n];
                multiply(linear, &matrix, &x, Outputs::All { stride: n }, &mut out);
                let right = |out: &f32| if is_nan { out.is_nan() } else { *out == 0.0 };
                assert!(out.iter().all(right), "{level:?} {value}");
            }
        }
    }
}
