use protocol::{FinishReason, StopReason};
use serde_json::{Value, json};

use super::answer::Answer;
use super::protocol::AnthropicMessagesResponse;
use super::{AnthropicCountTokensRequest, AnthropicMessagesRequest};
use crate::openai::{Openings, ToolCallFormat, ToolChoice};
use crate::outputs::{CompletionOutput, RequestOutput};

/// A request with these fields beside the least.
fn body(fields: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "a"}], "max_tokens": 8});
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn read(fields: Value) -> AnthropicMessagesRequest {
    AnthropicMessagesRequest::from_json(body(fields)).unwrap()
}

#[test]
fn a_conversation_becomes_that_of_a_chat_request() {
    let request = read(json!({
        "system": [
            {"type": "text", "text": "Be", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": "brief."},
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "redacted_thinking", "data": "d"},
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}},
                {"type": "tool_use", "id": "toolu_2", "name": "g", "input": {}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "one"},
                {"type": "tool_result", "tool_use_id": "toolu_2", "is_error": true, "content": [
                    {"type": "text", "text": "no"}, {"type": "text", "text": "such"},
                ]},
                {"type": "text", "text": "Go on."},
            ]},
            {"role": "system", "content": "Soon."},
            {"role": "assistant", "content": "So"},
        ],
    }));
    let call = |id: &str, name: &str, arguments: Value| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    assert_eq!(
        Value::from(request.chat.messages.clone()),
        json!([
            {"role": "system", "content": "Be\nbrief."},
            {"role": "user", "content": "x\ny"},
            {"role": "assistant", "content": "Let me see.", "reasoning_content": "hm", "tool_calls": [
                call("toolu_1", "f", json!({"a": 1})), call("toolu_2", "g", json!({})),
            ]},
            {"role": "tool", "tool_call_id": "toolu_1", "content": "one"},
            {"role": "tool", "tool_call_id": "toolu_2", "content": "Error: no\nsuch"},
            {"role": "user", "content": "Go on."},
            {"role": "system", "content": "Soon."},
            {"role": "assistant", "content": "So"},
        ])
    );
    assert_eq!(
        request.places,
        [
            "system",
            "messages[0]",
            "messages[1]",
            "messages[2].content[0]",
            "messages[2].content[1]",
            "messages[2]",
            "messages[3]",
            "messages[4]",
        ]
    );
    // The answer goes on where the assistant stopped.
    assert!(request.chat.continue_final_message && !request.chat.add_generation_prompt);
    let told = request.chat.common.warnings.texts();
    let redacted =
        "messages[1].content[1] has no effect: only the server that wrote it can read it";
    assert_eq!(told, [redacted]);
    // Calls are not gone on with.
    let call = json!({"role": "assistant", "content": [
        {"type": "tool_use", "id": "1", "name": "f", "input": {}},
    ]});
    let request = read(json!({"messages": [call]}));
    assert!(!request.chat.continue_final_message && request.chat.add_generation_prompt);
    assert_eq!(request.chat.messages[0]["content"], Value::Null);
}

#[test]
fn sampling_and_calls_become_those_of_a_chat_request() {
    let tool = json!({
        "name": "f", "description": "d", "input_schema": {"type": "object"}, "strict": true,
        "cache_control": {"type": "ephemeral"}, "type": "custom", "eager_input_streaming": true,
    });
    let request = read(json!({
        "model": "m", "max_tokens": 7, "stop_sequences": ["x"], "temperature": 0.5, "top_p": 0.9,
        "top_k": 3, "stream": true, "metadata": {"user_id": null}, "service_tier": "standard_only",
        "tools": [tool], "tool_choice": {"type": "any", "disable_parallel_tool_use": true},
        "container": null, "mcp_servers": [],
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "cache_control": {"type": "ephemeral"}, "seed": 1,
    }));
    let common = &request.chat.common;
    assert_eq!(
        (common.max_tokens, common.top_k, common.seed),
        (Some(7), Some(3), Some(1))
    );
    assert_eq!((common.temperature, common.top_p), (Some(0.5), Some(0.9)));
    assert_eq!(
        (&common.stop[..], common.stream),
        (&["x".to_owned()][..], true)
    );
    assert_eq!(
        Value::from(request.chat.tools),
        json!([{"type": "function", "function": {
            "name": "f", "description": "d", "strict": true, "parameters": {"type": "object"},
        }}])
    );
    assert_eq!(request.chat.tool_choice, ToolChoice::Required);
    assert!(!request.chat.parallel_tool_calls);
    let choose = |choice: Value| {
        let tool = json!({"name": "f", "input_schema": {}});
        read(json!({"tools": [tool], "tool_choice": choice}))
            .chat
            .tool_choice
    };
    assert_eq!(choose(json!({"type": "auto"})), ToolChoice::Auto);
    assert_eq!(choose(json!({"type": "none"})), ToolChoice::None);
    assert_eq!(
        choose(json!({"type": "tool", "name": "f"})),
        ToolChoice::Named("f".to_owned())
    );
}

