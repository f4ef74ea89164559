//! What rows are put together from: lists that are kept from one row to the next.

use super::arena::ExprId;
use super::byte_set::ByteSet;

/// Lists for the row that is being made; empty between two, but for their room.
#[derive(Clone, Default)]
pub(super) struct RowScratch {
    /// The derivatives of operands, one operand after the other.
    pub(super) parts: Vec<(ByteSet, ExprId)>,
    /// Where those of each end.
    pub(super) ends: Vec<usize>,
    /// Derivatives by single bytes.
    pub(super) few: Vec<(u8, ExprId)>,
    pub(super) list: Vec<ExprId>,
    pub(super) blocks: Blocks,
    pub(super) spare: Blocks,
    /// Disjoint sets of bytes with what they lead to.
    pub(super) entries: Vec<(ByteSet, ExprId)>,
    pub(super) classes: Vec<(ByteSet, ExprId)>,
    /// What the row's classes lead to.
    pub(super) targets: Vec<ExprId>,
}

/// Lists longer than this are not kept.
const MAX_KEPT: usize = 4096;

impl RowScratch {
    /// Empties all lists; of the room of an unusually large row nothing is kept.
    pub(super) fn clear(&mut self) {
        let rooms = [
            self.parts.capacity(),
            self.few.capacity(),
            self.blocks.lists.capacity(),
            self.spare.lists.capacity(),
        ];
        if rooms.into_iter().any(|room| room > MAX_KEPT) {
            *self = Self::default();
            return;
        }
        self.parts.clear();
        self.ends.clear();
        self.few.clear();
        self.entries.clear();
        self.targets.clear();
    }
}

/// Disjoint blocks of bytes, each with a list of expressions.
#[derive(Clone, Default)]
pub(super) struct Blocks {
    /// Each with where its list lies.
    pub(super) sets: Vec<(ByteSet, usize, usize)>,
    pub(super) lists: Vec<ExprId>,
}

impl Blocks {
    fn clear(&mut self) {
        self.sets.clear();
        self.lists.clear();
    }

    /// One block of all bytes, with an empty list.
    pub(super) fn start(&mut self) {
        self.clear();
        self.sets.push((ByteSet::FULL, 0, 0));
    }

    /// The blocks with their lists.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ByteSet, &[ExprId])> {
        let sets = self.sets.iter();
        sets.map(|&(bytes, start, end)| (bytes, &self.lists[start..end]))
    }

    /// Cuts the blocks by the classes of one more operand, whose targets join their lists. What the
    /// operand has no derivative for is kept or dropped.
    pub(super) fn refine(&mut self, part: &[(ByteSet, ExprId)], keep_rest: bool, spare: &mut Self) {
        spare.clear();
        for &(bytes, start, end) in &self.sets {
            let list = &self.lists[start..end];
            let mut rest = bytes;
            for (class, to) in part {
                let inside = bytes.intersection(class);
                if !inside.is_empty() {
                    rest = rest.intersection(&class.complement());
                    let start = spare.lists.len();
                    spare.lists.extend_from_slice(list);
                    spare.lists.push(*to);
                    spare.sets.push((inside, start, spare.lists.len()));
                }
            }
            if keep_rest && !rest.is_empty() {
                let start = spare.lists.len();
                spare.lists.extend_from_slice(list);
                spare.sets.push((rest, start, spare.lists.len()));
            }
        }
        std::mem::swap(self, spare);
    }

    /// Makes a byte a block of its own, whose list has some more targets.
    pub(super) fn split_off(&mut self, byte: u8, targets: impl Iterator<Item = ExprId>) {
        let single = ByteSet::single(byte);
        let start = self.lists.len();
        if let Some(block) = self.sets.iter_mut().find(|block| block.0.contains(byte)) {
            block.0 = block.0.intersection(&single.complement());
            self.lists.extend_from_within(block.1..block.2);
        }
        self.lists.extend(targets);
        self.sets.push((single, start, self.lists.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_cut_and_keep_their_lists() {
        let [a, b, c] = [1, 2, 3].map(ExprId);
        let letters = ByteSet::range(b'a', b'f');
        let (mut blocks, mut spare) = (Blocks::default(), Blocks::default());
        blocks.start();
        blocks.refine(&[(letters, a)], true, &mut spare);
        blocks.refine(&[(ByteSet::range(b'd', b'k'), b)], true, &mut spare);
        blocks.split_off(b'e', [c].into_iter());
        let list_of = |blocks: &Blocks, byte: u8| {
            let found: Vec<_> = blocks
                .iter()
                .filter(|block| block.0.contains(byte))
                .collect();
            assert_eq!(found.len(), 1, "one block each");
            found[0].1.to_vec()
        };
        let expected: [(u8, &[ExprId]); 5] = [
            (b'a', &[a]),
            (b'd', &[a, b]),
            (b'e', &[a, b, c]),
            (b'k', &[b]),
            (b'z', &[]),
        ];
        for (byte, list) in expected {
            assert_eq!(list_of(&blocks, byte), list);
        }
        blocks.refine(&[(letters, c)], false, &mut spare);
        let within = |bytes: ByteSet| bytes.intersection(&letters) == bytes;
        assert!(blocks.iter().all(|(bytes, _)| within(bytes)));
    }
}
