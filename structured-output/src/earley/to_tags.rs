//! How far it is to the end of the whole text through words that end free text.
//!
//! What follows such a word depends on its tag, so the nearest word may not be on the shortest way. Before any
//! word has ended text may end as well, and that is nearer: it is enough that the way through a word is never
//! taken for the shortest. But within a character it may be that only words finish it. There, and once a word
//! has ended, when only what began before it goes on, what comes is finite: all its ways are looked at, each
//! place once.

use hashbrown::HashMap;

use super::context::{ContextId, Return};
use super::parser::{Parser, read_to_tag};
use super::program::{Lexeme, NodeId};
use crate::lexical::{EMPTY, ExprId, FreeText, Fuel, NO_MARK, Stop};
use crate::pushdown::{EMPTY_STACK, Machine};

/// Least lengths from places in words, with all that their tags lead to, to the end of a rule.
#[derive(Default)]
pub(super) struct ToTags {
    known: HashMap<(NodeId, ExprId), u32>,
}

impl ToTags {
    /// Bytes of memory held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.known.capacity() * (size_of::<(NodeId, ExprId, u32)>() + 1)
    }
}

/// The language of a lexeme that words end, each with a tag.
pub(super) fn tagged_text(machine: &Machine, lexeme: Lexeme) -> Option<ExprId> {
    let text = lexeme.text().filter(|text| text.stack == EMPTY_STACK)?;
    let is_tagged = machine.lexicon.is_for_tags(text.lexeme);
    is_tagged.then_some(text.lexeme)
}

/// Whether text may end at a place as well, and is nearer to the end of the whole. Within a character it may
/// be that only words finish it.
fn is_beside_text(machine: &Machine, text: ExprId) -> bool {
    let is_beside = |place: FreeText| place.is_before_words() && place.is_between_characters();
    machine.lexicon.as_free_text(text).is_none_or(is_beside)
}

impl Parser {
    /// The length of the shortest completion from a place in words that go on; no length where text may
    /// end as well.
    pub(super) fn tags_distance(
        &mut self,
        machine: &mut Machine,
        text: ExprId,
        context: ContextId,
        fuel: &mut Fuel,
    ) -> Result<u32, Stop> {
        if is_beside_text(machine, text) {
            return Ok(u32::MAX);
        }
        let mut least = u32::MAX;
        for place in self.contexts.returns(context).to_vec() {
            let own = self.find_to_tags(machine, place.node, text, fuel)?;
            least = least.min(self.with_rest(own, place));
        }
        Ok(least)
    }

    /// A length to the end of a rule, with what comes after the rule.
    fn with_rest(&self, own: u32, place: Return) -> u32 {
        match own {
            u32::MAX => own,
            own => super::length::add(own, self.contexts.min_length(place.context)),
        }
    }

    /// The smallest byte on a shortest way, of a length that is known.
    pub(super) fn byte_to_tag(
        &mut self,
        machine: &mut Machine,
        text: ExprId,
        context: ContextId,
        least: u32,
        fuel: &mut Fuel,
    ) -> Result<Option<u8>, Stop> {
        let mut first = None;
        if least == u32::MAX {
            return Ok(None);
        }
        for place in self.contexts.returns(context).to_vec() {
            let own = self.find_to_tags(machine, place.node, text, fuel)?;
            if self.with_rest(own, place) != least {
                continue;
            }
            for (bytes, _) in machine.lexicon.derivatives(text, fuel)? {
                let Some(byte) = bytes.first() else { continue };
                let after = self.length_after(machine, place.node, text, byte, fuel)?;
                if after.is_ok_and(|after| after != u32::MAX && after + 1 == own) {
                    first = [first, Some(byte)].into_iter().flatten().min();
                }
            }
        }
        Ok(first)
    }

    /// The least length after a byte, or what has to be known before.
    fn length_after(
        &mut self,
        machine: &mut Machine,
        node: NodeId,
        text: ExprId,
        byte: u8,
        fuel: &mut Fuel,
    ) -> Result<Result<u32, ExprId>, Stop> {
        fuel.burn(1)?;
        let read = read_to_tag(machine, text, byte, fuel)?;
        let mut least = u32::MAX;
        if read.tag != NO_MARK
            && let Some(target) = self.program.choice(node, read.tag)
        {
            least = self.program.node(target).min_length;
        }
        if read.rest != EMPTY && !is_beside_text(machine, read.rest) {
            match self.to_tags.known.get(&(node, read.rest)) {
                Some(&rest) => least = least.min(rest),
                None => return Ok(Err(read.rest)),
            }
        }
        Ok(Ok(least))
    }

    /// The least that is read from a place in words to the end of the rule.
    fn find_to_tags(
        &mut self,
        machine: &mut Machine,
        node: NodeId,
        text: ExprId,
        fuel: &mut Fuel,
    ) -> Result<u32, Stop> {
        let mut pending = vec![text];
        'places: while let Some(&at) = pending.last() {
            if self.to_tags.known.contains_key(&(node, at)) {
                pending.pop();
                continue;
            }
            let mut least = u32::MAX;
            for (bytes, _) in machine.lexicon.derivatives(at, fuel)? {
                let Some(byte) = bytes.first() else { continue };
                match self.length_after(machine, node, at, byte, fuel)? {
                    Ok(after) => least = least.min(after.saturating_add(1)),
                    Err(unknown) => {
                        pending.push(unknown);
                        continue 'places;
                    }
                }
            }
            self.to_tags.known.insert((node, at), least);
            pending.pop();
        }
        let known = self.to_tags.known.get(&(node, text));
        Ok(known.copied().unwrap_or(u32::MAX))
    }
}
