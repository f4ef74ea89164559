//! Calls that may take only so much, and grammars in memory apart.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod byte_vocabulary;

use byte_vocabulary::EOS;
use structured_output::{
    CancelFlag, CompileBudget, CompileEffort, CompilerOptions, GrammarCompiler, GrammarMatcher,
    GrammarSpecification, JsonSchemaOptions, Limits, MatcherError, RenewError,
};

fn compiler(max_shared_steps: Option<u64>) -> GrammarCompiler {
    byte_vocabulary::compiler(CompilerOptions {
        max_shared_steps,
        ..CompilerOptions::default()
    })
}

/// A value under one of many schemas with patterns, which overlap.
fn many_branches() -> String {
    let branches: Vec<String> = (0..60)
        .map(|n| {
            format!(
                r#"{{"type": "object", "required": ["b"], "properties": {{
                    "k{n}": {{"pattern": "^[a-{}]{{1,{}}}x{n}$"}}, "b": {{"pattern": "^(a|b{n})*c$"}}}}}}"#,
                char::from(b'b' + n % 20),
                3 + n % 17,
            )
        })
        .collect();
    format!(r#"{{"oneOf": [{}]}}"#, branches.join(", "))
}

fn accept(matcher: &mut GrammarMatcher, text: &str) {
    for byte in text.bytes() {
        assert!(matcher.accept_token(u32::from(byte)).unwrap(), "{text}");
    }
}

#[test]
fn a_call_beyond_the_allowance_changes_nothing_and_is_free_once_it_is_known() {
    let compiler = compiler(None);
    let options = JsonSchemaOptions::default();
    let grammar = compiler
        .compile_json_schema(&many_branches(), &options)
        .unwrap();
    let mut matcher = GrammarMatcher::new(&grammar);
    accept(&mut matcher, "{\"b\":\"");
    matcher.set_allowance(Some(3));
    let fork = matcher.fork();
    assert_eq!(
        matcher.next_token_mask().unwrap_err(),
        MatcherError::AllowanceSpent
    );
    assert_eq!(matcher.allowance(), Some(0));
    assert_eq!(fork.allowance(), Some(3), "a fork has its own");
    assert_eq!(
        matcher.accept_token(u32::from(b'a')).unwrap_err(),
        MatcherError::AllowanceSpent
    );
    assert_eq!(matcher.num_accepted_tokens(), 6);
    // Found without a limit, it costs nothing.
    matcher.set_allowance(None);
    let mask = matcher.next_token_mask().unwrap();
    assert!(matcher.accept_token(u32::from(b'a')).unwrap());
    matcher.rollback(1).unwrap();
    matcher.set_allowance(Some(0));
    assert_eq!(
        matcher.next_token_mask().unwrap().token_ids(),
        mask.token_ids()
    );
    assert!(matcher.accept_token(u32::from(b'a')).unwrap());
    assert_eq!(matcher.allowance(), Some(0));
    // Whether the text may end is known with the token.
    assert!(!matcher.is_completed());
}

/// Of the values of a name the one with which the least remains is tried first. By the first one found, each
/// branch would be tried with each other: 20 branches took 60 million steps.
#[test]
fn whether_an_object_can_be_one_of_many_is_found_without_trying_all_ways() {
    let compiler = compiler(None);
    let options = JsonSchemaOptions::default();
    let grammar = compiler
        .compile_json_schema(&many_branches(), &options)
        .unwrap();
    let mut matcher = GrammarMatcher::new(&grammar);
    matcher.set_allowance(Some(200_000));
    assert!(matcher.accept_token(u32::from(b'{')).unwrap());
}

#[test]
fn what_takes_long_to_compile_is_compiled_apart_and_means_the_same() {
    let items: Vec<String> = (0..1_000).map(|n| n.to_string()).collect();
    let schema = format!(
        r#"{{"type": "array", "uniqueItems": true, "minItems": 400, "items": {{"enum": [{}]}}}}"#,
        items.join(", ")
    );
    let options = JsonSchemaOptions::default();
    let plain = compiler(None);
    let expected = plain.compile_json_schema(&schema, &options).unwrap();
    let mut expected = GrammarMatcher::new(&expected);
    assert!(!expected.is_apart());
    let small = compiler(Some(2_000));
    let grammar = small.compile_json_schema(&schema, &options).unwrap();
    let mut matcher = GrammarMatcher::new(&grammar);
    assert!(matcher.is_apart());
    for byte in "[11, 12, 9".bytes() {
        assert_eq!(
            matcher.next_token_mask().unwrap().token_ids(),
            expected.next_token_mask().unwrap().token_ids()
        );
        assert!(matcher.accept_token(u32::from(byte)).unwrap());
        assert!(expected.accept_token(u32::from(byte)).unwrap());
    }
    // It is known there, and what is not dear stays with all others.
    let num_compilations = small.num_compilations();
    assert_eq!(
        small.compile_json_schema(&schema, &options).unwrap(),
        grammar
    );
    assert_eq!(small.num_compilations(), num_compilations);
    let cheap = small.compile_regex("[a-z]+").unwrap();
    assert!(!GrammarMatcher::new(&cheap).is_apart());
    // A failure apart is that of the grammar.
    let hungry = "(?:(?:a{1,900}b){1,900}c){1,900}(?=(?:a|b[^c]){1,700}$)[^q]{1,900}";
    let error = small.compile_regex(hungry).err();
    assert_eq!(error, plain.compile_regex(hungry).err());
}

