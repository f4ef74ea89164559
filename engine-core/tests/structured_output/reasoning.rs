//! Thinking before a constrained answer.

use protocol::{EngineCoreRequest, FinishReason, RequestErrorCode, SamplingParams, ThinkingTokens};

use crate::engine::{Answer, Engine, Setup};
use crate::{regex, seeded};

/// What thinks about a sum; `thinking_tokens` are set.
fn request(
    engine: &Engine,
    id: &str,
    ended: Option<bool>,
    params: SamplingParams,
) -> EngineCoreRequest {
    let mut request = engine.request(id, "12 + 30 = ?", regex("[0-9]{1,4}"), params);
    request.sampling_params.thinking_tokens = Some(engine.thinking_tokens());
    request.reasoning_ended = ended;
    request
}

/// The tokens before the end of thinking, and those after it; `None` where it never ended.
fn split(engine: &Engine, answer: &Answer) -> (Vec<u32>, Option<String>) {
    let end = engine.thinking_tokens().end_token_ids[0];
    match answer.token_ids.iter().position(|&id| id == end) {
        None => (answer.token_ids.clone(), None),
        Some(at) => (
            answer.token_ids[..at].to_vec(),
            Some(engine.tokenizer.decode(&answer.token_ids[at + 1..], true)),
        ),
    }
}

