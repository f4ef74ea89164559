use std::fmt::Write;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;

/// The names of the formats that models have, each once.
pub(in crate::openai) const FORMATS: [&str; 19] = [
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
];

/// Calls as the chat templates of a format's models write them: written out by hand, and not by the
/// format's data.
pub(in crate::openai) fn written(format: &str, calls: &[(&str, Value)]) -> String {
    let json_call = |key: &str, (name, arguments): &(&str, Value)| {
        format!("{{\"name\": \"{name}\", \"{key}\": {arguments}}}")
    };
    let listed = |key: &str, separator: &str| {
        let calls = calls.iter().map(|call| json_call(key, call));
        calls.collect::<Vec<_>>().join(separator)
    };
    let each = |separator: &str, write: &dyn Fn(usize, &str, &Value) -> String| {
        let calls = calls.iter().enumerate();
        let calls = calls.map(|(i, (name, arguments))| write(i, name, arguments));
        calls.collect::<Vec<_>>().join(separator)
    };
    match format {
        "hermes" => each("\n", &|i, _, _| {
            format!(
                "<tool_call>\n{}\n</tool_call>",
                json_call("arguments", &calls[i])
            )
        }),
        "llama3_json" => listed("parameters", "; "),
        "list" => format!("[{}]", listed("parameters", ", ")),
        "mistral" => format!("[TOOL_CALLS] [{}]", listed("arguments", ", ")),
        "mistral_args" => each("", &|_, name, arguments| {
            format!("[TOOL_CALLS]{name}[ARGS]{arguments}")
        }),
        "mistral_call_id" => each("", &|i, name, arguments| {
            format!("[TOOL_CALLS]{name}[CALL_ID]abcDEF12{i}[ARGS]{arguments}")
        }),
        "minimax" => format!("<tool_calls>\n{}\n</tool_calls>", listed("arguments", "\n")),
        "phi4_mini_json" => format!("functools[{}]", listed("arguments", ", ")),
        "deepseek_v3" => {
            let calls = each("\n", &|_, name, arguments| {
                format!(
                    "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{arguments}\n```\
                     <｜tool▁call▁end｜>"
                )
            });
            format!("<｜tool▁calls▁begin｜>{calls}<｜tool▁calls▁end｜>")
        }
        "deepseek_v31" => {
            let calls = each("", &|_, name, arguments| {
                format!("<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜>")
            });
            format!("<｜tool▁calls▁begin｜>{calls}<｜tool▁calls▁end｜>")
        }
        "kimi_k2" => {
            let calls = each("", &|i, name, arguments| {
                format!(
                    "<|tool_call_begin|>functions.{name}:{i}<|tool_call_argument_begin|>{arguments}\
                     <|tool_call_end|>"
                )
            });
            format!("<|tool_calls_section_begin|>{calls}<|tool_calls_section_end|>")
        }
        "openai" => each("", &|_, name, arguments| {
            format!(" to=functions.{name}<|channel|>commentary json<|message|>{arguments}<|call|>")
        }),
        "qwen3_coder" | "seed_oss" => {
            let tag = if format == "seed_oss" {
                "seed:tool_call"
            } else {
                "tool_call"
            };
            each("\n", &|_, name, arguments| {
                let parameters = tags(arguments, |name, value| {
                    format!("<parameter={name}>\n{value}\n</parameter>\n")
                });
                format!("<{tag}>\n<function={name}>\n{parameters}</function>\n</{tag}>")
            })
        }
        "glm45" => each("\n", &|_, name, arguments| {
            let parameters = tags(arguments, |name, value| {
                format!("\n<arg_key>{name}</arg_key>\n<arg_value>{value}</arg_value>")
            });
            format!("<tool_call>{name}{parameters}\n</tool_call>")
        }),
        "glm47" => each("", &|_, name, arguments| {
            let parameters = tags(arguments, |name, value| {
                format!("<arg_key>{name}</arg_key><arg_value>{value}</arg_value>")
            });
            format!("<tool_call>{name}{parameters}</tool_call>")
        }),
        "minimax_m2" => {
            let calls = each("\n", &|_, name, arguments| {
                let parameters = tags(arguments, |name, value| {
                    format!("<parameter name=\"{name}\">{value}</parameter>\n")
                });
                format!("<invoke name=\"{name}\">\n{parameters}</invoke>")
            });
            format!("<minimax:tool_call>\n{calls}\n</minimax:tool_call>")
        }
        "deepseek_v32" => {
            let calls = each("\n", &|_, name, arguments| {
                let members = arguments.as_object().unwrap().iter();
                let parameters = members.map(|(name, value)| {
                    let is_string = value.is_string();
                    let value = plain(value);
                    format!(
                        "<｜DSML｜parameter name=\"{name}\" string=\"{is_string}\">{value}</｜DSML｜parameter>\n"
                    )
                });
                let parameters: String = parameters.collect();
                format!("<｜DSML｜invoke name=\"{name}\">\n{parameters}</｜DSML｜invoke>")
            });
            format!("<｜DSML｜function_calls>\n{calls}\n</｜DSML｜function_calls>")
        }
        "pythonic" | "llama4_pythonic" => {
            let calls = each(", ", &|_, name, arguments| {
                let members = arguments.as_object().unwrap().iter();
                let members = members.map(|(name, value)| format!("{name}={}", python(value)));
                format!("{name}({})", members.collect::<Vec<_>>().join(", "))
            });
            format!("[{calls}]")
        }
        other => panic!("no format {other}"),
    }
}

