//! Keywords of JSON Schema: which are enforced, which say something about the schema alone, and which
//! have no effect.

use std::borrow::Cow;

use serde_json::Value;

use crate::did_you_mean::did_you_mean;

/// Keywords that hold one schema, or a list of them.
const SCHEMAS: [&str; 16] = [
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "contains",
    "dependencies",
    "else",
    "if",
    "items",
    "not",
    "oneOf",
    "prefixItems",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Keywords that hold schemas by name.
const NAMED_SCHEMAS: [&str; 6] = [
    "$defs",
    "definitions",
    "dependencies",
    "dependentSchemas",
    "patternProperties",
    "properties",
];
/// Keywords that are enforced and hold no schema.
const ASSERTIONS: [&str; 24] = [
    "$dynamicRef",
    "$recursiveRef",
    "$ref",
    "const",
    "dependentRequired",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "maxContains",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minContains",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "pattern",
    "required",
    "type",
    "uniqueItems",
];
/// Keywords that are about the schema itself.
const STRUCTURE: [&str; 10] = [
    "$anchor",
    "$comment",
    "$defs",
    "$dynamicAnchor",
    "$id",
    "$recursiveAnchor",
    "$schema",
    "$vocabulary",
    "definitions",
    "id",
];
/// Keywords for readers, of which nobody expects an effect.
const ANNOTATIONS: [&str; 7] = [
    "default",
    "deprecated",
    "description",
    "examples",
    "readOnly",
    "title",
    "writeOnly",
];
/// Formats that are enforced.
pub const FORMATS: [&str; 19] = [
    "date",
    "date-time",
    "duration",
    "email",
    "hostname",
    "idn-email",
    "idn-hostname",
    "ipv4",
    "ipv6",
    "iri",
    "iri-reference",
    "json-pointer",
    "regex",
    "relative-json-pointer",
    "time",
    "uri",
    "uri-reference",
    "uri-template",
    "uuid",
];
/// Keywords of other dialects, and what to write.
const INSTEAD: [(&str, &str); 16] = [
    ("contentEncoding", "write a pattern"),
    ("contentMediaType", "write a pattern"),
    (
        "contentSchema",
        "write the schema where the value is not a string",
    ),
    (
        "discriminator",
        "give the property a const in each schema of anyOf",
    ),
    ("enumDescriptions", "write them into description"),
    ("enumNames", "write them into description"),
    ("example", "write examples, a list"),
    ("externalDocs", "write $comment or description"),
    ("maxLen", "write maxLength"),
    ("minLen", "write minLength"),
    (
        "nullable",
        "add \"null\" to type, as in \"type\": [\"string\", \"null\"]",
    ),
    ("optional", "leave the property out of required"),
    (
        "propertyOrdering",
        "properties come in the order of properties",
    ),
    ("regex", "write pattern"),
    (
        "strict",
        "write it beside the schema; every schema is enforced",
    ),
    ("xml", "write $comment or description"),
];
/// Most different keywords that warnings name.
const MAX_WARNINGS: usize = 16;

/// The effect of a keyword.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeywordEffect {
    /// The output is held to it.
    Enforced,
    /// It names, refers to or comments on schemas.
    Structure,
    /// It tells readers something.
    Annotation,
    /// None, though its writer may expect one.
    None,
}

impl KeywordEffect {
    /// The effect of a keyword with this value.
    pub fn of(keyword: &str, value: &Value) -> Self {
        let is_other_format =
            || keyword == "format" && value.as_str().is_some_and(|name| !FORMATS.contains(&name));
        let asks_for_nothing = || keyword == "nullable" && value == false;
        if STRUCTURE.contains(&keyword) {
            Self::Structure
        } else if is_other_format() {
            Self::None
        } else if ASSERTIONS.contains(&keyword)
            || SCHEMAS.contains(&keyword)
            || NAMED_SCHEMAS.contains(&keyword)
        {
            Self::Enforced
        } else if ANNOTATIONS.contains(&keyword) || keyword.starts_with("x-") || asks_for_nothing()
        {
            Self::Annotation
        } else {
            Self::None
        }
    }
}

/// A keyword without effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaWarning {
    /// The JSON pointer of the first place that has it.
    pub pointer: String,
    /// The keyword, or its format.
    keyword: String,
    /// What to write instead, if that is known.
    instead: Option<String>,
    /// The places that have it.
    places: usize,
}

impl std::fmt::Display for SchemaWarning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "at `#{}`: {} has no effect", self.pointer, self.keyword)?;
        match self.places {
            1 => {}
            places => write!(f, " (in {places} places)")?,
        }
        match &self.instead {
            Some(instead) => write!(f, "; {instead}"),
            None => Ok(()),
        }
    }
}

