//! Walks of the parser through tries: each step between two states is made once.
//!
//! Walks come through the same states again and again: from different languages to what follows them,
//! through the same rests of tokens. Which contexts a step looked into is kept with it, since a
//! recording has to note them each time. A step counts for all bytes that no lexeme tells from its own.
//!
//! Below most nodes of the trie there are letters alone, and most lexemes that letters begin go on with
//! them for ever. Every state can be completed, so what one of its lexemes goes on with is allowed,
//! whatever the others do: nothing is walked there. So it is with bytes that lead from a state to itself.
//! What an ambiguous text may have been read as matters only where all lexemes end.

use std::ops::Range;

use hashbrown::HashMap;

use super::TokenAutomaton;
use super::context_free::Grammars;
use crate::earley::{ContextId, FAR, StateId};
use crate::index::{ROOT, Trie};
use crate::lexical::{ByteSet, ExprId, Fuel, Labels, Others, Stop};
use crate::pushdown::EMPTY_STACK;

/// A step that was not made yet.
const UNSEEN: u32 = u32::MAX;
/// A step that there isn't.
pub(super) const DEAD_END: u32 = u32::MAX - 1;

/// A step to a state that isn't asked for.
pub(super) const ALIVE: u32 = u32::MAX - 2;

/// A step that looks into more contexts counts as one that looks into any: such come only with texts
/// that may be read in many ways.
const MAX_READS: usize = 64;

/// The states met in walks, numbered, with the steps between them.
#[derive(Default)]
pub(super) struct Steps {
    numbers: HashMap<StateId, u32>,
    states: Vec<Met>,
    targets: Vec<Target>,
    reads: Vec<ContextId>,
    /// Characters by any number of which languages go on.
    lasting: HashMap<ExprId, Labels>,
    /// Whether ways were left out since this was last asked.
    left_out: bool,
}

/// A state that was met.
#[derive(Clone, Copy)]
struct Met {
    state: StateId,
    /// The bytes that may lead on from it.
    bytes: ByteSet,
    /// Whether all of them do.
    is_exact: bool,
    /// Whether the text may end there.
    is_over: bool,
    /// Whether ways to read the text were left out of it.
    is_part: bool,
    /// Where its targets start: one for each of its bytes.
    targets: u32,
    /// Bytes that are known to lead to the state itself, and where the contexts lie that such steps
    /// looked into.
    to_itself: ByteSet,
    stays: Labels,
    stay_reads: (u32, u32),
    /// Characters by any number of which a lexeme goes on; `None` before that was looked at.
    lasting: Option<Labels>,
}

/// With fewer tokens below a node they are walked.
pub(super) const MANY_TOKENS: usize = 8;

/// From so many bytes on that a state goes on with it is worth a look for how many of these.
const MANY_BYTES: usize = 8;

/// Where a step leads.
#[derive(Clone, Copy)]
struct Target {
    /// A number, [`UNSEEN`] or [`DEAD_END`].
    next: u32,
    /// Where the contexts lie that it looked into.
    reads: (u32, u32),
}

impl Steps {
    /// None yet, with room for those of some masks: tables that grow from nothing do so within masks.
    pub(super) fn with_room() -> Self {
        const STATES: usize = 192;
        Self {
            numbers: HashMap::with_capacity(STATES),
            states: Vec::with_capacity(STATES),
            targets: Vec::with_capacity(16 * STATES),
            reads: Vec::with_capacity(2 * STATES),
            lasting: HashMap::with_capacity(STATES / 2),
            left_out: false,
        }
    }

    /// Adds a state with the bytes that lead on from it, if they are known.
    fn add(&mut self, state: StateId, first_bytes: Option<ByteSet>, is_over: bool) -> u32 {
        let bytes = first_bytes.unwrap_or(ByteSet::FULL);
        let number = self.states.len() as u32;
        let targets = self.targets.len() as u32;
        self.numbers.insert(state, number);
        self.states.push(Met {
            state,
            bytes,
            is_exact: first_bytes.is_some(),
            is_over,
            is_part: false,
            targets,
            to_itself: ByteSet::EMPTY,
            stays: Labels::default(),
            stay_reads: (0, 0),
            lasting: None,
        });
        let unseen = Target {
            next: UNSEEN,
            reads: (0, 0),
        };
        self.targets
            .resize(self.targets.len() + bytes.len(), unseen);
        number
    }

