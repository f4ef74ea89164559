//! Lazy terminals of Lark: what they mean for what stands beside them.
//!
//! Expected values are llguidance's, by hand or as measured by `benchmarks`' `grammars`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fmt::Write as _;
use std::sync::Arc;

use structured_output::{CompilerOptions, GrammarCompiler, GrammarMatcher, TokenizerInfo};

const TOOL: u32 = 257;

fn compiler() -> GrammarCompiler {
    let mut vocab: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    vocab.extend([&b"<tool_call>"[..], b"<|tool|>", b"<|end|>"].map(<[u8]>::to_vec));
    let stop = 258;
    let info = TokenizerInfo::new(&vocab, vocab.len(), &[stop], &[TOOL]).unwrap();
    GrammarCompiler::new(Arc::new(info), CompilerOptions::default())
}

/// Checks which texts a grammar accepts; `<|tool|>` in them is the control token.
fn check(source: &str, accepted: &[&str], rejected: &[&str]) {
    let grammar = compiler().compile_lark(source);
    let grammar = grammar.unwrap_or_else(|error| panic!("{source}\n{error}"));
    for (texts, expected) in [(accepted, true), (rejected, false)] {
        for text in texts {
            let mut tokens: Vec<u32> = Vec::new();
            for (at, part) in text.split("<|tool|>").enumerate() {
                tokens.extend((at > 0).then_some(TOOL));
                tokens.extend(part.bytes().map(u32::from));
            }
            let mut matcher = GrammarMatcher::new(&grammar);
            let found = matcher.accept_tokens(&tokens).unwrap() && matcher.is_completed();
            assert_eq!(found, expected, "{source}\n{text:?}");
        }
    }
}

fn message(source: &str) -> String {
    compiler().compile_lark(source).unwrap_err().to_string()
}

/// A grammar of tool calls with this start, and what else there is to say.
fn tools(start: &str, more: &str) -> String {
    let mut source = format!("start: {start}\ntail: TEXT\ntool: head /[0-9]+/ \"</call>\"\n");
    if !more.contains("head") {
        source.push_str("head[lazy]: TEXT \"<call>\"\n");
    }
    if !more.contains("TEXT:") {
        source.push_str("TEXT: /(.|\\n)*/\n");
    }
    source + more
}

#[test]
fn free_text_beside_a_lazy_terminal_holds_no_trigger() {
    let one = ["", "x", "a<cal", "x<call>12</call>", "x<call>12</call>y"];
    let bad = [
        "<call>",
        "a<call>junk",
        "<call>x</call>",
        "a<call>1</call>b<call>c",
    ];
    for more in [
        "",
        "%ignore /[ \\t]+/\n",
        "TEXT: /(\\n|.)*/\n",
        "TEXT: /[\\s\\S]*/\n",
        "TEXT: /(?s:.*)/\n",
        "TEXT: /.*/s\n",
        "TEXT: /.*/\n",
        "TEXT: /[^\\x00]*/\n",
        "head[lazy]: TEXT CALL\nCALL: \"<call>\"\n",
        "head[lazy]: /(.|\\n)*<call>/\n",
        "head[suffix=\"<call>\"]: TEXT\n",
        "head[lazy]: TEXT /<call>/\n",
        "head: HEAD\nHEAD[lazy]: TEXT \"<call>\"\n",
    ] {
        let two = ["<call>1</call>a<call>2</call>"];
        for start in [
            "tool* tail",
            "(tool)* [tail]",
            "(tail | tool)*",
            "tool* TEXT",
        ] {
            check(&tools(start, more), &[&one[..], &two].concat(), &bad);
        }
        check(&tools("tool? tail", more), &one, &bad[..3]);
        check(
            &tools("tool* tail | \"none\"", more),
            &[&one[..], &["none"]].concat(),
            &bad,
        );
    }
}

#[test]
fn it_holds_in_any_place_of_a_grammar() {
    let prefix = ["Hi: ", "Hi: x<call>12</call>y"];
    let bad = ["Hi: a<call>junk", "Hi: <call>x</call>", "Hi"];
    check(&tools("\"Hi: \" tool* tail", ""), &prefix, &bad);
    check(&tools("\"Hi: \" body\nbody: tool* tail", ""), &prefix, &bad);
    check(
        &tools("\"Hi: \" calls tail\ncalls: tool*", ""),
        &prefix,
        &bad,
    );
    check(
        &tools("\"Hi: \" calls\ncalls: tool calls | tail", ""),
        &prefix,
        &bad,
    );
    check(
        &tools("hi tail | hey tool* tail\nhi: \"Hi: \"\nhey: \"Hi: \"", ""),
        &prefix,
        &bad,
    );
    let nested = format!("start: \"Hi: \" %lark {{ {} }}", tools("tool* tail", ""));
    check(&nested, &prefix, &bad);
}

