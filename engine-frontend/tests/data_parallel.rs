//! Several cores behind one client, over real sockets: where requests go, and what a death means for the others.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod fake_engine_core;

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use engine_frontend::engine_core_client::EngineCoreClient;
use engine_frontend::{
    CoreClient, CoreEvent, CoreHealth, CoreSource, DataParallelClient, SupervisedCore,
    SupervisorOptions,
};
use fake_engine_core::{LONG, get_ready, step};
use protocol::transport::{FrameWriter, Listener, PrivateAddress};
use protocol::*;
use serde_json::json;
use tokio::sync::mpsc;

/// A core that a test leads: it tells what it gets, and dies at the utility call `die`. Who connects again gets
/// another one.
struct FakeCore {
    client: Arc<SupervisedCore>,
    told: mpsc::UnboundedReceiver<EngineCoreRequestType>,
    writer: Arc<Mutex<Option<FrameWriter>>>,
    address: PrivateAddress,
}

impl FakeCore {
    async fn start() -> Self {
        Self::start_with(SupervisorOptions::default()).await
    }

    async fn start_with(options: SupervisorOptions) -> Self {
        let address = PrivateAddress::new().unwrap();
        let listener = Listener::bind(address.path()).unwrap();
        let (tell, told) = mpsc::unbounded_channel();
        let writer = Arc::new(Mutex::new(None));
        let shared = Arc::clone(&writer);
        thread::spawn(move || {
            while let Ok(stream) = listener.accept() {
                let (mut reader, mut writer) = stream.split();
                get_ready(&mut reader, &mut writer);
                *shared.lock().unwrap() = Some(writer);
                while let Ok(Some(message)) = reader.read::<EngineCoreRequestType>() {
                    let EngineCoreRequestType::Utility(call) = &message else {
                        if tell.send(message).is_err() {
                            return;
                        }
                        continue;
                    };
                    match call.method.as_str() {
                        "die" => break,
                        "pause_scheduler" | "resume_scheduler" => {
                            let _ = tell.send(message.clone());
                        }
                        _ => {}
                    }
                    let result = match call.method.as_str() {
                        "heartbeat" => json!({"beats": 1, "runnable": false, "paused": false}),
                        _ => json!(true),
                    };
                    let answer = EngineCoreOutputs {
                        utility_output: Some(UtilityOutput {
                            call_id: call.call_id,
                            result: UtilityResult::Success(result.to_string()),
                        }),
                        ..EngineCoreOutputs::default()
                    };
                    let message = EngineCoreMessage::Outputs(answer);
                    let mut writer = shared.lock().unwrap();
                    let _ = writer.as_mut().unwrap().write(&message);
                }
                *shared.lock().unwrap() = None;
            }
        });
        let client = EngineCoreClient::connect(address.path(), LONG, |_| ()).await;
        let source = CoreSource::Connect(address.path().to_owned(), LONG);
        Self {
            client: SupervisedCore::new(client.unwrap(), source, options),
            told,
            writer,
            address,
        }
    }

    /// The requests of the next message.
    async fn added(&mut self) -> Vec<EngineCoreRequest> {
        match self.told.recv().await.unwrap() {
            EngineCoreRequestType::Add(request) => vec![*request],
            EngineCoreRequestType::AddMany(siblings) => siblings.into_requests().collect(),
            other => panic!("expected requests, got {other:?}"),
        }
    }

    /// The ids that the next message aborts.
    async fn aborted(&mut self) -> Vec<String> {
        match self.told.recv().await.unwrap() {
            EngineCoreRequestType::Abort(ids) => ids,
            other => panic!("expected an abort, got {other:?}"),
        }
    }

    /// The method that is called next to pause it or to let it go on, and its arguments.
    async fn called(&mut self) -> (String, String) {
        match self.told.recv().await.unwrap() {
            EngineCoreRequestType::Utility(call) => (call.method, call.args),
            other => panic!("expected a call, got {other:?}"),
        }
    }

    fn send(&self, outputs: EngineCoreOutputs) {
        let message = EngineCoreMessage::Outputs(outputs);
        let mut writer = self.writer.lock().unwrap();
        writer.as_mut().unwrap().write(&message).unwrap();
    }

    async fn die(&self) {
        // There is no answer any more.
        let _ = self.client.call_utility("die", &[]).await;
    }

    /// Dies, and whoever connects again gets nothing.
    async fn die_for_good(&self) {
        std::fs::remove_file(self.address.path()).unwrap();
        self.die().await;
    }
}

async fn two_cores() -> (Arc<DataParallelClient>, FakeCore, FakeCore) {
    let (first, second) = (FakeCore::start().await, FakeCore::start().await);
    let client = DataParallelClient::new(first.client.clone(), vec![second.client.clone()]);
    (client, first, second)
}

/// Tells the numbers of the cores that took the place of others.
fn hear_restarts(client: &DataParallelClient, restarted: mpsc::UnboundedSender<u32>) {
    client.on_event(move |index, event| {
        if event == CoreEvent::Restarted {
            restarted.send(index).unwrap();
        }
    });
}

