use std::sync::Arc;

use structured_output::{CompilerOptions, GrammarCompiler, GrammarMatcher, TokenizerInfo};

use super::*;

fn granite() -> ThinkingMarkers {
    ThinkingMarkers::of_parser("granite").unwrap()
}

fn hunyuan() -> ThinkingMarkers {
    ThinkingMarkers::of_parser("hunyuan_a13b").unwrap()
}

fn behind(
    constraint: StructuredOutputsConstraint,
    markers: &ThinkingMarkers,
    is_open: bool,
) -> StructuredOutputsParams {
    let params = StructuredOutputsParams::new(constraint);
    behind_thinking(&params, markers, is_open, "guided").unwrap()
}

/// A matcher over single bytes and these tokens, whose ids begin at 257.
fn matcher(params: &StructuredOutputsParams, tokens: &[&str]) -> GrammarMatcher {
    let StructuredOutputsConstraint::StructuralTag(tag) = &params.constraint else {
        panic!("a structural tag");
    };
    let mut vocab: Vec<Vec<u8>> = (0..=u8::MAX).map(|byte| vec![byte]).collect();
    vocab.push(b"</s>".to_vec());
    vocab.extend(tokens.iter().map(|token| token.as_bytes().to_vec()));
    let info = TokenizerInfo::new(&vocab, vocab.len(), &[256], &[256]).unwrap();
    let compiler = GrammarCompiler::new(Arc::new(info), CompilerOptions::default());
    GrammarMatcher::new(&compiler.compile_structural_tag(tag).unwrap())
}

fn is_whole(params: &StructuredOutputsParams, text: &str) -> bool {
    let mut matcher = matcher(params, &[]);
    matcher.accept_bytes(text.as_bytes()).unwrap() && matcher.is_completed()
}

#[test]
fn every_constraint_holds_behind_thinking() {
    use StructuredOutputsConstraint::{Choice, Grammar, Json, JsonObject, Regex, StructuralTag};
    let tag = r#"{"type": "structural_tag", "format": {"type": "const_string", "value": "x\"é"}}"#;
    for (constraint, good, bad) in [
        (Json(r#"{"type": "integer"}"#.to_owned()), "12", "x"),
        (JsonObject, r#"{"a": 1}"#, "[]"),
        (Regex(r#"a["\\]+\n"#.to_owned()), "a\"\\\n", "a"),
        (Choice(vec!["a\"".to_owned(), "b".to_owned()]), "a\"", "c"),
        (
            Grammar("root ::= \"a\" root | \"b\"".to_owned()),
            "aab",
            "aa",
        ),
        (StructuralTag(tag.to_owned()), "x\"é", "x"),
    ] {
        for (markers, is_open, thinking) in [
            (granite(), true, "Hm. Here is\nHere is my response:"),
            (
                granite(),
                false,
                "Here is my thought process:Hm: Here's my response:",
            ),
            (
                granite(),
                false,
                "Here's my thought process:Here is my response:",
            ),
            (granite(), false, ""),
            (hunyuan(), true, "hm\n</think>\n<answer>\n"),
            (hunyuan(), false, "<think>\n\n</think>\n<answer>\n"),
            (hunyuan(), false, ""),
        ] {
            let params = behind(constraint.clone(), &markers, is_open);
            assert!(
                is_whole(&params, &format!("{thinking}{good}")),
                "{thinking} {good}"
            );
            assert!(
                !is_whole(&params, &format!("{thinking}{bad}")),
                "{thinking} {bad}"
            );
            // Thinking alone is no answer, nor is an answer whose thinking was never closed.
            let unclosed = thinking.trim_end_matches([':', '\n']);
            assert!(!is_whole(&params, thinking), "{thinking}");
            if !thinking.is_empty() {
                assert!(
                    !is_whole(&params, &format!("{unclosed}{good}")),
                    "{unclosed}"
                );
            }
        }
    }
}

/// The answer begins at the byte behind the marker, in whatever tokens the marker is written.
#[test]
fn a_token_may_close_thinking_and_begin_the_answer() {
    let regex = StructuredOutputsConstraint::Regex("[0-9]+".to_owned());
    let params = behind(regex, &granite(), true);
    let tokens = [
        ":1",
        ":x",
        " response:2",
        "response:",
        "Here is my response:3",
        " my response:4y",
    ];
    let id = |token: &str| {
        let place = tokens.iter().position(|known| *known == token).unwrap();
        257 + u32::try_from(place).unwrap()
    };
    let mut matcher = matcher(&params, &tokens);
    let allowed = |matcher: &GrammarMatcher| {
        let mask = matcher.next_token_mask().unwrap();
        let ids = mask.token_ids().to_vec();
        tokens.map(|token| ids.contains(&id(token)))
    };
    assert_eq!(allowed(&matcher), [true, true, true, true, true, true]);
    assert!(matcher.accept_bytes(b"Hm: Here is my").unwrap());
    assert_eq!(allowed(&matcher), [true, true, true, true, true, true]);
    assert!(matcher.accept_bytes(b" response").unwrap());
    assert_eq!(allowed(&matcher), [true, false, true, true, true, true]);
    let mut whole = matcher.fork();
    assert!(whole.accept_token(id(":1")).unwrap());
    assert!(whole.is_completed());
    assert_eq!(allowed(&whole), [false; 6]);
    assert!(matcher.accept_bytes(b":").unwrap());
    assert!(!matcher.accept_bytes(b"x").unwrap());
    assert!(matcher.accept_bytes(b"7").unwrap());
    assert!(matcher.is_completed());
}

#[test]
fn what_can_not_stand_in_a_tag_is_refused_by_its_field() {
    let refused = |params: &StructuredOutputsParams| {
        behind_thinking(params, &granite(), true, "guided_json").unwrap_err()
    };
    let mut params = StructuredOutputsParams::new(StructuredOutputsConstraint::JsonObject);
    params.disable_additional_properties = true;
    let error = refused(&params);
    assert_eq!(error.parameter.as_deref(), Some("guided_json"));
    assert_eq!(
        error.message,
        "options for white space, properties' order and additional properties are not available behind thinking \
         that plain text marks"
    );
    let older = r#"{"structures": [], "triggers": []}"#.to_owned();
    let older = StructuredOutputsConstraint::StructuralTag(older);
    let error = refused(&StructuredOutputsParams::new(older));
    assert_eq!(
        error.message,
        "a structural tag behind thinking that plain text marks must have a format"
    );
}
