//! Tokens that go on after the end of JSON with what follows it in a grammar.
//!
//! As with a language, what is left of each such token after the value is a rest, and the rests are
//! known by the value's state alone, whatever follows. They are few: a token has to close all that is
//! open.
//!
//! A value may be over in two kinds of places within a token.
//! * In the lexeme that the token begins in, or at its end. The parts of that lexeme know tokens by the
//!   *last* place where the lexeme may end: of `1.5` they know nothing where an integer is read, since
//!   `1.` goes on as an integer does and `1.5` is none. But the value is over after the `1`, and what
//!   follows it in the grammar may begin with `.5`. So the parts are only asked where the value can't be
//!   over before the last place (`ends_for_good`): where no text with which the lexeme ends the value is
//!   the beginning of another text of the lexeme. Then a token has one such place at most, and after it
//!   the lexeme is a mark and goes on by no byte, so a token that has one and is longer is an exit of a
//!   part, at that place. Before the lexeme ends so, the value isn't over, and the longest text is the
//!   machine's own rule. That is asked of the whole lexeme and not of the parts that have exits: a part
//!   none of whose tokens leave it at the last place may still have lost some before.
//! * In a later lexeme. There the machine is walked byte by byte, and at each the value is asked
//!   whether it is over.
//!
//! Where a token begins, what follows the value is read beside it if the value may be over there: that
//! is the parser's, not looked at here.

use std::sync::Arc;

use super::TokenAutomaton;
use super::memo::{Exits, LexemeMask, Part};
use crate::earley::{LanguageMask, Rests, Tokens};
use crate::index::{ROOT, TokenizerIndex, Trie};
use crate::lexical::{Fuel, MANY_MARKS, NO_MARK, Stop};
use crate::pushdown::State;

/// With more rests than these the tokens are looked at one by one.
const MOST_RESTS: usize = 8 << 10;

/// A lexeme that may end a value has fewer states, but for lists of words.
const MOST_STATES: usize = 128;

/// Tokens with the number of their bytes that are left after the value; `None` where it can't be told
/// without more than the state's lexemes.
type Left = Option<Vec<(u32, u32)>>;

/// A place that a walk starts from.
#[derive(Clone, Copy)]
struct Reached {
    state: State,
    /// Whether the value may be over there.
    is_over: bool,
    /// Whether that depends on a text that was left out.
    reads_text: bool,
}

impl TokenAutomaton {
    /// What tokens go on with after the value that a state is within. `None` where that depends on the
    /// text of a key or an item, where the value may go on with what may follow it, and where it is
    /// much.
    pub(super) fn rests_beyond(
        &mut self,
        state: State,
        fuel: &mut Fuel,
    ) -> Result<Option<Arc<LanguageMask>>, Stop> {
        if let Some(known) = self.grammars.memo.beyond.get(&state) {
            return Ok(known.clone());
        }
        let left = match self.writes_any_text && !state.has_text() {
            true => {
                self.machine.start_recording();
                self.machine.skip_texts(true);
                let left = self.left_beyond(state, fuel);
                self.machine.skip_texts(false);
                self.machine.stop_recording();
                left?
            }
            false => None,
        };
        let index = Arc::clone(&self.index);
        let found = left.map(|left| {
            let rests = left.iter().map(|&(id, num_bytes)| {
                let bytes = index.info().token_bytes(id);
                (id, &bytes[bytes.len() - num_bytes as usize..])
            });
            Arc::new(LanguageMask {
                tagged: Box::default(),
                number: self.grammars.memo.languages.next_number(),
                inside: Tokens::default(),
                rests: Rests::Trie(Trie::of_bytes(rests)),
            })
        });
        let memo = &mut self.grammars.memo;
        memo.bytes += found.as_ref().map_or(0, |found| found.memory_bytes());
        memo.beyond.insert(state, found.clone());
        Ok(found)
    }

    /// Whether the value that a state is within may be over where the lexeme that the next token begins in
    /// could go on: then a token may leave the value though no part of that lexeme knows it as an exit. True
    /// too where that can't be told.
    pub(super) fn may_end_early(&mut self, state: State, fuel: &mut Fuel) -> Result<bool, Stop> {
        self.machine.start_recording();
        self.machine.skip_texts(true);
        let ends_for_good = self.all_end_for_good(state, fuel);
        self.machine.skip_texts(false);
        self.machine.stop_recording();
        Ok(!ends_for_good?)
    }

    /// Whether each lexeme that a token may begin in ends for good.
    fn all_end_for_good(&mut self, state: State, fuel: &mut Fuel) -> Result<bool, Stop> {
        let mut at = state;
        loop {
            at.lexeme = self.machine.lexicon.saturated(at.lexeme);
            if !self.ends_for_good(at, fuel)? {
                return Ok(false);
            }
            match self.machine.lexicon.end_mark(at.lexeme) {
                NO_MARK => return Ok(true),
                mark => at = self.machine.end_lexeme(at, mark, fuel)?,
            }
            if self.machine.reads.text.take().is_some() || self.machine.reads.may_widen {
                return Ok(false);
            }
        }
    }