    /// Whether walks came, since this was last asked, to states that ways were left out of.
    pub(super) fn take_left_out(&mut self) -> bool {
        std::mem::take(&mut self.left_out)
    }

    /// The bytes that may lead on from a state.
    pub(super) fn bytes(&self, state: u32) -> ByteSet {
        self.states[state as usize].bytes
    }

    /// Whether the text may end at a state; not if that isn't asked for.
    pub(super) fn is_over(&self, state: u32) -> bool {
        let met = self.states.get(state as usize);
        met.is_some_and(|met| met.is_over)
    }

    /// Bytes of memory held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.numbers.capacity() * (size_of::<(StateId, u32)>() + 1)
            + self.states.capacity() * size_of::<Met>()
            + self.targets.capacity() * size_of::<Target>()
            + self.reads.capacity() * size_of::<ContextId>()
            + self.lasting.capacity() * (size_of::<(ExprId, Labels)>() + 1)
    }
}

impl TokenAutomaton {
    /// Runs the parser from `start` over every word of a trie of bytes, as far as it survives:
    /// `reached` is given the tokens of each node.
    pub(super) fn walk_parser(
        &mut self,
        trie: &Trie,
        start: StateId,
        fuel: &mut Fuel,
        reached: impl FnMut(&[u32]),
    ) -> Result<(), Stop> {
        let start = self.number(start, fuel)?;
        self.walk_below(trie, ROOT, start, fuel, reached)
    }

    /// The same for what is below a node, from a state by its number.
    pub(super) fn walk_below(
        &mut self,
        trie: &Trie,
        node: u32,
        start: u32,
        fuel: &mut Fuel,
        reached: impl FnMut(&[u32]),
    ) -> Result<(), Stop> {
        self.walk_where(trie, (node, start), |_| true, fuel, reached)
    }

    /// The same for all words, where tokens are wanted.
    pub(super) fn walk_wanted(
        &mut self,
        trie: &Trie,
        start: u32,
        is_wanted: impl Fn(&Range<u32>) -> bool,
        fuel: &mut Fuel,
        reached: impl FnMut(&[u32]),
    ) -> Result<(), Stop> {
        self.walk_where(trie, (ROOT, start), is_wanted, fuel, reached)
    }

    /// From a node with a state's number, where any of the tokens at and below a node are wanted.
    fn walk_where(
        &mut self,
        trie: &Trie,
        from: (u32, u32),
        is_wanted: impl Fn(&Range<u32>) -> bool,
        fuel: &mut Fuel,
        mut reached: impl FnMut(&[u32]),
    ) -> Result<(), Stop> {
        let mut pending = vec![from];
        while let Some((node, state)) = pending.pop() {
            let steps = &mut self.grammars.memo.steps;
            steps.left_out |= steps.states[state as usize].is_part;
            let children = trie.children(node);
            if trie.below(node).len() >= MANY_TOKENS && trie.labels_below(node).is_some() {
                self.look_for_lasting(state, fuel)?;
            }
            if self.all_go_on(state, trie.labels_below(node)) {
                reached(trie.ids(trie.own(node).end..trie.below(node).end));
                continue;
            }
            let mut visit = |automaton: &mut Self, child: u32, byte: u8, fuel: &mut Fuel| {
                if !is_wanted(&trie.below(child)) {
                    return Ok(());
                }
                fuel.burn(1)?;
                if automaton.all_go_on(state, trie.labels_from(child)) {
                    reached(trie.ids(trie.below(child)));
                    return Ok(());
                }
                let is_last = trie.children(child).is_empty();
                let next = match is_last {
                    true if automaton.may_step(state, byte, fuel)? => ALIVE,
                    true => DEAD_END,
                    false => automaton.numbered_step(state, byte, fuel)?,
                };
                if next != DEAD_END {
                    let tokens = trie.ids(trie.own(child));
                    if !tokens.is_empty() {
                        reached(tokens);
                    }
                    if !is_last {
                        pending.push((child, next));
                    }
                }
                Ok(())
            };
            let bytes = self.grammars.memo.steps.states[state as usize].bytes;
            if bytes.len() * 4 < children.len() {
                for byte in bytes.iter() {
                    if let Some(child) = trie.child(node, byte) {
                        visit(self, child, byte, fuel)?;
                    }
                }
            } else {
                for child in children {
                    visit(self, child, trie.label(child), fuel)?;
                }
            }
        }
        Ok(())
    }

