use serde_json::{Value, json};
use tokenizer::TemplateValue;

use super::*;
use crate::openai::ToolChoice;

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
fn neighbours_of_one_role_become_one_message() {
    let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "f", "input": {}});
    let result = |id: &str| json!({"type": "tool_result", "tool_use_id": id, "content": id});
    let request = read(json!({
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": "a"},
            {"role": "user", "content": ""},
            {"role": "user", "content": [{"type": "text", "text": "b"}]},
            {"role": "assistant", "content": [call("1")]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": ""},
                {"type": "text", "text": "c"}, call("2"),
            ]},
            {"role": "user", "content": [result("1")]},
            {"role": "user", "content": [result("2"), {"type": "text", "text": "d"}]},
            {"role": "user", "content": "e"},
            {"role": "assistant", "content": "f"},
            {"role": "assistant", "content": "g"},
        ],
    }));
    let function = json!({"name": "f", "arguments": {}});
    let call = |id: &str| json!({"id": id, "type": "function", "function": function});
    assert_eq!(
        Value::from(request.chat.messages.clone()),
        json!([
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "a\nb"},
            {"role": "assistant", "content": "c", "reasoning_content": "hm", "tool_calls": [call("1"), call("2")]},
            {"role": "tool", "tool_call_id": "1", "content": "1"},
            {"role": "tool", "tool_call_id": "2", "content": "2"},
            {"role": "user", "content": "d\ne"},
            {"role": "assistant", "content": "f\ng"},
        ])
    );
    assert_eq!(request.places.len(), 7);
    assert_eq!(request.places[5..], ["messages[6]", "messages[8]"]);
    assert!(request.chat.continue_final_message);
    // Calls are not gone on with, whatever follows them.
    let messages = json!([
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "1", "name": "f", "input": {}},
        ]},
        {"role": "assistant", "content": "So"},
    ]);
    let request = read(json!({"messages": messages}));
    assert!(!request.chat.continue_final_message);
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
        let effort = effort.and_then(TemplateValue::as_str);
        let effort = effort.map(str::to_owned);
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
            tool(json!({"name": "f", "input_schema": {}, "allowed_callers": ["code_execution"]})),
            "tools[0].allowed_callers",
            "must have \"direct\"",
        ),
        (
            tool(json!({"name": "f g", "input_schema": {}})),
            "tools[0].name",
            "1 to 128 letters",
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
            "tool_choice needs tools (got {\"type\":\"any\"})",
        ),
        (
            json!({"max_tokens": 0}),
            "max_tokens",
            "from 1 to 4294967295; an answer of no tokens isn't needed",
        ),
        (
            json!({"max_tokens": "x"}),
            "max_tokens",
            "from 1 to 4294967295 (got \"x\")",
        ),
        (
            json!({
                "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "{"}],
                "output_config": {"format": {"type": "json_schema", "schema": {}}},
            }),
            "output_config.format",
            "can't go with a last message of the assistant",
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
