//! Random schemas over every keyword of a draft, and random documents to put to them. Names, strings
//! and numbers are few, so that keywords speak of the same things.

use serde_json::{Map, Value, json};
use structured_output::Draft;

/// SplitMix64: a schema is its seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// One of these.
    pub(crate) fn of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}

const NAMES: &[&str] = &["a", "b", "ab", "c", ""];
const STRINGS: &[&str] = &[
    "", "a", "b", "ab", "aa", "é", "a/b", "0", "\n", "😀", "abab", "Ab1",
];
const PATTERNS: &[&str] = &[
    "a",
    "^a",
    "b$",
    "^a*$",
    "^[ab]{1,2}$",
    "^(?!a)",
    "^(a|é)$",
    "\\d",
    "^\\S+$",
    "^.$",
    "^([a-z]{2,4})?$",
    "^[A-Za-z]{1,3}[0-9]{0,2}$",
    "^([a-z]{1,3}/?){1,2}$",
    "",
];
const NUMBERS: &[&str] = &[
    "-2", "-1", "0", "1", "2", "3", "4", "10", "0.5", "1.5", "-0.5", "2.25",
];
const TYPES: &[&str] = &[
    "null", "boolean", "integer", "number", "string", "array", "object",
];

fn number(random: &mut Random) -> Value {
    let number: &&str = random.of(NUMBERS);
    serde_json::from_str(number).unwrap()
}

/// A document, at most so deep.
pub(crate) fn document(random: &mut Random, depth: usize) -> Value {
    match random.below(if depth == 0 { 5 } else { 10 }) {
        0 => Value::Null,
        1 => Value::Bool(random.below(2) == 0),
        2 => number(random),
        3 | 4 => json!(random.of(STRINGS)),
        5..=6 => (0..random.below(4))
            .map(|_| document(random, depth - 1))
            .collect(),
        _ => {
            let mut members = Map::new();
            for _ in 0..random.below(4) {
                members.insert((*random.of(NAMES)).to_owned(), document(random, depth - 1));
            }
            members.into()
        }
    }
}

/// A document that differs from this one in a place.
pub(crate) fn mutated(random: &mut Random, document: &Value) -> Value {
    let inside = random.below(3) > 0;
    match document {
        Value::Array(items) if inside => {
            let mut items = items.clone();
            let at = random.below(items.len() + 1);
            match random.below(4) {
                _ if items.is_empty() => items.push(self::document(random, 1)),
                0 => items.insert(at, self::document(random, 1)),
                1 => drop(items.remove(at % items.len())),
                2 => items.push(items[at % items.len()].clone()),
                _ => {
                    let at = at % items.len();
                    items[at] = mutated(random, &items[at]);
                }
            }
            items.into()
        }
        Value::Object(members) if inside => {
            let mut members = members.clone();
            let keys: Vec<String> = members.keys().cloned().collect();
            match random.below(4) {
                1 if !keys.is_empty() => drop(members.remove(random.of(&keys))),
                2..=3 if !keys.is_empty() => {
                    let key = random.of(&keys);
                    members[key] = mutated(random, &members[key]);
                }
                _ => {
                    let key = (*random.of(NAMES)).to_owned();
                    members.insert(key, self::document(random, 1));
                }
            }
            members.into()
        }
        Value::String(text) if inside => json!(format!("{text}{}", random.of(STRINGS))),
        Value::Number(value) if inside => {
            let written = format!("{value}{}", if value.is_f64() { "5" } else { "1" });
            serde_json::from_str(&written).unwrap_or(Value::Null)
        }
        _ => self::document(random, 1),
    }
}

/// A schema of a draft.
pub(crate) fn schema(random: &mut Random, draft: Draft) -> Value {
    let mut schema = Schemas { random, draft }.subschema(3);
    let definitions = match draft {
        Draft::Draft2019_09 | Draft::Draft2020_12 => "$defs",
        _ => "definitions",
    };
    if let Value::Object(members) = &mut schema
        && members
            .values()
            .any(|value| value.to_string().contains("$ref"))
    {
        let mut defined = json!({
            "x": Schemas { random, draft }.subschema(2),
            "y": Schemas { random, draft }.subschema(1),
        });
        // The specification gives no meaning to a schema that refers to itself for the same value.
        for name in ["x", "y"] {
            if refers_in_place(&defined, &defined[name], name, 2) {
                defined[name] = Value::Bool(true);
            }
        }
        members.insert(definitions.to_owned(), defined);
    }
    schema
}

/// Whether a schema refers to a definition for the same value, through at most some other references.
fn refers_in_place(defined: &Value, schema: &Value, name: &str, others: u32) -> bool {
    let Value::Object(members) = schema else {
        return false;
    };
    let refers = |schema: &Value| refers_in_place(defined, schema, name, others);
    members
        .iter()
        .any(|(keyword, value)| match keyword.as_str() {
            "$ref" => {
                let to = value.as_str().and_then(|uri| uri.rsplit('/').next());
                to.is_some_and(|to| {
                    to == name
                        || others > 0 && refers_in_place(defined, &defined[to], name, others - 1)
                })
            }
            "allOf" | "anyOf" | "oneOf" => {
                value.as_array().is_some_and(|all| all.iter().any(refers))
            }
            "not" | "if" | "then" | "else" => refers(value),
            "dependentSchemas" | "dependencies" => value
                .as_object()
                .is_some_and(|all| all.values().any(refers)),
            _ => false,
        })
}

