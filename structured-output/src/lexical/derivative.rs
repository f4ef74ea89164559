//! Derivatives: what remains of a language after a byte.
//!
//! The derivatives of an expression by all 256 bytes are its *row*: a map from bytes to classes,
//! which rows with the same classes share, and one target per class. A row is computed once per
//! expression, from the rows of its operands (Brzozowski 1964; with classes as in Owens, Reppy,
//! Turon 2009, "Regular-expression derivatives re-examined"). A look-up is two loads.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};

use super::arena::{
    EMPTY, EPSILON, ExprId, Fuel, Lexicon, Node, OutOfFuel, TURNING_BYTES, UNBOUNDED,
};
use super::byte_set::ByteSet;

/// A map from bytes to classes; classes are numbered in the order of their first bytes.
#[derive(Clone)]
pub(super) struct ClassMap {
    class_of: Box<[u8; 256]>,
    classes: Vec<ByteSet>,
    /// Bit `i`: no class of coarse alphabet `i` (see `index`) is cut by one of these.
    fits: u8,
}

/// A row that is not computed yet.
const NO_ROW: Row = Row {
    map: u32::MAX,
    start: 0,
};

/// The derivatives of one expression: `targets[start + class]`.
#[derive(Clone, Copy)]
struct Row {
    map: u32,
    start: u32,
}

/// Of the table that has a place for each expression.
pub(super) const BYTES_PER_EXPR: usize = size_of::<Row>();

/// A row that is known, for walks that look at it again and again. Valid for as long as the
/// lexicon.
#[derive(Clone, Copy)]
pub(crate) struct RowRef(Row);

impl Default for RowRef {
    /// Stands for a row that is yet to be looked up.
    fn default() -> Self {
        Self(NO_ROW)
    }
}

/// All rows computed so far.
#[derive(Clone, Default)]
pub(super) struct Rows {
    rows: Vec<Row>,
    targets: Vec<ExprId>,
    maps: Vec<ClassMap>,
    map_ids: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// The classes of each coarse alphabet.
    alphabets: Vec<Vec<ByteSet>>,
    /// Derivatives that were asked for where no row is known.
    single: HashMap<(ExprId, u8), ExprId>,
}

impl Rows {
    /// No rows; `alphabets` are partitions of the bytes, at most eight.
    pub(super) fn new(alphabets: Vec<Vec<ByteSet>>) -> Self {
        Self {
            alphabets,
            ..Self::default()
        }
    }

    /// Bytes of what is known, the expressions' places in `rows` apart.
    pub(super) fn memory_bytes(&self) -> usize {
        let per_map = 256 + size_of::<ClassMap>() + 4 * size_of::<ByteSet>();
        self.targets.len() * size_of::<ExprId>()
            + self.maps.len() * per_map
            + self.single.len() * (size_of::<(ExprId, u8, ExprId)>() + 1)
    }

    fn get(&self, expr: ExprId) -> Option<Row> {
        let row = *self.rows.get(expr.index())?;
        (row.map != u32::MAX).then_some(row)
    }

    /// Classes of a row with their targets.
    fn entries(&self, row: Row) -> impl Iterator<Item = (&ByteSet, ExprId)> {
        let map = &self.maps[row.map as usize];
        let targets = &self.targets[row.start as usize..];
        map.classes.iter().zip(targets.iter().copied())
    }

    fn intern_map(&mut self, class_of: &[u8; 256]) -> u32 {
        let (maps, hasher) = (&self.maps, &self.hasher);
        let entry = self.map_ids.entry(
            hasher.hash_one(class_of),
            |&id| *maps[id as usize].class_of == *class_of,
            |&id| hasher.hash_one(*maps[id as usize].class_of),
        );
        let id = *entry.or_insert(maps.len() as u32).get();
        if id as usize == self.maps.len() {
            let mut classes: Vec<ByteSet> = Vec::new();
            for (byte, &class) in (0..=255_u8).zip(class_of) {
                if usize::from(class) == classes.len() {
                    classes.push(ByteSet::EMPTY);
                }
                classes[usize::from(class)].insert(byte);
            }
            let mut fits = 0;
            for (bit, alphabet) in self.alphabets.iter().enumerate() {
                let whole = |class: &ByteSet| {
                    let mut of_bytes = class.iter().map(|byte| class_of[usize::from(byte)]);
                    let first = of_bytes.next();
                    of_bytes.all(|class| Some(class) == first)
                };
                fits |= u8::from(alphabet.iter().all(whole)) << bit;
            }
            self.maps.push(ClassMap {
                class_of: Box::new(*class_of),
                classes,
                fits,
            });
        }
        id
    }
}

