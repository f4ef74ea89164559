//! The row of an expression, from those of its operands (Brzozowski 1964; with classes as in Owens,
//! Reppy, Turon 2009, "Regular-expression derivatives re-examined").

use super::arena::{EMPTY, EPSILON, ExprId, Lexicon, Node, UNBOUNDED};
use super::byte_set::ByteSet;
use super::fuel::{Fuel, Stop};
use super::row_scratch::RowScratch;
use super::rows::{NO_ROW, Row};

/// Operands of `Or` with so few bytes are gathered by byte.
const FEW_BYTES: usize = 4;

impl Lexicon {
    /// The row of an expression, computed where it isn't yet, operands first.
    pub(super) fn row(&mut self, expr: ExprId, fuel: &mut Fuel) -> Result<Row, Stop> {
        if let Some(row) = self.rows.get(expr) {
            return Ok(row);
        }
        let mut pending = self.take_list();
        pending.push(expr);
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
        self.give_list(pending);
        Ok(row)
    }

    /// Computes the row of an expression whose operands have theirs.
    fn compute_row(&mut self, expr: ExprId, fuel: &mut Fuel) -> Result<(), Stop> {
        // Rows are made by the thousand: what they are put together from is kept for the next one.
        let mut scratch = self.row_scratch.take().unwrap_or_default();
        let computed = self.compute_row_with(&mut scratch, expr, fuel);
        self.row_scratch = Some(scratch);
        computed
    }

    fn compute_row_with(
        &mut self,
        scratch: &mut RowScratch,
        expr: ExprId,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        let before = self.work;
        scratch.clear();
        let map = match self.node(expr) {
            Node::Empty | Node::Epsilon | Node::Mark(_) => self.empty_row(scratch),
            Node::Class(set) => {
                scratch.entries.push((self.set(set), EPSILON));
                self.row_of(scratch)
            }
            Node::Residue(id) => {
                let entries = self.residue_entries(self.residues.get(id));
                scratch.entries.extend(entries);
                self.row_of(scratch)
            }
            Node::FreeText(id) => {
                let entries = self.free_text_entries(self.free_texts.get(id));
                scratch.entries.extend(entries);
                self.row_of(scratch)
            }
            Node::Not(inner) => self.mapped_row(inner, scratch, |lexicon, to| lexicon.not(to)),
            Node::Repeat { body, min, max } => {
                let max = if max == UNBOUNDED { max } else { max - 1 };
                let rest = self.repeat(body, min.saturating_sub(1), max);
                self.mapped_row(body, scratch, |lexicon, to| lexicon.concat(to, rest))
            }
            Node::Concat(head, tail) => {
                let map = self.mapped_row(head, scratch, |lexicon, to| lexicon.concat(to, tail));
                if self.is_nullable(head) {
                    let classes = self.rows.maps[map as usize].classes.iter().copied();
                    let entries = classes.zip(scratch.targets.iter().copied());
                    scratch.parts.extend(entries.filter(|&(_, to)| to != EMPTY));
                    scratch.ends.push(scratch.parts.len());
                    self.live_row(tail, &mut scratch.parts);
                    scratch.ends.push(scratch.parts.len());
                    self.union_row(scratch, fuel)?
                } else {
                    map
                }
            }
            Node::Or(at) => {
                for &expr in self.operands(at) {
                    match self.first_class(expr) {
                        // The first bytes of names, without a list for each.
                        Some((bytes, to)) if bytes.len() <= FEW_BYTES => {
                            scratch.few.extend(bytes.iter().map(|byte| (byte, to)));
                        }
                        _ => {
                            self.live_row(expr, &mut scratch.parts);
                            scratch.ends.push(scratch.parts.len());
                        }
                    }
                }
                fuel.burn(scratch.few.len() as u64)?;
                self.union_row(scratch, fuel)?
            }
            Node::And(at) => {
                for &expr in self.operands(at) {
                    self.live_row(expr, &mut scratch.parts);
                    scratch.ends.push(scratch.parts.len());
                }
                self.intersection_row(scratch, fuel)?
            }
        };
        if self.sized.contains(&expr) {
            // What follows is strings with their length too.
            for &to in &scratch.targets {
                self.note_sized(to);
            }
        }
        // Paid before it is kept: else the same work could be asked for again for nothing.
        fuel.burn(self.work - before)?;
        fuel.check_bytes(self.memory_bytes())?;
        self.rows.insert(expr, map, &scratch.targets);
        Ok(())
    }

    /// A row without derivatives.
    fn empty_row(&mut self, scratch: &mut RowScratch) -> u32 {
        scratch.targets.clear();
        scratch.targets.push(EMPTY);
        let all = std::iter::once(ByteSet::FULL);
        self.rows.intern_map(&[0; 256], all)
    }

