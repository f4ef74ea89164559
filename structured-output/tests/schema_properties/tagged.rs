//! Random objects of which several schemas say different texts of one member, told apart by another one
//! that comes before it or after.

use serde_json::{Map, Value, json};

use crate::random::Random;

/// Texts that overlap, and hold each other.
const PATTERNS: &[&str] = &[
    "^a+$",
    "^[ab]*$",
    "^[0-9]{1,3}$",
    "a",
    "b$",
    "^(a|ab|abc)$",
    "^(?!a)",
    "^[a-c]{2}",
    "^.{2,4}$",
    "1",
    "ab|12",
    "^12?5?$",
];
pub(crate) const TEXTS: &[&str] = &[
    "", "a", "b", "aa", "ab", "abc", "1", "12", "125", "0", "a1", "cab", "abab", "é",
];
pub(crate) const TAGS: &[&str] = &["a", "ab", "b", "1", "12"];
pub(crate) const VALUES: &[&str] = &["a", "b"];
pub(crate) const TAG: &str = "ab";

/// What is said of a text.
fn text(random: &mut Random) -> Value {
    let mut schema = match random.below(8) {
        0 => json!({"maxLength": random.below(4)}),
        1 => json!({"minLength": 1 + random.below(3)}),
        2 => json!({"enum": [random.of(TEXTS), random.of(TEXTS)]}),
        3 => json!({"not": {"pattern": random.of(PATTERNS)}}),
        _ => json!({"pattern": random.of(PATTERNS)}),
    };
    if random.below(3) > 0 {
        schema["type"] = json!("string");
    }
    schema
}

/// What is said of the tag.
fn tag(random: &mut Random, at: usize) -> Value {
    let own = TAGS[at % TAGS.len()];
    match random.below(12) {
        0 => json!({"enum": [own, random.of(TAGS)]}),
        1 => json!({"pattern": "a"}),
        2 => json!({"const": random.below(2)}),
        3 => json!({"type": "string"}),
        _ => json!({"const": own}),
    }
}

fn value(random: &mut Random) -> &'static str {
    match random.below(4) {
        0 => VALUES[1],
        _ => VALUES[0],
    }
}

fn required(random: &mut Random) -> Value {
    let mut names: Vec<&str> = [TAG, VALUES[0], VALUES[1]].into();
    names.truncate(random.below(4));
    json!(names)
}

/// An object with a text and a tag, which must be there and is its own where it is `plain`.
fn branch(random: &mut Random, at: usize, is_plain: bool) -> Value {
    let mut properties = Map::new();
    properties.insert(value(random).to_owned(), text(random));
    if random.below(4) == 0 {
        properties.insert(value(random).to_owned(), text(random));
    }
    if random.below(8) > 0 {
        properties.insert(TAG.to_owned(), tag(random, at));
    }
    let mut schema = json!({"properties": properties});
    if random.below(2) == 0 {
        schema["required"] = required(random);
    }
    if random.below(8) == 0 {
        schema["additionalProperties"] = json!(false);
    }
    if is_plain {
        schema["properties"][TAG] = json!({"const": TAGS[at % TAGS.len()]});
        schema["required"] = json!([TAG]);
    }
    schema
}

/// What the tag says of a text.
fn implication(random: &mut Random, at: usize) -> Value {
    let mut condition = json!({"properties": {TAG: tag(random, at)}});
    if random.below(2) == 0 {
        condition["required"] = json!([TAG]);
    }
    let then = json!({"properties": {value(random): text(random)}});
    let mut schema = json!({"if": condition, "then": then});
    if random.below(4) == 0 {
        schema["else"] = json!({"properties": {value(random): text(random)}});
    }
    schema
}

pub(crate) fn schema(random: &mut Random) -> Value {
    let count = 2 + random.below(5);
    let mut schema = match random.below(3) {
        0 => {
            let all: Vec<Value> = (0..count).map(|at| implication(random, at)).collect();
            json!({"allOf": all})
        }
        at => {
            let is_one = at == 2;
            // Exactly one of many texts that nothing tells apart is dear.
            let is_plain = is_one && random.below(2) == 0;
            let count = if is_one && !is_plain {
                count.min(3)
            } else {
                count
            };
            let branches = (0..count).map(|at| branch(random, at, is_plain));
            let branches: Vec<Value> = branches.collect();
            match is_one {
                true => json!({"oneOf": branches}),
                false => json!({"anyOf": branches}),
            }
        }
    };
    if random.below(4) > 0 {
        schema["type"] = json!("object");
    }
    if random.below(2) == 0 {
        schema["required"] = required(random);
    }
    match random.below(8) {
        0 => schema["properties"] = json!({value(random): {"type": "string"}}),
        1 => schema["properties"] = json!({TAG: {"type": "string"}, value(random): text(random)}),
        2 => schema["patternProperties"] = json!({"^b|x": text(random)}),
        3 => schema["additionalProperties"] = text(random),
        4 => schema["maxProperties"] = json!(2),
        _ => {}
    }
    match random.below(8) {
        0 => json!({"anyOf": [schema, branch(random, 0, false)]}),
        1 => json!({"type": "array", "items": schema, "maxItems": 2}),
        _ => schema,
    }
}

pub(crate) fn document(random: &mut Random) -> Value {
    match random.below(8) {
        0 => json!([object(random), object(random)]),
        _ => object(random),
    }
}

fn object(random: &mut Random) -> Value {
    let mut members = Map::new();
    let mut names: Vec<&str> = vec![TAG, VALUES[0], VALUES[1], "x"];
    let often = 1 + random.below(4);
    while !names.is_empty() {
        let name = names.swap_remove(random.below(names.len()));
        if random.below(4) >= often {
            continue;
        }
        let value = match random.below(12) {
            0 => json!(random.below(3)),
            _ if name == TAG => json!(random.of(TAGS)),
            _ => json!(random.of(TEXTS)),
        };
        members.insert(name.to_owned(), value);
    }
    members.into()
}
