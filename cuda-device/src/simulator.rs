//! The simulator's memory and launches. The kernels themselves run in `kernels/simulator.cpp`.

#[cfg(has_simulator)]
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::DeviceError;
use crate::launch::{Arguments, Grid};

/// The order in which the simulator runs a block's threads between two barriers. A correct kernel gives the
/// same results in each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadOrder {
    /// By thread number.
    Ascending,
    /// The last thread first.
    Descending,
    /// Shuffled by a seed.
    Shuffled(u32),
}

/// Bytes that the simulator pretends to have.
const TOTAL_BYTES: u64 = 4 << 30;

/// Where memory starts, as on a GPU: a multiple of this.
const ALIGNMENT: usize = 256;

/// The simulator, whose addresses are the host's.
pub(crate) struct Simulator {
    #[cfg_attr(not(has_simulator), allow(dead_code))]
    order: u32,
    #[cfg_attr(not(has_simulator), allow(dead_code))]
    has_barriers: bool,
    used: AtomicU64,
    /// Held by a copy or launch, so that they follow one another as on a stream. While launches are captured, those
    /// so far.
    stream: Mutex<Option<Vec<Step>>>,
}

/// A captured launch or copy.
pub(crate) enum Step {
    Launch {
        kernel: &'static str,
        grid: Grid,
        threads: u32,
        shared_bytes: u32,
        arguments: Box<Arguments>,
    },
    Copy {
        from: u64,
        to: u64,
        bytes: usize,
    },
}

#[cfg(has_simulator)]
unsafe extern "C" {
    fn cuda_device_simulator_launch(
        name: *const c_char,
        barriers: c_int,
        grid: *const c_uint,
        threads: c_uint,
        shared_bytes: c_uint,
        arguments: *mut *mut c_void,
        order: c_uint,
    ) -> *const c_char;
}

impl Simulator {
    pub(crate) fn new(order: ThreadOrder, has_barriers: bool) -> Result<Self, DeviceError> {
        if let Some(reason) = option_env!("CUDA_DEVICE_NO_SIMULATOR") {
            return Err(DeviceError::Simulator(reason.to_owned()));
        }
        let order = match order {
            ThreadOrder::Ascending => 0,
            ThreadOrder::Descending => 1,
            ThreadOrder::Shuffled(seed) => seed.saturating_add(2),
        };
        Ok(Self {
            order,
            has_barriers,
            used: AtomicU64::new(0),
            stream: Mutex::new(None),
        })
    }

    pub(crate) fn free_and_total_bytes(&self) -> (u64, u64) {
        let used = self.used.load(Ordering::Relaxed);
        (TOTAL_BYTES.saturating_sub(used), TOTAL_BYTES)
    }

