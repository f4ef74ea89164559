//! Arguments that don't fit are errors, before anything is launched.

use cuda_device::{
    Act, Device, DeviceError, Heads, KvCache, KvFormat, Masks, Matrix, Paging, Rotary, Routing,
    Scores, Slots, Vector, WeightFormat,
};

use crate::support::{devices, room, upload, upload_i32, upload_u32};

fn assert_size(result: Result<(), DeviceError>, what: &str) {
    assert!(
        matches!(result, Err(DeviceError::Size { .. })),
        "{what}: {result:?}"
    );
}

const HEADS: Heads = Heads {
    num_heads: 2,
    num_kv_heads: 1,
    head_dim: 4,
};

#[test]
fn buffers_that_are_too_small() {
    for device in devices() {
        let (mut small, mut large) = (room(&device, 3), room(&device, 64));
        let ids = upload_u32(&device, &[0, 0]);
        let matrix = Matrix::from_f32(&device, WeightFormat::Bf16, 4, &[0.0; 16], None).unwrap();
        let vector = Vector::upload(&device, &[1.0; 4]).unwrap();
        assert_size(device.embed(&matrix, &ids, 2, 1.0, &mut small), "embed");
        assert_size(
            device.embed(&matrix, &ids, 3, 1.0, &mut large),
            "embed's ids",
        );
        assert_size(device.linear(&small, 1, &matrix, &mut large), "linear's x");
        assert_size(
            device.linear(&large, 1, &matrix, &mut small),
            "linear's out",
        );
        assert_size(
            device.linear(&large, usize::MAX, &matrix, &mut small),
            "linear's rows",
        );
        let at = device.linear_at(&large, 16, 1, &matrix, &mut small);
        assert_size(at, "linear_at's row");
        let mut other = room(&device, 64);
        assert_size(
            device.head_for(&large, 0, &ids, 0..3, &matrix, &mut other),
            "head_for's ids",
        );
        assert_size(
            device.rms_norm(&small, 1, &vector, 1e-6, &mut large),
            "rms_norm's x",
        );
        assert_size(
            device.rms_norm(&large, 1, &vector, 1e-6, &mut small),
            "rms_norm's out",
        );
        let added = device.add_rms_norm(&mut large, &small, 1, &vector, 1e-6, &mut other);
        assert_size(added, "add_rms_norm's delta");
        assert_size(
            device.act_and_mul(Act::Silu, &large, 9, 4, &mut other),
            "act_and_mul",
        );
        assert_size(device.softcap(&mut small, 4, 1.0), "softcap");
        assert_size(
            device.gather_rows(&large, 17, 4, &ids, 1, &mut other),
            "gather_rows",
        );
        assert_size(device.upload(&mut small, 4, &[0; 9]), "upload");
        assert_size(
            device.upload(&mut small, usize::MAX, &[0; 9]),
            "upload's offset",
        );
        assert_size(device.download(&small, 0, &mut [0; 13]), "download");
        assert_size(device.copy((&small, 0), (&mut large, 0), 13), "copy");
        let slots = upload_i32(&device, &[0]);
        let masks = Masks {
            pool: &small,
            num_slots: 2,
            words: 2,
            slots: &slots,
        };
        assert_size(device.mask_logits(&mut large, 1, 64, masks), "mask_logits");
        let argmax = device.masked_argmax(&large, 1, 64, 65, None, &mut other);
        assert_size(argmax, "masked_argmax");
        let mut routing = Routing::allocate(&device, 4, 2, 1).unwrap();
        assert_size(device.route(&large, 2, true, &mut routing), "route");
        assert!(Routing::allocate(&device, 4, 5, 1).is_err());
    }
}

#[test]
fn shapes_that_no_kernel_has() {
    for device in devices() {
        let wide = Heads {
            head_dim: 257,
            ..HEADS
        };
        let uneven = Heads {
            num_heads: 3,
            num_kv_heads: 2,
            ..HEADS
        };
        for heads in [wide, uneven] {
            assert!(KvCache::allocate(&device, KvFormat::F32, heads, 1, 1).is_err());
        }
        let mut cache = KvCache::allocate(&device, KvFormat::F32, HEADS, 2, 4).unwrap();
        let (mut qkv, mut out) = (room(&device, 16), room(&device, 8));
        let list = upload_u32(&device, &[0]);
        let slots = Slots {
            positions: &list,
            slots: &list,
        };
        let rotary = Rotary::upload(&device, 3, &[1.0; 3], &[0.0; 3]).unwrap();
        let rotated =
            device.rotary_and_kv_write(&mut qkv, 1, HEADS, Some(&rotary), slots, &mut cache);
        assert_size(rotated, "more pairs than a head has");
        let other = Heads {
            num_heads: 4,
            num_kv_heads: 2,
            head_dim: 2,
        };
        let rotated = device.rotary_and_kv_write(&mut qkv, 1, other, None, slots, &mut cache);
        assert_size(rotated, "another cache's heads");
        let paging = Paging {
            positions: &list,
            requests: &list,
            block_tables: &list,
            num_requests: 1,
            table_stride: 2,
            max_len: 1,
            prefill_rows: (0, 0),
        };
        let scores = Scores {
            scale: 1.0,
            softcap: None,
            window: None,
        };
        let attended = device.paged_attention(&qkv, 1, HEADS, &cache, paging, scores, &mut out);
        assert_size(attended, "block tables");
        assert!(Matrix::upload(&device, WeightFormat::F32, 0, 3).is_err());
        let unfinished = Matrix::upload(&device, WeightFormat::F32, 2, 3).unwrap();
        assert!(unfinished.finish(None).is_err());
        assert!(Rotary::upload(&device, 2, &[0.0; 4], &[0.0; 2]).is_err());
    }
}

#[test]
fn memory_that_does_not_suffice() {
    for device in devices() {
        let (free, total) = device.free_and_total_bytes().unwrap();
        assert!(free <= total);
        let bytes = total as usize + 1;
        let error = device.allocate(bytes).unwrap_err();
        assert!(matches!(error, DeviceError::OutOfMemory { bytes: asked } if asked == bytes));
        assert!(Matrix::upload(&device, WeightFormat::F32, usize::MAX, 2).is_err());
    }
}

#[test]
fn buffers_of_another_device() {
    let devices = devices();
    let [one, other, ..] = devices.as_slice() else {
        return;
    };
    let (x, mut out) = (upload(one, &[0.0; 4]), room(other, 4));
    let vector = Vector::upload(other, &[1.0; 4]).unwrap();
    assert_size(
        other.rms_norm(&x, 1, &vector, 1e-6, &mut out),
        "another device's buffer",
    );
}

#[test]
fn without_a_driver_there_is_an_error() {
    match Device::driver(0, None) {
        Ok(device) => assert!(!device.name().is_empty()),
        Err(error) => assert!(!error.to_string().is_empty(), "{error:?}"),
    }
}
