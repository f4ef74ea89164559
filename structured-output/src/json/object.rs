//! Objects: how far one is, and which keys it may still have.
//!
//! An object's place is how far it is in its plan and what remains of its formulas. A *plain* object
//! keeps its formula as it is at the start.

use std::sync::Arc;

use super::formula::FormulaId;
use super::frame::{Frame, Place};
use super::live::WayMember;
use super::mark::mark_of_name;
use super::node::NodeId;
use super::plain::Plain;
use super::plan::PlanId;
use super::programs::Programs;
use super::seen::{NOTHING_SEEN, SeenId};
use super::value::unquote;
use crate::held::{allocated, shared};
use crate::lexical::search::FARTHEST;
use crate::lexical::{ExprId, Fuel, Lexicon, Stop};
use crate::options::PropertyOrder;

/// An interned [`Object`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct ObjectId(pub(super) u32);

/// What an object is to meet, a formula per goal. Of a plain one, all of it; of others, what
/// remains.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Object {
    pub(super) plan: PlanId,
    pub(super) rest: Box<[FormulaId]>,
}

/// How far an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ObjectAt {
    pub(super) plan: PlanId,
    pub(super) order: PropertyOrder,
    /// In the order of the schema, the number of the name up to which all are over; else a set of
    /// names that the object has.
    pub(super) done: u32,
    /// The other keys that it has.
    pub(super) seen: SeenId,
}

impl ObjectAt {
    /// Whether nothing was read, in the order of the schema.
    pub(super) fn is_start(self) -> bool {
        self.order == PropertyOrder::Schema && self.done == 0 && self.seen == NOTHING_SEEN
    }
}

impl Programs {
    /// An object at its start, in the order of the schema.
    pub(super) fn object_start(
        &mut self,
        lexicon: &mut Lexicon,
        formulas: &[FormulaId],
        fuel: &mut Fuel,
    ) -> Result<ObjectAt, Stop> {
        Ok(ObjectAt {
            plan: self.plan_of(lexicon, formulas, fuel)?,
            order: PropertyOrder::Schema,
            done: 0,
            seen: NOTHING_SEEN,
        })
    }

    pub(super) fn object_of(&mut self, plan: PlanId, rest: Box<[FormulaId]>) -> ObjectId {
        let bytes = rest.len() * size_of::<FormulaId>();
        let object = Object { plan, rest };
        let plain = self.plain_of(&object);
        let (id, is_new) = self.objects.intern(object, bytes);
        if is_new {
            self.bytes += plain.as_ref().map_or(0, |plain| {
                shared(size_of::<Plain>())
                    + allocated(plain.values.len() * size_of::<NodeId>())
                    + allocated(plain.required.len())
                    // `possible`, which comes later.
                    + allocated(plain.values.len())
            });
            self.plain.push(plain.map(Arc::new));
        }
        ObjectId(id)
    }

    /// Whether a name may still come.
    pub(super) fn is_open(&self, at: ObjectAt, name: u32) -> bool {
        match at.order {
            PropertyOrder::Schema => name >= at.done,
            PropertyOrder::Any => !is_in_set(self.done.get(at.done), name),
        }
    }

    /// The names of some members with which an object ends: as a set, or the first one in the order of the
    /// schema, if that is a name.
    pub(super) fn names_of(&mut self, at: ObjectAt, members: &[WayMember]) -> Option<u32> {
        let plan = self.plan(at.plan);
        let number_of = |key: &[u8]| {
            let text = String::from_utf8_lossy(key);
            let (key, _) = unquote(&text).ok()?;
            plan.number(&key)
        };
        if at.order == PropertyOrder::Schema {
            return members.first().and_then(|(key, _)| number_of(key));
        }
        let mut words: Vec<u64> = Vec::new();
        for (key, _) in members {
            if let Some(name) = number_of(key) {
                add_to_set(&mut words, name);
            }
        }
        let bytes = words.len() * 8;
        Some(self.done.intern(words.into(), bytes).0)
    }

    /// The names with which an object surely can go on whose members come in any order, as far as a way to
    /// its end was found: they may as well come in another order.
    pub(super) fn add_end_names(&self, at: ObjectAt, formula: FormulaId, names: &mut Vec<u64>) {
        if at.order == PropertyOrder::Any {
            self.add_names_on_way(at, formula, names);
        }
    }

