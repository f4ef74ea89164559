//! What free text among many words allows by itself, and the words that end it with a tag.
//!
//! Any token goes on with text, but for those within which a word ends. These are few, and the words'
//! automaton tells how many bytes it is to the nearest end of a word: where all words below a node of the trie
//! of tokens are shorter, all of them are text, and nothing is looked at. A node costs two look-ups, so
//! several are a step of fuel.

use std::collections::BTreeMap;
use std::ops::Range;

use hashbrown::HashMap;

use super::language_mask::{End, Leave, UNKNOWN_REST, Walked};
use crate::index::Trie;
use crate::lexical::{After, FreeText, Fuel, Lexicon, NO_MARK, Stop};

/// So many nodes are a step.
const NODES_A_STEP: u64 = 8;

/// What a walk found.
#[derive(Default)]
pub(crate) struct FreeTextWalked {
    /// Tokens within the text, where text may end with what comes after, and where it differs from the place
    /// beside it.
    pub(crate) text: Walked,
    /// Where tokens go on after a word, by its tag.
    pub(crate) tagged: BTreeMap<u16, Walked>,
}

/// A place where text or a word may end, with its tag or [`NO_MARK`].
struct OpenEnd {
    end: End,
    tag: u16,
    /// Once tokens have left there.
    number: Option<u32>,
}

/// Ends with what leaves there.
#[derive(Default)]
struct Ends {
    open: Vec<OpenEnd>,
    /// The end, its tag, how many tokens leave there.
    all: Vec<(End, u16, u32)>,
    leaves: Vec<(u32, Leave)>,
}

impl Ends {
    fn leave(&mut self, trie: &Trie, node: u32, at: u32) {
        let tokens = trie.below(node);
        let num_tokens = tokens.len() as u32;
        let last = match trie.children(node).is_empty() {
            true => (tokens.start, tokens.end),
            false => (0, 0),
        };
        for open in &mut self.open {
            let number = *open.number.get_or_insert(self.all.len() as u32);
            if number as usize == self.all.len() {
                self.all.push((open.end, open.tag, 0));
            }
            let num_leaving = &mut self.all[number as usize].2;
            *num_leaving += num_tokens;
            if *num_leaving < End::MANY {
                let leave = Leave {
                    node,
                    depth: open.end.depth,
                    at,
                    rest: UNKNOWN_REST,
                    last,
                };
                self.leaves.push((number, leave));
            }
        }
    }

    fn finish(self, found: &mut FreeTextWalked) {
        for &(number, leave) in &self.leaves {
            let (_, tag, num_leaving) = self.all[number as usize];
            if num_leaving < End::MANY {
                found.by_tag(tag).leaves.push(leave);
            }
        }
        for &(end, tag, num_leaving) in &self.all {
            if num_leaving >= End::MANY {
                found.by_tag(tag).large.push(end);
            }
        }
    }
}

impl FreeTextWalked {
    fn by_tag(&mut self, tag: u16) -> &mut Walked {
        match tag {
            NO_MARK => &mut self.text,
            tag => self.tagged.entry(tag).or_default(),
        }
    }
}

/// A node to go on from.
struct Pending {
    at: End,
    tag: u16,
    place: Option<FreeText>,
    beside: Option<FreeText>,
}

/// Adds tokens to those that come just before them.
fn add(ranges: &mut Vec<Range<u32>>, tokens: Range<u32>) {
    match ranges.last_mut() {
        Some(last) if last.end == tokens.start => last.end = tokens.end,
        _ => ranges.push(tokens),
    }
}

/// Runs free text over every word of the trie of bytes that goes on from a node. With another place `beside`
/// it, which differs in the words that have begun, only what differs is found, as in
/// [`walk`](super::language_mask::walk).
pub(crate) fn walk_free_text(
    lexicon: &mut Lexicon,
    trie: &Trie,
    from: End,
    start: FreeText,
    beside: Option<FreeText>,
    fuel: &mut Fuel,
) -> Result<FreeTextWalked, Stop> {
    let mut found = FreeTextWalked::default();
    let mut ends = Ends::default();
    let texts = lexicon.text_labels(start);
    let is_plain = lexicon.is_text_plain(start);
    let mut is_live: HashMap<FreeText, bool> = HashMap::new();
    let mut num_seen = 0;
    let mut pending = vec![Pending {
        at: from,
        tag: NO_MARK,
        place: Some(start),
        beside,
    }];
    while let Some(Pending {
        at,
        tag,
        place,
        beside,
    }) = pending.pop()
    {
        let End { node, depth } = at;
        let closed = |open: &OpenEnd| open.end.depth >= depth;
        while ends.open.last().is_some_and(closed) {
            ends.open.pop();
        }
        if at != from && (tag != NO_MARK || place.is_some_and(FreeText::may_end)) {
            ends.open.push(OpenEnd {
                end: at,
                tag,
                number: None,
            });
        }
        let children = trie.children(node);
        num_seen += 1 + children.len() as u64;
        if num_seen >= NODES_A_STEP {
            fuel.burn(num_seen / NODES_A_STEP)?;
            num_seen %= NODES_A_STEP;
        }
        let first = pending.len();
        for child in children {
            let byte = trie.label(child);
            let mut step = |place: FreeText| {
                let mut after = lexicon.after_in_text(place, byte);
                if let Some(next) = after.place
                    && !is_plain
                    && !(next.is_before_words() && next.may_end())
                {
                    let live = match is_live.get(&next) {
                        Some(&live) => live,
                        None => {
                            let expr = lexicon.free_text(next);
                            let live = lexicon.is_live(expr, fuel)?;
                            is_live.insert(next, live);
                            live
                        }
                    };
                    after.place = after.place.filter(|_| live);
                }
                Ok(after)
            };
            let after: After = match place {
                Some(place) => step(place)?,
                None => After {
                    mark: NO_MARK,
                    place: None,
                },
            };
            let mut next_beside = None;
            if let Some(beside) = beside {
                let other = step(beside)?;
                if other == after {
                    continue;
                }
                let is_text = |after: &After| {
                    let is_before = |place: &FreeText| place.is_before_words();
                    after.place.filter(is_before)
                };
                match (is_text(&after), is_text(&other)) {
                    (Some(_), Some(other)) => next_beside = Some(other),
                    _ => found.text.apart.push(trie.below(child)),
                }
            }
            if after.is_dead() {
                ends.leave(trie, child, depth);
                continue;
            }
            // No word can end below, and all of it is characters.
            let is_text = after.place.is_some_and(|next| {
                next.is_before_words()
                    && next.is_between_characters()
                    && trie.height(child) < lexicon.bytes_to_word(next)
                    && next_beside.is_none_or(|beside: FreeText| {
                        trie.height(child) < lexicon.bytes_to_word(beside)
                    })
                    && trie
                        .labels_below(child)
                        .is_some_and(|below| below.is_subset(texts))
            });
            let has_children = !trie.children(child).is_empty();
            if is_text || !has_children {
                if next_beside.is_none() {
                    add(&mut found.text.inside, trie.below(child));
                }
                continue;
            }
            if next_beside.is_none() {
                add(&mut found.text.inside, trie.own(child));
            }
            pending.push(Pending {
                at: End {
                    node: child,
                    depth: depth + 1,
                },
                tag: after.mark,
                place: after.place,
                beside: next_beside,
            });
        }
        pending[first..].reverse();
    }
    fuel.burn(num_seen / NODES_A_STEP)?;
    found.text.inside.retain(|tokens| !tokens.is_empty());
    ends.finish(&mut found);
    Ok(found)
}
