//! What follows where in an array or object.

use super::shape::{NOTHING_SEEN, Programs, SeenId, Shape, ShapeId};
use super::value::unquote;
use crate::lexical::search::DEAD;
use crate::lexical::{EMPTY, ExprId, Fuel, Lexicon, OutOfFuel};
use crate::pushdown::{Action, Expansion};

/// A place between the values of a JSON text. What it stands for is all that may come until the
/// frame is done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Frame {
    /// After the text.
    End { shape: ShapeId },
    /// Before the text.
    Root { shape: ShapeId },
    /// Before a member's value, after the colon.
    Value { shape: ShapeId },
    /// After `[`.
    ArrayStart { shape: ShapeId },
    /// After some items; counts are cut where more make no difference.
    ArrayNext { shape: ShapeId, items: u32 },
    /// After `{`.
    ObjectStart { shape: ShapeId },
    /// After a member; the properties before `property` are over.
    ObjectNext {
        shape: ShapeId,
        property: u32,
        seen: SeenId,
    },
}

/// Marks of lexemes: the same in every frame, so that lexemes are the same too.
const SCALAR: u16 = 0;
const OPEN_ARRAY: u16 = 1;
const OPEN_OBJECT: u16 = 2;
const CLOSE: u16 = 3;
/// That of a shape's first property; those of the others follow, then that of all other keys.
const FIRST_KEY: u16 = 4;

/// The most properties that a shape may name.
pub(super) const MAX_PROPERTIES: usize = 60_000;

impl Programs {
    /// Bytes of the shortest text of a frame; [`DEAD`] where there is none.
    pub(crate) fn min_bytes(&self, lexicon: &Lexicon, frame: &Frame) -> u32 {
        let min = |expr: ExprId| lexicon.min_bytes(expr);
        match *frame {
            Frame::End { .. } => 0,
            Frame::Root { shape } => self.shape(shape).min_bytes,
            Frame::Value { shape } => {
                let shape = self.shape(shape);
                min(shape.spacing.after_colon).saturating_add(shape.min_bytes)
            }
            Frame::ArrayStart { shape } => self.rest_of_array(lexicon, shape, None),
            Frame::ArrayNext { shape, items } => self.rest_of_array(lexicon, shape, Some(items)),
            Frame::ObjectStart { shape } => self.rest_of_object(lexicon, shape, 0, true),
            Frame::ObjectNext {
                shape, property, ..
            } => self.rest_of_object(lexicon, shape, property, false),
        }
    }

    /// The shortest rest of an array after some items, `None` for its start.
    fn rest_of_array(&self, lexicon: &Lexicon, id: ShapeId, items: Option<u32>) -> u32 {
        let shape = self.shape(id);
        let Some(array) = &shape.array else {
            return DEAD;
        };
        let comma = lexicon.min_bytes(shape.spacing.comma);
        let from = items.unwrap_or(0);
        let prefix = (array.prefix.len() as u32).min(array.min_items);
        let mut bytes = 1_u32;
        for item in from..prefix {
            bytes = bytes.saturating_add(self.item_bytes(id, item));
        }
        let further = array.min_items.saturating_sub(prefix.max(from));
        if further > 0 {
            let item = self.item_bytes(id, array.prefix.len() as u32);
            bytes = bytes.saturating_add(item.saturating_mul(further));
        }
        let left = array.min_items.saturating_sub(from);
        let commas = if items.is_none() {
            left.saturating_sub(1)
        } else {
            left
        };
        bytes.saturating_add(comma.saturating_mul(commas))
    }

    /// The shape of an item, if there may be one.
    fn item(&self, id: ShapeId, item: u32) -> Option<ShapeId> {
        let array = self.shape(id).array.as_ref()?;
        if array.max_items.is_some_and(|max| item >= max) {
            return None;
        }
        array.prefix.get(item as usize).copied().or(array.rest)
    }

    fn item_bytes(&self, id: ShapeId, item: u32) -> u32 {
        self.item(id, item)
            .map_or(DEAD, |item| self.shape(item).min_bytes)
    }

