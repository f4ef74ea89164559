//! Members of objects: which keys may come next, and what follows each.

use std::sync::Arc;

use hashbrown::HashMap;

use super::derive::Event;
use super::formula::{FALSE, FormulaId};
use super::frame::{Frame, Place};
use super::live::DEAD;
use super::mark::FIRST_KEY;
use super::node::{NodeId, OPERANDS_PER_STEP};
use super::object::{ObjectAt, ObjectId, is_in_set};
use super::plain::Plain;
use super::plan::PlanId;
use super::programs::{GoalsId, Programs};
use super::style::StyleId;
use crate::held::shared;
use crate::lexical::{EMPTY, ExprId, Fuel, Lexicon, Stop};
use crate::options::PropertyOrder;

/// What follows a key.
pub(super) struct Members {
    /// What the value may be.
    pub(super) goals: GoalsId,
    /// By goal, the frame after it.
    pub(super) next: Vec<Frame>,
    pub(super) style: StyleId,
}

/// Of an object that isn't plain: what the value of a key may be, and what remains by goal.
pub(super) type Values = Option<(GoalsId, Arc<[ObjectId]>)>;

impl Programs {
    /// The keys that may come next in an object, the first `at_most` of them: numbers of names,
    /// ascending, then of classes.
    pub(super) fn next_keys(
        &mut self,
        lexicon: &mut Lexicon,
        frame: &Frame,
        at_most: usize,
        fuel: &mut Fuel,
    ) -> Result<Vec<u32>, Stop> {
        let Frame::Object { object, count, .. } = *frame else {
            return Ok(Vec::new());
        };
        let at = self.at(frame);
        let Some(plain) = self.plain[object.0 as usize].clone() else {
            return self.keys_of(lexicon, at, object, at_most, fuel);
        };
        if plain.max.is_some_and(|max| count >= max) {
            return Ok(Vec::new());
        }
        if at_most == usize::MAX && at.order == PropertyOrder::Any {
            self.note_possible(lexicon, &plain, fuel)?;
        }
        let num_names = self.plan(at.plan).num_names();
        let first = match at.order {
            PropertyOrder::Schema => at.done,
            PropertyOrder::Any => 0,
        };
        let mut keys = Vec::new();
        let possible = plain.possible.get();
        for key in first..plain.values.len() as u32 {
            fuel.burn(1)?;
            let is_name = key < num_names;
            if is_name && !self.is_open(at, key) {
                continue;
            }
            let mut is_possible = match possible {
                Some(possible) => possible[key as usize],
                None => self.cost(lexicon, plain.values[key as usize], fuel)? != DEAD,
            };
            if is_possible && plain.counts() {
                let after = self.after(lexicon, at, key, fuel)?;
                is_possible = match after {
                    Some(after) => {
                        self.plain_can_end(lexicon, after, &plain, count.saturating_add(1), fuel)?
                    }
                    None => false,
                };
            }
            if is_possible {
                keys.push(key);
            }
            let is_last = is_name && at.order == PropertyOrder::Schema;
            if keys.len() >= at_most || (is_last && plain.required[key as usize]) {
                break;
            }
        }
        Ok(keys)
    }

    /// An object's place after a member; with a key of a class, that of some key.
    fn after(
        &mut self,
        lexicon: &mut Lexicon,
        at: ObjectAt,
        key: u32,
        fuel: &mut Fuel,
    ) -> Result<Option<ObjectAt>, Stop> {
        let num_names = self.plan(at.plan).num_names();
        if key < num_names {
            return Ok(Some(self.after_name(at, key)));
        }
        let fresh = self.fresh_key(lexicon, at, (key - num_names) as usize, fuel)?;
        Ok(fresh.map(|fresh| fresh.1))
    }

