//! What a tensor is in memory, by DLPack: from the table of C functions that torch (2.10 and later) keeps on
//! its tensor type, which runs no Python code, else from `__dlpack__()`.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyType};

/// DLPack's `DLTensor`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DlTensor {
    pub(crate) data: *mut c_void,
    pub(crate) device_type: i32,
    pub(crate) device_id: i32,
    pub(crate) ndim: i32,
    pub(crate) code: u8,
    pub(crate) bits: u8,
    pub(crate) lanes: u16,
    shape: *const i64,
    strides: *const i64,
    pub(crate) byte_offset: u64,
}

impl DlTensor {
    const EMPTY: Self = Self {
        data: std::ptr::null_mut(),
        device_type: 0,
        device_id: 0,
        ndim: 0,
        code: 0,
        bits: 0,
        lanes: 0,
        shape: std::ptr::null(),
        strides: std::ptr::null(),
        byte_offset: 0,
    };

    fn list(&self, list: *const i64) -> &[i64] {
        match usize::try_from(self.ndim) {
            // SAFETY: DLPack has `ndim` numbers there, for as long as the tensor lives.
            Ok(ndim) if !list.is_null() => unsafe { std::slice::from_raw_parts(list, ndim) },
            _ => &[],
        }
    }

    /// Sizes by dimension.
    pub(crate) fn shape(&self) -> &[i64] {
        self.list(self.shape)
    }

    /// Strides in elements; empty where the tensor is contiguous.
    pub(crate) fn strides(&self) -> &[i64] {
        self.list(self.strides)
    }
}

/// The head of DLPack 1.2's `DLPackExchangeAPI`.
#[repr(C)]
struct ExchangeApi {
    major: u32,
    minor: u32,
    previous: *const c_void,
    allocator: *const c_void,
    managed_from_py: *const c_void,
    managed_to_py: *const c_void,
    tensor_from_py: Option<unsafe extern "C" fn(*mut c_void, *mut DlTensor) -> c_int>,
}

/// The first type that had a table, which it keeps alive, and the table's address. A process has one tensor
/// type that matters; others take the way by `__dlpack__`.
static KNOWN: PyOnceLock<(Py<PyType>, usize)> = PyOnceLock::new();

/// The table of a type, if it is the known one, or becomes it.
fn api_of(object: &Bound<'_, PyAny>, learn: bool) -> Option<NonNull<ExchangeApi>> {
    let py = object.py();
    let kind = object.get_type();
    if learn && KNOWN.get(py).is_none() {
        let capsule = kind.getattr("__dlpack_c_exchange_api__").ok()?;
        let capsule = capsule.cast_into::<PyCapsule>().ok()?;
        let api = capsule.pointer_checked(Some(c"dlpack_exchange_api")).ok()?;
        // SAFETY: the capsule's name says what it points to; the head has been the same since version 1.
        if unsafe { api.cast::<ExchangeApi>().as_ref() }.major != 1 {
            return None;
        }
        let _ = KNOWN.set(py, (kind.clone().unbind(), api.as_ptr() as usize));
    }
    let (known, api) = KNOWN.get(py)?;
    (known.as_ptr() == kind.as_ptr().cast()).then(|| NonNull::new(*api as *mut ExchangeApi))?
}

/// Calls `look` with a tensor that is borrowed from an object; `None` where the object is no tensor, or with
/// `known_only` where its type was not met before.
pub(crate) fn with_tensor<T>(
    object: &Bound<'_, PyAny>,
    known_only: bool,
    look: impl FnOnce(&DlTensor) -> PyResult<T>,
) -> PyResult<Option<T>> {
    if let Some(api) = api_of(object, !known_only) {
        // SAFETY: the table lives as long as its type, which `KNOWN` keeps.
        if let Some(function) = unsafe { api.as_ref() }.tensor_from_py {
            let mut tensor = DlTensor::EMPTY;
            // SAFETY: the object is of the type that the table belongs to.
            if unsafe { function(object.as_ptr().cast(), &raw mut tensor) } != 0 {
                return Err(PyErr::fetch(object.py()));
            }
            return look(&tensor).map(Some);
        }
    }
    if known_only || !object.hasattr("__dlpack__")? {
        return Ok(None);
    }
    let capsule = object.call_method0("__dlpack__")?;
    let capsule = capsule.cast_into::<PyCapsule>()?;
    let managed = capsule.pointer_checked(Some(c"dltensor"))?;
    // SAFETY: a `DLManagedTensor` begins with its tensor, and the capsule, which was not consumed, owns it.
    look(unsafe { managed.cast::<DlTensor>().as_ref() }).map(Some)
}
