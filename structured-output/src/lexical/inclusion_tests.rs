//! Proofs of what is within what, against short texts.

use super::super::arena::EPSILON;
use super::super::byte_set::ByteSet;
use super::super::fuel::Fuel;
use super::super::testing::{ends, numbers_below, short_texts};
use super::*;

/// Random expressions of a few letters, counted at each level.
fn random_parts(l: &mut Lexicon, next: &mut impl FnMut(u32) -> u32) -> Vec<ExprId> {
    let [a, b, ab] = [&b"a"[..], b"b", b"ab"].map(|text| l.literal(text));
    let either = l.class(ByteSet::range(b'a', b'b'));
    let maybe = l.optional(b);
    let mut parts = vec![a, b, ab, either, maybe];
    for _ in 0..6 + next(8) {
        let mut pick = || parts[next(parts.len() as u32) as usize];
        let (one, other) = (pick(), pick());
        let made = match next(6) {
            0 => l.or(&[one, other]),
            1 | 2 => l.concat(one, other),
            _ => {
                let min = [0, 0, 1, 1, 2, 3][next(6) as usize];
                let max = match next(9) {
                    0 => UNBOUNDED,
                    _ => min + next(4),
                };
                l.repeat(one, min, max)
            }
        };
        parts.push(made);
    }
    parts
}

/// Alternatives as they come of counts within counts that a text is shared out among.
fn random_places(
    l: &mut Lexicon,
    parts: &[ExprId],
    next: &mut impl FnMut(u32) -> u32,
) -> Vec<ExprId> {
    let pick = |next: &mut dyn FnMut(u32) -> u32| parts[next(parts.len() as u32) as usize];
    let (inner, after, end) = (pick(next), pick(next), pick(next));
    let least = next(3);
    let words = l.repeat(inner, least, least + next(4));
    let word = match next(3) {
        0 => {
            let other = pick(next);
            l.or(&[words, other])
        }
        _ => words,
    };
    let after = l.optional(after);
    let word = l.concat(word, after);
    let lines = l.repeat(word, next(2), 1 + next(4));
    let outer = [EPSILON, after][next(2) as usize];
    let line = l.concat(lines, outer);
    let mut list = Vec::new();
    for _ in 0..3 + next(12) {
        let mut expr = end;
        for (body, between) in [(line, outer), (word, after), (inner, EPSILON)] {
            let (min, more) = ([0, 0, 0, 1][next(4) as usize], next(4));
            let counter = l.repeat(body, min, min + more);
            expr = l.concat(between, expr);
            expr = l.concat(counter, expr);
        }
        list.push(expr);
    }
    list.sort_unstable();
    list.dedup();
    list
}

/// What is shown to be within another expression is; what is dropped is held by what is left.
#[test]
fn what_is_shown_to_be_within_is() {
    let mut next = numbers_below(3);
    let texts = short_texts();
    let cases = std::env::var("FORMWORK_CASES").map_or(200, |cases| cases.parse().unwrap());
    let (mut num_shown, mut num_dropped) = (0, 0);
    for _ in 0..cases {
        let mut l = Lexicon::new(Vec::new(), 8);
        let parts = random_parts(&mut l, &mut next);
        let places = random_places(&mut l, &parts, &mut next);
        let holds = |l: &Lexicon, expr, text: &[u8]| ends(l, expr, text, 1) >> text.len() & 1 == 1;
        let mut known = KnownInclusions::default();
        let mut proofs = Proofs::new(&l, &mut known);
        let all = [&parts[..], &places].concat();
        for &one in &all {
            for &other in &all {
                if one == other || !proofs.is_within(one, other) {
                    continue;
                }
                num_shown += 1;
                for text in &texts {
                    assert!(!holds(&l, one, text) || holds(&l, other, text), "{text:?}");
                }
            }
        }
        for list in [&parts, &places] {
            let mut left = list.clone();
            left.sort_unstable();
            left.dedup();
            let before = left.clone();
            l.drop_included(&mut left);
            num_dropped += before.len() - left.len();
            for text in &texts {
                let any = |list: &[ExprId]| list.iter().any(|&expr| holds(&l, expr, text));
                assert_eq!(any(&before), any(&left), "{text:?}");
            }
        }
    }
    println!("{num_shown} shown, {num_dropped} dropped");
    assert!(
        num_shown > 5 * cases && num_dropped > cases,
        "{num_shown} {num_dropped}"
    );
}