impl Lexicon {
    /// What may follow a byte; [`EMPTY`] where the byte can't come next. May be a language that is
    /// empty without looking it: see `completion`.
    pub(crate) fn derivative(
        &mut self,
        expr: ExprId,
        byte: u8,
        fuel: &mut Fuel,
    ) -> Result<ExprId, OutOfFuel> {
        if let Some((bytes, next)) = self.first_class(expr) {
            return Ok(if bytes.contains(byte) { next } else { EMPTY });
        }
        let row = self.row(expr, fuel)?;
        Ok(self.target(row, byte))
    }

    /// Where an expression is one byte of some and then another expression, such as a name: these.
    /// Its row is not worth to be made.
    pub(crate) fn first_class(&self, expr: ExprId) -> Option<(ByteSet, ExprId)> {
        let Node::Concat(head, next) = self.node(expr) else {
            return None;
        };
        match self.node(head) {
            Node::Class(set) => Some((self.set(set), next)),
            _ => None,
        }
    }

    /// Whether a coarse alphabet tells apart the bytes of a set from all others.
    pub(crate) fn set_fits(&self, set: &ByteSet, alphabet: usize) -> bool {
        let classes = self.rows.alphabets.get(alphabet);
        classes.is_some_and(|classes| {
            classes.iter().all(|class| {
                let inside = class.intersection(set);
                inside.is_empty() || inside == *class
            })
        })
    }

    fn target(&self, row: Row, byte: u8) -> ExprId {
        let class = self.rows.maps[row.map as usize].class_of[usize::from(byte)];
        self.rows.targets[row.start as usize + usize::from(class)]
    }

    /// As [`Lexicon::derivative`], for a byte that is likely the only one to be asked for: where the
    /// row isn't known, it isn't made. The answer is kept.
    pub(crate) fn derivative_once(
        &mut self,
        expr: ExprId,
        byte: u8,
        fuel: &mut Fuel,
    ) -> Result<ExprId, OutOfFuel> {
        if let Some(row) = self.rows.get(expr) {
            return Ok(self.target(row, byte));
        }
        if let Some(&known) = self.rows.single.get(&(expr, byte)) {
            return Ok(known);
        }
        let to = self.derive(expr, byte, 0, fuel)?;
        if self.first_class(expr).is_none() && self.rows.get(expr).is_none() {
            self.rows.single.insert((expr, byte), to);
        }
        Ok(to)
    }

    /// The derivative by one byte, from those of the operands: by recursion as far as expressions are
    /// not deep, then from the row.
    fn derive(
        &mut self,
        expr: ExprId,
        byte: u8,
        depth: u32,
        fuel: &mut Fuel,
    ) -> Result<ExprId, OutOfFuel> {
        const MAX_DEPTH: u32 = 24;
        if depth == MAX_DEPTH {
            return self.derivative(expr, byte, fuel);
        }
        if let Some(row) = self.rows.get(expr) {
            return Ok(self.target(row, byte));
        }
        fuel.burn(1)?;
        let before = self.work;
        let to = match self.node(expr) {
            Node::Empty | Node::Epsilon | Node::Mark(_) => EMPTY,
            Node::Class(set) if self.set(set).contains(byte) => EPSILON,
            Node::Class(_) => EMPTY,
            Node::Residue(_) => self.derivative(expr, byte, fuel)?,
            Node::Not(inner) => {
                let to = self.derive(inner, byte, depth + 1, fuel)?;
                self.not(to)
            }
            Node::Repeat { body, min, max } => match self.derive(body, byte, depth + 1, fuel)? {
                EMPTY => EMPTY,
                to => {
                    let max = if max == UNBOUNDED { max } else { max - 1 };
                    let rest = self.repeat(body, min.saturating_sub(1), max);
                    self.concat(to, rest)
                }
            },
            Node::Concat(head, tail) => {
                let of_head = self.derive(head, byte, depth + 1, fuel)?;
                let to = self.concat(of_head, tail);
                match self.is_nullable(head) {
                    true => {
                        let of_tail = self.derive(tail, byte, depth + 1, fuel)?;
                        self.or(&[to, of_tail])
                    }
                    false => to,
                }
            }
            Node::Or(at) => {
                let mut list = self.operands(at).to_vec();
                for operand in &mut list {
                    *operand = self.derive(*operand, byte, depth + 1, fuel)?;
                }
                self.or(&list)
            }
            Node::And(at) => {
                let mut list = self.operands(at).to_vec();
                for operand in &mut list {
                    *operand = self.derive(*operand, byte, depth + 1, fuel)?;
                }
                self.and(&list)
            }
        };
        fuel.burn(self.work - before)?;
        if self.sized.contains(&expr) {
            // What follows is strings with their length too.
            self.note_sized(to);
        }
        Ok(to)
    }