    /// The shortest rest of an object: its required properties from one on.
    fn rest_of_object(&self, lexicon: &Lexicon, id: ShapeId, property: u32, at_start: bool) -> u32 {
        let shape = self.shape(id);
        let Some(object) = &shape.object else {
            return DEAD;
        };
        let spacing = &shape.spacing;
        let comma = lexicon.min_bytes(spacing.comma);
        let colon = lexicon.min_bytes(spacing.colon) + lexicon.min_bytes(spacing.after_colon);
        let mut bytes = 1_u32;
        let mut members = 0_u32;
        for property in object.properties.iter().skip(property as usize) {
            if property.required {
                members += 1;
                bytes = bytes
                    .saturating_add(lexicon.min_bytes(property.key))
                    .saturating_add(colon)
                    .saturating_add(self.shape(property.shape).min_bytes);
            }
        }
        let commas = if at_start {
            members.saturating_sub(1)
        } else {
            members
        };
        bytes.saturating_add(comma.saturating_mul(commas))
    }

    /// The lexemes of a frame and what follows them.
    pub(crate) fn expand(
        &self,
        lexicon: &mut Lexicon,
        frame: &Frame,
        fuel: &mut Fuel,
    ) -> Result<Expansion, OutOfFuel> {
        let plain = |entry, actions| Expansion {
            entry,
            actions,
            keeps_key: false,
        };
        Ok(match *frame {
            Frame::End { shape } => plain(self.shape(shape).spacing.outer, Vec::new()),
            Frame::Root { shape } => {
                let outer = self.shape(shape).spacing.outer;
                let (value, actions) = self.value(lexicon, shape, None);
                plain(lexicon.concat(outer, value), actions)
            }
            Frame::Value { shape } => {
                let pad = self.shape(shape).spacing.after_colon;
                let (value, actions) = self.value(lexicon, shape, None);
                plain(lexicon.concat(pad, value), actions)
            }
            Frame::ArrayStart { shape } => self.array(lexicon, shape, None),
            Frame::ArrayNext { shape, items } => self.array(lexicon, shape, Some(items)),
            Frame::ObjectStart { shape } => {
                self.object(lexicon, shape, 0, NOTHING_SEEN, true, fuel)?
            }
            Frame::ObjectNext {
                shape,
                property,
                seen,
            } => self.object(lexicon, shape, property, seen, false, fuel)?,
        })
    }

    /// A value's first lexeme; after the value comes `next`.
    fn value(
        &self,
        lexicon: &mut Lexicon,
        id: ShapeId,
        next: Option<Frame>,
    ) -> (ExprId, Vec<(u16, Action)>) {
        let shape = self.shape(id);
        let frames = |last: Option<Frame>| Action::Replace(next.into_iter().chain(last).collect());
        let mut ways = vec![lexicon.marked(shape.scalars, SCALAR)];
        let mut actions = vec![(SCALAR, frames(None))];
        let brackets = [
            (b"[", OPEN_ARRAY, Frame::ArrayStart { shape: id }),
            (b"{", OPEN_OBJECT, Frame::ObjectStart { shape: id }),
        ];
        for (bracket, mark, frame) in brackets {
            if self.min_bytes(lexicon, &frame) != DEAD {
                let bracket = lexicon.literal(bracket);
                ways.push(lexicon.marked(bracket, mark));
                actions.push((mark, frames(Some(frame))));
            }
        }
        (lexicon.or(&ways), actions)
    }

    fn array(&self, lexicon: &mut Lexicon, id: ShapeId, items: Option<u32>) -> Expansion {
        let Shape { spacing, array, .. } = self.shape(id);
        let spacing = *spacing;
        let count = items.unwrap_or(0);
        let mut entry = EMPTY;
        let mut actions = Vec::new();
        if let Some(array) = array {
            // Beyond this, one more item makes no difference.
            let most = (array.prefix.len() as u32)
                .max(array.min_items)
                .max(array.max_items.unwrap_or(0));
            let next = Frame::ArrayNext {
                shape: id,
                items: count.saturating_add(1).min(most),
            };
            let item = self.item(id, count).filter(|item| {
                let rest = self.min_bytes(lexicon, &next);
                self.shape(*item).min_bytes != DEAD && rest != DEAD
            });
            if let Some(item) = item {
                (entry, actions) = self.value(lexicon, item, Some(next));
            }
            let close = lexicon.literal(b"]");
            let close = lexicon.marked(close, CLOSE);
            let may_close = count >= array.min_items;
            let close = if may_close { close } else { EMPTY };
            actions.push((CLOSE, Action::Replace(Vec::new())));
            entry = match items {
                None => {
                    let first = lexicon.or(&[entry, close]);
                    lexicon.concat(spacing.inner, first)
                }
                Some(_) => {
                    let more = lexicon.concat(spacing.comma, entry);
                    let close = lexicon.concat(spacing.inner, close);
                    lexicon.or(&[more, close])
                }
            };
        }
        Expansion {
            entry,
            actions,
            keeps_key: false,
        }
    }

