use std::time::Duration;

use protocol::{
    GrammarPlace, GrammarPosition, GrammarProblem, RequestError, RequestErrorCode,
    StructuredOutputsConstraint, StructuredOutputsParams, Whitespace,
};

use super::*;
use crate::test_support::{
    EOS, IM_END, THINK_END, THINK_START, VOCAB_SIZE, allocations, ids, tokenizer, tokenizer_with,
};

fn processor() -> InputProcessor {
    let limits = ModelLimits {
        max_model_len: 32,
        vocab_size: VOCAB_SIZE,
        max_logprobs: 20,
    };
    InputProcessor::new(tokenizer(), limits)
}

fn request(prompt: impl Into<Prompt>) -> GenerateRequest {
    GenerateRequest::new("id".to_owned(), prompt.into(), SamplingParams::default())
}

fn processed(request: GenerateRequest) -> ProcessedInputs {
    processor().process_inputs(request).unwrap()
}

fn refused(request: GenerateRequest) -> ValidationError {
    processor().process_inputs(request).unwrap_err()
}

fn with_params(change: impl FnOnce(&mut SamplingParams)) -> GenerateRequest {
    let mut request = request("abc");
    change(&mut request.sampling_params);
    request
}

/// What waits for a tokenizer waits already.
#[test]
fn a_request_came_when_its_caller_made_it() {
    let mut early = request("abc");
    early.arrival = early.arrival.checked_sub(Duration::from_secs(60)).unwrap();
    let arrival = early.arrival;
    let before = std::time::SystemTime::now();
    let inputs = processed(early);
    assert_eq!(inputs.arrival, arrival);
    let before = before.duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    assert!(inputs.request.arrival_time < before);
}

#[test]
fn text_becomes_a_request() {
    let inputs = processed(request("abc"));
    assert_eq!(inputs.prompt.as_deref(), Some("abc"));
    let request = inputs.request;
    assert_eq!(request.prompt_token_ids, ids("abc"));
    assert_eq!(request.external_req_id.as_deref(), Some("id"));
    let suffix = request.request_id.strip_prefix("id-").unwrap();
    assert!(suffix.len() == 8 && suffix.bytes().all(|b| b.is_ascii_hexdigit()));
    assert!(request.sampling_params.seed.is_some());
    assert!(request.arrival_time > 1e9);
    assert_ne!(
        processed(super::tests::request("abc")).request.request_id,
        request.request_id
    );
}

#[test]
fn conversations_go_through_the_template() {
    let chat = |continue_final_message: bool| {
        Prompt::Chat(ChatPrompt {
            messages: vec![
                serde_json::json!({"role": "user", "content": "h"}),
                serde_json::json!({"role": "assistant", "content": "yo"}),
            ],
            add_generation_prompt: !continue_final_message,
            continue_final_message,
            ..ChatPrompt::default()
        })
    };
    let opened = processed(request(chat(false)));
    assert_eq!(
        opened.prompt.as_deref(),
        Some("[user]h[assistant]yo[assistant]")
    );
    let continued = processed(request(chat(true)));
    assert_eq!(continued.prompt.as_deref(), Some("[user]h[assistant]yo"));
    let empty = Prompt::Chat(ChatPrompt {
        messages: vec![serde_json::json!({"role": "assistant", "content": ""})],
        continue_final_message: true,
        ..ChatPrompt::default()
    });
    let error = refused(request(empty));
    assert_eq!(error.parameter.as_deref(), Some("continue_final_message"));
}

/// A template that runs too long is the fault of the tools where it wouldn't without them.
#[test]
fn far_too_many_tools_are_named() {
    let chat = |num_tools: usize, num_messages: usize| {
        let message = serde_json::json!({"role": "user", "content": "h"});
        Prompt::Chat(ChatPrompt {
            messages: vec![message; num_messages],
            tools: Some(serde_json::json!(vec![serde_json::json!({}); num_tools]).into()),
            chat_template: Some(
                "{% for tool in tools or [] %}{% for other in tools %}{% endfor %}{% endfor %}\
                 {% for m in messages %}.{% endfor %}"
                    .to_owned()
                    .into(),
            ),
            add_generation_prompt: true,
            ..ChatPrompt::default()
        })
    };
    let error = refused(request(chat(30_000, 1)));
    assert_eq!(error.parameter.as_deref(), Some("tools"), "{error}");
    assert!(error.message.contains("30000 tools"), "{error}");
    let error = refused(request(chat(1, 30_000)));
    assert_ne!(error.parameter.as_deref(), Some("tools"), "{error}");
    assert!(processor().process_inputs(request(chat(1, 1))).is_ok());
}

