//! Layer 2: a deterministic pushdown machine over bytes.
//!
//! A state is what may still come of the running lexeme (an expression of layer 1), and a stack of
//! frames. The top frame says what follows each end of the lexeme, told apart by marks: the frame is
//! replaced by others, and the new top frame's first lexeme begins. Frames are interned, stacks too,
//! so equal futures are equal states.
//!
//! A lexeme goes on for as long as it can: a byte that continues it never ends it. So frames must be
//! made such that what follows a lexeme never begins with a byte that could continue it, and such
//! that no two alternatives of a lexeme match the same text.
//!
//! A regular expression is a machine with an empty stack and one lexeme without marks.

mod keys;
mod stack;

use hashbrown::HashMap;

use crate::json::{Frame, Programs};
use crate::lexical::search::DEAD;
use crate::lexical::{ByteSet, EMPTY, ExprId, Fuel, Lexicon, NO_MARK, OutOfFuel};
pub(crate) use keys::{KeyId, Keys, NO_KEY};
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
}

/// What a frame does, computed when it is first on top.
#[derive(Clone)]
pub(crate) struct Expansion {
    /// The frame's lexemes, each ended by a mark.
    pub(crate) entry: ExprId,
    /// What follows each mark.
    pub(crate) actions: Vec<(u16, Action)>,
    /// Whether an action needs the lexeme's text.
    pub(crate) keeps_key: bool,
}

/// What follows the end of a lexeme: frames that replace the top one, the last on top.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    Replace(Vec<Frame>),
    /// An object's member with a key of its own: the frame after it depends on the key.
    Member {
        next: Frame,
        value: Frame,
    },
}

/// The frames that a walk has looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reads {
    /// The depth of the lowest.
    pub(crate) lowest: u32,
    /// Whether one depends on a key's text.
    pub(crate) key: bool,
}

/// The machine with all its interned parts.
pub(crate) struct Machine {
    pub(crate) lexicon: Lexicon,
    pub(crate) programs: Programs,
    stacks: Stacks,
    keys: Keys,
    expansions: HashMap<FrameId, Expansion>,
    expansion_bytes: usize,
    pub(crate) reads: Reads,
    /// Whether `key_frames` is kept.
    is_recording: bool,
    /// Frames made from a key's text since the recording started.
    key_frames: Vec<FrameId>,
}

impl Machine {
    pub(crate) fn new(lexicon: Lexicon) -> Self {
        Self {
            lexicon,
            programs: Programs::default(),
            stacks: Stacks::default(),
            keys: Keys::default(),
            expansions: HashMap::new(),
            expansion_bytes: 0,
            reads: Reads {
                lowest: u32::MAX,
                key: false,
            },
            is_recording: false,
            key_frames: Vec::new(),
        }
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.lexicon.memory_bytes()
            + self.programs.memory_bytes()
            + self.stacks.memory_bytes()
            + self.keys.memory_bytes()
            + self.expansion_bytes
    }

    /// The start of a grammar that is one expression.
    pub(crate) fn start_of_expression(&self, expr: ExprId) -> State {
        State {
            lexeme: expr,
            stack: EMPTY_STACK,
            key: NO_KEY,
        }
    }

    /// The start of a grammar that is frames, the last on top.
    pub(crate) fn start_of_frames(
        &mut self,
        frames: &[Frame],
        fuel: &mut Fuel,
    ) -> Result<State, OutOfFuel> {
        let stack = self.push_all(EMPTY_STACK, frames);
        self.enter(stack, fuel)
    }

    /// The stacks.
    pub(crate) fn stacks(&self) -> &Stacks {
        &self.stacks
    }

    /// Starts to record what is read, in `reads`.
    pub(crate) fn start_recording(&mut self) {
        self.reads = Reads {
            lowest: u32::MAX,
            key: false,
        };
        self.key_frames.clear();
        self.is_recording = true;
    }

    /// Ends the recording: what was read.
    pub(crate) fn stop_recording(&mut self) -> Reads {
        self.key_frames.clear();
        self.is_recording = false;
        self.reads
    }

