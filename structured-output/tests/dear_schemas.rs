//! Schemas that can't be served within the limits are refused when they are compiled, with a pointer to the
//! schema that is why; and those that only look as if they couldn't are served.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod byte_vocabulary;

use serde_json::{Value, json};
use structured_output::{
    CancelFlag, CompileBudget, CompileEffort, CompileError, CompilerOptions, GrammarCompiler,
    GrammarMatcher, GrammarSpecification, JsonSchemaOptions, Limits, ProblemPlace, ProblemPosition,
    PropertyOrder,
};

fn compiler() -> GrammarCompiler {
    byte_vocabulary::compiler(CompilerOptions::default())
}

/// Less than the default, so that it is over sooner.
const MAX_MASK_STEPS: u64 = 200_000;

const ORDERS: [PropertyOrder; 2] = [PropertyOrder::Schema, PropertyOrder::Any];

fn compile(schema: &Value, property_order: PropertyOrder) -> Result<(), CompileError> {
    let options = JsonSchemaOptions {
        property_order,
        limits: Some(Limits {
            max_mask_steps: MAX_MASK_STEPS,
            ..Limits::default()
        }),
        ..JsonSchemaOptions::default()
    };
    let grammar = compiler().compile_json_schema(&schema.to_string(), &options)?;
    // What is let in has its first masks.
    let mut matcher = GrammarMatcher::new(&grammar);
    matcher.check_opening().unwrap();
    matcher.next_token_mask().unwrap();
    for byte in b"{\"" {
        if !matcher.accept_token(u32::from(*byte)).unwrap() {
            break;
        }
        matcher.next_token_mask().unwrap();
    }
    Ok(())
}

/// Numbers that look random, always the same.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Three of so many keys or their absence, one of which has to be met, so many times: at 4.26 clauses a key
/// nobody knows a way to solve that in time.
fn clauses(num_keys: u64, num_clauses: usize) -> Value {
    let mut dice = Dice(7);
    let clauses = (0..num_clauses).map(|_| {
        let literals = (0..3).map(|_| {
            let has = json!({"required": [format!("k{}", dice.below(num_keys))]});
            match dice.below(2) {
                0 => has,
                _ => json!({"not": has}),
            }
        });
        json!({"anyOf": literals.collect::<Vec<_>>()})
    });
    json!({"type": "object", "allOf": clauses.collect::<Vec<_>>()})
}

fn hard() -> Value {
    clauses(400, 1_704)
}

/// Patterns of keys that overlap in every way.
fn overlapping(count: u32) -> Value {
    let patterns = (0..count).map(|at| {
        let letter = char::from(b'a' + at as u8);
        (letter.to_string(), json!({"type": "integer"}))
    });
    json!({"type": "object", "patternProperties": patterns.collect::<serde_json::Map<_, _>>()})
}

/// The same with a value of its own for each, and keys that are few.
fn different(count: u32) -> Value {
    let patterns = (0..count).map(|at| {
        let letter = char::from(b'a' + at as u8);
        (
            format!("^.{{0,3}}{letter}"),
            json!({"type": "integer", "minimum": at}),
        )
    });
    json!({"type": "object", "patternProperties": patterns.collect::<serde_json::Map<_, _>>()})
}

fn too_dear(limit: &'static str, max: u64, place: &str) -> Result<(), CompileError> {
    let pointer = place.trim_start_matches("`#").trim_end_matches('`');
    Err(CompileError::LimitExceeded {
        limit,
        max,
        place: Some(ProblemPlace {
            position: Some(ProblemPosition::Pointer(pointer.to_owned())),
            words: String::new(),
        }),
    })
}

#[track_caller]
fn dear_at(schema: &Value, place: &str) {
    for order in ORDERS {
        assert_eq!(
            compile(schema, order),
            too_dear("max_mask_steps", MAX_MASK_STEPS, place),
            "{order:?}"
        );
    }
}

