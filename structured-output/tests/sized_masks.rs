//! Masks of patterns beside bounds on the length, over a vocabulary with long tokens: what may come
//! depends on how many characters the tokens take, and on the shortest ways to the pattern's end.
//! Against acceptance byte by byte.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use structured_output::{
    CompilerOptions, GrammarCompiler, GrammarMatcher, JsonSchemaOptions, TokenizerInfo,
};

/// Texts that tokens are made of: plain ones, white space beyond ASCII, characters that are begun,
/// escapes, ends of strings and what comes after them.
const PIECES: &[&[u8]] = &[
    b"a",
    b"b",
    b"ab",
    b"ba-",
    b"abcabc",
    b" ",
    b" a",
    b"  ",
    b".",
    b"@",
    b"1",
    b"0f",
    "é".as_bytes(),
    "aé".as_bytes(),
    "\u{3000}".as_bytes(),
    "a\u{2028}b".as_bytes(),
    "\u{a0}".as_bytes(),
    "日本".as_bytes(),
    "😀".as_bytes(),
    b"\xe2",
    b"\xe2\x80",
    b"\x80",
    b"\xa8",
    b"\xc3",
    b"\xe6\x97",
    b"\xf0\x9f",
    b"\\n",
    b"\\",
    b"\\u00",
    b"1f",
    b"\x01",
    b"\x7f",
    b"\"",
    b"\",",
    b"\"]",
    b"\", \"",
];

/// Byte tokens 0 to 255, then words of up to four pieces, then the stop token.
static VOCAB: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let mut vocab: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    // Every fifth word of two pieces, and some longer ones.
    let mut at = 0_usize;
    for first in PIECES {
        vocab.push(first.to_vec());
        for second in PIECES {
            at += 1;
            if at.is_multiple_of(5) {
                vocab.push([*first, *second].concat());
            }
            if at.is_multiple_of(37) {
                let (third, fourth) = (PIECES[at % PIECES.len()], PIECES[at % 7]);
                vocab.push([*first, *second, third, fourth].concat());
            }
        }
    }
    vocab.push(b"ab".repeat(9));
    vocab.push(b" ".repeat(30));
    vocab.sort_unstable();
    vocab.dedup();
    vocab.retain(|word| word.len() > 1);
    let bytes = (0..=255).map(|byte| vec![byte]);
    bytes.chain(vocab.drain(..)).chain([Vec::new()]).collect()
});

static COMPILER: LazyLock<GrammarCompiler> = LazyLock::new(|| {
    let eos = VOCAB.len() as u32 - 1;
    let info = TokenizerInfo::new(&VOCAB, VOCAB.len(), &[eos], &[]).unwrap();
    GrammarCompiler::new(Arc::new(info), CompilerOptions::default())
});

const PATTERNS: &[&str] = &[
    r"^(?:\S+\s+){0,3}\S+$",
    r"^$|(^(?:\S+\s+){0,9}\S+$)",
    r"^[a-z]+(-[a-z]+)*$",
    r"^[^@^\s]+@[^@^\.^\s]+(\.[^@^\.^\s]*)*.b",
    r"[0-9a-fA-F]+",
    r"^[A-Za-z0-9 &£é]*$",
    r"^.+:.+$",
    r"^.*b$",
    r"a.b",
    r"^(aa)*$",
    r"^(aaa|bb)*$",
    r"^(é|ab){2}",
    r"^(日|abc)*\.$",
    r"^\S*$",
    r"^[^a]*a[^a]*$",
    r"^(?!ab).*$",
    r"^((?!ab).)*$",
    r"^(?=.*1)(?=.*a).*$",
    r"^[a-c]{2,4}@[a-c]{2,4}$",
    r"^(\n|aaaa)*b$",
    r"^.{3}(a.{4})?$",
    r"^\s+\S",
    r"\d+-[A-Fa-f0-9]*-[A-Fa-f0-9]{4}",
];

