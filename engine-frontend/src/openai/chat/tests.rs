use serde_json::json;

use super::*;
use crate::test_support::allocations;
use crate::unique_json;

fn body(field: &str, value: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "hi"}]});
    body[field] = value;
    body
}

fn refused(field: &str, value: Value) -> String {
    let error = ChatCompletionRequest::from_json(body(field, value)).unwrap_err();
    error.parameter.unwrap()
}

fn accepted(field: &str, value: Value) -> ChatCompletionRequest {
    ChatCompletionRequest::from_json(body(field, value)).unwrap()
}

fn tools() -> Value {
    json!([{"type": "function", "function": {"name": "f", "parameters": {}}}])
}

#[test]
fn content_is_a_string_or_text_parts() {
    let parts = json!([{"role": "user", "content": [
        {"type": "text", "text": "a"}, {"type": "text", "text": "b"},
    ]}]);
    let request = accepted("messages", parts);
    assert_eq!(request.messages[0]["content"], "a\nb");
    let image = json!([{"role": "user", "content": [{"type": "image_url"}]}]);
    assert_eq!(refused("messages", image), "messages[0].content[0]");
    for (message, at) in [
        (json!({"content": "x"}), "messages[0].role"),
        (json!({"role": "bot", "content": "x"}), "messages[0].role"),
        (json!({"role": "user"}), "messages[0].content"),
        (json!({"role": "user", "content": 3}), "messages[0].content"),
        (json!("hi"), "messages[0]"),
    ] {
        assert_eq!(refused("messages", json!([message])), at);
    }
    assert_eq!(refused("messages", json!([])), "messages");
}

#[test]
fn what_no_template_reads_is_refused() {
    let message = |field: &str, value: Value| {
        let mut message = json!({"role": "assistant", "content": "a"});
        message[field] = value;
        json!([message])
    };
    let call = json!({"name": "f", "arguments": "{}"});
    let at = refused("messages", message("function_call", call));
    assert_eq!(at, "messages[0].function_call");
    let at = refused("messages", message("audio", json!({"id": "a"})));
    assert_eq!(at, "messages[0].audio");
    let at = refused("messages", message("images", json!(["aGk="])));
    assert_eq!(at, "messages[0].images");
    for field in ["function_call", "audio", "images"] {
        let request = accepted("messages", message(field, Value::Null));
        assert_eq!(request.messages[0].get(field), None);
    }
}

