//! Assertions in a repetition without bound, as far as they have a form without it.
//!
//! `^` and `$` in it can hold at the first and the last time only: `(x|^y|z$)*` is `x*`, or `^y x*`,
//! or `x* z$`, or `^y x* z$`. And `((?!no).)*` forbids something anywhere, which is one intersection.

use super::assertion::{Item, Sequence};
use super::spelling::Spelling;
use super::translate::Language;
use crate::lexical::{EPSILON, ExprId, Lexicon, UNBOUNDED};

/// `min` or more times alternatives that look around; `None` where that has no form.
pub(super) fn unbounded(
    lexicon: &mut Lexicon,
    spelling: Spelling,
    sequences: &[Sequence],
    min: u32,
    offset: usize,
) -> Option<Vec<Sequence>> {
    if let Some(item) = guarded(lexicon, spelling, sequences, min, offset) {
        return Some(vec![vec![item]]);
    }
    let (mut free, mut first, mut last, mut only) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for sequence in sequences {
        let mut items = &sequence[..];
        let (mut start, mut end) = (None, None);
        while let [item @ Item::Behind { text, .. }, rest @ ..] = items
            && *text == EPSILON
        {
            (start, items) = (Some(*item), rest);
        }
        while let [rest @ .., item @ Item::Ahead { text, .. }] = items
            && *text == EPSILON
        {
            (end, items) = (Some(*item), rest);
        }
        let mut text = Language::NOTHING;
        for item in items.iter().rev() {
            match *item {
                Item::Language(language) => text = language.then(lexicon, text),
                _ => return None,
            }
        }
        if min > 1 && lexicon.is_nullable(text.expr) {
            // Times that write nothing would count.
            return None;
        }
        let text = Item::Language(text);
        match (start, end) {
            (None, None) => free.push(text),
            (Some(start), None) => first.push(vec![start, text]),
            (None, Some(end)) => last.push(vec![text, end]),
            (Some(start), Some(end)) => only.push(vec![start, text, end]),
        }
    }
    let mut result = Vec::new();
    if min <= 1 {
        result.extend(only);
    }
    let nothing: Sequence = Vec::new();
    for start in first.iter().chain([&nothing]) {
        for end in last.iter().chain([&nothing]) {
            let around = u32::from(!start.is_empty()) + u32::from(!end.is_empty());
            if let Some(times) = times(lexicon, &free, min.saturating_sub(around)) {
                result.push([start.as_slice(), &[times], end].concat());
            }
        }
    }
    Some(result)
}

/// `min` or more times any of some languages.
fn times(lexicon: &mut Lexicon, languages: &[Item], min: u32) -> Option<Item> {
    let (mut exprs, mut min_chars) = (Vec::new(), u32::MAX);
    for item in languages {
        if let Item::Language(language) = item {
            exprs.push(language.expr);
            min_chars = min_chars.min(language.min_chars);
        }
    }
    if exprs.is_empty() {
        return (min == 0).then_some(Item::Language(Language::NOTHING));
    }
    let body: ExprId = lexicon.or(&exprs);
    Some(Item::Language(Language {
        expr: lexicon.repeat(body, min, UNBOUNDED),
        min_chars: min_chars.saturating_mul(min),
        max_chars: None,
    }))
}

/// A repetition without bound of one character that is looked ahead from, such as
/// `((?!end).)*`, as an item. `None` where the sequences are not that.
fn guarded(
    lexicon: &mut Lexicon,
    spelling: Spelling,
    sequences: &[Sequence],
    min: u32,
    offset: usize,
) -> Option<Item> {
    let [sequence] = sequences else {
        return None;
    };
    let (last, looks) = sequence.split_last()?;
    let body = match *last {
        Item::Language(language) if (language.min_chars, language.max_chars) == (1, Some(1)) => {
            language.expr
        }
        _ => return None,
    };
    let mut refused = Vec::with_capacity(looks.len());
    let mut denied = None;
    for look in looks {
        match *look {
            Item::Ahead {
                text, denied: of, ..
            } => {
                refused.push(lexicon.not(text));
                denied = of;
            }
            _ => return None,
        }
    }
    if looks.len() != 1 {
        denied = None;
    }
    Some(Item::Guarded {
        body,
        refused: lexicon.or(&refused),
        denied,
        any: spelling.any(lexicon),
        min,
        offset,
    })
}
