//! Masks over a vocabulary of many words, as tokenizers have it: walked by classes of bytes, where
//! expressions don't tell the letters of a word apart.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use structured_output::{CompilerOptions, GrammarCompiler, GrammarMatcher, TokenizerInfo};

use crate::reference::{Nfa, Re, States};

/// Enough that what strings, numbers and names allow is prepared beforehand.
const NUM_WORDS: usize = 11_000;
const MAX_LETTERS: usize = 12;
const SIGNS: &[u8] = b" .-_\"/:,0";

/// SplitMix64.
fn next(seed: &mut u64) -> usize {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut x = *seed;
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ (x >> 31)) as usize >> 1
}

/// Words of up to [`MAX_LETTERS`] letters: in lower case, in upper case, with a capital, of digits,
/// of letters in both cases and digits; some with a sign before, after or within.
fn words() -> BTreeSet<Vec<u8>> {
    let mut seed = 1;
    let mut words = BTreeSet::new();
    while words.len() < NUM_WORDS {
        let (style, length) = (next(&mut seed) % 5, 1 + next(&mut seed) % MAX_LETTERS);
        let mut word: Vec<u8> = (0..length)
            .map(|at| match style {
                0 => b'a' + (next(&mut seed) % 26) as u8,
                1 => b'A' + (next(&mut seed) % 26) as u8,
                2 if at == 0 => b'A' + (next(&mut seed) % 26) as u8,
                2 => b'a' + (next(&mut seed) % 26) as u8,
                3 => b'0' + (next(&mut seed) % 10) as u8,
                _ => b"abcXYZ019"[next(&mut seed) % 9],
            })
            .collect();
        let sign = SIGNS[next(&mut seed) % SIGNS.len()];
        match next(&mut seed) % 6 {
            0 => word.insert(0, sign),
            1 => word.push(sign),
            2 => word.insert(length / 2, sign),
            3 if length == 3 => word.extend("é".bytes()),
            _ => {}
        }
        words.insert(word);
    }
    words
}

/// By id: the bytes, then the words. The stop token is the one after them.
static TOKENS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let bytes = (0..=255).map(|byte| vec![byte]);
    let words = words().into_iter().filter(|word| word.len() > 1);
    bytes.chain(words).collect()
});

static COMPILER: LazyLock<GrammarCompiler> = LazyLock::new(|| {
    let mut vocab = TOKENS.clone();
    vocab.push(Vec::new());
    let stop = TOKENS.len() as u32;
    let info = TokenizerInfo::new(&vocab, vocab.len(), &[stop], &[]).unwrap();
    GrammarCompiler::new(Arc::new(info), CompilerOptions::default())
});

/// Expressions over whole classes, counted more often than not.
fn expressions() -> impl Strategy<Value = Re> {
    let class = |ranges: &[std::ops::RangeInclusive<char>]| {
        let chars = ranges.iter().cloned().flatten();
        Re::Class(chars.collect())
    };
    let classes = vec![
        class(&['a'..='z']),
        class(&['A'..='Z']),
        class(&['0'..='9']),
        class(&['a'..='z', 'A'..='Z']),
        class(&['a'..='z', '0'..='9']),
        class(&['a'..='z', 'A'..='Z', '0'..='9', '_'..='_']),
        class(&[' '..='!', '#'..=',', '.'..='Z', '^'..='~']),
        class(&['a'..='f', 'é'..='é']),
    ];
    let signs = [' ', '-', '_', '"', 'a', 'Q', '0', 'é'].map(|sign| Re::Class(vec![sign]));
    let signs_of_no_word = [';', '=', '~'].map(|sign| Re::Class(vec![sign]));
    let class = prop::sample::select(classes);
    let sign = prop_oneof![
        prop::sample::select(signs.to_vec()),
        prop::sample::select(signs_of_no_word.to_vec()),
    ];
    let atom = prop_oneof![3 => class.clone(), 1 => sign.clone()];
    // Few enough that words are longer.
    let counts = |most: usize| (0..most, 0..most).prop_map(|(min, more)| (min, Some(min + more)));
    let counted_groups =
        (class, counts(4), counts(3), sign).prop_map(|(class, inner, outer, sign)| {
            let group = Re::Repeat(Box::new(class), inner.0, inner.1);
            Re::Concat(vec![Re::Repeat(Box::new(group), outer.0, outer.1), sign])
        });
    let any = atom.prop_recursive(3, 10, 3, |inner| {
        prop_oneof![
            2 => prop::collection::vec(inner.clone(), 1..4).prop_map(Re::Concat),
            1 => prop::collection::vec(inner.clone(), 1..3).prop_map(Re::Alternate),
            3 => (inner, 0_usize..5, prop::option::weighted(0.8, 0_usize..5)).prop_map(
                |(inner, min, more)| Re::Repeat(Box::new(inner), min, more.map(|more| min + more)),
            ),
        ]
    });
    prop_oneof![any, counted_groups]
}

