//! Time from a request to its answer over the real socket, with a core that computes nothing.
//!
//! The frontend's side is the client that every frontend uses, on the runtime that they use. The
//! core's side is one thread that reads a request and writes one step's output for it.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use benchmarks::machine;
use benchmarks::statistics::Summary;
use clap::Parser;
use engine_frontend::engine_core_client::EngineCoreClient;
use protocol::handshake::startup_handshake;
use protocol::transport::{FrameReader, FrameWriter, Listener, PrivateAddress};
use protocol::{
    EngineCoreMessage, EngineCoreOutput, EngineCoreOutputs, EngineCoreReadyResponse,
    EngineCoreRequest, EngineCoreRequestType, EngineCoreStartupMessage,
};

/// Times EngineCoreClient::add_request until EngineCoreClient::get_output returns the answer.
#[derive(Debug, Parser)]
struct Arguments {
    /// Round trips to time per size of the prompt
    #[arg(long, default_value_t = 20_000)]
    round_trips: usize,
    /// Tokens of the prompt; may be repeated
    #[arg(long = "prompt-tokens", default_values_t = [16, 512, 8192])]
    prompt_tokens: Vec<u32>,
}

/// Round trips that are not counted.
const WARM_UP: usize = 1000;

/// Longest silence in the handshake.
const TIMEOUT: Duration = Duration::from_secs(10);

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    // As `formwork-batch` and `LLM` make it.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    println!("{}\n", machine::description());
    println!("| prompt tokens | round trips | p50 us | p99 us | max us |");
    println!("|---:|---:|---:|---:|---:|");
    for num_tokens in arguments.prompt_tokens {
        let address = PrivateAddress::new()?;
        let listener = Listener::bind(address.path())?;
        let core = thread::spawn(move || {
            let (reader, writer) = listener.accept()?.split();
            answer(reader, writer)
        });
        // On a worker of the runtime, as the task that handles outputs is.
        let path = address.path().to_owned();
        let measured = runtime.spawn(measure(path, num_tokens, arguments.round_trips));
        let summary = Summary::of(runtime.block_on(measured)??);
        match core.join() {
            Ok(result) => result?,
            Err(_) => bail!("the core's thread panicked"),
        }
        let [p50, p99, max] = [summary.p50, summary.p99, summary.max]
            .map(|time| format!("{:.1}", time.as_secs_f64() * 1e6));
        println!(
            "| {num_tokens} | {} | {p50} | {p99} | {max} |",
            summary.count
        );
    }
    Ok(())
}

/// The times of `count` round trips to the core at `address`, one after the other.
async fn measure(address: PathBuf, num_tokens: u32, count: usize) -> anyhow::Result<Vec<Duration>> {
    let client = EngineCoreClient::connect(&address, TIMEOUT, |_| ()).await?;
    let mut times = Vec::with_capacity(count);
    for number in 0..WARM_UP + count {
        let request = EngineCoreRequest {
            request_id: format!("cmpl-{number:032x}"),
            prompt_token_ids: (0..num_tokens).collect(),
            ..EngineCoreRequest::default()
        };
        let request_id = request.request_id.clone();
        let started = Instant::now();
        client.add_request(request)?;
        let outputs = client
            .get_output()
            .await?
            .context("the client was shut down")?;
        let time = started.elapsed();
        if outputs.outputs.first().map(|output| &output.request_id) != Some(&request_id) {
            bail!("the answer to {request_id} is another's: {outputs:?}");
        }
        if number >= WARM_UP {
            times.push(time);
        }
    }
    Ok(times)
}

/// Answers each request with one token until the client leaves.
fn answer(mut reader: FrameReader, mut writer: FrameWriter) -> anyhow::Result<()> {
    startup_handshake(&mut reader, &mut writer, TIMEOUT)?;
    writer.write(&EngineCoreStartupMessage::Ready(ready()))?;
    while let Some(message) = reader.read()? {
        let EngineCoreRequestType::Add(request) = message else {
            bail!("the core got {message:?}, but only requests were sent");
        };
        let output = EngineCoreOutput {
            request_id: request.request_id,
            new_token_ids: vec![7],
            ..EngineCoreOutput::default()
        };
        let outputs = EngineCoreOutputs {
            outputs: vec![output],
            ..EngineCoreOutputs::default()
        };
        writer.write(&EngineCoreMessage::Outputs(outputs))?;
    }
    Ok(())
}

/// What a core says of a model; the client believes it.
fn ready() -> EngineCoreReadyResponse {
    EngineCoreReadyResponse {
        client_index: 0,
        model_name: "none".to_owned(),
        vocab_size: 1 << 16,
        tokenizer_fingerprint: String::new(),
        weights_fingerprint: None,
        max_model_len: 1 << 16,
        block_size: 16,
        num_blocks: 1 << 13,
        kv_cache_bytes: 0,
        dtype: "float32".to_owned(),
        num_threads: 1,
        max_num_seqs: 256,
        max_num_batched_tokens: 2048,
        max_num_queued_reqs: None,
        max_logprobs: 20,
        pooler: Default::default(),
    }
}
