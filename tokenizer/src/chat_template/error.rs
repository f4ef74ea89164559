//! Why a conversation can't be turned into a prompt.

use std::error::Error as _;

use minijinja::ErrorKind;

/// Why a conversation can't be turned into a prompt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChatTemplateError {
    /// The model has no chat template.
    #[error(
        "the model has no chat template: add a chat_template.jinja beside its tokenizer.json, \
         or send a plain prompt"
    )]
    Missing,
    /// The model has chat templates by name, but not this one.
    #[error("the model has no chat template named {name:?}; it has {names:?}")]
    UnknownName {
        /// The name asked for.
        name: String,
        /// The names there are.
        names: Vec<String>,
    },
    /// The template is too long to be compiled.
    #[error("chat template: its source has {bytes} bytes; it may have {max_bytes}")]
    TooLong {
        /// Its size.
        bytes: usize,
        /// The limit.
        max_bytes: usize,
    },
    /// The template doesn't compile.
    #[error("chat template, line {line}: {message}")]
    Syntax {
        /// 1-based; 0 where it is not known.
        line: usize,
        /// What is wrong there.
        message: String,
    },
    /// The template fails on this conversation.
    #[error("chat template, line {line}: {message}")]
    Render {
        /// 1-based; 0 where it is not known.
        line: usize,
        /// What failed there.
        message: String,
    },
    /// The template itself refuses the conversation, by `raise_exception`.
    #[error("the chat template refuses this conversation: {message}")]
    Raised {
        /// The template's words.
        message: String,
    },
    /// The template runs longer or writes more than it may.
    #[error("chat template: {limit} exceeded")]
    LimitExceeded {
        /// Which limit.
        limit: &'static str,
    },
    /// The request was cancelled while its conversation was rendered.
    #[error("chat template: the request was cancelled")]
    Cancelled,
    /// The thread that renders failed.
    #[error("chat template: {message}")]
    Thread {
        /// How.
        message: String,
    },
    /// A message is not what the API says.
    #[error("{field}: {message}")]
    InvalidMessage {
        /// Where, as `messages[2].content[0]`.
        field: String,
        /// What is there and what would be right.
        message: String,
    },
    /// `chat_template_kwargs` names a variable that has a field of its own.
    #[error("chat_template_kwargs: {name:?} can't be set there, it has a field of its own")]
    ReservedKwarg {
        /// The variable.
        name: String,
    },
}

/// What `raise_exception` raises.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Raised(pub(super) String);

/// Why a rendering ends before its time.
#[derive(Debug, Clone, Copy, thiserror::Error)]
pub(super) enum Stopped {
    /// It takes more than it may of something.
    #[error("{0} exceeded")]
    Limit(&'static str),
    /// Its request was cancelled.
    #[error("cancelled")]
    Cancelled,
}

impl Stopped {
    /// The error that ends the rendering, from which [`ChatTemplateError::render`] knows it again.
    pub(super) fn into_error(self) -> minijinja::Error {
        minijinja::Error::new(ErrorKind::InvalidOperation, "stopped").with_source(self)
    }
}

impl From<Stopped> for ChatTemplateError {
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::Limit(limit) => Self::LimitExceeded { limit },
            Stopped::Cancelled => Self::Cancelled,
        }
    }
}

impl ChatTemplateError {
    pub(super) fn syntax(error: &minijinja::Error) -> Self {
        Self::Syntax {
            line: error.line().unwrap_or(0),
            message: describe(error),
        }
    }

    pub(super) fn render(error: &minijinja::Error) -> Self {
        let mut source = error.source();
        while let Some(cause) = source {
            if let Some(Raised(message)) = cause.downcast_ref() {
                return Self::Raised {
                    message: cut(message),
                };
            }
            if let Some(stopped) = cause.downcast_ref::<Stopped>() {
                return (*stopped).into();
            }
            source = cause.source();
        }
        match error.kind() {
            ErrorKind::OutOfFuel => Self::LimitExceeded {
                limit: "the budget of instructions",
            },
            _ => Self::Render {
                line: error.line().unwrap_or(0),
                message: describe(error),
            },
        }
    }
}

/// Kind and detail, without the place, which has its own field.
fn describe(error: &minijinja::Error) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {}", error.kind(), cut(detail)),
        None => error.kind().to_string(),
    }
}

/// The start of a message, which a template may have made of a whole conversation.
fn cut(message: &str) -> String {
    const MAX_CHARS: usize = 4096;
    message.chars().take(MAX_CHARS).collect()
}
