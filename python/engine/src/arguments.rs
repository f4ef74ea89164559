//! Keyword arguments as the flags of the executables, which clap reads: `max_model_len=512` is `--max-model-len 512`.

use clap::builder::ArgAction;
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Args, Command, FromArgMatches};
use engine_frontend::server::ServeArgs;
use engine_frontend::{EngineArgs, ValidationError, cut_short};
use pyo3::prelude::*;

use crate::errors::validation_error;

/// An argument's value: a switch, or a value's text.
#[derive(FromPyObject)]
pub(crate) enum Value {
    /// `True` or `False`.
    Switch(bool),
    /// A number, a word, a path or a JSON object as its text.
    Text(String),
}

/// Arguments in their order, by name.
pub(crate) type Arguments = Vec<(String, Value)>;

fn engine_command() -> Command {
    EngineArgs::augment_args(Command::new("LLM").no_binary_name(true))
}

/// Reads the arguments of an engine.
///
/// # Errors
/// The first one that is unknown, or whose value is wrong, by its name.
pub(crate) fn engine_args(arguments: Arguments) -> Result<EngineArgs, ValidationError> {
    let command = engine_command();
    let flags = flags(&command, arguments)?;
    let matches = command.try_get_matches_from(flags);
    matches
        .and_then(|matches| EngineArgs::from_arg_matches(&matches))
        .map_err(|error| of_clap(&error))
}

/// The flags of `formwork serve` that stand for these keyword arguments.
#[pyfunction]
pub(crate) fn serve_arguments(py: Python<'_>, arguments: Arguments) -> PyResult<Vec<String>> {
    let command = ServeArgs::augment_args(Command::new("serve"));
    flags(&command, arguments).map_err(|error| validation_error(py, &error))
}

/// Each argument as its flag.
fn flags(command: &Command, arguments: Arguments) -> Result<Vec<String>, ValidationError> {
    let arguments = arguments.into_iter();
    arguments
        .filter_map(|(name, value)| flag(command, &name, value).transpose())
        .collect()
}

/// The flag that an argument stands for; none where a switch is off, and that is the default.
fn flag(command: &Command, name: &str, value: Value) -> Result<Option<String>, ValidationError> {
    let long = name.replace('_', "-");
    let Some(arg) = named(command, &long) else {
        let message = format!("there is no argument {}", cut_short(name));
        return Err(ValidationError::about(
            name,
            message + &similar(command, &long),
        ));
    };
    match (arg.get_action(), value) {
        (ArgAction::SetTrue, Value::Switch(true)) => Ok(Some(format!("--{long}"))),
        (ArgAction::SetTrue, Value::Switch(false)) => {
            let opposite = format!("no-{long}");
            let has_opposite = named(command, &opposite).is_some();
            Ok(has_opposite.then(|| format!("--{opposite}")))
        }
        (ArgAction::SetTrue, Value::Text(text)) => {
            let message = format!("{name} must be True or False, got {}", cut_short(&text));
            Err(ValidationError::field(name, text, message))
        }
        (_, Value::Switch(switch)) => {
            let switch = if switch { "True" } else { "False" };
            let message = format!("{name} must be a value, got {switch}");
            Err(ValidationError::field(name, switch, message))
        }
        (_, Value::Text(text)) => Ok(Some(format!("--{long}={text}"))),
    }
}

fn named<'a>(command: &'a Command, long: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|arg| {
        let aliases = arg.get_all_aliases().unwrap_or_default();
        arg.get_long() == Some(long) || aliases.contains(&long)
    })
}

/// What to say of an argument that may be misspelt: those with a word in common.
fn similar(command: &Command, long: &str) -> String {
    let words: Vec<&str> = long.split('-').filter(|word| word.len() > 2).collect();
    let has_word = |other: &str| other.split('-').any(|word| words.contains(&word));
    let names: Vec<String> = command
        .get_arguments()
        .filter_map(Arg::get_long)
        .filter(|other| has_word(other))
        .map(|other| other.replace('-', "_"))
        .collect();
    match names.is_empty() {
        true => ": its arguments are the flags of formwork serve --help, with _ for -".to_owned(),
        false => format!("; there is {}", names.join(", ")),
    }
}

/// A value that clap refused.
fn of_clap(error: &clap::Error) -> ValidationError {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => Some(texts.join(", ")),
        _ => None,
    };
    let (Some(arg), Some(value)) = (
        text(ContextKind::InvalidArg),
        text(ContextKind::InvalidValue),
    ) else {
        let message = error.to_string();
        let message = message.trim().trim_start_matches("error: ");
        let first = message.split("\n\n").next().unwrap_or(message);
        return ValidationError::new(with_argument_names(first));
    };
    // "--max-model-len <TOKENS>"
    let flag = arg.split(' ').next().unwrap_or(&arg);
    let name = flag.trim_start_matches('-').replace('-', "_");
    let why = match (
        std::error::Error::source(error),
        text(ContextKind::ValidValue),
    ) {
        (Some(source), _) => source.to_string(),
        (None, Some(values)) => format!("must be one of {values}"),
        (None, None) => "is wrong".to_owned(),
    };
    let message = format!("{name}: {why}, got {}", cut_short(&value));
    ValidationError::field(name, value, message)
}

/// A text with arguments by the names that they have in Python: `max_logprobs` in place of `--max-logprobs`.
pub(crate) fn with_argument_names(text: &str) -> String {
    if !text.contains("--") {
        return text.to_owned();
    }
    let command = engine_command();
    let mut flags: Vec<&str> = command.get_arguments().filter_map(Arg::get_long).collect();
    // None is found within a longer one.
    flags.sort_by_key(|long| std::cmp::Reverse(long.len()));
    let mut text = text.to_owned();
    for long in flags {
        text = text.replace(&format!("--{long}"), &long.replace('-', "_"));
    }
    text
}
