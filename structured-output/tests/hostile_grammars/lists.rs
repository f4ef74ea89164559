//! Long lists: of triggers, ends, token sets, parts of a text, branches. What they cost grows as they
//! do, and no faster.

use std::fmt::Write;
use std::sync::Arc;

use proptest::prelude::*;
use structured_output::{
    CancelFlag, CompileBudget, CompileError, CompiledGrammar, CompilerOptions, GrammarCompiler,
    GrammarMatcher, GrammarSpecification, Limits, TokenizerInfo,
};

use super::allocated::most_held;
use super::{EOS, compiler, compiler_with};

/// As many items as a few lexemes, however long the lists are.
fn few_items() -> Limits {
    Limits {
        max_items: 32,
        ..Limits::default()
    }
}

fn is_text(grammar: &CompiledGrammar, text: &str) -> bool {
    let mut matcher = GrammarMatcher::new(grammar);
    let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
    matcher.accept_tokens(&tokens).unwrap() && matcher.is_completed()
}

fn dispatch(triggers: impl Iterator<Item = String>) -> GrammarSpecification {
    let pairs: Vec<String> = triggers.map(|t| format!("(\"{t}\",r)")).collect();
    GrammarSpecification::Ebnf {
        grammar: format!("root ::= TagDispatch({})\nr ::= \"y\"", pairs.join(",")),
        root: "root".to_owned(),
    }
}

/// Compiles with few items and so many steps; the most bytes it held meanwhile.
fn compiled(what: &GrammarSpecification, max_steps: u64) -> (CompiledGrammar, usize) {
    let compiler = compiler_with(few_items());
    let budget = CompileBudget {
        max_steps,
        ..CompileBudget::default()
    };
    let (grammar, bytes) =
        most_held(|| compiler.compile_specification(what, budget, &CancelFlag::new()));
    (grammar.unwrap(), bytes)
}

#[test]
fn triggers_that_begin_within_each_other() {
    let (grammar, bytes) = compiled(&dispatch((0..2_000).map(|n| format!("x{n}x"))), 200_000);
    assert!(bytes < 16 << 20, "{bytes}");
    for (text, expected) in [
        ("free x text x12", true),
        ("x12xy x1999xy x2000x", true),
        ("x12xy x1999xz", false),
        ("x12x", false),
        // The first `x12x` ends before the second begins.
        ("x12x12xy", false),
        ("x12xyx13xy", true),
        ("xx12xy", true),
    ] {
        assert_eq!(is_text(&grammar, text), expected, "{text}");
    }
    let many = dispatch((0..20_000).map(|n| format!("x{n}x")));
    let (grammar, bytes) = compiled(&many, 2_000_000);
    assert!(bytes < 128 << 20, "{bytes}");
    assert!(is_text(&grammar, "x19999xy") && !is_text(&grammar, "x19999xz"));
    // What stands before differs, and is the same for all that begin with a bar.
    let both = (0..1_000).flat_map(|n| [format!("{n:03}|"), format!("|{n:03}")]);
    let (grammar, bytes) = compiled(&dispatch(both), 2_000_000);
    assert!(bytes < 64 << 20, "{bytes}");
    assert!(is_text(&grammar, "a|017y") && is_text(&grammar, "017|y"));
    // `017|` ends first.
    assert!(!is_text(&grammar, "017|017y") && is_text(&grammar, "017|y|017y"));
}

#[test]
fn triggers_without_overlap() {
    let plain = dispatch((0..20_000).map(|n| format!("<{n}>")));
    let (grammar, bytes) = compiled(&plain, 2_000_000);
    assert!(bytes < 128 << 20, "{bytes}");
    assert!(is_text(&grammar, "a<b <19999>y<20000>"));
    assert!(!is_text(&grammar, "<19999>z"));
}

