//! An engine core without a model: every request in flight gets a token per step, so many steps a second
//! that all together get a given number of tokens. What is before it is measured at exactly that rate.
//!
//! ```sh
//! paced_core --address /tmp/paced.sock --tokens-per-second 5000 &
//! formwork serve --engine-core-address /tmp/paced.sock --pid-file f.pid --disable-log-stats &
//! formwork bench serve --backend openai-chat --max-concurrency 256 --duration 60 --num-warmups 300 \
//!     --random-output-len 256 --server-pid $(head -1 f.pid)
//! ```

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Parser;
use protocol::handshake::startup_handshake;
use protocol::transport::{FrameReader, FrameWriter, Listener};
use protocol::{
    EngineCoreEvent, EngineCoreEventType, EngineCoreMessage, EngineCoreOutput, EngineCoreOutputs,
    EngineCoreReadyResponse, EngineCoreRequest, EngineCoreRequestType, EngineCoreStartupMessage,
    FinishReason, PrefillStats, SchedulerStats, UtilityOutput, UtilityResult,
};
use serde_json::json;
use tokenizer::Tokenizer;

/// Answers as the built-in model's core would, with words that mean nothing.
#[derive(Debug, Parser)]
struct Arguments {
    /// Socket to listen on
    #[arg(long)]
    address: PathBuf,
    /// Tokens that all requests together get in a second
    #[arg(long, default_value_t = 5000.0)]
    tokens_per_second: f64,
    /// Requests that run at the same time, at most: each gets an equal part
    #[arg(long, default_value_t = 256)]
    max_num_seqs: usize,
}

/// Longest silence in the handshake.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What the answers are made of.
const TEXT: &str = "Formwork holds the text in shape while it sets, and then it is taken away. ";

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let tokenizer = Tokenizer::from_bytes(builtin_model::FILES)?;
    let words = tokenizer.encode(TEXT, false)?;
    let listener = Listener::bind(&arguments.address)?;
    eprintln!("listening on {}", arguments.address.display());
    loop {
        let (reader, writer) = listener.accept()?.split();
        let served = serve(reader, writer, &arguments, &tokenizer, &words);
        eprintln!("a frontend has left: {served:?}");
    }
}

/// Serves one frontend until it leaves.
fn serve(
    mut reader: FrameReader,
    mut writer: FrameWriter,
    arguments: &Arguments,
    tokenizer: &Tokenizer,
    words: &[u32],
) -> anyhow::Result<()> {
    startup_handshake(&mut reader, &mut writer, TIMEOUT)?;
    writer.write(&EngineCoreStartupMessage::Ready(ready(
        arguments, tokenizer,
    )))?;
    let (sender, requests) = channel();
    let reading = thread::Builder::new().name("input-0".to_owned());
    let reading = reading.spawn(move || {
        while let Ok(Some(message)) = reader.read::<EngineCoreRequestType>() {
            if sender.send(message).is_err() {
                break;
            }
        }
    })?;
    let stepped = Core::new(arguments, words).run(&requests, &mut writer);
    // The reader waits for a frontend that is still there.
    drop((requests, writer));
    let _ = reading.join();
    stepped
}

/// A request in flight.
struct Running {
    request: Box<EngineCoreRequest>,
    num_tokens: usize,
}

/// What there is instead of a scheduler and a model.
struct Core<'a> {
    words: &'a [u32],
    seconds_per_token: f64,
    max_num_seqs: usize,
    /// In the order of their arrival; the first run.
    in_flight: Vec<Running>,
    started: Instant,
    num_steps: u64,
}

impl<'a> Core<'a> {
    fn new(arguments: &Arguments, words: &'a [u32]) -> Self {
        Self {
            words,
            seconds_per_token: 1.0 / arguments.tokens_per_second,
            max_num_seqs: arguments.max_num_seqs,
            in_flight: Vec::new(),
            started: Instant::now(),
            num_steps: 0,
        }
    }

