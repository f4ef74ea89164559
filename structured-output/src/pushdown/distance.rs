//! The shortest way to the end: its length, and its bytes.

use super::{Action, EMPTY_STACK, Machine, StackId, State};
use crate::json::Programs;
use crate::lexical::search::{DEAD, UNKNOWN};
use crate::lexical::{ExprId, Fuel, Stop};

/// Of more ends of a lexeme than these not all are looked at.
const MANY_ENDS: usize = 16;

/// An end of a lexeme: bytes to it, and its mark.
type LexemeEnd = (u32, u16);

/// Bytes of a completion in all, and the end of its first lexeme.
type NearestEnd = (u32, LexemeEnd);

/// The shortest of the completions that were looked at, with the group of its first lexeme's end.
#[derive(Default)]
struct Nearest {
    found: Option<(u32, NearestEnd)>,
}

impl Nearest {
    /// Whether an end needn't be looked at any more: no other of its group is nearer, or a group before
    /// it has a completion of at most so many bytes.
    fn is_before(&self, group: u32, end: LexemeEnd, enough: u32) -> bool {
        self.found
            .is_some_and(|(found, (total, _))| total <= end.0 || (found < group && total <= enough))
    }

    /// An end with what is left after it.
    fn add(&mut self, group: u32, end: LexemeEnd, rest: u32) {
        let total = end.0.saturating_add(rest);
        let least = self.found.map_or(DEAD, |(_, (least, _))| least);
        if total < least {
            self.found = Some((group, (total, end)));
        }
    }
}

impl Machine {
    /// Bytes of a short completion, the shortest where the grammar is one expression; [`DEAD`] where
    /// there is none. And the mark with which its first lexeme ends, where that is now.
    ///
    /// Where what follows depends on the lexeme's text, on a key or an item, it is taken as if it
    /// didn't.
    pub(crate) fn distance(
        &mut self,
        state: State,
        fuel: &mut Fuel,
    ) -> Result<(u32, Option<u16>), Stop> {
        if state.stack == EMPTY_STACK {
            return Ok((self.lexicon.distance(state.lexeme, fuel)?, None));
        }
        let nearest = self.nearest_end(state.stack, state.lexeme, fuel)?;
        Ok(nearest.map_or((DEAD, None), |(total, (bytes, mark))| {
            (total, (bytes == 0).then_some(mark))
        }))
    }

    /// A short completion from within the lexeme of a stack's top frame, which is not empty.
    ///
    /// A byte toward the end of the lexeme that it has brings that one nearer, and puts no other before
    /// it. So the completion from there is shorter.
    fn nearest_end(
        &mut self,
        stack: StackId,
        lexeme: ExprId,
        fuel: &mut Fuel,
    ) -> Result<Option<NearestEnd>, Stop> {
        let mut nearest = Nearest::default();
        let enough = self.enough(stack, fuel)?;
        for (group, end) in self.ends_in_groups(stack, lexeme, fuel)? {
            if nearest.is_before(group, end, enough) {
                continue;
            }
            let rest = self.after_end(stack, end.1, fuel)?;
            nearest.add(group, end, self.total(rest, fuel)?);
        }
        Ok(nearest.found.map(|(_, found)| found))
    }

    /// How short a completion has to be for the ends of later groups not to be looked at.
    ///
    /// Where a value has several goals, its end may meet one with which more is owed than before the
    /// value: an array that is to contain a list with duplicates would have lists without them for ever.
    fn enough(&mut self, stack: StackId, fuel: &mut Fuel) -> Result<u32, Stop> {
        match self.stacks.top(stack) {
            Some(top) if self.programs.num_goals(&self.stacks.frame(top)) > 1 => {
                self.total(stack, fuel)
            }
            _ => Ok(DEAD),
        }
    }

