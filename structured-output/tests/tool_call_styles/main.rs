//! Arguments of calls as tags, in the styles of some models.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod schemas;

use std::sync::Arc;

use structured_output::{CompilerOptions, GrammarCompiler, GrammarMatcher, TokenizerInfo};

const STOP: u32 = 256;

fn compiler() -> GrammarCompiler {
    let mut vocab: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    vocab.push(b"<|end|>".to_vec());
    vocab.extend([&b"<parameter="[..], b"</", b"parameter", b">\n", b"1</"].map(<[u8]>::to_vec));
    let info = TokenizerInfo::new(&vocab, vocab.len(), &[STOP], &[]).unwrap();
    GrammarCompiler::new(Arc::new(info), CompilerOptions::default())
}

fn tag(schema: &str, more: &str) -> String {
    format!(r#"{{"format": {{"type": "json_schema", "json_schema": {schema}, {more}}}}}"#)
}

/// Checks that texts are accepted or not, and that every beginning of an accepted one can go on.
fn check(source: &str, accept: &[&str], reject: &[&str]) {
    let grammar = compiler().compile_structural_tag(source);
    let grammar = grammar.unwrap_or_else(|error| panic!("{source}: {error}"));
    let is_accepted = |text: &str| {
        let mut matcher = GrammarMatcher::new(&grammar);
        let mut bytes = text.bytes();
        let fits = bytes.all(|byte| {
            let allowed = matcher
                .next_token_mask()
                .unwrap()
                .is_allowed(u32::from(byte));
            assert_eq!(matcher.accept_token(u32::from(byte)).unwrap(), allowed);
            allowed
        });
        fits && matcher.is_completed()
    };
    for text in accept {
        assert!(is_accepted(text), "{source}: {text:?}");
    }
    for text in reject {
        assert!(!is_accepted(text), "{source}: {text:?}");
    }
}

const PERSON: &str = r#"{"type": "object", "properties": {"name": {"type": "string"},
    "age": {"type": "integer"}}, "required": ["name"], "additionalProperties": false}"#;

