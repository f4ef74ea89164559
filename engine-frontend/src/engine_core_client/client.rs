//! What the rest of the frontend sees of a core.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use protocol::codec::{self, MAX_FRAME};
use protocol::handshake::wait_for_engine_startup;
use protocol::transport::tokio::Stream;
use protocol::{
    EngineConfig, EngineCoreOutputs, EngineCoreReadyResponse, EngineCoreRequest,
    EngineCoreRequestType, EngineHandshakeMetadata, LoadProgress, Siblings, UtilityRequest,
    UtilityResult,
};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::connection::{Connection, End, Shared};
use super::error::{EngineCoreClientError, EngineCoreStartupError, EngineDeadError};
use super::process::{EngineCoreProcess, LaunchOptions, StartedEngineCore};

/// Steps whose outputs may wait for [`EngineCoreClient::get_output`].
const MAX_WAITING_OUTPUTS: usize = 64;

/// Tokens of requests that are sent in one frame: well below what a frame may hold, decoded. What they share
/// travels once more for each so many.
const MAX_TOKENS_TOGETHER: usize = 1 << 20;

/// A connection to a core, for any number of tasks at once (put it in an `Arc`).
///
/// One of them must call [`Self::get_output`] in a loop: while 64 steps wait for it nothing more
/// is read, answers to utility calls included. Dropping the client closes the connection; a core
/// that it started is killed.
#[derive(Debug)]
pub struct EngineCoreClient {
    ready: EngineCoreReadyResponse,
    /// The core's process, where this client started it.
    process_id: Option<u32>,
    /// How long that may take to end when it has nothing left to do.
    exit_grace: Duration,
    /// To the connection's task. Not bounded: callers bound the requests in flight.
    frames: mpsc::UnboundedSender<Vec<u8>>,
    outputs: Mutex<mpsc::Receiver<EngineCoreOutputs>>,
    next_call_id: AtomicU64,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl EngineCoreClient {
    /// Starts a core with this configuration and waits until it is ready.
    ///
    /// The core's log goes to this process's standard error. `on_progress` hears of the model's
    /// loading. When this fails, or its future is dropped, no process is left behind.
    ///
    /// # Errors
    /// The executable is missing or doesn't run, the core ends or is silent for
    /// [`LaunchOptions::startup_timeout`], it is of another version, or it can't start and says
    /// why.
    pub async fn launch(
        options: &LaunchOptions,
        config: EngineConfig,
        on_progress: impl FnMut(LoadProgress),
    ) -> Result<Self, EngineCoreStartupError> {
        EngineCoreProcess::launch(options, config, on_progress)
            .await
            .map(Self::start)
    }

    /// Connects to a core that was started by hand with `--listen ADDRESS`, and waits until it is
    /// ready. `startup_timeout` is the longest silence.
    ///
    /// # Errors
    /// Nobody listens there, the core is silent or of another version, or can't start.
    pub async fn connect(
        address: &Path,
        startup_timeout: Duration,
        on_progress: impl FnMut(LoadProgress),
    ) -> Result<Self, EngineCoreStartupError> {
        let (mut reader, mut writer) = Stream::connect(address).await?.split();
        let metadata = EngineHandshakeMetadata { config: None };
        let ready = wait_for_engine_startup(
            &mut reader,
            &mut writer,
            &metadata,
            startup_timeout,
            on_progress,
        )
        .await?;
        Ok(Self::start(StartedEngineCore {
            process: None,
            reader,
            writer,
            ready,
        }))
    }

    /// Starts the task that owns the connection.
    fn start(core: StartedEngineCore) -> Self {
        let StartedEngineCore {
            process,
            reader,
            writer,
            ready,
        } = core;
        let (frames, received_frames) = mpsc::unbounded_channel();
        let (outputs, received_outputs) = mpsc::channel(MAX_WAITING_OUTPUTS);
        let shared = Arc::new(Shared::default());
        let process_id = process.as_ref().and_then(EngineCoreProcess::id);
        let exit_grace = process
            .as_ref()
            .map_or(Duration::ZERO, EngineCoreProcess::exit_grace);
        let connection = Connection {
            reader,
            writer,
            frames: received_frames,
            outputs,
            process,
            shared: Arc::clone(&shared),
        };
        Self {
            ready,
            process_id,
            exit_grace,
            frames,
            outputs: Mutex::new(received_outputs),
            next_call_id: AtomicU64::new(0),
            shared,
            task: tokio::spawn(connection.run()),
        }
    }

    /// What the core said when it was ready.
    pub fn ready_response(&self) -> &EngineCoreReadyResponse {
        &self.ready
    }

    /// The core's process, where this client started it.
    pub fn process_id(&self) -> Option<u32> {
        self.process_id
    }

    /// Whether the core still serves this client.
    ///
    /// # Errors
    /// It is gone, and why.
    pub fn check_alive(&self) -> Result<(), EngineDeadError> {
        match self.shared.end() {
            None => Ok(()),
            Some(end) => Err(dead(end)),
        }
    }

    /// Sends a request, under this connection's `client_index`. Never waits.
    ///
    /// # Errors
    /// The core is gone, or this request doesn't fit a frame.
    pub fn add_request(&self, request: EngineCoreRequest) -> Result<(), EngineCoreClientError> {
        self.encode(vec![request])?
            .into_iter()
            .try_for_each(|frame| self.send_frame(frame))
    }

    /// The frames of requests, under this connection's `client_index`: what siblings share is in a frame once.
    ///
    /// # Errors
    /// A request doesn't fit a frame.
    pub(crate) fn encode(
        &self,
        requests: Vec<EngineCoreRequest>,
    ) -> Result<Vec<Frame>, EngineCoreClientError> {
        frames_of(requests, self.ready.client_index)
            .map(|message| encode(&message))
            .collect()
    }

    /// Sends a frame of this client's. Never waits.
    ///
    /// # Errors
    /// The core is gone.
    pub(crate) fn send_frame(&self, frame: Frame) -> Result<(), EngineCoreClientError> {
        self.check_alive()?;
        // Refused only while the connection ends: callers learn that from `Shared::ended`.
        let _ = self.frames.send(frame.0);
        Ok(())
    }

    /// Ends requests, by their internal ids. Unknown ones are ignored. Never waits.
    ///
    /// # Errors
    /// The core is gone.
    pub fn abort_requests(&self, request_ids: Vec<String>) -> Result<(), EngineCoreClientError> {
        if request_ids.is_empty() {
            return Ok(self.check_alive()?);
        }
        self.send(&EngineCoreRequestType::Abort(request_ids))
    }

    /// Calls a method of the core, which executes it between two steps.
    ///
    /// # Errors
    /// The core doesn't know the method or fails at it, or is gone.
    pub async fn call_utility(
        &self,
        method: &str,
        args: &[serde_json::Value],
    ) -> Result<serde_json::Value, EngineCoreClientError> {
        let failed = |message: String| EngineCoreClientError::Utility {
            method: method.to_owned(),
            message,
        };
        let call = PendingCall::new(
            &self.shared,
            self.next_call_id.fetch_add(1, Ordering::Relaxed),
        );
        let (sender, answer) = oneshot::channel();
        self.shared.utility_calls().insert(call.call_id, sender);
        self.send(&EngineCoreRequestType::Utility(UtilityRequest {
            client_index: self.ready.client_index,
            call_id: call.call_id,
            method: method.to_owned(),
            args: serde_json::Value::from(args).to_string(),
        }))?;
        match answer.await {
            Ok(UtilityResult::Success(result)) => serde_json::from_str(&result)
                .map_err(|error| failed(format!("its result is not JSON: {error}"))),
            Ok(UtilityResult::Failure(message)) => Err(failed(message)),
            // Nobody else drops a call that is pending.
            Err(_) => Err(dead(self.shared.ended().await).into()),
        }
    }

    /// Waits for the outputs of the next step; `None` after [`Self::shutdown`]. A dropped future
    /// loses nothing.
    ///
    /// # Errors
    /// The core is gone. What it sent before comes first.
    pub async fn get_output(&self) -> Result<Option<EngineCoreOutputs>, EngineDeadError> {
        if let Some(outputs) = self.outputs.lock().await.recv().await {
            return Ok(Some(outputs));
        }
        match self.shared.ended().await {
            End::ShutDown => Ok(None),
            End::Dead(error) => Err(error),
        }
    }

    /// Kills a core that this client started, without waiting for its end; of one that was
    /// started by hand, closes the connection.
    pub fn kill(&self) {
        self.shared.stop.notify_one();
    }

    /// Ends a core that this client started, and waits for it: requests in flight have
    /// `drain_seconds` to finish (at most a year; what is no positive number is 0), and what they
    /// bring still comes from [`Self::get_output`]. A core that was started by hand goes on; only the connection is closed, which aborts this
    /// client's requests.
    ///
    /// # Errors
    /// The core died before or meanwhile, or had to be killed because it didn't end in time.
    pub async fn shutdown(&self, drain_seconds: f64) -> Result<(), EngineDeadError> {
        self.shared.is_shutting_down.store(true, Ordering::Relaxed);
        if self.process_id.is_some() {
            let drain_seconds = within_a_year(drain_seconds);
            let drain = Duration::from_secs_f64(drain_seconds);
            // That the core is gone already is found below.
            let _ = self.send(&EngineCoreRequestType::Shutdown { drain_seconds });
            let _ = timeout(drain.saturating_add(self.exit_grace), self.shared.ended()).await;
        }
        self.shared.stop.notify_one();
        match self.shared.ended().await {
            End::ShutDown => Ok(()),
            End::Dead(error) => Err(error),
        }
    }

    /// Encodes here, so that a message that can't be sent is its caller's error.
    fn send(&self, message: &EngineCoreRequestType) -> Result<(), EngineCoreClientError> {
        self.check_alive()?;
        self.send_frame(encode(message)?)
    }
}

impl Drop for EngineCoreClient {
    fn drop(&mut self) {
        // The socket and the process belong to the task.
        self.task.abort();
    }
}

/// A message as it is sent.
#[derive(Debug)]
pub(crate) struct Frame(Vec<u8>);

fn encode(message: &EngineCoreRequestType) -> Result<Frame, EngineCoreClientError> {
    let mut frame = Vec::new();
    codec::encode_frame(message, MAX_FRAME, &mut frame)?;
    Ok(Frame(frame))
}

/// Requests as messages, in their order: siblings that follow one another are one message, up to a size.
fn frames_of(
    requests: Vec<EngineCoreRequest>,
    client_index: u32,
) -> impl Iterator<Item = EngineCoreRequestType> {
    let mut requests = requests.into_iter().peekable();
    std::iter::from_fn(move || {
        let mut first = requests.next()?;
        first.client_index = client_index;
        let mut num_tokens = num_own_tokens(&first, None);
        let mut before = first.clone();
        let mut siblings = Siblings::new(first);
        while let Some(mut next) = requests.next_if(|next| {
            num_tokens += num_own_tokens(next, Some(&before));
            num_tokens <= MAX_TOKENS_TOGETHER && siblings.first().is_sibling(next)
        }) {
            next.client_index = client_index;
            siblings.push(&before, next.clone());
            before = next;
        }
        Some(match siblings.len() {
            1 => EngineCoreRequestType::Add(Box::new(before)),
            _ => EngineCoreRequestType::AddMany(Box::new(siblings)),
        })
    })
}

/// Tokens that a request has beside those of the one before it, and some for the rest of it.
fn num_own_tokens(request: &EngineCoreRequest, before: Option<&EngineCoreRequest>) -> usize {
    const REST: usize = 64;
    let prompt = &request.prompt_token_ids;
    let is_same = before.is_some_and(|before| before.prompt_token_ids.is_same(prompt));
    let own_prompt = if is_same { 0 } else { prompt.len() };
    own_prompt + request.output_token_ids.len() + REST
}

/// Longest time that requests may be given to finish, in seconds: a year. What is meant to be
/// longer is a mistake.
pub(crate) const MAX_SHUTDOWN_TIMEOUT: f64 = 365.0 * 24.0 * 3600.0;

/// A number of seconds that both processes can work with.
pub(crate) fn within_a_year(seconds: f64) -> f64 {
    if seconds.is_nan() {
        return 0.0;
    }
    seconds.clamp(0.0, MAX_SHUTDOWN_TIMEOUT)
}

/// The end as an error of a call that needs the core.
fn dead(end: End) -> EngineDeadError {
    match end {
        End::Dead(error) => error,
        End::ShutDown => EngineDeadError {
            reason: "it was shut down".to_owned(),
            exit_status: None,
        },
    }
}

/// Forgets a call whose caller stops waiting.
struct PendingCall<'a> {
    shared: &'a Shared,
    call_id: u64,
}