#[test]
fn a_compilation_takes_no_more_than_its_effort() {
    let compiler = compiler(None);
    let (budget, cancel) = (CompileBudget::default(), CancelFlag::new());
    let compile = |specification: &GrammarSpecification, effort| {
        compiler.compile_with_effort(specification, budget, effort, &cancel)
    };
    let specifications = [
        GrammarSpecification::Regex("(?:[a-f]{2,9}-[0-9]{3}x){2,50}".repeat(40)),
        GrammarSpecification::JsonSchema(many_branches(), JsonSchemaOptions::default()),
        GrammarSpecification::Choice((0..2_000).map(|n| format!("choice {n}")).collect()),
        GrammarSpecification::grammar(&format!(
            "root ::= {}",
            "(\"a\" root \"b\" | \"c\") ".repeat(900)
        )),
    ];
    for specification in &specifications {
        let little = CompileEffort::Shared { max_steps: 100 };
        assert_eq!(compile(specification, little), None);
        // Not even that is known.
        assert!(!compiler.is_cached(specification.clone(), budget));
        let enough = CompileEffort::Shared {
            max_steps: budget.max_steps,
        };
        let grammar = compile(specification, enough).unwrap().unwrap();
        assert!(!GrammarMatcher::new(&grammar).is_apart());
        // What is known takes none.
        let none = CompileEffort::Shared { max_steps: 0 };
        assert_eq!(compile(specification, none), Some(Ok(grammar)));
    }
    let wrong = GrammarSpecification::Regex("(a".to_owned());
    let apart = |max_steps| CompileEffort::Apart { max_steps };
    let error = compile(&wrong, apart(u64::MAX)).unwrap().unwrap_err();
    assert_eq!(compiler.compile_regex("(a").unwrap_err(), error);
    let other = GrammarSpecification::Regex("[a-z]+".to_owned());
    assert_eq!(compile(&other, apart(10)), None);
    let grammar = compile(&other, apart(10_000)).unwrap().unwrap();
    assert!(GrammarMatcher::new(&grammar).is_apart());
}

