//! The automaton of some words (Aho, Corasick 1975), with how far each place is from the ends of words.
//!
//! A node is a beginning of a word, and of a text stands for the longest beginning that the text ends with.
//! Its *suffix* is the longest other one that it ends with itself, so along the suffixes lie all words that
//! may be going on. Some words are *tagged*: these are what texts are read for, the others only must not
//! occur.

use std::sync::Arc;

use super::byte_set::ByteSet;

/// No node, and longer than any way.
pub(crate) const NONE: u32 = u32::MAX;

/// No tag.
pub(crate) const NO_TAG: u16 = u16::MAX;

const ROOT: u32 = 0;

/// What the automaton is made from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct TaggedWords {
    /// In their order, each once, none empty.
    pub(crate) words: Arc<[Box<str>]>,
    /// Of each word its tag, or [`NO_TAG`].
    pub(crate) tags: Arc<[u16]>,
    /// Bytes that texts are made of.
    pub(crate) bytes: ByteSet,
}

/// A beginning of a word.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// Where its children lie: they are adjacent, ascending by byte.
    children: (u32, u32),
    suffix: u32,
    depth: u32,
    /// The longest word that it ends with, itself included, as a node.
    ended: u32,
    tag: u16,
    /// Bytes from here to the nearest end of a word that is going on, or that begins here; at least one.
    to_word: u32,
    /// To the nearest end of a tagged word that begins with this; at least one byte.
    to_tag: u32,
    /// The least of these along the suffixes, the root apart.
    to_any_tag: u32,
}

/// See the module. Takes some 50 bytes for each byte of the words.
#[derive(Debug)]
pub(crate) struct WordAutomaton {
    made_from: TaggedWords,
    places: Vec<Place>,
    /// The byte that leads to each node.
    labels: Vec<u8>,
    /// Of the root, by byte.
    first: Box<[u32; 256]>,
    /// Whether the way to a tag that `to_any_tag` tells is one, whatever else occurs on it.
    is_exact: bool,
    is_ascii: bool,
    /// The most words that may be going on at one place.
    most_going_on: u32,
}

impl WordAutomaton {
    /// Takes time and memory as the words have bytes.
    pub(crate) fn new(made_from: TaggedWords) -> Self {
        let words = &made_from.words;
        let mut automaton = Self {
            places: Vec::new(),
            labels: Vec::new(),
            first: Box::new([ROOT; 256]),
            is_exact: true,
            most_going_on: 0,
            is_ascii: words.iter().all(|word| word.is_ascii()),
            made_from: made_from.clone(),
        };
        automaton.push(0, 0);
        // Breadth first: the words of a node stand side by side.
        let mut ranges = vec![(0, words.len())];
        let mut parents = vec![ROOT];
        let mut at = 0;
        while let Some(&(mut from, to)) = ranges.get(at) {
            let depth = automaton.places[at].depth as usize;
            let own = &words[from..to];
            if own.first().is_some_and(|word| word.len() == depth) {
                automaton.places[at].ended = at as u32;
                let tag = made_from.tags.get(from).copied().unwrap_or(NO_TAG);
                let is_writable = |byte| made_from.bytes.contains(byte);
                automaton.places[at].tag = match own[0].bytes().all(is_writable) {
                    true => tag,
                    false => NO_TAG,
                };
                from += 1;
            }
            let start = automaton.places.len() as u32;
            let byte = |word: &str| word.as_bytes().get(depth).copied().unwrap_or_default();
            for group in words[from..to].chunk_by(|a, b| byte(a) == byte(b)) {
                let label = byte(&group[0]);
                if at == 0 {
                    automaton.first[usize::from(label)] = automaton.places.len() as u32;
                }
                automaton.push(label, depth as u32 + 1);
                ranges.push((from, from + group.len()));
                parents.push(at as u32);
                from += group.len();
            }
            automaton.places[at].children = (start, automaton.places.len() as u32);
            at += 1;
        }
        automaton.find_suffixes(&parents);
        automaton.find_distances(&parents);
        automaton
    }

