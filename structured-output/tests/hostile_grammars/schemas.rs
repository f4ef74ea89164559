//! Schemas made to fill the memory, or to take long, within one call.

use std::sync::Arc;

use structured_output::{
    CancelFlag, CompileBudget, CompileError, CompiledGrammar, CompilerOptions, GrammarCompiler,
    GrammarMatcher, GrammarSpecification, JsonSchemaOptions, MatcherError, PropertyOrder,
};

use super::allocated::{held, most_held};
use super::compiler;

/// What the first bytes of a text come to, and the most bytes that were held for it.
fn read(schema: &str, text: &str) -> (Result<bool, MatcherError>, usize) {
    let options = JsonSchemaOptions {
        property_order: PropertyOrder::Any,
        ..JsonSchemaOptions::default()
    };
    let compiler = compiler();
    compiler.prepare();
    most_held(|| {
        let grammar = match compiler.compile_json_schema(schema, &options) {
            Ok(grammar) => grammar,
            // As the call would have.
            Err(CompileError::LimitExceeded {
                limit: "max_mask_steps",
                max,
                ..
            }) => return Err(MatcherError::StepsExhausted { max }),
            Err(error) => panic!("{error}"),
        };
        let mut matcher = GrammarMatcher::new(&grammar);
        let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
        matcher.accept_tokens(&tokens)
    })
}

