//! Mixtures of experts.

use cuda_device::{Matrix, Routing, WeightFormat};

use crate::linear::check_product;
use crate::support::{
    Numbers, assert_close, assert_same, devices, download, download_u32, room, upload,
};

/// Experts and their shares of one row, the experts ascending.
fn choose(logits: &[f32], top_k: usize, normalize: bool) -> Vec<(usize, f64)> {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| logits[*b].partial_cmp(&logits[*a]).unwrap().then(a.cmp(b)));
    let weight = |expert: usize| f64::from(logits[expert]).exp();
    let chosen = &mut order[..top_k];
    let total: f64 = if normalize {
        chosen.iter().map(|expert| weight(*expert)).sum()
    } else {
        (0..logits.len()).map(weight).sum()
    };
    chosen.sort_unstable();
    chosen
        .iter()
        .map(|expert| (*expert, weight(*expert) / total))
        .collect()
}

#[test]
fn rows_go_through_their_experts() {
    for device in devices() {
        for (num_experts, top_k, rows, normalize) in [
            (1, 1, 3, true),
            (4, 2, 1, true),
            (8, 3, 41, false),
            (64, 8, 9, true),
            (60, 4, 33, false),
            (3, 2, 40, true),
            (2, 1, 150, true),
        ] {
            let (width, outputs) = (35, 19);
            let mut numbers = Numbers::new(14);
            let mut logits = numbers.values(rows * num_experts);
            // Equals: the first is taken.
            for row in logits.chunks_mut(num_experts).step_by(3) {
                row.iter_mut()
                    .for_each(|logit| *logit = (*logit * 2.0).round());
            }
            let mut routing = Routing::allocate(&device, num_experts, top_k, rows + 2).unwrap();
            device
                .route(&upload(&device, &logits), rows, normalize, &mut routing)
                .unwrap();
            let routed = rows * top_k;
            assert_eq!(routing.num_routed(), routed);
            let expected: Vec<_> = logits
                .chunks(num_experts)
                .map(|row| choose(row, top_k, normalize))
                .collect();
            let flat = expected.concat();
            let choices = download_u32(&device, routing.choices(), routed);
            let chosen: Vec<u32> = flat.iter().map(|choice| choice.0 as u32).collect();
            assert_eq!(choices, chosen);
            let shares: Vec<f64> = flat.iter().map(|choice| choice.1).collect();
            assert_close(
                &download(&device, routing.weights(), routed),
                &shares,
                1e-6,
                "shares",
            );
            let mut order: Vec<usize> = (0..routed).collect();
            order.sort_by_key(|at| (choices[*at], *at));
            let of: Vec<u32> = order.iter().map(|at| (at / top_k) as u32).collect();
            assert_eq!(download_u32(&device, routing.routed_rows(), routed), of);

            let x = numbers.values(rows * width);
            let weights = numbers.values(num_experts * outputs * width);
            for format in [WeightFormat::F32, WeightFormat::Bf16] {
                let experts = Matrix::from_f32(&device, format, width, &weights, None).unwrap();
                let mut gathered = room(&device, routed * width);
                device
                    .gather_routed(&upload(&device, &x), &routing, width, &mut gathered)
                    .unwrap();
                let mut products = room(&device, routed * outputs);
                device
                    .linear_experts(&gathered, &routing, &experts, &mut products)
                    .unwrap();
                let results = download(&device, &products, routed * outputs);
                for (at, choice) in order.iter().enumerate() {
                    let expert = choices[*choice] as usize;
                    let own = &weights[expert * outputs * width..][..outputs * width];
                    let row = &x[choice / top_k * width..][..width];
                    let found = &results[at * outputs..][..outputs];
                    check_product(found, format, row, own, width, None);
                    if at % 5 != 0 {
                        continue;
                    }
                    // The expert's matrix by itself.
                    let alone = Matrix::from_f32(&device, format, width, own, None).unwrap();
                    let mut out = room(&device, outputs);
                    device
                        .linear(&upload(&device, row), 1, &alone, &mut out)
                        .unwrap();
                    assert_same(&download(&device, &out, outputs), found, "alone");
                }
                let mut out = room(&device, rows * outputs);
                device
                    .combine_routed(&products, &routing, outputs, &mut out)
                    .unwrap();
                let mut sums = vec![0.0; rows * outputs];
                for (at, choice) in order.iter().enumerate() {
                    for i in 0..outputs {
                        let value = f64::from(results[at * outputs + i]);
                        sums[choice / top_k * outputs + i] += shares[*choice] * value;
                    }
                }
                let all = download(&device, &out, rows * outputs);
                assert_close(&all, &sums, 1e-5, "combine_routed");

                // The last row by itself.
                let mut one = Routing::allocate(&device, num_experts, top_k, 1).unwrap();
                let last = &logits[(rows - 1) * num_experts..];
                device
                    .route(&upload(&device, last), 1, normalize, &mut one)
                    .unwrap();
                let x = upload(&device, &x[(rows - 1) * width..]);
                device
                    .gather_routed(&x, &one, width, &mut gathered)
                    .unwrap();
                device
                    .linear_experts(&gathered, &one, &experts, &mut products)
                    .unwrap();
                device
                    .combine_routed(&products, &one, outputs, &mut out)
                    .unwrap();
                let alone = download(&device, &out, outputs);
                assert_same(&alone, &all[(rows - 1) * outputs..], "combined alone");
            }
        }
    }
}

#[test]
fn logits_that_are_not_numbers_still_choose_experts() {
    for device in devices() {
        let logits = [f32::NAN, 1.0, f32::NAN, f32::NAN, 2.0, f32::NAN];
        let mut routing = Routing::allocate(&device, 6, 4, 1).unwrap();
        device
            .route(&upload(&device, &logits), 1, true, &mut routing)
            .unwrap();
        let choices = download_u32(&device, routing.choices(), 4);
        assert!(
            choices.is_sorted_by(|a, b| a < b) && choices[3] < 6,
            "{choices:?}"
        );
    }
}
