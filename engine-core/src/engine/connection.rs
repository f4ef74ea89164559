//! The life of the process: connect or listen, load, serve, end.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{bounded, unbounded};
use protocol::handshake::{HandshakeError, startup_handshake};
use protocol::transport::{FrameReader, FrameWriter, Listener, Stream, TransportError};
use protocol::{
    EngineConfig, EngineCoreReadyResponse, EngineCoreStartupMessage, LoadProgress, StartupFailure,
};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::engine::core::{EngineCore, EngineCoreError};
use crate::engine::core_proc::{CoreInput, EngineCoreProc};
use crate::engine::input_thread::{AbortRequests, InputContext, Ownership, process_input_socket};
use crate::engine::output_thread::OutputQueues;
use crate::engine::startup::{LoadedEngineCore, StartupError, load_engine_core};

/// Longest wait for each message of a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait for the clients to take their last frames.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a core whose frontend is gone may take to end by itself; a forward pass that takes
/// longer is cut off, since nobody is left to read what it brings.
const ORPHAN_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause after a connection that the system refused.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// Messages that may wait for the busy loop; a client that sends more waits itself.
const MAX_WAITING_INPUTS: usize = 4096;

/// Why the process ended other than by being told to.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The socket could not be used.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The frontend does not fit, or went away.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// The frontend sent no configuration to a core that it started.
    #[error("the frontend sent no configuration: a core that connects needs one")]
    NoConfiguration,
    /// The model could not be loaded or served.
    #[error(transparent)]
    Startup(#[from] StartupError),
    /// The busy loop ended with an error.
    #[error(transparent)]
    Engine(#[from] EngineCoreError),
    /// A thread or a signal handler could not be set up.
    #[error("can't set up the process: {0}")]
    Setup(#[from] io::Error),
}

/// Serves the one frontend that started this process and waits at `address`.
///
/// # Errors
/// See [`ServeError`]; the frontend was told, where it was there.
pub fn run_connected(address: &Path) -> Result<(), ServeError> {
    let (mut reader, mut writer) = Stream::connect(address)?.split();
    let metadata = startup_handshake(&mut reader, &mut writer, HANDSHAKE_TIMEOUT)?;
    let config = metadata.config.ok_or(ServeError::NoConfiguration)?;
    let loaded = load_engine_core(&config, &mut |progress| {
        // A frontend that is gone shows at the next read.
        let _ = writer.write(&EngineCoreStartupMessage::LoadProgress(progress));
    });
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(error) => {
            let failure = StartupFailure {
                message: error.to_string(),
            };
            let _ = writer.write(&EngineCoreStartupMessage::Failure(failure));
            return Err(error.into());
        }
    };
    let (mut process, server) = Server::new(loaded);
    // Ctrl-C at a terminal reaches both processes; what it means is for the frontend to say.
    server.handle_signals(config.shutdown_timeout_seconds, OnInterrupt::Ignore)?;
    server.serve_client(reader, writer, 0, Ownership::Owner)?;
    server.run(&mut process)
}

/// Loads the model, listens at `address` and serves every frontend that comes.
///
/// # Errors
/// See [`ServeError`].
pub fn run_listening(address: &Path, config: &EngineConfig) -> Result<(), ServeError> {
    // First of all: an address in use must not cost a model's loading time.
    let listener = Listener::bind(address)?;
    let loaded = load_engine_core(config, &mut |progress| log_progress(&progress))?;
    let (mut process, server) = Server::new(loaded);
    server.handle_signals(config.shutdown_timeout_seconds, OnInterrupt::End)?;
    tracing::info!(address = %address.display(), "ready");
    let acceptor = server.clone();
    std::thread::Builder::new()
        .name("accept".to_owned())
        .spawn(move || acceptor.accept_clients(&listener))?;
    let result = server.run(&mut process);
    // The accepting thread never returns, so the listener doesn't remove its file.
    let _ = std::fs::remove_file(address);
    result
}

fn log_progress(progress: &LoadProgress) {
    tracing::debug!(
        done_bytes = progress.done_bytes,
        total_bytes = progress.total_bytes,
        "loading the model"
    );
}

/// What an interrupt (Ctrl-C) means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnInterrupt {
    Ignore,
    End,
}

/// What the threads around the busy loop share.
#[derive(Clone)]
struct Server {
    context: InputContext,
    ready: EngineCoreReadyResponse,
}

