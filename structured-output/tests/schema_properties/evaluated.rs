//! `unevaluated...` of schemas that are met while those that they need are being compiled.

use serde_json::{Map, Value, json};
use structured_output::{Draft, PropertyOrder};

use crate::random::Random;
use crate::subject::{self, Subject, Validator};

const NAMES: &[&str] = &["a", "b", "c"];

/// A schema with two definitions that are met in any order: what one refers to for the same value
/// has branches, and members or items that are either of the two.
pub(crate) fn schema(random: &mut Random) -> Value {
    let to = |name: &str| json!({"$ref": format!("#/$defs/{name}")});
    let mut x = leaf(random);
    x["$ref"] = json!("#/$defs/y");
    let (keyword, kind) = *random.of(&[
        ("unevaluatedProperties", "array"),
        ("unevaluatedItems", "object"),
    ]);
    x[keyword] = match random.below(2) {
        0 => json!(false),
        _ => json!({"type": kind}),
    };
    let mut y = branches(random);
    if random.below(3) == 0 {
        y[keyword] = json!({"type": "null"});
    }
    let mut schema = match random.below(3) {
        0 => to("x"),
        1 => to("y"),
        _ => json!({"anyOf": [to("y"), to("x")]}),
    };
    schema["$defs"] = json!({"x": x, "y": y});
    schema
}

/// A schema of a few keywords, some of them branches, without a reference for the same value.
fn branches(random: &mut Random) -> Value {
    let mut schema = json!({});
    for _ in 0..1 + random.below(2) {
        let (keyword, value) = match random.below(7) {
            0..=1 => ("anyOf", json!([leaf(random), leaf(random)])),
            2 => ("oneOf", json!([leaf(random), leaf(random)])),
            3 => (
                "allOf",
                json!([leaf(random), {"anyOf": [leaf(random), leaf(random)]}]),
            ),
            4 => (
                "dependentSchemas",
                json!({(*random.of(NAMES)): leaf(random)}),
            ),
            5 => ("contains", leaf(random)),
            _ => {
                schema["then"] = leaf(random);
                schema["else"] = leaf(random);
                ("if", leaf(random))
            }
        };
        schema[keyword] = value;
    }
    schema
}

fn leaf(random: &mut Random) -> Value {
    // Not often both: that is a language in which masks take long.
    let mut to = || match random.below(5) {
        0..=1 => json!({"$ref": "#/$defs/x"}),
        2 => json!({"$ref": "#/$defs/y"}),
        _ => json!({"type": "null"}),
    };
    let (first, second) = (to(), to());
    let mut members = Map::new();
    match random.below(6) {
        0 => members.insert("items".into(), first),
        1 => members.insert("prefixItems".into(), json!([true, first])),
        2 => members.insert(
            "type".into(),
            json!(*random.of(&["null", "object", "array"])),
        ),
        3 => members.insert("required".into(), json!([*random.of(NAMES)])),
        _ => members.insert("properties".into(), json!({(*random.of(NAMES)): second})),
    };
    if random.below(2) == 0 {
        let pattern = *random.of(&["^a", "b|c"]);
        members.insert("patternProperties".into(), json!({pattern: true}));
    }
    members.into()
}

/// A document of objects, arrays and nulls.
pub(crate) fn document(random: &mut Random, depth: usize) -> Value {
    match random.below(if depth == 0 { 1 } else { 6 }) {
        0 => Value::Null,
        1..=2 => (0..random.below(3))
            .map(|_| document(random, depth - 1))
            .collect(),
        _ => {
            let mut members = Map::new();
            for _ in 0..random.below(3) {
                let name = (*random.of(NAMES)).to_owned();
                members.insert(name, document(random, depth - 1));
            }
            members.into()
        }
    }
}

/// Checks documents, of which some are valid and some are not, against both.
#[track_caller]
fn check(schema: &Value, good: &[&str], bad: &[&str]) {
    let draft = Draft::Draft2020_12;
    let validator = Validator::new(schema, draft).unwrap();
    // Tests beside this one may fill the memory of the compiler that all share.
    let compiler = subject::new_compiler();
    let subject = Subject::by(&compiler, schema, draft, PropertyOrder::Any).unwrap();
    let mut random = Random(1);
    for (texts, valid) in [(good, true), (bad, false)] {
        for text in texts {
            let document = serde_json::from_str(text).unwrap();
            assert_eq!(validator.is_valid(&document), valid, "{text}, {schema}");
            let accepted = subject.accepts(text, &mut random);
            assert_eq!(accepted, Ok(valid), "{text}, {schema}");
        }
    }
}

