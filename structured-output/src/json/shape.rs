//! What a value may be, by kind.
//!
//! Assertions speak of one kind each, so every boolean combination of them is one per kind: a set
//! of words, a language of numbers, one of strings, a formula over arrays and one over objects.

use hashbrown::HashSet;

use super::formula::{FALSE, FormulaId, NO_ITEMS, TRUE};
use super::node::{Kinds, Node, NodeId};
use super::programs::Programs;
use crate::bound::Bound;
use crate::lexical::{EMPTY, ExprId, Fuel, Lexicon, Stop, UNBOUNDED};

/// Spellings of numbers or strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spellings {
    /// All that JSON has.
    Free,
    Only(ExprId),
}

/// No spelling at all.
pub(super) const NONE: Spellings = Spellings::Only(EMPTY);

/// What a value may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// `null`, `false` and `true`: a set of [`Kinds`].
    pub(super) words: u8,
    pub(super) number: Spellings,
    pub(super) string: Spellings,
    pub(super) array: FormulaId,
    pub(super) object: FormulaId,
}

const WORDS: u8 = Kinds::NULL.0 | Kinds::BOOLEAN.0;

/// Any value.
const ANY: Shape = Shape {
    words: WORDS,
    number: Spellings::Free,
    string: Spellings::Free,
    array: TRUE,
    object: TRUE,
};

/// No value.
const NO: Shape = Shape {
    words: 0,
    number: NONE,
    string: NONE,
    array: FALSE,
    object: FALSE,
};

impl Programs {
    /// The node that a reference stands for, other nodes themselves. Cycles are refused when a
    /// grammar is made.
    pub(super) fn resolved(&self, mut node: NodeId) -> NodeId {
        while let Node::Reference(number) = *self.logic.nodes.node(node) {
            node = self.logic.nodes.definition(number);
        }
        node
    }

    /// The shape of a node.
    pub(super) fn shape(
        &mut self,
        lexicon: &mut Lexicon,
        node: NodeId,
        fuel: &mut Fuel,
    ) -> Result<Shape, Stop> {
        if let Some(&known) = self.shapes.get(&node) {
            return Ok(known);
        }
        let mut shape = NO;
        let mut pending = vec![node];
        while let Some(&next) = pending.last() {
            if let Some(&known) = self.shapes.get(&next) {
                shape = known;
                pending.pop();
                continue;
            }
            fuel.burn(1)?;
            let before = pending.len();
            match self.logic.nodes.node(next) {
                Node::AllOf(list) | Node::AnyOf(list) | Node::OneOf(list) => {
                    let unknown = list.iter().filter(|node| !self.shapes.contains_key(*node));
                    pending.extend(unknown.copied());
                }
                Node::Not(inner) if !self.shapes.contains_key(inner) => pending.push(*inner),
                Node::Reference(number) => {
                    let node = self.logic.nodes.definition(*number);
                    if !self.shapes.contains_key(&node) {
                        pending.push(node);
                    }
                }
                _ => {}
            }
            if pending.len() == before {
                let shape = self.shape_of_known(lexicon, next, fuel)?;
                if self.logic.take_too_deep() {
                    return Err(fuel.exhaust(Bound::Conditions));
                }
                self.shapes.insert(next, shape);
            }
        }
        Ok(shape)
    }

    fn known_shape(&self, node: NodeId) -> Shape {
        self.shapes.get(&node).copied().unwrap_or(NO)
    }