#[test]
fn tags_with_many_triggers_and_ends() {
    let list = |item: fn(usize) -> String, n| (0..n).map(item).collect::<Vec<_>>().join(",");
    let tag = |n| {
        format!(
            r#"{{"begin": "|t{n}|", "content": {{"type": "const_string", "value": "y"}}, "end": "e"}}"#
        )
    };
    let triggered = format!(
        r#"{{"format": {{"type": "triggered_tags", "triggers": [{}], "tags": [{}]}}}}"#,
        list(|n| format!("\"|t{n}|\""), 2_000),
        list(tag, 2_000),
    );
    let ends = format!(
        r#"{{"format": {{"type": "tag", "begin": "a", "content": {{"type": "any_text"}}, "end": [{}]}}}}"#,
        list(|n| format!("\"x{n}x\""), 2_000),
    );
    let excludes = format!(
        r#"{{"format": {{"type": "any_text", "excludes": [{}]}}}}"#,
        list(|n| format!("\"<{n}>\""), 20_000),
    );
    let specification = GrammarSpecification::StructuralTag;
    let (grammar, bytes) = compiled(&specification(triggered), 400_000);
    assert!(bytes < 32 << 20, "{bytes}");
    assert!(is_text(&grammar, "a|t1|ye|t1999|ye|") && !is_text(&grammar, "a|t1|z"));
    let (grammar, bytes) = compiled(&specification(ends), 200_000);
    assert!(bytes < 16 << 20, "{bytes}");
    // The text before the end is `hello x1`.
    assert!(is_text(&grammar, "ahello x1x") && is_text(&grammar, "ahello x1x2x"));
    assert!(!is_text(&grammar, "ahello x1x x2x"));
    let (grammar, bytes) = compiled(&specification(excludes), 2_000_000);
    assert!(bytes < 128 << 20, "{bytes}");
    assert!(is_text(&grammar, "<20000>") && !is_text(&grammar, "<17>"));
}

