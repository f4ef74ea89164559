//! The command line of `formwork serve`: vLLM's names and defaults, as far as they apply.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};

use super::access_args::AccessArgs;
use super::traces::OtlpTracesEndpoint;
use crate::arg_utils::{EngineArgs, human_readable_int};
use crate::json_problem::json_problem;
use crate::openai::ToolCallFormat;

/// Waiting requests, where nothing else is said. More are turned away.
const DEFAULT_MAX_NUM_QUEUED_REQS: u32 = 4096;

/// Largest bodies whose bytes the memory for requests has room for.
const LARGEST_BODIES: u64 = 8;
/// The largest body counts as so many bytes at least: a limit on bodies is none on requests in flight.
const MIN_LARGEST_BODY: u64 = 32 << 20;

/// Serve the OpenAI API over HTTP.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct ServeArgs {
    /// Hugging Face model folder, GGUF file, or name on the Hub: org/name, org/name@revision,
    /// org/name:file.gguf. The built-in model where absent
    #[arg(value_name = "MODEL", conflicts_with = "model")]
    pub model_tag: Option<PathBuf>,
    /// YAML file with any of these flags, such as "max-model-len: 4096"; flags given here and
    /// environment variables (FORMWORK_MAX_MODEL_LEN) win
    #[arg(long, value_name = "FILE.yaml")]
    pub config: Option<PathBuf>,
    /// Address, keys, limits, logs.
    #[command(flatten)]
    pub server: ServerArgs,
    /// What to run and with which limits.
    #[command(flatten)]
    pub engine: EngineArgs,
}

impl ServeArgs {
    /// The engine's flags, with what a server decides for itself.
    pub fn engine_args(&self) -> EngineArgs {
        let mut engine = self.engine.clone();
        if let Some(model) = &self.model_tag {
            engine.model = Some(model.clone());
        }
        // A core that was started by hand has its own.
        if engine.engine_core_address.is_none() {
            engine
                .max_num_queued_reqs
                .get_or_insert(DEFAULT_MAX_NUM_QUEUED_REQS);
        }
        engine
    }

    /// This command line with other flags of the engine.
    pub fn with_engine_args(&self, engine: EngineArgs) -> Self {
        Self {
            model_tag: None,
            engine,
            ..self.clone()
        }
    }
}

/// Flags of the HTTP server and of its process.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(next_help_heading = "Server")]
pub struct ServerArgs {
    /// Address to listen at; 0.0.0.0 is all of this machine's
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub host: String,
    /// Port to listen at; 0 is any that is free
    #[arg(long, default_value_t = 8000, value_parser = port)]
    pub port: u16,
    /// Listen at a Unix domain socket instead; --host and --port then say nothing
    #[arg(long, value_name = "PATH", conflicts_with = "ssl_keyfile")]
    pub uds: Option<PathBuf>,
    /// Who may use the socket of --uds, as chmod's octal digits: 660 also lets its group
    #[arg(long, value_name = "MODE", default_value = "600", value_parser = socket_mode)]
    pub uds_mode: u32,
    /// Name that the model answers to; may be repeated, the first is in answers. Its path or name as
    /// given, or the built-in model's name, where absent
    #[arg(long, value_name = "NAME", action = ArgAction::Append)]
    pub served_model_name: Vec<String>,
    /// Certificate chain for HTTPS, PEM
    #[arg(long, value_name = "FILE", requires = "ssl_keyfile")]
    pub ssl_certfile: Option<PathBuf>,
    /// Private key for HTTPS, PEM
    #[arg(long, value_name = "FILE", requires = "ssl_certfile")]
    pub ssl_keyfile: Option<PathBuf>,
    /// Certificates of authorities, PEM: HTTPS clients must then show one that these have signed
    #[arg(long, value_name = "FILE", requires = "ssl_certfile")]
    pub ssl_ca_certs: Option<PathBuf>,
    /// Path under which a proxy publishes the server: requests may bring it or not
    #[arg(long, value_name = "PATH", default_value = "", value_parser = root_path)]
    pub root_path: String,
    /// Web pages that may call the server, as a JSON list of origins; ["*"] is all
    #[arg(long, value_name = "JSON", default_value = "[]", value_parser = json_list)]
    pub allowed_origins: JsonList,
    /// Methods that such pages may use, as a JSON list
    #[arg(long, value_name = "JSON", default_value = "[\"*\"]", value_parser = json_list)]
    pub allowed_methods: JsonList,
    /// Headers that such pages may send, as a JSON list
    #[arg(long, value_name = "JSON", default_value = "[\"*\"]", value_parser = json_list)]
    pub allowed_headers: JsonList,
    /// Let such pages send credentials
    #[arg(long)]
    pub allow_credentials: bool,
    /// Names besides its own under which web pages may call the server where it asks for no key, as a
    /// JSON list; ["*"] is all
    #[arg(long, value_name = "JSON", default_value = "[]", value_parser = json_list)]
    pub allowed_hosts: JsonList,
    /// Don't serve /docs and /openapi.json
    #[arg(long)]
    pub disable_fastapi_docs: bool,
    /// Leave out the page for people at / and /ui/
    #[arg(long)]
    pub no_ui: bool,

