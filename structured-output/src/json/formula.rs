//! What an array or an object has still to meet: boolean formulas over the assertions of `node`.
//!
//! In negation normal form, each distinct one once. Operands keep the order in which they are
//! written, since that is the order of properties. Counts that others imply are left out, so that
//! equal futures are mostly equal formulas, and their number stays finite.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use super::facts::Facts;
use super::node::{ANYTHING, NOTHING, Node, NodeId, Nodes, OPERANDS_PER_STEP};
use crate::bound::Bound;
use crate::held::{allocated, shared, with_room};
use crate::lexical::{Fuel, Stop};

/// An interned formula.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct FormulaId(u32);

/// All of nothing.
pub(super) const TRUE: FormulaId = FormulaId(0);
/// Any of nothing.
pub(super) const FALSE: FormulaId = FormulaId(1);

/// Operands of formulas that are made anew and are as much work as one step: each is looked up and hashed.
const OPERANDS_A_STEP: u64 = 4;

/// An interned set of constants: the items of an array so far.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct SetId(u32);

/// No item yet.
pub(super) const NO_ITEMS: SetId = SetId(0);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Formula {
    All(Box<[FormulaId]>),
    Any(Box<[FormulaId]>),
    /// An assertion about arrays or objects holds of what is to come.
    Is(NodeId),
    Not(NodeId),
    /// No item to come is equal to another one or in the set; or, where not `holds`, one is.
    Unique {
        set: SetId,
        holds: bool,
    },
    /// The value that comes next is such. Only while a formula is being derived.
    Value(NodeId),
}

/// Nodes and the formulas over them.
#[derive(Default)]
pub(crate) struct Logic {
    pub(super) nodes: Nodes,
    formulas: Vec<Formula>,
    facts: Vec<Facts>,
    ids: HashMap<Formula, FormulaId>,
    sets: Vec<Arc<[NodeId]>>,
    set_ids: HashMap<Arc<[NodeId]>, SetId>,
    /// Formulas and their contraries.
    contraries: HashMap<FormulaId, FormulaId>,
    /// Whether a formula was too deep since this was last asked.
    too_deep: bool,
    /// Operands that were looked at, see [`Logic::charge`].
    work: u64,
    bytes: usize,
}

