//! Compile options of a JSON Schema by their names.

use anyhow::{anyhow, bail};
use serde_json::{Map, Value};
use structured_output::{JsonSchemaOptions, Whitespace};

/// Reads options from a JSON object of names and values.
///
/// # Errors
/// A name that is not an option, or a value that it can't have; both are in the message.
pub fn from_json(options: &Map<String, Value>) -> anyhow::Result<JsonSchemaOptions> {
    let mut read = JsonSchemaOptions::default();
    for (name, value) in options {
        match name.as_str() {
            "whitespace" => read.whitespace = whitespace(text(name, value)?)?,
            _ => bail!("options: {name} is not an option of a JSON Schema"),
        }
    }
    Ok(read)
}

/// White space by its name.
///
/// # Errors
/// A name that is none of them.
pub fn whitespace(name: &str) -> anyhow::Result<Whitespace> {
    match name {
        "flexible" => Ok(Whitespace::Flexible),
        "spaced" => Ok(Whitespace::Spaced),
        "compact" => Ok(Whitespace::Compact),
        _ => bail!("whitespace: {name:?} is none of flexible, spaced, compact"),
    }
}

fn text<'a>(name: &str, value: &'a Value) -> anyhow::Result<&'a str> {
    value
        .as_str()
        .ok_or_else(|| anyhow!("options: {name} is {value}, and must be a string"))
}