    /// Keys, the management port, the audit log.
    #[command(flatten)]
    pub access: AccessArgs,

    /// Largest request body in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 32 << 20, value_parser = human_readable_int(1024_u64..), help_heading = "Limits")]
    pub max_request_body_size: u64,
    /// Memory in bytes for requests under way and answers that aren't taken yet. Eight of the largest
    /// bodies where absent, and 256 MiB at least
    #[arg(long, value_name = "BYTES", value_parser = human_readable_int(64_u64 << 20..), help_heading = "Limits")]
    pub max_request_memory: Option<u64>,
    /// Largest request head in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 10, value_parser = human_readable_int(8192_u64..=1 << 30), help_heading = "Limits")]
    pub h11_max_incomplete_event_size: u64,
    /// Most headers of a request
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = human_readable_int(1_u64..=16_384), help_heading = "Limits")]
    pub h11_max_header_count: u64,
    /// Most connections at the same time; more wait to be accepted
    #[arg(long, value_name = "N", default_value_t = 16_384, value_parser = human_readable_int(1_u32..), help_heading = "Limits")]
    pub max_connections: u32,
    /// Most connections of one address at the same time (of IPv6, of one /64 network); more are closed.
    /// An eighth of --max-connections where absent, 1 at least
    #[arg(long, value_name = "N", value_parser = human_readable_int(1_u32..), help_heading = "Limits")]
    pub max_connections_per_address: Option<u32>,
    /// Seconds that a client may take for a request's head, for its body (and one more for every
    /// 64 KiB of it), to take in a piece of the answer, and between two requests
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds, help_heading = "Limits")]
    pub client_timeout: Duration,
    /// Seconds that a request may take in all; 0 is no limit
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = seconds, help_heading = "Limits")]
    pub request_timeout: Duration,

    /// How the model writes calls: auto tells by the chat template. Names are vLLM's, such as hermes,
    /// llama3_json, mistral, qwen3_coder, deepseek_v31, glm45, kimi_k2, pythonic; docs/tool-formats.md has all
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = tool_call_parser, help_heading = "Chat")]
    pub tool_call_parser: ToolCallParser,
    /// JSON file that says how the model writes calls, in place of --tool-call-parser
    #[arg(long, value_name = "FILE", value_parser = tool_format_file, conflicts_with = "tool_call_parser", help_heading = "Chat")]
    pub tool_format_file: Option<std::sync::Arc<ToolCallFormat>>,
    /// Accepted for the sake of other servers' command lines: tool_choice "auto" needs no flag
    #[arg(long, help_heading = "Chat")]
    pub enable_auto_tool_choice: bool,
    /// Leave tools out of the prompt where tool_choice is "none" (the default)
    #[arg(long, action = ArgAction::SetTrue, overrides_with = "no_exclude_tools_when_tool_choice_none", help_heading = "Chat")]
    pub exclude_tools_when_tool_choice_none: bool,
    /// Show tools to the chat template also where tool_choice is "none"
    #[arg(long, action = ArgAction::SetTrue, overrides_with = "exclude_tools_when_tool_choice_none", help_heading = "Chat")]
    pub no_exclude_tools_when_tool_choice_none: bool,
    /// Let requests bring their own chat_template
    #[arg(long, help_heading = "Chat")]
    pub trust_request_chat_template: bool,
    /// Variables of the chat template that a request doesn't set, as a JSON object, such as
    /// {"enable_thinking": true}
    #[arg(long, value_name = "JSON", default_value = "{}", value_parser = json_object, help_heading = "Chat")]
    pub default_chat_template_kwargs: JsonObject,
    /// Role of the answers
    #[arg(
        long,
        value_name = "ROLE",
        default_value = "assistant",
        help_heading = "Chat"
    )]
    pub response_role: String,

    /// Refuse fields that have no effect here, such as store or reasoning.summary, instead of ignoring
    /// them
    #[arg(long, help_heading = "Answers")]
    pub strict_requests: bool,
    /// Usage in every piece of every stream, and at its end
    #[arg(long, help_heading = "Answers")]
    pub enable_force_include_usage: bool,
    /// Say in the usage how many prompt tokens came from the prefix cache
    #[arg(long, help_heading = "Answers")]
    pub enable_prompt_tokens_details: bool,
    /// Say the request's id in the header X-Request-Id
    #[arg(long, help_heading = "Answers")]
    pub enable_request_id_headers: bool,
    /// Write tokens as "token_id:N" in logprobs
    #[arg(long, help_heading = "Answers")]
    pub return_tokens_as_token_ids: bool,
    /// Tokens per piece of a stream
    #[arg(long, value_name = "TOKENS", default_value_t = 1, value_parser = human_readable_int(1_u32..), help_heading = "Answers")]
    pub stream_interval: u32,
    /// Seconds between comments that keep a silent stream open; 0 is none
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = seconds, help_heading = "Answers")]
    pub sse_keep_alive_interval: Duration,
    /// Count requests in flight for /load
    #[arg(long, help_heading = "Answers")]
    pub enable_server_load_tracking: bool,

    /// End when the engine core dies, with an exit code that isn't 0, instead of starting another
    #[arg(long, help_heading = "Faults")]
    pub no_restart: bool,
    /// Engine cores to start in a row that bring no token, before giving up
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = human_readable_int(1_u32..), help_heading = "Faults")]
    pub max_restarts: u32,
    /// Seconds without a sign of life, while there is work, until /health says 503; after twice
    /// that the engine core is replaced
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = positive_seconds, help_heading = "Faults")]
    pub health_stall_seconds: Duration,

    /// How logs are written
    #[arg(long, value_enum, default_value_t = LogFormat::Human, help_heading = "Logs")]
    pub log_format: LogFormat,
    /// Log every request
    #[arg(long, help_heading = "Logs")]
    pub enable_log_requests: bool,
    /// Characters of each request's body that --enable-log-requests logs too
    #[arg(
        long,
        value_name = "CHARACTERS",
        default_value_t = 0,
        help_heading = "Logs"
    )]
    pub max_log_len: usize,
    /// Don't log throughput every ten seconds
    #[arg(long, help_heading = "Logs")]
    pub disable_log_stats: bool,
    /// Collector that gets a trace of every request, by OTLP over HTTP, such as
    /// http://localhost:4318/v1/traces; needs a build with the feature "opentelemetry"
    #[arg(long, value_name = "URL", value_parser = OtlpTracesEndpoint::parse, help_heading = "Logs")]
    pub otlp_traces_endpoint: Option<OtlpTracesEndpoint>,

    /// Run in the background; returns when the server is ready
    #[arg(long, help_heading = "Process")]
    pub daemon: bool,
    /// File with the process's id, locked while it runs; with --daemon a file of this user's where
    /// absent, which `formwork stop` and `formwork status` look at
    #[arg(long, value_name = "FILE", help_heading = "Process")]
    pub pid_file: Option<PathBuf>,
    /// File for logs, instead of standard error; with --daemon beside the pid file where absent
    #[arg(long, value_name = "FILE", help_heading = "Process")]
    pub log_file: Option<PathBuf>,
    /// Told to the process that --daemon starts
    #[arg(long, hide = true)]
    pub daemonized: bool,
    /// Told to the process that `formwork chat` starts
    #[arg(long, hide = true)]
    pub end_with_stdin: bool,
}

