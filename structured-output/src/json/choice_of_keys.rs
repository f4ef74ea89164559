//! Members with which an object ends, where these are a choice of keys under many conditions at once.
//!
//! The formula is taken as clauses over what it says (`clauses.rs`): a variable for each key and for each
//! assertion about members, and one for each part that isn't a clause itself (Plaisted and Greenbaum 1986).
//! What clauses can't say is asked of each answer, and what is wrong with it is a further clause: the value
//! of a member has to exist, and there may be a bound on how many members there are. So no choice is made
//! twice that fails for the same reason, where a search through the names in their order would.
//!
//! Of keys without a name nothing is known here. Where only these may help the answer is that it isn't known.

use hashbrown::HashMap;

use super::clauses::{Clauses, Literal};
use super::formula::{FALSE, Formula, FormulaId};
use super::live::DEAD;
use super::needed::End;
use super::node::{ANYTHING, NOTHING, Node, NodeId, OPERANDS_PER_STEP};
use super::object::ObjectAt;
use super::plan::spelled;
use super::programs::Programs;
use crate::lexical::{Fuel, Lexicon, Stop};

/// More variables than that are not looked at.
const MAX_VARIABLES: usize = 20_000;

/// So many answers are asked for, then it is given up.
const MAX_ANSWERS: usize = 2_000;

/// A formula as clauses.
struct Choice {
    at: ObjectAt,
    clauses: Clauses,
    /// By name, that it is there.
    names: HashMap<u32, Literal>,
    /// By formula, what holds if it is to hold.
    parts: HashMap<FormulaId, Literal>,
    /// Assertions about members that are to hold.
    holding: Vec<(NodeId, Literal)>,
    /// Those that are not to hold.
    failing: Vec<(NodeId, Literal)>,
    /// By such a one and a name, that the value of this member is why.
    witnesses: Vec<(NodeId, u32, Literal)>,
    /// So many members at least, and not so many.
    least: Vec<(u32, Literal)>,
    fewer: Vec<(u32, Literal)>,
    /// What else is said.
    others: Vec<Literal>,
    num_variables: usize,
}

/// The value of a member of an answer.
enum Member {
    Is(NodeId),
    /// There is none as long as all of these hold.
    Never(Vec<Literal>),
    Unknown,
}

impl Choice {
    fn variable(&mut self) -> Literal {
        self.num_variables += 1;
        self.clauses.variable()
    }

    /// Something of which nothing is known here.
    fn other(&mut self) -> Literal {
        let other = self.variable();
        self.others.push(other);
        other
    }
}

impl Programs {
    /// Members that end an object, in the order of the plan.
    pub(super) fn end_with_choice(
        &mut self,
        lexicon: &mut Lexicon,
        at: ObjectAt,
        formula: FormulaId,
        fuel: &mut Fuel,
    ) -> Result<End, Stop> {
        // First without what isn't known here.
        for with_others in [false, true] {
            let Some(mut choice) = self.choice_of(at, formula, fuel)? else {
                return Ok(End::Unknown);
            };
            let has_others = !choice.others.is_empty();
            if !with_others {
                for &other in &choice.others {
                    choice.clauses.add(&[!other]);
                }
            }
            match self.members_of_choice(lexicon, choice, fuel)? {
                End::Never if !with_others && has_others => {}
                found => return Ok(found),
            }
        }
        Ok(End::Never)
    }

    /// A formula as clauses; `None` where these were too many.
    fn choice_of(
        &mut self,
        at: ObjectAt,
        formula: FormulaId,
        fuel: &mut Fuel,
    ) -> Result<Option<Choice>, Stop> {
        let mut choice = Choice {
            at,
            clauses: Clauses::new(),
            names: HashMap::new(),
            parts: HashMap::new(),
            holding: Vec::new(),
            failing: Vec::new(),
            witnesses: Vec::new(),
            least: Vec::new(),
            fewer: Vec::new(),
            others: Vec::new(),
            num_variables: 0,
        };
        self.add_holding(formula, &mut choice, fuel)?;
        self.add_witnesses(&mut choice, fuel)?;
        if choice.num_variables > MAX_VARIABLES {
            return Ok(None);
        }
        // Values that there are none of, and what contradicts itself.
        for &(node, holds) in &choice.holding {
            fuel.burn(1 + choice.names.len() as u64 / OPERANDS_PER_STEP)?;
            let plan = self.plan(at.plan);
            let mut names: Vec<_> = choice.names.iter().collect();
            names.sort_unstable();
            for (&name, &there) in names {
                if plan.value(node, name) == NOTHING {
                    choice.clauses.add(&[!holds, !there]);
                }
            }
            for &(other, fails) in &choice.failing {
                if other == node {
                    choice.clauses.add(&[!holds, !fails]);
                }
            }
        }
        for &(min, holds) in &choice.least {
            for &(more, fails) in &choice.fewer {
                if min >= more {
                    choice.clauses.add(&[!holds, !fails]);
                }
            }
        }
        Ok(Some(choice))
    }

