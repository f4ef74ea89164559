//! Texts of a grammar: a shortest one, and one that shows more of it.

use structured_output::{CancelFlag, CompiledGrammar, MaskRef, MatcherError};

use super::byte_matcher::ByteMatcher;
use crate::random::mix;

/// A text is cut off here.
const MAX_BYTES: usize = 4096;
/// From here on a sample takes the shortest way to its end.
const USUAL_BYTES: usize = 300;
/// From so many characters on that may come next, the text is free there.
const FREE: usize = 60;

/// A shortest text of a grammar over single bytes, of readable characters where there is a choice. It is cut
/// off at 4,096 bytes.
///
/// # Errors
/// A limit of the grammar.
pub fn shortest_text(grammar: &CompiledGrammar) -> Result<Vec<u8>, MatcherError> {
    shortest_from(&mut ByteMatcher::new(grammar, None), &CancelFlag::new())
}

/// The same from where a matcher stands.
pub(super) fn shortest_from(
    matcher: &mut ByteMatcher,
    cancel: &CancelFlag,
) -> Result<Vec<u8>, MatcherError> {
    let mut text = Vec::new();
    complete(matcher, &mut text, cancel)?;
    Ok(text)
}

/// A text that was drawn at random, the same at every call.
pub(super) fn sample_from(
    matcher: &mut ByteMatcher,
    cancel: &CancelFlag,
) -> Result<Vec<u8>, MatcherError> {
    let mut text = Vec::new();
    let mut draws = 0;
    let mut draw = |below: usize| {
        draws += 1;
        (mix(7, draws) % below.max(1) as u64) as usize
    };
    while text.len() < USUAL_BYTES && !cancel.is_cancelled() {
        let mask = matcher.matcher.next_token_mask()?;
        let (may_end, next) = (matcher.may_end(&mask), choose(&mask, &mut draw));
        let ends = may_end && (next.is_none() || draw(2) == 0);
        match next.or_else(|| first_control(matcher, &mask)) {
            Some(token_id) if !ends => append(matcher, &mut text, token_id)?,
            _ => return Ok(text),
        }
    }
    complete(matcher, &mut text, cancel)?;
    Ok(text)
}

/// Appends the shortest rest.
fn complete(
    matcher: &mut ByteMatcher,
    text: &mut Vec<u8>,
    cancel: &CancelFlag,
) -> Result<(), MatcherError> {
    while text.len() < MAX_BYTES && !cancel.is_cancelled() {
        let left = matcher.matcher.min_tokens_to_complete()?;
        let mask = matcher.matcher.next_token_mask_within(left)?;
        if matcher.may_end(&mask) {
            return Ok(());
        }
        let readable = (b'a'..=b'z').chain(b'!'..=b'~').chain(0..=u8::MAX);
        let next = readable.map(u32::from).find(|&id| mask.is_allowed(id));
        match next.or_else(|| first_control(matcher, &mask)) {
            Some(token_id) => append(matcher, text, token_id)?,
            None => return Ok(()),
        }
    }
    Ok(())
}

fn append(
    matcher: &mut ByteMatcher,
    text: &mut Vec<u8>,
    token_id: u32,
) -> Result<(), MatcherError> {
    matcher.matcher.accept_token(token_id)?;
    text.extend_from_slice(matcher.token_bytes(token_id));
    Ok(())
}

/// The first control token that is allowed.
fn first_control(matcher: &ByteMatcher, mask: &MaskRef) -> Option<u32> {
    let tokens = matcher.control_tokens();
    tokens
        .iter()
        .copied()
        .find(|&token_id| mask.is_allowed(token_id))
}

/// A byte that may come next: of kinds of characters each as likely as another, and no white space where
/// there is something else. A string that may go on with anything comes to its end soon.
fn choose(mask: &MaskRef, draw: &mut impl FnMut(usize) -> usize) -> Option<u32> {
    let allowed = |bytes: &[u8]| -> Vec<u8> {
        let allowed = bytes
            .iter()
            .filter(|&&byte| mask.is_allowed(u32::from(byte)));
        allowed.copied().collect()
    };
    let graphic: Vec<u8> = (b'!'..=b'~').collect();
    let graphic = allowed(&graphic);
    if graphic.len() >= FREE && graphic.contains(&b'"') && draw(6) == 0 {
        return Some(u32::from(b'"'));
    }
    let of =
        |is_kind: fn(&u8) -> bool| -> Vec<u8> { graphic.iter().copied().filter(is_kind).collect() };
    let kinds: Vec<Vec<u8>> = match graphic.len() >= FREE {
        true => vec![of(u8::is_ascii_lowercase)],
        false => vec![
            of(u8::is_ascii_digit),
            of(u8::is_ascii_lowercase),
            of(u8::is_ascii_uppercase),
            of(u8::is_ascii_punctuation),
        ],
    };
    let mut kinds: Vec<Vec<u8>> = kinds.into_iter().filter(|kind| !kind.is_empty()).collect();
    if kinds.is_empty() {
        kinds.extend(Some(graphic).filter(|graphic| !graphic.is_empty()));
    }
    if kinds.is_empty() {
        let others: Vec<u8> = allowed(b" \n\t\r").into_iter().chain(0..=u8::MAX).collect();
        return others
            .into_iter()
            .map(u32::from)
            .find(|&id| mask.is_allowed(id));
    }
    let kind = &kinds[draw(kinds.len())];
    Some(u32::from(kind[draw(kind.len())]))
}
