//! The client against a core that was started by hand: what arrives, and what happens when the
//! core misbehaves.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod fake_engine_core;

use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use engine_frontend::engine_core_client::{
    EngineCoreClient, EngineCoreClientError, EngineCoreStartupError, EngineDeadError,
};
use engine_frontend::{CoreHealth, CoreSource, SupervisedCore, SupervisorOptions};
use fake_engine_core::{LONG, get_ready, ready, step};
use protocol::codec::{CodecError, MAX_FRAME, encode_frame};
use protocol::handshake::HandshakeError;
use protocol::transport::{FrameReader, FrameWriter, Listener, PrivateAddress};
use protocol::*;
use serde_json::json;

fn request(request_id: &str) -> EngineCoreRequest {
    EngineCoreRequest {
        request_id: request_id.to_owned(),
        prompt_token_ids: vec![1, 2, 3].into(),
        ..EngineCoreRequest::default()
    }
}

fn died(reason: &str) -> EngineDeadError {
    EngineDeadError {
        reason: reason.to_owned(),
        exit_status: None,
    }
}

/// The next request; the test fails if there is none.
fn next(reader: &mut FrameReader) -> EngineCoreRequestType {
    reader
        .read()
        .unwrap()
        .expect("the client closed the connection")
}

fn answer(call_id: u64, result: UtilityResult) -> EngineCoreMessage {
    EngineCoreMessage::Outputs(EngineCoreOutputs {
        utility_output: Some(UtilityOutput { call_id, result }),
        ..EngineCoreOutputs::default()
    })
}

/// A client of `core`, which has the connection from its first byte on.
async fn connect_raw<T: Send + 'static>(
    core: impl FnOnce(FrameReader, FrameWriter) -> T + Send + 'static,
) -> (
    Result<EngineCoreClient, EngineCoreStartupError>,
    JoinHandle<T>,
) {
    let address = PrivateAddress::new().unwrap();
    let listener = Listener::bind(address.path()).unwrap();
    let core = thread::spawn(move || {
        let (reader, writer) = listener.accept().unwrap().split();
        core(reader, writer)
    });
    (
        EngineCoreClient::connect(address.path(), LONG, |_| ()).await,
        core,
    )
}

/// A client of `core`, which starts after "ready".
async fn connect<T: Send + 'static>(
    core: impl FnOnce(FrameReader, FrameWriter) -> T + Send + 'static,
) -> (EngineCoreClient, JoinHandle<T>) {
    let (client, core) = connect_raw(|mut reader, mut writer| {
        get_ready(&mut reader, &mut writer);
        core(reader, writer)
    })
    .await;
    (client.unwrap(), core)
}