#[test]
fn triggers_that_overlap_in_too_many_ways() {
    let some = |n: usize| (0..n).flat_map(|n| [format!("c{n:04}a{n:04}"), format!("a{n:04}b")]);
    // One automaton reads them all.
    let (grammar, bytes) = compiled(&dispatch(some(2_000)), 400_000);
    assert!(bytes < 32 << 20, "{bytes}");
    for (text, expected) in [
        ("free a0017by a0", true),
        ("free a0017bz", false),
        ("c0017a0017by", false),
        ("c0017a0017y", true),
        ("c0017a0016by", true),
    ] {
        assert_eq!(is_text(&grammar, text), expected, "{text}");
    }
    // But not where many begin within one.
    let inner = "e".repeat(40);
    let nested = [format!("g{inner}"), format!("{inner}f")];
    let some = |n: usize| some(n).chain(nested.clone());
    let triggers = || some(2_000);
    let budget = CompileBudget::default();
    let compile = |compiler: GrammarCompiler, what| {
        compiler.compile_specification(&what, budget, &CancelFlag::new())
    };
    let message = |error: CompileError| error.to_string();
    let error = compile(compiler(), dispatch(triggers())).unwrap_err();
    let Some(rest) = message(error)
        .strip_prefix(
            "the grammar needs more than 1024 of `max_trigger_overlaps`, at line 1, column 10",
        )
        .map(str::to_owned)
    else {
        panic!("no such limit");
    };
    assert!(rest.starts_with(": "), "{rest}");
    // In a structural tag by its pointer.
    let pairs: Vec<String> = triggers()
        .map(|trigger| format!(r#"["{trigger}", {{"type": "const_string", "value": "y"}}]"#))
        .collect();
    let tag = format!(
        r#"{{"format": {{"type": "dispatch", "rules": [{}]}}}}"#,
        pairs.join(",")
    );
    let error = compile(compiler(), GrammarSpecification::StructuralTag(tag)).unwrap_err();
    assert!(message(error).contains("of `max_trigger_overlaps`, at `#/format`"));
    // The limit is a compiler's own.
    let limits = |max_trigger_overlaps| Limits {
        max_trigger_overlaps,
        ..Limits::default()
    };
    assert!(compile(compiler_with(limits(10)), dispatch(some(100))).is_err());
    let grammar = compile(compiler_with(limits(200)), dispatch(some(100))).unwrap();
    assert!(is_text(&grammar, "free a0017by") && !is_text(&grammar, "free a0017bz"));
}

/// A trigger is bounded by what it says, not by how often it says it.
#[test]
fn triggers_that_repeat_themselves() {
    let long = "a".repeat(20_000);
    let texts = [format!("c{long}"), format!("{long}b")].into_iter();
    let error = compiler().compile_specification(
        &dispatch(texts),
        CompileBudget::default(),
        &CancelFlag::new(),
    );
    let Err(CompileError::LimitExceeded { limit, place, .. }) = error else {
        panic!("{error:?}");
    };
    assert_eq!(limit, "max_grammar_nodes");
    assert!(place.unwrap().to_string().starts_with("line 1, column"));
}

#[test]
fn sets_of_tokens() {
    let mut vocab: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    vocab.push(b"<eos>".to_vec());
    vocab.extend((0..40_000).map(|n| format!("w{n}").into_bytes()));
    let info = TokenizerInfo::new(&vocab, vocab.len(), &[EOS], &[]).unwrap();
    let options = CompilerOptions {
        limits: Limits {
            max_mask_steps: 500_000,
            ..Limits::default()
        },
        ..CompilerOptions::default()
    };
    let compiler = GrammarCompiler::new(Arc::new(info), options);
    let alternatives = |sets: Vec<String>| format!("start: {}", sets.join("|"));
    let all_but_one = alternatives((1..5_000).map(|id| format!("<[^{id}]>")).collect());
    let (mask, bytes) = most_held(|| {
        let grammar = compiler.compile_lark(&all_but_one).unwrap();
        GrammarMatcher::new(&grammar).next_token_mask().unwrap()
    });
    assert_eq!(mask.num_allowed(), vocab.len() - 1);
    assert!(bytes < 18 << 20, "{bytes}");
    let pairs = (300..420).flat_map(|a| (a + 1..420).map(move |b| format!("<[{a},{b}]>")));
    let pairs = alternatives(pairs.collect());
    let (mask, bytes) = most_held(|| {
        let grammar = compiler.compile_lark(&pairs).unwrap();
        GrammarMatcher::new(&grammar).next_token_mask().unwrap()
    });
    assert_eq!(mask.num_allowed(), 120);
    assert!(bytes < 18 << 20, "{bytes}");
}

#[test]
fn parts_of_a_text() {
    let part_of = |text: &str| {
        let text = serde_json::Value::from(text);
        GrammarSpecification::Lark(format!("start: %regex {{\"substring_chars\": {text}}}"))
    };
    let random = |len: usize| -> String {
        let letter = |n: usize| char::from(b'a' + (n.wrapping_mul(n) / 7 % 26) as u8);
        (0..len).map(letter).collect()
    };
    let text = random(20_000);
    let (grammar, bytes) = compiled(&part_of(&text), 1_000_000);
    assert!(bytes < 64 << 20, "{bytes}");
    assert!(is_text(&grammar, &text[12_345..12_600]));
    assert!(!is_text(&grammar, &format!("{}!", &text[12_345..12_600])));
    // Where all that is left begins alike, a step costs no more.
    let compiler = compiler_with(Limits {
        max_mask_steps: 4_000,
        ..Limits::default()
    });
    let budget = CompileBudget::default();
    let alike = part_of(&"ab".repeat(10_000));
    let grammar = compiler.compile_specification(&alike, budget, &CancelFlag::new());
    assert!(is_text(&grammar.unwrap(), &"ba".repeat(3_000)));
    let error =
        compiler.compile_specification(&part_of(&random(200_000)), budget, &CancelFlag::new());
    let Err(CompileError::LimitExceeded { limit, place, .. }) = error else {
        panic!("{error:?}");
    };
    assert_eq!(limit, "max_bytes");
    assert!(place.unwrap().to_string().starts_with("line 1, column 1"));
    let chunks = part_of(&random(600_000));
    let error = compiler.compile_specification(&chunks, budget, &CancelFlag::new());
    assert!(matches!(
        error,
        Err(CompileError::LimitExceeded {
            limit: "max_grammar_nodes",
            ..
        })
    ));
}

#[test]
fn branches_that_lead_to_the_same() {
    let mut definitions = String::new();
    for n in 0..40 {
        let next = format!("{{\"$ref\": \"#/$defs/a{}\"}}", n + 1);
        write!(definitions, "\"a{n}\": {{\"anyOf\": [{next}, {next}]}},").unwrap();
    }
    let tag = |members: &str, definitions: &str| {
        format!(
            r#"{{"format": {{"type": "json_schema", "style": "qwen_xml", "json_schema":
                {{"type": "object", "properties": {{{members}}}, "$defs": {{{definitions}}}}}}}}}"#
        )
    };
    definitions += r#""a40": {"type": "integer"}"#;
    let few_nodes = compiler_with(Limits {
        max_grammar_nodes: 200,
        ..Limits::default()
    });
    let fan = tag(r##""v": {"$ref": "#/$defs/a0"}"##, &definitions);
    let grammar = few_nodes.compile_structural_tag(&fan).unwrap();
    assert!(is_text(&grammar, "<parameter=v>17</parameter>"));
    assert!(!is_text(&grammar, "<parameter=v>x</parameter>"));
    // Each of many members brings all definitions.
    let long = format!(
        r#""d": {{"type": "integer", "description": "{}"}}"#,
        "x".repeat(100_000)
    );
    let members: Vec<String> = (0..1_000)
        .map(|n| format!(r##""m{n}": {{"type": "array", "items": {{"$ref": "#/$defs/d"}}}}"##))
        .collect();
    let large = tag(&members.join(","), &long);
    let (error, bytes) = most_held(|| compiler().compile_structural_tag(&large).unwrap_err());
    assert!(bytes < 64 << 20, "{bytes}");
    let message = error.to_string();
    assert!(
        message.contains("have more than 16777216 bytes"),
        "{message}"
    );
    assert!(
        message.contains("#/format/json_schema/properties/m"),
        "{message}"
    );
}

/// Free text without any of the words, and tags of a trigger and its letter, before each of which no word
/// begins that is at its end by where the trigger is.
fn is_dispatched(triggers: &[(String, char)], excludes: &[String], text: &str) -> bool {
    let words: Vec<&String> = triggers
        .iter()
        .map(|(text, _)| text)
        .chain(excludes)
        .collect();
    let is_broken = |text: &str, before: usize| {
        (0..before).any(|at| words.iter().any(|word| text[at..].starts_with(&***word)))
    };
    let is_tag = |begin: usize, trigger: &str, letter: char| {
        let end = begin + trigger.len();
        text[begin..].starts_with(trigger)
            && text[end..].starts_with(letter)
            && !is_broken(&text[..end], begin)
            && is_dispatched(triggers, excludes, &text[end + 1..])
    };
    !is_broken(text, text.len())
        || (0..text.len()).any(|begin| {
            triggers
                .iter()
                .any(|(trigger, letter)| is_tag(begin, trigger, *letter))
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn free_text_goes_to_the_trigger_that_begins_first(
        triggers in prop::collection::vec(("[ab]{1,4}", "[cd]"), 1..5),
        excludes in prop::collection::vec("[ab]{1,4}", 0..2),
        texts in prop::collection::vec("[abcd]{0,10}", 30),
    ) {
        let triggers: Vec<(String, char)> = triggers
            .into_iter()
            .map(|(text, letter)| (text, letter.chars().next().unwrap()))
            .collect();
        let mut source = "root ::= TagDispatch(".to_owned();
        for (text, letter) in &triggers {
            write!(source, "(\"{text}\", {letter}), ").unwrap();
        }
        let quoted: Vec<String> = excludes.iter().map(|text| format!("\"{text}\"")).collect();
        match quoted.is_empty() {
            true => source.truncate(source.len() - 2),
            false => write!(source, "excludes=({})", quoted.join(", ")).unwrap(),
        }
        source += ")\nc ::= \"c\"\nd ::= \"d\"";
        let grammar = compiler().compile_ebnf(&source, "root");
        if triggers.iter().any(|(trigger, _)| excludes.iter().any(|text| trigger.contains(text))) {
            prop_assert!(grammar.unwrap_err().to_string().contains("and that may not occur"));
            return Ok(());
        }
        let grammar = grammar.unwrap();
        for text in &texts {
            let expected = is_dispatched(&triggers, &excludes, text);
            prop_assert_eq!(is_text(&grammar, text), expected, "{} {}", source, text);
        }
    }

    #[test]
    fn parts_of_a_text_are_its_substrings(
        text in "[ab]{0,12}",
        chunks in prop::collection::vec("[ab]{0,3}", 0..6),
        others in prop::collection::vec("[ab]{0,6}", 30),
    ) {
        let of = |value: serde_json::Value, name: &str| {
            let source = format!("start: %regex {{\"{name}\": {value}}}");
            compiler().compile_lark(&source).unwrap()
        };
        let grammar = of(text.clone().into(), "substring_chars");
        for other in &others {
            prop_assert_eq!(is_text(&grammar, other), text.contains(&**other), "{} {}", text, other);
        }
        let grammar = of(chunks.clone().into(), "substring_chunks");
        for other in &others {
            let mut rows = (0..=chunks.len()).flat_map(|from| (from..=chunks.len()).map(move |to| (from, to)));
            let expected = rows.any(|(from, to)| chunks[from..to].concat() == *other);
            prop_assert_eq!(is_text(&grammar, other), expected, "{:?} {}", chunks, other);
        }
    }
}
