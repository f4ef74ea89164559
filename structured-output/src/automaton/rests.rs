//! What the rests of tokens do within the lexemes that follow one.
//!
//! A token that goes on after its lexeme walks through the lexemes that follow. What it does within
//! each of them depends on that lexeme alone; only which lexeme comes next depends on the frames. So a
//! walk is put together from walks within lexemes, each kept under the lexeme and the rests that came
//! to it: after a name, what tokens do in the white space before its value is known, and then what they
//! do in a string, and then what they do in the comma, whatever names and frames these are.

use std::sync::Arc;

use super::{State, TokenAutomaton};
use crate::index::Trie;
use crate::lexical::{EMPTY, ExprId, Fuel, NO_MARK, Stop};

/// So many derivatives of a walk are made one by one; where it goes on, by rows.
const MOST_ONCE: u32 = 4;

/// Rests of some tokens: nodes of a trie that the next byte leads to.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum RestsId {
    /// Those that go on after a part of a lexeme, by its number and the number among its exits.
    OfPart(u32, u32),
    /// Those of other rests that go on after a lexeme.
    Further(u32),
}

/// What some rests do in a lexeme.
pub(super) struct InLexeme {
    /// Tokens that end within it.
    inside: Box<[u32]>,
    /// Those that go on after it, by mark.
    leaving: Box<[Leaving]>,
}

/// Rests that leave a lexeme with a mark. Each node comes with what was left of the lexeme before it.
struct Leaving {
    mark: u16,
    /// Nodes whose byte belongs to what follows.
    beyond: Box<[(u32, ExprId)]>,
    /// Nodes with whose byte the lexeme is over: what is below them belongs to what follows.
    last: Box<[(u32, ExprId)]>,
    /// What goes on.
    rests: RestsId,
}

/// Lists for walks within lexemes, kept from one to the next.
#[derive(Default)]
pub(super) struct RestsScratch {
    inside: Vec<u32>,
    pending: Vec<(u32, ExprId)>,
    /// Marks, whether a node's byte is the lexeme's last, nodes, and what was left before them.
    leaving: Vec<(u16, bool, u32, ExprId)>,
}

impl RestsScratch {
    fn clear(&mut self) {
        self.inside.clear();
        self.pending.clear();
        self.leaving.clear();
    }
}

impl InLexeme {
    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        let leaving = self.leaving.iter();
        let nodes = leaving.map(|leaving| leaving.beyond.len() + leaving.last.len());
        size_of::<Self>()
            + size_of_val(&*self.inside)
            + size_of_val(&*self.leaving)
            + nodes.sum::<usize>() * size_of::<(u32, ExprId)>()
    }
}

impl Leaving {
    /// The nodes that the next byte leads to.
    fn nodes(&self, trie: &Trie) -> Vec<u32> {
        let below = self.last.iter().flat_map(|&(node, _)| trie.children(node));
        let beyond = self.beyond.iter().map(|&(node, _)| node);
        beyond.chain(below).collect()
    }
}

impl TokenAutomaton {
    /// Adds to `ids` the tokens among some rests that a state allows which is at the start of a lexeme,
    /// as far as that depends on no text of a key or an item. What does is returned: nodes, each with the
    /// state before its byte.
    ///
    /// `nodes` are the rests that a byte out of a set leads to, asked for where they are not known.
    pub(super) fn walk_rests(
        &mut self,
        trie: &Trie,
        rests: RestsId,
        nodes: impl FnOnce(&mut Self, &mut Fuel) -> Result<Vec<u32>, Stop>,
        start: State,
        ids: &mut Vec<u32>,
        fuel: &mut Fuel,
    ) -> Result<Vec<(u32, State)>, Stop> {
        let mut depends_on_text = Vec::new();
        let lexeme = self.machine.lexicon.saturated(start.lexeme);
        let found = match self.masks.in_lexeme(rests, lexeme) {
            Some(known) => known,
            None => {
                let nodes = nodes(self, fuel)?;
                self.in_lexeme(trie, rests, &nodes, lexeme, fuel)?
            }
        };
        // Mostly one follows the other, and no list is needed.
        let (mut next, mut pending) = (Some((found, start)), Vec::new());
        while let Some((found, state)) = next.take().or_else(|| pending.pop()) {
            fuel.burn(1 + found.leaving.len() as u64)?;
            ids.extend_from_slice(&found.inside);
            for leaving in &found.leaving {
                let after = self.machine.end_lexemes(state, leaving.mark, fuel)?;
                if self.machine.reads.takes_text() {
                    let all = leaving.beyond.iter().chain(&leaving.last);
                    depends_on_text
                        .extend(all.map(|&(node, lexeme)| (node, State { lexeme, ..state })));
                    continue;
                }
                for &(node, _) in &leaving.last {
                    ids.extend_from_slice(trie.ids(trie.own(node)));
                }
                let lexeme = self.machine.lexicon.saturated(after.lexeme);
                let further = match self.masks.in_lexeme(leaving.rests, lexeme) {
                    Some(known) => known,
                    None => {
                        let nodes = leaving.nodes(trie);
                        self.in_lexeme(trie, leaving.rests, &nodes, lexeme, fuel)?
                    }
                };
                if further.inside.is_empty() && further.leaving.is_empty() {
                    continue;
                }
                pending.extend(next.replace((further, after)));
            }
        }
        Ok(depends_on_text)
    }