#[test]
fn a_value_that_is_too_dear_is_named() {
    let member =
        json!({"properties": {"a": {"properties": {"x": hard(), "y": {"type": "string"}}}}});
    dear_at(&member, "`#/properties/a/properties/x`");
    let item = json!({"type": "array", "items": {"properties": {"x": hard()}}});
    dear_at(&item, "`#/items/properties/x`");
    let later = json!({"prefixItems": [{"type": "null"}, {"additionalProperties": hard()}]});
    dear_at(&later, "`#/prefixItems/1/additionalProperties`");
    let referred = json!({
        "properties": {"a~/b": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/d/items"}]}},
        "$defs": {"d": {"items": hard()}},
    });
    dear_at(&referred, "`#/$defs/d/items`");
    let optional =
        json!({"properties": {"a": {"allOf": [{"$ref": "#/$defs/d"}]}}, "$defs": {"d": hard()}});
    dear_at(&optional, "`#/$defs/d`");
}

/// A schema within two others, as a member that may be missing and as one that has to be there.
fn members_of(schema: &Value) -> [Value; 2] {
    let object = |schema: &Value| json!({"type": "object", "properties": {"x": schema}});
    let needed =
        |schema: &Value| json!({"type": "object", "properties": {"x": schema}, "required": ["x"]});
    [object(&object(schema)), needed(&needed(schema))]
}

/// Bounds that no limit raises are told as such, wherever the schema stands.
#[test]
fn fixed_bounds_are_told_with_their_place() {
    let distinct = |count: u32, items: Value| json!({"type": "array", "uniqueItems": true, "minItems": count, "items": items});
    let id =
        json!({"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]});
    for (schema, max, what) in [
        (
            different(8),
            128,
            "ways in which patterns tell an object's keys apart",
        ),
        (
            distinct(101, id.clone()),
            1_000,
            "bytes of arrays or objects still needed that must differ",
        ),
        (
            distinct(200, json!({"type": "array"})),
            1_000,
            "bytes of arrays or objects still needed that must differ",
        ),
        (
            distinct(2_001, json!({"type": "integer"})),
            2_000,
            "items still needed that must differ",
        ),
        (
            json!({"type": "object", "minProperties": 10_001}),
            10_000,
            "keys still needed beside those with a name",
        ),
    ] {
        for member in members_of(&schema) {
            for order in ORDERS {
                let options = JsonSchemaOptions {
                    property_order: order,
                    ..JsonSchemaOptions::default()
                };
                let refused = compiler().compile_json_schema_with(
                    &member.to_string(),
                    &options,
                    CompileBudget {
                        max_bytes: 32 << 20,
                        ..CompileBudget::default()
                    },
                    &CancelFlag::new(),
                );
                let refused = refused.unwrap_err();
                assert_eq!(
                    refused.to_string(),
                    format!(
                        "the grammar needs more than {max} {what}, at `#/properties/x/properties/x`: make it \
                         smaller, no limit raises this"
                    ),
                    "{order:?}"
                );
            }
        }
    }
    for schema in [
        overlapping(20),
        different(4),
        distinct(100, id),
        distinct(200, json!({"type": ["integer", "object"]})),
    ] {
        for member in members_of(&schema) {
            for order in ORDERS {
                let options = JsonSchemaOptions {
                    property_order: order,
                    ..JsonSchemaOptions::default()
                };
                let compiled = compiler().compile_json_schema(&member.to_string(), &options);
                assert!(compiled.is_ok(), "{schema}");
            }
        }
    }
}

/// Numbers and strings that have to be searched for.
#[test]
fn scalars_that_are_too_dear_are_named() {
    let options = JsonSchemaOptions::default();
    let place = "`#/properties/x/properties/x`";
    for schema in [
        json!({"type": "string", "allOf": [{"pattern": "^(a{1013})*$"}, {"pattern": "^(a{1019})*$"}, {"minLength": 1}]}),
        json!({"type": "number", "multipleOf": 4_294_967_291_u64, "minimum": 1.5, "maximum": 4_294_967_290.5}),
        json!({"type": "number", "multipleOf": 4_294_513_459_u64, "not": {"multipleOf": 99_991}}),
        json!({"type": "number", "allOf": ([99_991, 99_989, 99_971, 99_961].map(|step| json!({"multipleOf": step})))}),
        json!({"type": "array", "uniqueItems": true, "minItems": 1_900, "items": {"type": "string", "minLength": 5_000}}),
    ] {
        for member in members_of(&schema) {
            let compiler = compiler();
            let refused = compiler.compile_json_schema(&member.to_string(), &options);
            let message = refused.unwrap_err().to_string();
            assert!(message.contains(place), "{schema}: {message}");
            assert!(message.contains("or raise the limit"), "{message}");
            let bytes = compiler.cache_bytes();
            assert!(bytes < 60 << 20, "{schema}: {bytes}");
        }
    }
}

/// Multiples of several numbers are those of one.
#[test]
fn multiples_of_several_numbers_are_served() {
    let steps = |steps: &[Value]| {
        let all: Vec<Value> = steps
            .iter()
            .map(|step| json!({"multipleOf": step}))
            .collect();
        json!({"type": "number", "allOf": all})
    };
    for (schema, good, bad) in [
        (
            steps(&[json!(99_991), json!(99_989)]),
            "9998000099",
            "9998000098",
        ),
        (
            steps(&[json!(99_991), json!(99_989), json!(99_971)]),
            "999510067897129",
            "99951006789",
        ),
        (
            steps(&[json!(0.99991), json!(99_989)]),
            "9998000099",
            "99980000.99",
        ),
        (
            steps(&[json!(4_294_967_291_u64), json!(0.5)]),
            "-4294967291",
            "0.5",
        ),
        (
            json!({"type": "integer", "multipleOf": 1_000_000_000_000_000_000_u64}),
            "3000000000000000000",
            "300000000000000000",
        ),
    ] {
        for member in members_of(&schema) {
            for order in ORDERS {
                let options = JsonSchemaOptions {
                    property_order: order,
                    ..JsonSchemaOptions::default()
                };
                let grammar = compiler()
                    .compile_json_schema(&member.to_string(), &options)
                    .unwrap();
                for (number, is_right) in [(good, true), (bad, false)] {
                    let mut matcher = GrammarMatcher::new(&grammar);
                    let text = format!("{{\"x\":{{\"x\":{number}}}}}");
                    let mut bytes = text.bytes();
                    let accepted = bytes.all(|byte| {
                        matcher.next_token_mask().unwrap();
                        matcher.accept_token(u32::from(byte)).unwrap()
                    });
                    assert_eq!(accepted, is_right, "{schema}: {number}");
                }
            }
        }
    }
}

/// Constants may be nested as deep as the source may.
#[test]
fn deep_constants_are_served() {
    let mut array = json!(1);
    let mut object = json!(1);
    for _ in 0..500 {
        array = json!([array]);
        object = json!({"a": object});
    }
    for value in [array, object] {
        for schema in [
            json!({"const": value}),
            json!({"enum": [0, value]}),
            json!({"not": {"not": {"const": value}}}),
        ] {
            let options = JsonSchemaOptions::default();
            let grammar = compiler()
                .compile_json_schema(&schema.to_string(), &options)
                .unwrap();
            let mut matcher = GrammarMatcher::new(&grammar);
            for byte in value.to_string().bytes() {
                matcher.next_token_mask().unwrap();
                assert!(matcher.accept_token(u32::from(byte)).unwrap());
            }
        }
    }
}

#[test]
fn the_innermost_schema_that_is_too_dear_by_itself_is_named() {
    let inner =
        json!({"items": {"oneOf": [{"maxProperties": 3}, hard()]}, "minItems": 1, "type": "array"});
    let schema = json!({"properties": {"list": {"anyOf": [{"type": "array", "minItems": 9, "items": {"const": 1}}, inner]}}});
    for order in ORDERS {
        let place = match compile(&schema, order) {
            Err(CompileError::LimitExceeded { place, .. }) => place.unwrap().to_string(),
            Ok(()) => continue,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            place, "`#/properties/list/anyOf/1/items/oneOf/1`",
            "{order:?}"
        );
    }
}

#[test]
fn the_whole_schema_is_named_where_nothing_in_it_is_too_dear() {
    for order in ORDERS {
        let Err(CompileError::LimitExceeded { place, .. }) = compile(&hard(), order) else {
            panic!("{order:?}");
        };
        assert_eq!(place.unwrap().to_string(), "`#`", "{order:?}");
    }
}

/// What compiling a schema itself takes.
#[test]
fn a_budget_that_ends_while_a_schema_is_compiled_names_it() {
    let words = |first: usize, count: usize| -> Vec<String> {
        (first..first + count)
            .map(|at| format!("{} word", at * 7919))
            .collect()
    };
    let many = words(0, 200).into_iter().zip(0..);
    let many = many.map(|(name, at)| (name, json!({"enum": words(at * 1_000, 20)})));
    let many = json!({"type": "object", "properties": many.collect::<serde_json::Map<_, _>>()});
    let schema = json!({"properties": {"few": {"enum": words(7, 20)}, "many": {"items": many}}});
    let budget = |max_states: usize, max_bytes: usize, max_steps: u64| CompileBudget {
        max_states,
        max_bytes,
        max_steps,
    };
    for (budget, limit, max) in [
        (budget(500, 1 << 30, u64::MAX), "max_states", 500),
        (budget(500_000, 500_000, u64::MAX), "max_bytes", 500_000),
        (budget(500_000, 1 << 30, 300), "max_steps", 300),
    ] {
        let refused = compiler().compile_json_schema_with(
            &schema.to_string(),
            &JsonSchemaOptions::default(),
            budget,
            &CancelFlag::new(),
        );
        let place = "`#/properties/many/items`";
        assert_eq!(refused.map(|_| ()), too_dear(limit, max, place), "{limit}");
    }
}

/// Schemas in operands are asked other questions than what they ask by themselves.
#[test]
fn what_is_too_dear_where_nobody_comes_is_served() {
    for schema in [
        json!({"properties": {"a": {"type": "string", "properties": {"x": hard()}}}}),
        json!({"properties": {"a": {"type": "object", "properties": {"x": hard()}, "maxProperties": 0}}}),
        json!({"type": "array", "maxItems": 1, "prefixItems": [{"type": "null"}], "items": hard()}),
        json!({"type": "object", "properties": {"x": hard()}, "allOf": [{"properties": {"x": {"type": "string"}}}]}),
        json!({"properties": {"x": hard()}, "patternProperties": {"^x$": {"type": "integer"}}}),
        json!({"type": "null", "items": hard(), "$defs": {"d": hard()}}),
        json!({"properties": {"a": {"const": 1, "properties": {"x": hard()}}}}),
        json!({"properties": {"a": {"type": "object", "required": ["b"], "properties": {"b": false, "x": hard()}}}}),
    ] {
        for order in ORDERS {
            assert_eq!(
                compile(&schema, order),
                Ok(()),
                "{}",
                &schema.to_string()[..60]
            );
        }
    }
}

/// The first mask is taken to be as dear as its parts in turn, from the inside out.
/// Whether one has a value depends on the others, in whatever order they are looked at.
#[test]
fn schemas_that_hold_one_another_are_served() {
    let schema = json!({
        "$ref": "#/$defs/x",
        "$defs": {
            "x": {
                "prefixItems": [true, {"$ref": "#/$defs/y"}],
                "$ref": "#/$defs/y",
                "unevaluatedItems": false,
            },
            "y": {
                "anyOf": [
                    {"items": {"$ref": "#/$defs/y"}},
                    {"prefixItems": [true, {"$ref": "#/$defs/x"}]},
                ],
                "unevaluatedItems": {"type": "null"},
            },
        },
    });
    for order in ORDERS {
        assert_eq!(compile(&schema, order), Ok(()));
    }
    let grammar = compiler()
        .compile_json_schema(&schema.to_string(), &JsonSchemaOptions::default())
        .unwrap();
    let mut matcher = GrammarMatcher::new(&grammar);
    for byte in "[[1,[2,[3,4,null]],null],null,null]".bytes() {
        matcher.next_token_mask().unwrap();
        assert!(matcher.accept_token(u32::from(byte)).unwrap());
    }
    assert!(matcher.is_completed());
}

#[test]
fn deep_values_are_served_from_the_inside_out() {
    let mut within = json!({"type": "null"});
    for _ in 0..240 {
        within = json!({"type": "object", "required": ["a"], "properties": {"a": within}});
    }
    let definitions: serde_json::Map<_, _> = (0..400)
        .map(|at| {
            let next = json!({"$ref": format!("#/$defs/d{}", at + 1)});
            let schema = match at {
                399 => json!({"type": "null"}),
                _ => json!({"type": "array", "items": next, "minItems": 1}),
            };
            (format!("d{at}"), schema)
        })
        .collect();
    let referred = json!({"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": definitions});
    for schema in [
        within.clone(),
        json!({"properties": {"x": within}}),
        referred,
    ] {
        for order in ORDERS {
            assert_eq!(compile(&schema, order), Ok(()));
        }
    }
}

#[test]
fn a_schema_in_a_grammar_is_named_within_it() {
    let schema = json!({"properties": {"x": hard()}});
    let place = |specification: GrammarSpecification| {
        let refused = compiler().compile_specification(
            &specification,
            CompileBudget::default(),
            &CancelFlag::new(),
        );
        match refused {
            Err(CompileError::LimitExceeded { limit, place, .. }) => {
                (limit, place.unwrap().to_string())
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        place(GrammarSpecification::Lark(format!(
            "start: \"a\" value start?\nvalue: %json {schema}"
        ))),
        (
            "max_mask_steps",
            "line 2, column 8, schema `#/properties/x`".to_owned()
        )
    );
    let tag = json!({"type": "structural_tag", "format": {"type": "tag", "begin": "<a>", "end": "</a>",
        "content": {"type": "json_schema", "json_schema": schema}}});
    assert_eq!(
        place(GrammarSpecification::StructuralTag(tag.to_string())),
        (
            "max_mask_steps",
            "`#/format/content/json_schema/properties/x`".to_owned()
        )
    );
}

/// Where others wait, nothing is said before it is known; in the end it is the same.
#[test]
fn what_is_done_in_turns_ends_the_same() {
    let options = CompilerOptions {
        max_shared_steps: Some(20_000),
        ..CompilerOptions::default()
    };
    let compiler = byte_vocabulary::compiler(options);
    let schema = json!({"properties": {"a": {"properties": {"x": hard()}}}});
    let specification =
        GrammarSpecification::JsonSchema(schema.to_string(), JsonSchemaOptions::default());
    let budget = CompileBudget::default();
    let compile = |effort| {
        let compiled =
            compiler.compile_with_effort(&specification, budget, effort, &CancelFlag::new());
        compiled.map(|compiled| compiled.map(|_| ()))
    };
    for turn in 0..6 {
        let max_steps = 20_000 << turn;
        assert_eq!(compile(CompileEffort::Shared { max_steps }), None, "{turn}");
    }
    for turn in 0..5 {
        let max_steps = 20_000 << turn;
        assert_eq!(compile(CompileEffort::Apart { max_steps }), None, "{turn}");
    }
    let max_steps = u64::MAX;
    let refused = too_dear("max_mask_steps", 2_000_000, "`#/properties/a/properties/x`");
    assert_eq!(compile(CompileEffort::Apart { max_steps }), Some(refused));
}

/// Who has little to spend finds out little.
#[test]
fn a_small_budget_bounds_the_look_too() {
    let schema = json!({"properties": {"a": {"properties": {"x": hard()}}}});
    let specification =
        GrammarSpecification::JsonSchema(schema.to_string(), JsonSchemaOptions::default());
    let budget = CompileBudget {
        max_steps: 40_000,
        ..CompileBudget::default()
    };
    let compiled = compiler().compile_specification(&specification, budget, &CancelFlag::new());
    assert!(compiled.is_ok());
}

#[test]
fn the_limit_of_a_schema_is_its_own() {
    let options = JsonSchemaOptions {
        limits: Some(Limits {
            max_mask_steps: 10_000,
            ..Limits::default()
        }),
        ..JsonSchemaOptions::default()
    };
    let schema = json!({"properties": {"a": hard()}});
    let refused = compiler().compile_json_schema(&schema.to_string(), &options);
    let message = refused.unwrap_err().to_string();
    assert_eq!(
        message,
        "the grammar needs more than 10000 of `max_mask_steps`, at `#/properties/a`: make it smaller or \
         raise the limit"
    );
}

/// What an object or array has to have may be more than can be written: that is refused, and what tells
/// it takes little memory, whatever the number is.
#[test]
fn counts_that_can_not_be_served_are_refused_cheaply() {
    let counts = ["1000000", "4000000000", "18446744073709551616"];
    for count in counts {
        let object = format!(r#"{{"type":"object","minProperties":{count}}}"#);
        let distinct = |items: &str| {
            format!(r#"{{"type":"array","uniqueItems":true,"minItems":{count},"items":{items}}}"#)
        };
        let id = r#"{"type":"object","properties":{"id":{"type":"integer"}},"required":["id"]}"#;
        let repeated =
            format!(r#"{{"type":"array","not":{{"uniqueItems":true}},"minItems":{count}}}"#);
        let dear = [
            object,
            distinct("true"),
            distinct(r#"{"type":"integer"}"#),
            distinct(id),
            repeated,
        ];
        for dear in dear {
            let schemas = [
                (dear.clone(), "`#`"),
                (
                    format!(r#"{{"properties":{{"x":{dear}}}}}"#),
                    "`#/properties/x`",
                ),
                (
                    format!(r#"{{"anyOf":[{{"type":"string"}},{dear}]}}"#),
                    "`#/anyOf/1`",
                ),
                (format!(r#"{{"type":"array","items":{dear}}}"#), "`#/items`"),
            ];
            for (schema, place) in schemas {
                let compiler = compiler();
                let refused = compiler.compile_json_schema(&schema, &JsonSchemaOptions::default());
                let message = refused.unwrap_err().to_string();
                assert!(message.contains(place), "{schema}: {message}");
                let bytes = compiler.cache_bytes();
                assert!(bytes < 60 << 20, "{schema}: {bytes}");
            }
        }
        // Too few values are none, and there is another way.
        let few = distinct(r#"{"enum":[1,2,3]}"#);
        let schema = format!(r#"{{"anyOf":[{{"type":"string"}},{few}]}}"#);
        let options = JsonSchemaOptions::default();
        let grammar = compiler().compile_json_schema(&schema, &options).unwrap();
        let mut matcher = GrammarMatcher::new(&grammar);
        assert!(matcher.accept_token(u32::from(b'"')).unwrap());
    }
}

/// What can be finished is served up to the number that is documented.
#[test]
fn counts_up_to_the_limit_are_served() {
    let options = JsonSchemaOptions::default();
    for (schema, is_served) in [
        (r#"{"type":"object","minProperties":10000}"#, true),
        (r#"{"type":"object","minProperties":10001}"#, false),
        (r#"{"type":"object","maxProperties":4000000000}"#, true),
        (
            r#"{"type":"object","not":{"minProperties":4000000000}}"#,
            true,
        ),
        (
            r#"{"uniqueItems":true,"type":"array","minItems":2000}"#,
            true,
        ),
        (
            r#"{"uniqueItems":true,"type":"array","minItems":2001}"#,
            false,
        ),
        (r#"{"type":"array","minItems":4000000000}"#, true),
    ] {
        let compiled = compiler().compile_json_schema(schema, &options);
        assert_eq!(compiled.is_ok(), is_served, "{schema}");
    }
}
