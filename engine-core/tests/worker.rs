//! The worker on a model whose answers are known: what goes into each forward pass, and what
//! becomes of its logits.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ops::Range;
use std::sync::{Arc, Mutex};

use crossbeam_channel::{Receiver, Sender, unbounded};
use engine_core::core::kv_cache_manager::KVCacheConfig;
use engine_core::core::sched::{
    CachedRequestData, EngineClock, GrammarOutput, NewRequestData, RequestMasks, Scheduler,
    SchedulerOutput,
};
use engine_core::engine::{AbortRequests, EngineCore};
use engine_core::model_executor::{CausalLm, ComputePool, ForwardInput, ModelError};
use engine_core::request::Request;
use engine_core::structured_output::TokenMask;
use engine_core::worker::{
    Executor, ExecutorError, ModelRunner, ModelRunnerConfig, ModelRunnerError,
};
use protocol::{EngineCoreRequest, FinishReason, LogprobsMode, SamplingParams, SchedulerConfig};

const VOCAB_SIZE: usize = 40;
const BLOCK_SIZE: usize = 4;

/// What one forward pass was given.
#[derive(Debug, Clone, PartialEq, Default)]
struct SeenInput {
    input_ids: Vec<u32>,
    positions: Vec<u32>,
    slot_mapping: Vec<u32>,
    seq_lens: Vec<u32>,
    logits_indices: Vec<u32>,
}

/// After token `t` at position `p` comes token `(t + p) % 37`, whose logit is 10; the next ids
/// have 9, 8, ... ; ids 37 to 39 are padding, and have 100.
#[derive(Default)]
struct CountingModel {
    seen: Arc<Mutex<Vec<SeenInput>>>,
    rows: Vec<(u32, u32)>,
    /// Fails, panics or waits where the token is in the batch.
    poison: Option<(u32, Poison)>,
    all_nan_after: Option<u32>,
}

enum Poison {
    Error,
    Panic,
    /// Says that it is in the forward pass, then waits for leave to go on.
    Wait {
        entered: Sender<()>,
        leave: Receiver<()>,
    },
}

fn next_token(token: u32, position: u32) -> u32 {
    (token + position) % 37
}

impl CausalLm for CountingModel {
    fn forward(&mut self, input: &ForwardInput<'_>) -> Result<(), ModelError> {
        self.seen.lock().unwrap().push(SeenInput {
            input_ids: input.input_ids.to_vec(),
            positions: input.positions.to_vec(),
            slot_mapping: input.slot_mapping.to_vec(),
            seq_lens: input.seq_lens.to_vec(),
            logits_indices: input.logits_indices.to_vec(),
        });
        let row = |index: &u32| {
            let index = *index as usize;
            (input.input_ids[index], input.positions[index])
        };
        self.rows = input.logits_indices.iter().map(row).collect();
        match &self.poison {
            Some((token, poison)) if input.input_ids.contains(token) => match poison {
                Poison::Error => Err(ModelError::Input {
                    field: "input_ids",
                    problem: "poisoned".to_owned(),
                }),
                Poison::Panic => panic!("poisoned"),
                Poison::Wait { entered, leave } => {
                    entered.send(()).unwrap();
                    leave.recv().unwrap();
                    Ok(())
                }
            },
            _ => Ok(()),
        }
    }

    fn compute_logits(&mut self, rows: Range<usize>, logits: &mut [f32]) -> Result<(), ModelError> {
        for (row, logits) in self.rows[rows]
            .iter()
            .zip(logits.chunks_exact_mut(VOCAB_SIZE))
        {
            let best = next_token(row.0, row.1) as usize;
            for (id, logit) in logits.iter_mut().enumerate() {
                let distance = (id + 37 - best) % 37;
                *logit = if id >= 37 {
                    100.0
                } else {
                    10.0 - distance as f32
                };
                if self.all_nan_after == Some(row.0) {
                    *logit = f32::NAN;
                }
            }
        }
        Ok(())
    }