    /// The derivatives other than [`EMPTY`], each with its bytes, in the order of the first byte.
    pub(crate) fn derivatives(
        &mut self,
        expr: ExprId,
        fuel: &mut Fuel,
    ) -> Result<Vec<(ByteSet, ExprId)>, OutOfFuel> {
        let row = self.row(expr, fuel)?;
        let live = self.rows.entries(row).filter(|&(_, to)| to != EMPTY);
        Ok(live.map(|(bytes, to)| (*bytes, to)).collect())
    }

    /// The row of an expression.
    pub(crate) fn row_ref(&mut self, expr: ExprId, fuel: &mut Fuel) -> Result<RowRef, OutOfFuel> {
        Ok(RowRef(self.row(expr, fuel)?))
    }

    /// The classes of a row with their targets.
    pub(crate) fn row_entries(&self, row: RowRef) -> impl Iterator<Item = (&ByteSet, ExprId)> {
        self.rows.entries(row.0)
    }

    /// The bytes that have a derivative.
    pub(crate) fn first_bytes(
        &mut self,
        expr: ExprId,
        fuel: &mut Fuel,
    ) -> Result<ByteSet, OutOfFuel> {
        let row = self.row(expr, fuel)?;
        let live = self.rows.entries(row).filter(|&(_, to)| to != EMPTY);
        Ok(live.fold(ByteSet::EMPTY, |all, (bytes, _)| all.union(bytes)))
    }

    /// The class of a byte in a row.
    pub(crate) fn row_class(&self, row: RowRef, byte: u8) -> u8 {
        self.rows.maps[row.0.map as usize].class_of[usize::from(byte)]
    }

    /// The class of each byte in a row.
    pub(crate) fn row_classes(&self, row: RowRef) -> &[u8; 256] {
        &self.rows.maps[row.0.map as usize].class_of
    }

    /// The derivative by the bytes of a class.
    pub(crate) fn row_target(&self, row: RowRef, class: u8) -> ExprId {
        self.rows.targets[row.0.start as usize + usize::from(class)]
    }

    /// Whether a row tells apart no bytes that a coarse alphabet doesn't.
    pub(crate) fn row_fits(&self, row: RowRef, alphabet: usize) -> bool {
        self.rows.maps[row.0.map as usize].fits >> alphabet & 1 == 1
    }

    /// The coarse alphabets that tell apart all that an expression does, and the first states after
    /// it, as bits: a look ahead of at most some dozens of states.
    pub(crate) fn fitting_alphabets(
        &mut self,
        expr: ExprId,
        fuel: &mut Fuel,
    ) -> Result<u8, OutOfFuel> {
        const MAX_STATES: usize = 48;
        let mut seen = vec![expr];
        let mut at = 0;
        let mut fits = u8::MAX;
        while let Some(&next) = seen.get(at) {
            let row = self.row(next, fuel)?;
            fits &= self.rows.maps[row.map as usize].fits;
            if fits == 0 {
                break;
            }
            for (bytes, to) in self.rows.entries(row) {
                // What follows a turning byte is read byte by byte anyway.
                let is_met = to != EMPTY && !bytes.iter().all(|b| TURNING_BYTES.contains(&b));
                if is_met && seen.len() < MAX_STATES && !seen.contains(&to) {
                    seen.push(to);
                }
            }
            at += 1;
        }
        Ok(fits)
    }