#[test]
fn thinking_is_an_effort_and_a_budget() {
    let read = |fields: Value| {
        let request = read(fields);
        let effort = request.chat.chat_template_kwargs.get("reasoning_effort");
        let effort = effort.and_then(Value::as_str).map(str::to_owned);
        (
            effort,
            request.thinking.token_budget,
            request.thinking.is_omitted,
        )
    };
    let effort = |effort: &str| Some(effort.to_owned());
    let enabled = json!({"type": "enabled", "budget_tokens": 9, "display": "omitted"});
    assert_eq!(read(json!({})), (None, None, false));
    assert_eq!(
        read(json!({"thinking": enabled})),
        (effort("high"), Some(9), true)
    );
    let adaptive = json!({"type": "adaptive", "display": "summarized"});
    assert_eq!(
        read(json!({"thinking": adaptive})),
        (effort("high"), None, false)
    );
    let low = json!({"effort": "low"});
    let both = json!({"thinking": adaptive, "output_config": low});
    assert_eq!(read(both), (effort("low"), None, false));
    let off = json!({"thinking": {"type": "disabled"}, "output_config": low});
    assert_eq!(read(off), (effort("none"), None, false));
    assert_eq!(
        read(json!({"output_config": low})),
        (effort("low"), None, false)
    );
}

#[test]
fn a_format_is_a_constraint_unless_a_call_is_forced() {
    let format = json!({"type": "json_schema", "schema": {"type": "object"}});
    for (fields, field) in [
        (
            json!({"output_config": {"format": format}}),
            "output_config.format.schema",
        ),
        (json!({"output_format": format}), "output_format.schema"),
    ] {
        let request = read(fields);
        let constraint = request.chat.common.constraint.unwrap();
        assert_eq!(constraint.params.constraint.kind(), "json");
        assert_eq!(request.words.of_field(&constraint.field), field);
    }
    let tool = json!({"name": "f", "input_schema": {}});
    let forced = read(json!({
        "tools": [tool], "tool_choice": {"type": "any"}, "output_config": {"format": format},
    }));
    assert_eq!(forced.chat.common.constraint, None);
}