    /// Adds a formula that is to hold. Recursion is bounded by the depth of formulas.
    fn add_holding(&self, id: FormulaId, choice: &mut Choice, fuel: &mut Fuel) -> Result<(), Stop> {
        match self.logic.formula(id) {
            Formula::All(list) => {
                fuel.burn(1 + list.len() as u64 / OPERANDS_PER_STEP)?;
                for &id in list {
                    self.add_holding(id, choice, fuel)?;
                }
            }
            Formula::Any(list) => {
                let clause = self.parts_of(list, choice, fuel)?;
                choice.clauses.add(&clause);
            }
            _ => {
                let holds = self.part(id, choice, fuel)?;
                choice.clauses.add(&[holds]);
            }
        }
        Ok(())
    }

    fn parts_of(
        &self,
        list: &[FormulaId],
        choice: &mut Choice,
        fuel: &mut Fuel,
    ) -> Result<Vec<Literal>, Stop> {
        fuel.burn(1 + list.len() as u64 / OPERANDS_PER_STEP)?;
        list.iter().map(|&id| self.part(id, choice, fuel)).collect()
    }

    /// What is to hold where a part of the formula is.
    fn part(&self, id: FormulaId, choice: &mut Choice, fuel: &mut Fuel) -> Result<Literal, Stop> {
        if let Some(&known) = choice.parts.get(&id) {
            return Ok(known);
        }
        let part = match self.logic.formula(id) {
            Formula::All(list) => {
                let parts = self.parts_of(list, choice, fuel)?;
                let holds = choice.variable();
                for part in parts {
                    choice.clauses.add(&[!holds, part]);
                }
                holds
            }
            Formula::Any(list) => {
                let mut parts = self.parts_of(list, choice, fuel)?;
                let holds = choice.variable();
                parts.push(!holds);
                choice.clauses.add(&parts);
                holds
            }
            &Formula::Is(node) => match self.logic.nodes.node(node) {
                Node::Has(name) => self.there(name, choice),
                Node::Members(_) => {
                    let holds = choice.variable();
                    choice.holding.push((node, holds));
                    holds
                }
                &Node::MinProperties(min) => {
                    let holds = choice.variable();
                    choice.least.push((min, holds));
                    holds
                }
                _ => choice.other(),
            },
            &Formula::Not(node) => match self.logic.nodes.node(node) {
                Node::Has(name) => !self.there(name, choice),
                Node::Members(_) => {
                    let fails = choice.variable();
                    choice.failing.push((node, fails));
                    fails
                }
                &Node::MinProperties(min) => {
                    let fails = choice.variable();
                    choice.fewer.push((min, fails));
                    fails
                }
                _ => choice.other(),
            },
            Formula::Unique { .. } | Formula::Value(_) => choice.other(),
        };
        choice.parts.insert(id, part);
        Ok(part)
    }

    /// That a name is there.
    fn there(&self, name: &str, choice: &mut Choice) -> Literal {
        match self.plan(choice.at.plan).number(name) {
            Some(number) => self.there_by_number(number, choice),
            None => choice.other(),
        }
    }

    fn there_by_number(&self, name: u32, choice: &mut Choice) -> Literal {
        if let Some(&known) = choice.names.get(&name) {
            return known;
        }
        let there = choice.variable();
        if !self.is_open(choice.at, name) {
            choice.clauses.add(&[!there]);
        }
        choice.names.insert(name, there);
        there
    }

    /// Adds what may be why assertions about members fail: the value of a name's, or a key without a name.
    fn add_witnesses(&self, choice: &mut Choice, fuel: &mut Fuel) -> Result<(), Stop> {
        let plan = self.plan(choice.at.plan);
        for (node, fails) in choice.failing.clone() {
            let Some(values) = plan.values(node) else {
                let other = choice.other();
                choice.clauses.add(&[!fails, other]);
                continue;
            };
            fuel.burn(1 + values.len() as u64 / OPERANDS_PER_STEP)?;
            let mut clause = vec![!fails];
            let (names, classes) = values.split_at(plan.num_names() as usize);
            for (name, &value) in (0_u32..).zip(names) {
                if value == ANYTHING || !self.is_open(choice.at, name) {
                    continue;
                }
                if choice.num_variables > MAX_VARIABLES {
                    return Ok(());
                }
                let there = self.there_by_number(name, choice);
                let witness = choice.variable();
                choice.clauses.add(&[!witness, there]);
                choice.witnesses.push((node, name, witness));
                clause.push(witness);
            }
            if classes.iter().any(|&value| value != ANYTHING) {
                clause.push(choice.other());
            }
            choice.clauses.add(&clause);
        }
        Ok(())
    }

