//! A trie of tokens over classes of bytes.

use std::ops::{Range, RangeInclusive};

use crate::lexical::{CONTINUATION, Labels, characters_from};

/// A trie whose edges are labelled with classes of bytes, or with bytes. Tokens that are the same
/// word of labels lie together.
///
/// The children of a node are adjacent, ascending by label, so that a walk reads them in one piece and
/// finds one by bisection; after them come those of the first child with all that is below it, then
/// those of the second. So a walk reads the nodes in the order in which they lie, and those of a long
/// word are beside each other: it seldom finds a node's line in the first caches, but the next one.
/// Tokens are in depth-first order: those below a node are one range, its own first. Memory: 21 bytes
/// per node (69 with what is known of the words below) and 4 per token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trie {
    nodes: Box<[Node]>,
    /// The label on the edge that leads to each node; that of the root means nothing.
    labels: Box<[u8]>,
    tokens: Box<[u32]>,
    /// By node, what occurs below it; where labels are bytes and this was asked for.
    words_below: Box<[WordsBelow]>,
    /// By node, the labels that occur on the edge to it and below, where that edge begins a character;
    /// where `words_below` is known.
    labels_from: Box<[Labels]>,
}

/// What the words below a node consist of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct WordsBelow {
    labels: Labels,
    /// The length of the longest.
    height: u16,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Node {
    first_child: u32,
    num_children: u32,
    /// Tokens at and below the node.
    start: u32,
    end: u32,
    /// Where its own end.
    own_end: u32,
}

/// The root of every trie.
pub(crate) const ROOT: u32 = 0;

impl Trie {
    /// The trie of `tokens` (id and bytes, none empty), whose labels are what `label` makes of
    /// bytes. Time: a sort of the tokens and a step per byte.
    pub(crate) fn new<'a>(
        tokens: impl Iterator<Item = (u32, &'a [u8])>,
        label: impl Fn(u8) -> u8,
    ) -> Self {
        // One block of words, so that sorting compares slices of it.
        let mut text: Vec<u8> = Vec::new();
        let mut order: Vec<(u32, u32, u32)> = Vec::new();
        for (id, bytes) in tokens {
            let start = text.len() as u32;
            text.extend(bytes.iter().map(|&byte| label(byte)));
            order.push((start, text.len() as u32, id));
        }
        let word = |&(start, end, _): &(u32, u32, u32)| &text[start as usize..end as usize];
        order.sort_unstable_by(|a, b| word(a).cmp(word(b)).then(a.2.cmp(&b.2)));

        let mut nodes = vec![Node {
            end: order.len() as u32,
            ..Node::default()
        }];
        let mut labels = vec![0];
        // Nodes that are yet to get their children, with their depth.
        let mut pending = vec![(ROOT, 0)];
        while let Some((at, depth)) = pending.pop() {
            let Node { start, end, .. } = nodes[at as usize];
            let first_child = nodes.len() as u32;
            let words = &order[start as usize..end as usize];
            let own = words.iter().take_while(|w| word(w).len() == depth).count();
            let label = |w: &(u32, u32, u32)| word(w)[depth];
            let mut start = start + own as u32;
            let own_end = start;
            for group in words[own..].chunk_by(|a, b| label(a) == label(b)) {
                let end = start + group.len() as u32;
                nodes.push(Node {
                    start,
                    end,
                    ..Node::default()
                });
                labels.push(label(&group[0]));
                start = end;
            }
            let children = first_child..nodes.len() as u32;
            let node = &mut nodes[at as usize];
            node.first_child = first_child;
            node.num_children = children.len() as u32;
            node.own_end = own_end;
            pending.extend(children.rev().map(|child| (child, depth + 1)));
        }
        Self {
            nodes: nodes.into(),
            labels: labels.into(),
            tokens: order.into_iter().map(|(_, _, id)| id).collect(),
            words_below: Box::default(),
            labels_from: Box::default(),
        }
    }

