//! Members with which an object may end, searched for.

use hashbrown::HashSet;

use super::derive::Event;
use super::formula::{FALSE, Formula, FormulaId};
use super::live::{DEAD, WayMember};
use super::needed::End;
use super::node::Node;
use super::object::ObjectAt;
use super::plan::spelled;
use super::programs::Programs;
use super::seen::SeenId;
use crate::lexical::{Fuel, Lexicon, Stop};

/// A place in the search for members.
struct Level {
    /// Names before it are decided.
    name: u32,
    formula: FormulaId,
    seen: SeenId,
    /// The member that leads here.
    member: Option<WayMember>,
    /// What is left to try; `None` where nothing was tried yet.
    options: Option<Options>,
}

impl Level {
    fn new(name: u32, formula: FormulaId, seen: SeenId, member: Option<WayMember>) -> Self {
        Self {
            name,
            formula,
            seen,
            member,
            options: None,
        }
    }
}

/// So many places are tried before all conditions are looked at together: mostly the first ones do.
const EASY: usize = 64;
/// Of so many alternatives that are all to be met, and ask for about so many keys, none is tried before: each
/// place would be a formula as long.
const MANY_CLAUSES: usize = 24;
const MANY_KEYS: u32 = 8;

/// How many of a name's values are looked for at once.
const VALUES_AT_ONCE: usize = 4;

/// What is left to try at a place.
#[derive(Default)]
struct Options {
    /// The last first.
    ready: Vec<Level>,
    /// Then, with the next name.
    named: Option<Named>,
}

/// A name's values, as far as they are asked for.
struct Named {
    /// The name after it, and the other keys that there are.
    level: (u32, SeenId),
    /// As it is written.
    text: Vec<u8>,
    /// What remains without the name: values that leave the same are not tried.
    without: FormulaId,
    /// What the member's values are ways of.
    key: (FormulaId, Event),
    /// The number of the way that is tried next.
    next: usize,
}

impl Programs {
    /// Members with which an object may end, in the order of the plan. `None` where there are none.
    ///
    /// Where the names that must come aren't enough, that is a search: it goes through the names in
    /// their order, each of them with each value that makes a difference and without a member, then
    /// through fresh keys of each class; depth first, where the least remains first, and what has failed
    /// is not tried again. Where it finds nothing soon, all conditions are looked at together first.
    pub(super) fn members_to_end(
        &mut self,
        lexicon: &mut Lexicon,
        start: ObjectAt,
        formula: FormulaId,
        fuel: &mut Fuel,
    ) -> Result<Option<Vec<WayMember>>, Stop> {
        let object = self.object_of(start.plan, [formula].into());
        if let Some(plain) = self.plain[object.0 as usize].clone() {
            return self.plain_members_to_end(lexicon, start, &plain, 0, fuel);
        }
        let formula = self.logic.with_keys_decided(formula);
        match self.end_with_needed(lexicon, start, formula, fuel)? {
            End::Members(members) => return Ok(Some(members)),
            End::Never => return Ok(None),
            End::Unknown => {}
        }
        if let Some(members) = self.likely_members(lexicon, start, formula, fuel)? {
            return Ok(Some(members));
        }
        let num_keys = self.logic.facts(formula).names.count_ones();
        let num_easy = match num_keys >= MANY_KEYS && self.num_clauses(formula) >= MANY_CLAUSES {
            true => 1,
            false => EASY,
        };
        let mut num_tried = 0_usize;
        let mut failed: HashSet<(u32, FormulaId, SeenId)> = HashSet::new();
        let mut levels = vec![Level::new(0, formula, start.seen, None)];
        while let Some(level) = levels.last() {
            fuel.burn(1)?;
            num_tried += 1;
            if num_tried == num_easy {
                match self.end_with_choice(lexicon, start, formula, fuel)? {
                    End::Members(members) => return Ok(Some(members)),
                    End::Never => return Ok(None),
                    End::Unknown => {}
                }
            }
            let (name, formula, seen) = (level.name, level.formula, level.seen);
            if self.logic.facts(formula).closes {
                return Ok(Some(
                    levels
                        .into_iter()
                        .filter_map(|level| level.member)
                        .collect(),
                ));
            }
            let is_new = level.options.is_none();
            if is_new && failed.contains(&(name, formula, seen)) {
                levels.pop();
                continue;
            }
            if is_new {
                let at = ObjectAt { seen, ..start };
                let options = self.options(lexicon, at, name, formula, fuel)?;
                if let Some(level) = levels.last_mut() {
                    level.options = Some(options);
                }
            }
            let next = match levels.last_mut().and_then(|level| level.options.as_mut()) {
                Some(options) => self.next_option(lexicon, options, fuel)?,
                None => None,
            };
            match next {
                Some(next) => levels.push(next),
                None => {
                    failed.insert((name, formula, seen));
                    levels.pop();
                }
            }
        }
        Ok(None)
    }

    /// How many alternatives a formula has that are all to be met.
    fn num_clauses(&self, formula: FormulaId) -> usize {
        let Formula::All(list) = self.logic.formula(formula) else {
            return 1;
        };
        let is_clause = |id: &&FormulaId| matches!(self.logic.formula(**id), Formula::Any(_));
        list.iter().filter(is_clause).count()
    }

