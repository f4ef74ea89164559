//! Members that are likely to end an object: those that its formula itself asks for.
//!
//! Of alternatives the first is taken that can be met by adding members, and nothing is taken back
//! but what an alternative added that couldn't be met. So hundreds of conditions that hardly touch each
//! other are met one by one, where a search would go through all names in their order. Whether
//! the members do end the object is told afterwards, by the whole formula.

use hashbrown::{HashMap, HashSet};

use super::formula::{Formula, FormulaId};
use super::live::{DEAD, WayMember};
use super::node::{ANYTHING, NOTHING, Node, NodeId, OPERANDS_PER_STEP};
use super::object::ObjectAt;
use super::plan::spelled;
use super::programs::Programs;
use crate::lexical::{Fuel, Lexicon, Stop};

/// So many operands are looked at, then it is given up.
const MAX_OPERANDS: u64 = 40_000;

/// The nodes that a value is to meet, and those that it must not.
type Said = (Vec<NodeId>, Vec<NodeId>);

/// Members that are taken.
struct Likely {
    at: ObjectAt,
    /// By number, what is said of its value.
    names: HashMap<u32, Said>,
    /// The nodes that say that these are there.
    has: HashSet<NodeId>,
    /// What was added, the last last.
    trail: Vec<Added>,
    /// Whether formulas hold with these members, as far as that was told.
    known: HashMap<FormulaId, bool>,
    /// Operands that may still be looked at.
    operands_left: u64,
}

/// What was added to the members.
enum Added {
    Name(u32, Option<NodeId>),
    Is(u32),
    Not(u32),
}

impl Likely {
    /// Takes back what was added since there was so much.
    fn take_back(&mut self, to: usize) {
        if self.trail.len() > to {
            self.known.clear();
        }
        for added in self.trail.drain(to..).rev() {
            match added {
                Added::Name(name, has) => {
                    self.names.remove(&name);
                    has.map(|has| self.has.remove(&has));
                }
                Added::Is(name) => drop(self.names.get_mut(&name).map(|value| value.0.pop())),
                Added::Not(name) => drop(self.names.get_mut(&name).map(|value| value.1.pop())),
            }
        }
    }

    fn added(&mut self, added: Added) {
        self.trail.push(added);
        self.known.clear();
    }

    /// Counts some operands; false where no more are to be looked at.
    fn look_at(&mut self, operands: usize, fuel: &mut Fuel) -> Result<bool, Stop> {
        let operands = 1 + operands as u64;
        // A step for some of them, whichever they are.
        let before = self.operands_left / OPERANDS_PER_STEP;
        self.operands_left = self.operands_left.saturating_sub(operands);
        fuel.burn(before - self.operands_left / OPERANDS_PER_STEP)?;
        Ok(self.operands_left > 0)
    }
}

impl Programs {
    /// Members that end an object, in the order of the plan; `None` where those that were likely don't.
    /// Linear in the formula, mostly.
    pub(super) fn likely_members(
        &mut self,
        lexicon: &mut Lexicon,
        at: ObjectAt,
        formula: FormulaId,
        fuel: &mut Fuel,
    ) -> Result<Option<Vec<WayMember>>, Stop> {
        let mut likely = Likely {
            at,
            names: HashMap::new(),
            has: HashSet::new(),
            trail: Vec::new(),
            known: HashMap::new(),
            operands_left: MAX_OPERANDS,
        };
        let mut holds = false;
        // What was met first may ask something of what came after it.
        for _ in 0..2 {
            if !holds && self.make_hold(formula, &mut likely, fuel)? {
                holds = self.holds_likely(formula, &mut likely, fuel)?;
            }
        }
        if !holds {
            return Ok(None);
        }
        let mut names: Vec<(u32, Said)> = likely.names.into_iter().collect();
        names.sort_unstable_by_key(|name| name.0);
        let mut members = Vec::with_capacity(names.len());
        for (name, (mut all, not)) in names {
            fuel.burn(1)?;
            for value in not {
                all.push(self.logic.nodes.not(value));
            }
            let value = self.logic.nodes.all_of(&all);
            if self.cost(lexicon, value, fuel)? == DEAD {
                return Ok(None);
            }
            let text = self.plan(at.plan).name(name).unwrap_or_default();
            members.push((spelled(text), value));
        }
        Ok(Some(members))
    }

