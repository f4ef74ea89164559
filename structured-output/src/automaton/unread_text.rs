//! Answers that are the same whatever the text of a key or an item is.
//!
//! The text of a key is a part of the states after it, and so is that of an item of an array of
//! distinct items. While one is being written, most of what is asked looks beyond its end: what a
//! token may go on with, how far the end is. By its text each place in it would make states of its
//! own there, as long as the text: a text of n characters, n² of them.
//!
//! So such a question is asked of the same place with the text left out
//! ([`State::without_text`](crate::pushdown::State::without_text)), as if it were none of those
//! that come later. The answer is that of all texts but those which the answer itself writes
//! later in the same object or array. Only for these it is asked again with the text.

use std::sync::Arc;

use hashbrown::HashMap;

use super::read_text::{OwnText, ReadTexts};
use super::{State, TokenAutomaton};
use crate::json::Written;
use crate::lexical::{Fuel, Stop};
use crate::mask::Forgotten;
use crate::pushdown::{NO_KEY, StackId, UNREAD};

/// Longer completions are not looked at for what they write.
const MAX_BYTES: usize = 16 << 10;

/// Shorter texts cost less than to do without them.
const LONG: usize = 32;

/// Bytes to the end from which on that isn't so: each place would walk all of them.
const FAR: u32 = 256;

/// What the canonical completion of a place without its text does.
pub(super) struct UnreadCompletion {
    /// Its first byte.
    pub(super) byte: u8,
    pub(super) rest: Rest,
}

/// What a completion does from some place on.
pub(super) struct Rest {
    /// Its place in [`UnreadMemo::chains`]; none where no text is left out any more.
    pub(super) next: Option<u32>,
    /// How many bytes end that text.
    pub(super) length: usize,
    /// The keys or items that it writes in the same object or array.
    pub(super) later: Arc<[Written]>,
    /// How many bytes it has.
    bytes: u32,
}

/// Texts, or nothing where they can't be told.
type Texts = Option<Arc<[Written]>>;

/// What is remembered of places without their texts.
#[derive(Default)]
pub(super) struct UnreadMemo {
    completions: HashMap<State, Option<u32>>,
    /// Each goes on with another: places of a long text share what ends it.
    chains: Vec<UnreadCompletion>,
    later: HashMap<(State, StackId), Texts>,
    /// The texts themselves, as far as they were read.
    pub(super) read: ReadTexts,
    /// Bytes of the texts.
    bytes: usize,
}

impl UnreadMemo {
    /// Bytes of memory held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes
            + self.read.memory_bytes()
            + self.completions.capacity() * (size_of::<(State, Option<u32>)>() + 1)
            + self.chains.capacity() * size_of::<UnreadCompletion>()
            + self.later.capacity() * (size_of::<(State, StackId, Texts)>() + 1)
    }

    /// Hands all tables over to be dropped.
    pub(super) fn forget(self, forgotten: &mut Forgotten) {
        forgotten.add(self.completions);
        forgotten.add(self.chains);
        forgotten.add(self.later);
        forgotten.add(std::iter::once(self.read));
    }

    pub(super) fn completion(&self, at: Option<u32>) -> Option<&UnreadCompletion> {
        self.chains.get(at? as usize)
    }

    /// What is done from a place on whose completion is known.
    fn rest_from(&self, at: Option<u32>) -> Option<Rest> {
        let known = self.completion(at)?;
        Some(Rest {
            next: at,
            length: known.rest.length + 1,
            later: Arc::clone(&known.rest.later),
            bytes: known.rest.bytes.saturating_add(1),
        })
    }

    fn push(&mut self, byte: u8, rest: Rest) -> u32 {
        self.chains.push(UnreadCompletion { byte, rest });
        self.chains.len() as u32 - 1
    }

    fn note_later(&mut self, place: (State, StackId), found: Texts) {
        self.bytes += found.as_ref().map_or(0, |texts| size_of_val(&**texts));
        self.later.insert(place, found);
    }
}

/// The texts that are written on a way through one object or array.
struct Writing {
    /// The stack below the object or array.
    home: StackId,
    /// Whether that is an array.
    is_array: bool,
    found: Vec<Written>,
}