struct Schemas<'a> {
    random: &'a mut Random,
    draft: Draft,
}

impl Schemas<'_> {
    fn subschema(&mut self, depth: usize) -> Value {
        if self.draft > Draft::Draft4 && self.random.below(12) == 0 {
            return Value::Bool(self.random.below(3) > 0);
        }
        let mut members = Map::new();
        for _ in 0..1 + self.random.below(4) {
            self.keyword(&mut members, depth);
        }
        members.into()
    }

    fn list(&mut self, depth: usize) -> Value {
        let length = 1 + self.random.below(3);
        (0..length).map(|_| self.subschema(depth)).collect()
    }

    fn named(&mut self, names: &[&str], depth: usize) -> Value {
        let mut members = Map::new();
        for _ in 0..1 + self.random.below(3) {
            let name = (*self.random.of(names)).to_owned();
            members.insert(name, self.subschema(depth));
        }
        members.into()
    }

    fn names(&mut self) -> Value {
        let mut names: Vec<&str> = NAMES.to_vec();
        names.retain(|_| self.random.below(3) == 0);
        if names.is_empty() {
            names.push("a");
        }
        json!(names)
    }

    /// Adds a keyword, and what goes with it.
    fn keyword(&mut self, members: &mut Map<String, Value>, depth: usize) {
        let mut add = |name: &str, value: Value| members.insert(name.to_owned(), value);
        let is_old = self.draft < Draft::Draft2019_09;
        let count = json!(self.random.below(4));
        if depth == 0 || self.random.below(3) == 0 {
            match self.random.below(14) {
                0..=2 => add("type", json!(self.random.of(TYPES))),
                3 => {
                    let mut types = TYPES.to_vec();
                    types.retain(|_| self.random.below(2) == 0);
                    types.push("null");
                    types.dedup();
                    add("type", json!(types))
                }
                4 => {
                    let mut values: Vec<Value> = Vec::new();
                    for _ in 0..1 + self.random.below(4) {
                        let value = document(self.random, 2);
                        if !values.contains(&value) {
                            values.push(value);
                        }
                    }
                    add("enum", json!(values))
                }
                5 if self.draft > Draft::Draft4 => add("const", document(self.random, 2)),
                5..=8 => {
                    let keyword = self.random.of(&[
                        "minimum",
                        "maximum",
                        "exclusiveMinimum",
                        "exclusiveMaximum",
                    ]);
                    let bound = number(self.random);
                    match keyword.strip_prefix("exclusive") {
                        Some(plain) if self.draft == Draft::Draft4 => {
                            add(&plain.to_lowercase(), bound);
                            add(keyword, json!(true))
                        }
                        _ => add(keyword, bound),
                    }
                }
                9 => {
                    let step = *self
                        .random
                        .of::<&str>(&["1", "2", "0.5", "3", "1.5", "0.25"]);
                    add("multipleOf", serde_json::from_str(step).unwrap())
                }
                10 => add("minLength", count),
                11 => add("maxLength", count),
                _ => add("pattern", json!(self.random.of(PATTERNS))),
            };
            return;
        }
        let depth = depth - 1;
        match self.random.below(29) {
            0 if is_old => {
                add("items", self.list(depth));
                add("additionalItems", self.subschema(depth))
            }
            0 if self.draft == Draft::Draft2020_12 => add("prefixItems", self.list(depth)),
            0..=1 => add("items", self.subschema(depth)),
            2 => add("minItems", count),
            3 => add("maxItems", count),
            4..=5 if self.draft > Draft::Draft4 => {
                if !is_old && self.random.below(2) == 0 {
                    let keyword = self.random.of(&["minContains", "maxContains"]);
                    add(keyword, count);
                }
                add("contains", self.subschema(depth))
            }
            6 => add("uniqueItems", json!(true)),
            7..=9 => add("properties", self.named(NAMES, depth)),
            10 => add("patternProperties", self.named(PATTERNS, depth)),
            11 => add("additionalProperties", self.subschema(depth)),
            12..=13 => add("required", self.names()),
            14 if self.draft > Draft::Draft4 => add("propertyNames", self.subschema(depth)),
            15 => add("minProperties", count),
            16 => add("maxProperties", count),
            17 => {
                let value = json!({ (*self.random.of(NAMES)): self.names() });
                add(
                    if is_old {
                        "dependencies"
                    } else {
                        "dependentRequired"
                    },
                    value,
                )
            }
            18 => {
                let value = self.named(NAMES, depth);
                add(
                    if is_old {
                        "dependencies"
                    } else {
                        "dependentSchemas"
                    },
                    value,
                )
            }
            19 => add("allOf", self.list(depth)),
            20 => add("anyOf", self.list(depth)),
            21..=22 => add("oneOf", self.list(depth)),
            23 => add("not", self.subschema(depth)),
            24 if self.draft >= Draft::Draft7 => {
                add("then", self.subschema(depth));
                add("else", self.subschema(depth));
                add("if", self.subschema(depth))
            }
            25 if !is_old => add("unevaluatedProperties", self.subschema(depth)),
            // In 2019-09 the other validator takes items that `contains` is met by as evaluated.
            26 if self.draft == Draft::Draft2020_12 => {
                add("unevaluatedItems", self.subschema(depth))
            }
            27 => {
                let to = if is_old { "definitions" } else { "$defs" };
                let name = self.random.of(&["x", "y"]);
                add("$ref", json!(format!("#/{to}/{name}")))
            }
            _ => add("type", json!(self.random.of(TYPES))),
        };
    }
}