    /// Looks, once for each state, for characters with any number of which one of its lexemes goes on.
    pub(super) fn look_for_lasting(&mut self, state: u32, fuel: &mut Fuel) -> Result<(), Stop> {
        let Met {
            state: id,
            bytes,
            lasting,
            ..
        } = self.grammars.memo.steps.states[state as usize];
        if lasting.is_some() {
            return Ok(());
        }
        let mut most = Labels::default();
        if bytes.len() >= MANY_BYTES {
            for at in 0..self.grammars.parser.items(id).len() {
                fuel.burn(1)?;
                let Some(text) = self.grammars.parser.items(id)[at].lexeme.text() else {
                    continue;
                };
                if text.stack != EMPTY_STACK {
                    continue;
                }
                let known = self.grammars.memo.steps.lasting.get(&text.lexeme);
                let labels = match known {
                    Some(&known) => known,
                    None => {
                        let found = self.machine.lexicon.lasting(text.lexeme, fuel)?;
                        let found = Labels::within(&found.bytes, found.others);
                        let lasting = &mut self.grammars.memo.steps.lasting;
                        lasting.insert(text.lexeme, found);
                        found
                    }
                };
                if labels.len() > most.len() {
                    most = labels;
                }
            }
        }
        self.grammars.memo.steps.states[state as usize].lasting = Some(most);
        Ok(())
    }

    /// Whether it is known that a state goes on with all texts of some labels, if they are known.
    pub(super) fn all_go_on(&mut self, state: u32, labels: Option<Labels>) -> bool {
        let Some(labels) = labels else { return false };
        let Grammars { parser, memo } = &mut self.grammars;
        let met = &memo.steps.states[state as usize];
        if met.lasting.is_some_and(|lasting| labels.is_subset(lasting)) {
            return true;
        }
        let stays = labels.is_subset(met.stays);
        if stays && met.stay_reads.0 != met.stay_reads.1 {
            let (start, end) = met.stay_reads;
            parser.note(&memo.steps.reads[start as usize..end as usize]);
        }
        stays
    }

    /// The number of a state in walks.
    pub(super) fn number(&mut self, state: StateId, fuel: &mut Fuel) -> Result<u32, Stop> {
        if let Some(&known) = self.grammars.memo.steps.numbers.get(&state) {
            return Ok(known);
        }
        let (parser, machine) = self.parser();
        let bytes = parser.first_bytes(machine, state, fuel)?;
        let is_over = parser.is_accepting(state);
        Ok(self.grammars.memo.steps.add(state, bytes, is_over))
    }

    /// Whether a byte leads on from a state. Every state can be completed, so that depends on its
    /// lexemes alone, and no context is looked into.
    #[inline]
    pub(super) fn may_step(&mut self, state: u32, byte: u8, fuel: &mut Fuel) -> Result<bool, Stop> {
        let met = &self.grammars.memo.steps.states[state as usize];
        match met.is_exact || !met.bytes.contains(byte) {
            true => Ok(met.bytes.contains(byte)),
            false => Ok(self.numbered_step(state, byte, fuel)? != DEAD_END),
        }
    }

