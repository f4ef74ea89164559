//! The compile threads' turns, taken by hand.

use std::cell::RefCell;
use std::sync::atomic::Ordering;

use crossbeam_channel::{Receiver, unbounded};
use protocol::{SamplingParams, StructuredOutputsConstraint};
use structured_output::MatcherError;

use super::super::aside::{Aside, Question};
use super::super::backend::CompileGrammarError;
use super::super::refusal::refusal;
use super::super::request::StructuredOutputRequest;
use super::super::testing::{EOS, OddBackend, job, job_of};
use super::*;

/// One thread of each.
const KINDS: [Takes; 3] = [Takes::Short, Takes::Shared, Takes::Apart];

/// A pool whose threads do nothing by themselves.
struct ByHand {
    backend: Arc<OddBackend>,
    pool: CompilePool,
    workers: RefCell<[Worker; 3]>,
    done: Receiver<RequestId>,
    /// Kept open.
    answers: Vec<Receiver<CompiledGrammar>>,
}

impl ByHand {
    fn new() -> Self {
        let backend = Arc::new(OddBackend::new());
        let (done_sender, done) = unbounded();
        let of_pool: Arc<dyn StructuredOutputBackend> = Arc::clone(&backend) as _;
        Self {
            backend,
            pool: CompilePool::without_threads(&of_pool, 100, &done_sender),
            workers: RefCell::new(KINDS.map(Worker::new)),
            done,
            answers: Vec::new(),
        }
    }

    fn submit(&mut self, pattern: &str) {
        let (job, answer) = job(pattern);
        self.pool.submit(job, Places::Limited).unwrap();
        self.answers.push(answer);
    }

    /// A turn on a thread of such a kind, if anything waits for one.
    fn turn(&self, takes: Takes) -> bool {
        let mut workers = self.workers.borrow_mut();
        let mut workers = workers.iter_mut();
        let worker = workers.find(|worker| worker.takes == takes).unwrap();
        let Some(job) = self.pool.thread.queue.try_next_job(worker) else {
            return false;
        };
        self.pool.thread.take_turn(job);
        true
    }

    /// Takes turns until a request has its answer: how many.
    fn turns_until_done(&self, takes: Takes, id: &str) -> usize {
        let mut num_turns = 0;
        loop {
            assert!(self.turn(takes));
            num_turns += 1;
            let done: Vec<RequestId> = self.done.try_iter().collect();
            if !done.is_empty() {
                assert_eq!(done, [id.into()]);
                return num_turns;
            }
        }
    }
}

impl ByHand {
    /// Takes turns for as long as there is anything to do: how many.
    fn all_turns(&self) -> usize {
        let mut num_turns = 0;
        while KINDS.into_iter().any(|takes| self.turn(takes)) {
            num_turns += 1;
        }
        num_turns
    }
}

/// What is written to take as long as it may.
fn hostile(number: usize) -> String {
    format!("takes 1000000000000 steps {number}")
}

#[test]
fn what_takes_some_turns_is_not_behind_what_takes_many() {
    let mut threads = ByHand::new();
    for number in 0..8 {
        threads.submit(&hostile(number));
        assert!(threads.turn(Takes::Short));
    }
    // Four for each.
    for _ in 0..32 {
        assert!(threads.turn(Takes::Shared));
    }
    threads.submit("needs 500000 steps");
    assert!(threads.turn(Takes::Short));
    // After 20 thousand 40, 80, 160 and 320, and every other turn is that of who waits longest.
    let num_turns = threads.turns_until_done(Takes::Shared, "needs 500000 steps");
    assert!(num_turns <= 2 * 4, "{num_turns}");
}

