//! `tools`: calls that a request asks for, and calls that the model may make.

use serde_json::{Value, json};

use super::support::{Server, chat};

const CHAT: &str = "/v1/chat/completions";

/// A function with arguments that a model can't guess to be right by chance.
fn weather_tool() -> Value {
    json!({"type": "function", "function": {"name": "weather", "parameters": {
        "type": "object",
        "properties": {"city": {"enum": ["Zug", "Ulm"]}, "days": {"$ref": "#/$defs/days"}},
        "required": ["city", "days"],
        "additionalProperties": false,
        "$defs": {"days": {"enum": [1, 3, 7]}},
    }}})
}

fn is_weather(arguments: &str) -> bool {
    let arguments: Value = serde_json::from_str(arguments).unwrap();
    let city = &arguments["city"];
    // 1.0 is 1 to a schema.
    let days = arguments["days"].as_f64().unwrap();
    arguments.as_object().unwrap().len() == 2
        && (city == "Zug" || city == "Ulm")
        && [1.0, 3.0, 7.0].contains(&days)
}

#[test]
fn calls_that_are_asked_for_are_valid() {
    let server = Server::shared();
    let mut body = chat("How is the weather?", 200);
    body["tools"] = json!([weather_tool()]);
    let named = json!({"type": "function", "function": {"name": "weather"}});
    for (choice, finish_reason) in [(named, "stop"), (json!("required"), "tool_calls")] {
        body["tool_choice"] = choice.clone();
        body["parallel_tool_calls"] = json!(false);
        body["stream"] = json!(false);
        let answer = server.post(CHAT, &body);
        assert_eq!(answer.status, 200, "{answer:?}");
        let whole = answer.json();
        let chosen = &whole["choices"][0];
        assert_eq!(chosen["finish_reason"], finish_reason, "{chosen}");
        assert_eq!(chosen["message"]["content"], Value::Null);
        let calls = chosen["message"]["tool_calls"].as_array().unwrap();
        assert_eq!(calls.len(), 1);
        assert_eq!(
            (&calls[0]["type"], &calls[0]["function"]["name"]),
            (&json!("function"), &json!("weather"))
        );
        let arguments = calls[0]["function"]["arguments"].as_str().unwrap();
        assert!(is_weather(arguments), "{arguments}");

        body["stream"] = json!(true);
        let mut streamed = String::new();
        let mut begun = 0;
        let mut last = Value::Null;
        for event in server.post(CHAT, &body).events() {
            let choice = &event["choices"][0];
            last = choice["finish_reason"].clone();
            for call in choice["delta"]["tool_calls"]
                .as_array()
                .into_iter()
                .flatten()
            {
                assert_eq!(call["index"], 0);
                begun += usize::from(call["function"]["name"] == "weather");
                assert_eq!(call["id"].is_string(), call["function"]["name"].is_string());
                streamed.push_str(call["function"]["arguments"].as_str().unwrap());
            }
        }
        assert_eq!(
            (begun, streamed.as_str(), &last),
            (1, arguments, &json!(finish_reason))
        );
    }
}

/// A question that the built-in model answers with a call.
fn asks_for_weather() -> Value {
    let parameters = json!({
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
    });
    let function = json!({
        "name": "get_weather", "description": "Get the weather of a city",
        "parameters": parameters,
    });
    let mut body = chat("What is the weather in Lisbon?", 160);
    body["tools"] = json!([{"type": "function", "function": function}]);
    body
}

#[test]
fn the_model_calls_where_it_wants_to() {
    let server = Server::shared();
    let mut body = asks_for_weather();
    let whole = server.post(CHAT, &body).json();
    let choice = &whole["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{choice}");
    assert_eq!(choice["message"]["content"], Value::Null);
    let function = &choice["message"]["tool_calls"][0]["function"];
    assert_eq!(
        function,
        &json!({"name": "get_weather", "arguments": "{\"city\": \"Lisbon\"}"})
    );
    body["stream"] = json!(true);
    let events = server.post(CHAT, &body).events();
    let mut arguments = String::new();
    for event in &events {
        let delta = &event["choices"][0]["delta"];
        assert!(
            delta["content"].as_str().is_none_or(str::is_empty),
            "{delta}"
        );
        let piece = &delta["tool_calls"][0]["function"]["arguments"];
        arguments.push_str(piece.as_str().unwrap_or_default());
    }
    assert_eq!(arguments, "{\"city\": \"Lisbon\"}");
    let last = events.last().unwrap();
    assert_eq!(last["choices"][0]["finish_reason"], "tool_calls");
    // Text stays text.
    let mut body = asks_for_weather();
    body["messages"][0]["content"] = json!("Hello, what is Formwork?");
    let choice = server.post(CHAT, &body).json()["choices"][0].clone();
    assert_eq!(choice["finish_reason"], "stop");
    assert!(choice["message"].get("tool_calls").is_none(), "{choice}");
}