/// The reference's sets of states, numbered, each step between them made once.
struct Numbered<'a> {
    nfa: &'a Nfa,
    states: Vec<States>,
    numbers: BTreeMap<States, usize>,
    steps: HashMap<(usize, u8), usize>,
}

impl<'a> Numbered<'a> {
    fn new(nfa: &'a Nfa) -> Self {
        Self {
            nfa,
            states: Vec::new(),
            numbers: BTreeMap::new(),
            steps: HashMap::new(),
        }
    }

    fn number(&mut self, states: States) -> usize {
        let next = self.states.len();
        let number = *self.numbers.entry(states.clone()).or_insert(next);
        if number == next {
            self.states.push(states);
        }
        number
    }

    /// The state after a text; `None` where it can't be completed.
    fn after(&mut self, mut at: usize, text: &[u8]) -> Option<usize> {
        for &byte in text {
            at = match self.steps.get(&(at, byte)) {
                Some(&known) => known,
                None => {
                    let states = self.nfa.step(&self.states[at], &[byte]);
                    let to = self.number(states);
                    self.steps.insert((at, byte), to);
                    to
                }
            };
            if self.states[at].is_empty() {
                return None;
            }
        }
        Some(at)
    }
}

/// Walks by the mask, and compares it with what each token does by itself.
fn check(re: &Re, choices: &[usize]) -> Result<(), TestCaseError> {
    // Long runs meet more states than a generation holds.
    COMPILER.clear_cache();
    let pattern = re.pattern();
    let grammar = COMPILER.compile_regex(&pattern).unwrap();
    let nfa = Nfa::new(re);
    let mut reference = Numbered::new(&nfa);
    let mut at = reference.number(nfa.start());
    let mut matcher = GrammarMatcher::new(&grammar);
    let mut text = Vec::new();
    for &choice in choices {
        let mask = matcher.next_token_mask().unwrap();
        let mut reached = Vec::new();
        for (id, token) in (0..).zip(TOKENS.iter()) {
            let after = reference.after(at, token);
            reached.extend(after.map(|after| (id, after)));
            prop_assert_eq!(
                mask.is_allowed(id),
                after.is_some(),
                "{} after {:?}: {:?}",
                &pattern,
                String::from_utf8_lossy(&text),
                String::from_utf8_lossy(token)
            );
        }
        let may_end = nfa.accepts(&reference.states[at]);
        prop_assert_eq!(mask.is_allowed(TOKENS.len() as u32), may_end);
        if reached.is_empty() {
            break;
        }
        let (token, after) = reached[choice % reached.len()];
        prop_assert!(matcher.accept_token(token).unwrap());
        text.extend_from_slice(&TOKENS[token as usize]);
        at = after;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("FORMWORK_CASES").map_or(256, |cases| cases.parse().unwrap()),
        ..ProptestConfig::default()
    })]

    #[test]
    fn masks_over_many_words(
        re in expressions(),
        choices in prop::collection::vec(any::<usize>(), 1..6),
    ) {
        check(&re, &choices)?;
    }
}