impl Logic {
    /// Bytes of memory held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes + self.nodes.memory_bytes()
    }

    /// Takes the steps of the formulas and nodes that were made since this was called last.
    pub(super) fn charge(&mut self, fuel: &mut Fuel) -> Result<(), Stop> {
        let steps = self.work / OPERANDS_A_STEP;
        self.work %= OPERANDS_A_STEP;
        fuel.burn(steps)?;
        self.nodes.charge(fuel)
    }

    /// Operands that are looked at.
    pub(super) fn count(&mut self, operands: usize) {
        self.work += operands as u64;
    }

    pub(super) fn formula(&self, id: FormulaId) -> &Formula {
        &self.formulas[id.0 as usize]
    }

    pub(super) fn facts(&self, id: FormulaId) -> Facts {
        self.facts[id.0 as usize]
    }

    /// Whether a formula has been given up for its depth since this was last asked.
    pub(super) fn take_too_deep(&mut self) -> bool {
        std::mem::take(&mut self.too_deep)
    }

    fn intern(&mut self, formula: Formula) -> FormulaId {
        if let Some(&known) = self.ids.get(&formula) {
            return known;
        }
        let facts = self.facts_of(&formula);
        if usize::from(facts.depth) > Bound::Conditions.max() {
            self.too_deep = true;
            return FALSE;
        }
        let list = match &formula {
            Formula::All(list) | Formula::Any(list) => list.len(),
            _ => 0,
        };
        // Held twice, by number and for look-up.
        let entry =
            size_of::<Formula>() + size_of::<Facts>() + size_of::<(Formula, FormulaId)>() + 1;
        self.bytes += with_room(entry) + 2 * allocated(list * size_of::<FormulaId>());
        let id = FormulaId(self.formulas.len() as u32);
        self.formulas.push(formula.clone());
        self.facts.push(facts);
        self.ids.insert(formula, id);
        id
    }

    /// An assertion about arrays or objects, or its contrary.
    pub(super) fn literal(&mut self, node: NodeId, holds: bool) -> FormulaId {
        match (node, holds) {
            (ANYTHING, true) | (NOTHING, false) => TRUE,
            (ANYTHING, false) | (NOTHING, true) => FALSE,
            (_, true) => self.intern(Formula::Is(node)),
            (_, false) => self.intern(Formula::Not(node)),
        }
    }

    pub(super) fn unique(&mut self, set: SetId, holds: bool) -> FormulaId {
        self.intern(Formula::Unique { set, holds })
    }

    /// The value that comes next is such.
    pub(super) fn value(&mut self, node: NodeId) -> FormulaId {
        match node {
            ANYTHING => TRUE,
            NOTHING => FALSE,
            _ => self.intern(Formula::Value(node)),
        }
    }

    pub(super) fn all(&mut self, list: &[FormulaId]) -> FormulaId {
        self.combine(list, true)
    }

    pub(super) fn any(&mut self, list: &[FormulaId]) -> FormulaId {
        self.combine(list, false)
    }

    /// `if` holds and `then`, or it doesn't and `otherwise`.
    pub(super) fn choose(
        &mut self,
        value: NodeId,
        then: FormulaId,
        otherwise: FormulaId,
    ) -> FormulaId {
        if then == otherwise {
            return then;
        }
        let not = self.nodes.not(value);
        let (yes, no) = (self.value(value), self.value(not));
        let then = self.all(&[yes, then]);
        let otherwise = self.all(&[no, otherwise]);
        self.any(&[then, otherwise])
    }

    fn combine(&mut self, list: &[FormulaId], all: bool) -> FormulaId {
        let (neutral, absorbing) = if all { (TRUE, FALSE) } else { (FALSE, TRUE) };
        let mut flat = Vec::with_capacity(list.len());
        for &id in list {
            match self.formula(id) {
                Formula::All(inner) if all => flat.extend_from_slice(inner),
                Formula::Any(inner) if !all => flat.extend_from_slice(inner),
                _ => flat.push(id),
            }
        }
        self.count(flat.len());
        if flat.contains(&absorbing) {
            return absorbing;
        }
        flat.retain(|&id| id != neutral);
        if let [only] = flat[..] {
            return only;
        }
        if flat.is_empty() {
            return neutral;
        }
        if let [a, b] = flat[..] {
            if a == b {
                return a;
            }
        } else {
            let mut seen = HashSet::with_capacity(flat.len());
            flat.retain(|&id| seen.insert(id));
        }
        if self.join_literals(&mut flat, all) {
            return absorbing;
        }
        match flat[..] {
            [only] => only,
            _ if all => self.intern(Formula::All(flat.into())),
            _ => self.intern(Formula::Any(flat.into())),
        }
    }

    /// Leaves out counts that others imply; true where two literals contradict each other (or,
    /// in an `Any`, leave nothing out).
    fn join_literals(&self, flat: &mut Vec<FormulaId>, all: bool) -> bool {
        /// Items or members, and at least how many.
        fn count(node: &Node) -> Option<(bool, u32)> {
            match node {
                Node::MinItems(min) => Some((true, *min)),
                Node::MinProperties(min) => Some((false, *min)),
                _ => None,
            }
        }
        // For items and members: the strictest of "at least" and of "not at least" in an `All`,
        // the laxest in an `Any`.
        let mut least: [Option<u32>; 2] = [None; 2];
        let mut not_least: [Option<u32>; 2] = [None; 2];
        let mut literals: Vec<(NodeId, bool)> = Vec::new();
        let mut uniques: Vec<(SetId, bool)> = Vec::new();
        for &id in flat.iter() {
            let (node, holds) = match *self.formula(id) {
                Formula::Is(node) => (node, true),
                Formula::Not(node) => (node, false),
                Formula::Unique { set, holds } => {
                    if uniques.contains(&(set, !holds)) {
                        return true;
                    }
                    uniques.push((set, holds));
                    continue;
                }
                _ => continue,
            };
            if let Some((items, min)) = count(self.nodes.node(node)) {
                let at = usize::from(items);
                let (known, larger) = if holds {
                    (&mut least[at], all)
                } else {
                    (&mut not_least[at], !all)
                };
                *known = Some(match *known {
                    Some(known) if larger => known.max(min),
                    Some(known) => known.min(min),
                    None => min,
                });
            } else {
                literals.push((node, holds));
            }
        }
        for at in 0..2 {
            if let (Some(least), Some(not_least)) = (least[at], not_least[at])
                && ((all && least >= not_least) || (!all && least <= not_least))
            {
                return true;
            }
        }
        literals.sort_unstable();
        if literals.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return true;
        }
        if least != [None; 2] || not_least != [None; 2] {
            flat.retain(|&id| {
                let (node, known) = match self.formula(id) {
                    Formula::Is(node) => (node, &least),
                    Formula::Not(node) => (node, &not_least),
                    _ => return true,
                };
                count(self.nodes.node(*node))
                    .is_none_or(|(items, min)| known[usize::from(items)] == Some(min))
            });
        }
        false
    }

    /// The contrary of a formula that doesn't speak of the next value. Formulas share parts, so that
    /// of each is made once: `oneOf` within `oneOf` is as deep as it is written and, written out, has
    /// twice as many parts at each depth.
    pub(super) fn contrary(&mut self, id: FormulaId) -> FormulaId {
        if let Some(&known) = self.contraries.get(&id) {
            return known;
        }
        let contrary = match self.formula(id).clone() {
            Formula::All(list) => {
                self.count(list.len());
                let list: Vec<_> = list.iter().map(|&id| self.contrary(id)).collect();
                self.any(&list)
            }
            Formula::Any(list) => {
                self.count(list.len());
                let list: Vec<_> = list.iter().map(|&id| self.contrary(id)).collect();
                self.all(&list)
            }
            Formula::Is(node) => self.literal(node, false),
            Formula::Not(node) => self.literal(node, true),
            Formula::Unique { set, holds } => self.unique(set, !holds),
            Formula::Value(node) => {
                let not = self.nodes.not(node);
                self.value(not)
            }
        };
        self.bytes += with_room(size_of::<(FormulaId, FormulaId)>() + 1);
        self.contraries.insert(id, contrary);
        contrary
    }

    /// A formula with each leaf changed.
    pub(super) fn map(
        &mut self,
        id: FormulaId,
        known: &mut HashMap<FormulaId, FormulaId>,
        change: &mut impl FnMut(&mut Self, FormulaId) -> FormulaId,
    ) -> FormulaId {
        self.map_where(id, known, &|_, _| true, change)
    }

    /// A formula with each of its conditions on the next value changed, for those of which the change is
    /// told. Only the parts that have some are looked at.
    pub(super) fn map_values(
        &mut self,
        id: FormulaId,
        known: &mut HashMap<FormulaId, FormulaId>,
        truth: &impl Fn(NodeId) -> Option<bool>,
    ) -> FormulaId {
        let has_value = |logic: &Self, id| logic.facts(id).has_value;
        self.map_where(
            id,
            known,
            &has_value,
            &mut |logic, id| match logic.formula(id) {
                Formula::Value(node) => match truth(*node) {
                    Some(true) => TRUE,
                    Some(false) => FALSE,
                    None => id,
                },
                _ => id,
            },
        )
    }

    /// A formula with each leaf changed, but for the parts that aren't looked at.
    fn map_where(
        &mut self,
        id: FormulaId,
        known: &mut HashMap<FormulaId, FormulaId>,
        is_looked_at: &impl Fn(&Self, FormulaId) -> bool,
        change: &mut impl FnMut(&mut Self, FormulaId) -> FormulaId,
    ) -> FormulaId {
        if !is_looked_at(self, id) {
            return id;
        }
        if let Some(&known) = known.get(&id) {
            return known;
        }
        let changed = match self.formula(id) {
            Formula::All(list) | Formula::Any(list) => {
                let all = matches!(self.formula(id), Formula::All(_));
                let list = list.clone();
                self.count(list.len());
                let list: Vec<_> = list
                    .iter()
                    .map(|&id| self.map_where(id, known, is_looked_at, change))
                    .collect();
                self.combine(&list, all)
            }
            _ => change(self, id),
        };
        known.insert(id, changed);
        changed
    }

    /// The conditions of formulas on the next value, in the order in which they are written, each once.
    pub(super) fn values(&self, roots: &[FormulaId], fuel: &mut Fuel) -> Result<Vec<NodeId>, Stop> {
        let leaves = self.leaves_where(roots, |id| self.facts(id).has_value, fuel)?;
        let value_of = |&leaf: &FormulaId| match *self.formula(leaf) {
            Formula::Value(node) => Some(node),
            _ => None,
        };
        Ok(leaves.iter().filter_map(value_of).collect())
    }

    /// All leaves of formulas, in the order in which they are written, each once.
    pub(super) fn leaves(
        &self,
        roots: &[FormulaId],
        fuel: &mut Fuel,
    ) -> Result<Vec<FormulaId>, Stop> {
        self.leaves_where(roots, |_| true, fuel)
    }

    /// The same without the formulas that are not wanted, and what is in them.
    fn leaves_where(
        &self,
        roots: &[FormulaId],
        is_wanted: impl Fn(FormulaId) -> bool,
        fuel: &mut Fuel,
    ) -> Result<Vec<FormulaId>, Stop> {
        let mut leaves = Vec::new();
        let mut seen = HashSet::new();
        let mut pending: Vec<FormulaId> = roots.iter().rev().copied().collect();
        while let Some(id) = pending.pop() {
            if !is_wanted(id) || !seen.insert(id) {
                continue;
            }
            match self.formula(id) {
                Formula::All(list) | Formula::Any(list) => {
                    fuel.burn(list.len() as u64 / OPERANDS_PER_STEP)?;
                    pending.extend(list.iter().rev());
                }
                _ => leaves.push(id),
            }
        }
        Ok(leaves)
    }

    /// The constants of a set.
    pub(super) fn set(&self, set: SetId) -> &[NodeId] {
        match (set.0 as usize).checked_sub(1) {
            Some(at) => &self.sets[at],
            None => &[],
        }
    }

    /// A set with one more constant.
    pub(super) fn with(&mut self, set: SetId, constant: NodeId) -> SetId {
        let mut list = self.set(set).to_vec();
        match list.binary_search(&constant) {
            Ok(_) => return set,
            Err(at) => list.insert(at, constant),
        }
        let list: Arc<[NodeId]> = list.into();
        if let Some(&known) = self.set_ids.get(&list) {
            return known;
        }
        self.bytes +=
            with_room(size_of::<Arc<[NodeId]>>() + size_of::<(Arc<[NodeId]>, SetId)>() + 1)
                + shared(size_of_val(&*list));
        self.sets.push(Arc::clone(&list));
        let id = SetId(self.sets.len() as u32);
        self.set_ids.insert(list, id);
        id
    }
}

impl Logic {
    pub(super) fn new() -> Self {
        let mut logic = Self::default();
        logic.intern(Formula::All(Box::default()));
        logic.intern(Formula::Any(Box::default()));
        logic
    }
}
