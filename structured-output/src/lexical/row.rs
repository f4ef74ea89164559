//! The row of an expression, from those of its operands (Brzozowski 1964; with classes as in Owens,
//! Reppy, Turon 2009, "Regular-expression derivatives re-examined").

use super::arena::{EMPTY, EPSILON, ExprId, Lexicon, Node, UNBOUNDED};
use super::byte_set::ByteSet;
use super::fuel::{Fuel, OutOfFuel};
use super::rows::{NO_ROW, Row};

/// Operands of `Or` with so few bytes are gathered by byte.
const FEW_BYTES: usize = 4;

impl Lexicon {
    /// The row of an expression, computed where it isn't yet, operands first.
    pub(super) fn row(&mut self, expr: ExprId, fuel: &mut Fuel) -> Result<Row, OutOfFuel> {
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
                Node::Empty
                | Node::Epsilon
                | Node::Mark(_)
                | Node::Class(_)
                | Node::Residue(_)
                | Node::FreeText(_) => {}
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
            Node::Residue(id) => {
                let entries = self.residue_entries(self.residues.get(id));
                self.row_of(&entries)
            }
            Node::FreeText(id) => {
                let entries = self.free_text_entries(self.free_texts.get(id));
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
                self.union_row(&parts, Vec::new(), fuel)?
            }
            Node::Or(at) => {
                let operands = self.operands(at).to_vec();
                let mut parts = Vec::new();
                // The first bytes of names, without a list for each.
                let mut names = Vec::new();
                for expr in operands {
                    match self.first_class(expr) {
                        Some((bytes, to)) if bytes.len() <= FEW_BYTES => {
                            names.extend(bytes.iter().map(|byte| (byte, to)));
                        }
                        _ => parts.push(self.live_row(expr)),
                    }
                }
                fuel.burn(names.len() as u64)?;
                self.union_row(&parts, names, fuel)?
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
        fuel.check_bytes(self.memory_bytes())?;
        self.rows.insert(expr, map, &targets);
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
    /// so that a thousand of them cost about a thousand steps. `few` are gathered so already.
    fn union_row(
        &mut self,
        parts: &[Vec<(ByteSet, ExprId)>],
        mut few: Vec<(u8, ExprId)>,
        fuel: &mut Fuel,
    ) -> Result<(u32, Vec<ExprId>), OutOfFuel> {
        if parts.is_empty() {
            return Ok(self.row_of_names(few));
        }
        let mut blocks = vec![(ByteSet::FULL, Vec::new())];
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

    /// `Or` of what follows single bytes, such as the first ones of names: no sets are cut.
    fn row_of_names(&mut self, mut names: Vec<(u8, ExprId)>) -> (u32, Vec<ExprId>) {
        names.sort_unstable();
        let mut entries = Vec::with_capacity(names.len());
        let mut list = Vec::new();
        for group in names.chunk_by(|a, b| a.0 == b.0) {
            list.clear();
            list.extend(group.iter().map(|&(_, to)| to));
            entries.push((ByteSet::single(group[0].0), self.or(&list)));
        }
        self.row_of(&entries)
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
        let mut classes: Vec<(ByteSet, ExprId)> = Vec::with_capacity(entries.len() + 1);
        let mut rest = ByteSet::FULL;
        for (bytes, to) in entries.iter().filter(|(_, to)| *to != EMPTY) {
            rest = rest.intersection(&bytes.complement());
            match classes.iter_mut().find(|class| class.1 == *to) {
                Some(class) => class.0 = class.0.union(bytes),
                None => classes.push((*bytes, *to)),
            }
        }
        classes.push((rest, EMPTY));
        classes.retain(|(bytes, _)| !bytes.is_empty());
        classes.sort_unstable_by_key(|(bytes, _)| bytes.first());
        // All are of the largest class but those of the others.
        let largest = (0..classes.len()).max_by_key(|&class| classes[class].0.len());
        let largest = largest.unwrap_or(0);
        let mut class_of = [largest as u8; 256];
        for (class, (bytes, _)) in classes.iter().enumerate() {
            if class != largest {
                for byte in bytes.iter() {
                    class_of[usize::from(byte)] = class as u8;
                }
            }
        }
        let targets = classes.into_iter().map(|(_, to)| to).collect();
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
