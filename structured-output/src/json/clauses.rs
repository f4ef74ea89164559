//! Whether clauses can be met, by learning from what fails (Marques-Silva and Sakallah 1996, with the watched
//! literals of Moskewicz and others 2001).
//!
//! Takes the same steps each time: nothing in it is random. Variables are tried as false first, so that
//! little is true in what it finds.

use crate::lexical::{Fuel, Stop};

/// Literals that are looked at and take one step.
const LITERALS_PER_STEP: u64 = 8;

/// Conflicts up to which it goes on at first before it begins anew with what it learned.
const FIRST_RESTART: u64 = 64;

/// How fast what was learned long ago loses its weight.
const DECAY: f64 = 0.95;

/// Weights are made smaller beyond this.
const MAX_WEIGHT: f64 = 1e100;

/// A variable or its contrary.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Literal(u32);

impl Literal {
    fn var(self) -> usize {
        self.0 as usize / 2
    }

    fn is_positive(self) -> bool {
        self.0 & 1 == 0
    }

    fn at(self) -> usize {
        self.0 as usize
    }
}

impl std::ops::Not for Literal {
    type Output = Self;

    fn not(self) -> Self {
        Self(self.0 ^ 1)
    }
}

/// Why a variable has its value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// It was tried, or follows from nothing else.
    None,
    /// All other literals of a clause fail.
    Clause(u32),
}

struct Variable {
    value: Option<bool>,
    /// The number of tries on which the value depends.
    level: u32,
    reason: Reason,
    weight: f64,
    /// Within [`Clauses::learn`].
    is_seen: bool,
}

/// Clauses over variables, and values of these.
pub(super) struct Clauses {
    clauses: Vec<Vec<Literal>>,
    variables: Vec<Variable>,
    /// By literal, the clauses that have its contrary among their first two.
    watched: Vec<Vec<u32>>,
    /// What holds, in the order in which that was found.
    trail: Vec<Literal>,
    /// Where on the trail each try is.
    tries: Vec<usize>,
    /// The consequences of the trail are known up to here.
    head: usize,
    weight: f64,
    is_contradicted: bool,
    /// Literals looked at since the last step.
    literals: u64,
}

impl Clauses {
    pub(super) fn new() -> Self {
        Self {
            clauses: Vec::new(),
            variables: Vec::new(),
            watched: Vec::new(),
            trail: Vec::new(),
            tries: Vec::new(),
            head: 0,
            weight: 1.0,
            is_contradicted: false,
            literals: 0,
        }
    }

    /// A further variable, as a literal.
    pub(super) fn variable(&mut self) -> Literal {
        let literal = Literal(2 * self.variables.len() as u32);
        self.variables.push(Variable {
            value: None,
            level: 0,
            reason: Reason::None,
            weight: 0.0,
            is_seen: false,
        });
        self.watched.extend([Vec::new(), Vec::new()]);
        literal
    }

    /// Whether a literal holds, if that is known.
    pub(super) fn holds(&self, literal: Literal) -> Option<bool> {
        let value = self.variables[literal.var()].value;
        value.map(|value| value == literal.is_positive())
    }

    /// One of these is to hold.
    pub(super) fn add(&mut self, literals: &[Literal]) {
        self.literals += literals.len() as u64;
        self.take_back(0);
        let mut clause = literals.to_vec();
        clause.sort_unstable();
        clause.dedup();
        let is_met = clause.windows(2).any(|pair| pair[0] == !pair[1])
            || clause
                .iter()
                .any(|&literal| self.holds(literal) == Some(true));
        if is_met {
            return;
        }
        clause.retain(|&literal| self.holds(literal).is_none());
        match clause[..] {
            [] => self.is_contradicted = true,
            [only] => self.set(only, Reason::None),
            _ => {
                self.watch(clause);
            }
        }
    }

