//! The protocol between the two processes, in both directions, and a real core that frames come to.
//!
//! The first byte of an input says what the rest is: the body of a message of some type, or bytes of
//! a connection to the core, after the handshake or from the first byte on.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use engine_core::engine::{Confine, run_listening};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use protocol::codec::{MAX_FRAME, decode_body, encode_frame};
use protocol::transport::{FrameReader, FrameWriter, Stream};
use protocol::{
    EngineConfig, EngineCoreMessage, EngineCoreRequest, EngineCoreRequestType,
    EngineCoreStartupMessage, EngineHandshakeMetadata, Hello, SamplingParams,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::memory::Meter;
use crate::{Random, scratch};

#[path = "../../protocol/tests/strategies/mod.rs"]
#[allow(dead_code, reason = "the tests of protocol use all of it")]
mod strategies;

/// Kinds of inputs.
const REQUEST: u8 = 0;
const MESSAGE: u8 = 1;
const HELLO: u8 = 2;
const METADATA: u8 = 3;
const STARTUP: u8 = 4;
const FRAMES: u8 = 5;
const CONNECTION: u8 = 6;

/// Promise: a body takes no more memory than the largest frame and a few MiB.
const MAX_DECODED_BYTES: usize = MAX_FRAME + (8 << 20);

/// The longest that the core may take to answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// Decodes the body, encodes what came, and lets the core have it.
pub(crate) fn run(data: &[u8]) -> String {
    let Some((&kind, rest)) = data.split_first() else {
        return "nothing".to_owned();
    };
    match kind {
        REQUEST => {
            let (request, outcome) = codec::<EngineCoreRequestType>(rest);
            match request {
                Some(request) => format!("{outcome}; {}", offer(&[request])),
                None => outcome,
            }
        }
        MESSAGE => codec::<EngineCoreMessage>(rest).1,
        HELLO => codec::<Hello>(rest).1,
        METADATA => codec::<EngineHandshakeMetadata>(rest).1,
        STARTUP => codec::<EngineCoreStartupMessage>(rest).1,
        FRAMES => send_bytes(rest, true),
        CONNECTION => send_bytes(rest, false),
        _ => "another kind".to_owned(),
    }
}

/// The message of a body, within bounded memory; its frame must mean the same message.
fn codec<T: Serialize + DeserializeOwned>(body: &[u8]) -> (Option<T>, String) {
    let meter = Meter::start();
    let decoded = decode_body::<T>(body);
    meter.check_against(MAX_DECODED_BYTES, body.len());
    match decoded {
        Err(error) => (None, crate::sketch(&error.to_string())),
        Ok(message) => {
            let frame = frame(&message);
            let again: T = decode_body(&frame[4..]).expect("a frame of ours");
            // Bytes, since a NaN is not equal to itself.
            assert!(frame == self::frame(&again), "another message");
            (Some(message), "a message".to_owned())
        }
    }
}

fn frame<T: Serialize + DeserializeOwned>(message: &T) -> Vec<u8> {
    let mut frame = Vec::new();
    encode_frame(message, MAX_FRAME, &mut frame).expect("a message that was decoded");
    frame
}

/// A core in this process, with a client that stays.
struct Core {
    address: PathBuf,
    client: Mutex<(FrameReader, FrameWriter)>,
}

fn core() -> &'static Core {
    static CORE: OnceLock<Core> = OnceLock::new();
    CORE.get_or_init(|| {
        let address = scratch::file("core");
        let mut config = EngineConfig::default();
        config.model_config.num_threads = Some(1);
        config.model_config.pin_threads = false;
        config.cache_config.num_blocks_override = Some(64);
        config.scheduler_config.max_num_seqs = 4;
        config.scheduler_config.max_num_batched_tokens = 256;
        config.structured_outputs_config.cache_bytes = 32 << 20;
        config.structured_outputs_config.compile_threads = Some(2);
        let listening = address.clone();
        std::thread::spawn(move || {
            let ended = run_listening(&listening, &config, &Confine::No);
            panic!("the core ended: {ended:?}");
        });
        let start = Instant::now();
        while !address.exists() {
            assert!(start.elapsed() < Duration::from_secs(60), "no core");
            std::thread::sleep(Duration::from_millis(20));
        }
        let client = Mutex::new(connect(&address));
        Core { address, client }
    })
}

