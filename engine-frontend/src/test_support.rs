//! What the tests of several files need: a small tokenizer and a core without a process.

pub(crate) mod allocations;

use std::sync::{Arc, Mutex};

use protocol::{
    EngineCoreOutput, EngineCoreOutputs, EngineCoreReadyResponse, EngineCoreRequest, FinishReason,
};
use tokenizer::Tokenizer;
use tokio::sync::mpsc;

use crate::async_llm::{AsyncLLM, BoxFuture, CoreClient};
use crate::engine_core_client::EngineCoreClientError;
use crate::error::EngineDeadError;

/// Ids of the special tokens of [`tokenizer`]; ids below them are the bytes.
pub(crate) const EOS: u32 = 256;
pub(crate) const IM_END: u32 = 257;
pub(crate) const THINK_START: u32 = 258;
pub(crate) const THINK_END: u32 = 259;
pub(crate) const VOCAB_SIZE: u32 = 260;

const CHAT_TEMPLATE: &str = "{% for m in messages %}[{{ m.role }}]{{ m.content }}\
    {% endfor %}{% if tools %}(tools){% endif %}\
    {% if add_generation_prompt %}[assistant]{% endif %}";

/// A tokenizer in which every byte is a token and the token's id is the byte, with an end of text
/// (`</s>`, 256), a second one (`<|im_end|>`, 257) and thinking (`<think>`, 258, 259).
pub(crate) fn tokenizer() -> Arc<Tokenizer> {
    tokenizer_with("[256, 257]", true)
}

/// The same with other end-of-text ids in `generation_config.json`, or without thinking.
pub(crate) fn tokenizer_with(eos_token_ids: &str, thinking: bool) -> Arc<Tokenizer> {
    tokenizer_of(eos_token_ids, thinking, CHAT_TEMPLATE)
}

/// One that thinks, with this chat template.
pub(crate) fn tokenizer_with_template(chat_template: &str) -> Arc<Tokenizer> {
    tokenizer_of("[256, 257]", true, chat_template)
}

fn tokenizer_of(eos_token_ids: &str, thinking: bool, chat_template: &str) -> Arc<Tokenizer> {
    let vocab: serde_json::Map<String, serde_json::Value> = (0..=255_u8)
        .map(|byte| (byte_level_char(byte).to_string(), byte.into()))
        .collect();
    let mut added = vec![("</s>", true), ("<|im_end|>", true)];
    if thinking {
        added.extend([("<think>", false), ("</think>", false)]);
    }
    let added: Vec<_> = (256..)
        .zip(added)
        .map(|(id, (content, special))| {
            serde_json::json!({
                "id": id, "content": content, "special": special, "single_word": false,
                "lstrip": false, "rstrip": false, "normalized": false,
            })
        })
        .collect();
    let byte_level = serde_json::json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true,
    });
    let tokenizer_json = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
        "pre_tokenizer": byte_level, "post_processor": null, "decoder": byte_level,
        "added_tokens": added,
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    });
    let generation_config = format!("{{\"eos_token_id\": {eos_token_ids}}}");
    let files = [
        ("tokenizer.json", tokenizer_json.to_string()),
        (
            "tokenizer_config.json",
            r#"{"eos_token": "</s>"}"#.to_owned(),
        ),
        ("chat_template.jinja", chat_template.to_owned()),
        ("generation_config.json", generation_config),
    ];
    let files: Vec<(&str, &[u8])> = files
        .iter()
        .map(|(name, contents)| (*name, contents.as_bytes()))
        .collect();
    Arc::new(Tokenizer::from_bytes(&files).unwrap())
}

/// How byte-level vocabularies spell a byte: printable ones as themselves, the others, in order,
/// from U+0100 on (the GPT-2 table).
fn byte_level_char(byte: u8) -> char {
    let is_plain = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if is_plain(byte) {
        return char::from(byte);
    }
    let rank = (0..byte).filter(|&b| !is_plain(b)).count();
    char::from_u32(0x100 + u32::try_from(rank).unwrap()).unwrap()
}

