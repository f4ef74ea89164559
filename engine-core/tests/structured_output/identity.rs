//! What makes structured output faster changes no token, nor does anything around a request.

use std::collections::BTreeMap;

use protocol::JumpForward;

use crate::engine::{Answer, Engine, Setup};
use crate::mixed_requests;

/// Each of the mixed requests alone, in a plain engine.
fn alone() -> BTreeMap<String, Answer> {
    let mut engine = Engine::new(&Setup::plain());
    let mut answers = BTreeMap::new();
    for request in mixed_requests(&engine) {
        answers.extend(engine.run(&[request]));
    }
    answers
}

/// Equal in all but the number of steps.
fn assert_same(
    answers: &BTreeMap<String, Answer>,
    expected: &BTreeMap<String, Answer>,
    what: &str,
) {
    assert_eq!(answers.len(), expected.len());
    for (id, expected) in expected {
        let answer = &answers[id];
        assert_eq!(answer.token_ids, expected.token_ids, "{what}: {id}");
        assert_eq!(answer.finish_reason, expected.finish_reason, "{what}: {id}");
        assert_eq!(answer.complete, expected.complete, "{what}: {id}");
        assert_eq!(answer.error, None, "{what}: {id}");
    }
}

#[test]
fn nothing_around_a_request_changes_its_tokens() {
    let expected = alone();
    let sparse = Setup {
        jump_forward: JumpForward::Off,
        ..Setup::default()
    };
    let forced = Setup {
        sparse_head: false,
        ..Setup::default()
    };
    let speculative = Setup {
        num_speculative_tokens: 5,
        ..Setup::default()
    };
    let speculative_plain = Setup {
        num_speculative_tokens: 3,
        ..Setup::plain()
    };
    let chunked = Setup {
        max_num_batched_tokens: 24,
        max_num_seqs: 5,
        num_speculative_tokens: 2,
        ..Setup::default()
    };
    let preempting = Setup {
        num_blocks: Some(28),
        num_speculative_tokens: 4,
        ..Setup::default()
    };
    let setups = [
        ("together", Setup::plain()),
        ("sparse head", sparse),
        ("forced tokens", forced),
        ("both", Setup::default()),
        ("drafts", speculative_plain),
        ("drafts and all", speculative),
        ("small chunks", chunked),
        ("preemption", preempting),
    ];
    for (what, setup) in setups {
        let mut engine = Engine::new(&setup);
        let requests = mixed_requests(&engine);
        let first = engine.run(&requests);
        assert_same(&first, &expected, what);
        // Again, with all prompts cached.
        assert_same(&engine.run(&requests), &expected, what);
        assert!(engine.totals.cache_hits > 0, "{what}");
        let structured = &engine.totals.structured;
        assert_eq!(structured.num_rejections, 0, "{what}");
        let forces = setup.jump_forward == JumpForward::SingleToken;
        assert_eq!(structured.num_forced_tokens > 0, forces, "{what}");
        assert_eq!(
            structured.num_head_rows_skipped > 0,
            setup.sparse_head,
            "{what}"
        );
        let drafts = setup.num_speculative_tokens > 0;
        assert_eq!(engine.totals.spec.num_accepted_tokens > 0, drafts, "{what}");
        assert_eq!(
            engine.totals.num_preempted > 0,
            setup.num_blocks.is_some(),
            "{what}"
        );
    }
}

#[test]
fn a_replay_goes_on_where_the_output_stands() {
    let expected = alone();
    let mut engine = Engine::new(&Setup::default());
    for keep in [1, 7, 15] {
        let mut requests = mixed_requests(&engine);
        for request in &mut requests {
            let tokens = &expected[&request.request_id].token_ids;
            // At least the last token is yet to come.
            request.output_token_ids = tokens[..keep.min(tokens.len().saturating_sub(1))].to_vec();
        }
        let answers = engine.run(&requests);
        for request in &requests {
            let id = &request.request_id;
            let mut whole = request.output_token_ids.clone();
            whole.extend(&answers[id].token_ids);
            assert_eq!(whole, expected[id].token_ids, "{keep}: {id}");
            assert_eq!(
                answers[id].finish_reason, expected[id].finish_reason,
                "{keep}: {id}"
            );
        }
    }
}

#[test]
fn forced_text_is_written_as_the_tokenizer_writes_it() {
    let mut engine = Engine::new(&Setup {
        jump_forward: JumpForward::Text,
        ..Setup::default()
    });
    let requests = mixed_requests(&engine);
    let answers = engine.run(&requests);
    let mut single = Engine::new(&Setup::default());
    let with_single = single.run(&requests);
    assert!(
        engine.totals.structured.num_forced_tokens > single.totals.structured.num_forced_tokens
    );
    for (id, answer) in &answers {
        assert_eq!(answer.finish_reason, with_single[id].finish_reason, "{id}");
        assert_eq!(answer.complete, with_single[id].complete, "{id}");
        if with_single[id].complete.is_none() {
            assert_eq!(answer.token_ids, with_single[id].token_ids, "{id}");
        }
    }
    // The fixed parts are there, in the tokenizer's own tokens.
    let text = engine.text(&answers["car-greedy"]);
    let car: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(car["brand"].is_string());
}
