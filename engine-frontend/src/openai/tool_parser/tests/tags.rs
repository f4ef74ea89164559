//! Values of parameters that are tags.

use serde_json::{Value, json};

use super::{openings, read, read_in_all_cuts, values};
use crate::openai::tool_format::tests::written;

#[test]
fn values_of_tags_are_what_the_schema_says() {
    let read = |property: &Value, text: &str| {
        let schema = json!({"type": "object", "properties": {"p": property}});
        let openings = openings("qwen3_coder", &[("f", schema)]);
        let text = format!(
            "<tool_call>\n<function=f>\n<parameter=p>{text}</parameter>\n</function>\n</tool_call>"
        );
        let (_, calls) = values(read_in_all_cuts(&openings, &text));
        calls[0].1["p"].clone()
    };
    let text = json!({"type": "string"});
    for (property, written, value) in [
        (&text, "\nLisbon\n", json!("Lisbon")),
        (&text, "Lisbon", json!("Lisbon")),
        (&text, "\n\n a \n\n", json!("\n a \n")),
        (&text, "", json!("")),
        (&text, "\n", json!("")),
        (&text, "5", json!("5")),
        (
            &text,
            "a</param\n</parameter",
            json!("a</param\n</parameter"),
        ),
        (&json!({"type": "integer"}), "\n 5\n", json!(5)),
        (&json!({"type": ["string", "integer"]}), "\n5\n", json!(5)),
        (&json!({"type": ["string", "integer"]}), "5.5", json!("5.5")),
        (&json!({"type": ["string", "null"]}), "null", json!(null)),
        (&json!({"enum": ["a", " b", 1, "1"]}), "\na\n", json!("a")),
        (&json!({"enum": ["a", " b", 1, "1"]}), " b", json!(" b")),
        (&json!({"enum": ["a", " b", 1, "1"]}), "1", json!(1)),
        (&json!({"enum": ["a", 1]}), "\n1.0\n", json!(1.0)),
        (&json!({"const": "x"}), "\nx\n", json!("x")),
        (
            &json!({"type": "string", "pattern": "a"}),
            "\n a \n",
            json!("a"),
        ),
        (
            &json!({"type": "string", "minLength": 3}),
            "\na\n",
            json!("\na\n"),
        ),
        (
            &json!({"type": "string", "minLength": 2}),
            "\na\n",
            json!("a\n"),
        ),
        (
            &json!({"type": ["string", "integer"], "minimum": 5}),
            "3",
            json!("3"),
        ),
        (
            &json!({"type": ["string", "integer"], "minimum": 5}),
            "7",
            json!(7),
        ),
        (
            &json!({"type": "string", "pattern": "^ +a"}),
            " a\n",
            json!(" a"),
        ),
        (
            &json!({"type": "string", "format": "date"}),
            "\n2026-11-30\n",
            json!("2026-11-30"),
        ),
        (
            &json!({"type": "string", "format": "my-own"}),
            " a ",
            json!(" a "),
        ),
        (
            &json!({"type": "string", "allOf": [{"maxLength": 3}]}),
            "\nabc\n",
            json!("abc"),
        ),
        (
            &json!({"oneOf": [{"type": "string", "pattern": "^a$"}, {"const": "b"}]}),
            "a ",
            json!("a"),
        ),
        (
            &json!({"type": "string", "pattern": "^ [a-z]{2}$"}),
            "\n og\n",
            json!(" og"),
        ),
        (
            &json!({"anyOf": [{"type": "string", "enum": ["red", "blue"]}, {"type": "null"}]}),
            "  blue\n",
            json!("blue"),
        ),
        (
            &json!({"type": ["string", "object"], "maxLength": 2}),
            "{ \"a\" :1 }",
            json!({"a": 1}),
        ),
        (
            &json!({"anyOf": [{"type": "string"}, {"type": "null"}], "enum": ["red", null]}),
            "  red\n",
            json!("red"),
        ),
        (
            &json!({"type": "string", "enum": ["1", 1]}),
            "1",
            json!("1"),
        ),
        (
            &json!({"allOf": [{"enum": ["a", " b"]}]}),
            "  b ",
            json!(" b"),
        ),
        (&json!({}), "{\"a\": [1]}", json!({"a": [1]})),
        (&json!({}), "some text", json!("some text")),
        (
            &json!({"anyOf": [{"type": "string"}, {"type": "array"}]}),
            "[1]",
            json!([1]),
        ),
        (
            &json!({"type": "array"}),
            "[\"</parameter>\", \" x \"]",
            json!(["</parameter>", " x "]),
        ),
    ] {
        assert_eq!(read(property, written), value, "{property}: {written:?}");
    }
}

