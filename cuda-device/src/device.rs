//! A device: memory, copies and launches, in the order in which they are asked for.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::buffer::Buffer;
use crate::driver::Driver;
use crate::error::{DeviceError, ensure};
use crate::launch::{Arguments, Grid};
use crate::scratch::Scratch;
use crate::simulator::{Simulator, ThreadOrder};

/// A GPU behind the CUDA driver, or the simulator. Clones are the same device.
///
/// There is one stream: copies and launches take effect in the order of the calls, from whichever
/// thread they come. A launch returns before the kernel has run; what failed on the GPU is the error of a later call.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

/// What a device's clones and buffers share.
pub(crate) struct Inner {
    engine: Engine,
    scratch: Mutex<Scratch>,
    /// True between `begin_capture` and `end_capture`.
    is_capturing: AtomicBool,
}

/// Who runs the kernels.
pub(crate) enum Engine {
    Driver(Driver),
    Simulator(Simulator),
}

impl Device {
    /// The GPU `ordinal` of the CUDA driver, with its kernels compiled. `cache` is a folder for compiled
    /// kernels, so that the next start needn't compile them; it may be shared.
    ///
    /// Fails with [`DeviceError::NoDriver`] where there is none.
    pub fn driver(ordinal: usize, cache: Option<&Path>) -> Result<Self, DeviceError> {
        Ok(Self::new(Engine::Driver(Driver::open(ordinal, cache)?)))
    }

    /// The simulator on this machine's processor, with a block's threads run in `order`.
    ///
    /// Fails with [`DeviceError::Simulator`] where the crate was built without its feature or a C++ compiler.
    pub fn simulator(order: ThreadOrder) -> Result<Self, DeviceError> {
        Ok(Self::new(Engine::Simulator(Simulator::new(order, true)?)))
    }

    /// A simulator whose kernels have lost their barriers, which must give wrong results in some order.
    #[doc(hidden)]
    pub fn simulator_without_barriers(order: ThreadOrder) -> Result<Self, DeviceError> {
        Ok(Self::new(Engine::Simulator(Simulator::new(order, false)?)))
    }

    fn new(engine: Engine) -> Self {
        Self(Arc::new(Inner {
            engine,
            scratch: Mutex::default(),
            is_capturing: AtomicBool::new(false),
        }))
    }

    /// The GPU's name, such as "NVIDIA H200", or "simulator".
    pub fn name(&self) -> &str {
        match &self.0.engine {
            Engine::Driver(driver) => driver.name(),
            Engine::Simulator(_) => "simulator",
        }
    }

    /// Bytes of memory that are free, and bytes that there are.
    pub fn free_and_total_bytes(&self) -> Result<(u64, u64), DeviceError> {
        match &self.0.engine {
            Engine::Driver(driver) => driver.free_and_total_bytes(),
            Engine::Simulator(simulator) => Ok(simulator.free_and_total_bytes()),
        }
    }

    /// Memory full of zeros.
    pub fn allocate(&self, bytes: usize) -> Result<Buffer, DeviceError> {
        self.ensure_no_capture("allocate")?;
        let address = self.allocate_raw(bytes, true)?;
        Ok(Buffer::new(address, bytes, self.0.clone()))
    }

    /// The address of memory that nobody frees but `Inner::free`, full of zeros if they are asked for.
    pub(crate) fn allocate_raw(&self, bytes: usize, zeros: bool) -> Result<u64, DeviceError> {
        match &self.0.engine {
            Engine::Driver(driver) => driver.allocate(bytes, zeros),
            Engine::Simulator(simulator) => simulator.allocate(bytes),
        }
    }

    /// Copies `bytes` to a buffer, from byte `offset` on.
    pub fn upload(&self, to: &mut Buffer, offset: usize, bytes: &[u8]) -> Result<(), DeviceError> {
        self.ensure_no_capture("upload")?;
        to.require(self, "upload", "the buffer", offset, bytes.len())?;
        let address = to.address() + offset as u64;
        match &self.0.engine {
            Engine::Driver(driver) => driver.upload(address, bytes),
            Engine::Simulator(simulator) => {
                simulator.upload(address, bytes);
                Ok(())
            }
        }
    }