#[test]
fn what_is_wrong_is_named_in_this_apis_words() {
    let message = |content: Value| json!({"messages": [{"role": "user", "content": content}]});
    let assistant = |block: Value| json!({"messages": [{"role": "assistant", "content": [block]}]});
    let tool = |tool: Value| json!({"tools": [tool]});
    let choice = |choice: Value| json!({"tools": [{"name": "f", "input_schema": {}}], "tool_choice": choice});
    let format = |format: Value| json!({"output_config": {"format": format}});
    for (fields, parameter, says) in [
        (json!({"messages": null}), "messages", "is missing"),
        (json!({"messages": []}), "messages", "at least one message"),
        (json!({"max_tokens": null}), "max_tokens", "is missing"),
        (json!({"max_tokens": 0}), "max_tokens", "from 1 to"),
        (json!({"system": 1}), "system", "a string or a list"),
        (
            json!({"system": [{"type": "image"}]}),
            "system[0]",
            "reads text only",
        ),
        (
            json!({"messages": [{"role": "x", "content": "a"}]}),
            "messages[0].role",
            "user, assistant or system",
        ),
        (
            json!({"messages": [{"role": "user", "content": "a", "name": "b"}]}),
            "messages[0].name",
            "unknown field",
        ),
        (
            message(json!(1)),
            "messages[0].content",
            "a string or a list",
        ),
        (
            message(json!([{"type": "text", "text": "a"}, {"type": "image", "source": {}}])),
            "messages[0].content[1]",
            "reads text only",
        ),
        (
            message(json!([{"type": "document"}])),
            "messages[0].content[0]",
            "reads text only",
        ),
        (
            message(json!([{"type": "text", "txt": "a"}])),
            "messages[0].content[0].txt",
            "did you mean `text`?",
        ),
        (
            message(json!([{"type": "text"}])),
            "messages[0].content[0].text",
            "is missing",
        ),
        (
            message(json!([{"type": "thinking", "thinking": "a"}])),
            "messages[0].content[0].type",
            "for messages of the assistant",
        ),
        (
            message(json!([{"type": "x"}])),
            "messages[0].content[0].type",
            "must be text, tool_use",
        ),
        (
            message(
                json!([{"type": "tool_result", "tool_use_id": "1", "content": [
                    {"type": "image"},
                ]}]),
            ),
            "messages[0].content[0].content[0]",
            "reads text only",
        ),
        (
            assistant(json!({"type": "tool_use", "id": "1", "name": "f", "input": "{}"})),
            "messages[0].content[0].input",
            "input",
        ),
        (
            assistant(json!({"type": "server_tool_use", "id": "1"})),
            "messages[0].content[0]",
            "no tools of its own",
        ),
        (
            assistant(json!({"type": "web_search_tool_result"})),
            "messages[0].content[0]",
            "no tools of its own",
        ),
        (
            tool(json!({"type": "web_search_20250305", "name": "web_search"})),
            "tools[0].type",
            "no tools of its own",
        ),
        (
            tool(json!({"name": "f"})),
            "tools[0].input_schema",
            "is missing",
        ),
        (
            tool(json!({"name": "f g", "input_schema": {}})),
            "tools[0].name",
            "1 to 64 letters",
        ),
        (
            tool(json!({"name": "f", "input_schema": {}, "parameters": {}})),
            "tools[0].parameters",
            "unknown field",
        ),
        (
            choice(json!({"type": "required"})),
            "tool_choice.type",
            "auto, any",
        ),
        (
            choice(json!({"type": "tool"})),
            "tool_choice.name",
            "is missing",
        ),
        (
            choice(json!({"type": "tool", "name": "g"})),
            "tool_choice",
            "none of the tools",
        ),
        (
            choice(json!({"type": "auto", "name": "f"})),
            "tool_choice.name",
            "unknown field",
        ),
        (
            json!({"tool_choice": {"type": "any"}}),
            "tool_choice",
            "needs tools",
        ),
        (
            json!({"thinking": {"type": "enabled"}}),
            "thinking.budget_tokens",
            "is missing",
        ),
        (
            json!({"thinking": {"type": "on"}}),
            "thinking.type",
            "enabled, adaptive",
        ),
        (
            json!({"thinking": {"type": "disabled", "budget_tokens": 1}}),
            "thinking.budget_tokens",
            "unknown field",
        ),
        (
            json!({"output_config": {"effort": "none"}}),
            "output_config.effort",
            "one of low",
        ),
        (
            format(json!({"type": "xml"})),
            "output_config.format.type",
            "json_schema",
        ),
        (
            format(json!({"type": "json_schema"})),
            "output_config.format.schema",
            "is missing",
        ),
        (
            format(json!({"type": "json_schema", "schema": {}, "name": "n"})),
            "output_config.format.name",
            "unknown field",
        ),
        (
            json!({"structured_outputs": {"regex": "a"}, "output_format":
                   {"type": "json_schema", "schema": {}}}),
            "output_format.schema",
            "multiple are specified: structured_outputs.regex, output_format.schema",
        ),
        (json!({"stop_sequences": "a"}), "stop_sequences", "a list"),
        (
            json!({"stop_sequences": vec!["a"; 129]}),
            "stop_sequences",
            "at most 128",
        ),
        (json!({"stop": ["a"]}), "stop", "use stop_sequences"),
        (
            json!({"response_format": {}}),
            "response_format",
            "use output_config.format",
        ),
        (
            json!({"mcp_servers": [{}]}),
            "mcp_servers",
            "call the MCP server yourself",
        ),
        (
            json!({"thread": {"type": "create"}}),
            "thread",
            "keeps nothing",
        ),
        (json!({"container": "c"}), "container", "runs no code"),
        (
            json!({"context_management": {"edits": [{}]}}),
            "context_management",
            "yourself",
        ),
        (json!({"n": 2}), "n", "several times"),
        (
            json!({"metadata": {"user_id": 1}}),
            "metadata.user_id",
            "a string",
        ),
        (
            json!({"stop_sequence": ["a"]}),
            "stop_sequence",
            "did you mean `stop_sequences`?",
        ),
        (
            json!({"guided_yaml": "a"}),
            "guided_yaml",
            " output_config.format, ",
        ),
    ] {
        let read = AnthropicMessagesRequest::from_json(body(fields.clone()));
        let error = read.expect_err(&fields.to_string());
        assert_eq!(error.parameter.as_deref(), Some(parameter), "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn counting_needs_no_limit() {
    let mut body = body(json!({}));
    body["max_tokens"] = Value::Null;
    let request = AnthropicCountTokensRequest::from_json(body.clone()).unwrap();
    assert_eq!(request.0.chat.messages.len(), 1);
    body["mesages"] = json!([]);
    assert!(AnthropicCountTokensRequest::from_json(body).is_err());
}

/// An answer under tools `f` and `g`, whole or in events.
fn answer(is_stream: bool) -> Answer {
    let response = AnthropicMessagesResponse {
        id: "msg_1".to_owned(),
        kind: "message",
        role: "assistant",
        model: "m".to_owned(),
        content: Vec::new(),
        end: Default::default(),
        usage: Default::default(),
        warnings: None,
    };
    let openings = Openings::new(ToolCallFormat::Hermes, ["f", "g"].into_iter());
    let answer = Answer::new(response, Some(openings), false);
    match is_stream {
        true => answer.in_events(),
        false => answer,
    }
}

fn output(completion: CompletionOutput) -> RequestOutput {
    RequestOutput {
        request_id: String::new(),
        prompt: None,
        prompt_token_ids: [1, 2, 3].into(),
        prompt_logprobs: None,
        finished: completion.finished(),
        outputs: vec![completion],
        num_cached_tokens: 2,
    }
}

fn text(text: &str) -> CompletionOutput {
    CompletionOutput {
        text: text.to_owned(),
        token_ids: vec![0; 2],
        ..CompletionOutput::default()
    }
}

/// The events that follow, without the calls' ids, which are random.
fn events(answer: &mut Answer) -> Vec<Value> {
    let events = answer.take_events().into_iter().map(|piece| {
        let mut event: Value = serde_json::from_str(&piece.data).unwrap();
        assert_eq!(piece.event, event["type"].as_str());
        if let Some(block) = event
            .get_mut("content_block")
            .and_then(Value::as_object_mut)
            && let Some(id) = block.remove("id")
        {
            assert!(id.as_str().unwrap().starts_with("toolu_"), "{id}");
        }
        event
    });
    events.collect()
}

#[test]
fn an_answer_is_told_in_blocks() {
    let mut answer = answer(true);
    answer.push(output(CompletionOutput {
        reasoning: Some("hm".to_owned()),
        num_reasoning_tokens: 2,
        ..text("")
    }));
    let usage = |output: u32, thinking: u32| {
        json!({
            "input_tokens": 3, "output_tokens": output, "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0, "output_tokens_details": {"thinking_tokens": thinking},
        })
    };
    let delta = |index: usize, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let start = |index: usize, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let stop = |index: usize| json!({"type": "content_block_stop", "index": index});
    assert_eq!(
        events(&mut answer),
        [
            json!({"type": "message_start", "message": {
                "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [],
                "stop_reason": null, "stop_sequence": null, "usage": usage(0, 0),
            }}),
            json!({"type": "ping"}),
            start(
                0,
                json!({"type": "thinking", "thinking": "", "signature": ""})
            ),
            delta(0, json!({"type": "thinking_delta", "thinking": "hm"})),
        ]
    );
    let thinks = |completion| CompletionOutput {
        num_reasoning_tokens: 2,
        ..completion
    };
    answer.push(output(thinks(text("Let"))));
    answer.push(output(thinks(text(
        " me.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":",
    ))));
    answer.push(output(CompletionOutput {
        finish_reason: Some(FinishReason::Stop),
        structured_output_complete: Some(true),
        ..thinks(text(" 1}}\n</tool_call>"))
    }));
    let signature = blake3::hash(b"hm").to_hex().to_string();
    assert_eq!(
        events(&mut answer),
        [
            delta(
                0,
                json!({"type": "signature_delta", "signature": signature})
            ),
            stop(0),
            start(1, json!({"type": "text", "text": ""})),
            delta(1, json!({"type": "text_delta", "text": "Let"})),
            delta(1, json!({"type": "text_delta", "text": " me."})),
            stop(1),
            start(2, json!({"type": "tool_use", "name": "f", "input": {}})),
            delta(
                2,
                json!({"type": "input_json_delta", "partial_json": "{\"a\":"})
            ),
            delta(
                2,
                json!({"type": "input_json_delta", "partial_json": " 1}"})
            ),
            stop(2),
            json!({
                "type": "message_delta", "usage": usage(8, 2),
                "delta": {"stop_reason": "tool_use", "stop_sequence": null},
            }),
            json!({"type": "message_stop"}),
        ]
    );
    let whole = serde_json::to_value(answer.into_response().unwrap()).unwrap();
    let mut content = whole["content"].clone();
    content[2].as_object_mut().unwrap().remove("id");
    assert_eq!(
        content,
        json!([
            {"type": "thinking", "thinking": "hm", "signature": signature},
            {"type": "text", "text": "Let me."},
            {"type": "tool_use", "name": "f", "input": {"a": 1}},
        ])
    );
    assert_eq!(
        (&whole["stop_reason"], &whole["usage"]),
        (&json!("tool_use"), &usage(8, 2))
    );
}

#[test]
fn an_end_has_its_reason() {
    let end = |completion: CompletionOutput| {
        let mut answer = answer(false).with_cached_tokens(true);
        answer.push(output(completion));
        answer.into_response().map(|response| {
            assert_eq!(response.usage.input_tokens, 1);
            assert_eq!(response.usage.cache_read_input_tokens, 2);
            serde_json::to_value(response).unwrap()
        })
    };
    let stopped = |reason, stop_reason| CompletionOutput {
        finish_reason: Some(reason),
        stop_reason,
        ..text("a")
    };
    let word = Some(StopReason::String("x".to_owned()));
    for (reason, stop, told, sequence) in [
        (FinishReason::Stop, None, "end_turn", Value::Null),
        (
            FinishReason::Stop,
            Some(StopReason::TokenId(1)),
            "end_turn",
            Value::Null,
        ),
        (FinishReason::Stop, word, "stop_sequence", json!("x")),
        (FinishReason::Length, None, "max_tokens", Value::Null),
        (FinishReason::Repetition, None, "end_turn", Value::Null),
    ] {
        let message = end(stopped(reason, stop)).unwrap();
        assert_eq!(message["stop_reason"], told);
        assert_eq!(message["stop_sequence"], sequence);
    }
    // A call that was cut off.
    let cut = CompletionOutput {
        structured_output_complete: Some(false),
        text: "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":".to_owned(),
        ..stopped(FinishReason::Length, None)
    };
    let message = end(cut).unwrap();
    assert_eq!(message["stop_reason"], "max_tokens");
    assert_eq!(message["structured_output_complete"], false);
    assert_eq!(message["content"][0]["input"], json!({}));
    for reason in [FinishReason::Abort, FinishReason::Error] {
        let error = end(stopped(reason, None)).unwrap_err().to_response().error;
        assert_eq!(error.code, 500);
        assert!(error.message.contains("ended early"), "{error:?}");
    }
}