#[test]
fn branches_in_either_order() {
    let good = ["null", "1", "[]", "[{},null]", "[[],[{}]]", r#"{"a":1}"#];
    let bad = [r#"[{"a":1}]"#, r#"[[{"a":1}]]"#];
    let to_x = json!({"items": {"$ref": "#/$defs/x"}});
    for branches in [
        json!([{"type": "null"}, to_x]),
        json!([to_x, {"type": "null"}]),
    ] {
        for root in ["x", "y"] {
            let schema = json!({
                "$ref": format!("#/$defs/{root}"),
                "$defs": {
                    "x": {"$ref": "#/$defs/y", "unevaluatedProperties": false},
                    "y": {"anyOf": branches},
                },
            });
            match root {
                "y" => check(&schema, &good, &bad),
                _ => check(&schema, &good[..5], &[bad[0], bad[1], good[5]]),
            }
        }
    }
}

#[test]
fn a_member_that_is_the_whole_schema_and_no_more() {
    let schema = json!({
        "type": "object",
        "anyOf": [
            {"required": ["a"], "properties": {"a": {}}},
            {"required": ["b"], "properties": {"b": {}}},
        ],
        "properties": {"child": {"$ref": "#", "unevaluatedProperties": false}},
    });
    let good = [
        r#"{"a":1}"#,
        r#"{"a":1,"z":2}"#,
        r#"{"b":1,"child":{"a":1,"b":2}}"#,
        r#"{"a":1,"child":{"b":1,"child":{"a":1}}}"#,
    ];
    let bad = [
        "{}",
        "[]",
        r#"{"a":1,"child":{}}"#,
        r#"{"a":1,"child":{"a":1,"z":2}}"#,
        r#"{"a":1,"child":{"b":1,"child":{"a":1,"z":2}}}"#,
    ];
    check(&schema, &good, &bad);
}

#[test]
fn a_tree_and_its_strict_form() {
    let children = json!({"type": "array", "items": {"$ref": "#/$defs/strict"}});
    let members = json!({"name": {"type": "string"}, "children": children});
    let one_of = json!([
        {"required": ["leaf"], "properties": {"leaf": true}},
        {"required": ["children"]},
    ]);
    let nodes = [
        json!({"type": "object", "properties": members, "oneOf": one_of}),
        json!({"type": "object", "oneOf": one_of, "properties": members}),
    ];
    for (root, node) in ["node", "strict"]
        .into_iter()
        .flat_map(|root| nodes.iter().map(move |node| (root, node)))
    {
        let schema = json!({
            "$ref": format!("#/$defs/{root}"),
            "$defs": {
                "node": node,
                "strict": {"$ref": "#/$defs/node", "unevaluatedProperties": false},
            },
        });
        let good = [
            r#"{"name":"a","leaf":1}"#,
            r#"{"children":[{"leaf":1},{"name":"b","children":[]}]}"#,
        ];
        let bad = [
            "{}",
            r#"{"leaf":1,"children":[]}"#,
            r#"{"children":[{"leaf":1,"other":2}]}"#,
            r#"{"children":[{"children":[],"other":2}]}"#,
        ];
        check(&schema, &good, &bad);
        let other = r#"{"leaf":1,"other":2}"#;
        match root {
            "node" => check(&schema, &[other], &[]),
            _ => check(&schema, &[], &[other]),
        }
    }
}

#[test]
fn items_of_branches_that_are_compiled_later() {
    for branches in [
        json!([{"prefixItems": [{"type": "null"}]}, {"contains": {"$ref": "#/$defs/closed"}}]),
        json!([{"contains": {"$ref": "#/$defs/closed"}}, {"prefixItems": [{"type": "null"}]}]),
    ] {
        for root in ["open", "closed"] {
            let schema = json!({
                "$ref": format!("#/$defs/{root}"),
                "$defs": {
                    "open": {"type": "array", "anyOf": branches},
                    "closed": {"$ref": "#/$defs/open", "unevaluatedItems": false},
                },
            });
            check(
                &schema,
                &["[]", "[null]", "[[]]", "[[null],[[]]]", "[null,[null]]"],
                &["null", "[1]", "[{}]"],
            );
            let others = ["[null,1]", "[[],1]"];
            match root {
                "open" => check(&schema, &others, &[]),
                _ => check(&schema, &[], &others),
            }
        }
    }
}