    fn push_all(&mut self, below: StackId, frames: &[Frame]) -> StackId {
        frames.iter().fold(below, |below, frame| {
            let bytes = self.programs.min_bytes(&self.lexicon, frame);
            self.stacks.push(below, *frame, bytes)
        })
    }

    /// The state at the first lexeme of a stack's top frame.
    fn enter(&mut self, stack: StackId, fuel: &mut Fuel) -> Result<State, OutOfFuel> {
        self.read(stack);
        let Some(top) = self.stacks.top(stack) else {
            // Nothing may follow.
            return Ok(self.start_of_expression(crate::lexical::EPSILON));
        };
        self.reads.key |= self.key_frames.contains(&top);
        let lexeme = match self.expansions.get(&top) {
            Some(known) => known.entry,
            None => self.expand(top, fuel)?.entry,
        };
        Ok(State {
            lexeme,
            stack,
            key: NO_KEY,
        })
    }

    fn read(&mut self, stack: StackId) {
        self.reads.lowest = self.reads.lowest.min(self.stacks.depth(stack));
    }

    fn expand(&mut self, frame: FrameId, fuel: &mut Fuel) -> Result<&Expansion, OutOfFuel> {
        let what = self.stacks.frame(frame);
        let expansion = self.programs.expand(&mut self.lexicon, &what, fuel)?;
        self.expansion_bytes += size_of::<Expansion>() + expansion.actions.len() * 64;
        Ok(self.expansions.entry(frame).or_insert(expansion))
    }

    /// Whether the text may end here.
    pub(crate) fn is_accepting(
        &mut self,
        mut state: State,
        fuel: &mut Fuel,
    ) -> Result<bool, OutOfFuel> {
        loop {
            if !self.lexicon.is_nullable(state.lexeme) {
                return Ok(false);
            }
            match self.lexicon.end_mark(state.lexeme) {
                NO_MARK => return Ok(true),
                mark => state = self.end_lexeme(state, mark, fuel)?,
            }
        }
    }

    /// The state after the running lexeme, which ends here with a mark.
    pub(crate) fn end_lexeme(
        &mut self,
        state: State,
        mark: u16,
        fuel: &mut Fuel,
    ) -> Result<State, OutOfFuel> {
        fuel.burn(1)?;
        self.read(state.stack);
        let below = self.stacks.below(state.stack);
        let action = self
            .stacks
            .top(state.stack)
            .and_then(|top| self.expansions.get(&top))
            .and_then(|expansion| {
                let at = expansion
                    .actions
                    .binary_search_by_key(&mark, |action| action.0);
                at.ok().and_then(|at| expansion.actions.get(at))
            })
            .map(|(_, action)| action.clone());
        let stack = match action {
            Some(Action::Replace(frames)) => self.push_all(below, &frames),
            Some(Action::Member { next, value }) => {
                let text = self.keys.text(state.key);
                let next = self.programs.after_key(next, &text);
                let stack = self.push_all(below, &[next]);
                if self.is_recording {
                    self.key_frames.extend(self.stacks.top(stack));
                }
                self.push_all(stack, &[value])
            }
            // Every mark of a lexeme has its action in the frame that made it.
            None => below,
        };
        self.enter(stack, fuel)
    }

    /// Whether the frame of a state keeps the text of its lexemes.
    fn keeps_key(&self, state: State) -> bool {
        let top = self.stacks.top(state.stack);
        top.is_some_and(|top| self.expansions.get(&top).is_some_and(|e| e.keeps_key))
    }

    /// The state after a byte, `None` where the byte can't come next.
    pub(crate) fn step(
        &mut self,
        mut state: State,
        byte: u8,
        fuel: &mut Fuel,
    ) -> Result<Option<State>, OutOfFuel> {
        loop {
            let next = self.lexicon.derivative(state.lexeme, byte, fuel)?;
            if next != EMPTY && self.lexicon.is_live(next, fuel)? {
                let key = if self.keeps_key(state) {
                    self.keys.push(state.key, byte)
                } else {
                    NO_KEY
                };
                let next = State {
                    lexeme: next,
                    key,
                    ..state
                };
                return Ok(Some(self.settle(next, fuel)?));
            }
            match self.lexicon.end_mark(state.lexeme) {
                NO_MARK => return Ok(None),
                mark => state = self.end_lexeme(state, mark, fuel)?,
            }
        }
    }

