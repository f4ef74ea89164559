//! What is remembered of masks.
//!
//! A mask depends on the lexeme and on the frames that its computation read, seldom more than one
//! or two. It is kept under exactly those: a trie from the top frame down, whose nodes say "here is
//! the mask" or "look at one more frame". So equal places deep in different texts share it.

use std::sync::Arc;

use hashbrown::HashMap;

use crate::index::Trie;
use crate::lexical::ExprId;
use crate::mask::Mask;
use crate::mask::store::MaskStore;
use crate::pushdown::{EMPTY_STACK, FrameId, StackId, Stacks, State};

/// What a lexeme allows by itself.
pub(super) struct LexemeMask {
    /// Tokens that end within the lexeme, or with it.
    pub(super) inside: Arc<Mask>,
    /// Tokens that go on after a lexeme that ends with a mark, by what they go on with.
    pub(super) exits: Vec<(u16, Trie)>,
    /// Bytes held, the mask apart.
    pub(super) bytes: usize,
}

/// What a lexeme of several alternatives allows: the union of its parts.
pub(super) struct LexemeMasks {
    pub(super) parts: Vec<Part>,
}

/// A part of a lexeme's mask, shared with other lexemes, less some tokens.
pub(super) struct Part {
    pub(super) alone: Arc<LexemeMask>,
    /// Tokens that the part must not allow here.
    pub(super) less: Vec<u32>,
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

/// Masks by what they depend on.
#[derive(Default)]
pub(super) struct MaskMemo {
    pub(super) store: MaskStore,
    lexemes: HashMap<ExprId, Arc<LexemeMasks>>,
    parts: HashMap<ExprId, Arc<LexemeMask>>,
    lexeme_bytes: usize,
    by_stack: HashMap<(ExprId, StackId), Arc<Mask>>,
    by_frames: HashMap<(ExprId, Prefix), Known>,
    /// A prefix with one more frame; `None` is the bottom of the stack.
    prefixes: HashMap<(Prefix, Option<FrameId>), Prefix>,
    /// Masks that depend on a key's text too.
    by_state: HashMap<State, Arc<Mask>>,
}

impl MaskMemo {
    pub(super) fn memory_bytes(&self) -> usize {
        self.store.memory_bytes()
            + self.lexeme_bytes
            + self.parts.capacity() * (size_of::<(ExprId, usize)>() + 1)
            + self.lexemes.capacity() * (size_of::<(ExprId, usize)>() + 1)
            + self.by_stack.capacity() * (size_of::<(ExprId, StackId, usize)>() + 1)
            + self.by_frames.capacity() * (size_of::<((ExprId, Prefix), Known)>() + 1)
            + self.prefixes.capacity() * (size_of::<(Prefix, Option<FrameId>, Prefix)>() + 1)
            + self.by_state.capacity() * (size_of::<(State, usize)>() + 1)
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
                None => return self.by_state.get(&State { lexeme, ..state }).cloned(),
            }
        }
    }

    /// Whether the mask of a state may depend on the bottom of the stack: whether a token may reach
    /// it. Exact where the mask is kept by frames.
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
                Some(Known::More) | None => return true,
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

    /// Keeps a mask that depends on the whole state.
    pub(super) fn insert_for_state(&mut self, lexeme: ExprId, state: State, mask: Arc<Mask>) {
        self.by_state.insert(State { lexeme, ..state }, mask);
    }

    pub(super) fn lexeme(&self, lexeme: ExprId) -> Option<Arc<LexemeMasks>> {
        self.lexemes.get(&lexeme).cloned()
    }

    pub(super) fn insert_lexeme(&mut self, lexeme: ExprId, masks: LexemeMasks) -> Arc<LexemeMasks> {
        let less: usize = masks.parts.iter().map(|part| part.less.capacity()).sum();
        self.lexeme_bytes += masks.parts.capacity() * size_of::<Part>() + less * size_of::<u32>();
        let masks = Arc::new(masks);
        self.lexemes.insert(lexeme, Arc::clone(&masks));
        masks
    }

    pub(super) fn part(&self, lexeme: ExprId) -> Option<Arc<LexemeMask>> {
        self.parts.get(&lexeme).cloned()
    }

    pub(super) fn insert_part(&mut self, lexeme: ExprId, mask: LexemeMask) -> Arc<LexemeMask> {
        self.lexeme_bytes += mask.bytes;
        let mask = Arc::new(mask);
        self.parts.insert(lexeme, Arc::clone(&mask));
        mask
    }
}

/// How many frames a computation read that started at `stack` and went down to depth `lowest`.
pub(super) fn frames_read(stacks: &Stacks, stack: StackId, lowest: u32) -> u32 {
    debug_assert_eq!(stacks.depth(EMPTY_STACK), 0);
    (stacks.depth(stack) + 1).saturating_sub(lowest)
}
