//! Assertions that what stands next to them decides, whatever lies further away.
//!
//! Whether a text begins with one of `A` depends on as many characters as `A`'s longest text has.
//! Where each text of `x` has as many, `(?=A)x` is `x & A Σ*` and `(?!A)x` is `x & ~(A Σ*)`. So are
//! `x(?<=A)` and `x(?<!A)`, read backwards. These are languages like any other: they may be repeated.
//!
//! `((?!A)x)* A` with single characters `x`, where all texts of `A` are equally long, is
//! `x* A & ~(Σ* A Σ+)`: an `A` that begins in `w`, of a text `w a`, ends before the end of `a`, and any
//! other `A` in `w a` is its end. So what follows makes no difference.

use super::assertion::{Item, Sequence};
use super::translate::Language;
use crate::lexical::{EMPTY, EPSILON, ExprId, Lexicon, UNBOUNDED};

/// Replaces the assertions of a sequence that are decided next to them; `None` where that leaves
/// no text. Each pass over the items resolves one or is the last.
pub(super) fn settle(lexicon: &mut Lexicon, mut sequence: Sequence) -> Option<Sequence> {
    while settle_one(lexicon, &mut sequence) {}
    let is_empty = |item: &Item| matches!(item, Item::Language(language) if language.expr == EMPTY);
    (!sequence.iter().any(is_empty)).then_some(sequence)
}

fn settle_one(lexicon: &mut Lexicon, sequence: &mut Sequence) -> bool {
    for at in 0..sequence.len() {
        let done = match sequence[at] {
            Item::Ahead {
                text,
                reach: Some(reach),
                ..
            } => decided_after(lexicon, sequence, at, text, reach),
            Item::Behind {
                text,
                reach: Some(reach),
                ..
            } => decided_before(lexicon, sequence, at, text, reach),
            Item::Guarded { .. } => ends_repetition(lexicon, sequence, at),
            _ => false,
        };
        if done {
            return true;
        }
    }
    false
}

/// A look-ahead into the languages that follow it, past look-behinds at the same place.
fn decided_after(
    lexicon: &mut Lexicon,
    sequence: &mut Sequence,
    at: usize,
    text: ExprId,
    reach: u32,
) -> bool {
    let is_behind = |item: &&Item| matches!(item, Item::Behind { .. });
    let from = at + 1 + sequence[at + 1..].iter().take_while(is_behind).count();
    let (mut to, mut chars) = (from, 0_u32);
    while chars < reach
        && let Some(Item::Language(language)) = sequence.get(to)
    {
        chars = chars.saturating_add(language.min_chars);
        to += 1;
    }
    if chars < reach {
        return false;
    }
    let mut next = joined(lexicon, &sequence[from..to]);
    next.expr = lexicon.and(&[text, next.expr]);
    sequence.splice(from..to, [Item::Language(next)]);
    sequence.remove(at);
    true
}

/// A look-behind into the languages before it, past look-aheads at the same place.
fn decided_before(
    lexicon: &mut Lexicon,
    sequence: &mut Sequence,
    at: usize,
    text: ExprId,
    reach: u32,
) -> bool {
    let is_ahead = |item: &&Item| matches!(item, Item::Ahead { .. });
    let to = at - sequence[..at].iter().rev().take_while(is_ahead).count();
    let (mut from, mut chars) = (to, 0_u32);
    while chars < reach
        && from > 0
        && let Item::Language(language) = sequence[from - 1]
    {
        chars = chars.saturating_add(language.min_chars);
        from -= 1;
    }
    if chars < reach {
        return false;
    }
    let mut last = joined(lexicon, &sequence[from..to]);
    last.expr = lexicon.and(&[text, last.expr]);
    sequence.remove(at);
    sequence.splice(from..to, [Item::Language(last)]);
    true
}

/// A guarded repetition and the text that it may not hold, which ends it.
fn ends_repetition(lexicon: &mut Lexicon, sequence: &mut Sequence, at: usize) -> bool {
    let Item::Guarded {
        denied: Some(denied),
        min,
        ..
    } = sequence[at]
    else {
        return false;
    };
    let count = sequence[at + 1..]
        .iter()
        .take_while(|item| item.is_language())
        .count();
    let to = at + 1 + count;
    let next = joined(lexicon, &sequence[at + 1..to]);
    let Some((until, rest)) = stopped(lexicon, &sequence[at], next.expr) else {
        return false;
    };
    let until = Language {
        expr: until,
        min_chars: denied.min_chars.saturating_add(min),
        max_chars: None,
    };
    let rest = Language {
        expr: rest,
        min_chars: next.min_chars.saturating_sub(denied.min_chars),
        max_chars: next
            .max_chars
            .map(|max| max.saturating_sub(denied.min_chars)),
    };
    sequence.splice(at..to, [Item::Language(until), Item::Language(rest)]);
    true
}

/// Languages one after the other.
pub(super) fn joined(lexicon: &mut Lexicon, items: &[Item]) -> Language {
    let mut all = Language::NOTHING;
    for item in items.iter().rev() {
        if let Item::Language(language) = item {
            all = language.then(lexicon, all);
        }
    }
    all
}

/// A guarded repetition and what follows, as the part to the end of the first text that it may not
/// hold, and the rest. `None` where what follows doesn't begin with that text as an expression.
pub(super) fn stopped(
    lexicon: &mut Lexicon,
    guarded: &Item,
    next: ExprId,
) -> Option<(ExprId, ExprId)> {
    let Item::Guarded {
        body,
        denied: Some(denied),
        any,
        min,
        ..
    } = *guarded
    else {
        return None;
    };
    let rest = without(lexicon, next, denied.expr)?;
    let something = lexicon.not(EPSILON);
    let goes_on = lexicon.concat(denied.expr, something);
    let sooner = lexicon.concat(any, goes_on);
    let not_sooner = lexicon.not(sooner);
    let text = lexicon.repeat(body, min, UNBOUNDED);
    let text = lexicon.concat(text, denied.expr);
    Some((lexicon.and(&[text, not_sooner]), rest))
}

/// What an expression goes on with after `start`, where it is `start` and something.
fn without(lexicon: &mut Lexicon, mut expr: ExprId, mut start: ExprId) -> Option<ExprId> {
    /// A bound on the work: texts that end a repetition are short.
    const MAX_PARTS: usize = 256;
    for _ in 0..MAX_PARTS {
        if start == EPSILON {
            return Some(expr);
        }
        let (part, rest) = lexicon.split_first(expr);
        let (wanted, more) = lexicon.split_first(start);
        if part != wanted {
            return None;
        }
        (expr, start) = (rest, more);
    }
    None
}
