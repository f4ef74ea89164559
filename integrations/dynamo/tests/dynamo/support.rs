//! What the tests share: a worker in a process of its own, a client of Dynamo's runtime, and `formwork-batch`'s answers
//! to compare with.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use dynamo_backend_common::{
    DynamoError, FinishReason, GuidedDecodingOptions, LLMEngineOutput, OutputOptions,
    PreprocessedRequest, SamplingOptions, StopConditions,
};
use dynamo_runtime::distributed::{DiscoveryBackend, DistributedConfig, RequestPlaneMode};
use dynamo_runtime::pipeline::{Context, ManyOut, PushRouter, RouterMode};
use dynamo_runtime::protocols::annotated::Annotated;
use dynamo_runtime::protocols::maybe_error::MaybeError;
use dynamo_runtime::storage::kv::Selector;
use dynamo_runtime::{DistributedRuntime, Runtime};
use formwork_dynamo::Args;
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

/// Longer than anything takes.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// A schema with a property of each kind that matters.
pub(crate) fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "age": {"type": "integer", "minimum": 1, "maximum": 99},
            "colour": {"enum": ["red", "green", "blue"]}
        },
        "required": ["name", "age", "colour"],
        "additionalProperties": false
    })
}

/// Asserts that a text is an answer under [`schema`].
pub(crate) fn assert_valid(text: &str) {
    let answer: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
    let object = answer.as_object().unwrap();
    let names: Vec<&str> = object.keys().map(String::as_str).collect();
    assert_eq!(names, ["name", "age", "colour"], "{text}");
    assert!(
        object["name"].as_str().unwrap().chars().count() <= 12,
        "{text}"
    );
    assert!(
        (1..=99).contains(&object["age"].as_i64().unwrap()),
        "{text}"
    );
    assert!(
        ["red", "green", "blue"].contains(&object["colour"].as_str().unwrap()),
        "{text}"
    );
}

/// One of Formwork's executables.
pub(crate) fn executable(name: &str) -> PathBuf {
    let folder = std::env::var_os("FORMWORK_BIN")
        .expect("FORMWORK_BIN names the folder with Formwork's executables");
    Path::new(&folder).join(name)
}

/// Flags that every worker of these tests has.
pub(crate) fn args(flags: &[&str]) -> Args {
    let core = executable("formwork-engine-core").display().to_string();
    let all = ["formwork-dynamo", "--threads", "1", "--engine-core", &core];
    let all = all
        .into_iter()
        .chain(flags.iter().copied())
        .map(std::ffi::OsString::from);
    Args::read(all).unwrap()
}

/// The answer of `formwork-batch` to one request.
pub(crate) async fn batch(url: &str, mut body: Value) -> Value {
    body["return_token_ids"] = json!(true);
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in"), folder.path().join("out"));
    let line = json!({"custom_id": "a", "method": "POST", "url": url, "body": body});
    writeln!(std::fs::File::create(&input).unwrap(), "{line}").unwrap();
    let mut command = Command::new(executable("formwork-batch"));
    command
        .arg("-i")
        .arg(&input)
        .arg("-o")
        .arg(&output)
        .args(["--threads", "1", "--no-progress"]);
    let status = command.status().await.unwrap();
    assert!(status.success());
    let line = std::fs::read_to_string(output).unwrap();
    let mut result: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(result["response"]["status_code"], 200, "{result}");
    result["response"]["body"].take()
}

pub(crate) fn ids(value: &Value) -> Vec<u32> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|id| u32::try_from(id.as_u64().unwrap()).unwrap())
        .collect()
}

/// A request as Dynamo's frontend makes it.
pub(crate) fn request(
    token_ids: &[u32],
    max_tokens: u32,
    change: impl FnOnce(&mut StopConditions, &mut SamplingOptions, &mut OutputOptions),
) -> PreprocessedRequest {
    let (mut stops, mut sampling, mut output) = Default::default();
    change(&mut stops, &mut sampling, &mut output);
    stops.max_tokens = Some(max_tokens);
    let mut request = PreprocessedRequest::builder();
    request
        .model("formwork-builtin".to_owned())
        .token_ids(token_ids.to_vec());
    request
        .stop_conditions(stops)
        .sampling_options(sampling)
        .output_options(output);
    request.build().unwrap()
}

/// The constraint of [`schema`].
pub(crate) fn by_schema() -> GuidedDecodingOptions {
    GuidedDecodingOptions {
        json: Some(schema()),
        ..GuidedDecodingOptions::default()
    }
}

/// A stream's tokens and its end.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) token_ids: Vec<u32>,
    pub(crate) end: Option<LLMEngineOutput>,
    pub(crate) error: Option<DynamoError>,
}

impl Told {
    pub(crate) fn reason(&self) -> Option<FinishReason> {
        self.end.as_ref()?.finish_reason.clone()
    }
}

/// Reads a stream that comes over the request plane to its end.
pub(crate) async fn read(mut stream: ManyOut<Annotated<LLMEngineOutput>>) -> Told {
    let mut told = Told::default();
    while let Some(item) = tokio::time::timeout(LONG, stream.next()).await.unwrap() {
        if let Some(error) = item.err() {
            told.error = Some(error);
            continue;
        }
        let Some(output) = item.data else { continue };
        assert!(told.end.is_none(), "nothing comes after the end");
        told.token_ids.extend(&output.token_ids);
        if output.finish_reason.is_some() {
            told.end = Some(output);
        }
    }
    told
}

/// `formwork-dynamo` in a process of its own, found by a folder.
pub(crate) struct Worker {
    pub(crate) process: Child,
    folder: tempfile::TempDir,
    pub(crate) system_port: u16,
}

