//! A walk of tokens through a text, counting characters.
//!
//! Says of each token how many characters a text has at least that begins with it, so that one walk
//! tells what every bound on the number of characters leaves. Where the text is any characters, these
//! are those of the token; where it is a pattern as well, also those of the shortest way to its end.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use hashbrown::HashMap;

use super::lexeme::Found;
use crate::index::{ROOT, TokenizerIndex, num_chars};
use crate::lexical::{ByteSet, Characters, ExprId, Fuel, Labels, Lexicon, Stop};
use crate::mask::table::{DEAD, Table};
use crate::mask::walk::{Exit, Labelled, Visitor};

/// In one walk so many places are looked at on the way to ends, or it is given up.
const MAX_PLACES: u32 = 4096;

/// What a walk found of the tokens of a trie.
#[derive(Default)]
pub(super) struct Counted {
    /// Tokens that end within the text, with the fewest characters of a text that begins with them.
    pub(super) within: Vec<(u32, Range<u32>)>,
    /// More of them, with how many more characters these are than those that the token itself begins.
    pub(super) staying: Vec<(i64, Range<u32>)>,
    /// Tokens that end later, within the lexeme, with the characters before.
    pub(super) after: Vec<(u32, Range<u32>)>,
    /// The same of tokens that end the lexeme before their own end.
    pub(super) leaving: Vec<(u32, Range<u32>)>,
    /// What the tokens do, whatever their number of characters.
    pub(super) found: Found,
    /// Whether each token within the text also begins texts of every greater number of characters.
    pub(super) is_open: bool,
}

/// Where a walk is.
#[derive(Clone, Copy, PartialEq)]
enum At {
    /// Within a character.
    Character,
    /// Between characters.
    Between,
    /// After the characters.
    After,
}

/// A state of the text with what follows, and one of characters in any number with what follows.
type Place = (u32, u32);

/// The nearest end of the text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Nearest {
    characters: u32,
    /// Whether one of the places up to there comes back after a character.
    is_open: bool,
}

/// A place that a search waits to look at, or an end that it would come to from there.
type Waiting = (Reverse<u32>, u32, Place, Option<Nearest>);

pub(super) struct CharacterWalk<'a> {
    lexicon: &'a mut Lexicon,
    characters: Characters,
    /// The bytes that begin what follows the characters.
    firsts: ByteSet,
    table: Table,
    /// Where each state of characters in any number is, as far as that was asked for.
    at: Vec<Option<At>>,
    nearest: HashMap<Place, Nearest>,
    places_left: u32,
    /// Whether the characters are those of UTF-8, but for some that are spelled with ASCII.
    is_utf8: bool,
}

impl<'a> CharacterWalk<'a> {
    /// A walk that has met nothing.
    pub(super) fn new(
        lexicon: &'a mut Lexicon,
        characters: Characters,
        fuel: &mut Fuel,
    ) -> Result<Self, Stop> {
        Ok(Self {
            is_utf8: characters.character == lexicon.json_constrained_char(),
            firsts: lexicon.first_bytes(characters.rest, fuel)?,
            lexicon,
            characters,
            table: Table::default(),
            at: Vec::new(),
            nearest: HashMap::new(),
            places_left: MAX_PLACES,
        })
    }

