//! Free text until a trigger, then what belongs to it, then perhaps free text again.

use std::collections::BTreeMap;

use super::ast::{NodeId, NodeKind, RuleBuilder, SyntaxError, TokenSet};
use crate::lexical::UNBOUNDED;

/// Free text with triggers that are strings.
pub(crate) struct Dispatch {
    pub(crate) offset: usize,
    /// Triggers, each with what follows it.
    pub(crate) tags: Vec<(Box<str>, NodeId)>,
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
    pub(crate) fn build(self, rule: &mut RuleBuilder) -> Result<NodeKind, SyntaxError> {
        let offset = self.offset;
        let Self {
            tags,
            mut excludes,
            is_loop,
            at_least_one,
            ..
        } = self;
        if tags.iter().any(|tag| tag.0.is_empty()) || excludes.iter().any(|text| text.is_empty()) {
            return Err(SyntaxError::new(
                offset,
                "a trigger or an excluded string is empty: it would be everywhere",
            ));
        }
        let overlap = overlaps(&tags, &excludes);
        let first = match at_least_one {
            true => Some(trie(rule, offset, &tags)),
            false => None,
        };
        let triggers: Vec<Box<str>> = tags.iter().map(|tag| tag.0.clone()).collect();
        excludes.extend(triggers);
        excludes.sort_unstable();
        excludes.dedup();
        let text = rule.push(offset, NodeKind::TextWithout(excludes.clone()));
        let tag = if overlap {
            let mut ways = Vec::with_capacity(tags.len());
            for (trigger, content) in tags {
                let until = NodeKind::TextUntil {
                    end: trigger,
                    others: excludes.clone(),
                };
                let until = rule.push(offset, until);
                ways.push(rule.concat(offset, vec![until, content]));
            }
            rule.push(offset, NodeKind::Alternate(ways))
        } else {
            let tags = trie(rule, offset, &tags);
            rule.concat(offset, vec![text, tags])
        };
        Ok(looped(rule, offset, first, text, tag, is_loop))
    }
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
fn overlaps(tags: &[(Box<str>, NodeId)], excludes: &[Box<str>]) -> bool {
    let triggers = || tags.iter().map(|tag| tag.0.as_bytes());
    let all = || triggers().chain(excludes.iter().map(|text| text.as_bytes()));
    triggers().any(|trigger| {
        all().any(|other| {
            let inside = trigger[..trigger.len() - 1]
                .windows(other.len())
                .any(|window| window == other);
            let across = (1..other.len())
                .any(|at| other.len() - at < trigger.len() && trigger.starts_with(&other[at..]));
            inside || across
        })
    })
}

/// The triggers with what follows them, common beginnings once.
fn trie(rule: &mut RuleBuilder, offset: usize, tags: &[(Box<str>, NodeId)]) -> NodeId {
    #[derive(Default)]
    struct Branch {
        children: BTreeMap<char, usize>,
        contents: Vec<NodeId>,
    }
    let mut branches = vec![Branch::default()];
    for (trigger, content) in tags {
        let mut at = 0;
        for c in trigger.chars() {
            at = match branches[at].children.get(&c) {
                Some(&child) => child,
                None => {
                    branches.push(Branch::default());
                    let child = branches.len() - 1;
                    branches[at].children.insert(c, child);
                    child
                }
            };
        }
        branches[at].contents.push(*content);
    }
    // Children come after their parents: from the last to the first, each with the text that leads
    // to where it branches.
    let mut built: Vec<(String, NodeId)> = vec![(String::new(), 0); branches.len()];
    for at in (0..branches.len()).rev() {
        let Branch { children, contents } = std::mem::take(&mut branches[at]);
        if let (true, Some((&c, &child)), 1) = (
            contents.is_empty(),
            children.first_key_value(),
            children.len(),
        ) {
            let (text, node) = std::mem::take(&mut built[child]);
            // Backwards, so that a long chain costs what it is long.
            built[at] = (text, node);
            built[at].0.push(c);
            continue;
        }
        let mut ways = contents;
        for (c, child) in children {
            let (text, node) = std::mem::take(&mut built[child]);
            let text: String = std::iter::once(c).chain(text.chars().rev()).collect();
            let literal = rule.push(offset, NodeKind::Literal(text.into()));
            ways.push(rule.concat(offset, vec![literal, node]));
        }
        let node = rule.alternate(offset, ways);
        built[at] = (String::new(), node);
    }
    let (text, node) = std::mem::take(&mut built[0]);
    let text: String = text.chars().rev().collect();
    let literal = rule.push(offset, NodeKind::Literal(text.into()));
    rule.concat(offset, vec![literal, node])
}

impl TokenDispatch {
    pub(crate) fn new(offset: usize) -> Self {
        Self {
            offset,
            tags: Vec::new(),
            excludes: TokenSet {
                ranges: Vec::new(),
                names: Vec::new(),
                negated: false,
            },
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
