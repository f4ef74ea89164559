//! Parts of a conversation that its chat template doesn't read: they don't reach the model.

use serde_json::Value;
use tokenizer::{ChatTemplate, mentions_name};

use super::OpenAIServing;
use crate::openai::Warnings;
use crate::openai::chat::{ChatCompletionRequest, is_nothing};
use crate::openai::reasoning_effort::{self, REASONING_EFFORT, THINKING_SWITCHES};

/// Keys of a message that have something to say to a model.
const MESSAGE_KEYS: [&str; 9] = [
    "name",
    "refusal",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "thinking",
    "thinking_blocks",
    "citations",
    "tool_call_id",
];

/// Roles whose names are of people; a tool's result has that of a function.
const PEOPLE: [&str; 4] = ["system", "developer", "user", "assistant"];

/// What can be known of a template without rendering a conversation.
enum Template<'a> {
    OfModel(&'a ChatTemplate),
    OfRequest(&'a str),
}

impl Template<'_> {
    fn mentions(&self, name: &str) -> bool {
        match self {
            Self::OfModel(template) => template.mentions_name(name),
            Self::OfRequest(source) => mentions_name(source, name),
        }
    }

    fn reads_key(&self, key: &str) -> bool {
        match self {
            Self::OfModel(template) => template.reads_key(key),
            Self::OfRequest(source) => mentions_name(source, key),
        }
    }
}

impl OpenAIServing {
    /// Adds warnings about parts of a request that its chat template doesn't read.
    pub fn warn_of_unread(&self, request: &mut ChatCompletionRequest) {
        let unread = self.unread(request);
        request.common.warnings.extend(unread);
    }

    /// The same warnings, for the request of another API to give them its own names.
    pub(crate) fn unread(&self, request: &ChatCompletionRequest) -> Warnings {
        let mut warnings = Warnings::default();
        let template = match &request.chat_template {
            Some(source) => Template::OfRequest(source),
            None => match self.chat_template(request.tools.is_some()) {
                Some(template) => Template::OfModel(template),
                // The request will be refused.
                None => return warnings,
            },
        };
        let mut unread = Vec::new();
        for key in MESSAGE_KEYS {
            let has = |message: &Value| has(message, key);
            let place = request.messages.iter().position(has);
            if let Some(i) = place.filter(|_| !reads_key(&template, key)) {
                let message = format!(
                    ": the model doesn't see `{key}`, which the chat template doesn't write"
                );
                unread.push((format!("messages[{i}].{key}"), message));
            }
        }
        let no_effect = || " has no effect: the chat template doesn't read it".to_owned();
        let documents = request.documents.as_ref();
        if documents.is_some_and(|list| !list.is_empty()) && !template.mentions("documents") {
            unread.push(("documents".to_owned(), no_effect()));
        }
        for (name, _) in request.chat_template_kwargs.iter() {
            if name != REASONING_EFFORT && !template.mentions(name) {
                unread.push((format!("chat_template_kwargs.{name}"), no_effect()));
            }
        }
        let asks_to_think = reasoning_effort::asks_to_think(&request.chat_template_kwargs);
        let can_think = self.engine.thinks()
            || template.mentions(REASONING_EFFORT)
            || THINKING_SWITCHES.iter().any(|name| template.mentions(name));
        if asks_to_think && !can_think {
            let message = " has no effect: the model doesn't think".to_owned();
            unread.push((REASONING_EFFORT.to_owned(), message));
        }
        let reads_effort = template.mentions(REASONING_EFFORT);
        let budget =
            reasoning_effort::thinking_token_budget(&request.chat_template_kwargs, reads_effort);
        if budget.is_some() && self.engine.thinks() && !self.engine.takes_thinking_budget() {
            let message =
                " bounds no tokens of thinking, which this model marks by plain text".to_owned();
            unread.push((REASONING_EFFORT.to_owned(), message));
        }
        for (field, message) in unread {
            warnings.push(&field, &message);
        }
        warnings
    }
}

/// Whether a message says something under this key that a template might write.
fn has(message: &Value, key: &str) -> bool {
    let role = message.get("role").and_then(Value::as_str);
    let is_of_people = role.is_some_and(|role| PEOPLE.contains(&role));
    let is_told = match key {
        "name" | "tool_call_id" => is_of_people,
        // It is told by its other name.
        "reasoning_content" => message.get(key) != message.get("reasoning"),
        _ => true,
    };
    is_told && message.get(key).is_some_and(|value| !is_nothing(value))
}

