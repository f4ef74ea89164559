//! The parser, stepped by whole tokens: advancing, completion, forced text.

use std::sync::Arc;

use hashbrown::HashMap;

use super::exit_rests::ExitRests;
use super::exits::NearExits;
use super::language_facts::LanguageFacts;
use super::loose_walk::LooseSteps;
use super::parser_steps::Steps;
use super::ways::{Way, Ways};
use super::{GrammarState, TokenAutomaton};
use crate::earley::{
    ContextId, ContextMemo, Item, LanguageMask, Lexeme, NodeId, Parser, StateId, Symbol, Tokens,
    Walks,
};
use crate::index::{ROOT, Trie};
use crate::lexical::search::{DEAD, Graph, Search, UNKNOWN, nearest_end};
use crate::lexical::{ExprId, Fuel, Stop};
use crate::mask::Forgotten;
use crate::mask::Mask;
use crate::mask::store::MaskStore;
use crate::pushdown;

/// The parser with what is remembered of its states.
pub(super) struct Grammars {
    pub(super) parser: Parser,
    pub(super) memo: Memo,
}

impl Grammars {
    pub(super) fn new(max_items: usize, languages: LanguageFacts) -> Self {
        Self {
            parser: Parser::new(max_items),
            memo: Memo::with(languages),
        }
    }
}

/// What can be computed again.
#[derive(Default)]
pub(super) struct Memo {
    pub(super) store: MaskStore,
    pub(super) by_state: HashMap<StateId, Arc<Mask>>,
    /// What a lexeme and what follows it allow, where the lexeme is a language: all of it, or where
    /// it differs from the one beside it.
    pub(super) by_context: ContextMemo<(ExprId, bool), Arc<Tokens>>,
    /// Tokens that go on after a language, by its number, with a lexeme, as far as what comes after
    /// that in its rule tells.
    pub(super) near_exits: HashMap<(u32, Lexeme, NodeId), Arc<NearExits>>,
    /// What tokens go on with where rules may be over within them.
    pub(super) exit_rests: ExitRests,
    /// Steps that walks made.
    pub(super) steps: Steps,
    /// Those of walks with one way for each lexeme; in the other's place while such a walk is made.
    pub(super) narrow_steps: Steps,
    /// Whether such a walk is made.
    pub(super) is_narrow: bool,
    /// Those of walks that forget contexts.
    pub(super) loose: LooseSteps,
    /// How often in a row, about, items by themselves took too many steps, by grammar; see
    /// `context_free_mask`.
    pub(super) num_halved: HashMap<u32, u32>,
    /// What walks of languages through the trie of bytes met.
    pub(super) walks: Walks,
    /// What JSON and what follows it allow.
    pub(super) by_item: HashMap<(pushdown::State, ContextId), Arc<Mask>>,
    /// What tokens go on with after JSON, by its state: `None` where that can't be told.
    pub(super) beyond: HashMap<pushdown::State, Option<Arc<LanguageMask>>>,
    /// What languages allow by themselves.
    pub(super) languages: LanguageFacts,
    /// Tokens outside a mask, by the mask's address.
    pub(super) outside: HashMap<usize, (Arc<Mask>, Arc<Trie>)>,
    /// Bytes of sets, lists and tries in these tables.
    pub(super) bytes: usize,
    /// Tokens of the canonical completion, its stop token included.
    min_tokens: HashMap<StateId, u32>,
    /// Where it is still being walked.
    ways: Ways<StateId, Symbol>,
    /// Tokens to the nearest end, where not every text can be written.
    token_distance: HashMap<StateId, u32>,
}

impl Memo {
    /// Nothing yet but what others know of languages.
    pub(super) fn with(languages: LanguageFacts) -> Self {
        /// Tables that grow from nothing do so within masks.
        const SOME: usize = 96;
        Self {
            languages,
            by_state: HashMap::with_capacity(SOME),
            near_exits: HashMap::with_capacity(SOME),
            steps: Steps::with_room(),
            ..Self::default()
        }
    }

    /// Begins, or ends, a walk with one way for each lexeme.
    pub(super) fn swap_steps(&mut self) {
        std::mem::swap(&mut self.steps, &mut self.narrow_steps);
        self.is_narrow = !self.is_narrow;
    }