    /// The shape of a node whose operands' shapes are known.
    fn shape_of_known(
        &mut self,
        lexicon: &mut Lexicon,
        id: NodeId,
        fuel: &mut Fuel,
    ) -> Result<Shape, Stop> {
        let list: Vec<Shape> = match self.logic.nodes.node(id) {
            Node::AllOf(list) | Node::AnyOf(list) | Node::OneOf(list) => {
                list.iter().map(|&node| self.known_shape(node)).collect()
            }
            _ => Vec::new(),
        };
        fuel.burn(list.len() as u64)?;
        let logic = &mut self.logic;
        Ok(match logic.nodes.node(id) {
            Node::AllOf(_) => {
                let texts = self.texts(lexicon);
                let arrays: Vec<_> = list.iter().map(|shape| shape.array).collect();
                let objects: Vec<_> = list.iter().map(|shape| shape.object).collect();
                Shape {
                    words: list.iter().fold(WORDS, |words, shape| words & shape.words),
                    number: {
                        let numbers = all(lexicon, list.iter().map(|shape| shape.number));
                        self.without_lists(lexicon, numbers, texts.decimal, fuel)?
                    },
                    string: self.all_strings(lexicon, &list, fuel)?,
                    array: self.logic.all(&arrays),
                    object: self.logic.all(&objects),
                }
            }
            Node::AnyOf(_) => {
                let arrays: Vec<_> = list.iter().map(|shape| shape.array).collect();
                let objects: Vec<_> = list.iter().map(|shape| shape.object).collect();
                Shape {
                    words: list.iter().fold(0, |words, shape| words | shape.words),
                    number: any(lexicon, list.iter().map(|shape| shape.number)),
                    string: any(lexicon, list.iter().map(|shape| shape.string)),
                    array: logic.any(&arrays),
                    object: logic.any(&objects),
                }
            }
            Node::OneOf(_) => {
                let texts = self.texts(lexicon);
                let (mut some, mut several) = (0, 0);
                for shape in &list {
                    several |= some & shape.words;
                    some |= shape.words;
                }
                let numbers = list.iter().map(|shape| shape.number);
                let number = one(lexicon, numbers, texts.decimal, true, fuel)?;
                let strings = list.iter().map(|shape| shape.string);
                let string = one(lexicon, strings, texts.constrained, false, fuel)?;
                let arrays: Vec<_> = list.iter().map(|shape| shape.array).collect();
                let objects: Vec<_> = list.iter().map(|shape| shape.object).collect();
                Shape {
                    words: some & !several,
                    number,
                    string,
                    array: self.one_formula(&arrays, fuel)?,
                    object: self.one_formula(&objects, fuel)?,
                }
            }
            Node::Not(inner) => {
                let inner = *inner;
                let shape = self.known_shape(inner);
                let texts = self.texts(lexicon);
                Shape {
                    words: WORDS & !shape.words,
                    number: contrary(lexicon, shape.number, texts.decimal),
                    string: contrary(lexicon, shape.string, texts.constrained),
                    array: self.logic.contrary(shape.array),
                    object: self.logic.contrary(shape.object),
                }
            }
            Node::Kinds(kinds) => {
                let free = |kind| match kinds.contains(kind) {
                    true => Spellings::Free,
                    false => NONE,
                };
                let truth = |kind| if kinds.contains(kind) { TRUE } else { FALSE };
                Shape {
                    words: kinds.0 & WORDS,
                    number: free(Kinds::NUMBER),
                    string: free(Kinds::STRING),
                    array: truth(Kinds::ARRAY),
                    object: truth(Kinds::OBJECT),
                }
            }
            Node::Number(language) => Shape {
                number: Spellings::Only(*language),
                ..ANY
            },
            Node::String(language) => Shape {
                string: Spellings::Only(*language),
                ..ANY
            },
            Node::Items { .. } | Node::MinItems(_) | Node::Contains { .. } => Shape {
                array: logic.literal(id, true),
                ..ANY
            },
            Node::UniqueItems => Shape {
                array: logic.unique(NO_ITEMS, true),
                ..ANY
            },
            Node::Members(_) | Node::Has(_) | Node::MinProperties(_) => Shape {
                object: logic.literal(id, true),
                ..ANY
            },
            Node::Reference(number) => {
                let node = logic.nodes.definition(*number);
                self.known_shape(node)
            }
        })
    }

    /// What several languages of strings have in common.
    fn all_strings(
        &mut self,
        lexicon: &mut Lexicon,
        shapes: &[Shape],
        fuel: &mut Fuel,
    ) -> Result<Spellings, Stop> {
        let strings = all(lexicon, shapes.iter().map(|shape| shape.string));
        let constrained = self.texts(lexicon).constrained;
        if let Spellings::Only(language) = strings
            && let Some(language) = common_lengths(lexicon, language, constrained)
        {
            return Ok(Spellings::Only(language));
        }
        self.without_lists(lexicon, strings, constrained, fuel)
    }