    /// Walks the words of a trie. `None` where a state can't be told to be within a character or
    /// after all, where the trie's alphabet doesn't fit, or where ends are far to find.
    pub(super) fn run(
        &mut self,
        index: &TokenizerIndex,
        labelled: Labelled<'_>,
        fuel: &mut Fuel,
    ) -> Result<Option<Counted>, Stop> {
        let trie = labelled.trie;
        let mut counted = Counted {
            is_open: true,
            ..Counted::default()
        };
        let own = self.state(self.characters.any_number);
        let beside = self.state(self.characters.all);
        let mut pending = vec![(ROOT, own, beside, At::Between, 0_u32, 0_u32)];
        while let Some((node, own, beside, at, count, depth)) = pending.pop() {
            let tokens = trie.own(node);
            if !tokens.is_empty() {
                counted.found.reached(tokens.clone());
                if at == At::After {
                    counted.after.push((count, tokens));
                } else {
                    let Some(nearest) = self.nearest((own, beside), fuel)? else {
                        return Ok(None);
                    };
                    counted.is_open &= nearest.is_open;
                    counted
                        .within
                        .push((count.saturating_add(nearest.characters), tokens));
                }
            }
            let children = trie.children(node);
            if children.is_empty() {
                continue;
            }
            let states = [own, beside];
            let below = trie.labels_below(node);
            for &state in &states[..if at == At::After { 1 } else { 2 }] {
                self.table.expand(self.lexicon, state, fuel)?;
                if !self.table.fits(self.lexicon, state, labelled) {
                    return Ok(None);
                }
            }
            if at == At::Between && below.is_some_and(|below| self.stays((own, beside), below)) {
                let Some(nearest) = self.nearest((own, beside), fuel)? else {
                    return Ok(None);
                };
                fuel.burn(1)?;
                let tokens = trie.own(node).end..trie.below(node).end;
                let prefix = index.text_below(node).get(..depth as usize);
                let begun = num_chars(prefix.unwrap_or_default());
                let more = i64::from(count) + i64::from(nearest.characters) - i64::from(begun);
                counted.is_open &= nearest.is_open;
                counted.found.reached(tokens.clone());
                counted.staying.push((more, tokens));
                continue;
            }
            let ends = at == At::After && self.table.has_end_mark(own);
            fuel.burn(children.len() as u64)?;
            for child in children.rev() {
                let byte = labelled.byte(trie.label(child));
                let next = self.table.step(self.lexicon, own, byte, fuel)?;
                if next == DEAD {
                    if ends {
                        let mark = self.lexicon.end_mark(self.table.expr(own));
                        counted.leaving.push((count, trie.below(child)));
                        let exit = Exit {
                            node: child,
                            parent: node,
                            depth,
                            mark,
                        };
                        let end = self.table.expr(own);
                        counted.found.exit_in_ways(self.lexicon, exit, end);
                    }
                    continue;
                }
                if at == At::After {
                    pending.push((child, next, beside, at, count, depth + 1));
                    continue;
                }
                let Some((beside, at)) = self.step((own, beside), at, byte, fuel)? else {
                    return Ok(None);
                };
                let count = count + u32::from(at == At::Between);
                pending.push((child, next, beside, at, count, depth + 1));
            }
        }
        Ok(Some(counted))
    }

    fn state(&mut self, expr: ExprId) -> u32 {
        self.table.state(self.lexicon, expr)
    }

    /// Whether all words below a node lead from an expanded place between characters to itself, each
    /// character by itself, and each that is only begun whatever it becomes.
    fn stays(&self, (own, beside): Place, below: Labels) -> bool {
        let below = match below.is_ascii() {
            true => below,
            false if self.is_utf8 => below.with_others(),
            false => return false,
        };
        self.table.stays(own, below) && self.table.stays(beside, below)
    }

    /// Where the characters are after a byte by which the text goes on from an expanded place.
    fn step(
        &mut self,
        (_, beside): Place,
        before: At,
        byte: u8,
        fuel: &mut Fuel,
    ) -> Result<Option<(u32, At)>, Stop> {
        let next = self.table.step(self.lexicon, beside, byte, fuel)?;
        if next == DEAD {
            return Ok(None);
        }
        let at = match self.at.get(next as usize) {
            Some(&Some(at)) => at,
            _ => self.look_where(next),
        };
        Ok((at != At::After || before == At::Between).then_some((next, at)))
    }

    /// Where a state of characters in any number is, after the first byte.
    fn look_where(&mut self, state: u32) -> At {
        let (expr, all) = (self.table.expr(state), self.characters.all);
        let at = if expr == all {
            At::Between
        } else if self.lexicon.ends_with(expr, all) {
            At::Character
        } else {
            At::After
        };
        if self.at.len() <= state as usize {
            self.at.resize(state as usize + 1, None);
        }
        self.at[state as usize] = Some(at);
        at
    }