    /// The marks of the names that the short way to the end of an object's frame has, ascending; `None`
    /// where keys are not what comes there.
    pub(crate) fn marks_on_way(
        &mut self,
        lexicon: &mut Lexicon,
        frame: &Frame,
        fuel: &mut Fuel,
    ) -> Result<Option<Vec<u16>>, Stop> {
        let Frame::Object {
            object,
            place: Place::Start | Place::Comma,
            ..
        } = *frame
        else {
            return Ok(None);
        };
        let at = self.at(frame);
        let names = 0..self.plan(at.plan).num_names();
        fuel.burn(u64::from(names.end) / 8)?;
        let is_on_way: Vec<u32> = match &self.plain[object.0 as usize] {
            Some(plain) => names
                .filter(|&name| plain.required[name as usize] && self.is_open(at, name))
                .collect(),
            None => {
                let mut words = Vec::new();
                for formula in self.object(object).rest.clone() {
                    self.object_cost(lexicon, at, formula, fuel)?;
                    self.add_names_on_way(at, formula, &mut words);
                }
                names.filter(|&name| is_in_set(&words, name)).collect()
            }
        };
        Ok(Some(is_on_way.into_iter().map(mark_of_name).collect()))
    }

    fn add_names_on_way(&self, mut at: ObjectAt, formula: FormulaId, names: &mut Vec<u64>) {
        if !self.logic.facts(formula).wants_members {
            at.seen = NOTHING_SEEN;
        }
        let Some(&known) = self.costs.end_names.get(&(at, formula)) else {
            return;
        };
        if at.order == PropertyOrder::Schema {
            add_to_set(names, known);
        } else {
            let known = self.done.get(known);
            names.resize(names.len().max(known.len()), 0);
            for (word, known) in names.iter_mut().zip(known) {
                *word |= known;
            }
        }
    }

    /// An object's place after a member with a name.
    pub(super) fn after_name(&mut self, at: ObjectAt, name: u32) -> ObjectAt {
        let done = match at.order {
            PropertyOrder::Schema => name + 1,
            PropertyOrder::Any => {
                let mut words = self.done.get(at.done).to_vec();
                add_to_set(&mut words, name);
                let bytes = words.len() * 8;
                self.done.intern(words.into(), bytes).0
            }
        };
        ObjectAt { done, ..at }
    }

    /// The keys of a class that an object doesn't have yet.
    pub(super) fn keys_of_class(
        &mut self,
        lexicon: &mut Lexicon,
        plan: PlanId,
        class: usize,
        seen: SeenId,
        fuel: &mut Fuel,
    ) -> Result<ExprId, Stop> {
        let plan = self.plan(plan);
        let (language, all_spellings) = (plan.classes[class], plan.is_free);
        if seen == NOTHING_SEEN {
            return Ok(language);
        }
        let spellings = self.seen.language(lexicon, seen, all_spellings, fuel)?;
        let unseen = lexicon.not(spellings);
        Ok(lexicon.and(&[language, unseen]))
    }

    /// A key of a class that an object doesn't have yet, as it is written, and the object's place
    /// with it.
    pub(super) fn fresh_key(
        &mut self,
        lexicon: &mut Lexicon,
        at: ObjectAt,
        class: usize,
        fuel: &mut Fuel,
    ) -> Result<Option<(Vec<u8>, ObjectAt)>, Stop> {
        let keys = self.keys_of_class(lexicon, at.plan, class, at.seen, fuel)?;
        if !lexicon.is_live(keys, fuel)? {
            return Ok(None);
        }
        let mut text = Vec::new();
        Self::write_shortest(lexicon, keys, &mut text, fuel)?;
        let Ok((key, _)) = unquote(&String::from_utf8_lossy(&text)) else {
            return Ok(None);
        };
        let done = match at.order {
            PropertyOrder::Schema => self.plan(at.plan).num_names(),
            PropertyOrder::Any => at.done,
        };
        let seen = self.seen.with(at.seen, &key);
        Ok(Some((text, ObjectAt { seen, done, ..at })))
    }

    /// Length of members and of the bracket after them.
    pub(super) fn cost_of_members(
        &mut self,
        lexicon: &mut Lexicon,
        members: &[WayMember],
        fuel: &mut Fuel,
    ) -> Result<u32, Stop> {
        let mut bytes = 1_u32;
        for (key, value) in members {
            let value = self.cost(lexicon, *value, fuel)?;
            let member = value.saturating_add(key.len() as u32 + 2);
            bytes = bytes.saturating_add(member).min(FARTHEST);
        }
        Ok(bytes)
    }
}

/// Adds a name to a set of them.
fn add_to_set(words: &mut Vec<u64>, name: u32) {
    let word = name as usize / 64;
    if words.len() <= word {
        words.resize(word + 1, 0);
    }
    words[word] |= 1 << (name % 64);
}

/// Whether a name is in a set of them.
pub(super) fn is_in_set(words: &[u64], name: u32) -> bool {
    let word = words.get(name as usize / 64).copied().unwrap_or(0);
    word >> (name % 64) & 1 == 1
}