    /// Adds members so that a formula may hold; false where none are found. Recursion is bounded by the
    /// depth of formulas.
    fn make_hold(
        &mut self,
        id: FormulaId,
        likely: &mut Likely,
        fuel: &mut Fuel,
    ) -> Result<bool, Stop> {
        match self.logic.formula(id) {
            Formula::All(list) => {
                let list = list.clone();
                if !likely.look_at(list.len(), fuel)? {
                    return Ok(false);
                }
                // First the members that must be there: the others are judged by them.
                let (literals, others): (Vec<FormulaId>, Vec<FormulaId>) =
                    list.iter().partition(|&&id| {
                        matches!(self.logic.formula(id), Formula::Is(_) | Formula::Not(_))
                    });
                for id in literals.into_iter().chain(others) {
                    if !self.make_hold(id, likely, fuel)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Formula::Any(list) => {
                let list = list.clone();
                if !likely.look_at(list.len(), fuel)? {
                    return Ok(false);
                }
                if self.holds_likely(id, likely, fuel)? {
                    return Ok(true);
                }
                let before = likely.trail.len();
                for &id in &list {
                    if self.make_hold(id, likely, fuel)? && self.holds_likely(id, likely, fuel)? {
                        return Ok(true);
                    }
                    likely.take_back(before);
                }
                Ok(false)
            }
            &Formula::Is(node) => Ok(self.make_literal_hold(node, likely)),
            &Formula::Not(node) => Ok(self.make_literal_fail(node, likely)),
            _ => Ok(false),
        }
    }

    fn add_likely(&self, name: u32, likely: &mut Likely) -> bool {
        if likely.names.contains_key(&name) {
            return true;
        }
        if !self.is_open(likely.at, name) {
            return false;
        }
        let has = self.plan(likely.at.plan).has(name);
        likely.names.insert(name, (Vec::new(), Vec::new()));
        likely.has.extend(has);
        likely.added(Added::Name(name, has));
        true
    }

    fn make_literal_hold(&self, node: NodeId, likely: &mut Likely) -> bool {
        if self.literal_holds_likely(node, true, likely) {
            return true;
        }
        let plan = self.plan(likely.at.plan);
        match self.logic.nodes.node(node) {
            Node::Has(name) => match plan.number(name) {
                Some(number) => self.add_likely(number, likely),
                None => false,
            },
            Node::Members(_) => {
                let names: Vec<u32> = likely.names.keys().copied().collect();
                for name in names {
                    let value = plan.value(node, name);
                    if value == NOTHING {
                        return false;
                    }
                    if let Some((is, _)) = likely.names.get_mut(&name)
                        && value != ANYTHING
                        && !is.contains(&value)
                    {
                        is.push(value);
                        likely.added(Added::Is(name));
                    }
                }
                true
            }
            _ => false,
        }
    }

    fn make_literal_fail(&self, node: NodeId, likely: &mut Likely) -> bool {
        if self.literal_holds_likely(node, false, likely) {
            return true;
        }
        let plan = self.plan(likely.at.plan);
        let Node::Members(members) = self.logic.nodes.node(node) else {
            return false;
        };
        for (name, _) in &members.named {
            let Some(number) = plan.number(name) else {
                continue;
            };
            let value = plan.value(node, number);
            let is_met = likely
                .names
                .get(&number)
                .is_some_and(|(is, _)| is.contains(&value));
            if value == ANYTHING || is_met || !self.add_likely(number, likely) {
                continue;
            }
            if let Some((_, not)) = likely.names.get_mut(&number)
                && value != NOTHING
            {
                not.push(value);
                likely.added(Added::Not(number));
            }
            return true;
        }
        false
    }

    /// Whether a formula surely holds of an object with these members.
    fn holds_likely(
        &self,
        id: FormulaId,
        likely: &mut Likely,
        fuel: &mut Fuel,
    ) -> Result<bool, Stop> {
        let (list, is_all) = match self.logic.formula(id) {
            Formula::All(list) => (list, true),
            Formula::Any(list) => (list, false),
            &Formula::Is(node) => return Ok(self.literal_holds_likely(node, true, likely)),
            &Formula::Not(node) => return Ok(self.literal_holds_likely(node, false, likely)),
            _ => return Ok(false),
        };
        if let Some(&known) = likely.known.get(&id) {
            return Ok(known);
        }
        if !likely.look_at(list.len(), fuel)? {
            return Ok(false);
        }
        let mut holds = is_all;
        for &id in list {
            if self.holds_likely(id, likely, fuel)? != is_all {
                holds = !is_all;
                break;
            }
        }
        likely.known.insert(id, holds);
        Ok(holds)
    }

    /// Whether an assertion, or its contrary, surely holds of an object with these members.
    fn literal_holds_likely(&self, node: NodeId, holds: bool, likely: &Likely) -> bool {
        match self.logic.nodes.node(node) {
            Node::Has(_) => likely.has.contains(&node) == holds,
            Node::MinProperties(min) => (likely.names.len() as u64 >= u64::from(*min)) == holds,
            Node::Members(_) => {
                let plan = self.plan(likely.at.plan);
                let is_met = |name: u32, (is, not): &Said| {
                    let value = plan.value(node, name);
                    match holds {
                        true => value == ANYTHING || is.contains(&value),
                        false => value == NOTHING || not.contains(&value),
                    }
                };
                if let Some(only) = plan.only_key(node) {
                    let value = likely.names.get(&only);
                    return value.map_or(holds, |value| is_met(only, value));
                }
                let mut names = likely.names.iter();
                match holds {
                    true => names.all(|(&name, value)| is_met(name, value)),
                    false => names.any(|(&name, value)| is_met(name, value)),
                }
            }
            _ => false,
        }
    }
}
