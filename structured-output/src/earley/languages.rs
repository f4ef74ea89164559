//! Languages that grammars name by what they are for.

use crate::lexical::{ANY, ByteSet, EPSILON, ExprId, Lexicon, UNBOUNDED};

/// Strings of a language of which no proper beginning is in it.
pub(super) fn shortest(lexicon: &mut Lexicon, expr: ExprId) -> ExprId {
    let byte = lexicon.class(ByteSet::FULL);
    let more = lexicon.repeat(byte, 1, UNBOUNDED);
    let longer = lexicon.concat(expr, more);
    let not_longer = lexicon.not(longer);
    lexicon.and(&[expr, not_longer])
}

/// Some chunks in a row: from each chunk on, as many as one likes.
pub(super) fn substring(lexicon: &mut Lexicon, chunks: &[Box<str>]) -> ExprId {
    let mut rest = EPSILON;
    let mut starts = vec![EPSILON];
    for chunk in chunks.iter().rev() {
        let chunk = lexicon.literal(chunk.as_bytes());
        rest = lexicon.concat(chunk, rest);
        rest = lexicon.optional(rest);
        starts.push(rest);
    }
    lexicon.or(&starts)
}

/// Any text.
pub(super) fn any_text(lexicon: &mut Lexicon) -> ExprId {
    let any = lexicon.code_points([('\0', char::MAX)].into_iter());
    lexicon.star(any)
}

/// Strings of bytes that end with one of some words.
fn ending_with(lexicon: &mut Lexicon, words: &[Box<str>]) -> ExprId {
    let words: Vec<ExprId> = words
        .iter()
        .map(|word| lexicon.literal(word.as_bytes()))
        .collect();
    let any = lexicon.or(&words);
    lexicon.concat(ANY, any)
}

/// Texts of a language in which none of some words occurs.
pub(super) fn without(lexicon: &mut Lexicon, expr: ExprId, words: &[Box<str>]) -> ExprId {
    let ending = ending_with(lexicon, words);
    let with = lexicon.concat(ending, ANY);
    let without = lexicon.not(with);
    lexicon.and(&[expr, without])
}

/// Text in which none of some words occurs.
pub(super) fn text_without(lexicon: &mut Lexicon, words: &[Box<str>]) -> ExprId {
    let text = any_text(lexicon);
    if words.is_empty() {
        return text;
    }
    without(lexicon, text, words)
}

/// Text that ends with `end`, and in which no other place ends one of `words`.
pub(super) fn text_until(lexicon: &mut Lexicon, end: &str, words: &[Box<str>]) -> ExprId {
    let text = any_text(lexicon);
    let end = lexicon.literal(end.as_bytes());
    let until = lexicon.concat(ANY, end);
    let byte = lexicon.class(ByteSet::FULL);
    let more = lexicon.repeat(byte, 1, UNBOUNDED);
    let ending = ending_with(lexicon, words);
    let earlier = lexicon.concat(ending, more);
    let never = lexicon.not(earlier);
    lexicon.and(&[text, until, never])
}
