//! Devices, numbers and comparisons.

use std::sync::OnceLock;

use cuda_device::{Buffer, Device, ThreadOrder};
use half::bf16;

/// The devices that a test runs on: none where the simulator can't be built, which it says.
pub(crate) fn devices() -> Vec<Device> {
    static GPU: OnceLock<Option<Device>> = OnceLock::new();
    let is_wanted = std::env::var_os("CUDA_DEVICE_TESTS").is_some_and(|value| value == "1");
    let gpu = GPU.get_or_init(|| {
        is_wanted.then(|| {
            let device = Device::driver(0, None).unwrap();
            let overlap = std::env::var_os("CUDA_DEVICE_OVERLAP").is_some_and(|value| value == "1");
            device.set_overlapping_launches(overlap);
            device
        })
    });
    if let Some(gpu) = gpu {
        return vec![gpu.clone()];
    }
    let orders = [
        ThreadOrder::Ascending,
        ThreadOrder::Descending,
        ThreadOrder::Shuffled(7),
    ];
    let mut devices = Vec::new();
    for order in orders {
        match Device::simulator(order) {
            Ok(device) => devices.push(device),
            Err(error) => println!("skipped: {error}"),
        }
    }
    devices
}

/// Numbers that look random and are the same at each run.
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u32
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.next() as usize % bound
    }

    /// Values in -1..1.
    pub(crate) fn values(&mut self, count: usize) -> Vec<f32> {
        (0..count)
            .map(|_| (self.next() >> 8) as f32 / (1 << 23) as f32 - 1.0)
            .collect()
    }
}

pub(crate) fn rounded(values: &[f32]) -> Vec<f32> {
    values
        .iter()
        .map(|value| bf16::from_f32(*value).to_f32())
        .collect()
}

pub(crate) fn upload_bytes(device: &Device, bytes: &[u8]) -> Buffer {
    let mut buffer = device.allocate(bytes.len()).unwrap();
    device.upload(&mut buffer, 0, bytes).unwrap();
    buffer
}

fn upload_words(device: &Device, words: impl Iterator<Item = [u8; 4]>) -> Buffer {
    upload_bytes(device, &words.flatten().collect::<Vec<u8>>())
}

pub(crate) fn upload(device: &Device, values: &[f32]) -> Buffer {
    upload_words(device, values.iter().map(|value| value.to_le_bytes()))
}

pub(crate) fn upload_u32(device: &Device, values: &[u32]) -> Buffer {
    upload_words(device, values.iter().map(|value| value.to_le_bytes()))
}

pub(crate) fn upload_i32(device: &Device, values: &[i32]) -> Buffer {
    upload_words(device, values.iter().map(|value| value.to_le_bytes()))
}

fn words(device: &Device, buffer: &Buffer, count: usize) -> Vec<[u8; 4]> {
    let mut bytes = vec![0; 4 * count];
    device.download(buffer, 0, &mut bytes).unwrap();
    bytes.as_chunks::<4>().0.to_vec()
}

pub(crate) fn download(device: &Device, buffer: &Buffer, count: usize) -> Vec<f32> {
    words(device, buffer, count)
        .into_iter()
        .map(f32::from_le_bytes)
        .collect()
}

pub(crate) fn download_u32(device: &Device, buffer: &Buffer, count: usize) -> Vec<u32> {
    words(device, buffer, count)
        .into_iter()
        .map(u32::from_le_bytes)
        .collect()
}

pub(crate) fn download_i32(device: &Device, buffer: &Buffer, count: usize) -> Vec<i32> {
    words(device, buffer, count)
        .into_iter()
        .map(i32::from_le_bytes)
        .collect()
}

/// Room for `count` f32 full of NaNs, so that what is not written shows.
pub(crate) fn room(device: &Device, count: usize) -> Buffer {
    upload(device, &vec![f32::NAN; count])
}

/// Fails unless all are within `tolerance` of what is expected.
pub(crate) fn assert_close(found: &[f32], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let distance = (f64::from(*found) - expected).abs();
        assert!(
            distance <= tolerance * (1.0 + expected.abs()),
            "{what}: at {at} is {found}, not {expected}"
        );
    }
}

/// Fails unless the bits are equal.
pub(crate) fn assert_same(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!(
            found.to_bits() == expected.to_bits(),
            "{what}: at {at} is {found:?}, not {expected:?}"
        );
    }
}
