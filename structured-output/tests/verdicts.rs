//! Whether a constraint is let in depends on it and on the limits, not on what was compiled before.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod byte_vocabulary;

use structured_output::{
    CancelFlag, CompileBudget, CompileError, CompilerOptions, GrammarCompiler, GrammarMatcher,
    JsonSchemaOptions, MatcherError, ProblemPlace, ProblemPosition, PropertyOrder, TokenizerInfo,
};

fn compiler() -> GrammarCompiler {
    byte_vocabulary::compiler(CompilerOptions::default())
}

fn wide(num_properties: usize, salt: usize) -> String {
    let properties: Vec<String> = (0..num_properties)
        .map(|n| {
            let kind = ["integer", "string"][n % 2];
            format!(r#""p{}": {{"type": "{kind}"}}"#, n * 7 + salt)
        })
        .collect();
    format!(
        r#"{{"type": "object", "properties": {{{}}}, "additionalProperties": false}}"#,
        properties.join(", ")
    )
}

fn options(property_order: PropertyOrder) -> JsonSchemaOptions {
    JsonSchemaOptions {
        property_order,
        ..JsonSchemaOptions::default()
    }
}

/// Asks as an engine does, which lets a matcher whose memory is full go on elsewhere.
fn with_room<T>(
    compiler: &GrammarCompiler,
    matcher: &mut GrammarMatcher,
    mut ask: impl FnMut(&mut GrammarMatcher) -> Result<T, MatcherError>,
) -> T {
    loop {
        match ask(matcher) {
            Ok(answer) => return answer,
            Err(MatcherError::StatesExhausted { .. }) => {
                compiler.renew(matcher, &CancelFlag::new()).unwrap();
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// How many tokens the first masks allow, up to within a key.
fn first_masks(compiler: &GrammarCompiler, matcher: &mut GrammarMatcher) -> Vec<usize> {
    let mut found = Vec::new();
    for byte in b"{\"p1" {
        let mask = with_room(compiler, matcher, |matcher| matcher.next_token_mask());
        found.push(mask.num_allowed());
        let accepted = with_room(compiler, matcher, |matcher| {
            matcher.accept_token(u32::from(*byte))
        });
        assert!(accepted);
    }
    found
}

#[test]
fn a_wide_object_is_let_in_whatever_was_compiled_before() {
    for order in [PropertyOrder::Schema, PropertyOrder::Any] {
        let schema = wide(17_000, 3);
        let mut expected: Option<Vec<usize>> = None;
        for num_before in [0, 100] {
            let compiler = compiler();
            for n in 0..num_before {
                let schema = wide(10 + 20 * n, 1_000_000 + 7919 * n);
                let grammar = compiler.compile_json_schema(&schema, &options(order));
                first_masks(&compiler, &mut GrammarMatcher::new(&grammar.unwrap()));
            }
            let grammar = compiler.compile_json_schema(&schema, &options(order));
            let mut matcher = GrammarMatcher::new(&grammar.unwrap());
            let masks = first_masks(&compiler, &mut matcher);
            let expected = expected.get_or_insert_with(|| masks.clone());
            assert_eq!(&masks, expected, "{order:?} after {num_before}");
        }
    }
}

#[test]
fn what_others_have_left_does_not_count_as_room() {
    let budget = CompileBudget {
        max_bytes: 1 << 20,
        ..CompileBudget::default()
    };
    let schema = wide(2_000, 5);
    let refused = Some(CompileError::LimitExceeded {
        limit: "max_bytes",
        max: 1 << 20,
        place: Some(ProblemPlace {
            position: Some(ProblemPosition::Pointer(String::new())),
            words: String::new(),
        }),
    });
    let compile = |compiler: &GrammarCompiler, schema: &str| {
        let options = options(PropertyOrder::Any);
        compiler
            .compile_json_schema_with(schema, &options, budget, &CancelFlag::new())
            .err()
    };
    let fresh = compiler();
    assert_eq!(compile(&fresh, &schema), refused);
    // The second time its parts are there, and those of another schema with the same properties are.
    let again = schema.replacen("{", "{\"title\": \"again\", ", 1);
    assert_eq!(compile(&fresh, &again), refused);
    let served = compiler();
    served
        .compile_json_schema(&again, &options(PropertyOrder::Schema))
        .unwrap();
    assert_eq!(compile(&served, &schema), refused);
    // And what fits does so after others, however their tables have grown.
    let small = wide(200, 5);
    assert_eq!(compile(&compiler(), &small), None);
    for n in 0..60 {
        let more = wide(200, 1_000_003 * (n + 1));
        assert_eq!(compile(&served, &more), None, "{n}");
    }
}

/// Tokens by their names and ids are taken for granted; what no vocabulary could serve is refused.
#[test]
fn bytes_stand_for_a_vocabulary() {
    let tokens = ["<eos>", "<turn>", "<p>", "never"].map(|token| token.as_bytes().to_vec());
    let info = TokenizerInfo::new(&tokens, 1000, &[0], &[1]).unwrap();
    let info = info.over_bytes();
    assert_eq!(info.vocab_size(), 259);
    let compiler = GrammarCompiler::new(info.into(), CompilerOptions::default());
    let check = |grammar: &str| compiler.compile_grammar(grammar).map(drop);
    for grammar in [
        "start: \"é\" <turn> \"a\"",
        "start: <p> \"a\" <|other|> \"b\"",
        "start: <[999]> <[^0-999]> <[2-20]>",
        "root ::= \"a\" <eos>",
    ] {
        assert_eq!(check(grammar), Ok(()), "{grammar}");
    }
    let beyond = check("start: \"a\" <[1000]>").unwrap_err().to_string();
    assert!(beyond.contains("0 to 999"), "{beyond}");
    assert!(matches!(
        check("start: \"a\" | )"),
        Err(CompileError::Grammar { .. })
    ));
    let nothing = compiler.compile_regex("a(?=b)c").unwrap_err();
    assert_eq!(nothing, CompileError::Unsatisfiable);
}
