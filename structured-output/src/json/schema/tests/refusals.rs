//! What is refused, and where.

use super::super::super::value::Value;
use super::compile;
use crate::error::{CompileError, ProblemPlace};
use crate::options::{JsonSchemaOptions, Limits};

fn refusal(schema: &str) -> (String, String) {
    refusal_with(schema, &JsonSchemaOptions::default())
}

fn refusal_with(schema: &str, options: &JsonSchemaOptions) -> (String, String) {
    match compile(schema, options) {
        Err(CompileError::JsonSchema { pointer, message }) => (pointer, message),
        Err(other) => panic!("{schema}: {other}"),
        Ok(_) => panic!(
            "not refused: {}",
            schema.chars().take(200).collect::<String>()
        ),
    }
}

#[test]
fn malformed_keywords_are_named() {
    let cases = [
        (
            "3",
            "",
            "expected a schema, which is an object or a boolean, not 3",
        ),
        (
            r#"{"items":{"properties":{"a/b":{"minLength":"3"}}}}"#,
            "/items/properties/a~1b/minLength",
            "expected a whole number from 0, not \"3\"",
        ),
        (
            r#"{"allOf":[{},{"maxItems":-1}]}"#,
            "/allOf/1/maxItems",
            "expected a whole number from 0, not -1",
        ),
        (
            r#"{"required":true}"#,
            "/required",
            "expected a list of names, not true",
        ),
        (
            r#"{"properties":{"a":{"type":"any"}}}"#,
            "/properties/a/type",
            "expected the name of a type (null, boolean, integer, number, string, array, object), \
             not \"any\"",
        ),
        (
            r#"{"anyOf":[]}"#,
            "/anyOf",
            "expected a list of at least one schema, not an array of 0",
        ),
        (
            r#"{"not":[]}"#,
            "/not",
            "expected a schema, which is an object or a boolean, not an array of 0",
        ),
        (
            r#"{"oneOf":[true,"x"]}"#,
            "/oneOf/1",
            "expected a schema, which is an object or a boolean, not \"x\"",
        ),
        (
            r#"{"dependentSchemas":{"a~b":7}}"#,
            "/dependentSchemas/a~0b",
            "expected a schema, which is an object or a boolean, not 7",
        ),
        (
            r#"{"multipleOf":0.0}"#,
            "/multipleOf",
            "expected a number above 0, not 0.0",
        ),
        (
            r#"{"enum":{"a":1}}"#,
            "/enum",
            "expected a list of values, not an object of 1",
        ),
        (
            r#"{"const":1e2000}"#,
            "/const",
            "expected numbers of at most 1,000 digits, not 1e2000",
        ),
        (
            r##"{"properties":{"a":{"$ref":"#/$defs/b"}}}"##,
            "/properties/a/$ref",
            "`#/$defs/b` leads to no schema: a reference is the URI of a document that is given, `#` and \
             a JSON pointer or an anchor in it",
        ),
        (
            r#"{"$ref":"other.json#/a"}"#,
            "/$ref",
            "there is no document `other.json`, and none is fetched: put it under `$defs` of this \
             schema, with `other.json` as its `$id`",
        ),
        (
            r##"{"$defs":{"a":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/a"}]}},"$ref":"#/$defs/a"}"##,
            "/$defs/a",
            "this schema refers to itself for the same value, which says nothing: let the reference be \
             of a member or an item, or leave it out",
        ),
        // Also where that is by what `unevaluatedProperties` needs, of schemas compiled after it.
        (
            r##"{"$ref":"#/$defs/b","$defs":{
                "a":{"$ref":"#/$defs/b","unevaluatedProperties":false},
                "b":{"anyOf":[{"type":"null"},{"properties":{"c":true}},{"not":{"$ref":"#/$defs/a"}}]}}}"##,
            "/$defs/b",
            "this schema refers to itself for the same value, which says nothing: let the reference be \
             of a member or an item, or leave it out",
        ),
        // And what is malformed there has its own place.
        (
            r##"{"anyOf":[1],"properties":{"c":{"$ref":"#","unevaluatedProperties":false}}}"##,
            "/anyOf/0",
            "expected a schema, which is an object or a boolean, not 1",
        ),
        (
            r##"{"prefixItems":[{"$ref":"#","unevaluatedItems":false}],"anyOf":[{"contains":1},true]}"##,
            "/anyOf/0/contains",
            "expected a schema, which is an object or a boolean, not 1",
        ),
        (
            r#"{"enum":[1,1e2000]}"#,
            "/enum/1",
            "expected a number of at most 1,000 digits, not 1e2000",
        ),
        (
            r#"{"dependentRequired":[]}"#,
            "/dependentRequired",
            "expected an object of lists of names, not an array of 0",
        ),
        (
            r#"{"properties":3}"#,
            "/properties",
            "expected an object of schemas, not 3",
        ),
    ];
    for (schema, pointer, message) in cases {
        let expected = (pointer.to_owned(), message.to_owned());
        assert_eq!(refusal(schema), expected, "{schema}");
    }
    let long = format!(r#"{{"type":"{}"}}"#, "x".repeat(1000));
    assert!(refusal(&long).1.len() < 200);
}