/// A request with a prompt of so many tokens, all of this one.
fn request(request_id: &str, token: u32, len: usize) -> EngineCoreRequest {
    EngineCoreRequest {
        request_id: request_id.to_owned(),
        prompt_token_ids: vec![token; len].into(),
        ..EngineCoreRequest::default()
    }
}

fn ids(requests: &[EngineCoreRequest]) -> Vec<&str> {
    requests.iter().map(|r| r.request_id.as_str()).collect()
}

/// The next token, and the number of the core that it is of.
async fn next_token(client: &DataParallelClient) -> (u32, u32) {
    let step = client.get_output().await.unwrap().unwrap();
    (step.engine_index, step.outputs[0].new_token_ids[0])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_shared_out_and_outputs_say_whose_they_are() {
    let (client, mut first, mut second) = two_cores().await;
    let all = client.ready_response();
    assert_eq!(
        (all.max_num_seqs, all.num_blocks, all.max_model_len),
        (8, 17, 128)
    );
    assert_eq!(all.max_num_queued_reqs, Some(8192));
    client.add_request(request("a", 1, 40)).unwrap();
    client.add_request(request("b", 2, 40)).unwrap();
    // Its first blocks are those of "b".
    client.add_request(request("c", 2, 64)).unwrap();
    client.add_request(request("d", 3, 5)).unwrap();
    assert_eq!(ids(&first.added().await), ["a"]);
    assert_eq!(ids(&second.added().await), ["b"]);
    assert_eq!(ids(&second.added().await), ["c"]);
    assert_eq!(ids(&first.added().await), ["d"]);
    second.send(step("c", 7));
    assert_eq!(next_token(&client).await, (1, 7));
    first.send(step("a", 8));
    assert_eq!(next_token(&client).await, (0, 8));
    let aborted = ["a", "c", "nobody"].map(str::to_owned).to_vec();
    client.abort_requests(aborted).unwrap();
    assert_eq!(first.aborted().await, ["a"]);
    assert_eq!(second.aborted().await, ["c"]);
    let answers = client.call_utility("reset_prefix_cache", &[]).await;
    assert_eq!(answers.unwrap(), [json!(true), json!(true)]);
    assert_eq!(client.health(), CoreHealth::Healthy);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_dead_core_had_goes_on_in_the_other_at_once() {
    let (client, mut first, mut second) = two_cores().await;
    let (restarted, mut restarts) = mpsc::unbounded_channel();
    hear_restarts(&client, restarted);
    for (id, token) in [("a", 1), ("b", 2), ("c", 3), ("d", 4)] {
        client.add_request(request(id, token, 20)).unwrap();
    }
    assert_eq!(ids(&first.added().await), ["a"]);
    assert_eq!(ids(&first.added().await), ["c"]);
    assert_eq!(ids(&second.added().await), ["b"]);
    assert_eq!(ids(&second.added().await), ["d"]);
    first.send(step("c", 30));
    assert_eq!(next_token(&client).await, (0, 30));
    first.die().await;
    let mut moved = second.added().await;
    if moved.len() < 2 {
        moved.extend(second.added().await);
    }
    assert_eq!(ids(&moved), ["a", "c"]);
    assert_eq!(moved[1].output_token_ids, [30]);
    assert!(moved.iter().all(|request| request.is_replay));
    second.send(step("c", 31));
    assert_eq!(next_token(&client).await, (1, 31));
    // An abort finds it where it is now.
    client.abort_requests(vec!["c".to_owned()]).unwrap();
    assert_eq!(second.aborted().await, ["c"]);
    // The next one is in its place, and gets new requests: it has the fewest.
    assert_eq!(restarts.recv().await, Some(0));
    client.add_request(request("e", 5, 20)).unwrap();
    assert_eq!(ids(&first.added().await), ["e"]);
    assert_eq!(client.health(), CoreHealth::Healthy);
}

/// It was told that a core is gone, and the next one was not paused, or was for good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_reaches_a_core_that_is_being_replaced() {
    let (client, mut first, mut second) = two_cores().await;
    let (tell, mut told) = mpsc::unbounded_channel();
    client.on_event(move |_, event| tell.send(event).unwrap());
    let pause = [json!("abort"), json!(true)];
    let call = async |method, args: &[_]| client.call_utility(method, args).await.unwrap();
    let expected = |method: &str, args: &str| (method.to_owned(), args.to_owned());
    let null = json!(null);

    let place = first.address.path().with_extension("elsewhere");
    std::fs::rename(first.address.path(), &place).unwrap();
    first.die().await;
    assert_eq!(told.recv().await, Some(CoreEvent::Died));
    let answers = call("pause_scheduler", &pause).await;
    assert_eq!(answers, [null.clone(), json!(true)]);
    let with_cache = expected("pause_scheduler", r#"["abort",true]"#);
    assert_eq!(second.called().await, with_cache);
    assert_eq!(call("is_scheduler_paused", &[]).await[0], true);
    assert_eq!(call("reset_prefix_cache", &[]).await[0], true);
    std::fs::rename(&place, first.address.path()).unwrap();
    // There is nothing to abort in the next one.
    let without = expected("pause_scheduler", r#"["keep",false]"#);
    assert_eq!(first.called().await, without);
    assert_eq!(told.recv().await, Some(CoreEvent::Restarted));

    std::fs::rename(first.address.path(), &place).unwrap();
    first.die().await;
    assert_eq!(told.recv().await, Some(CoreEvent::Died));
    let answers = call("resume_scheduler", &[]).await;
    assert_eq!(answers, [null, json!(true)]);
    assert_eq!(call("is_scheduler_paused", &[]).await[0], false);
    std::fs::rename(&place, first.address.path()).unwrap();
    assert_eq!(told.recv().await, Some(CoreEvent::Restarted));
    client.add_request(request("a", 1, 20)).unwrap();
    assert_eq!(ids(&first.added().await), ["a"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspect_of_two_deaths_stays_with_its_core() {
    let (client, mut first, mut second) = two_cores().await;
    let (restarted, mut restarts) = mpsc::unbounded_channel();
    hear_restarts(&client, restarted);
    client.add_request(request("killer", 1, 20)).unwrap();
    client.add_request(request("own", 2, 20)).unwrap();
    first.added().await;
    second.added().await;
    first.die().await;
    assert_eq!(ids(&second.added().await), ["killer"]);
    assert_eq!(restarts.recv().await, Some(0));
    second.die().await;
    // The other one was not to blame.
    assert_eq!(ids(&first.added().await), ["own"]);
    assert_eq!(ids(&second.added().await), ["killer"]);
    assert_eq!(restarts.recv().await, Some(1));
    // Nobody else comes to its core before it has brought something.
    for (id, token) in [("x", 3), ("y", 4), ("z", 5)] {
        client.add_request(request(id, token, 20)).unwrap();
        assert_eq!(ids(&first.added().await), [id]);
    }
    second.send(step("killer", 9));
    assert_eq!(next_token(&client).await, (1, 9));
    client.add_request(request("last", 6, 20)).unwrap();
    assert_eq!(ids(&second.added().await), ["last"]);
    tokio::time::timeout(Duration::from_secs(60), client.shutdown(0.0))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(client.get_output().await, Ok(None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_core_that_is_gone_for_good_leaves_its_requests_to_the_others() {
    let options = SupervisorOptions {
        max_restarts: 1,
        ..SupervisorOptions::default()
    };
    let mut first = FakeCore::start_with(options).await;
    let mut second = FakeCore::start_with(options).await;
    let client = DataParallelClient::new(first.client.clone(), vec![second.client.clone()]);
    let (tell, mut told) = mpsc::unbounded_channel();
    client.on_event(move |index, event| tell.send((index, event)).unwrap());
    client.add_request(request("killer", 1, 20)).unwrap();
    client.add_request(request("own", 2, 20)).unwrap();
    assert_eq!(ids(&first.added().await), ["killer"]);
    assert_eq!(ids(&second.added().await), ["own"]);
    first.die().await;
    assert_eq!(ids(&second.added().await), ["killer"]);
    assert_eq!(told.recv().await, Some((0, CoreEvent::Died)));
    assert_eq!(told.recv().await, Some((0, CoreEvent::Restarted)));
    // A suspect of two deaths stays with its core, and ends with it.
    second.die_for_good().await;
    assert_eq!(ids(&first.added().await), ["own"]);
    assert_eq!(told.recv().await, Some((1, CoreEvent::Died)));
    let step = client.get_output().await.unwrap().unwrap();
    assert_eq!(step.engine_index, 1);
    assert_eq!(step.scheduler_stats, Some(Box::default()));
    let ends: Vec<_> = step.outputs.iter().collect();
    assert!(matches!(ends.as_slice(), [end] if end.request_id == "killer"));
    assert_eq!(ends[0].finish_reason, Some(FinishReason::Error));
    assert_eq!(told.recv().await, Some((1, CoreEvent::GaveUp)));
    assert_eq!(client.num_gone(), 1);
    assert_eq!(client.health(), CoreHealth::Healthy);

    // The other one serves on, and is told alone.
    first.send(fake_engine_core::step("own", 5));
    assert_eq!(next_token(&client).await, (0, 5));
    client.add_request(request("new", 3, 20)).unwrap();
    assert_eq!(ids(&first.added().await), ["new"]);
    let answers = client.call_utility("reset_prefix_cache", &[]).await;
    assert_eq!(answers.unwrap(), [json!(true)]);
    // The last one's end is the engine's.
    first.die_for_good().await;
    let dead = client.get_output().await.unwrap_err();
    assert!(dead.reason.starts_with("engine 0: "), "{}", dead.reason);
    assert_eq!(client.health(), CoreHealth::Dead);
    let refused = client.add_request(request("late", 4, 20));
    assert!(refused.is_err());
}