    /// A language of strings, or of numbers, of which `universe` is all. Where one of its parts is a list of
    /// values, others that list values, or all but some, only leave some out.
    fn without_lists(
        &mut self,
        lexicon: &mut Lexicon,
        spellings: Spellings,
        universe: ExprId,
        fuel: &mut Fuel,
    ) -> Result<Spellings, Stop> {
        let Spellings::Only(language) = spellings else {
            return Ok(Spellings::Free);
        };
        let nodes = &self.logic.nodes;
        // Ascending, as alternatives are.
        let listed = |lexicon: &Lexicon, language: ExprId| {
            let list = lexicon.alternatives(language);
            let all = list.iter().all(|&one| nodes.is_single_value(one));
            all.then_some(list)
        };
        let mut kept: Option<Vec<ExprId>> = None;
        let mut left_out: HashSet<ExprId> = HashSet::new();
        let mut others = Vec::new();
        for part in lexicon.conjuncts(language) {
            let complemented = lexicon.complemented(part);
            if let Some(list) = listed(lexicon, part) {
                fuel.burn(list.len() as u64)?;
                match &mut kept {
                    Some(kept) => kept.retain(|one| list.binary_search(one).is_ok()),
                    None => kept = Some(list),
                }
            } else if let Some(list) = complemented.and_then(|inner| listed(lexicon, inner)) {
                fuel.burn(list.len() as u64)?;
                left_out.extend(list);
            } else if part != universe {
                others.push(part);
            }
        }
        let Some(mut kept) = kept else {
            return Ok(Spellings::Only(language));
        };
        kept.retain(|one| !left_out.contains(one));
        let kept = lexicon.or(&kept);
        others.push(kept);
        Ok(Spellings::Only(lexicon.and(&others)))
    }

    /// Exactly one formula holds: one of the first half and none of the second, or the other way
    /// round, and so on within the halves. So the formula grows with n log n; one alternative
    /// without each other, written out, would grow with n².
    fn one_formula(&mut self, list: &[FormulaId], fuel: &mut Fuel) -> Result<FormulaId, Stop> {
        // Of each part of the list: exactly one holds, and none.
        let mut parts = Vec::with_capacity(list.len());
        for &id in list.iter().filter(|&&id| id != FALSE) {
            parts.push((id, self.logic.contrary(id)));
        }
        let num_formulas = parts.len() as u64;
        while parts.len() > 1 {
            fuel.burn(num_formulas)?;
            let mut halves = parts.into_iter();
            parts = Vec::with_capacity(halves.len().div_ceil(2));
            while let Some((one, none)) = halves.next() {
                let Some((other, neither)) = halves.next() else {
                    parts.push((one, none));
                    break;
                };
                let first = self.logic.all(&[one, neither]);
                let second = self.logic.all(&[none, other]);
                let one = self.logic.any(&[first, second]);
                parts.push((one, self.logic.all(&[none, neither])));
            }
        }
        Ok(parts.first().map_or(FALSE, |part| part.0))
    }

    /// A node that holds of itself in place, by way of references, if there is one that can be
    /// reached.
    pub(super) fn has_cycle_in_place(&self, root: NodeId, fuel: &mut Fuel) -> Result<bool, Stop> {
        let mut over = HashSet::new();
        let mut reached: HashSet<NodeId> = HashSet::from_iter([root]);
        let mut starts = vec![root];
        while let Some(start) = starts.pop() {
            // Depth first in place; what is elsewhere starts on its own.
            let mut open = HashSet::new();
            let mut path = vec![(start, false)];
            while let Some((node, leave)) = path.pop() {
                if leave {
                    open.remove(&node);
                    over.insert(node);
                    continue;
                }
                if over.contains(&node) {
                    continue;
                }
                if !open.insert(node) {
                    return Ok(true);
                }
                fuel.burn(1)?;
                path.push((node, true));
                let mut elsewhere = |node: NodeId| {
                    if reached.insert(node) {
                        starts.push(node);
                    }
                };
                match self.logic.nodes.node(node) {
                    Node::AllOf(list) | Node::AnyOf(list) | Node::OneOf(list) => {
                        path.extend(list.iter().map(|&node| (node, false)));
                    }
                    Node::Not(inner) => path.push((*inner, false)),
                    Node::Reference(number) => {
                        path.push((self.logic.nodes.definition(*number), false));
                    }
                    Node::Items { prefix, rest } => {
                        prefix.iter().copied().for_each(&mut elsewhere);
                        elsewhere(*rest);
                    }
                    Node::Contains { item, .. } => elsewhere(*item),
                    Node::Members(members) => {
                        members.named.iter().for_each(|named| elsewhere(named.1));
                        members
                            .patterns
                            .iter()
                            .for_each(|pattern| elsewhere(pattern.1));
                        elsewhere(members.additional);
                    }
                    _ => {}
                }
            }
        }
        Ok(false)
    }
}

fn all(lexicon: &mut Lexicon, list: impl Iterator<Item = Spellings>) -> Spellings {
    let mut languages = Vec::new();
    for spellings in list {
        match spellings {
            Spellings::Free => {}
            Spellings::Only(EMPTY) => return NONE,
            Spellings::Only(language) => languages.push(language),
        }
    }
    match languages[..] {
        [] => Spellings::Free,
        _ => Spellings::Only(lexicon.and(&languages)),
    }
}