/// What is left of counts within counts after each byte, of which alternatives were dropped, accepts the texts
/// that the whole has.
#[test]
fn derivatives_of_counts_within_counts_accept_what_they_should() {
    let mut next = numbers_below(4);
    let texts = short_texts();
    let cases = std::env::var("FORMWORK_CASES").map_or(400, |cases| cases.parse().unwrap());
    for _ in 0..cases {
        let mut l = Lexicon::new(Vec::new(), 8);
        let parts = random_parts(&mut l, &mut next);
        let places = random_places(&mut l, &parts, &mut next);
        let place = places[next(places.len() as u32) as usize];
        let part = parts[parts.len() - 1];
        for expr in [place, part, l.or(&places)] {
            for text in &texts {
                let mut at = expr;
                for &byte in text {
                    let mut fuel = Fuel::new(10_000_000);
                    at = l.derivative(at, byte, &mut fuel).unwrap();
                }
                let expected = ends(&l, expr, text, 1) >> text.len() & 1 == 1;
                assert_eq!(l.is_nullable(at), expected, "{text:?}");
            }
        }
    }
}

#[test]
fn characters_are_among_others() {
    let mut l = Lexicon::new(Vec::new(), 8);
    let letters = l.class(ByteSet::range(b'a', b'z'));
    let accented = ["é", "ü", "日"].map(|text| l.literal(text.as_bytes()));
    let some = l.or(&[letters, accented[0], accented[2]]);
    let all = l.or(&[letters, accented[0], accented[1], accented[2]]);
    let more = l.class(ByteSet::range(b' ', b'~'));
    let long = l.literal(b"abc");
    let longer = l.or(&[letters, long]);
    let mut known = KnownInclusions::default();
    let mut proofs = Proofs::new(&l, &mut known);
    for (one, other, expected) in [
        (some, all, true),
        (all, some, false),
        (letters, some, true),
        (letters, more, true),
        (some, more, false),
        (accented[0], some, false),
        (longer, letters, false),
    ] {
        assert_eq!(proofs.is_among(one, other), expected);
    }
}

/// Two kinds of words one after the other, with nothing between them: few places are told apart, however
/// long the text is.
#[test]
fn words_that_may_be_cut_anywhere_are_few_alternatives() {
    let mut l = Lexicon::new(Vec::new(), 8);
    let [equals, comma, space] = [b"=", b",", b" "].map(|text| l.literal(text));
    let letter = l.class(ByteSet::range(b'a', b'z'));
    let any = l.class(ByteSet::range(b'-', b'z').union(&ByteSet::single(b' ')));
    let word = l.repeat(letter, 1, 12);
    let text = l.repeat(any, 2, 30);
    let either = l.or(&[word, text]);
    let words = l.repeat(either, 1, 20);
    let key = l.repeat(letter, 1, 16);
    let value = l.repeat(any, 1, 40);
    let equals = l.optional(equals);
    let value = l.concat(equals, value);
    let values = l.repeat(value, 0, 3);
    let pair = l.concat(key, values);
    let next_pair = l.concat(space, pair);
    let pairs = l.repeat(next_pair, 0, 3);
    let line = l.concat(pair, pairs);
    let end = l.optional(comma);
    let line = l.concat(line, end);
    let lines = l.repeat(line, 1, 3);
    for (mut expr, most) in [(words, 3), (lines, 8)] {
        let mut fuel = Fuel::new(300_000);
        for byte in "some words and=more of them ".repeat(3).bytes() {
            expr = l.derivative(expr, byte, &mut fuel).unwrap();
            let num = l.alternatives(expr).len();
            assert!(num <= most, "{num}");
        }
    }
}

/// All that proofs look at is counted, not only their steps, and there is little of it; what was given up is
/// not tried again.
#[test]
fn proofs_cost_what_they_look_at() {
    let mut next = numbers_below(8);
    let (mut num_given_up, mut first_work, mut second_work) = (0, 0, 0);
    for _ in 0..300 {
        let mut l = Lexicon::new(Vec::new(), 8);
        let parts = random_parts(&mut l, &mut next);
        let mut list: Vec<ExprId> = (0..6)
            .flat_map(|_| random_places(&mut l, &parts, &mut next))
            .collect();
        list.sort_unstable();
        list.dedup();
        let mut known = KnownInclusions::default();
        let mut proofs = Proofs::new(&l, &mut known);
        for (&one, &other) in list.iter().zip(&list[1..]) {
            let counted = |proofs: &Proofs<'_>| proofs.num_steps + proofs.factors.num_steps;
            let (links, before) = (proofs.factors.links.len(), counted(&proofs));
            proofs.is_within(one, other);
            // Sequences of one proof and the next are few enough to stay at hand.
            let new_links = proofs.factors.links.len().saturating_sub(links) as u64;
            let counted = counted(&proofs) - before;
            assert!((new_links..8_000).contains(&counted), "{counted}");
            assert!(proofs.factors.links.len() < 4_000);
        }
        let [first, second] = [(); 2].map(|()| {
            let before = l.work;
            l.drop_included(&mut list.clone());
            l.work - before
        });
        num_given_up += l.known_inclusions.given_up.len();
        first_work += first;
        second_work += second;
    }
    println!("{num_given_up} given up, {first_work} and {second_work} steps");
    assert!(num_given_up > 5_000 && 20 * second_work < first_work);
}