impl ServerArgs {
    /// Bytes for requests under way and answers that aren't taken yet.
    pub(super) fn max_request_memory(&self) -> u64 {
        self.max_request_memory.unwrap_or_else(|| {
            let largest = self.max_request_body_size.max(MIN_LARGEST_BODY);
            largest.saturating_mul(LARGEST_BODIES)
        })
    }

    /// Most connections of one address.
    pub(super) fn max_connections_per_address(&self) -> u32 {
        let eighth = (self.max_connections / 8).max(1);
        self.max_connections_per_address.unwrap_or(eighth)
    }
}

/// `--log-format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people
    Human,
    /// One JSON object per line
    Json,
}

/// A list in the spelling of vLLM's flags.
pub(super) type JsonList = std::sync::Arc<[String]>;

fn json_list(text: &str) -> Result<JsonList, String> {
    serde_json::from_str::<Vec<String>>(text)
        .map(JsonList::from)
        .map_err(|_| "must be a JSON list of strings, such as [\"https://example.com\"]".to_owned())
}

/// `--tool-call-parser`: `None` is found out.
pub(super) type ToolCallParser = std::sync::Arc<Option<std::sync::Arc<ToolCallFormat>>>;

fn tool_call_parser(text: &str) -> Result<ToolCallParser, String> {
    match text {
        "auto" => Ok(ToolCallParser::default()),
        name => Ok(Some(ToolCallFormat::from_name(name)?).into()),
    }
}

