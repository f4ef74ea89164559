//! RMS norms.

use cuda_device::{Heads, QkNorm, Vector};

use crate::support::{Numbers, assert_close, assert_same, devices, download, room, upload};

const EPS: f32 = 1e-5;

pub(crate) fn rms_norm(row: &[f64], weight: &[f32]) -> Vec<f64> {
    let mean = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
    let factor = 1.0 / (mean + f64::from(EPS)).sqrt();
    let pairs = row.iter().zip(weight);
    pairs
        .map(|(x, weight)| x * factor * f64::from(*weight))
        .collect()
}

pub(crate) fn widened(values: &[f32]) -> Vec<f64> {
    values.iter().map(|value| f64::from(*value)).collect()
}

#[test]
fn norms_of_rows() {
    for device in devices() {
        for width in [1, 7, 33, 256, 896, 1001] {
            let mut numbers = Numbers::new(5);
            let rows = 3;
            let (x, weight) = (numbers.values(rows * width), numbers.values(width));
            let expected: Vec<f64> = x
                .chunks(width)
                .flat_map(|row| rms_norm(&widened(row), &weight))
                .collect();
            let vector = Vector::upload(&device, &weight).unwrap();
            let (mut buffer, mut out) = (upload(&device, &x), room(&device, rows * width));
            device
                .rms_norm(&buffer, rows, &vector, EPS, &mut out)
                .unwrap();
            let all = download(&device, &out, rows * width);
            assert_close(&all, &expected, 2e-6, "rms_norm");
            device
                .rms_norm_in_place(&mut buffer, rows, &vector, EPS)
                .unwrap();
            assert_same(&download(&device, &buffer, rows * width), &all, "in place");
            let alone = upload(&device, &x[2 * width..]);
            device.rms_norm(&alone, 1, &vector, EPS, &mut out).unwrap();
            assert_same(&download(&device, &out, width), &all[2 * width..], "alone");
        }
    }
}

#[test]
fn a_delta_is_added_first() {
    for device in devices() {
        for width in [5, 300, 1001] {
            let mut numbers = Numbers::new(6);
            let rows = 3;
            let (x, delta) = (numbers.values(rows * width), numbers.values(rows * width));
            let weight = numbers.values(width);
            let sums: Vec<f32> = x.iter().zip(&delta).map(|(x, delta)| x + delta).collect();
            let expected: Vec<f64> = sums
                .chunks(width)
                .flat_map(|row| rms_norm(&widened(row), &weight))
                .collect();
            let vector = Vector::upload(&device, &weight).unwrap();
            let run = |x: &[f32], delta: &[f32]| {
                let rows = x.len() / width;
                let (mut residual, delta) = (upload(&device, x), upload(&device, delta));
                let mut out = room(&device, x.len());
                device
                    .add_rms_norm(&mut residual, &delta, rows, &vector, EPS, &mut out)
                    .unwrap();
                let out = download(&device, &out, x.len());
                (download(&device, &residual, x.len()), out)
            };
            let (residual, out) = run(&x, &delta);
            assert_same(&residual, &sums, "residual");
            assert_close(&out, &expected, 2e-6, "add_rms_norm");
            let (_, alone) = run(&x[width..2 * width], &delta[width..2 * width]);
            assert_same(&alone, &out[width..2 * width], "alone");
        }
    }
}

#[test]
fn norms_of_heads() {
    for device in devices() {
        for (num_heads, num_kv_heads, head_dim) in [(1, 1, 1), (3, 1, 80), (4, 2, 128), (2, 2, 256)]
        {
            let heads = Heads {
                num_heads,
                num_kv_heads,
                head_dim,
            };
            let mut numbers = Numbers::new(7);
            let (rows, width) = (3, heads.qkv_width());
            let x = numbers.values(rows * width);
            let (q, k) = (numbers.values(head_dim), numbers.values(head_dim));
            let mut expected = Vec::new();
            for row in x.chunks(width) {
                for (head, values) in row.chunks(head_dim).enumerate() {
                    let values = widened(values);
                    expected.extend(match head {
                        head if head < num_heads => rms_norm(&values, &q),
                        head if head < num_heads + num_kv_heads => rms_norm(&values, &k),
                        _ => values,
                    });
                }
            }
            let (q_weight, k_weight) = (
                &Vector::upload(&device, &q).unwrap(),
                &Vector::upload(&device, &k).unwrap(),
            );
            let norm = QkNorm {
                q_weight,
                k_weight,
                eps: EPS,
            };
            let mut qkv = upload(&device, &x);
            device.qk_norm(&mut qkv, rows, heads, norm).unwrap();
            let all = download(&device, &qkv, rows * width);
            assert_close(&all, &expected, 2e-6, "qk_norm");
            let mut alone = upload(&device, &x[width..2 * width]);
            device.qk_norm(&mut alone, 1, heads, norm).unwrap();
            assert_same(
                &download(&device, &alone, width),
                &all[width..2 * width],
                "alone",
            );
        }
    }
}