    fn left_beyond(&mut self, state: State, fuel: &mut Fuel) -> Result<Left, Stop> {
        let lexeme = self.machine.lexicon.saturated(state.lexeme);
        let mut at = State { lexeme, ..state };
        let mut all = Vec::new();
        loop {
            if !self.ends_for_good(at, fuel)? {
                return Ok(None);
            }
            for part in self.parts(at.lexeme, fuel)?.iter() {
                let Some(left) = self.left_by_part(part, at, fuel)? else {
                    return Ok(None);
                };
                all.extend(left);
                if all.len() > MOST_RESTS {
                    return Ok(None);
                }
            }
            // The lexeme may end before the token begins.
            match self.machine.lexicon.end_mark(at.lexeme) {
                NO_MARK => return Ok(Some(all)),
                mark => at = self.machine.end_lexeme(at, mark, fuel)?,
            }
            if self.machine.reads.text.take().is_some() || self.machine.reads.may_widen {
                return Ok(None);
            }
            at.lexeme = self.machine.lexicon.saturated(at.lexeme);
        }
    }

    /// Of the tokens that a part of a state's lexeme knows.
    fn left_by_part(&mut self, part: &Part, state: State, fuel: &mut Fuel) -> Result<Left, Stop> {
        let Part { mask, mark } = part;
        let Some(mut all) = self.left_by_exits(mask, *mark, state, fuel)? else {
            return Ok(None);
        };
        if let Some(reference) = &mask.reference {
            let Some(left) = self.left_by_exits(&reference.mask, *mark, state, fuel)? else {
                return Ok(None);
            };
            let is_kept = |(id, _): &(u32, u32)| reference.less.binary_search(id).is_err();
            all.extend(left.into_iter().filter(is_kept));
        }
        Ok(Some(all))
    }

    /// Of the tokens that leave the lexeme. `mark` stands for mark 0.
    fn left_by_exits(
        &mut self,
        part: &LexemeMask,
        mark: Option<u16>,
        state: State,
        fuel: &mut Fuel,
    ) -> Result<Left, Stop> {
        let index = Arc::clone(&self.index);
        let mut all = Vec::new();
        for (own_mark, exits) in &part.exits {
            let mark = mark.unwrap_or(*own_mark);
            let start = self.machine.end_lexeme(state, mark, fuel)?;
            let is_over = self.machine.is_accepting(start, fuel)?;
            let reads_text = self.machine.reads.text.take().is_some();
            if self.machine.reads.may_widen || (is_over && reads_text) {
                return Ok(None);
            }
            let start = Reached {
                state: start,
                is_over,
                reads_text,
            };
            let found = match exits {
                Exits::Suffixes(trie) => {
                    let nodes = trie.children(ROOT).collect();
                    self.left_in_trie(trie, &index, nodes, 0, start, fuel)?
                }
                Exits::Nodes(nodes) => {
                    let trie = index.byte_trie();
                    let mut left = Some(Vec::new());
                    for &node in nodes {
                        let depth = depth_of(&index, node) - 1;
                        let nodes = vec![node];
                        let more = self.left_in_trie(trie, &index, nodes, depth, start, fuel)?;
                        left = both(left, more);
                    }
                    left
                }
                Exits::After(after) => {
                    let trie = index.byte_trie();
                    let mut left = Some(Vec::new());
                    for (node, leaving) in after {
                        let nodes = trie.children(*node);
                        let nodes = nodes.filter(|&child| leaving.contains(trie.label(child)));
                        let depth = depth_of(&index, *node);
                        let nodes = nodes.collect();
                        let more = self.left_in_trie(trie, &index, nodes, depth, start, fuel)?;
                        left = both(left, more);
                    }
                    left
                }
            };
            match found {
                Some(left) if all.len() + left.len() <= MOST_RESTS => all.extend(left),
                _ => return Ok(None),
            }
        }
        Ok(Some(all))
    }

