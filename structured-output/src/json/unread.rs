//! What follows a key or an item whose text isn't known.
//!
//! A token that goes on after a key of no name, or after an item of an array of distinct items, is
//! looked at together with all others that go on in the same way, whatever they begin with. What
//! follows is then taken as if that text were none of those that may come later. That allows too
//! much by one key or item at most, so mostly it can be told without the text what is allowed.

use super::formula::FormulaId;
use super::frame::{Frame, Place};
use super::programs::Programs;
use crate::lexical::{Fuel, Lexicon, Stop};

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
    ) -> Result<Unread, Stop> {
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
