//! Tokens that go on after a language with what follows it.
//!
//! Of an item that follows, most tokens are told by its lexeme and by what its rule has after it. That
//! is kept by lexeme and node, and so is known wherever the rule is called. Where the rule may be over
//! within a token, such as in `+x)`, what is left of the token is again a rest, for what follows the
//! rule: such rests are few, and a trie of them is kept beside the tokens that the rule tells.
//!
//! Where rules may be over in many ways within a token, such as `***` in an ambiguous grammar, each
//! way would have rests of its own. Then the rests are walked once with all that follows the rule, and
//! what is found is known for these contexts only.

use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashMap;

use super::TokenAutomaton;
use super::exit_rests::TokenRanges;
use super::parser_steps::{ALIVE, DEAD_END, MANY_TOKENS};
use crate::earley::{
    Item, LanguageMask, Leave, Lexeme, NUM_KNOWN, Rests, Return, StateId, TokenUnion, UNKNOWN_REST,
};
use crate::index::{ROOT, TokenizerIndex, Trie};
use crate::lexical::{Fuel, Stop};

/// After so many ways to go on with rests they are walked with all that follows.
const MAX_WAYS: usize = 64;

/// With fewer places where tokens are cut it is not worth while to look which were told by others.
const MANY_LEAVES: usize = 64;

/// More places than these are sorted only where they are more than twice as many as before.
const MANY_TO_SORT: usize = 1024;

/// Tokens that go on after a language with a lexeme and what its rule has after it.
pub(super) struct NearExits {
    /// Those that end within the rule.
    ids: Box<[u32]>,
    /// What others go on with where the rule may be over.
    far: Option<Arc<LanguageMask>>,
}

/// What a walk found.
#[derive(Default)]
struct Found {
    /// Tokens that end within the rule, in any order.
    ids: Vec<u32>,
    /// Those of them that were told by the trie of all tokens: however else they may be cut, that tells no
    /// more.
    told: TokenRanges,
    /// Whether these are kept: where tokens are cut at many places.
    keeps_told: bool,
    /// What the rule doesn't tell: places in the trie of bytes,
    leaves: Vec<Leave>,
    /// or tokens of another trie, and how many bytes of each are left.
    rests: Vec<(u32, u32)>,
    /// Whether the rule may be over on the way.
    may_leave: bool,
    /// Depths at which it may on the way to the node that is looked at.
    over: Vec<u32>,
}