    /// The number of the state after a byte, or [`DEAD_END`].
    #[inline]
    pub(super) fn numbered_step(
        &mut self,
        state: u32,
        byte: u8,
        fuel: &mut Fuel,
    ) -> Result<u32, Stop> {
        let Grammars { parser, memo } = &mut self.grammars;
        let met = &memo.steps.states[state as usize];
        let Some(rank) = met.bytes.rank(byte) else {
            return Ok(DEAD_END);
        };
        let Target { next, reads } = memo.steps.targets[met.targets as usize + rank];
        if next == UNSEEN {
            return self.new_step(state, byte, fuel);
        }
        if reads.0 != reads.1 {
            parser.note(&memo.steps.reads[reads.0 as usize..reads.1 as usize]);
        }
        Ok(next)
    }

    fn new_step(&mut self, from: u32, byte: u8, fuel: &mut Fuel) -> Result<u32, Stop> {
        let state = self.grammars.memo.steps.states[from as usize].state;
        let interrupted = self.grammars.parser.start_recording();
        let next = self.parser_step(state, byte, fuel);
        let reads = self.grammars.parser.stop_recording(interrupted);
        let next = match next? {
            Some(next) if self.grammars.memo.is_narrow => {
                let (parser, machine) = self.parser();
                let narrowed = parser.narrowed(machine, next, fuel)?;
                let number = self.number(narrowed, fuel)?;
                let met = &mut self.grammars.memo.steps.states[number as usize];
                // Once for all: others may come to the same state and leave nothing out.
                met.is_part |= narrowed != next;
                number
            }
            Some(next) => self.number(next, fuel)?,
            None => DEAD_END,
        };
        let reads = match reads.len() > MAX_READS || reads.contains(&FAR) {
            true => vec![FAR],
            false => reads,
        };
        let alike = self.bytes_alike(state, byte, fuel)?;
        let steps = &mut self.grammars.memo.steps;
        let Met { bytes, targets, .. } = steps.states[from as usize];
        let start = steps.reads.len() as u32;
        steps.reads.extend_from_slice(&reads);
        let target = Target {
            next,
            reads: (start, steps.reads.len() as u32),
        };
        let alike = bytes.intersection(&alike);
        if next == from {
            let Met { stay_reads, .. } = steps.states[from as usize];
            let known = stay_reads.0 as usize..stay_reads.1 as usize;
            let both_start = steps.reads.len() as u32;
            if start != both_start {
                steps.reads.extend_from_within(known);
                steps.reads.extend_from_slice(&reads);
            }
            let met = &mut steps.states[from as usize];
            met.to_itself = met.to_itself.union(&alike);
            met.stays = Labels::within(&met.to_itself, Others::Some);
            if start != both_start {
                met.stay_reads = (both_start, steps.reads.len() as u32);
            }
        }
        for alike in alike.iter() {
            if let Some(rank) = bytes.rank(alike) {
                steps.targets[targets as usize + rank] = target;
            }
        }
        Ok(next)
    }

    /// Bytes that lead to the same state as a byte does: those that no item's lexeme tells from it.
    fn bytes_alike(&mut self, state: StateId, byte: u8, fuel: &mut Fuel) -> Result<ByteSet, Stop> {
        let mut alike = ByteSet::FULL;
        let (parser, machine) = self.parser();
        for item in parser.items(state) {
            let Some(text) = item.lexeme.text() else {
                continue;
            };
            if text.stack != EMPTY_STACK {
                return Ok(ByteSet::single(byte));
            }
            let lexicon = &mut machine.lexicon;
            let own = match lexicon.first_class(text.lexeme) {
                Some((bytes, _)) if bytes.contains(byte) => bytes,
                Some((bytes, _)) => bytes.complement(),
                None => {
                    let row = lexicon.row_ref(text.lexeme, fuel)?;
                    let class = lexicon.row_class(row, byte);
                    let mut classes = lexicon.row_entries(row);
                    let entry = classes.nth(usize::from(class));
                    entry.map_or(ByteSet::single(byte), |(bytes, _)| *bytes)
                }
            };
            alike = alike.intersection(&own);
        }
        Ok(alike)
    }
}
