//! What the cores of these tests say: the real protocol over a real socket, answers by script.

use std::time::Duration;

use protocol::handshake::startup_handshake;
use protocol::transport::{FrameReader, FrameWriter};
use protocol::*;

/// Longer than any test takes.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) fn ready() -> EngineCoreReadyResponse {
    EngineCoreReadyResponse {
        client_index: 7,
        model_name: "tiny".to_owned(),
        vocab_size: 512,
        tokenizer_fingerprint: "ab".to_owned(),
        weights_fingerprint: None,
        max_model_len: 128,
        block_size: 16,
        num_blocks: 9,
        kv_cache_bytes: 4096,
        dtype: "float32".to_owned(),
        num_threads: 1,
        max_num_seqs: 4,
        max_num_batched_tokens: 64,
        max_num_queued_reqs: Some(4096),
        max_logprobs: 20,
        pooler: Default::default(),
    }
}

/// One step's output: one token for one request.
pub(crate) fn step(request_id: &str, token: u32) -> EngineCoreOutputs {
    EngineCoreOutputs {
        outputs: vec![EngineCoreOutput {
            request_id: request_id.to_owned(),
            new_token_ids: vec![token],
            ..EngineCoreOutput::default()
        }],
        ..EngineCoreOutputs::default()
    }
}

/// The core's side up to and including "ready".
pub(crate) fn get_ready(
    reader: &mut FrameReader,
    writer: &mut FrameWriter,
) -> EngineHandshakeMetadata {
    let metadata = startup_handshake(reader, writer, LONG).unwrap();
    for done_bytes in [50, 100] {
        let progress = LoadProgress {
            done_bytes,
            total_bytes: 100,
        };
        writer
            .write(&EngineCoreStartupMessage::LoadProgress(progress))
            .unwrap();
    }
    writer
        .write(&EngineCoreStartupMessage::Ready(ready()))
        .unwrap();
    metadata
}