    /// Hands all tables over to be dropped.
    pub(super) fn forget(self, forgotten: &mut Forgotten) {
        forgotten.add(self.by_state);
        forgotten.add(self.near_exits);
        forgotten.add(self.by_item);
        forgotten.add(self.beyond);
        forgotten.add(self.outside);
        forgotten.add(self.min_tokens);
        forgotten.add(self.token_distance);
        forgotten.add(std::iter::once(self.by_context));
        forgotten.add([self.steps, self.narrow_steps]);
        forgotten.add(std::iter::once(self.loose));
        forgotten.add(std::iter::once(self.walks));
        forgotten.add(std::iter::once(self.ways));
        self.exit_rests.forget(forgotten);
        self.languages.forget(forgotten);
        self.store.forget(forgotten);
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let numbers = self.min_tokens.capacity() + self.token_distance.capacity();
        self.store.memory_bytes()
            + self.by_context.memory_bytes()
            + self.near_exits.capacity() * (size_of::<(u32, Lexeme, NodeId, usize)>() + 1)
            + self.exit_rests.memory_bytes()
            + self.steps.memory_bytes()
            + self.narrow_steps.memory_bytes()
            + self.loose.memory_bytes()
            + self.walks.memory_bytes()
            + self.bytes
            + self.num_halved.capacity() * (size_of::<(u32, u32)>() + 1)
            + self.ways.memory_bytes()
            + self.languages.memory_bytes()
            + self.by_state.capacity() * (size_of::<(StateId, usize)>() + 1)
            + self.beyond.capacity() * (size_of::<(pushdown::State, usize)>() + 1)
            + self.by_item.capacity() * (size_of::<(pushdown::State, ContextId, usize)>() + 1)
            + numbers * (size_of::<(StateId, u32)>() + 1)
    }
}

impl TokenAutomaton {
    /// The parser together with the machine.
    pub(crate) fn parser(&mut self) -> (&mut Parser, &mut pushdown::Machine) {
        (&mut self.grammars.parser, &mut self.machine)
    }

    pub(super) fn parser_step(
        &mut self,
        state: StateId,
        byte: u8,
        fuel: &mut Fuel,
    ) -> Result<Option<StateId>, Stop> {
        self.grammars
            .parser
            .step(&mut self.machine, state, byte, fuel)
    }

    /// The state after a token: by its text, by its name, or both.
    pub(super) fn parser_advance(
        &mut self,
        state: StateId,
        token_id: u32,
        fuel: &mut Fuel,
    ) -> Result<Option<StateId>, Stop> {
        let named = self.grammars.parser.step_token(state, token_id, fuel)?;
        let mut written = self.index.is_text_token(token_id).then_some(state);
        if written.is_some() {
            let index = Arc::clone(&self.index);
            for &byte in index.info().token_bytes(token_id) {
                fuel.burn(1)?;
                let Some(at) = written else { break };
                written = self.parser_step(at, byte, fuel)?;
            }
        }
        let next = match (named, written) {
            (Some(named), Some(written)) => {
                Some(self.grammars.parser.either(named, written, fuel)?)
            }
            (named, written) => named.or(written),
        };
        let Some(next) = next else {
            return Ok(None);
        };
        let next = self.grammars.parser.end_token(next, fuel)?;
        let is_completable = self.is_parser_completable(next, fuel)?;
        Ok(is_completable.then_some(next))
    }

    /// Whether tokens of the vocabulary can complete the text. States that can't be completed by
    /// bytes don't exist.
    pub(super) fn is_parser_completable(
        &mut self,
        state: StateId,
        fuel: &mut Fuel,
    ) -> Result<bool, Stop> {
        if !self.parser_needs_search() {
            return Ok(true);
        }
        Ok(nearest_end(&mut ByTokens(self), state, fuel)? != DEAD)
    }

    /// Runs a search by tokens: [`DEAD`] where tokens of the vocabulary reach no end.
    pub(crate) fn run_parser_by_tokens(
        &mut self,
        search: &mut Search<StateId>,
        fuel: &mut Fuel,
    ) -> Result<u32, Stop> {
        if !self.parser_needs_search() {
            return Ok(0);
        }
        search.run(&mut ByTokens(self), fuel)
    }

    pub(super) fn parser_forced_bytes(
        &mut self,
        mut state: StateId,
        max_bytes: usize,
        fuel: &mut Fuel,
    ) -> Result<Vec<u8>, Stop> {
        let mut forced = Vec::new();
        while forced.len() < max_bytes {
            fuel.burn(1)?;
            let (parser, machine) = self.parser();
            let Some(byte) = parser.only_byte(machine, state, fuel)? else {
                break;
            };
            let Some(next) = self.parser_step(state, byte, fuel)? else {
                break;
            };
            forced.push(byte);
            state = next;
        }
        Ok(forced)
    }

