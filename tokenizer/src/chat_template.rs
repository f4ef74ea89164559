//! Chat templates: a conversation to the one prompt that the model was trained on.
//!
//! Templates are Jinja, as Hugging Face's libraries run them: `trim_blocks` and `lstrip_blocks`
//! on, no HTML escaping, Python's string and mapping methods, and the functions
//! `raise_exception`, `strftime_now` and `tojson`. A template is a program that came with the
//! model or a request: it gets a budget of work, memory and time ([`budget`]), and nothing else of the
//! process.

mod budget;
mod builtins;
mod environment;
mod error;
mod gates;
mod jinja;
mod measure;
mod messages;
mod namespace;
mod program;
mod python_json;
mod python_methods;
mod source;
mod strftime;
mod values;

use std::sync::OnceLock;
use std::time::SystemTime;

use minijinja::Value;
use structured_output::CancelFlag;

pub use error::ChatTemplateError;
pub use messages::TemplateMessage;
pub use values::{TemplateValue, TemplateVariables};

use crate::config::{ChatTemplateField, TokenizerConfig};
use messages::ContentFormat;
use program::Program;

/// What a chat template is rendered with. Field names are the variables that templates see.
#[derive(Debug, Clone, Copy, Default)]
pub struct ChatTemplateRequest<'a> {
    /// The conversation.
    pub messages: &'a [TemplateMessage],
    /// Tools that the model may call: a list, in the OpenAI API's shape.
    pub tools: Option<&'a TemplateValue>,
    /// Documents for retrieval-augmented generation, a list.
    pub documents: Option<&'a TemplateValue>,
    /// Whether the prompt ends with the opening of the assistant's turn.
    pub add_generation_prompt: bool,
    /// Further variables (`chat_template_kwargs`), such as `enable_thinking`.
    pub chat_template_kwargs: Option<&'a TemplateVariables>,
    /// What `strftime_now` takes for now, in UTC; `None` is the clock.
    pub now: Option<SystemTime>,
    /// Ends the rendering with [`ChatTemplateError::Cancelled`] once another thread sets it.
    pub cancel: Option<&'a CancelFlag>,
}

/// The variables that have their own field in [`ChatTemplateRequest`].
const OWN_FIELDS: [&str; 4] = ["messages", "tools", "documents", "add_generation_prompt"];

/// One compiled chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    program: Program,
    special_tokens: Vec<(String, String)>,
    /// Found out by rendering once, when first needed.
    content_format: OnceLock<ContentFormat>,
    /// Likewise: those of [`PROBED_KEYS`] that get into no prompt.
    unread_keys: OnceLock<Vec<&'static str>>,
}

/// Keys of messages, with a text each, that a template may mention without writing a message's.
const PROBED_KEYS: [&str; 4] = ["name", "reasoning", "reasoning_content", "thinking"];

impl ChatTemplate {
    /// Compiles a template of at most 256 KiB. `special_tokens` are further variables, such as
    /// `bos_token`.
    ///
    /// # Errors
    /// [`ChatTemplateError::TooLong`]; [`ChatTemplateError::Syntax`], with the line.
    pub fn new(
        source: &str,
        special_tokens: Vec<(String, String)>,
    ) -> Result<Self, ChatTemplateError> {
        Ok(Self {
            program: environment::compile(source)?,
            special_tokens,
            content_format: OnceLock::new(),
            unread_keys: OnceLock::new(),
        })
    }

    /// The prompt of a conversation.
    ///
    /// # Errors
    /// [`ChatTemplateError`]: the template fails, refuses the conversation (`raise_exception`) or exceeds its budget.
    pub fn render(&self, request: &ChatTemplateRequest<'_>) -> Result<String, ChatTemplateError> {
        if request.cancel.is_some_and(CancelFlag::is_cancelled) {
            return Err(ChatTemplateError::Cancelled);
        }
        let content_format = *self
            .content_format
            .get_or_init(|| self.find_content_format());
        self.render_as(content_format, request)
    }

    /// Whether the template's source has `text` in it, a model's marker for instance.
    pub fn mentions(&self, text: &str) -> bool {
        self.program.borrow_owner().contains(text)
    }

    /// Whether the template's source has this name as a word of its own: a variable, say.
    pub fn mentions_name(&self, name: &str) -> bool {
        mentions_name(self.program.borrow_owner(), name)
    }

    /// False if `key` of a user's or the assistant's message never gets into a prompt: the template's source
    /// doesn't have it, or a conversation that has it renders without.
    pub fn reads_key(&self, key: &str) -> bool {
        let unread = self.unread_keys.get_or_init(|| {
            let mut keys = PROBED_KEYS.to_vec();
            keys.retain(|key| !self.writes_key(key));
            keys
        });
        self.mentions_name(key) && !unread.contains(&key)
    }

    /// Whether a conversation's prompt has the text of this key of its messages; also if it can't be rendered.
    fn writes_key(&self, key: &str) -> bool {
        const TEXT: &str = "formwork-probe";
        let message = |role: &str| serde_json::json!({"role": role, "content": "a", key: TEXT});
        let messages = TemplateMessage::list(vec![message("user"), message("assistant")]);
        let prompt = messages.and_then(|messages| {
            self.render(&ChatTemplateRequest {
                messages: &messages,
                ..ChatTemplateRequest::default()
            })
        });
        prompt.map_or(true, |prompt| prompt.contains(TEXT))
    }

