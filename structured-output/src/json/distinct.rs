//! Whether enough distinct values are left for the items that an array still needs: counted, not tried.
//!
//! Items are to come at some places, each with the node that it is to meet. Where a node has more values
//! left than there are places, its places can be filled last, whatever the others have: no place
//! takes a value that matters. What remains are places with few values, all of which are listed: to
//! give each of them one of its own is a matching (Hall 1935; found as Kuhn did, 1955).

use hashbrown::{HashMap, HashSet};

use super::formula::{FALSE, FormulaId, SetId};
use super::live::DEAD;
use super::node::{NodeId, OPERANDS_PER_STEP};
use super::programs::Programs;
use super::shape::NONE;
use super::values::ValueId;
use crate::bound::Bound;
use crate::lexical::{Fuel, Lexicon, Stop};

/// Each counts as this many at least.
const LEAST_BYTES: usize = 10;

/// How an array of distinct items ends.
pub(super) enum Ending {
    /// With these items.
    Items(Chosen),
    /// There are too few values.
    Never,
    /// It has to be searched for.
    Unknown,
}

/// Items with which an array ends.
#[derive(Debug, Clone, Default)]
pub(super) struct Chosen {
    /// By place, the node and the number of its value.
    items: Vec<(NodeId, usize)>,
    /// Of these places, those without whose values there may be no other end.
    critical: Vec<usize>,
}

impl Chosen {
    /// The items as they are written.
    pub(super) fn texts(&self, programs: &Programs) -> Vec<Vec<u8>> {
        let places = 0..self.items.len();
        places.map(|place| self.text(programs, place)).collect()
    }

    /// Those without which there may be no other end, as they are written.
    pub(super) fn critical_texts(&self, programs: &Programs) -> Vec<Vec<u8>> {
        let places = self.critical.iter();
        places.map(|&place| self.text(programs, place)).collect()
    }

    fn text(&self, programs: &Programs, place: usize) -> Vec<u8> {
        let (node, number) = self.items[place];
        let listed = programs.values.of(node).get(number);
        listed.map_or(Vec::new(), |listed| listed.text.to_vec())
    }

    /// Bytes of the items, each with a comma or bracket.
    pub(super) fn bytes(&self, programs: &Programs) -> usize {
        let items = self.items.iter();
        let texts = items.filter_map(|&(node, number)| programs.values.of(node).get(number));
        texts.map(|listed| listed.text.len() + 1).sum()
    }
}

/// Places that are to have values of one node.
struct Places {
    node: NodeId,
    /// By number, among all places.
    places: Vec<usize>,
    /// The numbers of the values that no item has yet, as many as can matter.
    left: Vec<usize>,
    /// Whether there are more of them than places of any kind.
    is_ample: bool,
}

