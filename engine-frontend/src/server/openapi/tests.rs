use serde_json::{Value, json};

use super::descriptions::{self, ANSWERS, REQUESTS};
use super::{anthropic, decisions, document, pooling, tokens};
use crate::anthropic::{AnthropicCountTokensRequest, AnthropicMessagesRequest};
use crate::decisions::{OPENAI, SYSTEM_ONE};
use crate::openai::{
    BatchChatCompletionRequest, ChatCompletionRequest, CheckRequest, CompletionRequest,
    DetokenizeRequest, ResponsesRequest, TokenGenerateRequest, TokenizeRequest,
};
use crate::pooling::{EmbeddingRequest, RerankRequest, ScoreRequest};

fn properties(component: &str) -> Vec<String> {
    let pointer = format!("/components/schemas/{component}/properties");
    let document = document();
    let properties = document.pointer(&pointer).unwrap().as_object().unwrap();
    properties.keys().cloned().collect()
}

/// The name that is at fault in a body with this field.
fn fault(component: &str, field: &str, value: &Value) -> Option<(String, String)> {
    let predicate = json!({"type": "predicate", "instructions": "a"});
    let mut body = match component {
        "CompletionRequest" | "TokenizeRequest" => json!({"prompt": "a"}),
        "ResponsesRequest" => json!({"input": "a"}),
        "DetokenizeRequest" => json!({"tokens": [1]}),
        "BatchChatCompletionRequest" => {
            json!({"messages": [[{"role": "user", "content": "a"}]]})
        }
        "EmbeddingRequest" => json!({"input": "a"}),
        "ScoreRequest" => json!({"text_1": "a", "text_2": "b"}),
        "RerankRequest" => json!({"query": "a", "documents": ["b"]}),
        "GenerateRequest" => json!({"token_ids": [1], "sampling_params": {}}),
        "SamplingParams" => json!({}),
        "DecisionRequest" => json!({"input": "a", "questions": [predicate]}),
        "SystemOneRequest" => json!({"state": "a", "questions": {"q": {"type": "noul"}}}),
        "CheckRequest" => json!({"guided_regex": "a"}),
        "AnthropicMessagesRequest" => {
            json!({"messages": [{"role": "user", "content": "a"}], "max_tokens": 1})
        }
        _ => json!({"messages": [{"role": "user", "content": "a"}]}),
    };
    body[field] = value.clone();
    let error = match component {
        "CompletionRequest" => CompletionRequest::from_json(body).err(),
        "TokenizeRequest" => TokenizeRequest::from_json(body).err(),
        "ResponsesRequest" => ResponsesRequest::from_json(body).err(),
        "DetokenizeRequest" => DetokenizeRequest::from_json(body).err(),
        "BatchChatCompletionRequest" => BatchChatCompletionRequest::from_json(body).err(),
        "GenerateRequest" => TokenGenerateRequest::from_json(body).err(),
        "SamplingParams" => {
            let body = json!({"token_ids": [1], "sampling_params": body});
            TokenGenerateRequest::from_json(body).err()
        }
        "EmbeddingRequest" => EmbeddingRequest::from_json(body).err(),
        "ScoreRequest" => ScoreRequest::from_json(body).err(),
        "RerankRequest" => RerankRequest::from_json(body).err(),
        "DecisionRequest" => (OPENAI.read)(body).err(),
        "SystemOneRequest" => (SYSTEM_ONE.read)(body).err(),
        "CheckRequest" => CheckRequest::from_json(body).err(),
        "AnthropicMessagesRequest" => AnthropicMessagesRequest::from_json(body).err(),
        "AnthropicCountTokensRequest" => AnthropicCountTokensRequest::from_json(body).err(),
        _ => ChatCompletionRequest::from_json(body).err(),
    };
    error.map(|error| (error.parameter.unwrap_or_default(), error.message))
}

#[test]
fn every_documented_field_is_known() {
    for component in [
        "ChatCompletionRequest",
        "CompletionRequest",
        "ResponsesRequest",
        "DetokenizeRequest",
        "CheckRequest",
        "AnthropicMessagesRequest",
        "AnthropicCountTokensRequest",
        "DecisionRequest",
        "SystemOneRequest",
        "BatchChatCompletionRequest",
        "EmbeddingRequest",
        "ScoreRequest",
        "RerankRequest",
        "GenerateRequest",
        "SamplingParams",
    ] {
        for field in properties(component) {
            // Of no field's type.
            let fault = fault(component, &field, &json!([{"\u{0}": [[]]}]));
            if let Some((_, message)) = fault {
                let is_unknown = ["", "sampling_params."]
                    .iter()
                    .any(|prefix| message.contains(&format!("unknown field {prefix}{field};")));
                assert!(!is_unknown, "{component}: {message}");
            }
        }
    }
    for component in [
        "CompletionRequest",
        "ChatCompletionRequest",
        "ResponsesRequest",
        "AnthropicMessagesRequest",
        "DecisionRequest",
        "SystemOneRequest",
        "BatchChatCompletionRequest",
        "GenerateRequest",
    ] {
        let (parameter, message) = fault(component, "nonsense", &json!(1)).unwrap();
        assert_eq!(parameter, "nonsense");
        assert!(message.contains("unknown field nonsense"), "{message}");
    }
}

#[test]
fn references_lead_somewhere() {
    let document = document();
    let mut open = vec![&document];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(map) => {
                if let Some(Value::String(target)) = map.get("$ref") {
                    let pointer = target.strip_prefix('#').unwrap();
                    assert!(document.pointer(pointer).is_some(), "{target}");
                }
                open.extend(map.values());
            }
            Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
}

/// Calls `visit` with each field's path and schema below a component.
fn fields(schema: &Value, path: &str, visit: &mut impl FnMut(&str, &Value)) {
    match schema {
        Value::Object(schema) => {
            for (keyword, value) in schema {
                match (keyword.as_str(), value) {
                    ("properties", Value::Object(properties)) => {
                        for (name, field) in properties {
                            let path = format!("{path}.{name}");
                            visit(&path, field);
                            fields(field, &path, visit);
                        }
                    }
                    (_, value) => fields(value, path, visit),
                }
            }
        }
        Value::Array(schemas) => schemas
            .iter()
            .for_each(|schema| fields(schema, path, visit)),
        _ => {}
    }
}

#[test]
fn every_field_is_described_and_every_description_is_used() {
    let document = document();
    let components = document["components"]["schemas"].as_object().unwrap();
    let (mut bare, mut used) = (Vec::new(), Vec::new());
    for (name, component) in components {
        fields(
            component,
            name,
            &mut |path, field| match descriptions::find(path) {
                Some((key, text)) => {
                    used.push(*key);
                    assert_eq!(field["description"], *text, "{path}");
                }
                None => bare.push(path.to_owned()),
            },
        );
    }
    assert_eq!(bare, Vec::<String>::new(), "fields without a description");
    let lines = REQUESTS
        .iter()
        .chain(ANSWERS)
        .chain(anthropic::DESCRIPTIONS)
        .chain(decisions::DESCRIPTIONS)
        .chain(pooling::DESCRIPTIONS)
        .chain(tokens::DESCRIPTIONS);
    let lines = lines.map(|(key, _)| *key);
    let unused: Vec<_> = lines.filter(|key| !used.contains(key)).collect();
    assert_eq!(unused, Vec::<&str>::new(), "descriptions of no field");
}
