//! A GPU behind the CUDA driver, by its C interface.

use std::collections::HashMap;
use std::ffi::CString;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;

use crate::compile::cubin;
use crate::error::DeviceError;
use crate::launch::{Arguments, Grid};
use crate::sources;

/// Most bytes of shared memory that a block gets without asking for more.
const PLAIN_SHARED_BYTES: u32 = 48 << 10;

/// A GPU with the kernels loaded, and its stream.
pub(crate) struct Driver {
    name: String,
    device: sys::CUdevice,
    context: sys::CUcontext,
    module: sys::CUmodule,
    stream: sys::CUstream,
    /// True if the GPU can start a kernel's blocks before the kernel before it has ended.
    can_overlap: bool,
    /// True if that is wanted.
    overlaps: AtomicBool,
    /// True if the GPU reads the host's pages by itself: a copy from there may then be late.
    reads_host_pages: bool,
    kernels: HashMap<&'static str, sys::CUfunction>,
}

// SAFETY: the driver's handles may be used from any thread, several at once; each call makes the context current
// on its own thread first.
unsafe impl Send for Driver {}
// SAFETY: as above.
unsafe impl Sync for Driver {}

impl Driver {
    pub(crate) fn open(ordinal: usize, cache: Option<&Path>) -> Result<Self, DeviceError> {
        // SAFETY: the library is the driver's, by its name. cudarc panics where it is missing, so it is asked first.
        if !unsafe { sys::is_culib_present() } {
            return Err(DeviceError::NoDriver);
        }
        check("cuInit", result::init())?;
        let count = check("cuDeviceGetCount", result::device::get_count())?;
        let count = usize::try_from(count).unwrap_or(0);
        if ordinal >= count {
            return Err(DeviceError::NoDevice { ordinal, count });
        }
        let device = check("cuDeviceGet", result::device::get(ordinal as i32))?;
        let name = check("cuDeviceGetName", result::device::get_name(device))?;
        let major = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR;
        let minor = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR;
        let (major, minor) = (attribute(device, major)?, attribute(device, minor)?);
        if major < 8 {
            return Err(DeviceError::TooOld { name, major, minor });
        }
        let host_pages = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES;
        let code = cubin(major, minor, cache)?;
        // SAFETY: `device` is one of the driver's.
        let context = check("cuDevicePrimaryCtxRetain", unsafe {
            result::primary_ctx::retain(device)
        })?;
        let mut driver = Self {
            name,
            device,
            context,
            module: std::ptr::null_mut(),
            stream: std::ptr::null_mut(),
            can_overlap: major >= 9,
            overlaps: AtomicBool::new(false),
            reads_host_pages: attribute(device, host_pages)? != 0,
            kernels: HashMap::new(),
        };
        driver.load(&code)?;
        Ok(driver)
    }

    /// Loads the kernels and makes the stream.
    fn load(&mut self, code: &[u8]) -> Result<(), DeviceError> {
        self.make_current()?;
        // SAFETY: `code` is a whole ELF image.
        let module = unsafe { result::module::load_data(code.as_ptr().cast()) };
        self.module = check("cuModuleLoadData", module)?;
        let kind = result::stream::StreamKind::NonBlocking;
        self.stream = check("cuStreamCreate", result::stream::create(kind))?;
        let limit = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
        let most = attribute(self.device, limit)?;
        let dynamic = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let fixed = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;
        for name in sources::kernel_names() {
            let symbol = CString::new(name).map_err(|error| failure("a kernel's name", error))?;
            // SAFETY: the module is loaded.
            let function = unsafe { result::module::get_function(self.module, symbol) };
            let function = check("cuModuleGetFunction", function)?;
            // SAFETY: the function is of the loaded module.
            unsafe {
                let fixed = result::function::get_function_attribute(function, fixed);
                let fixed = check("cuFuncGetAttribute", fixed)?;
                let rest = (most as i32).saturating_sub(fixed);
                if rest > PLAIN_SHARED_BYTES as i32 {
                    let set = result::function::set_function_attribute(function, dynamic, rest);
                    check("cuFuncSetAttribute", set)?;
                }
            }
            self.kernels.insert(name, function);
        }
        Ok(())
    }

