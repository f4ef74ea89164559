//! An engine over the model.

use crossbeam_channel::{Sender, unbounded};
use engine_core::core::kv_cache_manager::KVCacheConfig;
use engine_core::core::request::Request;
use engine_core::core::sched::{EngineClock, Scheduler};
use engine_core::engine::{AbortRequests, EngineCore};
use engine_core::worker::Executor;
use protocol::{EngineCoreRequest, FinishReason, SamplingParams, SchedulerConfig};

use crate::counting_model::{CountingModel, Poison};
use crate::{BLOCK_SIZE, greedy, runner};

/// An engine over the model, with its aborts queue.
fn engine(model: CountingModel) -> (EngineCore, Sender<AbortRequests>) {
    let kv_cache = KVCacheConfig {
        num_blocks: 17,
        block_size: BLOCK_SIZE as u32,
        enable_prefix_caching: true,
    };
    let scheduler = Scheduler::new(
        SchedulerConfig::default(),
        kv_cache,
        64,
        EngineClock::start(),
    )
    .unwrap();
    let (aborts, aborts_queue) = unbounded();
    (
        EngineCore::new(
            scheduler,
            Executor::new(runner(model)).unwrap(),
            aborts_queue,
        ),
        aborts,
    )
}

fn add(engine_core: &mut EngineCore, id: &str, prompt: &[u32], max_tokens: u32) {
    let request = EngineCoreRequest {
        request_id: id.to_owned(),
        prompt_token_ids: prompt.into(),
        sampling_params: SamplingParams {
            max_tokens: Some(max_tokens),
            ..greedy()
        },
        ..EngineCoreRequest::default()
    };
    let request = Request::from_engine_core_request(request, &engine_core.block_hasher());
    engine_core.add_request(request);
}

#[test]
fn steps_generate_until_every_request_is_over() {
    let (mut engine_core, _aborts) = engine(CountingModel::default());
    add(&mut engine_core, "a", &[5, 6, 7], 4);
    add(&mut engine_core, "b", &[1], 2);
    let mut tokens = [Vec::new(), Vec::new()];
    let mut finished = Vec::new();
    while engine_core.has_work() {
        for output in engine_core
            .step()
            .unwrap()
            .into_values()
            .flat_map(|outputs| outputs.outputs)
        {
            tokens[usize::from(output.request_id == "b")].extend(output.new_token_ids);
            finished.extend(
                output
                    .finish_reason
                    .map(|reason| (output.request_id, reason)),
            );
        }
    }
    // 7 at position 2, then each token at the next position.
    assert_eq!(tokens, [vec![9, 12, 16, 21], vec![1, 2]]);
    assert_eq!(
        finished,
        [
            ("b".to_owned(), FinishReason::Length),
            ("a".to_owned(), FinishReason::Length)
        ]
    );
    assert_eq!(engine_core.step_times().num_steps, 4);
}

#[test]
fn an_abort_during_the_forward_pass_ends_the_request_in_the_same_step() {
    let (entered_sender, entered) = unbounded();
    let (leave, leave_receiver) = unbounded();
    let wait = Poison::Wait {
        entered: entered_sender,
        leave: leave_receiver,
    };
    let model = CountingModel {
        poison: Some((6, wait)),
        ..CountingModel::default()
    };
    let (mut engine_core, aborts) = engine(model);
    add(&mut engine_core, "stays", &[5], 1);
    add(&mut engine_core, "goes", &[6], 8);
    let aborter = std::thread::spawn(move || {
        entered.recv().unwrap();
        // Another client's wish is no wish.
        for (client_index, id) in [(0, "goes"), (1, "stays")] {
            let request_ids = vec![id.to_owned()];
            aborts
                .send(AbortRequests {
                    client_index,
                    request_ids,
                })
                .unwrap();
        }
        leave.send(()).unwrap();
    });
    let outputs = engine_core.step().unwrap();
    aborter.join().unwrap();
    let outputs: Vec<_> = outputs
        .into_values()
        .flat_map(|outputs| outputs.outputs)
        .collect();
    assert_eq!(outputs.len(), 1);
    assert_eq!(outputs[0].request_id, "stays");
    assert_eq!(outputs[0].new_token_ids, [5]);
    engine_core.step().unwrap();
    assert!(!engine_core.has_work());
}
