//! Waiting for a grammar: others pass by, and an abort or a full queue ends the wait.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, unbounded};
use engine_core::engine::AbortRequests;
use engine_core::structured_output::{
    CompileGrammarError, FormworkBackend, StructuredOutputBackend, StructuredOutputGrammar,
    StructuredOutputManager,
};
use protocol::{
    FinishReason, RequestErrorCode, StructuredOutputsConfig, StructuredOutputsConstraint,
    StructuredOutputsParams,
};
use structured_output::{CancelFlag, CompileEffort, CompileError};

use crate::engine::{Engine, Setup};
use crate::{choice, regex, seeded};

/// Compiles like the real one, but `slow` ones only on leave, or until they are cancelled; `long` ones
/// likewise, and only apart.
struct SlowBackend {
    real: FormworkBackend,
    started: Sender<()>,
    leave: Receiver<()>,
}

impl StructuredOutputBackend for SlowBackend {
    fn compile_grammar(
        &self,
        params: &StructuredOutputsParams,
        stop_token_ids: &[u32],
        effort: CompileEffort,
        cancel: &CancelFlag,
    ) -> Option<Result<Box<dyn StructuredOutputGrammar>, CompileGrammarError>> {
        if let StructuredOutputsConstraint::Regex(pattern) = &params.constraint {
            assert_ne!(pattern, "panic", "a panic for a test");
            let is_long = pattern.starts_with("long");
            if is_long && !matches!(effort, CompileEffort::Apart { .. }) {
                return None;
            }
            if is_long || pattern.starts_with("slow") {
                self.started.send(()).unwrap();
                while self.leave.try_recv().is_err() {
                    if cancel.is_cancelled() {
                        return Some(Err(CompileError::Cancelled.into()));
                    }
                    std::thread::yield_now();
                }
            }
        }
        self.real
            .compile_grammar(params, stop_token_ids, effort, cancel)
    }

    fn is_compiled(&self, params: &StructuredOutputsParams) -> bool {
        self.real.is_compiled(params)
    }

    fn stop_token_ids(&self) -> &[u32] {
        self.real.stop_token_ids()
    }
}

/// An engine that begins new grammars on two threads, slow ones on leave, with room for two to wait.
fn slow_engine() -> (Engine, Receiver<()>, Sender<()>) {
    let mut engine = Engine::new(&Setup::default());
    let (started_sender, started) = unbounded();
    let (leave, leave_receiver) = unbounded();
    let info = engine.tokenizer.tokenizer_info(4096).unwrap();
    let backend: Arc<dyn StructuredOutputBackend> = Arc::new(SlowBackend {
        real: FormworkBackend::new(info, 16 << 20).unwrap(),
        started: started_sender,
        leave: leave_receiver,
    });
    let config = StructuredOutputsConfig {
        compile_threads: Some(1),
        max_num_queued_grammars: 2,
        ..StructuredOutputsConfig::default()
    };
    let manager = StructuredOutputManager::new(&config, &backend).unwrap();
    engine.core = engine.core.with_structured_output(Arc::new(manager));
    (engine, started, leave)
}

#[test]
fn a_compile_that_takes_for_ever_blocks_nobody() {
    let (mut engine, started, leave) = slow_engine();
    let slow = engine.request("slow", "Hello", regex("slow[0-9]"), seeded(1, 20));
    let free = engine.request("free", "Hello", None, seeded(2, 30));
    let alone = Engine::new(&Setup::default()).run(std::slice::from_ref(&free));
    engine.add(slow);
    started.recv().unwrap();
    engine.add(free);
    // One token per step, whatever compiles meanwhile; then there is nothing to do.
    let mut token_ids = Vec::new();
    let mut num_steps = 0;
    while engine.core.has_work() {
        num_steps += 1;
        for output in engine.step() {
            assert_eq!(output.request_id, "free");
            token_ids.extend(output.new_token_ids);
        }
    }
    assert_eq!(token_ids, alone["free"].token_ids);
    assert!(num_steps <= token_ids.len() + 1, "{num_steps} steps");
    leave.send(()).unwrap();
    let answers = engine.drain();
    assert_eq!(engine.text(&answers["slow"])[..4], *"slow");
    assert!(answers["slow"].admitted);
}

