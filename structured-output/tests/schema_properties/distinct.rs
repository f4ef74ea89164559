//! Random arrays of distinct items, of which few or many values are left for those that must come.

use serde_json::{Map, Value, json};

use crate::random::Random;

/// A schema of arrays whose items are mostly to differ from each other.
pub(crate) fn schema(random: &mut Random) -> Value {
    let mut schema = Map::new();
    let mut add = |name: &str, value: Value| schema.insert(name.to_owned(), value);
    add("type", json!("array"));
    add("items", item(random, 2));
    if random.below(3) == 0 {
        let prefix: Vec<Value> = (0..1 + random.below(3)).map(|_| item(random, 1)).collect();
        add("prefixItems", prefix.into());
    }
    if random.below(4) == 0 {
        add("contains", item(random, 1));
        if random.below(3) == 0 {
            add("minContains", json!(random.below(3)));
        }
        if random.below(3) == 0 {
            add("maxContains", json!(1 + random.below(2)));
        }
    }
    if random.below(5) > 0 {
        add("minItems", json!(1 + random.below(7)));
    }
    if random.below(4) == 0 {
        add("maxItems", json!(2 + random.below(5)));
    }
    match random.below(8) {
        0 => add("not", json!({"uniqueItems": true})),
        1 => add("anyOf", json!([{"uniqueItems": true}, {"maxItems": 3}])),
        _ => add("uniqueItems", json!(true)),
    };
    schema.into()
}

/// A schema of items, of which there are few, or more than can be counted.
fn item(random: &mut Random, depth: usize) -> Value {
    let low = random.below(4) as i64 - 1;
    let high = low + random.below(6) as i64;
    match random.below(if depth == 0 { 12 } else { 16 }) {
        0 => json!({"type": "integer", "minimum": low, "maximum": high}),
        1 => json!({"type": "integer"}),
        2 => json!({"type": "number", "multipleOf": 0.5, "minimum": low, "exclusiveMaximum": high}),
        3 => json!({"type": "integer", "multipleOf": 2, "minimum": low}),
        4 => json!({"type": "number"}),
        5 => {
            let values = random_values(random, &["1", "1.0", "2", "2.50", "10", "1e1", "-0", "0"]);
            json!({ "enum": values })
        }
        6 => {
            let strings = [
                r#""a""#,
                r#""a/b""#,
                r#""\n""#,
                r#""\u001f""#,
                r#""\"""#,
                r#""""#,
            ];
            json!({ "enum": random_values(random, &strings) })
        }
        7 => {
            let pattern =
                *random.of::<&str>(&["^[ab]{1,2}$", "^(a|/|\\n)?$", "^.?$", "^[\\u0000-\\u0002]$"]);
            json!({"type": "string", "pattern": pattern})
        }
        8 => json!({"type": "string", "maxLength": random.below(2)}),
        9 => json!({"enum": [null, true, false, "a", 1, [1], {"id": 1}]}),
        10 => json!({"type": ["boolean", "null"]}),
        11 => json!({"not": {"enum": [1, 2]}, "type": "integer", "minimum": low, "maximum": high}),
        12 => {
            let mut object = json!({
                "type": "object",
                "properties": {"id": item(random, depth - 1)},
            });
            if random.below(3) > 0 {
                object["required"] = json!(["id"]);
            }
            if random.below(2) == 0 {
                object["additionalProperties"] = json!(false);
            } else if random.below(2) == 0 {
                object["properties"]["n"] = item(random, depth - 1);
            }
            object
        }
        13 => json!({
            "type": "array",
            "items": item(random, depth - 1),
            "minItems": random.below(2),
            "maxItems": 1 + random.below(2),
        }),
        14 => json!({"anyOf": [item(random, depth - 1), item(random, depth - 1)]}),
        _ => json!(true),
    }
}

/// Some of these values, as they are spelled here.
fn random_values(random: &mut Random, spelled: &[&str]) -> Vec<Value> {
    let some: Vec<&&str> = spelled.iter().filter(|_| random.below(2) == 0).collect();
    let first = [&spelled[0]];
    let some = if some.is_empty() { &first[..] } else { &some };
    some.iter()
        .map(|text| serde_json::from_str(text).unwrap())
        .collect()
}

/// An array, mostly of distinct items.
pub(crate) fn document(random: &mut Random) -> Value {
    let scalars = [
        "0",
        "1",
        "2",
        "3",
        "4",
        "5",
        "-1",
        "1.0",
        "0.5",
        "1.5",
        "10",
        "null",
        "true",
        "false",
        r#""a""#,
        r#""b""#,
        r#""ab""#,
        r#""a/b""#,
        r#""\n""#,
        r#""\u001f""#,
        r#""/""#,
        r#""""#,
        "[]",
        "[1]",
        "[2]",
        "[1,2]",
        "{}",
        r#"{"id":0}"#,
        r#"{"id":1}"#,
        r#"{"id":2}"#,
        r#"{"id":1,"n":2}"#,
        r#"{"n":2,"id":1}"#,
        r#"{"id":"a"}"#,
        r#"{"id":[1]}"#,
    ];
    // Mostly of one kind.
    let kinds = [0..11, 0..7, 11..14, 14..22, 22..26, 26..34, 0..34];
    let kind = random.of(&kinds).clone();
    let mut items: Vec<Value> = Vec::new();
    for _ in 0..random.below(8) {
        let text = *random.of(&scalars[kind.clone()]);
        let item: Value = serde_json::from_str(text).unwrap();
        if !items.contains(&item) || random.below(8) == 0 {
            items.push(item);
        }
    }
    items.into()
}