    /// Finds values under which all clauses are met, a variable false where that does it; false where there
    /// are none.
    pub(super) fn solve(&mut self, fuel: &mut Fuel) -> Result<bool, Stop> {
        self.take_back(0);
        let (mut conflicts, mut restart) = (0_u64, FIRST_RESTART);
        while !self.is_contradicted {
            let conflict = self.propagate();
            fuel.burn(1 + self.literals / LITERALS_PER_STEP)?;
            self.literals %= LITERALS_PER_STEP;
            if let Some(conflict) = conflict {
                if self.tries.is_empty() {
                    self.is_contradicted = true;
                    break;
                }
                conflicts += 1;
                self.learn(conflict);
            } else if conflicts >= restart {
                (conflicts, restart) = (0, restart + restart / 2);
                self.take_back(0);
            } else if let Some(literal) = self.next_try() {
                self.tries.push(self.trail.len());
                self.set(literal, Reason::None);
            } else {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The variable without a value that has the most weight, the first of equals, as false.
    fn next_try(&mut self) -> Option<Literal> {
        self.literals += self.variables.len() as u64 / 8;
        let mut best: Option<(f64, usize)> = None;
        for (var, variable) in self.variables.iter().enumerate() {
            let is_better = best.is_none_or(|(weight, _)| variable.weight > weight);
            if variable.value.is_none() && is_better {
                best = Some((variable.weight, var));
            }
        }
        best.map(|(_, var)| Literal(2 * var as u32 + 1))
    }

    fn watch(&mut self, clause: Vec<Literal>) -> Reason {
        let number = self.clauses.len() as u32;
        for &literal in &clause[..2] {
            self.watched[(!literal).at()].push(number);
        }
        self.clauses.push(clause);
        Reason::Clause(number)
    }

    fn set(&mut self, literal: Literal, reason: Reason) {
        let level = self.tries.len() as u32;
        let variable = &mut self.variables[literal.var()];
        variable.value = Some(literal.is_positive());
        variable.level = level;
        variable.reason = reason;
        self.trail.push(literal);
    }

    /// Takes tries back until there are so many.
    fn take_back(&mut self, tries: usize) {
        let Some(&start) = self.tries.get(tries) else {
            return;
        };
        for literal in self.trail.drain(start..) {
            self.variables[literal.var()].value = None;
        }
        self.tries.truncate(tries);
        self.head = start;
    }

    /// Finds what follows from what holds; the clause that fails, if one does.
    fn propagate(&mut self) -> Option<u32> {
        while let Some(&literal) = self.trail.get(self.head) {
            self.head += 1;
            let mut watching = std::mem::take(&mut self.watched[literal.at()]);
            let (mut kept, mut conflict) = (0, None);
            for at in 0..watching.len() {
                let number = watching[at];
                watching[kept] = number;
                kept += 1;
                if conflict.is_some() {
                    continue;
                }
                self.literals += 1;
                // The one that fails comes second.
                let clause = &mut self.clauses[number as usize];
                if clause[0] == !literal {
                    clause.swap(0, 1);
                }
                let variables = &self.variables;
                let fails = |literal: Literal| {
                    variables[literal.var()].value == Some(!literal.is_positive())
                };
                let first = clause[0];
                if variables[first.var()].value == Some(first.is_positive()) {
                    continue;
                }
                let other = clause[2..].iter().position(|&literal| !fails(literal));
                self.literals += other.unwrap_or(clause.len()) as u64;
                if let Some(other) = other {
                    clause.swap(1, other + 2);
                    self.watched[(!clause[1]).at()].push(number);
                    kept -= 1;
                } else if fails(first) {
                    conflict = Some(number);
                } else {
                    self.set(first, Reason::Clause(number));
                }
            }
            watching.truncate(kept);
            self.watched[literal.at()] = watching;
            if conflict.is_some() {
                return conflict;
            }
        }
        None
    }

    /// Learns from a clause that fails what mustn't be tried again, takes back the tries to which that
    /// says nothing, and sets what follows.
    fn learn(&mut self, conflict: u32) {
        let level = self.tries.len() as u32;
        let mut learned = Vec::new();
        let mut seen = Vec::new();
        // Literals of the last try that are still to be traced back.
        let mut open = 0;
        let mut reason = Reason::Clause(conflict);
        let mut at = self.trail.len();
        let mut traced = None;
        loop {
            if let Reason::Clause(number) = reason {
                let clause = &self.clauses[number as usize];
                self.literals += clause.len() as u64;
                for &literal in clause {
                    let variable = &mut self.variables[literal.var()];
                    if Some(literal) == traced || variable.is_seen || variable.level == 0 {
                        continue;
                    }
                    variable.is_seen = true;
                    variable.weight += self.weight;
                    seen.push(literal.var());
                    if variable.level == level {
                        open += 1;
                    } else {
                        learned.push(literal);
                    }
                }
            }
            // The last of those on the trail.
            while at > 0 {
                at -= 1;
                if self.variables[self.trail[at].var()].is_seen {
                    break;
                }
            }
            let literal = self.trail[at];
            traced = Some(literal);
            reason = self.variables[literal.var()].reason;
            open -= 1;
            if open == 0 {
                learned.push(!literal);
                break;
            }
        }
        for &var in &seen {
            self.variables[var].is_seen = false;
        }
        self.weigh(&seen);
        // First what follows, then what was tried last of the others.
        learned.reverse();
        let level_of = |literal: &Literal| self.variables[literal.var()].level;
        let last = (1..learned.len()).max_by_key(|&at| level_of(&learned[at]));
        let back = last.map_or(0, |last| level_of(&learned[last]));
        if let Some(last) = last {
            learned.swap(1, last);
        }
        self.literals += learned.len() as u64 * LITERALS_PER_STEP;
        self.take_back(back as usize);
        let first = learned[0];
        let reason = match learned.len() {
            1 => Reason::None,
            _ => self.watch(learned),
        };
        self.set(first, reason);
    }

    /// What comes next weighs more.
    fn weigh(&mut self, seen: &[usize]) {
        self.weight /= DECAY;
        let is_much = seen
            .iter()
            .any(|&var| self.variables[var].weight > MAX_WEIGHT);
        if is_much || self.weight > MAX_WEIGHT {
            for variable in &mut self.variables {
                variable.weight /= MAX_WEIGHT;
            }
            self.weight /= MAX_WEIGHT;
        }
    }
}

#[cfg(test)]
#[path = "clauses_tests.rs"]
mod tests;