fn any(lexicon: &mut Lexicon, list: impl Iterator<Item = Spellings>) -> Spellings {
    let mut languages = Vec::new();
    for spellings in list {
        match spellings {
            Spellings::Free => return Spellings::Free,
            Spellings::Only(language) => languages.push(language),
        }
    }
    Spellings::Only(lexicon.or(&languages))
}

/// What is not in a language; by parts where that is simpler.
fn contrary(lexicon: &mut Lexicon, spellings: Spellings, universe: ExprId) -> Spellings {
    match spellings {
        Spellings::Free => NONE,
        Spellings::Only(EMPTY) => Spellings::Free,
        Spellings::Only(language) => {
            let mut ways = Vec::new();
            for part in lexicon.conjuncts(language) {
                ways.push(match other_lengths(lexicon, part, universe) {
                    Some(others) => others,
                    None => {
                        let not = lexicon.not(part);
                        lexicon.and(&[universe, not])
                    }
                });
            }
            Spellings::Only(lexicon.or(&ways))
        }
    }
}

/// What exactly one of some languages has: what some have, less what several have. Some may have spellings
/// beyond the universe, of values that several have: where there are such values, those are left out.
fn one(
    lexicon: &mut Lexicon,
    list: impl Iterator<Item = Spellings>,
    universe: ExprId,
    are_beyond: bool,
    fuel: &mut Fuel,
) -> Result<Spellings, Stop> {
    let list: Vec<Spellings> = list.filter(|&spellings| spellings != NONE).collect();
    if let [only] = list[..] {
        return Ok(only);
    }
    let free = list
        .iter()
        .filter(|&&spellings| spellings == Spellings::Free)
        .count();
    if free > 1 {
        return Ok(NONE);
    }
    let mut some = EMPTY;
    let mut several = EMPTY;
    for spellings in &list {
        let Spellings::Only(language) = *spellings else {
            continue;
        };
        let both = lexicon.and(&[some, language]);
        if lexicon.is_live(both, fuel)? {
            several = lexicon.or(&[several, both]);
        }
        some = lexicon.or(&[some, language]);
    }
    if free == 1 {
        // What none of the others has.
        return Ok(contrary(lexicon, Spellings::Only(some), universe));
    }
    if several != EMPTY {
        let not = lexicon.not(several);
        some = match are_beyond {
            true => lexicon.and(&[some, universe, not]),
            false => lexicon.and(&[some, not]),
        };
    }
    Ok(Spellings::Only(some))
}

/// Strings whose only conditions are bounds on their length: those that meet all bounds, counted and
/// not searched for. The empty language where bounds exclude each other, whatever else there is.
/// `universe` is all strings.
fn common_lengths(lexicon: &mut Lexicon, language: ExprId, universe: ExprId) -> Option<ExprId> {
    let (first, body, _, _, last) = lexicon.framed_repeat(universe)?;
    let (mut num_bounds, mut least, mut most) = (0, 0, UNBOUNDED);
    let mut has_others = false;
    for part in lexicon.conjuncts(language) {
        match lexicon.framed_repeat(part) {
            Some((start, char, min, max, end)) if (start, char, end) == (first, body, last) => {
                num_bounds += 1;
                (least, most) = (least.max(min), most.min(max));
            }
            _ => has_others = true,
        }
    }
    if least > most {
        return Some(EMPTY);
    }
    if num_bounds < 2 || has_others {
        return None;
    }
    let length = lexicon.repeat(body, least, most);
    let rest = lexicon.concat(length, last);
    Some(lexicon.concat(first, rest))
}

/// Of strings of some lengths, those of the others, counted and not searched for. `universe` is all
/// strings, else there are none.
fn other_lengths(lexicon: &mut Lexicon, part: ExprId, universe: ExprId) -> Option<ExprId> {
    let (first, body, min, max, last) = lexicon.framed_repeat(part)?;
    let all = lexicon.framed_repeat(universe)?;
    if (first, body, 0, UNBOUNDED, last) != all {
        return None;
    }
    let mut ways = Vec::new();
    if let Some(less) = min.checked_sub(1) {
        ways.push(lexicon.repeat(body, 0, less));
    }
    if max != UNBOUNDED {
        ways.push(lexicon.repeat(body, max + 1, UNBOUNDED));
    }
    let body = lexicon.or(&ways);
    let rest = lexicon.concat(body, last);
    Some(lexicon.concat(first, rest))
}
