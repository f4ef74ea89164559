//! What makes structured output faster changes no token, nor does anything around a request.

use std::collections::BTreeMap;

use protocol::{EngineCoreRequest, JumpForward, ModelSource};

use crate::engine::{Answer, Engine, Setup};
use crate::{greedy, json, mixed_requests, seeded};

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
    let draft_model = Setup {
        num_speculative_tokens: 4,
        draft_model: Some(ModelSource::BuiltIn),
        ..Setup::default()
    };
    let draft_model_chunked = Setup {
        max_num_batched_tokens: 24,
        max_num_seqs: 5,
        ..draft_model.clone()
    };
    let draft_model_preempting = Setup {
        num_blocks: Some(28),
        ..draft_model.clone()
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
        ("draft model", draft_model),
        ("draft model, small chunks", draft_model_chunked),
        ("draft model, preemption", draft_model_preempting),
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

/// Forced text is another text than that of the model's tokens alone, but the same one with drafts and in a
/// replay: it begins where it begins, also within a draft, and goes on after as many tokens as are
/// appended at once.
#[test]
fn forced_text_is_the_same_with_drafts_and_in_a_replay() {
    let object = r#"{"type":"object","properties":{"email":{"type":"string","maxLength":12},
        "location":{"type":"string","maxLength":12},"temperature":{"type":"string","maxLength":12}},
        "required":["email","location","temperature"],"additionalProperties":false}"#;
    let list = format!(r#"{{"type":"array","minItems":4,"maxItems":4,"items":{object}}}"#);
    let words: Vec<&str> =
        "The weather in Lisbon is fine; unlike 12 others, Ünder it nobody's well"
            .split(' ')
            .cycle()
            .take(150)
            .collect();
    let long = format!(
        r#"{{"type":"object","properties":{{"a":{{"const":"{}"}},"b":{{"type":"string","maxLength":20}}}},
            "required":["a","b"],"additionalProperties":false}}"#,
        words.join(" ")
    );
    let requests = |engine: &Engine| -> Vec<EngineCoreRequest> {
        (0..60)
            .map(|number| {
                let (schema, max_tokens) = match number % 3 {
                    0 => (&long, 600),
                    _ => (&list, 400),
                };
                let params = match number % 4 {
                    0 | 1 => greedy(max_tokens),
                    _ => seeded(number, max_tokens),
                };
                let prompts = [
                    "Say something",
                    "Describe it.",
                    "What is 12 plus 30?",
                    "Where is",
                    "A mail",
                ];
                let prompt = prompts[number as usize % prompts.len()];
                engine.request(&number.to_string(), prompt, json(schema), params)
            })
            .collect()
    };
    let setup = |num_speculative_tokens| Setup {
        jump_forward: JumpForward::Text,
        num_speculative_tokens,
        ..Setup::default()
    };
    let mut engine = Engine::new(&setup(0));
    let requests = requests(&engine);
    let expected = engine.run(&requests);
    let written = words.join(" ");
    for number in (0..60).step_by(3) {
        let answer = &expected[&number.to_string()];
        assert!(engine.text(answer).contains(&written), "{number}");
    }
    for num_speculative_tokens in [1, 4, 6] {
        let mut engine = Engine::new(&setup(num_speculative_tokens));
        let what = format!("{num_speculative_tokens} drafts");
        assert_same(&engine.run(&requests), &expected, &what);
        assert!(engine.totals.spec.num_accepted_tokens > 0);
    }
    for keep in [1, 30, 63, 64, 65, 66, 120, 130] {
        let mut replays = requests.clone();
        for request in &mut replays {
            let tokens = &expected[&request.request_id].token_ids;
            request.output_token_ids = tokens[..keep.min(tokens.len() - 1)].to_vec();
        }
        let answers = engine.run(&replays);
        for request in &replays {
            let id = &request.request_id;
            let mut whole = request.output_token_ids.clone();
            whole.extend(&answers[id].token_ids);
            assert_eq!(whole, expected[id].token_ids, "{keep}: {id}");
        }
    }
}
