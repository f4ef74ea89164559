//! Tokens that go on after a language with what follows it.
//!
//! Of an item that follows, most tokens are told by its lexeme and its own context: those that end
//! with it, or within what is read next. That is kept under this much, and so is known at any depth of
//! nesting. Only tokens that come out of the item's rule, such as `+x)`, are looked at for each
//! context around it.

use std::sync::Arc;

use super::TokenAutomaton;
use super::context_free::Grammars;
use super::parser_steps::DEAD_END;
use crate::earley::{ContextId, Item, LanguageMask, Leave, NUM_KNOWN, Places, Rests};
use crate::index::{ROOT, Trie};
use crate::lexical::{Fuel, OutOfFuel};

/// Tokens that go on after a language with an item, as far as the item's own context tells.
pub(super) struct NearExits {
    ids: Arc<[u32]>,
    /// Where that depends on the contexts below it.
    open: Box<[Leave]>,
}

/// What a walk found.
#[derive(Default)]
struct Found {
    /// Contexts that are not to be looked into.
    far: Vec<ContextId>,
    ids: Vec<u32>,
    open: Vec<Leave>,
}

impl TokenAutomaton {
    /// The tokens that go on after a language with an item, large ends apart.
    pub(super) fn exits(
        &mut self,
        alone: &LanguageMask,
        item: Item,
        fuel: &mut Fuel,
    ) -> Result<Arc<[u32]>, OutOfFuel> {
        let near = match &alone.rests {
            Rests::Places(places) => Some(self.near_exits(alone.number, places, item, fuel)?),
            Rests::Trie(_) => None,
        };
        if let Some(near) = &near
            && near.open.is_empty()
        {
            return Ok(Arc::clone(&near.ids));
        }
        let key = (alone.number, item.lexeme);
        let Grammars { parser, memo } = &mut self.grammars;
        if let Some(known) = parser.recall(&memo.exits, key, item.context) {
            return Ok(known);
        }
        let interrupted = self.grammars.parser.start_recording();
        let found = self.find_exits(alone, near.as_deref(), item, fuel);
        let reads = self.grammars.parser.stop_recording(interrupted);
        let ids: Arc<[u32]> = found?.into();
        let Grammars { parser, memo } = &mut self.grammars;
        memo.bytes += size_of_val(&*ids);
        let value = Arc::clone(&ids);
        parser.remember(&mut memo.exits, key, item.context, &reads, value);
        Ok(ids)
    }

    fn find_exits(
        &mut self,
        alone: &LanguageMask,
        near: Option<&NearExits>,
        item: Item,
        fuel: &mut Fuel,
    ) -> Result<Vec<u32>, OutOfFuel> {
        let start = self.grammars.parser.single(item, fuel)?;
        let start = self.number(start, fuel)?;
        let mut ids = Vec::new();
        if let Some(near) = near {
            // What is known of it depends on this much.
            self.grammars.parser.note(&[item.context]);
            ids.extend_from_slice(&near.ids);
            for leave in &near.open {
                self.add_leave(leave, start, &mut ids, fuel)?;
            }
        } else if let Rests::Trie(rests) = &alone.rests {
            let add = |tokens: &[u32]| ids.extend_from_slice(tokens);
            self.walk_below(rests, ROOT, start, fuel, add)?;
        }
        Ok(ids)
    }

    /// Adds the tokens of one place whose rests a state allows.
    fn add_leave(
        &mut self,
        leave: &Leave,
        start: u32,
        ids: &mut Vec<u32>,
        fuel: &mut Fuel,
    ) -> Result<(), OutOfFuel> {
        let index = Arc::clone(&self.index);
        let trie = index.byte_trie();
        let mut state = start;
        let num_known = leave.num_bytes().min(NUM_KNOWN);
        let known = &leave.rest[..num_known];
        let more = leave.later_bytes(|node| index.text_below(node));
        for &byte in known.iter().chain(more) {
            fuel.burn(1)?;
            state = self.numbered_step(state, byte, fuel)?;
            if state == DEAD_END {
                return Ok(());
            }
        }
        ids.extend_from_slice(trie.ids(trie.own(leave.node)));
        let add = |tokens: &[u32]| ids.extend_from_slice(tokens);
        self.walk_below(trie, leave.node, state, fuel, add)
    }

