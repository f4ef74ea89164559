//! Strings of which several schemas say different things, before it is known which of these count.
//!
//! With `anyOf` of objects that have a `value` and a `type`, and a text that begins with the value, what
//! the value may be is one language for each branch. To tell these apart before what follows
//! (see `ways`) is to make the intersection of each set of them with the complements of the others,
//! and to find out which have strings. That is not needed: the formula is a union of ways, each a
//! language and what remains under it. These may overlap. Each language is an alternative of the
//! lexeme with a mark of its own, and where the string ends with several marks, what remains is the
//! union of what remains under each. So a mask is put together from those of the single languages,
//! which other grammars may know already, and no product of them is ever looked at; but for the strings
//! that are read.
//!
//! The union is found by writing the formula out, as far as that makes hardly more ways than there are
//! conditions. Where it makes more, as with `if` and `then` or `oneOf`, it is first told apart by the
//! assertions about a member that comes later and which no two of them can meet: those about a constant.

use std::sync::Arc;

use hashbrown::HashMap;

use super::derive::Event;
use super::formula::{FALSE, Formula, FormulaId, MAX_DEPTH, TRUE};
use super::frame::Frame;
use super::mark::goal_of;
use super::node::{Kinds, Node, NodeId};
use super::object::ObjectAt;
use super::programs::Programs;
use super::relation::Relation;
use super::shape::Spellings;
use super::ways::Outcome;
use crate::held::allocated;
use crate::lexical::{ExprId, Fuel, Lexicon, OutOfFuel};

/// Fewer languages than this are told apart.
const FEW_LANGUAGES: usize = 3;

/// More ways than this are not written out.
const MAX_WAYS: usize = 600;

/// A language of the next value, as conditions that it is to meet, and what remains of the formula.
#[derive(Clone)]
struct Way {
    values: Vec<NodeId>,
    rest: FormulaId,
}

impl Programs {
    /// What a formula becomes by a member, as ways that may overlap where its value is a string; others are
    /// told apart. `None` where it says too little of strings for that, or it can't be told so.
    pub(super) fn joint_outcomes(
        &mut self,
        lexicon: &mut Lexicon,
        at: ObjectAt,
        formulas: &[FormulaId],
        key: u32,
        fuel: &mut Fuel,
    ) -> Result<Option<Arc<[Outcome]>>, OutOfFuel> {
        let &[formula] = formulas else {
            return Ok(None);
        };
        let derived = self.derive(formula, Event::Key(at.plan, key), fuel)?;
        if !self.logic.facts(derived).has_value {
            return Ok(None);
        }
        let strings = self.logic.nodes.kinds(Kinds::STRING);
        let of_strings = self.under(lexicon, strings, derived, fuel)?;
        if self.num_languages(lexicon, of_strings, fuel)? < FEW_LANGUAGES {
            return Ok(None);
        }
        let Some(ways) = self.union(lexicon, (at, key), of_strings, fuel)? else {
            return Ok(None);
        };
        let mut outcomes = Vec::with_capacity(ways.len());
        for Way { mut values, rest } in ways {
            fuel.burn(1)?;
            values.insert(0, strings);
            outcomes.push(Outcome {
                value: self.logic.nodes.all_of(&values),
                rest: [rest].into(),
            });
        }
        let others = self.logic.nodes.kinds(Kinds::STRING.complement());
        let of_others = self.under(lexicon, others, derived, fuel)?;
        if of_others != FALSE {
            outcomes.extend(self.split(lexicon, others, vec![of_others], fuel)?);
        }
        Ok(Some(outcomes.into()))
    }

    /// A formula where it is plain of some conditions whether they hold of all values of a node.
    fn under(
        &mut self,
        lexicon: &mut Lexicon,
        node: NodeId,
        formula: FormulaId,
        fuel: &mut Fuel,
    ) -> Result<FormulaId, OutOfFuel> {
        let mut truths = HashMap::new();
        for condition in self.logic.values(&[formula], fuel)? {
            fuel.burn(1)?;
            let truth = match self.relation(lexicon, node, condition, fuel)? {
                Relation::Within => true,
                Relation::Apart => false,
                Relation::Partly | Relation::Unknown => continue,
            };
            truths.insert(condition, truth);
        }
        let assumed = self.assume(&[formula], &truths, fuel)?;
        Ok(assumed.first().copied().unwrap_or(formula))
    }

    /// How many languages of strings a formula speaks of that are no lists.
    fn num_languages(
        &mut self,
        lexicon: &mut Lexicon,
        formula: FormulaId,
        fuel: &mut Fuel,
    ) -> Result<usize, OutOfFuel> {
        let mut languages: Vec<ExprId> = Vec::new();
        for condition in self.logic.values(&[formula], fuel)? {
            fuel.burn(1)?;
            let node = match *self.logic.nodes.node(condition) {
                Node::Not(inner) => inner,
                _ => condition,
            };
            if let Spellings::Only(language) = self.shape(lexicon, node, fuel)?.string
                && self.listed(lexicon, language, fuel)?.is_none()
            {
                languages.push(language);
            }
        }
        Ok(Self::each_once(languages.into_iter()).len())
    }

