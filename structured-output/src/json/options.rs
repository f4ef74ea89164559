//! The options of a JSON Schema by their names, from JSON.

use super::value::Value;
use crate::error::CompileError;
use crate::options::{Draft, Format, JsonSchemaOptions, Limits, PropertyOrder, Whitespace};

/// Values within values in the options: `documents` may hold schemas.
const MAX_NESTING: usize = 512;

/// Characters of a wrong value that are shown.
const MAX_SHOWN: usize = 60;

impl JsonSchemaOptions {
    /// Reads options from the text of a JSON object, by the names of the fields. Choices are named
    /// by a string (`"usual"`, `"any"`, `"2020-12"`), `separators` are a list of two strings,
    /// `documents` an object of URIs to schemas or their texts, `limits` an object of the fields of
    /// [`Limits`]; what is not named has its default.
    ///
    /// # Errors
    /// [`CompileError::JsonSyntax`]; [`CompileError::InvalidOption`] with the name of the option
    /// that there is none of, or whose value it can't have.
    pub fn from_json(text: &str) -> Result<Self, CompileError> {
        let value = Value::parse(text, MAX_NESTING)
            .map_err(|error| CompileError::json_syntax(text, error.offset, error.message))?;
        let mut options = Self::default();
        for (name, value) in members("options", &value)? {
            options.read(name, value)?;
        }
        Ok(options)
    }

    fn read(&mut self, name: &str, value: &Value) -> Result<(), CompileError> {
        match name {
            "whitespace" => self.whitespace = chosen(name, value, &Whitespace::NAMES)?,
            "whitespace_pattern" => match value {
                Value::String(pattern) => self.whitespace_pattern = Some(pattern.clone()),
                _ => return Err(wrong(name, "a string", value)),
            },
            "indent" => {
                let right = "a whole number from 0";
                let width = u32::try_from(whole(name, value)?);
                self.indent = Some(width.map_err(|_| wrong(name, right, value))?);
            }
            "trimmed" => match value {
                Value::Bool(trimmed) => self.trimmed = *trimmed,
                _ => return Err(wrong(name, "true or false", value)),
            },
            "separators" => match value {
                Value::Array(pair) => match pair.as_slice() {
                    [Value::String(item), Value::String(key)] => {
                        self.separators = Some((item.clone(), key.clone()));
                    }
                    _ => return Err(wrong(name, "a list of two strings", value)),
                },
                _ => return Err(wrong(name, "a list of two strings", value)),
            },
            "property_order" => self.property_order = chosen(name, value, &PropertyOrder::NAMES)?,
            "format" => {
                let choices = [("assert", Format::Assert), ("annotate", Format::Annotate)];
                self.format = chosen(name, value, &choices)?;
            }
            "draft" => self.draft = chosen(name, value, &Draft::NAMES)?,
            "strict" => match value {
                Value::Bool(strict) => self.strict = *strict,
                _ => return Err(wrong(name, "true or false", value)),
            },
            "documents" => {
                for (uri, document) in members(name, value)? {
                    let text = match document {
                        Value::String(text) => text.clone(),
                        schema => schema.to_text(),
                    };
                    self.documents.insert(uri.clone(), text);
                }
            }
            "limits" => self.limits = Some(limits(value)?),
            _ => {
                let names = "whitespace, whitespace_pattern, indent, trimmed, separators, property_order, format, \
                             draft, strict, documents, limits";
                return Err(CompileError::InvalidOption {
                    option: name.to_owned(),
                    message: format!("there is no such option; there are {names}"),
                });
            }
        }
        Ok(())
    }
}

/// Limits by their names; those that are not named are the defaults.
fn limits(value: &Value) -> Result<Limits, CompileError> {
    let mut limits = Limits::default();
    for (name, value) in members("limits", value)? {
        let option = format!("limits.{name}");
        let field = match name.as_str() {
            "max_source_bytes" => &mut limits.max_source_bytes,
            "max_nesting" => &mut limits.max_nesting,
            "max_regex_nodes" => &mut limits.max_regex_nodes,
            "max_choices" => &mut limits.max_choices,
            "max_rules" => &mut limits.max_rules,
            "max_grammar_nodes" => &mut limits.max_grammar_nodes,
            "max_trigger_overlaps" => &mut limits.max_trigger_overlaps,
            "max_nested_grammars" => &mut limits.max_nested_grammars,
            "max_items" => &mut limits.max_items,
            "max_schema_nodes" => &mut limits.max_schema_nodes,
            "max_enum_entries" => &mut limits.max_enum_entries,
            "max_mask_steps" => {
                limits.max_mask_steps = whole(&option, value)?;
                continue;
            }
            "max_repetition" => {
                let max = whole(&option, value)?;
                limits.max_repetition = u32::try_from(max)
                    .map_err(|_| wrong(&option, "a whole number from 0 to 4294967295", value))?;
                continue;
            }
            _ => {
                return Err(CompileError::InvalidOption {
                    option,
                    message: "there is no such limit; there are the fields of `Limits`".to_owned(),
                });
            }
        };
        *field = usize::try_from(whole(&option, value)?).unwrap_or(usize::MAX);
    }
    Ok(limits)
}

fn whole(option: &str, value: &Value) -> Result<u64, CompileError> {
    let number = match value {
        Value::Number(text) => text.parse().ok(),
        _ => None,
    };
    number.ok_or_else(|| wrong(option, "a whole number from 0", value))
}

fn chosen<T: Copy>(
    option: &str,
    value: &Value,
    choices: &[(&'static str, T)],
) -> Result<T, CompileError> {
    let named = match value {
        Value::String(name) => named(name, choices),
        _ => None,
    };
    named.ok_or_else(|| wrong(option, &one_of(choices), value))
}

/// The choice of a name.
pub(crate) fn named<T: Copy>(name: &str, choices: &[(&'static str, T)]) -> Option<T> {
    let named = choices.iter().find(|choice| choice.0 == name);
    named.map(|named| named.1)
}

/// What would be right in place of a name that is no choice.
pub(crate) fn one_of<T>(choices: &[(&'static str, T)]) -> String {
    let names: Vec<&str> = choices.iter().map(|choice| choice.0).collect();
    format!("one of {}", names.join(", "))
}

fn members<'a>(option: &str, value: &'a Value) -> Result<&'a [(String, Value)], CompileError> {
    match value {
        Value::Object(members) => Ok(members),
        _ => Err(wrong(option, "an object", value)),
    }
}

fn wrong(option: &str, right: &str, value: &Value) -> CompileError {
    let text = value.to_text();
    let shown = match text.char_indices().nth(MAX_SHOWN) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    };
    CompileError::InvalidOption {
        option: option.to_owned(),
        message: format!("expected {right}, not `{shown}`"),
    }
}