#[test]
fn qwen_writes_names_in_the_tag() {
    check(
        &tag(PERSON, r#""style": "qwen_xml""#),
        &[
            "<parameter=name>Bob</parameter><parameter=age>\t100\n</parameter>",
            "<parameter=name><html>\n</html></parameter>",
            "<parameter=name></parameter>",
            "\n<parameter=name>\nBob\n</parameter>\n<parameter=age>\n1\n</parameter>\n",
        ],
        &[
            "",
            "<parameter=age>1</parameter>",
            "<parameter=age>1</parameter><parameter=name>Bob</parameter>",
            "<parameter=name>Bob</parameter><parameter=age>\"1\"</parameter>",
            "<parameter=name>Bob</parameter><parameter=name>Bob</parameter>",
            "<parameter=name>Bob</parameter><parameter=other>1</parameter>",
            "<parameter=name>Bob",
        ],
    );
}

/// XGrammar's older name of the style.
#[test]
fn qwen_xml_parameter_is_the_schema_in_that_style() {
    let source = |more: &str| {
        format!(
            r#"{{"type": "structural_tag", "format": {{"type": "qwen_xml_parameter",
            "json_schema": {PERSON}{more}}}}}"#
        )
    };
    let name = "<parameter=name>Bob</parameter>";
    let age = "<parameter=age>1</parameter>";
    let (ordered, turned) = (&*format!("{name}{age}"), &*format!("{age}{name}"));
    check(&source(""), &[name, ordered], &["", age, turned, "{}"]);
    check(
        &source(r#", "any_order": true"#),
        &[name, ordered, turned],
        &[age],
    );
    let info = TokenizerInfo::new(&[b"a".to_vec(), Vec::new()], 2, &[1], &[]).unwrap();
    let compiler = GrammarCompiler::new(Arc::new(info), CompilerOptions::default());
    let error = compiler
        .compile_structural_tag(&source(r#", "style": "json""#))
        .unwrap_err();
    assert!(error.to_string().contains("#/format/style"), "{error}");
}

#[test]
fn others_write_them_otherwise() {
    check(
        &tag(PERSON, r#""style": "minimax_xml""#),
        &["<parameter name=\"name\">Bob</parameter><parameter name=\"age\">1</parameter>"],
        &["<parameter=name>Bob</parameter>"],
    );
    check(
        &tag(PERSON, r#""style": "deepseek_xml""#),
        &[
            "<｜DSML｜parameter name=\"name\" string=\"true\">Bob</｜DSML｜parameter>\n\
             <｜DSML｜parameter name=\"age\" string=\"false\"> 1 </｜DSML｜parameter>",
        ],
        &[
            "<｜DSML｜parameter name=\"name\" string=\"false\">Bob</｜DSML｜parameter>",
            "<｜DSML｜parameter name=\"name\">Bob</｜DSML｜parameter>",
        ],
    );
    check(
        &tag(PERSON, r#""style": "glm_xml""#),
        &[
            "<arg_key>name</arg_key><arg_value>Bob</arg_value>",
            "\n<arg_key>name</arg_key>\n<arg_value>B</arg_value>\n<arg_key>age</arg_key>\n\
             <arg_value>7</arg_value>\n",
        ],
        &["<arg_key>age</arg_key><arg_value>7</arg_value>"],
    );
}

#[test]
fn kimi_names_the_type_of_each_value() {
    let argument = |name: &str, kind: &str, value: &str| {
        format!(
            "<|open|>argument key=\"{name}\" type=\"{kind}\"<|sep|>{value}<|close|>argument<|sep|>"
        )
    };
    let both = |first: &str, second: &str| format!("{first}{second}");
    let (name, age) = (
        argument("name", "string", "Bob"),
        argument("age", "number", "7"),
    );
    check(
        &tag(PERSON, r#""style": "kimi_k3_xml""#),
        &[&name, &both(&name, &age), &format!("\n{name}\n{age}\n")],
        &[
            &age,
            &both(&name, &argument("age", "integer", "7")),
            &both(&name, &argument("age", "string", "7")),
            &both(&name, &argument("age", "number", "7.5")),
            &argument("name", "string", "a<|close|>argument<|sep|>b"),
            "<parameter=name>Bob</parameter>",
        ],
    );
    let schema = r#"{"type": "object", "properties": {
        "a&\"b": {"type": ["boolean", "integer", "number", "array"], "minItems": 1},
        "size": {"enum": ["big", 3, null, [1]]},
        "free": {}
    }, "additionalProperties": {"type": ["string", "null"]}}"#;
    check(
        &tag(schema, r#""style": "kimi_k3_xml""#),
        &[
            &argument("a&amp;&quot;b", "boolean", "true"),
            &argument("a&amp;&quot;b", "number", "1.5"),
            &argument("a&amp;&quot;b", "array", "[1]"),
            &argument("size", "string", "big"),
            &argument("size", "number", "3"),
            &argument("size", "null", " null "),
            &argument("size", "array", "[1]"),
            &argument("free", "string", "3"),
            &argument("free", "number", "3"),
            &argument("free", "integer", "3"),
            &argument("free", "object", "{\"x\": 1}"),
            &argument("other", "null", "null"),
            &argument("other", "string", "null"),
        ],
        &[
            &argument("a&\"b", "boolean", "true"),
            &argument("a&amp;&quot;b", "array", "[]"),
            &argument("a&amp;&quot;b", "number", "true"),
            &argument("size", "string", "3"),
            &argument("size", "number", "4"),
            &argument("size", "object", "{}"),
            &argument("free", "number", "x"),
            &argument("free", "integer", "1.5"),
            &argument("other", "number", "1"),
        ],
    );
}

#[test]
fn cohere_writes_arrays_and_objects_as_tags() {
    let value =
        |attributes: &str, text: &str| format!("<cofl:value {attributes}>{text}</cofl:value>");
    let named = |name: &str, kind: &str, text: &str| {
        value(&format!("name=\"{name}\" type=\"{kind}\""), text)
    };
    let item = |kind: &str, text: &str| value(&format!("type=\"{kind}\""), text);
    let (name, age) = (named("name", "raw", "Bob <b>"), named("age", "json", " 7 "));
    check(
        &tag(PERSON, r#""style": "cohere_xml""#),
        &[
            &name,
            &format!("{name}{age}"),
            &format!("\n{name}\n{age}\n"),
        ],
        &[
            &age,
            &named("name", "json", "\"Bob\""),
            &format!("{name}{}", named("age", "raw", "7")),
            "<cofl:value name=name type=raw>Bob</cofl:value>",
            "<parameter=name>Bob</parameter>",
        ],
    );
    let schema = r##"{"type": "object", "properties": {
        "config": {"type": "object", "properties": {"mode": {"enum": ["fast", 2, null]},
            "on": {"type": "boolean"}}, "required": ["mode"], "additionalProperties": false},
        "pair": {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer",
            "minimum": 3, "format": "int32"}, "minItems": 2, "maxItems": 3},
        "tree": {"$ref": "#/$defs/tree"},
        "either": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "null"}}]},
        "one": {"oneOf": [{"$ref": "#/$defs/tree"}, {"type": "array", "items": {"type": "integer"}}, {"const": "x"}]},
        "nothing": {"const": null},
        "free": {}
    }, "$defs": {"tree": {"type": ["object", "null"], "additionalProperties": {"$ref": "#/$defs/tree"}}},
    "additionalProperties": false}"##;
    let (one, three) = (item("raw", "one"), item("json", "3"));
    check(
        &tag(schema, r#""style": "cohere_xml""#),
        &[
            "",
            &named("config", "dict", &named("mode", "raw", "fast")),
            &named(
                "config",
                "dict",
                &format!(
                    "\n{}\n{}\n",
                    named("mode", "json", "null"),
                    named("on", "json", "true")
                ),
            ),
            &named("pair", "list", &format!("{one}{three}")),
            &named("pair", "list", &format!(" {one} {three} {three} ")),
            &named("tree", "json", "null"),
            &named(
                "tree",
                "dict",
                &named("a", "dict", &named("b", "json", "null")),
            ),
            &named("either", "raw", "<cofl:value>"),
            &named("either", "list", ""),
            &named("one", "dict", &named("a", "json", "null")),
            &named("one", "json", "null"),
            &named("one", "list", &item("json", "1")),
            &named("one", "raw", "x"),
            &named("nothing", "json", "null"),
            &named("free", "raw", "3"),
            &named("free", "json", "3"),
            &named(
                "free",
                "list",
                &item("dict", &named("x", "list", &item("raw", "y"))),
            ),
        ],
        &[
            &named("config", "dict", ""),
            &named("config", "json", "{\"mode\": \"fast\"}"),
            &named("config", "dict", &named("mode", "raw", "2")),
            &named(
                "config",
                "dict",
                &format!("{}{}", named("mode", "raw", "fast"), named("x", "raw", "")),
            ),
            &named("pair", "list", &one),
            &named("pair", "list", &format!("{three}{three}")),
            &named("pair", "list", &format!("{one}{}", item("json", "2"))),
            &named("pair", "list", &format!("{one}{three}{three}{three}")),
            &named("pair", "list", &format!("{one}{}", named("1", "json", "3"))),
            &named("tree", "dict", &named("a", "json", "1")),
            &named("either", "list", &item("json", "1")),
            &named("either", "json", "\"x\""),
            &named("one", "list", &named("a", "json", "1")),
            &named("one", "dict", &item("json", "1")),
            &named("one", "raw", "y"),
            &named("nothing", "raw", "null"),
            &named("free", "json", "[3]"),
            &named("free", "json", "\"x\""),
            &named("other", "raw", "x"),
        ],
    );
}

