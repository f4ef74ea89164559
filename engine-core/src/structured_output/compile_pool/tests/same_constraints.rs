//! Requests with the same constraint.

use structured_output::RequestMemory;

use super::*;

/// More than a call may take.
const TOO_MUCH: &str = "takes 3000000 steps";

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
        self.pool.submit(job, Places::Limited).unwrap();
        self.answers.push(answer);
    }

    /// A replay that has this output.
    fn submit_replay(&mut self, pattern: &str, output: &[u32]) {
        let (mut job, answer) = job(pattern);
        job.purpose = Purpose::start(None, output.to_vec(), RequestMemory::default());
        self.pool.submit(job, Places::Unlimited).unwrap();
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
fn a_replay_refused_for_its_output_says_nothing_of_others() {
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
    assert!(threads.turn(Takes::Short));
    while threads.done.is_empty() {
        assert!(!threads.turn(Takes::Short));
        assert!(threads.turn(Takes::Shared));
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
        threads.pool.submit(job, Places::Limited).unwrap();
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
    threads.pool.submit(job, Places::Limited).unwrap();
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
        pool.submit(job, Places::Limited).map(|()| (answer, cancel))
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
        pool.submit(job, Places::Limited).is_ok()
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
    threads.pool.submit(job, Places::Limited).unwrap();
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
    threads.turns_until_done(Takes::Short, "[a-z]{3}");
    // Another thread compiles beside the next one, whose grammar is known.
    threads.submit("[a-z]{3}");
    threads.submit("[0-9]{3}");
    threads.turns_until_done(Takes::Short, "[0-9]{3}");
    threads.turns_until_done(Takes::Short, "[a-z]{3}");
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