/// Text as token ids of [`tokenizer`].
pub(crate) fn ids(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

/// One step's outputs.
pub(crate) fn step(outputs: Vec<EngineCoreOutput>) -> EngineCoreOutputs {
    EngineCoreOutputs {
        outputs,
        ..EngineCoreOutputs::default()
    }
}

/// A request's share of a step.
pub(crate) fn output(
    request_id: &str,
    text: &str,
    finish_reason: Option<FinishReason>,
) -> EngineCoreOutput {
    EngineCoreOutput {
        request_id: request_id.to_owned(),
        new_token_ids: ids(text),
        finish_reason,
        ..EngineCoreOutput::default()
    }
}

/// What a core of the tests says when it is ready.
pub(crate) fn ready(max_model_len: u32) -> EngineCoreReadyResponse {
    EngineCoreReadyResponse {
        client_index: 3,
        model_name: "test-model".to_owned(),
        vocab_size: VOCAB_SIZE + 12,
        tokenizer_fingerprint: String::new(),
        weights_fingerprint: None,
        max_model_len,
        block_size: 16,
        num_blocks: 64,
        kv_cache_bytes: 0,
        dtype: "float32".to_owned(),
        num_threads: 1,
        max_num_seqs: 8,
        max_num_batched_tokens: 64,
        max_num_queued_reqs: None,
        max_logprobs: 20,
        pooler: Default::default(),
    }
}

/// What a [`FakeCore`] was told.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Told {
    Add(Box<EngineCoreRequest>),
    Abort(Vec<String>),
}

type StepResult = Result<Option<EngineCoreOutputs>, EngineDeadError>;

/// A client whose core is the test: what it is told arrives at one channel, what the test sends
/// to the other comes out of it.
#[derive(Debug)]
pub(crate) struct FakeClient {
    told: Mutex<mpsc::UnboundedSender<Told>>,
    outputs: tokio::sync::Mutex<mpsc::UnboundedReceiver<StepResult>>,
}

/// The test's end of a [`FakeClient`].
#[derive(Debug)]
pub(crate) struct FakeCore {
    pub(crate) told: mpsc::UnboundedReceiver<Told>,
    pub(crate) outputs: mpsc::UnboundedSender<StepResult>,
}

impl FakeCore {
    /// The next request.
    pub(crate) async fn added(&mut self) -> EngineCoreRequest {
        match self.told.recv().await {
            Some(Told::Add(request)) => *request,
            other => panic!("expected a request, got {other:?}"),
        }
    }

    /// The next abort.
    pub(crate) async fn aborted(&mut self) -> Vec<String> {
        match self.told.recv().await {
            Some(Told::Abort(ids)) => ids,
            other => panic!("expected an abort, got {other:?}"),
        }
    }

    pub(crate) fn send(&self, outputs: Vec<EngineCoreOutput>) {
        self.outputs.send(Ok(Some(step(outputs)))).unwrap();
    }

    pub(crate) fn die(&self) {
        let dead = EngineDeadError {
            reason: "killed by the test".to_owned(),
            exit_status: None,
        };
        self.outputs.send(Err(dead)).unwrap();
    }
}

impl CoreClient for FakeClient {
    fn add_request(&self, request: EngineCoreRequest) -> Result<(), EngineCoreClientError> {
        let _ = self.told.lock().unwrap().send(Told::Add(Box::new(request)));
        Ok(())
    }

    fn abort_requests(&self, request_ids: Vec<String>) -> Result<(), EngineCoreClientError> {
        let _ = self.told.lock().unwrap().send(Told::Abort(request_ids));
        Ok(())
    }

    fn get_output(&self) -> BoxFuture<'_, StepResult> {
        Box::pin(async { self.outputs.lock().await.recv().await.unwrap_or(Ok(None)) })
    }

    fn shutdown(&self, _drain_seconds: f64) -> BoxFuture<'_, Result<(), EngineDeadError>> {
        Box::pin(async { Ok(()) })
    }
}

/// An engine whose core is the test.
pub(crate) fn fake_engine(max_model_len: u32) -> (AsyncLLM, FakeCore) {
    fake_engine_with(ready(max_model_len))
}

/// The same where it says this when it is ready.
pub(crate) fn fake_engine_with(ready: EngineCoreReadyResponse) -> (AsyncLLM, FakeCore) {
    fake_engine_on(ready, tokenizer())
}

/// The same with this tokenizer.
pub(crate) fn fake_engine_on(
    ready: EngineCoreReadyResponse,
    tokenizer: Arc<Tokenizer>,
) -> (AsyncLLM, FakeCore) {
    let (told_sender, told) = mpsc::unbounded_channel();
    let (outputs, outputs_receiver) = mpsc::unbounded_channel();
    let client = Arc::new(FakeClient {
        told: Mutex::new(told_sender),
        outputs: tokio::sync::Mutex::new(outputs_receiver),
    });
    let engine = AsyncLLM::new(client, ready, tokenizer);
    (engine, FakeCore { told, outputs })
}
