//! The life of the process: connect or listen, load, serve, end.

use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, bounded, unbounded};
use logging::Pace;
use protocol::handshake::{HandshakeError, startup_handshake};
use protocol::transport::{FrameReader, FrameWriter, Listener, Stream, TransportError};
use protocol::{
    EngineConfig, EngineCoreMessage, EngineCoreReadyResponse, EngineCoreStartupMessage, EngineDead,
    LoadProgress, StartupFailure,
};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::engine::confinement::Confine;
use crate::engine::core::{EngineCore, EngineCoreError};
use crate::engine::core_input::{AbortRequests, CoreInput, ShutdownCause};
use crate::engine::core_proc::EngineCoreProc;
use crate::engine::input_thread::{InputContext, Ownership, drain_time, process_input_socket};
use crate::engine::output_thread::OutputQueues;
use crate::engine::startup::{LoadedEngineCore, StartupError, load_engine_core};
use crate::panic_message::panic_message;

/// Longest wait for each message of a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Most connections at a time; one more is closed at once.
const MAX_CLIENTS: usize = 256;
/// Longest wait for the clients to take their last frames.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a core whose frontend is gone may take to end by itself; a forward pass that takes
/// longer is cut off, since nobody is left to read what it brings.
const ORPHAN_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause after a connection that the system refused.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// Time between two lines that say how far the model is loaded.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);
/// Number of the frontend that started this process.
const OWNER_INDEX: u32 = 0;

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
    Startup(Box<StartupError>),
    /// The same, and the frontend that started this process knows it.
    #[error(transparent)]
    StartupTold(Box<StartupError>),
    /// The busy loop ended with an error.
    #[error(transparent)]
    Engine(#[from] EngineCoreError),
    /// The busy loop panicked.
    #[error("the busy loop panicked: {0}")]
    Panicked(String),
    /// A thread or a signal handler could not be set up.
    #[error("can't set up the process: {0}")]
    Setup(#[from] io::Error),
}

impl From<StartupError> for ServeError {
    fn from(error: StartupError) -> Self {
        Self::Startup(Box::new(error))
    }
}

impl ServeError {
    /// Whether the frontend that started this process has the message, so that it need not stand
    /// in the log as well.
    pub fn is_told(&self) -> bool {
        matches!(self, Self::StartupTold(_))
    }
}

/// Serves the one frontend that started this process and waits at `address`. Call it before any thread
/// is started, so that all are confined. `shared_weights` is as for [`load_engine_core`].
///
/// # Errors
/// See [`ServeError`]; the frontend was told, where it was there.
pub fn run_connected(
    address: &Path,
    shared_weights: Option<File>,
    confine: &Confine,
) -> Result<(), ServeError> {
    let (mut reader, mut writer) = Stream::connect(address)?.split();
    let metadata = startup_handshake(&mut reader, &mut writer, HANDSHAKE_TIMEOUT)?;
    let config = metadata.config.ok_or(ServeError::NoConfiguration)?;
    confine.before_loading(&config);
    let input_context = spawn_owner_input_thread(reader)?;
    let loaded = load_engine_core(&config, shared_weights, &mut |progress| {
        // The input thread notices when the frontend is gone.
        let _ = writer.write(&EngineCoreStartupMessage::LoadProgress(progress));
    });
    let started = loaded.and_then(|loaded| {
        confine.after_loading(&config.model_config);
        Server::start(loaded)
    });
    let (mut process, server) = match started {
        Ok(started) => started,
        Err(error) => {
            let failure = StartupFailure {
                message: error.to_string(),
            };
            return Err(
                match writer.write(&EngineCoreStartupMessage::Failure(failure)) {
                    Ok(()) => ServeError::StartupTold(Box::new(error)),
                    Err(_) => error.into(),
                },
            );
        }
    };
    // Ctrl-C at a terminal reaches both processes; what it means is for the frontend to say.
    server.handle_signals(config.shutdown_timeout_seconds, OnInterrupt::Ignore)?;
    match server.greet_client(writer, OWNER_INDEX) {
        // It left while the model was loaded: there is nothing to do, and nothing failed.
        Err(ServeError::Transport(_)) => return Ok(()),
        result => result?,
    }
    // The thread waits for it; one that is gone is ending the process.
    let _ = input_context.send(server.context.clone());
    server.run(&mut process)
}

/// Reads the frames of the frontend that owns this process, and ends the process when it is gone,
/// while the model is being loaded too. Messages wait until the thread gets its context.
fn spawn_owner_input_thread(mut reader: FrameReader) -> Result<Sender<InputContext>, ServeError> {
    let (sender, contexts) = bounded::<InputContext>(1);
    std::thread::Builder::new()
        .name(format!("input-{OWNER_INDEX}"))
        .spawn(move || {
            let _exit = ExitWhenOrphaned;
            let first = reader.read();
            let context = match first {
                Ok(Some(_)) => contexts.recv().ok(),
                _ => contexts.try_recv().ok(),
            };
            if let Some(context) = context {
                process_input_socket(&context, first, reader, OWNER_INDEX, Ownership::Owner);
            }
        })?;
    Ok(sender)
}

/// Ends the process a little later, should the busy loop not do so by itself.
struct ExitWhenOrphaned;

impl Drop for ExitWhenOrphaned {
    fn drop(&mut self) {
        std::thread::sleep(ORPHAN_TIMEOUT);
        std::process::exit(0);
    }
}

/// Loads the model, listens at `address` and serves every frontend that comes. Call it before any
/// thread is started, so that all are confined.
///
/// # Errors
/// See [`ServeError`].
pub fn run_listening(
    address: &Path,
    config: &EngineConfig,
    confine: &Confine,
) -> Result<(), ServeError> {
    // First of all: an address in use must not cost a model's loading time.
    let listener = Listener::bind(address)?;
    confine.before_loading(config);
    let mut pace = Pace::new(PROGRESS_INTERVAL, Instant::now());
    let loaded = load_engine_core(config, None, &mut |progress| {
        if pace.take_turn(Instant::now()) {
            log_progress(&progress);
        }
    })?;
    confine.after_loading(&config.model_config);
    let (mut process, server) = Server::start(loaded)?;
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
    let (done, total) = (progress.done_bytes >> 20, progress.total_bytes >> 20);
    tracing::info!("loading the model: {done} of {total} MiB");
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
    /// An engine that is ready for requests: it has answered some of its own.
    fn start(loaded: LoadedEngineCore) -> Result<(EngineCoreProc, Self), StartupError> {
        let (mut process, server) = Self::new(loaded);
        let ready = &server.ready;
        process.warm_up(ready)?;
        Ok((process, server))
    }

    fn new(loaded: LoadedEngineCore) -> (EngineCoreProc, Self) {
        // Unbounded, as the scheduler's queue behind it is: a thread that waited here would not
        // notice that its client left.
        let (input_sender, input_queue) = unbounded();
        let (aborts_sender, aborts_queue) = unbounded();
        let output_queues = OutputQueues::default();
        let manager = loaded.structured_output_manager;
        let engine_core = EngineCore::new(loaded.scheduler, loaded.executor, aborts_queue)
            .with_structured_output(Arc::clone(&manager));
        let context = InputContext {
            input_queue: input_sender,
            aborts_queue: aborts_sender,
            output_queues: output_queues.clone(),
            block_hasher: loaded.block_hasher,
            vocab: loaded.vocab,
            max_logprobs: loaded.ready.max_logprobs,
            pooler: loaded.ready.pooler,
            heartbeat: Arc::clone(&loaded.heartbeat),
            structured_output_manager: manager,
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
        // After a panic nothing of the loop is used again.
        let result = catch_unwind(AssertUnwindSafe(|| process.run_busy_loop()));
        let result = match result {
            Ok(ended) => ended.map_err(ServeError::from),
            Err(panic) => Err(ServeError::Panicked(panic_message(panic))),
        };
        let output_queues = &self.context.output_queues;
        let reason = match &result {
            Ok(ShutdownCause::Owner) => None,
            Ok(ShutdownCause::Signal) => Some("it was told to end by a signal".to_owned()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(reason) = reason {
            output_queues.broadcast(&EngineCoreMessage::EngineDead(EngineDead { reason }));
        }
        output_queues.flush(FLUSH_TIMEOUT);
        result.map(|_| ())
    }

    /// Tells a client that the core is ready, and starts the thread that writes to it.
    fn greet_client(&self, mut writer: FrameWriter, client_index: u32) -> Result<(), ServeError> {
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
        let output_queues = &self.context.output_queues;
        Ok(output_queues.spawn_output_thread(client_index, writer, abort)?)
    }

    /// Shakes hands with a client that connected and reads its frames until it leaves.
    fn serve_guest(&self, stream: Stream, client_index: u32) -> Result<(), ServeError> {
        let (mut reader, mut writer) = stream.split();
        startup_handshake(&mut reader, &mut writer, HANDSHAKE_TIMEOUT)?;
        self.greet_client(writer, client_index)?;
        tracing::info!(client_index, "client connected");
        let first = reader.read();
        process_input_socket(&self.context, first, reader, client_index, Ownership::Guest);
        Ok(())
    }

    /// Serves whoever connects. A client that doesn't shake hands in time holds up nobody else.
    fn accept_clients(&self, listener: &Listener) {
        let num_clients = Arc::new(());
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
            // Every thread that serves a client holds one reference.
            let client = Arc::clone(&num_clients);
            if Arc::strong_count(&client) > MAX_CLIENTS + 1 {
                tracing::warn!(
                    client_index,
                    MAX_CLIENTS,
                    "too many clients: one was turned away"
                );
                continue;
            }
            let server = self.clone();
            let thread = std::thread::Builder::new().name(format!("input-{client_index}"));
            let spawned = thread.spawn(move || {
                let _client = client;
                if let Err(error) = server.serve_guest(stream, client_index) {
                    tracing::warn!(client_index, %error, "client refused");
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
        let drain = drain_time(drain_seconds);
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
                    let cause = ShutdownCause::Signal;
                    if input_queue
                        .send(CoreInput::Shutdown { drain, cause })
                        .is_err()
                    {
                        return;
                    }
                }
            })?;
        Ok(())
    }
}