/// A crowd that fills the memory which all share doesn't make what everyone asks for unknown.
#[test]
fn what_takes_little_stays_known_when_memory_is_full() {
    let compiler = byte_vocabulary::compiler(CompilerOptions {
        cache_bytes: 4 << 20,
        max_shared_steps: Some(20_000),
        ..CompilerOptions::default()
    });
    let (budget, cancel) = (CompileBudget::default(), CancelFlag::new());
    let with = |specification: &GrammarSpecification, max_steps| {
        let effort = CompileEffort::Shared { max_steps };
        compiler.compile_with_effort(specification, budget, effort, &cancel)
    };
    let known = GrammarSpecification::Choice(vec!["positive".to_owned(), "negative".to_owned()]);
    let is_known = || compiler.is_cached(known.clone(), budget);
    assert!(!is_known() && with(&known, 0).is_none());
    let first = with(&known, 20_000).unwrap().unwrap();
    let mut last = first.clone();
    let mut crowd = Vec::new();
    let mut num_anew = 0;
    for number in 0..30_u64 {
        let scattered = |n: u64| (number * 10_000 + n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let strings =
            (0..2_000).map(|n| format!("{:016x}{:016x}", scattered(n), scattered(n + 5_000)));
        let large = GrammarSpecification::Choice(strings.collect());
        assert!(with(&large, 1 << 40).unwrap().is_ok());
        crowd.push(large);
        // At any time, and without an effort of its own.
        assert!(is_known());
        let grammar = with(&known, 0).unwrap().unwrap();
        num_anew += usize::from(grammar != last);
        let mut matcher = GrammarMatcher::new(&grammar);
        accept(&mut matcher, "negative");
        last = grammar;
    }
    assert!(num_anew > 2, "{num_anew}");
    assert!(!compiler.is_cached(crowd[0].clone(), budget));
    compiler.clear_cache();
    assert!(!is_known());
}

/// Each turn goes on where the last one ended, so no text is too long for turns.
#[test]
fn the_length_of_a_long_text_is_found_in_turns() {
    const STEPS: u64 = 20_000;
    const MANY: u64 = 1 << 40;
    let invoices = GrammarSpecification::JsonSchema(
        r#"{"type": "array", "minItems": 400, "items": {"type": "object", "additionalProperties": false,
            "required": ["number", "date", "paid"], "properties": {"number": {"type": "integer"},
            "date": {"type": "string", "format": "date"}, "paid": {"type": "boolean"}}}}"#
            .to_owned(),
        JsonSchemaOptions::default(),
    );
    let nested = GrammarSpecification::grammar(
        "root ::= (\"<\" x \">\"){900}\nx ::= \"(\" x \")\" | [a-f]{20}\n",
    );
    for specification in [invoices, nested] {
        // Of which nothing is known.
        let matcher = |steps| {
            let budget = CompileBudget::default();
            let compiled =
                compiler(None).compile_specification(&specification, budget, &CancelFlag::new());
            let mut matcher = GrammarMatcher::new(&compiled.unwrap());
            matcher.set_allowance(Some(steps));
            matcher
        };
        let at_once = matcher(MANY);
        let expected = at_once.min_tokens_to_complete().unwrap();
        let num_steps = MANY - at_once.allowance().unwrap();
        let mut in_turns = matcher(STEPS);
        let mut num_turns = 1;
        while let Err(error) = in_turns.min_tokens_to_complete() {
            assert_eq!(error, MatcherError::AllowanceSpent);
            in_turns.set_allowance(Some(STEPS));
            num_turns += 1;
            assert!(
                num_turns < 2 + 2 * num_steps / STEPS,
                "of {num_steps} steps"
            );
        }
        assert_eq!(in_turns.min_tokens_to_complete(), Ok(expected));
        assert!(num_turns > 3, "{num_steps} steps");
    }
}

#[test]
fn a_matcher_that_is_moved_apart_stands_where_it_stood() {
    let compiler = compiler(Some(20_000));
    let grammar = compiler
        .compile_regex("[a-f]{2,9}-(?:[0-9]{3}x){2,5}")
        .unwrap();
    let mut matcher = GrammarMatcher::new(&grammar);
    accept(&mut matcher, "abc-12");
    let mut stayed = matcher.fork();
    matcher.set_allowance(Some(7));
    let cancel = CancelFlag::new();
    compiler.move_apart(&mut matcher, &cancel).unwrap();
    assert!(matcher.is_apart() && !stayed.is_apart());
    assert_eq!(matcher.allowance(), Some(7));
    matcher.set_allowance(None);
    for byte in "3x456x".bytes().map(u32::from).chain([EOS]) {
        assert_eq!(
            matcher.next_token_mask().unwrap().token_ids(),
            stayed.next_token_mask().unwrap().token_ids()
        );
        assert!(matcher.accept_token(byte).unwrap());
        assert!(stayed.accept_token(byte).unwrap());
    }
    matcher.rollback(matcher.num_accepted_tokens()).unwrap();
    accept(&mut matcher, "fed-");
    // Equal grammars start there now, and a second move is none.
    let grammar = compiler
        .compile_regex("[a-f]{2,9}-(?:[0-9]{3}x){2,5}")
        .unwrap();
    let mut another = GrammarMatcher::new(&grammar);
    assert!(another.is_apart());
    let num_compilations = compiler.num_compilations();
    compiler.move_apart(&mut another, &cancel).unwrap();
    assert_eq!(compiler.num_compilations(), num_compilations);
}

