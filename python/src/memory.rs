//! Rows of tensors and arrays that others own: checked, and without a copy.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::dlpack::{DlTensor, with_tensor};

/// kDLCPU, kDLCUDAHost (pinned memory), kDLROCMHost.
const HOST_DEVICES: [i32; 3] = [1, 3, 11];

/// The type of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Element {
    /// Signed or not, 32 bits.
    Int32,
    Float16,
    BFloat16,
    Float32,
    Float64,
}

impl Element {
    fn bytes(self) -> usize {
        match self {
            Self::Float16 | Self::BFloat16 => 2,
            Self::Int32 | Self::Float32 => 4,
            Self::Float64 => 8,
        }
    }

    fn of_dlpack(tensor: &DlTensor) -> Option<Self> {
        // kDLInt 0, kDLUInt 1, kDLFloat 2, kDLBfloat 4.
        match (tensor.code, tensor.bits, tensor.lanes) {
            (0 | 1, 32, 1) => Some(Self::Int32),
            (2, 16, 1) => Some(Self::Float16),
            (2, 32, 1) => Some(Self::Float32),
            (2, 64, 1) => Some(Self::Float64),
            (4, 16, 1) => Some(Self::BFloat16),
            _ => None,
        }
    }

    fn of_buffer(format: &[u8], item_size: usize) -> Option<Self> {
        let code = format.strip_prefix(b"@").or(format.strip_prefix(b"="));
        match (code.unwrap_or(format), item_size) {
            (b"i" | b"I" | b"l" | b"L", 4) => Some(Self::Int32),
            (b"e", 2) => Some(Self::Float16),
            (b"f", 4) => Some(Self::Float32),
            (b"d", 8) => Some(Self::Float64),
            _ => None,
        }
    }
}

/// A matrix in memory: rows of contiguous elements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Matrix {
    data: *mut u8,
    pub(crate) element: Element,
    pub(crate) rows: usize,
    pub(crate) width: usize,
    /// Bytes from one row to the next.
    stride: usize,
}

// SAFETY: a pointer into memory of an object that the caller of the extension holds for the whole call.
unsafe impl Send for Matrix {}
// SAFETY: as above.
unsafe impl Sync for Matrix {}

/// What an argument has to be.
struct Wanted {
    /// Its name.
    name: &'static str,
    types: &'static str,
    is_allowed: fn(Element) -> bool,
}

const BITMASK: Wanted = Wanted {
    name: "bitmask",
    types: "int32",
    is_allowed: |element| matches!(element, Element::Int32),
};

const LOGITS: Wanted = Wanted {
    name: "logits",
    types: "float32, float16, bfloat16 or float64",
    is_allowed: |element| !matches!(element, Element::Int32),
};

/// A bitmask: `[words]` or `[rows, words]` of int32 in the host's memory.
pub(crate) fn bitmask_of(object: &Bound<'_, PyAny>, writable: bool) -> PyResult<Matrix> {
    matrix_of(object, &BITMASK, writable)
}

/// Logits: `[width]` or `[rows, width]` of floats in the host's memory.
pub(crate) fn logits_of(object: &Bound<'_, PyAny>) -> PyResult<Matrix> {
    matrix_of(object, &LOGITS, true)
}

fn matrix_of(object: &Bound<'_, PyAny>, wanted: &Wanted, writable: bool) -> PyResult<Matrix> {
    let look = |tensor: &DlTensor| of_tensor(tensor, wanted);
    if let Some(matrix) = with_tensor(object, true, look)? {
        return Ok(matrix);
    }
    if let Ok(buffer) = PyUntypedBuffer::get(object) {
        return of_buffer(&buffer, wanted, writable);
    }
    if let Some(matrix) = with_tensor(object, false, look)? {
        return Ok(matrix);
    }
    let (name, types) = (wanted.name, wanted.types);
    let given = object.get_type().name()?;
    Err(PyTypeError::new_err(format!(
        "{name} must be a torch tensor, a numpy array or another object with a buffer or __dlpack__, of \
         {types}, not {given}"
    )))
}

fn of_tensor(tensor: &DlTensor, wanted: &Wanted) -> PyResult<Matrix> {
    let name = wanted.name;
    if !HOST_DEVICES.contains(&tensor.device_type) {
        return Err(PyValueError::new_err(format!(
            "{name} must be in the host's memory, not on a device of DLPack's type {} (2 is CUDA): use a \
             tensor on the CPU and copy it",
            tensor.device_type
        )));
    }
    let element = Element::of_dlpack(tensor).filter(|&element| (wanted.is_allowed)(element));
    let Some(element) = element else {
        return Err(wrong_type(
            wanted,
            &format!("DLPack's type {} of {} bits", tensor.code, tensor.bits),
        ));
    };
    let shape: Vec<usize> = tensor
        .shape()
        .iter()
        .map(|&size| size.max(0) as usize)
        .collect();
    let strides: Vec<isize> = tensor.strides().iter().map(|&s| s as isize).collect();
    // SAFETY: where the tensor begins, by DLPack.
    let data = unsafe { tensor.data.cast::<u8>().add(tensor.byte_offset as usize) };
    matrix(data, element, &shape, &strides, wanted)
}