#[test]
fn minimax_m3_ends_a_tag_by_its_name() {
    let of =
        |name: &str, value: &str| format!("]<]minimax[>[<{name}>{value}]<]minimax[>[</{name}>");
    let schema = r#"{"type": "object", "properties": {"name": {"type": "string"},
        "point": {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "null"}}, "required": ["x"],
            "additionalProperties": false},
        "list": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "array", "maxItems": 1,
            "items": {"enum": [1, true]}}]}, "minItems": 1}},
        "required": ["name"], "additionalProperties": false}"#;
    let name = of("name", "a </name> b");
    let style = r#""style": "minimax_m3_xml""#;
    check(
        &tag(schema, style),
        &[
            &name,
            &format!("{name}\n{}", of("point", &of("x", "3"))),
            &format!(
                "{name}{}",
                of(
                    "list",
                    &(of("item", "x") + &of("item", &of("item", "true")))
                )
            ),
            &format!(
                "{name}{}",
                of("point", &(of("x", "3") + "\n" + &of("y", "null") + "\n"))
            ),
        ],
        &[
            "",
            &of("name", "]<]minimax[>["),
            &of("name", "x").replace("</name>", "</list>"),
            &format!("{name}{}", of("point", "{\"x\": 3}")),
            &format!("{name}{}", of("point", &of("z", "3"))),
            &format!("{name}{}", of("list", "")),
            &format!("{name}{}", of("list", &of("item", &of("item", "2")))),
        ],
    );
    let any_order = format!(r#"{style}, "any_order": true"#);
    let turned = of("point", &(of("y", "null") + &of("x", "3"))) + &name;
    check(&tag(schema, &any_order), &[&turned], &[]);
    for (schema, expected) in [
        (r#"{"type": "object"}"#, "which end with the name again"),
        (
            r#"{"type": "object", "properties": {"a>": {"type": "null"}}, "additionalProperties": false}"#,
            "`a>` can't be written as a tag",
        ),
    ] {
        let error = compiler()
            .compile_structural_tag(&tag(schema, style))
            .unwrap_err();
        let expected = expected.replace("which end", "whose tags end");
        assert!(error.to_string().contains(&expected), "{error}");
    }
}

#[test]
fn deepseek_v4_1_has_a_space_in_its_tags() {
    let text = "<｜DSML｜ parameter name=\"name\" string=\"true\">Bob</｜DSML｜ parameter>\n\
         <｜DSML｜ parameter name=\"age\" string=\"false\">1</｜DSML｜ parameter>";
    let without = text.replace("｜ ", "｜");
    check(
        &tag(PERSON, r#""style": "deepseek_v4_1_xml""#),
        &[text],
        &[&without, &text.replace("true", "false")],
    );
    check(
        &tag(PERSON, r#""style": "deepseek_xml""#),
        &[&without],
        &[text],
    );
}

/// In the values too, which are JSON.
#[test]
fn members_of_values_come_in_any_order_too() {
    let schema = r#"{"type": "object", "properties": {"p": {"type": "object", "properties": {"a": {"type": "integer"},
        "b": {"type": "integer"}}, "additionalProperties": false}}, "required": ["p"], "additionalProperties": false}"#;
    let text = |value: &str| {
        format!("<|open|>argument key=\"p\" type=\"object\"<|sep|>{value}<|close|>argument<|sep|>")
    };
    let (own, turned) = (text("{\"a\": 1, \"b\": 2}"), text("{\"b\": 2, \"a\": 1}"));
    check(
        &tag(schema, r#""style": "kimi_k3_xml""#),
        &[&own],
        &[&turned],
    );
    let any_order = r#""style": "kimi_k3_xml", "any_order": true"#;
    check(&tag(schema, any_order), &[&own, &turned], &[]);
}

