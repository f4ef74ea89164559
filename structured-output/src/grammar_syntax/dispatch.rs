//! Free text until a trigger, then what belongs to it, then perhaps free text again.

use super::ast::{
    Grammar, NodeId, NodeKind, RuleBuilder, RuleId, SyntaxError, SyntaxLimits, TokenSet,
};
use super::cursor::cut;
use std::sync::Arc;

use super::ast::Piece;
use super::piece_trie::trie;
use super::words::{Overlaps, Words, holding, overlaps};
use crate::lexical::{ByteSet, NO_TAG, TaggedWords, UNBOUNDED, WordAutomaton};

/// Where triggers overlap in fewer ways, free text before each is a language of its own.
const MANY_OVERLAPS: usize = 2;

/// So many bytes of strings that are made count as a part of the grammar.
const BYTES_PER_PART: usize = 16;

/// Where more words may be going on at one place they aren't read by one automaton: each step would take as
/// many look-ups.
const MOST_GOING_ON: u32 = 32;

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
    /// Strings that don't occur in free text, nor where it goes over into a trigger.
    pub(crate) excludes: Vec<Box<str>>,
    /// Triggers without a tag: nothing can follow them.
    pub(crate) unused: Vec<Box<str>>,
    /// Whether free text follows a tag; else that is the end.
    pub(crate) is_loop: bool,
    /// Whether it begins with a tag, without free text before it.
    pub(crate) at_least_one: bool,
}

/// A tag among free tokens.
pub(crate) struct TokenTag {
    /// What tells it: after it, the tag must follow.
    pub(crate) trigger: TokenSet,
    /// The rule of the trigger, where that has one, so that an error in it is told by its own place.
    pub(crate) rule: Option<RuleId>,
    pub(crate) content: NodeId,
}

/// Free tokens with triggers that are tokens.
pub(crate) struct TokenDispatch {
    pub(crate) offset: usize,
    pub(crate) tags: Vec<TokenTag>,
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
            unused: Vec::new(),
            is_loop: true,
            at_least_one: false,
        }
    }

    /// The dispatch as a node.
    ///
    /// Free text and a trigger are told apart by trying both: the text that holds no trigger may end
    /// at any place, and there the triggers, gathered in a trie, may begin. So of two triggers of which
    /// one holds the other, either may be meant. Where a trigger could begin within another string that
    /// must not occur, the text before it must not end with what that string begins with: triggers are
    /// gathered by what that is.
    ///
    /// # Errors
    ///
    /// A string that is empty, a trigger that holds what may not occur, more strings than a grammar may have
    /// parts, and triggers that overlap in too many ways.
    pub(crate) fn build(
        self,
        rule: &mut RuleBuilder,
        grammar: &mut Grammar,
        limits: &SyntaxLimits,
    ) -> Result<NodeKind, SyntaxError> {
        let offset = self.offset;
        let Self {
            tags,
            mut excludes,
            unused,
            is_loop,
            at_least_one,
            ..
        } = self;
        if tags.iter().any(|tag| tag.trigger.is_empty())
            || [&excludes, &unused]
                .into_iter()
                .flatten()
                .any(|text| text.is_empty())
        {
            return Err(SyntaxError::new(
                offset,
                "a trigger or an excluded string is empty: it would be everywhere",
            ));
        }
        grammar.charge(tags.len() + excludes.len() + unused.len(), offset, limits)?;
        let triggers = tags.iter().map(|tag| &*tag.trigger);
        if let Some((trigger, excluded)) = holding(triggers.clone(), &excludes) {
            let message = format!(
                "no tag could begin with the trigger `{}`, which holds `{}`, and that may not occur: it is \
                 excluded here, or ends what is around",
                cut(trigger),
                cut(excluded)
            );
            return Err(SyntaxError::new(offset, message));
        }
        let starts = |grammar: &Grammar, tag: &Tag| {
            let text = format!("{}{}", tag.trigger, tag.rest);
            (grammar.pieces(&text), tag.content)
        };
        let first = match at_least_one {
            true => Some(trie(
                rule,
                offset,
                tags.iter().map(|tag| starts(grammar, tag)).collect(),
            )),
            false => None,
        };
        excludes.extend(unused);
        excludes.extend(tags.iter().map(|tag| tag.trigger.clone()));
        let words = Words::new(excludes);
        let overlaps = overlaps(triggers, &words);
        let has_many = |of: &Overlaps| of.classes.len() >= MANY_OVERLAPS;
        if overlaps.as_ref().is_none_or(has_many)
            && let Some((text, tag)) = by_automaton(offset, &tags, &words, rule, grammar, limits)?
        {
            return Ok(looped(rule, offset, first, text, tag, is_loop));
        }
        let overlaps = overlaps.ok_or_else(|| limits.too_many_nodes(offset))?;
        if overlaps.classes.len() > limits.max_trigger_overlaps {
            return Err(SyntaxError::Limit {
                limit: "max_trigger_overlaps",
                max: limits.max_trigger_overlaps as u64,
                offset,
            });
        }
        // Tags by what may stand before them.
        let mut groups = vec![Vec::new(); 1 + overlaps.classes.len()];
        for (tag, class) in tags.iter().zip(&overlaps.of_words) {
            groups[class.map_or(0, |class| 1 + class)].push(starts(grammar, tag));
        }
        grammar.charge(overlaps.num_bytes / BYTES_PER_PART, offset, limits)?;
        let text = rule.push(offset, NodeKind::TextWithout(words));
        let mut before = vec![text];
        for class in overlaps.classes {
            let other = rule.push(offset, NodeKind::NotEnding(class.endings));
            let outer = before[class.parent.map_or(0, |parent| 1 + parent)];
            before.push(rule.push(offset, NodeKind::And(vec![outer, other])));
        }
        let mut ways = Vec::new();
        for (text, group) in before.into_iter().zip(groups) {
            if !group.is_empty() {
                let tags = trie(rule, offset, group);
                ways.push(rule.concat(offset, vec![text, tags]));
            }
        }
        let tag = rule.alternate(offset, ways);
        Ok(looped(rule, offset, first, text, tag, is_loop))
    }
}

