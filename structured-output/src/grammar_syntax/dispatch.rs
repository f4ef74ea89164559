//! Free text until a trigger, then what belongs to it, then perhaps free text again.

use std::collections::BTreeMap;

use super::ast::{Grammar, NodeId, NodeKind, Piece, RuleBuilder, SyntaxError, TokenSet};
use crate::lexical::UNBOUNDED;

/// A tag in free text.
pub(crate) struct Tag {
    /// What tells it: after it, the tag must follow.
    pub(crate) trigger: Box<str>,
    /// What else the tag begins with.
    pub(crate) rest: Box<str>,
    pub(crate) content: NodeId,
}

/// Free text with triggers that are strings.
pub(crate) struct Dispatch {
    pub(crate) offset: usize,
    pub(crate) tags: Vec<Tag>,
    /// Strings that don't occur in free text.
    pub(crate) excludes: Vec<Box<str>>,
    /// Whether free text follows a tag; else that is the end.
    pub(crate) is_loop: bool,
    /// Whether it begins with a tag, without free text before it.
    pub(crate) at_least_one: bool,
}

/// Free tokens with triggers that are tokens.
pub(crate) struct TokenDispatch {
    pub(crate) offset: usize,
    pub(crate) tags: Vec<(TokenSet, NodeId)>,
    /// Tokens that don't occur between tags.
    pub(crate) excludes: TokenSet,
    pub(crate) is_loop: bool,
    pub(crate) at_least_one: bool,
}

impl Dispatch {
    pub(crate) fn new(offset: usize) -> Self {
        Self {
            offset,
            tags: Vec::new(),
            excludes: Vec::new(),
            is_loop: true,
            at_least_one: false,
        }
    }

    /// The dispatch as a node.
    ///
    /// Free text and a trigger are told apart by trying both: the text that holds no trigger may end
    /// at any place, and there the triggers, gathered in a trie, may begin. That is exact unless a
    /// trigger could begin within another string that must not occur; then each trigger has its own
    /// language of text up to it.
    pub(crate) fn build(
        self,
        rule: &mut RuleBuilder,
        grammar: &Grammar,
    ) -> Result<NodeKind, SyntaxError> {
        let offset = self.offset;
        let Self {
            tags,
            mut excludes,
            is_loop,
            at_least_one,
            ..
        } = self;
        if tags.iter().any(|tag| tag.trigger.is_empty())
            || excludes.iter().any(|text| text.is_empty())
        {
            return Err(SyntaxError::new(
                offset,
                "a trigger or an excluded string is empty: it would be everywhere",
            ));
        }
        let overlap = overlaps(tags.iter().map(|tag| &*tag.trigger), &excludes);
        let first = match at_least_one {
            true => Some(trie(rule, grammar, offset, &tags)),
            false => None,
        };
        excludes.extend(tags.iter().map(|tag| tag.trigger.clone()));
        excludes.sort_unstable();
        excludes.dedup();
        let text = rule.push(offset, NodeKind::TextWithout(excludes.clone()));
        let tag = if overlap {
            let mut ways = Vec::with_capacity(tags.len());
            for Tag {
                trigger,
                rest,
                content,
            } in tags
            {
                let until = NodeKind::TextUntil {
                    end: trigger,
                    others: excludes.clone(),
                };
                let until = rule.push(offset, until);
                let rest = rule.pieces(offset, &grammar.pieces(&rest));
                ways.push(rule.concat(offset, vec![until, rest, content]));
            }
            rule.push(offset, NodeKind::Alternate(ways))
        } else {
            let tags = trie(rule, grammar, offset, &tags);
            rule.concat(offset, vec![text, tags])
        };
        Ok(looped(rule, offset, first, text, tag, is_loop))
    }
}

/// Free text up to one of some strings, that string included.
pub(crate) fn text_until(
    rule: &mut RuleBuilder,
    grammar: &Grammar,
    offset: usize,
    ends: &[Box<str>],
    excludes: &[Box<str>],
) -> NodeId {
    let mut all = [ends, excludes].concat();
    all.sort_unstable();
    all.dedup();
    if overlaps(ends.iter().map(|end| &**end), excludes) {
        let mut ways = Vec::with_capacity(ends.len());
        for end in ends {
            let until = NodeKind::TextUntil {
                end: end.clone(),
                others: all.clone(),
            };
            ways.push(rule.push(offset, until));
        }
        return rule.alternate(offset, ways);
    }
    let text = rule.push(offset, NodeKind::TextWithout(all));
    let mut ways = Vec::with_capacity(ends.len());
    for end in ends {
        ways.push(rule.pieces(offset, &grammar.pieces(end)));
    }
    let ends = rule.alternate(offset, ways);
    rule.concat(offset, vec![text, ends])
}