/// Most bytes of `--tool-format-file`.
const MAX_TOOL_FORMAT_BYTES: u64 = 1 << 20;

/// `--tool-format-file`, which is read at once: a server that confines itself reads no more files.
fn tool_format_file(path: &str) -> Result<std::sync::Arc<ToolCallFormat>, String> {
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|error| format!("can't be read: {error}"))?;
    let mut file = std::io::Read::take(file, MAX_TOOL_FORMAT_BYTES + 1);
    std::io::Read::read_to_string(&mut file, &mut text)
        .map_err(|error| format!("can't be read: {error}"))?;
    if text.len() as u64 > MAX_TOOL_FORMAT_BYTES {
        return Err(format!(
            "must be at most {MAX_TOOL_FORMAT_BYTES} bytes long"
        ));
    }
    ToolCallFormat::from_json(&text).map(Into::into)
}

/// An object in the spelling of vLLM's flags.
pub(super) type JsonObject = std::sync::Arc<serde_json::Map<String, serde_json::Value>>;

fn json_object(text: &str) -> Result<JsonObject, String> {
    serde_json::from_str::<serde_json::Map<_, _>>(text)
        .map(JsonObject::from)
        .map_err(|error| format!("must be a JSON object: {}", json_problem(&error)))
}

fn port(text: &str) -> Result<u16, String> {
    let port = text.parse();
    port.map_err(|_| format!("must be a whole number between 0 and {}", u16::MAX))
}

/// Read and write bits of a socket's mode; others mean nothing there.
fn socket_mode(text: &str) -> Result<u32, String> {
    const READ_AND_WRITE: u32 = 0o666;
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|mode| mode & !READ_AND_WRITE == 0 && mode & 0o600 == 0o600)
        .ok_or_else(|| "must be octal digits from 600 to 666, such as 660".to_owned())
}