#[test]
fn lengths_name_both_numbers() {
    assert!(refused(request("")).message.contains("empty"));
    assert!(refused(request(Vec::new())).message.contains("empty"));
    for length in [32, 33] {
        let error = refused(request("x".repeat(length)));
        assert_eq!(error.parameter.as_deref(), Some("input_tokens"));
        let message = error.to_string();
        assert!(message.contains("32 tokens"), "{message}");
        assert!(message.contains(&length.to_string()), "{message}");
    }
    assert!(processor().process_inputs(request("x".repeat(31))).is_ok());
}

#[test]
fn ids_are_checked_against_the_vocabulary() {
    let error = refused(request(vec![1, VOCAB_SIZE]));
    assert!(error.message.contains("260"), "{error}");
    let inputs = processed(request(vec![1, VOCAB_SIZE - 1]));
    assert_eq!(inputs.prompt, None);
}

#[test]
fn max_tokens_is_bounded_by_the_context() {
    let limit = |max_tokens| {
        let inputs = processed(with_params(|p| p.max_tokens = max_tokens));
        inputs.request.sampling_params.max_tokens
    };
    assert_eq!(limit(None), Some(29));
    assert_eq!(limit(Some(29)), Some(29));
    assert_eq!(limit(Some(1000)), Some(29));
    assert_eq!(limit(Some(5)), Some(5));
    let error = refused(with_params(|p| {
        p.max_tokens = None;
        p.min_tokens = 30;
    }));
    assert_eq!(error.parameter.as_deref(), Some("min_tokens"));
}

#[test]
fn end_of_text_tokens_come_from_the_model() {
    let params = processed(request("abc")).request.sampling_params;
    assert_eq!(params.eos_token_id, Some(EOS));
    assert_eq!(params.stop_token_ids, [IM_END]);
    let params = processed(with_params(|p| p.stop_token_ids = vec![7, IM_END].into()))
        .request
        .sampling_params;
    assert_eq!(params.stop_token_ids, [7, IM_END]);
    let params = processed(with_params(|p| p.ignore_eos = true))
        .request
        .sampling_params;
    assert_eq!(params.eos_token_id, None);
    assert!(params.stop_token_ids.is_empty());
}

#[test]
fn bad_words_with_and_without_a_space() {
    let params = processed(with_params(|p| {
        p.bad_words = vec![" ab".to_owned(), "ab".to_owned(), "c".to_owned()].into();
    }))
    .request
    .sampling_params;
    assert_eq!(
        params.bad_words_token_ids,
        [ids("ab"), ids(" ab"), ids("c"), ids(" c")]
    );
    let error = refused(with_params(|p| {
        p.bad_words = (0..65).map(|i| format!("w{i}")).collect();
    }));
    assert_eq!(error.parameter.as_deref(), Some("bad_words"));
}

#[test]
fn thinking_needs_its_tokens() {
    let params = processed(with_params(|p| p.thinking_token_budget = Some(5)))
        .request
        .sampling_params;
    let tokens = params.thinking_tokens.unwrap();
    assert_eq!(
        (tokens.start_token_ids, tokens.end_token_ids),
        (vec![258], vec![259])
    );
    let limits = ModelLimits {
        max_model_len: 32,
        vocab_size: 258,
        max_logprobs: 20,
    };
    let without = InputProcessor::new(tokenizer_with("[256]", false), limits);
    let error = without
        .process_inputs(with_params(|p| p.thinking_token_budget = Some(5)))
        .unwrap_err();
    assert_eq!(error.parameter.as_deref(), Some("thinking_token_budget"));
}

#[test]
fn truncation_keeps_the_chosen_end() {
    let kept = |keep, side| {
        let inputs = processed(GenerateRequest {
            truncate_prompt_tokens: Some(keep),
            truncation_side: side,
            ..request("0123456789".repeat(4))
        });
        String::from_utf8(
            inputs
                .request
                .prompt_token_ids
                .iter()
                .map(|&id| u8::try_from(id).unwrap())
                .collect(),
        )
        .unwrap()
    };
    assert_eq!(kept(3, TruncationSide::Left), "789");
    assert_eq!(kept(3, TruncationSide::Right), "012");
    assert_eq!(kept(-1, TruncationSide::Right).len(), 16);
    for bad in [0, -2, 33] {
        let error = refused(GenerateRequest {
            truncate_prompt_tokens: Some(bad),
            ..request("abc")
        });
        assert_eq!(error.parameter.as_deref(), Some("truncate_prompt_tokens"));
    }
}

