//! A trie of tokens over classes of bytes.

use crate::lexical::{ByteSet, TURNING_BYTES};

/// A trie whose edges are classes of bytes. Tokens that are the same word of classes lie together.
///
/// After a byte of [`TURNING_BYTES`] a token's edges are single bytes: few tokens have more after
/// one, and what follows it in a grammar often tells apart what nothing else does.
///
/// Nodes are in depth-first order without the root, tokens in the order of their nodes: what lies
/// below a node is a contiguous range of nodes and a contiguous range of tokens. Memory: 10 bytes
/// per node and 4 per token.
pub(crate) struct Trie {
    classes: Vec<ByteSet>,
    /// The class on the edge that leads to each node, or the number of classes and a byte.
    labels: Vec<u16>,
    /// One past the last node below each node.
    ends: Vec<u32>,
    /// Where each node's own tokens start; one entry more than nodes.
    starts: Vec<u32>,
    tokens: Vec<u32>,
}

impl Trie {
    /// The trie of `tokens` (id and bytes, none empty) over the classes of a partition of the
    /// bytes, at most 256.
    pub(super) fn new(tokens: &[(u32, &[u8])], classes: Vec<ByteSet>) -> Self {
        let mut class_of = [0_u8; 256];
        for (class, bytes) in (0..=255).zip(&classes) {
            for byte in bytes.iter() {
                class_of[usize::from(byte)] = class;
            }
        }
        // One block of class words, so that sorting compares slices of it.
        let mut words: Vec<u16> = Vec::with_capacity(tokens.iter().map(|t| t.1.len()).sum());
        let mut order: Vec<(u32, u32, u32)> = Vec::with_capacity(tokens.len());
        for &(id, bytes) in tokens {
            let start = words.len() as u32;
            let turn = bytes.iter().position(|byte| TURNING_BYTES.contains(byte));
            let (coarse, exact) = match turn {
                Some(turn) if classes.len() < 256 => bytes.split_at(turn + 1),
                _ => (bytes, &[][..]),
            };
            let coarse = coarse
                .iter()
                .map(|&byte| u16::from(class_of[usize::from(byte)]));
            let exact = exact
                .iter()
                .map(|&byte| classes.len() as u16 + u16::from(byte));
            words.extend(coarse.chain(exact));
            order.push((start, words.len() as u32, id));
        }
        let word = |&(start, end, _): &(u32, u32, u32)| &words[start as usize..end as usize];
        order.sort_unstable_by(|a, b| word(a).cmp(word(b)).then(a.2.cmp(&b.2)));

        let mut trie = Self {
            classes,
            labels: Vec::new(),
            ends: Vec::new(),
            starts: Vec::new(),
            tokens: Vec::with_capacity(order.len()),
        };
        // Nodes on the path to the last token.
        let mut path: Vec<usize> = Vec::new();
        let mut previous: &[u16] = &[];
        for entry in &order {
            let next = word(entry);
            let shared = next
                .iter()
                .zip(previous)
                .take_while(|(a, b)| a == b)
                .count();
            for node in path.drain(shared..) {
                trie.ends[node] = trie.labels.len() as u32;
            }
            for &label in &next[shared..] {
                path.push(trie.labels.len());
                trie.labels.push(label);
                trie.ends.push(0);
                trie.starts.push(trie.tokens.len() as u32);
            }
            trie.tokens.push(entry.2);
            previous = next;
        }
        for node in path {
            trie.ends[node] = trie.labels.len() as u32;
        }
        trie.starts.push(trie.tokens.len() as u32);
        for list in [&mut trie.ends, &mut trie.starts, &mut trie.tokens] {
            list.shrink_to_fit();
        }
        trie.labels.shrink_to_fit();
        trie
    }

    /// The trie of `tokens` over single bytes, whose labels are the bytes.
    pub(crate) fn of_bytes(tokens: &[(u32, &[u8])]) -> Self {
        Self::new(tokens, (0..=255).map(ByteSet::single).collect())
    }

    /// The classes on the edges.
    pub(crate) fn classes(&self) -> &[ByteSet] {
        &self.classes
    }

