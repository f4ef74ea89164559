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
use crate::index::{ROOT, TokenizerIndex, Trie};
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
        let num_known = leave.num_bytes().min(NUM_KNOWN);
        let known = &leave.rest[..num_known];
        let more = leave.later_bytes(|node| index.text_below(node));
        let mut state = start;
        for (at, &byte) in known.iter().chain(more).enumerate() {
            fuel.burn(1)?;
            if leave.is_last && at + 1 == leave.num_bytes() {
                if self.may_step(state, byte, fuel)? {
                    ids.extend_from_slice(trie.ids(trie.own(leave.node)));
                }
                return Ok(());
            }
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
        let mut found = Found {
            far: self.grammars.parser.below(context),
            ..Found::default()
        };
        let mut begin = 0;
        for &(byte, end) in &places.first_bytes {
            let leaves = &places.leaves[begin as usize..end as usize];
            begin = end;
            fuel.burn(1)?;
            if !self.may_step(start, byte, fuel)? {
                continue;
            }
            for leave in leaves {
                fuel.burn(1)?;
                self.find_near(&index, *leave, start, &mut found, fuel)?;
            }
        }
        Ok(NearExits {
            ids: found.ids.into(),
            open: found.open.into(),
        })
    }

    /// Of one place, whose rest a state may begin with.
    fn find_near(
        &mut self,
        index: &TokenizerIndex,
        leave: Leave,
        start: u32,
        found: &mut Found,
        fuel: &mut Fuel,
    ) -> Result<(), OutOfFuel> {
        let trie = index.byte_trie();
        let num_known = leave.num_bytes().min(NUM_KNOWN);
        let mut state = start;
        let mut at = 0;
        loop {
            let byte = match at < num_known {
                true => leave.rest[at],
                false => {
                    let more = leave.later_bytes(|node| index.text_below(node));
                    match more.get(at - num_known) {
                        Some(&byte) => byte,
                        None => break,
                    }
                }
            };
            at += 1;
            if leave.is_last && at == leave.num_bytes() {
                if self.may_step(state, byte, fuel)? {
                    found.ids.extend_from_slice(trie.ids(trie.own(leave.node)));
                }
                return Ok(());
            }
            fuel.burn(1)?;
            match self.near_step(state, byte, &found.far, fuel)? {
                None => {
                    found.open.push(leave);
                    return Ok(());
                }
                Some(DEAD_END) => return Ok(()),
                Some(next) => state = next,
            }
        }
        found.ids.extend_from_slice(trie.ids(trie.own(leave.node)));
        self.near_walk(trie, leave, state, found, fuel)
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
                let is_last = trie.children(child).is_empty();
                if is_last {
                    if self.may_step(state, byte, fuel)? {
                        found.ids.extend_from_slice(trie.ids(trie.own(child)));
                    }
                    continue;
                }
                let below = leave.child(child, byte);
                match self.near_step(state, byte, &found.far, fuel)? {
                    None => found.open.push(below),
                    Some(DEAD_END) => {}
                    Some(next) => {
                        found.ids.extend_from_slice(trie.ids(trie.own(child)));
                        pending.push((below, next));
                    }
                }
            }
        }
        Ok(())
    }
}