/// Where a way leads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Inside,
    /// The object or array is over.
    Outside,
    /// It can't be followed without the text.
    Lost,
}

impl TokenAutomaton {
    /// The place that stands for one within a key or an item in all that is asked of its canonical
    /// completion: without the text, where the completion writes no equal one. Any other place
    /// stands for itself.
    pub(super) fn completed_as(&mut self, state: State, fuel: &mut Fuel) -> Result<State, Stop> {
        if !self.has_long_text(state) && !self.is_far_from_text_end(state, fuel)? {
            return Ok(state);
        }
        let Some(at) = self.unread_completion(state, fuel)? else {
            return Ok(state);
        };
        Ok(match self.is_completion_written(state, at, fuel)? {
            true => state,
            false => state.without_text(),
        })
    }

    /// Bytes of a completion, as it is without the text of a key or an item; `None` where that text
    /// has to be known.
    pub(super) fn unread_bytes_to_end(
        &mut self,
        state: State,
        fuel: &mut Fuel,
    ) -> Result<Option<u32>, Stop> {
        if !self.has_long_text(state) && !self.is_far_from_text_end(state, fuel)? {
            return Ok(None);
        }
        let Some(at) = self.unread_completion(state, fuel)? else {
            return Ok(None);
        };
        if self.is_completion_written(state, at, fuel)? {
            return Ok(None);
        }
        let completion = self.unread.completion(Some(at));
        Ok(completion.map(|completion| completion.rest.bytes.saturating_add(1)))
    }

    /// Whether a token that ends the key or item of a state may come next; `None` where that can't
    /// be told without the text.
    ///
    /// It may not where none may follow that is another than all texts; it may where what it goes
    /// on with, and a completion after it, writes no equal text.
    pub(super) fn allows_unread(
        &mut self,
        state: State,
        token: u32,
        fuel: &mut Fuel,
    ) -> Result<Option<bool>, Stop> {
        if !self.has_long_text(state) {
            return Ok(None);
        }
        let read = self.read_beyond_text(state, state.without_text(), token, false, fuel)?;
        Ok(read.map(|at| at.is_some()))
    }

    /// The place after a token, without the text of the key or item within whose lexeme the token begins;
    /// `None` within where the token can't come next, and as a whole where that can't be told without
    /// the text, or where the token, or the canonical completion after it, may write the text again.
    pub(super) fn read_without_text(
        &mut self,
        state: State,
        token: u32,
        fuel: &mut Fuel,
    ) -> Result<Option<Option<State>>, Stop> {
        match self.machine.unread_place(state) {
            Some(place) => self.read_beyond_text(state, place, token, true, fuel),
            None => Ok(None),
        }
    }

    /// A byte after a place without its text: `None` where what follows depends on it.
    pub(super) fn step_unread(
        &mut self,
        place: State,
        byte: u8,
        fuel: &mut Fuel,
    ) -> Result<Option<Option<State>>, Stop> {
        self.machine.reads.may_widen = false;
        let next = self.machine.step(place, byte, fuel)?;
        let widens = std::mem::take(&mut self.machine.reads.may_widen);
        Ok((!widens).then_some(next))
    }

