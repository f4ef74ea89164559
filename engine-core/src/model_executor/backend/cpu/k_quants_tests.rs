//! Products with a file's blocks of 256 at every level against a plain reference in f64.

use gguf::TensorType;
use half::f16;

use super::kernel_tests::{Random, close, filled};
use super::linear::{Linear, Outputs, PackedMatrix, Packing};
use super::linear_tests::{check_groups, multiply, quantized};
use super::panels::Rows;
use super::shared_weights::SharedWeights;
use super::simd::SimdLevel;
use super::weight_cache::WeightCache;
use crate::model_executor::ModelDtype;
use crate::model_executor::checkpoint::RawTensor;
use crate::model_executor::compute_pool::ComputePool;
use crate::model_executor::quantization::{GROUP, KFormat};
use crate::model_executor::weights::{StoredDtype, StoredTensor, WeightFormat};

const FORMATS: [KFormat; 3] = [KFormat::Q6K, KFormat::Q5K, KFormat::Q4K];

/// Rows of any bits, but for scales of a size that sums can be compared at.
fn stored(format: KFormat, n: usize, k: usize, random: &mut Random) -> Vec<u8> {
    let (_, block_bytes) = format.tensor_type().block().unwrap();
    let scales: &[usize] = match format {
        KFormat::Q6K => &[208],
        KFormat::Q5K | KFormat::Q4K => &[0, 2],
    };
    let mut data = Vec::new();
    for _ in 0..n * k / 256 {
        let bytes = random.values(block_bytes);
        let start = data.len();
        data.extend(bytes.iter().map(|value| (value * 1e5) as i32 as u8));
        for at in scales {
            let scale = f16::from_f32(random.values(1)[0] * 2e-3);
            data[start + at..][..2].copy_from_slice(&scale.to_le_bytes());
        }
    }
    data
}

fn tensor<'a>(format: TensorType, shape: &'a [usize; 2], data: &'a [u8]) -> StoredTensor<'a> {
    let raw = RawTensor {
        file: "f",
        dtype: StoredDtype::Blocks(format),
        shape,
        data,
        mapped: false,
        interleaved: None,
    };
    StoredTensor::new(raw, String::new, shape).unwrap()
}

fn pack(
    pool: &ComputePool,
    format: KFormat,
    shape: [usize; 2],
    data: &[u8],
    bias: Option<&[f32]>,
) -> PackedMatrix {
    let [n, k] = shape;
    // In two parts, where there are two rows.
    let first = n / 3;
    let (upper, lower) = data.split_at(data.len() / n * first);
    let shapes = [[first, k], [n - first, k]];
    let parts = [(&shapes[0], upper), (&shapes[1], lower)]
        .map(|(shape, data)| tensor(format.tensor_type(), shape, data));
    let packing = Packing {
        pool,
        dtype: ModelDtype::BFloat16,
        cache: &WeightCache::off(),
        shared: &SharedWeights::off(),
    };
    let parts = if first == 0 { &parts[1..] } else { &parts[..] };
    packing
        .pack("m", WeightFormat::K(format), k, parts, bias)
        .unwrap()
}

fn check(format: KFormat, rows: usize, n: usize, k: usize, linear: Linear<'_>) {
    let mut random = Random((rows * 1000 + n * 10 + k) as u64);
    let data = stored(format, n, k, &mut random);
    let weights = tensor(format.tensor_type(), &[n, k], &data).to_f32();
    let bias = random.values(n);
    let matrix = pack(linear.pool, format, [n, k], &data, Some(&bias));
    assert_eq!([matrix.out_features(), matrix.in_features()], [n, k]);
    let x = filled(rows, k, &mut random);
    let stride = n + 3;
    let mut out = vec![7.0f32; rows * stride];
    let outputs = Outputs::All { stride };
    multiply(linear, &matrix, &x.as_rows(), outputs, &mut out);
    for row in 0..rows {
        let x = quantized(x.row(row), GROUP);
        for feature in 0..n {
            let weights = &weights[feature * k..][..k];
            let products = std::iter::zip(&x, weights).map(|(x, w)| x * f64::from(*w));
            let expected = products.sum::<f64>() + f64::from(bias[feature]);
            let what = format!(
                "{format:?} {:?} [{rows}, {k}] x [{n}, {k}] at {row}, {feature}",
                linear.level
            );
            close(out[row * stride + feature], expected, 1e-4, &what);
        }
        let between = &out[row * stride + n..(row + 1) * stride];
        assert!(between.iter().all(|value| *value == 7.0));
    }
    let features: Vec<u32> = (0..n as u32).rev().step_by(2).collect();
    let mut chosen = vec![0.0; features.len()];
    let row = Rows {
        data: x.row(0),
        count: 1,
        stride: k,
    };
    let outputs = Outputs::Chosen(&features);
    multiply(linear, &matrix, &row, outputs, &mut chosen);
    for (feature, found) in features.iter().zip(&chosen) {
        assert_eq!(found.to_bits(), out[*feature as usize].to_bits());
    }
    let mut table_row = vec![0.0; k];
    for feature in [0, n / 2, n - 1] {
        matrix.read_row(feature, &mut table_row);
        assert_eq!(table_row, weights[feature * k..][..k], "{format:?}");
    }
}

