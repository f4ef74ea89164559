//! Random objects whose keys imply each other, in every way that a schema can say so.

use serde_json::{Map, Value, json};

use crate::random::Random;

const NAMES: &[&str] = &["a", "b", "c", "d", "e", "f"];

/// A schema of objects. Keys mostly lead to keys, so that some objects need many and some none.
pub(crate) fn schema(random: &mut Random) -> Value {
    let mut all: Vec<Value> = Vec::new();
    for _ in 0..1 + random.below(4) {
        all.push(implication(random));
    }
    let mut schema = json!({"type": "object", "allOf": all});
    if random.below(3) == 0 {
        schema["required"] = json!([random.of(NAMES)]);
    }
    if random.below(3) == 0 {
        let members: Map<String, Value> = NAMES
            .iter()
            .rev()
            .map(|&name| (name.to_owned(), value(random)))
            .collect();
        schema["properties"] = members.into();
    }
    match random.below(6) {
        0 => schema["minProperties"] = json!(random.below(5)),
        1 => schema["maxProperties"] = json!(2 + random.below(4)),
        2 => schema["additionalProperties"] = value(random),
        3 => schema["propertyNames"] = json!({"pattern": "^[a-e]"}),
        _ => {}
    }
    schema
}

/// An object, mostly of those keys.
pub(crate) fn document(random: &mut Random) -> Value {
    let mut members = Map::new();
    let often = 1 + random.below(4);
    for name in NAMES.iter().chain(&["x"]) {
        if random.below(4) < often {
            members.insert((*name).to_owned(), json!(random.below(3)));
        }
    }
    members.into()
}

fn value(random: &mut Random) -> Value {
    match random.below(6) {
        0 => json!({"const": 0}),
        1 => json!({"enum": [0, 1]}),
        2 => json!(false),
        3 => json!({"maximum": 1}),
        _ => json!(true),
    }
}

fn name(random: &mut Random) -> &'static str {
    random.of::<&str>(NAMES)
}

fn some(random: &mut Random) -> Value {
    (0..1 + random.below(2))
        .map(|_| json!(name(random)))
        .collect()
}

/// That keys are there, or not, or have some values.
fn condition(random: &mut Random) -> Value {
    match random.below(5) {
        0 => json!({"not": {"required": [name(random)]}}),
        1 => json!({"properties": {name(random): value(random)}}),
        2 => json!({"properties": {name(random): value(random)}, "required": some(random)}),
        _ => json!({"required": some(random)}),
    }
}

fn implication(random: &mut Random) -> Value {
    match random.below(7) {
        // A ring, or a chain.
        0 | 1 => {
            let first = random.below(NAMES.len());
            let count = 2 + random.below(NAMES.len() - 1);
            let at = |n: usize| NAMES[(first + n) % NAMES.len()];
            let is_ring = random.below(2);
            let all: Map<String, Value> = (0..count - 1 + is_ring)
                .map(|n| (at(n).to_owned(), json!([at((n + 1) % count)])))
                .collect();
            json!({"dependentRequired": all})
        }
        2 => {
            let mut all = Map::new();
            for name in NAMES {
                if random.below(2) == 0 {
                    all.insert((*name).to_owned(), some(random));
                }
            }
            json!({"dependentRequired": all})
        }
        3 => {
            let mut all = Map::new();
            for _ in 0..1 + random.below(4) {
                all.insert(name(random).to_owned(), condition(random));
            }
            json!({"dependentSchemas": all})
        }
        4 => json!({
            "if": condition(random), "then": condition(random), "else": condition(random)
        }),
        5 => {
            let keyword = *random.of(&["oneOf", "anyOf"]);
            let branches: Vec<Value> = (0..2 + random.below(4))
                .map(|_| condition(random))
                .collect();
            json!({ keyword: branches })
        }
        _ => json!({"not": {"required": [name(random), name(random)]}}),
    }
}