#[test]
fn a_full_queue_refuses_and_an_abort_frees_its_thread() {
    let (mut engine, started, _leave) = slow_engine();
    let ask = |engine: &Engine, id: &str, pattern: &str| {
        engine.request(id, "Hello", regex(pattern), seeded(1, 20))
    };
    for (id, pattern) in [("a", "slow1"), ("e", "slow2")] {
        engine.add(ask(&engine, id, pattern));
        started.recv().unwrap();
    }
    for (id, pattern) in [("b", "[0-9]"), ("c", "[0-8]"), ("d", "[0-7]")] {
        engine.add(ask(&engine, id, pattern));
    }
    // An earlier core had let this one in.
    let mut replay = ask(&engine, "r", "[a-z]");
    replay.is_replay = true;
    engine.add(replay);
    // Two are being compiled and two wait: the next has no place.
    let refused = engine.step();
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0].request_id, "d");
    let error = refused[0].error.as_ref().unwrap();
    assert_eq!(error.code, RequestErrorCode::QueueOverflow);
    assert!(error.retryable);

    engine.core.abort_requests(&AbortRequests {
        client_index: 0,
        request_ids: ["a", "b", "e"].map(str::to_owned).to_vec(),
    });
    let answers = engine.drain();
    let ids: Vec<_> = answers.keys().collect();
    assert_eq!(ids, ["c", "r"]);
    for answer in answers.values() {
        assert_eq!(answer.finish_reason, Some(FinishReason::Stop));
    }
}

/// Runs a request to its end while others are held at the compiler.
fn run_past_the_held(engine: &mut Engine, id: &str, pattern: &str) {
    engine.add(engine.request(id, "Hello", regex(pattern), seeded(1, 20)));
    let mut finish_reason = None;
    while finish_reason.is_none() {
        // The only one that can be compiled, if it isn't yet.
        assert!(engine.core.has_work() || engine.core.wait_for_grammar());
        for output in engine.step() {
            assert_eq!((&*output.request_id, &output.error), (id, &None));
            finish_reason = output.finish_reason;
        }
    }
    assert_eq!(finish_reason, Some(FinishReason::Stop));
}

fn abort(engine: &mut Engine, id: &str) {
    engine.core.abort_requests(&AbortRequests {
        client_index: 0,
        request_ids: vec![id.to_owned()],
    });
}

#[test]
fn what_takes_long_holds_up_neither_small_nor_cached_constraints() {
    let (mut engine, started, leave) = slow_engine();
    run_past_the_held(&mut engine, "first", "[a-z]{3}");
    // Small ones that take long hold the threads for such, and one is behind them.
    let long = ["long-1", "long-2", "long-3"];
    for (id, is_held) in long.into_iter().zip([true, true, false]) {
        engine.add(engine.request(id, "Hello", regex(id), seeded(1, 20)));
        if is_held {
            started.recv().unwrap();
        }
        // It was begun, and is passed on.
        run_past_the_held(
            &mut engine,
            &format!("small beside {id}"),
            &format!("[0-9]{{2}}{id}?"),
        );
    }
    // One thread is left for short turns: what is cached is ready all the same.
    engine.add(engine.request("slow", "Hello", regex("slow"), seeded(1, 20)));
    started.recv().unwrap();
    run_past_the_held(&mut engine, "cached", "[a-z]{3}");
    for id in long {
        abort(&mut engine, id);
    }
    // One for each, since what was aborted may still take it.
    for _ in 0..4 {
        leave.send(()).unwrap();
    }
    let answers = engine.drain();
    assert_eq!(answers.keys().collect::<Vec<_>>(), ["slow"]);
    assert_eq!(answers["slow"].finish_reason, Some(FinishReason::Stop));
}

#[test]
fn a_panic_of_the_compiler_is_the_requests_error() {
    let (mut engine, _started, _leave) = slow_engine();
    let panics = engine.request("panics", "Hello", regex("panic"), seeded(1, 20));
    let good = engine.request("good", "Hello", choice(&["yes", "no"]), seeded(1, 20));
    let answers = engine.run(&[panics, good]);
    let error = answers["panics"].error.as_ref().unwrap();
    assert_eq!(error.code, RequestErrorCode::InternalError);
    assert!(error.message.contains("panicked"), "{}", error.message);
    assert_eq!(answers["good"].complete, Some(true));
}

#[test]
fn the_order_of_arrival_outlives_the_wait() {
    let mut engine = Engine::new(&Setup {
        max_num_seqs: 1,
        ..Setup::default()
    });
    let ids = ["a", "b", "c"];
    let requests: Vec<_> = ids
        .iter()
        .map(|id| engine.request(id, "Hello", choice(&["yes", "no"]), seeded(1, 20)))
        .collect();
    for request in &requests {
        engine.add(request.clone());
    }
    while engine.core.wait_for_grammar() {}
    let answers = engine.drain();
    let steps: Vec<_> = ids.iter().map(|id| answers[*id].num_steps).collect();
    assert!(steps.is_sorted(), "{steps:?}");
}
