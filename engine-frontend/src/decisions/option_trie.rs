//! Options as token sequences, and where they part.
//!
//! An option's probability is the product of the probabilities of its tokens, and of its end, at the nodes that
//! have several ways on: elsewhere nothing else can come. So the core is asked about these nodes alone. All that
//! lie on one path are asked about in one request.

use protocol::ScoredPosition;

/// The places where token sequences part, as in a radix tree. Nodes come behind their parents; the first is the root.
#[derive(Debug)]
pub(super) struct OptionTrie {
    nodes: Vec<Node>,
    num_options: usize,
}

/// A place where options part, or the end of the only one.
#[derive(Debug)]
struct Node {
    parent: usize,
    /// Tokens before it: the first of `sample`'s.
    depth: usize,
    /// One of the options that lead here.
    sample: usize,
    /// Each token that may come, with what is behind it.
    children: Vec<(u32, Next)>,
    /// The option that ends here.
    option: Option<usize>,
}

/// What a token leads to.
#[derive(Debug, Clone, Copy)]
enum Next {
    /// Another place where options part.
    Node(usize),
    /// Nothing but this option.
    Option(usize),
}

impl Node {
    fn is_branching(&self) -> bool {
        self.children.len() + usize::from(self.option.is_some()) > 1
    }
}

/// Tokens behind a prompt, and the nodes on the way at which the core is asked.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TriePath {
    pub(super) token_ids: Vec<u32>,
    /// From the root on.
    nodes: Vec<usize>,
}

impl OptionTrie {
    /// The trie of these options, at least one.
    ///
    /// # Errors
    /// The indices of two options that are the same tokens.
    pub(super) fn new(options: &[Vec<u32>]) -> Result<Self, (usize, usize)> {
        let mut sorted: Vec<usize> = (0..options.len()).collect();
        sorted.sort_by_key(|&index| &options[index]);
        let mut pairs = sorted.windows(2);
        if let Some(equal) = pairs.find(|pair| options[pair[0]] == options[pair[1]]) {
            return Err((equal[0], equal[1]));
        }
        let mut trie = Self {
            nodes: Vec::new(),
            num_options: options.len(),
        };
        trie.add(options, &sorted, 0);
        Ok(trie)
    }

    /// Adds the node of these options, in the order of their tokens, and all behind it; returns its index.
    fn add(&mut self, options: &[Vec<u32>], sorted: &[usize], parent: usize) -> usize {
        let at = self.nodes.len();
        let (Some(&first), Some(&last)) = (sorted.first(), sorted.last()) else {
            return at;
        };
        // What the first and the last have in common all between them have.
        let common = options[first].iter().zip(&options[last]);
        let depth = common.take_while(|(one, other)| one == other).count();
        let option = (options[first].len() == depth).then_some(first);
        self.nodes.push(Node {
            parent,
            depth,
            sample: first,
            children: Vec::new(),
            option,
        });
        let longer = &sorted[usize::from(option.is_some())..];
        let groups = longer.chunk_by(|&one, &other| options[one][depth] == options[other][depth]);
        let children = groups.map(|group| {
            let next = match group {
                [only] => Next::Option(*only),
                _ => Next::Node(self.add(options, group, at)),
            };
            (options[group[0]][depth], next)
        });
        let children = children.collect();
        self.nodes[at].children = children;
        at
    }

    /// Paths that lead to every node at which the core is asked, as few as there can be. `options` are those of
    /// [`Self::new`].
    pub(super) fn paths(&self, options: &[Vec<u32>]) -> Vec<TriePath> {
        let mut is_asked = vec![false; self.nodes.len()];
        let mut paths = Vec::new();
        // A node that is asked by none of those behind it begins a path of its own.
        for last in (0..self.nodes.len()).rev() {
            if is_asked[last] || !self.nodes[last].is_branching() {
                continue;
            }
            let (mut nodes, mut at) = (Vec::new(), last);
            loop {
                if !std::mem::replace(&mut is_asked[at], true) {
                    nodes.push(at);
                }
                if at == 0 {
                    break;
                }
                at = self.nodes[at].parent;
            }
            nodes.reverse();
            let Node { sample, depth, .. } = self.nodes[last];
            let token_ids = options[sample][..depth].to_vec();
            paths.push(TriePath { token_ids, nodes });
        }
        paths.reverse();
        paths
    }

