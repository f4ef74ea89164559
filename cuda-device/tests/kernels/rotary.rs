//! Rotation and the write to the cache, which attention over one position reads back.

use cuda_device::{
    Device, Heads, KvCache, KvFormat, Paging, QkNorm, Rotary, Scores, Slots, Vector,
};

use crate::support::{
    Numbers, assert_close, assert_same, devices, download, room, rounded, upload, upload_u32,
};

const MAX_LEN: usize = 9;

fn tables(half: usize) -> (Vec<f32>, Vec<f32>) {
    let angles = (0..MAX_LEN * half).map(|i| {
        let (position, pair) = (i / half, i % half);
        position as f64 * 100_f64.powf(-(pair as f64) / half as f64)
    });
    angles
        .map(|angle| (angle.cos() as f32, angle.sin() as f32))
        .unzip()
}

fn rotate(head: &[f32], position: usize, half: usize) -> Vec<f64> {
    let (cosines, sines) = tables(half);
    let mut rotated: Vec<f64> = head.iter().map(|value| f64::from(*value)).collect();
    for pair in 0..half {
        let (cos, sin) = (
            cosines[position * half + pair],
            sines[position * half + pair],
        );
        let (cos, sin) = (f64::from(cos), f64::from(sin));
        let (a, b) = (f64::from(head[pair]), f64::from(head[pair + half]));
        rotated[pair] = a * cos - b * sin;
        rotated[pair + half] = b * cos + a * sin;
    }
    rotated
}

/// The values in the cache at a slot: attention over that position alone gives them back.
fn values_at(device: &Device, cache: &KvCache, heads: Heads, slot: u32) -> Vec<f32> {
    let width = heads.q_width();
    let block_size = cache.block_size() as u32;
    let qkv = upload(device, &vec![0.0; heads.qkv_width()]);
    // A window of one position, the slot's own in a table that has its block everywhere.
    let positions = upload_u32(device, &[slot % block_size]);
    let (requests, tables) = (
        upload_u32(device, &[0]),
        upload_u32(device, &[slot / block_size]),
    );
    let paging = Paging {
        positions: &positions,
        requests: &requests,
        block_tables: &tables,
        num_requests: 1,
        table_stride: 1,
        max_len: cache.block_size(),
        prefill_rows: (0, 0),
    };
    let scores = Scores {
        scale: 1.0,
        softcap: None,
        window: Some(1),
    };
    let mut out = room(device, width);
    device
        .paged_attention(&qkv, 1, heads, cache, paging, scores, &mut out)
        .unwrap();
    download(device, &out, width)
}

#[test]
fn heads_are_rotated_and_values_written() {
    for device in devices() {
        for (num_kv_heads, head_dim, half, format) in [
            (1, 64, 32, KvFormat::F32),
            (2, 80, 40, KvFormat::Bf16),
            (1, 96, 17, KvFormat::F32),
            (2, 128, 64, KvFormat::Bf16),
            (1, 256, 128, KvFormat::Bf16),
        ] {
            let heads = Heads {
                num_heads: 2 * num_kv_heads,
                num_kv_heads,
                head_dim,
            };
            let width = heads.qkv_width();
            let mut numbers = Numbers::new(8);
            let (positions, slots) = ([0, 3, 8, 5], [7, 0, 13, u32::MAX]);
            let rows = positions.len();
            let x = numbers.values(rows * width);
            let (cosines, sines) = tables(half);
            let rotary = Rotary::upload(&device, half, &cosines, &sines).unwrap();
            let run = |x: &[f32], positions: &[u32], slots: &[u32]| {
                let mut cache = KvCache::allocate(&device, format, heads, 4, 4).unwrap();
                let mut qkv = upload(&device, x);
                let (positions, slots) =
                    (upload_u32(&device, positions), upload_u32(&device, slots));
                let at = Slots {
                    positions: &positions,
                    slots: &slots,
                };
                device
                    .rotary_and_kv_write(
                        &mut qkv,
                        x.len() / width,
                        heads,
                        Some(&rotary),
                        at,
                        &mut cache,
                    )
                    .unwrap();
                (download(&device, &qkv, x.len()), cache)
            };
            let (all, cache) = run(&x, &positions, &slots);
            for row in 0..rows {
                let (before, after) = (&x[row * width..][..width], &all[row * width..][..width]);
                let values = heads.q_width() + num_kv_heads * head_dim;
                for (from, to) in before[..values]
                    .chunks(head_dim)
                    .zip(after.chunks(head_dim))
                {
                    let expected = rotate(from, positions[row] as usize, half);
                    assert_close(to, &expected, 1e-6, "rotation");
                }
                assert_same(&after[values..], &before[values..], "values");
                let (alone, _) = run(before, &positions[row..=row], &slots[row..=row]);
                assert_same(&alone, after, "alone");
                if slots[row] != u32::MAX {
                    let stored = values_at(&device, &cache, heads, slots[row]);
                    let kept = match format {
                        KvFormat::F32 => before[values..].to_vec(),
                        KvFormat::Bf16 => rounded(&before[values..]),
                    };
                    // Two query heads of each value head.
                    let expected: Vec<f32> = kept
                        .chunks(head_dim)
                        .flat_map(|head| [head, head].concat())
                        .collect();
                    assert_same(&stored, &expected, "cache");
                }
            }
            // A position beyond the table.
            let (broken, _) = run(&x[..width], &[MAX_LEN as u32], &[0]);
            assert!(broken[0].is_nan());
        }
    }
}

#[test]
fn the_fused_step_is_the_two() {
    for device in devices() {
        let heads = Heads {
            num_heads: 3,
            num_kv_heads: 1,
            head_dim: 72,
        };
        let (rows, width) = (5, heads.qkv_width());
        let mut numbers = Numbers::new(9);
        let x = numbers.values(rows * width);
        let q_weight = &Vector::upload(&device, &numbers.values(72)).unwrap();
        let k_weight = &Vector::upload(&device, &numbers.values(72)).unwrap();
        let norm = QkNorm {
            q_weight,
            k_weight,
            eps: 1e-6,
        };
        let (cosines, sines) = tables(20);
        let rotary = Rotary::upload(&device, 20, &cosines, &sines).unwrap();
        let positions = upload_u32(&device, &[1, 2, 3, 4, 5]);
        let slots = upload_u32(&device, &[4, 3, 2, 1, 0]);
        let at = Slots {
            positions: &positions,
            slots: &slots,
        };
        let cache = || KvCache::allocate(&device, KvFormat::F32, heads, 2, 4).unwrap();
        let (mut one, mut other) = (cache(), cache());
        let (mut fused, mut apart) = (upload(&device, &x), upload(&device, &x));
        device
            .qk_norm_rotary_and_kv_write(&mut fused, rows, heads, norm, Some(&rotary), at, &mut one)
            .unwrap();
        device.qk_norm(&mut apart, rows, heads, norm).unwrap();
        device
            .rotary_and_kv_write(&mut apart, rows, heads, Some(&rotary), at, &mut other)
            .unwrap();
        let count = rows * width;
        assert_same(
            &download(&device, &fused, count),
            &download(&device, &apart, count),
            "rows",
        );
        for slot in 0..5 {
            let values = values_at(&device, &one, heads, slot);
            assert_same(&values, &values_at(&device, &other, heads, slot), "cache");
        }
    }
}
