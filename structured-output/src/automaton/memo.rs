//! What is remembered of masks.
//!
//! A mask depends on the lexeme and on the frames that its computation read, seldom more than one
//! or two. It is kept under exactly those: a trie from the top frame down, whose nodes say "here is
//! the mask" or "look at one more frame". So equal places deep in different texts share it.

use std::sync::Arc;

use hashbrown::{Equivalent, HashMap};

use super::counted::Lengths;
use super::rests::{InLexeme, RestsId};
use crate::index::Trie;
use crate::lexical::{ByteSet, ExprId};
use crate::mask::Forgotten;
use crate::mask::Mask;
use crate::mask::ended_texts::Fruitless;
use crate::mask::store::MaskStore;
use crate::pushdown::{EMPTY_STACK, FrameId, StackId, Stacks, State};

/// What a part of a lexeme allows by itself: what its reference allows, less some tokens, and more.
pub(super) struct LexemeMask {
    /// Stands for the large sets of tokens in recipes of masks.
    pub(super) number: u32,
    /// Another part, with what it must not allow here.
    pub(super) reference: Option<Reference>,
    /// Tokens that end within the lexeme, or with it.
    pub(super) inside: Mask,
    /// Tokens that go on after a lexeme that ends with a mark, by what they go on with.
    pub(super) exits: Vec<(u16, Exits)>,
}

/// A part that another one differs from by few tokens, or only goes on as it does.
pub(super) struct Reference {
    /// Has no reference itself.
    pub(super) mask: Arc<LexemeMask>,
    /// Ids, ascending.
    pub(super) less: Box<[u32]>,
    /// How many of them are in the part's `inside`.
    pub(super) num_inside: usize,
    /// Whether the tokens that go on after the lexeme are all that is taken from the other part.
    pub(super) only_exits: bool,
}

impl Reference {
    /// What is taken of the tokens that end within the lexeme, but for those of `less`.
    pub(super) fn inside(&self) -> Option<&Mask> {
        (!self.only_exits).then_some(&self.mask.inside)
    }
}

/// Tokens that go on after a lexeme.
pub(super) enum Exits {
    /// Few: all at and below these nodes of the trie of bytes, which the next byte leads to.
    Nodes(Box<[u32]>),
    /// After few texts: nodes of the trie of bytes, with the bytes that don't continue the lexeme.
    After(Box<[(u32, ByteSet)]>),
    /// Many, by what they go on with.
    Suffixes(Trie),
}

impl LexemeMask {
    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        let less = self.reference.as_ref().map_or(0, |r| r.less.len());
        let exits = self.exits.iter().map(|(_, exits)| match exits {
            Exits::Nodes(nodes) => size_of_val(&**nodes),
            Exits::After(nodes) => size_of_val(&**nodes),
            Exits::Suffixes(trie) => trie.memory_bytes(),
        });
        size_of::<Self>()
            + self.inside.memory_bytes()
            + less * size_of::<u32>()
            + self.exits.capacity() * size_of::<(u16, Exits)>()
            + exits.sum::<usize>()
    }
}

/// What a lexeme of several alternatives allows: the union of its parts.
pub(super) type Parts = Arc<[Part]>;

/// What texts of any number of characters are made of: a character, the text that they are, what follows them. Two that
/// are the same language may count other characters.
pub(super) type TextOf = (ExprId, ExprId, ExprId);

/// A part of a lexeme.
#[derive(Clone)]
pub(super) struct Part {
    pub(super) mask: Arc<LexemeMask>,
    /// The mark that stands for mark 0 of the mask, where the part has one mark only.
    pub(super) mark: Option<u16>,
}

/// Some frames from the top of a stack down; interned.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Prefix(u32);

const NO_FRAMES: Prefix = Prefix(0);

enum Known {
    /// It depends on one more frame.
    More,
    Mask(Arc<Mask>),
}

/// What is known of lexemes by themselves.
#[derive(Clone, Default)]
pub(super) struct LexemeFacts {
    lexemes: HashMap<ExprId, Parts>,
    parts: HashMap<ExprId, Arc<LexemeMask>>,
    /// Of texts of any number of characters, beside what any characters are, see `counted`.
    lengths: HashMap<TextOf, Option<Arc<Lengths>>>,
    /// Parts that are another one, by its number, less some tokens and nothing more.
    lessened: HashMap<(u32, Box<[u32]>), Arc<LexemeMask>>,
    fruitless: Fruitless,
    num_parts: u32,
    /// Bytes of what the tables refer to.
    bytes: usize,
}

impl LexemeFacts {
    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes
            + self.parts.capacity() * (size_of::<(ExprId, usize)>() + 1)
            + self.lengths.capacity() * (size_of::<(TextOf, usize)>() + 1)
            + self.lessened.capacity() * (size_of::<((u32, Box<[u32]>), usize)>() + 1)
            + self.fruitless.capacity() * (size_of::<(u32, ExprId, ExprId)>() + 1)
            + self.lexemes.capacity() * (size_of::<(ExprId, Parts)>() + 1)
    }
}

