//! Keywords of JSON Schema: which are enforced, which say something about the schema alone, and which
//! have no effect.

use std::borrow::Cow;

use serde_json::{Map, Value};
use structured_output::{Draft, did_you_mean};

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

/// Keywords that say something of values of one type alone.
const OF_TYPES: [(&[&str], &[&str]); 4] = [
    (
        &["string"],
        &["format", "maxLength", "minLength", "pattern"],
    ),
    (
        &["number", "integer"],
        &[
            "exclusiveMaximum",
            "exclusiveMinimum",
            "maximum",
            "minimum",
            "multipleOf",
        ],
    ),
    (
        &["array"],
        &[
            "additionalItems",
            "contains",
            "items",
            "maxContains",
            "maxItems",
            "minContains",
            "minItems",
            "prefixItems",
            "unevaluatedItems",
            "uniqueItems",
        ],
    ),
    (
        &["object"],
        &[
            "additionalProperties",
            "dependentRequired",
            "dependentSchemas",
            "maxProperties",
            "minProperties",
            "patternProperties",
            "properties",
            "propertyNames",
            "required",
            "unevaluatedProperties",
        ],
    ),
];

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

/// Where a keyword stands.
#[derive(Debug, Clone, Copy)]
pub struct KeywordPlace<'a> {
    /// The way to its schema.
    path: &'a [Cow<'a, str>],
    /// The schema.
    schema: &'a Map<String, Value>,
    /// By which the schema is read.
    draft: Draft,
}