    /// What follows a key of a frame.
    pub(super) fn member(
        &mut self,
        lexicon: &mut Lexicon,
        frame: &Frame,
        key: u32,
        fuel: &mut Fuel,
    ) -> Result<Option<Members>, Stop> {
        let Frame::Object {
            object,
            seen,
            count,
            style,
            ..
        } = *frame
        else {
            return Ok(None);
        };
        let at = self.at(frame);
        let num_names = self.plan(at.plan).num_names();
        let after = match key < num_names {
            true => self.after_name(at, key),
            // Names are over in the order of the schema; the key is added when it is known.
            false if at.order == PropertyOrder::Schema => ObjectAt {
                done: num_names,
                ..at
            },
            false => at,
        };
        let next = |object: ObjectId, count: u32| Frame::Object {
            object,
            place: Place::Next,
            done: after.done,
            seen,
            count,
            style,
        };
        if let Some(plain) = self.plain[object.0 as usize].clone() {
            let goals = self.goals_of(&[plain.values[key as usize]]);
            let next = vec![next(object, next_count(&plain, count))];
            return Ok(Some(Members { goals, next, style }));
        }
        let Some((goals, rest)) = self.values(lexicon, at, object, key, fuel)? else {
            return Ok(None);
        };
        Ok(Some(Members {
            goals,
            next: rest.iter().map(|&object| next(object, 0)).collect(),
            style,
        }))
    }

    /// The keys that may come next in an object that isn't plain.
    fn keys_of(
        &mut self,
        lexicon: &mut Lexicon,
        at: ObjectAt,
        object: ObjectId,
        at_most: usize,
        fuel: &mut Fuel,
    ) -> Result<Vec<u32>, Stop> {
        let plan = at.plan;
        let mut formulas = self.object(object).rest.to_vec();
        let num_names = self.plan(plan).num_names();
        let num_keys = num_names + self.plan(plan).classes.len() as u32;
        // Names that lead to an end that is known.
        let mut possible = Vec::new();
        if at.order == PropertyOrder::Any {
            for &formula in &formulas {
                self.object_cost(lexicon, at, formula, fuel)?;
                self.add_end_names(at, formula, &mut possible);
            }
        }
        let mut keys = Vec::new();
        for key in 0..num_keys {
            fuel.burn(1)?;
            if key < num_names && !self.is_open(at, key) {
                continue;
            }
            let is_known = key < num_names && is_in_set(&possible, key);
            if is_known || self.is_possible(lexicon, at, &formulas, key, &mut possible, fuel)? {
                keys.push(key);
            }
            if keys.len() >= at_most {
                break;
            }
            if key < num_names && at.order == PropertyOrder::Schema {
                // Passed over, it can't come any more.
                for formula in &mut formulas {
                    *formula = self.derive(*formula, Event::Without(plan, key), fuel)?;
                }
                if formulas.iter().all(|&formula| formula == FALSE) {
                    break;
                }
            }
        }
        Ok(keys)
    }

