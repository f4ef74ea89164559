//! Languages that grammars name by what they are for.

use hashbrown::{HashMap, HashSet};

use crate::grammar_syntax::{NodeKind, Substrings, Words};
use crate::lexical::{ANY, ByteSet, ChoiceTree, EMPTY, EPSILON, ExprId, Fuel, Lexicon, UNBOUNDED};
use crate::regex::ascii_in_any_case;

/// Strings of a language of which no proper beginning is in it.
pub(super) fn shortest(lexicon: &mut Lexicon, expr: ExprId) -> ExprId {
    let byte = lexicon.class(ByteSet::FULL);
    let more = lexicon.repeat(byte, 1, UNBOUNDED);
    let longer = lexicon.concat(expr, more);
    let not_longer = lexicon.not(longer);
    lexicon.and(&[expr, not_longer])
}

/// Whether every beginning of a text is a text too. False also where that takes many steps to tell.
pub(super) fn ends_anywhere(lexicon: &mut Lexicon, expr: ExprId) -> bool {
    const MAX_STATES: usize = 1_000;
    let mut fuel = Fuel::new(100_000);
    let mut seen: HashSet<ExprId> = HashSet::from_iter([expr]);
    let mut pending = vec![expr];
    while let Some(state) = pending.pop() {
        // Within a character nothing ends.
        let is_whole = lexicon.is_nullable(state);
        let Ok(next) = lexicon.derivatives(state, &mut fuel) else {
            return false;
        };
        let leads = |(bytes, _): &(ByteSet, ExprId)| {
            is_whole || bytes.iter().all(|byte| byte & 0xc0 == 0x80)
        };
        if seen.len() > MAX_STATES || (!is_whole && !next.iter().all(leads)) {
            return false;
        }
        for (_, to) in next {
            match lexicon.is_live(to, &mut fuel) {
                Ok(true) if seen.insert(to) => pending.push(to),
                Ok(_) => {}
                Err(_) => return false,
            }
        }
    }
    true
}

/// Any text.
pub(super) fn any_text(lexicon: &mut Lexicon) -> ExprId {
    let any = lexicon.code_points([('\0', char::MAX)].into_iter());
    lexicon.star(any)
}

/// Strings of a language in which no string of another occurs.
pub(super) fn without(lexicon: &mut Lexicon, expr: ExprId, words: ExprId) -> ExprId {
    let ending = lexicon.concat(ANY, words);
    let with = lexicon.concat(ending, ANY);
    let without = lexicon.not(with);
    lexicon.and(&[expr, without])
}

/// Text in which no string of a language occurs.
pub(super) fn text_without(lexicon: &mut Lexicon, words: ExprId) -> ExprId {
    let text = any_text(lexicon);
    without(lexicon, text, words)
}

/// Strings of bytes that end with no string of a language.
pub(super) fn not_ending(lexicon: &mut Lexicon, words: ExprId) -> ExprId {
    let ending = lexicon.concat(ANY, words);
    lexicon.not(ending)
}

/// Lists of strings as languages, each list once, and made a few strings a time: under a lock, so
/// that others can pass.
#[derive(Default)]
pub(super) struct WordLists {
    /// By the list's address, with the list, so that no other gets it.
    known: HashMap<usize, (Words, ExprId)>,
    /// The list that is being made, and how many of its strings are.
    tree: ChoiceTree,
    num_done: usize,
}

impl WordLists {
    /// The language of a list; `None` where `lexicon` was asked for more than `max_asked`
    /// expressions in all before it is done.
    fn get(&mut self, lexicon: &mut Lexicon, list: &Words, max_asked: u64) -> Option<ExprId> {
        if let Some((_, known)) = self.known.get(&list.address()) {
            return Some(*known);
        }
        while let Some(word) = list.get(self.num_done) {
            if lexicon.num_asked() > max_asked {
                return None;
            }
            self.tree.push(lexicon, word.as_bytes());
            self.num_done += 1;
        }
        self.num_done = 0;
        let expr = std::mem::take(&mut self.tree).finish(lexicon);
        self.known.insert(list.address(), (list.clone(), expr));
        Some(expr)
    }
}

/// A text's parts as a language, made a few states a time.
#[derive(Default)]
pub(super) struct Parts {
    chunks: Vec<ExprId>,
    states: Vec<ExprId>,
}

