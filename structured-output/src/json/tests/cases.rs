//! Schemas by hand: what the machine accepts, and that every place leads to an end.

use super::super::schema::SchemaCompiler;
use super::{Engine, parse};
use crate::options::{Format, JsonSchemaOptions, Limits, PropertyOrder};

fn engine(source: &str, order: PropertyOrder) -> Engine {
    let options = JsonSchemaOptions {
        format: Format::Annotate,
        ..Default::default()
    };
    let mut compiler = SchemaCompiler::new(source, &options, &Limits::default()).unwrap();
    let engine = Engine::new(order, |lexicon, programs| {
        loop {
            let mut fuel = crate::lexical::Fuel::new(1_000_000);
            let done = compiler.run(lexicon, programs.nodes(), 64, 0, &mut fuel);
            if let Some(root) = done.unwrap().unwrap() {
                return root;
            }
        }
    });
    engine.unwrap().unwrap()
}

/// Texts that are accepted in any order, and texts that aren't. Along the former the canonical
/// completion of each place is a valid value.
fn check(source: &str, good: &[&str], bad: &[&str]) {
    let mut engine = engine(source, PropertyOrder::Any);
    for text in good {
        assert!(engine.holds(&parse(text)), "{source} holds of {text}");
        assert!(engine.accepts(text).unwrap(), "{source} accepts {text}");
        for end in 0..text.len() {
            let state = engine.after(&text[..end]).unwrap().unwrap();
            let rest = engine.completion(state).unwrap().unwrap();
            let whole = format!("{}{rest}", &text[..end]);
            assert!(engine.holds(&parse(&whole)), "{source} ends in {whole}");
        }
    }
    for text in bad {
        assert!(!engine.accepts(text).unwrap(), "{source} refuses {text}");
    }
}

