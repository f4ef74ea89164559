//! Requests that wait for their grammar, under random arrivals, compilations, aborts and steps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crossbeam_channel::Sender;
use proptest::prelude::*;
use protocol::{
    EngineCoreEventType, EngineCoreOutput, EngineCoreRequest, FinishReason, RequestError,
    RequestErrorCode, SamplingParams, SchedulingPolicy, SpeculativeConfig,
    StructuredOutputsConstraint, StructuredOutputsParams,
};
use structured_output::{CancelFlag, CompileEffort, TokenizerInfo};

use super::{assert_idle, config, ids, scheduler};
use crate::core::request::{Request, StructuredOutput};
use crate::core::sched::scheduler::RunningRequest;
use crate::core::sched::{ModelRunnerOutput, RequestMasks, Scheduler, SchedulerOutput};
use crate::core::spec_decode::Proposer;
use crate::request_id::RequestId;
use crate::structured_output::testing::{self, OddBackend};
use crate::structured_output::{
    Aside, CompiledGrammar, ForcedTokens, FormworkBackend, PendingGrammar, StructuredOutputBackend,
    StructuredOutputRequest,
};

pub(super) const EOS: u32 = 3;

/// Tokens `a`, `b`, `ab` and the end of text.
pub(super) fn backend() -> FormworkBackend {
    let vocab = ["a", "b", "ab", "<eos>"].map(|token| token.as_bytes().to_vec());
    let info = TokenizerInfo::new(&vocab, 4, &[EOS], &[EOS]).unwrap();
    FormworkBackend::new(info, 1 << 20).unwrap()
}

pub(super) fn params(pattern: &str, max_tokens: u32) -> Arc<SamplingParams> {
    let constraint = StructuredOutputsConstraint::Regex(pattern.to_owned());
    Arc::new(SamplingParams {
        max_tokens: Some(max_tokens),
        eos_token_id: Some(EOS),
        structured_outputs: Some(StructuredOutputsParams::new(constraint).into()),
        ..SamplingParams::default()
    })
}

pub(super) fn compiled(backend: &FormworkBackend, params: &Arc<SamplingParams>) -> CompiledGrammar {
    let structured_outputs = params.structured_outputs.as_ref().unwrap();
    let effort = CompileEffort::Shared {
        max_steps: u64::MAX,
    };
    let cancel = CancelFlag::new();
    let grammar = backend.compile_grammar(structured_outputs, &[], effort, &cancel);
    let request = StructuredOutputRequest::new(grammar.unwrap().unwrap(), params, None, &[EOS]);
    CompiledGrammar {
        outcome: Ok(Box::new(request.unwrap())),
        compile_seconds: None,
        was_known: true,
    }
}

pub(super) fn refused() -> CompiledGrammar {
    CompiledGrammar {
        outcome: Err(RequestError::new(
            RequestErrorCode::GrammarRefused,
            "for a test",
        )),
        compile_seconds: Some(1.0),
        was_known: false,
    }
}

/// What one request is.
#[derive(Debug, Clone, Copy)]
struct Spec {
    num_prompt_tokens: u32,
    max_tokens: u32,
    constrained: bool,
    priority: i64,
}

#[derive(Debug, Clone)]
enum Action {
    Add(Spec),
    /// Some grammar that is still to come is compiled; whether it is good.
    Compiled(prop::sample::Index, bool),
    Abort(prop::sample::Index),
    /// In the next step a running request has to wait for its grammar.
    SetAside(prop::sample::Index),
    Step,
}

fn action() -> impl Strategy<Value = Action> {
    let spec = (1_u32..9, 3_u32..9, any::<bool>(), 0_i64..2).prop_map(
        |(num_prompt_tokens, max_tokens, constrained, priority)| {
            Action::Add(Spec {
                num_prompt_tokens,
                max_tokens,
                constrained,
                priority,
            })
        },
    );
    prop_oneof![
        2 => spec,
        2 => (any::<prop::sample::Index>(), prop::bool::weighted(0.8))
            .prop_map(|(index, good)| Action::Compiled(index, good)),
        1 => any::<prop::sample::Index>().prop_map(Action::Abort),
        2 => any::<prop::sample::Index>().prop_map(Action::SetAside),
        4 => Just(Action::Step),
    ]
}

