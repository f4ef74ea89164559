//! The handshake, with each side's real code against the other's, and against strangers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::thread::{self, JoinHandle};
use std::time::Duration;

use protocol::handshake::{HandshakeError, startup_handshake, wait_for_engine_startup};
use protocol::transport::{FrameReader, FrameWriter, PrivateAddress, Stream, tokio as async_io};
use protocol::*;

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(20);

fn ready() -> EngineCoreReadyResponse {
    EngineCoreReadyResponse {
        client_index: 0,
        model_name: "tiny".to_owned(),
        vocab_size: 512,
        tokenizer_fingerprint: "ab".to_owned(),
        weights_fingerprint: Some("cd".to_owned()),
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

fn metadata() -> EngineHandshakeMetadata {
    EngineHandshakeMetadata {
        config: Some(EngineConfig::default()),
    }
}

fn other_version() -> Hello {
    Hello {
        protocol_version: 999,
        build_version: "9.9.9".to_owned(),
    }
}

/// A core on a thread, and the frontend's end of its connection.
async fn connect<T: Send + 'static>(
    core: impl FnOnce(FrameReader, FrameWriter) -> T + Send + 'static,
) -> (JoinHandle<T>, async_io::FrameReader, async_io::FrameWriter) {
    let address = PrivateAddress::new().unwrap();
    let listener = async_io::Listener::bind(address.path()).unwrap();
    let stream = Stream::connect(address.path()).unwrap();
    let core = thread::spawn(move || {
        let (reader, writer) = stream.split();
        core(reader, writer)
    });
    let (reader, writer) = listener.accept().await.unwrap().split();
    (core, reader, writer)
}

/// The frontend's side against `core`, which may be anything.
async fn frontend<T: Send + 'static>(
    timeout: Duration,
    core: impl FnOnce(FrameReader, FrameWriter) -> T + Send + 'static,
) -> (
    Result<EngineCoreReadyResponse, HandshakeError>,
    Vec<LoadProgress>,
    T,
) {
    let (core, mut reader, mut writer) = connect(core).await;
    let mut progress = Vec::new();
    let result = wait_for_engine_startup(&mut reader, &mut writer, &metadata(), timeout, |p| {
        progress.push(p);
    })
    .await;
    drop((reader, writer));
    (result, progress, core.join().unwrap())
}

#[tokio::test]
async fn a_core_gets_ready() {
    let (result, progress, received) = frontend(LONG, |mut reader, mut writer| {
        let received = startup_handshake(&mut reader, &mut writer, LONG).unwrap();
        for done_bytes in [0, 50, 100] {
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
        received
    })
    .await;
    assert_eq!(result.unwrap(), ready());
    assert_eq!(
        progress.iter().map(|p| p.done_bytes).collect::<Vec<_>>(),
        [0, 50, 100]
    );
    assert_eq!(received, metadata());
}

#[tokio::test]
async fn a_core_that_can_not_start_says_why() {
    let (result, _, ()) = frontend(LONG, |mut reader, mut writer| {
        startup_handshake(&mut reader, &mut writer, LONG).unwrap();
        let failure = StartupFailure {
            message: "no config.json in /models/x".to_owned(),
        };
        writer
            .write(&EngineCoreStartupMessage::Failure(failure))
            .unwrap();
    })
    .await;
    assert_eq!(
        result.unwrap_err().to_string(),
        "engine core can't start: no config.json in /models/x"
    );
}

#[tokio::test]
async fn a_core_of_another_version_is_refused_by_the_frontend() {
    let (result, _, ()) = frontend(LONG, |mut reader, mut writer| {
        writer.write(&other_version()).unwrap();
        assert_eq!(reader.read().unwrap(), Some(Hello::current()));
        // Nothing follows the frontend's Hello.
        assert_eq!(reader.read::<EngineHandshakeMetadata>().unwrap(), None);
    })
    .await;
    assert_eq!(
        result.unwrap_err().to_string(),
        format!(
            "frontend {BUILD_VERSION} (protocol {PROTOCOL_VERSION}) and engine core 9.9.9 \
             (protocol 999) don't match: use the two executables of one release"
        )
    );
}

#[tokio::test]
async fn a_frontend_of_another_version_is_refused_by_the_core() {
    let (core, mut reader, mut writer) =
        connect(|mut reader, mut writer| startup_handshake(&mut reader, &mut writer, LONG)).await;
    writer.write(&other_version()).await.unwrap();
    assert_eq!(reader.read().await.unwrap(), Some(Hello::current()));
    let error = core.join().unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "frontend 9.9.9 (protocol 999) and engine core {BUILD_VERSION} (protocol \
             {PROTOCOL_VERSION}) don't match: use the two executables of one release"
        )
    );
}

/// Same messages, other build: they still don't go together.
#[tokio::test]
async fn the_build_counts_as_well() {
    let (result, _, ()) = frontend(LONG, |mut reader, mut writer| {
        let hello = Hello {
            build_version: "0.0.1".to_owned(),
            ..Hello::current()
        };
        writer.write(&hello).unwrap();
        reader.read::<Hello>().unwrap();
    })
    .await;
    assert!(matches!(
        result,
        Err(HandshakeError::VersionMismatch { .. })
    ));
}

#[tokio::test]
async fn an_end_says_what_was_due() {
    let (result, _, ()) = frontend(LONG, |reader, writer| drop((reader, writer))).await;
    // Depending on who is faster, the frontend's own Hello fails or the core's doesn't come.
    let error = result.unwrap_err().to_string();
    assert!(error.contains("Hello"), "{error}");

    let (result, _, ()) = frontend(LONG, |mut reader, mut writer| {
        startup_handshake(&mut reader, &mut writer, LONG).unwrap();
    })
    .await;
    assert_eq!(
        result.unwrap_err().to_string(),
        "connection closed by the other side before its EngineCoreReadyResponse"
    );

    let (core, mut reader, mut writer) =
        connect(|mut reader, mut writer| startup_handshake(&mut reader, &mut writer, LONG)).await;
    writer.write(&Hello::current()).await.unwrap();
    reader.read::<Hello>().await.unwrap();
    drop((reader, writer));
    assert_eq!(
        core.join().unwrap().unwrap_err().to_string(),
        "connection closed by the other side before its EngineHandshakeMetadata"
    );
}

#[tokio::test]
async fn silence_ends_both_sides() {
    let (result, _, ()) = frontend(SHORT, |mut reader, _writer| {
        // Until the frontend gives up.
        while reader.read::<Hello>().unwrap().is_some() {}
    })
    .await;
    assert_eq!(
        result.unwrap_err().to_string(),
        "handshake failed at Hello: no message within 20ms"
    );

    let (core, _reader, _writer) =
        connect(|mut reader, mut writer| startup_handshake(&mut reader, &mut writer, SHORT)).await;
    assert_eq!(
        core.join().unwrap().unwrap_err().to_string(),
        "handshake failed at Hello: no message within 20ms"
    );
}

#[tokio::test]
async fn a_stranger_is_refused() {
    let (result, _, ()) = frontend(LONG, |mut reader, mut writer| {
        writer
            .write(&LoadProgress {
                done_bytes: 5,
                total_bytes: 200,
            })
            .unwrap();
        while reader.read::<Hello>().unwrap().is_some() {}
    })
    .await;
    let error = result.unwrap_err().to_string();
    let expected = "handshake failed at Hello: frame is no Hello: it ends too early";
    assert!(error.starts_with(expected), "{error}");
}
