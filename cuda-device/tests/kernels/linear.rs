//! Products of activations and weights.

use cuda_device::{Device, Matrix, WeightFormat};

use crate::support::{Numbers, assert_same, devices, download, room, rounded, upload, upload_u32};

/// `[rows, outputs]` with the sums of the products' magnitudes.
fn product(x: &[f32], weights: &[f32], width: usize, bias: Option<&[f32]>) -> Vec<(f64, f64)> {
    let mut sums = Vec::new();
    for row in x.chunks(width) {
        for (output, weight) in weights.chunks(width).enumerate() {
            let products = row
                .iter()
                .zip(weight)
                .map(|(x, w)| f64::from(*x) * f64::from(*w));
            let (sum, size) = products.fold((0.0, 0.0), |(sum, size), product| {
                (sum + product, size + product.abs())
            });
            let bias = bias.map_or(0.0, |bias| f64::from(bias[output]));
            sums.push((sum + bias, size + bias.abs()));
        }
    }
    sums
}

pub(crate) fn check_product(
    found: &[f32],
    format: WeightFormat,
    x: &[f32],
    weights: &[f32],
    width: usize,
    bias: Option<&[f32]>,
) {
    let expected = match format {
        WeightFormat::F32 => product(x, weights, width, bias),
        WeightFormat::Bf16 => product(&rounded(x), &rounded(weights), width, bias),
    };
    assert_eq!(found.len(), expected.len());
    for (at, (found, (expected, size))) in found.iter().zip(expected).enumerate() {
        let distance = (f64::from(*found) - expected).abs();
        assert!(
            distance <= 2e-6 * size + 1e-30,
            "{format:?}, width {width}: at {at} is {found}, not {expected}"
        );
    }
}

fn linear(device: &Device, matrix: &Matrix, x: &[f32]) -> Vec<f32> {
    let rows = x.len() / matrix.in_features();
    let count = rows * matrix.out_features();
    let mut out = room(device, count);
    device
        .linear(&upload(device, x), rows, matrix, &mut out)
        .unwrap();
    download(device, &out, count)
}

fn check(format: WeightFormat, outputs: usize, width: usize, batches: &[usize], has_bias: bool) {
    let mut numbers = Numbers::new(10);
    let weights = numbers.values(outputs * width);
    let bias = has_bias.then(|| numbers.values(outputs));
    let most = batches.iter().copied().max().unwrap_or(0);
    let x = numbers.values(most * width);
    let mut of_first_order: Option<Vec<f32>> = None;
    for device in devices() {
        let matrix = Matrix::from_f32(&device, format, width, &weights, bias.as_deref()).unwrap();
        let all = linear(&device, &matrix, &x);
        match &of_first_order {
            Some(first) => assert_same(&all, first, "another order of threads"),
            None => {
                check_product(&all, format, &x, &weights, width, bias.as_deref());
                of_first_order = Some(all.clone());
            }
        }
        for rows in batches {
            // The last rows, so that each stands elsewhere in its batch.
            let first = most - rows;
            let some = linear(&device, &matrix, &x[first * width..]);
            let what = format!("{format:?} [{outputs}, {width}], {rows} of {most} rows");
            assert_same(&some, &all[first * outputs..], &what);
        }
    }
}

#[test]
fn products_in_f32() {
    check(WeightFormat::F32, 1, 1, &[1, 2], false);
    check(WeightFormat::F32, 17, 33, &[1, 7, 8, 9, 20], true);
    check(WeightFormat::F32, 40, 300, &[1, 3, 17], false);
}

#[test]
fn products_in_bf16() {
    check(WeightFormat::Bf16, 1, 1, &[1, 2], true);
    check(
        WeightFormat::Bf16,
        17,
        33,
        &[1, 7, 8, 9, 16, 20, 33, 70],
        true,
    );
    check(WeightFormat::Bf16, 48, 300, &[1, 3, 8, 17, 65, 130], false);
    check(WeightFormat::Bf16, 130, 96, &[1, 5, 40, 129, 260], true);
    // No launch rounds few rows of such a width.
    check(WeightFormat::Bf16, 24, 320, &[1, 2, 4, 5, 8, 9], false);
}

#[test]
fn products_of_many_slices() {
    // 3 slices, 9 slices: more than a block has warps.
    check(WeightFormat::Bf16, 20, 700, &[1, 9, 33, 70], true);
    check(WeightFormat::Bf16, 33, 2104, &[1, 8, 20, 66, 140], false);
}

