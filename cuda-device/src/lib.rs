//! A CUDA device and the operations of a transformer on it.
//!
//! A [`Device`] is a GPU behind the CUDA driver, which is loaded when it is asked for: an executable with this crate
//! starts anywhere. Its operations are kernels of our own, whose source is part of the executable and compiled for the
//! GPU by NVRTC at the first start. With the feature `simulator` the same source is also compiled as C++, and
//! `Device::simulator` runs it on the CPU, slowly, for tests.
//!
//! A row's results never depend on the batch: the chain of sums of an output is given by the weight's shape and by
//! positions, so that kernels for few and for many rows agree bit for bit. They do depend on the GPU's generation, and
//! the simulator's last bits are its own.
//!
//! It is no tensor library and knows no model: buffers are bytes, shapes are arguments, and an operation checks that
//! its buffers hold them. Values on the device that index something (token ids, slots, blocks) are checked there: what
//! they index then reads as NaN, or is not written.
//!
//! Activations are f32 `[rows, width]` without gaps. Operations are methods of [`Device`]: [`Device::embed`],
//! [`Device::linear`], [`Device::rms_norm`], [`Device::rotary_and_kv_write`], [`Device::paged_attention`],
//! [`Device::act_and_mul`], [`Device::route`], [`Device::mask_logits`], [`Device::masked_argmax`] and their like.
//!
//! ```
//! use cuda_device::{Device, DeviceError, Matrix, ThreadOrder, WeightFormat};
//!
//! // Without a GPU the error says why, and the feature `simulator` has a stand-in.
//! let device = Device::driver(0, None).or_else(|error| {
//!     println!("{error}");
//!     Device::simulator(ThreadOrder::Ascending)
//! });
//! # if device.is_err() { return Ok(()) }
//! let device = device?;
//! let identity = [1.0, 0.0, 0.0, 1.0];
//! let bias = Some(&[0.5, 0.5][..]);
//! let matrix = Matrix::from_f32(&device, WeightFormat::F32, 2, &identity, bias)?;
//! let mut x = device.allocate(8)?;
//! device.upload(&mut x, 0, &[1_f32.to_le_bytes(), 2_f32.to_le_bytes()].concat())?;
//! let mut out = device.allocate(8)?;
//! device.linear(&x, 1, &matrix, &mut out)?;
//! let mut bytes = [0; 8];
//! device.download(&out, 0, &mut bytes)?;
//! assert_eq!(bytes, *[1.5_f32.to_le_bytes(), 2.5_f32.to_le_bytes()].concat());
//!
//! // An operation looks before it launches.
//! let error = device.linear(&x, 2, &matrix, &mut out).unwrap_err();
//! assert_eq!(error.to_string(), "linear: x has 8 bytes and needs 16 from byte 0 on");
//! # Ok::<(), DeviceError>(())
//! ```
//!
//! # The kernels under a sanitizer
//! The simulator's memory is the host's, so the compiler's AddressSanitizer sees a kernel that leaves its buffers:
//! ```text
//! export CUDA_DEVICE_SANITIZE=1 RUSTFLAGS="-C link-arg=-lasan" ASAN_OPTIONS=detect_leaks=0
//! export CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="env LD_PRELOAD=$(g++ -print-file-name=libasan.so)"
//! cargo test -p cuda-device --test kernels --target x86_64-unknown-linux-gnu
//! ```

mod attention;
mod buffer;
mod compile;
mod device;
mod driver;
mod error;
mod experts;
mod graph;
mod head;
mod kv_cache;
mod launch;
mod linear;
mod matrix;
mod norm;
mod nvrtc;
mod rotary;
mod rows;
mod scratch;
mod simulator;
mod sources;
mod vector;

pub use attention::{MAX_PARTIAL_BYTES, Paging, Scores};
pub use buffer::Buffer;
pub use device::Device;
pub use error::DeviceError;
pub use experts::Routing;
pub use graph::{Event, Graph};
pub use head::Masks;
pub use kv_cache::{Heads, KvCache, KvFormat};
pub use matrix::{Matrix, MatrixUpload, WeightFormat};
pub use rotary::{QkNorm, Rotary, Slots};
pub use rows::Act;
pub use simulator::ThreadOrder;
pub use vector::Vector;