    /// The ends of a lexeme in groups, in the order in which they are looked at: those of a group only
    /// where none of the groups before leads to an end of the text.
    ///
    /// Where an array or object may end, what else may come comes after that. Where one of many keys may
    /// come, each of which would be a frame of its own after it, those come first that the short way from
    /// the frame on has, one by one, then some of the shortest.
    fn ends_in_groups(
        &mut self,
        stack: StackId,
        lexeme: ExprId,
        fuel: &mut Fuel,
    ) -> Result<Vec<(u32, LexemeEnd)>, Stop> {
        let ends = self.lexicon.ends(lexeme, fuel)?;
        let way = match self.stacks.top(stack) {
            Some(top) if ends.len() > MANY_ENDS => {
                let frame = self.stacks.frame(top);
                let lexicon = &mut self.lexicon;
                self.programs.marks_on_way(lexicon, &frame, fuel)?
            }
            _ => None,
        };
        let mut groups: Vec<(u32, LexemeEnd)> = match way {
            None => ends
                .into_iter()
                .map(|end| (u32::from(Programs::is_comma(end.1)), end))
                .collect(),
            Some(way) => {
                fuel.burn(ends.len() as u64 / 8)?;
                let mut num_others = 0;
                let group_of = |(_, mark): LexemeEnd| {
                    if Programs::is_close(mark) {
                        return 0;
                    }
                    if let Ok(at) = way.binary_search(&mark) {
                        return 1 + at as u32;
                    }
                    num_others += 1;
                    let further = (num_others as u32).saturating_sub(MANY_ENDS as u32);
                    1 + way.len() as u32 + further
                };
                let groups: Vec<u32> = ends.iter().copied().map(group_of).collect();
                groups.into_iter().zip(ends).collect()
            }
        };
        groups.sort_unstable();
        Ok(groups)
    }

    /// The stack after the end of a lexeme, as if what follows didn't depend on its text.
    fn after_end(&mut self, stack: StackId, mark: u16, fuel: &mut Fuel) -> Result<StackId, Stop> {
        let below = self.stacks.below(stack);
        Ok(match self.action(stack, mark, fuel)? {
            Action::Replace(frames) => self.push_all(below, frames.into_iter().flatten()),
            Action::Verdict(goal) => self.met(below, goal),
            Action::Member { next, value } => self.push_all(below, [next, value]),
        })
    }

    /// Bytes of a short completion of a stack's frames; [`DEAD`] where there is none.
    fn total(&mut self, stack: StackId, fuel: &mut Fuel) -> Result<u32, Stop> {
        let mut pending = vec![stack];
        let mut total = 0;
        while let Some(&next) = pending.last() {
            fuel.burn(1)?;
            total = self.known_total(next);
            let (UNKNOWN, Some(top)) = (total, self.stacks.top(next)) else {
                pending.pop();
                continue;
            };
            let frame = self.stacks.frame(top);
            let below = self.stacks.below(next);
            let before = pending.len();
            let mut least = DEAD;
            let num_goals = if self.programs.is_after_comma(&frame) {
                least = self.total_after_comma(next, &mut pending, fuel)?;
                0
            } else {
                self.programs.num_goals(&frame)
            };
            for goal in 0..num_goals {
                let rest = self.met(below, goal);
                match self.known_total(rest) {
                    UNKNOWN => pending.push(rest),
                    rest => {
                        let cost =
                            self.programs
                                .frame_cost(&mut self.lexicon, &frame, goal, fuel)?;
                        least = least.min(cost.saturating_add(rest));
                    }
                }
            }
            if pending.len() == before {
                let at = next.0 as usize;
                if self.totals.len() <= at {
                    self.totals.resize(at + 1, UNKNOWN);
                }
                self.totals[at] = least;
            }
        }
        Ok(total)
    }

