//! Walks of the whole machine, stack included, through a trie of bytes.

use super::memo::Exits;
use super::rests::RestsId;
use super::{State, TokenAutomaton};
use crate::index::{ROOT, TokenizerIndex, Trie};
use crate::json::Unread;
use crate::lexical::{ByteSet, Fuel, NO_MARK, Stop};
use crate::pushdown::StackId;

/// What a place in a walk owes to a text that began before it, a key or an item, and isn't known.
#[derive(Clone, Copy)]
enum Text {
    /// Nothing: what is reached is allowed.
    Unused,
    /// The stack's top frame is the one after the text.
    Before(After),
    /// More than is known. What isn't reached isn't allowed; what is may be.
    Needed,
}

/// How far a walk is in the frame after a text.
#[derive(Clone, Copy)]
struct After {
    stack: StackId,
    unread: Unread,
    /// The comma has been read.
    is_next: bool,
    /// The first byte of the next key or item.
    first: Option<u8>,
}

impl After {
    fn read(mut self, byte: u8) -> Self {
        match byte {
            b',' if self.first.is_none() => self.is_next = true,
            b' ' | b'\t' | b'\n' | b'\r' => {}
            _ => self.first = self.first.or(Some(byte)),
        }
        self
    }
}

/// The nodes that tokens go on to with one of some bytes.
fn nodes_of(
    exits: &Exits,
    trie: &Trie,
    first: &ByteSet,
    fuel: &mut Fuel,
) -> Result<Vec<u32>, Stop> {
    let mut nodes = Vec::new();
    let mut add = |node: u32, leaving: &ByteSet, fuel: &mut Fuel| {
        let children = trie.children(node);
        let bytes = leaving.intersection(first);
        if bytes.len() * 4 < children.len() {
            fuel.burn(bytes.len() as u64)?;
            nodes.extend(bytes.iter().filter_map(|byte| trie.child(node, byte)));
        } else {
            fuel.burn(children.len() as u64)?;
            nodes.extend(children.filter(|&child| bytes.contains(trie.label(child))));
        }
        Ok(())
    };
    match exits {
        Exits::Suffixes(_) => add(ROOT, &ByteSet::FULL, fuel)?,
        Exits::After(after) => {
            for (node, leaving) in after {
                add(*node, leaving, fuel)?;
            }
        }
        Exits::Nodes(all) => {
            let leads_on = |node: &u32| first.contains(trie.label(*node));
            nodes.extend(all.iter().copied().filter(leads_on));
        }
    }
    Ok(nodes)
}

