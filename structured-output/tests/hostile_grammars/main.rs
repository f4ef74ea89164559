//! Grammars made to hang, to recurse or to fill the memory: each compiles within its budget or is
//! refused with the name of the limit.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod allocated;
mod counts;
mod lists;
mod schemas;

use std::fmt::Write;
use std::sync::Arc;

use structured_output::{
    CancelFlag, CompileBudget, CompileError, CompilerOptions, GrammarCompiler, GrammarMatcher,
    GrammarSpecification, Limits, MatcherError, TokenizerInfo,
};

const EOS: u32 = 256;

fn compiler_with(limits: Limits) -> GrammarCompiler {
    let mut vocab: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    vocab.push(b"<eos>".to_vec());
    vocab.extend([&b"aaaa"[..], b"((((", b"))))", b"a+a"].map(<[u8]>::to_vec));
    let info = TokenizerInfo::new(&vocab, vocab.len(), &[EOS], &[]).unwrap();
    let options = CompilerOptions {
        limits,
        ..CompilerOptions::default()
    };
    GrammarCompiler::new(Arc::new(info), options)
}

fn compiler() -> GrammarCompiler {
    compiler_with(Limits::default())
}

fn limit(grammar: &str) -> &'static str {
    match compiler().compile_grammar(grammar) {
        Err(CompileError::LimitExceeded { limit, .. }) => limit,
        other => panic!("{other:?}"),
    }
}

fn message(grammar: &str) -> String {
    compiler().compile_grammar(grammar).unwrap_err().to_string()
}

fn accepts(grammar: &str, text: &str) -> bool {
    let grammar = compiler().compile_grammar(grammar).unwrap();
    let mut matcher = GrammarMatcher::new(&grammar);
    let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
    matcher.accept_tokens(&tokens).unwrap() && matcher.is_completed()
}

#[test]
fn rules_that_say_nothing() {
    let empty = "grammar, line 1, column 1: no text matches this rule";
    assert_eq!(message("root ::= root"), empty);
    assert_eq!(message("root ::= root \"a\""), empty);
    assert_eq!(message("root ::= a\na ::= b b\nb ::= root \"x\""), empty);
    assert_eq!(message("start: A\nA: /a/ & /b/"), empty);
    // The rule in which the reason lies.
    assert_eq!(
        message("root ::= \"(\" root \")\" a | a \"y\"\na ::= a \"x\""),
        "grammar, line 2, column 1: no text matches this rule"
    );
    assert!(accepts("root ::= root root | \"\"", ""));
    assert!(!accepts("root ::= root root | \"\"", "a"));
    assert!(accepts(
        "root ::= root root | \"\" | \"a\"",
        &"a".repeat(500)
    ));
}

#[test]
fn what_is_missing_is_told_with_its_place() {
    assert_eq!(
        message("start ::= \"a\""),
        "grammar, line 1, column 1: there is no rule `root` to start with"
    );
    assert_eq!(
        message("root ::= \"a\" |\n  other"),
        "grammar, line 2, column 3: rule `other` is not defined"
    );
    assert_eq!(
        message("start: \"a\" | other"),
        "grammar, line 1, column 14: rule `other` is not defined"
    );
    assert_eq!(
        message("begin: \"a\""),
        "grammar, line 1, column 1: there is no rule `start`"
    );
    assert_eq!(
        message(""),
        "grammar, line 1, column 1: there is no rule `root` to start with"
    );
}

#[test]
fn depth_is_bounded() {
    let open = "(".repeat(100_000);
    let too_deep = "groups are nested deeper than 512 (limit `max_nesting`)";
    assert_eq!(
        message(&format!("root ::= {open}")),
        format!("grammar, line 1, column 522: {too_deep}")
    );
    for source in [
        format!("start: {open}"),
        format!("start: {}", "[".repeat(100_000)),
    ] {
        assert_eq!(
            message(&source),
            format!("grammar, line 1, column 520: {too_deep}")
        );
    }
    let json = format!("start: %json {{\"a\": {}", "[".repeat(100_000));
    assert!(message(&json).contains("this JSON object has no end"));
    let json = format!(
        "start: %json {{\"a\": {}{}}}",
        "[".repeat(9999),
        "]".repeat(9999)
    );
    assert!(message(&json).contains("max_nesting"));
    let nested = "start: %lark { ".repeat(1000);
    assert_eq!(limit(&nested), "max_nested_grammars");
    // `start: ` and sixteen times `%lark { start: ` before the brace of the seventeenth.
    assert!(message(&nested).contains("more than 16 of `max_nested_grammars`, at line 1, column "));
    let two = "start: %lark { start: %lark { start: \"a\" } }";
    assert!(accepts(two, "a"));
    let max_nested_grammars = 1;
    let one = compiler_with(Limits {
        max_nested_grammars,
        ..Limits::default()
    });
    assert!(one.compile_lark(two).is_err());
    let not = format!("start: A\nA: {}\"a\"", "~".repeat(100_000));
    assert!(accepts(&not, "a"));
}

