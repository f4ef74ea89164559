//! Weight matrices.

use half::bf16;
use half::slice::HalfFloatSliceExt;

use crate::buffer::Buffer;
use crate::device::Device;
use crate::error::{DeviceError, ensure};
use crate::vector::{to_bytes, upload_f32};

/// How a matrix is kept on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightFormat {
    /// 4 bytes a weight; products in f32.
    F32,
    /// 2 bytes a weight; activations are rounded to bfloat16 and products summed in f32.
    Bf16,
}

impl WeightFormat {
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }

    /// Values from one row to the next. Rows of bfloat16 are filled up with zeros to whole steps of the tensor cores.
    pub(crate) fn stride(self, in_features: usize) -> usize {
        match self {
            Self::F32 => in_features,
            Self::Bf16 => in_features.next_multiple_of(32),
        }
    }
}

/// A weight `[out_features, in_features]` with an optional bias `[out_features]` of f32.
#[derive(Debug)]
pub struct Matrix {
    pub(crate) buffer: Buffer,
    pub(crate) bias: Option<Buffer>,
    format: WeightFormat,
    in_features: usize,
    out_features: usize,
}

/// A matrix whose rows are on their way to the device.
///
/// Rows come in pieces of any number of whole rows, so that the host needn't hold a second copy of them all.
#[derive(Debug)]
pub struct MatrixUpload {
    device: Device,
    matrix: Matrix,
    rows: usize,
}

impl Matrix {
    /// Begins the upload of a matrix, row by row.
    pub fn upload(
        device: &Device,
        format: WeightFormat,
        in_features: usize,
        out_features: usize,
    ) -> Result<MatrixUpload, DeviceError> {
        ensure(
            in_features > 0 && out_features > 0,
            "Matrix::upload",
            || format!("a matrix [{out_features}, {in_features}] has no weights"),
        )?;
        let bytes = out_features
            .saturating_mul(format.stride(in_features))
            .saturating_mul(format.bytes());
        Ok(MatrixUpload {
            device: device.clone(),
            matrix: Self {
                buffer: device.allocate(bytes)?,
                bias: None,
                format,
                in_features,
                out_features,
            },
            rows: 0,
        })
    }

    /// A whole matrix of f32 `[out_features, in_features]`, where that is at hand.
    pub fn from_f32(
        device: &Device,
        format: WeightFormat,
        in_features: usize,
        weights: &[f32],
        bias: Option<&[f32]>,
    ) -> Result<Self, DeviceError> {
        let out_features = weights.len() / in_features.max(1);
        let mut upload = Self::upload(device, format, in_features, out_features)?;
        upload.push_f32(weights)?;
        upload.finish(bias)
    }

    /// Width of the outputs.
    pub fn out_features(&self) -> usize {
        self.out_features
    }

    /// Width of the inputs.
    pub fn in_features(&self) -> usize {
        self.in_features
    }

    /// How the weights are kept.
    pub fn format(&self) -> WeightFormat {
        self.format
    }

    /// Bytes of device memory, the bias included.
    pub fn num_bytes(&self) -> usize {
        self.buffer.num_bytes() + self.bias.as_ref().map_or(0, Buffer::num_bytes)
    }

    pub(crate) fn stride(&self) -> usize {
        self.format.stride(self.in_features)
    }