    fn compute_logits_for(
        &mut self,
        row: usize,
        token_ids: &[u32],
        logits: &mut [f32],
    ) -> Result<(), ModelError> {
        let mut full = [0.0; VOCAB_SIZE];
        self.compute_logits(row..row + 1, &mut full)?;
        for (&token_id, logit) in token_ids.iter().zip(logits) {
            *logit = full[token_id as usize];
        }
        Ok(())
    }

    fn vocab_size(&self) -> usize {
        VOCAB_SIZE
    }

    fn hidden_size(&self) -> usize {
        1
    }
}

fn runner_config() -> ModelRunnerConfig {
    ModelRunnerConfig {
        block_size: BLOCK_SIZE,
        max_model_len: 64,
        tokenizer_vocab_size: 37,
        logprobs_mode: LogprobsMode::RawLogprobs,
        enable_sparse_head: true,
    }
}

fn runner(model: CountingModel) -> ModelRunner {
    ModelRunner::new(
        Box::new(model),
        Arc::new(ComputePool::new(2).unwrap()),
        &runner_config(),
    )
}

fn greedy() -> SamplingParams {
    SamplingParams {
        temperature: 0.0,
        ignore_eos: true,
        ..SamplingParams::default()
    }
}

fn new_request(
    id: &str,
    prompt: &[u32],
    block_ids: &[u32],
    params: SamplingParams,
) -> NewRequestData {
    NewRequestData {
        req_id: id.into(),
        prompt_token_ids: prompt.into(),
        output_token_ids: Vec::new(),
        sampling_params: Arc::new(params),
        block_ids: block_ids.to_vec(),
        num_computed_tokens: 0,
    }
}

fn step_of(
    new: Vec<NewRequestData>,
    cached: CachedRequestData,
    scheduled: &[(&str, usize)],
) -> SchedulerOutput {
    let mut step = SchedulerOutput::default();
    step.scheduled_new_reqs = new;
    step.scheduled_cached_reqs = cached;
    step.num_scheduled_tokens = scheduled
        .iter()
        .map(|(id, count)| ((*id).into(), *count))
        .collect();
    step.total_num_scheduled_tokens = scheduled.iter().map(|(_, count)| count).sum();
    step
}

fn cached(
    id: &str,
    new_block_ids: &[u32],
    num_computed: u32,
    num_output: u32,
) -> CachedRequestData {
    CachedRequestData {
        req_ids: vec![id.into()],
        new_block_ids: vec![new_block_ids.to_vec()],
        num_computed_tokens: vec![num_computed],
        num_output_tokens: vec![num_output],
        ..CachedRequestData::default()
    }
}

#[test]
fn a_sampled_token_is_the_next_steps_input() {
    let model = CountingModel::default();
    let seen = Arc::clone(&model.seen);
    let mut runner = runner(model);
    let new = vec![
        new_request("a", &[5, 6, 7], &[3], greedy()),
        new_request("b", &[1, 2, 3, 4, 5], &[9, 1], greedy()),
    ];
    runner
        .execute_model(&step_of(
            new,
            CachedRequestData::default(),
            &[("a", 3), ("b", 5)],
        ))
        .unwrap();
    let output = runner.sample_tokens(None).unwrap();
    assert_eq!(
        output.sampled_token_ids,
        [vec![next_token(7, 2)], vec![next_token(5, 4)]]
    );

    let step = step_of(Vec::new(), cached("a", &[], 3, 1), &[("a", 1)]);
    runner.execute_model(&step).unwrap();
    let output = runner.sample_tokens(None).unwrap();
    assert_eq!(output.sampled_token_ids, [vec![next_token(9, 3)]]);

    let seen = seen.lock().unwrap();
    assert_eq!(
        seen[0],
        SeenInput {
            input_ids: vec![5, 6, 7, 1, 2, 3, 4, 5],
            positions: vec![0, 1, 2, 0, 1, 2, 3, 4],
            slot_mapping: vec![12, 13, 14, 36, 37, 38, 39, 4],
            seq_lens: vec![3, 5],
            logits_indices: vec![2, 7],
        }
    );
    assert_eq!(seen[1].input_ids, [9]);
    assert_eq!(seen[1].positions, [3]);
    assert_eq!(seen[1].slot_mapping, [15]);
}