    /// Walks some rests from the start of a lexeme to its end. Costs a step per node.
    fn in_lexeme(
        &mut self,
        trie: &Trie,
        rests: RestsId,
        nodes: &[u32],
        lexeme: ExprId,
        fuel: &mut Fuel,
    ) -> Result<Arc<InLexeme>, Stop> {
        let mut scratch = std::mem::take(&mut self.rests_scratch);
        scratch.clear();
        let RestsScratch {
            inside,
            pending,
            leaving,
        } = &mut scratch;
        let lexicon = &mut self.machine.lexicon;
        match lexicon.end_mark(lexeme) {
            // Most of many nodes lead nowhere.
            NO_MARK if nodes.len() > 1 => {
                let first = lexicon.first_bytes(lexeme, fuel)?;
                fuel.burn(nodes.len() as u64 / 8)?;
                let leads_on = nodes
                    .iter()
                    .filter(|node| first.contains(trie.label(**node)));
                pending.extend(leads_on.map(|&node| (node, lexeme)));
            }
            _ => pending.extend(nodes.iter().map(|&node| (node, lexeme))),
        }
        let mut num_once = 0;
        while let Some((node, before)) = pending.pop() {
            fuel.burn(1)?;
            let byte = trie.label(node);
            // A few rests seldom ask for more than a byte or two of a state: of many names, mostly none.
            let next = match num_once < MOST_ONCE {
                true => lexicon.derivative_once(before, byte, fuel)?,
                false => lexicon.derivative(before, byte, fuel)?,
            };
            num_once += 1;
            let goes_on = next != EMPTY && lexicon.is_live(next, fuel)?;
            let (mark, is_last) = match goes_on {
                true if lexicon.is_mark(next) => (lexicon.end_mark(next), true),
                true => {
                    inside.extend_from_slice(trie.ids(trie.own(node)));
                    pending.extend(trie.children(node).map(|child| (child, next)));
                    continue;
                }
                false => (lexicon.end_mark(before), false),
            };
            let ended = if is_last { next } else { before };
            let joint = lexicon.joint_marks(ended);
            let sole = [mark];
            let marks = if joint.is_empty() { &sole[..] } else { &joint };
            for &mark in marks.iter().filter(|&&mark| mark != NO_MARK) {
                leaving.push((mark, is_last, node, before));
            }
        }
        // By mark; of each in the order of the walk.
        leaving.sort_by_key(|&(mark, is_last, ..)| (mark, is_last));
        let nodes = |of_mark: &[(u16, bool, u32, ExprId)]| -> Box<[(u32, ExprId)]> {
            let nodes = of_mark.iter();
            nodes.map(|&(_, _, node, before)| (node, before)).collect()
        };
        let by_mark = leaving.chunk_by(|a, b| a.0 == b.0);
        let of_marks = by_mark.map(|of_mark| {
            let (beyond, last) =
                of_mark.split_at(of_mark.partition_point(|&(_, is_last, ..)| !is_last));
            Leaving {
                mark: of_mark[0].0,
                beyond: nodes(beyond),
                last: nodes(last),
                rests: self.masks.new_rests(),
            }
        });
        let found = Arc::new(InLexeme {
            leaving: of_marks.collect(),
            inside: Box::from(&inside[..]),
        });
        self.rests_scratch = scratch;
        self.masks.insert_in_lexeme(rests, lexeme, &found);
        Ok(found)
    }
}