/// What stands in branches of the whole object, or is a part that they refer to.
#[test]
fn members_that_branches_name_are_read_by_these() {
    let date = json!({"type": "string", "format": "date"});
    let named = json!({"enum": ["red", "blue"]});
    for schema in [
        json!({"type": "object", "anyOf": [
            {"properties": {"k": {"const": "a"}, "p": date}, "required": ["k", "p"]},
            {"properties": {"k": {"const": "b"}, "p": named}, "required": ["k", "p"]},
        ]}),
        json!({"type": "object", "$defs": {"d": {"properties": {"p": date}, "required": ["p", "q"]}}, "allOf": [{"$ref": "#/$defs/d"}]}),
        json!({"type": "object", "properties": {"p": {"$ref": "#/properties/q"}, "q": date}}),
        json!({"type": "object", "properties": {"p": {"$ref": "#/$defs/a"}},
               "$defs": {"a": {"$ref": "#/$defs/b", "maxLength": 10}, "b": {"type": "string"}}}),
        json!({"type": "object", "properties": {"p": {"anyOf": [named, {"type": "null"}, date]}}}),
    ] {
        let openings = openings("qwen3_coder", &[("f", schema.clone())]);
        let text = "<tool_call>\n<function=f>\n<parameter=p>\n 2026-11-30\n</parameter>\n</function>\n</tool_call>";
        let (_, calls) = values(read(&openings, &[text]));
        assert_eq!(calls[0].1, json!({"p": "2026-11-30"}), "{schema}");
    }
}

/// A name ends where a longer one of the schema's doesn't go on.
#[test]
fn names_with_signs_of_tags_are_read_whole() {
    let flag = json!({"type": "boolean"});
    let schema = json!({
        "type": "object", "$defs": {"more": {"properties": {"c>=d>": flag}}},
        "properties": {"StartTime>": flag, "a>b": flag, "q\"": flag, "x\" string=\"y": flag, "k</arg_key>": flag},
        "allOf": [{"$ref": "#/$defs/more"}, {"then": {"properties": {"</parameter>": flag}}}],
    });
    for format in [
        "qwen3_coder",
        "seed_oss",
        "glm45",
        "minimax_m2",
        "deepseek_v32",
    ] {
        let openings = openings(format, &[("f", schema.clone())]);
        for name in [
            "StartTime>",
            "a>b",
            "q\"",
            "x\" string=\"y",
            "k</arg_key>",
            "c>=d>",
            "</parameter>",
            "StartTime<",
            "b",
        ] {
            let text = match format {
                "qwen3_coder" => format!(
                    "<tool_call>\n<function=f>\n<parameter={name}>true</parameter>\n</function>\n</tool_call>"
                ),
                "seed_oss" => format!(
                    "<seed:tool_call>\n<function=f>\n<parameter={name}>true</parameter>\n</function>\n</seed:tool_call>"
                ),
                "glm45" => format!(
                    "<tool_call>f\n<arg_key>{name}</arg_key>\n<arg_value>true</arg_value>\n</tool_call>"
                ),
                "minimax_m2" => format!(
                    "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"{name}\">true</parameter>\n</invoke>\n</minimax:tool_call>"
                ),
                _ => format!(
                    "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"{name}\" string=\"false\">true</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>"
                ),
            };
            let (_, calls) = values(read(&openings, &[&text]));
            assert_eq!(calls[0].1, json!({name: true}), "{format}: {text}");
        }
    }
}

/// A value of which nothing is known has no white space that the tags may have.
#[test]
fn a_value_that_is_too_dear_to_check_is_read_without_white_space() {
    let dear = |format: &str| json!({"type": "string", "pattern": format!("^({format}){{1,99}}$")});
    let one = json!({"oneOf": [
        dear("[a-z]{1,40}[0-9]{1,40}x|[a-y]{1,60}[1-9]{1,60}y|.{50}z"),
        dear("[b-z]{1,40}[0-8]{1,40}x|[c-y]{1,60}[1-7]{1,60}y|.{49}z"),
    ]});
    let schema = json!({"type": "object", "properties": {"p": one}});
    let openings = openings("qwen3_coder", &[("f", schema)]);
    let text =
        "<tool_call>\n<function=f>\n<parameter=p> a1x \n</parameter>\n</function>\n</tool_call>";
    let (_, calls) = values(read(&openings, &[text]));
    assert_eq!(calls[0].1, json!({"p": "a1x"}));
}

#[test]
fn a_member_is_read_beside_those_before_it() {
    let union = json!({"type": "object", "oneOf": [
        {"properties": {"by": {"const": "zip"}, "value": {"type": "string", "pattern": "^[0-9]{5}$"}}, "required": ["by", "value"]},
        {"properties": {"by": {"const": "id"}, "value": {"type": "integer"}}, "required": ["by", "value"]},
        {"properties": {"by": {"const": "text"}, "value": {"type": "string"}}, "required": ["by", "value"]},
    ]});
    let openings = openings("qwen3_coder", &[("f", union)]);
    for (by, written, value) in [
        ("zip", "53422", json!("53422")),
        ("id", "53422", json!(53422)),
        ("text", "53422", json!("53422")),
        ("text", "\n  a\n", json!("  a")),
    ] {
        let text = format!(
            "<tool_call>\n<function=f>\n<parameter=by>\n{by}\n</parameter>\n<parameter=value>{written}</parameter>\n</function>\n\
             </tool_call>"
        );
        let (_, calls) = values(read(&openings, &[&text]));
        assert_eq!(calls[0].1, json!({"by": by, "value": value}));
    }
}