    /// Copies from byte `offset` of a buffer, once all that was launched before has run.
    pub fn download(&self, from: &Buffer, offset: usize, to: &mut [u8]) -> Result<(), DeviceError> {
        self.ensure_no_capture("download")?;
        from.require(self, "download", "the buffer", offset, to.len())?;
        let address = from.address() + offset as u64;
        match &self.0.engine {
            Engine::Driver(driver) => driver.download(address, to),
            Engine::Simulator(simulator) => {
                simulator.download(address, to);
                Ok(())
            }
        }
    }

    /// Copies `bytes` bytes between two buffers of the device, without the host.
    pub fn copy(
        &self,
        (from, from_offset): (&Buffer, usize),
        (to, to_offset): (&mut Buffer, usize),
        bytes: usize,
    ) -> Result<(), DeviceError> {
        from.require(self, "copy", "the source", from_offset, bytes)?;
        to.require(self, "copy", "the destination", to_offset, bytes)?;
        let from = from.address() + from_offset as u64;
        self.copy_raw(from, to.address() + to_offset as u64, bytes)
    }

    /// The caller has checked that both addresses have `bytes` bytes.
    pub(crate) fn copy_raw(&self, from: u64, to: u64, bytes: usize) -> Result<(), DeviceError> {
        match &self.0.engine {
            Engine::Driver(driver) => driver.copy(from, to, bytes),
            Engine::Simulator(simulator) => {
                simulator.copy(from, to, bytes);
                Ok(())
            }
        }
    }

    /// Waits until all that was launched has run.
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        self.ensure_no_capture("synchronize")?;
        match &self.0.engine {
            Engine::Driver(driver) => driver.synchronize(),
            Engine::Simulator(_) => Ok(()),
        }
    }

    /// Lets kernels start while the one before them ends (programmatic dependent launch), on GPUs of compute capability 9.0
    /// or later; on others nothing changes. Each kernel waits for the results of the one before it, so its own don't change.
    /// Off at first. A graph keeps what was set when it was captured.
    pub fn set_overlapping_launches(&self, overlap: bool) {
        match &self.0.engine {
            Engine::Driver(driver) => driver.set_overlapping_launches(overlap),
            Engine::Simulator(_) => {}
        }
    }

    /// Launches a kernel. A grid without blocks is nothing to do.
    ///
    /// The caller has checked that the kernel stays within the buffers that `arguments` point to.
    pub(crate) fn launch(
        &self,
        kernel: &'static str,
        grid: Grid,
        threads: u32,
        shared_bytes: u32,
        mut arguments: Arguments,
    ) -> Result<(), DeviceError> {
        if grid.contains(&0) {
            return Ok(());
        }
        // Limits of the y and z of a grid.
        ensure(grid[1] <= 65_535 && grid[2] <= 65_535, kernel, || {
            format!("a grid of {grid:?} blocks is too large: split the rows")
        })?;
        match &self.0.engine {
            Engine::Driver(driver) => {
                driver.launch(kernel, grid, threads, shared_bytes, &mut arguments)
            }
            Engine::Simulator(simulator) => {
                simulator.launch(kernel, grid, threads, shared_bytes, &mut arguments)
            }
        }
    }

    /// Rooms for what operations leave between two of their launches. Held while these are enqueued.
    pub(crate) fn scratch(&self) -> MutexGuard<'_, Scratch> {
        self.0
            .scratch
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.0.engine
    }

    /// Notes that launches are captured from now on, or no longer; what was the case before.
    pub(crate) fn set_capturing(&self, is_capturing: bool) -> bool {
        self.0.is_capturing.swap(is_capturing, Ordering::Relaxed)
    }

    /// Fails while launches are captured, of what can't be.
    fn ensure_no_capture(&self, operation: &'static str) -> Result<(), DeviceError> {
        let is_capturing = self.0.is_capturing.load(Ordering::Relaxed);
        ensure(!is_capturing, operation, || {
            "launches are being captured, and this can't be".to_owned()
        })
    }

    pub(crate) fn is(&self, inner: &Arc<Inner>) -> bool {
        Arc::ptr_eq(&self.0, inner)
    }
}

impl Inner {
    /// Frees what `allocate` gave.
    pub(crate) fn free(&self, address: u64, bytes: usize) {
        match &self.engine {
            Engine::Driver(driver) => driver.free(address),
            Engine::Simulator(simulator) => simulator.free(address, bytes),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let scratch = self.scratch.get_mut();
        let scratch = scratch.unwrap_or_else(PoisonError::into_inner);
        for (address, bytes) in scratch.drain().collect::<Vec<_>>() {
            self.free(address, bytes);
        }
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Device").field(&self.name()).finish()
    }
}
