//! Products with a checkpoint's groups of 4 bits at every level against a plain reference in f64.

use super::kernel_tests::{Random, close, filled};
use super::linear::{Linear, Outputs, PackedMatrix, Packing};
use super::linear_tests::{check_groups, multiply, quantized};
use super::panels::Rows;
use super::shared_weights::SharedWeights;
use super::simd::SimdLevel;
use super::weight_cache::WeightCache;
use crate::model_executor::ModelDtype;
use crate::model_executor::compute_pool::ComputePool;
use crate::model_executor::quantized_tensor::{
    CodeKind, CodeLayout, Codes, ColumnOrder, QuantizedTensor,
};
use crate::model_executor::weights::{StoredTensor, WeightFormat};
use crate::model_executor::wide_quantization::WIDE_GROUP;

/// Random codes; scales of half precision and zeros from 0 to 15.
fn random_tensor(
    (rows, cols): (usize, usize),
    group: usize,
    is_ordered: bool,
    data: &[u8],
) -> QuantizedTensor<'_> {
    let mut random = Random((rows + cols + group) as u64);
    let scales = random.values(rows * cols.div_ceil(group)).into_iter();
    let scales: Vec<f32> = scales
        .map(|scale| half::f16::from_f32(scale * 0.01).to_f32())
        .collect();
    let groups: Vec<u32> = (0..cols)
        .map(|col| (col * 7 % cols / group) as u32)
        .collect();
    QuantizedTensor {
        codes: Codes {
            layout: CodeLayout::WordsOfRow,
            kind: CodeKind::Unsigned,
            bits: 4,
            rows,
            cols,
            data,
        },
        mapped: false,
        block: [1, group],
        zeros: (0..scales.len()).map(|at| (at * 5 % 16) as u8).collect(),
        scales,
        order: is_ordered
            .then(|| ColumnOrder::of(groups, group).unwrap())
            .flatten(),
    }
}

fn pack(pool: &ComputePool, tensor: &QuantizedTensor<'_>, bias: Option<&[f32]>) -> PackedMatrix {
    let packing = Packing {
        pool,
        dtype: ModelDtype::BFloat16,
        cache: &WeightCache::off(),
        shared: &SharedWeights::off(),
    };
    let size = tensor.kernel_group().unwrap();
    let format = WeightFormat::Grouped { size };
    let parts = [StoredTensor::quantized(tensor)];
    packing
        .pack("m", format, tensor.codes.cols, &parts, bias)
        .unwrap()
}

/// A row as products read it: rounded in the order of the matrix's columns.
fn read(tensor: &QuantizedTensor<'_>, x: &[f32]) -> Vec<f64> {
    let places = 0..x.len();
    let ordered: Vec<f32> = places.clone().map(|k| x[tensor.column_at(k)]).collect();
    let mut read = vec![0.0; x.len()];
    for (place, value) in places.zip(quantized(&ordered, WIDE_GROUP)) {
        read[tensor.column_at(place)] = value;
    }
    read
}

/// Codes of a matrix.
fn data(rows: usize, cols: usize) -> Vec<u8> {
    let words = rows * cols.div_ceil(8);
    let values = Random(words as u64).values(words * 4).into_iter();
    values.map(|value| (value * 1e6) as i32 as u8).collect()
}

/// Sizes with their groups; the second is a whole row.
const SHAPES: &[(usize, usize, usize)] = match cfg!(miri) {
    true => &[(33, 64, 32)],
    false => &[
        (33, 64, 32),
        (5, 75, 75),
        (64, 192, 96),
        (97, 320, 64),
        (40, 1152, 128),
        (31, 1024, 512),
    ],
};

#[test]
fn linear_matches_at_every_level_and_size() {
    let pool = ComputePool::new(2).unwrap();
    for &(n, k, group) in SHAPES {
        for is_ordered in [false, true] {
            let data = data(n, k);
            let tensor = random_tensor((n, k), group, is_ordered, &data);
            let weights = StoredTensor::quantized(&tensor).to_f32();
            let mut random = Random(k as u64);
            let bias = random.values(n);
            let matrix = pack(&pool, &tensor, Some(&bias));
            let mut table_row = vec![0.0; k];
            matrix.read_row(n - 1, &mut table_row);
            assert_eq!(table_row, weights[(n - 1) * k..]);
            for rows in [1, 2, 5, 13, 100] {
                let x = filled(rows, k, &mut random);
                let stride = n + 3;
                for level in SimdLevel::all_in_test() {
                    let linear = Linear { pool: &pool, level };
                    let mut out = vec![7.0f32; rows * stride];
                    let outputs = Outputs::All { stride };
                    multiply(linear, &matrix, &x.as_rows(), outputs, &mut out);
                    for (row, out) in out.chunks(stride).enumerate() {
                        let x = read(&tensor, x.row(row));
                        for (feature, weights) in weights.chunks(k).enumerate() {
                            let products = x.iter().zip(weights).map(|(x, w)| x * f64::from(*w));
                            let expected = products.sum::<f64>() + f64::from(bias[feature]);
                            let what = format!("{level:?} {n} {k} {group} at {row}, {feature}");
                            close(out[feature], expected, 1e-4, &what);
                        }
                        assert!(out[n..].iter().all(|value| *value == 7.0));
                    }
                    // The same alone and in a batch, and of some features.
                    let features: Vec<u32> = (0..n as u32).rev().step_by(2).collect();
                    let mut chosen = vec![0.0; features.len()];
                    let first = Rows {
                        data: x.row(0),
                        count: 1,
                        stride: k,
                    };
                    multiply(
                        linear,
                        &matrix,
                        &first,
                        Outputs::Chosen(&features),
                        &mut chosen,
                    );
                    let expected = features.iter().map(|feature| out[*feature as usize]);
                    assert_eq!(chosen, expected.collect::<Vec<f32>>());
                }
            }
        }
    }
}

#[test]
fn experts_match_at_every_level() {
    let pool = ComputePool::new(2).unwrap();
    let (n, k, group) = (97, 320, 64);
    let data: Vec<Vec<u8>> = (0..5).map(|at| data(n, k + 8 * at)).collect();
    let tensors: Vec<_> = (data.iter())
        .map(|data| random_tensor((n, k), group, false, data))
        .collect();
    let matrices: Vec<_> = tensors.iter().map(|t| pack(&pool, t, None)).collect();
    let weights: Vec<_> = (tensors.iter())
        .map(|tensor| StoredTensor::quantized(tensor).to_f32())
        .collect();
    for level in SimdLevel::all_in_test() {
        let linear = Linear { pool: &pool, level };
        let read = |x: &[f32]| quantized(x, WIDE_GROUP);
        check_groups(linear, &matrices, &weights, &read, &format!("{level:?}"));
    }
}