    fn push(&mut self, label: u8, depth: u32) {
        self.places.push(Place {
            children: (0, 0),
            suffix: ROOT,
            depth,
            ended: NONE,
            tag: NO_TAG,
            to_word: NONE,
            to_tag: NONE,
            to_any_tag: NONE,
        });
        self.labels.push(label);
    }

    fn find_suffixes(&mut self, parents: &[u32]) {
        let mut num_going_on = vec![0; self.places.len()];
        for at in 1..self.places.len() {
            let parent = parents[at];
            if parent != ROOT {
                let suffix = self.places[parent as usize].suffix;
                self.places[at].suffix = self.after(suffix, self.labels[at]);
            }
            let suffix = self.places[at].suffix;
            num_going_on[at] = num_going_on[suffix as usize] + 1;
            self.most_going_on = self.most_going_on.max(num_going_on[at]);
            if self.places[at].ended == NONE {
                self.places[at].ended = self.places[suffix as usize].ended;
            }
        }
    }

    fn find_distances(&mut self, parents: &[u32]) {
        for at in (1..self.places.len()).rev() {
            let place = self.places[at];
            let is_word = place.ended == at as u32;
            let to_word = if is_word { 0 } else { place.to_word };
            let to_tag = if place.tag != NO_TAG { 0 } else { place.to_tag };
            let parent = &mut self.places[parents[at] as usize];
            parent.to_word = parent.to_word.min(to_word.saturating_add(1));
            parent.to_tag = parent.to_tag.min(to_tag.saturating_add(1));
        }
        for at in 1..self.places.len() {
            let place = self.places[at];
            let suffix = self.places[place.suffix as usize];
            self.places[at].to_word = place.to_word.min(suffix.to_word);
            self.places[at].to_any_tag = place.to_tag.min(suffix.to_any_tag);
            // A word that no text is read for ends what goes on: where it may end within a word that is
            // read, or where characters may be finished by such words alone, ways have to be looked for.
            let is_other = place.ended == at as u32 && place.tag == NO_TAG;
            if is_other {
                self.is_exact &= suffix.to_any_tag == NONE;
                let mut shorter = place.suffix;
                while shorter != ROOT {
                    self.is_exact &= self.places[shorter as usize].tag == NO_TAG;
                    shorter = self.places[shorter as usize].suffix;
                }
            }
        }
        let others = self.made_from.words.iter().zip(&*self.made_from.tags);
        self.is_exact &= others
            .into_iter()
            .all(|(word, &tag)| tag != NO_TAG || word.is_ascii());
    }

    /// What it was made from.
    pub(crate) fn made_from(&self) -> &TaggedWords {
        &self.made_from
    }

    /// How many beginnings there are.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// The most beginnings of words that a text may end with: a step takes so many look-ups.
    pub(crate) fn most_going_on(&self) -> u32 {
        self.most_going_on
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        let words = self.made_from.words.iter();
        let words: usize = words
            .map(|word| word.len() + size_of::<Box<str>>() + 2)
            .sum();
        words + self.places.len() * (size_of::<Place>() + 1) + 1024
    }

    pub(super) fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// Whether all words are ASCII.
    pub(super) fn is_ascii(&self) -> bool {
        self.is_ascii
    }

    /// Where a byte goes on with the beginning itself.
    fn child(&self, at: u32, byte: u8) -> Option<u32> {
        if at == ROOT {
            let child = self.first[usize::from(byte)];
            return (child != ROOT).then_some(child);
        }
        let (start, end) = self.places[at as usize].children;
        let labels = &self.labels[start as usize..end as usize];
        let place = match labels.len() {
            0..=8 => labels.iter().position(|&label| label == byte)?,
            _ => labels.binary_search(&byte).ok()?,
        };
        Some(start + place as u32)
    }

    /// The longest beginning that a text ends with after one more byte.
    pub(super) fn after(&self, at: u32, byte: u8) -> u32 {
        self.after_from(at, 0, byte).unwrap_or(ROOT)
    }