#[test]
fn size_is_bounded() {
    let large = format!("root ::= \"{}\"", "a".repeat(10 << 20));
    assert_eq!(limit(&large), "max_source_bytes");
    let mut alternatives = "root ::= \"x\" root \"y\"".to_owned();
    for n in 0..10_000 {
        write!(alternatives, " | \"word{n}\"").unwrap();
    }
    assert!(accepts(&alternatives, "xxword9999yy"));
    // Each with a way of its own to go on.
    let mut recursive = "root ::= \"x\"".to_owned();
    for n in 0..10_000 {
        write!(recursive, " | \"a{n:05}\" root \"b{n:05}\"").unwrap();
    }
    assert!(accepts(&recursive, "a01234a09999xb09999b01234"));
    assert!(!accepts(&recursive, "a01234a09999xb01234b09999"));
    let mut more = recursive.clone();
    for n in 10_000..20_000 {
        write!(more, " | \"a{n:05}\" root \"b{n:05}\"").unwrap();
    }
    assert_eq!(limit(&more), "max_items");
    let mut rules = String::new();
    for n in 0..101_000 {
        writeln!(rules, "r{n}::=a").unwrap();
    }
    assert!(matches!(limit(&rules), "max_rules" | "max_source_bytes"));
    let many = "a ".repeat(520_000 / 2);
    let small = Limits {
        max_grammar_nodes: 1000,
        ..Limits::default()
    };
    let refused = compiler_with(small).compile_ebnf(&format!("root ::= {many}"), "root");
    assert!(matches!(
        refused,
        Err(CompileError::LimitExceeded {
            limit: "max_grammar_nodes",
            max: 1000,
            ..
        })
    ));
}

#[test]
fn templates_do_not_grow_without_end() {
    // Arguments that grow with each use.
    let growing = "start: a{\"x\"}\na{t}: t a{b{t}}\nb{t}: t \"y\"";
    assert_eq!(limit(growing), "max_rules");
    // A long body, used very often.
    let body = "\"x\" ".repeat(100_000);
    let uses: String = (0..1000)
        .map(|number| format!("a{{\"{number}\"}} "))
        .collect();
    let large = format!("start: {uses}\na{{t}}: {body} t");
    let error = message(&large);
    assert!(error.contains("templates write more than") || error.contains("max_grammar_nodes"));
    let nested = format!(
        "start: {}\"x\"{}\na{{t}}: t",
        "a{".repeat(10_000),
        "}".repeat(10_000)
    );
    assert!(message(&nested).contains("line 1, column 72: templates are nested deeper than 32"));
}

