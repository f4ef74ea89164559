//! What a constraint asks for is what comes out.

use protocol::{FinishReason, JumpForward, SamplingParams, StructuredOutputsConstraint};

use crate::engine::{Engine, Setup};
use crate::{CAR, choice, greedy, json, regex, seeded};

#[test]
fn every_kind_of_constraint_is_obeyed() {
    let mut engine = Engine::new(&Setup::default());
    let requests: Vec<_> = (0..6)
        .flat_map(|seed| {
            let params = || SamplingParams {
                temperature: 2.0,
                ..seeded(seed, 60)
            };
            let ask = |kind: &str, constraint| {
                engine.request(
                    &format!("{kind}-{seed}"),
                    "Who are you?",
                    constraint,
                    params(),
                )
            };
            [
                ask("regex", regex(r"[a-z]{2,9}@[a-z]{2,9}\.com")),
                ask("choice", choice(&["yes", "no", "perhaps"])),
                ask("json", json(CAR)),
                ask("object", Some(StructuredOutputsConstraint::JsonObject)),
            ]
        })
        .collect();
    let answers = engine.run(&requests);
    for (id, answer) in &answers {
        assert_eq!(answer.error, None, "{id}: {:?}", engine.text(answer));
        assert_eq!(answer.finish_reason, Some(FinishReason::Stop), "{id}");
        assert_eq!(answer.complete, Some(true), "{id}");
        assert!(answer.admitted, "{id}");
        let text = engine.text(answer);
        match id.split('-').next().unwrap() {
            "regex" => {
                let (name, host) = text.split_once('@').unwrap();
                let host = host.strip_suffix(".com").unwrap();
                for part in [name, host] {
                    assert!((2..=9).contains(&part.len()), "{text}");
                    assert!(part.bytes().all(|byte| byte.is_ascii_lowercase()), "{text}");
                }
            }
            "choice" => assert!(["yes", "no", "perhaps"].contains(&&*text), "{text}"),
            "json" => {
                let car: serde_json::Value = serde_json::from_str(&text).unwrap();
                let car = car.as_object().unwrap();
                let keys: Vec<_> = car.keys().map(String::as_str).collect();
                assert_eq!(keys, ["brand", "model", "car_type"]);
                assert!(
                    ["sedan", "SUV", "Truck", "Coupe"].contains(&car["car_type"].as_str().unwrap())
                );
            }
            _ => {
                let object: serde_json::Value = serde_json::from_str(&text).unwrap();
                assert!(object.is_object(), "{text}");
            }
        }
    }
    let stats = &engine.totals.structured;
    assert_eq!((stats.num_completed, stats.num_rejections), (24, 0));
    // Each of the four specifications is compiled once; the others find it, or wait for it.
    assert_eq!(stats.num_cache_hits + stats.num_cache_misses, 24);
    assert!(stats.num_cache_misses >= 4, "{stats:?}");
    assert!(stats.num_head_rows_skipped > 0 && stats.num_head_rows_skipped < stats.num_head_rows);
}

#[test]
fn any_object_is_an_object() {
    let mut engine = Engine::new(&Setup::default());
    let object = Some(StructuredOutputsConstraint::JsonObject);
    let request = engine.request("a", "Who are you?", object, greedy(100));
    let answers = engine.run(&[request]);
    assert_eq!(answers["a"].error, None);
    let text = engine.text(&answers["a"]);
    let object: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(object.is_object(), "{text}");
}

#[test]
fn logprobs_of_a_constrained_output_are_complete_and_change_nothing() {
    let mut engine = Engine::new(&Setup::default());
    let plain = engine.request("plain", "A car?", json(CAR), seeded(1, 80));
    let mut with_logprobs = plain.clone();
    with_logprobs.request_id = "logprobs".to_owned();
    with_logprobs.sampling_params.logprobs = Some(2);
    let answers = engine.run(&[plain, with_logprobs]);
    let (plain, with_logprobs) = (&answers["plain"], &answers["logprobs"]);
    assert_eq!(plain.token_ids, with_logprobs.token_ids);
    let rows = &with_logprobs.logprobs.logprob_token_ids;
    assert_eq!(rows.len(), with_logprobs.token_ids.len());
    for (row, token_id) in rows.iter().zip(&with_logprobs.token_ids) {
        assert_eq!(row[0], *token_id);
    }
    assert!(plain.logprobs.logprobs.is_empty());
}

#[test]
fn a_stop_token_of_the_request_ends_the_text_only_where_it_may_end() {
    let mut engine = Engine::new(&Setup::default());
    let newline = engine.tokenizer.encode("\n", false).unwrap();
    let mut request = engine.request("a", "A mail?", regex(r"[a-z]{3}\n?"), greedy(20));
    request.sampling_params.stop_token_ids = newline.clone().into();
    let answers = engine.run(&[request]);
    let answer = &answers["a"];
    assert_eq!(answer.complete, Some(true));
    let text = engine.text(answer);
    assert_eq!(text.trim_end_matches('\n').len(), 3, "{text:?}");
}

#[test]
fn min_tokens_gives_way_to_the_grammar() {
    let mut engine = Engine::new(&Setup::default());
    let mut request = engine.request("a", "Yes?", choice(&["yes"]), greedy(20));
    request.sampling_params.min_tokens = 15;
    // The frontend names all of the model's own.
    request.sampling_params.stop_token_ids = engine.tokenizer.stop_token_ids().into();
    let mut sampled = request.clone();
    sampled.request_id = "sampled".to_owned();
    // So that every token is sampled from a full row.
    sampled.sampling_params.logprobs = Some(0);
    for answer in engine.run(&[request, sampled]).values() {
        assert_eq!(engine.text(answer), "yes");
        assert_eq!(answer.finish_reason, Some(FinishReason::Stop));
        assert_eq!(answer.complete, Some(true));
    }
    assert_eq!(engine.totals.structured.num_overridden_rows, 2);
}

#[test]
fn limits_that_give_way_are_counted_whatever_makes_the_row() {
    let counted = [
        (false, JumpForward::Off),
        (true, JumpForward::Off),
        (true, JumpForward::SingleToken),
    ]
    .map(|(sparse_head, jump_forward)| {
        let mut engine = Engine::new(&Setup {
            sparse_head,
            jump_forward,
            ..Setup::default()
        });
        let mut request = engine.request("a", "Yes?", regex("q[a-c]z"), greedy(20));
        // No token of the text.
        request.sampling_params.allowed_token_ids = Some(vec![5, 6].into());
        let answers = engine.run(&[request]);
        let answer = &answers["a"];
        let num_overridden = engine.totals.structured.num_overridden_rows;
        (answer.token_ids.clone(), num_overridden)
    });
    assert!(counted[0].1 >= 3, "{counted:?}");
    assert_eq!(counted[1], counted[0]);
    assert_eq!(counted[2], counted[0]);
}