fn tags(arguments: &Value, tag: impl Fn(&str, String) -> String) -> String {
    let members = arguments.as_object().unwrap().iter();
    members
        .map(|(name, value)| tag(name, plain(value)))
        .collect()
}

/// A string as it stands, all else as JSON.
fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// A value as Python's `repr` has it, but for the quotes of strings.
fn python(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(is_so) => if *is_so { "True" } else { "False" }.to_owned(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(python).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(members) => {
            let members = members.iter();
            let members = members.map(|(name, of)| format!("{}: {}", json!(name), python(of)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

#[test]
fn every_file_is_right() {
    for text in BUILTIN_FILES {
        let format = ToolCallFormat::from_json(text);
        assert!(format.is_ok(), "{format:?}: {text}");
    }
    let mut names: Vec<&str> = ToolCallFormat::names().collect();
    for name in FORMATS {
        assert!(names.contains(&name), "{name}");
    }
    let number = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), number, "a name stands for one format");
    assert!(ToolCallFormat::fallback().is_some());
}

#[test]
fn names_are_vllms() {
    for name in ["llama4_json", "qwen3_xml", "glm47", "openai"] {
        assert!(ToolCallFormat::from_name(name).is_ok(), "{name}");
    }
    let error = ToolCallFormat::from_name("hermse").unwrap_err();
    assert!(error.contains("hermes"), "{error}");
}

#[test]
fn formats_are_known_by_their_templates() {
    for (template, name) in [
        ("<tool_call>\\n{}</tool_call>", "hermes"),
        ("<tool_call>\\n<function=f>\\n<parameter=a>", "qwen3_coder"),
        (
            "<seed:tool_call>\\n<function=f>\\n<parameter=a>",
            "seed_oss",
        ),
        ("\\n<tool_call>f\\n<arg_key>a</arg_key>", "glm45"),
        ("<tool_call>f<arg_key>a</arg_key>", "glm47"),
        ("{{ '<|python_tag|>' }} \"parameters\": ", "llama3_json"),
        (
            "[func_name1(param1=value1, param2=value2)]",
            "llama4_pythonic",
        ),
        ("[func_name1(params_name1=params_value1)]", "pythonic"),
        ("[TOOL_CALLS] [", "mistral"),
        ("[TOOL_CALLS]f[ARGS]", "mistral_args"),
        ("[TOOL_CALLS]f[CALL_ID]i[ARGS]", "mistral_call_id"),
        (
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function\\n```json",
            "deepseek_v3",
        ),
        (
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>",
            "deepseek_v31",
        ),
        ("<｜DSML｜function_calls>", "deepseek_v32"),
        ("<|tool_calls_section_begin|>", "kimi_k2"),
        ("created by MiniMax <tool_calls>\\n", "minimax"),
        ("<minimax:tool_call>", "minimax_m2"),
        ("functools[", "phi4_mini_json"),
        (
            "<|start|>assistant to=functions.<|channel|>commentary",
            "openai",
        ),
    ] {
        let template = ChatTemplate::new(template, Vec::new()).unwrap();
        let found = ToolCallFormat::of_template(&template);
        assert_eq!(found, ToolCallFormat::from_name(name).ok(), "{name}");
    }
    // A plain one, MiniMax M3's, Apriel 1.5's.
    for other in [
        "{{ messages }}",
        "]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke",
        "<tool_calls>[{}]</tool_calls>, not <tool_call>",
    ] {
        let template = ChatTemplate::new(other, Vec::new()).unwrap();
        assert_eq!(ToolCallFormat::of_template(&template), None, "{other}");
    }
}

/// A file of one's own, with some fields changed.
fn file(changes: &Value) -> String {
    let mut file = json!({
        "names": ["mine"], "position": "anywhere", "arguments": "json",
        "call": ["<call>{name} {arguments}</call>"],
    });
    for (field, value) in changes.as_object().unwrap() {
        file[field] = value.clone();
    }
    file.to_string()
}

#[test]
fn a_file_of_ones_own_is_read() {
    let format = ToolCallFormat::from_json(&file(&json!({}))).unwrap();
    assert_eq!(format.trigger, ["<call>"]);
    assert_eq!(format.position, Position::Anywhere);
    let listed =
        json!({"position": "end", "begin": ["<calls>"], "end": ["</calls>"], "separator": ";"});
    let format = ToolCallFormat::from_json(&file(&listed)).unwrap();
    assert_eq!(format.trigger, ["<calls>"]);
    let whole = json!({"position": "whole", "begin": ["", "!"]});
    let format = ToolCallFormat::from_json(&file(&whole)).unwrap();
    assert_eq!(format.trigger, ["!<call>{name} ", "<call>{name} "]);
}

#[test]
fn what_is_wrong_with_a_file_is_named() {
    for (changes, says) in [
        (json!({"nmaes": ["a"]}), "nmaes"),
        (json!({"names": []}), "`names` is empty"),
        (json!({"call": []}), "`call` is empty"),
        (json!({"position": "middle"}), "middle"),
        (json!({"arguments": "yaml"}), "yaml"),
        (
            json!({"call": ["<call>{arguments}"]}),
            "`call[0]` must have {name} once",
        ),
        (
            json!({"call": ["<call>{name}"]}),
            "`call[0]` must have {arguments} once",
        ),
        (
            json!({"call": ["<c>{name}{name}{arguments}"]}),
            "must have {name} once",
        ),
        (
            json!({"call": ["<c>{arguments}{name}"]}),
            "must have {arguments} once",
        ),
        (
            json!({"call": ["<c>{name}_{arguments}"]}),
            "nobody knows where a name ends",
        ),
        (
            json!({"call": ["<c>{name}:{index}1{arguments}"]}),
            "where a number ends",
        ),
        (
            json!({"call": ["{name} {arguments}"]}),
            "`call` begins with {name}",
        ),
        (
            json!({"arguments": "python"}),
            "must have `)` behind {arguments}",
        ),
        (
            json!({"arguments": "glm_xml", "call": ["<c>{name}{arguments}\n"]}),
            "by which they end",
        ),
        (json!({"begin": ["<calls>"]}), "`begin` has \"<calls>\""),
        (json!({"end": ["</calls>"]}), "`end` has \"</calls>\""),
        (
            json!({"arguments": "qwen_xml", "call": ["<c>{name}{arguments}<par"]}),
            "which <parameter= doesn't begin with",
        ),
        (json!({"separator": "; "}), "`separator` is \"; \""),
        (json!({"position": "end"}), "`trigger` has an empty text"),
        (
            json!({"trigger": ["<tool>"]}),
            "`trigger` must have one text with which \"<call>\" begins",
        ),
        (json!({"trigger": ["<call>", "<c"]}), "no more and no fewer"),
        (
            json!({"text": "<text>"}),
            "`text` needs the `position` \"whole\"",
        ),
    ] {
        let error = ToolCallFormat::from_json(&file(&changes)).unwrap_err();
        assert!(error.contains(says), "{changes}: {error}");
    }
    let error = ToolCallFormat::from_json("{\"names\": [\"a\"]").unwrap_err();
    assert_eq!(error, "EOF while parsing an object at column 15");
}

/// Values of a property, and its schema.
fn arb_property() -> impl Strategy<Value = (Value, Value)> {
    let text = "[ -~\n\u{e9}\u{4e16}]{0,12}";
    let text = text.prop_filter("what ends a value", |text| {
        // White space around strings that share their tag with numbers isn't theirs.
        !text.contains("</") && serde_json::from_str::<Value>(text.trim()).is_err()
    });
    prop_oneof![
        text.prop_map(|text| (json!({"type": "string"}), Value::from(text))),
        any::<i32>().prop_map(|n| (json!({"type": "integer"}), Value::from(n))),
        any::<bool>().prop_map(|is_so| (json!({"type": "boolean"}), Value::from(is_so))),
        prop_oneof![Just(json!("celsius")), Just(json!(3)), Just(json!(null))]
            .prop_map(|value| (json!({"enum": ["celsius", 3, null, "3 degrees"]}), value)),
        "[a-z]{3,6}".prop_map(|text| (json!({"type": "string", "minLength": 3}), Value::from(text))),
        any::<u8>().prop_map(|n| (json!({"type": ["string", "integer"]}), Value::from(n))),
        "[a-z]{1,6}".prop_map(|text| (json!({"type": ["string", "integer"]}), Value::from(text))),
        "[a-z]{1,6}".prop_map(|text| {
            (json!({"anyOf": [{"type": "string"}, {"type": "boolean"}]}), Value::from(text))
        }),
        proptest::collection::vec(any::<bool>(), 0..3).prop_map(|list| {
            (json!({"type": "array", "items": {"type": "boolean"}}), Value::from(list))
        }),
        ("[a-z</\"\\\\]{0,6}", any::<Option<u8>>()).prop_map(|(text, n)| {
            let schema = json!({
                "type": "object", "properties": {"t": {"type": "string"}, "n": {"type": ["integer", "null"]}},
                "required": ["t", "n"], "additionalProperties": false,
            });
            (schema, json!({"t": text, "n": n}))
        }),
    ]
}

/// The schema of a function, and arguments that meet it.
pub(in crate::openai) fn arb_function() -> impl Strategy<Value = (Value, Value)> {
    proptest::collection::vec((arb_property(), any::<bool>()), 0..5).prop_map(|properties| {
        let (mut schemas, mut values, mut required) = (Map::new(), Map::new(), Vec::new());
        for (i, ((schema, value), is_there)) in properties.into_iter().enumerate() {
            let mut name = String::new();
            write!(name, "p{i}").unwrap();
            schemas.insert(name.clone(), schema);
            if is_there {
                required.push(name.clone());
                values.insert(name, value);
            }
        }
        let schema = json!({
            "type": "object", "properties": schemas, "required": required,
            "additionalProperties": false,
        });
        (schema, Value::Object(values))
    })
}
