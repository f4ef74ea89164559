//! The parser: an Earley recogniser (Earley 1970) whose states are interned.
//!
//! A state is the set of lexemes that are being read, each with the context that follows it. Reading
//! a byte takes each lexeme's derivative; where lexemes end, all their contexts together are entered
//! at once: the nodes returned to, the rules called there, their first lexemes. That depends on the
//! contexts alone and is remembered. A rule's callers at a place are gathered before the rule is
//! entered (see `left_recursion` for why that is possible), so equal contexts are one context, and a
//! call at a rule's end passes on the caller's returns, so right recursion doesn't grow. What else
//! keeps ambiguous texts small stands in `canonical`.
//!
//! For an unambiguous grammar a state has few lexemes and a byte costs a few look-ups, whatever came
//! before. Where it is ambiguous, contexts of one node are joined (see `union`), so there is one item for
//! each lexeme and node. At worst, where such a union would be large, there are as many as places of
//! the text where a rule may have begun.

use std::hash::{BuildHasher, Hash};

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};

use super::anywhere::Anywhere;
use super::context::{AT_END, ContextId, Contexts, Return};
use super::enter::{Closure, Entered};
use super::memo::ContextMemo;
use super::narrow::Narrowed;
use super::program::{Lexeme, NodeId, Program, TokenSetId};
use super::reads::{Reads, Recording};
use super::to_tags::ToTags;
use super::token_set::{TokenRuns, TokenSets};
use super::union::Unions;
use crate::lexical::{ByteSet, EMPTY, EPSILON, ExprId, Fuel, NO_MARK, Stop};
use crate::pushdown::{EMPTY_STACK, Machine};

/// So many states are to come soon: tables that grow from nothing do so within masks.
const SOME: usize = 96;

/// An interned set of items.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct StateId(u32);

/// A lexeme that is being read, and what follows it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Item {
    pub(crate) lexeme: Lexeme,
    pub(crate) context: ContextId,
}

impl Item {
    /// The same where tokens aren't counted.
    pub(crate) fn uncounted(self) -> Self {
        Self {
            lexeme: self.lexeme.uncounted(),
            ..self
        }
    }
}

/// All states of a generation, and the rules they belong to.
pub(crate) struct Parser {
    pub(super) program: Program,
    pub(super) contexts: Contexts,
    pub(super) unions: Unions,
    pub(super) narrowed: Narrowed,
    pub(super) anywhere: Anywhere,
    pub(super) to_tags: ToTags,
    pub(super) token_sets: TokenSets,
    items: Vec<Item>,
    /// Where each state's items end.
    ends: Vec<u32>,
    ids: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// What languages begin with.
    first_bytes: HashMap<ExprId, ByteSet>,
    pub(super) entered: HashMap<ContextId, Entered>,
    /// Where contexts return to, where that was asked for.
    pub(super) closures: HashMap<ContextId, Closure>,
    pub(super) entered_bytes: usize,
    /// The most items that a state may have.
    pub(super) max_items: usize,
    /// Contexts looked into, while recording.
    pub(super) reads: Reads,
}

/// What a byte leads to in free text that words end.
pub(crate) struct ReadToTag {
    /// The tag of the word that ends, or [`NO_MARK`].
    pub(crate) tag: u16,
    /// What goes on, or [`EMPTY`].
    pub(crate) rest: ExprId,
}

/// Reads a byte of free text that words end.
pub(crate) fn read_to_tag(
    machine: &mut Machine,
    text: ExprId,
    byte: u8,
    fuel: &mut Fuel,
) -> Result<ReadToTag, Stop> {
    let next = machine.lexicon.derivative_once(text, byte, fuel)?;
    let rest = machine.lexicon.without_mark(next);
    let goes_on = rest != EMPTY && machine.lexicon.is_live(rest, fuel)?;
    Ok(ReadToTag {
        tag: machine.lexicon.end_mark(next),
        rest: if goes_on { rest } else { EMPTY },
    })
}