/// A scheduler, the grammars that are still to come, and what the client saw.
struct World {
    scheduler: Scheduler,
    backend: FormworkBackend,
    specs: Vec<Spec>,
    pending: BTreeMap<usize, (Sender<CompiledGrammar>, CancelFlag)>,
    /// Grammars that requests under way wait for.
    aside: BTreeMap<usize, Box<StructuredOutputRequest>>,
    to_set_aside: Option<prop::sample::Index>,
    aborted: BTreeSet<usize>,
    refused: BTreeSet<usize>,
    outputs: BTreeMap<usize, Vec<EngineCoreOutput>>,
}

fn request_id(index: usize) -> RequestId {
    format!("{index:02}").into()
}

impl World {
    fn new(priority: bool, drafts: bool) -> Self {
        let mut config = config(12, 3);
        if priority {
            config.policy = SchedulingPolicy::Priority;
        }
        let proposer = Proposer::new(&SpeculativeConfig {
            num_speculative_tokens: 2,
            prompt_lookup_min: 1,
            prompt_lookup_max: 2,
            ..SpeculativeConfig::default()
        });
        // Few blocks, so that some are preempted.
        let scheduler = scheduler(config, 6)
            .with_forced_tokens(ForcedTokens::SingleToken)
            .with_proposer(drafts.then(|| proposer.unwrap()));
        Self {
            scheduler,
            backend: backend(),
            specs: Vec::new(),
            pending: BTreeMap::new(),
            aside: BTreeMap::new(),
            to_set_aside: None,
            aborted: BTreeSet::new(),
            refused: BTreeSet::new(),
            outputs: BTreeMap::new(),
        }
    }

    /// Texts of two to four letters that begin with "ab".
    fn params(&self, spec: Spec) -> Arc<SamplingParams> {
        params("ab[ab]{0,2}", spec.max_tokens)
    }

    fn add(&mut self, spec: Spec) {
        let index = self.specs.len();
        self.specs.push(spec);
        let mut sampling_params = (*self.params(spec)).clone();
        if !spec.constrained {
            sampling_params.structured_outputs = None;
        }
        let is_fcfs = self.scheduler.config.policy == SchedulingPolicy::Fcfs;
        let message = EngineCoreRequest {
            request_id: request_id(index).to_string(),
            prompt_token_ids: vec![0; spec.num_prompt_tokens as usize].into(),
            sampling_params,
            arrival_time: index as f64,
            priority: if is_fcfs { 0 } else { spec.priority },
            ..EngineCoreRequest::default()
        };
        let hasher = self.scheduler.block_hasher();
        let mut request = Request::from_engine_core_request(message, &hasher);
        if spec.constrained {
            let (pending, sender) = PendingGrammar::new();
            self.pending.insert(index, (sender, pending.cancel_flag()));
            request.structured_output = Some(StructuredOutput::Pending(pending));
        }
        self.scheduler.add_request(request);
    }

    fn compile(&mut self, chosen: prop::sample::Index, good: bool) {
        if self.pending.is_empty() {
            return;
        }
        let (&index, _) = self
            .pending
            .iter()
            .nth(chosen.index(self.pending.len()))
            .unwrap();
        self.compile_one(index, good);
    }

    fn compile_one(&mut self, index: usize, good: bool) {
        let (sender, cancel) = self.pending.remove(&index).unwrap();
        assert_eq!(cancel.is_cancelled(), self.aborted.contains(&index));
        if let Some(mut grammar) = self.aside.remove(&index) {
            grammar.end_aside();
            let outcome = Ok(grammar);
            let sent = sender.try_send(CompiledGrammar {
                outcome,
                compile_seconds: None,
                was_known: false,
            });
            assert_eq!(sent.is_ok(), !self.aborted.contains(&index));
            self.scheduler.grammar_compiled(&request_id(index));
            return;
        }
        let result = match good {
            true => compiled(&self.backend, &self.params(self.specs[index])),
            false => refused(),
        };
        if !good && !self.aborted.contains(&index) {
            self.refused.insert(index);
        }
        let sent = sender.try_send(result).is_ok();
        assert_eq!(sent, !self.aborted.contains(&index));
        self.scheduler.grammar_compiled(&request_id(index));
    }

