//! A frontend of a few lines, so that the real core can be asked anything.

use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use protocol::transport::{FrameReader, FrameWriter, Listener, PrivateAddress, Stream};
use protocol::{
    EngineConfig, EngineCoreMessage, EngineCoreOutput, EngineCoreReadyResponse, EngineCoreRequest,
    EngineCoreRequestType, EngineCoreStartupMessage, EngineHandshakeMetadata, FinishReason, Hello,
    SamplingParams,
};

/// Longer than anything takes that doesn't hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A process that is killed when the test ends, however it ends.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    pub(crate) fn spawn(command: &mut Command) -> Self {
        Self(
            command
                .stdin(Stdio::null())
                .spawn()
                .expect("the executable starts"),
        )
    }

    pub(crate) fn signal(&self, signal: i32) {
        // SAFETY: `kill` has no memory effects; the process is a child that was not waited for.
        let result = unsafe { libc::kill(self.0.id() as i32, signal) };
        assert_eq!(result, 0, "the process is there");
    }

    /// Waits for the end of the process.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.0.try_wait().expect("waiting works") {
                return status;
            }
            assert!(Instant::now() < deadline, "the process doesn't end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A frontend's end of a connection.
pub(crate) struct Client {
    pub(crate) reader: FrameReader,
    pub(crate) writer: FrameWriter,
}

impl Client {
    /// Shakes hands over `stream` and waits until the core is ready.
    pub(crate) fn new(
        stream: Stream,
        config: Option<EngineConfig>,
    ) -> (Self, EngineCoreReadyResponse) {
        let (reader, writer) = stream.split();
        let mut client = Self { reader, writer };
        client.greet(&Hello::current());
        client
            .writer
            .write(&EngineHandshakeMetadata { config })
            .unwrap();
        match client.startup_message() {
            EngineCoreStartupMessage::Ready(ready) => (client, ready),
            other => panic!("not ready: {other:?}"),
        }
    }

    /// Exchanges the first frames.
    pub(crate) fn greet(&mut self, hello: &Hello) -> Hello {
        self.writer.write(hello).unwrap();
        self.reader
            .read_within(PATIENCE)
            .unwrap()
            .expect("the core says hello")
    }

    /// The first startup message that isn't progress.
    pub(crate) fn startup_message(&mut self) -> EngineCoreStartupMessage {
        loop {
            match self
                .reader
                .read_within(PATIENCE)
                .unwrap()
                .expect("the core says how it went")
            {
                EngineCoreStartupMessage::LoadProgress(_) => {}
                other => return other,
            }
        }
    }

    pub(crate) fn send(&mut self, message: &EngineCoreRequestType) {
        self.writer.write(message).unwrap();
    }

    pub(crate) fn add(&mut self, request_id: &str, params: SamplingParams) {
        self.send(&EngineCoreRequestType::Add(Box::new(EngineCoreRequest {
            request_id: request_id.to_owned(),
            prompt_token_ids: (100..110).collect(),
            sampling_params: params,
            ..EngineCoreRequest::default()
        })));
    }

    /// The next message; `None` when the core closed the connection.
    pub(crate) fn message(&mut self) -> Option<EngineCoreMessage> {
        self.reader.read_within(PATIENCE).unwrap()
    }

    /// The next request's outputs; frames without any are passed over.
    pub(crate) fn outputs(&mut self) -> Vec<EngineCoreOutput> {
        loop {
            match self.message().expect("the core goes on") {
                EngineCoreMessage::Outputs(outputs) if outputs.outputs.is_empty() => {}
                EngineCoreMessage::Outputs(outputs) => return outputs.outputs,
                EngineCoreMessage::EngineDead(dead) => panic!("{dead:?}"),
            }
        }
    }

    /// Tokens and end of one request, whatever else arrives.
    pub(crate) fn finish(
        &mut self,
        request_id: &str,
    ) -> (Vec<u32>, FinishReason, EngineCoreOutput) {
        let mut token_ids = Vec::new();
        loop {
            for output in self.outputs() {
                if output.request_id == request_id {
                    token_ids.extend(&output.new_token_ids);
                    if let Some(reason) = output.finish_reason {
                        return (token_ids, reason, output);
                    }
                }
            }
        }
    }
}

/// Greedy, with a fixed length.
pub(crate) fn greedy(max_tokens: u32) -> SamplingParams {
    SamplingParams {
        temperature: 0.0,
        ignore_eos: true,
        max_tokens: Some(max_tokens),
        ..SamplingParams::default()
    }
}

/// The built-in model with little memory.
pub(crate) fn small_config() -> EngineConfig {
    let mut config = EngineConfig::default();
    config.cache_config.num_blocks_override = Some(256);
    config.model_config.num_threads = Some(2);
    config
}

/// A real core, started as a frontend starts it, and this test as its frontend.
pub(crate) fn launch(config: EngineConfig) -> (Process, Client, EngineCoreReadyResponse) {
    let (process, stream) = launch_unconfigured();
    let (client, ready) = Client::new(stream, Some(config));
    (process, client, ready)
}

/// A real core that waits for the handshake.
pub(crate) fn launch_unconfigured() -> (Process, Stream) {
    let address = PrivateAddress::new().unwrap();
    let listener = Listener::bind(address.path()).unwrap();
    let mut command = integration_tests::formwork_engine_core();
    let process = Process::spawn(command.arg("--connect").arg(address.path()));
    (process, listener.accept().unwrap())
}

/// Connects as soon as somebody listens.
pub(crate) fn connect(address: &Path) -> Stream {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match Stream::connect(address) {
            Ok(stream) => return stream,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