#[test]
fn what_refers_back_to_itself_is_refused_by_name() {
    let refused = |schema: &str, style: &str, expected: &str| {
        let info = TokenizerInfo::new(&[b"a".to_vec(), Vec::new()], 2, &[1], &[]).unwrap();
        let compiler = GrammarCompiler::new(Arc::new(info), CompilerOptions::default());
        let source = tag(schema, &format!(r#""style": "{style}""#));
        let error = compiler.compile_structural_tag(&source).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    };
    // Back to itself over `anyOf`.
    let circle = r##"{"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}},
        "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "string"}]}}}"##;
    refused(circle, "qwen_xml", "more than 64 deep");
    // What doubles is read once, to its end.
    let both = |next: usize| {
        format!(r##"{{"anyOf": [{{"$ref": "#/$defs/d{next}"}}, {{"$ref": "#/$defs/d{next}"}}]}}"##)
    };
    let doubling: Vec<String> = (0..40)
        .map(|at| format!(r#""d{at}": {}"#, both(at + 1)))
        .collect();
    let doubling = format!(
        r##"{{"type": "object", "properties": {{"a": {{"$ref": "#/$defs/d0"}}}}, "$defs": {{{}, "d40": false}}}}"##,
        doubling.join(", ")
    );
    refused(&doubling, "qwen_xml", "no value meets this schema");
    refused(circle, "cohere_xml", "more than 64 deep");
    for (schema, expected) in [
        (r#"{"enum": [[1]]}"#, "arrays and objects in `enum`"),
        (r#"{"type": "array", "uniqueItems": true}"#, "uniqueItems"),
        (
            r#"{"type": "array", "items": false, "minItems": 1}"#,
            "no array meets",
        ),
        (r#"{"minItems": 1}"#, "without `type`"),
        (
            r#"{"oneOf": [{"type": "integer"}, {"type": "number"}]}"#,
            "`oneOf` is supported in this style where the types of its branches tell them apart",
        ),
    ] {
        let schema = format!(r#"{{"type": "object", "properties": {{"a": {schema}}}}}"#);
        refused(&schema, "cohere_xml", expected);
    }
}

#[test]
fn values_are_what_their_schemas_say() {
    let schema = r##"{"type": "object", "properties": {
        "size": {"enum": ["big", "small", 3]},
        "code": {"type": "string", "pattern": "^[A-Z]", "maxLength": 3},
        "list": {"type": ["array", "string"], "minItems": 2},
        "when": {"anyOf": [{"type": "null"}, {"type": "string", "minLength": 2}]},
        "home": {"$ref": "#/$defs/place"},
        "free": {}
    }, "$defs": {"place": {"type": "object", "properties": {"at": {"$ref": "#/$defs/at"}},
        "required": ["at"], "additionalProperties": false}, "at": {"type": "integer"}},
    "additionalProperties": {"type": "boolean"}}"##;
    let of = |name: &str, value: &str| format!("<parameter={name}>{value}</parameter>");
    let accept: Vec<String> = [
        ("size", "big"),
        ("size", "3"),
        ("code", "Abc"),
        ("list", "[1, 2]"),
        ("list", "any text"),
        ("when", "null"),
        ("when", "now"),
        ("home", "{\"at\": 1}"),
        ("free", "[1, \"x\"]"),
        ("free", "x < y"),
        ("other", "true"),
        ("_x9", " false "),
    ]
    .iter()
    .map(|(name, value)| of(name, value))
    .chain([String::new()])
    .collect();
    let reject: Vec<String> = [
        ("size", "\"big\""),
        ("size", "4"),
        ("code", "abc"),
        ("code", "Abcd"),
        ("when", "x"),
        ("home", "{}"),
        ("other", "1"),
        ("9x", "true"),
        // A name that the schema knows is no other.
        ("free", "true</parameter><parameter=free>true"),
    ]
    .iter()
    .map(|(name, value)| of(name, value))
    .collect();
    let accept: Vec<&str> = accept.iter().map(String::as_str).collect();
    let reject: Vec<&str> = reject.iter().map(String::as_str).collect();
    check(&tag(schema, r#""style": "qwen_xml""#), &accept, &reject);
}

#[test]
fn members_come_in_any_order_where_that_is_asked_for() {
    let schema = r#"{"type": "object", "properties": {"a": {"type": "integer"},
        "b": {"type": "integer"}, "c": {"type": "integer"}}, "required": ["a", "c"]}"#;
    let of = |names: &str| {
        let member = |name: char| format!("<parameter={name}>1</parameter>");
        names.chars().map(member).collect::<String>()
    };
    let accept: Vec<String> = ["ac", "ca", "bca", "cxba", "yacxb"].map(of).into();
    let reject: Vec<String> = ["", "a", "aca", "bab", "cb", "acbb"].map(of).into();
    let accept: Vec<&str> = accept.iter().map(String::as_str).collect();
    let reject: Vec<&str> = reject.iter().map(String::as_str).collect();
    let more = r#""style": "qwen_xml", "any_order": true"#;
    check(&tag(schema, more), &accept, &reject);
}

#[test]
fn what_cannot_be_said_in_tags_is_told_with_its_place() {
    let object =
        |properties: &str| format!(r#"{{"type": "object", "properties": {{"a": {properties}}}}}"#);
    let many: Vec<String> = (0..9).map(|n| format!("\"p{n}\": {{}}")).collect();
    let cases = [
        (
            "{}".to_owned(),
            "",
            "at `#/format/json_schema`: `type` must be `object`",
        ),
        (
            r#"{"type": "string"}"#.to_owned(),
            "",
            "at `#/format/json_schema/type`: ",
        ),
        (
            r#"{"type": "object", "propertyNames": {"maxLength": 1}}"#.to_owned(),
            "",
            "at `#/format/json_schema/propertyNames`: `propertyNames` of a whole object is not supported",
        ),
        (
            object(r##"{"type": "string", "$dynamicRef": "#x"}"##),
            "",
            "at `#/format/json_schema/properties/a/$dynamicRef`: ",
        ),
        (
            r#"{"type": "object", "oneOf": [{"required": ["a"]}, {}]}"#.to_owned(),
            "",
            "at `#/format/json_schema/oneOf`: `oneOf` of a whole object is supported in this style where a member",
        ),
        (
            r#"{"type": "object", "patternProperties": {"(": {}}}"#.to_owned(),
            "",
            "at `#/format/json_schema/patternProperties/(`: column 1",
        ),
        (
            r#"{"allOf": [{"type": "object", "patternProperties": {"a": {}}}, {"properties": {"b": {}}}]}"#.to_owned(),
            "",
            "at `#/format/json_schema/allOf/0/patternProperties/a`: `patternProperties` beside members of another branch",
        ),
        (
            object("{}"),
            ", \"max_whitespace_cnt\": \"2\"",
            "at `#/format/max_whitespace_cnt`: `max_whitespace_cnt` must be a whole number from 0 to 2147483647, or -1",
        ),
        (
            r#"{"allOf": [{"properties": {"a": {}}, "additionalProperties": false}, {"properties": {"b": {}}}]}"#
                .to_owned(),
            "",
            "at `#/format/json_schema/allOf/0/additionalProperties`: `additionalProperties` holds for `b` too",
        ),
        (
            r#"{"type": "object", "minProperties": 2, "properties": {"a": {}}, "additionalProperties": false}"#
                .to_owned(),
            "",
            "at `#/format/json_schema`: no object has as many members",
        ),
        (
            object(r#"{"type": "string", "pattern": "("}"#),
            "",
            "at `#/format/json_schema/properties/a/pattern`: column 1",
        ),
        (
            object(r##"{"$ref": "#/x"}"##),
            "",
            "at `#/format/json_schema/properties/a/$ref`: there is nothing at `#/x`",
        ),
        (
            object(r#"{"type": "integer", "minimum": "x"}"#),
            "",
            "structural tag, at `#/format/json_schema/properties/a/minimum`: ",
        ),
        (
            format!(
                r#"{{"type": "object", "properties": {{{}}}}}"#,
                many.join(",")
            ),
            ", \"any_order\": true",
            "at `#/format/any_order`: `any_order` is supported for up to 8 properties",
        ),
    ];
    for (schema, more, expected) in cases {
        let source = tag(&schema, &format!(r#""style": "qwen_xml"{more}"#));
        let message = compiler()
            .compile_structural_tag(&source)
            .unwrap_err()
            .to_string();
        assert!(message.contains(expected), "{source}: {message}");
    }
}

/// Models write values on lines of their own, also where a schema says which values there are.
#[test]
fn white_space_around_restricted_strings_is_free() {
    let styles = [
        ("qwen_xml", "<parameter=t>", "</parameter>"),
        ("minimax_xml", "<parameter name=\"t\">", "</parameter>"),
        ("glm_xml", "<arg_key>t</arg_key><arg_value>", "</arg_value>"),
        (
            "kimi_k3_xml",
            "<|open|>argument key=\"t\" type=\"string\"<|sep|>",
            "<|close|>argument<|sep|>",
        ),
        (
            "cohere_xml",
            "<cofl:value name=\"t\" type=\"raw\">",
            "</cofl:value>",
        ),
        (
            "deepseek_xml",
            "<｜DSML｜parameter name=\"t\" string=\"true\">",
            "</｜DSML｜parameter>",
        ),
    ];
    let restrictions = [
        r#""type": "string", "pattern": "^ab$""#,
        r#""type": "string", "maxLength": 2"#,
        r#""type": "string", "minLength": 2, "maxLength": 2"#,
        r#""enum": ["ab", "cd"]"#,
        r#""const": "ab""#,
    ];
    for (style, open, close) in styles {
        let texts = |values: &[&str]| -> Vec<String> {
            let text = |value: &&str| format!("{open}{value}{close}");
            values.iter().map(text).collect()
        };
        let spaced = texts(&["\nab\n", " ab", "\t\r\n ab\n\n"]);
        let (mut accept, mut reject) = (texts(&["ab"]), texts(&["\nabc\n", "\na\nb"]));
        match style {
            "deepseek_xml" => reject.extend(spaced),
            _ => accept.extend(spaced),
        }
        let accept: Vec<&str> = accept.iter().map(String::as_str).collect();
        let reject: Vec<&str> = reject.iter().map(String::as_str).collect();
        for restriction in restrictions {
            let schema = format!(
                r#"{{"type": "object", "properties": {{"t": {{{restriction}}}}}, "required": ["t"]}}"#
            );
            check(
                &tag(&schema, &format!(r#""style": "{style}""#)),
                &accept,
                &reject,
            );
        }
    }
}