#[test]
fn prompt_logprobs_need_the_whole_prompt() {
    let params = processed(with_params(|p| p.prompt_logprobs = Some(1)))
        .request
        .sampling_params;
    assert!(params.skip_reading_prefix_cache);
}

fn constrained(constraint: StructuredOutputsConstraint) -> GenerateRequest {
    with_params(|p| p.structured_outputs = Some(StructuredOutputsParams::new(constraint).into()))
}

#[test]
fn constraints_are_checked_under_their_name() {
    let wrong = StructuredOutputsConstraint::Regex("(".to_owned());
    let error = refused(constrained(wrong.clone()));
    assert_eq!(error.parameter.as_deref(), Some("structured_outputs.regex"));
    let error = refused(GenerateRequest {
        constraint_field: Some("guided_regex".to_owned()),
        ..constrained(wrong)
    });
    assert_eq!(error.parameter.as_deref(), Some("guided_regex"));
    assert!(error.message.starts_with("guided_regex: regex, line 1"));
}

#[test]
fn the_engines_settings_reach_constraints() {
    let args = r#"{"disable_any_whitespace": true, "enable_in_reasoning": true}"#;
    let processor = processor()
        .with_structured_outputs(StructuredOutputsArgs::from_json(args).unwrap())
        .unwrap();
    let inputs = processor.process_inputs(constrained(StructuredOutputsConstraint::JsonObject));
    let params = inputs.unwrap().request.sampling_params.structured_outputs;
    let params = params.unwrap();
    assert_eq!(params.whitespace, Whitespace::Compact);
    assert!(params.enable_in_reasoning);
}

#[test]
fn constraints_wait_for_the_end_of_thinking_where_it_is_not_over() {
    let inputs = |prompt: Vec<u32>, enable_in_reasoning| {
        let constraint = StructuredOutputsConstraint::JsonObject;
        let mut request = constrained(constraint);
        request.prompt = prompt.into();
        request.separate_reasoning = true;
        let params = request.sampling_params.structured_outputs.as_mut().unwrap();
        params.make_mut().enable_in_reasoning = enable_in_reasoning;
        processed(request)
    };
    let open = inputs(vec![1, THINK_START], false);
    assert_eq!(open.request.reasoning_ended, Some(false));
    assert!(open.request.sampling_params.thinking_tokens.is_some());
    assert!(open.thinking.unwrap().is_thinking());
    let closed = inputs(vec![1, THINK_START, THINK_END], false);
    assert_eq!(closed.request.reasoning_ended, Some(true));
    assert_eq!(closed.request.sampling_params.thinking_tokens, None);
    // The constraint holds at once: nothing thinks.
    let held = inputs(vec![1, THINK_START], true);
    assert_eq!(held.request.sampling_params.thinking_tokens, None);
    assert_eq!(held.thinking, None);
}