/// A path without a slash at its end.
fn root_path(text: &str) -> Result<String, String> {
    let path = text.trim_end_matches('/');
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-._~".contains(c);
    if path.is_empty()
        || path.starts_with('/') && !path.contains("//") && path.chars().all(is_plain)
    {
        return Ok(path.to_owned());
    }
    Err("must be a path such as /llm".to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    const YEAR: f64 = crate::engine_core_client::MAX_SHUTDOWN_TIMEOUT;
    let seconds: Option<f64> = text.parse().ok();
    seconds
        .filter(|seconds| (0.0..=YEAR).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("must be a number of seconds between 0 and {YEAR} (a year)"))
}

fn positive_seconds(text: &str) -> Result<Duration, String> {
    match seconds(text)? {
        Duration::ZERO => Err("must be more than 0".to_owned()),
        seconds => Ok(seconds),
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        args: ServeArgs,
    }

    fn parse(args: &[&str]) -> Result<ServeArgs, clap::Error> {
        Command::try_parse_from([&["serve"], args].concat()).map(|command| command.args)
    }

    #[test]
    fn the_command_is_well_formed() {
        Command::command().debug_assert();
    }

    #[test]
    fn defaults_are_those_of_vllm() {
        let args = parse(&[]).unwrap();
        assert_eq!(
            (args.server.host.as_str(), args.server.port),
            ("127.0.0.1", 8000)
        );
        // vLLM has 4 MiB: heads come before keys.
        assert_eq!(args.server.h11_max_incomplete_event_size, 64 << 10);
        assert_eq!(args.server.max_connections_per_address(), 2048);
        assert_eq!(args.server.h11_max_header_count, 256);
        assert!(args.server.allowed_origins.is_empty());
        assert_eq!(args.server.stream_interval, 1);
        assert_eq!(args.engine_args().max_num_queued_reqs, Some(4096));
    }

    #[test]
    fn a_model_is_named_in_two_ways_but_not_in_both() {
        let args = parse(&["some/model"]).unwrap();
        assert_eq!(args.engine_args().model, Some("some/model".into()));
        let args = parse(&["--model", "m"]).unwrap();
        assert_eq!(args.engine_args().model, Some("m".into()));
        assert!(parse(&["some/model", "--model", "m"]).is_err());
    }

    #[test]
    fn lists_and_repetitions() {
        let args = parse(&[
            "--api-key",
            "a",
            "--api-key=b",
            "--served-model-name",
            "x",
            "--served-model-name=y",
            "--allowed-origins",
            "[\"https://a.example\"]",
        ])
        .unwrap();
        assert_eq!(args.server.access.api_key, ["a", "b"]);
        assert_eq!(args.server.served_model_name, ["x", "y"]);
        assert_eq!(&*args.server.allowed_origins, ["https://a.example"]);
        assert!(parse(&["--allowed-origins", "https://a.example"]).is_err());
    }

    #[test]
    fn no_flag_swallows_the_model() {
        for flag in ["--api-key", "--served-model-name"] {
            let args = parse(&[flag, "a", "some/model"]).unwrap();
            assert_eq!(
                args.engine_args().model,
                Some("some/model".into()),
                "{flag}"
            );
            let args = parse(&[flag, "a", "--", "some/model"]).unwrap();
            assert_eq!(
                args.engine_args().model,
                Some("some/model".into()),
                "{flag}"
            );
            let error = parse(&[flag, "a", "b", "some/model"]).unwrap_err();
            assert_eq!(
                error.kind(),
                clap::error::ErrorKind::UnknownArgument,
                "{flag}"
            );
        }
    }

    #[test]
    fn counts_and_sizes_have_units() {
        let args = parse(&[
            "--max-model-len=2k",
            "--kv-cache-memory-bytes=1GB",
            "--max-request-body-size=1.5MiB",
        ])
        .unwrap();
        assert_eq!(args.engine.max_model_len, Some(2000));
        assert_eq!(args.engine.kv_cache_memory_bytes, Some(1_000_000_000));
        assert_eq!(args.server.max_request_body_size, 3 << 19);
        let error = parse(&["--kv-cache-memory-bytes", "1X"]).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("'1X' for '--kv-cache-memory-bytes"),
            "{error}"
        );
    }

    #[test]
    fn what_needs_something_else_says_so() {
        for args in [
            &["--ssl-certfile", "c"][..],
            &["--uds", "s", "--ssl-certfile", "c", "--ssl-keyfile", "k"],
            &["--health-stall-seconds", "0"],
            &["--client-timeout", "-1"],
            &["--request-timeout", "nan"],
            &["--port", "18k"],
            &["--uds-mode", "777"],
            &["--uds-mode", "060"],
            &["--uds-mode", "rw"],
        ] {
            assert_eq!(parse(args).unwrap_err().exit_code(), 2, "{args:?}");
        }
    }
}