    /// Steps until the frontend has left.
    fn run(
        &mut self,
        requests: &Receiver<EngineCoreRequestType>,
        writer: &mut FrameWriter,
    ) -> anyhow::Result<()> {
        let mut next_step = Instant::now();
        loop {
            while let Some(message) = match self.in_flight.is_empty() {
                true => match requests.recv() {
                    Ok(message) => {
                        next_step = Instant::now();
                        Some(message)
                    }
                    Err(_) => return Ok(()),
                },
                false => match requests.try_recv() {
                    Ok(message) => Some(message),
                    Err(TryRecvError::Empty) => None,
                    Err(TryRecvError::Disconnected) => return Ok(()),
                },
            } {
                self.take(message, writer)?;
            }
            let num_running = self.in_flight.len().min(self.max_num_seqs);
            // Where a step was late the next are early: the rate holds.
            next_step += Duration::from_secs_f64(num_running as f64 * self.seconds_per_token);
            thread::sleep(next_step.saturating_duration_since(Instant::now()));
            writer.write(&EngineCoreMessage::Outputs(self.step()))?;
        }
    }

    fn take(
        &mut self,
        message: EngineCoreRequestType,
        writer: &mut FrameWriter,
    ) -> anyhow::Result<()> {
        match message {
            EngineCoreRequestType::Add(request) => self.in_flight.push(Running {
                request,
                num_tokens: 0,
            }),
            EngineCoreRequestType::AddMany(siblings) => {
                let running = siblings.into_requests().map(|request| Running {
                    request: Box::new(request),
                    num_tokens: 0,
                });
                self.in_flight.extend(running);
            }
            EngineCoreRequestType::Abort(ids) => self
                .in_flight
                .retain(|running| !ids.contains(&running.request.request_id)),
            EngineCoreRequestType::Utility(call) if call.method == "heartbeat" => {
                let state =
                    json!({"beats": self.num_steps, "runnable": !self.in_flight.is_empty()});
                let answer = UtilityOutput {
                    call_id: call.call_id,
                    result: UtilityResult::Success(state.to_string()),
                };
                writer.write(&EngineCoreMessage::Outputs(EngineCoreOutputs {
                    utility_output: Some(answer),
                    ..EngineCoreOutputs::default()
                }))?;
            }
            other => bail!("a core without a model can't do this: {other:?}"),
        }
        Ok(())
    }

    /// One token for every request that runs.
    fn step(&mut self) -> EngineCoreOutputs {
        self.num_steps += 1;
        let timestamp = self.started.elapsed().as_secs_f64();
        let mut outputs = Vec::with_capacity(self.max_num_seqs);
        let mut at = 0;
        self.in_flight.retain_mut(|running| {
            at += 1;
            if at > self.max_num_seqs {
                return true;
            }
            let (request, number) = (&running.request, running.num_tokens);
            let event = |event_type| EngineCoreEvent {
                event_type,
                timestamp,
            };
            let is_first = number == 0;
            running.num_tokens += 1;
            let limit = request.sampling_params.max_tokens.unwrap_or(u32::MAX);
            let is_last = running.num_tokens >= limit as usize;
            let word = self.words.get(number % self.words.len());
            outputs.push(EngineCoreOutput {
                request_id: request.request_id.clone(),
                new_token_ids: word.copied().into_iter().collect(),
                finish_reason: is_last.then_some(FinishReason::Length),
                events: match is_first {
                    true => [EngineCoreEventType::Queued, EngineCoreEventType::Scheduled]
                        .map(event)
                        .into(),
                    false => Vec::new(),
                },
                prefill_stats: is_first.then(PrefillStats::default),
                ..EngineCoreOutput::default()
            });
            !is_last
        });
        let stats = SchedulerStats {
            num_running_reqs: u32::try_from(self.in_flight.len()).unwrap_or(u32::MAX),
            ..SchedulerStats::default()
        };
        EngineCoreOutputs {
            outputs,
            scheduler_stats: Some(Box::new(stats)),
            timestamp,
            ..EngineCoreOutputs::default()
        }
    }
}

/// The built-in model, as its core would describe it.
fn ready(arguments: &Arguments, tokenizer: &Tokenizer) -> EngineCoreReadyResponse {
    EngineCoreReadyResponse {
        client_index: 0,
        model_name: "formwork-builtin".to_owned(),
        vocab_size: tokenizer.vocab_size() as u32,
        tokenizer_fingerprint: tokenizer.fingerprint().to_owned(),
        weights_fingerprint: None,
        max_model_len: 2048,
        block_size: 16,
        num_blocks: 1 << 13,
        kv_cache_bytes: 0,
        dtype: "none".to_owned(),
        num_threads: 1,
        max_num_seqs: arguments.max_num_seqs as u32,
        max_num_batched_tokens: 2048,
        max_num_queued_reqs: None,
        max_logprobs: 20,
        pooler: Default::default(),
    }
}
