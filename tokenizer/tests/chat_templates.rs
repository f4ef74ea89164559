//! Chat templates against what Hugging Face's own library renders.
//!
//! `chat_templates/cases.json` holds conversations and the expected prompts, made with the
//! version of `transformers` that it names. Templates under `tokenizers/` are published
//! tokenizers' own, from the shared test data.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::time::{Duration, UNIX_EPOCH};

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokenizer::{
    ChatTemplate, ChatTemplateError, ChatTemplateRequest, TemplateMessage, TemplateValue,
    TemplateVariables, Tokenizer,
};

#[derive(Deserialize)]
struct Cases {
    /// What `strftime_now` took for now, in seconds since 1970.
    now: u64,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    template: String,
    #[serde(default)]
    special_tokens: Map<String, Value>,
    messages: Vec<Value>,
    tools: Option<Value>,
    #[serde(default)]
    add_generation_prompt: bool,
    chat_template_kwargs: Option<Map<String, Value>>,
    expected: Option<String>,
    raises: Option<String>,
}

#[test]
fn equal_what_transformers_renders() {
    let cases: Cases = serde_json::from_str(include_str!("chat_templates/cases.json")).unwrap();
    for case in &cases.cases {
        let tools = case.tools.clone().map(TemplateValue::from);
        let kwargs = case.chat_template_kwargs.clone();
        let kwargs = kwargs.map(TemplateVariables::from);
        let request = ChatTemplateRequest {
            messages: &TemplateMessage::list(case.messages.clone()).unwrap(),
            tools: tools.as_ref(),
            add_generation_prompt: case.add_generation_prompt,
            chat_template_kwargs: kwargs.as_ref(),
            now: Some(UNIX_EPOCH + Duration::from_secs(cases.now)),
            ..ChatTemplateRequest::default()
        };
        let rendered = match case.template.starts_with("tokenizers/") {
            true => match common::named(&case.template) {
                Some(loaded) => loaded.tokenizer.apply_chat_template(&request),
                None => continue,
            },
            false => {
                let source = match case.template.as_str() {
                    "tools_and_date.jinja" => include_str!("chat_templates/tools_and_date.jinja"),
                    "alternating.jinja" => include_str!("chat_templates/alternating.jinja"),
                    "thinking.jinja" => include_str!("chat_templates/thinking.jinja"),
                    "python.jinja" => include_str!("chat_templates/python.jinja"),
                    other => panic!("{other} has no line here"),
                };
                let special_tokens = case
                    .special_tokens
                    .iter()
                    .map(|(name, token)| (name.clone(), token.as_str().unwrap().to_owned()))
                    .collect();
                ChatTemplate::new(source, special_tokens)
                    .and_then(|template| template.render(&request))
            }
        };
        let expected = match (&case.expected, &case.raises) {
            (Some(prompt), None) => Ok(prompt.clone()),
            (None, Some(message)) => Err(ChatTemplateError::Raised {
                message: message.clone(),
            }),
            _ => panic!("{}: expected or raises, not both", case.name),
        };
        assert_eq!(rendered, expected, "{}, {}", case.template, case.name);
    }
}

