//! An engine: a core process, and the frontend's runtime in this one.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine_frontend::openai::DefaultSamplingParams;
use engine_frontend::{
    AsyncLLM, Prompt, StartupError, fetch_model, frontend_runtime, init_logging, start_engine,
};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tokio::runtime::{Handle, Runtime};
use tokio::time::timeout;

use crate::arguments::{Arguments, engine_args};
use crate::errors::{EngineDeadError, startup_error, validation_error};
use crate::params::{Params, chat_prompt};
use crate::request::Request;

/// How often a wait looks whether Ctrl-C was pressed.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// A core process and what serves it here.
#[pyclass(frozen, module = "formwork._engine")]
pub(crate) struct Engine {
    /// `None` after `shutdown`.
    running: Mutex<Option<Running>>,
    /// The process that started it.
    process: u32,
}

struct Running {
    runtime: Runtime,
    engine: Arc<AsyncLLM>,
    defaults: DefaultSamplingParams,
}

#[pymethods]
impl Engine {
    /// Starts the core and loads the model, which is downloaded first where it is a name on the Hub. `executable` is
    /// the core's. Raises `ValidationError` for a wrong argument, `FileNotFoundError` where there is no such model,
    /// and `RuntimeError` where it can't be loaded.
    #[new]
    fn new(py: Python<'_>, arguments: Arguments, executable: PathBuf) -> PyResult<Self> {
        let mut args = engine_args(arguments).map_err(|error| validation_error(py, &error))?;
        if args.engine_core_address.is_none() {
            args.engine_core.get_or_insert(executable);
        }
        init_logging();
        let runtime =
            frontend_runtime().map_err(|error| startup_error(py, &StartupError::Runtime(error)))?;
        let start = async move {
            let given = args.clone();
            let fetching = tokio::task::spawn_blocking(move || fetch_model(&given));
            let args = fetching
                .await
                .map_err(|error| StartupError::Runtime(error.into()))??;
            start_engine(&args).await
        };
        let started = wait(py, runtime.handle(), start);
        let started =
            started.and_then(|started| started.map_err(|error| startup_error(py, &error)));
        match started {
            Ok((engine, defaults)) => Ok(Self {
                running: Mutex::new(Some(Running {
                    runtime,
                    engine: Arc::new(engine),
                    defaults,
                })),
                process: std::process::id(),
            }),
            Err(error) => {
                // A download that goes on in a thread isn't waited for.
                runtime.shutdown_background();
                Err(error)
            }
        }
    }

    /// A request, which begins with its `start` or `next`. The prompt is one of `text`, `token_ids` and `chat`, a JSON
    /// object with the fields of a chat completion that make a prompt. Raises `ValidationError`.
    #[pyo3(signature = (request_id, params, *, text=None, token_ids=None, chat=None, priority=0, seed=None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn request(
        &self,
        py: Python<'_>,
        request_id: String,
        params: &Params,
        text: Option<String>,
        token_ids: Option<Vec<u32>>,
        chat: Option<&str>,
        priority: i64,
        seed: Option<u64>,
    ) -> PyResult<Request> {
        let prompt = match (text, token_ids, chat) {
            (Some(text), None, None) => Prompt::Text(text),
            (None, Some(token_ids), None) => Prompt::TokenIds(token_ids),
            (None, None, Some(chat)) => {
                chat_prompt(chat).map_err(|error| validation_error(py, &error))?
            }
            _ => {
                let message = "give one of text, token_ids and chat";
                return Err(PyValueError::new_err(message));
            }
        };
        let request = params.request(request_id, prompt, priority, seed);
        self.with(|running| {
            let handle = running.runtime.handle().clone();
            Ok(Request::new(running.engine.clone(), handle, request))
        })
    }

    /// Sampling parameters that the model's generation_config.json recommends, by vLLM's names.
    fn default_sampling_params<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let defaults = self.with(|running| Ok(running.defaults))?;
        let dict = PyDict::new(py);
        let floats = [
            ("temperature", defaults.temperature),
            ("top_p", defaults.top_p),
            ("min_p", defaults.min_p),
            ("repetition_penalty", defaults.repetition_penalty),
        ];
        for (name, value) in floats {
            if let Some(value) = value {
                dict.set_item(name, shortest(value))?;
            }
        }
        for (name, value) in [
            ("top_k", defaults.top_k),
            ("max_tokens", defaults.max_tokens),
        ] {
            if let Some(value) = value {
                dict.set_item(name, value)?;
            }
        }
        Ok(dict)
    }

    /// Tokens of the longest sequence, prompt and output together.
    #[getter]
    fn max_model_len(&self) -> PyResult<u32> {
        self.with(|running| Ok(running.engine.ready_response().max_model_len))
    }

    /// Ends the core and waits for it. Requests in flight end with an error. A second call does nothing.
    fn shutdown(&self, py: Python<'_>) {
        if self.is_forked() {
            return;
        }
        // Not under the lock: a thread that waits for it may have the GIL.
        let running = self.running().take();
        if let Some(running) = running {
            py.detach(|| {
                // The core is gone either way.
                let _ = running.runtime.block_on(running.engine.shutdown(0.0));
                drop(running.engine);
                running.runtime.shutdown_background();
            });
        }
    }
}

impl Engine {
    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    /// Calls `f` with what runs.
    fn with<T>(&self, f: impl FnOnce(&Running) -> PyResult<T>) -> PyResult<T> {
        check_process(self.process)?;
        match &*self.running() {
            Some(running) => f(running),
            None => Err(EngineDeadError::new_err(
                "the engine was shut down: make another",
            )),
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let running = self.running().take();
        if self.is_forked() {
            // Its threads are the other process's.
            std::mem::forget(running);
        } else if let Some(running) = running {
            // The core is killed with its client, and nothing is waited for.
            drop(running.engine);
            running.runtime.shutdown_background();
        }
    }
}

/// An exception if this is a fork of the process `maker`, whose threads are not here.
pub(crate) fn check_process(maker: u32) -> PyResult<()> {
    if maker == std::process::id() {
        return Ok(());
    }
    Err(PyRuntimeError::new_err(
        "this engine was made before os.fork(), whose child has none of its threads: make one in the child, or start \
         processes by \"spawn\"",
    ))
}

/// Waits for a future without the GIL. Ctrl-C ends the wait, and drops the future.
///
/// # Errors
/// What a signal's handler raised, such as `KeyboardInterrupt`; or the future panicked.
pub(crate) fn wait<T: Send + 'static>(
    py: Python<'_>,
    handle: &Handle,
    future: impl Future<Output = T> + Send + 'static,
) -> PyResult<T> {
    let mut task = handle.spawn(future);
    loop {
        let waited =
            py.detach(|| handle.block_on(async { timeout(SIGNAL_INTERVAL, &mut task).await }));
        match waited {
            Ok(Ok(output)) => return Ok(output),
            Ok(Err(error)) if error.is_cancelled() => {
                return Err(EngineDeadError::new_err(
                    "the engine was shut down meanwhile",
                ));
            }
            Ok(Err(error)) => return Err(PyRuntimeError::new_err(error.to_string())),
            Err(_) => {
                if let Err(raised) = py.check_signals() {
                    task.abort();
                    return Err(raised);
                }
            }
        }
    }
}

/// The number of 64 bits that is written as this one is: 0.6 stays 0.6.
fn shortest(value: f32) -> f64 {
    value
        .to_string()
        .parse()
        .unwrap_or_else(|_| f64::from(value))
}