    fn turn(&self) -> MutexGuard<'_, Option<Vec<Step>>> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn layout(bytes: usize) -> Option<std::alloc::Layout> {
        std::alloc::Layout::from_size_align(bytes.max(1), ALIGNMENT).ok()
    }

    pub(crate) fn allocate(&self, bytes: usize) -> Result<u64, DeviceError> {
        let out_of_memory = DeviceError::OutOfMemory { bytes };
        let (free, _) = self.free_and_total_bytes();
        let Some(layout) = Self::layout(bytes).filter(|_| bytes as u64 <= free) else {
            return Err(out_of_memory);
        };
        // SAFETY: the layout's size is not 0.
        let memory = unsafe { std::alloc::alloc_zeroed(layout) };
        if memory.is_null() {
            return Err(out_of_memory);
        }
        self.used.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(memory.expose_provenance() as u64)
    }

    pub(crate) fn free(&self, address: u64, bytes: usize) {
        if let Some(layout) = Self::layout(bytes) {
            // SAFETY: `allocate` gave this address for this size, and its buffer is gone.
            unsafe { std::alloc::dealloc(pointer(address), layout) };
            self.used.fetch_sub(bytes as u64, Ordering::Relaxed);
        }
    }

    pub(crate) fn upload(&self, to: u64, bytes: &[u8]) {
        let _turn = self.turn();
        // SAFETY: the caller has checked that the buffer holds these bytes; the host's memory is another.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), pointer(to), bytes.len()) }
    }

    pub(crate) fn download(&self, from: u64, to: &mut [u8]) {
        let _turn = self.turn();
        // SAFETY: as in `upload`.
        unsafe { std::ptr::copy_nonoverlapping(pointer(from), to.as_mut_ptr(), to.len()) }
    }

    pub(crate) fn copy(&self, from: u64, to: u64, bytes: usize) {
        let mut captured = self.turn();
        if let Some(steps) = &mut *captured {
            steps.push(Step::Copy { from, to, bytes });
            return;
        }
        // SAFETY: the caller has checked both buffers' sizes.
        unsafe { std::ptr::copy(pointer(from), pointer(to), bytes) }
    }

    pub(crate) fn launch(
        &self,
        kernel: &'static str,
        grid: Grid,
        threads: u32,
        shared_bytes: u32,
        arguments: &mut Arguments,
    ) -> Result<(), DeviceError> {
        let mut captured = self.turn();
        if let Some(steps) = &mut *captured {
            steps.push(Step::Launch {
                kernel,
                grid,
                threads,
                shared_bytes,
                arguments: Box::new(arguments.clone()),
            });
            return Ok(());
        }
        self.run(kernel, grid, threads, shared_bytes, arguments)
    }

    /// Launches are kept and not run until `end_capture`.
    pub(crate) fn begin_capture(&self) {
        *self.turn() = Some(Vec::new());
    }

    pub(crate) fn end_capture(&self) -> Vec<Step> {
        self.turn().take().unwrap_or_default()
    }

    /// # Safety
    /// The memory that the steps use must be there.
    pub(crate) unsafe fn replay(&self, steps: &[Step]) -> Result<(), DeviceError> {
        for step in steps {
            match step {
                Step::Copy { from, to, bytes } => self.copy(*from, *to, *bytes),
                Step::Launch {
                    kernel,
                    grid,
                    threads,
                    shared_bytes,
                    arguments,
                } => {
                    let mut arguments = Arguments::clone(arguments);
                    self.launch(kernel, *grid, *threads, *shared_bytes, &mut arguments)?;
                }
            }
        }
        Ok(())
    }

    #[cfg(has_simulator)]
    fn run(
        &self,
        kernel: &'static str,
        grid: Grid,
        threads: u32,
        shared_bytes: u32,
        arguments: &mut Arguments,
    ) -> Result<(), DeviceError> {
        let name = CString::new(kernel)
            .map_err(|error| DeviceError::Simulator(format!("{kernel}: {error}")))?;
        let mut pointers = arguments.pointers();
        // SAFETY: the arguments are the kernel's, as its tests check; buffers' sizes were checked by the operation.
        // The answer is null or a string that lives as long as the program.
        let problem = unsafe {
            let problem = cuda_device_simulator_launch(
                name.as_ptr(),
                c_int::from(self.has_barriers),
                grid.as_ptr(),
                threads,
                shared_bytes,
                pointers.as_mut_ptr(),
                self.order,
            );
            (!problem.is_null()).then(|| CStr::from_ptr(problem).to_string_lossy())
        };
        match problem {
            None => Ok(()),
            Some(problem) => Err(DeviceError::Simulator(format!("{kernel}: {problem}"))),
        }
    }

    #[cfg(not(has_simulator))]
    fn run(
        &self,
        kernel: &'static str,
        _: Grid,
        _: u32,
        _: u32,
        _: &mut Arguments,
    ) -> Result<(), DeviceError> {
        Err(DeviceError::Simulator(format!(
            "{kernel}: it was not built"
        )))
    }
}

fn pointer(address: u64) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address as usize)
}
