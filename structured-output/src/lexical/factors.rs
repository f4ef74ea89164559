//! Sequences of factors, as proofs about what is within what write them.

use hashbrown::HashMap;

use super::arena::{EPSILON, ExprId, Lexicon, Node, UNBOUNDED};

/// No more factors.
pub(super) const END: u32 = u32::MAX;

/// No bound on the bytes of a text, or none that is known.
pub(super) const ENDLESS: u64 = u64::MAX;

/// Parts in parts that are looked into for the longest text.
const MAX_DEPTH: u32 = 24;

/// A factor, so many times, and where the next one is.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Link {
    pub(super) body: ExprId,
    pub(super) min: u32,
    pub(super) max: u32,
    pub(super) next: u32,
}

impl Link {
    /// Whether it comes once.
    pub(super) fn is_one(&self) -> bool {
        (self.min, self.max) == (1, 1)
    }

    /// One time less.
    pub(super) fn less_one(self) -> Self {
        Self {
            min: self.min.saturating_sub(1),
            max: match self.max {
                UNBOUNDED => UNBOUNDED,
                max => max.saturating_sub(1),
            },
            ..self
        }
    }
}

/// Sequences that were written.
#[derive(Clone, Default)]
pub(super) struct Links {
    all: Vec<Link>,
    /// Of each, the fewest and the most bytes of a text from there on.
    lengths: Vec<(u64, u64)>,
    numbers: HashMap<Link, u32>,
}

impl Links {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Forgets all but the room they took.
    pub(super) fn clear(&mut self) {
        self.all.clear();
        self.lengths.clear();
        self.numbers.clear();
    }
}

/// Sequences, with their ends in common.
pub(super) struct Factors<'a> {
    pub(super) lexicon: &'a Lexicon,
    pub(super) links: &'a mut Links,
    /// The bytes of the longest texts of expressions.
    longest: &'a mut HashMap<ExprId, u64>,
    /// Links and expressions that were looked at.
    pub(super) num_steps: u64,
}

impl<'a> Factors<'a> {
    pub(super) fn new(
        lexicon: &'a Lexicon,
        links: &'a mut Links,
        longest: &'a mut HashMap<ExprId, u64>,
    ) -> Self {
        Self {
            lexicon,
            links,
            longest,
            num_steps: 0,
        }
    }

    /// The expression that a sequence is, where it is one.
    pub(super) fn expr_at(&self, at: u32) -> Option<ExprId> {
        let link = self.links.all.get(at as usize)?;
        (link.is_one() && link.next == END).then_some(link.body)
    }

    /// An expression, and then what is at a place.
    pub(super) fn push(&mut self, body: ExprId, next: u32) -> u32 {
        self.push_link(Link {
            body,
            min: 1,
            max: 1,
            next,
        })
    }

    /// The number of a link; equal ones have the same.
    pub(super) fn push_link(&mut self, link: Link) -> u32 {
        self.num_steps += 1;
        if let Some(&known) = self.links.numbers.get(&link) {
            return known;
        }
        let (least, most) = self.lengths_from(link.next);
        let shortest = u64::from(self.lexicon.facts(link.body).min_bytes);
        let longest = match (self.longest(link.body, MAX_DEPTH), link.max) {
            (0, _) | (_, 0) => 0,
            (_, UNBOUNDED) => ENDLESS,
            (longest, max) => longest.saturating_mul(u64::from(max)),
        };
        let least = least.saturating_add(shortest.saturating_mul(u64::from(link.min)));
        let number = self.links.len() as u32;
        self.links.all.push(link);
        self.links
            .lengths
            .push((least, most.saturating_add(longest)));
        self.links.numbers.insert(link, number);
        number
    }

    /// The fewest and the most bytes of a text from a link on.
    pub(super) fn lengths_from(&self, at: u32) -> (u64, u64) {
        let known = self.links.lengths.get(at as usize);
        known.copied().unwrap_or((0, 0))
    }

    /// The bytes of an expression's longest text, or more. Recurses into parts of parts, to some depth.
    fn longest(&mut self, expr: ExprId, depth: u32) -> u64 {
        /// Parts that are looked at.
        const MAX_PARTS: usize = 64;
        if let Some(&known) = self.longest.get(&expr) {
            return known;
        }
        let Some(depth) = depth.checked_sub(1) else {
            return ENDLESS;
        };
        let lexicon = self.lexicon;
        self.num_steps += 1;
        let longest = match lexicon.node(expr) {
            Node::Empty | Node::Epsilon | Node::Mark(_) => 0,
            Node::Class(_) => 1,
            Node::Concat(head, tail) => {
                let mut all = self.longest(head, depth);
                let mut tail = tail;
                for part in 0.. {
                    if part == MAX_PARTS {
                        return ENDLESS;
                    }
                    let Node::Concat(head, rest) = lexicon.node(tail) else {
                        break;
                    };
                    all = all.saturating_add(self.longest(head, depth));
                    tail = rest;
                }
                all.saturating_add(self.longest(tail, depth))
            }
            Node::Or(at) => {
                let operands = lexicon.operands(at);
                if operands.len() > MAX_PARTS {
                    return ENDLESS;
                }
                let each = operands.iter().map(|&one| self.longest(one, depth));
                each.max().unwrap_or(0)
            }
            Node::Repeat { body, max, .. } => match (self.longest(body, depth), max) {
                (0, _) => 0,
                (_, UNBOUNDED) => ENDLESS,
                (longest, max) => longest.saturating_mul(u64::from(max)),
            },
            Node::And(_) | Node::Not(_) | Node::Residue(_) | Node::FreeText(_) => ENDLESS,
        };
        self.longest.insert(expr, longest);
        longest
    }

    /// The first factor of a sequence, if there is one, that is no sequence itself.
    pub(super) fn first(&mut self, mut at: u32) -> Option<Link> {
        loop {
            let link = *self.links.all.get(at as usize)?;
            self.num_steps += 1;
            if link.max == 0 || link.body == EPSILON {
                at = link.next;
                continue;
            }
            if !link.is_one() {
                return Some(link);
            }
            match self.lexicon.node(link.body) {
                Node::Concat(head, tail) => {
                    let tail = self.push(tail, link.next);
                    at = self.push(head, tail);
                }
                Node::Repeat { body, min, max } => {
                    return Some(Link {
                        body,
                        min,
                        max,
                        ..link
                    });
                }
                _ => return Some(link),
            }
        }
    }

    /// Whether a sequence may be nothing at all.
    pub(super) fn may_be_nothing(&mut self, mut at: u32) -> bool {
        while let Some(link) = self.first(at) {
            if !self.is_optional(&link) {
                return false;
            }
            at = link.next;
        }
        true
    }

    /// Whether a factor may be nothing. Marks are something.
    pub(super) fn is_optional(&self, link: &Link) -> bool {
        let facts = self.lexicon.facts(link.body);
        (link.min == 0 || facts.nullable) && !facts.marked
    }

    /// Whether an expression is more than a character.
    pub(super) fn is_compound(&self, expr: ExprId) -> bool {
        let is_made = matches!(
            self.lexicon.node(expr),
            Node::Concat(..) | Node::Or(_) | Node::Repeat { .. }
        );
        let facts = self.lexicon.facts(expr);
        is_made && (facts.counted || !facts.finite || facts.min_bytes != 1)
    }
}