/// Small random patterns.
fn pattern() -> impl Strategy<Value = String> {
    let atom = prop::sample::select(vec![
        "a", "b", "é", "\\u3000", " ", ".", "\\S", "\\s", "[a-c]", "[^a]", "\\n", "\\u001f", "日",
        "1",
    ]);
    let part = atom
        .prop_map(str::to_owned)
        .prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 1..4).prop_map(|parts| parts.concat()),
                prop::collection::vec(inner.clone(), 2..4)
                    .prop_map(|parts| format!("(?:{})", parts.join("|"))),
                (
                    inner.clone(),
                    prop::sample::select(vec!["*", "+", "?", "{2}", "{1,3}", "{2,}"])
                )
                    .prop_map(|(part, times)| format!("(?:{part}){times}")),
            ]
        });
    (prop::bool::weighted(0.8), part, prop::bool::weighted(0.8)).prop_map(|(begins, part, ends)| {
        let (begin, end) = (if begins { "^" } else { "" }, if ends { "$" } else { "" });
        format!("{begin}(?:{part}){end}")
    })
}

/// Each mask along a text is what each token is by its bytes. `choices` say which token comes next.
fn check(schema: &str, choices: &[usize]) -> Result<(), TestCaseError> {
    let compiled = COMPILER.compile_json_schema(schema, &JsonSchemaOptions::default());
    // Some patterns have no text of such a length.
    let Ok(grammar) = compiled else {
        return Ok(());
    };
    let eos = VOCAB.len() as u32 - 1;
    let mut matcher = GrammarMatcher::new(&grammar);
    let mut text = Vec::new();
    prop_assert!(matcher.accept_token(u32::from(b'[')).unwrap());
    if matcher
        .next_token_mask()
        .unwrap()
        .is_allowed(u32::from(b'"'))
    {
        prop_assert!(matcher.accept_token(u32::from(b'"')).unwrap());
    }
    for choice in choices {
        let mask = matcher.next_token_mask().unwrap();
        for (token, bytes) in (0..eos).zip(&*VOCAB) {
            let mut slow = matcher.fork();
            let by_bytes = bytes
                .iter()
                .all(|&b| slow.accept_token(u32::from(b)).unwrap());
            prop_assert_eq!(
                mask.is_allowed(token),
                by_bytes,
                "{}: {:?} after {:?}",
                schema,
                String::from_utf8_lossy(bytes),
                String::from_utf8_lossy(&text)
            );
        }
        let mut allowed = mask.token_ids();
        allowed.retain(|&token| token != eos);
        let Some(&token) = allowed.get(choice % allowed.len().max(1)) else {
            break;
        };
        text.extend_from_slice(&VOCAB[token as usize]);
        prop_assert!(matcher.accept_token(token).unwrap());
    }
    Ok(())
}

fn schema(pattern: &str, min: usize, more: Option<usize>) -> String {
    let pattern = serde_json::to_string(pattern).unwrap();
    let max = more.map(|more| format!(r#","maxLength":{}"#, min + more));
    format!(
        r#"{{"type":"array","items":{{"type":"string","pattern":{pattern},"minLength":{min}{}}}}}"#,
        max.unwrap_or_default()
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(
        std::env::var("FORMWORK_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(48)
    ))]

    #[test]
    fn known_patterns_beside_a_length(
        which in 0..PATTERNS.len(),
        min in prop_oneof![3 => 0..2_usize, 2 => 0..9_usize],
        more in prop_oneof![5 => (0..14_usize).prop_map(Some), 1 => (20..200_usize).prop_map(Some), 1 => Just(None)],
        choices in prop::collection::vec(any::<usize>(), 1..8),
    ) {
        check(&schema(PATTERNS[which], min, more), &choices)?;
    }

    #[test]
    fn random_patterns_beside_a_length(
        pattern in pattern(),
        min in prop_oneof![3 => 0..2_usize, 2 => 0..6_usize],
        more in prop_oneof![5 => (0..9_usize).prop_map(Some), 1 => (20..200_usize).prop_map(Some)],
        choices in prop::collection::vec(any::<usize>(), 1..6),
    ) {
        check(&schema(&pattern, min, more), &choices)?;
    }
}
