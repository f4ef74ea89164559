//! Grammars that fill the memory they share: their requests go on elsewhere, and nobody fails.

use std::collections::BTreeMap;

use engine_core::engine::load_engine_core;
use protocol::{EngineCoreRequest, FinishReason, JumpForward, RequestErrorCode};

use crate::engine::{Answer, Engine, Setup};
use crate::{greedy, json, regex, seeded};

const KIBIBYTE: u64 = 1 << 10;

/// Schemas that have no state in common but those of their strings, and many of their own.
fn requests(engine: &Engine) -> Vec<EngineCoreRequest> {
    (0..24)
        .map(|number| {
            let properties: Vec<String> = (0..12)
                .map(|index| {
                    format!(
                        r#""key_{number}_{index}": {{"type": "string", "pattern": "^[a-{}]{{{},9}}x?[0-9]{{2,{}}}$"}}"#,
                        char::from(b'c' + number),
                        1 + index % 3,
                        4 + index,
                    )
                })
                .collect();
            let schema = format!(
                r#"{{"properties": {{{}}}, "minProperties": 3, "maxProperties": 7, "additionalProperties": false, "type": "object"}}"#,
                properties.join(", ")
            );
            let params = match number % 3 {
                0 => greedy(60),
                _ => seeded(u64::from(number), 160),
            };
            engine.request(&format!("{number:02}"), "JSON, please.", json(&schema), params)
        })
        .collect()
}

fn answers(setup: &Setup) -> (BTreeMap<String, Answer>, Engine) {
    let mut engine = Engine::new(setup);
    let requests = requests(&engine);
    (engine.run(&requests), engine)
}

#[test]
fn memory_that_is_full_changes_no_answer() {
    let (expected, roomy) = answers(&Setup::default());
    assert_eq!(roomy.totals.structured.num_renewed_grammars, 0);
    let small = Setup {
        cache_bytes: Some(2200 * KIBIBYTE),
        ..Setup::default()
    };
    let drafting = Setup {
        num_speculative_tokens: 4,
        num_blocks: Some(64),
        ..small.clone()
    };
    let plain = Setup {
        sparse_head: false,
        jump_forward: JumpForward::Off,
        ..small.clone()
    };
    for (what, setup) in [("small", small), ("drafts", drafting), ("plain", plain)] {
        let (found, engine) = answers(&setup);
        for (id, expected) in &expected {
            let answer = &found[id];
            assert_eq!(answer.error, None, "{what}: {id}");
            assert_eq!(answer.token_ids, expected.token_ids, "{what}: {id}");
            assert_eq!(answer.finish_reason, expected.finish_reason, "{what}: {id}");
            assert!(answer.admitted, "{what}: {id}");
        }
        let structured = &engine.totals.structured;
        assert!(structured.num_renewed_grammars > 0, "{what}");
        assert_eq!(structured.num_rejections, 0, "{what}");
    }
}

#[test]
fn what_is_too_large_alone_fails_alone() {
    let mut engine = Engine::new(&Setup {
        cache_bytes: Some(440 * KIBIBYTE),
        ..Setup::default()
    });
    let requests = requests(&engine);
    let small = engine.request("small", "Hello", regex("[a-z]{2,5}"), seeded(1, 20));
    let answers = engine.run(&[&requests[..4], &[small]].concat());
    assert_eq!(answers["small"].error, None);
    assert_eq!(answers["small"].finish_reason, Some(FinishReason::Stop));
    for request in &requests[..4] {
        let error = answers[&request.request_id].error.as_ref().unwrap();
        assert_eq!(error.code, RequestErrorCode::GrammarRefused);
        assert!(error.message.contains("cache_bytes"), "{}", error.message);
    }
}

#[test]
fn memory_in_which_no_grammar_works_is_refused_at_the_start() {
    let load = |cache_bytes| {
        let setup = Setup {
            cache_bytes: Some(cache_bytes),
            ..Setup::default()
        };
        load_engine_core(&setup.config(), None, &mut |_| {}).map(|_| ())
    };
    let message = load(100).unwrap_err().to_string();
    assert!(
        message.starts_with("--structured-outputs-config: cache_bytes is 100: "),
        "{message}"
    );
    let least = message.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(load(least).is_ok(), "{message}");
    assert!(load(least - 1).is_err(), "{message}");
}

/// What a wide object needs, it needs when it is opened: that is looked at before it is let in.
#[test]
fn an_object_that_can_be_opened_and_not_be_filled_is_refused_before_its_first_token() {
    let mut engine = Engine::new(&Setup {
        cache_bytes: Some(3 << 20),
        ..Setup::default()
    });
    let properties: Vec<String> = (0..3_000)
        .map(|n| format!(r#""property_{n}": {{"type": "integer"}}"#))
        .collect();
    let schema = format!(
        r#"{{"type": "object", "properties": {{{}}}}}"#,
        properties.join(", ")
    );
    let wide = engine.request("wide", "Hello", json(&schema), seeded(1, 60));
    let narrow = engine.request("narrow", "Hello", regex("[a-z]{2,5}"), seeded(1, 20));
    let answers = engine.run(&[wide, narrow]);
    let wide = &answers["wide"];
    let error = wide.error.as_ref().unwrap();
    assert_eq!(error.code, RequestErrorCode::GrammarRefused);
    assert!(error.message.contains("cache_bytes"), "{}", error.message);
    assert!(!wide.admitted && wide.token_ids.is_empty());
    assert_eq!(answers["narrow"].error, None);
}