    /// Walks from a place by the bytes of some nodes, which lie below one at a depth.
    fn left_in_trie(
        &mut self,
        trie: &Trie,
        index: &TokenizerIndex,
        nodes: Vec<u32>,
        depth: u32,
        start: Reached,
        fuel: &mut Fuel,
    ) -> Result<Left, Stop> {
        let is_whole = std::ptr::eq(trie, index.byte_trie());
        let mut left = Vec::new();
        // Depths at which the value may be over, on the way to the node that is looked at.
        let mut over = Vec::from_iter(start.is_over.then_some(depth));
        let nodes = nodes.into_iter();
        let mut pending: Vec<(u32, u32, State, bool)> = nodes
            .map(|node| (node, depth + 1, start.state, start.reads_text))
            .collect();
        while let Some((node, depth, state, reads_text)) = pending.pop() {
            fuel.burn(1)?;
            while over.last().is_some_and(|&over| over >= depth) {
                over.pop();
            }
            let next = self.machine.step(state, trie.label(node), fuel)?;
            let Some(next) = next else {
                self.machine.reads.text = None;
                if over.is_empty() {
                    continue;
                }
                let tokens = trie.below(node);
                fuel.burn((tokens.len() * over.len()) as u64)?;
                if left.len() + tokens.len() * over.len() > MOST_RESTS {
                    return Ok(None);
                }
                let lengths = match is_whole {
                    true => None,
                    false => Some(lengths_below(trie, node, depth)),
                };
                for (at, &id) in trie.ids(tokens).iter().enumerate() {
                    let length = match &lengths {
                        None => index.info().token_bytes(id).len() as u32,
                        Some(lengths) => lengths.get(at).copied().unwrap_or_default(),
                    };
                    left.extend(over.iter().map(|over| (id, length - over)));
                }
                continue;
            };
            let is_over = self.machine.is_accepting(next, fuel)?;
            let reads_text = reads_text | self.machine.reads.text.take().is_some();
            if self.machine.reads.may_widen || (is_over && reads_text) {
                return Ok(None);
            }
            if is_over {
                over.push(depth);
            }
            let children = trie.children(node);
            pending.extend(children.map(|child| (child, depth + 1, next, reads_text)));
        }
        Ok(Some(left))
    }

    /// Whether a state's lexeme goes on after no text, other than the empty one, with which it ends and
    /// the value is over. False too where that takes many states, or depends on a text that is left out.
    fn ends_for_good(&mut self, state: State, fuel: &mut Fuel) -> Result<bool, Stop> {
        // Mostly no mark ends the value, and nothing has to be looked at.
        let mut marks: Vec<(u16, bool)> = Vec::new();
        let mut has_over = false;
        for expr in self.machine.lexicon.alternatives(state.lexeme) {
            has_over |= match self.machine.lexicon.sole_mark(expr) {
                MANY_MARKS => true,
                NO_MARK => false,
                mark => self.may_be_over(state, mark, &mut marks, fuel)?,
            };
        }
        if !has_over {
            return Ok(true);
        }
        let mut states = vec![state.lexeme];
        let mut at = 0;
        while let Some(&expr) = states.get(at) {
            at += 1;
            for (_, next) in self.machine.lexicon.derivatives(expr, fuel)? {
                fuel.burn(1)?;
                if self.machine.lexicon.is_mark(next) {
                    continue;
                }
                let mark = self.machine.lexicon.end_mark(next);
                if mark != NO_MARK && self.may_be_over(state, mark, &mut marks, fuel)? {
                    return Ok(false);
                }
                if states.contains(&next) {
                    continue;
                }
                if states.len() == MOST_STATES {
                    return Ok(false);
                }
                states.push(next);
            }
        }
        Ok(true)
    }

    /// Whether the value may be over where a state's lexeme ends with a mark; also where that is told by
    /// a text that is left out.
    fn may_be_over(
        &mut self,
        state: State,
        mark: u16,
        known: &mut Vec<(u16, bool)>,
        fuel: &mut Fuel,
    ) -> Result<bool, Stop> {
        if let Some((_, is_over)) = known.iter().find(|(known, _)| *known == mark) {
            return Ok(*is_over);
        }
        let next = self.machine.end_lexeme(state, mark, fuel)?;
        let mut is_over = self.machine.is_accepting(next, fuel)?;
        is_over |= std::mem::take(&mut self.machine.reads.may_widen);
        self.machine.reads.text = None;
        known.push((mark, is_over));
        Ok(is_over)
    }
}

fn both(all: Left, more: Left) -> Left {
    let (mut all, more) = (all?, more?);
    all.extend(more);
    (all.len() <= MOST_RESTS).then_some(all)
}

/// How many bytes lead to a node of the trie of bytes.
fn depth_of(index: &TokenizerIndex, node: u32) -> u32 {
    let trie = index.byte_trie();
    let mut at = ROOT;
    let mut depth = 0;
    for &byte in index.text_below(node) {
        if at == node {
            break;
        }
        let Some(child) = trie.child(at, byte) else {
            break;
        };
        (at, depth) = (child, depth + 1);
    }
    depth
}

/// The lengths of the words of the tokens below a node, which has a depth, in their order.
fn lengths_below(trie: &Trie, node: u32, depth: u32) -> Vec<u32> {
    let below = trie.below(node);
    let mut lengths = vec![0; below.len()];
    let mut pending = vec![(node, depth)];
    while let Some((node, depth)) = pending.pop() {
        for own in trie.own(node) {
            lengths[(own - below.start) as usize] = depth;
        }
        pending.extend(trie.children(node).map(|child| (child, depth + 1)));
    }
    lengths
}