/// A trie that is walked.
#[derive(Clone, Copy)]
enum Source<'a> {
    /// That of all tokens by their bytes.
    Bytes(&'a Trie),
    /// One of rests.
    Rests(&'a Trie),
}

impl Found {
    /// Nothing yet.
    fn new(may_leave: bool) -> Self {
        Self {
            may_leave,
            ..Self::default()
        }
    }

    /// Adds tokens of a trie, those of all tokens once.
    fn add(&mut self, source: Source<'_>, tokens: Range<u32>) {
        let (Source::Bytes(trie) | Source::Rests(trie)) = source;
        let is_known = match source {
            Source::Bytes(_) if self.keeps_told => self.told.insert(&tokens, trie.tokens().len()),
            Source::Bytes(_) | Source::Rests(_) => false,
        };
        if !is_known {
            self.ids.extend_from_slice(trie.ids(tokens));
        }
    }

    /// Leaves tokens at and below a node to what follows the rule.
    fn leave(
        &mut self,
        source: Source<'_>,
        node: u32,
        depth: u32,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        if self.over.is_empty() {
            return Ok(());
        }
        let trie = match source {
            Source::Rests(rests) => rests,
            Source::Bytes(bytes) => {
                fuel.burn(self.over.len() as u64)?;
                let last = match bytes.children(node).is_empty() {
                    true => (bytes.below(node).start, bytes.below(node).end),
                    false => (0, 0),
                };
                let leaves = self.over.iter().map(|&over| Leave {
                    node,
                    depth: over,
                    at: depth - 1,
                    rest: UNKNOWN_REST,
                    last,
                });
                self.leaves.extend(leaves);
                return Ok(());
            }
        };
        let mut pending = vec![(node, depth)];
        while let Some((node, depth)) = pending.pop() {
            let ids = trie.ids(trie.own(node));
            fuel.burn(1 + (ids.len() * self.over.len()) as u64)?;
            for &id in ids {
                let rests = self.over.iter().map(|&over| (id, depth - over));
                self.rests.extend(rests);
            }
            pending.extend(trie.children(node).map(|child| (child, depth + 1)));
        }
        Ok(())
    }
}

/// Whether few of some places come more than once, for their number and that of places before: to sort
/// thousands takes longer than to look at them.
fn seldom_twice(num_places: usize, num_before: usize) -> bool {
    let most = match num_places > MANY_TO_SORT {
        true => 2 * num_before,
        false => num_before / 2,
    };
    num_places <= most
}

impl TokenAutomaton {
    /// Adds the tokens that go on after a language with an item, large ends apart.
    pub(super) fn add_language_exits(
        &mut self,
        alone: &Arc<LanguageMask>,
        item: Item,
        union: &mut TokenUnion,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        let whole = item;
        let mut pending = vec![(Arc::clone(alone), item)];
        // The rests that came to each item.
        let mut seen: HashMap<Item, Vec<Arc<LanguageMask>>> = HashMap::new();
        seen.insert(item, vec![Arc::clone(alone)]);
        let mut num_ways = 0;
        while let Some((rests, item)) = pending.pop() {
            num_ways += 1;
            if num_ways > MAX_WAYS {
                let start = self.grammars.parser.single(whole, fuel)?;
                let mut found = Found::new(false);
                self.walk_rests_of(alone, start, &mut found, fuel)?;
                union.add_ids(&found.ids);
                return Ok(());
            }
            self.grammars.parser.note(&[item.context]);
            for place in self.grammars.parser.returns(item.context) {
                fuel.burn(1)?;
                let near = self.near_exits(&rests, item.lexeme, place, fuel)?;
                union.add_ids(&near.ids);
                let Some(far) = &near.far else { continue };
                for follower in self.grammars.parser.first_items(place.context, fuel)? {
                    let follower = follower.uncounted();
                    if !self.may_exit(far, follower, fuel)? {
                        continue;
                    }
                    let seen = seen.entry(follower).or_default();
                    if seen.iter().any(|seen| seen.number == far.number) {
                        continue;
                    }
                    let new = self.rests_less(far, seen, fuel)?;
                    seen.push(Arc::clone(far));
                    pending.extend(new.map(|new| (new, follower)));
                }
            }
        }
        Ok(())
    }

    /// What a lexeme and a place in its rule tell of the tokens that leave a language.
    fn near_exits(
        &mut self,
        alone: &LanguageMask,
        lexeme: Lexeme,
        place: Return,
        fuel: &mut Fuel,
    ) -> Result<Arc<NearExits>, Stop> {
        let key = (alone.number, lexeme, place.node);
        if let Some(known) = self.grammars.memo.near_exits.get(&key) {
            return Ok(Arc::clone(known));
        }
        // Nothing that is found depends on a context.
        let paused = self.grammars.parser.pause_recording();
        let found = self.find_near_exits(alone, lexeme, place, fuel);
        self.grammars.parser.resume_recording(paused);
        let near = Arc::new(self.near_exits_of(alone, found?, fuel)?);
        let memo = &mut self.grammars.memo;
        memo.bytes += size_of::<NearExits>() + size_of_val(&*near.ids);
        memo.near_exits.insert(key, Arc::clone(&near));
        Ok(near)
    }

    fn near_exits_of(
        &mut self,
        alone: &LanguageMask,
        found: Found,
        fuel: &mut Fuel,
    ) -> Result<NearExits, Stop> {
        let Found {
            ids,
            told,
            mut leaves,
            rests,
            ..
        } = found;
        // What is told needs no more.
        let index = Arc::clone(&self.index);
        let trie = index.byte_trie();
        fuel.burn(leaves.len() as u64 / 4)?;
        leaves.retain(|leave| !told.has_all(&leave.tokens(trie)));
        let far = match leaves.is_empty() {
            true if rests.is_empty() => None,
            true => Some(self.rests_of_tokens(rests, fuel)?),
            // Those that are cut in many ways come more than once, others are seldom worth the sorting.
            false if seldom_twice(leaves.len(), alone.num_places()) => {
                Some(self.some_rests_at(leaves))
            }
            false => Some(self.rests_at(leaves, fuel)?),
        };
        Ok(NearExits {
            ids: ids.into(),
            far,
        })
    }

    fn find_near_exits(
        &mut self,
        alone: &LanguageMask,
        lexeme: Lexeme,
        place: Return,
        fuel: &mut Fuel,
    ) -> Result<Found, Stop> {
        let item = self.grammars.parser.item_within(lexeme, place);
        let start = self.grammars.parser.single(item, fuel)?;
        let mut found = Found::new(true);
        self.walk_rests_of(alone, start, &mut found, fuel)?;
        Ok(found)
    }

    /// Walks what tokens go on with after a language from a state, large ends apart.
    fn walk_rests_of(
        &mut self,
        alone: &LanguageMask,
        start: StateId,
        found: &mut Found,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        let start = self.number(start, fuel)?;
        let places = match &alone.rests {
            Rests::Trie(rests) => {
                let rests = Source::Rests(rests);
                return self.near_walk(rests, (ROOT, 0, start), found, fuel);
            }
            Rests::Places(places) => places,
        };
        let index = Arc::clone(&self.index);
        found.keeps_told = places.leaves.len() >= MANY_LEAVES;
        let mut begin = 0;
        for &(byte, end) in &places.first_bytes {
            let leaves = &places.leaves[begin as usize..end as usize];
            begin = end;
            fuel.burn(1)?;
            if !self.may_step(start, byte, fuel)? {
                continue;
            }
            for leave in leaves {
                found.over.clear();
                self.near_leave(&index, leave, start, found, fuel)?;
            }
        }
        Ok(())
    }

    /// Of one place, whose rest a state may begin with.
    fn near_leave(
        &mut self,
        index: &TokenizerIndex,
        leave: &Leave,
        start: u32,
        found: &mut Found,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        let trie = index.byte_trie();
        if found.told.has_all(&leave.tokens(trie)) {
            return Ok(());
        }
        let num_bytes = leave.num_bytes();
        let known = &leave.rest[..num_bytes.min(NUM_KNOWN)];
        let more = leave.later_bytes(|node| index.text_below(node));
        let last = leave.last_tokens();
        let mut state = start;
        for (depth, &byte) in (leave.depth + 1..).zip(known.iter().chain(more)) {
            fuel.burn(1)?;
            let is_last = last.is_some() && depth > leave.at;
            state = match is_last {
                true if self.may_step(state, byte, fuel)? => ALIVE,
                true => DEAD_END,
                false => self.numbered_step(state, byte, fuel)?,
            };
            if state == DEAD_END {
                let first = found.leaves.len();
                found.leave(Source::Bytes(trie), leave.node, leave.at + 1, fuel)?;
                if num_bytes <= NUM_KNOWN {
                    // What is left of a rest that is known.
                    for left in &mut found.leaves[first..] {
                        let before = (left.depth - leave.depth) as usize;
                        let rest = known.get(before..).unwrap_or_default();
                        left.rest[..rest.len()].copy_from_slice(rest);
                    }
                }
                return Ok(());
            }
            if found.may_leave && depth <= leave.at && self.grammars.memo.steps.is_over(state) {
                found.over.push(depth);
            }
        }
        let own = last.unwrap_or_else(|| trie.own(leave.node));
        found.add(Source::Bytes(trie), own);
        match state {
            ALIVE => Ok(()),
            state => {
                let from = (leave.node, leave.at + 1, state);
                self.near_walk(Source::Bytes(trie), from, found, fuel)
            }
        }
    }

    /// Walks what is below a node, at a depth, from a state.
    fn near_walk(
        &mut self,
        source: Source<'_>,
        from: (u32, u32, u32),
        found: &mut Found,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        let (Source::Bytes(trie) | Source::Rests(trie)) = source;
        let mut pending = vec![from];
        while let Some((node, depth, state)) = pending.pop() {
            while found.over.last().is_some_and(|&over| over >= depth) {
                found.over.pop();
            }
            if found.may_leave && self.grammars.memo.steps.is_over(state) {
                found.over.push(depth);
            }
            let children = trie.children(node);
            if trie.below(node).len() >= MANY_TOKENS && trie.labels_below(node).is_some() {
                self.look_for_lasting(state, fuel)?;
            }
            if self.all_go_on(state, trie.labels_below(node)) {
                let after = trie.own(node).end..trie.below(node).end;
                found.add(source, after);
                continue;
            }
            let bytes = self.grammars.memo.steps.bytes(state);
            // What can't go on leaves nothing where the rule isn't over.
            let is_few = found.over.is_empty() && bytes.len() * 4 < children.len();
            let few = is_few.then(|| bytes.iter().filter_map(|byte| trie.child(node, byte)));
            let all = (!is_few).then_some(children);
            for child in few.into_iter().flatten().chain(all.into_iter().flatten()) {
                fuel.burn(1)?;
                if self.all_go_on(state, trie.labels_from(child)) {
                    found.add(source, trie.below(child));
                    continue;
                }
                let byte = trie.label(child);
                let is_last = trie.children(child).is_empty();
                let next = match is_last {
                    true if self.may_step(state, byte, fuel)? => ALIVE,
                    true => DEAD_END,
                    false => self.numbered_step(state, byte, fuel)?,
                };
                if next == DEAD_END {
                    found.leave(source, child, depth + 1, fuel)?;
                    continue;
                }
                found.add(source, trie.own(child));
                if !is_last {
                    pending.push((child, depth + 1, next));
                }
            }
        }
        Ok(())
    }
}