impl<'a> PendingCall<'a> {
    fn new(shared: &'a Shared, call_id: u64) -> Self {
        Self { shared, call_id }
    }
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        self.shared.utility_calls().remove(&self.call_id);
    }
}

#[cfg(test)]
mod tests {
    use protocol::{SamplingParams, StructuredOutputsConstraint, StructuredOutputsParams};

    use super::*;

    #[test]
    fn siblings_are_one_frame() {
        let constraint = StructuredOutputsConstraint::Json("x".repeat(100_000));
        let first = EngineCoreRequest {
            prompt_token_ids: (0..1000).collect(),
            sampling_params: SamplingParams {
                structured_outputs: Some(StructuredOutputsParams::new(constraint).into()),
                ..SamplingParams::default()
            },
            ..EngineCoreRequest::default()
        };
        let child = |index: u64| {
            let mut child = first.clone();
            child.request_id = format!("{index}_r");
            child.sampling_params.seed = Some(index);
            child
        };
        let requests: Vec<EngineCoreRequest> = (0..1000).map(child).collect();
        let messages: Vec<_> = frames_of(requests.clone(), 7).collect();
        let [message @ EngineCoreRequestType::AddMany(siblings)] = messages.as_slice() else {
            panic!("{} messages", messages.len());
        };
        assert_eq!(siblings.len(), 1000);
        let frame = encode(message).unwrap().0;
        assert!(frame.len() < 100_000 + 2_000 + 1000 * 50, "{}", frame.len());
        let decoded = codec::decode_body(&frame[codec::FRAME_HEADER..]).unwrap();
        let EngineCoreRequestType::AddMany(siblings) = decoded else {
            panic!("another message");
        };
        for (request, mut sent) in siblings.into_requests().zip(requests) {
            sent.client_index = 7;
            assert_eq!(request, sent);
        }
        // Others go by themselves, in their place.
        let mut other = child(1);
        other.priority = 5;
        let kinds: Vec<usize> = frames_of(vec![child(0), child(1), other, child(2)], 0)
            .map(|message| match message {
                EngineCoreRequestType::AddMany(siblings) => siblings.len(),
                _ => 1,
            })
            .collect();
        assert_eq!(kinds, [2, 1, 1]);
        // Long prompts of a list don't come to be too much for a frame together.
        let long = |index: u64| EngineCoreRequest {
            prompt_token_ids: vec![0; MAX_TOKENS_TOGETHER / 2 - 100].into(),
            ..child(index)
        };
        assert_eq!(frames_of((0..5).map(long).collect(), 0).count(), 3);
    }

    #[test]
    fn every_drain_time_is_a_duration() {
        for (given, used) in [
            (1.5, 1.5),
            (f64::NAN, 0.0),
            (-1.0, 0.0),
            (f64::INFINITY, MAX_SHUTDOWN_TIMEOUT),
            (1e300, MAX_SHUTDOWN_TIMEOUT),
        ] {
            assert_eq!(within_a_year(given), used, "{given}");
            assert!(Duration::try_from_secs_f64(used).is_ok());
        }
    }
}