    /// The row of an operand with each target changed; the classes stay.
    fn mapped_row(
        &mut self,
        operand: ExprId,
        scratch: &mut RowScratch,
        mut change: impl FnMut(&mut Self, ExprId) -> ExprId,
    ) -> u32 {
        let Some(row) = self.rows.get(operand) else {
            return self.empty_row(scratch);
        };
        scratch.targets.clear();
        scratch
            .targets
            .extend(self.rows.entries(row).map(|(_, to)| to));
        for to in &mut scratch.targets {
            *to = change(self, *to);
        }
        row.map
    }

    /// Adds the derivatives of an operand, but [`EMPTY`].
    fn live_row(&self, operand: ExprId, part: &mut Vec<(ByteSet, ExprId)>) {
        if let Some(first) = self.first_class(operand) {
            part.push(first);
            return;
        }
        let row = self.rows.get(operand);
        let entries = row.into_iter().flat_map(|row| self.rows.entries(row));
        let live = entries.filter(|&(_, to)| to != EMPTY);
        part.extend(live.map(|(bytes, to)| (*bytes, to)));
    }

    /// `Or` of the scratch's rows. Operands with few bytes, such as the words of a choice, are gathered
    /// by byte, so that a thousand of them cost about a thousand steps. Those of `few` are so already.
    fn union_row(&mut self, scratch: &mut RowScratch, fuel: &mut Fuel) -> Result<u32, Stop> {
        if scratch.ends.is_empty() {
            return Ok(self.row_of_names(scratch));
        }
        let RowScratch {
            parts,
            ends,
            few,
            blocks,
            spare,
            ..
        } = scratch;
        blocks.start();
        let mut start = 0;
        for &end in ends.iter() {
            fuel.burn(1)?;
            let part = &parts[start..end];
            start = end;
            if part.iter().map(|(bytes, _)| bytes.len()).sum::<usize>() <= FEW_BYTES {
                let pairs = part
                    .iter()
                    .map(|&(bytes, to)| bytes.iter().map(move |b| (b, to)));
                few.extend(pairs.flatten());
            } else {
                blocks.refine(part, true, spare);
                fuel.burn(blocks.sets.len() as u64)?;
            }
        }
        few.sort_unstable();
        for group in few.chunk_by(|a, b| a.0 == b.0) {
            blocks.split_off(group[0].0, group.iter().map(|&(_, to)| to));
        }
        Ok(self.row_of_blocks(scratch, Self::or))
    }

    /// `Or` of what follows single bytes, such as the first ones of names: no sets are cut.
    fn row_of_names(&mut self, scratch: &mut RowScratch) -> u32 {
        let RowScratch {
            few, list, entries, ..
        } = scratch;
        few.sort_unstable();
        entries.clear();
        for group in few.chunk_by(|a, b| a.0 == b.0) {
            list.clear();
            list.extend(group.iter().map(|&(_, to)| to));
            entries.push((ByteSet::single(group[0].0), self.or(list)));
        }
        self.row_of(scratch)
    }

    /// `And` of the scratch's rows: where an operand has no derivative, nor has their intersection.
    fn intersection_row(&mut self, scratch: &mut RowScratch, fuel: &mut Fuel) -> Result<u32, Stop> {
        let RowScratch {
            parts,
            ends,
            blocks,
            spare,
            ..
        } = scratch;
        blocks.start();
        let mut start = 0;
        for &end in ends.iter() {
            blocks.refine(&parts[start..end], false, spare);
            start = end;
            fuel.burn(1 + blocks.sets.len() as u64)?;
        }
        Ok(self.row_of_blocks(scratch, Self::and))
    }

    /// A row from the scratch's blocks, whose targets are what joins their lists.
    fn row_of_blocks(
        &mut self,
        scratch: &mut RowScratch,
        join: impl Fn(&mut Self, &[ExprId]) -> ExprId,
    ) -> u32 {
        let RowScratch {
            blocks, entries, ..
        } = scratch;
        entries.clear();
        for (bytes, list) in blocks.iter() {
            entries.push((bytes, join(self, list)));
        }
        self.row_of(scratch)
    }

    /// A row from the scratch's entries, disjoint sets of bytes with their targets; all other bytes lead
    /// to [`EMPTY`].
    fn row_of(&mut self, scratch: &mut RowScratch) -> u32 {
        let RowScratch {
            entries,
            classes,
            targets,
            ..
        } = scratch;
        classes.clear();
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
        targets.clear();
        targets.extend(classes.iter().map(|&(_, to)| to));
        let sets = classes.iter().map(|&(bytes, _)| bytes);
        self.rows.intern_map(&class_of, sets)
    }
}
