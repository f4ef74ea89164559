//! Masks of characters up to a count before what follows them, against acceptance byte by byte, and what
//! they cost.
//!
//! Tokens are longer than the counts, end within characters, and hold what follows.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
#[path = "reference/bytes_and_tokens.rs"]
mod bytes_and_tokens;
#[allow(unreachable_pub, dead_code)]
#[path = "reference/random_lark.rs"]
mod random_lark;

use bytes_and_tokens::compiler;
use random_lark::Random;
use structured_output::{CompiledGrammar, GrammarMatcher};

/// Steps that a mask may take.
const MAX_MASK_STEPS: u64 = 400_000;

/// Characters, of which some have several lengths, and some may be read in more than one way.
const CHARACTERS: [&str; 14] = [
    "[a-z]",
    "\\w",
    "[^,\\n]",
    "[^a\\n]",
    "[a-z0-9_é]",
    "(\\\\.|[^\"\\\\\\n])",
    "(ab|[c-z,]|a1)",
    "(a|ab|[c-z])",
    "(a|b[a-z]|[c-z ])",
    "[\\w ]",
    "(é|[a-z])",
    "([a-z]|[a-z],)",
    "[^()]",
    "([a-z] ?)",
];

/// What a terminal may have after them.
const ENDS: [&str; 9] = ["", "", "", "", ",", "\\n", "(,b)?", "[ 5]?", "[a-c]?"];

/// What may follow a terminal.
const FOLLOWERS: [&str; 12] = [
    "\" \"",
    "\",\"",
    "\"\\n\"",
    "\"\\\"\"",
    "\"\"",
    "\" \"?",
    "/[a-z]/",
    "/[,5]{1,6}/",
    "J1",
    "J2 \",\"",
    "(\",\" | \"é\")",
    "\" \" T1",
];

/// What tokens are cut from.
const TEXT: &str = "abc,deé abcdefghijk\nab,b\"x\\n5 {\"a\": 1}é,zab1 c,cab(ab)é\u{4e2d}a \\\"a5,5";

fn counted(random: &mut Random) -> String {
    let character = random.pick(&CHARACTERS);
    let min = [0, 0, 1, 1, 2, 3, 5][random.below(7)];
    let max = min + [0, 1, 2, 4, 5, 6, 7, 9, 14][random.below(9)];
    let begin = random.pick(&["", "", "", "[a-c]", "[a-zé]", "\"", "x?"]);
    let count = match random.below(8) {
        0 => format!("{{{min},}}"),
        _ => format!("{{{min},{}}}", max.max(1)),
    };
    let text = format!("{begin}{character}{count}{}", random.pick(&ENDS));
    match random.below(6) {
        0 => format!("({text}|5)"),
        _ => text,
    }
}

/// A grammar whose rules are read by the parser.
fn lark(random: &mut Random) -> String {
    let (first, second) = (counted(random), counted(random));
    let (after, then) = (random.pick(&FOLLOWERS), random.pick(&FOLLOWERS));
    let start = match random.below(5) {
        0 => format!("start: x+\nx: T1 {after} | \"(\" x \")\""),
        1 => format!("start: x (T2 {then})?\nx: T1 {after} | \"(\" x \")\" T2 {then}"),
        2 => format!("start: x+\nx: T1 {after} | j1 \",\""),
        3 => format!("start: \"(\" start \")\" | T1 {after} T2 {then}"),
        _ => format!("start: (T1 | T2) {after} start | \"(\" start \")\" | {then}"),
    };
    let lark = format!(
        "{start}\nT1: /{first}/\nT2: /{second}/\nj1: %json {{\"type\": \"object\"}}\n\
         j2: %json {{\"type\": \"integer\"}}"
    );
    lark.replace("J1", "j1").replace("J2", "j2")
}

fn vocabulary(random: &mut Random) -> Vec<Vec<u8>> {
    let text = TEXT.as_bytes();
    let mut tokens = Vec::new();
    for _ in 0..10 + random.below(60) {
        let start = random.below(text.len() - 1);
        let length = 2 + random.below(16);
        let mut token = text[start..(start + length).min(text.len())].to_vec();
        if random.below(4) == 0 {
            let from = random.below(text.len() - 1);
            token.extend_from_slice(&text[from..(from + 4).min(text.len())]);
        }
        if token.len() > 1 {
            tokens.push(token);
        }
    }
    tokens
}

