//! Lists of strings that nodes share, and where the strings of a list begin within each other.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

/// Strings in their order, each once. A clone is the same list.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Words(Arc<[Box<str>]>);

impl Words {
    /// A list of strings that come in any order.
    pub(crate) fn new(mut list: Vec<Box<str>>) -> Self {
        list.sort_unstable();
        list.dedup();
        Self(list.into())
    }

    /// The list itself.
    pub(super) fn shared(&self) -> Arc<[Box<str>]> {
        Arc::clone(&self.0)
    }

    /// What tells this list from all that live, but for its clones.
    pub(crate) fn address(&self) -> usize {
        self.0.as_ptr() as usize
    }
}

impl Default for Words {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl Deref for Words {
    type Target = [Box<str>];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

const ROOT: u32 = 0;

/// The automaton of some words (Aho, Corasick 1975): their beginnings, and of each the longest other
/// one that it ends with.
struct Automaton {
    next: HashMap<(u32, u8), u32>,
    /// That longest other beginning, by number.
    suffix: Vec<u32>,
    depth: Vec<u32>,
    /// Whether a word ends with the beginning, or is it.
    ends_word: Vec<bool>,
}

impl Automaton {
    /// Takes time and memory as the words have bytes.
    fn new(words: &[Box<str>]) -> Self {
        let mut next = HashMap::new();
        // Of each beginning, what it is longer than, and its last byte.
        let mut parents = vec![(ROOT, 0_u8)];
        let mut depth = vec![0];
        let mut ends_word = vec![false];
        for word in words {
            let mut at = ROOT;
            for (&byte, length) in word.as_bytes().iter().zip(1..) {
                at = *next.entry((at, byte)).or_insert_with(|| {
                    parents.push((at, byte));
                    depth.push(length);
                    ends_word.push(false);
                    depth.len() as u32 - 1
                });
            }
            ends_word[at as usize] = true;
        }
        let mut automaton = Self {
            next,
            suffix: vec![ROOT; depth.len()],
            depth,
            ends_word,
        };
        let mut by_depth: Vec<u32> = (1..automaton.depth.len() as u32).collect();
        by_depth.sort_by_key(|&at| automaton.depth[at as usize]);
        for at in by_depth {
            let (parent, byte) = parents[at as usize];
            let mut longest = ROOT;
            let mut shorter = parent;
            while shorter != ROOT {
                shorter = automaton.suffix[shorter as usize];
                if let Some(&known) = automaton.next.get(&(shorter, byte)) {
                    longest = known;
                    break;
                }
            }
            automaton.suffix[at as usize] = longest;
            automaton.ends_word[at as usize] |= automaton.ends_word[longest as usize];
        }
        automaton
    }

    /// The beginnings along one of the words.
    fn path<'a>(&'a self, word: &'a str) -> impl Iterator<Item = u32> + 'a {
        let mut at = ROOT;
        word.bytes().map_while(move |byte| {
            at = *self.next.get(&(at, byte))?;
            Some(at)
        })
    }