/// Shakes hands as a frontend does.
fn connect(address: &std::path::Path) -> (FrameReader, FrameWriter) {
    let (mut reader, mut writer) = Stream::connect(address).unwrap().split();
    writer.write(&Hello::current()).unwrap();
    let hello: Option<Hello> = reader.read_within(PATIENCE).unwrap();
    assert_eq!(hello, Some(Hello::current()));
    writer.write(&EngineHandshakeMetadata::default()).unwrap();
    let ready = reader.read_within::<EngineCoreStartupMessage>(PATIENCE);
    assert!(matches!(
        ready,
        Ok(Some(EngineCoreStartupMessage::Ready(_)))
    ));
    (reader, writer)
}

/// Sends messages to the core on a connection of their own.
fn offer(messages: &[EngineCoreRequestType]) -> String {
    let core = core();
    let bytes = messages.iter().map(|message| frame(message).len()).sum();
    let meter = Meter::start();
    let (mut reader, mut writer) = connect(&core.address);
    for message in messages {
        writer.write(message).unwrap();
    }
    // What comes after it is answered: it was read, and the busy loop has seen it.
    let call = protocol::UtilityRequest {
        client_index: 0,
        call_id: u64::MAX,
        method: "is_scheduler_paused".to_owned(),
        args: "[]".to_owned(),
    };
    writer.write(&EngineCoreRequestType::Utility(call)).unwrap();
    let mut outcome = String::new();
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < PATIENCE, "no answer from the core");
        match reader.read_within::<EngineCoreMessage>(PATIENCE).unwrap() {
            Some(EngineCoreMessage::Outputs(outputs)) => {
                for output in &outputs.outputs {
                    let error = output
                        .error
                        .as_ref()
                        .map(|error| crate::sketch(&error.message));
                    outcome = format!("{:?} {error:?}", output.finish_reason);
                    let failed = error.is_some_and(|error| error.contains("panicked"));
                    assert!(!failed, "{outcome}");
                }
                if outputs
                    .utility_output
                    .is_some_and(|answer| answer.call_id == u64::MAX)
                {
                    break;
                }
            }
            other => panic!("the core ended the connection: {other:?}"),
        }
    }
    drop((reader, writer));
    check_core(core);
    meter.check(bytes);
    outcome
}

/// Sends bytes to the core, with or without a handshake before them.
fn send_bytes(bytes: &[u8], greets: bool) -> String {
    let core = core();
    let meter = Meter::start();
    let mut stream = UnixStream::connect(&core.address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    if greets {
        stream.write_all(&frame(&Hello::current())).unwrap();
        stream
            .write_all(&frame(&EngineHandshakeMetadata::default()))
            .unwrap();
    }
    let is_taken = stream.write_all(bytes).is_ok();
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut num_bytes = 0;
    let mut buffer = [0; 4096];
    let start = Instant::now();
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => num_bytes += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
        assert!(start.elapsed() < PATIENCE, "the connection doesn't end");
    }
    drop(stream);
    check_core(core);
    meter.check(bytes.len());
    format!(
        "{is_taken}, {} digits of bytes",
        num_bytes.to_string().len()
    )
}

/// Another client still gets a token.
fn check_core(core: &Core) {
    let mut client = core.client.lock().unwrap();
    let (reader, writer) = &mut *client;
    let request = EngineCoreRequest {
        request_id: "check".to_owned(),
        prompt_token_ids: [1, 2, 3].into(),
        sampling_params: SamplingParams {
            max_tokens: Some(1),
            ..SamplingParams::default()
        },
        ..EngineCoreRequest::default()
    };
    writer
        .write(&EngineCoreRequestType::Add(Box::new(request)))
        .unwrap();
    loop {
        match reader.read_within::<EngineCoreMessage>(PATIENCE) {
            Ok(Some(EngineCoreMessage::Outputs(outputs))) => {
                let mut outputs = outputs.outputs.iter();
                if let Some(end) = outputs.find(|output| output.finish_reason.is_some()) {
                    assert_eq!(end.request_id, "check");
                    assert_eq!(end.error, None);
                    return;
                }
            }
            other => panic!("the core answers nobody else: {other:?}"),
        }
    }
}

