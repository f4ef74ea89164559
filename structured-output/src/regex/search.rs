//! A pattern that is found anywhere, as one of the whole text.
//!
//! `pattern` in JSON Schema searches: `ab` is met by every string that has `ab` in it. So any text
//! goes before an alternative that doesn't begin with `^`, and after one that doesn't end with
//! `$`. What may be cut short there is: `a+` is found wherever `a` is.
//!
//! Bounds on the length go into the pattern where one repetition of texts of equal length can take
//! them (`^[a-z]+$` of at most 9 characters is `^[a-z]{1,9}$`), fall away where the pattern implies
//! them, and else remain for an intersection. Intersections cost: their states are many.

use super::class::class_of;
use super::syntax::{Ast, EndOf, Node, NodeId, NodeKind};
use crate::lexical::{Chars, UNBOUNDED};

impl Ast {
    /// The tree of the last of some nodes. What it isn't made of is left out, so that it isn't
    /// translated: an assertion that was taken off has no cases to be told apart.
    fn of_last(nodes: Vec<Node>) -> Self {
        let mut is_needed = vec![false; nodes.len()];
        if let Some(last) = is_needed.last_mut() {
            *last = true;
        }
        for (at, node) in nodes.iter().enumerate().rev() {
            if is_needed[at] {
                for &operand in node.kind.operands() {
                    is_needed[operand] = true;
                }
            }
        }
        let mut numbers = vec![0; nodes.len()];
        let mut kept: Vec<Node> = Vec::with_capacity(nodes.len());
        for (at, mut node) in nodes.into_iter().enumerate() {
            if is_needed[at] {
                for operand in node.kind.operands_mut() {
                    *operand = numbers[*operand];
                }
                numbers[at] = kept.len();
                kept.push(node);
            }
        }
        Self { nodes: kept }
    }
}

/// Nodes that may be added to, and what is known of those of the pattern.
struct Rewriter {
    nodes: Vec<Node>,
    /// The lengths of a node's texts; `None` where it looks around.
    chars: Vec<Option<Chars>>,
    /// Whether the length is brought into all alternatives.
    fits: bool,
}

impl Ast {
    /// The pattern found anywhere in a text of some length, as a pattern of the whole text; and
    /// whether that has the length in it. Where it doesn't, the two remain to be intersected.
    pub(crate) fn search(self, length: Chars) -> (Self, bool) {
        let root = self.nodes.len().saturating_sub(1);
        let mut rewriter = Rewriter {
            nodes: Vec::with_capacity(self.nodes.len() + 8),
            chars: Vec::with_capacity(self.nodes.len() + 8),
            fits: true,
        };
        for node in self.nodes {
            rewriter.push(node.kind, node.offset);
        }
        let mut alternatives = Vec::new();
        for alternative in rewriter.alternatives(root) {
            if let Some(whole) = rewriter.whole(alternative, length) {
                alternatives.push(whole);
            }
        }
        match alternatives[..] {
            [] => rewriter.push(NodeKind::Class(class_of(&[])), 0),
            _ => rewriter.push(NodeKind::Alternate(alternatives), 0),
        };
        (Self::of_last(rewriter.nodes), rewriter.fits)
    }
}

impl Rewriter {
    fn push(&mut self, kind: NodeKind, offset: usize) -> NodeId {
        let of = |node: &NodeId| self.chars.get(*node).copied().flatten();
        let zero = Chars { min: 0, max: 0 };
        let chars = match &kind {
            NodeKind::Class(_) => Some(Chars { min: 1, max: 1 }),
            NodeKind::Concat(items) => items
                .iter()
                .try_fold(zero, |sum, item| Some(sum.sum(of(item)?))),
            NodeKind::Alternate(items) => {
                let mut all = items.iter().map(of);
                let first = all.next().flatten();
                all.fold(first, |union, item| Some(union?.union(item?)))
            }
            NodeKind::Repeat { inner, min, max } => of(inner).map(|one| one.times(*min, *max)),
            NodeKind::Look { .. }
            | NodeKind::WordBoundary { .. }
            | NodeKind::Start { .. }
            | NodeKind::End(_) => None,
        };
        self.chars.push(chars);
        self.nodes.push(Node { kind, offset });
        self.nodes.len() - 1
    }

    /// The alternatives of a pattern, out of groups around all of it.
    fn alternatives(&self, mut root: NodeId) -> Vec<NodeId> {
        loop {
            match self.nodes.get(root).map(|node| &node.kind) {
                Some(NodeKind::Concat(items)) if items.len() == 1 => root = items[0],
                Some(NodeKind::Alternate(items)) => return items.clone(),
                _ => return vec![root],
            }
        }
    }

