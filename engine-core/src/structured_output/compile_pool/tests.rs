use std::sync::Arc;

use crossbeam_channel::{Receiver, bounded, unbounded};
use protocol::{SamplingParams, StructuredOutputsConstraint, StructuredOutputsParams};
use structured_output::{CancelFlag, CompileEffort, MatcherError, TokenizerInfo};

use super::super::aside::{Aside, Question};
use super::super::backend::StructuredOutputGrammar;
use super::super::backend_formwork::FormworkBackend;
use super::super::compile_job::SHARED_STEPS;
use super::super::request::StructuredOutputRequest;
use super::*;

const EOS: u32 = 256;

/// Compiles like the real one, but holds the thread that begins `begin…` until it is let go, that which
/// goes on with `compile…`, and that which works apart on `apart…`.
struct HoldingBackend {
    real: FormworkBackend,
    held: Sender<Duty>,
    leave: Receiver<()>,
}

impl HoldingBackend {
    fn with_channels() -> (Arc<dyn StructuredOutputBackend>, Receiver<Duty>, Sender<()>) {
        let mut vocab: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
        vocab.push(b"<eos>".to_vec());
        let info = TokenizerInfo::new(&vocab, vocab.len(), &[EOS], &[EOS]).unwrap();
        let (held_sender, held) = unbounded();
        let (leave_sender, leave) = unbounded();
        let backend = Self {
            real: FormworkBackend::new(info, 16 << 20).unwrap(),
            held: held_sender,
            leave,
        };
        (Arc::new(backend), held, leave_sender)
    }
}

impl StructuredOutputBackend for HoldingBackend {
    fn compile_grammar(
        &self,
        params: &StructuredOutputsParams,
        stop_token_ids: &[u32],
        effort: CompileEffort,
        cancel: &CancelFlag,
    ) -> Option<Result<Box<dyn StructuredOutputGrammar>, CompileGrammarError>> {
        let duties = [
            ("begin", Duty::Begin),
            ("compile", Duty::Compile),
            ("apart", Duty::Apart),
        ];
        if let StructuredOutputsConstraint::Regex(pattern) = &params.constraint
            && let Some((_, duty)) = duties.iter().find(|(name, _)| pattern.starts_with(name))
        {
            if effort != duty.effort() {
                return None;
            }
            self.held.send(*duty).unwrap();
            // An error when the test is over.
            let _ = self.leave.recv();
        }
        self.real
            .compile_grammar(params, stop_token_ids, effort, cancel)
    }

    fn is_compiled(&self, params: &StructuredOutputsParams) -> bool {
        self.real.is_compiled(params)
    }

    fn num_compilations(&self) -> u64 {
        self.real.num_compilations()
    }

    fn stop_token_ids(&self) -> &[u32] {
        self.real.stop_token_ids()
    }
}

fn job(pattern: &str) -> (CompileJob, Receiver<CompiledGrammar>) {
    job_of(
        StructuredOutputsConstraint::Regex(pattern.to_owned()),
        pattern,
    )
}

fn job_of(
    constraint: StructuredOutputsConstraint,
    id: &str,
) -> (CompileJob, Receiver<CompiledGrammar>) {
    let params = SamplingParams {
        structured_outputs: Some(StructuredOutputsParams::new(constraint)),
        max_tokens: Some(100_000),
        ..SamplingParams::default()
    };
    let (sender, compiled) = bounded(1);
    let job = CompileJob {
        request_id: id.into(),
        params: Arc::new(params),
        purpose: Purpose::Start {
            reasoning_ended: None,
            output_token_ids: Vec::new(),
        },
        cancel: CancelFlag::new(),
        compiled: sender,
        compile_seconds: None,
    };
    (job, compiled)
}

/// The job of a running request that waits for a mask.
fn question(
    backend: &Arc<dyn StructuredOutputBackend>,
    pattern: &str,
) -> (CompileJob, Receiver<CompiledGrammar>) {
    let (mut job, compiled) = job(pattern);
    let structured_outputs = job.params.structured_outputs.as_ref().unwrap();
    let effort = Duty::Compile.effort();
    let grammar = backend.compile_grammar(structured_outputs, &[], effort, &job.cancel);
    let grammar = grammar.unwrap().unwrap();
    let mut request = StructuredOutputRequest::new(grammar, &job.params, None, &[EOS]).unwrap();
    let question = Question::Mask { tokens_left: 20 };
    request.set_aside(Aside::Question(question));
    job.purpose = Purpose::Aside(Box::new(request));
    (job, compiled)
}

#[test]
fn what_a_running_request_waits_for_is_found_while_all_compile_threads_are_busy() {
    let (backend, held, _leave) = HoldingBackend::with_channels();
    let (done_sender, done) = unbounded();
    let pool = CompilePool::new(&backend, 2, 8, &done_sender).unwrap();
    for pattern in ["apart1", "apart2", "compile1", "begin1"] {
        pool.submit(job(pattern).0).unwrap();
        held.recv().unwrap();
    }
    let (question, answer) = question(&backend, "[a-z]{3}");
    let Purpose::Aside(request) = &question.purpose else {
        unreachable!();
    };
    let duty = request.duty();
    assert_eq!(duty, Duty::Answer);
    pool.submit_aside(question, duty).unwrap();
    assert_eq!(&*done.recv().unwrap(), "[a-z]{3}");
    let request = answer.try_recv().unwrap().outcome.unwrap();
    assert!(!request.is_aside());
}