    /// Reads a token from a place without its text, to the end of the token or, if that is enough, of
    /// the object or array that the text belongs to.
    fn read_beyond_text(
        &mut self,
        state: State,
        place: State,
        token: u32,
        to_its_end: bool,
        fuel: &mut Fuel,
    ) -> Result<Option<Option<State>>, Stop> {
        let index = Arc::clone(&self.index);
        let bytes = index.info().token_bytes(token);
        let mut writing = self.writing_of(state);
        let mut at = place;
        let mut end = None;
        let mut way = Way::Inside;
        // The object whose key, within an item, was left out: another key there might be equal.
        let mut of_key = None;
        for (read, &byte) in bytes.iter().enumerate() {
            fuel.burn(1)?;
            let Some(next) = self.step_unread(at, byte, fuel)? else {
                return Ok(None);
            };
            let Some(next) = next else {
                return Ok(Some(None));
            };
            if way == Way::Outside {
                at = next;
                continue;
            }
            if at.item == UNREAD && at.key != next.key {
                let home = self.machine.stacks().below(at.stack);
                if at.key == UNREAD {
                    of_key = Some((home, read + 1));
                } else if let Some((own, end)) = of_key
                    && own == home
                    && next.key == NO_KEY
                {
                    let (key, _) = self.machine.kept(at, byte);
                    let later = Written::key(&self.machine.text(key));
                    let mut own = self.scan(OwnText::key(state.key), fuel)?;
                    own.read(bytes.get(..end).unwrap_or(bytes));
                    if own
                        .written()
                        .zip(later)
                        .is_none_or(|(own, later)| later.may_equal(&own))
                    {
                        return Ok(None);
                    }
                }
            }
            way = self.follow(&mut writing, at, next, byte);
            if end.is_none() && next.is_read() {
                end = Some(read + 1);
            }
            at = next;
            match way {
                Way::Inside => {}
                Way::Outside if to_its_end => {}
                Way::Outside => break,
                Way::Lost => return Ok(None),
            }
        }
        let Some(end) = end else {
            return Ok(Some(Some(at)));
        };
        let rest = bytes.get(..end).unwrap_or(bytes);
        if self.is_written(state, rest, &writing.found, fuel)? {
            return Ok(None);
        }
        if way == Way::Inside && self.is_inside(at, writing.home) {
            let Some(later) = self.later_texts(at, &writing, fuel)? else {
                return Ok(None);
            };
            if self.is_written(state, rest, &later, fuel)? {
                return Ok(None);
            }
        }
        Ok(Some(Some(at)))
    }

    /// What the canonical completion of a place does without its text, the same for all texts there, by
    /// its place in [`UnreadMemo::chains`]; `None` where that has no text, or can't be followed without
    /// it.
    pub(super) fn unread_completion(
        &mut self,
        state: State,
        fuel: &mut Fuel,
    ) -> Result<Option<u32>, Stop> {
        let start = state.without_text();
        match self.unread.completions.get(&start) {
            Some(&known) => Ok(known),
            None => self.find_unread_completion(start, fuel),
        }
    }

    /// Follows the completion of a place without its text, up to that text's end or a place where it is
    /// known, and takes note of it for all places on the way: each character of a long text is asked for
    /// once, not once for each before it.
    fn find_unread_completion(
        &mut self,
        start: State,
        fuel: &mut Fuel,
    ) -> Result<Option<u32>, Stop> {
        let mut writing = self.writing_of(start);
        let mut way: Vec<(State, u8)> = Vec::new();
        let mut at = start;
        // What is known of the end of the way: none where it can't be followed.
        let mut rest = loop {
            if at.is_read() {
                break self.after_text(at, &writing, fuel)?;
            }
            if let Some(&known) = self.unread.completions.get(&at) {
                break self.unread.rest_from(known);
            }
            fuel.burn(1)?;
            self.machine.reads.may_widen = false;
            let next = self.machine.toward_end(at, fuel)?;
            let widens = std::mem::take(&mut self.machine.reads.may_widen);
            let Some((byte, next)) = next else {
                way.push((at, 0));
                break None;
            };
            way.push((at, byte));
            let followed = self.follow(&mut writing, at, next, byte);
            if widens || followed == Way::Lost {
                break None;
            }
            if way.len() > MAX_BYTES {
                // Of the others nothing is known.
                way.truncate(1);
                break None;
            }
            at = next;
        };
        let mut found = None;
        for (place, byte) in way.into_iter().rev() {
            found = match rest.take() {
                Some(rest) if rest.length < MAX_BYTES => Some(self.unread.push(byte, rest)),
                _ => None,
            };
            rest = self.unread.rest_from(found);
            // Where a key within an item has its text, it is another place.
            if place == place.without_text() {
                self.unread.completions.insert(place, found);
            }
        }
        Ok(found)
    }