    /// The row of an expression, computed where it isn't yet, operands first.
    fn row(&mut self, expr: ExprId, fuel: &mut Fuel) -> Result<Row, OutOfFuel> {
        if let Some(row) = self.rows.get(expr) {
            return Ok(row);
        }
        let mut pending = vec![expr];
        let mut row = NO_ROW;
        while let Some(&next) = pending.last() {
            if let Some(known) = self.rows.get(next) {
                row = known;
                pending.pop();
                continue;
            }
            fuel.burn(1)?;
            let before = pending.len();
            match self.node(next) {
                Node::Empty | Node::Epsilon | Node::Mark(_) | Node::Class(_) | Node::Residue(_) => {
                }
                Node::Concat(head, tail) => {
                    pending.push(head);
                    if self.is_nullable(head) && self.first_class(tail).is_none() {
                        pending.push(tail);
                    }
                }
                Node::Or(at) | Node::And(at) => {
                    let operands = self.operands(at).iter().copied();
                    // Their derivatives are known without a row.
                    pending.extend(operands.filter(|&expr| self.first_class(expr).is_none()));
                }
                Node::Not(inner) => pending.push(inner),
                Node::Repeat { body, .. } => pending.push(body),
            }
            let mut known = before;
            for at in before..pending.len() {
                let operand = pending[at];
                if self.rows.get(operand).is_none() {
                    pending[known] = operand;
                    known += 1;
                }
            }
            pending.truncate(known);
            if known == before {
                self.compute_row(next, fuel)?;
            }
        }
        Ok(row)
    }

    /// Computes the row of an expression whose operands have theirs.
    fn compute_row(&mut self, expr: ExprId, fuel: &mut Fuel) -> Result<(), OutOfFuel> {
        let before = self.work;
        let (map, targets) = match self.node(expr) {
            Node::Empty | Node::Epsilon | Node::Mark(_) => {
                (self.rows.intern_map(&[0; 256]), vec![EMPTY])
            }
            Node::Class(set) => self.row_of(&[(self.set(set), EPSILON)]),
            Node::Residue(residue) => {
                let entries = self.residue_entries(residue);
                self.row_of(&entries)
            }
            Node::Not(inner) => self.mapped_row(inner, |lexicon, to| lexicon.not(to)),
            Node::Repeat { body, min, max } => {
                let max = if max == UNBOUNDED { max } else { max - 1 };
                let rest = self.repeat(body, min.saturating_sub(1), max);
                self.mapped_row(body, |lexicon, to| lexicon.concat(to, rest))
            }
            Node::Concat(head, tail) if !self.is_nullable(head) => {
                self.mapped_row(head, |lexicon, to| lexicon.concat(to, tail))
            }
            Node::Concat(head, tail) => {
                let (map, targets) = self.mapped_row(head, |lexicon, to| lexicon.concat(to, tail));
                let mut parts = vec![self.live_classes(map, &targets)];
                parts.push(self.live_row(tail));
                self.union_row(&parts, fuel)?
            }
            Node::Or(at) => {
                let operands = self.operands(at).to_vec();
                let parts: Vec<_> = operands.iter().map(|&expr| self.live_row(expr)).collect();
                self.union_row(&parts, fuel)?
            }
            Node::And(at) => {
                let operands = self.operands(at).to_vec();
                let parts: Vec<_> = operands.iter().map(|&expr| self.live_row(expr)).collect();
                self.intersection_row(&parts, fuel)?
            }
        };
        if self.sized.contains(&expr) {
            // What follows is strings with their length too.
            for &to in &targets {
                self.note_sized(to);
            }
        }
        // Paid before it is kept: else the same work could be asked for again for nothing.
        fuel.burn(self.work - before)?;
        let row = Row {
            map,
            start: self.rows.targets.len() as u32,
        };
        self.rows.targets.extend_from_slice(&targets);
        if self.rows.rows.len() <= expr.index() {
            self.rows.rows.resize(expr.index() + 1, NO_ROW);
        }
        self.rows.rows[expr.index()] = row;
        Ok(())
    }

    /// The row of an operand with each target changed; the classes stay.
    fn mapped_row(
        &mut self,
        operand: ExprId,
        mut change: impl FnMut(&mut Self, ExprId) -> ExprId,
    ) -> (u32, Vec<ExprId>) {
        let Some(row) = self.rows.get(operand) else {
            return (self.rows.intern_map(&[0; 256]), vec![EMPTY]);
        };
        let targets: Vec<ExprId> = self.rows.entries(row).map(|(_, to)| to).collect();
        let changed = targets.into_iter().map(|to| change(self, to)).collect();
        (row.map, changed)
    }