    /// What to try next in a search for members.
    fn options(
        &mut self,
        lexicon: &mut Lexicon,
        at: ObjectAt,
        from: u32,
        formula: FormulaId,
        fuel: &mut Fuel,
    ) -> Result<Options, Stop> {
        let num_names = self.plan(at.plan).num_names();
        let name = self.next_name(at, formula, from, fuel)?;
        let mut options = Options::default();
        if name < num_names {
            let without = self.derive(formula, Event::Without(at.plan, name), fuel)?;
            let text = spelled(self.plan(at.plan).name(name).unwrap_or_default());
            let key = Event::Key(at.plan, name);
            if self.is_splitting(formula, key) {
                // Within a value of this very member: by all ways.
                for outcome in self.outcomes(lexicon, &[formula], key, fuel)?.iter() {
                    if outcome.rest[0] != without {
                        let member = Some((text.clone(), outcome.value));
                        let level = Level::new(name + 1, outcome.rest[0], at.seen, member);
                        options.ready.push(level);
                    }
                }
            } else {
                let mut named = Named {
                    level: (name + 1, at.seen),
                    text,
                    without,
                    key: (formula, key),
                    next: 0,
                };
                self.more_values(lexicon, &mut named, &mut options.ready, fuel)?;
                options.named = Some(named);
            }
            if without != FALSE {
                let without = Level::new(name + 1, without, at.seen, None);
                options.ready.push(without);
            }
            self.sort_options(&mut options.ready);
        } else if self.logic.facts(formula).wants_members {
            for class in 0..self.plan(at.plan).classes.len() {
                let key = Event::Key(at.plan, num_names + class as u32);
                let outcomes = self.outcomes(lexicon, &[formula], key, fuel)?;
                if !outcomes.iter().any(|outcome| outcome.rest[0] != formula) {
                    continue;
                }
                let Some((text, after)) = self.fresh_key(lexicon, at, class, fuel)? else {
                    continue;
                };
                for outcome in outcomes.iter().filter(|o| o.rest[0] != formula) {
                    let member = Some((text.clone(), outcome.value));
                    let level = Level::new(num_names, outcome.rest[0], after.seen, member);
                    options.ready.push(level);
                }
            }
            self.sort_options(&mut options.ready);
        }
        Ok(options)
    }

    /// Puts the options with which the least remains last, and of equals, that without a member.
    fn sort_options(&self, options: &mut [Level]) {
        options.sort_by_key(|level| {
            let size = self.logic.facts(level.formula).size;
            std::cmp::Reverse((size, level.member.is_some()))
        });
    }

    /// The next option of a place in the search, whose member's value exists.
    fn next_option(
        &mut self,
        lexicon: &mut Lexicon,
        options: &mut Options,
        fuel: &mut Fuel,
    ) -> Result<Option<Level>, Stop> {
        loop {
            if options.ready.is_empty()
                && let Some(named) = &mut options.named
            {
                self.more_values(lexicon, named, &mut options.ready, fuel)?;
                self.sort_options(&mut options.ready);
            }
            let Some(next) = options.ready.pop() else {
                return Ok(None);
            };
            let is_possible = match next.member {
                Some((_, value)) => self.cost(lexicon, value, fuel)? != DEAD,
                None => true,
            };
            if is_possible {
                return Ok(Some(next));
            }
        }
    }

    /// Adds some of a name's values, so that the one with which the least remains can be tried first.
    fn more_values(
        &mut self,
        lexicon: &mut Lexicon,
        named: &mut Named,
        ready: &mut Vec<Level>,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        for _ in 0..VALUES_AT_ONCE {
            match self.next_value(lexicon, named, fuel)? {
                Some(level) => ready.push(level),
                None => break,
            }
        }
        Ok(())
    }

    /// The next of a name's values with which something else remains than without the name. Of
    /// hundreds of alternatives the first mostly does, and what the others are is not asked.
    fn next_value(
        &mut self,
        lexicon: &mut Lexicon,
        named: &mut Named,
        fuel: &mut Fuel,
    ) -> Result<Option<Level>, Stop> {
        while let Some((value, rest)) = self.way(lexicon, named.key, named.next, fuel)? {
            named.next += 1;
            if rest != named.without {
                let (name, seen) = named.level;
                let member = Some((named.text.clone(), value));
                return Ok(Some(Level::new(name, rest, seen, member)));
            }
        }
        Ok(None)
    }

    /// The first name from one on that may still come and makes a difference.
    fn next_name(
        &self,
        at: ObjectAt,
        formula: FormulaId,
        from: u32,
        fuel: &mut Fuel,
    ) -> Result<u32, Stop> {
        let plan = self.plan(at.plan);
        if self.logic.facts(formula).wants_members {
            let mut names = from..plan.num_names();
            let open = names.find(|&name| self.is_open(at, name));
            return Ok(open.unwrap_or(plan.num_names()));
        }
        let mut first = plan.num_names();
        for leaf in self.logic.leaves(&[formula], fuel)? {
            if let Formula::Is(node) = self.logic.formula(leaf)
                && let Node::Has(name) = self.logic.nodes.node(*node)
                && let Some(name) = plan.number(name)
                && name >= from
                && self.is_open(at, name)
            {
                first = first.min(name);
            }
        }
        Ok(first)
    }
}