impl Parts {
    /// As [`WordLists::get`]: the language of all parts.
    fn get(&mut self, lexicon: &mut Lexicon, parts: &Substrings, max_asked: u64) -> Option<ExprId> {
        while let Some(chunk) = parts.chunks.get(self.chunks.len()) {
            if lexicon.num_asked() > max_asked {
                return None;
            }
            self.chunks.push(lexicon.literal(chunk.as_bytes()));
        }
        while let Some(state) = parts.states.get(self.states.len()) {
            if lexicon.num_asked() > max_asked {
                return None;
            }
            let mut ways = Vec::new();
            for &(chunk, to) in parts.edges(state) {
                let (chunk, rest) = (self.chunks[chunk as usize], self.states[to as usize]);
                ways.push(lexicon.concat(chunk, rest));
            }
            let more = lexicon.or(&ways);
            self.states.push(lexicon.optional(more));
        }
        let whole = self.states.last().copied();
        *self = Self::default();
        Some(whole.unwrap_or(EPSILON))
    }
}

/// A long string as a language, made from its end on.
#[derive(Default)]
struct LongText {
    /// How many bytes at its end are done, and their language.
    done: usize,
    rest: Option<ExprId>,
}

impl LongText {
    /// As [`WordLists::get`]: the language of the string.
    fn get(&mut self, lexicon: &mut Lexicon, text: &str, max_asked: u64) -> Option<ExprId> {
        let bytes = text.as_bytes();
        let mut rest = self.rest.unwrap_or(EPSILON);
        while self.done < bytes.len() {
            if lexicon.num_asked() > max_asked {
                self.rest = Some(rest);
                return None;
            }
            let left = &bytes[..bytes.len() - self.done];
            let last = &left[left.len().saturating_sub(LONG)..];
            let last_expr = lexicon.literal(last);
            rest = lexicon.concat(last_expr, rest);
            self.done += last.len();
        }
        *self = Self::default();
        Some(rest)
    }
}

/// Strings with more bytes are made in more than one go.
const LONG: usize = 1_024;

/// What is made of a node in more than one go.
#[derive(Default)]
pub(super) struct Languages {
    text: LongText,
    lists: WordLists,
    parts: Parts,
    /// Characters of ASCII in any case, as far as they were met.
    in_any_case: HashMap<u8, ExprId>,
}

impl Languages {
    /// A text of ASCII in any case.
    pub(super) fn in_any_case(&mut self, lexicon: &mut Lexicon, text: &str) -> ExprId {
        let mut rest = EPSILON;
        for &byte in text.as_bytes().iter().rev() {
            let byte = byte.to_ascii_lowercase();
            let one = *self.in_any_case.entry(byte).or_insert_with(|| {
                let class = ascii_in_any_case(char::from(byte));
                lexicon.code_points(class.iter().map(|range| (range.start(), range.end())))
            });
            rest = lexicon.concat(one, rest);
        }
        rest
    }

    /// The language of a node that holds lists of strings or a long one, and how many parts it is made of.
    /// `None` where it isn't done yet, or the node is no such.
    pub(super) fn of_node(
        &mut self,
        lexicon: &mut Lexicon,
        node: &NodeKind,
        max_asked: u64,
    ) -> Option<(ExprId, usize)> {
        let size = |list: &Words| list.iter().map(|word| word.len()).sum::<usize>();
        Some(match node {
            NodeKind::Literal(text) => (self.text.get(lexicon, text, max_asked)?, text.len()),
            NodeKind::TextWithout(words) => {
                let list = self.lists.get(lexicon, words, max_asked)?;
                (text_without(lexicon, list), size(words) + 1)
            }
            NodeKind::NotEnding(words) => {
                let list = self.lists.get(lexicon, words, max_asked)?;
                (not_ending(lexicon, list), size(words) + 1)
            }
            NodeKind::Substring(parts) => (self.parts.get(lexicon, parts, max_asked)?, parts.size),
            _ => return None,
        })
    }

    /// The language of a short list of strings, at once.
    pub(super) fn of_words(&mut self, lexicon: &mut Lexicon, words: &Words) -> ExprId {
        let known = self.lists.get(lexicon, words, u64::MAX);
        known.unwrap_or(EMPTY)
    }

    /// Whether a node holds lists of strings, or a long one.
    pub(super) fn is_listed(node: &NodeKind) -> bool {
        match node {
            NodeKind::Literal(text) => text.len() > LONG,
            NodeKind::TextWithout(_) | NodeKind::NotEnding(_) | NodeKind::Substring(_) => true,
            _ => false,
        }
    }
}
