//! Finishing within `max_tokens`.

use protocol::{EngineCoreRequest, FinishReason, RequestErrorCode, StructuredOutputsConstraint};

use crate::engine::{Engine, Setup};
use crate::{CAR, CHARACTER, choice, json, regex, seeded};

fn incomplete_allowed(mut request: EngineCoreRequest) -> EngineCoreRequest {
    if let Some(structured_outputs) = &mut request.sampling_params.structured_outputs {
        structured_outputs.make_mut().complete_within_max_tokens = false;
    }
    request
}

#[test]
fn every_budget_that_is_let_in_is_kept() {
    let mut engine = Engine::new(&Setup::default());
    let schemas = [
        CAR,
        CHARACTER,
        r#"{"type": "array", "items": {"type": "integer"}}"#,
    ];
    let mut requests = Vec::new();
    for (which, schema) in schemas.iter().enumerate() {
        for max_tokens in 1..64 {
            let id = format!("{which}-{max_tokens}");
            let mut params = seeded(u64::from(max_tokens), max_tokens);
            params.temperature = 1.0 + which as f32 / 2.0;
            requests.push(engine.request(&id, "Describe it.", json(schema), params));
        }
    }
    let answers = engine.run(&requests);
    let (mut num_refused, mut num_completed_by_budget) = (0, 0);
    for request in &requests {
        let (id, answer) = (&request.request_id, &answers[&request.request_id]);
        let max_tokens = request.sampling_params.max_tokens.unwrap() as usize;
        if let Some(error) = &answer.error {
            num_refused += 1;
            assert_eq!(
                error.code,
                RequestErrorCode::GrammarRefused,
                "{id}: {error:?}"
            );
            let limit = error
                .problem
                .as_ref()
                .and_then(|problem| problem.limit.as_ref());
            let limit = limit.map(|limit| (limit.name.as_str(), limit.value as usize));
            assert_eq!(limit, Some(("max_tokens", max_tokens)), "{error:?}");
            assert!(!answer.admitted && answer.token_ids.is_empty());
            continue;
        }
        assert_eq!(answer.complete, Some(true), "{id}");
        num_completed_by_budget += u64::from(answer.completed_by_budget);
        assert_eq!(answer.finish_reason, Some(FinishReason::Stop), "{id}");
        assert!(answer.token_ids.len() <= max_tokens, "{id}");
        let text = engine.text(answer);
        assert!(
            serde_json::from_str::<serde_json::Value>(&text).is_ok(),
            "{id}: {text}"
        );
    }
    let stats = &engine.totals.structured;
    assert_eq!(stats.num_refused, num_refused);
    assert!(num_refused > 10 && num_refused < 100, "{num_refused}");
    assert_eq!(stats.num_completed_by_budget, num_completed_by_budget);
    assert!(num_completed_by_budget > 10, "{stats:?}");
    assert_eq!((stats.num_truncated, stats.num_rejections), (0, 0));
}

#[test]
fn an_incomplete_output_is_allowed_on_request_and_says_so() {
    let mut engine = Engine::new(&Setup::default());
    let request = engine.request("a", "Describe it.", json(CHARACTER), seeded(1, 6));
    let answers = engine.run(&[incomplete_allowed(request)]);
    let answer = &answers["a"];
    assert_eq!(answer.finish_reason, Some(FinishReason::Length));
    assert_eq!(answer.complete, Some(false));
    assert_eq!(answer.token_ids.len(), 6);
    assert_eq!(engine.totals.structured.num_truncated, 1);
}