/// `(text tag)* text` and what else the flags make of it.
fn looped(
    rule: &mut RuleBuilder,
    offset: usize,
    first: Option<NodeId>,
    text: NodeId,
    tag: NodeId,
    is_loop: bool,
) -> NodeKind {
    let tags = match is_loop {
        true => {
            let more = NodeKind::Repeat {
                inner: tag,
                min: 0,
                max: UNBOUNDED,
            };
            let more = rule.push(offset, more);
            rule.concat(offset, vec![more, text])
        }
        false => rule.push(offset, NodeKind::Alternate(vec![text, tag])),
    };
    NodeKind::Concat(match (first, is_loop) {
        (None, _) => vec![tags],
        (Some(first), true) => vec![first, tags],
        (Some(first), false) => vec![first],
    })
}

/// Whether in text without excluded strings and triggers, followed by a trigger, one of them may
/// end before that trigger does.
fn overlaps<'a>(triggers: impl Iterator<Item = &'a str> + Clone, excludes: &'a [Box<str>]) -> bool {
    triggers.clone().any(|trigger| {
        let trigger = trigger.as_bytes();
        let excludes = excludes.iter().map(|text| text.as_bytes());
        let mut all = triggers.clone().map(str::as_bytes).chain(excludes);
        all.any(|other| {
            let inside = trigger[..trigger.len() - 1]
                .windows(other.len())
                .any(|window| window == other);
            let across = (1..other.len())
                .any(|at| other.len() - at < trigger.len() && trigger.starts_with(&other[at..]));
            inside || across
        })
    })
}

/// What the tags begin with, common beginnings once, and their contents.
fn trie(rule: &mut RuleBuilder, grammar: &Grammar, offset: usize, tags: &[Tag]) -> NodeId {
    #[derive(Default)]
    struct Branch {
        children: BTreeMap<Piece, usize>,
        contents: Vec<NodeId>,
    }
    let mut branches = vec![Branch::default()];
    for tag in tags {
        let mut at = 0;
        for piece in grammar.pieces(&format!("{}{}", tag.trigger, tag.rest)) {
            at = match branches[at].children.get(&piece) {
                Some(&child) => child,
                None => {
                    branches.push(Branch::default());
                    let child = branches.len() - 1;
                    branches[at].children.insert(piece, child);
                    child
                }
            };
        }
        branches[at].contents.push(tag.content);
    }
    // Children come after their parents: from the last to the first, each with the pieces that lead
    // to where it branches, the last of them first.
    let mut built: Vec<(Vec<Piece>, NodeId)> = vec![(Vec::new(), 0); branches.len()];
    for at in (0..branches.len()).rev() {
        let Branch { children, contents } = std::mem::take(&mut branches[at]);
        let is_chain = contents.is_empty() && children.len() == 1;
        let mut ways = contents;
        for (piece, child) in children {
            let (mut pieces, node) = std::mem::take(&mut built[child]);
            pieces.push(piece);
            if is_chain {
                built[at] = (pieces, node);
                break;
            }
            pieces.reverse();
            let text = rule.pieces(offset, &pieces);
            ways.push(rule.concat(offset, vec![text, node]));
        }
        if !is_chain {
            built[at] = (Vec::new(), rule.alternate(offset, ways));
        }
    }
    let (mut pieces, node) = std::mem::take(&mut built[0]);
    pieces.reverse();
    let text = rule.pieces(offset, &pieces);
    rule.concat(offset, vec![text, node])
}

impl TokenDispatch {
    pub(crate) fn new(offset: usize) -> Self {
        Self {
            offset,
            tags: Vec::new(),
            excludes: TokenSet::default(),
            is_loop: true,
            at_least_one: false,
        }
    }

    /// The dispatch as a node.
    pub(crate) fn build(self, rule: &mut RuleBuilder) -> NodeKind {
        let offset = self.offset;
        let mut free = self.excludes;
        free.negated = true;
        let mut ways = Vec::with_capacity(self.tags.len());
        for (trigger, content) in self.tags {
            free.ranges.extend_from_slice(&trigger.ranges);
            free.names.extend_from_slice(&trigger.names);
            let trigger = rule.push(offset, NodeKind::Tokens(trigger));
            ways.push(rule.concat(offset, vec![trigger, content]));
        }
        let tags = rule.push(offset, NodeKind::Alternate(ways));
        let token = rule.push(offset, NodeKind::Tokens(free));
        let text = rule.push(
            offset,
            NodeKind::Repeat {
                inner: token,
                min: 0,
                max: UNBOUNDED,
            },
        );
        let tag = rule.concat(offset, vec![text, tags]);
        let first = self.at_least_one.then_some(tags);
        looped(rule, offset, first, text, tag, self.is_loop)
    }
}