#[test]
fn limits_name_their_place() {
    let small = Limits {
        max_rules: 5,
        max_grammar_nodes: 40,
        ..Limits::default()
    };
    let compiler = compiler_with(small);
    let place = |error: CompileError| match error {
        CompileError::LimitExceeded { limit, place, .. } => (
            limit,
            place.map(|place| place.to_string()).unwrap_or_default(),
        ),
        other => panic!("{other}"),
    };
    let of_grammar = |source: &str| place(compiler.compile_grammar(source).unwrap_err());
    let rules: String = (0..9).map(|n| format!("r{n} ::= \"x\" r{n}?\n")).collect();
    assert_eq!(
        of_grammar(&format!("root ::= r1 r2\n{rules}")),
        ("max_rules", "line 6, column 1".to_owned())
    );
    let parts = format!("root ::= \"x\"\n  {}", "[a-z] ".repeat(50));
    let (name, at) = of_grammar(&parts);
    assert_eq!(name, "max_grammar_nodes");
    assert!(at.starts_with("line 2, column 2"), "{at}");
    let tag = |grammar: &str| {
        format!(
            r#"{{"type": "structural_tag", "format": {{"type": "sequence", "elements": [
                {{"type": "grammar", "grammar": {}}}]}}}}"#,
            serde_json::Value::from(grammar)
        )
    };
    let error = compiler.compile_structural_tag(&tag(&parts)).unwrap_err();
    let (name, at) = place(error);
    assert_eq!(name, "max_grammar_nodes");
    assert!(
        at.starts_with("`#/format/elements/0/grammar`, line 2, column 2"),
        "{at}"
    );
    // A budget that one rule uses up.
    let budget = CompileBudget {
        max_states: 2_000,
        ..CompileBudget::default()
    };
    let specification = GrammarSpecification::Ebnf {
        grammar: format!(
            "root ::= big root | \"y\"\n\nbig ::= Regex(\"{}\")",
            (0..800)
                .map(|n| format!("(a{n}|b{}.)", n * 7))
                .collect::<String>()
        ),
        root: "root".to_owned(),
    };
    let error = compiler_with(Limits::default()).compile_specification(
        &specification,
        budget,
        &CancelFlag::new(),
    );
    assert_eq!(
        place(error.unwrap_err()),
        ("max_states", "line 3, column 1 (rule `big`)".to_owned())
    );
}

#[test]
fn counts_are_not_unrolled() {
    assert!(accepts("root ::= \"a\"{0,2147483647}", &"a".repeat(1000)));
    assert!(accepts(
        "root ::= (\"(\" root \")\"){0,2147483647}",
        &"()(())".repeat(100)
    ));
    assert!(accepts(
        "start: (\"(\" start \")\")~0..2147483647",
        &"(()())".repeat(100)
    ));
    assert!(!accepts(
        "root ::= (\"(\" root \")\"){1000,2147483647} | \"x\"",
        "(x)"
    ));
    assert_eq!(
        message("root ::= \"a\"{0,2147483648}"),
        "grammar, line 1, column 16: `2147483648` is above 2147483647 (limit `max_repetition`)"
    );
}

#[test]
fn rules_that_double_stay_small() {
    let mut source = "root ::= r0\n".to_owned();
    for n in 0..40 {
        writeln!(source, "r{n} ::= r{} r{}", n + 1, n + 1).unwrap();
    }
    source += "r40 ::= \"a\" | \"\"";
    assert!(accepts(&source, &"a".repeat(10)));
    let doubled = source.replace("\"a\" | \"\"", "\"a\"");
    let grammar = compiler().compile_ebnf(&doubled, "root").unwrap();
    let mut matcher = GrammarMatcher::new(&grammar);
    assert!(matcher.accept_tokens(&[97; 1000]).unwrap());
    assert!(!matcher.is_completed());
}

#[test]
fn long_chains_and_cycles_of_rules() {
    let mut chain = "root ::= r0 \"x\" | root \"y\"\n".to_owned();
    for n in 0..20_000 {
        writeln!(chain, "r{n} ::= r{}", n + 1).unwrap();
    }
    chain += "r20000 ::= \"a\"";
    assert!(accepts(&chain, "axyy"));
    // A cycle in which each rule begins with the next, and ends with a letter.
    let mut cycle = "root ::= r0\n".to_owned();
    for n in 0..3000 {
        writeln!(cycle, "r{n} ::= r{} \"a\" | \"b\"", (n + 1) % 3000).unwrap();
    }
    assert_eq!(limit(&cycle), "max_bytes");
}