/// `jinja2.json` has small templates with what Jinja2 makes of them (`make_jinja2.py`).
#[test]
fn filters_and_tests_are_jinja2s() {
    let cases: Map<String, Value> =
        serde_json::from_str(include_str!("chat_templates/jinja2.json")).unwrap();
    let messages = [json!({"role": "user", "content": "Hi"})];
    let mut differ = Vec::new();
    for (source, expected) in &cases {
        let rendered = render(source, &messages);
        if rendered.as_deref().ok() != expected.as_str() {
            differ.push(format!("{source}: {rendered:?}, not {expected}"));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

/// The first lines of Qwen3-Coder's and Nemotron's templates: without tools, `tools` is none.
#[test]
fn no_tools_are_not_iterable() {
    let source = "{% if tools is iterable and tools | length > 0 %}tools{% else %}none{% endif %}";
    assert_eq!(render(source, &[]).unwrap(), "none");
}

fn render(source: &str, messages: &[Value]) -> Result<String, ChatTemplateError> {
    ChatTemplate::new(source, Vec::new())?.render(&ChatTemplateRequest {
        messages: &TemplateMessage::list(messages.to_vec())?,
        ..ChatTemplateRequest::default()
    })
}

fn render_error(source: &str) -> String {
    render(source, &[]).unwrap_err().to_string()
}

const STRINGS_ONLY: &str = "{% for m in messages %}[{{ m.role + ': ' + m.content }}]{% endfor %}";
const PARTS_ONLY: &str = "{% for m in messages %}[{% for p in m.content %}{{ p.type }}={{ p.text }};\
     {% endfor %}]{% endfor %}";
const BOTH: &str = "{% for m in messages %}[{% if m.content is string %}{{ m.content }}{% else %}\
     {% for p in m.content %}{{ p['text'] }};{% endfor %}{% endif %}]{% endfor %}";

#[test]
fn content_takes_the_shape_that_the_template_knows() {
    let messages = [
        json!({"role": "user", "content": "a"}),
        json!({"role": "user", "content": [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]}),
        json!({"role": "assistant", "content": null}),
        json!({"role": "assistant"}),
    ];
    assert_eq!(
        render(STRINGS_ONLY, &messages).unwrap(),
        "[user: a][user: b\nc][assistant: ][assistant: ]"
    );
    assert_eq!(
        render(PARTS_ONLY, &messages).unwrap(),
        "[text=a;][text=b;text=c;][text=;][text=;]"
    );
    assert_eq!(render(BOTH, &messages).unwrap(), "[a][b;c;][][]");
}

#[test]
fn a_template_reads_the_keys_that_it_writes() {
    let reads = |source: &str, key: &str| {
        let template = ChatTemplate::new(source, Vec::new()).unwrap();
        template.reads_key(key)
    };
    let of_calls = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}{{ c.name }}{% endfor %}{% endfor %}";
    assert!(!reads(of_calls, "name"));
    let of_people = "{% for m in messages %}{{ m.name }}: {{ m.content }}{% endfor %}";
    assert!(reads(of_people, "name"));
    assert!(!reads(of_people, "reasoning_content"));
    // Where nothing can be found out, nothing is said.
    let refuses = "{{ raise_exception('no') }}{{ messages[0].name }}";
    assert!(reads(refuses, "name"));
    assert!(reads("{{ messages[0].images }}", "images"));
}

#[test]
fn arguments_of_tool_calls_are_objects_to_the_template() {
    let template =
        "{% for c in messages[0].tool_calls %}{{ c.function.arguments | tojson }};{% endfor %}";
    let message = |arguments: Value| {
        [
            json!({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}),
        ]
    };
    assert_eq!(
        render(template, &message(json!("{\"b\": 1, \"a\": [2.0]}"))).unwrap(),
        r#"{"b": 1, "a": [2.0]};"#
    );
    assert_eq!(
        render(template, &message(json!({"b": 1}))).unwrap(),
        r#"{"b": 1};"#
    );
    assert_eq!(render(template, &message(json!(""))).unwrap(), "{};");
    assert_eq!(
        render(template, &message(json!("{\"b\": ")))
            .unwrap_err()
            .to_string(),
        "messages[0].tool_calls[0].function.arguments: \"{\\\"b\\\": \" is not JSON: \
         EOF while parsing a value at line 1 column 6"
    );
}

#[test]
fn a_wrong_message_is_named() {
    let error = |message: Value| {
        render(
            STRINGS_ONLY,
            &[json!({"role": "user", "content": ""}), message],
        )
        .unwrap_err()
        .to_string()
    };
    assert_eq!(
        error(json!("hi")),
        "messages[1]: \"hi\" is not an object with role and content"
    );
    assert_eq!(
        error(json!({"content": "hi"})),
        "messages[1].role: null is not a string"
    );
    assert_eq!(
        error(json!({"role": "user", "content": 7})),
        "messages[1].content: 7 is not a string, a list of parts or null"
    );
    assert_eq!(
        error(json!({"role": "user", "content": [{"type": "image_url"}]})),
        "messages[1].content[0]: {\"type\":\"image_url\"} is not {\"type\": \"text\", \"text\": \"...\"}"
    );
    let long = error(json!("x".repeat(500)));
    assert_eq!(
        long,
        format!(
            "messages[1]: \"{}... is not an object with role and content",
            "x".repeat(79)
        )
    );
}

#[test]
fn a_failing_template_names_the_line() {
    assert_eq!(
        render_error("a\n{% for x in %}{% endfor %}"),
        "chat template, line 2: syntax error: unexpected end of block"
    );
    assert!(
        render_error("a\n\n{{ messages.x.y }}")
            .starts_with("chat template, line 3: undefined value")
    );
    assert!(
        render_error("{{ 'x' | nothing }}").starts_with("chat template, line 1: unknown filter")
    );
    assert!(
        render_error("\n{{ 'x'.nothing() }}").starts_with("chat template, line 2: unknown method")
    );
    assert!(
        render_error("{{ {'a': missing} | tojson }}")
            .contains("undefined can't be written as JSON")
    );
    assert_eq!(
        render_error("{% if true %}{{ raise_exception('no ' ~ 1) }}{% endif %}"),
        "the chat template refuses this conversation: no 1"
    );
}

#[test]
fn a_hostile_template_ends_with_an_error() {
    let budget = "chat template: the budget of instructions exceeded";
    assert_eq!(
        render_error(
            "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
        ),
        budget
    );
    assert_eq!(
        render_error("{% for a in range(999) %}{{ 'x' * 1000000 }}{% endfor %}"),
        "chat template: the size of its output exceeded"
    );
    assert!(render_error("{{ 'x' * 1000000000 }}").contains("too large"));
    assert!(
        render_error("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}").contains("recursion limit")
    );
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(render_error(&format!("{{{{ {deep} }}}}")).contains("nested more than 400 levels"));
    let nested = "{% set ns = namespace(x=[]) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}\
                  {% endfor %}{{ ns.x | tojson }}";
    assert!(render_error(nested).contains("more than 128 levels deep"));
    // As deep as the budget allows: no stack overflow when it is dropped.
    let brackets = ("[".repeat(40), "]".repeat(40));
    let deepest = format!(
        "{{% set ns = namespace(x=[]) %}}{{% for i in range(99999) %}}{{% set ns.x = {}ns.x{} %}}{{% endfor %}}",
        brackets.0, brackets.1
    );
    assert_eq!(
        render_error(&deepest),
        "chat template: the number of lists and maps exceeded"
    );
}

#[test]
fn own_fields_are_no_kwargs() {
    let template = ChatTemplate::new("{{ a }}{{ documents | tojson }}", Vec::new()).unwrap();
    let kwargs = |json: Value| TemplateVariables::from(json.as_object().unwrap().clone());
    let documents = TemplateValue::from(json!([{"title": "t"}]));
    let render = |kwargs: &TemplateVariables| {
        template.render(&ChatTemplateRequest {
            documents: Some(&documents),
            chat_template_kwargs: Some(kwargs),
            ..ChatTemplateRequest::default()
        })
    };
    assert_eq!(
        render(&kwargs(json!({"a": 1}))).unwrap(),
        "1[{\"title\": \"t\"}]"
    );
    assert_eq!(
        render(&kwargs(json!({"tools": []})))
            .unwrap_err()
            .to_string(),
        "chat_template_kwargs: \"tools\" can't be set there, it has a field of its own"
    );
}

/// A tokenizer of one token, with other files beside it.
fn with_files(files: &[(&str, &str)]) -> Tokenizer {
    let tokenizer_json = r#"{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []},
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}}"#;
    let mut all = vec![("tokenizer.json", tokenizer_json.as_bytes())];
    all.extend(files.iter().map(|(name, text)| (*name, text.as_bytes())));
    Tokenizer::from_bytes(&all).unwrap()
}

