//! Free text among many words, as states of an automaton that is computed, not stored.
//!
//! Text without any of the words, and what a dispatch reads: such text and then one of the words that are
//! tagged, which ends it with the word's tag as its mark. Of words that overlap the one that begins first is
//! meant: the text before a word must not end with what a word begins with that ends within it. As
//! expressions that takes a language for each different such ending, of which many words have hundreds; here
//! a state is a place in the words' automaton, and once a word has ended, how long what still goes on must
//! be at least: what begins later than a word that has ended is over.

use std::sync::Arc;

use hashbrown::HashMap;

use super::arena::{EMPTY, ExprId, Lexicon, NO_MARK, Node};
use super::byte_set::ByteSet;
use super::facts::Facts;
use super::labels::{Labels, Others};
use super::word_automaton::{NO_TAG, NONE, WordAutomaton};

/// A place in free text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FreeText {
    automaton: u32,
    /// The longest beginning of a word that the text ends with.
    node: u32,
    /// Once a word has ended, what goes on is at least so long; else zero.
    least: u32,
    /// The place within a character, as [`utf8_after`] has it.
    utf8: u8,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Kind {
    /// Text without any word.
    Text,
    /// The same, not empty, where it begins.
    NonEmpty,
    /// Such text and a tagged word.
    Tags,
}

/// An interned place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct FreeTextId(pub(super) u32);

/// All places, each once, and the automata that they are in.
#[derive(Clone, Default)]
pub(super) struct FreeTexts {
    automata: Vec<Arc<WordAutomaton>>,
    known: HashMap<super::word_automaton::TaggedWords, u32>,
    all: Vec<FreeText>,
    ids: HashMap<FreeText, FreeTextId>,
    bytes: usize,
}

impl FreeTexts {
    pub(super) fn get(&self, id: FreeTextId) -> FreeText {
        self.all[id.0 as usize]
    }

    fn automaton(&self, place: FreeText) -> &WordAutomaton {
        &self.automata[place.automaton as usize]
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes + self.all.len() * (size_of::<FreeText>() + size_of::<(FreeText, u32)>() + 1)
    }
}

/// Where a byte leads from a place within a character, of which 0 is its end; `None` where it can't come
/// (table 3-7 of the Unicode standard).
fn utf8_after(at: u8, byte: u8) -> Option<u8> {
    Some(match (at, byte) {
        (0, 0..=0x7f) => 0,
        (0, 0xc2..=0xdf) => 1,
        (0, 0xe0) => 4,
        (0, 0xed) => 5,
        (0, 0xe1..=0xef) => 2,
        (0, 0xf0) => 6,
        (0, 0xf1..=0xf3) => 3,
        (0, 0xf4) => 7,
        (1, 0x80..=0xbf) => 0,
        (2, 0x80..=0xbf) | (4, 0xa0..=0xbf) | (5, 0x80..=0x9f) => 1,
        (3, 0x80..=0xbf) | (6, 0x90..=0xbf) | (7, 0x80..=0x8f) => 2,
        _ => return None,
    })
}

/// How many bytes of the character are missing.
const MISSING: [u32; 8] = [0, 1, 2, 3, 2, 2, 3, 3];

/// What a byte leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct After {
    /// The tag of the word that ends, or [`NO_MARK`].
    pub(crate) mark: u16,
    /// Where it goes on; it may be that nothing comes of it where [`Lexicon::is_live`] has to be asked.
    pub(crate) place: Option<FreeText>,
}

impl After {
    /// Whether the byte can't come.
    pub(crate) fn is_dead(self) -> bool {
        self.mark == NO_MARK && self.place.is_none()
    }
}

impl FreeText {
    /// Whether no word has ended.
    pub(crate) fn is_before_words(self) -> bool {
        self.least == 0
    }

    /// Whether words end it.
    pub(crate) fn is_for_tags(self) -> bool {
        self.kind == Kind::Tags
    }

    /// Whether text may end here.
    pub(crate) fn may_end(self) -> bool {
        self.kind == Kind::Text && self.utf8 == 0
    }

    /// Whether it is the end of a character.
    pub(crate) fn is_between_characters(self) -> bool {
        self.utf8 == 0
    }

    /// A place from which the same comes, but that nothing may: where tokens begin that makes no difference.
    pub(crate) fn or_nothing(self) -> Self {
        match self.kind {
            Kind::NonEmpty => Self {
                kind: Kind::Text,
                ..self
            },
            _ => self,
        }
    }

    /// The same where no word has begun.
    pub(crate) fn without_words(self) -> Self {
        Self { node: 0, ..self }
    }
}