    /// Members that meet clauses, and all that these don't say.
    fn members_of_choice(
        &mut self,
        lexicon: &mut Lexicon,
        mut choice: Choice,
        fuel: &mut Fuel,
    ) -> Result<End, Stop> {
        let mut names: Vec<(u32, Literal)> = choice
            .names
            .iter()
            .map(|(&name, &there)| (name, there))
            .collect();
        names.sort_unstable();
        // Whether what was ruled out may be possible with keys without a name.
        let mut is_sure = true;
        for _ in 0..MAX_ANSWERS {
            if !choice.clauses.solve(fuel)? {
                return Ok(if is_sure { End::Never } else { End::Unknown });
            }
            let clauses = &choice.clauses;
            let holds = |literal: Literal| clauses.holds(literal) == Some(true);
            if choice.others.iter().any(|&other| holds(other)) {
                return Ok(End::Unknown);
            }
            fuel.burn(1 + names.len() as u64 / OPERANDS_PER_STEP)?;
            let there: Vec<(u32, Literal)> =
                names.iter().copied().filter(|name| holds(name.1)).collect();
            let mut wrong: Vec<Vec<Literal>> = Vec::new();
            for &(min, least) in &choice.least {
                if holds(least) && (there.len() as u64) < u64::from(min) {
                    let absent = names
                        .iter()
                        .filter(|name| !holds(name.1))
                        .map(|name| name.1);
                    wrong.push(absent.chain([!least]).collect());
                    is_sure = false;
                }
            }
            for &(max, fewer) in &choice.fewer {
                if holds(fewer) && there.len() as u64 >= u64::from(max) {
                    let some = there.iter().take(max as usize).map(|name| !name.1);
                    wrong.push(some.chain([!fewer]).collect());
                }
            }
            let mut members = Vec::with_capacity(there.len());
            for &(name, there) in &there {
                let said = self.said_of(name, &choice, fuel)?;
                match self.value_of(lexicon, said, fuel)? {
                    Member::Is(value) => {
                        let text = self.plan(choice.at.plan).name(name).unwrap_or_default();
                        members.push((spelled(text), value));
                    }
                    Member::Never(why) => {
                        let why = why.into_iter().map(|why| !why);
                        wrong.push(why.chain([!there]).collect());
                    }
                    Member::Unknown => return Ok(End::Unknown),
                }
            }
            if wrong.is_empty() {
                return Ok(End::Members(members));
            }
            for clause in wrong {
                choice.clauses.add(&clause);
            }
        }
        Ok(End::Unknown)
    }

    /// What an answer says of the value of a name's member, each with what says so.
    fn said_of(
        &mut self,
        name: u32,
        choice: &Choice,
        fuel: &mut Fuel,
    ) -> Result<Vec<(NodeId, Literal)>, Stop> {
        let operands = choice.holding.len() + choice.witnesses.len();
        fuel.burn(1 + operands as u64 / OPERANDS_PER_STEP)?;
        let holds = |literal: Literal| choice.clauses.holds(literal) == Some(true);
        let plan = self.plan(choice.at.plan);
        let mut said = Vec::new();
        for &(node, holding) in choice.holding.iter().filter(|said| holds(said.1)) {
            match plan.value(node, name) {
                ANYTHING => {}
                value => said.push((value, holding)),
            }
        }
        let witnesses: Vec<(NodeId, Literal)> = choice
            .witnesses
            .iter()
            .filter(|&&(_, of, witness)| of == name && holds(witness))
            .map(|&(node, _, witness)| (plan.value(node, name), witness))
            .collect();
        for (value, witness) in witnesses {
            match self.logic.nodes.not(value) {
                ANYTHING => {}
                value => said.push((value, witness)),
            }
        }
        Ok(said)
    }

    /// The value that is to meet some nodes.
    fn value_of(
        &mut self,
        lexicon: &mut Lexicon,
        mut said: Vec<(NodeId, Literal)>,
        fuel: &mut Fuel,
    ) -> Result<Member, Stop> {
        let mut nodes: Vec<NodeId> = said.iter().map(|said| said.0).collect();
        let value = self.logic.nodes.all_of(&nodes);
        match self.sure_cost(lexicon, value, fuel)? {
            DEAD => {}
            // Because it is itself being looked at: that would be found out again for each answer.
            0 => return Ok(Member::Unknown),
            _ => return Ok(Member::Is(value)),
        }
        // Without those that don't matter. Only of scalars: of others nobody would ask, and they may lead on
        // without end.
        let mut is_of_scalars = said.len() > 2;
        for &node in &nodes {
            is_of_scalars = is_of_scalars && {
                let shape = self.shape(lexicon, node, fuel)?;
                shape.array == FALSE && shape.object == FALSE
            };
        }
        let mut at = 0;
        while is_of_scalars && said.len() > 1 && at < said.len() {
            nodes.clear();
            let others = said.iter().enumerate().filter(|other| other.0 != at);
            nodes.extend(others.map(|other| other.1.0));
            let fewer = self.logic.nodes.all_of(&nodes);
            match self.cost(lexicon, fewer, fuel)? {
                DEAD => drop(said.remove(at)),
                _ => at += 1,
            }
        }
        Ok(Member::Never(said.into_iter().map(|said| said.1).collect()))
    }
}