    /// Makes [`Trie::labels_below`] and [`Trie::height`] known. Time: a step per node.
    pub(super) fn find_labels_below(&mut self) {
        let mut below = vec![WordsBelow::default(); self.labels.len()];
        let mut from = vec![Labels::default(); self.labels.len()];
        for node in (0..self.labels.len() as u32).rev() {
            for child in self.children(node) {
                let height = below[child as usize].height.saturating_add(1);
                below[node as usize].height = below[node as usize].height.max(height);
                let label = self.labels[child as usize];
                let after = characters_from(label).and_then(|(seconds, more, bits)| {
                    self.after_character(child, seconds, more, bits, &below)
                });
                let of_child = match after {
                    Some(mut after) => {
                        after.insert_begun();
                        after
                    }
                    None => {
                        let mut labels = below[child as usize].labels;
                        labels.insert(label);
                        labels
                    }
                };
                from[child as usize] = of_child;
                below[node as usize].labels.add(of_child);
            }
        }
        self.words_below = below.into();
        self.labels_from = from.into();
    }

    /// The characters that go on at a node, of which `bits` are known, with a byte of `firsts` and `more`
    /// bytes after it, and the labels below their ends; a word may end within one. `None` where some word
    /// isn't one of these. At most three deep.
    fn after_character(
        &self,
        node: u32,
        firsts: RangeInclusive<u8>,
        more: u32,
        bits: u32,
        below: &[WordsBelow],
    ) -> Option<Labels> {
        let mut after = Labels::default();
        for child in self.children(node) {
            let byte = self.labels[child as usize];
            if !firsts.contains(&byte) {
                return None;
            }
            let bits = bits << 6 | u32::from(byte & 0x3f);
            match more {
                0 => {
                    after.insert_character(bits);
                    after.add(below[child as usize].labels);
                }
                _ => after.add(self.after_character(child, CONTINUATION, more - 1, bits, below)?),
            }
        }
        Some(after)
    }

    /// The labels that occur below a node; `None` where that is not known.
    pub(crate) fn labels_below(&self, node: u32) -> Option<Labels> {
        self.words_below
            .get(node as usize)
            .map(|below| below.labels)
    }

    /// The labels that occur on the edge to a node and below it; `None` where that is not known.
    pub(crate) fn labels_from(&self, node: u32) -> Option<Labels> {
        self.labels_from.get(node as usize).copied()
    }

    /// The length of the longest word below a node; `u32::MAX` where that is not known.
    pub(crate) fn height(&self, node: u32) -> u32 {
        match self
            .words_below
            .get(node as usize)
            .map(|below| below.height)
        {
            None | Some(u16::MAX) => u32::MAX,
            Some(height) => u32::from(height),
        }
    }

