//! What follows a key or an item whose text isn't known.
//!
//! A token that goes on after a key of no name, or after an item of an array of distinct items, is
//! looked at together with all others that go on in the same way, whatever they begin with. What
//! follows is then taken as if that text were none of those that may come later. That allows too
//! much by one key or item at most, so mostly it can be told without the text what is allowed.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::formula::FormulaId;
use super::frame::{Frame, Place};
use super::programs::Programs;
use super::value::unquote;
use crate::lexical::{Fuel, Lexicon, OutOfFuel};

/// What can be said of a frame without the text of the key or item before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Unread {
    /// It may close at once, whatever the text was.
    pub(crate) closes: bool,
    /// As soon as infinitely many texts may complete the next key or item, one of them may follow,
    /// whatever the text before was: they differ from it but for one, and nothing else need follow.
    pub(crate) goes_on: bool,
    /// Infinitely many texts may begin the next item or be the next key.
    pub(crate) is_infinite: bool,
}

/// A key, or an item of an array of distinct items, as far as it is looked at to tell it from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Written {
    /// The first byte, one for all numbers.
    kind: u8,
    /// The sum of the hashes of all strings in it, and of how often each other kind occurs: equal values
    /// have equal ones, however they are spelled. `None` where a string can't be read.
    sum: Option<u64>,
}

impl Written {
    /// A key, from the text of its lexeme; `None` where that has none.
    pub(crate) fn key(lexeme: &[u8]) -> Option<Self> {
        let quote = lexeme.iter().position(|&byte| byte == b'"')?;
        Some(Self::item(&lexeme[quote..]))
    }

    /// An item, perhaps with what separates it from others.
    pub(crate) fn item(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let text = text.trim_start_matches([' ', '\t', '\n', '\r', ',']);
        Self {
            kind: text.bytes().next().map_or(0, kind_of),
            sum: sum_of(text),
        }
    }

    /// Whether both may be the same key, or equal items. False is certain.
    pub(crate) fn may_equal(&self, other: &Self) -> bool {
        let is_unknown = self.sum.is_none() || other.sum.is_none();
        self.kind == other.kind && (is_unknown || self.sum == other.sum)
    }
}

/// The kind of a value or sign by its first byte.
fn kind_of(first: u8) -> u8 {
    match first {
        b'-' | b'0'..=b'9' => b'0',
        other => other,
    }
}

/// See [`Written::sum`], of the first value of a text.
fn sum_of(text: &str) -> Option<u64> {
    let hash = |part: &dyn Fn(&mut DefaultHasher)| {
        let mut hasher = DefaultHasher::new();
        part(&mut hasher);
        hasher.finish()
    };
    let (mut at, mut depth, mut sum) = (0, 0_usize, 0_u64);
    while let Some(&byte) = text.as_bytes().get(at) {
        at += 1;
        match byte {
            b'"' => {
                let (string, length) = unquote(text.get(at - 1..)?).ok()?;
                at += length - 1;
                sum = sum.wrapping_add(hash(&|hasher| string.hash(hasher)));
            }
            b' ' | b'\t' | b'\n' | b'\r' | b',' | b':' => continue,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {
                let is_bracket = matches!(byte, b'[' | b'{');
                depth += usize::from(is_bracket);
                sum = sum.wrapping_add(hash(&|hasher| kind_of(byte).hash(hasher)));
                let is_scalar = |byte: &u8| !b" \t\n\r,:]}".contains(byte);
                if !is_bracket {
                    at += text.bytes().skip(at).take_while(is_scalar).count();
                }
            }
        }
        if depth == 0 {
            break;
        }
    }
    Some(sum)
}

impl Programs {
    /// Whether the short way to the end of a frame after a member or an item is known to write no
    /// keys of no name, and no items of an array of distinct ones.
    pub(crate) fn closes_without_texts(&self, frame: &Frame) -> bool {
        let closes = |formulas: &[FormulaId]| match *formulas {
            [only] => {
                let facts = self.logic.facts(only);
                facts.closes && !facts.has_repeated
            }
            _ => false,
        };
        match *frame {
            Frame::Object {
                object,
                place: Place::Next,
                count,
                ..
            } => match &self.plain[object.0 as usize] {
                None => closes(&self.object(object).rest),
                Some(_) if self.object_closes(frame, object, count) => true,
                Some(plain) => {
                    let at = self.at(frame);
                    let names = 0..self.plan(at.plan).num_names();
                    let required = names
                        .filter(|&name| plain.required[name as usize] && self.is_open(at, name));
                    count.saturating_add(required.count() as u32) >= plain.min
                }
            },
            Frame::Array {
                array,
                place: Place::Next | Place::Item,
                ..
            } => closes(self.arrays.get(array.0)),
            _ => false,
        }
    }

