//! What is wrong with a request hurts that request alone.

use protocol::{
    FinishReason, JumpForward, RequestErrorCode, StructuredOutputsConstraint,
    StructuredOutputsParams,
};

use crate::engine::{Engine, Setup};
use crate::{choice, json, mixed_requests, regex, seeded};

/// Constraints that can't be served, and a part of what is said about each.
fn hostile() -> Vec<(
    &'static str,
    Option<StructuredOutputsConstraint>,
    &'static str,
)> {
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    let huge = format!("{{\"title\": \"{}\"}}", "x".repeat(10 << 20));
    let grammar = |text: &str| Some(StructuredOutputsConstraint::Grammar(text.to_owned()));
    let no_length = r#"{"type": "string", "minLength": 3, "maxLength": 2}"#;
    vec![
        (
            "million",
            regex("(a{1000}){1000}"),
            "a whole output takes at least",
        ),
        ("itself", json(r##"{"$ref": "#"}"##), "refers to itself"),
        ("no-length", json(no_length), "/maxLength"),
        (
            "no-value",
            json(r#"{"enum": []}"#),
            "structured_outputs.json",
        ),
        ("huge", json(&huge), "max_source_bytes"),
        ("no-root", grammar("a ::= \"a\""), "root"),
        ("bad-regex", regex("(a"), "structured_outputs.regex"),
        (
            "back-reference",
            regex(r"(a)\1"),
            "structured_outputs.regex",
        ),
        ("no-text", regex("a[^\\s\\S]"), "no text matches"),
        ("no-json", json("{"), "structured_outputs.json"),
        ("deep", json(&deep), "structured_outputs.json"),
        ("bad-schema", json(r#"{"type": "strange"}"#), "\"/type\""),
        ("no-choice", choice(&[]), "the choice is empty"),
        (
            "hungry",
            regex("(?:(?:a{1,900}b){1,900}c){1,900}(?:[^a]*a){900}"),
            "",
        ),
        (
            "grammar",
            grammar("root ::= (\"a\""),
            "structured_outputs.grammar",
        ),
        (
            "tag",
            Some(StructuredOutputsConstraint::StructuralTag("{".to_owned())),
            "structured_outputs.structural_tag",
        ),
    ]
}

#[test]
fn neighbours_of_hostile_requests_notice_nothing() {
    let mut engine = Engine::new(&Setup::default());
    let good = mixed_requests(&engine);
    let expected = engine.run(&good);
    let bad = hostile()
        .into_iter()
        .map(|(id, constraint, _)| engine.request(id, "Hello", constraint, seeded(1, 50)));
    let mut all: Vec<_> = bad.collect();
    let num_bad = all.len();
    all.extend(good);
    let answers = engine.run(&all);
    for (id, expected) in &expected {
        assert_eq!(answers[id].token_ids, expected.token_ids, "{id}");
    }
    let mut num_refused = 0;
    for (id, _, message) in hostile() {
        let answer = &answers[id];
        let Some(error) = &answer.error else {
            assert_eq!(id, "hungry", "was served");
            continue;
        };
        num_refused += 1;
        assert_eq!(error.code, RequestErrorCode::GrammarRefused, "{id}");
        let error = format!("{error:?}");
        assert!(error.contains(message), "{id}: {error}");
        assert_eq!(answer.finish_reason, Some(FinishReason::Error));
        assert!(!answer.admitted);
    }
    assert!(num_refused >= num_bad - 1);
    // Remembered: the same again costs nothing.
    let again = engine.request("again", "Hello", regex("(a"), seeded(1, 50));
    let hits = engine.totals.structured.num_cache_hits;
    assert!(engine.run(&[again])["again"].error.is_some());
    assert_eq!(engine.totals.structured.num_cache_hits, hits + 1);
}

#[test]
fn a_replay_that_the_grammar_refuses_is_an_error_of_its_own() {
    let mut engine = Engine::new(&Setup::default());
    let mut request = engine.request("a", "Hello", regex("[0-9]+"), seeded(1, 50));
    request.output_token_ids = engine.tokenizer.encode("12x", false).unwrap();
    let answers = engine.run(&[request]);
    let error = answers["a"].error.as_ref().unwrap();
    assert!(error.message.contains("refuses token"), "{}", error.message);
}

#[test]
fn a_request_nobody_compiled_is_refused() {
    let mut engine = Engine::new(&Setup::default());
    let mut request = engine.request("a", "Hello", None, seeded(1, 50));
    let constraint = StructuredOutputsParams::new(StructuredOutputsConstraint::JsonObject);
    request.sampling_params.structured_outputs = Some(constraint.into());
    // Past the engine, into its scheduler's hands.
    let request = engine_core::core::request::Request::from_engine_core_request(
        request,
        &engine.core.block_hasher(),
    );
    assert!(request.needs_grammar());
    engine.core = engine.core.with_structured_output(std::sync::Arc::new(
        engine_core::structured_output::StructuredOutputManager::unavailable("for a test"),
    ));
    engine.core.add_request(request);
    let answers = engine.drain();
    let error = answers["a"].error.as_ref().unwrap();
    assert_eq!(
        error.message,
        "structured_outputs can't be served: for a test"
    );
}

/// Whoever writes such a letter stops, and before the end nobody may: where nothing else goes on it is text.
#[test]
fn the_requests_own_stop_tokens_lead_to_no_dead_end() {
    for jump_forward in [
        JumpForward::Off,
        JumpForward::SingleToken,
        JumpForward::Text,
    ] {
        let mut engine = Engine::new(&Setup {
            jump_forward,
            num_speculative_tokens: 4,
            ..Setup::default()
        });
        let with_letter = |letter: u8| -> Vec<u32> {
            (0..engine.tokenizer.vocab_size() as u32)
                .filter(|&id| engine.tokenizer.token_bytes(id).contains(&letter))
                .collect()
        };
        let mut requests = Vec::new();
        let letters = [
            ("at-start", b'a'),
            ("later", b'c'),
            ("at-end", b'f'),
            ("never", b'z'),
        ];
        for (id, letter) in letters {
            let mut params = seeded(1, 50);
            params.stop_token_ids = with_letter(letter).into();
            requests.push(engine.request(id, "abcdef abcdef", choice(&["abcdef"]), params));
        }
        let answers = engine.run(&requests);
        for (id, _) in letters {
            let answer = &answers[id];
            assert_eq!(answer.finish_reason, Some(FinishReason::Stop), "{id}");
            assert_eq!(
                (answer.complete, answer.error.as_ref()),
                (Some(true), None),
                "{id}"
            );
            let mut token_ids = answer.token_ids.clone();
            let last = token_ids.pop_if(|id| engine.tokenizer.token_bytes(*id) != b"f");
            let text = engine.tokenizer.decode(&token_ids, true);
            assert!(text == "abcdef", "{id}: {text} {last:?}");
        }
        let stats = &engine.totals.structured;
        assert_eq!((stats.num_refused, stats.num_rejections), (0, 0));
    }
}

/// A stop token of the request that is the text's own end comes as text where no more has room.
#[test]
fn the_requests_own_stop_tokens_cut_no_text_off() {
    let mut engine = Engine::new(&Setup::default());
    let letter = (0..engine.tokenizer.vocab_size() as u32)
        .find(|&id| engine.tokenizer.token_bytes(id) == b"Q")
        .unwrap();
    let text = regex(r"([^Q]{1,20}\n[0-9]{8}){0,9}Q");
    let object =
        r#"{"type":"object","properties":{"Q":{"type":"array","minItems":2}},"required":["Q"]}"#;
    let requests: Vec<_> = (4..16)
        .flat_map(|max_tokens| [(max_tokens, text.clone()), (max_tokens, json(object))])
        .enumerate()
        .map(|(number, (max_tokens, constraint))| {
            let mut params = seeded(number as u64, max_tokens);
            params.stop_token_ids = vec![letter].into();
            engine.request(&number.to_string(), "Say something", constraint, params)
        })
        .collect();
    let answers = engine.run(&requests);
    let mut num_answered = 0;
    for request in &requests {
        let answer = &answers[&request.request_id];
        if answer.error.is_some() {
            assert!(!answer.admitted);
            continue;
        }
        num_answered += 1;
        let text = engine.text(answer);
        assert_eq!(answer.finish_reason, Some(FinishReason::Stop), "{text}");
        assert_eq!(answer.complete, Some(true), "{text}");
        assert!(text.trim_end().ends_with(['Q', '}']), "{text}");
    }
    assert!(num_answered > 12, "{num_answered}");
}

/// Forced text too leaves the request's own stop tokens out where others write it.
#[test]
fn the_requests_own_stop_tokens_are_no_forced_text() {
    let mut engine = Engine::new(&Setup {
        jump_forward: JumpForward::Text,
        ..Setup::default()
    });
    let text = "The weather in Lisbon is fine";
    let stop: Vec<u32> = (0..engine.tokenizer.vocab_size() as u32)
        .filter(|&id| engine.tokenizer.token_bytes(id).starts_with(b" "))
        .filter(|&id| engine.tokenizer.token_bytes(id).len() > 1)
        .collect();
    let mut params = seeded(1, 60);
    params.stop_token_ids = stop.clone().into();
    let request = engine.request("a", "Say it", choice(&[text]), params);
    let answer = engine.run(&[request]).remove("a").unwrap();
    assert_eq!(answer.complete, Some(true));
    let stops = |id: &u32| stop.contains(id);
    let text_tokens: Vec<u32> = answer
        .token_ids
        .iter()
        .copied()
        .filter(|id| !stops(id))
        .collect();
    assert_eq!(engine.tokenizer.decode(&text_tokens, true), text);
}

/// However many stop tokens a request has, where only they may follow the text has come to its end.
#[test]
fn many_stop_tokens_are_no_text_that_could_go_on() {
    let mut engine = Engine::new(&Setup::default());
    let mut params = seeded(1, 3);
    params.stop_token_ids = (0..engine.tokenizer.vocab_size() as u32)
        .filter(|&id| engine.tokenizer.token_bytes(id).len() > 1)
        .collect();
    assert!(params.stop_token_ids.len() > 1000);
    let request = engine.request("a", "Say it", choice(&["abc"]), params);
    let answer = engine.run(&[request]).remove("a").unwrap();
    assert_eq!(engine.text(&answer), "abc");
    assert_eq!(
        (answer.complete, answer.finish_reason),
        (Some(true), Some(FinishReason::Stop))
    );
}
