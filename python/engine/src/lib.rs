//! The extension module of the Python package `formwork`: `engine-frontend` for Python programs. The engine core
//! stays a process of its own.
//!
//! | file | idea |
//! |---|---|
//! | `arguments` | keyword arguments as the flags of the executables |
//! | `params` | sampling parameters, read as the API reads them |
//! | `engine` | a core and the frontend's runtime |
//! | `request` | one request's outputs, for threads that wait and for asyncio |
//! | `outputs` | outputs as the dataclasses of `formwork.outputs` |
//! | `errors` | exceptions |

mod arguments;
mod engine;
mod errors;
mod outputs;
mod params;
mod request;

use pyo3::prelude::*;

/// The native part of formwork.
#[pymodule(gil_used = false)]
fn _engine(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add_class::<engine::Engine>()?;
    module.add_class::<params::Params>()?;
    module.add_class::<request::Request>()?;
    module.add_function(wrap_pyfunction!(arguments::serve_arguments, module)?)?;
    module.add("ValidationError", py.get_type::<errors::ValidationError>())?;
    module.add("EngineDeadError", py.get_type::<errors::EngineDeadError>())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    Ok(())
}
