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

use crate::held::with_room;
use crate::json::{Frame, Programs, Unread};
use crate::lexical::search::{DEAD, UNKNOWN};
use crate::lexical::{ByteSet, EMPTY, ExprId, Fuel, Lexicon, NO_MARK, OutOfFuel};
pub(crate) use keys::{KeyId, Keys, NO_KEY, UNREAD};
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

/// What a frame does, computed when it is first on top.
#[derive(Clone, Copy)]
pub(crate) struct Expansion {
    /// The frame's lexemes, each ended by a mark.
    pub(crate) entry: ExprId,
    /// Whether an action needs the lexeme's text.
    pub(crate) keeps_key: bool,
    /// Whether the lexeme's text is a part of [`State::item`].
    pub(crate) keeps_item: bool,
}

/// What follows the end of a lexeme: frames that replace the top one, the last on top.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    Replace(Vec<Frame>),
    /// Nothing; and where the frame below waits for a verdict, it is replaced by its outcome.
    Verdict(u32),
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
    /// The last stack that was entered whose top frame depends on the text of a key or an item.
    pub(crate) text: Option<StackId>,
    /// Whether a frame with a text that was skipped might allow what it doesn't without.
    pub(crate) may_widen: bool,
    /// The same, of any since the recording started.
    pub(crate) has_widened: bool,
}