impl Parser {
    /// Without any rule.
    pub(crate) fn new(max_items: usize) -> Self {
        Self {
            program: Program::default(),
            contexts: Contexts::default(),
            unions: Unions::default(),
            narrowed: Narrowed::default(),
            anywhere: Anywhere::default(),
            to_tags: ToTags::default(),
            token_sets: TokenSets::default(),
            items: Vec::with_capacity(2 * SOME),
            ends: Vec::with_capacity(SOME),
            ids: HashTable::with_capacity(SOME),
            hasher: DefaultHashBuilder::default(),
            first_bytes: HashMap::with_capacity(SOME),
            entered: HashMap::with_capacity(SOME),
            closures: HashMap::new(),
            entered_bytes: 0,
            max_items,
            reads: Reads::default(),
        }
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.program.memory_bytes()
            + self.token_sets.memory_bytes()
            + self.contexts.memory_bytes()
            + self.unions.memory_bytes()
            + self.narrowed.memory_bytes()
            + self.anywhere.memory_bytes()
            + self.to_tags.memory_bytes()
            + self.items.capacity() * size_of::<Item>()
            + self.ends.capacity() * 4
            + self.ids.capacity() * 5
            + self.entered_bytes
            + self.reads.memory_bytes()
            + self.first_bytes.capacity() * (size_of::<(ExprId, ByteSet)>() + 1)
    }

    /// How many states there are.
    pub(crate) fn num_states(&self) -> usize {
        self.ends.len()
    }

    /// A state's items, ascending.
    pub(crate) fn items(&self, state: StateId) -> &[Item] {
        let at = state.0 as usize;
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.items[start as usize..self.ends[at] as usize]
    }

    /// The tokens of a set.
    pub(crate) fn token_set(&self, set: TokenSetId) -> &TokenRuns {
        self.token_sets.get(set)
    }

    fn intern(&mut self, mut items: Vec<Item>, fuel: &mut Fuel) -> Result<StateId, Stop> {
        fuel.burn(1 + items.len() as u64)?;
        let mut reads = Vec::new();
        self.join(&mut items, &mut reads, fuel)?;
        self.note(&reads);
        if items.len() > self.max_items {
            return Err(Stop::Items);
        }
        let (all, ends, hasher) = (&self.items, &self.ends, &self.hasher);
        let of = |id: u32| {
            let at = id as usize;
            let start = at.checked_sub(1).map_or(0, |before| ends[before]);
            &all[start as usize..ends[at] as usize]
        };
        let entry = self.ids.entry(
            hasher.hash_one(&*items),
            |&id| of(id) == items,
            |&id| hasher.hash_one(of(id)),
        );
        let id = *entry.or_insert(self.ends.len() as u32).get();
        if id as usize == self.ends.len() {
            self.items.extend_from_slice(&items);
            self.ends.push(self.items.len() as u32);
            fuel.check_bytes(self.memory_bytes())?;
        }
        Ok(StateId(id))
    }

    /// The state at the start of a grammar whose root rule starts at a node.
    pub(super) fn start(&mut self, root: NodeId, fuel: &mut Fuel) -> Result<StateId, Stop> {
        let context = self.context_of(Return {
            node: root,
            context: AT_END,
        });
        self.follow(context, fuel)
    }

    /// Adds what follows the contexts that are entered to the items that go on.
    fn enter_ended(
        &mut self,
        items: &mut Vec<Item>,
        mut ended: Vec<ContextId>,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        ended.sort_unstable();
        ended.dedup();
        match ended[..] {
            [] => Ok(()),
            [only] => self.enter(only, items, fuel),
            _ => {
                let mut reads = Vec::new();
                let returns = self.gathered(ended.iter().copied(), &mut reads, fuel)?;
                self.note(&reads);
                self.enter_all(returns, items, fuel)
            }
        }
    }

    /// The state of some items, if there are any.
    pub(crate) fn state_of(
        &mut self,
        items: Vec<Item>,
        fuel: &mut Fuel,
    ) -> Result<Option<StateId>, Stop> {
        match items.is_empty() {
            true => Ok(None),
            false => self.intern(items, fuel).map(Some),
        }
    }

