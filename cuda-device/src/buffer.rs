//! Memory of a device.

use std::sync::Arc;

use crate::device::{Device, Inner};
use crate::error::{DeviceError, ensure};

/// Memory of a device, freed when dropped.
pub struct Buffer {
    address: u64,
    num_bytes: usize,
    device: Arc<Inner>,
}

impl Buffer {
    pub(crate) fn new(address: u64, num_bytes: usize, device: Arc<Inner>) -> Self {
        Self {
            address,
            num_bytes,
            device,
        }
    }

    /// Size in bytes.
    pub fn num_bytes(&self) -> usize {
        self.num_bytes
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// Fails unless the buffer is of this device and holds `bytes` from `offset` on.
    pub(crate) fn require(
        &self,
        device: &Device,
        operation: &'static str,
        name: &str,
        offset: usize,
        bytes: usize,
    ) -> Result<(), DeviceError> {
        ensure(device.is(&self.device), operation, || {
            format!("{name} belongs to another device")
        })?;
        let end = offset.checked_add(bytes);
        ensure(
            end.is_some_and(|end| end <= self.num_bytes),
            operation,
            || {
                let has = self.num_bytes;
                format!("{name} has {has} bytes and needs {bytes} from byte {offset} on")
            },
        )
    }

    /// Fails unless the buffer is of this device and holds `[rows, width]` numbers of 4 bytes.
    pub(crate) fn require_rows(
        &self,
        device: &Device,
        operation: &'static str,
        name: &str,
        rows: usize,
        width: usize,
    ) -> Result<(), DeviceError> {
        let bytes = rows.saturating_mul(width).saturating_mul(4);
        self.require(device, operation, name, 0, bytes)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.device.free(self.address, self.num_bytes);
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffer")
            .field("num_bytes", &self.num_bytes)
            .finish_non_exhaustive()
    }
}