#[test]
fn each_kernel_with_any_number_of_slices_to_a_block() {
    let (outputs, width, most) = (75, 1100, 70);
    let mut numbers = Numbers::new(19);
    let (weights, bias) = (numbers.values(outputs * width), numbers.values(outputs));
    let x = numbers.values(most * width);
    for device in devices() {
        let format = WeightFormat::Bf16;
        let matrix = Matrix::from_f32(&device, format, width, &weights, Some(&bias)).unwrap();
        let expected: Vec<f32> = x
            .chunks(width)
            .flat_map(|row| linear(&device, &matrix, row))
            .collect();
        let x = upload(&device, &x);
        for tile in 0..3 {
            // There are 5 slices.
            for block_slices in [1, 3, 9] {
                for rows in [1, most] {
                    let mut out = room(&device, rows * outputs);
                    device
                        .linear_by_tile(&x, rows, &matrix, (tile, block_slices), &mut out)
                        .unwrap();
                    let what =
                        format!("tile {tile}, {block_slices} slices to a block, {rows} rows");
                    let found = download(&device, &out, rows * outputs);
                    assert_same(&found, &expected[..rows * outputs], &what);
                }
            }
        }
    }
}

#[test]
fn chosen_outputs_are_those_of_all() {
    for device in devices() {
        for (format, outputs, width) in [
            (WeightFormat::F32, 101, 70),
            (WeightFormat::Bf16, 101, 70),
            (WeightFormat::Bf16, 40, 2300),
        ] {
            let mut numbers = Numbers::new(11);
            let weights = numbers.values(outputs * width);
            let bias = numbers.values(outputs);
            let matrix = Matrix::from_f32(&device, format, width, &weights, Some(&bias)).unwrap();
            let x = numbers.values(12 * width);
            let all = linear(&device, &matrix, &x);
            let row = 10;
            for count in [1, 15, 16, 33] {
                let mut ids: Vec<u32> = (0..count).map(|_| numbers.below(outputs) as u32).collect();
                let expected: Vec<f32> = ids
                    .iter()
                    .map(|id| all[row * outputs + *id as usize])
                    .collect();
                ids.push(outputs as u32);
                let (list, mut out) = (upload_u32(&device, &ids), room(&device, ids.len()));
                let x = upload(&device, &x);
                // In two parts of the lists.
                for part in [0..count / 3, count / 3..ids.len()] {
                    device
                        .head_for(&x, row, &list, part, &matrix, &mut out)
                        .unwrap();
                }
                let found = download(&device, &out, ids.len());
                assert_same(&found[..count], &expected, "head_for");
                assert!(found[count].is_nan(), "no such output");
            }
            // Some rows of a buffer.
            let mut out = room(&device, 3 * outputs);
            let x = upload(&device, &x);
            device.linear_at(&x, 5, 3, &matrix, &mut out).unwrap();
            let found = download(&device, &out, 3 * outputs);
            assert_same(&found, &all[5 * outputs..8 * outputs], "linear_at");
        }
    }
}

#[test]
fn matrices_come_in_pieces_and_are_stacked() {
    for device in devices() {
        for format in [WeightFormat::F32, WeightFormat::Bf16] {
            let (width, mut numbers) = (45, Numbers::new(12));
            let (upper, lower) = (numbers.values(7 * width), numbers.values(3 * width));
            // What is bfloat16 already is the same in either form.
            let upper = rounded(&upper);
            let bytes: Vec<u8> = upper
                .iter()
                .flat_map(|value| half::bf16::from_f32(*value).to_le_bytes())
                .collect();
            let mut pieces = Matrix::upload(&device, format, width, 7).unwrap();
            pieces.push_bf16(&bytes[..2 * 2 * width]).unwrap();
            pieces.push_f32(&upper[2 * width..6 * width]).unwrap();
            assert!(
                pieces.push_f32(&upper[..2 * width]).is_err(),
                "more than all rows"
            );
            assert!(
                pieces.push_f32(&upper[..width - 1]).is_err(),
                "no whole row"
            );
            pieces.push_f32(&upper[6 * width..]).unwrap();
            let bias = numbers.values(3);
            let parts = vec![
                pieces.finish(None).unwrap(),
                Matrix::from_f32(&device, format, width, &lower, Some(&bias)).unwrap(),
            ];
            let stacked = Matrix::stack(&device, parts).unwrap();
            assert_eq!((stacked.out_features(), stacked.in_features()), (10, width));
            let x = numbers.values(2 * width);
            let all_bias = [&[0.0; 7][..], &bias].concat();
            let weights = [upper, lower].concat();
            let found = linear(&device, &stacked, &x);
            check_product(&found, format, &x, &weights, width, Some(&all_bias));
        }
    }
}