#[test]
fn discriminated_unions() {
    let branches: Vec<String> = (0..12)
        .map(|n| {
            format!(
                r#"{{"properties":{{"kind":{{"const":"k{n}"}},"v":{{"const":{n}}}}},"required":["kind","v"]}}"#
            )
        })
        .collect();
    for key in ["anyOf", "oneOf"] {
        let source = format!(r#"{{"type":"object","{key}":[{}]}}"#, branches.join(","));
        check(
            &source,
            &[
                r#"{"kind":"k3","v":3}"#,
                r#"{"v":11,"kind":"k11"}"#,
                r#"{"x":1,"v":0,"kind":"k0"}"#,
            ],
            &[
                r#"{"kind":"k3","v":4}"#,
                r#"{"v":4,"kind":"k3"}"#,
                r#"{"kind":"k3"}"#,
                r#"{"kind":"x"}"#,
                "{}",
            ],
        );
    }
}

#[test]
fn exactly_one_of_overlapping_objects() {
    check(
        r#"{"oneOf":[{"required":["a"],"properties":{"a":{"type":"integer"}}},{"required":["b"]}]}"#,
        &[r#"{"a":1}"#, r#"{"b":1}"#, r#"{"a":"x","b":1}"#],
        &[r#"{"a":1,"b":1}"#, r#"{"a":"x"}"#, "{}", "1"],
    );
}

#[test]
fn objects_that_must_not_be_such() {
    check(
        r#"{"type":"object","not":{"properties":{"a":{"type":"string"}},"additionalProperties":{"type":"null"}}}"#,
        &[r#"{"a":1}"#, r#"{"b":1}"#, r#"{"a":"x","b":null,"c":[]}"#],
        &["{}", r#"{"a":"x"}"#, r#"{"a":"x","b":null}"#],
    );
}

#[test]
fn conditions_over_objects() {
    check(
        r#"{"type":"object","if":{"properties":{"a":{"const":1}},"required":["a"]},"then":{"required":["b"]},"else":{"properties":{"c":{"type":"null"}}}}"#,
        &[
            r#"{"a":1,"b":0}"#,
            r#"{"b":0,"a":1,"c":5}"#,
            r#"{"a":2}"#,
            r#"{"c":null}"#,
            r#"{"c":5,"a":1,"b":2}"#,
        ],
        &[
            r#"{"a":1}"#,
            r#"{"a":1.0}"#,
            r#"{"c":5}"#,
            r#"{"c":5,"a":2}"#,
        ],
    );
}

#[test]
fn items_that_are_contained() {
    check(
        r#"{"type":"array","contains":{"type":"integer"},"minContains":2,"maxContains":3,"maxItems":5}"#,
        &["[1,2]", "[null,1,null,2,3]", "[1,2,3,null]"],
        &[
            "[1]",
            "[1,2,3,4]",
            "[null,null,1]",
            "[1,2,null,null,null,null]",
        ],
    );
}

/// The end of an item that isn't the one looked for comes nearer than what makes it that one.
#[test]
fn items_that_are_contained_and_longer_than_others() {
    check(
        r#"{"contains":{"not":{"uniqueItems":true}}}"#,
        &["[[1,2],[1,1]]", "[[[]],[[],[]],0]"],
        &["[[1,2],[1]]", "[]"],
    );
    check(
        r#"{"contains":{"type":"object","required":["a"]}}"#,
        &[r#"[{"b":1},{"b":1,"a":2}]"#],
        &["[{}]", r#"[{"b":1}]"#],
    );
}

#[test]
fn distinct_items() {
    check(
        r#"{"type":"array","uniqueItems":true}"#,
        &[
            "[]",
            "[1,2,\"1\"]",
            "[{\"a\":1},{\"a\":2},[1],[[1]]]",
            "[[1,2],[2,1]]",
        ],
        &[
            "[1,1.0]",
            "[\"a\",\"b\",\"a\"]",
            "[{\"a\":1,\"b\":[2]},{\"b\":[2.0],\"a\":1}]",
            "[[],[]]",
            "[{\"x\":[{\"y\":null}]},{\"x\":[{\"y\":null}]}]",
        ],
    );
    // What is left must be enough.
    check(
        r#"{"type":"array","prefixItems":[{"enum":[1,2]},{"enum":[1,2]},{"const":2}],"uniqueItems":true,"maxItems":2}"#,
        &["[1,2]", "[2,1]", "[1]"],
        &["[1,1]"],
    );
    check(
        r#"{"type":"array","prefixItems":[{"enum":[1,2]},{"const":1}],"uniqueItems":true,"minItems":2}"#,
        &["[2,1]", "[2,1,0]"],
        &["[1", "[1,1]", "[2,2]"],
    );
    check(
        r#"{"type":"array","items":{"enum":["a","b","c"]},"uniqueItems":true,"minItems":3}"#,
        &["[\"c\",\"a\",\"b\"]"],
        &["[\"a\",\"b\"]", "[\"a\",\"b\",\"c\",", "[\"a\",\"a\""],
    );
    // Arrays of distinct items in such an array.
    check(
        r#"{"uniqueItems":true,"items":{"uniqueItems":true}}"#,
        &["[[1,2],[2,1]]", "[[[1],[2]],[[2],[1]]]"],
        &["[[1,1]]", "[[1,2],[1,2]]", "[[[1],[1]]]"],
    );
}

#[test]
fn items_that_repeat() {
    check(
        r#"{"type":"array","not":{"uniqueItems":true},"maxItems":3}"#,
        &["[1,1]", "[1,2,1.0]", "[[],[],1]"],
        &["[]", "[1]", "[1,2]", "[1,2,3]"],
    );
}

#[test]
fn recursion_under_not() {
    // No node of the tree is the word "x".
    check(
        r##"{"$defs":{"bad":{"anyOf":[{"const":"x"},{"type":"array","contains":{"$ref":"#/$defs/bad"}}]}},"not":{"$ref":"#/$defs/bad"}}"##,
        &["\"y\"", "[1,[\"y\",[]]]", "{\"a\":\"x\"}"],
        &["\"x\"", "[1,[\"x\"]]", "[[[[\"x\"]]]]"],
    );
    check(
        r##"{"type":"object","properties":{"next":{"$ref":"#"},"end":{"const":true}},"oneOf":[{"required":["next"]},{"required":["end"]}],"additionalProperties":false}"##,
        &[r#"{"next":{"next":{"end":true}}}"#, r#"{"end":true}"#],
        &[
            "{}",
            r#"{"next":{}}"#,
            r#"{"end":true,"next":{"end":true}}"#,
        ],
    );
}

#[test]
fn patterns_that_overlap() {
    check(
        r#"{"type":"object","patternProperties":{"^a":{"type":"integer"},"b$":{"minimum":5},"^ab$":{"maximum":7}},"additionalProperties":{"type":"null"},"minProperties":2,"propertyNames":{"maxLength":3}}"#,
        &[
            r#"{"a":1,"b":"x"}"#,
            r#"{"ab":6,"c":null}"#,
            r#"{"aab":9,"axb":5}"#,
        ],
        &[
            r#"{"a":1}"#,
            r#"{"ab":8,"c":null}"#,
            r#"{"ab":4,"c":null}"#,
            r#"{"aab":"x","c":null}"#,
            r#"{"c":1,"a":1}"#,
            r#"{"a":1,"abcd":1}"#,
        ],
    );
}

#[test]
fn keys_that_are_bounded_in_number() {
    check(
        r#"{"type":"object","patternProperties":{"^[ab]$":{}},"additionalProperties":false,"minProperties":2}"#,
        &[r#"{"a":1,"b":2}"#, r#"{"b":1,"a":2}"#],
        &["{}", r#"{"a":1}"#, r#"{"a":1,"a":2}"#, r#"{"c":1"#],
    );
    check(
        r#"{"type":"object","properties":{"a":{},"b":{},"c":{}},"required":["c"],"maxProperties":2}"#,
        &[r#"{"c":1}"#, r#"{"a":1,"c":2}"#, r#"{"x":1,"c":2}"#],
        &[r#"{"a":1,"b":2"#, r#"{"a":1,"b":2,"c":3}"#, "{}"],
    );
}

#[test]
fn hundreds_of_properties_in_any_order() {
    let names: Vec<String> = (0..300).map(|n| format!("p{n}")).collect();
    let properties: Vec<String> = names
        .iter()
        .map(|name| format!("\"{name}\":{{\"type\":\"integer\"}}"))
        .collect();
    let source = format!(
        r#"{{"type":"object","properties":{{{}}},"additionalProperties":false}}"#,
        properties.join(",")
    );
    let members: Vec<String> = names
        .iter()
        .rev()
        .map(|name| format!("\"{name}\":1"))
        .collect();
    let all = format!("{{{}}}", members.join(","));
    let mut any = engine(&source, PropertyOrder::Any);
    assert!(any.accepts(&all).unwrap());
    assert!(!any.accepts(&all.replace("\"p7\"", "\"p8\"")).unwrap());
    assert!(!any.accepts(r#"{"p300":1}"#).unwrap());
    let mut ordered = engine(&source, PropertyOrder::Schema);
    assert!(!ordered.accepts(&all).unwrap());
    assert!(ordered.accepts(r#"{"p1":1,"p200":2,"p299":3}"#).unwrap());
}

#[test]
fn properties_in_the_order_of_the_schema() {
    let source = r#"{"properties":{"b":{},"a":{}},"required":["z","a"],"allOf":[{"properties":{"c":{},"b":{}}}],"additionalProperties":true}"#;
    let mut engine = engine(source, PropertyOrder::Schema);
    for (text, good) in [
        (r#"{"b":1,"a":2,"c":3,"z":4,"y":5}"#, true),
        (r#"{"a":2,"z":4}"#, true),
        (r#"{"a":2,"b":1,"z":4}"#, false),
        (r#"{"a":2,"z":4,"c":1}"#, false),
        (r#"{"b":1,"c":2"#, false),
        (r#"{"y":1"#, false),
    ] {
        let live = engine.after(text).unwrap().is_some();
        assert_eq!(live, good, "{text}");
    }
}