#[test]
fn patterns_are_refused_with_their_place_and_that_in_them() {
    let a = "a".repeat(100);
    for (schema, pointer, start) in [
        (
            r#"{"items":{"pattern":"(a)\\1"}}"#.to_owned(),
            "/items/pattern",
            r"at byte 3 of `(a)\1`: ".to_owned(),
        ),
        (
            r#"{"patternProperties":{"x/y(":{}}}"#.to_owned(),
            "/patternProperties/x~1y(",
            "at byte 3 of `x/y(`: `(` without `)`".to_owned(),
        ),
        (
            r#"{"pattern":"é[b-a]"}"#.to_owned(),
            "/pattern",
            "at byte 3 of `é[b-a]`: the range `b-a` runs backwards".to_owned(),
        ),
        (
            format!(r#"{{"pattern":"{a}[b-a]{a}"}}"#),
            "/pattern",
            format!("at byte 101 of `...{}[b-a]{}...`: ", &a[..20], &a[..36]),
        ),
    ] {
        let (found, message) = refusal(&schema);
        assert_eq!(found, pointer, "{schema}");
        assert!(message.starts_with(&start), "{message}");
        assert!(message.len() < 400, "{message}");
    }
}

#[test]
fn what_a_message_quotes_is_cut_short() {
    let long = "q".repeat(10_000);
    for schema in [
        format!(r##"{{"$ref":"#/{long}"}}"##),
        format!(r##"{{"$ref":"{long}"}}"##),
        format!(r##"{{"$ref":"#%{long}"}}"##),
        format!(r#"{{"multipleOf":1{}}}"#, "0".repeat(5_000)),
        format!(r#"{{"minimum":1{}}}"#, "0".repeat(5_000)),
        format!(r#"{{"const":1{}}}"#, "0".repeat(5_000)),
        format!(r#"{{"pattern":"(?{long})"}}"#),
        format!(r#"{{"pattern":"\\p{{{long}}}"}}"#),
        format!(r#"{{"pattern":"a{{{}}}"}}"#, "9".repeat(5_000)),
        format!(r#"{{"pattern":"\\k<{long}>"}}"#),
    ] {
        let (_, message) = refusal(&schema);
        assert!(message.len() < 400, "{message}");
    }
}

#[test]
fn errors_in_other_documents_say_where() {
    let options = |text: &str| JsonSchemaOptions {
        documents: [("http://a/b".to_owned(), text.to_owned())].into(),
        ..JsonSchemaOptions::default()
    };
    let schema = r#"{"items":{"$ref":"http://a/b#/$defs/c"}}"#;
    let document = r#"{"$defs":{"c":{"not":{"type":8}}}}"#;
    let (pointer, message) = refusal_with(schema, &options(document));
    assert_eq!(pointer, "/$defs/c/not/type");
    assert!(
        message.starts_with("in document `http://a/b`: "),
        "{message}"
    );
    let (pointer, message) = refusal_with(schema, &options("{"));
    assert_eq!(pointer, "/items/$ref");
    assert!(
        message.starts_with("document `http://a/b`, at byte 1: "),
        "{message}"
    );
    // What no reference needs is not read.
    assert!(compile("{}", &options("{")).is_ok());
}

#[test]
fn malformed_keywords_that_assert_nothing_are_refused_too() {
    for (schema, pointer, message) in [
        (r#"{"$id":3}"#, "/$id", "expected a string, not 3"),
        (
            r#"{"not":{"$anchor":3}}"#,
            "/not/$anchor",
            "expected a string, not 3",
        ),
        (r#"{"$schema":3}"#, "/$schema", "expected a string, not 3"),
        (
            r#"{"$dynamicAnchor":true}"#,
            "/$dynamicAnchor",
            "expected a string, not true",
        ),
        (
            r#"{"$defs":3}"#,
            "/$defs",
            "expected an object of schemas, not 3",
        ),
        (
            r#"{"definitions":[]}"#,
            "/definitions",
            "expected an object of schemas, not an array of 0",
        ),
        (
            r#"{"maxContains":-1}"#,
            "/maxContains",
            "expected a whole number from 0, not -1",
        ),
        (
            r#"{"minContains":"1"}"#,
            "/minContains",
            "expected a whole number from 0, not \"1\"",
        ),
        (
            r#"{"properties":{"a":{"then":3}}}"#,
            "/properties/a/then",
            "expected a schema, which is an object or a boolean, not 3",
        ),
        (
            r#"{"else":{"type":"strin"}}"#,
            "/else/type",
            "expected the name of a type (null, boolean, integer, number, string, array, object), \
             not \"strin\"",
        ),
        (
            r#"{"additionalItems":3}"#,
            "/additionalItems",
            "expected a schema, which is an object or a boolean, not 3",
        ),
        (
            r#"{"items":{"$anchor":"1 2"}}"#,
            "/items/$anchor",
            "expected a name: a letter or `_`, then letters, digits, `-`, `_`, `.`, not \"1 2\"",
        ),
        (
            r#"{"type":["string","null","string"]}"#,
            "/type/2",
            "this is listed twice: leave one out",
        ),
        (
            r#"{"not":{"required":["a","b","a"]}}"#,
            "/not/required/2",
            "this is listed twice: leave one out",
        ),
        (
            r#"{"required":["a","b","c","d","e","f","g","h","i","j","b"]}"#,
            "/required/10",
            "this is listed twice: leave one out",
        ),
        (
            r#"{"dependentRequired":{"a/b":["x","x"]}}"#,
            "/dependentRequired/a~1b/1",
            "this is listed twice: leave one out",
        ),
        (
            r#"{"prefixItems":[]}"#,
            "/prefixItems",
            "expected a list of at least one schema, not an array of 0",
        ),
        (
            r#"{"items":[]}"#,
            "/items",
            "expected a schema or a list of at least one, not an array of 0",
        ),
        (
            r#"{"$defs":{"x":3}}"#,
            "/$defs/x",
            "expected a schema, which is an object or a boolean, not 3",
        ),
        (
            r#"{"$defs":{"x":{"items":[true,{"$defs":{"y":{"minimum":"3"}}}]}}}"#,
            "/$defs/x/items/1/$defs/y/minimum",
            "expected a number, not \"3\"",
        ),
        (
            r##"{"$ref":"#/definitions/x","$schema":"http://json-schema.org/draft-07/schema#",
                "definitions":{"x":true,"y":{"multipleOf":0}}}"##,
            "/definitions/y/multipleOf",
            "expected a number above 0, not 0",
        ),
        (
            r#"{"$vocabulary":{"x":3}}"#,
            "/$vocabulary",
            "expected an object of booleans by URI, not an object of 1",
        ),
    ] {
        assert_eq!(
            refusal(schema),
            (pointer.to_owned(), message.to_owned()),
            "{schema}"
        );
    }
}

/// What is unknown where it stands says nothing, and so do annotations; what real schemas have is served.
#[test]
fn what_is_no_keyword_may_be_anything() {
    for schema in [
        r#"{"title":3,"$comment":[],"examples":{},"deprecated":"x","default":{"type":3},"x":{"type":3}}"#,
        r#"{"$schema":"http://json-schema.org/draft-04/schema#","contains":3,"if":3,"$anchor":3}"#,
        r#"{"$schema":"http://json-schema.org/draft-07/schema#","prefixItems":3,"$anchor":"1 2","minContains":-1}"#,
        r##"{"$schema":"http://json-schema.org/draft-07/schema#","$ref":"#/definitions/x",
            "definitions":{"x":true},"then":3,"required":["a","a"]}"##,
        r#"{"enum":[1,1,{"type":3}],"const":{"required":3}}"#,
        r#"{"required":[],"dependencies":{"a":[]},"dependentRequired":{"a":[]},"properties":{},"$defs":{}}"#,
        r#"{"items":[true,{}],"exclusiveMinimum":true,"$schema":"http://json-schema.org/draft-04/schema#"}"#,
        r#"{"$id":"http://localhost/a#x","$defs":{"a":{"$anchor":"A.b-_9"}}}"#,
    ] {
        let compiled = compile(schema, &JsonSchemaOptions::default());
        assert!(compiled.is_ok() || schema.contains("const"), "{schema}");
        let error = compiled.err().map(|error| error.to_string());
        assert!(
            !error.is_some_and(|error| error.contains("expected")),
            "{schema}"
        );
    }
}

#[test]
fn a_key_is_there_once() {
    for (schema, column, key) in [
        (r#"{"type":"string","type":"integer"}"#, 18, "type"),
        (
            r#"{"properties":{"a":{"type":"string"},"a":{"type":"integer"}}}"#,
            38,
            "a",
        ),
        (
            r#"{"const":[{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9,"\u0061":1}]}"#,
            66,
            "a",
        ),
    ] {
        match compile(schema, &JsonSchemaOptions::default()) {
            Err(CompileError::JsonSyntax {
                line: 1,
                column: found,
                message,
                ..
            }) => {
                assert_eq!(
                    (found, message),
                    (column, format!("the key \"{key}\" is there already"))
                );
            }
            other => panic!("{schema}: {:?}", other.map(|_| ())),
        }
    }
}

#[test]
fn limits_are_kept() {
    let limits = Limits {
        max_schema_nodes: 3,
        max_enum_entries: 2,
        ..Limits::default()
    };
    let compile = |schema: &str| {
        let options = JsonSchemaOptions::default();
        super::compile_within(schema, &options, &limits).map(|_| ())
    };
    let exceeded = |limit, max, pointer: &str| {
        let place = Some(ProblemPlace::at_pointer(pointer.to_owned()));
        Err(CompileError::LimitExceeded { limit, max, place })
    };
    assert_eq!(compile(r#"{"not":{"not":{"type":"null"}}}"#), Ok(()));
    assert_eq!(
        compile(r#"{"not":{"not":{"not":{"type":"null"}}}}"#),
        exceeded("max_schema_nodes", 3, "")
    );
    assert_eq!(compile(r#"{"enum":[1,2]}"#), Ok(()));
    assert_eq!(
        compile(r#"{"items":{"enum":[1,2,3]}}"#),
        exceeded("max_enum_entries", 2, "/items/enum")
    );
}

#[test]
fn depth_takes_no_stack() {
    let depth = 100_000;
    let schema = format!("{}true{}", r#"{"not":"#.repeat(depth), "}".repeat(depth));
    let limits = Limits {
        max_nesting: depth,
        ..Limits::default()
    };
    // Values are dropped by recursion, so this many need a stack of their own.
    let thread = std::thread::Builder::new().stack_size(256 << 20);
    let done = thread.spawn(move || {
        super::compile_within(&schema, &JsonSchemaOptions::default(), &limits).is_ok()
    });
    assert!(done.unwrap().join().unwrap());
}

#[test]
fn references_through_many_definitions_search_none_of_them() {
    // Each leads to the next; with a search of all for each this takes 400 million comparisons.
    let count = 20_000;
    let definitions = (0..count).map(|at| format!(r##""x{at}":{{"$ref":"#/$defs/x{}"}}"##, at + 1));
    let definitions: Vec<String> = definitions.collect();
    let schema = format!(
        r##"{{"$ref":"#/$defs/x0","$defs":{{{},"x{count}":{{"type":"null"}}}}}}"##,
        definitions.join(",")
    );
    let mut compiled = compile(&schema, &JsonSchemaOptions::default()).unwrap();
    let (null, number) = (Value::Null, Value::Number("1".into()));
    assert!(compiled.allows(&null) && !compiled.allows(&number));
}