    /// The trie of `tokens` over single bytes.
    pub(crate) fn of_bytes<'a>(tokens: impl Iterator<Item = (u32, &'a [u8])>) -> Self {
        Self::new(tokens, |byte| byte)
    }

    /// The nodes one edge below a node.
    pub(crate) fn children(&self, node: u32) -> Range<u32> {
        let Node {
            first_child,
            num_children,
            ..
        } = self.nodes[node as usize];
        first_child..first_child + num_children
    }

    /// The node one edge below, of that label.
    pub(crate) fn child(&self, node: u32, label: u8) -> Option<u32> {
        let children = self.children(node);
        let labels = &self.labels[children.start as usize..children.end as usize];
        let at = labels.binary_search(&label).ok()?;
        Some(children.start + at as u32)
    }

    /// The label on the edge to a node.
    pub(crate) fn label(&self, node: u32) -> u8 {
        self.labels[node as usize]
    }

    /// The tokens at and below a node.
    pub(crate) fn below(&self, node: u32) -> Range<u32> {
        let Node { start, end, .. } = self.nodes[node as usize];
        start..end
    }

    /// The tokens of a node itself.
    pub(crate) fn own(&self, node: u32) -> Range<u32> {
        let Node { start, own_end, .. } = self.nodes[node as usize];
        start..own_end
    }

    /// All tokens, in depth-first order of their nodes.
    pub(crate) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// The ids of a range of tokens.
    pub(crate) fn ids(&self, tokens: Range<u32>) -> &[u32] {
        &self.tokens[tokens.start as usize..tokens.end as usize]
    }

    /// Appends the trie to a file: how many nodes and tokens, nodes, labels, tokens.
    pub(super) fn write(&self, file: &mut Vec<u8>) {
        let mut number = |number: u32| file.extend_from_slice(&number.to_le_bytes());
        number(self.labels.len() as u32);
        number(self.tokens.len() as u32);
        for node in &self.nodes {
            number(node.num_children);
            number(node.start);
            number(node.end);
        }
        for &token in &self.tokens {
            number(token);
        }
        file.extend_from_slice(&self.labels);
    }

    /// Takes a trie of tokens below `vocab_size` from the front of a file. `None` where what is
    /// there is not the shape of a trie: every walk of what is returned stays within it and ends.
    pub(super) fn read(file: &mut &[u8], vocab_size: usize) -> Option<Self> {
        let mut take = |bytes: usize| {
            let (taken, rest) = file.split_at_checked(bytes)?;
            *file = rest;
            Some(taken)
        };
        let number = |bytes: &[u8]| Some(u32::from_le_bytes(bytes.try_into().ok()?));
        let num_nodes = number(take(4)?)?;
        let num_tokens = number(take(4)?)?;
        let nodes = take((num_nodes as usize).checked_mul(12)?)?;
        let mut nodes: Box<[Node]> = nodes
            .as_chunks::<12>()
            .0
            .iter()
            .map(|&[a, b, c, d, e, f, g, h, i, j, k, l]| Node {
                num_children: u32::from_le_bytes([a, b, c, d]),
                start: u32::from_le_bytes([e, f, g, h]),
                end: u32::from_le_bytes([i, j, k, l]),
                ..Node::default()
            })
            .collect();
        let tokens = take((num_tokens as usize).checked_mul(4)?)?
            .as_chunks::<4>()
            .0;
        let tokens: Box<[u32]> = tokens.iter().map(|&id| u32::from_le_bytes(id)).collect();
        let labels = Box::from(take(num_nodes as usize)?);
        if !tokens.iter().all(|&id| (id as usize) < vocab_size) {
            return None;
        }
        // Each node's children come in the order in which they were laid out, all nodes once.
        let mut num_placed = u32::from(num_nodes > 0);
        let root = ROOT..num_placed;
        let mut pending = vec![root];
        while let Some(nodes_left) = pending.last_mut() {
            let Some(at) = nodes_left.next() else {
                pending.pop();
                continue;
            };
            let Node {
                num_children,
                start,
                end,
                ..
            } = *nodes.get(at as usize)?;
            if start > end || end > num_tokens {
                return None;
            }
            let first_child = num_placed;
            num_placed = first_child.checked_add(num_children)?;
            let own_end = match num_children {
                0 => end,
                _ => nodes.get(first_child as usize)?.start.clamp(start, end),
            };
            let node = nodes.get_mut(at as usize)?;
            node.first_child = first_child;
            node.own_end = own_end;
            if num_children > 0 {
                pending.push(first_child..num_placed);
            }
        }
        let is_whole = num_nodes > 0 && num_placed == num_nodes;
        is_whole.then_some(Self {
            nodes,
            labels,
            tokens,
            words_below: Box::default(),
            labels_from: Box::default(),
        })
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.nodes)
            + self.labels.len()
            + size_of_val(&*self.tokens)
            + size_of_val(&*self.words_below)
            + size_of_val(&*self.labels_from)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use crate::lexical::ByteSet;
    use crate::lexical::Others;

    /// Every node's word with its own tokens and all those below, by walking from the root.
    fn words(trie: &Trie) -> Vec<(Vec<u8>, Vec<u32>, Vec<u32>)> {
        let mut found = Vec::new();
        let mut pending = vec![(ROOT, Vec::new())];
        while let Some((node, word)) = pending.pop() {
            for child in trie.children(node) {
                let label = trie.label(child);
                assert_eq!(trie.child(node, label), Some(child));
                pending.push((child, [&word[..], &[label]].concat()));
            }
            let own = trie.ids(trie.own(node)).to_vec();
            found.push((word, own, trie.ids(trie.below(node)).to_vec()));
        }
        found
    }

    proptest! {
        #[test]
        fn holds_every_prefix_once_with_its_tokens(
            vocab in prop::collection::vec(prop::collection::vec(
                prop_oneof![Just(b'a'), Just(b'b'), Just(b'"'), any::<u8>()], 1..5), 0..40),
            mask in any::<u8>(),
        ) {
            let tokens = (0..).zip(vocab.iter().map(Vec::as_slice));
            let trie = Trie::new(tokens.clone(), |byte| byte & mask);
            let mut expected: BTreeMap<Vec<u8>, (BTreeSet<u32>, BTreeSet<u32>)> = BTreeMap::new();
            expected.entry(Vec::new()).or_default();
            for (id, bytes) in tokens {
                let word: Vec<u8> = bytes.iter().map(|byte| byte & mask).collect();
                for length in 0..=word.len() {
                    expected.entry(word[..length].to_vec()).or_default().1.insert(id);
                }
                expected.entry(word).or_default().0.insert(id);
            }
            let found = words(&trie);
            prop_assert_eq!(found.len(), expected.len());
            for (word, own, below) in found {
                let (expected_own, expected_below) = &expected[&word];
                prop_assert_eq!(&own.into_iter().collect::<BTreeSet<_>>(), expected_own);
                prop_assert_eq!(below.len(), expected_below.len());
                prop_assert_eq!(&below.into_iter().collect::<BTreeSet<_>>(), expected_below);
            }
            prop_assert_eq!(trie.tokens().len(), vocab.len());
            prop_assert_eq!(trie.child(ROOT, 7).is_some(), expected.contains_key(&vec![7]));
            let mut trie = Trie::of_bytes((0..).zip(vocab.iter().map(Vec::as_slice)));
            prop_assert_eq!((trie.labels_below(ROOT), trie.height(ROOT)), (None, u32::MAX));
            trie.find_labels_below();
            let longest = vocab.iter().map(Vec::len).max().unwrap_or(0);
            prop_assert_eq!(trie.height(ROOT) as usize, longest);
            let Some(last) = trie.children(ROOT).last() else {
                return Ok(());
            };
            let first = trie.label(last);
            let of_last = vocab.iter().filter(|word| word[0] == first).map(Vec::len);
            prop_assert_eq!(trie.height(last) as usize, of_last.max().unwrap_or(0) - 1);
            let stays: ByteSet = (0..=255).filter(|byte| byte & mask != 0).collect();
            let Some(below) = trie.labels_below(ROOT) else {
                return Err(TestCaseError::fail("asked for"));
            };
            let of_children = trie.children(ROOT).map(|child| trie.labels_from(child));
            let of_children = of_children.flatten().fold(0, |all, labels| all | labels.0);
            prop_assert_eq!(of_children, below.0);
            if below.is_subset(Labels::within(&stays, Others::Some)) {
                prop_assert!(vocab.iter().flatten().all(|&byte| stays.contains(byte)));
            } else {
                let elsewhere = |&byte: &u8| !stays.contains(byte) || !(2..127).contains(&byte);
                prop_assert!(vocab.iter().flatten().any(elsewhere));
            }
        }
    }
}