    /// Bytes of a short completion of a stack whose top frame is one after a comma: by its first
    /// lexeme. What has to be known before is added to `pending`; then the answer means nothing.
    fn total_after_comma(
        &mut self,
        stack: StackId,
        pending: &mut Vec<StackId>,
        fuel: &mut Fuel,
    ) -> Result<u32, Stop> {
        let Some(top) = self.stacks.top(stack) else {
            return Ok(DEAD);
        };
        let entry = self.expansion(top, fuel)?.entry;
        let mut nearest = Nearest::default();
        let mut asked_in = None;
        for (group, end) in self.ends_in_groups(stack, entry, fuel)? {
            if nearest.is_before(group, end, DEAD) {
                continue;
            }
            if asked_in.is_some_and(|asked| asked < group) {
                break;
            }
            let rest = self.after_end(stack, end.1, fuel)?;
            match self.known_total(rest) {
                UNKNOWN => {
                    pending.push(rest);
                    asked_in = Some(group);
                }
                total => nearest.add(group, end, total),
            }
        }
        Ok(nearest.found.map_or(DEAD, |(_, (total, _))| total))
    }

    fn known_total(&self, stack: StackId) -> u32 {
        match stack {
            EMPTY_STACK => 0,
            _ => self
                .totals
                .get(stack.0 as usize)
                .copied()
                .unwrap_or(UNKNOWN),
        }
    }

    /// The first byte of the canonical completion and the state after it; `None` at an end.
    ///
    /// Each byte brings the end of a lexeme nearer, and each lexeme that of the text.
    pub(crate) fn toward_end(
        &mut self,
        state: State,
        fuel: &mut Fuel,
    ) -> Result<Option<(u8, State)>, Stop> {
        if self.is_accepting(state, fuel)? {
            return Ok(None);
        }
        let mut at = state;
        let end = loop {
            if at.stack == EMPTY_STACK {
                break None;
            }
            match self.nearest_end(at.stack, at.lexeme, fuel)? {
                Some((_, (0, mark))) => at = self.end_lexeme(at, mark, fuel)?,
                Some((_, end)) => break Some(end),
                None => return Ok(None),
            }
        };
        let byte = match end {
            Some(end) => self.byte_toward(at.lexeme, end, fuel)?,
            None => self.byte_to_nearest(at.lexeme, fuel)?,
        };
        let Some(byte) = byte else {
            return Ok(None);
        };
        Ok(self.step(at, byte, fuel)?.map(|next| (byte, next)))
    }

    /// The smallest byte that brings an end of a lexeme nearer.
    fn byte_toward(
        &mut self,
        lexeme: ExprId,
        (bytes, mark): LexemeEnd,
        fuel: &mut Fuel,
    ) -> Result<Option<u8>, Stop> {
        let derivatives = self.lexicon.derivatives(lexeme, fuel)?;
        let mut by_byte: Vec<(u8, ExprId)> = derivatives
            .into_iter()
            .filter_map(|(bytes, next)| bytes.iter().next().map(|byte| (byte, next)))
            .collect();
        by_byte.sort_unstable();
        for (byte, next) in by_byte {
            let ends = self.lexicon.ends(next, fuel)?;
            if ends.contains(&(bytes.saturating_sub(1), mark)) {
                return Ok(Some(byte));
            }
        }
        Ok(None)
    }

    /// The smallest byte with which a lexeme without frames below it comes nearest to its end.
    fn byte_to_nearest(&mut self, lexeme: ExprId, fuel: &mut Fuel) -> Result<Option<u8>, Stop> {
        let mut nearest: Option<(u32, u8)> = None;
        for (bytes, next) in self.lexicon.derivatives(lexeme, fuel)? {
            let distance = self.lexicon.distance(next, fuel)?;
            let Some(byte) = bytes.iter().next() else {
                continue;
            };
            if distance != DEAD && nearest.is_none_or(|known| (distance, byte) < known) {
                nearest = Some((distance, byte));
            }
        }
        Ok(nearest.map(|(_, byte)| byte))
    }
}