impl WordAutomaton {
    /// Whether a character that was begun can be finished with the bytes there are.
    fn can_finish(&self, mut utf8: u8) -> bool {
        while utf8 != 0 {
            let bytes = self.made_from().bytes;
            let next = (0x80..=0xbf_u8).filter(|&byte| bytes.contains(byte));
            match next.filter_map(|byte| utf8_after(utf8, byte)).next() {
                Some(next) => utf8 = next,
                None => return false,
            }
        }
        true
    }

    /// What is left once a word has ended that is `length` bytes long.
    fn within(&self, place: FreeText, node: u32, length: u32) -> Option<FreeText> {
        let (node, least, _) = self.going_on(node, length)?;
        Some(FreeText {
            node,
            least,
            utf8: 0,
            ..place
        })
    }

    fn after_byte(&self, place: FreeText, byte: u8) -> After {
        const DEAD: After = After {
            mark: NO_MARK,
            place: None,
        };
        let mark = |word: u32| match self.tag(word) {
            NO_TAG => NO_MARK,
            tag => tag,
        };
        if !self.made_from().bytes.contains(byte) {
            return DEAD;
        }
        if !place.is_before_words() {
            let Some(node) = self.after_from(place.node, place.least, byte) else {
                return DEAD;
            };
            let least = place.least + 1;
            let word = self.ended(node).filter(|&word| self.depth(word) >= least);
            return After {
                mark: word.map_or(NO_MARK, mark),
                place: self.within(place, node, word.map_or(least, |word| self.depth(word))),
            };
        }
        let Some(utf8) = utf8_after(place.utf8, byte) else {
            return DEAD;
        };
        let node = self.after(place.node, byte);
        match (self.ended(node), place.kind) {
            (Some(word), Kind::Tags) => After {
                mark: mark(word),
                place: self.within(place, node, self.depth(word)),
            },
            (Some(_), _) => DEAD,
            (None, _) if utf8 != 0 && !self.can_finish(utf8) => DEAD,
            (None, kind) => After {
                mark: NO_MARK,
                place: Some(FreeText {
                    node,
                    utf8,
                    kind: match kind {
                        Kind::NonEmpty => Kind::Text,
                        kind => kind,
                    },
                    ..place
                }),
            },
        }
    }
}

impl Lexicon {
    fn automaton_number(&mut self, automaton: &Arc<WordAutomaton>) -> u32 {
        // So that others that make it too are charged for it.
        self.work += automaton.len() as u64;
        let texts = &mut self.free_texts;
        let next = texts.automata.len() as u32;
        let entry = texts.known.entry(automaton.made_from().clone());
        let number = *entry.or_insert(next);
        if number == next {
            texts.bytes += automaton.memory_bytes();
            texts.automata.push(Arc::clone(automaton));
        }
        number
    }

    fn start_of_text(&mut self, automaton: &Arc<WordAutomaton>, kind: Kind) -> ExprId {
        let automaton = self.automaton_number(automaton);
        self.free_text(FreeText {
            automaton,
            node: 0,
            least: 0,
            utf8: 0,
            kind,
        })
    }

    /// Text without any of the words.
    pub(crate) fn text_without_words(&mut self, automaton: &Arc<WordAutomaton>) -> ExprId {
        self.start_of_text(automaton, Kind::Text)
    }

    /// Text without any of the words, and then a tagged one, whose tag is its mark: of words that overlap
    /// the one that begins first.
    pub(crate) fn text_and_tags(&mut self, automaton: &Arc<WordAutomaton>) -> ExprId {
        self.start_of_text(automaton, Kind::Tags)
    }

    /// The expression of a place.
    pub(crate) fn free_text(&mut self, place: FreeText) -> ExprId {
        if place.is_for_tags() && self.way_to_tag(place) == NONE {
            return EMPTY;
        }
        let texts = &mut self.free_texts;
        let next = FreeTextId(texts.all.len() as u32);
        let id = *texts.ids.entry(place).or_insert(next);
        if id == next {
            texts.all.push(place);
        }
        self.intern(Node::FreeText(id), &[])
    }

    /// The place that an expression is, if it is one.
    pub(crate) fn as_free_text(&self, expr: ExprId) -> Option<FreeText> {
        match self.node(expr) {
            Node::FreeText(id) => Some(self.free_texts.get(id)),
            _ => None,
        }
    }

    /// Whether an expression is free text that words end, each with a mark of its own.
    pub(crate) fn is_for_tags(&self, expr: ExprId) -> bool {
        self.as_free_text(expr).is_some_and(FreeText::is_for_tags)
    }

