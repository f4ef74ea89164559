//! Operations on values and rows.

use cuda_device::{Act, Matrix, WeightFormat};

use crate::support::{
    Numbers, assert_close, assert_same, devices, download, room, rounded, upload, upload_u32,
};

#[test]
fn embed_takes_rows_of_the_table() {
    for device in devices() {
        for (format, width) in [
            (WeightFormat::F32, 7),
            (WeightFormat::F32, 300),
            (WeightFormat::Bf16, 7),
            (WeightFormat::Bf16, 64),
            (WeightFormat::Bf16, 300),
        ] {
            let table = Numbers::new(1).values(11 * width);
            let matrix = Matrix::from_f32(&device, format, width, &table, None).unwrap();
            let ids = [3, 0, 10, 10, 11, u32::MAX];
            let mut out = room(&device, ids.len() * width);
            let ids_buffer = upload_u32(&device, &ids);
            device
                .embed(&matrix, &ids_buffer, ids.len(), 2.5, &mut out)
                .unwrap();
            let table = match format {
                WeightFormat::F32 => table,
                WeightFormat::Bf16 => rounded(&table),
            };
            let out = download(&device, &out, ids.len() * width);
            for (id, out) in ids.iter().zip(out.chunks(width)) {
                let Some(row) = table.chunks(width).nth(*id as usize) else {
                    assert!(out.iter().all(|value| value.is_nan()), "{id} is no token");
                    continue;
                };
                let expected: Vec<f32> = row.iter().map(|value| value * 2.5).collect();
                assert_same(out, &expected, "embed");
            }
        }
    }
}

#[test]
fn rows_are_gathered_also_in_place() {
    for device in devices() {
        for width in [1, 33, 2000] {
            let x = Numbers::new(2).values(6 * width);
            let indices = [5, 2, 2, 0, 4, 1];
            let row = |index: u32| &x[index as usize * width..][..width];
            let expected = indices.map(row).concat();
            let (from, list) = (upload(&device, &x), upload_u32(&device, &indices));
            let mut to = room(&device, 6 * width);
            device
                .gather_rows(&from, 6, width, &list, 6, &mut to)
                .unwrap();
            assert_same(&download(&device, &to, 6 * width), &expected, "gather_rows");
            let mut x = from;
            device
                .gather_rows_in_place(&mut x, 6, width, &list, 6)
                .unwrap();
            assert_same(&download(&device, &x, 6 * width), &expected, "in place");
            // A row that doesn't exist.
            let list = upload_u32(&device, &[6]);
            device.gather_rows(&x, 6, width, &list, 1, &mut to).unwrap();
            assert!(
                download(&device, &to, width)
                    .iter()
                    .all(|value| value.is_nan())
            );
        }
    }
}

#[test]
fn gated_activations() {
    let reference = |act: Act, gate: f64| match act {
        Act::Silu => gate / (1.0 + (-gate).exp()),
        Act::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (gate + 0.044_715 * gate.powi(3));
            0.5 * gate * (1.0 + inner.tanh())
        }
    };
    for device in devices() {
        for (act, width) in [(Act::Silu, 301), (Act::GeluTanh, 301), (Act::Silu, 1)] {
            let rows = 3;
            let mut gate_up = Numbers::new(3).values(rows * 2 * width);
            gate_up.iter_mut().for_each(|value| *value *= 9.0);
            let mut expected = Vec::new();
            for row in gate_up.chunks(2 * width) {
                let (gate, up) = row.split_at(width);
                let pairs = gate.iter().zip(up);
                expected.extend(pairs.map(|(g, u)| reference(act, f64::from(*g)) * f64::from(*u)));
            }
            let mut out = room(&device, rows * width);
            let x = upload(&device, &gate_up);
            device.act_and_mul(act, &x, rows, width, &mut out).unwrap();
            let all = download(&device, &out, rows * width);
            assert_close(&all, &expected, 1e-6, "act_and_mul");
            let alone = upload(&device, &gate_up[2 * width..4 * width]);
            device.act_and_mul(act, &alone, 1, width, &mut out).unwrap();
            assert_same(
                &download(&device, &out, width),
                &all[width..2 * width],
                "alone",
            );
        }
    }
}

#[test]
fn softcap_bounds_values() {
    for device in devices() {
        let mut values = Numbers::new(4).values(1001);
        values.iter_mut().for_each(|value| *value *= 100.0);
        let expected: Vec<f64> = values
            .iter()
            .map(|value| 30.0 * (f64::from(*value) / 30.0).tanh())
            .collect();
        let mut buffer = upload(&device, &values);
        device.softcap(&mut buffer, 1001, 30.0).unwrap();
        assert_close(
            &download(&device, &buffer, 1001),
            &expected,
            1e-6,
            "softcap",
        );
    }
}