#[test]
fn a_free_string_keeps_its_white_space_and_an_open_branch_takes_no_others_member() {
    let open = json!({"type": "object", "anyOf": [
        {"properties": {"name": {"type": "string"}}, "required": ["name"]},
        {"properties": {"flag": {"type": "string", "enum": ["true", "false"]}}, "required": ["flag"]},
    ]});
    let described = json!({"type": "object", "$defs": {"s": {"type": "string"}},
                           "properties": {"p": {"$ref": "#/$defs/s", "description": "Code."}}});
    let combined = json!({"type": "object", "properties": {"p": {"allOf": [{"type": "string"}], "description": "Code."}}});
    let required = json!({"type": "object", "properties": {"p": {"type": "string"}}, "anyOf": [{"required": ["p"]}, {"required": ["q"]}]});
    for (schema, name, written, value) in [
        (open, "flag", "false", "false"),
        (described, "p", "\n  a\n\n", "\n  a\n\n"),
        (combined, "p", "\n  a\n\n", "\n  a\n\n"),
        (required, "p", "\n  a\n\n", "\n  a\n\n"),
    ] {
        let openings = openings("glm47", &[("f", schema.clone())]);
        let text = format!(
            "<tool_call>f<arg_key>{name}</arg_key><arg_value>{written}</arg_value></tool_call>"
        );
        let (_, calls) = values(read(&openings, &[&text]));
        assert_eq!(calls[0].1, json!({name: value}), "{schema}");
    }
}

#[test]
fn patterns_of_names_say_what_a_text_is() {
    let schema = json!({
        "type": "object", "patternProperties": {"^s": {"type": "string"}, "^n": {"type": "integer"}},
        "additionalProperties": false,
    });
    let openings = openings("glm45", &[("f", schema)]);
    let arguments = json!({"s1": "5", "n1": 5, "s2": "a"});
    let text = written("glm45", &[("f", arguments.clone())]);
    let (_, calls) = values(read(&openings, &[&text]));
    assert_eq!(calls[0].1, arguments);
}

#[test]
fn what_stands_beside_a_reference_restricts_a_string() {
    let schema = json!({
        "type": "object", "$defs": {"s": {"type": "string"}},
        "properties": {"p": {"$ref": "#/$defs/s", "maxLength": 3}},
    });
    let openings = openings("minimax_m2", &[("f", schema)]);
    let text = "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"p\">\nabc\n</parameter>\n</invoke>\n\
                </minimax:tool_call>";
    let (_, calls) = values(read(&openings, &[text]));
    assert_eq!(calls[0].1, json!({"p": "abc"}));
}

#[test]
fn patterns_of_names_say_more_of_named_members_and_numbers_have_any_number_of_digits() {
    let digits = "8".repeat(400);
    let schema = json!({
        "type": "object", "properties": {"p": {"type": "string"}, "q": {"anyOf": [{"const": "auto"}, {"type": "integer"}]}},
        "patternProperties": {"^p": {"maxLength": 3}},
    });
    let openings = openings("minimax_m2", &[("f", schema)]);
    let text = format!(
        "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"p\">\nabc\n</parameter>\n<parameter name=\"q\">{digits}\
         </parameter>\n</invoke>\n</minimax:tool_call>"
    );
    let (_, calls) = read(&openings, &[&text]);
    assert_eq!(calls[0].1, format!("{{\"p\": \"abc\", \"q\": {digits}}}"));
}

#[test]
fn references_in_schemas_are_followed() {
    let schema = json!({
        "type": "object", "properties": {"p": {"$ref": "#/$defs/n"}},
        "additionalProperties": {"type": "integer"}, "$defs": {"n": {"type": "integer"}},
    });
    let openings = openings("glm45", &[("f", schema)]);
    let text = written("glm45", &[("f", json!({"p": 5, "other": 6}))]);
    let (_, calls) = values(read(&openings, &[&text]));
    assert_eq!(calls[0].1, json!({"p": 5, "other": 6}));
}

/// Each of forty schemas is one of two, both the next.
#[test]
fn schemas_that_lead_to_very_many_are_not_followed_for_ever() {
    let next = |i: u32| json!({"$ref": format!("#/$defs/{}", i + 1)});
    let defs = (0..40).map(|i| (i.to_string(), json!({"anyOf": [next(i), next(i)]})));
    let mut defs: serde_json::Map<String, Value> = defs.collect();
    defs.insert("40".to_owned(), json!({"type": "integer"}));
    let schema =
        json!({"type": "object", "properties": {"p": {"$ref": "#/$defs/0"}}, "$defs": defs});
    let openings = openings("glm45", &[("f", schema)]);
    let text = written("glm45", &[("f", json!({"p": 5}))]);
    assert_eq!(values(read(&openings, &[&text])).1[0].1, json!({"p": 5}));
}
