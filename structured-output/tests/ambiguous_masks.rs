//! Masks of small ambiguous grammars over a vocabulary of realistic size: what they cost, and against
//! acceptance token by token.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
#[path = "reference/bytes_and_tokens.rs"]
mod bytes_and_tokens;
#[allow(unreachable_pub)]
#[path = "reference/random_lark.rs"]
mod random_lark;

use bytes_and_tokens::{EOS, after, compiler_after_end, words_after_end};
use structured_output::{GrammarMatcher, Limits, MatcherError};

/// All bytes, words with what stands around them in marked-up text, and runs of marks: more than
/// 12,000 tokens.
fn vocabulary() -> Vec<Vec<u8>> {
    let arounds = [
        "@", "@ ", " @", "@e", "@ing", "*@", "@*", " *@*", "**@", "@_", "_@*", "@é", "@ @", "@,",
        " @.", "@1", "A@", "@*@*",
    ];
    let mut vocab = words_after_end(b'a'..=b'z', &arounds);
    for length in 2..=96 {
        vocab.extend([b'*', b'_', b' ', b'-'].map(|byte| vec![byte; length]));
        vocab.push(b"*_".repeat(length));
        vocab.push(b"* ".repeat(length));
    }
    vocab
}

/// Grammars, each with beginnings of texts.
const CASES: [(&str, &[&str]); 9] = [
    (
        "start: x*\nx: (start T1)~3..4 | T2\nT1: /[a-z]+/\nT2: /(.|\\n)*/",
        &["", "hello", "é\n*"],
    ),
    (
        "start: x T1\nx: y | (\"\" | start+)\ny: (\"ab\"? | start x+)? /a+/? x\nT1: /[ab]+/",
        &["", "abab"],
    ),
    // What follows the quote may be all that there is, but for a quote.
    (
        "start: \"x\" x \".\"\nx: x x | T1 x | T2 | \"\"\nT1: /[a-z]+/\nT2: /[^\".]*/",
        &["", "x", "xhello", "x a."],
    ),
    (
        "start: t\nt: (/[a-z]/ | b)*\nb: \"*\" t \"*\"",
        &["", "hello", "*", "a*b", "**c*", "*****"],
    ),
    (
        "start: t\nt: (/[a-z]/ | b)*\nb: \"*\" t \"*\" | \"_\" t \"_\"",
        &["", "hello", "*a", "*_", "_a*b_", "__**_"],
    ),
    (
        "start: x start x | \"\"\nx: /[a-z ]+/",
        &["", "hello", "a b c ", "two words and more"],
    ),
    (
        "start: x start x start | x\nx: /\\w+/ | /[a-z ]+/",
        &["", "hello", "A", "a 1", "a b c D"],
    ),
    (
        "start: (\"(\" start \")\" | \"*\" start | /[a-z*]/ | \"*\" start \"*\")+",
        &["", "a", "*", "(*", "(**)*"],
    ),
    // The second alternative has no text, though it goes on by every byte but one.
    (
        "start: a \"x\" start | \"y\"\na: /(?: )|(?:[^9]*&\\B\\pL)/",
        &["", " ", " x"],
    ),
];

/// Lines of keys and values, which may be cut anywhere, up to a count.
const LINES: [(&str, &[&str]); 6] = [
    (
        "start: (pair \",\"? \" \"?)~1..12\npair: KEY \"=\" VAL | VAL\nKEY: /\\w{1,16}/\nVAL: /[^,\\n]{1,40}/",
        &[
            "",
            "hello",
            "ab cd, e=é",
            "a word and another one, with more=of them, ",
            "a,b,c,d,e,f,g,h,i,j,k=l",
        ],
    ),
    (
        "start: (entry \"\\n\"?)~1..20\nentry: KEY \": \" /[^\\n]{1,100}/ | /[^\\n]{1,80}/\nKEY: /\\w{1,24}/",
        &[
            "",
            "hello",
            "key: value\nother",
            "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\nm\nn\no\np\nq\nr\ns\nt",
        ],
    ),
    // Words of two kinds, of which one has two characters at least.
    (
        "start: (T1 | T3)~1..20\nT1: /\\w{1,12}/\nT3: /[^\\n]{2,30}/",
        &[
            "",
            "h",
            "hello",
            "some words, and more of them: é (1)",
            "*-*-*-*-*-",
        ],
    ),
    // Counts within counts within counts.
    (
        "start: (pair (\" \" pair)~0..3 \",\"?)~1..3\npair: KEY (\"=\"? VAL)~0..3\nKEY: /\\w{1,16}/\n\
         VAL: /[^,\\n]{1,40}/",
        &[
            "",
            "a",
            "aa*b(xx (*( faaaxf",
            "some words=and,more",
            "a,b c,d e",
        ],
    ),
    (
        "start: (\"- \"? pair (\" \" pair)~0..3 \",\"?)~3 pair\npair: KEY (\"=\"? VAL)~0..3\n\
         KEY: /\\w{1,16}/\nVAL: /[^,\\n]{1,40}/",
        &["", "- aa*b(xx (*( faaaxf", "some words=and,- more of"],
    ),
    (
        "start: (pair (\" \" pair)~0..3 \"\\n\"?)~1..5\npair: KEY \"=\" VAL | VAL\nKEY: /\\w{1,16}/\n\
         VAL: /[^,\\n]{1,40}/",
        &["", "aff )  \n(xff*b)", "some words=and more\nof a b c d"],
    ),
];