    /// Whether a key may come next in an object that isn't plain. Adds names that may come as well.
    fn is_possible(
        &mut self,
        lexicon: &mut Lexicon,
        at: ObjectAt,
        formulas: &[FormulaId],
        key: u32,
        possible: &mut Vec<u64>,
        fuel: &mut Fuel,
    ) -> Result<bool, Stop> {
        let num_names = self.plan(at.plan).num_names();
        let mut is_good =
            |programs: &mut Self, lexicon: &mut Lexicon, rest: &[FormulaId], fuel: &mut Fuel| {
                let after = programs.after_with(lexicon, at, key, rest, fuel)?;
                let Some(after) = after else {
                    return Ok(false);
                };
                for &formula in rest {
                    if programs.object_cost(lexicon, after, formula, fuel)? != DEAD {
                        // What ends the object after this member may as well come before it.
                        if key < num_names {
                            programs.add_end_names(after, formula, possible);
                        }
                        return Ok(true);
                    }
                }
                Ok(false)
            };
        // Each by itself: what several become together would be looked at for each set of values.
        for &formula in formulas.iter().filter(|&&formula| formula != FALSE) {
            let event = Event::Key(at.plan, key);
            if self.has_outcome(lexicon, &[formula], event, fuel, &mut is_good)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// An object's place after a member, where some formulas remain.
    fn after_with(
        &mut self,
        lexicon: &mut Lexicon,
        at: ObjectAt,
        key: u32,
        rest: &[FormulaId],
        fuel: &mut Fuel,
    ) -> Result<Option<ObjectAt>, Stop> {
        let num_names = self.plan(at.plan).num_names();
        // Which other key it was matters only where more of them are to come.
        let wants = |&id: &FormulaId| self.logic.facts(id).wants_members;
        if key < num_names || rest.iter().any(wants) {
            return self.after(lexicon, at, key, fuel);
        }
        let done = match at.order {
            PropertyOrder::Schema => num_names,
            PropertyOrder::Any => at.done,
        };
        Ok(Some(ObjectAt { done, ..at }))
    }

    /// What the value of a key may be, and by goal what remains. `None` where there may be none.
    fn values(
        &mut self,
        lexicon: &mut Lexicon,
        at: ObjectAt,
        object: ObjectId,
        key: u32,
        fuel: &mut Fuel,
    ) -> Result<Values, Stop> {
        if let Some(known) = self.values_of.get(&(at, object, key)) {
            return Ok(known.clone());
        }
        let plan = at.plan;
        let mut formulas = self.object(object).rest.to_vec();
        let num_names = self.plan(plan).num_names();
        if at.order == PropertyOrder::Schema {
            // Names that are passed over can't come any more.
            for name in at.done..key.min(num_names) {
                for formula in &mut formulas {
                    *formula = self.derive(*formula, Event::Without(plan, name), fuel)?;
                }
            }
        }
        let event = Event::Key(plan, key);
        let joint = self.joint_outcomes(lexicon, &formulas, event, Some((at, key)), fuel)?;
        let outcomes = match joint {
            Some(joint) => joint,
            None => self.outcomes(lexicon, &formulas, event, fuel)?,
        };
        let mut found: Vec<(Box<[FormulaId]>, Vec<NodeId>)> = Vec::new();
        let mut index: HashMap<Box<[FormulaId]>, usize> = HashMap::new();
        for outcome in outcomes.iter() {
            if self.cost(lexicon, outcome.value, fuel)? == DEAD {
                continue;
            }
            let after = self.after_with(lexicon, at, key, &outcome.rest, fuel)?;
            let Some(after) = after else {
                continue;
            };
            let mut rest = Vec::with_capacity(formulas.len());
            fuel.burn(formulas.len() as u64 / OPERANDS_PER_STEP)?;
            for &formula in &outcome.rest {
                let cost = self.object_cost(lexicon, after, formula, fuel)?;
                rest.push(if cost == DEAD { FALSE } else { formula });
            }
            if rest.iter().all(|&formula| formula == FALSE) {
                continue;
            }
            let rest: Box<[FormulaId]> = rest.into();
            match index.get(&rest) {
                Some(&known) => found[known].1.push(outcome.value),
                None => {
                    index.insert(rest.clone(), found.len());
                    found.push((rest, vec![outcome.value]));
                }
            }
        }
        let mut goals = Vec::with_capacity(found.len());
        let mut objects = Vec::with_capacity(found.len());
        for (rest, values) in found {
            goals.push(self.logic.nodes.any_of(&values));
            objects.push(self.object_of(plan, rest));
        }
        self.bytes += shared(objects.len() * size_of::<ObjectId>());
        let values = match goals.is_empty() {
            true => None,
            false => Some((self.goals_of(&goals), objects.into())),
        };
        self.values_of.insert((at, object, key), values.clone());
        Ok(values)
    }

    /// Some names after their opening quote, each with a colon and the name's mark. Costs a step each.
    pub(super) fn keys_to_colon(
        &mut self,
        lexicon: &mut Lexicon,
        plan: PlanId,
        names: &[u32],
        colon: ExprId,
        fuel: &mut Fuel,
    ) -> Result<Vec<ExprId>, Stop> {
        let mut ways = Vec::with_capacity(names.len() + 1);
        if names.is_empty() {
            return Ok(ways);
        }
        let mut known = match self.key_lexemes.get_mut(&(plan, colon)) {
            Some(known) => std::mem::take(known),
            None => {
                let known = vec![EMPTY; self.plan(plan).num_names() as usize];
                self.bytes += size_of_val(&*known);
                known
            }
        };
        let mut made = Ok(());
        for &name in names {
            made = fuel.burn(1);
            let lexeme = &mut known[name as usize];
            if made.is_ok() && *lexeme == EMPTY {
                let end = lexicon.marked(colon, FIRST_KEY + name as u16);
                let key = lexicon.concat(self.plan(plan).key(name), end);
                match lexicon.derivative(key, b'"', fuel) {
                    Ok(after) => *lexeme = after,
                    Err(out) => made = Err(out),
                }
            }
            if made.is_err() {
                break;
            }
            ways.push(*lexeme);
        }
        self.key_lexemes.insert((plan, colon), known);
        made.map(|()| ways)
    }
}

/// The number of members after one more, cut where more make no difference.
fn next_count(plain: &Plain, count: u32) -> u32 {
    if !plain.counts() {
        return 0;
    }
    let most = plain.min.max(plain.max.unwrap_or(0));
    count.saturating_add(1).min(most)
}