    /// Whether an array's items have to differ, or not all to, as far as its formulas say.
    pub(crate) fn is_of_distinct_items(&self, frame: &Frame) -> bool {
        let Frame::Array { array, .. } = *frame else {
            return false;
        };
        let formulas = self.arrays.get(array.0);
        formulas.iter().any(|&id| self.logic.facts(id).has_unique)
    }

    /// Whether an array might allow more after an item than without it: if items must repeat.
    pub(crate) fn may_widen(&self, frame: &Frame) -> bool {
        let Frame::Array { array, .. } = *frame else {
            return false;
        };
        let formulas = self.arrays.get(array.0);
        formulas.iter().any(|&id| self.logic.facts(id).has_repeated)
    }

    /// The frame after an item, as if it were equal to none that may follow.
    pub(crate) fn without_item(&self, frame: Frame) -> Frame {
        match frame {
            Frame::Array { array, style, .. } => Frame::Array {
                array,
                place: Place::Next,
                style,
            },
            other => other,
        }
    }

    /// What can be said of a frame that was made without the text before it, where `is_infinite` is
    /// known.
    ///
    /// Whether an array or object closes depends on no text. An array goes on with any item that
    /// is new where it closes after each. An object that asks for no further members by number or
    /// kind may do with its names.
    pub(crate) fn unread(
        &mut self,
        lexicon: &mut Lexicon,
        frame: &Frame,
        is_infinite: bool,
        fuel: &mut Fuel,
    ) -> Result<Unread, OutOfFuel> {
        Ok(match *frame {
            Frame::Array { array, style, .. } => {
                let spacing = self.style(style).spacing;
                let is_padded = lexicon.is_finite(spacing.comma);
                let closes = |programs: &Self, array: super::programs::ArrayId| {
                    let formulas = programs.arrays.get(array.0);
                    formulas.iter().any(|&id| programs.logic.facts(id).closes)
                };
                let items = self.items(lexicon, array, fuel)?;
                let rest = items.as_ref().map_or(&[][..], |items| &items.rest);
                Unread {
                    closes: closes(self, array),
                    goes_on: is_padded && rest.iter().all(|&rest| closes(self, rest)),
                    is_infinite,
                }
            }
            Frame::Object {
                object,
                count,
                style,
                ..
            } => {
                let spacing = self.style(style).spacing;
                let is_padded =
                    lexicon.is_finite(spacing.comma) && lexicon.is_finite(spacing.colon);
                let rest = &self.object(object).rest;
                let wants_members = rest.iter().any(|&id| self.logic.facts(id).wants_members);
                Unread {
                    closes: self.object_closes(frame, object, count),
                    goes_on: is_padded && !wants_members,
                    is_infinite,
                }
            }
            _ => Unread::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Written;

    #[test]
    fn equal_values_are_never_told_apart() {
        let equal = [
            [r#""é\n""#, r#" , "\u00e9\u000a" ]"#],
            ["1.0", "1,"],
            ["-0", "0.0e7]"],
            [
                r#"{"a":[1,"x"],"b":null}"#,
                r#"{ "b" : null, "\u0061":[1.0 , "x"]}, 7"#,
            ],
            ["[[],[{}]]", " [ [ ],[{ }]]"],
        ];
        for [one, other] in equal {
            let (one, other) = (
                Written::item(one.as_bytes()),
                Written::item(other.as_bytes()),
            );
            assert!(one.may_equal(&other), "{one:?} {other:?}");
        }
        let different = [
            "\"a\"",
            "\"b\"",
            "1",
            "[]",
            "[[]]",
            "{}",
            "null",
            "true",
            "{\"a\":1}",
            "{\"a\":{}}",
        ];
        for (at, one) in different.iter().enumerate() {
            for other in &different[at + 1..] {
                let (one, other) = (
                    Written::item(one.as_bytes()),
                    Written::item(other.as_bytes()),
                );
                assert!(!one.may_equal(&other), "{one:?} {other:?}");
            }
        }
        // A string that can't be read may be any.
        assert!(Written::item(b"\"\\ud800\"").may_equal(&Written::item(b"\"a\"")));
        assert_eq!(Written::key(b"}"), None);
        assert_eq!(Written::key(b" \"a\" :"), Some(Written::item(b"\"a\"")));
    }
}