#[test]
fn ambiguity_costs_no_more_than_its_limit() {
    let ambiguous = "root ::= s\ns ::= s s | s s s | \"a\" | \"\"";
    assert!(accepts(ambiguous, &"a".repeat(3000)));
    let palindromes = "root ::= [ab] root [ab] | \"\"";
    assert!(accepts(palindromes, &"ab".repeat(1000)));
    // Each place of the text is one where what follows may have begun.
    let open = "root ::= \"(\" root \")\" | [(a]+";
    assert!(accepts(
        open,
        &format!("{}{}", "(".repeat(3000), ")".repeat(2999))
    ));
    // A hundred and fifty rules that differ in what comes next, all at once.
    let mut many = "root ::= \"a\" root | \"!\" (r0".to_owned();
    (1..150).for_each(|n| write!(many, " | r{n}").unwrap());
    many += ")\n";
    (0..150).for_each(|n| writeln!(many, "r{n} ::= \"(\" r{n} \")\" | \"x{n}\"").unwrap());
    let grammar = compiler_with(Limits {
        max_items: 100,
        ..Limits::default()
    })
    .compile_ebnf(&many, "root")
    .unwrap();
    let mut matcher = GrammarMatcher::new(&grammar);
    for _ in 0..20 {
        assert!(matcher.accept_token(u32::from(b'a')).unwrap());
    }
    let failed = b"!(("
        .iter()
        .find_map(|&byte| matcher.accept_token(u32::from(byte)).err());
    assert_eq!(failed, Some(MatcherError::ItemsExhausted { max: 100 }));
}

/// Counts within counts: how what was read is shared out makes no difference to what may come.
#[test]
fn counts_within_counts_are_read_in_one_way() {
    let long = "a".repeat(3000);
    for grammar in [
        "root ::= (\"a\"{0,2147483647}){0,2147483647}",
        "root ::= ((\"a\"{1,3}){1,1000}){1,1000}",
        "start: /(a{1,10000}[ ,]?){1,10000}/",
        "start: /((a{0,2000},?){0,2000};){0,3}(a{1,10000}[ ,]?){1,10000}/",
        "start: (/(a{1,900}[ ,]?){1,900}/ | \"(\" start \")\")*",
    ] {
        assert!(accepts(grammar, &long), "{grammar}");
        assert!(!accepts(grammar, &format!("{long}b")), "{grammar}");
    }
    assert!(accepts("start: /(a{1,2},?){1,2}/", "aaaa"));
    assert!(!accepts("start: /(a{1,2},?){1,2}/", "aaaaa"));
    assert!(accepts("start: /(a{1,2},?){1,2}/", "aa,aa,"));
    assert!(accepts("start: /(a{0,2}(,x?)?){3}z/", "aa,xaa,xaaz"));
    assert!(!accepts("start: /(a{0,2}(,x?)?){3}z/", "aaaaaaaz"));
    // What no single `,` can follow is not what two can.
    assert!(!accepts("start: /(a{1,5},?){1,3}/", "a,a,a,a"));
}