    fn render_as(
        &self,
        content_format: ContentFormat,
        request: &ChatTemplateRequest<'_>,
    ) -> Result<String, ChatTemplateError> {
        let list = |items: Option<&TemplateValue>| match items {
            Some(items) => items.as_value().clone(),
            None => Value::from(()),
        };
        let lists = [request.tools, request.documents].into_iter().flatten();
        let kwargs = request.chat_template_kwargs;
        let mut num_bytes = lists.map(TemplateValue::num_bytes).sum::<usize>()
            + kwargs.map_or(0, TemplateVariables::num_bytes);
        let messages = request.messages.iter().map(|message| {
            let (message, bytes) = message.to_value(content_format);
            num_bytes += bytes;
            message
        });
        let messages: Value = messages.collect();
        let mut variables: Vec<(String, Value)> = Vec::new();
        for (name, content) in &self.special_tokens {
            variables.push((name.clone(), Value::from(content.as_str())));
        }
        for (name, value) in kwargs.iter().flat_map(|kwargs| kwargs.iter()) {
            let name = name.to_owned();
            if OWN_FIELDS.contains(&name.as_str()) {
                return Err(ChatTemplateError::ReservedKwarg { name });
            }
            variables.push((name, value.as_value().clone()));
        }
        let now = request.now.unwrap_or_else(SystemTime::now);
        variables.extend([
            ("messages".to_owned(), messages),
            ("tools".to_owned(), list(request.tools)),
            ("documents".to_owned(), list(request.documents)),
            (
                "add_generation_prompt".to_owned(),
                Value::from(request.add_generation_prompt),
            ),
            ("strftime_now".to_owned(), builtins::strftime_now(now)),
        ]);
        let variables = Value::from_pairs(variables);
        environment::render(&self.program, variables, num_bytes, request.cancel)
    }

    /// Which shapes of `content` the template writes as text, by trying.
    fn find_content_format(&self) -> ContentFormat {
        const TEXT: &str = "formwork-probe";
        let message = serde_json::json!({"role": "user", "content": TEXT});
        let messages = TemplateMessage::list(vec![message]).unwrap_or_default();
        let request = ChatTemplateRequest {
            messages: &messages,
            ..ChatTemplateRequest::default()
        };
        let writes = |strings| {
            let format = ContentFormat {
                strings,
                parts: !strings,
            };
            self.render_as(format, &request).is_ok_and(|prompt| {
                // A template that knows only strings may print the list itself.
                prompt.contains(TEXT) && !["'type'", "\"type\""].iter().any(|s| prompt.contains(s))
            })
        };
        ContentFormat {
            strings: writes(true),
            parts: writes(false),
        }
    }
}

/// Whether a template's source has this name as a word of its own, and not as a part of a longer one.
pub fn mentions_name(source: &str, name: &str) -> bool {
    let is_part = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    let bytes = source.as_bytes();
    source.match_indices(name).any(|(start, _)| {
        let before = start.checked_sub(1).and_then(|at| bytes.get(at));
        !is_part(before) && !is_part(bytes.get(start + name.len()))
    })
}

/// The chat templates of a model: none, one, or several by name.
#[derive(Debug)]
pub struct ChatTemplates {
    templates: Vec<(String, Result<ChatTemplate, ChatTemplateError>)>,
    special_tokens: Vec<(String, String)>,
}

/// The name of a template that has none, as in Hugging Face's libraries.
const DEFAULT: &str = "default";
/// The named template for conversations with tools.
const TOOL_USE: &str = "tool_use";

impl ChatTemplates {
    pub(crate) fn new(config: &TokenizerConfig) -> Self {
        let sources: Vec<(&str, &str)> = match &config.chat_template {
            None => Vec::new(),
            Some(ChatTemplateField::One(source)) => vec![(DEFAULT, source)],
            Some(ChatTemplateField::Named(templates)) => templates
                .iter()
                .map(|named| (named.name.as_str(), named.template.as_str()))
                .collect(),
        };
        let special_tokens = config.special_tokens();
        let templates = sources.into_iter().map(|(name, source)| {
            let template = ChatTemplate::new(source, special_tokens.clone());
            (name.to_owned(), template)
        });
        Self {
            templates: templates.collect(),
            special_tokens,
        }
    }

    /// Another template for this model: one that a person or a request brought.
    ///
    /// # Errors
    /// [`ChatTemplateError::Syntax`], with the line.
    pub fn compile(&self, source: &str) -> Result<ChatTemplate, ChatTemplateError> {
        ChatTemplate::new(source, self.special_tokens.clone())
    }

    /// Puts a template in the place of all.
    pub(crate) fn replace(&mut self, template: ChatTemplate) {
        self.templates = vec![(DEFAULT.to_owned(), Ok(template))];
    }

    /// The names of the templates; a single template is called `default`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.templates.iter().map(|(name, _)| name.as_str())
    }

    /// A template by its name.
    ///
    /// # Errors
    /// [`ChatTemplateError::Missing`], [`ChatTemplateError::UnknownName`], or why that template
    /// doesn't compile.
    pub fn get(&self, name: &str) -> Result<&ChatTemplate, ChatTemplateError> {
        if self.templates.is_empty() {
            return Err(ChatTemplateError::Missing);
        }
        match self
            .templates
            .iter()
            .find(|(candidate, _)| candidate == name)
        {
            Some((_, template)) => template.as_ref().map_err(Clone::clone),
            None => Err(ChatTemplateError::UnknownName {
                name: name.to_owned(),
                names: self.names().map(str::to_owned).collect(),
            }),
        }
    }

    /// The template for a conversation: with tools the one called `tool_use` where it exists,
    /// else `default`.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn select(&self, has_tools: bool) -> Result<&ChatTemplate, ChatTemplateError> {
        let name = if has_tools && self.names().any(|name| name == TOOL_USE) {
            TOOL_USE
        } else {
            DEFAULT
        };
        self.get(name)
    }
}