    /// Ends lexemes that can't go on, so that a place has one state.
    fn settle(&mut self, mut state: State, fuel: &mut Fuel) -> Result<State, OutOfFuel> {
        while self.lexicon.is_mark(state.lexeme) {
            let mark = self.lexicon.end_mark(state.lexeme);
            state = self.end_lexeme(state, mark, fuel)?;
        }
        Ok(state)
    }

    /// The bytes that can come next, as disjoint sets with the states after them.
    pub(crate) fn next_bytes(
        &mut self,
        mut state: State,
        fuel: &mut Fuel,
    ) -> Result<Vec<(ByteSet, State)>, OutOfFuel> {
        let mut covered = ByteSet::EMPTY;
        let mut found = Vec::new();
        loop {
            for (bytes, next) in self.lexicon.derivatives(state.lexeme, fuel)? {
                let bytes = bytes.intersection(&covered.complement());
                if bytes.is_empty() || !self.lexicon.is_live(next, fuel)? {
                    continue;
                }
                covered = covered.union(&bytes);
                if self.keeps_key(state) {
                    // Each byte makes another key.
                    for byte in bytes.iter() {
                        let key = self.keys.push(state.key, byte);
                        let next = State {
                            lexeme: next,
                            key,
                            ..state
                        };
                        found.push((ByteSet::single(byte), self.settle(next, fuel)?));
                    }
                } else {
                    let next = State {
                        lexeme: next,
                        ..state
                    };
                    found.push((bytes, self.settle(next, fuel)?));
                }
            }
            match self.lexicon.end_mark(state.lexeme) {
                NO_MARK => return Ok(found),
                mark => state = self.end_lexeme(state, mark, fuel)?,
            }
        }
    }

    /// Bytes of the shortest completion; [`DEAD`] where there is none.
    pub(crate) fn distance(&mut self, state: State, fuel: &mut Fuel) -> Result<u32, OutOfFuel> {
        let Some(top) = self.stacks.top(state.stack) else {
            return self.lexicon.distance(state.lexeme, fuel);
        };
        let mut weights: Vec<(u16, u32)> = Vec::new();
        if let Some(expansion) = self.expansions.get(&top) {
            for (mark, action) in &expansion.actions {
                let frames: &[Frame] = match action {
                    Action::Replace(frames) => frames,
                    Action::Member { next, value } => &[*next, *value],
                };
                let bytes = frames.iter().fold(0_u32, |sum, frame| {
                    sum.saturating_add(self.programs.min_bytes(&self.lexicon, frame))
                });
                weights.push((*mark, bytes));
            }
        }
        let weight = |mark: u16| {
            let at = weights.binary_search_by_key(&mark, |weight| weight.0);
            at.map_or(DEAD, |at| weights[at].1)
        };
        let lexeme = self.lexicon.weighted_distance(state.lexeme, weight, fuel)?;
        let below = self.stacks.below(state.stack);
        Ok(lexeme.saturating_add(self.stacks.min_bytes(below)))
    }

    /// The first byte of the canonical completion and the state after it; `None` at an end.
    pub(crate) fn toward_end(
        &mut self,
        state: State,
        fuel: &mut Fuel,
    ) -> Result<Option<(u8, State)>, OutOfFuel> {
        if self.is_accepting(state, fuel)? {
            return Ok(None);
        }
        let mut nearest: Option<(u32, u8, State)> = None;
        for (bytes, next) in self.next_bytes(state, fuel)? {
            let distance = self.distance(next, fuel)?;
            let Some(byte) = bytes.iter().next() else {
                continue;
            };
            if nearest.is_none_or(|(least, first, _)| (distance, byte) < (least, first)) {
                nearest = Some((distance, byte, next));
            }
        }
        Ok(nearest.map(|(_, byte, next)| (byte, next)))
    }
}