    /// Free text less the empty one.
    pub(crate) fn not_empty_text(&mut self, expr: ExprId) -> Option<ExprId> {
        let place = self.as_free_text(expr).filter(|place| place.may_end())?;
        Some(self.free_text(FreeText {
            kind: Kind::NonEmpty,
            ..place
        }))
    }

    /// What a byte leads to.
    pub(crate) fn after_in_text(&self, place: FreeText, byte: u8) -> After {
        self.free_texts.automaton(place).after_byte(place, byte)
    }

    /// How many bytes there are at least from a place in text up to the end of any word; at least one.
    pub(crate) fn bytes_to_word(&self, place: FreeText) -> u32 {
        self.free_texts.automaton(place).to_word(place.node)
    }

    /// Whether every place within the text's words and characters has texts.
    pub(crate) fn is_text_plain(&self, place: FreeText) -> bool {
        let automaton = self.free_texts.automaton(place);
        place.is_for_tags() && automaton.is_exact()
    }

    /// Characters of which all texts up to the end of a word are free text that can go on.
    pub(crate) fn text_labels(&self, place: FreeText) -> Labels {
        let automaton = self.free_texts.automaton(place);
        if automaton.made_from().bytes != ByteSet::FULL {
            return Labels::default();
        }
        // Within a character a word of such may have begun, so that nothing else can finish it.
        let others = match automaton.is_ascii() {
            true => Others::All,
            false => Others::Some,
        };
        Labels::within(&ByteSet::range(2, 126), others)
    }

    fn way_to_tag(&self, place: FreeText) -> u32 {
        let automaton = self.free_texts.automaton(place);
        match place.is_before_words() {
            true => automaton.to_tag(place.node, MISSING[usize::from(place.utf8)]),
            false => automaton
                .going_on(place.node, place.least)
                .map_or(NONE, |(_, _, nearest)| nearest),
        }
    }

    /// The derivative by a byte.
    pub(super) fn free_text_after(&mut self, place: FreeText, byte: u8) -> ExprId {
        let After { mark, place } = self.after_in_text(place, byte);
        let rest = place.map_or(EMPTY, |place| self.free_text(place));
        match mark {
            NO_MARK => rest,
            mark => {
                let mark = self.mark(mark);
                self.or(&[mark, rest])
            }
        }
    }

    /// What goes on where words have ended with a mark: an alternative of it, or [`EMPTY`].
    pub(crate) fn without_mark(&self, expr: ExprId) -> ExprId {
        let ways = self.alternatives(expr);
        let rest = ways.into_iter().find(|&way| !self.is_mark(way));
        rest.unwrap_or(EMPTY)
    }

    /// The derivatives by all bytes.
    pub(super) fn free_text_entries(&mut self, place: FreeText) -> Vec<(ByteSet, ExprId)> {
        let automaton = self.free_texts.automaton(place);
        let mut left = automaton.bytes_after(place.node, place.least);
        let mut entries = Vec::new();
        for byte in left.iter() {
            entries.push((ByteSet::single(byte), self.free_text_after(place, byte)));
        }
        if place.is_before_words() {
            // Of all others the place within the character is what matters.
            left = left.complement();
            let mut by_place: [ByteSet; 8] = [ByteSet::EMPTY; 8];
            for byte in left.iter() {
                if let Some(utf8) = utf8_after(place.utf8, byte)
                    && self
                        .free_texts
                        .automaton(place)
                        .made_from()
                        .bytes
                        .contains(byte)
                {
                    let bytes = &mut by_place[usize::from(utf8)];
                    *bytes = bytes.union(&ByteSet::single(byte));
                }
            }
            for bytes in by_place {
                if let Some(byte) = bytes.first() {
                    entries.push((bytes, self.free_text_after(place, byte)));
                }
            }
        }
        entries.retain(|entry| entry.1 != EMPTY);
        entries
    }

    /// What is known of a place.
    pub(super) fn facts_of_text(&self, place: FreeText, plain: Facts) -> Facts {
        let missing = MISSING[usize::from(place.utf8)];
        if place.is_for_tags() {
            let is_exact = self.is_text_plain(place);
            return Facts {
                exact: is_exact,
                live: is_exact,
                marked: true,
                sole_mark: super::arena::MANY_MARKS,
                min_bytes: self.way_to_tag(place),
                farthest: u32::MAX,
                ..plain
            };
        }
        Facts {
            nullable: place.may_end(),
            exact: false,
            live: place.may_end(),
            min_bytes: match place.kind {
                Kind::NonEmpty => missing.max(1),
                _ => missing,
            },
            farthest: u32::MAX,
            ..plain
        }
    }
}