/// The bound is one of tokens: a longer text may take fewer.
#[test]
fn a_text_of_few_tokens_is_let_in_where_the_shortest_does_not_fit() {
    let mut engine = Engine::new(&Setup::default());
    let num_tokens =
        |engine: &Engine, text: &str| engine.tokenizer.encode(text, false).unwrap().len();
    let (short, long) = ("qzxj", "comfortable");
    assert_eq!(
        (num_tokens(&engine, short), num_tokens(&engine, long)),
        (4, 1)
    );
    let pair = format!("({short}|{long}),({short}|{long})");
    let requests: Vec<_> = (1..30)
        .map(|max_tokens| {
            let params = seeded(u64::from(max_tokens), max_tokens);
            engine.request(&max_tokens.to_string(), "Write.", regex(&pair), params)
        })
        .chain([
            engine.request("one", "Write.", choice(&[short, long]), seeded(1, 1)),
            engine.request("four", "Write.", choice(&[short, long]), seeded(1, 4)),
        ])
        .collect();
    let answers = engine.run(&requests);
    let one = &answers["one"];
    assert_eq!((one.complete, one.error.as_ref()), (Some(true), None));
    assert_eq!(engine.text(one), long);
    assert!(one.completed_by_budget);
    assert!(!answers["four"].completed_by_budget);
    // As many as the refusals say are enough, and no fewer.
    let error = answers["1"].error.as_ref().unwrap();
    let (_, needed) = error.message.split_once("is sure to fit in ").unwrap();
    let needed: u32 = needed.split(' ').next().unwrap().parse().unwrap();
    assert_eq!(
        needed as usize,
        num_tokens(&engine, &format!("{long},{long}"))
    );
    assert!((needed as usize) < num_tokens(&engine, &format!("{short},{short}")));
    for max_tokens in 1..30_u32 {
        let answer = &answers[&max_tokens.to_string()];
        assert_eq!(answer.error.is_some(), max_tokens < needed, "{max_tokens}");
        if answer.error.is_none() {
            assert_eq!(answer.complete, Some(true), "{max_tokens}");
            let text = engine.text(answer);
            let mut words = text.split(',');
            assert!(words.all(|word| word == short || word == long), "{text}");
        }
    }
}

#[test]
fn the_context_is_a_budget_too() {
    let mut engine = Engine::new(&Setup::default());
    let mut request = engine.request("a", "Write.", regex("[a-z]{3,2000}!"), seeded(1, 16));
    request.sampling_params.max_tokens = None;
    // Of 1024 tokens, 6 are left: for at least three letters and the mark.
    let filler = request.prompt_token_ids[0..1].repeat(1018 - request.prompt_token_ids.len());
    let prompt = request.prompt_token_ids.iter().copied();
    request.prompt_token_ids = filler.into_iter().chain(prompt).collect();
    let answers = engine.run(&[request]);
    let answer = &answers["a"];
    assert_eq!((answer.complete, answer.error.as_ref()), (Some(true), None));
    assert!(engine.text(answer).ends_with('!'));
}

#[test]
fn an_output_that_can_never_fit_is_refused_by_its_length() {
    let mut engine = Engine::new(&Setup::default());
    let schemas = [
        r#"{"type": "array", "minItems": 100000}"#,
        r#"{"type": "string", "minLength": 2000000000}"#,
    ];
    let requests: Vec<_> = (0..)
        .zip(schemas)
        .map(|(id, schema): (u32, _)| {
            engine.request(&id.to_string(), "Write.", json(schema), seeded(1, 100))
        })
        .collect();
    for (id, answer) in engine.run(&requests) {
        let error = answer.error.unwrap();
        assert_eq!(error.code, RequestErrorCode::GrammarRefused, "{id}");
        assert!(
            error.message.contains("a whole output takes at least ")
                && error.message.contains("(max_model_len 1024) leaves "),
            "{id}: {}",
            error.message
        );
    }
    // Where it need not fit it is served.
    let request = engine.request("cut", "Write.", json(schemas[0]), seeded(1, 20));
    let answers = engine.run(&[incomplete_allowed(request)]);
    assert_eq!(answers["cut"].finish_reason, Some(FinishReason::Length));
    assert_eq!(answers["cut"].token_ids.len(), 20);
}

/// Free text has no end of its own: where no token is left for more of it, the answer says so, whole as
/// it is.
#[test]
fn free_text_that_the_budget_ends_says_length() {
    for num_speculative_tokens in [0, 4] {
        let mut engine = Engine::new(&Setup {
            num_speculative_tokens,
            ..Setup::default()
        });
        let requests: Vec<_> = (0..12)
            .map(|seed| {
                let params = seeded(seed, 7);
                engine.request(&seed.to_string(), "Tell me.", regex("[^\\n]*"), params)
            })
            .collect();
        let mut num_cut = 0;
        for (id, answer) in engine.run(&requests) {
            assert_eq!((answer.complete, answer.error.as_ref()), (Some(true), None));
            let last = *answer.token_ids.last().unwrap();
            let is_cut = !engine.tokenizer.is_special_token(last);
            assert!(!is_cut || answer.token_ids.len() == 7, "{id}");
            num_cut += usize::from(is_cut);
            let expected = match is_cut {
                true => FinishReason::Length,
                false => FinishReason::Stop,
            };
            assert_eq!(answer.finish_reason, Some(expected), "{id}");
        }
        assert!(num_cut > 6, "{num_cut}");
        // JSON has an end of its own, also where its last token is the budget's.
        let schema = r#"{"type": "array", "items": {"type": "string"}, "minItems": 1}"#;
        let request = engine.request("json", "List.", json(schema), seeded(3, 12));
        let answers = engine.run(&[request]);
        assert_eq!(answers["json"].complete, Some(true));
        assert_eq!(answers["json"].finish_reason, Some(FinishReason::Stop));
        assert_eq!(engine.totals.structured.num_truncated, 0);
    }
}