    /// One matrix of several with the same input, one above the other. Those without a bias get one of
    /// zeros if another has one. While it runs, the device holds the weights twice.
    pub fn stack(device: &Device, matrices: Vec<Self>) -> Result<Self, DeviceError> {
        const NAME: &str = "Matrix::stack";
        let mut matrices = matrices.into_iter();
        let Some(first) = matrices.next() else {
            return Err(DeviceError::Size {
                operation: NAME,
                problem: "there is nothing to stack".to_owned(),
            });
        };
        if matrices.len() == 0 {
            return Ok(first);
        }
        let (format, in_features) = (first.format, first.in_features);
        let all: Vec<Self> = std::iter::once(first).chain(matrices).collect();
        for matrix in &all {
            let same = matrix.format == format && matrix.in_features == in_features;
            ensure(same, NAME, || {
                let (other, width) = (matrix.format, matrix.in_features);
                format!("{other:?} of width {width} on {format:?} of width {in_features}")
            })?;
        }
        let out_features = all.iter().map(|matrix| matrix.out_features).sum();
        let bytes = all.iter().map(|matrix| matrix.buffer.num_bytes()).sum();
        let mut stacked = Self {
            buffer: device.allocate(bytes)?,
            bias: None,
            format,
            in_features,
            out_features,
        };
        if all.iter().any(|matrix| matrix.bias.is_some()) {
            stacked.bias = Some(device.allocate(4 * out_features)?);
        }
        let (mut offset, mut bias_offset) = (0, 0);
        for matrix in all {
            let bytes = matrix.buffer.num_bytes();
            device.copy((&matrix.buffer, 0), (&mut stacked.buffer, offset), bytes)?;
            offset += bytes;
            if let (Some(to), Some(from)) = (&mut stacked.bias, &matrix.bias) {
                device.copy((from, 0), (to, bias_offset), from.num_bytes())?;
            }
            bias_offset += 4 * matrix.out_features;
        }
        Ok(stacked)
    }
}

impl MatrixUpload {
    /// Adds rows of f32, rounded to the matrix's format.
    pub fn push_f32(&mut self, rows: &[f32]) -> Result<(), DeviceError> {
        match self.matrix.format {
            WeightFormat::F32 => self.push(rows.len(), &to_bytes(rows)),
            WeightFormat::Bf16 => {
                let mut rounded = vec![bf16::ZERO; rows.len()];
                rounded.convert_from_f32_slice(rows);
                let bytes = rounded.iter().flat_map(|value| value.to_le_bytes());
                self.push(rows.len(), &bytes.collect::<Vec<u8>>())
            }
        }
    }

    /// Adds rows of bfloat16, as little-endian bytes.
    pub fn push_bf16(&mut self, rows: &[u8]) -> Result<(), DeviceError> {
        match self.matrix.format {
            WeightFormat::Bf16 => self.push(rows.len() / 2, rows),
            WeightFormat::F32 => {
                let (pairs, _) = rows.as_chunks::<2>();
                let values = pairs.iter().map(|pair| bf16::from_le_bytes(*pair).to_f32());
                let bytes = values.flat_map(f32::to_le_bytes).collect::<Vec<u8>>();
                self.push(rows.len() / 2, &bytes)
            }
        }
    }

    /// Adds values in the matrix's format.
    fn push(&mut self, values: usize, bytes: &[u8]) -> Result<(), DeviceError> {
        let matrix = &mut self.matrix;
        let (width, size) = (matrix.in_features, matrix.format.bytes());
        let rows = values / width;
        let fits = rows * width * size == bytes.len() && self.rows + rows <= matrix.out_features;
        ensure(fits, "MatrixUpload", || {
            let (before, all) = (self.rows, matrix.out_features);
            format!("{values} values don't fit {all} rows of {width} that hold {before} already")
        })?;
        let stride = matrix.format.stride(width);
        let offset = self.rows * stride * size;
        if stride == width {
            self.device.upload(&mut matrix.buffer, offset, bytes)?;
        } else {
            let mut padded = vec![0; rows * stride * size];
            let from = bytes.chunks_exact(width * size);
            for (to, from) in padded.chunks_exact_mut(stride * size).zip(from) {
                to[..from.len()].copy_from_slice(from);
            }
            self.device.upload(&mut matrix.buffer, offset, &padded)?;
        }
        self.rows += rows;
        Ok(())
    }

    /// The matrix, once all its rows have come.
    pub fn finish(self, bias: Option<&[f32]>) -> Result<Matrix, DeviceError> {
        let Self {
            device,
            mut matrix,
            rows,
        } = self;
        ensure(rows == matrix.out_features, "MatrixUpload", || {
            format!("{rows} of {} rows have come", matrix.out_features)
        })?;
        if let Some(bias) = bias {
            ensure(bias.len() == rows, "MatrixUpload", || {
                format!("a bias of {} values for {rows} outputs", bias.len())
            })?;
            matrix.bias = Some(upload_f32(&device, bias)?);
        }
        Ok(matrix)
    }
}