    /// The nearest end of the text from a place before it: Dijkstra's algorithm, where a step that
    /// completes a character has length 1 and all others none. `None` where that would take too many
    /// places.
    fn nearest(&mut self, start: Place, fuel: &mut Fuel) -> Result<Option<Nearest>, Stop> {
        if start.0 == start.1 {
            // Any characters.
            let is_begun = self.table.expr(start.1) != self.characters.all;
            return Ok(Some(Nearest {
                characters: u32::from(is_begun),
                is_open: true,
            }));
        }
        if let Some(&known) = self.nearest.get(&start) {
            return Ok(Some(known));
        }
        // The place before each that was reached, and the length of the last step.
        let mut seen: HashMap<Place, (Place, u32)> = HashMap::new();
        let mut queue: BinaryHeap<Waiting> = BinaryHeap::new();
        let mut reached: HashMap<Place, u32> = HashMap::from_iter([(start, 0)]);
        queue.push((Reverse(0), 0, start, None));
        while let Some((Reverse(length), depth, place, end)) = queue.pop() {
            if let Some(end) = end {
                self.remember(start, place, end, &seen, fuel)?;
                return Ok(self.nearest.get(&start).copied());
            }
            if reached.get(&place).is_some_and(|&best| best < length) {
                continue;
            }
            if let Some(&known) = self.nearest.get(&place) {
                let total = length.saturating_add(known.characters);
                queue.push((Reverse(total), u32::MAX, place, Some(known)));
                continue;
            }
            let Some(left) = self.places_left.checked_sub(1) else {
                return Ok(None);
            };
            self.places_left = left;
            fuel.burn(1)?;
            let (own, beside) = place;
            self.table.expand(self.lexicon, own, fuel)?;
            self.table.expand(self.lexicon, beside, fuel)?;
            let is_between = self.table.expr(beside) == self.characters.all;
            if is_between && self.is_end(own, fuel)? {
                let end = Nearest {
                    characters: 0,
                    is_open: false,
                };
                queue.push((Reverse(length), u32::MAX, place, Some(end)));
                continue;
            }
            let mut last = None;
            for byte in self.table.bytes(self.lexicon, own).iter() {
                let next = self.table.step(self.lexicon, own, byte, fuel)?;
                if next == DEAD {
                    continue;
                }
                let before = match is_between {
                    true => At::Between,
                    false => At::Character,
                };
                let Some((beside, at)) = self.step(place, before, byte, fuel)? else {
                    return Ok(None);
                };
                let next = (next, beside);
                // Bytes that lead to one place come one after the other, mostly.
                if at == At::After || last.replace(next) == Some(next) {
                    continue;
                }
                let step = u32::from(at == At::Between);
                let total = length.saturating_add(step);
                if reached.get(&next).is_none_or(|&best| total < best) {
                    reached.insert(next, total);
                    seen.insert(next, (place, step));
                    queue.push((Reverse(total), depth + 1, next, None));
                }
            }
        }
        Ok(None)
    }

    /// Whether the text may end in an expanded state between characters.
    fn is_end(&mut self, own: u32, fuel: &mut Fuel) -> Result<bool, Stop> {
        for byte in self.firsts.iter() {
            if self.table.step(self.lexicon, own, byte, fuel)? != DEAD {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes note of the nearest end of each place on the way from `start` to a place.
    fn remember(
        &mut self,
        start: Place,
        mut place: Place,
        mut nearest: Nearest,
        seen: &HashMap<Place, (Place, u32)>,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        loop {
            nearest.is_open = nearest.is_open || self.comes_back(place, fuel)?;
            self.nearest.insert(place, nearest);
            match seen.get(&place) {
                Some(&(before, step)) if place != start => {
                    place = before;
                    nearest.characters = nearest.characters.saturating_add(step);
                }
                _ => return Ok(()),
            }
        }
    }

    /// Whether a character leads from a place to itself.
    fn comes_back(&mut self, (own, beside): Place, fuel: &mut Fuel) -> Result<bool, Stop> {
        if self.table.expr(beside) != self.characters.all {
            return Ok(false);
        }
        for state in [own, beside] {
            self.table.expand(self.lexicon, state, fuel)?;
        }
        for byte in self.table.bytes(self.lexicon, own).iter() {
            if self.table.step(self.lexicon, own, byte, fuel)? == own
                && self.table.step(self.lexicon, beside, byte, fuel)? == beside
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
