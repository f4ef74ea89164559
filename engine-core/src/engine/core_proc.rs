//! The busy loop: one thread that owns the engine and sleeps when there is nothing to do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, select};
use protocol::{
    EngineCoreMessage, EngineCoreOutput, EngineCoreOutputs, EngineCoreReadyResponse, FinishReason,
    RequestError, RequestErrorCode,
};

use crate::core::request::Request;
use crate::engine::core::{EngineCore, EngineCoreError};
use crate::engine::core_input::{CoreInput, ShutdownCause};
use crate::engine::heartbeat::Heartbeat;
use crate::engine::output_thread::OutputQueues;

/// [`EngineCore`] with its queues: what the process runs until it ends.
pub struct EngineCoreProc {
    engine_core: EngineCore,
    input_queue: Receiver<CoreInput>,
    output_queues: OutputQueues,
    heartbeat: Arc<Heartbeat>,
    shutdown: ShutdownState,
}

/// Whether, and by when, the process ends.
#[derive(Clone, Copy)]
enum ShutdownState {
    Running,
    /// No new requests; what is in flight has until then.
    Draining {
        deadline: Instant,
        cause: ShutdownCause,
    },
}

impl EngineCoreProc {
    pub(crate) fn new(
        engine_core: EngineCore,
        input_queue: Receiver<CoreInput>,
        output_queues: OutputQueues,
        heartbeat: Arc<Heartbeat>,
    ) -> Self {
        let shutdown = ShutdownState::Running;
        Self {
            engine_core,
            input_queue,
            output_queues,
            heartbeat,
            shutdown,
        }
    }

    /// Runs requests of the engine's own, before the busy loop. See [`EngineCore::warm_up`].
    ///
    /// # Errors
    /// The core can't run a step.
    pub(crate) fn warm_up(
        &mut self,
        ready: &EngineCoreReadyResponse,
    ) -> Result<(), EngineCoreError> {
        self.engine_core.warm_up(ready)
    }

    /// Runs until the process is to end; returns who wanted that.
    ///
    /// # Errors
    /// After an internal error; the clients are yet to be told why.
    pub fn run_busy_loop(&mut self) -> Result<ShutdownCause, EngineCoreError> {
        loop {
            if let Some(cause) = self.handle_shutdown() {
                return Ok(cause);
            }
            self.process_input_queue();
            self.process_engine_step()?;
        }
    }

    /// Whether it is time to end, and why; aborts what is in flight when its time is over.
    fn handle_shutdown(&mut self) -> Option<ShutdownCause> {
        let ShutdownState::Draining { deadline, cause } = self.shutdown else {
            return None;
        };
        if self.engine_core.has_unfinished_requests() && Instant::now() < deadline {
            return None;
        }
        let outputs = self.engine_core.abort_all_requests();
        self.send_outputs(outputs);
        // Requests that are still in the queue get their answer too.
        while let Ok(input) = self.input_queue.try_recv() {
            self.handle_input(input);
        }
        Some(cause)
    }

    /// Takes everything that arrived; sleeps until something does when there is no work.
    fn process_input_queue(&mut self) {
        self.heartbeat
            .beat(self.engine_core.has_work(), self.engine_core.is_paused());
        if !self.engine_core.has_work() {
            self.sleep_until_something_arrives();
        }
        while let Ok(input) = self.input_queue.try_recv() {
            self.handle_input(input);
        }
        // Each of these came by the input queue too; while idle no step would take them.
        self.engine_core.process_aborts_queue();
        self.engine_core.process_compiled_grammars();
        // Before the next forward pass: who waits for a status line need not wait for that.
        let outputs = self.engine_core.take_pending_outputs();
        self.send_outputs(outputs);
    }

    /// Sleeps until a message or a compiled grammar is there, or it is time to end.
    fn sleep_until_something_arrives(&mut self) {
        let deadline = match self.shutdown {
            ShutdownState::Running => crossbeam_channel::never(),
            ShutdownState::Draining { deadline, .. } => crossbeam_channel::at(deadline),
        };
        let manager = Arc::clone(self.engine_core.structured_output_manager());
        select! {
            recv(self.input_queue) -> input => match input {
                Ok(input) => self.handle_input(input),
                // Nobody is left who could send anything.
                Err(_) => self.begin_shutdown(Duration::ZERO, ShutdownCause::Owner),
            },
            recv(manager.done()) -> request_id => {
                if let Ok(request_id) = request_id {
                    self.engine_core.grammar_compiled(&request_id);
                }
            }
            recv(deadline) -> _ => {}
        }
    }

    fn handle_input(&mut self, input: CoreInput) {
        match input {
            CoreInput::Add(request) => match self.shutdown {
                ShutdownState::Running => self.engine_core.add_request(*request),
                ShutdownState::Draining { .. } => self.refuse_while_ending(&request),
            },
            CoreInput::Abort(aborts) => self.engine_core.abort_requests(&aborts),
            CoreInput::Utility(call) => {
                let client_index = call.client_index;
                let (utility_output, aborted) = self.engine_core.call_utility(call);
                self.send_outputs(aborted);
                self.output_queues
                    .send_utility_output(client_index, utility_output);
            }
            CoreInput::ClientGone(client_index) => {
                self.output_queues.remove(client_index);
                self.engine_core.abort_client(client_index);
            }
            CoreInput::Shutdown { drain, cause } => self.begin_shutdown(drain, cause),
        }
    }

    fn begin_shutdown(&mut self, drain: Duration, cause: ShutdownCause) {
        let asked = Instant::now() + drain;
        self.shutdown = match self.shutdown {
            ShutdownState::Running => ShutdownState::Draining {
                deadline: asked,
                cause,
            },
            // A second call can only bring the end closer.
            ShutdownState::Draining { deadline, cause } => ShutdownState::Draining {
                deadline: deadline.min(asked),
                cause,
            },
        };
        self.engine_core.resume_scheduler();
    }

    fn refuse_while_ending(&self, request: &Request) {
        let output = EngineCoreOutput {
            request_id: request.request_id().to_string(),
            finish_reason: Some(FinishReason::Abort),
            error: Some(RequestError::new(
                RequestErrorCode::ShuttingDown,
                "the engine core is shutting down",
            )),
            ..Default::default()
        };
        self.output_queues
            .send_output(request.client_index(), output);
    }

    fn process_engine_step(&mut self) -> Result<(), EngineCoreError> {
        if self.engine_core.has_work() {
            let outputs = self.engine_core.step()?;
            self.send_outputs(outputs);
        }
        Ok(())
    }

    fn send_outputs(&mut self, outputs: impl IntoIterator<Item = (u32, EngineCoreOutputs)>) {
        for (client_index, outputs) in outputs {
            // Statistics alone go to some client, or to none.
            let has_outputs = !outputs.outputs.is_empty();
            let sent = self
                .output_queues
                .send(client_index, EngineCoreMessage::Outputs(outputs));
            if has_outputs && !sent {
                // Nobody reads what its requests would bring.
                self.engine_core.abort_client(client_index);
            }
        }
    }
}