impl Programs {
    /// How an array ends whose items are all to be distinct, from those of a set and from each other.
    /// `formula` speaks of that no more. Linear in the items of the set and those needed, but where a
    /// value may stand at several places and is one of few.
    pub(super) fn distinct_ending(
        &mut self,
        lexicon: &mut Lexicon,
        formula: FormulaId,
        set: SetId,
        fuel: &mut Fuel,
    ) -> Result<Ending, Stop> {
        let Some((needed, is_only)) = self.places_to_fill(lexicon, formula, fuel)? else {
            return Ok(Ending::Never);
        };
        let Some(taken) = self.values_taken(set, fuel)? else {
            return Ok(Ending::Unknown);
        };
        let num_places: usize = needed.iter().map(|&(_, times)| times as usize).sum();
        let mut groups: Vec<Places> = Vec::new();
        let mut by_node: HashMap<NodeId, usize> = HashMap::new();
        let mut next = 0;
        if num_places > Bound::DistinctPlaces.max() {
            return match is_only && self.has_too_few(lexicon, &needed, &taken, fuel)? {
                true => Ok(Ending::Never),
                false => Err(fuel.exhaust(Bound::DistinctPlaces)),
            };
        }
        let mut num_bytes = 0_usize;
        for &(node, times) in &needed {
            let shape = self.shape(lexicon, node, fuel)?;
            if shape.words == 0 && shape.number == NONE && shape.string == NONE {
                let cost = self.cost(lexicon, node, fuel)? as usize;
                num_bytes = num_bytes.saturating_add(cost.max(LEAST_BYTES) * times as usize);
            }
        }
        if num_bytes > Bound::DistinctBytes.max() {
            return Err(fuel.exhaust(Bound::DistinctBytes));
        }
        for (node, times) in needed {
            let places = next..next + times as usize;
            next = places.end;
            match by_node.get(&node) {
                Some(&at) => groups[at].places.extend(places),
                None => {
                    by_node.insert(node, groups.len());
                    let left = self.values_left(lexicon, node, &taken, num_places, fuel)?;
                    groups.push(Places {
                        node,
                        places: places.collect(),
                        is_ample: left.len() > num_places,
                        left,
                    });
                }
            }
        }
        let mut used: HashSet<ValueId> = HashSet::new();
        let mut chosen = Chosen {
            items: vec![(super::node::NOTHING, 0); num_places],
            critical: Vec::new(),
        };
        let few: Vec<&Places> = groups.iter().filter(|group| !group.is_ample).collect();
        match self.matched(&few, fuel)? {
            Some(matched) => {
                for (place, item) in matched {
                    used.extend(self.values.of(item.0).get(item.1).map(|listed| listed.id));
                    chosen.items[place] = item;
                    chosen.critical.push(place);
                }
            }
            None if is_only && few.iter().all(|group| self.values.are_all(group.node)) => {
                return Ok(Ending::Never);
            }
            None => return Ok(Ending::Unknown),
        }
        for group in groups.iter().filter(|group| group.is_ample) {
            let mut left = group.left.iter();
            for &place in &group.places {
                let fresh = left.find(|&&number| {
                    let listed = self.values.of(group.node).get(number);
                    listed.is_some_and(|listed| used.insert(listed.id))
                });
                // There are more values left than places.
                let Some(&number) = fresh else {
                    return Ok(Ending::Unknown);
                };
                chosen.items[place] = (group.node, number);
            }
        }
        Ok(Ending::Items(chosen))
    }

    /// The nodes that the items of an array are to meet with which it ends, each with how many in a row
    /// are such, as if items needed not be distinct; and whether there is no other way that could
    /// do with fewer values. `None` where nothing ends it.
    #[allow(clippy::type_complexity)]
    fn places_to_fill(
        &mut self,
        lexicon: &mut Lexicon,
        formula: FormulaId,
        fuel: &mut Fuel,
    ) -> Result<Option<(Vec<(NodeId, u32)>, bool)>, Stop> {
        if formula == FALSE {
            return Ok(None);
        }
        if self.logic.facts(formula).closes {
            return Ok(Some((Vec::new(), true)));
        }
        if let Some(mut plain) = self.plain_array(formula) {
            if plain.is_contradicted() {
                return Ok(None);
            }
            let mut needed = Vec::new();
            while plain.min > 0 {
                let (value, times) = plain.next(&mut self.logic.nodes);
                if self.cost(lexicon, value, fuel)? == DEAD {
                    return Ok(None);
                }
                needed.push((self.resolved(value), times));
            }
            return Ok(Some((needed, true)));
        }
        let known = self.costs.distinct_ways.get(&formula).cloned();
        let way = match known {
            Some(known) => known,
            None => {
                let Some((_, items)) = self.items_to_end(lexicon, formula, fuel)? else {
                    // Perhaps only since a value was not known yet.
                    return Ok(None);
                };
                self.costs.note_distinct_way(formula, items)
            }
        };
        fuel.burn(way.len() as u64 / OPERANDS_PER_STEP)?;
        let mut needed: Vec<(NodeId, u32)> = Vec::new();
        for &value in way.iter() {
            let value = self.resolved(value);
            match needed.last_mut() {
                Some((last, times)) if *last == value => *times += 1,
                _ => needed.push((value, 1)),
            }
        }
        Ok(Some((needed, false)))
    }

    /// The values of the items so far. `None` where one of them can't be told.
    fn values_taken(&self, set: SetId, fuel: &mut Fuel) -> Result<Option<HashSet<ValueId>>, Stop> {
        let items = self.logic.set(set);
        fuel.burn(items.len() as u64 / OPERANDS_PER_STEP)?;
        let values = items.iter().map(|&item| self.values.of_constant(item));
        Ok(values.collect())
    }

