//! Compile options of a JSON Schema by their names.

use anyhow::{anyhow, bail};
use serde_json::{Map, Value};
use structured_output::{Draft, Format, JsonSchemaOptions, Limits, PropertyOrder, Whitespace};

/// Reads options from a JSON object of names and values.
///
/// # Errors
/// A name that is not an option, or a value that it can't have; both are in the message.
pub fn from_json(options: &Map<String, Value>) -> anyhow::Result<JsonSchemaOptions> {
    let mut read = JsonSchemaOptions::default();
    for (name, value) in options {
        match name.as_str() {
            "whitespace" => read.whitespace = whitespace(text(name, value)?)?,
            "whitespace_pattern" => read.whitespace_pattern = Some(text(name, value)?.to_owned()),
            "separators" => read.separators = Some(separators(value)?),
            "property_order" => read.property_order = property_order(text(name, value)?)?,
            "format" => {
                read.format = match text(name, value)? {
                    "assert" => Format::Assert,
                    "annotate" => Format::Annotate,
                    other => bail!("format: {other:?} is none of assert, annotate"),
                }
            }
            "draft" => {
                let draft = text(name, value)?;
                let named = Draft::named(draft);
                read.draft = named.ok_or_else(|| {
                    anyhow!("draft: {draft:?} is none of auto, 4, 6, 7, 2019-09, 2020-12")
                })?;
            }
            "strict" => {
                let strict = value.as_bool();
                read.strict = strict.ok_or_else(|| wrong(name, value, "true or false"))?;
            }
            "documents" => {
                for (uri, document) in object(name, value)? {
                    let document = match document {
                        Value::String(text) => text.clone(),
                        schema => schema.to_string(),
                    };
                    read.documents.insert(uri.clone(), document);
                }
            }
            "limits" => read.limits = Some(limits(object(name, value)?)?),
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

fn property_order(name: &str) -> anyhow::Result<PropertyOrder> {
    match name {
        "schema" => Ok(PropertyOrder::Schema),
        "any" => Ok(PropertyOrder::Any),
        _ => bail!("property_order: {name:?} is none of schema, any"),
    }
}

fn separators(value: &Value) -> anyhow::Result<(String, String)> {
    let pair = value.as_array().map(Vec::as_slice);
    match pair {
        Some([Value::String(item), Value::String(key)]) => Ok((item.clone(), key.clone())),
        _ => Err(wrong("separators", value, "two strings")),
    }
}

/// Limits by their names; those that are not named are the defaults.
fn limits(names: &Map<String, Value>) -> anyhow::Result<Limits> {
    let mut limits = Limits::default();
    for (name, value) in names {
        let number = value.as_u64();
        let number = number.ok_or_else(|| wrong(name, value, "a whole number"))?;
        let size = usize::try_from(number)?;
        match name.as_str() {
            "max_source_bytes" => limits.max_source_bytes = size,
            "max_nesting" => limits.max_nesting = size,
            "max_regex_nodes" => limits.max_regex_nodes = size,
            "max_repetition" => limits.max_repetition = u32::try_from(number)?,
            "max_choices" => limits.max_choices = size,
            "max_schema_nodes" => limits.max_schema_nodes = size,
            "max_enum_entries" => limits.max_enum_entries = size,
            "max_mask_steps" => limits.max_mask_steps = number,
            _ => bail!("limits: {name} is not a limit"),
        }
    }
    Ok(limits)
}

fn text<'a>(name: &str, value: &'a Value) -> anyhow::Result<&'a str> {
    value.as_str().ok_or_else(|| wrong(name, value, "a string"))
}

fn object<'a>(name: &str, value: &'a Value) -> anyhow::Result<&'a Map<String, Value>> {
    value
        .as_object()
        .ok_or_else(|| wrong(name, value, "an object"))
}

fn wrong(name: &str, value: &Value, right: &str) -> anyhow::Error {
    anyhow!("options: {name} is {value}, and must be {right}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(options: Value) -> Result<JsonSchemaOptions, String> {
        let options = options.as_object().cloned().unwrap_or_default();
        from_json(&options).map_err(|error| error.to_string())
    }

    #[test]
    fn each_option_has_its_name() {
        let options = json!({
            "whitespace": "spaced",
            "whitespace_pattern": " ?",
            "separators": [",", ": "],
            "property_order": "any",
            "format": "annotate",
            "draft": "2019-09",
            "strict": true,
            "documents": {"http://a/b": {"type": "null"}},
            "limits": {"max_nesting": 7},
        });
        let expected = JsonSchemaOptions {
            whitespace: Whitespace::Spaced,
            whitespace_pattern: Some(" ?".to_owned()),
            separators: Some((",".to_owned(), ": ".to_owned())),
            property_order: PropertyOrder::Any,
            format: Format::Annotate,
            draft: Draft::Draft2019_09,
            strict: true,
            documents: [("http://a/b".to_owned(), r#"{"type":"null"}"#.to_owned())].into(),
            limits: Some(Limits {
                max_nesting: 7,
                ..Limits::default()
            }),
        };
        assert_eq!(read(options), Ok(expected));
        assert_eq!(read(json!({})), Ok(JsonSchemaOptions::default()));
    }

    #[test]
    fn a_wrong_value_is_named() {
        let error = |options| read(options).unwrap_err();
        assert_eq!(
            error(json!({"strict": 1})),
            "options: strict is 1, and must be true or false"
        );
        assert_eq!(
            error(json!({"draft": "3"})),
            "draft: \"3\" is none of auto, 4, 6, 7, 2019-09, 2020-12"
        );
        assert_eq!(
            error(json!({"limits": {"max_height": 3}})),
            "limits: max_height is not a limit"
        );
    }
}