/// Visits each keyword of a schema and of the schemas in it, with the way to its schema. Linear in the
/// schema.
pub fn visit_keywords<'a>(
    schema: &'a Value,
    visit: &mut impl FnMut(&[Cow<'a, str>], &'a str, &'a Value),
) {
    visit_below(schema, &mut Vec::new(), visit);
}

/// The recursion is as deep as the JSON, which its reader bounds.
fn visit_below<'a>(
    schema: &'a Value,
    path: &mut Vec<Cow<'a, str>>,
    visit: &mut impl FnMut(&[Cow<'a, str>], &'a str, &'a Value),
) {
    for (keyword, value) in schema.as_object().into_iter().flatten() {
        visit(path, keyword, value);
        path.push(keyword.into());
        match value {
            Value::Array(schemas) if SCHEMAS.contains(&keyword.as_str()) => {
                for (i, schema) in schemas.iter().enumerate() {
                    path.push(i.to_string().into());
                    visit_below(schema, path, visit);
                    path.pop();
                }
            }
            Value::Object(schemas) if NAMED_SCHEMAS.contains(&keyword.as_str()) => {
                for (name, schema) in schemas {
                    path.push(name.into());
                    visit_below(schema, path, visit);
                    path.pop();
                }
            }
            Value::Object(_) if SCHEMAS.contains(&keyword.as_str()) => {
                visit_below(value, path, visit);
            }
            _ => {}
        }
        path.pop();
    }
}

/// The keywords of a schema that have no effect though their writer may expect one, at most 16.
pub fn schema_warnings(schema: &Value) -> Vec<SchemaWarning> {
    let mut warnings: Vec<SchemaWarning> = Vec::new();
    visit_keywords(schema, &mut |path, keyword, value| {
        if KeywordEffect::of(keyword, value) != KeywordEffect::None {
            return;
        }
        let format = value.as_str().filter(|_| keyword == "format");
        let name = crate::error::cut_short(&match format {
            Some(format) => format!("format {format:?}"),
            None => keyword.to_owned(),
        });
        if let Some(known) = warnings.iter_mut().find(|known| known.keyword == name) {
            known.places += 1;
        } else if warnings.len() < MAX_WARNINGS {
            warnings.push(SchemaWarning {
                pointer: pointer(path, keyword),
                keyword: name,
                instead: instead(keyword, format),
                places: 1,
            });
        }
    });
    warnings
}

fn instead(keyword: &str, format: Option<&str>) -> Option<String> {
    if let Some(format) = format {
        return Some(match did_you_mean(format, FORMATS) {
            Some(meant) => format!("did you mean {meant:?}?"),
            None => "write a pattern, or minimum and maximum of a number".to_owned(),
        });
    }
    if let Some((_, instead)) = INSTEAD.iter().find(|(name, _)| *name == keyword) {
        return Some((*instead).to_owned());
    }
    let known = [&ASSERTIONS[..], &SCHEMAS, &NAMED_SCHEMAS, &ANNOTATIONS].concat();
    did_you_mean(keyword, known).map(|meant| format!("did you mean `{meant}`?"))
}

fn pointer(path: &[Cow<str>], keyword: &str) -> String {
    let names = path.iter().map(Cow::as_ref).chain([keyword]);
    let escaped = names.map(|name| format!("/{}", name.replace('~', "~0").replace('/', "~1")));
    crate::error::cut_short(&escaped.collect::<String>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn warnings(schema: Value) -> Vec<String> {
        let warnings = schema_warnings(&schema);
        warnings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn keywords_without_effect_are_named_with_what_to_write() {
        let schema = json!({
            "type": "object", "requierd": ["a"],
            "properties": {
                "a": {"type": "string", "nullable": true, "format": "date"},
                "nullable": {"type": "integer", "nullable": true, "format": "int32"},
                "c/d": {"anyOf": [{"max_length": 3}, {"colour": 1}], "format": "datetime"},
            },
        });
        assert_eq!(
            warnings(schema),
            [
                "at `#/requierd`: requierd has no effect; did you mean `required`?",
                "at `#/properties/a/nullable`: nullable has no effect (in 2 places); add \"null\" to \
                 type, as in \"type\": [\"string\", \"null\"]",
                "at `#/properties/nullable/format`: format \"int32\" has no effect; write a pattern, \
                 or minimum and maximum of a number",
                "at `#/properties/c~1d/anyOf/0/max_length`: max_length has no effect; did you mean \
                 `maxLength`?",
                "at `#/properties/c~1d/anyOf/1/colour`: colour has no effect",
                "at `#/properties/c~1d/format`: format \"datetime\" has no effect; did you mean \
                 \"date-time\"?",
            ]
        );
    }

    #[test]
    fn annotations_and_data_are_no_warnings() {
        let schema = json!({
            "$schema": "s", "$id": "i", "$comment": "c", "title": "t", "description": "d",
            "default": {"nullable": true}, "examples": [{"requierd": 1}], "deprecated": true,
            "readOnly": true, "writeOnly": true, "x-own": {"nullable": true}, "nullable": false,
            "const": {"requierd": []}, "enum": [{"requierd": []}],
            "$defs": {"requierd": {"type": "string"}},
        });
        assert_eq!(warnings(schema), [""; 0]);
        assert_eq!(warnings(json!(true)), [""; 0]);
    }

    #[test]
    fn there_are_at_most_sixteen() {
        let mut schema = json!({});
        for i in 0..100 {
            schema[format!("unknown{i}").repeat(100)] = json!(1);
        }
        let warnings = warnings(schema);
        assert_eq!(warnings.len(), MAX_WARNINGS);
        assert!(warnings.iter().all(|warning| warning.len() < 600));
    }
}