    fn abort(&mut self, index: prop::sample::Index) {
        if self.specs.is_empty() {
            return;
        }
        let index = index.index(self.specs.len());
        let ended = self
            .scheduler
            .finish_requests([request_id(index)], FinishReason::Abort);
        if !ended.is_empty() {
            self.aborted.insert(index);
        }
    }

    fn step(&mut self) {
        self.check_order();
        let step = self.scheduler.schedule();
        let masks = self.scheduler.get_grammar_bitmask(&step);
        let mut masks = masks.unwrap_or_default().masks;
        self.set_aside(&step, &mut masks);
        let answer = self.sample(&step, &masks);
        let outputs = self.scheduler.update_from_output(&step, answer);
        for output in outputs.into_values().flat_map(|outputs| outputs.outputs) {
            let index = output.request_id.parse().unwrap();
            self.outputs.entry(index).or_default().push(output);
        }
        self.submit_asides();
        self.check_places();
    }

    /// Withholds the masks of one request.
    fn set_aside(&mut self, step: &SchedulerOutput, masks: &mut [RequestMasks]) {
        let Some(chosen) = self.to_set_aside.take() else {
            return;
        };
        let masked: Vec<usize> = (0..masks.len())
            .filter(|&index| matches!(masks[index], RequestMasks::Masks(_)))
            .collect();
        if masked.is_empty() {
            return;
        }
        let index = masked[chosen.index(masked.len())];
        let (id, _) = step.num_scheduled_tokens.iter().nth(index).unwrap();
        let of_id = |running: &&mut RunningRequest| running.request.request_id() == id;
        let running = self.scheduler.running.iter_mut().find(of_id).unwrap();
        let grammar = running.request.grammar_mut().unwrap();
        grammar.set_aside(Aside::Exhausted);
        masks[index] = RequestMasks::Withheld;
    }

    /// Takes the grammars that requests wait for.
    fn submit_asides(&mut self) {
        let (pending, aside) = (&mut self.pending, &mut self.aside);
        self.scheduler.submit_asides(|request| {
            let index = request.request_id().parse().unwrap();
            let Some(StructuredOutput::Ready(grammar)) = request.structured_output.take() else {
                panic!("{index} has no grammar");
            };
            aside.insert(index, grammar);
            let (mut waited_for, sender) = PendingGrammar::new();
            waited_for.set_admitted();
            pending.insert(index, (sender, waited_for.cancel_flag()));
            request.structured_output = Some(StructuredOutput::Pending(waited_for));
            Ok(())
        });
    }

    /// The first allowed token of those that depend on the length; a draft while it is right.
    fn sample(&self, step: &SchedulerOutput, masks: &[RequestMasks]) -> ModelRunnerOutput {
        let mut output = ModelRunnerOutput::empty(step.num_scheduled_tokens.len());
        for (index, (id, _)) in step.num_scheduled_tokens.iter().enumerate() {
            let request = self
                .scheduler
                .running()
                .find(|(request, _)| request.request_id() == id);
            let (request, _) = request.unwrap();
            if request.num_computed_tokens() < request.num_tokens() {
                assert!(matches!(masks.get(index), None | Some(RequestMasks::Free)));
                continue;
            }
            let draft = step.draft_at(index);
            for num_drafted in 0..=draft.len() {
                let length = request.num_output_tokens() + num_drafted;
                let mut wanted = (0..4).map(|offset| (length as u32 * 7 + offset) % 4);
                let token_id = match masks.get(index).unwrap_or(&RequestMasks::Free) {
                    RequestMasks::Free => wanted.next().unwrap(),
                    RequestMasks::Masks(masks) => match masks.get(num_drafted) {
                        Some(mask) => wanted.find(|&id| mask.is_allowed(id)).unwrap(),
                        None => break,
                    },
                    RequestMasks::Withheld => continue,
                    RequestMasks::Failed(reason) => panic!("{reason}"),
                };
                output.sampled_token_ids[index].push(token_id);
                if draft.get(num_drafted) != Some(&token_id) {
                    break;
                }
            }
        }
        output
    }