    /// The state after a byte, `None` where the byte can't come next.
    pub(crate) fn step(
        &mut self,
        machine: &mut Machine,
        state: StateId,
        byte: u8,
        fuel: &mut Fuel,
    ) -> Result<Option<StateId>, Stop> {
        let num_items = self.items(state).len();
        let mut items = Vec::with_capacity(num_items + 8);
        let mut ended = Vec::new();
        for at in 0..num_items {
            fuel.burn(1)?;
            let Item { lexeme, context } = self.items(state)[at];
            let Some(text) = lexeme.text() else { continue };
            if text.stack == EMPTY_STACK && machine.lexicon.is_for_tags(text.lexeme) {
                let read = read_to_tag(machine, text.lexeme, byte, fuel)?;
                if read.tag != NO_MARK {
                    ended.extend(self.after_tag(context, read.tag, fuel)?);
                }
                if read.rest != EMPTY {
                    let lexeme = lexeme.after(machine.start_of_expression(read.rest));
                    items.push(Item { lexeme, context });
                }
                continue;
            }
            let Some(next) = machine.step(text, byte, fuel)? else {
                continue;
            };
            if machine.is_accepting(next, fuel)? {
                ended.push(context);
            }
            if next.lexeme != EPSILON {
                let lexeme = lexeme.after(next);
                items.push(Item { lexeme, context });
            }
        }
        self.enter_ended(&mut items, ended, fuel)?;
        self.join_counted(machine, &mut items);
        self.state_of(items, fuel)
    }

    /// What follows a lexeme that ends with a tag.
    pub(crate) fn after_tag(
        &mut self,
        context: ContextId,
        tag: u16,
        fuel: &mut Fuel,
    ) -> Result<Vec<ContextId>, Stop> {
        let mut reads = vec![context];
        let mut after = Vec::new();
        for Return { node, context } in self.contexts.returns(context).to_vec() {
            fuel.burn(1)?;
            if let Some(target) = self.program.choice(node, tag) {
                after.push(self.after(target, context, &mut reads, fuel)?);
            }
        }
        self.note(&reads);
        Ok(after)
    }

    /// The bytes that may come next. `None` where a lexeme is JSON, which has more to say.
    pub(crate) fn first_bytes(
        &mut self,
        machine: &mut Machine,
        state: StateId,
        fuel: &mut Fuel,
    ) -> Result<Option<ByteSet>, Stop> {
        let mut all = ByteSet::EMPTY;
        for at in 0..self.items(state).len() {
            let Some(text) = self.items(state)[at].lexeme.text() else {
                continue;
            };
            if text.stack != EMPTY_STACK {
                return Ok(None);
            }
            all = all.union(&self.language_first_bytes(machine, text.lexeme, fuel)?);
        }
        Ok(Some(all))
    }

    /// What texts of a language begin with; a look-up the second time.
    pub(crate) fn language_first_bytes(
        &mut self,
        machine: &mut Machine,
        language: ExprId,
        fuel: &mut Fuel,
    ) -> Result<ByteSet, Stop> {
        if let Some(known) = self.first_bytes.get(&language) {
            return Ok(*known);
        }
        let mut bytes = ByteSet::EMPTY;
        for (first, rest) in machine.lexicon.derivatives(language, fuel)? {
            if machine.lexicon.is_live(rest, fuel)? {
                bytes = bytes.union(&first);
            }
        }
        self.first_bytes.insert(language, bytes);
        Ok(bytes)
    }

    /// The state at the end of a token, where tokens are counted. The text that they are counted in
    /// may end anywhere, so what follows it is left.
    pub(crate) fn end_token(&mut self, state: StateId, fuel: &mut Fuel) -> Result<StateId, Stop> {
        let is_counted = |item: &Item| matches!(item.lexeme, Lexeme::Counted(..));
        if !self.items(state).iter().any(is_counted) {
            return Ok(state);
        }
        let items = self.items(state).iter().filter_map(|item| {
            let lexeme = item.lexeme.after_token()?;
            Some(Item { lexeme, ..*item })
        });
        let items = items.collect();
        self.intern(items, fuel)
    }

    /// The state after a token that the grammar names, `None` where it doesn't name it here.
    pub(crate) fn step_token(
        &mut self,
        state: StateId,
        token_id: u32,
        fuel: &mut Fuel,
    ) -> Result<Option<StateId>, Stop> {
        let mut ended = Vec::new();
        fuel.burn(self.items(state).len() as u64)?;
        for &Item { lexeme, context } in self.items(state) {
            if let Lexeme::Token(set) = lexeme
                && self.token_set(set).contains(token_id)
            {
                ended.push(context);
            }
        }
        let mut items = Vec::new();
        self.enter_ended(&mut items, ended, fuel)?;
        self.state_of(items, fuel)
    }

