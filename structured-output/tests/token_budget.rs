//! Free text of at most so many tokens, against a reference that looks at every way to split a text.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use structured_output::{CompilerOptions, GrammarCompiler, GrammarMatcher, TokenizerInfo};

const VOCAB: [&str; 12] = [
    "<e>", "</e>", "<", "/", "e", ">", "a", "b", "ab", "a<", "</", "e>a",
];
const STOP: u32 = VOCAB.len() as u32;
const BEGIN: &str = "<e>";
const END: &str = "</e>";

fn compiler() -> GrammarCompiler {
    let mut vocab: Vec<Vec<u8>> = VOCAB.iter().map(|text| text.as_bytes().to_vec()).collect();
    vocab.push(Vec::new());
    let info = TokenizerInfo::new(&vocab, vocab.len(), &[STOP], &[]).unwrap();
    GrammarCompiler::new(Arc::new(info), CompilerOptions::default())
}

/// Whether tokens begin `BEGIN text END`, where at most `max` tokens have a part in a text of at most
/// `max_chars` characters, without the end; and whether they are all of it.
fn expected(tokens: &[u32], max: usize, max_chars: usize) -> (bool, bool) {
    let text: String = tokens.iter().map(|&id| VOCAB[id as usize]).collect();
    let mut ends = Vec::new();
    for &id in tokens {
        ends.push(ends.last().copied().unwrap_or(0) + VOCAB[id as usize].len());
    }
    let Some(inner) = text.strip_prefix(BEGIN) else {
        return (BEGIN.starts_with(&text), false);
    };
    let (mut begins, mut is_whole) = (false, false);
    for split in 0..=inner.len() {
        let (free, rest) = inner.split_at(split);
        let span = BEGIN.len()..BEGIN.len() + split;
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let parts = starts
            .zip(&ends)
            .filter(|(start, end)| *start < span.end && **end > span.start && split > 0);
        let fits = parts.count() <= max && free.len() <= max_chars && !free.contains(END);
        begins |= fits && END.starts_with(rest);
        is_whole |= fits && rest == END;
    }
    (begins, is_whole)
}

#[test]
fn masks_are_those_of_the_reference() {
    for (max, max_chars) in [(0, 99), (1, 99), (2, 99), (3, 99), (2, 2)] {
        let source = format!(
            r#"{{"format": {{"type": "tag", "begin": "{BEGIN}", "content": {{"type": "any_text",
            "max_tokens": {max}, "max_chars": {max_chars}}}, "end": "{END}"}}}}"#
        );
        let grammar = compiler().compile_structural_tag(&source).unwrap();
        let mut pending: Vec<Vec<u32>> = vec![Vec::new()];
        let mut num_checked = 0;
        while let Some(tokens) = pending.pop() {
            let mut matcher = GrammarMatcher::new(&grammar);
            assert!(matcher.accept_tokens(&tokens).unwrap(), "{tokens:?}");
            let (_, is_whole) = expected(&tokens, max, max_chars);
            assert_eq!(matcher.is_completed(), is_whole, "{max}: {tokens:?}");
            let mask = matcher.next_token_mask().unwrap();
            assert_eq!(mask.is_allowed(STOP), is_whole, "{max}: {tokens:?}");
            for id in 0..STOP {
                let next = [&tokens[..], &[id]].concat();
                let (is_allowed, _) = expected(&next, max, max_chars);
                assert_eq!(mask.is_allowed(id), is_allowed, "{max}: {next:?}");
                num_checked += 1;
                if is_allowed && next.len() < 5 {
                    pending.push(next);
                }
            }
            // What the bound says can be done.
            let mut left = matcher.min_tokens_to_complete().unwrap();
            while left > 1 {
                let mask = matcher.next_token_mask_within(left).unwrap();
                let id = mask.token_ids()[0];
                assert!(matcher.accept_token(id).unwrap());
                assert!(
                    matcher.min_tokens_to_complete().unwrap() < left,
                    "{tokens:?}"
                );
                left = matcher.min_tokens_to_complete().unwrap();
            }
            assert!(matcher.is_completed(), "{tokens:?}");
        }
        assert!(num_checked > 50);
    }
}

#[test]
fn a_budget_counts_anew_each_time() {
    let source = r#"{"format": {"type": "star", "content": {"type": "sequence", "elements": [
        {"type": "const_string", "value": "<"},
        {"type": "any_text", "excludes": ["<", ">"], "max_tokens": 2},
        {"type": "const_string", "value": ">"}]}}}"#;
    let grammar = compiler().compile_structural_tag(source).unwrap();
    let accepts = |texts: &[&str]| {
        let mut matcher = GrammarMatcher::new(&grammar);
        let ids = texts.iter().map(|text| {
            let at = VOCAB.iter().position(|known| known == text);
            at.unwrap() as u32
        });
        let fits = ids.into_iter().all(|id| matcher.accept_token(id).unwrap());
        fits && matcher.is_completed()
    };
    assert!(accepts(&["<", "a", "b", ">"]));
    assert!(!accepts(&["<", "a", "b", "a", ">"]));
    assert!(accepts(&["<", "a", "ab", ">", "<", "b", "b", ">"]));
    // A token that begins before the text or goes on after it has a part in it.
    assert!(accepts(&["</", "a", ">"]));
    assert!(!accepts(&["</", "a", "a", ">"]));
    assert!(accepts(&["<e>", "<", ">"]));
    let mut matcher = GrammarMatcher::new(&grammar);
    let ids = [2, 6, 7];
    assert!(matcher.accept_tokens(&ids).unwrap());
    assert_eq!(matcher.next_token_mask().unwrap().token_ids(), [5]);
    matcher.rollback(1).unwrap();
    assert!(matcher.next_token_mask().unwrap().is_allowed(7));
}
