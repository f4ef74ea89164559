//! The schemas of `tagged` with what they say of texts further within, in arrays and objects, and with
//! tags of any kind.

use serde_json::{Value, json};

use crate::random::Random;
use crate::tagged::{TAG, TAGS, TEXTS, VALUES};

/// What stands in the place of texts and tags.
#[derive(Clone, Copy)]
pub(crate) struct Payload {
    /// From the outermost to the innermost.
    wraps: [u8; 2],
    tags: usize,
}

impl Payload {
    pub(crate) fn new(random: &mut Random) -> Self {
        Self {
            wraps: [random.below(5) as u8, random.below(4) as u8],
            tags: random.below(4),
        }
    }

    /// The value of a tag.
    fn tag(self, tag: &str) -> Value {
        let at = TAGS.iter().position(|own| *own == tag);
        match (self.tags, at) {
            (1, Some(at)) => json!(at),
            (2, Some(at)) => [
                json!(null),
                json!(true),
                json!([1]),
                json!({"t": 1}),
                json!(12.5),
            ][at]
                .clone(),
            (3, Some(at)) => [
                json!({"t": "a"}),
                json!({"t": "b"}),
                json!(["a"]),
                json!([]),
                json!(1),
            ][at]
                .clone(),
            _ => json!(tag),
        }
    }

    /// A schema of `tagged`.
    pub(crate) fn schema(self, schema: &Value, random: &mut Random) -> Value {
        match schema {
            Value::Array(list) => list.iter().map(|one| self.schema(one, random)).collect(),
            Value::Object(members) => {
                let members = members.iter().map(|(name, schema)| {
                    let changed = match &**name {
                        TAG => self.tag_schema(schema),
                        _ if VALUES.contains(&&**name) => self.wrapped(schema, random),
                        _ => self.schema(schema, random),
                    };
                    (name.clone(), changed)
                });
                Value::Object(members.collect())
            }
            other => other.clone(),
        }
    }

    fn tag_schema(self, schema: &Value) -> Value {
        let own = |value: &Value| match value {
            Value::String(tag) => self.tag(tag),
            other => other.clone(),
        };
        if let Some(tag) = schema.get("const") {
            return match (self.tags, own(tag)) {
                // Told by a member or an item.
                (3, Value::Object(tag)) => {
                    json!({"type": "object", "properties": {"t": {"const": tag["t"]}}, "required": ["t"]})
                }
                (2, Value::Null) => json!({"type": "null"}),
                (1, Value::Number(tag)) => {
                    json!({"minimum": tag, "maximum": tag, "type": "number"})
                }
                (_, tag) => json!({"const": tag}),
            };
        }
        match schema.get("enum").and_then(Value::as_array) {
            Some(tags) => json!({"enum": tags.iter().map(own).collect::<Vec<_>>()}),
            None => schema.clone(),
        }
    }

    fn wrapped(self, text: &Value, random: &mut Random) -> Value {
        let mut schema = text.clone();
        for wrap in self.wraps.into_iter().rev() {
            schema = match wrap {
                1 => json!({"type": "array", "items": schema}),
                2 => json!({"type": "object", "properties": {"v": schema}}),
                3 => json!({"prefixItems": [schema], "items": {"type": "string"}}),
                _ => continue,
            };
            match random.below(6) {
                0 => schema["required"] = json!(["v"]),
                1 => schema["minItems"] = json!(1),
                2 if wrap == 2 => schema["additionalProperties"] = json!(false),
                3 if wrap == 1 => schema["contains"] = json!({"maxLength": 2}),
                _ => {}
            }
        }
        schema
    }

    /// A document of `tagged`.
    pub(crate) fn document(self, document: &Value, random: &mut Random) -> Value {
        match document {
            Value::Array(list) => list.iter().map(|one| self.document(one, random)).collect(),
            Value::Object(members) => {
                let members = members.iter().map(|(name, value)| {
                    let changed = match value {
                        Value::String(tag) if name == TAG => self.tag(tag),
                        _ if VALUES.contains(&&**name) => self.value(value, 0, random),
                        other => other.clone(),
                    };
                    (name.clone(), changed)
                });
                Value::Object(members.collect())
            }
            other => other.clone(),
        }
    }

    fn value(self, text: &Value, depth: usize, random: &mut Random) -> Value {
        let Some(&wrap) = self.wraps.get(depth) else {
            return text.clone();
        };
        let inner = self.value(text, depth + 1, random);
        match (wrap, random.below(8)) {
            (1 | 3, 0) => json!([inner, random.of(TEXTS)]),
            (1 | 3, 1) => json!([]),
            (1, 2) => json!([inner, inner]),
            (1 | 3, _) => json!([inner]),
            (2, 0) => json!({}),
            (2, 1) => json!({"w": inner, "v": inner}),
            (2, _) => json!({"v": inner}),
            _ => inner,
        }
    }
}