    /// The completion of a place where no text is left out any more; `None` where what it writes in an
    /// object or array is long.
    fn after_text(
        &mut self,
        at: State,
        writing: &Writing,
        fuel: &mut Fuel,
    ) -> Result<Option<Rest>, Stop> {
        let later = match self.is_inside(at, writing.home) {
            true => self.later_texts(at, writing, fuel)?,
            false => Some(Arc::default()),
        };
        let Some(later) = later else {
            return Ok(None);
        };
        Ok(Some(Rest {
            next: None,
            length: 0,
            later,
            bytes: self.machine.distance(at, fuel)?.0,
        }))
    }

    /// The keys or items that the canonical completion of a place writes in an object or array that
    /// it is in. `None` where that is long.
    fn later_texts(
        &mut self,
        start: State,
        writing: &Writing,
        fuel: &mut Fuel,
    ) -> Result<Texts, Stop> {
        let key = (start, writing.home);
        if let Some(known) = self.unread.later.get(&key) {
            return Ok(known.clone());
        }
        let found = self.find_later_texts(start, writing, fuel)?;
        self.unread.note_later(key, found.clone());
        Ok(found)
    }

    fn find_later_texts(
        &mut self,
        start: State,
        writing: &Writing,
        fuel: &mut Fuel,
    ) -> Result<Texts, Stop> {
        if self.machine.closes_without_texts(start, writing.home) {
            return Ok(Some(Arc::default()));
        }
        let mut writing = Writing {
            found: Vec::new(),
            ..*writing
        };
        let mut at = start;
        for _ in 0..MAX_BYTES {
            fuel.burn(1)?;
            let Some((byte, next)) = self.machine.toward_end(at, fuel)? else {
                break;
            };
            match self.follow(&mut writing, at, next, byte) {
                Way::Inside => at = next,
                Way::Outside => return Ok(Some(writing.found.into())),
                Way::Lost => break,
            }
        }
        Ok(None)
    }

    /// Nothing written yet in the object or array that a text belongs to.
    fn writing_of(&self, state: State) -> Writing {
        let is_array = state.item != NO_KEY;
        let within = match is_array {
            true => self.machine.outermost_array(state.stack),
            false => state.stack,
        };
        Writing {
            home: self.machine.stacks().below(within),
            is_array,
            found: Vec::new(),
        }
    }

    fn is_inside(&self, state: State, home: StackId) -> bool {
        let stacks = self.machine.stacks();
        stacks.depth(state.stack) > stacks.depth(home)
    }

    /// Takes note of what a step writes.
    fn follow(&mut self, writing: &mut Writing, at: State, next: State, byte: u8) -> Way {
        let is_left_out = |text| text == UNREAD;
        if is_left_out(at.item) {
            // A key of an object within the item, or the items of an array within it.
            let key_ends = is_left_out(at.key) && !is_left_out(next.key);
            let home = self.machine.stacks().below(at.stack);
            if (key_ends && !self.machine.closes_without_texts(next, home))
                || (is_left_out(next.item) && self.machine.is_at_inner_item(next.stack))
            {
                return Way::Lost;
            }
        }
        let (key, item) = self.machine.kept(at, byte);
        let (text, is_over) = match writing.is_array {
            true => (item, next.item == NO_KEY),
            false => {
                let is_own = self.machine.stacks().below(at.stack) == writing.home;
                (key, is_own && next.key == NO_KEY)
            }
        };
        if is_over && text != NO_KEY && text != UNREAD {
            let text = self.machine.text(text);
            let written = match writing.is_array {
                true => Written::item(&text),
                // None where the object was closed.
                false => Written::key(&text),
            };
            writing.found.extend(written);
        }
        match self.is_inside(next, writing.home) {
            true => Way::Inside,
            false => Way::Outside,
        }
    }

    /// Whether the text that a state keeps, short as it is, may be long in the end.
    fn is_far_from_text_end(&mut self, state: State, fuel: &mut Fuel) -> Result<bool, Stop> {
        Ok(state.has_text() && self.machine.distance(state, fuel)?.0 > FAR)
    }

    /// Whether a state keeps a text that is long enough to be left out.
    pub(super) fn has_long_text(&self, state: State) -> bool {
        [state.key, state.item]
            .iter()
            .any(|&text| self.machine.is_long(text, LONG))
    }
}
