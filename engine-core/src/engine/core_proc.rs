//! The busy loop: one thread that owns the engine and sleeps when there is nothing to do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use protocol::{
    EngineCoreMessage, EngineCoreOutput, EngineCoreOutputs, EngineDead, FinishReason, RequestError,
    RequestErrorCode, UtilityRequest,
};

use crate::engine::core::{EngineCore, EngineCoreError};
use crate::engine::heartbeat::Heartbeat;
use crate::engine::input_thread::AbortRequests;
use crate::engine::output_thread::OutputQueues;
use crate::request::Request;

/// What the input threads hand to the busy loop, in order of arrival.
pub(crate) enum CoreInput {
    /// A request, preprocessed.
    Add(Box<Request>),
    /// Ends requests of one client.
    Abort(AbortRequests),
    /// A method call.
    Utility(UtilityRequest),
    /// A client left: its requests end, its outputs have nowhere to go.
    ClientGone(u32),
    /// The process is to end: at once with 0 seconds, else after what is in flight.
    Shutdown { drain: Duration },
}

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

    /// Runs until the process is to end.
    ///
    /// # Errors
    /// After an internal error; every client was told why.
    pub fn run_busy_loop(&mut self) -> Result<(), EngineCoreError> {
        while self.handle_shutdown() {
            self.process_input_queue();
            if let Err(error) = self.process_engine_step() {
                let dead = EngineDead {
                    reason: error.to_string(),
                };
                self.output_queues
                    .broadcast(&EngineCoreMessage::EngineDead(dead));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Whether to go on; aborts what is in flight when its time is over.
    fn handle_shutdown(&mut self) -> bool {
        let ShutdownState::Draining { deadline } = self.shutdown else {
            return true;
        };
        if self.engine_core.has_unfinished_requests() && Instant::now() < deadline {
            return true;
        }
        let outputs = self.engine_core.abort_all_requests();
        self.send_outputs(outputs);
        // Requests that are still in the queue get their answer too.
        while let Ok(input) = self.input_queue.try_recv() {
            self.handle_input(input);
        }
        false
    }

    /// Takes everything that arrived; sleeps until something does when there is no work.
    fn process_input_queue(&mut self) {
        self.heartbeat.beat(self.engine_core.has_work());
        if !self.engine_core.has_work() {
            let input = match self.shutdown {
                ShutdownState::Running => self
                    .input_queue
                    .recv()
                    .map_err(|_| RecvTimeoutError::Disconnected),
                ShutdownState::Draining { deadline } => self.input_queue.recv_deadline(deadline),
            };
            match input {
                Ok(input) => self.handle_input(input),
                Err(RecvTimeoutError::Timeout) => {}
                // Nobody is left who could send anything.
                Err(RecvTimeoutError::Disconnected) => self.begin_shutdown(Duration::ZERO),
            }
        }
        while let Ok(input) = self.input_queue.try_recv() {
            self.handle_input(input);
        }
        // Each of these came by the input queue too; while idle no step would take them.
        self.engine_core.process_aborts_queue();
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
                let output = self.engine_core.call_utility(call);
                let outputs = EngineCoreOutputs {
                    utility_output: Some(output),
                    ..Default::default()
                };
                self.output_queues
                    .send(client_index, EngineCoreMessage::Outputs(outputs));
            }
            CoreInput::ClientGone(client_index) => {
                self.output_queues.remove(client_index);
                self.engine_core.abort_client(client_index);
            }
            CoreInput::Shutdown { drain } => self.begin_shutdown(drain),
        }
    }

    fn begin_shutdown(&mut self, drain: Duration) {
        let asked = Instant::now() + drain;
        let deadline = match self.shutdown {
            ShutdownState::Running => asked,
            // A second call can only bring the end closer.
            ShutdownState::Draining { deadline } => deadline.min(asked),
        };
        self.engine_core.resume_scheduler();
        self.shutdown = ShutdownState::Draining { deadline };
    }

    fn refuse_while_ending(&self, request: &Request) {
        let output = EngineCoreOutput {
            request_id: request.request_id().to_string(),
            finish_reason: Some(FinishReason::Abort),
            error: Some(RequestError {
                code: RequestErrorCode::ShuttingDown,
                message: "the engine core is shutting down".to_owned(),
                retryable: true,
            }),
            ..Default::default()
        };
        let outputs = EngineCoreOutputs {
            outputs: vec![output],
            ..Default::default()
        };
        self.output_queues
            .send(request.client_index(), EngineCoreMessage::Outputs(outputs));
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
            if !self
                .output_queues
                .send(client_index, EngineCoreMessage::Outputs(outputs))
            {
                // Nobody reads what its requests would bring.
                self.engine_core.abort_client(client_index);
            }
        }
    }
}