    /// How many tokens write the canonical completion, see `completion`; the stop token included.
    pub(super) fn parser_min_tokens(
        &mut self,
        state: StateId,
        fuel: &mut Fuel,
    ) -> Result<u32, Stop> {
        if self.parser_needs_search() {
            let tokens = nearest_end(&mut ByTokens(self), state, fuel)?;
            return Ok(tokens.saturating_add(1));
        }
        let state = self.parser_completed_as(state, fuel)?;
        // A token that is named as well as written leads to more than what follows its text: to what
        // has a completion of its own, which is no longer than that of its text.
        let mut pending = vec![state];
        while let Some(&last) = pending.last() {
            match self.find_min_tokens(last, fuel)? {
                Some(needed) => pending.push(needed),
                None => drop(pending.pop()),
            }
        }
        let known = self.grammars.memo.min_tokens.get(&state).copied();
        Ok(known.unwrap_or(u32::MAX))
    }

    /// A state within JSON by itself, as [`TokenAutomaton::completed_as`] has it.
    fn parser_completed_as(&mut self, state: StateId, fuel: &mut Fuel) -> Result<StateId, Stop> {
        let &[item] = self.grammars.parser.items(state) else {
            return Ok(state);
        };
        let Lexeme::Text(text) = item.lexeme else {
            return Ok(state);
        };
        let completed = self.completed_as(text, fuel)?;
        if completed == text {
            return Ok(state);
        }
        let lexeme = Lexeme::Text(completed);
        self.grammars.parser.single(Item { lexeme, ..item }, fuel)
    }

    /// Makes known what a state and those on its canonical completion need, or says for which state
    /// that has to be known first.
    fn find_min_tokens(
        &mut self,
        state: StateId,
        fuel: &mut Fuel,
    ) -> Result<Option<StateId>, Stop> {
        if self.grammars.memo.min_tokens.contains_key(&state) {
            return Ok(None);
        }
        let mut way = self.grammars.memo.ways.take(state);
        let counted = self.count_on_parser_way(&mut way, fuel);
        if !matches!(counted, Ok(None)) {
            self.grammars.memo.ways.put(state, way);
        }
        counted
    }

    /// The same from the end of the way on that was walked so far.
    fn count_on_parser_way(
        &mut self,
        way: &mut Way<StateId, Symbol>,
        fuel: &mut Fuel,
    ) -> Result<Option<StateId>, Stop> {
        let Way {
            places: states,
            steps: symbols,
        } = way;
        let Some(&(mut last)) = states.last() else {
            return Ok(None);
        };
        let longest = self.index.max_token_bytes() as usize;
        // Up to the end, or a token's length into what is known.
        let mut known_run = 0;
        loop {
            let (parser, machine) = self.parser();
            let Some((symbol, next)) = parser.toward_end(machine, last, fuel)? else {
                break;
            };
            fuel.burn(1)?;
            let known = self.grammars.memo.min_tokens.contains_key(&last);
            known_run = if known { known_run + 1 } else { 0 };
            if known_run > longest {
                break;
            }
            symbols.push(symbol);
            states.push(next);
            last = next;
        }
        for start in (0..states.len()).rev() {
            if self.grammars.memo.min_tokens.contains_key(&states[start]) {
                continue;
            }
            let tokens = match symbols.get(start) {
                // A completion that is longer than any number says has no first byte.
                None if self.is_endless(last) => u32::MAX,
                None => 1,
                Some(_) => {
                    match self.fewest_tokens_of(&symbols[start..], &states[start..], fuel)? {
                        Fewest::Tokens(tokens) => tokens,
                        Fewest::Needs(state) => return Ok(Some(state)),
                    }
                }
            };
            self.grammars.memo.min_tokens.insert(states[start], tokens);
        }
        Ok(None)
    }

    /// Whether a state that has no next symbol isn't the text's end: its shortest completion is longer than any
    /// number says.
    fn is_endless(&self, state: StateId) -> bool {
        let parser = &self.grammars.parser;
        let is_stop = |item: &Item| matches!(item.lexeme, Lexeme::Stop(_));
        !parser.is_accepting(state) && !parser.items(state).iter().any(is_stop)
    }