/// Reads until the client closes the connection.
fn until_closed(mut reader: FrameReader) {
    while reader.read::<EngineCoreRequestType>().unwrap().is_some() {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_go_out_and_outputs_come_in() {
    let (client, core) = connect(|mut reader, mut writer| {
        let received = [next(&mut reader), next(&mut reader)];
        for token in [4, 5] {
            writer
                .write(&EngineCoreMessage::Outputs(step("a", token)))
                .unwrap();
        }
        until_closed(reader);
        received
    })
    .await;
    assert_eq!(client.ready_response(), &ready());
    assert_eq!(client.process_id(), None);
    assert_eq!(client.check_alive(), Ok(()));
    client.add_request(request("a")).unwrap();
    client.abort_requests(Vec::new()).unwrap();
    client.abort_requests(vec!["a".to_owned()]).unwrap();
    assert_eq!(client.get_output().await, Ok(Some(step("a", 4))));
    assert_eq!(client.get_output().await, Ok(Some(step("a", 5))));
    drop(client);
    let [added, aborted] = core.join().unwrap();
    let expected = EngineCoreRequest {
        client_index: ready().client_index,
        ..request("a")
    };
    assert_eq!(added, EngineCoreRequestType::Add(Box::new(expected)));
    assert_eq!(aborted, EngineCoreRequestType::Abort(vec!["a".to_owned()]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_core_that_was_started_by_hand_keeps_its_configuration() {
    let (client, core) =
        connect_raw(|mut reader, mut writer| get_ready(&mut reader, &mut writer)).await;
    client.unwrap();
    assert_eq!(
        core.join().unwrap(),
        EngineHandshakeMetadata { config: None }
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_core_of_another_version_is_refused() {
    let (client, core) = connect_raw(|mut reader, mut writer| {
        let hello = Hello {
            protocol_version: 2,
            build_version: "9.9.9".to_owned(),
        };
        writer.write(&hello).unwrap();
        reader.read::<Hello>().unwrap()
    })
    .await;
    let error = client.unwrap_err();
    assert!(matches!(
        error,
        EngineCoreStartupError::Handshake(HandshakeError::VersionMismatch { .. })
    ));
    let versions = format!(
        "frontend {} and engine core 9.9.9 (protocol 2)",
        Hello::current()
    );
    assert!(error.to_string().starts_with(&versions), "{error}");
    assert_eq!(core.join().unwrap(), Some(Hello::current()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_at_the_address_is_an_error() {
    let error = EngineCoreClient::connect(Path::new("/nonexistent/core.sock"), LONG, |_| ())
        .await
        .unwrap_err();
    assert!(
        error.to_string().starts_with(
            "no connection to the engine core: can't connect to /nonexistent/core.sock: "
        ),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_core_is_an_error() {
    let address = PrivateAddress::new().unwrap();
    let _listener = Listener::bind(address.path()).unwrap();
    let timeout = Duration::from_millis(20);
    let error = EngineCoreClient::connect(address.path(), timeout, |_| ())
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "handshake failed at Hello: no message within 20ms"
    );
}

/// How each kind of call ends when the core does what `core` does after one request.
async fn dies_with(expected: &str, core: impl FnOnce(FrameReader, FrameWriter) + Send + 'static) {
    let (client, core) = connect(|mut reader, writer| {
        next(&mut reader);
        core(reader, writer);
    })
    .await;
    let pending = client.call_utility("pending", &[]);
    let error = died(expected);
    assert_eq!(
        pending.await,
        Err(EngineCoreClientError::EngineDead(error.clone()))
    );
    core.join().unwrap();
    // What it had sent still comes, and then the error, every time.
    assert_eq!(client.get_output().await, Ok(Some(step("a", 4))));
    assert_eq!(client.get_output().await, Err(error.clone()));
    assert_eq!(client.get_output().await, Err(error.clone()));
    assert_eq!(client.check_alive(), Err(error.clone()));
    assert_eq!(client.add_request(request("b")), Err(error.clone().into()));
    assert_eq!(
        client.abort_requests(vec!["a".to_owned()]),
        Err(error.clone().into())
    );
    assert_eq!(
        client.call_utility("later", &[]).await,
        Err(error.clone().into())
    );
    assert_eq!(client.shutdown(0.0).await, Err(error));
}

fn send_step(writer: &mut FrameWriter) {
    writer
        .write(&EngineCoreMessage::Outputs(step("a", 4)))
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_connection_ends_every_call() {
    dies_with(
        "it closed the connection without giving a reason",
        |_reader, mut writer| {
            send_step(&mut writer);
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_core_that_says_why_it_ends_is_quoted() {
    dies_with("the scheduler lost a block", |_reader, mut writer| {
        send_step(&mut writer);
        let dead = EngineDead {
            reason: "the scheduler lost a block".to_owned(),
        };
        writer.write(&EngineCoreMessage::EngineDead(dead)).unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frame_that_is_no_message_ends_the_connection() {
    let expected = "what it sent can't be used: frame is no EngineCoreMessage: invalid value: \
                    integer `9`, expected variant index 0 <= i < 2";
    dies_with(expected, |reader, mut writer| {
        send_step(&mut writer);
        writer
            .write(&LoadProgress {
                done_bytes: 9,
                total_bytes: 9,
            })
            .unwrap();
        until_closed(reader);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_truncated_frame_ends_the_connection() {
    // A listener of the standard library, since ours sends whole frames only.
    let address = PrivateAddress::new().unwrap();
    let listener = UnixListener::bind(address.path()).unwrap();
    let core = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = Vec::new();
        encode_frame(&Hello::current(), MAX_FRAME, &mut bytes).unwrap();
        let message = EngineCoreStartupMessage::Ready(ready());
        encode_frame(&message, MAX_FRAME, &mut bytes).unwrap();
        bytes.extend([100, 0, 0, 0, 1]);
        stream.write_all(&bytes).unwrap();
        stream
    });
    let client = EngineCoreClient::connect(address.path(), LONG, |_| ())
        .await
        .unwrap();
    drop(core.join().unwrap());
    let expected =
        "what it sent can't be used: connection ended inside a frame: 5 of 104 bytes arrived";
    assert_eq!(client.get_output().await, Err(died(expected)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_does_not_fit_fails_alone() {
    let (client, core) = connect(|mut reader, _writer| next(&mut reader)).await;
    let mut large = request("large");
    large.prompt_token_ids = vec![u32::MAX; 20_000_000].into();
    assert!(matches!(
        client.add_request(large),
        Err(EngineCoreClientError::Codec(
            CodecError::MessageTooLarge { .. }
        ))
    ));
    client.add_request(request("small")).unwrap();
    let EngineCoreRequestType::Add(received) = core.join().unwrap() else {
        panic!()
    };
    assert_eq!(received.request_id, "small");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn utility_calls_find_their_answers() {
    const CALLS: usize = 100;
    let (client, core) = connect(|mut reader, mut writer| {
        let mut calls: Vec<_> = (0..CALLS)
            .map(|_| match next(&mut reader) {
                EngineCoreRequestType::Utility(call) => call,
                other => panic!("{other:?}"),
            })
            .collect();
        // Answered in another order than asked.
        calls.sort_by_key(|call| call.call_id * 37 % 101);
        for call in calls {
            assert_eq!((call.client_index, &*call.method), (7, "echo"));
            let args: serde_json::Value = serde_json::from_str(&call.args).unwrap();
            let result = match args[0].as_u64().unwrap() {
                n if n % 3 == 0 => UtilityResult::Failure(format!("not {n}")),
                n => UtilityResult::Success(json!({ "got": n }).to_string()),
            };
            writer.write(&answer(call.call_id, result)).unwrap();
        }
        until_closed(reader);
    })
    .await;
    let client = Arc::new(client);
    let calls: Vec<_> = (0..CALLS)
        .map(|n| {
            let client = Arc::clone(&client);
            tokio::spawn(async move { client.call_utility("echo", &[json!(n)]).await })
        })
        .collect();
    for (n, call) in calls.into_iter().enumerate() {
        let expected = if n % 3 == 0 {
            Err(EngineCoreClientError::Utility {
                method: "echo".to_owned(),
                message: format!("not {n}"),
            })
        } else {
            Ok(json!({ "got": n }))
        };
        assert_eq!(call.await.unwrap(), expected);
    }
    drop(client);
    core.join().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_not_json_fails_its_call_only() {
    let (client, core) = connect(|mut reader, mut writer| {
        for result in ["{", "true"] {
            let EngineCoreRequestType::Utility(call) = next(&mut reader) else {
                panic!()
            };
            writer
                .write(&answer(
                    call.call_id,
                    UtilityResult::Success(result.to_owned()),
                ))
                .unwrap();
        }
        // An answer that nobody waits for does no harm.
        writer
            .write(&answer(999, UtilityResult::Success("1".to_owned())))
            .unwrap();
        send_step(&mut writer);
        until_closed(reader);
    })
    .await;
    let error = client
        .call_utility("broken", &[])
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("call to broken failed: its result is not JSON: "),
        "{error}"
    );
    assert_eq!(client.call_utility("fine", &[]).await, Ok(json!(true)));
    assert_eq!(client.get_output().await, Ok(Some(step("a", 4))));
    drop(client);
    core.join().unwrap();
}

/// An answer beside outputs: both arrive, and the outputs come without it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_may_travel_with_outputs() {
    let (client, core) = connect(|mut reader, mut writer| {
        let EngineCoreRequestType::Utility(call) = next(&mut reader) else {
            panic!()
        };
        let result = UtilityResult::Success("1".to_owned());
        let utility_output = Some(UtilityOutput {
            call_id: call.call_id,
            result,
        });
        let message = EngineCoreOutputs {
            utility_output,
            ..step("a", 4)
        };
        writer.write(&EngineCoreMessage::Outputs(message)).unwrap();
        until_closed(reader);
    })
    .await;
    assert_eq!(client.call_utility("one", &[]).await, Ok(json!(1)));
    assert_eq!(client.get_output().await, Ok(Some(step("a", 4))));
    drop(client);
    core.join().unwrap();
}

/// More outputs than may wait: nothing is lost, and the end comes after them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_consumer_loses_nothing() {
    const STEPS: u32 = 10_000;
    let (client, core) = connect(|_reader, mut writer| {
        for token in 0..STEPS {
            writer
                .write(&EngineCoreMessage::Outputs(step("a", token)))
                .unwrap();
        }
    })
    .await;
    for token in 0..STEPS {
        assert_eq!(client.get_output().await, Ok(Some(step("a", token))));
    }
    assert!(client.get_output().await.is_err());
    core.join().unwrap();
}

/// A core that others use as well goes on: it is told nothing, the connection just closes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_leaves_a_core_that_was_started_by_hand() {
    let (client, core) =
        connect(|mut reader, _writer| reader.read::<EngineCoreRequestType>().unwrap()).await;
    assert_eq!(client.shutdown(1.0).await, Ok(()));
    assert_eq!(core.join().unwrap(), None);
    assert_eq!(client.get_output().await, Ok(None));
    assert_eq!(
        client.add_request(request("a")),
        Err(died("it was shut down").into())
    );
    assert_eq!(client.shutdown(0.0).await, Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_core_is_not_healthy_whoever_paused_it() {
    let paused = Arc::new(AtomicBool::new(false));
    let says = Arc::clone(&paused);
    let (client, core) = connect(move |mut reader, mut writer| {
        while let Some(EngineCoreRequestType::Utility(call)) = reader.read().unwrap() {
            assert_eq!(call.method, "heartbeat");
            let paused = says.load(Ordering::Relaxed);
            let state = json!({"beats": 1, "runnable": false, "paused": paused});
            let result = UtilityResult::Success(state.to_string());
            writer.write(&answer(call.call_id, result)).unwrap();
        }
    })
    .await;
    let source = CoreSource::Connect("/nonexistent".into(), LONG);
    let options = SupervisorOptions {
        max_restarts: 0,
        health_stall: LONG,
        ..SupervisorOptions::default()
    };
    let supervised = SupervisedCore::new(client, source, options);
    for (pause, health) in [
        (true, CoreHealth::Paused),
        (false, CoreHealth::Healthy),
        (true, CoreHealth::Paused),
    ] {
        paused.store(pause, Ordering::Relaxed);
        while supervised.health() != health {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    drop(supervised);
    core.join().unwrap();
}
