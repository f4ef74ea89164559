//! Keys that must come, or must not, and what hangs on them: unit propagation (Davis and Putnam 1960).
//!
//! `dependentRequired` and its kin say "no `a`, or `b`", for each of many keys. Once `a` is there, `b`
//! must come, and what `b` needs, and so on. Written out, what remains is a list of names, which is
//! a plain object; left as implications, every subset of the keys would be a formula of its own.

use hashbrown::HashMap;

use super::facts::bit_of;
use super::formula::{FALSE, Formula, FormulaId, Logic, TRUE};
use super::node::{Node, NodeId};

/// What is known of keys, by the node that says that one is there.
type Known = HashMap<NodeId, bool>;

/// Which keys are known, and those of which the consequences were not looked at yet.
#[derive(Default)]
struct Units {
    known: Known,
    pending: Vec<NodeId>,
    /// Of the keys that are known, see `Facts::names`.
    names: u64,
    /// What formulas are where these keys are known: formulas share parts.
    decided: HashMap<FormulaId, FormulaId>,
    /// Something is known twice, and not the same.
    is_contradicted: bool,
}

impl Logic {
    /// The key of a literal that says whether it is there.
    fn key_of_literal(&self, id: FormulaId) -> Option<(NodeId, bool)> {
        let (node, holds) = match *self.formula(id) {
            Formula::Is(node) => (node, true),
            Formula::Not(node) => (node, false),
            _ => return None,
        };
        matches!(self.nodes.node(node), Node::Has(_)).then_some((node, holds))
    }

    /// Takes note of a key that a formula which holds decides, or of those that its operands do.
    fn note_units(&self, id: FormulaId, units: &mut Units) {
        let alone = [id];
        let list = match self.formula(id) {
            Formula::All(list) => list,
            _ => &alone[..],
        };
        for &id in list {
            if let Some((key, holds)) = self.key_of_literal(id) {
                match units.known.insert(key, holds) {
                    None => {
                        units.names |= self.facts(id).names;
                        units.pending.push(key);
                        units.decided.clear();
                    }
                    Some(before) => units.is_contradicted |= before != holds,
                }
            }
        }
    }

    /// Formulas that all hold if and only if some do, without what follows from the keys that these
    /// decide, and from one that is known to be there or not. `None` where they contradict each other.
    /// Linear in their operands, but where keys are decided deep within others.
    pub(super) fn decided_by_keys(
        &mut self,
        list: &[FormulaId],
        known: Option<(NodeId, bool)>,
    ) -> Option<Vec<FormulaId>> {
        let mut flat = Vec::with_capacity(list.len());
        for &id in list {
            match self.formula(id) {
                Formula::All(inner) => flat.extend_from_slice(inner),
                _ => flat.push(id),
            }
        }
        self.count(flat.len());
        let mut units = Units::default();
        if let Some((key, holds)) = known {
            units.known.insert(key, holds);
            units.names |= bit_of(key);
            units.pending.push(key);
        }
        let mut has_clauses = false;
        for &id in &flat {
            self.note_units(id, &mut units);
            let is_clause = matches!(self.formula(id), Formula::Any(_));
            has_clauses |= is_clause && self.facts(id).names != 0;
        }
        if has_clauses && !units.known.is_empty() && !units.is_contradicted {
            self.propagate(&mut flat, &mut units);
        }
        (!units.is_contradicted).then_some(flat)
    }

    /// The same formula, where keys that it decides are left out of what else it says.
    pub(super) fn with_keys_decided(&mut self, formula: FormulaId) -> FormulaId {
        let Formula::All(list) = self.formula(formula) else {
            return formula;
        };
        match self.decided_by_keys(&list.clone(), None) {
            Some(list) => self.all(&list),
            None => FALSE,
        }
    }

    /// Leaves out of clauses what is known, which may make more known, until nothing changes.
    fn propagate(&mut self, flat: &mut [FormulaId], units: &mut Units) {
        // By key, the clauses with it in one of their operands.
        let mut clauses: Vec<(NodeId, u32)> = Vec::new();
        for (at, &id) in (0..).zip(flat.iter()) {
            if let Formula::Any(list) = self.formula(id) {
                let keys = list.iter().filter_map(|&id| self.key_of_literal(id));
                clauses.extend(keys.map(|key| (key.0, at)));
            }
        }
        clauses.sort_unstable();
        self.count(clauses.len());
        loop {
            while let Some(key) = units.pending.pop() {
                let first = clauses.partition_point(|clause| clause.0 < key);
                for &(_, at) in clauses[first..].iter().take_while(|clause| clause.0 == key) {
                    self.decide_clause(&mut flat[at as usize], units);
                }
                if units.is_contradicted {
                    return;
                }
            }
            // Then what is further within.
            self.count(flat.len());
            for clause in flat.iter_mut() {
                self.decide_clause(clause, units);
            }
            if units.pending.is_empty() || units.is_contradicted {
                return;
            }
        }
    }

    fn decide_clause(&mut self, clause: &mut FormulaId, units: &mut Units) {
        if self.key_of_literal(*clause).is_some() {
            return;
        }
        let decided = match self.formula(*clause) {
            // Keys that it decides itself stay.
            Formula::All(list) => {
                let list = list.clone();
                let list: Vec<FormulaId> = list
                    .iter()
                    .map(|&id| match self.key_of_literal(id) {
                        Some(_) => id,
                        None => self.decided(id, units),
                    })
                    .collect();
                self.all(&list)
            }
            _ => self.decided(*clause, units),
        };
        if decided != *clause {
            *clause = decided;
            self.note_units(decided, units);
        }
    }

    /// A formula where some keys are known. Recursion is bounded by the depth of formulas.
    fn decided(&mut self, id: FormulaId, units: &mut Units) -> FormulaId {
        if self.facts(id).names & units.names == 0 {
            return id;
        }
        if let Some((key, holds)) = self.key_of_literal(id) {
            return match units.known.get(&key) {
                Some(known) if *known == holds => TRUE,
                Some(_) => FALSE,
                None => id,
            };
        }
        if let Some(&known) = units.decided.get(&id) {
            return known;
        }
        let (list, is_all) = match self.formula(id) {
            Formula::All(list) => (list.clone(), true),
            Formula::Any(list) => (list.clone(), false),
            _ => return id,
        };
        self.count(list.len());
        let absorbing = if is_all { FALSE } else { TRUE };
        let mut rest = Vec::with_capacity(list.len());
        for &id in &list {
            rest.push(self.decided(id, units));
            if rest.last() == Some(&absorbing) {
                break;
            }
        }
        let decided = if rest.last() == Some(&absorbing) {
            absorbing
        } else if rest[..] == list[..] {
            id
        } else if is_all {
            self.all(&rest)
        } else {
            self.any(&rest)
        };
        units.decided.insert(id, decided);
        decided
    }
}
