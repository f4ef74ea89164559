//! The option `strict`: it takes members away, and never allows what the schema itself doesn't.

use serde_json::{Map, Value, json};
use structured_output::{Draft, JsonSchemaOptions, PropertyOrder};

use crate::place::within_memory;
use crate::random::Random;
use crate::subject::{COMPILER, Subject, Validator};
use crate::walks;

const NAMES: &[&str] = &["a", "b", "c"];

/// A schema of objects, some of which are conditions of others or are told apart by them.
pub(crate) fn schema(random: &mut Random, draft: Draft) -> Value {
    let mut schema = combined(random, draft, 2);
    let definitions = match draft < Draft::Draft2019_09 {
        true => "definitions",
        false => "$defs",
    };
    schema[definitions] = json!({"x": object(random, draft), "y": combined(random, draft, 1)});
    schema
}

/// A schema of one to three keywords that combine others.
fn combined(random: &mut Random, draft: Draft, depth: usize) -> Value {
    let mut members = match random.below(2) {
        0 => Map::new(),
        _ => match object(random, draft) {
            Value::Object(members) => members,
            _ => Map::new(),
        },
    };
    for _ in 0..1 + random.below(2) {
        let mut inner = |random: &mut Random| match random.below(if depth == 0 { 2 } else { 4 }) {
            0 | 1 => object(random, draft),
            2 => combined(random, draft, depth - 1),
            _ if draft < Draft::Draft2019_09 => json!({"$ref": "#/definitions/x"}),
            _ => json!({"$ref": format!("#/$defs/{}", random.of(&["x", "x", "y"]))}),
        };
        let list = |random: &mut Random, inner: &mut dyn FnMut(&mut Random) -> Value| {
            let length = 2 + random.below(2);
            (0..length).map(|_| inner(random)).collect::<Value>()
        };
        let (keyword, value) = match random.below(12) {
            0..=3 => ("oneOf", list(random, &mut inner)),
            4 => ("anyOf", list(random, &mut inner)),
            5 => ("allOf", list(random, &mut inner)),
            6 => ("not", inner(random)),
            7 if draft >= Draft::Draft7 => {
                members.insert("then".into(), inner(random));
                members.insert("else".into(), inner(random));
                ("if", inner(random))
            }
            8 if draft > Draft::Draft4 => {
                if draft >= Draft::Draft2019_09 {
                    members.insert("maxContains".into(), json!(1 + random.below(2)));
                }
                members.insert("items".into(), inner(random));
                ("contains", inner(random))
            }
            9 if draft >= Draft::Draft2019_09 => (
                "dependentSchemas",
                json!({(*random.of(NAMES)): inner(random)}),
            ),
            10 if draft >= Draft::Draft2019_09 => ("unevaluatedProperties", json!(false)),
            _ => ("properties", json!({(*random.of(NAMES)): inner(random)})),
        };
        members.insert(keyword.into(), value);
    }
    members.into()
}

/// A schema that names members of an object.
fn object(random: &mut Random, draft: Draft) -> Value {
    let mut named = Map::new();
    for _ in 0..1 + random.below(2) {
        let value = match random.below(6) {
            0 => json!({"enum": [1, 2]}),
            1 => json!({"enum": [1]}),
            2 => json!({"type": "object"}),
            3 => json!({"type": "object", "properties": {"a": {"enum": [1]}}}),
            4 if draft > Draft::Draft4 => json!(true),
            _ => json!({}),
        };
        named.insert((*random.of(NAMES)).into(), value);
    }
    let mut schema = json!({"properties": named});
    if random.below(3) > 0 {
        schema["type"] = json!("object");
    }
    if random.below(3) == 0 {
        schema["required"] = json!([*random.of(NAMES)]);
    }
    if random.below(6) == 0 {
        schema["additionalProperties"] = json!(random.below(2) == 0);
    }
    schema
}

/// A document that masks lead to, or one like it, that is accepted and isn't valid.
pub(crate) fn beyond(schema: &Value, draft: Draft, seed: u64) -> Option<String> {
    let mut random = Random(seed);
    let validator = Validator::new(schema, draft)?;
    let options = JsonSchemaOptions {
        draft,
        property_order: PropertyOrder::Any,
        strict: true,
        ..JsonSchemaOptions::default()
    };
    let subject = Subject::with(&COMPILER, schema, options)?;
    let mut documents: Vec<Value> = (0..20).map(|_| document(&mut random, 2)).collect();
    if let Err(error) = walks(&subject, &validator, &mut random, 6, 1, &mut documents) {
        return Some(error);
    }
    documents.into_iter().find_map(|document| {
        let text = document.to_string();
        let accepted = within_memory(subject.accepts(&text, &mut random))?;
        let is_wrong = accepted && !validator.is_valid(&document);
        is_wrong.then(|| format!("{text} is accepted"))
    })
}

/// A document of the names and values that the schemas speak of.
fn document(random: &mut Random, depth: usize) -> Value {
    match random.below(if depth == 0 { 2 } else { 7 }) {
        0 => json!(1),
        1 => json!(2),
        2 => (0..random.below(3))
            .map(|_| document(random, depth - 1))
            .collect(),
        _ => {
            let mut members = Map::new();
            for _ in 0..random.below(4) {
                members.insert((*random.of(NAMES)).into(), document(random, depth - 1));
            }
            members.into()
        }
    }
}