#[test]
fn after_the_last_tool_any_text_may_follow() {
    let both = "<call>1</call>a<call>2</call>";
    let source = tools("tool~0..2 tail", "");
    check(
        &source,
        &["x", both, &format!("{both}y<call>junk")],
        &["a<call>junk", "<call>1</call>b<call>c"],
    );
    check(
        &tools("tool? tail", ""),
        &["<call>1</call>b<call>c"],
        &["b<call>c"],
    );
    check(
        &tools("tool tail", ""),
        &["<call>1</call>b<call>c"],
        &["b", "<call>c"],
    );
    // Where a tool has to come, no tail is.
    check(
        &tools("tool~20..300 tail", ""),
        &[&"<call>1</call>".repeat(25)],
        &["", "a", both],
    );
}

#[test]
fn lists_of_tools_may_share_their_heads() {
    let source = tools(
        "\"A\" a | \"B\" b\na: tool* tail\nb: (tool | other)* tail\n\
         other: two \"ok\"\ntwo[lazy]: TEXT \"<two>\"",
        "",
    );
    check(
        &source,
        &[
            "Ax<call>12</call>y",
            "Ba<two>ok<call>1</call>",
            "Aa<two>junk",
        ],
        &[
            "Ba<two>junk",
            "Aa<call>junk",
            "Ba<call>junk",
            "Ba<two>1</call>",
        ],
    );
}

#[test]
fn lazy_terminals_end_at_the_first_match_of_any() {
    // Of two that match at once, both are read.
    let both = "start: (a | b)*\na: x \"1\"\nb: y \"2\"\nx[lazy]: /.*;/\ny[lazy]: /[a-z]*;/";
    check(both, &["q;1", "q;2", "Q;1", ""], &["Q;2", "a;b;1", ";3"]);
    // Of two that overlap, the first that ends.
    let source = "start: (a | b)*\na: x \"1\"\nb: y \"2\"\nx[lazy]: TEXT \"abc\"\ny[lazy]: TEXT \"b\"\nTEXT: /(.|\\n)*/";
    check(source, &["ab2", "b2"], &["abc1", "abc2", "c1"]);
    check(
        "start: head\nhead[lazy]: TEXT \"<end>\"\nTEXT: /(\\n|.)*/",
        &["<end>", "a<end>"],
        &["<end>x", "a<end>b<end>"],
    );
    check("start: a \"b\"\na[lazy]: /[0-9]+/", &["1b"], &["12b"]);
    // As in llguidance: where it may be empty it is, or ends with the first sign.
    let nullable = "start: r \"1\"\nr[lazy]: /[a-z]*/";
    check(nullable, &["1", "a1"], &["ab1", ""]);
    let before = "start: r \"ab\"\nr[lazy]: /[a-z]*/";
    check(before, &["aab"], &["ab", "abab"]);
    check(
        "start: foo \"!\"\nfoo[suffix=/[;,]/]: /.*/",
        &["a;!"],
        &["a;b;!", "!"],
    );
    check(
        "start: foo \"!\"\nfoo[stop=/[;,]/]: /.*/",
        &["a;!"],
        &["a;b;!", "!"],
    );
}

#[test]
fn what_does_not_go_on_with_a_lazy_terminal_stays_as_it_is() {
    // A name beside a number with its sign: they don't begin alike.
    let source = "start: (NAME | number | \",\")+\nnumber[lazy]: /[0-9]+;/\nNAME: /[a-z]+/";
    check(source, &["ab,12;c", "ab12;", "a"], &["12", "ab,12", "12a;"]);
    // A number ends where the lazy one doesn't go on.
    let source = "start: NUM \",\" | number\nnumber[lazy]: /[0-9]+;/\nNUM: /[0-9]+/";
    check(source, &["12,", "12;"], &["12;,", "12"]);
    // Text that is free of what ends the lazy one.
    let source = r#"start: ( step "\n" )* step ( "\n" final_comments )?
step: plan "\n" "edit"
plan[lazy]: /((.|\n)*\n)?```/
final_comments: /[^`]*/
"#;
    check(
        source,
        &["```\nedit", "Do:\n```\nedit\nmore\n```\nedit\nEnd\n"],
        &["```\nedit\n```\n", "Do:\nedit"],
    );
}

#[test]
fn tokens_end_text() {
    // A name of a token that is text: other terminals don't contain it.
    let source =
        "start: tool* tail\ntail: TEXT\ntool: TEXT <tool_call> /[0-9]+/ \";\"\nTEXT: /(.|\\n)*/";
    check(
        source,
        &["hi", "hi<tool_call>12;bye", "<tool_c"],
        &["hi<tool_call>junk", "<tool_call>1;<tool_call>"],
    );
    // A control token stands for itself and its text.
    let source = "start: tool* tail\ntail: TEXT\ntool: TEXT <|tool|> head\nhead[lazy]: /.*;/\nTEXT: /(.|\\n)*/";
    check(
        source,
        &["hi", "hi<|tool|>12;bye", "<|tool|>a;<|tool|>;"],
        &["hi<|tool|>junk"],
    );
}

