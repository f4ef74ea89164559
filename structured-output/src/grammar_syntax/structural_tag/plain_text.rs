//! A tag's content that is free text and nothing else: it goes on to the first of the tag's ends.

use super::super::Words;
use super::super::ast::{NodeId, NodeKind, RuleBuilder};
use super::fields::{Fields, refuse};
use super::{Ends, Parser, TagError, at};
use crate::json::Value;

/// What it counts to look for one end of a bounded text in another.
const PARTS_PER_PAIR: usize = 4;

/// Free text that is all of a tag's content.
pub(super) struct PlainText {
    /// What it must not contain.
    pub(super) excludes: Vec<Box<str>>,
    /// Whether its length has a bound.
    pub(super) is_bounded: bool,
}

impl Parser<'_> {
    /// Whether in a tag's text, followed by its end, something that ends it or must not be in it may
    /// end before that end does.
    pub(super) fn overlaps(
        &mut self,
        text: &PlainText,
        ends: &Ends,
        pointer: &str,
    ) -> Result<bool, TagError> {
        let others = [&ends.texts[..], &text.excludes].concat();
        // Each is looked for in each.
        let parts = (ends.texts.len() * others.len()).saturating_mul(PARTS_PER_PAIR);
        let charged = self.grammar.charge(parts, 0, self.limits);
        charged.map_err(|error| at(pointer, error))?;
        let mut ends = ends.texts.iter();
        Ok(ends.any(|end| before(end, &others).is_none_or(|before| !before.is_empty())))
    }

    /// Text with a bound on its length up to the first of some strings, that included.
    pub(super) fn bounded_text(
        &mut self,
        content: &Value,
        pointer: &str,
        text: &PlainText,
        ends: &Ends,
        rule: &mut RuleBuilder,
    ) -> Result<NodeId, TagError> {
        if Fields::new(content, pointer)?
            .optional("max_tokens")
            .is_some()
        {
            return refuse(
                pointer,
                "text with `max_tokens` can't be in a tag whose `end` may begin within another, or \
                 within itself: use `max_chars`, or an `end` that doesn't",
            );
        }
        let others = [&ends.texts[..], &text.excludes].concat();
        let content = self.part(content, pointer, ends, rule)?;
        let mut ways = Vec::with_capacity(ends.texts.len());
        for end in ends.texts.iter() {
            let Some(before) = before(end, &others) else {
                continue;
            };
            let mut text = content;
            if !before.is_empty() {
                let any = rule.push(0, NodeKind::TextWithout(Words::default()));
                let before = before
                    .into_iter()
                    .map(|beginning| rule.push(0, NodeKind::Literal(beginning)))
                    .collect();
                let before = rule.alternate(0, before);
                let ending = rule.concat(0, vec![any, before]);
                let other = rule.push(0, NodeKind::Not(ending));
                text = rule.push(0, NodeKind::And(vec![content, other]));
            }
            let pieces = self.grammar.pieces(end);
            let end = rule.pieces(0, &pieces);
            ways.push(rule.concat(0, vec![text, end]));
        }
        Ok(rule.alternate(0, ways))
    }
}

/// Where a tag's content is free text and nothing else, up to strings: that text.
pub(super) fn plain_text(content: &Value, ends: &Ends) -> Option<PlainText> {
    let Value::Object(members) = content else {
        return None;
    };
    if ends.texts.is_empty() {
        return None;
    }
    let mut text = PlainText {
        excludes: Vec::new(),
        is_bounded: false,
    };
    for (name, value) in members.iter() {
        match (name.as_str(), value) {
            ("type", Value::String(kind)) if kind == "any_text" => {}
            ("excludes", Value::Array(items)) => {
                for item in items.iter() {
                    match item {
                        Value::String(exclude) if !exclude.is_empty() => {
                            text.excludes.push(exclude.as_str().into());
                        }
                        _ => return None,
                    }
                }
            }
            ("max_chars" | "max_tokens", Value::Number(_)) => text.is_bounded = true,
            (_, Value::Null) => {}
            _ => return None,
        }
    }
    (members.iter().any(|member| member.0 == "type")).then_some(text)
}

/// What text must not end with before an end, lest an earlier place end one of the others: `None`
/// where one of them ends within that end itself.
fn before(end: &str, others: &[Box<str>]) -> Option<Vec<Box<str>>> {
    let mut beginnings = Vec::new();
    for other in others {
        let inside = end.match_indices(&**other);
        if inside
            .into_iter()
            .any(|(at, _)| at + other.len() < end.len())
        {
            return None;
        }
        for (at, _) in other.char_indices().skip(1) {
            if other.len() - at < end.len() && end.starts_with(&other[at..]) {
                beginnings.push(other[..at].into());
            }
        }
    }
    Some(beginnings)
}