    /// A formula as a union of ways; `None` where these are many.
    fn union(
        &mut self,
        lexicon: &mut Lexicon,
        member: (ObjectAt, u32),
        formula: FormulaId,
        fuel: &mut Fuel,
    ) -> Result<Option<Vec<Way>>, OutOfFuel> {
        let num_conditions = self.logic.values(&[formula], fuel)?.len();
        let at_most = (num_conditions + 2).min(MAX_WAYS);
        if let Some(ways) = self.written_out(formula, at_most, fuel)? {
            return Ok((!self.logic.take_too_deep()).then_some(ways));
        }
        let Some(telling) = self.telling(lexicon, member, formula, fuel)? else {
            return Ok(None);
        };
        let mut ways = Vec::new();
        for (is_there, known) in [(true, TRUE), (false, FALSE)] {
            let literal = self.logic.literal(telling.has, is_there);
            let rest = self.with_leaves(
                formula,
                &|node| (node == telling.has).then_some(known),
                fuel,
            )?;
            let cases = match is_there {
                true => self.cases(rest, &telling.groups, fuel)?,
                false => vec![rest],
            };
            for case in cases {
                let case = self.logic.all(&[literal, case]);
                let Some(more) = self.written_out(case, at_most, fuel)? else {
                    return Ok(None);
                };
                ways.extend(more);
                if ways.len() > MAX_WAYS {
                    return Ok(None);
                }
            }
        }
        // What is too deep was left out.
        Ok((!self.logic.take_too_deep()).then_some(ways))
    }

    /// A formula as a union of ways, at most so many, where it is written out.
    fn written_out(
        &mut self,
        formula: FormulaId,
        at_most: usize,
        fuel: &mut Fuel,
    ) -> Result<Option<Vec<Way>>, OutOfFuel> {
        fuel.burn(1)?;
        let (list, is_all) = match self.logic.formula(formula) {
            _ if !self.logic.facts(formula).has_value => {
                let only = Way {
                    values: Vec::new(),
                    rest: formula,
                };
                return Ok(Some(if formula == FALSE {
                    Vec::new()
                } else {
                    vec![only]
                }));
            }
            Formula::Value(node) => {
                let only = Way {
                    values: vec![*node],
                    rest: TRUE,
                };
                return Ok(Some(vec![only]));
            }
            Formula::All(list) => (list.clone(), true),
            Formula::Any(list) => (list.clone(), false),
            _ => return Ok(None),
        };
        fuel.burn(list.len() as u64)?;
        // Those that say nothing of the value stay together.
        let speaks = |id: &FormulaId| self.logic.facts(*id).has_value;
        let (speaking, others): (Vec<FormulaId>, Vec<FormulaId>) =
            list.iter().partition(|id| speaks(id));
        if !is_all {
            let others = self.logic.any(&others);
            let mut ways = self.written_out(others, at_most, fuel)?.unwrap_or_default();
            for id in speaking {
                match self.written_out(id, at_most, fuel)? {
                    Some(more) if ways.len() + more.len() <= at_most => ways.extend(more),
                    _ => return Ok(None),
                }
            }
            return Ok(Some(ways));
        }
        let rest = self.logic.all(&others);
        let mut ways = vec![Way {
            values: Vec::new(),
            rest,
        }];
        for id in speaking {
            let Some(more) = self.written_out(id, at_most, fuel)? else {
                return Ok(None);
            };
            if ways.len() * more.len() > at_most {
                return Ok(None);
            }
            let mut both = Vec::with_capacity(ways.len() * more.len());
            for way in &ways {
                for other in &more {
                    fuel.burn(1)?;
                    let rest = self.logic.all(&[way.rest, other.rest]);
                    if rest != FALSE {
                        let values = [&way.values[..], &other.values].concat();
                        both.push(Way { values, rest });
                    }
                }
            }
            ways = both;
        }
        Ok(Some(ways))
    }

    /// The frame after a string that meets several goals: what may follow any of them.
    pub(crate) fn joint_outcome(
        &mut self,
        lexicon: &mut Lexicon,
        frame: Frame,
        marks: &[u16],
        fuel: &mut Fuel,
    ) -> Result<Frame, OutOfFuel> {
        let Frame::Pending { outcomes } = frame else {
            return Ok(frame);
        };
        let goals: Box<[u16]> = marks.iter().map(|&mark| goal_of(mark)).collect();
        if let Some(&known) = self.joint_frames.get(&(outcomes, goals.clone())) {
            return Ok(known);
        }
        let frames = self.outcomes.get(outcomes.0);
        let frames: Vec<Frame> = goals
            .iter()
            .filter_map(|&goal| frames.get(usize::from(goal)).copied())
            .collect();
        let mut rests: Vec<Vec<FormulaId>> = Vec::new();
        let mut joint = frame;
        let mut plan = None;
        for frame in frames {
            if let Frame::Object { object, .. } = frame {
                let object = self.object(object).clone();
                fuel.burn(1 + object.rest.len() as u64)?;
                rests.resize(object.rest.len(), Vec::new());
                for (all, rest) in rests.iter_mut().zip(&object.rest) {
                    all.push(*rest);
                }
                joint = frame;
                plan = Some(object.plan);
            }
        }
        let at = self.at(&joint);
        if let (Frame::Object { object, .. }, Some(plan)) = (&mut joint, plan) {
            let mut all_rests = Vec::with_capacity(rests.len());
            for all in rests {
                // The cheapest first: what the whole is taken to need is what its first operand does.
                let mut by_cost = Vec::with_capacity(all.len());
                for rest in all {
                    by_cost.push((self.object_cost(lexicon, at, rest, fuel)?, rest));
                }
                by_cost.sort_by_key(|&(cost, _)| cost);
                let all: Vec<FormulaId> = by_cost.into_iter().map(|(_, rest)| rest).collect();
                all_rests.push(self.logic.any(&all));
            }
            if self.logic.take_too_deep() {
                let what = "conditions within each other on one value";
                return Err(fuel.exhaust(what, u64::from(MAX_DEPTH)));
            }
            *object = self.object_of(plan, all_rests.into());
        }
        self.charge(lexicon.memory_bytes(), fuel)?;
        self.bytes += allocated(size_of_val(&*goals));
        self.joint_frames.insert((outcomes, goals), joint);
        Ok(joint)
    }
}