#[test]
fn a_refusal_is_what_the_assistant_said() {
    let refusals = json!([
        {"role": "assistant", "content": null, "refusal": "No."},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "Never."}]},
    ]);
    let request = accepted("messages", refusals);
    assert_eq!(request.messages[0]["content"], "No.");
    assert_eq!(request.messages[1]["content"], "Never.");
    let input = json!([{"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}]);
    let request = crate::openai::ResponsesRequest::from_json(json!({"input": input})).unwrap();
    assert_eq!(request.chat.messages[0]["content"], "No.");
}

#[test]
fn thinking_has_two_names() {
    let thought = json!([{"role": "assistant", "content": "a", "reasoning": "b"}]);
    let request = accepted("messages", thought);
    assert_eq!(request.messages[0]["reasoning_content"], "b");
    let both = json!([{"role": "assistant", "reasoning": "b", "reasoning_content": "c"}]);
    let request = accepted("messages", both);
    assert_eq!(request.messages[0]["reasoning_content"], "c");
}

#[test]
fn two_limits_must_be_one() {
    let limits = |max_tokens: u32| {
        let mut body = body("max_completion_tokens", json!(8));
        body["max_tokens"] = json!(max_tokens);
        ChatCompletionRequest::from_json(body)
    };
    assert!(limits(8).is_ok());
    let error = limits(9).unwrap_err();
    assert_eq!(error.parameter.as_deref(), Some("max_tokens"));
    assert_eq!(
        error.to_string(),
        "max_tokens and max_completion_tokens are one field: give one of them, not 9 and 8"
    );
}

#[test]
fn tool_calls_reach_the_template_as_objects() {
    let request = accepted(
        "messages",
        json!([{"role": "assistant", "content": null, "tool_calls": [
            {"function": {"name": "f", "arguments": "{\"a\": 1}"}},
        ]}]),
    );
    let calls = &request.messages[0]["tool_calls"];
    assert_eq!(calls[0]["function"]["arguments"], json!({"a": 1}));
    assert_eq!(request.messages[0]["content"], Value::Null);
}

#[test]
fn tool_choice() {
    assert_eq!(
        accepted("tool_choice", json!("none")).tool_choice,
        ToolChoice::None
    );
    assert_eq!(accepted("tools", json!([])).tools, None);
    assert_eq!(refused("tools", json!([{"name": "f"}])), "tools[0]");
    let many = |count: usize| -> Value {
        let tool = |i| json!({"type": "function", "function": {"name": format!("f{i}")}});
        (0..count).map(tool).collect()
    };
    assert_eq!(refused("tools", many(1025)), "tools");
    assert_eq!(accepted("tools", many(1024)).tools.unwrap().len(), 1024);
    assert_eq!(
        accepted("tool_choice", json!("auto")).tool_choice,
        ToolChoice::None
    );
    assert_eq!(refused("tool_choice", json!("required")), "tool_choice");
    let choose = |choice: Value| {
        let mut with_tools = body("tools", tools());
        with_tools["tool_choice"] = choice;
        ChatCompletionRequest::from_json(with_tools)
    };
    assert_eq!(
        choose(json!("required")).unwrap().tool_choice,
        ToolChoice::Required
    );
    for auto in [json!("auto"), Value::Null] {
        assert_eq!(choose(auto).unwrap().tool_choice, ToolChoice::Auto);
    }
    let named = |name: &str| json!({"type": "function", "function": {"name": name}});
    let chosen = choose(named("f")).unwrap().tool_choice;
    assert_eq!(chosen, ToolChoice::Named("f".to_owned()));
    for choice in [json!("maybe"), named("other"), json!({"type": "function"})] {
        let error = choose(choice).unwrap_err();
        assert_eq!(error.parameter.as_deref(), Some("tool_choice"));
    }
}

#[test]
fn limits_and_logprobs() {
    let defaults = DefaultSamplingParams::default();
    let params = |field, value| {
        let request = accepted(field, value).take_generate_request("x", &defaults, None);
        request.unwrap().0.sampling_params
    };
    assert_eq!(params("max_tokens", json!(5)).max_tokens, Some(5));
    assert_eq!(
        params("max_completion_tokens", json!(6)).max_tokens,
        Some(6)
    );
    assert_eq!(params("seed", json!(1)).max_tokens, None);
    assert_eq!(params("logprobs", json!(true)).logprobs, Some(0));
    assert_eq!(params("logprobs", json!(false)).logprobs, None);
    assert_eq!(refused("top_logprobs", json!(2)), "top_logprobs");
}

#[test]
fn template_variables() {
    let request = accepted("reasoning_effort", json!("low"));
    let effort = request.chat_template_kwargs.get("reasoning_effort");
    assert_eq!(effort.and_then(TemplateValue::as_str), Some("low"));
    assert!(request.add_generation_prompt);
    let request = accepted("continue_final_message", json!(true));
    assert!(!request.add_generation_prompt);
    let mut both = body("continue_final_message", json!(true));
    both["add_generation_prompt"] = json!(true);
    let error = ChatCompletionRequest::from_json(both).unwrap_err();
    assert_eq!(error.parameter.as_deref(), Some("continue_final_message"));
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    for (name, value) in [
        ("guided_yaml", json!("a")),
        ("modalities", json!(["audio"])),
        ("prompt", json!("a")),
        ("ebnf", json!("a")),
    ] {
        assert_eq!(refused(name, value), name);
    }
    for (name, value, instead) in [
        ("functions", json!([{}]), "use tools"),
        ("function_call", json!({"name": "f"}), "use tool_choice"),
        ("echo", json!(true), "/v1/completions has it"),
        ("prompt_embeds", json!("x"), "a prompt is text or token ids"),
    ] {
        let error = ChatCompletionRequest::from_json(body(name, value)).unwrap_err();
        assert_eq!(error.message, format!("{name} is not supported: {instead}"));
    }
}

#[test]
fn calls_of_earlier_answers_are_checked() {
    let with = |calls: Value| {
        let message = json!([{"role": "assistant", "tool_calls": calls}]);
        ChatCompletionRequest::from_json(body("messages", message))
    };
    let call = |arguments: Value| json!([{"function": {"name": "f", "arguments": arguments}}]);
    for (calls, at) in [
        (json!("x"), "messages[0].tool_calls"),
        (json!([{"name": "f"}]), "messages[0].tool_calls[0]"),
        (
            call(json!("{\"a\":")),
            "messages[0].tool_calls[0].function.arguments",
        ),
    ] {
        let error = with(calls).unwrap_err();
        assert_eq!(error.parameter.as_deref(), Some(at), "{error}");
    }
    for (arguments, read) in [
        (json!("{\"a\": 1}"), json!({"a": 1})),
        (json!(""), json!({})),
        (json!({"a": 1}), json!({"a": 1})),
    ] {
        let request = with(call(arguments)).unwrap();
        let found = request.messages[0].pointer("/tool_calls/0/function/arguments");
        assert_eq!(found, Some(&read));
    }
    assert!(with(Value::Null).is_ok());
}

/// They stand in the body as texts, and are not counted with its values.
#[test]
fn arguments_of_earlier_calls_are_bounded_together() {
    let with = |num_calls: usize, arguments: String| {
        let call = json!({"function": {"name": "f", "arguments": arguments}});
        let calls = vec![call; num_calls];
        let message = json!([{"role": "assistant", "tool_calls": calls}]);
        ChatCompletionRequest::from_json(body("messages", message))
    };
    let numbers = |count| format!("{{\"a\": [0{}]}}", ",0".repeat(count));
    assert!(with(1, numbers(100_000)).is_ok());
    assert!(with(100, numbers(1_000)).is_ok());
    for (count, num_calls, at) in [(250_000, 1, 0), (72_000, 3, 2)] {
        let error = with(num_calls, numbers(count)).unwrap_err();
        let field = format!("messages[0].tool_calls[{at}].function.arguments");
        assert_eq!(error.parameter.as_deref(), Some(&*field));
        assert!(
            error.message.contains("would take too much memory"),
            "{error}"
        );
    }
    // As a model may have written it.
    let twice = with(1, r#"{"a": 1, "a": 2}"#.to_owned()).unwrap();
    let read = twice.messages[0].pointer("/tool_calls/0/function/arguments");
    assert_eq!(read, Some(&json!({"a": 2})));
}

#[test]
fn variables_and_documents_take_little_more_than_their_json_while_they_are_read() {
    for field in ["chat_template_kwargs", "documents"] {
        let objects = "{\"\":0},".repeat(9_999) + "{\"\":0}";
        let value = match field {
            "documents" => format!("[{{\"x\":[{objects}]}}]"),
            _ => format!("{{\"x\":[{objects}]}}"),
        };
        let text =
            format!(r#"{{"messages": [{{"role": "user", "content": "a"}}], "{field}": {value}}}"#);
        let (body, counted) = unique_json::from_slice(text.as_bytes()).unwrap();
        let before = allocations::live();
        allocations::reset_peak();
        let request = ChatCompletionRequest::from_json(body).unwrap();
        let more = usize::try_from(allocations::peak() - before).unwrap();
        drop(request);
        assert!(
            more <= counted / 2,
            "{field}: {more} bytes beside {counted}"
        );
    }
}