/// `{"name": needs}` for so many names.
fn each(count: usize, needs: impl Fn(usize) -> String) -> String {
    let members = (0..count).map(|at| format!(r#""a{at}":{}"#, needs(at)));
    members.collect::<Vec<_>>().join(",")
}

#[test]
fn one_call_fills_no_more_than_the_states_may_by_half() {
    let count = 150;
    let names: Vec<String> = (0..count).map(|at| format!(r#""a{at}""#)).collect();
    let all = each(count, |_| format!("[{}]", names.join(",")));
    let ring = |count: usize| {
        each(count, |at| {
            format!(r#"{{"required":["a{}"]}}"#, (at + 1) % count)
        })
    };
    let alternatives = (0..1_000)
        .map(|at| format!(r#"{{"properties":{{"k":{{"const":"v{at}"}}}},"required":["k"]}}"#));
    for schema in [
        format!(r#"{{"dependentRequired":{{{all}}}}}"#),
        format!(r#"{{"dependentSchemas":{{{}}}}}"#, ring(200)),
        format!(
            r#"{{"oneOf":[{}]}}"#,
            alternatives.collect::<Vec<_>>().join(",")
        ),
    ] {
        let (outcome, held) = read(&schema, "{");
        let is_limit = match &outcome {
            Ok(accepted) => *accepted,
            Err(error) => matches!(
                error,
                MatcherError::StatesExhausted { .. } | MatcherError::StepsExhausted { .. }
            ),
        };
        assert!(is_limit, "{outcome:?}");
        // States may take 48 MiB of 128; masks and answers have 64 beside them.
        assert!(held < 128 << 20, "{held} bytes: {}...", &schema[..40]);
    }
}

#[test]
fn names_of_many_alternatives_take_steps() {
    let alternatives = (0..20_000).map(|at| format!(r#"{{"maxLength":{at}}}"#));
    let alternatives: Vec<String> = alternatives.collect();
    let schema = format!(
        r#"{{"propertyNames":{{"oneOf":[{}]}}}}"#,
        alternatives.join(",")
    );
    let options = JsonSchemaOptions::default();
    let Err(CompileError::LimitExceeded { limit, place, .. }) =
        compiler().compile_json_schema(&schema, &options)
    else {
        panic!("it is compiled");
    };
    assert!(
        ["max_steps", "max_states", "max_bytes"].contains(&limit),
        "{limit}"
    );
    assert_eq!(place.unwrap().to_string(), "`#`");
}

/// Whether a text is accepted to its end, where no call may take more than so many steps.
fn accepts(grammar: &CompiledGrammar, text: &str, max_steps: u64) -> bool {
    let mut matcher = GrammarMatcher::new(grammar);
    for byte in text.bytes().map(u32::from) {
        matcher.set_allowance(Some(max_steps));
        let is_allowed = matcher.next_token_mask().unwrap().is_allowed(byte);
        matcher.set_allowance(Some(max_steps));
        assert_eq!(matcher.accept_token(byte).unwrap(), is_allowed);
        if !is_allowed {
            return false;
        }
    }
    matcher.is_completed()
}

/// An object with some keys.
fn object(keys: impl Iterator<Item = usize>) -> String {
    let members = keys.map(|at| format!(r#""a{at}":1"#));
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

#[test]
fn rings_of_keys_that_need_each_other_are_served() {
    let count = 200;
    let next = |at: usize| (at + 1) % count;
    let ring = each(count, |at| format!(r#"["a{}"]"#, next(at)));
    let schemas = each(count, |at| format!(r#"{{"required":["a{}"]}}"#, next(at)));
    let values = each(count, |_| r#"{"type":"integer"}"#.to_owned());
    let conditions = (0..count).map(|at| {
        let next = next(at);
        format!(r#"{{"if":{{"required":["a{at}"]}},"then":{{"required":["a{next}"]}}}}"#)
    });
    let conditions = conditions.collect::<Vec<_>>().join(",");
    for schema in [
        format!(r#"{{"type":"object","dependentRequired":{{{ring}}}}}"#),
        format!(r#"{{"type":"object","dependentSchemas":{{{schemas}}}}}"#),
        format!(r#"{{"type":"object","properties":{{{values}}},"dependentRequired":{{{ring}}}}}"#),
        format!(r#"{{"type":"object","allOf":[{conditions}]}}"#),
    ] {
        for property_order in [PropertyOrder::Any, PropertyOrder::Schema] {
            let options = JsonSchemaOptions {
                property_order,
                ..JsonSchemaOptions::default()
            };
            let grammar = compiler().compile_json_schema(&schema, &options).unwrap();
            let accepts = |text: String| accepts(&grammar, &text, 500_000);
            let is_any = property_order == PropertyOrder::Any;
            assert!(accepts("{}".to_owned()));
            assert!(accepts(object(0..count)));
            assert_eq!(accepts(object((0..count).map(|at| at * 7 % count))), is_any);
            assert!(!accepts(object(0..count - 1)));
            assert!(!accepts(object(5..6)));
        }
    }
    // Without a way back, what comes before needs nothing.
    let row = each(count - 1, |at| format!(r#"["a{}"]"#, at + 1));
    let schema = format!(r#"{{"type":"object","dependentRequired":{{{row}}}}}"#);
    let options = JsonSchemaOptions {
        property_order: PropertyOrder::Any,
        ..JsonSchemaOptions::default()
    };
    let grammar = compiler().compile_json_schema(&schema, &options).unwrap();
    let accepts = |keys: &mut dyn Iterator<Item = usize>| accepts(&grammar, &object(keys), 250_000);
    assert!(accepts(&mut (190..count)));
    assert!(accepts(&mut (190..count).rev()));
    assert!(accepts(
        &mut [195, 190].into_iter().chain(191..195).chain(196..count)
    ));
    assert!(!accepts(&mut (190..count - 1)));
    assert!(!accepts(&mut [195, 190].into_iter().chain(196..count)));
}

#[test]
fn all_of_many_keys_that_need_all_are_served() {
    let count = 120;
    let all = each(count, |at| {
        let others = (0..count).filter(|&other| other != at);
        let others: Vec<String> = others.map(|other| format!(r#""a{other}""#)).collect();
        format!("[{}]", others.join(","))
    });
    let schema = format!(r#"{{"type":"object","dependentRequired":{{{all}}},"minProperties":1}}"#);
    let options = JsonSchemaOptions {
        property_order: PropertyOrder::Any,
        ..JsonSchemaOptions::default()
    };
    let grammar = compiler().compile_json_schema(&schema, &options).unwrap();
    let accepts = |text: String| accepts(&grammar, &text, 1_000_000);
    assert!(accepts(object((0..count).map(|at| at * 7 % count))));
    assert!(!accepts(object(
        (0..count).map(|at| at * 7 % count).skip(1)
    )));
    assert!(!accepts("{}".to_owned()));
}

#[test]
fn what_schemas_fill_is_counted() {
    let count = 300;
    let next = |at: usize| (at + 1) % count;
    let ring = each(count, |at| format!(r#"["a{}"]"#, next(at)));
    let values = each(count, |at| {
        let next = next(at);
        format!(r#"{{"required":["a{next}"],"properties":{{"a{next}":{{"type":"integer"}}}}}}"#)
    });
    let pairs = (0..count).map(|at| {
        let (at, next) = (format!("a{at}"), format!("a{}", next(at)));
        format!(r#"{{"required":["{at}","{next}"]}}"#)
    });
    let pairs = pairs.collect::<Vec<_>>().join(",");
    let words: Vec<String> = (0..3_000)
        .map(|at| format!(r#""word number {at}""#))
        .collect();
    let long = "k".repeat(40_000);
    for (schema, text) in [
        (format!(r#"{{"dependentRequired":{{{ring}}}}}"#), "{"),
        (format!(r#"{{"dependentSchemas":{{{values}}}}}"#), "{"),
        (format!(r#"{{"type":"object","oneOf":[{pairs}]}}"#), "{"),
        (
            format!(
                r#"{{"uniqueItems":true,"items":{{"enum":[{}]}}}}"#,
                words.join(",")
            ),
            r#"["word number 3","word number 7","#,
        ),
        (format!(r#"{{"required":["{long}"]}}"#), r#"{"k"#),
    ] {
        let options = JsonSchemaOptions {
            property_order: PropertyOrder::Any,
            ..JsonSchemaOptions::default()
        };
        let compiler = compiler();
        compiler.prepare();
        let before = (held(), compiler.cache_bytes());
        let grammar = compiler.compile_json_schema(&schema, &options).unwrap();
        let mut matcher = GrammarMatcher::new(&grammar);
        let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
        let _ = matcher.accept_tokens(&tokens);
        let _ = matcher.next_token_mask();
        drop((matcher, grammar));
        let real = (held() - before.0).max(0) as usize;
        let counted = compiler.cache_bytes() - before.1;
        // As much again may be counted for the room that tables have.
        let tolerance = 1.05;
        assert!(
            real as f64 <= counted as f64 * tolerance,
            "{real} bytes held, {counted} counted: {}...",
            &schema[..40]
        );
    }
}

/// A schema that holds the last one twice, `depth` times; with references or written within each other.
fn doubled(depth: usize, innermost: &str, with: impl Fn(&str, usize) -> String) -> [String; 2] {
    let mut within = innermost.to_owned();
    for at in 0..depth {
        within = with(&within, at);
    }
    let definitions = (0..depth).map(|at| {
        let inner = format!(r##"{{"$ref":"#/$defs/d{at}"}}"##);
        format!(r#""d{}":{}"#, at + 1, with(&inner, at))
    });
    let definitions: Vec<String> = definitions.collect();
    let referred = format!(
        r##"{{"$ref":"#/$defs/d{depth}","$defs":{{"d0":{innermost},{}}}}}"##,
        definitions.join(",")
    );
    [within, referred]
}

/// Formulas share parts, and are looked at by parts: written out, these have 2^24 and more.
#[test]
fn schemas_within_schemas_cost_as_they_are_written() {
    type With = fn(&str, usize) -> String;
    let cases: [(&str, With, &str, &str); 4] = [
        (
            r#"{"required":["q"]}"#,
            |inner, at| format!(r#"{{"oneOf":[{inner},{{"required":["p{at}"]}}]}}"#),
            r#"{"q":1,"p3":2,"p4":3}"#,
            r#"{"q":1,"p3":2}"#,
        ),
        (
            r#"{"required":["q"]}"#,
            |inner, at| {
                format!(
                    r#"{{"oneOf":[{inner},{{"properties":{{"p{at}":{{"const":1}}}},"required":["p{at}"]}}]}}"#
                )
            },
            r#"{"p7":1}"#,
            r#"{"p7":2}"#,
        ),
        (
            r#"{"required":["q"]}"#,
            |inner, at| {
                format!(
                    r#"{{"if":{inner},"then":{{"required":["p{at}"]}},"else":{{"required":["q{at}"]}}}}"#
                )
            },
            "",
            r#"{"x":1}"#,
        ),
        (
            r#"{"items":{"const":1}}"#,
            |inner, at| format!(r#"{{"oneOf":[{inner},{{"contains":{{"const":{at}}}}}]}}"#),
            "[2]",
            "[2,2,3]",
        ),
    ];
    for (innermost, with, accepted, rejected) in cases {
        for schema in doubled(24, innermost, with) {
            let grammar = compiler()
                .compile_json_schema(&schema, &JsonSchemaOptions::default())
                .unwrap_or_else(|error| panic!("{}: {error}", &schema[..80]));
            assert!(
                accepted.is_empty() || accepts(&grammar, accepted, 1_000_000),
                "{schema}"
            );
            assert!(!accepts(&grammar, rejected, 1_000_000), "{schema}");
        }
    }
}

/// Members that a formula itself asks for are tried before a search through all names.
#[test]
fn many_conditions_that_hardly_touch_each_other_are_served() {
    let all = |keyword: &str, count: usize, each: &dyn Fn(usize) -> String| {
        let list: Vec<String> = (0..count).map(each).collect();
        format!(r#"{{"{keyword}":[{}]}}"#, list.join(","))
    };
    let one_of = all("oneOf", 200, &|n| {
        format!(r#"{{"properties":{{"a{n}":{{"type":"integer"}}}},"required":["a{n}"]}}"#)
    });
    let mut within = r#"{"required":["z"]}"#.to_owned();
    for n in 0..20 {
        within = format!(r#"{{"required":["a{n}"],"oneOf":[{within},{{"required":["b{n}"]}}]}}"#);
    }
    let conditions = |then: &dyn Fn(usize) -> String| {
        all("allOf", 200, &|n| {
            format!(
                r#"{{"if":{{"properties":{{"a{n}":{{"const":1}}}}}},"then":{}}}"#,
                then(n)
            )
        })
    };
    let needed = conditions(&|n| format!(r#"{{"required":["b{n}"]}}"#));
    let values = conditions(&|n| format!(r#"{{"properties":{{"b{n}":{{"const":2}}}}}}"#));
    let pairs = all("allOf", 500, &|n| {
        format!(r#"{{"oneOf":[{{"required":["a{n}"]}},{{"required":["b{n}"]}}]}}"#)
    });
    let cases = [
        (
            &one_of,
            r#"{"a3":1,"a5":"b"}"#.to_owned(),
            r#"{"a3":1,"a5":2}"#.to_owned(),
            true,
        ),
        (
            &within,
            // One of the innermost two, and none of `b1` to `b19`.
            object((0..20).rev()).replace("\"a0\":1", "\"a0\":1,\"b0\":1"),
            object(0..20),
            true,
        ),
        (
            &needed,
            object(0..200).replace('a', "b"),
            object(0..199).replace('a', "b"),
            false,
        ),
        (
            &values,
            r#"{"a3":1,"b3":2,"a4":2,"b4":1}"#.to_owned(),
            r#"{"a3":1,"b3":1}"#.to_owned(),
            true,
        ),
        (&pairs, object(0..500), object(0..499), false),
    ];
    for (schema, accepted, rejected, in_any_order) in cases {
        for order in [PropertyOrder::Schema, PropertyOrder::Any] {
            if order == PropertyOrder::Any && !in_any_order {
                continue;
            }
            let options = JsonSchemaOptions {
                property_order: order,
                ..JsonSchemaOptions::default()
            };
            let grammar = compiler().compile_json_schema(schema, &options).unwrap();
            let is_accepted = accepts(&grammar, &accepted, 800_000);
            assert!(is_accepted || order == PropertyOrder::Schema, "{accepted}");
            assert!(!accepts(&grammar, &rejected, 800_000), "{rejected}");
        }
    }
}

#[test]
fn large_counts_are_counted() {
    for schema in [
        r#"{"type":"array","contains":{"type":"integer"},"minContains":200000}"#,
        r#"{"type":"array","contains":{"type":"integer"},"minContains":20,"minItems":200000}"#,
        r#"{"type":"object","minProperties":10000}"#,
        r#"{"type":"object","propertyNames":{"pattern":"^[a-z]+$"},"minProperties":5000}"#,
    ] {
        let grammar = compiler()
            .compile_json_schema(schema, &JsonSchemaOptions::default())
            .unwrap();
        for text in ["[1,2]", r#"{"a":1,"bc":2}"#] {
            assert!(!accepts(&grammar, text, 400_000), "{schema}");
        }
    }
}

/// Numbers with a `multipleOf` and bounds: what tells them apart takes far more on its way than the states
/// that stay.
fn multiples(count: usize) -> String {
    let number = |at: usize| {
        let (step, most) = (at * 7919 % 2_987 + 13, at * 104_729 % 1_000_003);
        format!(
            r#"{{"type":"number","multipleOf":0.{step:04},"minimum":-{most}.5,"maximum":{most}.25}}"#
        )
    };
    format!(
        r#"{{"type":"object","properties":{{{}}}}}"#,
        each(count, number)
    )
}

#[test]
fn a_budget_of_bytes_counts_what_is_taken_on_the_way() {
    const MAX: usize = 4 << 20;
    let compiler = compiler();
    compiler.prepare();
    let schema = GrammarSpecification::JsonSchema(multiples(1_000), JsonSchemaOptions::default());
    let budget = CompileBudget {
        max_bytes: MAX,
        ..CompileBudget::default()
    };
    let (outcome, held) =
        most_held(|| compiler.compile_specification(&schema, budget, &CancelFlag::new()));
    let limit = match outcome {
        Err(CompileError::LimitExceeded { limit, .. }) => limit,
        other => panic!("{other:?}"),
    };
    assert_eq!(limit, "max_bytes");
    // Between two looks at the count a list may double.
    assert!(held < MAX + MAX / 4, "{held} bytes");
}

#[test]
fn a_first_look_that_takes_more_bytes_than_a_call_may_is_refused() {
    let options = CompilerOptions {
        max_mask_bytes: 4 << 10,
        ..CompilerOptions::default()
    };
    let compiler = GrammarCompiler::new(Arc::clone(compiler().tokenizer_info()), options);
    compiler.prepare();
    let error = compiler
        .compile_regex("([a-z]{1,9}|[^\n]{2,30}x){1,20}")
        .unwrap_err();
    let CompileError::LimitExceeded { limit, max, .. } = error else {
        panic!("{error}");
    };
    assert_eq!((limit, max), ("max_mask_bytes", 4 << 10));
}