    fn live_classes(&self, map: u32, targets: &[ExprId]) -> Vec<(ByteSet, ExprId)> {
        let classes = self.rows.maps[map as usize].classes.iter().copied();
        let entries = classes.zip(targets.iter().copied());
        entries.filter(|&(_, to)| to != EMPTY).collect()
    }

    fn live_row(&self, operand: ExprId) -> Vec<(ByteSet, ExprId)> {
        if let Some(first) = self.first_class(operand) {
            return vec![first];
        }
        let row = self.rows.get(operand);
        let entries = row.into_iter().flat_map(|row| self.rows.entries(row));
        let live = entries.filter(|&(_, to)| to != EMPTY);
        live.map(|(bytes, to)| (*bytes, to)).collect()
    }

    /// `Or` of rows. Operands with few bytes, such as the words of a choice, are gathered by byte,
    /// so that a thousand of them cost about a thousand steps.
    fn union_row(
        &mut self,
        parts: &[Vec<(ByteSet, ExprId)>],
        fuel: &mut Fuel,
    ) -> Result<(u32, Vec<ExprId>), OutOfFuel> {
        const FEW_BYTES: usize = 4;
        let mut blocks = vec![(ByteSet::FULL, Vec::new())];
        let mut few: Vec<(u8, ExprId)> = Vec::new();
        for part in parts {
            fuel.burn(1)?;
            if part.iter().map(|(bytes, _)| bytes.len()).sum::<usize>() <= FEW_BYTES {
                let pairs = part
                    .iter()
                    .map(|&(bytes, to)| bytes.iter().map(move |b| (b, to)));
                few.extend(pairs.flatten());
            } else {
                blocks = refined(&blocks, part, true);
                fuel.burn(blocks.len() as u64)?;
            }
        }
        few.sort_unstable();
        for group in few.chunk_by(|a, b| a.0 == b.0) {
            let byte = ByteSet::single(group[0].0);
            let holds = |block: &&mut (ByteSet, _)| block.0.contains(group[0].0);
            let mut list = Vec::new();
            if let Some(block) = blocks.iter_mut().find(holds) {
                block.0 = block.0.intersection(&byte.complement());
                list.extend_from_slice(&block.1);
            }
            list.extend(group.iter().map(|&(_, to)| to));
            blocks.push((byte, list));
        }
        let combine = |(bytes, list): (ByteSet, Vec<ExprId>)| (bytes, self.or(&list));
        let entries: Vec<_> = blocks.into_iter().map(combine).collect();
        Ok(self.row_of(&entries))
    }

    /// `And` of rows: where an operand has no derivative, nor has their intersection.
    fn intersection_row(
        &mut self,
        parts: &[Vec<(ByteSet, ExprId)>],
        fuel: &mut Fuel,
    ) -> Result<(u32, Vec<ExprId>), OutOfFuel> {
        let mut blocks = vec![(ByteSet::FULL, Vec::new())];
        for part in parts {
            blocks = refined(&blocks, part, false);
            fuel.burn(1 + blocks.len() as u64)?;
        }
        let combine = |(bytes, list): (ByteSet, Vec<ExprId>)| (bytes, self.and(&list));
        let entries: Vec<_> = blocks.into_iter().map(combine).collect();
        Ok(self.row_of(&entries))
    }

    /// A row from disjoint sets of bytes with their targets; all other bytes lead to [`EMPTY`].
    fn row_of(&mut self, entries: &[(ByteSet, ExprId)]) -> (u32, Vec<ExprId>) {
        let mut by_byte = [EMPTY; 256];
        for &(bytes, to) in entries.iter().filter(|&&(_, to)| to != EMPTY) {
            for byte in bytes.iter() {
                by_byte[usize::from(byte)] = to;
            }
        }
        let mut targets: Vec<ExprId> = Vec::new();
        let mut class_of = [0_u8; 256];
        let mut previous = None;
        for (class, to) in class_of.iter_mut().zip(by_byte) {
            let known = match previous {
                Some((at, class)) if at == to => class,
                _ => match targets.iter().position(|&known| known == to) {
                    Some(known) => known as u8,
                    None => {
                        targets.push(to);
                        (targets.len() - 1) as u8
                    }
                },
            };
            *class = known;
            previous = Some((to, known));
        }
        (self.rows.intern_map(&class_of), targets)
    }
}