/// Text without any of the words, and such text up to a trigger with the tag: of words that overlap the one
/// that begins first. `None` where a control token is a part of a trigger, where many words begin within
/// each other, such as `aaaa`, and where there are more triggers than tags.
fn by_automaton(
    offset: usize,
    tags: &[Tag],
    words: &Words,
    rule: &mut RuleBuilder,
    grammar: &mut Grammar,
    limits: &SyntaxLimits,
) -> Result<Option<(NodeId, NodeId)>, SyntaxError> {
    let mut rests: Vec<(&str, Vec<Piece>, NodeId)> = Vec::with_capacity(tags.len());
    for tag in tags {
        let mut pieces = grammar.pieces(&format!("{}{}", tag.trigger, tag.rest));
        let mut length = 0;
        let num_pieces = pieces.iter().take_while(|piece| {
            let Piece::Char(c) = piece else { return false };
            length += c.len_utf8();
            length <= tag.trigger.len()
        });
        let num_pieces = num_pieces.count();
        if length < tag.trigger.len() {
            return Ok(None);
        }
        rests.push((&tag.trigger, pieces.split_off(num_pieces), tag.content));
    }
    rests.sort_by_key(|rest| rest.0);
    let groups: Vec<_> = rests.chunk_by(|a, b| a.0 == b.0).collect();
    if groups.len() >= usize::from(NO_TAG) {
        return Ok(None);
    }
    let num_bytes: usize = words.iter().map(|word| word.len()).sum();
    grammar.charge(num_bytes / BYTES_PER_PART, offset, limits)?;
    let mut tags = Vec::with_capacity(words.len());
    let mut contents = Vec::with_capacity(groups.len());
    for word in words.iter() {
        match groups.get(contents.len()) {
            Some(group) if group[0].0 == &**word => {
                tags.push(contents.len() as u16);
                let group = group
                    .iter()
                    .map(|(_, rest, content)| (rest.clone(), *content));
                contents.push(trie(rule, offset, group.collect()));
            }
            _ => tags.push(NO_TAG),
        }
    }
    let automaton = Arc::new(WordAutomaton::new(TaggedWords {
        words: words.shared(),
        tags: tags.into(),
        bytes: ByteSet::FULL,
    }));
    if automaton.most_going_on() > MOST_GOING_ON {
        return Ok(None);
    }
    let text = rule.push(offset, NodeKind::FreeText(Arc::clone(&automaton)));
    let tagged = NodeKind::Tagged {
        automaton,
        contents,
    };
    Ok(Some((text, rule.push(offset, tagged))))
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
        for tag in self.tags {
            free.ranges.extend_from_slice(&tag.trigger.ranges);
            free.names.extend_from_slice(&tag.trigger.names);
            let trigger = match tag.rule {
                Some(of_trigger) => NodeKind::Rule(of_trigger),
                None => NodeKind::Tokens(tag.trigger),
            };
            let trigger = rule.push(offset, trigger);
            ways.push(rule.concat(offset, vec![trigger, tag.content]));
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