/// Masks of random grammars, where they don't need too many steps, at places of a text.
#[test]
fn masks_of_random_ambiguous_grammars_are_exact() {
    let vocab = vocabulary();
    let compiler = compiler_after_end(&vocab, Limits::default().max_mask_steps);
    let mut num_masks = 0;
    for seed in 0..60 {
        let mut random = random_lark::Random::new(seed);
        let source = random_lark::random_lark(&mut random);
        let Ok(grammar) = compiler.compile_lark(&source) else {
            continue;
        };
        let mut matcher = GrammarMatcher::new(&grammar);
        for _ in 0..3 {
            let Ok(mask) = matcher.next_token_mask() else {
                break;
            };
            num_masks += 1;
            // All bytes, and every so often another one.
            let step = 11 + random.below(10);
            let ids = (1..257).chain((257..vocab.len()).step_by(step));
            for id in ids.map(|id| id as u32) {
                let Ok(accepted) = matcher.validate_tokens(&[id]) else {
                    continue;
                };
                let token = String::from_utf8_lossy(&vocab[id as usize]);
                assert_eq!(mask.is_allowed(id), accepted == 1, "{source}: {token:?}");
            }
            let mut ids = mask.token_ids();
            ids.retain(|&id| id != EOS);
            if ids.is_empty() {
                break;
            }
            match matcher.accept_token(ids[random.below(ids.len())]) {
                Ok(is_accepted) => assert!(is_accepted, "{source}"),
                // A run of 96 characters may be read in too many ways, though the mask tells that it may.
                Err(MatcherError::StepsExhausted { .. }) => break,
                Err(error) => panic!("{source}: {error}"),
            }
        }
    }
    assert!(num_masks > 60);
}