#[test]
fn automata_that_explode_when_made_deterministic() {
    let tail = "x ".repeat(24);
    let source = format!("root ::= (x | y)* x {tail}\nx ::= \"a\" | \"(\" root \")\"\ny ::= \"b\"");
    let grammar = compiler().compile_ebnf(&source, "root").unwrap();
    let mut matcher = GrammarMatcher::new(&grammar);
    assert!(matcher.accept_tokens(&[97; 200]).unwrap());
    assert!(matcher.is_completed());
    let terminal = format!(
        "start: A start | A\nA: /[ab]*a[ab]{{40}}/ & ~/(ab)*{}/",
        "a?".repeat(30)
    );
    let grammar = compiler().compile_lark(&terminal).unwrap();
    let mut matcher = GrammarMatcher::new(&grammar);
    for _ in 0..100 {
        match matcher.accept_token(97) {
            Ok(accepted) => assert!(accepted),
            Err(MatcherError::StepsExhausted { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Tools of a Lark grammar with lazy heads: some rules, each of them named so many times.
fn lazy_tools(heads: usize, names: usize, body: usize) -> String {
    let list: Vec<String> = (0..heads * names)
        .map(|at| format!("t{}", at % heads))
        .collect();
    let mut source = format!(
        "start: ({})* tail\ntail: T\nT: /(.|\\n)*/\n",
        list.join("|")
    );
    for at in 0..heads {
        let body = "\"a\"".repeat(body);
        write!(
            source,
            "h{at}[lazy]: T \"<{at}>\"\nt{at}: h{at} \"y\" {body}\n"
        )
        .unwrap();
    }
    source
}

#[test]
fn a_tool_may_be_named_many_times() {
    assert!(accepts(&lazy_tools(1, 60_000, 30_000), "hello"));
}

#[test]
fn hundreds_of_lazy_heads_are_compiled() {
    let source = lazy_tools(200, 1, 1);
    assert!(accepts(&source, "hello<17>ya<199>ya!"));
    assert!(!accepts(&source, "hello<17>y<199>ya"));
}

#[test]
fn thousands_of_lazy_heads_take_too_many_steps() {
    assert_eq!(limit(&lazy_tools(4_000, 1, 0)), "max_steps");
}

fn nullable_rules(n: usize) -> String {
    let mut grammar = "root ::= r0*\n".to_owned();
    for i in 0..n {
        let (a, b) = ((7 * i + 1) % n, (13 * i + 5) % n);
        let letter = |by: usize| char::from(b'a' + (i / by % 26) as u8);
        let word: String = [letter(1), letter(26), letter(7)].iter().collect();
        writeln!(grammar, "r{i} ::= r{a} r{b} | \"{word}\" | \"\"").unwrap();
    }
    grammar
}

#[test]
fn rules_that_may_all_be_empty() {
    let (grammar, word) = (nullable_rules(150), "zad");
    assert!(grammar.contains(&format!("\"{word}\"")));
    assert!(accepts(&grammar, "") && accepts(&grammar, word));
    assert!(accepts(&grammar, &word.repeat(50)));
    assert!(!accepts(&grammar, "za"));
    assert!(!accepts(&grammar, &format!("{word}{word}!")));
    // These would take 68 MB.
    assert_eq!(limit(&nullable_rules(300)), "max_bytes");
}

#[test]
fn steps_that_no_single_rule_takes_are_told_at_the_start() {
    let refused = |what: GrammarSpecification, max_steps| {
        let budget = CompileBudget {
            max_steps,
            ..CompileBudget::default()
        };
        let compiled = compiler().compile_specification(&what, budget, &CancelFlag::new());
        match compiled {
            Err(CompileError::LimitExceeded { limit, place, .. }) => {
                (limit, place.map(|place| place.to_string()))
            }
            other => panic!("{other:?}"),
        }
    };
    let source = format!("\n{}", nullable_rules(100));
    let ebnf = |max_steps| {
        let what = GrammarSpecification::Ebnf {
            grammar: source.clone(),
            root: "root".to_owned(),
        };
        refused(what, max_steps)
    };
    // Wherever it is that they run out.
    for max_steps in [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000] {
        let (limit, place) = ebnf(max_steps);
        assert_eq!(limit, "max_steps");
        assert!(place.unwrap().starts_with("line "), "{max_steps}");
    }
    let at_start = "line 2, column 1 (rule `root`)".to_owned();
    assert_eq!(ebnf(64_000).1, Some(at_start));
    let tag = serde_json::json!({"format": {"type": "grammar", "grammar": source}});
    let (_, place) = refused(GrammarSpecification::StructuralTag(tag.to_string()), 64_000);
    let place = place.unwrap();
    assert!(
        place.starts_with("`#/format/grammar`, line 2, column 1"),
        "{place}"
    );
}

/// Each of the classes has hundreds of ranges of characters.
#[test]
fn classes_have_so_many_ranges_together() {
    let pattern = r"\p{L}\P{Lu}".repeat(3000);
    let (outcome, held) = allocated::most_held(|| compiler().compile_regex(&pattern));
    let message = outcome.unwrap_err().to_string();
    assert!(message.contains("more than 500000 ranges"), "{message}");
    assert!(held < 32 << 20, "{held} bytes");
    let pattern = r"\w".repeat(300);
    let (outcome, held) = allocated::most_held(|| compiler().compile_regex(&pattern));
    assert!(outcome.is_ok());
    assert!(held < 32 << 20, "{held} bytes");
}

/// What such terminals say of each other is forgotten now and then while they are compiled.
#[test]
fn a_thousand_terminals_that_overlap_are_compiled_or_refused() {
    let mut grammar = "start: (".to_owned();
    (0..1000).for_each(|n| write!(grammar, "{}T{n}", if n == 0 { "" } else { "|" }).unwrap());
    grammar += ")+\n";
    (0..1000).for_each(|n| writeln!(grammar, "T{n}: /[a-z]{{1,9}}{n}/").unwrap());
    match compiler().compile_lark(&grammar) {
        Ok(_) | Err(CompileError::LimitExceeded { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}
