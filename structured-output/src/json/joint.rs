//! Values of which several schemas say different things, before it is known which of these count.
//!
//! With `anyOf` of objects that have a `value` and a `type`, and a text that begins with the value, what
//! the value may be is one node for each branch. To tell these apart before what follows
//! (see `ways`) is to make the intersection of each set of them with the complements of the others,
//! and to find out which have values. That is not needed: the formula is a union of ways, each a
//! node and what remains under it. These may overlap where they are strings, arrays or objects. Each
//! language of strings is an alternative of the lexeme with a mark of its own, of arrays and objects a formula
//! is kept for each; and where the value ends with several marks, what remains is the union of what
//! remains under each (see `several`). So a mask is put together from those of the single languages,
//! which other grammars may know already, and no product of them is ever looked at; but for the texts
//! that are read.
//!
//! The union is found by writing the formula out, as far as that makes hardly more ways than there are
//! conditions. Where it makes more, as with `if` and `then` or `oneOf`, it is first told apart by the
//! value of a member that comes later (see `telling`), if need be by that of a second one in each case.

use std::sync::Arc;

use hashbrown::HashMap;

use super::derive::Event;
use super::formula::{FALSE, Formula, FormulaId, TRUE};
use super::node::{Kinds, Node, NodeId, OPERANDS_PER_STEP};
use super::object::ObjectAt;
use super::programs::Programs;
use super::relation::Relation;
use super::shape::{NONE, Spellings};
use super::ways::Outcome;
use crate::lexical::{Fuel, Lexicon, Stop};

/// Fewer languages than this are told apart.
const FEW_LANGUAGES: usize = 3;

/// More ways than this are not written out.
const MAX_WAYS: usize = 900;

/// A formula is told apart by so many members within each other.
const MAX_MEMBERS: usize = 3;

/// A language of the next value, as conditions that it is to meet, and what remains of the formula.
#[derive(Clone)]
struct Way {
    values: Vec<NodeId>,
    rest: FormulaId,
}

/// The ways of some formulas: by conditions, what remains of each formula.
#[derive(Default)]
struct Union {
    found: Vec<(Vec<NodeId>, Vec<Vec<FormulaId>>)>,
    index: HashMap<Vec<NodeId>, usize>,
}

impl Union {
    fn add(&mut self, way: Way, goal: usize, num_goals: usize) {
        let Way { mut values, rest } = way;
        values.sort_unstable();
        values.dedup();
        let at = *self.index.entry(values.clone()).or_insert(self.found.len());
        if at == self.found.len() {
            self.found.push((values, vec![Vec::new(); num_goals]));
        }
        if let Some(rests) = self
            .found
            .get_mut(at)
            .and_then(|found| found.1.get_mut(goal))
        {
            rests.push(rest);
        }
    }
}

impl Programs {
    /// What some formulas become by an item or a member, as ways that may overlap where its value is a string,
    /// an array or an object; others are told apart. `None` where they say too little for that, or it
    /// can't be told so. With the place of the object whose member it is.
    pub(super) fn joint_outcomes(
        &mut self,
        lexicon: &mut Lexicon,
        formulas: &[FormulaId],
        event: Event,
        member: Option<(ObjectAt, u32)>,
        fuel: &mut Fuel,
    ) -> Result<Option<Arc<[Outcome]>>, Stop> {
        let derived = self.derive_each(formulas, event, fuel)?;
        if self.logic.values(&derived, fuel)?.len() < FEW_LANGUAGES {
            return Ok(None);
        }
        let mut outcomes = Vec::new();
        let mut others = Kinds::ALL;
        for kind in [Kinds::STRING, Kinds::ARRAY, Kinds::OBJECT] {
            if self.has_few_languages(lexicon, &derived, kind, fuel)? {
                continue;
            }
            let of_kind = self.logic.nodes.kinds(kind);
            let under = self.under(lexicon, of_kind, &derived, fuel)?;
            if self.has_few_languages(lexicon, &under, kind, fuel)? {
                continue;
            }
            if let Some(union) = self.union(lexicon, &under, member, fuel)? {
                others = Kinds(others.0 & !kind.0);
                self.add_outcomes(of_kind, union, &mut outcomes, fuel)?;
            }
        }
        if others == Kinds::ALL {
            return Ok(None);
        }
        let others = self.logic.nodes.kinds(others);
        let of_others = self.under(lexicon, others, &derived, fuel)?;
        if of_others.iter().any(|&formula| formula != FALSE) {
            outcomes.extend(self.split(lexicon, others, of_others, fuel)?);
        }
        Ok(Some(outcomes.into()))
    }

