//! Schemas made to fill the memory, or to take long, within one call.

use structured_output::{
    CompileError, GrammarMatcher, JsonSchemaOptions, MatcherError, PropertyOrder,
};

use super::allocated::most_held;
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
        let grammar = compiler.compile_json_schema(schema, &options).unwrap();
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
    assert_eq!(place.as_deref(), Some("`#`"));
}