/// A key of [`LexemeFacts::lessened`], borrowed.
#[derive(Hash)]
struct Lessened<'a>(u32, &'a [u32]);

impl Equivalent<(u32, Box<[u32]>)> for Lessened<'_> {
    fn equivalent(&self, key: &(u32, Box<[u32]>)) -> bool {
        self.0 == key.0 && *self.1 == *key.1
    }
}

/// Masks by what they depend on.
#[derive(Default)]
pub(super) struct MaskMemo {
    pub(super) store: MaskStore,
    facts: LexemeFacts,
    by_stack: HashMap<(ExprId, StackId), Arc<Mask>>,
    by_frames: HashMap<(ExprId, Prefix), Known>,
    /// A prefix with one more frame; `None` is the bottom of the stack.
    prefixes: HashMap<(Prefix, Option<FrameId>), Prefix>,
    /// Masks that depend on a key's text too, and whether also on the bottom of the stack.
    by_state: HashMap<State, (Arc<Mask>, bool)>,
    /// What rests of tokens do in lexemes.
    in_lexemes: HashMap<(RestsId, ExprId), Arc<InLexeme>>,
    num_rests: u32,
    /// Bytes of what `in_lexemes` refers to.
    rests_bytes: usize,
}

impl MaskMemo {
    /// No masks yet, but what is known of lexemes by others, who count its bytes.
    pub(super) fn with(mut facts: LexemeFacts) -> Self {
        facts.bytes = 0;
        Self {
            facts,
            ..Self::default()
        }
    }

    /// What is known of lexemes.
    pub(super) fn into_lexeme_facts(self) -> LexemeFacts {
        self.facts
    }

    /// Hands all tables over to be dropped: those that refer to others first.
    pub(super) fn forget(self, forgotten: &mut Forgotten) {
        forgotten.add(self.by_stack);
        forgotten.add(self.by_frames);
        forgotten.add(self.prefixes);
        forgotten.add(self.by_state);
        forgotten.add(self.in_lexemes);
        forgotten.add(self.facts.lexemes);
        forgotten.add(self.facts.lessened);
        forgotten.add(self.facts.parts);
        forgotten.add(self.facts.lengths);
        forgotten.add(self.facts.fruitless);
        self.store.forget(forgotten);
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.store.memory_bytes()
            + self.facts.memory_bytes()
            + self.by_stack.capacity() * (size_of::<(ExprId, StackId, usize)>() + 1)
            + self.by_frames.capacity() * (size_of::<((ExprId, Prefix), Known)>() + 1)
            + self.prefixes.capacity() * (size_of::<(Prefix, Option<FrameId>, Prefix)>() + 1)
            + self.by_state.capacity() * (size_of::<(State, usize, bool)>() + 1)
            + self.in_lexemes.capacity() * (size_of::<(RestsId, ExprId, usize)>() + 1)
            + self.rests_bytes
    }

    /// The mask of a state, kept under its saturated lexeme.
    pub(super) fn get(
        &mut self,
        lexeme: ExprId,
        state: State,
        stacks: &Stacks,
    ) -> Option<Arc<Mask>> {
        if let Some(known) = self.by_stack.get(&(lexeme, state.stack)) {
            return Some(Arc::clone(known));
        }
        let mut prefix = NO_FRAMES;
        let mut stack = state.stack;
        loop {
            match self.by_frames.get(&(lexeme, prefix)) {
                Some(Known::Mask(mask)) => {
                    let mask = Arc::clone(mask);
                    self.by_stack
                        .insert((lexeme, state.stack), Arc::clone(&mask));
                    return Some(mask);
                }
                Some(Known::More) => {
                    prefix = *self.prefixes.get(&(prefix, stacks.top(stack)))?;
                    stack = stacks.below(stack);
                }
                None => {
                    let known = self.by_state.get(&State { lexeme, ..state });
                    return known.map(|(mask, _)| Arc::clone(mask));
                }
            }
        }
    }

    /// Whether the mask of a state may depend on the bottom of the stack: whether a token may reach
    /// it.
    pub(super) fn reads_bottom(&self, lexeme: ExprId, state: State, stacks: &Stacks) -> bool {
        let mut prefix = NO_FRAMES;
        let mut stack = state.stack;
        loop {
            match self.by_frames.get(&(lexeme, prefix)) {
                Some(Known::Mask(_)) => return false,
                Some(Known::More) if stack != EMPTY_STACK => {
                    let Some(&next) = self.prefixes.get(&(prefix, stacks.top(stack))) else {
                        return true;
                    };
                    prefix = next;
                    stack = stacks.below(stack);
                }
                Some(Known::More) => return true,
                None => {
                    let known = self.by_state.get(&State { lexeme, ..state });
                    return known.is_none_or(|(_, reads_bottom)| *reads_bottom);
                }
            }
        }
    }