    /// Everything that may come in either state.
    pub(crate) fn either(
        &mut self,
        a: StateId,
        b: StateId,
        fuel: &mut Fuel,
    ) -> Result<StateId, Stop> {
        let items = [self.items(a), self.items(b)].concat();
        self.intern(items, fuel)
    }

    /// What is read first in a context, ascending.
    pub(crate) fn first_items(
        &mut self,
        context: ContextId,
        fuel: &mut Fuel,
    ) -> Result<Vec<Item>, Stop> {
        let mut items = Vec::new();
        self.enter(context, &mut items, fuel)?;
        Ok(items)
    }

    /// The state where a context is entered.
    pub(super) fn follow(&mut self, context: ContextId, fuel: &mut Fuel) -> Result<StateId, Stop> {
        let mut items = Vec::new();
        self.enter(context, &mut items, fuel)?;
        self.intern(items, fuel)
    }

    /// The places that a context returns to.
    pub(crate) fn returns(&self, context: ContextId) -> Vec<Return> {
        self.contexts.returns(context).to_vec()
    }

    /// A lexeme that a place follows, up to the end of its rule and no further.
    pub(crate) fn item_within(&mut self, lexeme: Lexeme, place: Return) -> Item {
        let context = self.context_of(Return {
            context: AT_END,
            ..place
        });
        Item { lexeme, context }
    }

    /// Records nothing until the recording is resumed.
    pub(crate) fn pause_recording(&mut self) -> Recording {
        self.reads.pause()
    }

    /// Goes on with a recording.
    pub(crate) fn resume_recording(&mut self, paused: Recording) {
        self.reads.resume(paused);
    }

    /// Starts to record which contexts are looked into; the recording that this interrupts.
    pub(crate) fn start_recording(&mut self) -> Recording {
        self.reads.start()
    }

    /// Notes contexts as looked into.
    pub(crate) fn note(&mut self, reads: &[ContextId]) {
        self.reads.note(reads);
    }

    /// Ends the recording: the contexts, in order. What was interrupted goes on, as if it had been
    /// looked into there.
    pub(crate) fn stop_recording(&mut self, interrupted: Recording) -> Vec<ContextId> {
        self.reads.stop(interrupted)
    }

    /// What a memo knows of a key in a context.
    pub(crate) fn recall<K: Copy + Eq + Hash, T: Clone>(
        &mut self,
        memo: &ContextMemo<K, T>,
        key: K,
        context: ContextId,
    ) -> Option<T> {
        memo.get(key, context, &self.contexts, self.reads.list())
    }

    /// Keeps what depends on a key and on the contexts that were looked into.
    pub(crate) fn remember<K: Copy + Eq + Hash, T: Clone>(
        &self,
        memo: &mut ContextMemo<K, T>,
        key: K,
        context: ContextId,
        reads: &[ContextId],
        value: T,
    ) {
        memo.insert(key, context, reads, &self.contexts, value);
    }

    /// A state with one item alone.
    pub(crate) fn single(&mut self, item: Item, fuel: &mut Fuel) -> Result<StateId, Stop> {
        self.intern(vec![item], fuel)
    }

    /// Whether the text may end here.
    pub(crate) fn is_accepting(&self, state: StateId) -> bool {
        // The last in order.
        let last = self.items(state).last();
        last.is_some_and(|item| item.lexeme == Lexeme::End)
    }

    /// Whether the grammar names a stop token that may end the text here.
    pub(crate) fn is_named_stop(&self, state: StateId, token_id: u32) -> bool {
        let names = |item: &Item| match item.lexeme {
            Lexeme::Stop(set) => self.token_set(set).contains(token_id),
            _ => false,
        };
        self.items(state).iter().any(names)
    }

    /// Whether the grammar names tokens that may come here.
    pub(crate) fn has_tokens(&self, state: StateId) -> bool {
        let is_token = |item: &Item| matches!(item.lexeme, Lexeme::Token(_));
        self.items(state).iter().any(is_token)
    }
}