#[test]
fn part_of_a_prefill_samples_nothing_and_prompt_logprobs_come_once() {
    let mut runner = runner(CountingModel::default());
    let params = SamplingParams {
        prompt_logprobs: Some(1),
        ..greedy()
    };
    let prompt = [5, 5, 6, 30, 2];
    let new = vec![new_request("a", &prompt, &[3], params)];
    runner
        .execute_model(&step_of(new, CachedRequestData::default(), &[("a", 2)]))
        .unwrap();
    let output = runner.sample_tokens(None).unwrap();
    assert_eq!(output.sampled_token_ids, [Vec::<u32>::new()]);
    assert_eq!(output.prompt_logprobs, [None]);

    runner
        .execute_model(&step_of(Vec::new(), cached("a", &[4], 2, 0), &[("a", 3)]))
        .unwrap();
    let output = runner.sample_tokens(None).unwrap();
    assert_eq!(output.sampled_token_ids, [vec![next_token(2, 4)]]);
    let rows = output.prompt_logprobs[0].as_ref().unwrap();
    // Row i: the prompt's token i + 1, then the model's favourite.
    let ids: Vec<Vec<u32>> = (0..4)
        .map(|position| {
            vec![
                prompt[position + 1],
                next_token(prompt[position], position as u32),
            ]
        })
        .collect();
    assert_eq!(rows.logprob_token_ids, ids);
    // Token 5 after token 5 at position 0 is the favourite.
    assert_eq!(rows.sampled_token_ranks[0], 1);

    runner
        .execute_model(&step_of(Vec::new(), cached("a", &[], 5, 1), &[("a", 1)]))
        .unwrap();
    assert_eq!(runner.sample_tokens(None).unwrap().prompt_logprobs, [None]);
}

#[test]
fn a_row_of_the_mask_belongs_to_its_request() {
    let mut runner = runner(CountingModel::default());
    let new = vec![
        new_request("free", &[5], &[1], greedy()),
        new_request("bound", &[5], &[2], greedy()),
    ];
    runner
        .execute_model(&step_of(
            new,
            CachedRequestData::default(),
            &[("free", 1), ("bound", 1)],
        ))
        .unwrap();
    let words = TokenMask::Words([1 << 20 | 1 << 30, u32::MAX].into());
    let grammar_output = GrammarOutput {
        masks: vec![RequestMasks::Free, RequestMasks::Masks(vec![words])],
    };
    let output = runner.sample_tokens(Some(&grammar_output)).unwrap();
    // 5 is the favourite; of 20, 30 and 32 to 36 the first is the nearest after it.
    assert_eq!(output.sampled_token_ids, [vec![5], vec![20]]);
}

/// A step that verifies `draft` after one known token.
fn verify(runner: &mut ModelRunner, draft: &[u32], num_computed: u32, num_output: u32) -> Vec<u32> {
    let mut step = step_of(
        Vec::new(),
        cached("a", &[], num_computed, num_output),
        &[("a", 1 + draft.len())],
    );
    step.scheduled_spec_decode_tokens = vec![draft.to_vec()];
    runner.execute_model(&step).unwrap();
    runner
        .sample_tokens(None)
        .unwrap()
        .sampled_token_ids
        .remove(0)
}

#[test]
fn a_draft_is_kept_as_far_as_it_is_what_would_have_come() {
    let model = CountingModel::default();
    let seen = Arc::clone(&model.seen);
    let mut runner = runner(model);
    let new = vec![new_request("a", &[5, 6, 7], &[3, 4, 5], greedy())];
    runner
        .execute_model(&step_of(new, CachedRequestData::default(), &[("a", 3)]))
        .unwrap();
    assert_eq!(runner.sample_tokens(None).unwrap().sampled_token_ids, [[9]]);
    // After 9 at position 3 come 12, 16, 21: two tokens of the draft are right.
    assert_eq!(verify(&mut runner, &[12, 16, 30], 3, 1), [12, 16, 21]);
    // What was computed for the third is computed again for the right one.
    assert_eq!(verify(&mut runner, &[], 6, 4), [next_token(21, 6)]);
    let seen = seen.lock().unwrap();
    assert_eq!(seen[1].input_ids, [9, 12, 16, 30]);
    assert_eq!(seen[1].positions, [3, 4, 5, 6]);
    assert_eq!(seen[1].logits_indices, [0, 1, 2, 3]);
    assert_eq!(seen[2].input_ids, [21]);
    assert_eq!(seen[2].positions, [6]);
}