/// Blocks of bytes cut by the classes of one more operand, whose target joins their lists. What
/// the operand has no derivative for is kept or dropped.
fn refined(
    blocks: &[(ByteSet, Vec<ExprId>)],
    part: &[(ByteSet, ExprId)],
    keep_rest: bool,
) -> Vec<(ByteSet, Vec<ExprId>)> {
    let mut cut = Vec::with_capacity(blocks.len() + part.len());
    for (bytes, list) in blocks {
        let mut rest = *bytes;
        for (class, to) in part {
            let inside = bytes.intersection(class);
            if !inside.is_empty() {
                rest = rest.intersection(&class.complement());
                let mut longer = Vec::with_capacity(list.len() + 1);
                longer.extend_from_slice(list);
                longer.push(*to);
                cut.push((inside, longer));
            }
        }
        if keep_rest && !rest.is_empty() {
            cut.push((rest, list.clone()));
        }
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::super::arena::ANY;
    use super::*;

    fn after(l: &mut Lexicon, mut expr: ExprId, text: &[u8]) -> ExprId {
        for &byte in text {
            expr = l.derivative(expr, byte, &mut Fuel::new(1000)).unwrap();
        }
        expr
    }

    #[test]
    fn what_remains_is_an_expression_already_known() {
        let mut l = Lexicon::new(Vec::new(), 8);
        let word = l.literal(b"abc");
        let rest = l.literal(b"c");
        assert_eq!(after(&mut l, word, b"ab"), rest);
        assert_eq!(after(&mut l, word, b"abc"), EPSILON);
        assert_eq!(after(&mut l, word, b"b"), EMPTY);

        let letter = l.class(ByteSet::range(b'a', b'z'));
        let many = l.repeat(letter, 2, 1_000_000);
        let fewer = l.repeat(letter, 0, 999_997);
        assert_eq!(after(&mut l, many, b"abc"), fewer);
        assert_eq!(after(&mut l, many, b"A"), EMPTY);

        let not = l.not(word);
        assert_eq!(after(&mut l, not, b"x"), ANY);
        let none = after(&mut l, not, b"abc");
        assert!(!l.is_nullable(none));
        assert_eq!(after(&mut l, not, b"abcd"), ANY);
    }

    #[test]
    fn a_choice_of_many_words_costs_about_its_bytes() {
        let mut l = Lexicon::new(Vec::new(), 8);
        let words: Vec<ExprId> = (0..10_000)
            .map(|n| l.literal(format!("{n:05}").as_bytes()))
            .collect();
        let choice = l.or(&words);
        let mut fuel = Fuel::new(100_000);
        let rest = l.derivative(choice, b'0', &mut fuel).unwrap();
        assert!(fuel.left() > 50_000, "{} left", fuel.left());
        let other = l.derivative(choice, b'1', &mut fuel).unwrap();
        assert_ne!(rest, EMPTY);
        assert_eq!(other, EMPTY);
    }

    #[test]
    fn depth_costs_no_stack() {
        let small = std::thread::Builder::new().stack_size(64 << 10);
        let thread = small.spawn(|| {
            let mut l = Lexicon::new(Vec::new(), 8);
            let a = l.literal(b"a");
            let mut deep = a;
            for _ in 0..1000 {
                let negated = l.not(deep);
                let longer = l.concat(negated, a);
                deep = l.repeat(longer, 0, 2);
            }
            let mut fuel = Fuel::new(10_000_000);
            l.derivative(deep, b'a', &mut fuel).unwrap();
        });
        thread.unwrap().join().unwrap();
    }

    #[test]
    fn long_concatenations_are_charged() {
        let mut l = Lexicon::new(Vec::new(), 8);
        let word = l.literal(&b"ab".repeat(500));
        let twice = l.repeat(word, 2, 3);
        let mut fuel = Fuel::new(500);
        assert_eq!(l.derivative(twice, b'a', &mut fuel), Err(OutOfFuel));
    }
}