impl TokenAutomaton {
    /// Adds to `ids` the tokens among some that go on after a state's lexeme, which ends with a
    /// mark, that the state allows; to `unsure` those for which that depends on the lexeme's text.
    ///
    /// Texts of keys and items that end in the walk are left out of what follows: so it allows what
    /// they allow, and more by one key or item at most. What may close or has infinitely many ways
    /// to go on may do so whatever the text is.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn walk_exits(
        &mut self,
        index: &TokenizerIndex,
        exits: (RestsId, &Exits),
        state: State,
        mark: u16,
        ids: &mut Vec<u32>,
        unsure: &mut Vec<u32>,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        self.machine.skip_texts(true);
        let walked = self.walk_without_texts(index, exits, state, mark, ids, unsure, fuel);
        self.machine.skip_texts(false);
        walked
    }

    #[allow(clippy::too_many_arguments)]
    fn walk_without_texts(
        &mut self,
        index: &TokenizerIndex,
        exits: (RestsId, &Exits),
        state: State,
        mark: u16,
        ids: &mut Vec<u32>,
        unsure: &mut Vec<u32>,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        let (rests, exits) = exits;
        let start = self.machine.end_lexeme(state, mark, fuel)?;
        let text = self.text_after(Text::Unused, start, None, fuel)?;
        let widens = std::mem::take(&mut self.machine.reads.may_widen);
        let trie = match exits {
            Exits::Suffixes(trie) => trie,
            Exits::Nodes(_) | Exits::After(_) => index.byte_trie(),
        };
        let lexeme = self.machine.lexicon.saturated(start.lexeme);
        let nodes = |automaton: &mut Self, fuel: &mut Fuel| {
            let lexicon = &mut automaton.machine.lexicon;
            let first = match lexicon.end_mark(lexeme) {
                NO_MARK if !widens => lexicon.first_bytes(lexeme, fuel)?,
                _ => ByteSet::FULL,
            };
            nodes_of(exits, trie, &first, fuel)
        };
        if widens {
            for node in nodes(self, fuel)? {
                unsure.extend_from_slice(trie.ids(trie.below(node)));
            }
            return Ok(());
        }
        let mut pending: Vec<(u32, State, Text)> = match text {
            Text::Unused => {
                let left = self.walk_rests(trie, rests, nodes, start, ids, fuel)?;
                let left = left.into_iter();
                left.map(|(node, state)| (node, state, text)).collect()
            }
            Text::Before(_) | Text::Needed => {
                let nodes = nodes(self, fuel)?.into_iter();
                nodes.map(|node| (node, start, text)).collect()
            }
        };
        while let Some((node, state, text)) = pending.pop() {
            fuel.burn(1)?;
            let byte = trie.label(node);
            let next = self.machine.step(state, byte, fuel)?;
            if std::mem::take(&mut self.machine.reads.may_widen) {
                self.machine.reads.text = None;
                unsure.extend_from_slice(trie.ids(trie.below(node)));
                continue;
            }
            let Some(next) = next else {
                self.machine.reads.text = None;
                continue;
            };
            let text = self.text_after(text, next, Some(byte), fuel)?;
            let tokens = trie.ids(trie.own(node));
            if !tokens.is_empty() {
                match self.is_allowed(next, text) {
                    true => ids.extend_from_slice(tokens),
                    false => unsure.extend_from_slice(tokens),
                }
            }
            pending.extend(trie.children(node).map(|child| (child, next, text)));
        }
        Ok(())
    }

    /// What a place owes to an unknown text, after a step with a byte to a state.
    fn text_after(
        &mut self,
        before: Text,
        next: State,
        byte: Option<u8>,
        fuel: &mut Fuel,
    ) -> Result<Text, Stop> {
        let read = self.machine.reads.text.take();
        let stacks = self.machine.stacks();
        let is_left = |stack: StackId, by: StackId| stacks.depth(by) < stacks.depth(stack);
        let Some(stack) = read else {
            return Ok(match before {
                Text::Before(after) if next.stack == after.stack => {
                    Text::Before(byte.map_or(after, |byte| after.read(byte)))
                }
                // Closed, which depends on no text.
                Text::Before(after) if is_left(after.stack, next.stack) => Text::Unused,
                Text::Before(_) | Text::Needed => Text::Needed,
                Text::Unused => Text::Unused,
            });
        };
        if let Text::Before(after) = before
            && stack == next.stack
            && stack == self.machine.past_comma(after.stack)
        {
            let after = After { stack, ..after };
            return Ok(Text::Before(byte.map_or(after, |byte| after.read(byte))));
        }
        let stacks = self.machine.stacks();
        let is_left = |stack: StackId, by: StackId| stacks.depth(by) < stacks.depth(stack);
        let is_first = match before {
            Text::Unused => true,
            Text::Before(after) => is_left(after.stack, stack),
            Text::Needed => false,
        };
        if !is_first {
            return Ok(Text::Needed);
        }
        if next.stack != stack {
            return Ok(match is_left(stack, next.stack) {
                true => Text::Unused,
                false => Text::Needed,
            });
        }
        let unread = self.machine.unread(stack, fuel)?;
        Ok(Text::Before(After {
            stack,
            unread,
            // The byte that ends a number belongs to what follows it.
            is_next: byte == Some(b','),
            first: None,
        }))
    }

    /// Whether a state that a walk reached is one whatever the text was; else it may be none.
    fn is_allowed(&self, state: State, text: Text) -> bool {
        match text {
            Text::Unused => true,
            Text::Needed => false,
            Text::Before(After {
                unread,
                is_next,
                first,
                ..
            }) => {
                // Numbers are spelled in infinitely many ways; strings and keys are not.
                let is_infinite = match first {
                    None => unread.is_infinite,
                    Some(b'"') => self.machine.lexicon.is_infinite(state.lexeme),
                    Some(_) => false,
                };
                (unread.closes && !is_next) || (unread.goes_on && is_infinite)
            }
        }
    }
}