/// Keys and values in lines, which may stand one after the other without a sign between them, up to counts that
/// tokens reach.
fn random_lines(random: &mut random_lark::Random) -> String {
    let mut pick = |of: &[&'static str]| of[random.below(of.len())];
    let key = pick(&["\\w", "[a-z]", "[a-z*]", "\\S"]);
    let value = pick(&["[^,\\n]", "[^*]", "[a-z _é]", ".", "[a-c ]"]);
    let sign = pick(&["=", ":", "_", " ", "*"]);
    let end = pick(&[",?", ",? ?", "\\n?", "[*]*", ",", ""]);
    let optional = pick(&["?", "?", ""]);
    let mut range = |most: usize| {
        let least = random.below(3);
        format!("{{{least},{}}}", least + 1 + random.below(most))
    };
    let (keys, values, pairs, lines) = (range(16), range(40), range(12), range(4));
    match random.below(7) {
        0 => format!("(({value}{values}{end}){pairs};?){lines}"),
        1 => format!("({key}{keys}{sign}{value}{values}{end}|{value}{values}{end}){pairs}"),
        2 => format!("({key}{keys}|{value}{values}){pairs}"),
        3 => format!("(({key}{keys}([{sign}]?{value}{values}){lines}{end}){pairs};?){lines}"),
        4 => format!("([{sign}]?{key}{keys}( {key}{keys}|{value}{values}){lines}{end}){pairs}"),
        _ => format!("(({key}{keys}{sign}){optional}{value}{values}{end}){pairs}"),
    }
}

/// Masks of lines with counts, at places of a text.
#[test]
fn masks_of_lines_with_counts_are_exact() {
    let vocab = vocabulary();
    let compiler = compiler_after_end(&vocab, 10_000_000);
    let num_cases = std::env::var("FORMWORK_CASES").map_or(25, |cases| cases.parse().unwrap());
    let mut num_masks = 0;
    for seed in 0..num_cases {
        let mut random = random_lark::Random::new(seed);
        let pattern = random_lines(&mut random);
        let grammar = compiler.compile_regex(&pattern).unwrap();
        let mut matcher = GrammarMatcher::new(&grammar);
        for _ in 0..5 {
            let Ok(mask) = matcher.next_token_mask() else {
                break;
            };
            num_masks += 1;
            // All bytes, all runs, and every so often another one.
            let num_runs = 95 * 6;
            let step = 11 + random.below(10);
            let ids = (1..257).chain((257..vocab.len()).step_by(step));
            for id in ids.chain(vocab.len() - num_runs..vocab.len()) {
                let token = String::from_utf8_lossy(&vocab[id]);
                let id = id as u32;
                let is_accepted = matcher.validate_tokens(&[id]).unwrap() == 1;
                assert_eq!(mask.is_allowed(id), is_accepted, "{pattern}: {token:?}");
            }
            let mut ids = mask.token_ids();
            ids.retain(|&id| id != EOS);
            if ids.is_empty() {
                break;
            }
            let id = ids[random.below(ids.len())];
            assert!(matcher.accept_token(id).unwrap(), "{pattern}");
        }
    }
    assert!(num_masks > 80);
}

/// At the beginning and after each text: the mask, within so many steps.
#[test]
fn masks_of_ambiguous_grammars_take_few_steps_and_are_exact() {
    let vocab = vocabulary();
    assert!(vocab.len() > 12_000);
    let few = compiler_after_end(&vocab, 150_000);
    let more = compiler_after_end(&vocab, 1_000_000);
    let cases = CASES.map(|case| (&few, case)).into_iter();
    for (compiler, (source, texts)) in cases.chain(LINES.map(|case| (&more, case))) {
        let grammar = compiler.compile_lark(source).unwrap();
        for text in texts {
            let matcher = after(&grammar, source, text);
            let mask = matcher.next_token_mask();
            let mask = mask.unwrap_or_else(|error| panic!("{source}: {text:?}: {error}"));
            for (id, token) in (0..).zip(&vocab).skip(1) {
                let is_accepted = matcher.validate_tokens(&[id]).unwrap() == 1;
                let token = String::from_utf8_lossy(token);
                assert_eq!(
                    mask.is_allowed(id),
                    is_accepted,
                    "{source}: {text:?} {token:?}"
                );
            }
        }
    }
}

/// Grammars that can read a text in so many ways that not all tokens can be walked with all of them: one way
/// tells most tokens that are allowed, and what no context allows those that aren't.
const MANY_WAYS: [(&str, &[&str]); 4] = [
    (
        "start: ((x T1 start) | (y)~3..4 | (T1 y \" \"))\nx: ((z /a+/))~1..3 | T1\n\
         y: ((x | (start | x)) ((y | /a+/))~0..2 ((\")\" | start | T1) z (T1 \"ab\" z))) | T1\n\
         z: ((\"*\" x))~2 | T1\nT1: /\\w+/",
        &["", "abab"],
    ),
    (
        "start: ((/a+/ | T1 | \"(\") (T1 start /[ab ]/) (T1 start)) | T1\nT1: /a*/",
        &["aa", "aa            ba            aab       "],
    ),
    (
        "start: ((T2 | y | x))~2\nx: (((start \" \") | (/[ab ]/ x)))~3..4 | \"\"\n\
         y: ((/a+/ | y) (T2 | \"*\")) | T2\nT2: /a*/",
        &["", " *bbb *** ***"],
    ),
    (
        "start: (((\"a\" | /[ab ]/ | T1) | (\" \" start) | (/[ab ]/ start start)) ((start | start))* \
         ((/a+/)~3..4 | (start start start) | (/[ab ]/ \"ab\" /[ab ]/))) | T1\nT1: /[ \\t\\n]+/",
        &["", " ", "  aba\n \n"],
    ),
];

#[test]
fn masks_of_texts_that_are_read_in_very_many_ways_are_exact() {
    let vocab = vocabulary();
    let compiler = compiler_after_end(&vocab, 400_000);
    for (source, texts) in MANY_WAYS {
        let grammar = compiler.compile_lark(source).unwrap();
        for text in texts {
            let matcher = after(&grammar, source, text);
            let mask = matcher.next_token_mask();
            let mask = mask.unwrap_or_else(|error| panic!("{source}: {text:?}: {error}"));
            let mut num_told = 0;
            for (id, token) in (0..).zip(&vocab).skip(1) {
                // Some are too dear to be accepted.
                let Ok(accepted) = matcher.validate_tokens(&[id]) else {
                    continue;
                };
                num_told += 1;
                let token = String::from_utf8_lossy(token);
                assert_eq!(
                    mask.is_allowed(id),
                    accepted == 1,
                    "{source}: {text:?} {token:?}"
                );
            }
            assert!(num_told > 12_000);
        }
    }
}
