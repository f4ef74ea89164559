//! Keywords of JSON Schema one by one: types, listed values, counts, and which are refused.

use super::shape::free_string;
use super::value::Value;
use crate::lexical::{EMPTY, ExprId, Lexicon, UNBOUNDED};

/// Why a schema is refused, and where: a JSON pointer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SchemaError {
    pub(crate) message: String,
    pub(crate) pointer: String,
}

pub(super) fn error(pointer: &str, message: impl Into<String>) -> SchemaError {
    SchemaError {
        message: message.into(),
        pointer: pointer.to_owned(),
    }
}

/// Assertions that are refused, whatever the type.
pub(super) const REFUSED: &[&str] = &[
    "not",
    "if",
    "$dynamicRef",
    "$recursiveRef",
    "dependentSchemas",
    "dependencies",
];
/// Assertions on strings, numbers, arrays and objects that are refused where such are possible.
pub(super) const REFUSED_BY_TYPE: &[(Type, &[&str])] = &[
    (Type::String, &["pattern"]),
    (
        Type::Number,
        &[
            "minimum",
            "maximum",
            "exclusiveMinimum",
            "exclusiveMaximum",
            "multipleOf",
        ],
    ),
    (
        Type::Array,
        &["contains", "uniqueItems", "unevaluatedItems"],
    ),
    (
        Type::Object,
        &[
            "patternProperties",
            "propertyNames",
            "minProperties",
            "maxProperties",
            "dependentRequired",
            "unevaluatedProperties",
        ],
    ),
];
/// Formats that the specification knows; others are annotations.
pub(super) const FORMATS: &[&str] = &[
    "date-time",
    "date",
    "time",
    "duration",
    "email",
    "idn-email",
    "hostname",
    "idn-hostname",
    "ipv4",
    "ipv6",
    "uri",
    "uri-reference",
    "iri",
    "iri-reference",
    "uuid",
    "uri-template",
    "json-pointer",
    "relative-json-pointer",
    "regex",
];
/// Keywords that restrict what `enum` and `const` list.
pub(super) const BESIDE_ENUM: &[&str] = &[
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "items",
    "prefixItems",
    "additionalItems",
    "properties",
    "required",
    "additionalProperties",
];
/// The types of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Null = 1,
    Boolean = 2,
    Integer = 4,
    Number = 8,
    String = 16,
    Array = 32,
    Object = 64,
}

/// A set of types, a bit each; `Number` includes `Integer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Types(pub(super) u8);

impl Types {
    pub(super) const ALL: Self = Self(0x7f);

    pub(super) fn has(self, one: Type) -> bool {
        self.0 & one as u8 != 0
    }

    pub(super) fn overlaps(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        let bits = match name {
            "null" => Type::Null as u8,
            "boolean" => Type::Boolean as u8,
            "integer" => Type::Integer as u8,
            "number" => Type::Number as u8 | Type::Integer as u8,
            "string" => Type::String as u8,
            "array" => Type::Array as u8,
            "object" => Type::Object as u8,
            _ => return None,
        };
        Some(Self(bits))
    }
}

/// Whether a keyword restricts values: what `anyOf` and its like can't stand beside yet.
pub(super) fn restricts_values(key: &str) -> bool {
    [
        "type", "enum", "const", "anyOf", "oneOf", "allOf", "format", "$ref",
    ]
    .contains(&key)
        || BESIDE_ENUM.contains(&key)
        || REFUSED.contains(&key)
        || REFUSED_BY_TYPE.iter().any(|(_, keys)| keys.contains(&key))
}

/// The values of `const` or `enum`.
pub(super) fn listed(
    schema: &Value,
    pointer: &str,
) -> Result<Option<(&'static str, Vec<Value>)>, SchemaError> {
    match (schema.get("const"), schema.get("enum")) {
        (Some(_), Some(_)) => Err(error(
            &format!("{pointer}/enum"),
            "`enum` beside `const` is not supported yet",
        )),
        (Some(value), None) => Ok(Some(("const", vec![value.clone()]))),
        (None, Some(Value::Array(values))) => Ok(Some(("enum", values.to_vec()))),
        (None, Some(_)) => Err(error(
            &format!("{pointer}/enum"),
            "expected an array of values",
        )),
        (None, None) => Ok(None),
    }
}

/// The spellings of a listed scalar, and its type among `types`.
pub(super) fn listed_value(
    lexicon: &mut Lexicon,
    value: &Value,
    types: Types,
) -> Option<(Type, ExprId)> {
    Some(match value {
        Value::Null => (Type::Null, lexicon.literal(b"null")),
        Value::Bool(true) => (Type::Boolean, lexicon.literal(b"true")),
        Value::Bool(false) => (Type::Boolean, lexicon.literal(b"false")),
        Value::String(string) => (Type::String, lexicon.json_string(string, false)),
        Value::Number(text) => {
            let (expr, is_whole) = lexicon.json_number_value(text)?;
            (
                if is_whole {
                    Type::Integer
                } else {
                    Type::Number
                },
                expr,
            )
        }
        // Where the type excludes them, they don't matter.
        Value::Array(_) if !types.has(Type::Array) => (Type::Array, EMPTY),
        Value::Object(_) if !types.has(Type::Object) => (Type::Object, EMPTY),
        Value::Array(_) | Value::Object(_) => return None,
    })
}

/// The language of the scalars of some types.
pub(super) fn scalars(
    lexicon: &mut Lexicon,
    schema: &Value,
    types: Types,
    pointer: &str,
) -> Result<ExprId, SchemaError> {
    let mut ways = Vec::new();
    if types.has(Type::Null) {
        ways.push(lexicon.literal(b"null"));
    }
    if types.has(Type::Boolean) {
        ways.extend([&b"true"[..], b"false"].map(|word| lexicon.literal(word)));
    }
    if types.has(Type::Number) {
        ways.push(lexicon.json_number());
    } else if types.has(Type::Integer) {
        ways.push(lexicon.json_integer());
    }
    if types.has(Type::String) {
        let min = count(schema, "minLength", pointer)?;
        let max = count(schema, "maxLength", pointer)?;
        let string = if min.unwrap_or(0) == 0 && max.is_none() {
            free_string(lexicon)
        } else {
            let char = lexicon.json_constrained_char();
            let body = lexicon.repeat(char, min.unwrap_or(0), max.unwrap_or(UNBOUNDED));
            lexicon.json_quoted(body)
        };
        ways.push(string);
    }
    Ok(lexicon.or(&ways))
}

/// A keyword whose value is a count: a whole number, `2.0` included.
pub(super) fn count(schema: &Value, key: &str, pointer: &str) -> Result<Option<u32>, SchemaError> {
    let Some(value) = schema.get(key) else {
        return Ok(None);
    };
    let whole = match value {
        Value::Number(text) => {
            let (digits, zeros) = text.split_once('.').unwrap_or((text, ""));
            zeros
                .bytes()
                .all(|b| b == b'0')
                .then(|| digits.parse::<u32>().ok())
                .flatten()
        }
        _ => None,
    };
    let good = whole.filter(|&count| count < UNBOUNDED);
    good.map(Some).ok_or_else(|| {
        let message = format!("expected a whole number from 0 to {}", UNBOUNDED - 1);
        error(&format!("{pointer}/{key}"), message)
    })
}