    /// How many nodes there are.
    pub(crate) fn num_nodes(&self) -> u32 {
        self.labels.len() as u32
    }

    /// A byte for each label: one of the class, or the byte itself.
    pub(crate) fn label_bytes(&self) -> Vec<u8> {
        let first = |class: &ByteSet| class.iter().next();
        let classes = self.classes.iter().filter_map(first);
        if self.classes.len() == 256 {
            return classes.collect();
        }
        classes.chain(0..=255).collect()
    }

    /// The byte on the edge to a node, in a trie of single bytes.
    pub(crate) fn byte(&self, node: u32) -> u8 {
        self.label(node) as u8
    }

    /// The class on the edge to a node, or the number of classes and a byte.
    pub(crate) fn label(&self, node: u32) -> u16 {
        self.labels[node as usize]
    }

    /// One past the last node below a node; its first child, if any, is `node + 1`.
    pub(crate) fn end(&self, node: u32) -> u32 {
        self.ends[node as usize]
    }

    /// Where the tokens of a node start in [`Trie::tokens`]; those of the node itself end where
    /// those of `node + 1` start.
    pub(crate) fn token_start(&self, node: u32) -> u32 {
        self.starts[node as usize]
    }

    /// All tokens, in the order of their nodes.
    pub(crate) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        2 * self.labels.len()
            + 4 * (self.ends.len() + self.starts.len() + self.tokens.len())
            + self.classes.len() * size_of::<ByteSet>()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::super::alphabet::alphabets;
    use super::*;

    /// Every node's word with its own tokens, by walking the arrays.
    fn words(trie: &Trie) -> Vec<(Vec<u16>, Vec<u32>)> {
        let mut found = Vec::new();
        let mut path: Vec<(u16, u32)> = Vec::new();
        for node in 0..trie.num_nodes() {
            while path.last().is_some_and(|&(_, end)| end == node) {
                path.pop();
            }
            path.push((trie.label(node), trie.end(node)));
            let range = trie.token_start(node) as usize..trie.token_start(node + 1) as usize;
            let word = path.iter().map(|&(label, _)| label).collect();
            found.push((word, trie.tokens()[range].to_vec()));
        }
        found
    }

    fn class_of(trie: &Trie, byte: u8) -> u16 {
        let holds = |class: &ByteSet| class.contains(byte);
        trie.classes().iter().position(holds).unwrap() as u16
    }

    proptest! {
        #[test]
        fn holds_every_prefix_once_with_its_tokens(
            vocab in prop::collection::vec(prop::collection::vec(
                prop_oneof![Just(b'a'), Just(b'b'), Just(b'"'), Just(b'\\'), any::<u8>()], 1..5), 0..40),
        ) {
            let tokens: Vec<(u32, &[u8])> =
                (0..).zip(vocab.iter().map(Vec::as_slice)).collect();
            for classes in alphabets() {
                let trie = Trie::new(&tokens, classes);
                let mut expected: BTreeMap<Vec<u16>, BTreeSet<u32>> = BTreeMap::new();
                for &(id, bytes) in &tokens {
                    let mut exact = false;
                    let mut word: Vec<u16> = Vec::new();
                    for &byte in bytes {
                        let class = class_of(&trie, byte);
                        let count = trie.classes().len() as u16;
                        word.push(if exact { count + u16::from(byte) } else { class });
                        exact |= count < 256 && TURNING_BYTES.contains(&byte);
                    }
                    let of_labels = word.iter().map(|&label| trie.label_bytes()[label as usize]);
                    for (byte, &own) in of_labels.zip(bytes) {
                        prop_assert_eq!(class_of(&trie, byte), class_of(&trie, own));
                    }
                    for length in 1..=word.len() {
                        expected.entry(word[..length].to_vec()).or_default();
                    }
                    expected.entry(word).or_default().insert(id);
                }
                let found = words(&trie);
                prop_assert_eq!(found.len(), expected.len());
                for (word, own) in found {
                    let own_set: BTreeSet<u32> = own.iter().copied().collect();
                    prop_assert_eq!(own.len(), own_set.len());
                    prop_assert_eq!(expected.get(&word), Some(&own_set));
                }
            }
        }
    }
}