/// The two names of thinking are one: a message has both, where it came with either.
fn reads_key(template: &Template<'_>, key: &str) -> bool {
    match key {
        "reasoning" => template.reads_key(key) || template.reads_key("reasoning_content"),
        _ => template.reads_key(key),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::openai::{DefaultSamplingParams, ResponsesRequest};
    use crate::test_support::{fake_engine, fake_engine_on, ready, tokenizer_with};

    fn serving() -> OpenAIServing {
        let (engine, _core) = fake_engine(64);
        let names = vec!["m".to_owned()];
        OpenAIServing::new(Arc::new(engine), names, DefaultSamplingParams::default())
    }

    fn warnings(body: Value) -> Vec<String> {
        let mut request = ChatCompletionRequest::from_json(body).unwrap();
        serving().warn_of_unread(&mut request);
        request.common.warnings.texts()
    }

    #[tokio::test]
    async fn what_the_template_does_not_read_is_told() {
        let body = json!({
            "messages": [
                {"role": "user", "content": "a", "name": "Ada", "tool_call_id": "x"},
                {"role": "assistant", "content": "b", "reasoning": "c", "thinking": "t", "id": "d"},
                {"role": "tool", "content": "e", "name": "f", "tool_call_id": "x"},
            ],
            "documents": [{"text": "g"}],
            "chat_template_kwargs": {"colour": "red"},
            "reasoning_effort": "high",
        });
        assert_eq!(
            warnings(body),
            [
                "messages[0].name: the model doesn't see `name`, which the chat template doesn't write",
                "messages[1].reasoning: the model doesn't see `reasoning`, which the chat template \
                 doesn't write",
                "messages[1].thinking: the model doesn't see `thinking`, which the chat template \
                 doesn't write",
                "messages[0].tool_call_id: the model doesn't see `tool_call_id`, which the chat template \
                 doesn't write",
                "documents has no effect: the chat template doesn't read it",
                "chat_template_kwargs.colour has no effect: the chat template doesn't read it",
            ]
        );
    }

    #[tokio::test]
    async fn what_it_reads_is_not_told() {
        let body = json!({
            "messages": [{"role": "user", "content": "a", "name": "Ada"}],
            "documents": [],
            "reasoning_effort": "none",
            "chat_template": "{{ messages[0].name }}{{ colour }}",
            "chat_template_kwargs": {"colour": "red"},
        });
        assert_eq!(warnings(body), [""; 0]);
    }

    #[tokio::test]
    async fn a_part_of_a_name_is_not_that_name() {
        let body = json!({
            "messages": [{"role": "user", "content": "a"}],
            "chat_template": "{{ messages[0].content }}{{ enable_thinking }}",
            "chat_template_kwargs": {"enable_thinkin": true, "thinking": true},
        });
        assert_eq!(
            warnings(body),
            [
                "chat_template_kwargs.enable_thinkin has no effect: the chat template doesn't read it",
                "chat_template_kwargs.thinking has no effect: the chat template doesn't read it",
            ]
        );
    }

    #[tokio::test]
    async fn an_effort_of_a_model_that_does_not_think_is_told() {
        let tokenizer = tokenizer_with("[256, 257]", false);
        let (engine, _core) = fake_engine_on(ready(64), tokenizer);
        let defaults = DefaultSamplingParams::default();
        let serving = OpenAIServing::new(Arc::new(engine), vec!["m".to_owned()], defaults);
        let warnings = |effort: &str| {
            let body =
                json!({"messages": [{"role": "user", "content": "a"}], "reasoning_effort": effort});
            let mut request = ChatCompletionRequest::from_json(body).unwrap();
            serving.warn_of_unread(&mut request);
            request.common.warnings.texts()
        };
        assert_eq!(warnings("none"), [""; 0]);
        let told = "reasoning_effort has no effect: the model doesn't think";
        assert_eq!(warnings("high"), [told]);
    }

    #[tokio::test]
    async fn responses_name_their_own_fields() {
        let body = json!({
            "input": [
                {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "a"}]},
                {"role": "assistant", "content": "b"},
            ],
            "reasoning": {"effort": "low"},
        });
        let mut request = ResponsesRequest::from_json(body).unwrap();
        serving().warn_of_unread_input(&mut request);
        assert_eq!(
            request.chat.common.warnings.texts(),
            [
                "input: the model doesn't see `reasoning_content`, which the chat template doesn't write",
            ]
        );
    }
}