    fn make_current(&self) -> Result<(), DeviceError> {
        // SAFETY: the context is retained until the driver is dropped.
        check("cuCtxSetCurrent", unsafe {
            result::ctx::set_current(self.context)
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn free_and_total_bytes(&self) -> Result<(u64, u64), DeviceError> {
        self.make_current()?;
        let (free, total) = check("cuMemGetInfo", result::mem_get_info())?;
        Ok((free as u64, total as u64))
    }

    /// Memory, in the stream's order full of zeros if they are asked for.
    pub(crate) fn allocate(&self, bytes: usize, zeros: bool) -> Result<u64, DeviceError> {
        self.make_current()?;
        // The driver refuses 0 bytes.
        let size = bytes.max(1);
        // SAFETY: the memory is as large as what is filled.
        unsafe {
            let address = match result::malloc_sync(size) {
                Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => {
                    return Err(DeviceError::OutOfMemory { bytes });
                }
                address => check("cuMemAlloc", address)?,
            };
            if zeros {
                let filled = result::memset_d8_async(address, 0, size, self.stream);
                check("cuMemsetD8Async", filled)?;
            }
            Ok(address)
        }
    }

    /// Waits for what is under way, then frees.
    pub(crate) fn free(&self, address: u64) {
        // A failure here is that of an earlier launch, which its own next call reports.
        if self.make_current().is_ok() {
            // SAFETY: `address` was given by `allocate`, and its buffer is gone.
            let _ = unsafe { result::free_sync(address) };
        }
    }

    pub(crate) fn upload(&self, to: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.make_current()?;
        // SAFETY: the caller has checked the buffer's size. `bytes` are pageable memory, which the driver copies to a place
        // of its own before the call returns; where the GPU may read the pages later, that is waited for below, while
        // `bytes` are borrowed.
        check("cuMemcpyHtoDAsync", unsafe {
            result::memcpy_htod_async(to, bytes, self.stream)
        })?;
        match self.reads_host_pages {
            true => self.synchronize(),
            false => Ok(()),
        }
    }

    pub(crate) fn download(&self, from: u64, to: &mut [u8]) -> Result<(), DeviceError> {
        if to.is_empty() {
            return self.synchronize();
        }
        self.make_current()?;
        // SAFETY: the caller has checked the buffer's size; `to` is borrowed until the stream has come there.
        check("cuMemcpyDtoHAsync", unsafe {
            result::memcpy_dtoh_async(to, from, self.stream)
        })?;
        self.synchronize()
    }

    pub(crate) fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<(), DeviceError> {
        if bytes == 0 {
            return Ok(());
        }
        self.make_current()?;
        // SAFETY: the caller has checked both buffers' sizes.
        check("cuMemcpyDtoDAsync", unsafe {
            result::memcpy_dtod_async(to, from, bytes, self.stream)
        })
    }

    pub(crate) fn synchronize(&self) -> Result<(), DeviceError> {
        self.make_current()?;
        // SAFETY: the stream lives as long as the driver.
        check("cuStreamSynchronize", unsafe {
            result::stream::synchronize(self.stream)
        })
    }

    pub(crate) fn launch(
        &self,
        kernel: &'static str,
        grid: Grid,
        threads: u32,
        shared_bytes: u32,
        arguments: &mut Arguments,
    ) -> Result<(), DeviceError> {
        let Some(function) = self.kernels.get(kernel) else {
            return Err(failure(kernel, "there is no such kernel"));
        };
        self.make_current()?;
        let mut pointers = arguments.pointers();
        // SAFETY: the arguments are the kernel's, as its tests check; buffers' sizes were checked by the operation.
        let launched = unsafe {
            if self.overlaps.load(Ordering::Relaxed) {
                let mut overlap = overlap_attribute();
                let config = sys::CUlaunchConfig {
                    gridDimX: grid[0],
                    gridDimY: grid[1],
                    gridDimZ: grid[2],
                    blockDimX: threads,
                    blockDimY: 1,
                    blockDimZ: 1,
                    sharedMemBytes: shared_bytes,
                    hStream: self.stream,
                    attrs: &raw mut overlap,
                    numAttrs: 1,
                };
                let (arguments, extra) = (pointers.as_mut_ptr(), std::ptr::null_mut());
                sys::cuLaunchKernelEx(&raw const config, *function, arguments, extra).result()
            } else {
                let (grid, block) = ((grid[0], grid[1], grid[2]), (threads, 1, 1));
                result::launch_kernel(
                    *function,
                    grid,
                    block,
                    shared_bytes,
                    self.stream,
                    &mut pointers,
                )
            }
        };
        check(kernel, launched)
    }

    /// See [`crate::Device::set_overlapping_launches`].
    pub(crate) fn set_overlapping_launches(&self, overlap: bool) {
        let overlap = overlap && self.can_overlap;
        self.overlaps.store(overlap, Ordering::Relaxed);
    }

    pub(crate) fn begin_capture(&self) -> Result<(), DeviceError> {
        self.make_current()?;
        // Relaxed, so that scratch may grow meanwhile.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream lives as long as the driver.
        check("cuStreamBeginCapture", unsafe {
            result::stream::begin_capture(self.stream, mode)
        })
    }

    pub(crate) fn end_capture(&self) -> Result<DriverGraph, DeviceError> {
        self.make_current()?;
        // SAFETY: the stream lives as long as the driver, and the captured graph until it is instantiated.
        unsafe {
            let graph = result::stream::end_capture(self.stream);
            let graph = check("cuStreamEndCapture", graph)?;
            let flags = sys::CUgraphInstantiate_flags(0);
            let launchable = result::graph::instantiate(graph, flags);
            let destroyed = result::graph::destroy(graph);
            let launchable = check("cuGraphInstantiate", launchable)?;
            check("cuGraphDestroy", destroyed)?;
            Ok(DriverGraph(launchable))
        }
    }

    /// # Safety
    /// The memory that the graph's kernels use must be there.
    pub(crate) unsafe fn launch_graph(&self, graph: &DriverGraph) -> Result<(), DeviceError> {
        self.make_current()?;
        // SAFETY: passed on to the caller; the graph is of this driver.
        check("cuGraphLaunch", unsafe {
            result::graph::launch(graph.0, self.stream)
        })
    }

    pub(crate) fn destroy_graph(&self, graph: &DriverGraph) {
        if self.make_current().is_ok() {
            // SAFETY: nobody launches the graph any more; a launch that is under way goes on.
            let _ = unsafe { result::graph::exec_destroy(graph.0) };
        }
    }

    /// Marks a point of the stream.
    pub(crate) fn record_event(&self) -> Result<DriverEvent, DeviceError> {
        self.make_current()?;
        let flags = sys::CUevent_flags::CU_EVENT_DEFAULT;
        let event = DriverEvent(check("cuEventCreate", result::event::create(flags))?);
        // SAFETY: both were created and live.
        check("cuEventRecord", unsafe {
            result::event::record(event.0, self.stream)
        })?;
        Ok(event)
    }

    /// Milliseconds between two points, once the stream has come to the second.
    pub(crate) fn elapsed(&self, from: &DriverEvent, to: &DriverEvent) -> Result<f32, DeviceError> {
        self.make_current()?;
        // SAFETY: both events were recorded.
        unsafe {
            check("cuEventSynchronize", result::event::synchronize(to.0))?;
            check("cuEventElapsedTime", result::event::elapsed(from.0, to.0))
        }
    }
}

/// Captured launches.
pub(crate) struct DriverGraph(sys::CUgraphExec);

// SAFETY: a handle, which the driver takes from any thread.
unsafe impl Send for DriverGraph {}
// SAFETY: launches of one graph are ordered by the stream.
unsafe impl Sync for DriverGraph {}

/// A point of the stream.
pub(crate) struct DriverEvent(sys::CUevent);

impl Drop for DriverEvent {
    fn drop(&mut self) {
        // SAFETY: the event was created and is not used again.
        let _ = unsafe { result::event::destroy(self.0) };
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if self.make_current().is_err() {
            return;
        }
        // SAFETY: nothing uses the handles any more. Failures are those of earlier launches.
        unsafe {
            let _ = result::stream::synchronize(self.stream);
            if !self.stream.is_null() {
                let _ = result::stream::destroy(self.stream);
            }
            if !self.module.is_null() {
                let _ = result::module::unload(self.module);
            }
            let _ = result::primary_ctx::release(self.device);
        }
    }
}

/// Lets a kernel start before the one before it has ended: each waits for that itself.
fn overlap_attribute() -> sys::CUlaunchAttribute {
    sys::CUlaunchAttribute {
        id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        pad: [0; 4],
        value: sys::CUlaunchAttributeValue {
            programmaticStreamSerializationAllowed: 1,
        },
    }
}

fn attribute(device: sys::CUdevice, which: sys::CUdevice_attribute) -> Result<u32, DeviceError> {
    // SAFETY: `device` is one of the driver's.
    let value = unsafe { result::device::get_attribute(device, which) };
    Ok(u32::try_from(check("cuDeviceGetAttribute", value)?).unwrap_or(0))
}

fn failure(call: &'static str, message: impl ToString) -> DeviceError {
    DeviceError::Driver {
        call,
        message: message.to_string(),
    }
}

/// The result of a call of the driver by its name.
pub(crate) fn check<T>(
    call: &'static str,
    result: Result<T, DriverError>,
) -> Result<T, DeviceError> {
    result.map_err(|error| failure(call, format!("{error:?}")))
}
