//! One request's outputs, for threads that wait and for asyncio.

use std::mem;
use std::sync::Arc;

use engine_frontend::{AsyncLLM, GenerateError, GenerateRequest, RequestOutput, RequestStream};
use pyo3::prelude::*;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Notify};

use crate::engine::{check_process, wait};
use crate::errors::generate_error;
use crate::outputs::request_output;

/// A request. Dropped before its end, it is aborted.
#[pyclass(frozen, module = "formwork._engine")]
pub(crate) struct Request {
    handle: Handle,
    /// Taken by the drop alone.
    shared: Option<Arc<Shared>>,
    process: u32,
}

struct Shared {
    engine: Arc<AsyncLLM>,
    state: Mutex<State>,
    aborted: Notify,
}

enum State {
    /// Not sent yet.
    New(Box<GenerateRequest>),
    Running(RequestStream),
    Ended,
}

#[pymethods]
impl Request {
    /// Sends the request. Releases the GIL. Raises `ValidationError` where it is wrong and `EngineDeadError` where the
    /// core is gone; what the core finds wrong comes with the output.
    fn start(&self, py: Python<'_>) -> PyResult<()> {
        let shared = self.shared()?;
        let started = wait(py, &self.handle, async move { shared.start().await })?;
        started.map_err(|error| generate_error(py, &error))
    }

    /// Waits for the end and returns everything as one `RequestOutput`; `None` where the request was read to its end
    /// before. Releases the GIL. Raises as `start`.
    fn wait(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let shared = self.shared()?;
        let ended = wait(py, &self.handle, async move { shared.collect().await })?;
        match ended {
            Ok(output) => output.map(|output| request_output(py, output)).transpose(),
            Err(error) => Err(generate_error(py, &error)),
        }
    }

    /// Sends the request where that wasn't done, and calls `callback(output, error)` in a thread of the engine with the
    /// next `RequestOutput`, an exception, or `None` for both after the end.
    fn next(&self, callback: Py<PyAny>) -> PyResult<()> {
        let shared = self.shared()?;
        self.handle.spawn(async move {
            let next = shared.next().await;
            // It may wait for the GIL.
            tokio::task::spawn_blocking(move || {
                // Nobody is there any more where the interpreter has ended.
                Python::try_attach(|py| {
                    let called = match next {
                        None => callback.call1(py, (py.None(), py.None())),
                        Some(Err(error)) => {
                            callback.call1(py, (py.None(), generate_error(py, &error)))
                        }
                        Some(Ok(output)) => match request_output(py, output) {
                            Ok(output) => callback.call1(py, (output, py.None())),
                            Err(error) => callback.call1(py, (py.None(), error)),
                        },
                    };
                    if let Err(error) = called {
                        error.write_unraisable(py, None);
                    }
                });
            });
        });
        Ok(())
    }

    /// Ends the request, a `next` that waits included. Does nothing after its end.
    fn abort(&self) -> PyResult<()> {
        self.shared()?.aborted.notify_one();
        if let Some(shared) = &self.shared
            && let Ok(mut state) = shared.state.try_lock()
        {
            *state = State::Ended;
        }
        Ok(())
    }
}

impl Request {
    /// A request that isn't sent yet.
    pub(crate) fn new(engine: Arc<AsyncLLM>, handle: Handle, request: GenerateRequest) -> Self {
        Self {
            handle,
            shared: Some(Arc::new(Shared {
                engine,
                state: Mutex::new(State::New(Box::new(request))),
                aborted: Notify::new(),
            })),
            process: std::process::id(),
        }
    }

    fn shared(&self) -> PyResult<Arc<Shared>> {
        check_process(self.process)?;
        self.shared
            .clone()
            .ok_or_else(|| pyo3::exceptions::PyRuntimeError::new_err("the request is gone"))
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // Its locks may be held by threads of the other process.
            mem::forget(self.shared.take());
        }
    }
}

impl Shared {
    /// Sends the request, where that wasn't done.
    async fn start(&self) -> Result<(), GenerateError> {
        self.start_in(&mut *self.state.lock().await).await
    }

    async fn start_in(&self, state: &mut State) -> Result<(), GenerateError> {
        if matches!(state, State::New(_))
            && let State::New(request) = mem::replace(state, State::Ended)
        {
            *state = State::Running(self.engine.generate(*request).await?);
        }
        Ok(())
    }

    /// Everything until the end.
    async fn collect(&self) -> Result<Option<RequestOutput>, GenerateError> {
        let mut state = self.state.lock().await;
        self.start_in(&mut state).await?;
        match mem::replace(&mut *state, State::Ended) {
            State::Running(stream) => stream.collect().await.map(Some),
            State::New(_) | State::Ended => Ok(None),
        }
    }

    /// The next output; `None` after the last one, an error or an abort.
    async fn next(&self) -> Option<Result<RequestOutput, GenerateError>> {
        let mut state = self.state.lock().await;
        let next = async {
            if let Err(error) = self.start_in(&mut state).await {
                return Some(Err(error));
            }
            match &mut *state {
                State::Running(stream) => stream.next().await,
                State::New(_) | State::Ended => None,
            }
        };
        let next = tokio::select! {
            biased;
            () = self.aborted.notified() => None,
            next = next => next,
        };
        if !matches!(&next, Some(Ok(output)) if !output.finished) {
            *state = State::Ended;
        }
        next
    }
}