#[test]
fn in_memory_apart_what_takes_some_turns_is_not_behind_what_takes_many_either() {
    let mut threads = ByHand::new();
    let backend = Arc::clone(&threads.backend);
    for number in 0..8 {
        threads.submit(&hostile(number));
    }
    while threads.turn(Takes::Short) {}
    while threads.turn(Takes::Shared) {}
    for _ in 0..40 {
        assert!(threads.turn(Takes::Apart));
    }
    // More than may be done at a time where others wait.
    let large = "takes 150000 steps";
    let num_calls = || backend.num_calls.load(Ordering::Relaxed);
    let calls_before = num_calls();
    threads.submit(large);
    assert!(threads.turn(Takes::Short));
    while threads.turn(Takes::Shared) {}
    let num_turns = threads.turns_until_done(Takes::Apart, large);
    assert!(num_turns <= 2 * 4, "{num_turns}");
    // There a grammar stays between the turns, with what its memory knows.
    assert_eq!(num_calls() - calls_before, 1 + 5 + 1);
    let request = threads.answers[8].try_recv().unwrap().outcome.unwrap();
    assert!(request.is_apart());
    // The others end by their limits, each after as many turns.
    let mut num_turns = 40;
    while threads.turn(Takes::Apart) {
        num_turns += 1;
    }
    // Those that were not the large one's.
    assert!((8 * 9 - 4..=8 * 9).contains(&num_turns), "{num_turns}");
    assert_eq!(threads.done.try_iter().count(), 8);
    for answer in &threads.answers[..8] {
        let error = answer.try_recv().unwrap().outcome.err().unwrap();
        assert_eq!(error.code, RequestErrorCode::GrammarRefused);
        assert!(error.message.contains("`max_mask_steps`"), "{error:?}");
    }
}

/// The job of a running request that waits for a mask.
fn question(pool: &CompilePool, pattern: &str) -> (CompileJob, Receiver<CompiledGrammar>) {
    let (mut job, compiled) = job(pattern);
    let structured_outputs = job.params.structured_outputs.as_ref().unwrap();
    let effort = Turn::first(Arena::Shared).effort();
    let backend = &pool.thread.backend;
    let grammar = backend.compile_grammar(structured_outputs, &[], effort, &job.cancel);
    let grammar = grammar.unwrap().unwrap();
    let mut request = StructuredOutputRequest::unmeasured(grammar, &job.params, None, &[EOS]);
    let question = Question::Mask { tokens_left: 20 };
    request.set_aside(Aside::Question(question));
    job.turn = request.first_turn();
    job.purpose = Purpose::Aside(Box::new(request));
    (job, compiled)
}

#[test]
fn running_and_new_requests_wait_for_no_crowd_of_each_other() {
    let mut threads = ByHand::new();
    for number in 0..50 {
        threads.submit(&hostile(number));
    }
    for number in 0..3 {
        assert!(threads.turn(Takes::Short));
        let pattern = format!("[a-z]{{{}}}", number + 3);
        let (question, answer) = question(&threads.pool, &pattern);
        threads.pool.submit_aside(question).unwrap();
        assert_eq!(threads.turns_until_done(Takes::Short, &pattern), 1);
        let request = answer.try_recv().unwrap().outcome.unwrap();
        assert!(!request.is_aside());
    }
    let threads = &mut ByHand::new();
    let mut answers = Vec::new();
    for number in 0..50 {
        let (question, answer) = question(&threads.pool, &format!("[a-z]{{{}}}", number + 1));
        threads.pool.submit_aside(question).unwrap();
        answers.push(answer);
    }
    threads.submit("[0-9]");
    assert!(threads.turn(Takes::Short) && threads.turn(Takes::Short));
    let done: Vec<RequestId> = threads.done.try_iter().collect();
    assert!(done.contains(&"[0-9]".into()), "{done:?}");
}

/// Its calls take turns that double, and in the end so many steps together, whatever each may take.
#[test]
fn all_that_is_done_for_one_answer_is_bounded() {
    const NEEDED: u64 = 50_000_000;
    let threads = ByHand::new();
    let pattern = format!("needs {NEEDED} steps");
    let (question, answer) = question(&threads.pool, &pattern);
    threads.pool.submit_aside(question).unwrap();
    while threads.done.is_empty() {
        assert!(KINDS.into_iter().any(|takes| threads.turn(takes)));
    }
    let error = answer.try_recv().unwrap().outcome.map(drop).unwrap_err();
    assert_eq!(error.code, RequestErrorCode::GrammarRefused);
    let message = &error.message;
    assert!(message.contains("more than 6000000 steps"), "{message}");
    let done = NEEDED - threads.backend.left(&pattern);
    assert!(done > 6_000_000 && done < 14_000_000, "{done}");
}