#[test]
fn what_takes_more_than_a_first_try_goes_on_behind_what_takes_less() {
    let (backend, held, leave) = HoldingBackend::with_channels();
    let (done_sender, done) = unbounded();
    let pool = CompilePool::new(&backend, 2, 8, &done_sender).unwrap();
    // Who waits for them.
    let mut answers = Vec::new();
    let mut submit = |pattern: &str| {
        let (job, answer) = job(pattern);
        pool.submit(job).unwrap();
        answers.push(answer);
    };
    // Each is passed on until a thread is held by it.
    for (pattern, duty) in [
        ("apart1", Duty::Apart),
        ("apart2", Duty::Apart),
        ("compile1", Duty::Compile),
    ] {
        submit(pattern);
        assert_eq!(held.recv().unwrap(), duty);
    }
    // Two more of them wait for these threads, and hold up nobody who needs others.
    for pattern in ["apart3", "compile2"] {
        submit(pattern);
    }
    for number in 0..4 {
        let pattern = format!("[0-9]{{{}}}", number + 1);
        submit(&pattern);
        assert_eq!(*done.recv().unwrap(), *pattern);
    }
    for _ in 0..5 {
        leave.send(()).unwrap();
    }
    let mut ids: Vec<String> = (0..5).map(|_| done.recv().unwrap().to_string()).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["apart1", "apart2", "apart3", "compile1", "compile2"]);
}

#[test]
fn admitted_and_new_requests_take_turns() {
    let (backend, _held, _leave) = HoldingBackend::with_channels();
    let (lanes, served) = CompileLanes::new(2, 3);
    for pattern in ["a", "b", "c"] {
        lanes
            .begun()
            .send(question(&backend, pattern).0, Duty::Answer);
    }
    for pattern in ["d", "e", "f"] {
        lanes.try_send(job(pattern).0, true).unwrap();
    }
    assert_eq!(lanes.try_send(job("g").0, true), Err(TrySendError::Full(3)));
    let lane = served.iter().find(|lane| lane.duty == Duty::Answer);
    let next = || lane.unwrap().next_job().unwrap().request_id.to_string();
    let order: Vec<String> = (0..6).map(|_| next()).collect();
    assert_eq!(order, ["a", "d", "b", "e", "c", "f"]);
    // Those that were begun count.
    lanes.try_send(job("g").0, false).unwrap();
    lanes.begun().send(job("h").0, Duty::Compile);
    lanes.begun().send(job("i").0, Duty::Apart);
    assert_eq!(
        lanes.try_send(job("j").0, false),
        Err(TrySendError::Full(3))
    );
    drop(lanes);
    assert!(lane.unwrap().next_job().is_none());
}

/// A long list is no reason to share memory with what is hostile: its shortest text is found in some turns.
#[test]
fn what_comes_to_an_end_in_some_turns_stays_in_shared_memory() {
    const INVOICE: &str = r#"{"type": "object", "properties": {"number": {"type": "integer", "minimum": 1, "maximum": 99999}, "date": {"type": "string", "format": "date"}, "currency": {"enum": ["EUR", "USD", "GBP", "JPY"]}, "paid": {"type": "boolean"}}, "required": ["number", "date", "currency", "paid"], "additionalProperties": false}"#;
    let (backend, _held, _leave) = HoldingBackend::with_channels();
    let (done_sender, done) = unbounded();
    let pool = CompilePool::new(&backend, 2, 8, &done_sender).unwrap();
    let schema = format!(r#"{{"type": "array", "items": {INVOICE}, "minItems": 80}}"#);
    let (list, compiled) = job_of(StructuredOutputsConstraint::Json(schema.clone()), "list");
    pool.submit(list).unwrap();
    done.recv().unwrap();
    let mut request = compiled.try_recv().unwrap().outcome.unwrap();
    assert!(!request.is_apart());
    // More than two turns would have found.
    let (another, _held, _leave) = HoldingBackend::with_channels();
    let constraint = StructuredOutputsConstraint::Json(schema);
    let params = StructuredOutputsParams::new(constraint);
    let (effort, cancel) = (Duty::Compile.effort(), CancelFlag::new());
    let grammar = another.compile_grammar(&params, &[], effort, &cancel);
    let mut grammar = grammar.unwrap().unwrap();
    for _ in 0..2 {
        grammar.set_allowance(Some(SHARED_STEPS));
        let spent = grammar.min_tokens_to_complete();
        assert_eq!(spent, Err(MatcherError::AllowanceSpent));
    }
    grammar.set_allowance(None);
    let num_tokens = grammar.min_tokens_to_complete().unwrap();
    assert!(request.mask(num_tokens).is_ok());
}