    fn add_outcomes(
        &mut self,
        of_kind: NodeId,
        union: Union,
        outcomes: &mut Vec<Outcome>,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        for (mut values, rests) in union.found {
            fuel.burn(1 + rests.len() as u64 / OPERANDS_PER_STEP)?;
            values.insert(0, of_kind);
            let rest: Vec<FormulaId> = rests.iter().map(|rests| self.logic.any(rests)).collect();
            outcomes.push(Outcome {
                value: self.logic.nodes.all_of(&values),
                rest: rest.into(),
            });
        }
        self.charge(0, fuel)
    }

    /// Formulas where it is plain of some conditions whether they hold of all values of a node.
    fn under(
        &mut self,
        lexicon: &mut Lexicon,
        node: NodeId,
        formulas: &[FormulaId],
        fuel: &mut Fuel,
    ) -> Result<Vec<FormulaId>, Stop> {
        let mut truths = HashMap::new();
        for condition in self.logic.values(formulas, fuel)? {
            fuel.burn(1)?;
            let truth = match self.relation(lexicon, node, condition, fuel)? {
                Relation::Within => true,
                Relation::Apart => false,
                Relation::Partly | Relation::Unknown => continue,
            };
            truths.insert(condition, truth);
        }
        self.assume(formulas, &truths, fuel)
    }

    /// Whether formulas speak of few different values of a kind that are no lists.
    fn has_few_languages(
        &mut self,
        lexicon: &mut Lexicon,
        formulas: &[FormulaId],
        kind: Kinds,
        fuel: &mut Fuel,
    ) -> Result<bool, Stop> {
        let mut languages: Vec<(Spellings, FormulaId)> = Vec::new();
        for condition in self.logic.values(formulas, fuel)? {
            fuel.burn(1)?;
            let node = match *self.logic.nodes.node(condition) {
                Node::Not(inner) => inner,
                _ => condition,
            };
            let shape = self.shape(lexicon, node, fuel)?;
            let language = match (kind, shape.string) {
                (Kinds::STRING, Spellings::Only(language)) => {
                    match self.listed(lexicon, language, fuel)? {
                        Some(_) => continue,
                        None => (shape.string, TRUE),
                    }
                }
                (Kinds::STRING, Spellings::Free) => continue,
                (Kinds::ARRAY, _) => (NONE, shape.array),
                _ => (NONE, shape.object),
            };
            let is_told = language.0 != NONE || ![TRUE, FALSE].contains(&language.1);
            if is_told && !languages.contains(&language) {
                languages.push(language);
                if languages.len() >= FEW_LANGUAGES {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Formulas as a union of ways; `None` where these are many.
    fn union(
        &mut self,
        lexicon: &mut Lexicon,
        formulas: &[FormulaId],
        member: Option<(ObjectAt, u32)>,
        fuel: &mut Fuel,
    ) -> Result<Option<Union>, Stop> {
        let mut union = Union::default();
        for (goal, &formula) in formulas.iter().enumerate() {
            let Some(ways) = self.ways_of_one(lexicon, formula, member, fuel)? else {
                return Ok(None);
            };
            for way in ways {
                fuel.burn(1)?;
                union.add(way, goal, formulas.len());
            }
            if union.found.len() > MAX_WAYS {
                return Ok(None);
            }
        }
        // What is too deep was left out.
        Ok((!self.logic.take_too_deep()).then_some(union))
    }

    fn ways_of_one(
        &mut self,
        lexicon: &mut Lexicon,
        formula: FormulaId,
        member: Option<(ObjectAt, u32)>,
        fuel: &mut Fuel,
    ) -> Result<Option<Vec<Way>>, Stop> {
        let num_conditions = self.logic.values(&[formula], fuel)?.len();
        let at_most = (num_conditions + 2).min(MAX_WAYS);
        let mut ways = Vec::new();
        // What is written out, and the members by which it is told apart.
        let mut pending = vec![(formula, Vec::new())];
        while let Some((formula, told)) = pending.pop() {
            if let Some(more) = self.written_out(formula, at_most, fuel)? {
                ways.extend(more);
                if ways.len() > 2 * MAX_WAYS {
                    return Ok(None);
                }
                continue;
            }
            let Some(member) = member.filter(|_| told.len() < MAX_MEMBERS) else {
                return Ok(None);
            };
            let Some(telling) = self.telling(lexicon, member, formula, &told, fuel)? else {
                return Ok(None);
            };
            let told = [&told[..], &[telling.name]].concat();
            let cases = self.cases(formula, &telling, fuel)?;
            pending.extend(cases.into_iter().rev().map(|case| (case, told.clone())));
        }
        Ok(Some(ways))
    }

    /// A formula as a union of ways, at most so many, where it is written out.
    fn written_out(
        &mut self,
        formula: FormulaId,
        at_most: usize,
        fuel: &mut Fuel,
    ) -> Result<Option<Vec<Way>>, Stop> {
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
}