#[test]
fn what_meets_the_limit_of_a_call_is_tried_again() {
    let outcome_of = |pattern: &str| {
        let mut threads = ByHand::new();
        threads.submit(pattern);
        threads.all_turns();
        let left = threads.backend.left(pattern);
        (threads.answers[0].try_recv().unwrap().outcome, left)
    };
    let (outcome, _) = outcome_of("needs 9000000 steps");
    assert!(outcome.is_ok());
    let (outcome, left) = outcome_of("needs 900000000 steps");
    let error = outcome.err().unwrap();
    assert!(error.message.contains("`max_mask_steps`"), "{error:?}");
    assert!(left > 800_000_000, "{left}");
}

#[test]
fn states_beyond_memory_of_their_own_are_the_requests_error() {
    let threads = ByHand::new();
    let (mut job, _answer) = question(&threads.pool, "[a-z]{3}");
    if let Purpose::Aside(request) = &mut job.purpose {
        request.num_answer_tokens = 7;
    }
    let of = |error| {
        let error = CompileGrammarError::Matcher(error);
        refusal(&job.params, &job.purpose, &error)
    };
    let refused = of(MatcherError::StatesExhausted { max: 1 });
    assert_eq!(refused.code, RequestErrorCode::GrammarRefused);
    assert!(refused.message.contains("after 7 tokens of the answer"));
    // What can't be kept is no fault of the grammar.
    let spent = of(MatcherError::AllowanceSpent);
    assert_eq!(spent.code, RequestErrorCode::InternalError);
}

/// A long list is no reason to share memory with what is hostile: its shortest text is found in some turns.
#[test]
fn what_comes_to_an_end_in_some_turns_stays_in_shared_memory() {
    const INVOICE: &str = r#"{"type": "object", "properties": {"number": {"type": "integer", "minimum": 1, "maximum": 99999}, "date": {"type": "string", "format": "date"}, "currency": {"enum": ["EUR", "USD", "GBP", "JPY"]}, "paid": {"type": "boolean"}}, "required": ["number", "date", "currency", "paid"], "additionalProperties": false}"#;
    let threads = ByHand::new();
    let schema = format!(r#"{{"type": "array", "items": {INVOICE}, "minItems": 400}}"#);
    let (list, answer) = job_of(StructuredOutputsConstraint::Json(schema), "list");
    threads.pool.submit(list, Places::Limited).unwrap();
    assert!(threads.turn(Takes::Short));
    assert!(threads.turns_until_done(Takes::Shared, "list") > 1);
    let request = answer.try_recv().unwrap().outcome.unwrap();
    assert!(!request.is_apart());
    let num_tokens = request.min_tokens_if_required().unwrap().number();
    assert!(num_tokens > 400 * 60, "{num_tokens}");
}

#[test]
fn a_panic_of_the_cache_stays_there() {
    let mut threads = ByHand::new();
    threads.submit("panics");
    assert_eq!(threads.turns_until_done(Takes::Short, "panics"), 1);
}

/// With the last grammar of some memory all of that goes: not where the busy loop would wait for it.
#[test]
fn grammars_end_on_a_thread_of_their_own() {
    let backend = Arc::new(OddBackend::new());
    let of_pool: Arc<dyn StructuredOutputBackend> = Arc::clone(&backend) as _;
    let (done_sender, done) = unbounded();
    let pool = CompilePool::new(&of_pool, 1, 100, &done_sender).unwrap();
    let (job, answer) = job("[a-z]{3}");
    pool.submit(job, Places::Limited).unwrap();
    done.recv().unwrap();
    let request = answer.try_recv().unwrap().outcome.unwrap();
    assert_eq!(backend.dropped.try_recv().ok(), None);
    request.discard();
    let dropped_by = backend.dropped.recv().unwrap();
    assert_eq!(dropped_by.as_deref(), Some("grammar-bin"));
}

mod same_constraints;