#[test]
fn matchers_go_on_when_memory_apart_is_full() {
    let compiler = byte_vocabulary::compiler(CompilerOptions {
        cache_bytes: 5500 << 10,
        max_shared_steps: Some(20_000),
        ..CompilerOptions::default()
    });
    let cancel = CancelFlag::new();
    let grammar = compiler.compile_builtin_json().unwrap();
    let mut hog = GrammarMatcher::new(&grammar);
    compiler.move_apart(&mut hog, &cancel).unwrap();
    let mut neighbour = GrammarMatcher::new(&grammar);
    compiler.move_apart(&mut neighbour, &cancel).unwrap();
    // It takes a part of the memory, so that there is more where the other goes.
    let others: String = (0..100).map(|n| format!("\"other{n}\":1,")).collect();
    accept(&mut neighbour, &format!("{{{others}\"a\":"));
    let keys = (0..).flat_map(|n| format!("\"key{n}\":1,").into_bytes());
    let text: Vec<u8> = std::iter::once(b'{').chain(keys).take(40_000).collect();
    let mut num_renewed = 0;
    let error = loop {
        let byte = text[hog.num_accepted_tokens()];
        match hog.accept_token(u32::from(byte)) {
            Ok(accepted) => assert!(accepted),
            Err(MatcherError::StatesExhausted { .. }) => {
                num_renewed += 1;
                if let Err(error) = compiler.renew(&mut hog, &cancel) {
                    break error;
                }
            }
            Err(error) => panic!("{error}"),
        }
    };
    assert!(num_renewed > 1, "{error}");
    for byte in "1, \"b\": true}".bytes().map(u32::from).chain([EOS]) {
        loop {
            match neighbour.accept_token(byte) {
                Ok(accepted) => break assert!(accepted),
                Err(MatcherError::StatesExhausted { .. }) => {
                    compiler.renew(&mut neighbour, &cancel).unwrap();
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert!(neighbour.is_terminated());
}

#[test]
fn a_text_that_takes_some_turns_is_renewed_in_shared_memory() {
    const STEPS: u64 = 20_000;
    let compiler = compiler(Some(STEPS));
    let schema = format!(
        r#"{{"type": "object", "properties": {{"a": {}}}}}"#,
        many_branches()
    );
    let options = JsonSchemaOptions::default();
    let compile = || compiler.compile_json_schema(&schema, &options).unwrap();
    let mut matcher = GrammarMatcher::new(&compile());
    accept(&mut matcher, "{\"a\": {\"");
    // Where nothing is known, what may open the values takes more than the steps of one call.
    compiler.clear_cache();
    let specification = GrammarSpecification::JsonSchema(schema.clone(), options.clone());
    let effort = CompileEffort::Shared { max_steps: STEPS };
    let budget = CompileBudget::default();
    let cancel = CancelFlag::new();
    let compiled = compiler.compile_with_effort(&specification, budget, effort, &cancel);
    assert!(compiled.is_none());
    compiler.clear_cache();
    compiler.renew(&mut matcher, &CancelFlag::new()).unwrap();
    assert!(!matcher.is_apart());
    accept(&mut matcher, "b\": \"");
}

/// A text each of whose tokens takes some thousand steps, and all of them far more than a call may: whoever
/// waits for its next token would wait for all of it to be accepted again.
#[test]
fn a_text_that_takes_far_too_many_steps_is_not_accepted_again() {
    let max_mask_steps = 100_000;
    let compiler = byte_vocabulary::compiler(CompilerOptions {
        limits: Limits {
            max_mask_steps,
            ..Limits::default()
        },
        ..CompilerOptions::default()
    });
    let source =
        "start: ((/[a-b]+/ start start) (\"ba\" start start) (\"<b>\")*) | \"b\"".to_owned();
    let grammar = compiler.compile_lark(&source).unwrap();
    let mut matcher = GrammarMatcher::new(&grammar);
    const MANY: u64 = 1 << 40;
    let (mut steps, mut num_tokens) = (0, 0);
    let max = |num_tokens: u64| 2 * max_mask_steps + 1_000 * num_tokens;
    let mut random: u64 = 7;
    loop {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let byte = if random >> 62 == 0 { b'b' } else { b'a' };
        matcher.set_allowance(Some(MANY));
        let accepted = matcher.accept_token(u32::from(byte));
        assert_eq!(accepted, Ok(true), "{steps} steps for {num_tokens} tokens");
        steps += MANY - matcher.allowance().unwrap();
        num_tokens += 1;
        if steps > max(num_tokens) + max(num_tokens) / 2 {
            break;
        }
    }
    matcher.set_allowance(None);
    let max = max(num_tokens);
    let before = matcher.fork();
    assert_eq!(
        compiler.move_apart(&mut matcher, &CancelFlag::new()),
        Err(RenewError::Matcher(MatcherError::StepsExhausted { max }))
    );
    assert!(!matcher.is_apart());
    assert_eq!(matcher.num_accepted_tokens(), before.num_accepted_tokens());
    // A text that takes less is.
    matcher.rollback(num_tokens as usize - 10).unwrap();
    compiler
        .move_apart(&mut matcher, &CancelFlag::new())
        .unwrap();
    assert!(matcher.is_apart());
    assert_eq!(matcher.num_accepted_tokens(), 10);
}
