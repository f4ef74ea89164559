//! Every request field of vLLM's: it works, or it is refused by its name.

use serde_json::{Value, json};

use super::support::Server;

/// What a field with a value gets.
enum Gets {
    /// An answer, of which this holds.
    Answer(fn(&Value) -> bool),
    /// 400 with this `param`.
    Refusal(&'static str),
}

use Gets::{Answer, Refusal};

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

fn body(path: &str) -> Value {
    let mut body = json!({"max_tokens": 3, "temperature": 0});
    if path == CHAT {
        body["messages"] = json!([{"role": "user", "content": "Hi"}]);
    } else {
        body["prompt"] = json!("Hi");
    }
    body
}

fn tokens(answer: &Value) -> u64 {
    answer["usage"]["completion_tokens"].as_u64().unwrap()
}

fn text(answer: &Value) -> &str {
    let choice = &answer["choices"][0];
    let content = &choice["message"]["content"];
    content.as_str().or(choice["text"].as_str()).unwrap()
}

/// An answer of any kind.
fn any(answer: &Value) -> bool {
    !text(answer).is_empty()
}

/// Rows for both kinds of request.
fn common() -> Vec<(&'static str, Value, Gets)> {
    let schema = json!({"type": "object", "properties": {}, "additionalProperties": false});
    vec![
        ("model", json!("formwork-builtin"), Answer(any)),
        ("n", json!(1), Answer(any)),
        ("n", json!(0), Refusal("n")),
        ("temperature", json!(0.5), Answer(any)),
        ("temperature", json!(1e30), Refusal("temperature")),
        ("top_p", json!(0.5), Answer(any)),
        ("top_p", json!(0), Refusal("top_p")),
        ("top_k", json!(1), Answer(any)),
        ("top_k", json!(-1), Answer(any)),
        ("top_k", json!(-2), Refusal("top_k")),
        ("min_p", json!(0.1), Answer(any)),
        ("min_p", json!(2), Refusal("min_p")),
        ("presence_penalty", json!(1), Answer(any)),
        ("presence_penalty", json!(3), Refusal("presence_penalty")),
        ("frequency_penalty", json!(1), Answer(any)),
        ("frequency_penalty", json!(-3), Refusal("frequency_penalty")),
        ("repetition_penalty", json!(1.1), Answer(any)),
        (
            "repetition_penalty",
            json!(0),
            Refusal("repetition_penalty"),
        ),
        ("seed", json!(-5), Answer(any)),
        ("seed", json!(1.5), Refusal("seed")),
        ("stop", json!("zzzz"), Answer(any)),
        ("stop", json!(vec!["zzzz"; 128]), Answer(any)),
        ("stop", json!(vec!["zzzz"; 129]), Refusal("stop")),
        ("stop_token_ids", json!([5]), Answer(any)),
        (
            "stop_token_ids",
            json!([99_999_999]),
            Refusal("stop_token_ids"),
        ),
        ("include_stop_str_in_output", json!(true), Answer(any)),
        ("ignore_eos", json!(true), Answer(|a| tokens(a) == 3)),
        ("max_tokens", json!(1), Answer(|a| tokens(a) == 1)),
        ("max_tokens", json!(-1), Refusal("max_tokens")),
        ("min_tokens", json!(3), Answer(|a| tokens(a) == 3)),
        ("min_tokens", json!(4), Refusal("min_tokens")),
        ("skip_special_tokens", json!(false), Answer(any)),
        ("spaces_between_special_tokens", json!(false), Answer(any)),
        ("logit_bias", json!({"5": -100}), Answer(any)),
        ("logit_bias", json!({"x": 1}), Refusal("logit_bias")),
        ("allowed_token_ids", json!([65, 66]), Answer(any)),
        ("allowed_token_ids", json!([]), Refusal("allowed_token_ids")),
        ("bad_words", json!(["Hello"]), Answer(any)),
        (
            "prompt_logprobs",
            json!(1),
            Answer(|a| {
                a["prompt_logprobs"].is_array() || a["choices"][0]["prompt_logprobs"].is_array()
            }),
        ),
        ("prompt_logprobs", json!(9999), Refusal("prompt_logprobs")),
        (
            "logprob_token_ids",
            json!([1, 2]),
            Refusal("logprob_token_ids"),
        ),
        (
            "repetition_detection",
            json!({"max_pattern_size": 4, "min_pattern_size": 1, "min_count": 3}),
            Answer(any),
        ),
        (
            "repetition_detection",
            json!({"max": 4}),
            Refusal("repetition_detection.max"),
        ),
        // As in vLLM, sizes are 0 by default, which is off.
        ("repetition_detection", json!({}), Answer(any)),
        (
            "repetition_detection",
            json!({"max_pattern_size": 4}),
            Refusal("repetition_detection.min_count"),
        ),
        ("thinking_token_budget", json!(5), Answer(any)),
        (
            "truncate_prompt_tokens",
            json!(1),
            Answer(|a| a["usage"]["prompt_tokens"] == 1),
        ),
        (
            "truncate_prompt_tokens",
            json!(-2),
            Refusal("truncate_prompt_tokens"),
        ),
        (
            "truncation_side",
            json!("right"),
            Refusal("truncation_side"),
        ),
        ("truncation_side", json!("up"), Refusal("truncation_side")),
        ("vllm_xargs", json!({}), Answer(any)),
        ("vllm_xargs", json!({"a": 1}), Refusal("vllm_xargs")),
        (
            "stream_options",
            json!({"include_usage": true}),
            Answer(any),
        ),
        ("stream_interval", json!(2), Answer(any)),
        ("stream_interval", json!(0), Refusal("stream_interval")),
        ("priority", json!(0), Answer(any)),
        (
            "request_id",
            json!("mine"),
            Answer(|a| a["id"].as_str().unwrap().ends_with("-mine")),
        ),
        ("session_id", json!(""), Answer(any)),
        ("session_id", json!("s"), Refusal("session_id")),
        ("cache_salt", json!("s"), Answer(any)),
        ("cache_salt", json!("a/b"), Refusal("cache_salt")),
        (
            "return_token_ids",
            json!(true),
            Answer(|a| a["choices"][0]["token_ids"].as_array().unwrap().len() as u64 == tokens(a)),
        ),
        ("return_tokens_as_token_ids", json!(true), Answer(any)),
        (
            "include_trace",
            json!(true),
            Answer(|a| a["choices"][0]["trace"].as_array().unwrap().len() as u64 == tokens(a)),
        ),
        ("include_trace", json!(1), Refusal("include_trace")),
        ("add_special_tokens", json!(false), Answer(any)),
        ("response_format", json!({"type": "text"}), Answer(any)),
        (
            "response_format",
            json!({"type": "json_schema"}),
            Refusal("response_format.json_schema"),
        ),
        (
            "response_format",
            json!({"type": "xml"}),
            Refusal("response_format.type"),
        ),
        (
            "structured_outputs",
            json!({"choice": ["a"]}),
            Answer(|a| text(a) == "a"),
        ),
        (
            "structured_outputs",
            json!({"regexp": "a"}),
            Refusal("structured_outputs.regexp"),
        ),
        (
            "guided_json",
            schema,
            Answer(|a| text(a).trim_start().starts_with('{')),
        ),
        (
            "guided_json_object",
            json!(true),
            Answer(|a| text(a).trim_start().starts_with('{')),
        ),
        (
            "guided_regex",
            json!("[0-9]"),
            Answer(|a| text(a).len() == 1),
        ),
        ("guided_choice", json!(["a"]), Answer(|a| text(a) == "a")),
        (
            "guided_grammar",
            json!("root ::= \"a\""),
            Answer(|a| text(a) == "a"),
        ),
        ("guided_decoding_backend", json!("xgrammar"), Answer(any)),
        (
            "guided_whitespace_pattern",
            json!(" "),
            Refusal("guided_whitespace_pattern"),
        ),
        ("guided_yaml", json!("a"), Refusal("guided_yaml")),
        (
            "grammar",
            json!("root ::= \"a\""),
            Answer(|a| text(a) == "a"),
        ),
        ("grammar", json!("a"), Refusal("grammar")),
        (
            "json_schema",
            json!({"const": true}),
            Answer(|a| text(a) == "true"),
        ),
        ("json_schema", json!({"type": "x"}), Refusal("json_schema")),
        (
            "response_format",
            json!({"type": "json_object", "schema": {"const": true}}),
            Answer(|a| text(a) == "true"),
        ),
        ("cache_prompt", json!(true), Answer(any)),
        ("repeat_penalty", json!(1.0), Answer(any)),
        ("repeat_penalty", json!(1.2), Refusal("repeat_penalty")),
        ("n_probs", json!(3), Refusal("n_probs")),
        ("n_predict", json!(-1), Refusal("n_predict")),
        ("regex", json!("a"), Refusal("regex")),
        ("user", json!("me"), Answer(any)),
        ("metadata", json!({"a": "b"}), Answer(any)),
        ("metadata", json!({"a": 1}), Refusal("metadata.a")),
        ("service_tier", json!("auto"), Answer(any)),
        ("use_beam_search", json!(false), Answer(any)),
        ("use_beam_search", json!(true), Refusal("use_beam_search")),
        ("length_penalty", json!(2.0), Refusal("length_penalty")),
        ("best_of", json!(2), Refusal("best_of")),
        ("watermarking", json!({}), Refusal("watermarking")),
        ("prompt_embeds", json!("x"), Refusal("prompt_embeds")),
        ("lora", json!([{"id": 0}]), Refusal("lora")),
        ("lora_request", json!({}), Refusal("lora_request")),
        (
            "return_weight_versions",
            json!(true),
            Refusal("return_weight_versions"),
        ),
        (
            "kv_transfer_params",
            json!({}),
            Refusal("kv_transfer_params"),
        ),
        (
            "ec_transfer_params",
            json!({}),
            Refusal("ec_transfer_params"),
        ),
        ("store", json!(true), Answer(any)),
        ("store", json!("yes"), Refusal("store")),
        ("temperatur", json!(1), Refusal("temperatur")),
    ]
}

fn of_completions() -> Vec<(&'static str, Value, Gets)> {
    vec![
        (
            "prompt",
            json!(["a", "b"]),
            Answer(|a| a["choices"].as_array().unwrap().len() == 2),
        ),
        (
            "prompt",
            json!([1, 2]),
            Answer(|a| a["usage"]["prompt_tokens"] == 2),
        ),
        ("prompt", json!([]), Refusal("prompt")),
        ("prompt", json!([1.5]), Refusal("prompt")),
        ("prompt", json!([4_000_000_000_u32]), Refusal("prompt")),
        ("echo", json!(true), Answer(|a| text(a).starts_with("Hi"))),
        ("suffix", json!("x"), Refusal("suffix")),
        (
            "logprobs",
            json!(2),
            Answer(|a| {
                let top = &a["choices"][0]["logprobs"]["top_logprobs"][0];
                top.as_object().unwrap().len() >= 2
            }),
        ),
        ("logprobs", json!(21), Refusal("logprobs")),
        ("messages", json!([]), Refusal("messages")),
    ]
}

fn of_chat() -> Vec<(&'static str, Value, Gets)> {
    let tool = json!({"type": "function", "function": {"name": "f"}});
    vec![
        ("messages", json!([]), Refusal("messages")),
        (
            "messages",
            json!([{"role": "x", "content": ""}]),
            Refusal("messages[0].role"),
        ),
        (
            "messages",
            json!([{"role": "user", "content": [{"type": "image_url"}]}]),
            Refusal("messages[0].content[0]"),
        ),
        (
            "max_completion_tokens",
            json!(2),
            Answer(|a| tokens(a) <= 2),
        ),
        (
            "logprobs",
            json!(true),
            Answer(|a| a["choices"][0]["logprobs"]["content"].is_array()),
        ),
        ("top_logprobs", json!(1), Refusal("top_logprobs")),
        (
            "tools",
            json!([tool]),
            Answer(|a| a["choices"][0]["finish_reason"].is_string()),
        ),
        ("tools", json!([]), Answer(any)),
        ("tool_choice", json!("none"), Answer(any)),
        ("tool_choice", json!("auto"), Answer(any)),
        ("tool_choice", json!("required"), Refusal("tool_choice")),
        ("parallel_tool_calls", json!(false), Answer(any)),
        (
            "reasoning_effort",
            json!("low"),
            Answer(|answer| !answer["choices"][0]["message"]["reasoning_content"].is_null()),
        ),
        ("reasoning_effort", json!("none"), Answer(any)),
        (
            "reasoning_effort",
            json!("lots"),
            Refusal("reasoning_effort"),
        ),
        ("include_reasoning", json!(false), Answer(any)),
        ("echo", json!(true), Refusal("echo")),
        ("add_generation_prompt", json!(false), Answer(|_| true)),
        ("continue_final_message", json!(true), Answer(|_| true)),
        ("documents", json!([{"text": "x"}]), Answer(any)),
        ("documents", json!("x"), Refusal("documents")),
        ("chat_template", json!("x"), Refusal("chat_template")),
        (
            "chat_template_kwargs",
            json!({"enable_thinking": false}),
            Answer(any),
        ),
        (
            "chat_template_kwargs",
            json!({"messages": 1}),
            Refusal("messages"),
        ),
        ("media_io_kwargs", json!({}), Refusal("media_io_kwargs")),
        (
            "mm_processor_kwargs",
            json!({}),
            Refusal("mm_processor_kwargs"),
        ),
        (
            "return_prompt_text",
            json!(true),
            Refusal("return_prompt_text"),
        ),
        ("modalities", json!(["text"]), Answer(any)),
        ("modalities", json!(["audio"]), Refusal("modalities")),
        ("audio", json!({}), Refusal("audio")),
        ("functions", json!([]), Answer(any)),
        ("functions", json!([{"name": "f"}]), Refusal("functions")),
        ("function_call", json!("auto"), Answer(any)),
        (
            "function_call",
            json!({"name": "f"}),
            Refusal("function_call"),
        ),
        ("prediction", json!({}), Answer(any)),
        (
            "web_search_options",
            json!({}),
            Refusal("web_search_options"),
        ),
        ("verbosity", json!("low"), Answer(any)),
        ("verbosity", json!("loud"), Refusal("verbosity")),
        ("prompt", json!("a"), Refusal("prompt")),
    ]
}

#[test]
fn every_field_works_or_is_refused_by_its_name() {
    let server = Server::shared();
    let mut wrong = Vec::new();
    for (path, rows) in [
        (COMPLETIONS, common()),
        (COMPLETIONS, of_completions()),
        (CHAT, common()),
        (CHAT, of_chat()),
    ] {
        for (field, value, gets) in rows {
            let mut body = body(path);
            body[field] = value;
            match field {
                "guided_decoding_backend" => body["guided_choice"] = json!(["a"]),
                // The two are one field.
                "max_completion_tokens" => body["max_tokens"] = Value::Null,
                _ => {}
            }
            let answer = server.post(path, &body);
            let is_right = match gets {
                Answer(holds) => answer.status == 200 && holds(&answer.json()),
                Refusal(param) => answer.status == 400 && answer.error()["param"] == param,
            };
            if !is_right {
                wrong.push(format!("{path} {body}: {} {}", answer.status, answer.body));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn null_is_as_good_as_nothing() {
    let server = Server::shared();
    for (path, rows) in [(COMPLETIONS, common()), (CHAT, common()), (CHAT, of_chat())] {
        let mut with_nulls = body(path);
        for (field, _, gets) in rows {
            if matches!(gets, Answer(_)) && with_nulls.get(field).is_none() {
                with_nulls[field] = Value::Null;
            }
        }
        let answer = server.post(path, &with_nulls);
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

#[test]
fn streams_have_what_whole_answers_have() {
    let server = Server::shared();
    let mut request = body(CHAT);
    request["stream"] = json!(true);
    request["stream_options"] = json!({"include_usage": true, "continuous_usage_stats": true});
    request["return_token_ids"] = json!(true);
    request["logprobs"] = json!(true);
    let events = server.post(CHAT, &request).events();
    assert!(
        events
            .iter()
            .all(|event| event["usage"]["prompt_tokens"].is_u64())
    );
    let choices = events.iter().filter_map(|event| event["choices"].get(0));
    let ids: usize = choices
        .clone()
        .filter_map(|choice| choice["token_ids"].as_array())
        .map(Vec::len)
        .sum();
    let logprobs: usize = choices
        .filter_map(|choice| choice["logprobs"]["content"].as_array())
        .map(Vec::len)
        .sum();
    assert_eq!((ids, logprobs), (3, 3));
    request["prompt_logprobs"] = json!(1);
    assert_eq!(
        server.post(CHAT, &request).error()["param"],
        "prompt_logprobs"
    );
    let mut echo = body(COMPLETIONS);
    echo["echo"] = json!(true);
    echo["logprobs"] = json!(0);
    let whole = server.post(COMPLETIONS, &echo).json();
    echo["stream"] = json!(true);
    let events = server.post(COMPLETIONS, &echo).events();
    let pieces = events
        .iter()
        .filter_map(|e| e["choices"][0]["text"].as_str());
    assert_eq!(pieces.collect::<String>(), text(&whole));
    let positions = |field: &str| -> Vec<Value> {
        let pieces = events.iter();
        let lists = pieces.filter_map(|e| e["choices"][0]["logprobs"][field].as_array());
        lists.flatten().cloned().collect()
    };
    for field in ["tokens", "text_offset", "token_logprobs"] {
        let expected = &whole["choices"][0]["logprobs"][field];
        assert_eq!(&json!(positions(field)), expected, "{field}");
    }
    // The prompt alone.
    echo["max_tokens"] = json!(0);
    let mut constrained = echo.clone();
    constrained["structured_outputs"] = json!({"regex": "a"});
    assert_eq!(
        server.post(COMPLETIONS, &constrained).error()["param"],
        "max_tokens"
    );
    echo["n"] = json!(2);
    echo["temperature"] = json!(1);
    echo["stream_options"] = json!({"include_usage": true});
    let events = server.post(COMPLETIONS, &echo).events();
    for index in 0..2 {
        let choices = events.iter().filter_map(|e| e["choices"].get(0));
        let of_index = choices.filter(|choice| choice["index"] == index);
        let text: String = of_index.filter_map(|c| c["text"].as_str()).collect();
        assert_eq!(text, "Hi");
    }
    assert_eq!(events.last().unwrap()["usage"]["completion_tokens"], 0);
}

#[test]
fn errors_name_the_field_as_the_request_spells_it() {
    let server = Server::shared();
    let tool = |name: &str| json!([{"type": "function", "function": {"name": name}}]);
    let schema = json!({"type": "string"});
    for (fields, param, says) in [
        (
            json!({"logprobs": true, "top_logprobs": 50}),
            "top_logprobs",
            "at most 20",
        ),
        (
            json!({"guided_json": schema, "guided_whitespace_pattern": "x"}),
            "guided_whitespace_pattern",
            "guided_whitespace_pattern: `x` matches something else",
        ),
        (
            json!({"structured_outputs": {"json": schema, "whitespace_pattern": "x"}}),
            "structured_outputs.whitespace_pattern",
            "structured_outputs.whitespace_pattern: `x` matches something else",
        ),
        (json!({"priority": 1}), "priority", "only 0 is possible"),
        (
            json!({"stream": true, "stream_options": {"include_usage": "x"}}),
            "stream_options.include_usage",
            "expected true or false",
        ),
        (
            json!({"stream": true, "stream_options": {"x": 1}}),
            "stream_options.x",
            "unknown field",
        ),
        (
            json!({"tools": tool("")}),
            "tools[0].function.name",
            "1 to 128",
        ),
        (
            json!({"tools": tool("a\"b é")}),
            "tools[0].function.name",
            "1 to 128",
        ),
        (
            json!({"tools": tool(&"a".repeat(129))}),
            "tools[0].function.name",
            "1 to 128",
        ),
        (
            json!({"request_id": ""}),
            "request_id",
            "must have 1 to 128 characters of printable ASCII",
        ),
        (json!({"request_id": "a\nb"}), "request_id", "got \"a\\nb\""),
        (
            json!({"max_tokens": 2_f64.powi(64)}),
            "max_tokens",
            "got 18446744073709551616",
        ),
        (
            json!({"service_tier": 1}),
            "service_tier",
            "expected a string",
        ),
        (
            json!({"max_tokens": 0}),
            "max_tokens",
            "from 1 to 4294967295",
        ),
        (
            json!({"max_tokens": -1}),
            "max_tokens",
            "from 1 to 4294967295",
        ),
        (
            json!({"max_completion_tokens": 0}),
            "max_completion_tokens",
            "from 1 to",
        ),
        (
            json!({"structured_outputs": {"complete_within_max_tokens": false}}),
            "structured_outputs",
            "none are specified",
        ),
        (
            json!({"guided_json": {"type": "string", "minLength": 50}}),
            "guided_json",
            // How few tokens are looked for depends on what others have the engine do meanwhile.
            " tokens, but max_tokens leaves 3: raise max_tokens, or",
        ),
        (
            json!({"max_tokens": null, "n_predict": 9, "guided_regex": "a{50}"}),
            "guided_regex",
            " but n_predict leaves 9: raise n_predict, or",
        ),
        (
            json!({"max_tokens": null, "n_predict": 9, "min_tokens": 10}),
            "min_tokens",
            "at most n_predict (9)",
        ),
        (
            json!({"max_tokens": null, "max_completion_tokens": 9, "min_tokens": 10}),
            "min_tokens",
            "at most max_completion_tokens (9)",
        ),
        (
            json!({"guided_json": {"$ref": "https://example.com/a.json"}}),
            "guided_json",
            "put it under `$defs` of this schema, with `https://example.com/a.json` as its `$id`",
        ),
        (
            json!({"use_beam_search": true}),
            "use_beam_search",
            "is not supported: answers are sampled; n gives several",
        ),
        (
            json!({"session_id": "s"}),
            "session_id",
            "is not supported: every prefix is cached for all requests",
        ),
    ] {
        let mut request = body(CHAT);
        for (name, value) in fields.as_object().unwrap() {
            request[name] = value.clone();
        }
        let error = server.post(CHAT, &request).error();
        assert_eq!(
            (&error["code"], &error["param"]),
            (&json!(400), &json!(param)),
            "{error}"
        );
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(says), "{message}");
    }
}

/// Every place where a constraint may stand: what only the core finds is told of it by the names of
/// the request.
#[test]
fn a_constraint_is_named_as_the_request_spells_it() {
    let server = Server::shared();
    let wrong = json!({"type": "string", "pattern": "("});
    let long = json!({"type": "string", "minLength": 500});
    // Patterns in common: their product has too many states.
    let patterns: Vec<Value> = ('a'..='l')
        .map(|letter| json!({"pattern": format!("{letter}.*{letter}.*{letter}")}))
        .collect();
    let dear =
        json!({"properties": {"a": {"type": "string", "maxLength": 300, "allOf": patterns}}});
    let function = |parameters: &Value| json!({"name": "f", "parameters": parameters});
    let tools = |parameters: &Value| {
        let parameters =
            json!({"type": "object", "properties": {"a": parameters}, "required": ["a"]});
        json!([
            {"type": "function", "function": {"name": "g"}},
            {"type": "function", "function": function(&parameters)},
        ])
    };
    let named = json!({"type": "function", "function": {"name": "f"}});
    let format = |schema: &Value| json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema}});
    type Spelling<'a> = (&'a str, Box<dyn Fn(&Value) -> Value + 'a>);
    let spellings: Vec<Spelling<'_>> = vec![
        (
            "response_format.json_schema.schema",
            Box::new(|schema| json!({"response_format": format(schema)})),
        ),
        (
            "response_format.schema",
            Box::new(
                |schema| json!({"response_format": {"type": "json_object", "schema": schema}}),
            ),
        ),
        (
            "guided_json",
            Box::new(|schema| json!({"guided_json": schema})),
        ),
        (
            "json_schema",
            Box::new(|schema| json!({"json_schema": schema})),
        ),
        (
            "structured_outputs.json",
            Box::new(|schema| json!({"structured_outputs": {"json": schema.to_string()}})),
        ),
        (
            "tools[1].function.parameters",
            Box::new(|schema| json!({"tools": tools(schema), "tool_choice": named})),
        ),
    ];
    let refused = |path: &str, body: &Value, field: &str, says: &[&str]| {
        let error = server.post(path, body).error();
        assert_eq!(
            (&error["code"], &error["param"]),
            (&json!(400), &json!(field)),
            "{error}"
        );
        let message = error["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("{field}: ")), "{message}");
        for says in says {
            assert!(message.contains(says), "{message}");
        }
    };
    for (field, spell) in &spellings {
        for (limit, stream) in [("max_tokens", false), ("max_completion_tokens", true)] {
            let with = |schema: &Value| {
                let mut request = json!({"messages": [{"role": "user", "content": "Hi"}]});
                request[limit] = json!(9);
                request["stream"] = json!(stream);
                for (name, value) in spell(schema).as_object().unwrap() {
                    request[name] = value.clone();
                }
                request
            };
            refused(CHAT, &with(&wrong), field, &["schema, at `#", "pattern`"]);
            refused(
                CHAT,
                &with(&dear),
                field,
                &["`max_mask_steps`", "/properties/a`"],
            );
            let raise = format!("leaves 9: raise {limit}, or");
            refused(CHAT, &with(&long), field, &["is sure to fit in ", &raise]);
        }
    }
    for (schema, says) in [
        (&wrong, "pattern`"),
        (&long, "leaves 9: raise max_output_tokens, or"),
    ] {
        let mut body = json!({"input": "Hi", "max_output_tokens": 9});
        let format = json!({"type": "json_schema", "name": "n", "schema": schema});
        body["text"] = json!({"format": format});
        refused("/v1/responses", &body, "text.format.schema", &[says]);
        body["text"] = json!({});
        let parameters = json!({"type": "object", "properties": {"a": schema}, "required": ["a"]});
        body["tools"] = json!([{"type": "function", "name": "f", "parameters": parameters}]);
        body["tool_choice"] = json!("required");
        refused("/v1/responses", &body, "tools[0].parameters", &[says]);
    }
}

/// Limits that only the core finds are told of the function whose parameters they are.
#[test]
fn a_function_that_is_too_large_is_named() {
    let server = Server::shared();
    let looks_ahead: String = ('a'..='n').map(|c| format!("(?=.*{c}{c}x)")).collect();
    let large = json!({"type": "string", "pattern": format!("^{looks_ahead}.*$")});
    let parameters = json!({"type": "object", "properties": {"a": large}, "required": ["a"]});
    let field = "tools[1].function.parameters";
    for choice in [json!("auto"), json!("required")] {
        let mut request = body(CHAT);
        request["tool_choice"] = choice;
        request["tools"] = json!([
            {"type": "function", "function": {"name": "g"}},
            {"type": "function", "function": {"name": "f", "parameters": parameters}},
        ]);
        request["max_tokens"] = json!(100);
        let error = server.post(CHAT, &request).error();
        assert_eq!(
            (&error["code"], &error["param"]),
            (&json!(400), &json!(field))
        );
        let message = error["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("{field}: ")), "{message}");
        assert!(message.contains("make it smaller"), "{message}");
        for cores in ["#/format", "structured_outputs", "raise the limit"] {
            assert!(!message.contains(cores), "{message}");
        }
    }
}

#[test]
fn settings_hold_for_the_constraint_that_tools_make() {
    let server = Server::shared();
    let mut request = body(CHAT);
    request["tools"] = json!([{"type": "function", "function": {"name": "f"}}]);
    request["tool_choice"] = json!("required");
    let error = server.post(CHAT, &request).error();
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("complete_within_max_tokens"), "{message}");
    // As the message says.
    request["structured_outputs"] = json!({"complete_within_max_tokens": false});
    let answer = server.post(CHAT, &request);
    assert_eq!(answer.status, 200, "{answer:?}");
    let choice = &answer.json()["choices"][0];
    assert_eq!(choice["finish_reason"], "length");
    assert_eq!(choice["structured_output_complete"], false);
}