impl Worker {
    pub(crate) fn start(flags: &[&str]) -> Self {
        let core = executable("formwork-engine-core");
        Self::start_with(&core, flags)
    }

    pub(crate) fn start_with(core: &Path, flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let system_port = free_port();
        let mut command = Command::new(env!("CARGO_BIN_EXE_formwork-dynamo"));
        command
            .args([
                "--threads",
                "1",
                "--discovery-backend",
                "file",
                "--request-plane",
                "tcp",
            ])
            .args(["--event-plane", "zmq", "--engine-core"])
            .arg(core)
            .args(flags)
            .env("DYN_FILE_KV", folder.path())
            .env("DYN_SYSTEM_PORT", system_port.to_string())
            .env("DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS", "0")
            .env("DYN_WORKER_GRACEFUL_SHUTDOWN_TIMEOUT", "60")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        Self {
            process: command.spawn().unwrap(),
            folder,
            system_port,
        }
    }

    /// A runtime that finds the worker.
    pub(crate) async fn runtime(&self) -> DistributedRuntime {
        let discovery_backend =
            DiscoveryBackend::KvStore(Selector::File(self.folder.path().to_owned()));
        let config = DistributedConfig {
            event_transport_kind: discovery_backend.resolve_event_transport_kind().unwrap(),
            discovery_backend,
            nats_config: None,
            request_plane: RequestPlaneMode::Tcp,
            response_plane: None,
        };
        DistributedRuntime::new(Runtime::from_current().unwrap(), config)
            .await
            .unwrap()
    }

    /// A client of the worker's endpoint, once it is there.
    pub(crate) async fn client(&self) -> Client {
        let runtime = self.runtime().await;
        let component = runtime
            .namespace("dynamo")
            .unwrap()
            .component("backend")
            .unwrap();
        let client = component.endpoint("generate").client().await.unwrap();
        tokio::time::timeout(LONG, client.wait_for_instances())
            .await
            .unwrap()
            .unwrap();
        Client(
            PushRouter::from_client(client, RouterMode::RoundRobin)
                .await
                .unwrap(),
        )
    }

    /// The processes of the cores.
    pub(crate) fn cores(&self) -> Vec<i32> {
        let id = self.process.id().unwrap();
        let mut all = Vec::new();
        // Whichever thread of the runtime started them.
        for task in std::fs::read_dir(format!("/proc/{id}/task")).unwrap() {
            let children = std::fs::read_to_string(task.unwrap().path().join("children"));
            let children = children.unwrap_or_default();
            all.extend(
                children
                    .split_whitespace()
                    .map(|id| id.parse::<i32>().unwrap()),
            );
        }
        all
    }

    /// The worker's `/metrics`.
    pub(crate) async fn metrics(&self) -> String {
        http(self.system_port, "GET", "/metrics", None).await.1
    }

    /// The sum of a metric's samples.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let text = self.metrics().await;
        let lines = text
            .lines()
            .filter(|line| line.starts_with(name) && !line.starts_with('#'));
        lines
            .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
            .sum()
    }

    /// Sends a signal to the worker.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let id = i32::try_from(self.process.id().unwrap()).unwrap();
        kill(id, signal);
    }

    /// Waits for the worker's end; its exit code.
    pub(crate) async fn ended(&mut self) -> Option<i32> {
        tokio::time::timeout(LONG, self.process.wait())
            .await
            .unwrap()
            .unwrap()
            .code()
    }
}

pub(crate) fn kill(id: i32, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_raw(id).unwrap(), signal).unwrap();
}

/// Dynamo's client of a worker.
pub(crate) struct Client(PushRouter<PreprocessedRequest, Annotated<LLMEngineOutput>>);

impl Client {
    pub(crate) async fn begin(
        &self,
        request: PreprocessedRequest,
    ) -> Result<ManyOut<Annotated<LLMEngineOutput>>, String> {
        let sent = self.0.round_robin(Context::new(request)).await;
        sent.map_err(|error| format!("{error:?}"))
    }

    pub(crate) async fn ask(&self, request: PreprocessedRequest) -> Told {
        read(self.begin(request).await.unwrap()).await
    }

    /// Why a request is refused, wherever that is told.
    pub(crate) async fn refusal(&self, request: PreprocessedRequest) -> String {
        match self.begin(request).await {
            Ok(stream) => format!(
                "{:?}",
                read(stream).await.error.expect("it must be refused")
            ),
            Err(error) => error,
        }
    }
}

/// A port that nobody listens at. Dynamo reads that of its system server as a number of 15 bits.
pub(crate) fn free_port() -> u16 {
    let first = 20_000 + u16::try_from(std::process::id() % 8000).unwrap();
    static NEXT: std::sync::atomic::AtomicU16 = std::sync::atomic::AtomicU16::new(0);
    loop {
        let port = first + NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// The status and the body of an HTTP answer; status 0 where nobody listens.
pub(crate) async fn http(
    port: u16,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> (u16, String) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let Ok(mut stream) = tokio::net::TcpStream::connect(("127.0.0.1", port)).await else {
        return (0, String::new());
    };
    let body = body.map(Value::to_string).unwrap_or_default();
    // HTTP/1.0: no chunks.
    let request = format!(
        "{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(LONG, stream.read_to_string(&mut answer))
        .await
        .unwrap()
        .unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

/// Waits until something is so.
pub(crate) async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, waiting)
        .await
        .unwrap_or_else(|_| panic!("{what}: it never was"));
}