#[test]
fn tools_that_may_not_be_called_are_not_shown() {
    let without = Server::shared();
    let shown = Server::start(&["--no-exclude-tools-when-tool-choice-none"]);
    let mut body = asks_for_weather();
    body["tool_choice"] = json!("none");
    let mut bare = body.clone();
    bare.as_object_mut().unwrap().remove("tools");
    let answers = [(without, &body), (&shown, &bare)];
    let [answer, expected] = answers.map(|(server, body)| server.post(CHAT, body).json());
    // What the model says where it knows of no tools.
    assert_eq!(answer["choices"], expected["choices"]);
    assert_eq!(answer["usage"], expected["usage"]);
    let message = &answer["choices"][0]["message"];
    assert!(message.get("tool_calls").is_none(), "{message}");
    let content = message["content"].as_str().unwrap();
    assert!(!content.contains("<tool_call>"), "{content}");
    // Where they are shown, markup is text.
    let answer = shown.post(CHAT, &body).json();
    let message = &answer["choices"][0]["message"];
    assert!(message.get("tool_calls").is_none(), "{message}");
    let content = message["content"].as_str().unwrap();
    assert!(content.starts_with("<tool_call>"), "{content}");
    // The tokens of a prompt are counted as it would be.
    let tokenize = |server: &Server, choice: &str| {
        let mut body = json!({"messages": body["messages"], "tools": body["tools"]});
        body["tool_choice"] = json!(choice);
        server.post("/tokenize", &body).json()["count"].as_u64()
    };
    assert!(tokenize(without, "none") < tokenize(without, "auto"));
    assert_eq!(tokenize(&shown, "none"), tokenize(&shown, "auto"));
}

#[test]
fn a_call_that_is_begun_is_finished_within_every_limit() {
    let server = Server::shared();
    let full = server.post(CHAT, &asks_for_weather()).json();
    let tokens = full["usage"]["completion_tokens"].as_u64().unwrap();
    let (mut num_without, mut num_led) = (0, 0);
    for max_tokens in 1..tokens {
        let mut body = asks_for_weather();
        body["max_tokens"] = json!(max_tokens);
        let choice = server.post(CHAT, &body).json()["choices"][0].clone();
        let message = &choice["message"];
        assert_eq!(message["content"].as_str().unwrap_or_default(), "");
        assert_eq!(choice["structured_output_complete"], true, "{choice}");
        match message["tool_calls"].as_array() {
            // There is no room for the shortest call, and the limit is what ended the answer.
            None => {
                assert_eq!(choice["finish_reason"], "length", "{max_tokens}: {choice}");
                assert_eq!(num_led, 0, "{max_tokens}: {choice}");
                num_without += 1;
            }
            Some(calls) => {
                let arguments = calls[0]["function"]["arguments"].as_str().unwrap();
                let arguments: Value = serde_json::from_str(arguments).unwrap();
                assert!(arguments["city"].is_string(), "{max_tokens}: {arguments}");
                num_led += 1;
            }
        }
        body["stream"] = json!(true);
        let last = server.post(CHAT, &body).events().pop().unwrap()["choices"][0].take();
        assert_eq!(last["finish_reason"], choice["finish_reason"]);
    }
    assert!(num_without > 5 && num_led > 1, "{num_without} {num_led}");
}

#[test]
fn only_allowed_tools_are_called() {
    let server = Server::shared();
    let other = json!({"type": "function", "function": {"name": "get_time"}});
    let mut body = asks_for_weather();
    let tools = body["tools"].as_array_mut().unwrap();
    tools.push(other.clone());
    let mut ask = |mode: &str, names: &[&str]| {
        let named = |name: &&str| json!({"type": "function", "function": {"name": name}});
        let tools: Vec<Value> = names.iter().map(named).collect();
        let allowed = json!({"mode": mode, "tools": tools});
        body["tool_choice"] = json!({"type": "allowed_tools", "allowed_tools": allowed});
        server.post(CHAT, &body)
    };
    let called = |answer: &Value| {
        let calls = answer["choices"][0]["message"]["tool_calls"].as_array();
        calls.map(|calls| calls[0]["function"]["name"].clone())
    };
    assert_eq!(
        called(&ask("auto", &["get_weather"]).json()),
        Some(json!("get_weather"))
    );
    // What the model would rather call isn't allowed.
    assert_ne!(
        called(&ask("auto", &["get_time"]).json()),
        Some(json!("get_weather"))
    );
    assert_eq!(
        called(&ask("required", &["get_time"]).json()),
        Some(json!("get_time"))
    );
    let error = ask("auto", &["get_stone"]).error();
    assert_eq!(error["param"], "tool_choice.allowed_tools.tools[0]");
    let tools = json!([{"type": "function", "name": "a"}, {"type": "function", "name": "b"}]);
    let allowed = |name: &str| {
        json!({"type": "allowed_tools", "mode": "required",
            "tools": [{"type": "function", "name": name}]})
    };
    let mut body = json!({"input": "Hi", "tools": tools, "tool_choice": allowed("b")});
    let answer = server.post("/v1/responses", &body).json();
    assert_eq!(answer["output"][0]["name"], "b", "{answer}");
    body["tool_choice"] = allowed("c");
    let error = server.post("/v1/responses", &body).error();
    assert_eq!(error["param"], "tool_choice.tools[0]", "{error}");
}