    /// Whether one of the words is in a text.
    fn occurs_in(&self, text: &str) -> bool {
        let mut at = ROOT;
        text.bytes().any(|byte| {
            at = loop {
                match self.next.get(&(at, byte)) {
                    Some(&next) => break next,
                    None if at == ROOT => break ROOT,
                    None => at = self.suffix[at as usize],
                }
            };
            self.ends_word[at as usize]
        })
    }
}

/// What text before a word must not end with, so that no other word begins before that one does and ends
/// with it or within it.
pub(super) struct Class {
    /// A class of which all is forbidden here too; it comes before this one. `None` for text that
    /// may end with anything.
    pub(super) parent: Option<usize>,
    /// What else is forbidden.
    pub(super) endings: Words,
}

/// Some words with what may stand before them.
#[derive(Default)]
pub(super) struct Overlaps {
    pub(super) classes: Vec<Class>,
    /// Of each word: `None` where any text may stand before it.
    pub(super) of_words: Vec<Option<usize>>,
    /// Bytes of all that is forbidden.
    pub(super) num_bytes: usize,
}

/// More bytes in what is forbidden aren't listed.
const MAX_ENDING_BYTES: usize = 8 << 20;

/// Where `starts` overlap with words that begin before them; they are among the words. `None` where that
/// takes more to say than some megabytes.
///
/// A word that begins before `start` and ends with it or within it is `x v`, where `v` is a beginning of
/// `start`: so the text before `start` must not end with `x`. All such `v` lie on the path of `start`, and
/// words with the same last `v` are of one class.
pub(super) fn overlaps<'a>(
    starts: impl Iterator<Item = &'a str> + Clone,
    words: &Words,
) -> Option<Overlaps> {
    let automaton = Automaton::new(words);
    let mut is_within = vec![false; automaton.depth.len()];
    for start in starts.clone() {
        for at in automaton.path(start) {
            is_within[at as usize] = true;
        }
    }
    let mut overlaps = Overlaps::default();
    let mut endings: HashMap<u32, Vec<Box<str>>> = HashMap::new();
    for word in words.iter() {
        let Some(whole) = automaton.path(word).last() else {
            continue;
        };
        let mut at = automaton.suffix[whole as usize];
        while at != ROOT {
            if is_within[at as usize] {
                let before = word.len() - automaton.depth[at as usize] as usize;
                overlaps.num_bytes += before;
                if overlaps.num_bytes > MAX_ENDING_BYTES {
                    return None;
                }
                endings.entry(at).or_default().push(word[..before].into());
            }
            at = automaton.suffix[at as usize];
        }
    }
    let mut known: HashMap<u32, usize> = HashMap::new();
    let mut numbers: HashMap<(Option<usize>, Words), usize> = HashMap::new();
    for start in starts {
        let mut class = None;
        for at in automaton.path(start) {
            if let Some(endings) = endings.remove(&at) {
                let (parent, endings) = (class, Words::new(endings));
                let classes = &mut overlaps.classes;
                let same = numbers.entry((parent, endings.clone()));
                let own = *same.or_insert_with(|| {
                    classes.push(Class { parent, endings });
                    classes.len() - 1
                });
                known.insert(at, own);
            }
            if let Some(&own) = known.get(&at) {
                class = Some(own);
            }
        }
        overlaps.of_words.push(class);
    }
    Some(overlaps)
}

/// A text that holds one of some words, and that word.
pub(super) fn holding<'a, 'b>(
    mut texts: impl Iterator<Item = &'a str>,
    words: &'b [Box<str>],
) -> Option<(&'a str, &'b str)> {
    if words.is_empty() {
        return None;
    }
    let automaton = Automaton::new(words);
    let text = texts.find(|text| automaton.occurs_in(text))?;
    let word = words.iter().find(|word| text.contains(&***word))?;
    Some((text, word))
}

/// Strings that others may begin with.
pub(super) struct Beginnings<'a> {
    /// In their order, each with the place of the longest other one that it begins with.
    sorted: Vec<(&'a str, Option<usize>)>,
}

impl<'a> Beginnings<'a> {
    pub(super) fn new(list: &'a [Box<str>]) -> Self {
        let mut words: Vec<&str> = list.iter().map(|word| &**word).collect();
        words.sort_unstable();
        let mut sorted: Vec<(&str, Option<usize>)> = Vec::with_capacity(words.len());
        for word in words {
            let mut before = sorted.len().checked_sub(1);
            while let Some(at) = before.filter(|&at| !word.starts_with(sorted[at].0)) {
                before = sorted[at].1;
            }
            sorted.push((word, before));
        }
        Self { sorted }
    }

    /// The one of them that a text begins with, if it is only one.
    pub(super) fn only_one_of(&self, text: &str) -> Option<&'a str> {
        let after = self.sorted.partition_point(|(word, _)| *word <= text);
        // All that the text begins with is there too.
        let mut at = after.checked_sub(1)?;
        while !text.starts_with(self.sorted[at].0) {
            at = self.sorted[at].1?;
        }
        match self.sorted[at] {
            (word, None) => Some(word),
            _ => None,
        }
    }
}
