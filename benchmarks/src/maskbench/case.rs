//! A file of the corpus: a schema and its instances, in tokens.

use std::fs;
use std::path::Path;

use anyhow::Context;
use serde_json::Value;
use tokenizer::Tokenizer;

/// A schema with its instances.
#[derive(Debug, Clone)]
pub struct Case {
    /// The file's name.
    pub id: String,
    /// The schema.
    pub schema: Value,
    /// The schema's text, without white space between its parts.
    pub schema_text: String,
    /// What is run through it.
    pub instances: Vec<Instance>,
}

/// A JSON value in tokens, and whether the schema allows it.
#[derive(Debug, Clone)]
pub struct Instance {
    /// Whether the schema allows it.
    pub is_valid: bool,
    /// The tokenizer's own encoding of its text.
    pub token_ids: Vec<u32>,
}

impl Case {
    /// Reads a file of the corpus: an object with a `schema`, and `tests` of `data` and `valid`.
    ///
    /// # Errors
    /// A file that can't be read or has another form.
    pub fn read(file: &Path, tokenizer: &Tokenizer) -> anyhow::Result<Self> {
        Self::read_parts(file, tokenizer).with_context(|| format!("in {}", file.display()))
    }

    fn read_parts(file: &Path, tokenizer: &Tokenizer) -> anyhow::Result<Self> {
        let mut parts: Value = serde_json::from_slice(&fs::read(file)?)?;
        let schema = parts["schema"].take();
        let tests = parts["tests"].as_array().context("tests is no array")?;
        let instances = tests
            .iter()
            .map(|test| {
                let mut text = String::new();
                write_spaced(&test["data"], &mut text);
                Ok(Instance {
                    is_valid: test["valid"].as_bool().context("valid is no boolean")?,
                    token_ids: tokenizer.encode(&text, false)?,
                })
            })
            .collect::<anyhow::Result<_>>()?;
        let name = file.file_name().context("no file name")?;
        Ok(Self {
            id: name.to_string_lossy().into_owned(),
            schema_text: schema.to_string(),
            schema,
            instances,
        })
    }
}

/// Writes a value as Python's `json.dumps` with `ensure_ascii=False` lays it out. Recursive: the
/// parser has limited the depth.
fn write_spaced(value: &Value, text: &mut String) {
    match value {
        Value::Array(items) => {
            text.push('[');
            for (i, item) in items.iter().enumerate() {
                text.push_str(if i > 0 { ", " } else { "" });
                write_spaced(item, text);
            }
            text.push(']');
        }
        Value::Object(members) => {
            text.push('{');
            for (i, (key, value)) in members.iter().enumerate() {
                text.push_str(if i > 0 { ", " } else { "" });
                text.push_str(&Value::from(key.as_str()).to_string());
                text.push_str(": ");
                write_spaced(value, text);
            }
            text.push('}');
        }
        scalar => text.push_str(&scalar.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_layout_is_pythons() {
        let value = json!({"b": [1, 2.5, "é\n"], "a": {}, "c": [[], null]});
        let mut text = String::new();
        write_spaced(&value, &mut text);
        let expected = r#"{"b": [1, 2.5, "é\n"], "a": {}, "c": [[], null]}"#;
        assert_eq!(text, expected);
    }
}