/// Checks the masks along a walk; how many there were.
fn check(grammar: &CompiledGrammar, tokens: &[Vec<u8>], random: &mut Random, what: &str) -> u64 {
    let mut matcher = GrammarMatcher::new(grammar);
    let mut text = Vec::new();
    let mut num_masks = 0;
    for _ in 0..12 {
        let Ok(mask) = matcher.next_token_mask() else {
            break;
        };
        num_masks += 1;
        let mut allowed = Vec::new();
        for (id, token) in (256_u32..).zip(tokens) {
            let written: Vec<u32> = token.iter().map(|&byte| u32::from(byte)).collect();
            let Ok(accepted) = matcher.validate_tokens(&written) else {
                continue;
            };
            assert_eq!(
                mask.is_allowed(id),
                accepted == written.len(),
                "{what}\n after {:?} the token {:?}",
                String::from_utf8_lossy(&text),
                String::from_utf8_lossy(token),
            );
            if accepted == written.len() {
                allowed.push(id);
            }
        }
        for byte in 0..256_u32 {
            let Ok(accepted) = matcher.validate_tokens(&[byte]) else {
                continue;
            };
            assert_eq!(
                mask.is_allowed(byte),
                accepted == 1,
                "{what}\n after {text:?} byte {byte}"
            );
            let is_telling = TEXT.as_bytes().contains(&(byte as u8));
            if accepted == 1 && (is_telling || random.below(16) == 0) {
                allowed.push(byte);
            }
        }
        let Some(&next) = allowed.get(random.below(allowed.len().max(1))) else {
            break;
        };
        if !matches!(matcher.accept_token(next), Ok(true)) {
            break;
        }
        match tokens.get((next as usize).wrapping_sub(256)) {
            Some(token) => text.extend_from_slice(token),
            None => text.push(next as u8),
        }
    }
    num_masks
}

#[test]
fn masks_of_counted_characters_are_exact() {
    let cases = std::env::var("FORMWORK_CASES").map_or(300, |cases| cases.parse().unwrap());
    let first = std::env::var("FORMWORK_SEED").map_or(0, |seed| seed.parse().unwrap());
    let mut num_masks = 0;
    for seed in first..first + cases {
        let mut random = Random::new(seed);
        let tokens = vocabulary(&mut random);
        let compiler = compiler(&tokens, MAX_MASK_STEPS);
        for _ in 0..4 {
            let source = lark(&mut random);
            let Ok(grammar) = compiler.compile_lark(&source) else {
                continue;
            };
            for _ in 0..2 {
                let what = format!("seed {seed}: {source}");
                num_masks += check(&grammar, &tokens, &mut random, &what);
            }
        }
    }
    assert!(num_masks > 10 * cases, "{num_masks} masks");
}

/// Words of three and more letters, with what may stand around them.
fn words() -> Vec<Vec<u8>> {
    let letters = || b'a'..=b'z';
    let mut words = Vec::new();
    for a in letters() {
        for b in letters() {
            for around in [
                "@", "@ing", " @er", "@é", "@ @", "@@@@", "(@", "@\n", "1@_@1",
            ] {
                let word = String::from_utf8(vec![a, b]).unwrap();
                words.push(around.replace('@', &word).into_bytes());
            }
        }
    }
    words
}

/// The characters that are left of a count are no new walk of the vocabulary.
#[test]
fn masks_of_counted_characters_take_few_steps() {
    const MANY: u64 = 1 << 40;
    let tokens = words();
    let compiler = compiler(&tokens, MAX_MASK_STEPS);
    for lark in [
        "start: x+\nx: /\\w{1,20}/ \" \" | \"(\" x \")\"",
        "start: x+\nx: T \" \" | \"(\" x \")\"\nT: /[a-z]\\w{0,20}/",
        "start: x+\nx: /[^\\n{]{1,20}/ \"\\n\" | %json {\"type\": \"object\"} \"\\n\"",
    ] {
        let grammar = compiler.compile_lark(lark).unwrap();
        let mut matcher = GrammarMatcher::new(&grammar);
        let mut dear = Vec::new();
        for letter in b"abcdefghijklmno" {
            matcher.set_allowance(Some(MANY));
            matcher.next_token_mask().unwrap();
            let steps = MANY - matcher.allowance().unwrap();
            if steps > 1000 {
                dear.push(steps);
            }
            assert!(matcher.accept_token(u32::from(*letter)).unwrap());
        }
        // The first, what is known of any number of characters, and how many each token begins with.
        assert!(dear.len() <= 3, "{lark}: {dear:?}");
    }
}