    /// No request whose grammar is there, or that needs none, waits behind one that has none yet;
    /// those that wait stand in order of arrival.
    fn check_order(&self) {
        let waiting = ids(self.scheduler.waiting());
        for id in &waiting {
            let index: usize = id.parse().unwrap();
            assert!(!self.pending.contains_key(&index), "{id} has no grammar");
        }
        let pending = ids(self.scheduler.waiting_for_grammar());
        for id in &pending {
            let index: usize = id.parse().unwrap();
            assert!(self.pending.contains_key(&index), "{id} has its grammar");
        }
        let never_ran = self
            .scheduler
            .waiting()
            .filter(|request| request.num_preemptions() == 0);
        let keys: Vec<_> = never_ran
            .map(|request| (request.priority(), request.arrival_time()))
            .collect();
        assert!(keys.is_sorted(), "{keys:?}");
        // Requests that only wait for grammars are nothing to do.
        assert_eq!(
            self.scheduler.num_unfinished_requests(),
            waiting.len() + self.scheduler.running().len() - self.scheduler.num_parked()
        );
    }

    fn check_places(&self) {
        let places = self
            .scheduler
            .waiting()
            .chain(self.scheduler.waiting_for_grammar());
        let running = self.scheduler.running().map(|(request, _)| request);
        let all: Vec<_> = places.chain(running).map(Request::request_id).collect();
        let distinct: BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len(), "a request is in one place");
        assert_eq!(all.len(), self.scheduler.in_flight.len());
    }

    /// Compiles all that is still to come, steps to the end, and looks at what came out.
    fn finish(mut self) {
        self.to_set_aside = None;
        // While requests that wait for their grammars hold blocks and places, the others go on.
        let has_aside = |world: &Self| !world.aside.is_empty();
        let mut steps_left = 2_000;
        while has_aside(&self) && self.scheduler.has_requests() {
            self.step();
            steps_left -= 1;
            assert!(steps_left > 0, "requests starve");
        }
        while let Some(&index) = self.pending.keys().next() {
            self.compile_one(index, true);
        }
        let mut steps_left = 2_000;
        while self.scheduler.has_requests() {
            self.step();
            steps_left -= 1;
            assert!(steps_left > 0, "requests starve");
        }
        assert_idle(&self.scheduler);
        for (index, spec) in self.specs.iter().enumerate() {
            let outputs = self.outputs.remove(&index).unwrap_or_default();
            self.check_request(index, *spec, &outputs);
        }
    }

    fn check_request(&self, index: usize, spec: Spec, outputs: &[EngineCoreOutput]) {
        let ends = outputs
            .iter()
            .filter(|output| output.finish_reason.is_some())
            .count();
        assert_eq!(ends, usize::from(!self.aborted.contains(&index)), "{index}");
        let admissions = outputs
            .iter()
            .flat_map(|output| &output.events)
            .filter(|event| event.event_type == EngineCoreEventType::Admitted)
            .count();
        if self.aborted.contains(&index) {
            return;
        }
        let admitted = spec.constrained && !self.refused.contains(&index);
        assert_eq!(admissions, usize::from(admitted), "{index}");
        let last = outputs.last().unwrap();
        if self.refused.contains(&index) {
            assert_eq!(last.finish_reason, Some(FinishReason::Error));
            assert_eq!(outputs.len(), 1);
            return;
        }
        let tokens: Vec<u32> = outputs
            .iter()
            .flat_map(|output| output.new_token_ids.clone())
            .collect();
        assert!(tokens.len() <= spec.max_tokens as usize, "{index}");
        if spec.constrained {
            let text: String = tokens
                .iter()
                .map(|&id| ["a", "b", "ab", ""][id as usize])
                .collect();
            assert!(
                text.starts_with("ab") && (2..=4).contains(&text.len()),
                "{index}: {text}"
            );
            assert_eq!(last.finish_reason, Some(FinishReason::Stop), "{index}");
            assert_eq!(last.structured_output_complete, Some(true), "{index}");
            // A text that is whole with its last token needs no room for the end of text.
            let is_at_limit = tokens.len() == spec.max_tokens as usize;
            assert!(tokens.last() == Some(&EOS) || is_at_limit, "{index}");
        } else {
            assert_eq!(last.structured_output_complete, None);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    /// Others pass by a request that waits for its grammar; it keeps its place; and whatever
    /// happens, each request ends once and nothing is left behind.
    #[test]
    fn grammars_come_in_any_order(
        priority in any::<bool>(),
        drafts in any::<bool>(),
        actions in prop::collection::vec(action(), 0..60),
    ) {
        let mut world = World::new(priority, drafts);
        for action in actions {
            match action {
                Action::Add(spec) => world.add(spec),
                Action::Compiled(index, good) => world.compile(index, good),
                Action::Abort(index) => world.abort(index),
                Action::SetAside(index) => world.to_set_aside = Some(index),
                Action::Step => world.step(),
            }
        }
        world.finish();
    }
}

#[test]
fn a_grammar_that_is_faster_than_its_request_waits_for_it() {
    let mut world = World::new(false, false);
    let (pending, sender) = PendingGrammar::new();
    let spec = Spec {
        num_prompt_tokens: 3,
        max_tokens: 5,
        constrained: true,
        priority: 0,
    };
    let params = world.params(spec);
    sender.send(compiled(&world.backend, &params)).unwrap();
    world.scheduler.grammar_compiled(&request_id(0));
    let message = EngineCoreRequest {
        request_id: request_id(0).to_string(),
        prompt_token_ids: vec![0; 3].into(),
        sampling_params: (*params).clone(),
        ..EngineCoreRequest::default()
    };
    let hasher = world.scheduler.block_hasher();
    let mut request = Request::from_engine_core_request(message, &hasher);
    request.structured_output = Some(StructuredOutput::Pending(pending));
    world.scheduler.add_request(request);
    assert_eq!(ids(world.scheduler.waiting()), ["00"]);
}

/// What goes wrong in a grammar's code is its request's error.
#[test]
fn a_grammar_that_panics_fails_alone() {
    let backend = OddBackend::new();
    let mut scheduler = scheduler(config(16, 4), 16);
    let hasher = scheduler.block_hasher();
    for pattern in ["panics", "[a-z]{6}"] {
        let constraint = StructuredOutputsConstraint::Regex(pattern.to_owned());
        let structured_outputs = StructuredOutputsParams::new(constraint);
        let effort = CompileEffort::Apart {
            max_steps: u64::MAX,
        };
        let grammar = backend.compile_grammar(&structured_outputs, &[], effort, &CancelFlag::new());
        let params = SamplingParams {
            max_tokens: Some(8),
            structured_outputs: Some(structured_outputs.into()),
            ..SamplingParams::default()
        };
        let grammar = StructuredOutputRequest::new(
            grammar.unwrap().unwrap(),
            &Arc::new(params.clone()),
            None,
            &[testing::EOS],
        );
        let message = EngineCoreRequest {
            request_id: pattern.to_owned(),
            prompt_token_ids: vec![0; 3].into(),
            sampling_params: params,
            ..EngineCoreRequest::default()
        };
        let mut request = Request::from_engine_core_request(message, &hasher);
        request.structured_output = Some(StructuredOutput::Ready(Box::new(grammar.unwrap())));
        scheduler.add_request(request);
    }
    let mut last = BTreeMap::new();
    while scheduler.has_requests() {
        let step = scheduler.schedule();
        let masks = scheduler.get_grammar_bitmask(&step).unwrap_or_default();
        let mut answer = ModelRunnerOutput::empty(step.num_scheduled_tokens.len());
        for (index, masks) in masks.masks.iter().enumerate() {
            match masks {
                RequestMasks::Masks(masks) => {
                    let token_id = (0..).find(|&id| masks[0].is_allowed(id));
                    answer.sampled_token_ids[index].extend(token_id);
                }
                RequestMasks::Failed(reason) => answer.errors[index] = Some(reason.clone()),
                RequestMasks::Free | RequestMasks::Withheld => panic!("it has a mask"),
            }
        }
        for outputs in scheduler.update_from_output(&step, answer).into_values() {
            let outputs = outputs.outputs.into_iter();
            last.extend(outputs.map(|output| (output.request_id.clone(), output)));
        }
    }
    assert_idle(&scheduler);
    let error = last["panics"].error.as_ref().unwrap();
    assert_eq!(error.code, RequestErrorCode::InternalError);
    assert!(error.message.contains("it panicked: "), "{}", error.message);
    let other = &last["[a-z]{6}"];
    assert_eq!(other.error, None);
    assert_eq!(other.structured_output_complete, Some(true));
}
