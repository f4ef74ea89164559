//! Alternatives of sequences: kept few, and bounded.

use hashbrown::HashMap;

use super::assertion::{Item, Sequence};
use super::local;
use super::syntax::RegexError;
use super::translate::Language;
use crate::lexical::{ExprId, Lexicon};

/// The most parts of all sequences together that assertions may be told apart into.
const MAX_ITEMS: usize = 4096;

/// Next to an assertion so many languages stay apart, so that what decides it is short.
const MOST_APART: usize = 16;

/// Languages one after the other; of many, those in the middle are one.
pub(super) fn run_of(lexicon: &mut Lexicon, languages: &[Language]) -> Sequence {
    let items: Sequence = languages.iter().copied().map(Item::Language).collect();
    let Some(end) = items.len().checked_sub(MOST_APART) else {
        return items;
    };
    match items.get(MOST_APART..end) {
        Some(middle @ [_, _, ..]) => {
            let middle = Item::Language(local::joined(lexicon, middle));
            [&items[..MOST_APART], &[middle], &items[end..]].concat()
        }
        _ => items,
    }
}

/// Each of some sequences, followed by each of some others.
///
/// # Errors
/// Where that is more than [`MAX_ITEMS`].
pub(super) fn followed(
    mut heads: Vec<Sequence>,
    tails: &[Sequence],
    offset: usize,
) -> Result<Vec<Sequence>, RegexError> {
    if let [tail] = tails {
        for head in &mut heads {
            head.extend_from_slice(tail);
        }
        check_size(&heads, offset)?;
        return Ok(heads);
    }
    let mut longer = Vec::new();
    for tail in tails {
        longer.extend(heads.iter().map(|head| [head.as_slice(), tail].concat()));
        check_size(&longer, offset)?;
    }
    Ok(longer)
}

/// What is around the text of a sequence that is one text with assertions on both sides, so far as
/// that tells it from others: of each assertion what it looks for and how far, and how many come
/// before the text.
type Around = (Vec<(bool, ExprId, Option<u32>, Option<ExprId>)>, usize);

fn around(sequence: &[Item]) -> Option<Around> {
    let before = sequence.iter().take_while(|item| !item.is_text()).count();
    let text = sequence[before..]
        .iter()
        .take_while(|item| item.is_language());
    let after = before + text.count();
    if after == before {
        return None;
    }
    let looks = sequence[..before].iter().chain(&sequence[after..]);
    let looks = looks.map(|item| match *item {
        Item::Ahead {
            text,
            reach,
            denied,
        } => Some((true, text, reach, denied.map(|denied| denied.expr))),
        Item::Behind { text, reach, .. } => Some((false, text, reach, None)),
        Item::Language(_) | Item::Guarded { .. } => None,
    });
    Some((looks.collect::<Option<Vec<_>>>()?, before))
}

/// Alternatives of which those with the same assertions around one text are one: `^a$|^b$` is
/// `^(a|b)$`.
pub(super) fn merged(lexicon: &mut Lexicon, sequences: Vec<Sequence>) -> Vec<Sequence> {
    let mut found: Vec<(Sequence, Vec<Sequence>)> = Vec::with_capacity(sequences.len());
    let mut known: HashMap<Around, usize> = HashMap::new();
    for sequence in sequences {
        let place = around(&sequence).map(|around| *known.entry(around).or_insert(found.len()));
        match place.and_then(|at| found.get_mut(at)) {
            Some((_, others)) => others.push(sequence),
            None => found.push((sequence, Vec::new())),
        }
    }
    let mut all = Vec::with_capacity(found.len());
    for (first, others) in found {
        all.push(match others.is_empty() {
            true => first,
            false => one_of(lexicon, first, &others),
        });
    }
    all
}

/// A sequence with one text, or others that differ from it in the text alone, as one.
fn one_of(lexicon: &mut Lexicon, first: Sequence, others: &[Sequence]) -> Sequence {
    let mut exprs = Vec::with_capacity(others.len() + 1);
    let (mut min_chars, mut max_chars) = (u32::MAX, Some(0_u32));
    for sequence in std::iter::once(&first).chain(others) {
        let text = local::joined(lexicon, sequence);
        exprs.push(text.expr);
        min_chars = min_chars.min(text.min_chars);
        let lengths = max_chars.zip(text.max_chars);
        max_chars = lengths.map(|(longest, length)| longest.max(length));
    }
    let text = Item::Language(Language {
        expr: lexicon.or(&exprs),
        min_chars,
        max_chars,
    });
    let before = first.iter().take_while(|item| !item.is_text()).count();
    let looks = |item: &&Item| !item.is_text();
    let after = first[before..].iter().filter(looks).copied();
    let mut sequence = first[..before].to_vec();
    sequence.push(text);
    sequence.extend(after);
    sequence
}

/// # Errors
/// Where sequences have more than [`MAX_ITEMS`] parts.
pub(super) fn check_size(sequences: &[Sequence], offset: usize) -> Result<(), RegexError> {
    // A sequence without items counts too.
    let size: usize = sequences.iter().map(|sequence| sequence.len() + 1).sum();
    if size > MAX_ITEMS {
        return Err(RegexError::new(
            offset,
            format!(
                "the assertions (`^`, `$`, `\\b`, look-around) in here take more than {MAX_ITEMS} \
                 parts to be told apart: write fewer of them, or fewer alternatives around them"
            ),
        ));
    }
    Ok(())
}
