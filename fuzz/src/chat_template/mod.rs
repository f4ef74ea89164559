//! Chat templates: compiled, and rendered with conversations.

mod generate;

use serde_json::{Value, json};
use std::time::{Duration, SystemTime};
use tokenizer::{
    ChatTemplate, ChatTemplateRequest, TemplateMessage, TemplateValue, TemplateVariables,
};

use crate::memory::Meter;

pub(crate) use generate::generate;

/// Promise: a template that is compiled is a part of a request like any other.
const MAX_COMPILED_BYTES: usize = 64 << 20;
/// Promise: no value of a template has more than 64 MiB, and few are alive at a time.
const MAX_BYTES: usize = 256 << 20;

/// Compiles the template and renders it twice.
pub(crate) fn run(data: &[u8]) -> String {
    let Ok(source) = std::str::from_utf8(data) else {
        return "no text".to_owned();
    };
    let meter = Meter::start();
    let special_tokens = vec![("bos_token".to_owned(), "<s>".to_owned())];
    let compiled = ChatTemplate::new(source, special_tokens);
    meter.check_against(MAX_COMPILED_BYTES + 16 * data.len(), data.len());
    let outcome = match compiled {
        Ok(template) => render(&template),
        Err(error) => crate::sketch(&error.to_string()),
    };
    meter.check_against(MAX_BYTES + 16 * data.len(), data.len());
    outcome
}

fn render(template: &ChatTemplate) -> String {
    let plain = vec![json!({"role": "user", "content": "Hello\nthere"})];
    let long = conversation();
    let tools = TemplateValue::from(json!([{"type": "function", "function": {
        "name": "f", "description": "d", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    }}]));
    let documents = TemplateValue::from(Value::from(plain.clone()));
    let list = |messages| TemplateMessage::list(messages).expect("messages of the right shape");
    let (plain, long) = (list(plain), list(long));
    let kwargs = json!({"enable_thinking": true, "numbers": (0..50).collect::<Vec<_>>(), "text": "ab ".repeat(50)});
    let kwargs = kwargs.as_object().cloned().map(TemplateVariables::from);
    let requests = [
        ChatTemplateRequest {
            messages: &plain,
            add_generation_prompt: true,
            ..ChatTemplateRequest::default()
        },
        ChatTemplateRequest {
            messages: &long,
            tools: Some(&tools),
            documents: Some(&documents),
            chat_template_kwargs: kwargs.as_ref(),
            now: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)),
            ..ChatTemplateRequest::default()
        },
    ];
    let outcomes = requests
        .iter()
        .map(|request| match template.render(request) {
            Ok(prompt) => format!("{} digits of bytes", prompt.len().to_string().len()),
            Err(error) => crate::sketch(&error.to_string()),
        });
    outcomes.collect::<Vec<_>>().join("; ")
}

fn conversation() -> Vec<Value> {
    vec![
        json!({"role": "system", "content": [{"type": "text", "text": "Be brief"}]}),
        json!({"role": "user", "content": "a".repeat(500)}),
        json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": [1, {\"b\": 2}]}"}},
        ]}),
        json!({"role": "tool", "tool_call_id": "1", "content": "<b>&\u{e9}"}),
        json!({"role": "assistant", "content": "c", "reasoning_content": "r"}),
    ]
}
