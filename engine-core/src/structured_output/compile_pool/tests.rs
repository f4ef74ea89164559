//! The compile threads' turns, taken by hand.

use std::sync::atomic::Ordering;

use crossbeam_channel::{Receiver, unbounded};
use protocol::{SamplingParams, StructuredOutputsConstraint};
use structured_output::{MatcherError, RequestMemory};

use super::super::aside::{Aside, Question};
use super::super::backend::CompileGrammarError;
use super::super::refusal::refusal;
use super::super::request::StructuredOutputRequest;
use super::super::testing::{EOS, OddBackend, job, job_of};
use super::*;

/// A pool whose threads do nothing by themselves.
struct ByHand {
    backend: Arc<OddBackend>,
    pool: CompilePool,
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
            done,
            answers: Vec::new(),
        }
    }

    fn submit(&mut self, pattern: &str) {
        let (job, answer) = job(pattern);
        self.pool.submit(job).unwrap();
        self.answers.push(answer);
    }

    /// A turn on a thread with a duty, if anything waits for one.
    fn turn(&self, duty: Duty) -> bool {
        let Some(job) = self.pool.lanes.try_next_job(duty) else {
            return false;
        };
        self.pool.thread(duty).take_turn(job);
        true
    }

    /// Takes turns until a request has its answer: how many.
    fn turns_until_done(&self, duty: Duty, id: &str) -> usize {
        let mut num_turns = 0;
        loop {
            assert!(self.turn(duty));
            num_turns += 1;
            let done: Vec<RequestId> = self.done.try_iter().collect();
            if !done.is_empty() {
                assert_eq!(done, [id.into()]);
                return num_turns;
            }
        }
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
        assert!(threads.turn(Duty::Begin));
    }
    // Four for each.
    for _ in 0..32 {
        assert!(threads.turn(Duty::Compile));
    }
    threads.submit("needs 500000 steps");
    assert!(threads.turn(Duty::Begin));
    // After 20 thousand 40, 80, 160 and 320, and every other turn is that of who waits longest.
    let num_turns = threads.turns_until_done(Duty::Compile, "needs 500000 steps");
    assert!(num_turns <= 2 * 4, "{num_turns}");
}