#[test]
fn tokens_from_the_scheduler_take_the_place_of_those_sampled_here() {
    let model = CountingModel::default();
    let seen = Arc::clone(&model.seen);
    let mut runner = runner(model);
    let params = SamplingParams {
        frequency_penalty: 2.0,
        ..greedy()
    };
    let new = vec![new_request("a", &[5, 6, 7], &[3, 4, 5], params)];
    runner
        .execute_model(&step_of(new, CachedRequestData::default(), &[("a", 3)]))
        .unwrap();
    assert_eq!(runner.sample_tokens(None).unwrap().sampled_token_ids, [[9]]);
    // 9 was not taken: 20 and 21 were forced instead.
    let forced = CachedRequestData {
        new_token_ids: vec![vec![20, 21]],
        ..cached("a", &[], 3, 2)
    };
    runner
        .execute_model(&step_of(Vec::new(), forced, &[("a", 2)]))
        .unwrap();
    assert_eq!(
        runner.sample_tokens(None).unwrap().sampled_token_ids,
        [[next_token(21, 4)]]
    );
    assert_eq!(seen.lock().unwrap()[1].input_ids, [20, 21]);
}

#[test]
fn few_tokens_need_few_logits_and_one_needs_none() {
    let sampled = |enable_sparse_head: bool| {
        let config = ModelRunnerConfig {
            enable_sparse_head,
            ..runner_config()
        };
        let pool = Arc::new(ComputePool::new(2).unwrap());
        let mut runner = ModelRunner::new(Box::new(CountingModel::default()), pool, &config);
        let ids = ["few", "one", "all", "logprobs"];
        let with_logprobs = SamplingParams {
            logprobs: Some(0),
            ..greedy()
        };
        let new = ids.iter().zip(1..).map(|(id, block)| {
            let params = match *id {
                "logprobs" => with_logprobs.clone(),
                _ => greedy(),
            };
            new_request(id, &[5], &[block], params)
        });
        let step = step_of(
            new.collect(),
            CachedRequestData::default(),
            &ids.map(|id| (id, 1)),
        );
        runner.execute_model(&step).unwrap();
        let few = || RequestMasks::Masks(vec![TokenMask::Ids([20, 30, 36].into())]);
        let masks = vec![
            few(),
            RequestMasks::Masks(vec![TokenMask::Only(33)]),
            RequestMasks::Free,
            few(),
        ];
        let output = runner
            .sample_tokens(Some(&GrammarOutput { masks }))
            .unwrap();
        assert_eq!(output.num_head_rows, 4 * VOCAB_SIZE as u64);
        (output.sampled_token_ids, output.num_head_rows_skipped)
    };
    let (sparse, num_skipped) = sampled(true);
    assert_eq!(sparse, [vec![20], vec![33], vec![5], vec![20]]);
    assert_eq!(num_skipped, 37 + 40);
    assert_eq!(sampled(false), (sparse, 0));
}

#[test]
fn a_request_without_a_mask_fails_alone() {
    let mut runner = runner(CountingModel::default());
    let new = vec![
        new_request("bad", &[5], &[1], greedy()),
        new_request("good", &[5], &[2], greedy()),
    ];
    runner
        .execute_model(&step_of(
            new,
            CachedRequestData::default(),
            &[("bad", 1), ("good", 1)],
        ))
        .unwrap();
    let masks = vec![RequestMasks::Failed("for a test".to_owned())];
    let output = runner
        .sample_tokens(Some(&GrammarOutput { masks }))
        .unwrap();
    assert_eq!(output.errors, [Some("for a test".to_owned()), None]);
    assert_eq!(output.sampled_token_ids, [vec![], vec![5]]);
}

