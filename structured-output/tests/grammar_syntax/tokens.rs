//! Tokens that grammars name.

use structured_output::GrammarMatcher;

use super::{STOP, THINK, TOOL, accepts_tokens, compiler};

#[test]
fn tokens_are_accepted_where_they_are_named() {
    let byte = |text: &str| -> Vec<u32> { text.bytes().map(u32::from).collect() };
    // A token that is text, and its text.
    assert!(accepts_tokens("start: <think> \"x\"", &[THINK, 120]));
    assert!(accepts_tokens("start: <think> \"x\"", &byte("<think>x")));
    assert!(accepts_tokens("start: /.*/", &[THINK]));
    // A control token, and its text.
    assert!(accepts_tokens(
        "start: <|tool|> \"x\" start | \"y\"",
        &[TOOL, 120, 121]
    ));
    assert!(accepts_tokens(
        "start: <|tool|> \"x\" start | \"y\"",
        &byte("<|tool|>xy")
    ));
    assert!(!accepts_tokens("start: /.*/", &[TOOL]));
    // By its id: the token alone.
    assert!(accepts_tokens("root ::= Token(257) \"x\"", &[TOOL, 120]));
    assert!(!accepts_tokens(
        "root ::= Token(257) \"x\"",
        &byte("<|tool|>x")
    ));
    assert!(accepts_tokens("root ::= <[120]> | \"xy\"", &[120]));
    // A letter that is named, and written: both go on.
    assert!(accepts_tokens(
        "root ::= <[120]> \"1\" | \"x2\"",
        &[120, 49]
    ));
    assert!(accepts_tokens(
        "root ::= <[120]> \"1\" | \"x2\"",
        &[120, 50]
    ));
    // All others are text.
    assert!(accepts_tokens(
        "root ::= ExcludeToken(120) !<[121]>",
        &[THINK, 120]
    ));
    for token in [120, TOOL, STOP] {
        assert!(!accepts_tokens("root ::= ExcludeToken(120)", &[token]));
    }
    assert!(accepts_tokens("start: <[*]> <[97-99,257]>", &[0, TOOL]));
    // A stop token ends the text where it is named and may be the last.
    let stop = "start: \"a\" start | <|end|>";
    assert!(accepts_tokens(stop, &[97, STOP]));
    assert!(accepts_tokens(stop, &byte("a<|end|>")));
    assert!(!accepts_tokens(
        "start: \"a\" start <|end|> | \"b\"",
        &[97, STOP]
    ));
    assert!(!accepts_tokens(
        "start: <|end|> \"b\" | \"(\" start \")\"",
        &[STOP]
    ));
}

#[test]
fn a_forced_token_counts_for_the_bound() {
    let compiler = compiler();
    let grammar = compiler
        .compile_ebnf("root ::= \"ab\" Token(257) root | \"c\"", "root")
        .unwrap();
    let mut matcher = GrammarMatcher::new(&grammar);
    assert_eq!(matcher.min_tokens_to_complete().unwrap(), 2);
    assert!(matcher.accept_token(97).unwrap());
    assert_eq!(matcher.find_jump_forward_string().unwrap(), "b");
    assert_eq!(matcher.forced_tokens().unwrap(), [98, TOOL]);
    assert_eq!(matcher.min_tokens_to_complete().unwrap(), 4);
    assert_eq!(matcher.next_token_mask_within(4).unwrap().token_ids(), [98]);
    assert!(matcher.accept_tokens(&[98, TOOL]).unwrap());
    assert_eq!(matcher.next_token_mask_within(2).unwrap().token_ids(), [99]);
    assert_eq!(matcher.next_token_mask().unwrap().token_ids(), [97, 99]);
}

#[test]
fn a_token_is_the_same_by_name_and_by_id() {
    let tags = |trigger: &str, begin: &str| {
        format!(
            "{{\"type\": \"structural_tag\", \"format\": {{\"type\": \"token_triggered_tags\", \
             \"trigger_tokens\": [{trigger}], \"tags\": [{{\"begin\": {{\"type\": \"token\", \
             \"token\": {begin}}}, \"content\": {{\"type\": \"const_string\", \"value\": \"x\"}}, \
             \"end\": \";\"}}]}}}}"
        )
    };
    for (trigger, begin) in [
        ("65", "\"A\""),
        ("\"A\"", "65"),
        ("65", "65"),
        ("66, \"A\"", "\"A\""),
    ] {
        let grammar = compiler()
            .compile_structural_tag(&tags(trigger, begin))
            .unwrap();
        let mut matcher = GrammarMatcher::new(&grammar);
        assert!(matcher.accept_tokens(&[97, 65, 120]).unwrap());
        assert!(!matcher.accept_token(65).unwrap());
    }
    let error = compiler()
        .compile_structural_tag(&tags("\"B\"", "65"))
        .unwrap_err();
    let expected = "at `#/format/tags/0/begin`: `begin` is the token `65` and must be one of";
    assert!(error.to_string().contains(expected), "{error}");
}