    /// What a node is a sequence of, out of groups.
    fn items(&self, node: NodeId) -> Vec<NodeId> {
        let mut items = Vec::new();
        let mut pending = vec![node];
        while let Some(next) = pending.pop() {
            match self.nodes.get(next).map(|node| &node.kind) {
                Some(NodeKind::Concat(inner)) => pending.extend(inner.iter().rev()),
                Some(_) => items.push(next),
                None => {}
            }
        }
        items
    }

    /// An alternative, found anywhere, as one of the whole text; `None` where no length is right.
    fn whole(&mut self, alternative: NodeId, length: Chars) -> Option<NodeId> {
        let mut items = self.items(alternative);
        let is_start = |kind: &NodeKind| matches!(kind, NodeKind::Start { of_line: false });
        let is_end = |kind: &NodeKind| matches!(kind, NodeKind::End(EndOf::Text));
        let has_any = if items
            .first()
            .is_some_and(|&at| is_start(&self.nodes[at].kind))
        {
            items.remove(0);
            false
        } else {
            while self.shorten(&mut items, false) {}
            items.insert(0, self.any(Chars::ANY));
            true
        };
        if items.last().is_some_and(|&at| is_end(&self.nodes[at].kind)) {
            items.pop();
        } else {
            // Not beyond the text that was put before, which is enough where nothing else is left.
            while items.len() > usize::from(has_any) && self.shorten(&mut items, true) {}
            if !(has_any && items.len() == 1) {
                items.push(self.any(Chars::ANY));
            }
        }
        self.fits &= self.fit(&mut items, length)?;
        Some(self.push(NodeKind::Concat(items), 0))
    }

    /// Cuts a repetition at the end or start, which any text is next to; true where that leaves
    /// nothing of it.
    fn shorten(&mut self, items: &mut Vec<NodeId>, at_end: bool) -> bool {
        let at = if at_end {
            items.len().saturating_sub(1)
        } else {
            0
        };
        let Some(&item) = items.get(at) else {
            return false;
        };
        let NodeKind::Repeat { inner, min, max } = self.nodes[item].kind else {
            return false;
        };
        if self.chars[item].is_none() || min == max && min > 0 {
            return false;
        }
        if min == 0 {
            items.remove(at);
            return true;
        }
        let max = min;
        let offset = self.nodes[item].offset;
        items[at] = self.push(NodeKind::Repeat { inner, min, max }, offset);
        false
    }

    /// Any text of some length.
    fn any(&mut self, length: Chars) -> NodeId {
        let inner = self.push(NodeKind::Class(class_of(&[('\0', char::MAX)])), 0);
        let Chars { min, max } = length;
        self.push(NodeKind::Repeat { inner, min, max }, 0)
    }

    /// Brings a length into a sequence. `None` where none of its texts has it, false where that
    /// needs an intersection.
    fn fit(&mut self, items: &mut [NodeId], length: Chars) -> Option<bool> {
        let all = items
            .iter()
            .try_fold(Chars { min: 0, max: 0 }, |sum, &item| {
                Some(sum.sum(self.chars[item]?))
            });
        let Some(all) = all else {
            return Some(length == Chars::ANY);
        };
        if all.min > length.max || all.max < length.min {
            return None;
        }
        if all.min >= length.min && all.max <= length.max {
            return Some(true);
        }
        let varies = |&at: &usize| {
            let chars = self.chars[items[at]];
            chars.is_none_or(|chars| chars.min != chars.max)
        };
        let mut varying = (0..items.len()).filter(varies);
        let (Some(at), None) = (varying.next(), varying.next()) else {
            return Some(false);
        };
        let NodeKind::Repeat { inner, min, max } = self.nodes[items[at]].kind else {
            return Some(false);
        };
        // Each time as long as the others, so that lengths are counts.
        let each = match self.chars[inner] {
            Some(Chars { min, max }) if min == max && min > 0 => min,
            _ => return Some(false),
        };
        let fixed = all.min - min.saturating_mul(each).min(all.min);
        let low = length.min.saturating_sub(fixed).div_ceil(each).max(min);
        let high = match length.max {
            UNBOUNDED => max,
            high => ((high - fixed) / each).min(max),
        };
        if low > high {
            return None;
        }
        let offset = self.nodes[items[at]].offset;
        let kind = NodeKind::Repeat {
            inner,
            min: low,
            max: high,
        };
        items[at] = self.push(kind, offset);
        Some(true)
    }
}