    /// The same of beginnings that are no shorter than `least` before it; `None` where there is none.
    pub(super) fn after_from(&self, mut at: u32, least: u32, byte: u8) -> Option<u32> {
        loop {
            if self.depth(at) < least {
                return None;
            }
            if let Some(child) = self.child(at, byte) {
                return Some(child);
            }
            if at == ROOT {
                return None;
            }
            at = self.places[at as usize].suffix;
        }
    }

    /// Bytes that go on with a beginning or one that it ends with, no shorter than `least`.
    pub(super) fn bytes_after(&self, mut at: u32, least: u32) -> ByteSet {
        let mut bytes = ByteSet::EMPTY;
        while self.depth(at) >= least {
            let (start, end) = self.places[at as usize].children;
            let labels = &self.labels[start as usize..end as usize];
            bytes = bytes.union(&labels.iter().copied().collect());
            if at == ROOT {
                break;
            }
            at = self.places[at as usize].suffix;
        }
        bytes
    }

    pub(super) fn depth(&self, at: u32) -> u32 {
        self.places[at as usize].depth
    }

    /// The longest word that a beginning ends with, itself included, as a node.
    pub(super) fn ended(&self, at: u32) -> Option<u32> {
        let ended = self.places[at as usize].ended;
        (ended != NONE).then_some(ended)
    }

    /// The tag of a word, by its node.
    pub(super) fn tag(&self, at: u32) -> u16 {
        self.places[at as usize].tag
    }

    /// Bytes from a place to the nearest end of any word; at least one.
    pub(super) fn to_word(&self, at: u32) -> u32 {
        self.places[at as usize].to_word
    }

    /// Bytes to the nearest end of a tagged word that is going on or, `to_boundary` bytes later, begins.
    pub(super) fn to_tag(&self, at: u32, to_boundary: u32) -> u32 {
        let fresh = self.places[ROOT as usize].to_tag;
        let fresh = fresh.saturating_add(to_boundary);
        fresh.min(self.places[at as usize].to_any_tag)
    }

    /// Of the beginnings that one ends with, no shorter than `least`, itself included: the longest with which
    /// a word goes on, the length of the shortest with which a tagged one does, and how far it is to such a
    /// one's end. `None` where none does.
    pub(super) fn going_on(&self, mut at: u32, least: u32) -> Option<(u32, u32, u32)> {
        let mut longest = None;
        let mut shortest = None;
        let mut nearest = NONE;
        while at != ROOT && self.depth(at) >= least {
            let place = self.places[at as usize];
            if longest.is_none() && place.children.0 != place.children.1 {
                longest = Some(at);
            }
            if place.to_tag != NONE {
                shortest = Some(place.depth);
                nearest = nearest.min(place.to_tag);
            }
            at = place.suffix;
        }
        Some((longest?, shortest?, nearest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn automaton(words: &[&str]) -> WordAutomaton {
        let words: Vec<Box<str>> = words.iter().map(|&word| word.into()).collect();
        WordAutomaton::new(TaggedWords {
            tags: (0..words.len() as u16).collect(),
            words: words.into(),
            bytes: ByteSet::FULL,
        })
    }

    #[test]
    fn words_that_end_are_found() {
        let words = ["ab", "abc", "b", "ca", "xabd"];
        let automaton = automaton(&words);
        let text = "xabcabxabd";
        let mut at = ROOT;
        for end in 1..=text.len() {
            at = automaton.after(at, text.as_bytes()[end - 1]);
            let ended = |word: &&&str| text[..end].ends_with(**word);
            let longest = words.iter().filter(ended).max_by_key(|word| word.len());
            let found = automaton.ended(at).map(|node| automaton.tag(node));
            let found = found.map(|tag| &words[usize::from(tag)]);
            assert_eq!(found, longest, "{}", &text[..end]);
        }
        assert_eq!(automaton.to_word(ROOT), 1);
        assert_eq!(automaton.to_tag(ROOT, 2), 3);
    }
}