    /// Keeps a mask that depends on some frames of the stack: `num_frames` from the top, where one
    /// more than there are is the bottom.
    pub(super) fn insert(
        &mut self,
        lexeme: ExprId,
        state: State,
        num_frames: u32,
        stacks: &Stacks,
        mask: Arc<Mask>,
    ) {
        self.by_stack
            .insert((lexeme, state.stack), Arc::clone(&mask));
        let mut prefix = NO_FRAMES;
        let mut stack = state.stack;
        for _ in 0..num_frames {
            self.by_frames.insert((lexeme, prefix), Known::More);
            let next = Prefix(self.prefixes.len() as u32 + 1);
            let frame = stacks.top(stack);
            prefix = *self.prefixes.entry((prefix, frame)).or_insert(next);
            stack = stacks.below(stack);
        }
        self.by_frames.insert((lexeme, prefix), Known::Mask(mask));
    }

    /// Keeps a mask that depends on the texts of a state, and perhaps on the bottom of its stack.
    pub(super) fn insert_for_state(
        &mut self,
        lexeme: ExprId,
        state: State,
        reads_bottom: bool,
        mask: Arc<Mask>,
    ) {
        let key = State { lexeme, ..state };
        self.by_state.insert(key, (mask, reads_bottom));
    }

    /// What some rests do in a lexeme, where that is known.
    pub(super) fn in_lexeme(&self, rests: RestsId, lexeme: ExprId) -> Option<Arc<InLexeme>> {
        self.in_lexemes.get(&(rests, lexeme)).cloned()
    }

    /// Takes note of what some rests do in a lexeme.
    pub(super) fn insert_in_lexeme(
        &mut self,
        rests: RestsId,
        lexeme: ExprId,
        found: &Arc<InLexeme>,
    ) {
        self.rests_bytes += found.memory_bytes() + 2 * size_of::<usize>();
        self.in_lexemes.insert((rests, lexeme), Arc::clone(found));
    }

    /// A name for rests that go on after a lexeme.
    pub(super) fn new_rests(&mut self) -> RestsId {
        self.num_rests += 1;
        RestsId::Further(self.num_rests)
    }

    /// The parts of a lexeme.
    pub(super) fn lexeme(&self, lexeme: ExprId) -> Option<Parts> {
        self.facts.lexemes.get(&lexeme).cloned()
    }

    pub(super) fn insert_lexeme(&mut self, lexeme: ExprId, parts: Vec<Part>) -> Parts {
        self.facts.bytes += 2 * size_of::<usize>() + parts.len() * size_of::<Part>();
        let parts = Parts::from(parts);
        self.facts.lexemes.insert(lexeme, Arc::clone(&parts));
        parts
    }

    /// What a part of a lexeme allows.
    pub(super) fn part(&self, expr: ExprId) -> Option<Arc<LexemeMask>> {
        self.facts.parts.get(&expr).cloned()
    }

    /// The lengths of the tokens that a text allows, where they have been asked for.
    pub(super) fn lengths(&self, text: TextOf) -> Option<Option<Arc<Lengths>>> {
        self.facts.lengths.get(&text).cloned()
    }

    pub(super) fn insert_lengths(&mut self, text: TextOf, lengths: Option<Arc<Lengths>>) {
        let bytes = lengths.as_ref().map_or(0, |lengths| lengths.memory_bytes());
        self.facts.bytes += bytes;
        self.facts.lengths.insert(text, lengths);
    }

    /// A number for a part that is being made.
    pub(super) fn next_number(&mut self) -> u32 {
        self.facts.num_parts += 1;
        self.facts.num_parts
    }

    /// Takes note of a part that is the same as one of another expression.
    pub(super) fn share_part(&mut self, expr: ExprId, mask: &Arc<LexemeMask>) {
        self.facts.parts.insert(expr, Arc::clone(mask));
    }

    /// A part that is another one less some tokens, where it is known.
    pub(super) fn lessened(&self, part: &LexemeMask, less: &[u32]) -> Option<Arc<LexemeMask>> {
        let key = Lessened(part.number, less);
        self.facts.lessened.get(&key).cloned()
    }

    /// Keeps a part that is its reference less some tokens, and nothing more.
    pub(super) fn insert_lessened(&mut self, mask: LexemeMask) -> Arc<LexemeMask> {
        self.facts.bytes += mask.memory_bytes();
        let mask = Arc::new(mask);
        if let Some(reference) = &mask.reference {
            self.facts.bytes += size_of_val(&*reference.less);
            let key = (reference.mask.number, reference.less.clone());
            self.facts.lessened.insert(key, Arc::clone(&mask));
        }
        mask
    }

    /// What walks along texts have found, see [`crate::mask::ended_texts::ended_texts`].
    pub(super) fn fruitless(&mut self) -> &mut Fruitless {
        &mut self.facts.fruitless
    }

    pub(super) fn insert_part(&mut self, expr: ExprId, mask: LexemeMask) -> Arc<LexemeMask> {
        self.facts.bytes += mask.memory_bytes();
        let mask = Arc::new(mask);
        self.facts.parts.insert(expr, Arc::clone(&mask));
        mask
    }
}

/// How many frames a computation read that started at `stack` and went down to depth `lowest`.
pub(super) fn frames_read(stacks: &Stacks, stack: StackId, lowest: u32) -> u32 {
    debug_assert_eq!(stacks.depth(EMPTY_STACK), 0);
    (stacks.depth(stack) + 1).saturating_sub(lowest)
}
