//! Rooms for what an operation leaves between two of its launches.

use crate::device::Device;
use crate::error::DeviceError;

/// What a room is for. Operations that are under way at once use different ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// Activations rounded to bfloat16.
    Rounded,
    /// Sums of parts, of attention and of argmax, and of slices.
    Parts,
    /// Rows gathered in place.
    Gathered,
}

const ROOMS: usize = 3;

/// Memory that grows to the largest size asked for. Kernels that were launched or captured may still use an outgrown
/// room, so it is kept until the device goes; sizes double, so that these are no more than the last one.
#[derive(Default)]
pub(crate) struct Scratch {
    rooms: [(u64, usize); ROOMS],
    outgrown: Vec<(u64, usize)>,
}

impl Scratch {
    /// The address of a room of at least `bytes` bytes, with anything in it.
    pub(crate) fn room(
        &mut self,
        device: &Device,
        room: Room,
        bytes: usize,
    ) -> Result<u64, DeviceError> {
        let slot = &mut self.rooms[room as usize];
        if slot.1 < bytes {
            let size = bytes.checked_next_power_of_two().unwrap_or(bytes);
            let address = device.allocate_raw(size, false)?;
            let old = std::mem::replace(slot, (address, size));
            if old.1 > 0 {
                self.outgrown.push(old);
            }
        }
        Ok(slot.0)
    }

    /// All that is to be freed, as address and size.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (u64, usize)> {
        let rooms = std::mem::take(&mut self.rooms);
        let outgrown = std::mem::take(&mut self.outgrown);
        outgrown
            .into_iter()
            .chain(rooms)
            .filter(|(_, bytes)| *bytes > 0)
    }
}