#[test]
fn a_resumed_request_uses_its_new_table() {
    let model = CountingModel::default();
    let seen = Arc::clone(&model.seen);
    let mut runner = runner(model);
    let new = vec![new_request("a", &[5, 6, 7], &[3], greedy())];
    runner
        .execute_model(&step_of(new, CachedRequestData::default(), &[("a", 3)]))
        .unwrap();
    let first = runner.sample_tokens(None).unwrap().sampled_token_ids[0][0];
    let resumed = CachedRequestData {
        resumed_req_ids: vec!["a".into()],
        ..cached("a", &[8, 2], 0, 1)
    };
    runner
        .execute_model(&step_of(Vec::new(), resumed, &[("a", 4)]))
        .unwrap();
    assert_eq!(
        runner.sample_tokens(None).unwrap().sampled_token_ids,
        [vec![next_token(first, 3)]]
    );
    let seen = seen.lock().unwrap();
    assert_eq!(seen[1].input_ids, [5, 6, 7, first]);
    assert_eq!(seen[1].slot_mapping, [32, 33, 34, 35]);
}

#[test]
fn a_row_without_a_number_fails_its_request_alone() {
    let model = CountingModel {
        all_nan_after: Some(6),
        ..CountingModel::default()
    };
    let mut runner = runner(model);
    let new = vec![
        new_request("good", &[5], &[1], greedy()),
        new_request("bad", &[6], &[2], greedy()),
    ];
    runner
        .execute_model(&step_of(
            new,
            CachedRequestData::default(),
            &[("good", 1), ("bad", 1)],
        ))
        .unwrap();
    let output = runner.sample_tokens(None).unwrap();
    assert_eq!(output.sampled_token_ids, [vec![5], vec![]]);
    assert!(output.errors[0].is_none());
    assert!(
        output.errors[1].as_ref().unwrap().contains("NaN"),
        "{:?}",
        output.errors[1]
    );
}

#[test]
fn the_two_halves_of_a_step_alternate() {
    let mut runner = runner(CountingModel::default());
    assert!(matches!(
        runner.sample_tokens(None),
        Err(ModelRunnerError::OutOfTurn)
    ));
    runner.execute_model(&SchedulerOutput::default()).unwrap();
    assert!(matches!(
        runner.execute_model(&SchedulerOutput::default()),
        Err(ModelRunnerError::OutOfTurn)
    ));
}

#[test]
fn a_scheduler_that_contradicts_itself_is_an_error() {
    let mut runner1 = runner(CountingModel::default());
    let step = step_of(Vec::new(), CachedRequestData::default(), &[("ghost", 1)]);
    assert!(matches!(
        runner1.execute_model(&step),
        Err(ModelRunnerError::UnknownRequest(_))
    ));
    let mut runner2 = runner(CountingModel::default());
    let new = vec![new_request("a", &[1, 2, 3, 4, 5], &[1], greedy())];
    let step = step_of(new, CachedRequestData::default(), &[("a", 5)]);
    assert!(matches!(
        runner2.execute_model(&step),
        Err(ModelRunnerError::MissingBlocks(_))
    ));
}

#[test]
fn a_failing_forward_pass_is_an_error_and_a_panicking_one_too() {
    for (poison, expected) in [
        (Poison::Error, "poisoned"),
        (Poison::Panic, "panicked: poisoned"),
    ] {
        let model = CountingModel {
            poison: Some((6, poison)),
            ..CountingModel::default()
        };
        let mut executor = Executor::new(runner(model)).unwrap();
        let new = vec![new_request("a", &[6], &[1], greedy())];
        let step = Arc::new(step_of(new, CachedRequestData::default(), &[("a", 1)]));
        let error = executor.execute_model(step).unwrap().join().unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(matches!(
            error,
            ExecutorError::Runner(_) | ExecutorError::Panicked(_)
        ));
    }
}

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
        prompt_token_ids: prompt.to_vec(),
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
