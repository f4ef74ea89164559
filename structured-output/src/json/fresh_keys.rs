//! Keys that an object doesn't have yet, shortest first.
//!
//! The strings of a class of keys are listed once, as far as they are asked for, and kept: so an object
//! that needs thousands of keys more passes over those that it has.

use hashbrown::HashSet;

use super::node::OPERANDS_PER_STEP;
use super::object::ObjectAt;
use super::programs::Programs;
use super::seen::SeenId;
use super::value::unquote;
use super::words::{Rest, Words};
use crate::bound::Bound;
use crate::held::{allocated, with_room};
use crate::lexical::{ByteSet, ExprId, Fuel, Lexicon, Stop};

/// The strings of a language, each by its shortest spelling, as far as they were listed.
#[derive(Default)]
pub(super) struct Strings {
    /// With their spellings.
    found: Vec<(Box<str>, Box<[u8]>)>,
    known: HashSet<Box<str>>,
    words: Words,
    has_begun: bool,
}

impl Programs {
    /// Whether so many keys of a class were listed already.
    pub(super) fn has_listed_keys(&self, at: ObjectAt, class: usize, count: usize) -> bool {
        let language = self.plan(at.plan).classes[class];
        let strings = self.values.strings.get(&language);
        strings.is_some_and(|strings| strings.found.len() >= count)
    }

    /// So many keys of a class that an object doesn't have yet, as they are written, or as many as there
    /// are: the shortest ones.
    pub(super) fn fresh_keys(
        &mut self,
        lexicon: &mut Lexicon,
        at: ObjectAt,
        class: usize,
        count: usize,
        fuel: &mut Fuel,
    ) -> Result<Vec<Vec<u8>>, Stop> {
        let language = self.plan(at.plan).classes[class];
        let mut strings = self.values.strings.remove(&language).unwrap_or_default();
        let before = strings.words.memory_bytes();
        let keys = self.fresh_strings(lexicon, (language, &mut strings), at.seen, count, fuel);
        let after = strings.words.memory_bytes();
        self.values.bytes = (self.values.bytes + after).saturating_sub(before);
        self.values.strings.insert(language, strings);
        keys
    }

    fn fresh_strings(
        &mut self,
        lexicon: &mut Lexicon,
        (language, strings): (ExprId, &mut Strings),
        seen: SeenId,
        count: usize,
        fuel: &mut Fuel,
    ) -> Result<Vec<Vec<u8>>, Stop> {
        if !strings.has_begun {
            let all = Rest::Language(language, ByteSet::EMPTY);
            strings.words.push(lexicon, Vec::new(), all, fuel)?;
            strings.has_begun = true;
        }
        let mut keys = Vec::new();
        let (mut number, mut bytes) = (0, 0);
        while keys.len() < count {
            if keys.len() >= Bound::FreshKeys.max() {
                return Err(fuel.exhaust(Bound::FreshKeys));
            }
            let held = self.memory_bytes() + bytes;
            fuel.check_bytes(held + strings.words.memory_bytes())?;
            let Some((string, text)) = strings.found.get(number) else {
                let Some(text) = strings.words.next(lexicon, held, fuel)? else {
                    break;
                };
                let string = unquote(&String::from_utf8_lossy(&text));
                if let Ok((string, _)) = string
                    && strings.known.insert(string.as_str().into())
                {
                    self.values.bytes += with_room(size_of::<(Box<str>, Box<[u8]>)>() + 17)
                        + allocated(text.len())
                        + 2 * allocated(string.len());
                    strings.found.push((string.into(), text.into()));
                }
                continue;
            };
            number += 1;
            if !self.seen.has(seen, string) {
                bytes += with_room(size_of::<Vec<u8>>()) + allocated(text.len());
                keys.push(text.to_vec());
            }
        }
        fuel.burn(number as u64 / OPERANDS_PER_STEP)?;
        Ok(keys)
    }
}