impl KeywordPlace<'_> {
    /// The effect of a keyword here, with this value.
    pub fn effect(&self, keyword: &str, value: &Value) -> KeywordEffect {
        let is_other_format =
            || keyword == "format" && value.as_str().is_some_and(|name| !FORMATS.contains(&name));
        let asks_for_nothing = || keyword == "nullable" && value == false;
        if STRUCTURE.contains(&keyword) {
            KeywordEffect::Structure
        } else if is_other_format() {
            KeywordEffect::None
        } else if ASSERTIONS.contains(&keyword)
            || SCHEMAS.contains(&keyword)
            || NAMED_SCHEMAS.contains(&keyword)
        {
            match self.why_idle(keyword) {
                Some(_) => KeywordEffect::None,
                None => KeywordEffect::Enforced,
            }
        } else if ANNOTATIONS.contains(&keyword) || keyword.starts_with("x-") || asks_for_nothing()
        {
            KeywordEffect::Annotation
        } else {
            KeywordEffect::None
        }
    }

    /// Why a keyword that can be enforced says nothing here.
    fn why_idle(&self, keyword: &str) -> Option<String> {
        let draft = || match self.draft {
            Draft::Auto => "every draft".to_owned(),
            Draft::Draft4 => "draft 4".to_owned(),
            Draft::Draft6 => "draft 6".to_owned(),
            Draft::Draft7 => "draft 7".to_owned(),
            Draft::Draft2019_09 => "draft 2019-09".to_owned(),
            Draft::Draft2020_12 => "draft 2020-12".to_owned(),
        };
        let has = |other: &str| self.schema.contains_key(other);
        if !self.draft.knows(keyword) {
            let instead = match keyword {
                "const" => ": write enum, a list of one value",
                "prefixItems" => ": write items, a list",
                "additionalItems" => ": write items",
                _ => "",
            };
            return Some(format!("{} doesn't have it{instead}", draft()));
        }
        if keyword != "$ref" && has("$ref") && self.draft.ref_hides_siblings() {
            return Some(format!(
                "{} ignores what stands beside $ref: put both into allOf",
                draft()
            ));
        }
        match keyword {
            "then" | "else" if !has("if") => return Some("there is no if".to_owned()),
            "if" if !has("then") && !has("else") => {
                return Some("there is no then or else".to_owned());
            }
            "minContains" | "maxContains" if !has("contains") => {
                return Some("there is no contains".to_owned());
            }
            "additionalItems" if !self.schema.get("items").is_some_and(Value::is_array) => {
                return Some(match has("prefixItems") {
                    true => "beside prefixItems it is called items".to_owned(),
                    false => "items is no list".to_owned(),
                });
            }
            _ => {}
        }
        let allowed = match self.schema.get("type")? {
            Value::String(name) => vec![name.as_str()],
            Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
            _ => return None,
        };
        let (types, _) = OF_TYPES
            .iter()
            .find(|(_, keywords)| keywords.contains(&keyword))?;
        let is_of_one = types.iter().any(|name| allowed.contains(name));
        let kind = types.first().filter(|_| !is_of_one)?;
        Some(format!("type allows no {kind}"))
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

/// Visits each keyword of a schema and of the schemas in it, with its place. Linear in the schema.
pub fn visit_keywords<'a>(
    schema: &'a Value,
    visit: &mut impl FnMut(&KeywordPlace<'_>, &'a str, &'a Value),
) {
    visit_below(schema, Draft::Auto, &mut Vec::new(), visit);
}

/// The recursion is as deep as the JSON, which its reader bounds.
fn visit_below<'a>(
    schema: &'a Value,
    draft: Draft,
    path: &mut Vec<Cow<'a, str>>,
    visit: &mut impl FnMut(&KeywordPlace<'_>, &'a str, &'a Value),
) {
    let Value::Object(schema) = schema else {
        return;
    };
    let named = schema.get("$schema").and_then(Value::as_str);
    let draft = named.and_then(Draft::of_schema_uri).unwrap_or(draft);
    for (keyword, value) in schema {
        let place = KeywordPlace {
            path: path.as_slice(),
            schema,
            draft,
        };
        visit(&place, keyword, value);
        path.push(keyword.into());
        match value {
            Value::Array(schemas) if SCHEMAS.contains(&keyword.as_str()) => {
                for (i, schema) in schemas.iter().enumerate() {
                    path.push(i.to_string().into());
                    visit_below(schema, draft, path, visit);
                    path.pop();
                }
            }
            Value::Object(schemas) if NAMED_SCHEMAS.contains(&keyword.as_str()) => {
                for (name, schema) in schemas {
                    path.push(name.into());
                    visit_below(schema, draft, path, visit);
                    path.pop();
                }
            }
            Value::Object(_) if SCHEMAS.contains(&keyword.as_str()) => {
                visit_below(value, draft, path, visit);
            }
            _ => {}
        }
        path.pop();
    }
}

/// The keywords of a schema that have no effect though their writer may expect one: at most 16, and in how many
/// more places there are others.
pub fn schema_warnings(schema: &Value) -> (Vec<SchemaWarning>, usize) {
    let mut warnings: Vec<SchemaWarning> = Vec::new();
    let mut num_more = 0;
    visit_keywords(schema, &mut |place, keyword, value| {
        if place.effect(keyword, value) != KeywordEffect::None {
            return;
        }
        let format = value.as_str().filter(|_| keyword == "format");
        let is_other_format = format.is_some_and(|name| !FORMATS.contains(&name));
        let format = format.filter(|_| is_other_format);
        let name = crate::error::cut_short(&match format {
            Some(format) => format!("format {format:?}"),
            None => keyword.to_owned(),
        });
        let is_full = warnings.len() == MAX_WARNINGS;
        let instead = match warnings.iter().find(|known| known.keyword == name) {
            None if is_full => {
                num_more += 1;
                return;
            }
            // Names are compared once, however often one comes.
            Some(known) if format.is_some() || !is_known(keyword) => known.instead.clone(),
            _ => instead(place, keyword, format),
        };
        let is_same =
            |known: &&mut SchemaWarning| known.keyword == name && known.instead == instead;
        if let Some(known) = warnings.iter_mut().find(is_same) {
            known.places += 1;
        } else if !is_full {
            warnings.push(SchemaWarning {
                pointer: pointer(place.path, keyword),
                keyword: name,
                instead,
                places: 1,
            });
        } else {
            num_more += 1;
        }
    });
    (warnings, num_more)
}

fn instead(place: &KeywordPlace<'_>, keyword: &str, format: Option<&str>) -> Option<String> {
    if let Some(format) = format {
        return Some(match did_you_mean(format, FORMATS) {
            Some(meant) => format!("did you mean {meant:?}?"),
            None => "write a pattern, or minimum and maximum of a number".to_owned(),
        });
    }
    if let Some((_, instead)) = INSTEAD.iter().find(|(name, _)| *name == keyword) {
        return Some((*instead).to_owned());
    }
    if is_known(keyword) {
        return place.why_idle(keyword);
    }
    did_you_mean(keyword, known_keywords()).map(|meant| format!("did you mean `{meant}`?"))
}

fn known_keywords() -> impl Iterator<Item = &'static str> {
    let lists = [&ASSERTIONS[..], &SCHEMAS, &NAMED_SCHEMAS, &ANNOTATIONS];
    lists.into_iter().flatten().copied()
}