#[test]
fn a_call_that_can_not_be_complete_is_refused() {
    let server = Server::shared();
    let mut body = chat("How is the weather?", 3);
    body["tools"] = json!([weather_tool()]);
    body["tool_choice"] = json!("required");
    let refused = |body: &Value, param: &str| {
        let error = server.post(CHAT, body).error();
        assert_eq!(
            (&error["code"], &error["param"]),
            (&json!(400), &json!(param))
        );
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("leaves 3: raise max_tokens"), "{message}");
    };
    refused(&body, "tools[0].function.parameters");
    let other = json!({"type": "function", "function": {"name": "stop"}});
    body["tools"].as_array_mut().unwrap().push(other);
    refused(&body, "tools");
}

/// The number that a request is told at first is the one that it needs, whatever it has.
#[test]
fn the_shortest_answer_is_told_at_once() {
    // Of its own: a search that others' grammars leave no memory for gives up.
    let server = Server::start(&[]);
    let function = |name: &str, parameters: Value| json!({"type": "function", "function": {"name": name, "parameters": parameters}});
    let ticker = json!({
        "type": "object", "required": ["ticker", "unit"],
        "properties": {
            "ticker": {"type": "string", "pattern": "^[A-Z]{3,5}$"},
            "unit": {"enum": ["euro", "dollar"]},
        },
    });
    for fields in [
        json!({"tools": [weather_tool()], "tool_choice": "required"}),
        json!({"tools": [function("get_stock_price", ticker)], "tool_choice": "required"}),
        json!({"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "required"}),
        json!({"guided_json": {"type": "string", "minLength": 40}}),
        json!({"guided_regex": "(abc){9}"}),
    ] {
        let ask = |max_tokens: u64| {
            let mut body = json!({"messages": [{"role": "user", "content": "Hi"}]});
            body["max_tokens"] = json!(max_tokens);
            for (name, value) in fields.as_object().unwrap() {
                body[name] = value.clone();
            }
            server.post(CHAT, &body)
        };
        let told = |max_tokens: u64| -> u64 {
            let error = ask(max_tokens).error();
            let message = error["message"].as_str().unwrap();
            let (_, after) = message.split_once("is sure to fit in ").unwrap();
            after.split(' ').next().unwrap().parse().unwrap()
        };
        let needed = told(1);
        for max_tokens in 2..needed {
            assert_eq!(told(max_tokens), needed, "{max_tokens}: {fields}");
        }
        let answer = ask(needed);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(
            answer.json()["choices"][0]["structured_output_complete"],
            true
        );
    }
}

/// Names of `--tool-call-parser`, each of another format.
const PARSERS: [&str; 20] = [
    "hermes",
    "llama3_json",
    "llama4_pythonic",
    "pythonic",
    "mistral",
    "mistral_args",
    "mistral_call_id",
    "qwen3_coder",
    "seed_oss",
    "deepseek_v3",
    "deepseek_v31",
    "deepseek_v32",
    "glm45",
    "glm47",
    "kimi_k2",
    "minimax",
    "minimax_m2",
    "phi4_mini_json",
    "openai",
    "list",
];

/// Every format of calls, as a whole answer and as a stream: the same valid calls, and no markup.
#[test]
fn calls_are_the_same_in_every_format() {
    // The built-in model's template knows one format; the flag stands for other models'.
    for parser in PARSERS {
        let server = Server::start(&["--tool-call-parser", parser]);
        let mut body = chat("How is the weather?", 300);
        body["tools"] = json!([weather_tool(), {"type": "function", "function": {"name": "stop"}}]);
        for parallel in [true, false] {
            for choice in ["required", "auto"] {
                body["tool_choice"] = json!(choice);
                body["parallel_tool_calls"] = json!(parallel);
                body["stream"] = json!(false);
                let whole = server.post(CHAT, &body).json()["choices"][0].take();
                body["stream"] = json!(true);
                let (mut content, mut calls) = (String::new(), Vec::<Value>::new());
                for event in server.post(CHAT, &body).events() {
                    let delta = &event["choices"][0]["delta"];
                    content.push_str(delta["content"].as_str().unwrap_or_default());
                    for piece in delta["tool_calls"].as_array().into_iter().flatten() {
                        let index = piece["index"].as_u64().unwrap() as usize;
                        let function = &piece["function"];
                        if function["name"].is_string() {
                            assert_eq!(index, calls.len(), "{piece}");
                            calls.push(function.clone());
                            continue;
                        }
                        let text = calls[index]["arguments"].as_str().unwrap().to_owned();
                        let more = function["arguments"].as_str().unwrap();
                        calls[index]["arguments"] = json!(text + more);
                    }
                }
                let message = &whole["message"];
                assert_eq!(message["content"].as_str().unwrap_or_default(), content);
                let expected = message["tool_calls"]
                    .as_array()
                    .cloned()
                    .unwrap_or_default();
                let expected: Vec<Value> = expected
                    .iter()
                    .map(|call| call["function"].clone())
                    .collect();
                assert_eq!(calls, expected, "{parser} {choice}");
                assert!(parallel || calls.len() <= 1, "{parser}: {calls:?}");
                assert_eq!(whole["structured_output_complete"], true, "{whole}");
                if choice == "required" {
                    assert!(!calls.is_empty() && content.is_empty(), "{parser}: {whole}");
                }
                for call in &calls {
                    let arguments = call["arguments"].as_str().unwrap();
                    match call["name"].as_str().unwrap() {
                        "weather" => assert!(is_weather(arguments), "{arguments}"),
                        name => {
                            let arguments: Value = serde_json::from_str(arguments).unwrap();
                            assert_eq!((name, arguments), ("stop", json!({})));
                        }
                    }
                }
            }
        }
    }
}

/// White space around a tag's text is none of a string that a schema restricts, however it does.
#[test]
fn restricted_strings_are_valid_where_arguments_are_tags() {
    let schema = json!({
        "type": "object", "additionalProperties": false, "required": ["day", "code", "word", "name"],
        "properties": {
            "day": {"type": "string", "format": "date"},
            "code": {"allOf": [{"type": "string", "minLength": 3}, {"maxLength": 5}]},
            "word": {"oneOf": [{"type": "string", "pattern": "^[a-z]{2}$"}, {"const": "none"}]},
            "name": {"$ref": "#/$defs/text", "maxLength": 4},
        },
        "patternProperties": {"^key_": {"type": "string", "maxLength": 3}},
        "$defs": {"text": {"type": "string"}},
    });
    let options = jsonschema::options();
    let validator = (options.should_validate_formats(true).build(&schema)).unwrap();
    let function = json!({"name": "f", "parameters": schema});
    for parser in [
        "qwen3_coder",
        "seed_oss",
        "glm45",
        "glm47",
        "minimax_m2",
        "deepseek_v32",
    ] {
        let server = Server::start(&["--tool-call-parser", parser]);
        let mut body = chat("Call it.", 300);
        body["tools"] = json!([{"type": "function", "function": function}]);
        body["tool_choice"] = json!("required");
        body["parallel_tool_calls"] = json!(false);
        body["temperature"] = json!(1.5);
        for seed in 0..10 {
            body["seed"] = json!(seed);
            let answer = server.post(CHAT, &body).json();
            let call = &answer["choices"][0]["message"]["tool_calls"][0];
            let arguments = call["function"]["arguments"].as_str().unwrap();
            let arguments: Value = serde_json::from_str(arguments).unwrap();
            assert!(validator.is_valid(&arguments), "{parser}: {arguments}");
        }
    }
}

/// A format that only its file knows.
#[test]
fn a_format_may_come_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("format.json");
    let format = json!({
        "names": ["mine"], "position": "end", "begin": ["<calls>"], "end": ["</calls>"],
        "call": ["({name} #{index}) {arguments}</call>"], "separator": "\n", "arguments": "qwen_xml",
        "id": "{name}-{index}",
    });
    std::fs::write(&file, format.to_string()).unwrap();
    let server = Server::start(&["--tool-format-file", file.to_str().unwrap()]);
    let mut body = chat("How is the weather?", 300);
    body["tools"] = json!([weather_tool()]);
    body["tool_choice"] = json!("required");
    body["parallel_tool_calls"] = json!(false);
    let answer = server.post(CHAT, &body).json()["choices"][0].take();
    assert_eq!(answer["finish_reason"], "tool_calls", "{answer}");
    let call = &answer["message"]["tool_calls"][0];
    let id = call["id"].as_str().unwrap();
    let number = id.strip_prefix("weather-").unwrap();
    assert!(number.parse::<u32>().is_ok(), "{id}");
    assert!(
        is_weather(call["function"]["arguments"].as_str().unwrap()),
        "{call}"
    );
}