fn of_buffer(buffer: &PyUntypedBuffer, wanted: &Wanted, writable: bool) -> PyResult<Matrix> {
    let element = Element::of_buffer(buffer.format().to_bytes(), buffer.item_size());
    let Some(element) = element.filter(|&element| (wanted.is_allowed)(element)) else {
        let given = buffer.format().to_string_lossy();
        return Err(wrong_type(wanted, &format!("the buffer format {given:?}")));
    };
    if writable && buffer.readonly() {
        return Err(PyValueError::new_err(format!(
            "{} must be writable; this one is read-only",
            wanted.name
        )));
    }
    if buffer.suboffsets().is_some() {
        return Err(PyValueError::new_err(format!(
            "{} must lie in one block of memory",
            wanted.name
        )));
    }
    let bytes = element.bytes() as isize;
    if buffer.strides().iter().any(|stride| stride % bytes != 0) {
        return Err(not_contiguous(wanted.name));
    }
    let strides: Vec<isize> = buffer
        .strides()
        .iter()
        .map(|stride| stride / bytes)
        .collect();
    matrix(
        buffer.buf_ptr().cast(),
        element,
        buffer.shape(),
        &strides,
        wanted,
    )
}

fn matrix(
    data: *mut u8,
    element: Element,
    shape: &[usize],
    strides: &[isize],
    wanted: &Wanted,
) -> PyResult<Matrix> {
    let name = wanted.name;
    let (rows, width) = match *shape {
        [width] => (1, width),
        [rows, width] => (rows, width),
        _ => {
            return Err(PyValueError::new_err(format!(
                "{name} must have one dimension or two (rows, width), not the shape {shape:?}"
            )));
        }
    };
    let row_stride = match (strides, shape.len()) {
        (&[_], 1) | (&[], _) => width,
        (&[stride, _], 2) if rows > 1 => usize::try_from(stride)
            .ok()
            .filter(|&stride| stride >= width)
            .ok_or_else(|| not_contiguous(name))?,
        _ => width,
    };
    if width > 1 && strides.last().is_some_and(|&stride| stride != 1) {
        return Err(not_contiguous(name));
    }
    if !(data as usize).is_multiple_of(element.bytes()) {
        return Err(PyValueError::new_err(format!(
            "{name} must be aligned to its elements"
        )));
    }
    Ok(Matrix {
        data,
        element,
        rows,
        width,
        stride: row_stride * element.bytes(),
    })
}

fn wrong_type(wanted: &Wanted, given: &str) -> PyErr {
    PyTypeError::new_err(format!(
        "{} must be of {}, not {given}",
        wanted.name, wanted.types
    ))
}

fn not_contiguous(name: &str) -> PyErr {
    PyValueError::new_err(format!(
        "{name} must have contiguous rows: call .contiguous() or numpy.ascontiguousarray"
    ))
}

impl Matrix {
    /// Checks that a row is there.
    pub(crate) fn check_row(&self, index: usize, name: &str) -> PyResult<()> {
        if index < self.rows {
            return Ok(());
        }
        let rows = self.rows;
        Err(PyIndexError::new_err(format!(
            "index {index} is beyond the {rows} rows of {name}"
        )))
    }

    /// Checks that rows hold a mask of a vocabulary.
    pub(crate) fn check_width(&self, words: usize, vocab_size: usize) -> PyResult<()> {
        if self.width >= words {
            return Ok(());
        }
        let width = self.width;
        Err(PyValueError::new_err(format!(
            "bitmask has {width} words a row, but a vocabulary of {vocab_size} tokens needs {words}: allocate \
             it by allocate_token_bitmask(rows, {vocab_size})"
        )))
    }

    /// A row's elements as `T`.
    ///
    /// # Safety
    /// The row was checked, `T` is as large as the element and any bits are one; the object is alive, and
    /// nothing else in this process reads or writes the row meanwhile.
    pub(crate) unsafe fn row<'a, T>(self, index: usize) -> &'a mut [T] {
        debug_assert!(index < self.rows && size_of::<T>() == self.element.bytes());
        if self.width == 0 {
            return &mut [];
        }
        // SAFETY: the caller's.
        unsafe {
            let data = self.data.add(index * self.stride).cast::<T>();
            std::slice::from_raw_parts_mut(data, self.width)
        }
    }
}