/// A message of any type, or some of them for a connection.
pub(crate) fn generate(random: &mut Random) -> Vec<u8> {
    match random.below(8) {
        0 => body(MESSAGE, &value(random, strategies::message())),
        1 => body(HELLO, &value(random, strategies::hello())),
        2 => body(METADATA, &value(random, strategies::handshake_metadata())),
        3 => body(STARTUP, &value(random, strategies::startup_message())),
        4 => {
            let mut input = vec![FRAMES];
            for _ in 0..random.below(4) {
                input.extend(frame(&request(random)));
            }
            input
        }
        5 => {
            let mut input = vec![CONNECTION];
            let hello = match random.once_in(2) {
                true => Hello::current(),
                false => value(random, strategies::hello()),
            };
            input.extend(frame(&hello));
            input.extend(frame(&value(random, strategies::handshake_metadata())));
            input.extend(frame(&request(random)));
            input
        }
        _ => body(REQUEST, &request(random)),
    }
}

/// A request of any fields, or one that the core takes but for some.
fn request(random: &mut Random) -> EngineCoreRequestType {
    let mut request = value(random, strategies::request());
    if random.once_in(4) {
        return request;
    }
    if let EngineCoreRequestType::Utility(call) = &mut request {
        let methods = [
            "heartbeat",
            "get_supported_tasks",
            "reset_prefix_cache",
            "pause_scheduler",
            "resume_scheduler",
        ];
        call.method = (*random.pick(&methods)).to_owned();
        let args = [
            json!([]),
            json!(["abort", true]),
            json!(["keep"]),
            json!({}),
            json!([1]),
        ];
        call.args = random.pick(&args).to_string();
    }
    if let EngineCoreRequestType::Add(request) = &mut request {
        request.prompt_token_ids = (0..1 + random.below(300))
            .map(|_| random.below(4096) as u32)
            .collect();
        request.output_token_ids.clear();
        let keep = random.number();
        let any = std::mem::take(&mut request.sampling_params);
        let params = &mut request.sampling_params;
        params.max_tokens = Some(1 + random.below(20) as u32);
        // Some of the fields that may be anything.
        let is_kept = |field: u32| keep >> field & 7 == 0;
        macro_rules! keep {
            ($($at:literal $field:ident),*) => {$(if is_kept($at) { params.$field = any.$field; })*};
        }
        keep!(0 n, 1 presence_penalty, 2 frequency_penalty, 3 repetition_penalty, 4 temperature,
              5 top_p, 6 top_k, 7 min_p, 8 seed, 9 stop, 10 stop_token_ids, 11 eos_token_id,
              12 max_tokens, 13 min_tokens, 14 logprobs, 15 prompt_logprobs, 16 logprob_token_ids,
              17 prompt_logprob_token_ids, 18 prompt_logprob_start, 19 logit_bias,
              20 allowed_token_ids, 21 bad_words_token_ids, 22 thinking_token_budget,
              23 thinking_tokens, 24 structured_outputs, 25 repetition_detection, 26 output_kind,
              27 stream_interval);
    }
    request
}

fn body<T: Serialize + DeserializeOwned>(kind: u8, message: &T) -> Vec<u8> {
    let mut input = frame(message).split_off(3);
    input[0] = kind;
    input
}

/// A value of a strategy.
fn value<T: std::fmt::Debug>(random: &mut Random, strategy: impl Strategy<Value = T>) -> T {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&random.number().to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    strategy.new_tree(&mut runner).unwrap().current()
}