    /// What an item's own context tells of the tokens at places of the trie of bytes.
    fn near_exits(
        &mut self,
        number: u32,
        places: &Places,
        item: Item,
        fuel: &mut Fuel,
    ) -> Result<Arc<NearExits>, OutOfFuel> {
        let key = (number, item.lexeme);
        let Grammars { parser, memo } = &mut self.grammars;
        if let Some(known) = parser.recall(&memo.near_exits, key, item.context) {
            return Ok(known);
        }
        let start = self.grammars.parser.single(item, fuel)?;
        let start = self.number(start, fuel)?;
        // Nothing that is found depends on more than the item's own context.
        let paused = self.grammars.parser.pause_recording();
        let found = self.find_near_exits(places, start, item.context, fuel);
        self.grammars.parser.resume_recording(paused);
        let near = Arc::new(found?);
        self.grammars.parser.note(&[item.context]);
        let Grammars { parser, memo } = &mut self.grammars;
        memo.bytes += size_of::<NearExits>() + size_of_val(&*near.ids) + size_of_val(&*near.open);
        let value = Arc::clone(&near);
        let reads = [item.context];
        parser.remember(&mut memo.near_exits, key, item.context, &reads, value);
        Ok(near)
    }

    fn find_near_exits(
        &mut self,
        places: &Places,
        start: u32,
        context: ContextId,
        fuel: &mut Fuel,
    ) -> Result<NearExits, OutOfFuel> {
        let index = Arc::clone(&self.index);
        let trie = index.byte_trie();
        let mut found = Found {
            far: self.grammars.parser.below(context),
            ..Found::default()
        };
        let mut begin = 0;
        for &(byte, end) in &places.first_bytes {
            let leaves = &places.leaves[begin as usize..end as usize];
            begin = end;
            fuel.burn(1)?;
            let first = match self.near_step(start, byte, &found.far, fuel)? {
                Some(DEAD_END) => continue,
                Some(first) => first,
                None => {
                    found.open.extend_from_slice(leaves);
                    continue;
                }
            };
            for leave in leaves {
                let mut state = Some(first);
                let num_known = leave.num_bytes().min(NUM_KNOWN);
                let mut read = |automaton: &mut Self, bytes: &[u8], fuel: &mut Fuel| {
                    for &byte in bytes {
                        fuel.burn(1)?;
                        state = match state {
                            None | Some(DEAD_END) => break,
                            Some(state) => automaton.near_step(state, byte, &found.far, fuel)?,
                        };
                    }
                    Ok(state)
                };
                let mut state = read(self, &leave.rest[1..num_known], fuel)?;
                if leave.num_bytes() > num_known && !matches!(state, None | Some(DEAD_END)) {
                    let more = leave.later_bytes(|node| index.text_below(node));
                    state = read(self, more, fuel)?;
                }
                match state {
                    None => found.open.push(*leave),
                    Some(DEAD_END) => {}
                    Some(state) => {
                        let own = trie.ids(trie.own(leave.node));
                        found.ids.extend_from_slice(own);
                        self.near_walk(trie, *leave, state, &mut found, fuel)?;
                    }
                }
            }
        }
        Ok(NearExits {
            ids: found.ids.into(),
            open: found.open.into(),
        })
    }

    /// Walks what is below a place, as far as no other context is looked into.
    fn near_walk(
        &mut self,
        trie: &Trie,
        leave: Leave,
        state: u32,
        found: &mut Found,
        fuel: &mut Fuel,
    ) -> Result<(), OutOfFuel> {
        let mut pending = vec![(leave, state)];
        while let Some((leave, state)) = pending.pop() {
            for child in trie.children(leave.node) {
                fuel.burn(1)?;
                let byte = trie.label(child);
                let below = leave.child(child, byte);
                match self.near_step(state, byte, &found.far, fuel)? {
                    None => found.open.push(below),
                    Some(DEAD_END) => {}
                    Some(next) => {
                        found.ids.extend_from_slice(trie.ids(trie.own(child)));
                        if !trie.children(child).is_empty() {
                            pending.push((below, next));
                        }
                    }
                }
            }
        }
        Ok(())
    }
}