impl Server {
    fn new(loaded: LoadedEngineCore) -> (EngineCoreProc, Self) {
        let (input_sender, input_queue) = bounded(MAX_WAITING_INPUTS);
        let (aborts_sender, aborts_queue) = unbounded();
        let output_queues = OutputQueues::default();
        let engine_core = EngineCore::new(loaded.scheduler, loaded.executor, aborts_queue);
        let context = InputContext {
            input_queue: input_sender,
            aborts_queue: aborts_sender,
            output_queues: output_queues.clone(),
            block_hasher: loaded.block_hasher,
            vocab: loaded.vocab,
            heartbeat: Arc::clone(&loaded.heartbeat),
        };
        let process =
            EngineCoreProc::new(engine_core, input_queue, output_queues, loaded.heartbeat);
        (
            process,
            Self {
                context,
                ready: loaded.ready,
            },
        )
    }

    /// Runs the busy loop to its end and lets the clients take their last frames.
    fn run(&self, process: &mut EngineCoreProc) -> Result<(), ServeError> {
        let result = process.run_busy_loop();
        self.context.output_queues.flush(FLUSH_TIMEOUT);
        Ok(result?)
    }

    /// Tells a client that the core is ready, and starts its two threads.
    fn serve_client(
        &self,
        reader: FrameReader,
        mut writer: FrameWriter,
        client_index: u32,
        ownership: Ownership,
    ) -> Result<(), ServeError> {
        let ready = EngineCoreReadyResponse {
            client_index,
            ..self.ready.clone()
        };
        writer.write(&EngineCoreStartupMessage::Ready(ready))?;
        let input_queue = self.context.input_queue.clone();
        let abort = move |request_ids| {
            let aborts = AbortRequests {
                client_index,
                request_ids,
            };
            // Where the busy loop is gone, so are the requests.
            let _ = input_queue.send(CoreInput::Abort(aborts));
        };
        self.context
            .output_queues
            .spawn_output_thread(client_index, writer, abort)?;
        let context = self.context.clone();
        std::thread::Builder::new()
            .name(format!("input-{client_index}"))
            .spawn(move || {
                process_input_socket(&context, reader, client_index, ownership);
                if ownership == Ownership::Owner {
                    std::thread::sleep(ORPHAN_TIMEOUT);
                    std::process::exit(0);
                }
            })?;
        Ok(())
    }

    /// Serves whoever connects. A client that doesn't shake hands in time holds up nobody else.
    fn accept_clients(&self, listener: &Listener) {
        for client_index in 0.. {
            let stream = match listener.accept() {
                Ok(stream) => stream,
                Err(error) => {
                    // Such as too many open files: it passes when a client leaves.
                    tracing::warn!(%error, "can't accept a client");
                    std::thread::sleep(ACCEPT_RETRY);
                    continue;
                }
            };
            let server = self.clone();
            let thread = std::thread::Builder::new().name(format!("handshake-{client_index}"));
            let spawned = thread.spawn(move || {
                let (mut reader, mut writer) = stream.split();
                let result = startup_handshake(&mut reader, &mut writer, HANDSHAKE_TIMEOUT)
                    .map_err(ServeError::from)
                    .and_then(|_| {
                        server.serve_client(reader, writer, client_index, Ownership::Guest)
                    });
                match result {
                    Ok(()) => tracing::info!(client_index, "client connected"),
                    Err(error) => tracing::warn!(client_index, %error, "client refused"),
                }
            });
            if let Err(error) = spawned {
                tracing::warn!(client_index, %error, "can't serve a client");
            }
        }
    }

    /// SIGTERM ends the process after `drain_seconds` at most; so does SIGINT, or nothing.
    fn handle_signals(
        &self,
        drain_seconds: f64,
        on_interrupt: OnInterrupt,
    ) -> Result<(), ServeError> {
        let drain = Duration::try_from_secs_f64(drain_seconds).unwrap_or(Duration::ZERO);
        let mut signals = Signals::new([SIGTERM, SIGINT])?;
        let input_queue = self.context.input_queue.clone();
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                for signal in signals.forever() {
                    if signal == SIGINT && on_interrupt == OnInterrupt::Ignore {
                        continue;
                    }
                    tracing::info!(signal, drain_seconds, "ending");
                    if input_queue.send(CoreInput::Shutdown { drain }).is_err() {
                        return;
                    }
                }
            })?;
        Ok(())
    }
}
