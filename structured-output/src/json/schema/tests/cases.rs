//! Keywords of each draft, and options: schemas with values that are valid and values that are not.

use super::{compile, parse};
use crate::options::Draft;
use crate::options::JsonSchemaOptions;

/// Checks a schema under a draft.
#[track_caller]
fn check_with(options: &JsonSchemaOptions, schema: &str, good: &[&str], bad: &[&str]) {
    let mut compiled = compile(schema, options).unwrap();
    for text in good {
        assert!(
            compiled.allows(&parse(text)),
            "{schema} should allow {text}"
        );
    }
    for text in bad {
        assert!(
            !compiled.allows(&parse(text)),
            "{schema} should not allow {text}"
        );
    }
}

#[track_caller]
fn check(draft: Draft, schema: &str, good: &[&str], bad: &[&str]) {
    let options = JsonSchemaOptions {
        draft,
        ..JsonSchemaOptions::default()
    };
    check_with(&options, schema, good, bad);
}

const OLD: [Draft; 3] = [Draft::Draft4, Draft::Draft6, Draft::Draft7];
const NEW: [Draft; 3] = [Draft::Auto, Draft::Draft2019_09, Draft::Draft2020_12];

#[test]
fn references_hide_their_siblings_in_older_drafts() {
    let schema = r##"{"definitions":{"a":{"type":"string"}},
        "items":{"$ref":"#/definitions/a","maxLength":1}}"##;
    for draft in OLD {
        check(draft, schema, &[r#"["ab"]"#], &["[1]"]);
    }
    for draft in NEW {
        check(draft, schema, &[r#"["a"]"#], &[r#"["ab"]"#, "[1]"]);
    }
    // `$schema` says it, whatever the option.
    let says = schema.replacen(
        '{',
        r#"{"$schema":"http://json-schema.org/draft-07/schema#","#,
        1,
    );
    for draft in NEW {
        check(draft, &says, &[r#"["ab"]"#], &["[1]"]);
    }
}

#[test]
fn bounds_by_draft() {
    let older = r#"{"minimum":1,"exclusiveMinimum":true,"maximum":3,"exclusiveMaximum":false}"#;
    check(Draft::Draft4, older, &["1.5", "3"], &["1", "3.1"]);
    check(Draft::Auto, older, &["1.5", "3"], &["1", "3.1"]);
    let newer = r#"{"exclusiveMinimum":1,"maximum":3,"minimum":0}"#;
    check(Draft::Draft6, newer, &["1.5", "3"], &["1", "3.1", "0"]);
}

#[test]
fn keywords_that_a_draft_does_not_know_are_annotations() {
    let cases = [
        (r#"{"const":1}"#, "2", Draft::Draft6),
        (r#"{"contains":{"type":"null"}}"#, "[]", Draft::Draft6),
        (
            r#"{"propertyNames":{"maxLength":1}}"#,
            r#"{"ab":1}"#,
            Draft::Draft6,
        ),
        (r#"{"if":true,"then":false}"#, "1", Draft::Draft7),
        (
            r#"{"dependentRequired":{"a":["b"]}}"#,
            r#"{"a":1}"#,
            Draft::Draft2019_09,
        ),
        (
            r#"{"unevaluatedProperties":false}"#,
            r#"{"a":1}"#,
            Draft::Draft2019_09,
        ),
        (r#"{"prefixItems":[false]}"#, "[1]", Draft::Draft2020_12),
    ];
    let drafts = [
        Draft::Draft4,
        Draft::Draft6,
        Draft::Draft7,
        Draft::Draft2019_09,
        Draft::Draft2020_12,
    ];
    for (schema, value, since) in cases {
        for draft in drafts {
            let values = [value];
            let (good, bad) = match draft < since {
                true => (&values[..], &[][..]),
                false => (&[][..], &values[..]),
            };
            check(draft, schema, good, bad);
        }
        check(Draft::Auto, schema, &[], &[value]);
    }
}

#[test]
fn older_spellings() {
    let items = r#"{"items":[{"type":"null"}],"additionalItems":{"type":"boolean"}}"#;
    for draft in [Draft::Auto, Draft::Draft4, Draft::Draft2019_09] {
        check(
            draft,
            items,
            &["[null,true]", "[]"],
            &["[true]", "[null,1]"],
        );
    }
    let dependencies = r#"{"dependencies":{"a":["b"],"c":{"minProperties":2}}}"#;
    for draft in OLD.into_iter().chain(NEW) {
        check(
            draft,
            dependencies,
            &[r#"{"a":1,"b":1}"#, r#"{"c":1,"d":1}"#, "[]", "{}"],
            &[r#"{"a":1}"#, r#"{"c":1}"#],
        );
    }
}

#[test]
fn ids_and_anchors_by_draft() {
    let four = r##"{"id":"http://a/b","definitions":{"x":{"id":"#x","type":"null"},
        "y":{"id":"c/","definitions":{"z":{"id":"z","type":"boolean"}}}},
        "items":[{"$ref":"#x"},{"$ref":"http://a/c/z"}]}"##;
    for draft in [Draft::Draft4, Draft::Auto] {
        check(draft, four, &["[null,true]"], &["[1]", "[null,null]"]);
    }
    let seven = four.replace("\"id\"", "\"$id\"");
    for draft in [Draft::Draft6, Draft::Draft7, Draft::Auto] {
        check(draft, &seven, &["[null,true]"], &["[1]", "[null,null]"]);
    }
    // An id that no one means as a base: the pointer is one into the document.
    let loose = r##"{"definitions":{"x":{"type":"null"}},
        "properties":{"a":{"id":"/properties/a","items":{"$ref":"#/definitions/x"}}}}"##;
    check(
        Draft::Draft4,
        loose,
        &[r#"{"a":[null]}"#],
        &[r#"{"a":[1]}"#],
    );
}

/// The tree of the specification of 2019-09, section 8.2.4.2.2, with and without strictness.
#[test]
fn recursive_references() {
    let options = |extends: &str| {
        let tree = r##"{"$schema":"https://json-schema.org/draft/2019-09/schema",
            "$id":"http://a/tree","$recursiveAnchor":true,"type":"object",
            "properties":{"data":true,"children":{"type":"array","items":{"$recursiveRef":"#"}}}}"##;
        let strict = format!(
            r##"{{"$schema":"https://json-schema.org/draft/2019-09/schema","$id":"http://a/strict",
            {extends}"$ref":"tree","unevaluatedProperties":false}}"##
        );
        let documents = [("http://a/tree".to_owned(), tree.to_owned())].into();
        let options = JsonSchemaOptions {
            documents,
            ..JsonSchemaOptions::default()
        };
        (options, strict)
    };
    let good = r#"{"children":[{"data":1,"children":[]}]}"#;
    let misspelt = r#"{"children":[{"daat":1}]}"#;
    let (documents, strict) = options(r#""$recursiveAnchor":true,"#);
    check_with(&documents, &strict, &[good], &[misspelt, r#"{"daat":1}"#]);
    let (documents, loose) = options("");
    check_with(&documents, &loose, &[good, misspelt], &[r#"{"daat":1}"#]);
}

#[test]
fn a_dynamic_scope_in_which_a_document_brings_the_anchors() {
    // The meta-schema is only complete where its vocabularies are seen through it.
    let schema = r#"{"$ref":"https://json-schema.org/draft/2020-12/schema"}"#;
    check(
        Draft::Auto,
        schema,
        &[r#"{"properties":{"a":{"type":"null"}}}"#],
        &[r#"{"properties":{"a":{"type":"any"}}}"#],
    );
}

#[test]
fn names_of_properties() {
    check(
        Draft::Auto,
        r#"{"propertyNames":{"oneOf":[{"pattern":"^a"},{"maxLength":1}],"not":{"const":"b"}}}"#,
        &[r#"{"ab":1}"#, r#"{"c":1}"#, "1"],
        &[r#"{"a":1}"#, r#"{"b":1}"#, r#"{"cc":1}"#],
    );
    // By the schema that it is in.
    check(
        Draft::Auto,
        r##"{"propertyNames":{"$ref":"#"},"maxLength":3}"##,
        &[r#"{"abc":1}"#, r#""abc""#],
        &[r#"{"abcd":1}"#, r#""abcd""#],
    );
    for never in [r#"{"type":"integer"}"#, "false"] {
        let schema = format!(r#"{{"propertyNames":{never}}}"#);
        check(Draft::Auto, &schema, &["{}", "7"], &[r#"{"a":1}"#]);
    }
}

#[test]
fn unevaluated_patterns_and_names() {
    check(
        Draft::Auto,
        r#"{"anyOf":[{"patternProperties":{"^a":true},"required":["a1"]},
            {"patternProperties":{"b$":true},"required":["b"]},
            {"properties":{"ab":true,"c":true},"required":["c"]},true],
            "unevaluatedProperties":{"type":"null"}}"#,
        &[
            r#"{"a1":1,"ab":1}"#,
            r#"{"b":1,"ab":1}"#,
            r#"{"c":1,"ab":1}"#,
            r#"{"a1":1,"b":1,"axb":1,"z":null}"#,
            r#"{"a":null,"ab":null,"z":null}"#,
            "{}",
        ],
        &[
            r#"{"ab":1}"#,
            r#"{"a":1}"#,
            r#"{"a1":1,"b":1,"z":1}"#,
            r#"{"a1":1,"xb":1}"#,
            r#"{"b":1,"ax":1}"#,
            r#"{"c":1,"d":1}"#,
        ],
    );
}

#[test]
fn unevaluated_items_by_branches() {
    check(
        Draft::Auto,
        r#"{"if":{"contains":{"const":7}},"then":{"prefixItems":[true,true]},
            "else":{"prefixItems":[true]},"unevaluatedItems":false}"#,
        &["[1]", "[7,1]", "[1,2,7]", "[7,7,7]", "[]"],
        &["[1,2]", "[7,1,2]", "[1,7,7,3]"],
    );
}

#[test]
fn strict_objects() {
    let options = JsonSchemaOptions {
        strict: true,
        ..JsonSchemaOptions::default()
    };
    check_with(
        &options,
        r#"{"properties":{"a":{"type":"object"},"b":{"additionalProperties":true,"type":"object"}}}"#,
        &[r#"{"a":{}}"#, r#"{"b":{"x":1}}"#, "{}", "1"],
        &[r#"{"c":1}"#, r#"{"a":{"x":1}}"#],
    );
    check_with(&options, "{}", &[r#"{"c":1}"#], &[]);
    // A value that is listed is as it is listed.
    for listed in [r#""const":{"k":1}"#, r#""enum":[{"k":1},{}]"#] {
        for others in ["", r#","properties":{"a":true}"#] {
            let schema = format!(r#"{{"type":"object",{listed}{others}}}"#);
            check_with(
                &options,
                &schema,
                &[r#"{"k":1}"#],
                &[r#"{"k":2}"#, r#"{"a":1}"#],
            );
        }
    }
    // What is said of an object elsewhere means what it says: else what is denied would be less.
    check_with(
        &options,
        r#"{"properties":{"a":{"enum":[1,2]},"b":{"enum":[1,2]}},
            "not":{"properties":{"a":{"const":1}},"required":["a"]}}"#,
        &[r#"{"a":2,"b":1}"#, r#"{"a":2}"#, "{}"],
        &[r#"{"a":1,"b":1}"#, r#"{"a":1}"#, r#"{"a":2,"c":1}"#],
    );
    for then in ["then", "else"] {
        let condition = match then {
            "then" => r#"{"properties":{"k":{"const":"x"}}}"#,
            _ => r#"{"not":{"properties":{"k":{"const":"x"}}}}"#,
        };
        check_with(
            &options,
            &format!(
                r#"{{"type":"object","properties":{{"k":{{"enum":["x","y"]}},"v":true}},"required":["k"],
                    "if":{condition},"{then}":{{"properties":{{"v":{{"type":"integer"}}}}}}}}"#
            ),
            &[r#"{"k":"x","v":1}"#, r#"{"k":"y","v":"s"}"#, r#"{"k":"x"}"#],
            &[
                r#"{"k":"x","v":"s"}"#,
                r#"{"k":"y","z":1}"#,
                r#"{"k":"x","v":1,"z":1}"#,
            ],
        );
    }
    // The same schema, as a part and as a condition.
    check_with(
        &options,
        r##"{"properties":{"p":{"$ref":"#/$defs/a"},"q":{"not":{"$ref":"#/$defs/a"}}},
            "$defs":{"a":{"type":"object","properties":{"a":{"const":1}},"required":["a"]}}}"##,
        &[r#"{"p":{"a":1}}"#, r#"{"q":{"a":2}}"#, r#"{"q":{}}"#],
        &[
            r#"{"p":{"a":1,"b":1}}"#,
            r#"{"q":{"a":1}}"#,
            r#"{"q":{"a":1,"b":1}}"#,
        ],
    );
    check_with(
        &options,
        r#"{"properties":{"a":true,"b":true,"c":true},"dependentSchemas":{"a":{"properties":{"b":{"const":1}}}},
            "unevaluatedProperties":false}"#,
        &[r#"{"a":1,"b":1,"c":1}"#, r#"{"b":2}"#],
        &[r#"{"a":1,"b":2}"#, r#"{"d":1}"#],
    );
    check_with(
        &options,
        r#"{"contains":{"properties":{"a":{"const":1}},"required":["a"]},"maxContains":1}"#,
        &[r#"[{"a":1,"b":1}]"#, r#"[{"a":1},{"a":2}]"#],
        &[r#"[{"a":1,"b":1},{"a":1}]"#, "[{}]"],
    );
}

#[test]
fn equal_schemas_are_one_node() {
    let one =
        r##"{"properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"items":{"type":"null"}}}}"##;
    let other =
        r#"{"title":"other","properties":{"a":{"items":{"type":"null","description":"no"}}}}"#;
    let mut compiled = compile(one, &JsonSchemaOptions::default()).unwrap();
    let options = JsonSchemaOptions::default();
    let limits = crate::options::Limits::default();
    let mut second = super::super::SchemaCompiler::new(other, &options, &limits).unwrap();
    let root = loop {
        let mut fuel = crate::lexical::Fuel::new(1_000);
        let done = second.run(&mut compiled.lexicon, &mut compiled.nodes, 1, 0, &mut fuel);
        if let Some(root) = done.unwrap().unwrap() {
            break root;
        }
    };
    assert_eq!(root, compiled.root);
}

#[test]
fn names_that_need_themselves_are_none() {
    let schema = |x: &str, y: &str| {
        format!(r##"{{"propertyNames":{{"$ref":"#/$defs/x"}},"$defs":{{"x":{x},"y":{y}}}}}"##)
    };
    let (x, y) = (r##"{"$ref":"#/$defs/x"}"##, r##"{"$ref":"#/$defs/y"}"##);
    let needing = [
        schema(x, "{}"),
        schema(&format!(r#"{{"allOf":[{x},{{"maxLength":3}}]}}"#), "{}"),
        schema(
            &format!(r#"{{"allOf":[{y},{{"maxLength":3}}]}}"#),
            &format!(r#"{{"allOf":[{x}]}}"#),
        ),
        schema(
            r##"{"$ref":"#/$defs/y","maxLength":3}"##,
            r##"{"$ref":"#/$defs/x","minLength":1}"##,
        ),
    ];
    for schema in needing {
        check(
            Draft::Auto,
            &schema,
            &["{}", "1"],
            &[r#"{"a":1}"#, r#"{"":1}"#],
        );
    }
    for way in ["anyOf", "oneOf", "not"] {
        let operand = match way {
            "not" => x.to_owned(),
            _ => format!(r#"[{x},{{"maxLength":3}}]"#),
        };
        let schema = schema(&format!(r#"{{"{way}":{operand}}}"#), "{}");
        match compile(&schema, &JsonSchemaOptions::default()) {
            Err(crate::CompileError::JsonSchema { pointer, message }) => {
                assert_eq!(pointer, "/$defs/x");
                assert!(message.starts_with("this schema refers to itself for the same value"));
            }
            other => panic!("{schema}: {:?}", other.map(|_| ())),
        }
    }
}

#[test]
fn what_needs_itself_allows_nothing() {
    let schema = r##"{
        "properties": {"a": {"$ref": "#/$defs/x"}, "b": {"$ref": "#/$defs/y"}},
        "$defs": {
            "x": {"allOf": [{"$ref": "#/$defs/x"}, {"type": "null"}]},
            "y": {"anyOf": [{"type": "null"}, {"allOf": [{"$ref": "#/$defs/z"}]}]},
            "z": {"$ref": "#/$defs/w", "type": "string"},
            "w": {"allOf": [{"$ref": "#/$defs/z"}]}
        }
    }"##;
    check(
        Draft::Auto,
        schema,
        &["{}", r#"{"b":null}"#],
        &[r#"{"a":null}"#, r#"{"b":""}"#],
    );
}