impl Reads {
    /// Nothing yet.
    const NONE: Self = Self {
        lowest: u32::MAX,
        text: None,
        may_widen: false,
        has_widened: false,
    };
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
                + self.actions.len() * (size_of::<((FrameId, u16), Action)>() + 64),
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
    ) -> Result<State, OutOfFuel> {
        let stack = self.push_all(EMPTY_STACK, frames);
        self.enter(stack, NO_KEY, fuel)
    }

    /// The stacks.
    pub(crate) fn stacks(&self) -> &Stacks {
        &self.stacks
    }

    /// The bytes of a text that a state keeps.
    pub(crate) fn text(&self, text: KeyId) -> Vec<u8> {
        self.keys.text(text)
    }

    /// Starts to record what is read, in `reads`.
    pub(crate) fn start_recording(&mut self) {
        self.reads = Reads::NONE;
        self.key_frames.clear();
        self.is_recording = true;
    }

    /// Whether a frame was made after a key since the recording started.
    pub(crate) fn has_key_frames(&self) -> bool {
        !self.key_frames.is_empty()
    }

    /// From here on, what follows a key or an item is what would follow if it were none of those
    /// that may come later: for walks that don't know its text.
    pub(crate) fn skip_texts(&mut self, skips: bool) {
        self.skips_texts = skips;
    }

    /// Ends the recording: what was read.
    pub(crate) fn stop_recording(&mut self) -> Reads {
        self.key_frames.clear();
        self.is_recording = false;
        self.reads
    }

    fn push_all(&mut self, below: StackId, frames: &[Frame]) -> StackId {
        frames
            .iter()
            .fold(below, |below, frame| self.stacks.push(below, *frame))
    }

    /// The state at the first lexeme of a stack's top frame, after an item's text where the frame
    /// is within one or waits for its end.
    fn enter(
        &mut self,
        mut stack: StackId,
        item: KeyId,
        fuel: &mut Fuel,
    ) -> Result<State, OutOfFuel> {
        self.read(stack);
        let Some(mut top) = self.stacks.top(stack) else {
            // Nothing may follow.
            return Ok(self.start_of_expression(crate::lexical::EPSILON));
        };
        let mut frame = self.stacks.frame(top);
        if self.programs.awaits_item(&frame) {
            let below = self.stacks.below(stack);
            frame = if self.skips_texts || item == UNREAD {
                self.reads.may_widen |= self.programs.may_widen(&frame);
                self.reads.has_widened |= self.reads.may_widen;
                self.programs.without_item(frame)
            } else {
                let text = self.keys.text(item);
                let lexicon = &mut self.lexicon;
                self.programs.after_item(lexicon, frame, &text, fuel)?
            };
            stack = self.stacks.push(below, frame);
            top = self.stacks.top(stack).unwrap_or(top);
            self.reads.text = Some(stack);
        }
        if self.key_frames.contains(&top) {
            self.reads.text = Some(stack);
        }
        let expansion = self.expansion(top, fuel)?;
        Ok(State {
            lexeme: expansion.entry,
            stack,
            key: NO_KEY,
            item: match self.programs.is_within_item(&frame) {
                true => item,
                false => NO_KEY,
            },
        })
    }

    fn read(&mut self, stack: StackId) {
        self.reads.lowest = self.reads.lowest.min(self.stacks.depth(stack));
    }

    fn known_expansion(&self, frame: FrameId) -> Option<Expansion> {
        self.expansions.get(frame.0 as usize).copied().flatten()
    }

    fn expansion(&mut self, id: FrameId, fuel: &mut Fuel) -> Result<Expansion, OutOfFuel> {
        if let Some(known) = self.known_expansion(id) {
            return Ok(known);
        }
        let frame = self.stacks.frame(id);
        let expansion = self.programs.expand(&mut self.lexicon, &frame, fuel)?;
        let at = id.0 as usize;
        if self.expansions.len() <= at {
            self.expansions.resize(at + 1, None);
        }
        self.expansions[at] = Some(expansion);
        Ok(expansion)
    }

    /// What follows a mark of a stack's top frame.
    fn action(&mut self, stack: StackId, mark: u16, fuel: &mut Fuel) -> Result<Action, OutOfFuel> {
        let Some(top) = self.stacks.top(stack) else {
            return Ok(Action::Verdict(0));
        };
        if let Some(known) = self.actions.get(&(top, mark)) {
            return Ok(known.clone());
        }
        let frame = self.stacks.frame(top);
        let action = self
            .programs
            .follow(&mut self.lexicon, &frame, mark, fuel)?;
        self.actions.insert((top, mark), action.clone());
        Ok(action)
    }

    /// A stack where the value above it has met a goal.
    fn met(&mut self, stack: StackId, goal: u32) -> StackId {
        let Some(top) = self.stacks.top(stack) else {
            return stack;
        };
        let frame = self.stacks.frame(top);
        let outcome = self.programs.outcome(frame, goal);
        if outcome == frame {
            return stack;
        }
        let below = self.stacks.below(stack);
        let stack = self.stacks.push(below, outcome);
        if self.key_frames.contains(&top) {
            self.key_frames.extend(self.stacks.top(stack));
        }
        stack
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
        let stack = match self.action(state.stack, mark, fuel)? {
            Action::Replace(frames) => {
                let stack = self.push_all(below, &frames);
                self.follow_key_frame(state.stack, stack);
                stack
            }
            Action::Verdict(goal) => {
                self.read(below);
                self.met(below, goal)
            }
            Action::Member { next, value } => {
                let next = if self.skips_texts || state.key == UNREAD {
                    next
                } else {
                    let text = self.keys.text(state.key);
                    self.programs.after_key(next, &text)
                };
                let stack = self.push_all(below, &[next]);
                if self.is_recording {
                    self.key_frames.extend(self.stacks.top(stack));
                }
                self.push_all(stack, &[value])
            }
        };
        self.enter(stack, state.item, fuel)
    }

    /// The frame after a key's member is the same one after the comma.
    fn follow_key_frame(&mut self, stack: StackId, next: StackId) {
        let (Some(top), Some(after)) = (self.stacks.top(stack), self.stacks.top(next)) else {
            return;
        };
        if self.key_frames.contains(&top) && self.is_after_comma(next) {
            self.key_frames.push(after);
        }
    }

    /// Whether a stack's top frame is one after the comma.
    fn is_after_comma(&self, stack: StackId) -> bool {
        let frame = self.stacks.top(stack).map(|top| self.stacks.frame(top));
        frame.is_some_and(|frame| self.programs.is_after_comma(&frame))
    }

    /// A stack whose top frame, an array or object after an item or member, is past the comma.
    pub(crate) fn past_comma(&mut self, stack: StackId) -> StackId {
        let Some(top) = self.stacks.top(stack) else {
            return stack;
        };
        let frame = self.programs.after_comma(self.stacks.frame(top));
        self.stacks.push(self.stacks.below(stack), frame)
    }

    /// What is known of a frame without the text before it.
    pub(crate) fn unread(&mut self, stack: StackId, fuel: &mut Fuel) -> Result<Unread, OutOfFuel> {
        let Some(top) = self.stacks.top(stack) else {
            return Ok(Unread::default());
        };
        let frame = self.stacks.frame(top);
        let next = self.past_comma(stack);
        let is_infinite = match self.stacks.top(next) {
            Some(next) => {
                let entry = self.expansion(next, fuel)?.entry;
                self.lexicon.is_infinite(entry)
            }
            None => false,
        };
        self.programs
            .unread(&mut self.lexicon, &frame, is_infinite, fuel)
    }

    /// The texts that the frame of a state keeps, with one more byte of its lexeme.
    fn keep(&mut self, state: State, byte: u8) -> (KeyId, KeyId) {
        if self.skips_texts {
            return (NO_KEY, NO_KEY);
        }
        let top = self.stacks.top(state.stack);
        let Some(expansion) = top.and_then(|top| self.known_expansion(top)) else {
            return (NO_KEY, NO_KEY);
        };
        let mut text = |keeps: bool, before: KeyId| match keeps {
            true => self.keys.push(before, byte),
            false => NO_KEY,
        };
        (
            text(expansion.keeps_key, state.key),
            text(expansion.keeps_item, state.item),
        )
    }

    /// The texts of the key and of the item that a state keeps, with one more byte of its lexeme.
    pub(crate) fn kept(&mut self, state: State, byte: u8) -> (KeyId, KeyId) {
        self.keep(state, byte)
    }

    /// Whether a text that a state keeps has at least so many bytes.
    pub(crate) fn is_long(&self, text: KeyId, bytes: usize) -> bool {
        self.keys.is_long(text, bytes)
    }

    /// The array whose item's text a stack is within: the outermost array of distinct items.
    pub(crate) fn outermost_array(&self, mut stack: StackId) -> StackId {
        while let Some(top) = self.stacks.top(stack) {
            let frame = self.stacks.frame(top);
            let is_outermost = frame.is_array() && !self.programs.is_within_item(&frame);
            if is_outermost {
                break;
            }
            stack = self.stacks.below(stack);
        }
        stack
    }

    /// Whether another item of an array of distinct items is to come that is itself within an item of
    /// such an array.
    pub(crate) fn is_at_inner_item(&self, stack: StackId) -> bool {
        let frame = self.stacks.top(stack).map(|top| self.stacks.frame(top));
        frame.is_some_and(|frame| {
            self.programs.is_after_comma(&frame)
                && self.programs.is_of_distinct_items(&frame)
                && self.programs.is_within_item(&frame)
        })
    }

    /// Whether the short way to the end of the object or array that lies on `home` writes no further
    /// keys of no name and no further items: as far as that is plain.
    pub(crate) fn closes_without_texts(&self, state: State, home: StackId) -> bool {
        let mut stack = state.stack;
        while self.stacks.depth(stack) > self.stacks.depth(home) + 1 {
            stack = self.stacks.below(stack);
        }
        let Some(top) = self.stacks.top(stack) else {
            return false;
        };
        // A comma may have been read already.
        let is_begun = stack == state.stack
            && self
                .known_expansion(top)
                .is_none_or(|expansion| expansion.entry != state.lexeme);
        !is_begun && self.programs.closes_without_texts(&self.stacks.frame(top))
    }

    /// A state as it is after more bytes of its lexeme, which [`Machine::step_in_lexeme`] left out
    /// of its texts.
    pub(crate) fn with_text(&mut self, mut state: State, bytes: &[u8]) -> State {
        for &byte in bytes {
            (state.key, state.item) = self.keep(state, byte);
        }
        state
    }

    /// The state after a byte that doesn't end the lexeme, without the byte in the texts that are
    /// kept. `None` where the lexeme ends, or none is kept: then that is for [`Machine::step`].
    pub(crate) fn step_in_lexeme(
        &mut self,
        state: State,
        byte: u8,
        fuel: &mut Fuel,
    ) -> Result<Option<State>, OutOfFuel> {
        if !self.keeps_text(state) {
            return Ok(None);
        }
        let lexeme = self.lexicon.derivative(state.lexeme, byte, fuel)?;
        let goes_on = lexeme != EMPTY
            && !self.lexicon.is_mark(lexeme)
            && self.lexicon.is_live(lexeme, fuel)?;
        Ok(goes_on.then_some(State { lexeme, ..state }))
    }

    /// Whether the frame of a state keeps the text of its lexemes.
    pub(crate) fn keeps_text(&self, state: State) -> bool {
        let top = self.stacks.top(state.stack);
        let expansion = top.and_then(|top| self.known_expansion(top));
        expansion.is_some_and(|expansion| expansion.keeps_key || expansion.keeps_item)
    }

    /// The state after a byte, `None` where the byte can't come next.
    pub(crate) fn step(
        &mut self,
        state: State,
        byte: u8,
        fuel: &mut Fuel,
    ) -> Result<Option<State>, OutOfFuel> {
        self.step_by(Lexicon::derivative, state, byte, fuel)
    }

    /// As [`Machine::step`], where no other byte is likely to be asked for.
    pub(crate) fn step_once(
        &mut self,
        state: State,
        byte: u8,
        fuel: &mut Fuel,
    ) -> Result<Option<State>, OutOfFuel> {
        self.step_by(Lexicon::derivative_once, state, byte, fuel)
    }

    fn step_by(
        &mut self,
        derivative: impl Fn(&mut Lexicon, ExprId, u8, &mut Fuel) -> Result<ExprId, OutOfFuel>,
        mut state: State,
        byte: u8,
        fuel: &mut Fuel,
    ) -> Result<Option<State>, OutOfFuel> {
        loop {
            let next = derivative(&mut self.lexicon, state.lexeme, byte, fuel)?;
            if next != EMPTY && self.lexicon.is_live(next, fuel)? {
                let (key, item) = self.keep(state, byte);
                let next = State {
                    lexeme: next,
                    key,
                    item,
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

    /// Whether several bytes go on with a state's lexeme.
    pub(crate) fn goes_on_in_ways(
        &mut self,
        state: State,
        fuel: &mut Fuel,
    ) -> Result<bool, OutOfFuel> {
        let mut num_bytes = 0;
        for (bytes, next) in self.lexicon.derivatives(state.lexeme, fuel)? {
            if self.lexicon.is_live(next, fuel)? {
                num_bytes += bytes.len();
            }
        }
        Ok(num_bytes > 1)
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
                if self.keeps_text(state) {
                    // Each byte makes another text.
                    for byte in bytes.iter() {
                        let (key, item) = self.keep(state, byte);
                        let next = State {
                            lexeme: next,
                            key,
                            item,
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

    /// Bytes of a short completion, the shortest where the grammar is one expression; [`DEAD`] where
    /// there is none. And the mark with which its first lexeme ends, where that is now.
    ///
    /// Where what follows depends on the lexeme's text, on a key or an item, it is taken as if it
    /// didn't.
    pub(crate) fn distance(
        &mut self,
        state: State,
        fuel: &mut Fuel,
    ) -> Result<(u32, Option<u16>), OutOfFuel> {
        if state.stack == EMPTY_STACK {
            return Ok((self.lexicon.distance(state.lexeme, fuel)?, None));
        }
        let (mut least, mut ends) = (DEAD, None);
        let mut ends_of_lexeme = self.lexicon.ends(state.lexeme, fuel)?;
        // Where an array or object may end, what else may come is not looked at.
        ends_of_lexeme.sort_by_key(|&(_, mark)| Programs::is_comma(mark));
        for (bytes, mark) in ends_of_lexeme {
            if bytes >= least || (least != DEAD && Programs::is_comma(mark)) {
                break;
            }
            let stack = self.after_end(state.stack, mark, fuel)?;
            let total = bytes.saturating_add(self.total(stack, fuel)?);
            if total < least {
                (least, ends) = (total, (bytes == 0).then_some(mark));
            }
        }
        Ok((least, ends))
    }

    /// The stack after the end of a lexeme, as if what follows didn't depend on its text.
    fn after_end(
        &mut self,
        stack: StackId,
        mark: u16,
        fuel: &mut Fuel,
    ) -> Result<StackId, OutOfFuel> {
        let below = self.stacks.below(stack);
        Ok(match self.action(stack, mark, fuel)? {
            Action::Replace(frames) => self.push_all(below, &frames),
            Action::Verdict(goal) => self.met(below, goal),
            Action::Member { next, value } => self.push_all(below, &[next, value]),
        })
    }

    /// Bytes of a short completion of a stack's frames; [`DEAD`] where there is none.
    fn total(&mut self, stack: StackId, fuel: &mut Fuel) -> Result<u32, OutOfFuel> {
        let mut pending = vec![stack];
        let mut total = 0;
        while let Some(&next) = pending.last() {
            fuel.burn(1)?;
            total = self.known_total(next);
            let (UNKNOWN, Some(top)) = (total, self.stacks.top(next)) else {
                pending.pop();
                continue;
            };
            let frame = self.stacks.frame(top);
            let below = self.stacks.below(next);
            let before = pending.len();
            let mut least = DEAD;
            let num_goals = if self.programs.is_after_comma(&frame) {
                least = self.total_after_comma(next, &mut pending, fuel)?;
                0
            } else {
                self.programs.num_goals(&frame)
            };
            for goal in 0..num_goals {
                let rest = self.met(below, goal);
                match self.known_total(rest) {
                    UNKNOWN => pending.push(rest),
                    rest => {
                        let cost =
                            self.programs
                                .frame_cost(&mut self.lexicon, &frame, goal, fuel)?;
                        least = least.min(cost.saturating_add(rest));
                    }
                }
            }
            if pending.len() == before {
                let at = next.0 as usize;
                if self.totals.len() <= at {
                    self.totals.resize(at + 1, UNKNOWN);
                }
                self.totals[at] = least;
            }
        }
        Ok(total)
    }

    /// Bytes of a short completion of a stack whose top frame is one after a comma: by its first
    /// lexeme. What has to be known before is added to `pending`; then the answer means nothing.
    fn total_after_comma(
        &mut self,
        stack: StackId,
        pending: &mut Vec<StackId>,
        fuel: &mut Fuel,
    ) -> Result<u32, OutOfFuel> {
        let Some(top) = self.stacks.top(stack) else {
            return Ok(DEAD);
        };
        let entry = self.expansion(top, fuel)?.entry;
        let mut least = DEAD;
        for (bytes, mark) in self.lexicon.ends(entry, fuel)? {
            if bytes >= least {
                break;
            }
            let rest = self.after_end(stack, mark, fuel)?;
            match self.known_total(rest) {
                UNKNOWN => pending.push(rest),
                total => least = least.min(bytes.saturating_add(total)),
            }
        }
        Ok(least)
    }

    fn known_total(&self, stack: StackId) -> u32 {
        match stack {
            EMPTY_STACK => 0,
            _ => self
                .totals
                .get(stack.0 as usize)
                .copied()
                .unwrap_or(UNKNOWN),
        }
    }

    /// The first byte of the canonical completion and the state after it; `None` at an end.
    ///
    /// Each byte brings the end of a lexeme nearer, and each lexeme that of the text.
    pub(crate) fn toward_end(
        &mut self,
        state: State,
        fuel: &mut Fuel,
    ) -> Result<Option<(u8, State)>, OutOfFuel> {
        if self.is_accepting(state, fuel)? {
            return Ok(None);
        }
        let mut at = state;
        while let (_, Some(mark)) = self.distance(at, fuel)? {
            at = self.end_lexeme(at, mark, fuel)?;
        }
        let mut nearest: Option<(u32, u8)> = None;
        for (bytes, lexeme) in self.lexicon.derivatives(at.lexeme, fuel)? {
            let (distance, _) = self.distance(State { lexeme, ..at }, fuel)?;
            let Some(byte) = bytes.iter().next() else {
                continue;
            };
            if distance != DEAD && nearest.is_none_or(|known| (distance, byte) < known) {
                nearest = Some((distance, byte));
            }
        }
        let Some((_, byte)) = nearest else {
            return Ok(None);
        };
        Ok(self.step(at, byte, fuel)?.map(|next| (byte, next)))
    }
}