#[test]
fn in_memory_apart_what_takes_some_turns_is_not_behind_what_takes_many_either() {
    let mut threads = ByHand::new();
    let backend = Arc::clone(&threads.backend);
    for number in 0..8 {
        threads.submit(&hostile(number));
    }
    while threads.turn(Duty::Begin) {}
    while threads.turn(Duty::Compile) {}
    for _ in 0..40 {
        assert!(threads.turn(Duty::Apart));
    }
    // More than may be done at a time where others wait.
    let large = "takes 150000 steps";
    let num_calls = || backend.num_calls.load(Ordering::Relaxed);
    let calls_before = num_calls();
    threads.submit(large);
    assert!(threads.turn(Duty::Begin));
    while threads.turn(Duty::Compile) {}
    let num_turns = threads.turns_until_done(Duty::Apart, large);
    assert!(num_turns <= 2 * 4, "{num_turns}");
    // There a grammar stays between the turns, with what its memory knows.
    assert_eq!(num_calls() - calls_before, 1 + 5 + 1);
    let request = threads.answers[8].try_recv().unwrap().outcome.unwrap();
    assert!(request.is_apart());
    // The others end by their limits, each after as many turns.
    let mut num_turns = 40;
    while threads.turn(Duty::Apart) {
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

#[test]
fn what_waits_longest_has_half_of_the_work() {
    let lanes = CompileLanes::new(100);
    let send = |id: &str, number| {
        let duty = Duty::Apart;
        let turn = Turn { duty, number };
        lanes.send(CompileJob { turn, ..job(id).0 }).unwrap();
    };
    for id in ["old", "older"] {
        send(id, 2);
    }
    let mut order = Vec::new();
    for number in 0..10 {
        // Others that have taken less come all the time.
        send(&format!("new {number}"), 0);
        order.push(lanes.try_next_job(Duty::Apart).unwrap().request_id);
    }
    // Its turn is as long as four of theirs.
    let expected = [
        "new 0", "new 1", "new 2", "new 3", "old", "new 4", "new 5", "new 6", "new 7", "older",
    ];
    assert_eq!(order, expected.map(RequestId::from));
}

/// Lanes, and what sends a job there that has a text of so many KiB and is to have a turn.
fn lanes_with_texts() -> (CompileLanes, impl Fn(&CompileLanes, &str, usize, Turn)) {
    let send = |lanes: &CompileLanes, id: &str, num_kib: usize, turn| {
        let job = CompileJob {
            turn,
            source_bytes: num_kib << 10,
            ..job(id).0
        };
        lanes.send_new(job).unwrap();
    };
    (CompileLanes::new(1000), send)
}

#[test]
fn short_constraints_wait_for_no_crowd_of_long_ones() {
    let (lanes, send) = lanes_with_texts();
    let send = |id: &str, num_kib, number| {
        let duty = Duty::Compile;
        send(&lanes, id, num_kib, Turn { duty, number });
    };
    let next = || lanes.try_next_job(Duty::Compile).unwrap().request_id;
    for number in 0..20 {
        send(&format!("long {number}"), 60, 0);
    }
    // A long text is as much as some turns' steps: here four.
    for number in 0..3 {
        send(&format!("short {number}"), 1, 0);
    }
    send("begun", 1, 1);
    let order = [next(), next(), next(), next(), next(), next()];
    let expected = ["short 0", "short 1", "short 2", "begun", "long 0", "long 1"];
    assert_eq!(order, expected.map(RequestId::from));
    send("begun long ago", 1, 4);
    let order = [next(), next(), next()];
    assert_eq!(order, ["long 2", "long 3", "long 4"].map(RequestId::from));
}

#[test]
fn who_begins_grammars_takes_short_texts_first() {
    let (lanes, send) = lanes_with_texts();
    let begin = Turn::first(Duty::Begin);
    let next = || lanes.try_next_job(Duty::Begin).map(|job| job.request_id);
    for number in 0..100 {
        send(&lanes, &format!("long {number}"), 40, begin);
    }
    for number in 0..100 {
        send(&lanes, &format!("short {number}"), 1, begin);
    }
    for number in 0..100 {
        assert_eq!(next(), Some(format!("short {number}").into()));
    }
    assert_eq!(next(), Some("long 0".into()));
    // Meanwhile others begin the long ones, however many short ones come.
    send(&lanes, "short", 1, begin);
    for _ in 0..2 {
        send(&lanes, "begun", 1, Turn::first(Duty::Compile));
    }
    let other = || lanes.try_next_job(Duty::Compile).unwrap().request_id;
    let order = [other(), other(), other(), other()];
    assert_eq!(
        order,
        ["long 99", "begun", "long 1", "begun"].map(RequestId::from)
    );
    assert_eq!(next(), Some("short".into()));
}

/// What is computed for a grammar is in memory that all share, and may be gone before its next turn where
/// many are begun at a time.
#[test]
fn few_long_texts_are_under_way_at_a_time() {
    let (lanes, send) = lanes_with_texts();
    let begin = Turn::first(Duty::Begin);
    for number in 0..100 {
        send(&lanes, &format!("long {number}"), 40, begin);
    }
    let next = || lanes.try_next_job(Duty::Begin);
    let mut begun: Vec<CompileJob> = (0..32).map(|_| next().unwrap()).collect();
    assert!(next().is_none());
    // Short ones are begun in any case.
    send(&lanes, "short", 1, begin);
    assert_eq!(next().unwrap().request_id, "short".into());
    assert!(next().is_none());
    // They count wherever they wait in memory that is shared, until they end.
    let job = begun.pop().unwrap();
    let turn = job.turn.next();
    lanes.send(CompileJob { turn, ..job }).unwrap();
    assert!(next().is_none());
    let job = lanes.try_next_job(Duty::Compile).unwrap();
    assert_eq!(job.request_id, "long 84".into());
    drop(job);
    begun.push(next().unwrap());
    assert!(next().is_none());
    // Or until they go on in memory apart.
    let job = begun.pop().unwrap();
    let turn = Turn::first(Duty::Apart);
    lanes.send(CompileJob { turn, ..job }).unwrap();
    begun.push(next().unwrap());
    assert!(next().is_none());
    assert!(lanes.try_next_job(Duty::Apart).is_some());
    // Those that are hostile keep nobody waiting for ever.
    let mut num_turns = 0;
    while next().is_none() {
        let turn = Turn::first(Duty::Apart);
        send(&lanes, &format!("hostile {num_turns}"), 1, turn);
        assert!(lanes.try_next_job(Duty::Apart).is_some());
        num_turns += 1;
    }
    // With its own, and that of the one that went apart.
    assert_eq!(num_turns + 2, 32);
}

/// Who comes after a crowd is not begun after all of it, be it that those of the crowd end, go on in memory
/// apart, or keep their places.
#[test]
fn long_texts_after_a_crowd_are_begun_before_its_last() {
    for keeps_places in [false, true] {
        let (lanes, send) = lanes_with_texts();
        let begin = Turn::first(Duty::Begin);
        for number in 0..100 {
            send(&lanes, &format!("hostile {number}"), 40, begin);
        }
        let mut begun: Vec<CompileJob> = (0..32)
            .map(|_| lanes.try_next_job(Duty::Begin).unwrap())
            .collect();
        send(&lanes, "good", 40, begin);
        let mut order = Vec::new();
        while order.len() < 5 {
            match keeps_places {
                true => {
                    send(&lanes, "apart", 1, Turn::first(Duty::Apart));
                    assert!(lanes.try_next_job(Duty::Apart).is_some());
                }
                false => drop(begun.pop()),
            }
            if let Some(job) = lanes.try_next_job(Duty::Begin) {
                order.push(job.request_id.clone());
                begun.push(job);
            }
        }
        let expected = [
            "hostile 16",
            "good",
            "hostile 17",
            "hostile 83",
            "hostile 18",
        ];
        assert_eq!(order, expected.map(RequestId::from));
    }
}

/// One of 300 KiB has the room of eight of 40.
#[test]
fn the_shorter_long_texts_are_the_more_are_under_way() {
    for (num_kib, expected) in [(16, 64), (40, 32), (100, 16), (300, 4), (5000, 1)] {
        let (lanes, send) = lanes_with_texts();
        let begin = Turn::first(Duty::Begin);
        for number in 0..100 {
            send(&lanes, &format!("long {number}"), num_kib, begin);
        }
        let mut begun = Vec::new();
        // The one that comes after so many turns is left out.
        while let Some(job) = lanes.try_next_job(Duty::Compile) {
            begun.push(job);
        }
        assert_eq!(begun.len(), expected, "{num_kib}");
    }
}

/// The job of a running request that waits for a mask.
fn question(pool: &CompilePool, pattern: &str) -> (CompileJob, Receiver<CompiledGrammar>) {
    let (mut job, compiled) = job(pattern);
    let structured_outputs = job.params.structured_outputs.as_ref().unwrap();
    let effort = Turn::first(Duty::Compile).effort();
    let backend = &pool.backend;
    let grammar = backend.compile_grammar(structured_outputs, &[], effort, &job.cancel);
    let grammar = grammar.unwrap().unwrap();
    let mut request = StructuredOutputRequest::unmeasured(grammar, &job.params, None, &[EOS]);
    let question = Question::Mask { tokens_left: 20 };
    request.set_aside(Aside::Question(question));
    job.turn = Turn::first(request.duty());
    job.purpose = Purpose::Aside(Box::new(request));
    (job, compiled)
}

#[test]
fn what_a_running_request_waits_for_has_a_thread_of_its_own() {
    let mut threads = ByHand::new();
    for number in 0..8 {
        threads.submit(&hostile(number));
    }
    let (question, answer) = question(&threads.pool, "[a-z]{3}");
    threads.pool.submit_aside(question).unwrap();
    assert_eq!(threads.turns_until_done(Duty::Answer, "[a-z]{3}"), 1);
    let request = answer.try_recv().unwrap().outcome.unwrap();
    assert!(!request.is_aside());
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
        let duties = [Duty::Answer, Duty::Compile, Duty::Apart];
        assert!(duties.into_iter().any(|duty| threads.turn(duty)));
    }
    let error = answer.try_recv().unwrap().outcome.map(drop).unwrap_err();
    assert_eq!(error.code, RequestErrorCode::GrammarRefused);
    let message = &error.message;
    assert!(message.contains("more than 6000000 steps"), "{message}");
    let done = NEEDED - threads.backend.left(&pattern);
    assert!(done > 6_000_000 && done < 14_000_000, "{done}");
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

#[test]
fn admitted_and_new_requests_take_turns() {
    let pool = ByHand::new().pool;
    let lanes = CompileLanes::new(3);
    for pattern in ["a", "b", "c"] {
        lanes.send(question(&pool, pattern).0).unwrap();
    }
    let new = |pattern: &str, duty| CompileJob {
        turn: Turn::first(duty),
        ..job(pattern).0
    };
    for pattern in ["d", "e", "f"] {
        lanes.send_new(new(pattern, Duty::Answer)).unwrap();
    }
    let full = Err(SendError::Full(3));
    assert_eq!(lanes.send_new(new("g", Duty::Answer)), full);
    let next = || lanes.next_job(Duty::Answer).unwrap().request_id.to_string();
    let order: Vec<String> = (0..6).map(|_| next()).collect();
    assert_eq!(order, ["a", "d", "b", "e", "c", "f"]);
    // Those that were begun count, but not where nobody waits for them any more.
    lanes.send_new(new("g", Duty::Begin)).unwrap();
    lanes.send(new("h", Duty::Compile)).unwrap();
    let aborted = new("i", Duty::Apart);
    let cancel = aborted.cancel.clone();
    lanes.send(aborted).unwrap();
    assert_eq!(lanes.send_new(new("j", Duty::Begin)), full);
    cancel.cancel();
    lanes.send_new(new("k", Duty::Begin)).unwrap();
    assert_eq!(lanes.send_new(new("l", Duty::Begin)), full);
    lanes.close();
    assert!(lanes.next_job(Duty::Begin).is_none());
    assert_eq!(
        lanes.send_new(new("m", Duty::Begin)),
        Err(SendError::Closed)
    );
}

/// A long list is no reason to share memory with what is hostile: its shortest text is found in some turns.
#[test]
fn what_comes_to_an_end_in_some_turns_stays_in_shared_memory() {
    const INVOICE: &str = r#"{"type": "object", "properties": {"number": {"type": "integer", "minimum": 1, "maximum": 99999}, "date": {"type": "string", "format": "date"}, "currency": {"enum": ["EUR", "USD", "GBP", "JPY"]}, "paid": {"type": "boolean"}}, "required": ["number", "date", "currency", "paid"], "additionalProperties": false}"#;
    let threads = ByHand::new();
    let schema = format!(r#"{{"type": "array", "items": {INVOICE}, "minItems": 400}}"#);
    let (list, answer) = job_of(StructuredOutputsConstraint::Json(schema), "list");
    threads.pool.submit(list).unwrap();
    assert!(threads.turn(Duty::Begin));
    assert!(threads.turns_until_done(Duty::Compile, "list") > 1);
    let request = answer.try_recv().unwrap().outcome.unwrap();
    assert!(!request.is_apart());
    let num_tokens = request.min_tokens_if_required().unwrap().number();
    assert!(num_tokens > 400 * 60, "{num_tokens}");
}

/// More than a call may take.
const TOO_MUCH: &str = "takes 3000000 steps";

impl ByHand {
    /// Takes turns for as long as there is anything to do: how many.
    fn all_turns(&self) -> usize {
        let duties = [Duty::Answer, Duty::Begin, Duty::Compile, Duty::Apart];
        let mut num_turns = 0;
        while duties.iter().any(|&duty| self.turn(duty)) {
            num_turns += 1;
        }
        num_turns
    }
}

#[test]
fn what_is_refused_is_worked_out_once() {
    let mut threads = ByHand::new();
    threads.submit(TOO_MUCH);
    let num_turns = threads.all_turns();
    let mut twelve = ByHand::new();
    for _ in 0..12 {
        twelve.submit(TOO_MUCH);
    }
    assert_eq!(twelve.all_turns(), num_turns);
    let num_calls = twelve.backend.num_calls.load(Ordering::Relaxed);
    assert_eq!(num_calls, threads.backend.num_calls.load(Ordering::Relaxed));
    // Nor ever again.
    twelve.submit(TOO_MUCH);
    assert_eq!(twelve.all_turns(), 0);
    assert_eq!(twelve.done.try_iter().count(), 13);
    for (index, answer) in twelve.answers.iter().enumerate() {
        let compiled = answer.try_recv().unwrap();
        assert_eq!(compiled.compile_seconds.is_some(), index == 0);
        // Who waited for it has found nothing.
        assert_eq!(compiled.was_known, index == 12);
        let error = compiled.outcome.err().unwrap();
        assert_eq!(error.code, RequestErrorCode::GrammarRefused);
        assert!(error.message.contains("`max_mask_steps`"), "{error:?}");
    }
    // That of others is not.
    twelve.submit("[a-z]{3}");
    assert!(twelve.all_turns() > 0);
    assert!(twelve.answers[13].try_recv().unwrap().outcome.is_ok());
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

/// A job with something of its request changed.
fn changed(
    pattern: &str,
    change: impl FnOnce(&mut SamplingParams),
) -> (CompileJob, Receiver<CompiledGrammar>) {
    let (mut job, answer) = job(pattern);
    let mut params = (*job.params).clone();
    change(&mut params);
    job.params = Arc::new(params);
    (job, answer)
}

impl ByHand {
    fn submit_changed(&mut self, pattern: &str, change: impl FnOnce(&mut SamplingParams)) {
        let (job, answer) = changed(pattern, change);
        self.pool.submit(job).unwrap();
        self.answers.push(answer);
    }

    /// A replay that has this output.
    fn submit_replay(&mut self, pattern: &str, output: &[u32]) {
        let (mut job, answer) = job(pattern);
        job.purpose = Purpose::Start {
            reasoning_ended: None,
            output_token_ids: output.to_vec(),
            begun: None,
            num_added_bytes: 0,
            request_memory: RequestMemory::default(),
        };
        self.pool.submit_replay(job).unwrap();
        self.answers.push(answer);
    }

    /// Which of the requests got their grammars.
    fn served(&self) -> Vec<bool> {
        let is_served =
            |answer: &Receiver<CompiledGrammar>| answer.try_recv().unwrap().outcome.is_ok();
        self.answers.iter().map(is_served).collect()
    }

    fn num_calls(&self) -> u64 {
        self.backend.num_calls.load(Ordering::Relaxed)
    }
}

#[test]
fn constraints_with_other_stop_tokens_are_the_same() {
    let mut threads = ByHand::new();
    let a = u32::from(b'a');
    let stop_token_ids = [vec![], vec![a], vec![a, a], vec![a + 1]];
    for _ in 0..2 {
        for ids in &stop_token_ids {
            threads.submit_changed("a", |params| params.stop_token_ids = ids.clone().into());
        }
        threads.all_turns();
    }
    // Those with which nothing but a stop token can come have it as text.
    assert_eq!(threads.served(), [true; 8]);
}

#[test]
fn what_is_refused_is_worked_out_once_whatever_else_is_asked() {
    let mut threads = ByHand::new();
    threads.submit(TOO_MUCH);
    let num_turns = threads.all_turns();
    let mut many = ByHand::new();
    for number in 0..12 {
        many.submit_changed(TOO_MUCH, |params| {
            params.stop_token_ids = vec![number].into();
            params.max_tokens = Some(90_000 + number);
            params
                .structured_outputs
                .as_mut()
                .unwrap()
                .make_mut()
                .enable_in_reasoning = number % 2 == 0;
        });
    }
    many.submit_replay(TOO_MUCH, &[u32::from(b't')]);
    assert_eq!(many.all_turns(), num_turns);
    assert_eq!(many.num_calls(), threads.num_calls());
    assert_eq!(many.served(), [false; 13]);
}

/// What only the shortest text takes too long for is served where that isn't asked for.
#[test]
fn what_cannot_be_measured_is_served_to_those_who_need_no_measure() {
    let mut threads = ByHand::new();
    let may_be_cut = |params: &mut SamplingParams| {
        let structured_outputs = params.structured_outputs.as_mut().unwrap();
        structured_outputs.make_mut().complete_within_max_tokens = false;
    };
    for _ in 0..2 {
        threads.submit(TOO_MUCH);
        threads.submit_changed(TOO_MUCH, may_be_cut);
        threads.submit(TOO_MUCH);
        threads.submit_changed(TOO_MUCH, may_be_cut);
        threads.all_turns();
    }
    assert_eq!(threads.served(), [false, true].repeat(4));
    // The other way round: those who need it are not let in with one who didn't.
    let mut threads = ByHand::new();
    threads.submit_changed(TOO_MUCH, may_be_cut);
    threads.submit(TOO_MUCH);
    threads.submit(TOO_MUCH);
    let num_turns = threads.all_turns();
    assert_eq!(threads.served(), [true, false, false]);
    let mut alone = ByHand::new();
    alone.submit(TOO_MUCH);
    assert!(num_turns <= 2 + alone.all_turns(), "{num_turns}");
}

#[test]
fn replays_of_the_same_are_worked_out_once() {
    let output = |text: &str| text.bytes().map(u32::from).collect::<Vec<_>>();
    let mut once = ByHand::new();
    once.submit_replay("needs 100000 steps", &output("needs"));
    let num_turns = once.all_turns();
    let mut threads = ByHand::new();
    // More than may wait otherwise.
    for length in 0..150 {
        let length = length % 10;
        threads.submit_replay("needs 100000 steps", &output(&"needs 1000"[..length]));
    }
    assert!(threads.all_turns() <= num_turns + 149);
    assert_eq!(threads.served(), [true; 150]);
}

/// An output that doesn't fit its grammar says nothing of the grammar.
#[test]
fn a_replay_refused_for_its_output_is_no_verdict() {
    let mut threads = ByHand::new();
    let wrong = [u32::from(b'z')];
    threads.submit_replay("abc", &wrong);
    threads.submit("abc");
    threads.submit_replay("abc", &[u32::from(b'a')]);
    threads.submit_replay("abc", &wrong);
    threads.all_turns();
    threads.submit("abc");
    threads.all_turns();
    assert_eq!(threads.served(), [false, true, true, false, true]);
}

#[test]
fn those_that_wait_for_the_same_have_its_grammar() {
    let mut threads = ByHand::new();
    for _ in 0..5 {
        threads.submit("needs 100000 steps");
    }
    // The first one takes all turns that it needs before others look.
    while threads.done.is_empty() {
        assert!(!threads.turn(Duty::Answer));
        assert!(threads.turn(Duty::Begin) || threads.turn(Duty::Compile));
    }
    assert_eq!(threads.all_turns(), 4);
    for answer in &threads.answers {
        assert!(answer.try_recv().unwrap().outcome.is_ok());
    }
}

#[test]
fn another_goes_on_where_nobody_waits_for_the_first() {
    let mut threads = ByHand::new();
    let mut cancel = Vec::new();
    for _ in 0..4 {
        let (job, answer) = job("[a-z]{3}");
        cancel.push(job.cancel.clone());
        threads.pool.submit(job).unwrap();
        threads.answers.push(answer);
    }
    cancel[0].cancel();
    cancel[1].cancel();
    threads.all_turns();
    let served = threads
        .answers
        .iter()
        .map(|answer| answer.try_recv().is_ok());
    assert_eq!(served.collect::<Vec<_>>(), [false, false, true, true]);
    // All of them are gone: nothing is left of them.
    let (job, _answer) = job("[0-9]{3}");
    let cancel = job.cancel.clone();
    threads.pool.submit(job).unwrap();
    cancel.cancel();
    threads.all_turns();
    threads.submit("[0-9]{3}");
    threads.all_turns();
    assert!(threads.answers[4].try_recv().unwrap().outcome.is_ok());
}

#[test]
fn who_waits_for_the_same_takes_no_place_of_others() {
    let backend: Arc<dyn StructuredOutputBackend> = Arc::new(OddBackend::new());
    let (done_sender, _done) = unbounded();
    let pool = CompilePool::without_threads(&backend, 2, &done_sender);
    let submit = |pattern: &str| {
        let (job, answer) = job(pattern);
        let cancel = job.cancel.clone();
        pool.submit(job).map(|()| (answer, cancel))
    };
    let first = submit("a").unwrap();
    // Sixteen times as many as there are places.
    let waiting: Vec<_> = (0..32).map(|_| submit("a").unwrap()).collect();
    let overflow = Some(RequestErrorCode::QueueOverflow);
    assert_eq!(submit("a").err().map(|error| error.code), overflow);
    let other = submit("b").unwrap();
    assert_eq!(submit("c").err().map(|error| error.code), overflow);
    // Who is gone makes room.
    waiting[0].1.cancel();
    let again = submit("a").unwrap();
    assert_eq!(submit("a").err().map(|error| error.code), overflow);
    drop(pool);
    for (answer, _) in [first, other, again].iter().chain(&waiting) {
        assert!(answer.try_recv().is_err());
    }
}

#[test]
fn crowds_that_wait_keep_nobody_else_from_a_place() {
    let backend: Arc<dyn StructuredOutputBackend> = Arc::new(OddBackend::new());
    let (done_sender, _done) = unbounded();
    let pool = CompilePool::without_threads(&backend, 20, &done_sender);
    let mut answers = Vec::new();
    let mut submit = |pattern: &str| {
        let (job, answer) = job(pattern);
        answers.push(answer);
        pool.submit(job).is_ok()
    };
    // As many as may wait in all.
    for crowd in 0..16 {
        let pattern = format!("a{{{}}}", crowd + 1);
        assert!((0..21).all(|_| submit(&pattern)), "{pattern}");
    }
    assert!(submit("b") && submit("b") && submit("b"));
}

#[test]
fn of_what_is_refused_only_the_constraint_is_kept() {
    let mut threads = ByHand::new();
    let (mut job, answer) = job(TOO_MUCH);
    let params = SamplingParams {
        stop: vec!["x".repeat(1000)].into(),
        ..(*job.params).clone()
    };
    job.params = Arc::new(params);
    let kept = Arc::downgrade(&job.params);
    threads.pool.submit(job).unwrap();
    threads.answers.push(answer);
    threads.all_turns();
    assert!(threads.answers[0].try_recv().unwrap().outcome.is_err());
    assert!(kept.upgrade().is_none());
    threads.submit(TOO_MUCH);
    assert_eq!(threads.all_turns(), 0);
}

#[test]
fn only_what_has_to_be_compiled_takes_time_to_compile() {
    let mut threads = ByHand::new();
    threads.submit("[a-z]{3}");
    threads.turns_until_done(Duty::Begin, "[a-z]{3}");
    // Another thread compiles beside the next one, whose grammar is known.
    threads.submit("[a-z]{3}");
    threads.submit("[0-9]{3}");
    threads.turns_until_done(Duty::Begin, "[0-9]{3}");
    threads.turns_until_done(Duty::Answer, "[a-z]{3}");
    // One that is known, behind another such.
    threads.submit("[0-9]{3}");
    threads.submit("[0-9]{3}");
    threads.all_turns();
    let found = |answer: &Receiver<CompiledGrammar>| {
        let compiled = answer.try_recv().unwrap();
        (compiled.compile_seconds.is_some(), compiled.was_known)
    };
    let found: Vec<(bool, bool)> = threads.answers.iter().map(found).collect();
    let (anew, known) = ((true, false), (false, true));
    assert_eq!(found, [anew, known, anew, known, known]);
}

#[test]
fn a_panic_of_the_cache_stays_there() {
    let mut threads = ByHand::new();
    threads.submit("panics");
    assert_eq!(threads.turns_until_done(Duty::Begin, "panics"), 1);
}

/// With the last grammar of some memory all of that goes: not where the busy loop would wait for it.
#[test]
fn grammars_end_on_a_thread_of_their_own() {
    let backend = Arc::new(OddBackend::new());
    let of_pool: Arc<dyn StructuredOutputBackend> = Arc::clone(&backend) as _;
    let (done_sender, done) = unbounded();
    let pool = CompilePool::new(&of_pool, 1, 100, &done_sender).unwrap();
    let (job, answer) = job("[a-z]{3}");
    pool.submit(job).unwrap();
    done.recv().unwrap();
    let request = answer.try_recv().unwrap().outcome.unwrap();
    assert_eq!(backend.dropped.try_recv().ok(), None);
    request.discard();
    let dropped_by = backend.dropped.recv().unwrap();
    assert_eq!(dropped_by.as_deref(), Some("grammar-bin"));
}