    /// Whether one of some nodes surely has fewer values left than are to be of it, however few those are.
    fn has_too_few(
        &mut self,
        lexicon: &mut Lexicon,
        needed: &[(NodeId, u32)],
        taken: &HashSet<ValueId>,
        fuel: &mut Fuel,
    ) -> Result<bool, Stop> {
        for &(node, times) in needed {
            let left = self.values_left(lexicon, node, taken, Bound::DistinctPlaces.max(), fuel)?;
            if left.len() < times as usize && self.values.are_all(node) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The numbers of a node's values that are not taken, no more than one for each place and another.
    fn values_left(
        &mut self,
        lexicon: &mut Lexicon,
        node: NodeId,
        taken: &HashSet<ValueId>,
        num_places: usize,
        fuel: &mut Fuel,
    ) -> Result<Vec<usize>, Stop> {
        let enough = num_places + 1;
        self.list_values(lexicon, node, taken.len() + enough, fuel)?;
        let listed = self.values.of(node);
        fuel.burn(listed.len().min(taken.len() + enough) as u64 / OPERANDS_PER_STEP)?;
        let left = listed.iter().enumerate();
        let left = left.filter(|(_, listed)| !taken.contains(&listed.id));
        Ok(left.take(enough).map(|(number, _)| number).collect())
    }

    /// A value for each place of nodes with few values, all different. `None` where there are too few.
    #[allow(clippy::type_complexity)]
    fn matched(
        &self,
        groups: &[&Places],
        fuel: &mut Fuel,
    ) -> Result<Option<Vec<(usize, (NodeId, usize))>>, Stop> {
        if groups
            .iter()
            .any(|group| group.left.len() < group.places.len())
        {
            return Ok(None);
        }
        if let [only] = groups {
            let pairs = only.places.iter().zip(&only.left);
            return Ok(Some(
                pairs
                    .map(|(&place, &left)| (place, (only.node, left)))
                    .collect(),
            ));
        }
        // By value, the group and place that has it, and its number there.
        let mut owners: HashMap<ValueId, (usize, usize, usize)> = HashMap::new();
        for (at, group) in groups.iter().enumerate() {
            for &place in &group.places {
                if !self.place(groups, (at, place), &mut owners, fuel)? {
                    return Ok(None);
                }
            }
        }
        let found = owners.into_values();
        Ok(Some(
            found
                .map(|(at, place, number)| (place, (groups[at].node, number)))
                .collect(),
        ))
    }

    /// Gives a place a value, others being moved to make room: along the shortest path on which each
    /// place takes the value of the next. False where there is no room.
    fn place(
        &self,
        groups: &[&Places],
        start: (usize, usize),
        owners: &mut HashMap<ValueId, (usize, usize, usize)>,
        fuel: &mut Fuel,
    ) -> Result<bool, Stop> {
        // By value that was reached, the place that wants it, the number there, and the value which that
        // place has now.
        type Step = (usize, usize, usize, Option<ValueId>);
        let mut reached: HashMap<ValueId, Step> = HashMap::new();
        let mut pending = std::collections::VecDeque::from([(start.0, start.1, None)]);
        while let Some((at, place, own)) = pending.pop_front() {
            let group = groups[at];
            fuel.burn(1 + group.left.len() as u64 / OPERANDS_PER_STEP)?;
            for &number in &group.left {
                let Some(listed) = self.values.of(group.node).get(number) else {
                    continue;
                };
                if reached.contains_key(&listed.id) {
                    continue;
                }
                reached.insert(listed.id, (at, place, number, own));
                match owners.get(&listed.id) {
                    Some(&(other, place, _)) => {
                        pending.push_back((other, place, Some(listed.id)));
                    }
                    None => {
                        let mut free = Some(listed.id);
                        while let Some(value) = free
                            && let Some(&(at, place, number, own)) = reached.get(&value)
                        {
                            owners.insert(value, (at, place, number));
                            free = own;
                        }
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }
}