    /// One token that begins `symbols`, and what the state after it needs. `states[i]` is the state
    /// after `symbols[..i]`; those after the first are known.
    fn fewest_tokens_of(
        &mut self,
        symbols: &[Symbol],
        states: &[StateId],
        fuel: &mut Fuel,
    ) -> Result<Fewest, Stop> {
        let index = Arc::clone(&self.index);
        let trie = index.byte_trie();
        let names_tokens = self.grammars.parser.has_tokens(states[0]);
        let (mut fewest, mut unknown) = (u32::MAX, None);
        let mut count =
            |automaton: &Self, after: StateId| match automaton.grammars.memo.min_tokens.get(&after)
            {
                Some(rest) => fewest = fewest.min(rest.saturating_add(1)),
                None => unknown = Some(after),
            };
        let mut node = ROOT;
        for (symbol, &after) in symbols.iter().zip(&states[1..]) {
            fuel.burn(1)?;
            let byte = match *symbol {
                Symbol::Byte(byte) => byte,
                Symbol::Token(id) if node == ROOT => {
                    let after = self.parser_advance(states[0], id, fuel)?;
                    after.into_iter().for_each(|after| count(self, after));
                    break;
                }
                Symbol::Token(_) => break,
            };
            let Some(child) = trie.child(node, byte) else {
                break;
            };
            node = child;
            let ids = trie.ids(trie.own(node));
            if !names_tokens && !ids.is_empty() {
                count(self, after);
                continue;
            }
            for &id in ids {
                let after = self.parser_advance(states[0], id, fuel)?;
                after.into_iter().for_each(|after| count(self, after));
            }
        }
        Ok(match unknown {
            Some(state) if fewest == u32::MAX => Fewest::Needs(state),
            _ => Fewest::Tokens(fewest),
        })
    }

    /// The tokens that begin the canonical completion and leave no more than `num_tokens - 1` to be
    /// written, as [`TokenAutomaton::completing_tokens`] has it; `None` where there is no canonical
    /// completion.
    pub(super) fn parser_completing_tokens(
        &mut self,
        state: StateId,
        num_tokens: u32,
        fuel: &mut Fuel,
    ) -> Result<Option<Vec<u32>>, Stop> {
        if self.parser_needs_search() {
            return Ok(None);
        }
        let index = Arc::clone(&self.index);
        let trie = index.byte_trie();
        let (mut node, mut last) = (ROOT, self.parser_completed_as(state, fuel)?);
        let mut completing = Vec::new();
        loop {
            let (parser, machine) = self.parser();
            let Some((symbol, next)) = parser.toward_end(machine, last, fuel)? else {
                break;
            };
            fuel.burn(1)?;
            let ids = match symbol {
                Symbol::Byte(byte) => match trie.child(node, byte) {
                    Some(child) => {
                        node = child;
                        trie.ids(trie.own(child))
                    }
                    None => break,
                },
                Symbol::Token(ref id) if node == ROOT => std::slice::from_ref(id),
                Symbol::Token(_) => break,
            };
            for &id in ids {
                // By its name it may lead elsewhere than by its text.
                if let Some(after) = self.parser_advance(state, id, fuel)?
                    && self.parser_min_tokens(after, fuel)? < num_tokens
                {
                    completing.push(id);
                }
            }
            if let Symbol::Token(_) = symbol {
                break;
            }
            last = next;
        }
        Ok(Some(completing))
    }
}

/// How many tokens complete a text.
enum Fewest {
    Tokens(u32),
    /// What this state needs has to be known first.
    Needs(StateId),
}

/// The parser as a graph whose edges are tokens.
struct ByTokens<'a>(&'a mut TokenAutomaton);

impl Graph for ByTokens<'_> {
    type State = StateId;

    fn known(&self, state: StateId) -> u32 {
        let known = self.0.grammars.memo.token_distance.get(&state);
        known.copied().unwrap_or(UNKNOWN)
    }

    fn bound(&self, _: StateId) -> u32 {
        0
    }

    fn is_end(&mut self, state: StateId, _: &mut Fuel) -> Result<bool, Stop> {
        Ok(self.0.grammars.parser.is_accepting(state))
    }

    fn successors(&mut self, state: StateId, fuel: &mut Fuel) -> Result<Vec<StateId>, Stop> {
        let reached = self.0.after_tokens(GrammarState::Parser(state), fuel)?;
        let parser = reached.into_iter().filter_map(|next| match next {
            GrammarState::Parser(next) => Some(next),
            GrammarState::Machine(_) => None,
        });
        Ok(parser.collect())
    }

    fn remember(&mut self, state: StateId, distance: u32) {
        self.0.grammars.memo.token_distance.insert(state, distance);
    }
}