#[test]
fn blocks_match_at_every_level_and_size() {
    let pool = ComputePool::new(2).unwrap();
    let (shapes, row_counts): (&[(usize, usize)], &[usize]) = match cfg!(miri) {
        true => (&[(33, 256)], &[1, 3]),
        false => (
            &[(1, 256), (31, 256), (32, 512), (33, 768), (97, 1280)],
            &[1, 2, 3, 4, 5, 9, 13, 100],
        ),
    };
    for level in SimdLevel::all_in_test() {
        let linear = Linear { pool: &pool, level };
        for &(n, k) in shapes {
            for &rows in row_counts {
                for format in FORMATS {
                    check(format, rows, n, k, linear);
                }
            }
        }
    }
}

#[test]
fn experts_of_blocks_match_at_every_level() {
    let pool = ComputePool::new(2).unwrap();
    let (n, k) = if cfg!(miri) { (5, 256) } else { (97, 768) };
    for format in FORMATS {
        let mut random = Random(n as u64);
        let (matrices, weights): (Vec<_>, Vec<_>) = (0..5)
            .map(|_| {
                let data = stored(format, n, k, &mut random);
                let weights = tensor(format.tensor_type(), &[n, k], &data).to_f32();
                (pack(&pool, format, [n, k], &data, None), weights)
            })
            .unzip();
        for level in SimdLevel::all_in_test() {
            let linear = Linear { pool: &pool, level };
            let what = format!("{format:?} {level:?}");
            check_groups(linear, &matrices, &weights, &|x| quantized(x, GROUP), &what);
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "too much for an interpreter")]
fn a_row_is_the_same_in_any_number_of_rows_and_at_every_level_with_fused_multiply_add() {
    let pool = ComputePool::new(1).unwrap();
    let mut random = Random(5);
    let (n, k) = (70, 1024);
    let x = filled(120, k, &mut random);
    for format in FORMATS {
        let data = stored(format, n, k, &mut random);
        let matrix = pack(&pool, format, [n, k], &data, None);
        let mut fused: Option<Vec<f32>> = None;
        for level in SimdLevel::all_in_test() {
            let linear = Linear { pool: &pool, level };
            let mut all = vec![0.0; 120 * n];
            let outputs = Outputs::All { stride: n };
            multiply(linear, &matrix, &x.as_rows(), outputs, &mut all);
            for rows in 1..=20 {
                let some = Rows {
                    count: rows,
                    ..x.as_rows()
                };
                let mut out = vec![0.0; rows * n];
                let outputs = Outputs::All { stride: n };
                multiply(linear, &matrix, &some, outputs, &mut out);
                assert!(out == all[..rows * n], "{format:?} {level:?}: {rows} rows");
            }
            if level != SimdLevel::Portable {
                assert!(
                    *fused.get_or_insert_with(|| all.clone()) == all,
                    "{level:?}"
                );
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "too much for an interpreter")]
fn stacked_matrices_are_each_as_alone() {
    let pool = ComputePool::new(2).unwrap();
    let mut random = Random(9);
    let k = 512;
    let sizes = [(KFormat::Q4K, 40), (KFormat::Q6K, 33), (KFormat::Q5K, 7)];
    let alone: Vec<PackedMatrix> = sizes
        .iter()
        .map(|(format, n)| {
            let data = stored(*format, *n, k, &mut random);
            pack(&pool, *format, [*n, k], &data, None)
        })
        .collect();
    let x = filled(5, k, &mut random);
    for level in SimdLevel::all_in_test() {
        let linear = Linear { pool: &pool, level };
        let mut expected = vec![0.0; 5 * 80];
        let mut first = 0;
        for matrix in &alone {
            let n = matrix.out_features();
            let mut out = vec![0.0; 5 * n];
            let outputs = Outputs::All { stride: n };
            multiply(linear, matrix, &x.as_rows(), outputs, &mut out);
            for row in 0..5 {
                expected[row * 80 + first..][..n].copy_from_slice(&out[row * n..][..n]);
            }
            first += n;
        }
        let mut random = Random(9);
        let again = sizes.map(|(format, n)| {
            let data = stored(format, n, k, &mut random);
            pack(&pool, format, [n, k], &data, None)
        });
        let stacked = PackedMatrix::Stacked(again.into());
        assert_eq!([stacked.out_features(), stacked.in_features()], [80, k]);
        let mut out = vec![0.0; 5 * 80];
        let outputs = Outputs::All { stride: 80 };
        multiply(linear, &stacked, &x.as_rows(), outputs, &mut out);
        assert!(out == expected, "{level:?}");
        let row = Rows {
            data: x.row(0),
            count: 1,
            stride: k,
        };
        let mut chosen = [0.0; 4];
        let outputs = Outputs::Chosen(&[79, 0, 40, 72]);
        multiply(linear, &stacked, &row, outputs, &mut chosen);
        assert_eq!(chosen, [79, 0, 40, 72].map(|feature| expected[feature]));
        let (mut found, mut expected) = (vec![0.0; k], vec![0.0; k]);
        stacked.read_row(41, &mut found);
        alone[1].read_row(1, &mut expected);
        assert_eq!(found, expected);
    }
}

#[test]
fn what_is_not_finite_stays_so() {
    let pool = ComputePool::new(1).unwrap();
    for format in FORMATS {
        let data = stored(format, 32, 256, &mut Random(3));
        let matrix = pack(&pool, format, [32, 256], &data, None);
        for level in SimdLevel::all_in_test() {
            let linear = Linear { pool: &pool, level };
            let mut row = vec![0.0; 256];
            row[40] = f32::NAN;
            let x = Rows {
                data: row.as_slice(),
                count: 1,
                stride: 256,
            };
            let mut out = vec![0.0; 32];
            multiply(linear, &matrix, &x, Outputs::All { stride: 32 }, &mut out);
            assert!(out.iter().all(|out| out.is_nan()), "{format:?} {level:?}");
        }
    }
}
