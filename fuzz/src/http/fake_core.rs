//! A core that answers every request at once, with a few tokens.

use std::path::Path;
use std::time::Duration;

use protocol::handshake::startup_handshake;
use protocol::transport::{FrameReader, FrameWriter, Listener, Stream};
use protocol::{
    EngineCoreEvent, EngineCoreEventType, EngineCoreMessage, EngineCoreOutput, EngineCoreOutputs,
    EngineCoreReadyResponse, EngineCoreRequest, EngineCoreRequestType, EngineCoreStartupMessage,
    FinishReason, LogprobsLists, PrefillStats, UtilityOutput, UtilityResult,
};
use tokenizer::Tokenizer;

/// Most tokens of an answer.
const MAX_TOKENS: u32 = 3;
const VOCAB_SIZE: u32 = 4096;

/// Listens at `address` for any number of frontends, until the process ends.
pub(super) fn start(address: &Path) {
    let listener = Listener::bind(address).unwrap();
    std::thread::spawn(move || {
        loop {
            let stream = listener.accept().unwrap();
            std::thread::spawn(move || serve(stream));
        }
    });
}

fn serve(stream: Stream) {
    let (mut reader, mut writer) = stream.split();
    startup_handshake(&mut reader, &mut writer, Duration::from_secs(60)).unwrap();
    writer
        .write(&EngineCoreStartupMessage::Ready(ready()))
        .unwrap();
    while let Ok(Some(message)) = read(&mut reader) {
        match message {
            EngineCoreRequestType::Add(request) => answer(&request, &mut writer),
            EngineCoreRequestType::AddMany(siblings) => {
                for request in siblings.into_requests() {
                    answer(&request, &mut writer);
                }
            }
            EngineCoreRequestType::Utility(call) => {
                let state = "{\"beats\": 1, \"runnable\": false}";
                let utility_output = UtilityOutput {
                    call_id: call.call_id,
                    result: UtilityResult::Success(state.to_owned()),
                };
                send(&mut writer, Vec::new(), Some(utility_output));
            }
            // Every request has ended before.
            EngineCoreRequestType::Abort(_) => {}
            EngineCoreRequestType::Shutdown { .. } => return,
        }
    }
}

fn read(
    reader: &mut FrameReader,
) -> Result<Option<EngineCoreRequestType>, protocol::transport::TransportError> {
    reader.read()
}

fn ready() -> EngineCoreReadyResponse {
    let tokenizer = Tokenizer::from_bytes(builtin_model::FILES).unwrap();
    EngineCoreReadyResponse {
        client_index: 0,
        model_name: builtin_model::NAME.to_owned(),
        vocab_size: VOCAB_SIZE,
        tokenizer_fingerprint: tokenizer.fingerprint().to_owned(),
        weights_fingerprint: None,
        max_model_len: 2048,
        block_size: 16,
        num_blocks: 256,
        kv_cache_bytes: 1 << 20,
        dtype: "float32".to_owned(),
        num_threads: 1,
        max_num_seqs: 8,
        max_num_batched_tokens: 2048,
        max_num_queued_reqs: Some(64),
        max_logprobs: 20,
        pooler: Default::default(),
    }
}

fn answer(request: &EngineCoreRequest, writer: &mut FrameWriter) {
    let params = &request.sampling_params;
    let num_tokens = params.max_tokens.unwrap_or(MAX_TOKENS).min(MAX_TOKENS);
    let output = || EngineCoreOutput {
        request_id: request.request_id.clone(),
        ..EngineCoreOutput::default()
    };
    if params.structured_outputs.is_some() {
        let admitted = EngineCoreEvent {
            event_type: EngineCoreEventType::Admitted,
            timestamp: 0.0,
        };
        let admission = EngineCoreOutput {
            events: vec![admitted],
            ..output()
        };
        send(writer, vec![admission], None);
    }
    let num_prompt_tokens = request.prompt_token_ids.len();
    for at in 0..num_tokens {
        // Any of the vocabulary, and the same for the same request.
        let last = request.prompt_token_ids.last().copied().unwrap_or(0);
        let token = last.wrapping_mul(31).wrapping_add(at * 997) % VOCAB_SIZE;
        let is_first = at == 0;
        let prompt_rows = num_prompt_tokens.saturating_sub(1);
        let step = EngineCoreOutput {
            new_token_ids: vec![token],
            new_logprobs: rows(params.logprobs, params.logprob_token_ids.as_deref(), 1),
            new_prompt_logprobs: match is_first {
                true => rows(
                    params.prompt_logprobs,
                    params.prompt_logprob_token_ids.as_deref(),
                    prompt_rows.saturating_sub(params.prompt_logprob_start as usize),
                ),
                false => None,
            },
            prefill_stats: is_first.then_some(PrefillStats {
                num_prompt_tokens: num_prompt_tokens as u32,
                num_cached_tokens: 0,
            }),
            finish_reason: (at + 1 == num_tokens).then_some(FinishReason::Length),
            ..output()
        };
        send(writer, vec![step], None);
    }
    if num_tokens == 0 {
        let end = EngineCoreOutput {
            finish_reason: Some(FinishReason::Length),
            ..output()
        };
        send(writer, vec![end], None);
    }
}

/// Logprobs of some positions, where they were asked for.
fn rows(top: Option<i32>, token_ids: Option<&[u32]>, positions: usize) -> Option<LogprobsLists> {
    let row: Vec<u32> = match (top, token_ids) {
        (_, Some(ids)) => [0].iter().chain(ids).copied().collect(),
        (Some(top), None) => (0..=top.clamp(0, 20) as u32).collect(),
        (None, None) => return None,
    };
    Some(LogprobsLists {
        logprobs: vec![vec![-1.0; row.len()]; positions],
        logprob_token_ids: vec![row; positions],
        sampled_token_ranks: vec![1; positions],
    })
}

fn send(
    writer: &mut FrameWriter,
    outputs: Vec<EngineCoreOutput>,
    utility_output: Option<UtilityOutput>,
) {
    let outputs = EngineCoreOutputs {
        outputs,
        utility_output,
        ..EngineCoreOutputs::default()
    };
    // A frontend that is gone needs no answer.
    let _ = writer.write(&EngineCoreMessage::Outputs(outputs));
}