#[test]
fn tokens_are_counted_away_from_lazy_terminals() {
    // Each token here is a byte, but for the last three.
    let source = r#"start: reasoning "<t>" value ">"
reasoning[max_tokens=3]: TEXT
value[lazy]: /[ab]+/
TEXT: /(.|\n)*/"#;
    check(
        source,
        &["<t>a>", "xyz<t>b>", "<t><t>a>"],
        &["wxyz<t>a>", "<t>ab>", "<t>>"],
    );
    let suffix = source.replace("value[lazy]: /[ab]+/", "value[suffix=\"!\"]: /[ab]*/");
    check(
        &suffix,
        &["xy<t>ab!>", "<t>!>"],
        &["wxyz<t>!>", "<t>a>", "<t>a!!>"],
    );
    // A tool's call ends, and then some tokens may follow; the head comes after text that tells it apart.
    let after = r#"start: (head "!")? rest
head[lazy]: "<" TEXT ">"
rest[max_tokens=2]: /[a-z]*/
TEXT: /(.|\n)*/"#;
    assert!(
        message(after).contains("line 3, column 6: text with `max_tokens` stands where a `lazy`")
    );
    let after = after.replace(")? rest", ") rest");
    check(&after, &["<a>!", "<<<>!ab"], &["<a>!abc", "<a>x>!", "ab"]);
}

#[test]
fn what_has_no_exact_meaning_is_refused_with_its_place() {
    let cases = [
        (
            tools("tool* some", "some[max_tokens=3]: TEXT\n"),
            "text with `max_tokens` stands where a `lazy` terminal may begin",
        ),
        (
            tools("tail | tools tail\ntools: | tools tool", ""),
            "leads back to itself other than at its end",
        ),
        (
            tools("tool* tail \"<eos>\"", ""),
            "what has to follow this text can't",
        ),
        (
            tools("tool* tail | %json {\"type\": \"object\"}", ""),
            "line 1, column 21: JSON stands where a `lazy`",
        ),
        (
            "start: NUM \";x\" | number\nnumber[lazy]: /[0-9]+;/\nNUM: /[0-9]+/".to_owned(),
            "line 1, column 8: what has to follow this text can't",
        ),
        (
            "start: (T | l)*\nT: /[a-z0-9]+/\nl[lazy]: /[0-9]+;/".to_owned(),
            "depending on its text",
        ),
        (
            tools("block\nblock: \"(\" block \")\" | \"x\" tool", ""),
            "leads back to itself other than at its end",
        ),
        // Text that may be empty, and goes on as it began.
        (
            "start: c | TEXT \"c\" \"a\"\nc[lazy]: TEXT \"c\"\nTEXT: /[abc]*/\n".to_owned(),
            "what has to follow this text can't",
        ),
    ];
    for (source, expected) in cases {
        let message = message(&source);
        assert!(message.contains(expected), "{source}\n{message}");
        assert!(message.starts_with("grammar, line "), "{message}");
    }
}

#[test]
fn recursion_away_from_lazy_terminals_stays() {
    let source = tools("tool* tail", "").replace("/[0-9]+/", "value")
        + "value: \"[\" [value (\",\" value)*] \"]\" | /[0-9]+/\n%ignore \" \"\n";
    check(
        &source,
        &[
            "a<call>[1, [2,[]] ]</call>b",
            "a<call> 1 </call> <call>[]</call>",
        ],
        &["a<call>[1</call>", "a<call>[]</call>b<call>[", "a<call>x"],
    );
    let deep = format!("<call>{}{}</call>", "[".repeat(40), "]".repeat(40));
    check(&source, &[&deep], &[&deep.replacen(']', "", 1)]);
}

#[test]
fn many_tools_are_compiled_in_little() {
    let mut source = tools("(tool%)* tail", "").replace("tool%", &vec!["tool"; 3_000].join("|"));
    check(&source, &["a<call>1</call>b"], &["a<call>b"]);
    source = "tail: TEXT\nTEXT: /(.|\\n)*/\nstart: (t0".to_owned();
    for at in 1..300 {
        write!(source, "|t{at}").unwrap();
    }
    source.push_str(")* tail\n");
    for at in 0..300 {
        write!(
            source,
            "h{at}[lazy]: TEXT \"<{at}>\"\nt{at}: h{at} \"x{at}\"\n"
        )
        .unwrap();
    }
    check(
        &source,
        &["a<17>x17<299>x299b<300>", "<1>x1"],
        &["a<17>x18", "a<17>"],
    );
}
