//! What can go wrong with a device.

/// An error of a device or of an operation on it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// This machine has no CUDA driver.
    #[error(
        "there is no CUDA driver: libcuda.so.1 (nvcuda.dll on Windows) comes with NVIDIA's driver, version 580 or later"
    )]
    NoDriver,
    /// The driver has no such GPU.
    #[error("there is no CUDA device {ordinal}; the driver sees {count}")]
    NoDevice {
        /// The number asked for.
        ordinal: usize,
        /// GPUs that the driver sees.
        count: usize,
    },
    /// The GPU is older than the kernels need.
    #[error("{name} has compute capability {major}.{minor}; the kernels need 8.0 or later")]
    TooOld {
        /// Name of the GPU.
        name: String,
        /// Its compute capability.
        major: u32,
        /// The part behind the point.
        minor: u32,
    },
    /// The compiler of the kernels was not found.
    #[error(
        "NVRTC, which compiles the kernels, was not found: install the CUDA toolkit 13.0 or \
         `pip install nvidia-cuda-nvrtc==13.0.88`, and name its folder in CUDA_HOME or LD_LIBRARY_PATH (tried {tried})"
    )]
    NoCompiler {
        /// Files that were tried.
        tried: String,
    },
    /// The kernels didn't compile.
    #[error("NVRTC can't compile the kernels for {arch}: {log}")]
    Compile {
        /// The target.
        arch: String,
        /// What the compiler says.
        log: String,
    },
    /// A call of the driver failed. Later calls may report a kernel's failure.
    #[error("{call} failed: {message}")]
    Driver {
        /// Name of the call.
        call: &'static str,
        /// What the driver says.
        message: String,
    },
    /// The device's memory does not suffice.
    #[error("the device has no {bytes} bytes of memory left")]
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
    },
    /// An argument doesn't fit the operation.
    #[error("{operation}: {problem}")]
    Size {
        /// Name of the operation.
        operation: &'static str,
        /// What doesn't fit.
        problem: String,
    },
    /// The simulator can't run here, or a kernel has misbehaved on it.
    #[error("the simulator: {0}")]
    Simulator(String),
}

/// Fails where a condition doesn't hold.
pub(crate) fn ensure(
    holds: bool,
    operation: &'static str,
    problem: impl FnOnce() -> String,
) -> Result<(), DeviceError> {
    if holds {
        return Ok(());
    }
    Err(DeviceError::Size {
        operation,
        problem: problem(),
    })
}

/// A size as a kernel's argument.
pub(crate) fn to_u32(
    operation: &'static str,
    what: &str,
    value: usize,
) -> Result<u32, DeviceError> {
    u32::try_from(value)
        .ok()
        .filter(|value| *value <= i32::MAX as u32)
        .ok_or_else(|| DeviceError::Size {
            operation,
            problem: format!("{what} is {value}, more than a kernel counts to"),
        })
}