fn is_number(text: &str) -> bool {
    (1..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// How an answer of up to four digits ends: by its limit where a digit could have followed.
fn end_of(engine: &Engine, answer: &Answer) -> FinishReason {
    let has_stop_token = engine
        .tokenizer
        .is_special_token(*answer.token_ids.last().unwrap());
    let (_, number) = split(engine, answer);
    match has_stop_token || number.unwrap().len() == 4 {
        true => FinishReason::Stop,
        false => FinishReason::Length,
    }
}

#[test]
fn the_constraint_begins_where_thinking_ends() {
    let mut engine = Engine::new(&Setup::default());
    let requests: Vec<_> = (0..12)
        .map(|seed| {
            let mut params = seeded(seed, 60);
            params.temperature = 1.5;
            request(&engine, &seed.to_string(), Some(false), params)
        })
        .collect();
    let answers = engine.run(&requests);
    for (id, answer) in &answers {
        let (thinking, text) = split(&engine, answer);
        let text = text.unwrap();
        assert!(is_number(&text), "{id}: {text}");
        assert!(
            !thinking.contains(&engine.tokenizer.eos_token_id().unwrap()),
            "{id}"
        );
        assert_eq!(answer.complete, Some(true));
        assert_eq!(answer.finish_reason, Some(end_of(&engine, answer)));
    }
}

/// Line ends between thinking and the answer are forced, count as tokens, and leave the constraint as it is.
#[test]
fn a_separator_stands_between_thinking_and_the_answer() {
    let mut engine = Engine::new(&Setup::default());
    let separator = engine.tokenizer.encode("\n\n", false).unwrap();
    let requests: Vec<_> = (1..24)
        .map(|max_tokens| {
            let params = seeded(u64::from(max_tokens), max_tokens);
            let mut request = request(&engine, &max_tokens.to_string(), Some(false), params);
            let thinking = request.sampling_params.thinking_tokens.as_mut().unwrap();
            thinking.separator_token_ids.clone_from(&separator);
            request
        })
        .collect();
    let fewest = 2 + separator.len();
    for (max_tokens, answer) in engine.run(&requests) {
        let max_tokens: usize = max_tokens.parse().unwrap();
        if max_tokens < fewest {
            let message = answer.error.unwrap().message;
            let says = format!("fit in {fewest} tokens");
            assert!(message.contains(&says), "{message}");
            continue;
        }
        let (_, text) = split(&engine, &answer);
        let text = text.unwrap();
        let number = text.strip_prefix("\n\n").unwrap();
        assert!(is_number(number), "{max_tokens}: {text:?}");
        assert_eq!(answer.complete, Some(true));
    }
}

#[test]
fn thinking_that_ended_or_is_constrained_too_is_no_thinking() {
    let mut engine = Engine::new(&Setup::default());
    let ended = request(&engine, "ended", Some(true), seeded(1, 30));
    let mut constrained = request(&engine, "constrained", Some(false), seeded(1, 30));
    if let Some(structured_outputs) = &mut constrained.sampling_params.structured_outputs {
        structured_outputs.make_mut().enable_in_reasoning = true;
    }
    let mut without = request(&engine, "without", None, seeded(1, 30));
    without.sampling_params.thinking_tokens = None;
    for (id, answer) in engine.run(&[ended, constrained, without]) {
        assert!(is_number(&engine.text(&answer)), "{id}");
    }
}

#[test]
fn an_output_may_open_thinking_by_its_first_token() {
    let mut engine = Engine::new(&Setup::default());
    let start = engine.thinking_tokens().start_token_ids[0];
    let mut num_thinking = 0;
    let requests: Vec<_> = (0..40)
        .map(|seed| {
            let mut params = seeded(seed, 40);
            params.temperature = 2.0;
            // So that some don't: the built-in model would always think.
            params.logit_bias = vec![(start, -6.0)].into();
            request(&engine, &seed.to_string(), None, params)
        })
        .collect();
    for (id, answer) in engine.run(&requests) {
        let text = if answer.token_ids[0] == start {
            num_thinking += 1;
            split(&engine, &answer).1.unwrap()
        } else {
            engine.text(&answer)
        };
        assert!(is_number(&text), "{id}: {text}");
    }
    assert!((1..40).contains(&num_thinking), "{num_thinking}");
}

/// The marker that opens thinking and the answer may begin with the same tokens: the first token that differs decides
/// which of the two it is.
#[test]
fn an_answer_may_begin_as_thinking_does() {
    let setup = |num_speculative_tokens| Setup {
        num_speculative_tokens,
        ..Setup::default()
    };
    let engines = [0, 4].map(|number| Engine::new(&setup(number)));
    let answers = engines.map(|mut engine| {
        let token = |text: &str| engine.tokenizer.encode(text, false).unwrap()[0];
        let start = [token("{"), token("?"), token("!")];
        let requests: Vec<_> = (0..60)
            .map(|seed| {
                let mut params = seeded(seed, 40);
                // So that all kinds come.
                params.logit_bias = vec![(start[1], 6.0), (start[2], 6.0)].into();
                params.temperature = 3.0;
                let constraint = regex(r"\{(\?[0-9]+|[0-9]*)\}");
                let mut request =
                    engine.request(&seed.to_string(), "12 + 30 = ?", constraint, params);
                request.sampling_params.thinking_tokens = Some(ThinkingTokens {
                    start_token_ids: start.to_vec(),
                    ..engine.thinking_tokens()
                });
                request.reasoning_ended = None;
                request
            })
            .collect();
        let answers = engine.run(&requests);
        let mut kinds = [0; 3];
        for (id, answer) in &answers {
            let is_thinking = answer.token_ids.starts_with(&start);
            let text = match is_thinking {
                true => split(&engine, answer).1.unwrap(),
                false => engine.text(answer),
            };
            let inner = text
                .strip_prefix('{')
                .and_then(|text| text.strip_suffix('}'));
            let number = inner.unwrap_or_else(|| panic!("{id}: {text:?}"));
            let digits = number.strip_prefix('?').unwrap_or(number);
            assert!(digits.bytes().all(|b| b.is_ascii_digit()), "{id}: {text:?}");
            assert_eq!(answer.complete, Some(true), "{id}");
            kinds[match (is_thinking, digits == number) {
                (true, _) => 0,
                (false, true) => 1,
                (false, false) => 2,
            }] += 1;
        }
        assert!(kinds.iter().all(|kind| *kind > 0), "{kinds:?}");
        answers
            .into_iter()
            .map(|(id, answer)| (id, answer.token_ids))
            .collect::<Vec<_>>()
    });
    assert_eq!(answers[0], answers[1]);
}

#[test]
fn thinking_is_closed_in_time_for_the_answer() {
    let mut engine = Engine::new(&Setup::default());
    let end = engine.thinking_tokens().end_token_ids[0];
    let requests: Vec<_> = (1..24)
        .map(|max_tokens| {
            let mut params = seeded(u64::from(max_tokens), max_tokens);
            // It would think for ever.
            params.logit_bias = vec![(end, -100.0)].into();
            request(&engine, &max_tokens.to_string(), Some(false), params)
        })
        .collect();
    for (max_tokens, answer) in engine.run(&requests) {
        let max_tokens: usize = max_tokens.parse().unwrap();
        // The end of thinking and a digit.
        if max_tokens < 2 {
            let error = answer.error.unwrap();
            assert_eq!(error.code, RequestErrorCode::GrammarRefused);
            assert!(
                error.message.contains("fit in 2 tokens"),
                "{}",
                error.message
            );
            continue;
        }
        let (thinking, text) = split(&engine, &answer);
        assert_eq!(thinking.len(), max_tokens - 2);
        assert_eq!(text.unwrap().len(), 1);
        assert_eq!(answer.complete, Some(true));
    }
}

#[test]
fn the_thinking_budget_closes_thinking_too() {
    let mut engine = Engine::new(&Setup::default());
    let end = engine.thinking_tokens().end_token_ids[0];
    let mut params = seeded(1, 60);
    params.logit_bias = vec![(end, -100.0)].into();
    params.thinking_token_budget = Some(9);
    let mut thinks = request(&engine, "a", Some(false), params);
    // The budget counts from the tokens that open thinking.
    let start = engine.thinking_tokens().start_token_ids[0];
    let prompt = thinks.prompt_token_ids.iter().copied();
    thinks.prompt_token_ids = prompt.chain([start]).collect();
    let answers = engine.run(&[thinks]);
    let (thinking, text) = split(&engine, &answers["a"]);
    assert_eq!(thinking.len(), 9);
    assert!(is_number(&text.unwrap()));
}

/// Who asks to stop at the end of thinking gets the answer: the constraint is of that.
#[test]
fn what_closes_thinking_is_no_stop_token_of_it() {
    let mut engine = Engine::new(&Setup::default());
    let end = engine.thinking_tokens().end_token_ids[0];
    let cases = [(60, None, 0.0), (6, None, -100.0), (60, Some(3), -100.0)];
    for (max_tokens, thinking_token_budget, bias) in cases {
        let mut params = seeded(1, max_tokens);
        params.stop_token_ids = vec![end].into();
        params.logit_bias = vec![(end, bias)].into();
        params.thinking_token_budget = thinking_token_budget;
        let mut thinks = request(&engine, "a", Some(false), params);
        let start = engine.thinking_tokens().start_token_ids[0];
        let prompt = thinks.prompt_token_ids.iter().copied();
        thinks.prompt_token_ids = prompt.chain([start]).collect();
        let answer = engine.run(&[thinks]).remove("a").unwrap();
        assert_eq!(answer.error, None);
        let (_, text) = split(&engine, &answer);
        assert!(is_number(&text.unwrap()));
        assert_eq!(answer.complete, Some(true));
        assert_eq!(answer.finish_reason, Some(end_of(&engine, &answer)));
    }
}
