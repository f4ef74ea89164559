//! Layer 2: a deterministic pushdown machine over bytes.
//!
//! A state is what may still come of the running lexeme (an expression of layer 1), and a stack of
//! frames. The top frame says what follows each end of the lexeme, told apart by marks: the frame is
//! replaced by others, and the new top frame's first lexeme begins. Frames are interned, stacks too,
//! so equal futures are equal states.
//!
//! A lexeme goes on for as long as it can: a byte that continues it never ends it. So frames must be
//! made such that what follows a lexeme never begins with a byte that could continue it, and such
//! that no two alternatives of a lexeme match the same text; but for scalars that end with their last
//! byte, strings: these may meet several goals, and are followed by what may follow any of them.
//!
//! A regular expression is a machine with an empty stack and one lexeme without marks.
//!
//! | file | idea |
//! |---|---|
//! | `stack` | frames and stacks, interned |
//! | `keys` | texts of keys and items, interned |
//! | `step` | the state after a byte |
//! | `lexeme_end` | the state after a lexeme |
//! | `texts` | states that keep a text, and what is known without it |
//! | `reads` | what a walk looked at |
//! | `distance` | the shortest way to the end |

mod distance;
mod keys;
mod lexeme_end;
mod reads;
mod stack;
mod step;
mod texts;

use hashbrown::HashMap;

use crate::held::with_room;
use crate::json::{Action, Expansion, Frame, Programs};
use crate::lexical::{ByteSet, ExprId, Fuel, Lexicon, Stop};
pub(crate) use keys::{KeyId, Keys, NO_KEY, UNREAD};
pub(crate) use reads::Reads;
pub(crate) use stack::{EMPTY_STACK, FrameId, StackId, Stacks};

/// A place in a grammar.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct State {
    /// What may come of the running lexeme.
    pub(crate) lexeme: ExprId,
    /// The frames, that of the running lexeme on top.
    pub(crate) stack: StackId,
    /// The lexeme so far, where the frame needs it.
    pub(crate) key: KeyId,
    /// The outermost array of distinct items that is open, from the end of its last item on.
    pub(crate) item: KeyId,
}

impl State {
    /// Whether it keeps the text of a key or an item.
    pub(crate) fn has_text(self) -> bool {
        (self.key, self.item) != (NO_KEY, NO_KEY)
    }

    /// Whether no text is left out of it.
    pub(crate) fn is_read(self) -> bool {
        self.key != UNREAD && self.item != UNREAD
    }

    /// The same place, whatever the text of the key or item that is being written: what follows is
    /// what would follow if it were none of those that may come later.
    pub(crate) fn without_text(self) -> Self {
        let without = |text: KeyId| if text == NO_KEY { NO_KEY } else { UNREAD };
        Self {
            key: without(self.key),
            item: without(self.item),
            ..self
        }
    }
}

/// The machine with all its interned parts.
pub(crate) struct Machine {
    pub(crate) lexicon: Lexicon,
    pub(crate) programs: Programs,
    stacks: Stacks,
    keys: Keys,
    /// By frame.
    expansions: Vec<Option<Expansion>>,
    actions: HashMap<(FrameId, u16), Action>,
    /// By stack: bytes of a short completion, or [`UNKNOWN`].
    totals: Vec<u32>,
    pub(crate) reads: Reads,
    /// Whether `key_frames` is kept.
    is_recording: bool,
    /// Frames made after a key since the recording started.
    key_frames: Vec<FrameId>,
    /// Whether texts of keys and items are left out of the frames after them.
    skips_texts: bool,
}

impl Machine {
    pub(crate) fn new(lexicon: Lexicon) -> Self {
        Self {
            lexicon,
            programs: Programs::default(),
            stacks: Stacks::default(),
            keys: Keys::default(),
            expansions: Vec::new(),
            actions: HashMap::new(),
            totals: Vec::new(),
            reads: Reads::NONE,
            is_recording: false,
            key_frames: Vec::new(),
            skips_texts: false,
        }
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.lexicon.memory_bytes()
            + self.programs.memory_bytes()
            + self.stacks.memory_bytes()
            + self.keys.memory_bytes()
            + self.table_bytes()
    }

    /// Bytes of the tables that have a place for each frame or stack, and of actions.
    fn table_bytes(&self) -> usize {
        let (num_frames, num_stacks) = self.stacks.num_different();
        with_room(
            num_frames * size_of::<Option<Expansion>>()
                + num_stacks * size_of::<u32>()
                + self.actions.len() * (size_of::<((FrameId, u16), Action)>() + 1),
        )
    }

    /// The start of a grammar that is one expression.
    pub(crate) fn start_of_expression(&self, expr: ExprId) -> State {
        State {
            lexeme: expr,
            stack: EMPTY_STACK,
            key: NO_KEY,
            item: NO_KEY,
        }
    }

    /// The start of a grammar that is frames, the last on top.
    pub(crate) fn start_of_frames(
        &mut self,
        frames: &[Frame],
        fuel: &mut Fuel,
    ) -> Result<State, Stop> {
        let stack = self.push_all(EMPTY_STACK, frames.iter().copied());
        self.enter(stack, NO_KEY, fuel)
    }

    /// The stacks.
    pub(crate) fn stacks(&self) -> &Stacks {
        &self.stacks
    }

    /// The brackets that close the arrays and objects of a stack.
    pub(crate) fn closing_brackets(&self, mut stack: StackId) -> ByteSet {
        let mut brackets = ByteSet::EMPTY;
        while let Some(top) = self.stacks.top(stack) {
            if let Some(bracket) = self.stacks.frame(top).closing_bracket() {
                brackets.insert(bracket);
            }
            stack = self.stacks.below(stack);
        }
        brackets
    }

    /// The bytes of a text that a state keeps.
    pub(crate) fn text(&self, text: KeyId) -> Vec<u8> {
        self.keys.text(text)
    }

    /// A text that a state keeps without its last byte, and that byte.
    pub(crate) fn last_of_text(&self, text: KeyId) -> Option<(KeyId, u8)> {
        self.keys.last(text)
    }

    fn push_all(&mut self, below: StackId, frames: impl IntoIterator<Item = Frame>) -> StackId {
        let frames = frames.into_iter();
        frames.fold(below, |below, frame| self.stacks.push(below, frame))
    }

    fn known_expansion(&self, frame: FrameId) -> Option<Expansion> {
        self.expansions.get(frame.0 as usize).copied().flatten()
    }

    fn expansion(&mut self, id: FrameId, fuel: &mut Fuel) -> Result<Expansion, Stop> {
        if let Some(known) = self.known_expansion(id) {
            return Ok(known);
        }
        let frame = self.stacks.frame(id);
        let expansion = self.programs.expand(&mut self.lexicon, &frame, fuel)?;
        fuel.check_bytes(self.memory_bytes())?;
        let at = id.0 as usize;
        if self.expansions.len() <= at {
            self.expansions.resize(at + 1, None);
        }
        self.expansions[at] = Some(expansion);
        Ok(expansion)
    }

    /// What follows a mark of a stack's top frame.
    fn action(&mut self, stack: StackId, mark: u16, fuel: &mut Fuel) -> Result<Action, Stop> {
        let Some(top) = self.stacks.top(stack) else {
            return Ok(Action::Verdict(0));
        };
        if let Some(&known) = self.actions.get(&(top, mark)) {
            return Ok(known);
        }
        let frame = self.stacks.frame(top);
        let action = self
            .programs
            .follow(&mut self.lexicon, &frame, mark, fuel)?;
        self.actions.insert((top, mark), action);
        Ok(action)
    }
}
