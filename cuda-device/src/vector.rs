//! Weight vectors.

use crate::buffer::Buffer;
use crate::device::Device;
use crate::error::DeviceError;

/// A weight `[width]` of f32.
#[derive(Debug)]
pub struct Vector {
    pub(crate) buffer: Buffer,
    width: usize,
}

impl Vector {
    /// Copies a vector to the device.
    pub fn upload(device: &Device, values: &[f32]) -> Result<Self, DeviceError> {
        Ok(Self {
            buffer: upload_f32(device, values)?,
            width: values.len(),
        })
    }

    /// Number of values.
    pub fn width(&self) -> usize {
        self.width
    }
}

/// A new buffer of numbers.
pub(crate) fn upload_f32(device: &Device, values: &[f32]) -> Result<Buffer, DeviceError> {
    let mut buffer = device.allocate(values.len().saturating_mul(4))?;
    device.upload(&mut buffer, 0, &to_bytes(values))?;
    Ok(buffer)
}

pub(crate) fn to_bytes(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}
