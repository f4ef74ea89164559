//! The simulator notices a missing barrier.

use cuda_device::{Device, ThreadOrder, Vector};

use crate::support::{Numbers, download, download_i32, room, upload};

fn norm(device: &Device) -> Vec<f32> {
    let (rows, width) = (2, 700);
    let mut numbers = Numbers::new(16);
    let (x, weight) = (numbers.values(rows * width), numbers.values(width));
    let weight = Vector::upload(device, &weight).unwrap();
    let mut out = room(device, rows * width);
    device
        .rms_norm(&upload(device, &x), rows, &weight, 1e-6, &mut out)
        .unwrap();
    download(device, &out, rows * width)
}

fn argmax(device: &Device) -> Vec<i32> {
    let mut logits = Numbers::new(17).values(4000);
    // Found by the last warp of the only block.
    logits[255] = 2.0;
    let mut out = room(device, 1);
    device
        .masked_argmax(&upload(device, &logits), 1, 4000, 4000, None, &mut out)
        .unwrap();
    download_i32(device, &out, 1)
}

#[test]
fn kernels_without_their_barriers_are_wrong_in_some_order() {
    let Ok(device) = Device::simulator(ThreadOrder::Ascending) else {
        return;
    };
    let (expected_norm, expected_token) = (norm(&device), argmax(&device));
    let (mut wrong_norms, mut wrong_tokens) = (0, 0);
    for order in [
        ThreadOrder::Ascending,
        ThreadOrder::Descending,
        ThreadOrder::Shuffled(7),
    ] {
        let broken = Device::simulator_without_barriers(order).unwrap();
        wrong_norms += usize::from(norm(&broken) != expected_norm);
        wrong_tokens += usize::from(argmax(&broken) != expected_token);
    }
    assert!(wrong_norms > 0, "rms_norm is right without its barrier");
    assert!(
        wrong_tokens > 0,
        "masked_argmax is right without its barrier"
    );
}