/// A text that can only end is over with its last token: its stop token needs no room. One that could have gone
/// on was ended by its limit, however few tokens could follow.
#[test]
fn a_text_that_takes_all_tokens_is_whole_without_a_stop_token() {
    let mut engine = Engine::new(&Setup::default());
    // A digit is one token of the built-in model.
    let digits = |id: &str, pattern: &str, max_tokens: u32| {
        engine.request(id, "A number.", regex(pattern), seeded(1, max_tokens))
    };
    let requests = [
        digits("one", "[0-9]", 1),
        digits("three", "[0-9]{3}", 3),
        digits("up to nine", "[0-9]{2,9}", 2),
        engine.request(
            "integer",
            "A number.",
            json(r#"{"type": "integer", "minimum": 10}"#),
            seeded(1, 2),
        ),
        incomplete_allowed(digits("incomplete", "[0-9]{2}", 2)),
        digits("too long", "[0-9]{3}", 2),
    ];
    let answers = engine.run(&requests);
    for (id, num_tokens, finish_reason) in [
        ("one", 1, FinishReason::Stop),
        ("three", 3, FinishReason::Stop),
        ("up to nine", 2, FinishReason::Length),
        ("integer", 2, FinishReason::Length),
        ("incomplete", 2, FinishReason::Stop),
    ] {
        let answer = &answers[id];
        assert_eq!((answer.complete, answer.error.as_ref()), (Some(true), None));
        assert_eq!(answer.token_ids.len(), num_tokens, "{id}");
        assert_eq!(answer.finish_reason, Some(finish_reason), "{id}");
    }
    let error = answers["too long"].error.as_ref().unwrap();
    assert!(
        error.message.contains("fit in 3 tokens"),
        "{}",
        error.message
    );
    assert_eq!(engine.totals.structured.num_truncated, 0);
}

/// Text in which something begins that must be finished: it isn't begun where it can't be.
#[test]
fn what_can_not_be_finished_in_free_text_is_not_begun() {
    let call = r#"{"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["<"],
        "tags": [{"begin": "<", "content": {"type": "regex", "pattern": "[a-z]{8}"}, "end": ">"}]}}"#;
    for num_speculative_tokens in [0, 4] {
        let mut engine = Engine::new(&Setup {
            num_speculative_tokens,
            ..Setup::default()
        });
        let less_than = engine.tokenizer.encode("<", false).unwrap()[0];
        let requests: Vec<_> = (1..40)
            .map(|max_tokens| {
                let mut params = seeded(u64::from(max_tokens), max_tokens);
                // Some begin now and then, some one after another.
                params.logit_bias = vec![(less_than, 8.0 + 3.0 * (max_tokens % 5) as f32)].into();
                let constraint = StructuredOutputsConstraint::StructuralTag(call.to_owned());
                engine.request(&max_tokens.to_string(), "Write.", Some(constraint), params)
            })
            .collect();
        let (mut num_begun, mut num_cut) = (0, 0);
        for (max_tokens, answer) in engine.run(&requests) {
            assert_eq!((answer.complete, answer.error.as_ref()), (Some(true), None));
            let text = engine.text(&answer);
            num_begun += text.matches('<').count();
            for begun in text.split('<').skip(1) {
                assert_eq!(begun.find('>'), Some(8), "{max_tokens}: {text}");
            }
            let is_cut = answer.finish_reason == Some(FinishReason::Length);
            num_cut += usize::from(is_cut);
            assert!(is_cut || answer.finish_reason == Some(FinishReason::Stop));
        }
        assert!(num_begun > 20 && num_cut > 10, "{num_begun} {num_cut}");
        assert_eq!(engine.totals.structured.num_truncated, 0);
    }
}