#[test]
fn where_the_template_comes_from() {
    let tools = TemplateValue::from(json!([{}]));
    let plain = ChatTemplateRequest::default();
    let with_tools = ChatTemplateRequest {
        tools: Some(&tools),
        ..plain
    };
    assert_eq!(
        with_files(&[])
            .apply_chat_template(&plain)
            .unwrap_err()
            .to_string(),
        "the model has no chat template: add a chat_template.jinja beside its tokenizer.json, \
         or send a plain prompt"
    );

    let one = (
        "tokenizer_config.json",
        r#"{"eos_token": {"content": "a"}, "chat_template": "one {{ eos_token }}"}"#,
    );
    assert_eq!(
        with_files(&[one]).apply_chat_template(&plain).unwrap(),
        "one a"
    );

    let jinja = ("chat_template.jinja", "jinja {{ eos_token }}");
    assert_eq!(
        with_files(&[one, jinja])
            .apply_chat_template(&plain)
            .unwrap(),
        "jinja a"
    );

    let named = (
        "tokenizer_config.json",
        r#"{"chat_template": [{"name": "default", "template": "plain"},
        {"name": "tool_use", "template": "tools"}, {"name": "rag", "template": "{{"}]}"#,
    );
    let tokenizer = with_files(&[named]);
    assert_eq!(tokenizer.apply_chat_template(&plain).unwrap(), "plain");
    assert_eq!(tokenizer.apply_chat_template(&with_tools).unwrap(), "tools");
    assert_eq!(
        tokenizer.chat_templates().names().collect::<Vec<_>>(),
        ["default", "tool_use", "rag"]
    );
    assert!(matches!(
        tokenizer.chat_templates().get("rag"),
        Err(ChatTemplateError::Syntax { line: 1, .. })
    ));
    assert_eq!(
        tokenizer.chat_templates().get("x").unwrap_err().to_string(),
        "the model has no chat template named \"x\"; it has [\"default\", \"tool_use\", \"rag\"]"
    );
}