    /// What the core is asked on a path behind a prompt of so many tokens. `end_token_ids` end an answer.
    pub(super) fn scored_positions(
        &self,
        path: &TriePath,
        prompt_len: usize,
        end_token_ids: &[u32],
    ) -> Vec<ScoredPosition> {
        let position = |&at: &usize| {
            let node = &self.nodes[at];
            let ends = node.option.map_or(&[][..], |_| end_token_ids);
            let children = node.children.iter().map(|(token_id, _)| *token_id);
            ScoredPosition {
                num_tokens: u32::try_from(prompt_len + node.depth).unwrap_or(u32::MAX),
                token_ids: children.chain(ends.iter().copied()).collect(),
            }
        };
        path.nodes.iter().map(position).collect()
    }

    /// The options' probabilities, which sum to 1, of what the core said about each path. `None` where that tells
    /// nothing.
    pub(super) fn probabilities(&self, answers: &[(TriePath, Vec<Vec<f32>>)]) -> Option<Vec<f64>> {
        let mut rows = vec![None; self.nodes.len()];
        for (path, scores) in answers {
            for (&at, row) in path.nodes.iter().zip(scores) {
                rows[at] = Some(row);
            }
        }
        let mut reached = vec![0.0; self.nodes.len()];
        let mut options = vec![0.0; self.num_options];
        reached[0] = 1.0;
        for (at, node) in self.nodes.iter().enumerate() {
            let next: Vec<f64> = match (node.is_branching(), rows[at]) {
                (true, Some(row)) => row.iter().map(|&score| f64::from(score).exp()).collect(),
                (true, None) => return None,
                (false, _) => vec![1.0],
            };
            let (to_children, to_end) = next.split_at_checked(node.children.len())?;
            for ((_, child), probability) in node.children.iter().zip(to_children) {
                let probability = reached[at] * probability;
                match *child {
                    Next::Node(child) => reached[child] = probability,
                    Next::Option(option) => options[option] = probability,
                }
            }
            if let Some(option) = node.option {
                options[option] = reached[at] * to_end.iter().sum::<f64>();
            }
        }
        let total: f64 = options.iter().sum();
        let is_told = total.is_finite() && total > 0.0;
        is_told.then(|| options.iter().map(|p| p / total).collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const END: [u32; 2] = [98, 99];

    /// A model whose logits depend on all tokens before.
    fn logit(before: &[u32], token_id: u32) -> f64 {
        let mut hash = u64::from(token_id) + 1;
        for &id in before {
            hash = (hash ^ u64::from(id))
                .wrapping_mul(0x9E37_79B9_7F4A_7C15)
                .rotate_left(23);
        }
        (hash % 1000) as f64 / 125.0 - 4.0
    }

    /// What the core says of a path behind the prompt.
    fn ask(prompt: &[u32], path: &TriePath, positions: &[ScoredPosition]) -> Vec<Vec<f32>> {
        let tokens = [prompt, &path.token_ids].concat();
        let row = |position: &ScoredPosition| {
            let before = &tokens[..position.num_tokens as usize];
            let logits = position.token_ids.iter().map(|&id| logit(before, id));
            let sum: f64 = logits.clone().map(f64::exp).sum();
            logits.map(|l| (l - sum.ln()) as f32).collect()
        };
        positions.iter().map(row).collect()
    }

    /// Step by step under a mask, without a trie: the tokens that some option has next after this beginning.
    fn brute_force(prompt: &[u32], options: &[Vec<u32>]) -> Vec<f64> {
        let next = |begun: &[u32]| -> Vec<u32> {
            let mut next = Vec::new();
            for option in options {
                match option.strip_prefix(begun) {
                    Some([first, ..]) => next.push(*first),
                    Some([]) => next.extend(END),
                    None => {}
                }
            }
            next.sort_unstable();
            next.dedup();
            next
        };
        let probability = |begun: &[u32], token_id: u32| {
            let before = [prompt, begun].concat();
            let allowed = next(begun);
            let sum: f64 = allowed.iter().map(|&id| logit(&before, id).exp()).sum();
            logit(&before, token_id).exp() / sum
        };
        let of_option = |option: &Vec<u32>| {
            let tokens = (0..option.len()).map(|i| probability(&option[..i], option[i]));
            let end: f64 = END.iter().map(|&end| probability(option, end)).sum();
            tokens.product::<f64>() * end
        };
        options.iter().map(of_option).collect()
    }

    fn decide(prompt: &[u32], options: &[Vec<u32>]) -> (usize, Vec<f64>) {
        let trie = OptionTrie::new(options).unwrap();
        let answers: Vec<_> = (trie.paths(options).into_iter())
            .map(|path| {
                let positions = trie.scored_positions(&path, prompt.len(), &END);
                let scores = ask(prompt, &path, &positions);
                (path, scores)
            })
            .collect();
        (answers.len(), trie.probabilities(&answers).unwrap())
    }

    proptest! {
        #[test]
        fn probabilities_are_those_of_masked_steps(
            prompt in prop::collection::vec(0..9_u32, 1..4),
            options in prop::collection::btree_set(prop::collection::vec(0..4_u32, 0..6), 1..24),
        ) {
            let options: Vec<Vec<u32>> = options.into_iter().collect();
            let (num_paths, probabilities) = decide(&prompt, &options);
            let expected = brute_force(&prompt, &options);
            for (p, e) in probabilities.iter().zip(&expected) {
                prop_assert!((p - e).abs() < 1e-5, "{probabilities:?} {expected:?}");
            }
            prop_assert!((probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            prop_assert!(num_paths < options.len());
        }
    }

    #[test]
    fn one_path_asks_about_all_that_lies_on_it() {
        let options = [vec![1, 2], vec![1, 3], vec![4], vec![1]];
        let trie = OptionTrie::new(&options).unwrap();
        let paths = trie.paths(&options);
        assert_eq!(paths.len(), 1);
        assert_eq!(paths[0].token_ids, [1]);
        let positions = trie.scored_positions(&paths[0], 10, &END);
        let positions: Vec<_> = positions
            .iter()
            .map(|p| (p.num_tokens, p.token_ids.as_slice()))
            .collect();
        assert_eq!(positions, [(10, &[1, 4][..]), (11, &[2, 3, 98, 99][..])]);
    }

    #[test]
    fn one_option_is_certain_and_no_logits_tell_nothing() {
        assert_eq!(decide(&[7], &[vec![1, 2, 3]]), (0, vec![1.0]));
        let options = [vec![1], vec![2]];
        let trie = OptionTrie::new(&options).unwrap();
        let path = || trie.paths(&options).remove(0);
        let nan = f32::NAN;
        assert_eq!(trie.probabilities(&[(path(), vec![vec![nan, nan]])]), None);
        assert_eq!(trie.probabilities(&[]), None);
        let never = f32::NEG_INFINITY;
        let certain = trie.probabilities(&[(path(), vec![vec![never, 0.0]])]);
        assert_eq!(certain, Some(vec![0.0, 1.0]));
    }

    /// What is kept grows with the options, not with their tokens.
    #[test]
    fn tokens_between_two_places_take_nothing() {
        let mut options: Vec<Vec<u32>> = (1..=100).map(|n| vec![n]).collect();
        options.push(vec![0; 10_000]);
        options.push([vec![0; 9_999], vec![1]].concat());
        let trie = OptionTrie::new(&options).unwrap();
        let depths: Vec<usize> = trie.nodes.iter().map(|node| node.depth).collect();
        assert_eq!(depths, [0, 9_999]);
    }

    #[test]
    fn equal_options_are_told_apart_by_nothing() {
        let error = OptionTrie::new(&[vec![1], vec![2], vec![1]]).unwrap_err();
        assert_eq!(error, (0, 2));
    }
}