/// Thinking that plain text marks becomes a part of the constraint, once for the requests of a list.
#[test]
fn a_constraint_stands_behind_thinking_that_plain_text_marks() {
    let args = StructuredOutputsArgs::from_json(r#"{"reasoning_parser": "granite"}"#).unwrap();
    let processor = processor().with_structured_outputs(args).unwrap();
    let of = |prompt: &str| {
        let mut request = constrained(StructuredOutputsConstraint::JsonObject);
        request.prompt = prompt.into();
        request
    };
    let (mut before, cancel) = (None, CancelFlag::new());
    let prompts = [
        "Here is my thought process:",
        "Here's my thought process:a",
        "a",
    ];
    let inputs = prompts.map(|prompt| {
        let inputs = processor.process_like(&mut before, of(prompt), &cancel);
        inputs.unwrap()
    });
    let constraints = inputs.clone().map(|inputs| {
        let params = inputs.request.sampling_params;
        assert_eq!(params.thinking_tokens, None);
        params.structured_outputs.unwrap()
    });
    let kinds = constraints.each_ref().map(|c| c.constraint.kind());
    assert_eq!(kinds, ["structural_tag", "structural_tag", "json_object"]);
    assert!(constraints[0].is_same(&constraints[1]));
    // What the core finds in it is told by the caller's own name.
    let fields = inputs[0].callers_fields.clone().unwrap();
    let pointer = "/format/elements/1/json_schema/type".to_owned();
    let found = RequestError {
        problem: Some(Box::new(GrammarProblem {
            language: Some("structural tag".to_owned()),
            place: Some(GrammarPlace {
                position: Some(GrammarPosition::Pointer(pointer)),
                words: String::new(),
            }),
            ..GrammarProblem::default()
        })),
        ..RequestError::new(RequestErrorCode::GrammarRefused, "no")
    };
    let error = fields.translate(&found);
    let field = "structured_outputs.json_object";
    assert_eq!(error.parameter.as_deref(), Some(field));
    assert_eq!(error.message, format!("{field}: schema, at `#/type`: no"));
    let mut budget = of("a");
    budget.sampling_params.thinking_token_budget = Some(1);
    let error = processor.process_inputs(budget).unwrap_err();
    assert_eq!(error.parameter.as_deref(), Some("thinking_token_budget"));
}

#[test]
fn thinking_is_not_told_apart_where_it_is_switched_off() {
    let args = StructuredOutputsArgs::from_json(r#"{"reasoning_parser": "none"}"#).unwrap();
    let processor = processor().with_structured_outputs(args).unwrap();
    let mut request = request(vec![1, THINK_START]);
    request.separate_reasoning = true;
    assert_eq!(processor.process_inputs(request).unwrap().thinking, None);
    let markers = r#"{"thinking_markers": {"start": "<reason>", "end": "</think>"}}"#;
    let error = super::tests::processor()
        .with_structured_outputs(StructuredOutputsArgs::from_json(markers).unwrap())
        .unwrap_err();
    assert!(error.message.contains("<reason>"), "{error}");
    let same = r#"{"thinking_markers": {"start": "<think>", "end": "<think>"}}"#;
    let error = super::tests::processor()
        .with_structured_outputs(StructuredOutputsArgs::from_json(same).unwrap())
        .unwrap_err();
    assert!(error.message.contains("must differ"), "{error}");
}

/// One check for every way by which a text comes to be tokenized.
#[test]
fn long_texts_are_refused_before_they_are_tokenized() {
    let processor = processor();
    let too_long = "a ".repeat(MAX_COUNTED_TOKENS as usize);
    let chat = |text: &str| {
        Prompt::Chat(ChatPrompt {
            messages: vec![serde_json::json!({"role": "user", "content": text})],
            ..ChatPrompt::default()
        })
    };
    let truncated = |prompt: Prompt| GenerateRequest {
        truncate_prompt_tokens: Some(8),
        ..request(prompt)
    };
    for prompt in [Prompt::Text(too_long.clone()), chat(&too_long)] {
        let error = refused(request(prompt.clone()));
        assert_eq!(error.parameter.as_deref(), Some("input_tokens"));
        assert!(error.message.contains("at least "), "{error}");
        let error = refused(truncated(prompt.clone()));
        assert_eq!(error.parameter.as_deref(), Some("prompt"));
        assert!(error.message.contains("at most 131072"), "{error}");
        let counted = processor.tokenize(prompt, true, &CancelFlag::new());
        assert_eq!(counted.unwrap_err(), error);
    }
    // What fits is cut as before, and counted, however short the context is.
    let fits = "a ".repeat(MAX_COUNTED_TOKENS as usize / 2);
    let counted = processor.tokenize(Prompt::Text(fits.clone()), true, &CancelFlag::new());
    assert_eq!(counted.unwrap().token_ids.len(), fits.len());
    let inputs = processed(truncated(Prompt::Text(fits)));
    assert_eq!(inputs.request.prompt_token_ids, ids("a a a a "));
}

/// Piece by piece, as a whole, with or without places where it is known to be written apart.
#[test]
fn long_texts_have_the_tokens_that_they_have_as_a_whole() {
    let files = [("tokenizer.json", builtin_model::TOKENIZER_JSON)];
    let tokenizer = Arc::new(Tokenizer::from_bytes(&files).unwrap());
    let limits = ModelLimits {
        max_model_len: 1 << 20,
        vocab_size: tokenizer.vocab_size() as u32,
        max_logprobs: 20,
    };
    let processor = InputProcessor::new(Arc::clone(&tokenizer), limits);
    let words = [
        "the",
        "river",
        "I'll",
        "x2",
        "\n\n",
        "<|im_end|>",
        "\u{e9}t\u{e9}",
        "(a+b)",
        " ",
        "\u{4e2d}\u{6587}",
        "2026",
    ];
    let mut state = 7_u64;
    let mut random = |most: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % most
    };
    let mut mixed = String::new();
    while mixed.len() < 300_000 {
        mixed.push_str(words[random(words.len() as u64) as usize]);
        mixed.push_str(["", " ", ", "][random(3) as usize]);
    }
    let without_ends = "\u{4e2d}".repeat(100_000);
    for text in [mixed, without_ends] {
        for special in [false, true] {
            let prompt = Prompt::Text(text.clone());
            let pieces = processor.tokenize(prompt, special, &CancelFlag::new());
            let whole = tokenizer.encode(&text, special).unwrap();
            assert!(pieces.unwrap().token_ids == whole, "{special}");
        }
    }
}

/// One character of three bytes becomes 33.
#[test]
fn texts_that_grow_as_they_are_normalized_are_refused() {
    let mut json: serde_json::Value =
        serde_json::from_slice(builtin_model::TOKENIZER_JSON).unwrap();
    json["normalizer"] = serde_json::json!({"type": "NFKC"});
    let json = json.to_string();
    let tokenizer = Tokenizer::from_bytes(&[("tokenizer.json", json.as_bytes())]).unwrap();
    let limits = ModelLimits {
        max_model_len: 1 << 10,
        vocab_size: tokenizer.vocab_size() as u32,
        max_logprobs: 20,
    };
    let processor = InputProcessor::new(Arc::new(tokenizer), limits);
    let tokenize = |num_chars| {
        let prompt = Prompt::Text("\u{fdfa}".repeat(num_chars));
        processor.tokenize(prompt, false, &CancelFlag::new())
    };
    assert!(tokenize(12_000).is_ok());
    let error = tokenize(40_000).unwrap_err();
    assert!(error.message.contains("120000 bytes of text"), "{error}");
    assert!(error.message.contains("by normalizing"), "{error}");
}

#[test]
fn nobody_counts_on_for_a_request_that_is_gone() {
    let cancel = CancelFlag::new();
    cancel.cancel();
    let text = "a".repeat(MAX_COUNTED_TOKENS as usize + 1);
    for prompt in [Prompt::Text(text), Prompt::Chat(ChatPrompt::default())] {
        let error = processor().tokenize(prompt, true, &cancel).unwrap_err();
        assert!(error.message.contains("cancelled"), "{error}");
    }
}

/// Values of a message were there as JSON, as a copy of it and as a template's.
#[test]
fn messages_take_little_more_than_their_json_while_they_are_read() {
    let processor = processor();
    let before = allocations::live();
    let values = vec![serde_json::json!({"": 0}); 10_000];
    let message = serde_json::json!({"role": "user", "content": "a", "annotations": values});
    let chat = ChatPrompt {
        messages: vec![message],
        ..ChatPrompt::default()
    };
    let json = allocations::live() - before;
    allocations::reset_peak();
    let tokenized = processor.tokenize(Prompt::Chat(chat), true, &CancelFlag::new());
    let more = allocations::peak() - before - json;
    tokenized.unwrap();
    assert!(more <= json / 2, "{more} bytes beside {json}");
}

/// What may be large is verified and held once, however many prompts a request has.
#[test]
fn requests_of_a_list_share_what_is_verified() {
    let params = SamplingParams {
        allowed_token_ids: Some([9, 7].into()),
        bad_words: ["x".to_owned()].into(),
        stop: ["y".to_owned()].into(),
        ..SamplingParams::default()
    };
    let processor = processor();
    let mut before = None;
    let mut process = |prompt: &str, params: SamplingParams| {
        let request = GenerateRequest::new("id".to_owned(), prompt.into(), params);
        processor
            .process_like(&mut before, request, &CancelFlag::new())
            .unwrap()
    };
    let first = process("a", params.clone());
    let second = process("bc", params.clone());
    let of = |inputs: &ProcessedInputs| inputs.request.sampling_params.clone();
    let (a, b) = (of(&first), of(&second));
    assert!(Arc::ptr_eq(&first.stop_strings, &second.stop_strings));
    assert!(a.stop_token_ids.is_same(&b.stop_token_ids));
    assert!(a.bad_words_token_ids.is_same(&b.bad_words_token_ids));
    let (allowed, also_allowed) = (a.allowed_token_ids.unwrap(), b.allowed_token_ids.unwrap());
    assert!(allowed.is_same(&also_allowed));
    assert_eq!(allowed, [7, 9]);
    // What is its own stays so: the room that a prompt leaves, and a seed where none was given.
    let other = SamplingParams {
        max_tokens: None,
        ..params
    };
    let (third, fourth) = (of(&process("a", other.clone())), of(&process("bc", other)));
    assert_eq!((third.max_tokens, fourth.max_tokens), (Some(31), Some(30)));
    assert_ne!(third.seed, fourth.seed);
}