fn is_known(keyword: &str) -> bool {
    known_keywords().any(|known| known == keyword)
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
        let (warnings, _) = schema_warnings(&schema);
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
    fn what_a_draft_does_not_read_has_no_effect() {
        let warned = |schema: Value| warnings(schema).join(" | ");
        let of = |draft: &str, schema: Value| {
            let mut schema = schema;
            schema["$schema"] = format!("http://json-schema.org/draft-0{draft}/schema#").into();
            warned(schema)
        };
        assert_eq!(
            of("4", json!({"type": "integer", "const": 7})),
            "at `#/const`: const has no effect; draft 4 doesn't have it: write enum, a list of one value"
        );
        assert_eq!(
            of(
                "7",
                json!({"prefixItems": [{"const": 1}], "unevaluatedProperties": false})
            ),
            "at `#/prefixItems`: prefixItems has no effect; draft 7 doesn't have it: write items, a list | \
             at `#/unevaluatedProperties`: unevaluatedProperties has no effect; draft 7 doesn't have it"
        );
        let hidden = json!({"properties": {"a": {"$ref": "#/definitions/b", "maxLength": 1, "title": "t"}},
            "definitions": {"b": {}}});
        assert_eq!(
            of("7", hidden.clone()),
            "at `#/properties/a/maxLength`: maxLength has no effect; draft 7 ignores what stands beside \
             $ref: put both into allOf"
        );
        assert_eq!(warned(hidden), "");
        // A schema within one says what it is itself.
        let within = json!({"properties": {"a": {"$schema": "http://json-schema.org/draft-04/schema#",
            "const": 1}, "b": {"const": 2}}});
        assert!(
            warned(within).starts_with("at `#/properties/a/const`: const has no effect; draft 4")
        );
    }

    #[test]
    fn keywords_that_lack_another_or_their_type_have_no_effect() {
        for (schema, warned) in [
            (json!({"then": {}}), "there is no if"),
            (json!({"else": {}}), "there is no if"),
            (json!({"if": {}}), "there is no then or else"),
            (json!({"minContains": 2}), "there is no contains"),
            (
                json!({"prefixItems": [{}], "additionalItems": false}),
                "beside prefixItems it is called items",
            ),
            (
                json!({"items": {}, "additionalItems": false}),
                "items is no list",
            ),
            (
                json!({"type": "integer", "minLength": 1}),
                "type allows no string",
            ),
            (
                json!({"type": ["null", "array"], "required": []}),
                "type allows no object",
            ),
        ] {
            let warnings = warnings(schema);
            assert_eq!(warnings.len(), 1, "{warnings:?}");
            assert!(
                warnings[0].ends_with(&format!("has no effect; {warned}")),
                "{warnings:?}"
            );
        }
        for schema in [
            json!({"if": {}, "then": {}}),
            json!({"contains": {}, "minContains": 2}),
            json!({"items": [{}], "additionalItems": false}),
            json!({"type": ["integer", "string"], "minLength": 1, "minimum": 1}),
            json!({"type": "object", "properties": {"type": {"type": "string"}}, "required": ["type"]}),
        ] {
            assert_eq!(warnings(schema), [""; 0]);
        }
    }

    #[test]
    fn there_are_at_most_sixteen() {
        let mut schema = json!({});
        for i in 0..100 {
            schema[format!("unknown{i}").repeat(100)] = json!(1);
        }
        let (warnings, num_more) = schema_warnings(&schema);
        assert_eq!((warnings.len(), num_more), (MAX_WARNINGS, 84));
        assert!(
            warnings
                .iter()
                .all(|warning| warning.to_string().len() < 600)
        );
    }
}