    fn object(
        &self,
        lexicon: &mut Lexicon,
        id: ShapeId,
        property: u32,
        seen: SeenId,
        at_start: bool,
        fuel: &mut Fuel,
    ) -> Result<Expansion, OutOfFuel> {
        let Shape {
            spacing, object, ..
        } = self.shape(id);
        let spacing = *spacing;
        let Some(object) = object else {
            return Ok(Expansion {
                entry: EMPTY,
                actions: Vec::new(),
                keeps_key: false,
            });
        };
        let mut keys = Vec::new();
        let mut actions = vec![(CLOSE, Action::Replace(Vec::new()))];
        // Properties come in their order: a required one can't be passed over.
        let mut passed = true;
        for (index, member) in object.properties.iter().enumerate().skip(property as usize) {
            fuel.burn(1)?;
            let next = Frame::ObjectNext {
                shape: id,
                property: index as u32 + 1,
                seen,
            };
            let value = Frame::Value {
                shape: member.shape,
            };
            let possible = self.shape(member.shape).min_bytes != DEAD
                && self.min_bytes(lexicon, &next) != DEAD;
            if possible {
                let mark = FIRST_KEY + index as u16;
                let end = lexicon.marked(spacing.colon, mark);
                keys.push(lexicon.concat(member.key, end));
                actions.push((mark, Action::Replace(vec![next, value])));
            }
            if member.required {
                passed = false;
                break;
            }
        }
        let other = object
            .additional
            .filter(|other| passed && self.shape(*other).min_bytes != DEAD);
        if let Some(other) = other {
            let mark = FIRST_KEY + object.properties.len() as u16;
            let mut language = object.other_keys;
            if seen != NOTHING_SEEN {
                let mut spellings = Vec::new();
                for key in &self.seen[seen.0 as usize - 1] {
                    fuel.burn(1 + key.len() as u64)?;
                    spellings.push(lexicon.json_string(key, true));
                }
                let spellings = lexicon.or(&spellings);
                let unseen = lexicon.not(spellings);
                language = lexicon.and(&[language, unseen]);
            }
            let end = lexicon.marked(spacing.colon, mark);
            keys.push(lexicon.concat(language, end));
            let next = Frame::ObjectNext {
                shape: id,
                property: object.properties.len() as u32,
                seen,
            };
            let value = Frame::Value { shape: other };
            actions.push((mark, Action::Member { next, value }));
        }
        let keys = lexicon.or(&keys);
        let close = if passed { lexicon.literal(b"}") } else { EMPTY };
        let close = lexicon.marked(close, CLOSE);
        let entry = if at_start {
            let first = lexicon.or(&[keys, close]);
            lexicon.concat(spacing.inner, first)
        } else {
            let more = lexicon.concat(spacing.comma, keys);
            let close = lexicon.concat(spacing.inner, close);
            lexicon.or(&[more, close])
        };
        Ok(Expansion {
            entry,
            actions,
            keeps_key: other.is_some(),
        })
    }

    /// The frame after a member with a key of its own, from the text of the key's lexeme: white
    /// space, perhaps a comma, the key in quotes, white space, a colon.
    pub(crate) fn after_key(&mut self, next: Frame, lexeme: &[u8]) -> Frame {
        let text = String::from_utf8_lossy(lexeme);
        let quoted = text.find('"').map(|start| &text[start..]);
        let key = quoted.and_then(|quoted| unquote(quoted).ok());
        match (next, key) {
            (
                Frame::ObjectNext {
                    shape,
                    property,
                    seen,
                },
                Some((key, _)),
            ) => Frame::ObjectNext {
                shape,
                property,
                seen: self.with_seen(seen, key),
            },
            (next, _) => next,
        }
    }

    /// A set of seen keys with one more.
    fn with_seen(&mut self, seen: SeenId, key: String) -> SeenId {
        let mut keys = match (seen.0 as usize).checked_sub(1) {
            Some(at) => self.seen[at].clone(),
            None => Vec::new(),
        };
        if let Err(at) = keys.binary_search(&key) {
            keys.insert(at, key);
        }
        if let Some(&known) = self.seen_ids.get(&keys) {
            return known;
        }
        self.seen.push(keys.clone());
        let id = SeenId(self.seen.len() as u32);
        self.seen_ids.insert(keys, id);
        id
    }
}
