//! The text of a key or an item against the ones that may come later.
//!
//! What is known of a text's beginning is kept, so that each byte of a long one is read once. A text
//! that follows its canonical completion comes to the same end at each byte, and that is kept too.

use hashbrown::HashMap;

use super::{State, TokenAutomaton};
use crate::json::{Scan, Written};
use crate::lexical::{Fuel, Stop};
use crate::pushdown::{KeyId, NO_KEY};

/// So many texts are remembered of each kind; then all are forgotten.
const MOST_TEXTS: usize = 4096;

/// A token has no more bytes, mostly: so far back a text is looked for that was completed before.
const MOST_BYTES_BACK: usize = 64;

/// So many bytes of a completion are read in a step.
const BYTES_A_STEP: usize = 8;

/// A text that a state keeps.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct OwnText {
    id: KeyId,
    /// It is read as that of an item, and not as that of a key.
    is_item: bool,
}

impl OwnText {
    /// The text of a key.
    pub(super) fn key(id: KeyId) -> Self {
        Self { id, is_item: false }
    }

    /// The text by which a state is told from others: the item's, or else the key's.
    fn of(state: State) -> Self {
        match state.item {
            NO_KEY => Self::key(state.key),
            id => Self { id, is_item: true },
        }
    }

    fn start(self) -> Scan {
        match self.is_item {
            true => Scan::of_item(),
            false => Scan::of_key(),
        }
    }
}

/// What is remembered of texts.
#[derive(Default)]
pub(super) struct ReadTexts {
    scans: HashMap<OwnText, Scan>,
    /// What a text is when a completion has ended it, with the completion's place among those of
    /// [`UnreadMemo`](super::unread_text::UnreadMemo).
    completed: HashMap<OwnText, (u32, Option<Written>)>,
}

impl ReadTexts {
    /// Bytes of memory held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.scans.capacity() * (size_of::<(OwnText, Scan)>() + 1)
            + self.completed.capacity() * (size_of::<(OwnText, u32, Option<Written>)>() + 1)
    }
}

/// Inserts an entry into a table of at most [`MOST_TEXTS`].
fn remember<V>(table: &mut HashMap<OwnText, V>, text: OwnText, value: V) {
    if table.len() >= MOST_TEXTS {
        table.clear();
    }
    table.insert(text, value);
}

impl TokenAutomaton {
    /// What a text is so far. Costs a step for each byte after the longest beginning of it that was
    /// asked for before.
    pub(super) fn scan(&mut self, text: OwnText, fuel: &mut Fuel) -> Result<Scan, Stop> {
        let mut unread = Vec::new();
        let (mut at, mut scan) = (text, text.start());
        loop {
            if let Some(&known) = self.unread.read.scans.get(&at) {
                scan = known;
                break;
            }
            fuel.burn(1)?;
            let Some((before, byte)) = self.machine.last_of_text(at.id) else {
                break;
            };
            unread.push(byte);
            at.id = before;
        }
        for &byte in unread.iter().rev() {
            scan.read_byte(byte);
        }
        remember(&mut self.unread.read.scans, text, scan);
        Ok(scan)
    }

    /// Whether the key or item of a state, which some bytes end, may be equal to one of some texts.
    pub(super) fn is_written(
        &mut self,
        state: State,
        rest: &[u8],
        texts: &[Written],
        fuel: &mut Fuel,
    ) -> Result<bool, Stop> {
        if texts.is_empty() {
            return Ok(false);
        }
        let mut scan = self.scan(OwnText::of(state), fuel)?;
        scan.read(rest);
        Ok(may_be_one_of(scan.written(), texts))
    }

    /// Whether the key or item of a state, as a completion ends it, may be equal to one that the
    /// completion writes later. The completion is known by its place.
    pub(super) fn is_completion_written(
        &mut self,
        state: State,
        completion: u32,
        fuel: &mut Fuel,
    ) -> Result<bool, Stop> {
        let known = self.unread.completion(Some(completion));
        if known.is_none_or(|known| known.rest.later.is_empty()) {
            return Ok(false);
        }
        let own = self.completed_text(state, completion, fuel)?;
        let known = self.unread.completion(Some(completion));
        Ok(known.is_some_and(|known| may_be_one_of(own, &known.rest.later)))
    }

    /// The same with some more bytes of the text than the state keeps, of a place that the completion is
    /// that of.
    pub(super) fn is_completion_written_after(
        &mut self,
        state: State,
        rest: &[u8],
        completion: u32,
        fuel: &mut Fuel,
    ) -> Result<bool, Stop> {
        fuel.burn(1)?;
        let mut scan = self.scan(OwnText::of(state), fuel)?;
        scan.read(rest);
        let known = self.unread.completion(Some(completion));
        fuel.burn((known.map_or(0, |known| known.rest.length) / BYTES_A_STEP) as u64)?;
        let mut next = self.unread.completion(Some(completion));
        while let Some(known) = next {
            scan.read_byte(known.byte);
            next = self.unread.completion(known.rest.next);
        }
        let known = self.unread.completion(Some(completion));
        Ok(known.is_none_or(|known| may_be_one_of(scan.written(), &known.rest.later)))
    }

    /// Whether a completion writes other keys or items in the same object or array, by its place.
    pub(super) fn writes_texts_later(&self, completion: u32) -> bool {
        let known = self.unread.completion(Some(completion));
        known.is_none_or(|known| !known.rest.later.is_empty())
    }

    /// The key or item of a state as a completion ends it. Costs a step for some bytes of the
    /// completion, or one where the state lies on the way of one that was asked for before.
    fn completed_text(
        &mut self,
        state: State,
        completion: u32,
        fuel: &mut Fuel,
    ) -> Result<Option<Written>, Stop> {
        fuel.burn(1)?;
        let text = OwnText::of(state);
        let own = match self.completed_before(text, completion) {
            Some(known) => known,
            None => {
                let mut scan = self.scan(text, fuel)?;
                let mut next = self.unread.completion(Some(completion));
                let length = next.map_or(0, |next| next.rest.length);
                fuel.burn((length / BYTES_A_STEP) as u64)?;
                while let Some(known) = next {
                    scan.read_byte(known.byte);
                    next = self.unread.completion(known.rest.next);
                }
                scan.written()
            }
        };
        remember(&mut self.unread.read.completed, text, (completion, own));
        Ok(own)
    }

    /// What was found for a beginning of a text that a completion led on as the text goes on.
    fn completed_before(&self, text: OwnText, completion: u32) -> Option<Option<Written>> {
        let (mut at, mut since) = (text, Vec::new());
        let (first, own) = loop {
            if let Some(&known) = self.unread.read.completed.get(&at) {
                break known;
            }
            if since.len() == MOST_BYTES_BACK {
                return None;
            }
            let (before, byte) = self.machine.last_of_text(at.id)?;
            since.push(byte);
            at.id = before;
        };
        let mut reached = Some(first);
        for &byte in since.iter().rev() {
            let known = self.unread.completion(reached)?;
            if known.byte != byte {
                return None;
            }
            reached = known.rest.next;
        }
        (reached == Some(completion)).then_some(own)
    }
}

/// Whether a text may equal one of some.
fn may_be_one_of(own: Option<Written>, texts: &[Written]) -> bool {
    own.is_none_or(|own| texts.iter().any(|text| text.may_equal(&own)))
}
