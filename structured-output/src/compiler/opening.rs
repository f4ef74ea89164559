//! Whether a grammar can be served: what a matcher's first call takes; of a schema also at each value, and
//! which schema is at fault where that is too much.
//!
//! None of this is the compilation's own work: it has as many steps again, and beyond these nothing is looked
//! at. The states that it makes stay, so their bytes are taken from the compilation's budget. What a matcher would do is done as it would do it,
//! each call within `max_mask_steps`; what it computes is known from then on.

use hashbrown::HashSet;

use super::job::{Job, exceeded};
use crate::automaton::{GrammarState, State};
use crate::engine::{Allowance, Engine};
use crate::error::{CompileError, MatcherError, ProblemPlace};
use crate::json::{Part, SchemaCompiler, Style};
use crate::options::Limits;

/// Times that a grammar's first mask is begun before it is refused: what one found is known to the next, and
/// requests try as often.
const MAX_FIRST_LOOKS: u32 = 3;

/// Times that a call is tried in memory that others share, as far as it may go there at a time: what it
/// computed is known the next time.
const MAX_ATTEMPTS: u32 = 16;

/// A schema that is compiled.
pub(super) struct Compiled {
    pub(super) compiler: SchemaCompiler,
    pub(super) style: Style,
    /// Steps that one call may take.
    pub(super) max_mask_steps: u64,
}

/// What came of a call.
enum Found<T> {
    Answer(T),
    /// It takes more than a call may: the limit.
    Exceeds(CompileError),
    /// There are too few steps left to tell, or too little memory: matchers will find that out.
    Unknown,
}

impl Job<'_> {
    /// Refuses a schema that can't be served from its first byte on, or at one of its values.
    pub(super) fn check_schema(
        &mut self,
        root: State,
        schema: &mut Compiled,
    ) -> Result<(), CompileError> {
        if !schema.compiler.may_be_dear() {
            return Ok(());
        }
        // That it can be completed is known, and no other part could be at fault.
        if schema.compiler.is_of_scalars() {
            let open = |engine: &Engine, allowance: &Allowance| engine.open_scalar(root, allowance);
            return match self.look(schema.max_mask_steps, open)? {
                Found::Exceeds(error) => Err(too_dear(schema, None, error)),
                _ => Ok(()),
            };
        }
        self.check_values(schema)?;
        let start = GrammarState::Machine(root);
        let whole = schema.compiler.whole();
        let has_keys = whole
            .as_ref()
            .is_some_and(|whole| schema.compiler.may_keys_be_dear(whole));
        let open = |engine: &Engine, allowance: &Allowance| match has_keys {
            true => engine.open(start, allowance),
            false => engine.mask(start, allowance).map(drop),
        };
        // Whatever was spent on its values: what a matcher does first is always looked at.
        self.grant_look(schema.max_mask_steps);
        if let Found::Exceeds(first) = self.look(schema.max_mask_steps, open)? {
            if let Some(whole) = &whole {
                self.check_parts(schema, whole)?;
            }
            // With all that is in it known.
            self.grant_look(schema.max_mask_steps);
            let again = self.look(schema.max_mask_steps, open)?;
            if let Some(error) = self.still_exceeds(first, again) {
                return Err(too_dear(schema, whole.as_ref(), error));
            }
        }
        Ok(())
    }

    /// Refuses a grammar whose first mask can't be made. The mask is kept for the first matcher.
    pub(super) fn check_first_mask(
        &mut self,
        root: GrammarState,
        limits: &Limits,
    ) -> Result<(), CompileError> {
        let mask = |engine: &Engine, allowance: &Allowance| engine.mask(root, allowance).map(drop);
        let mut exceeds = None;
        for _ in 0..MAX_FIRST_LOOKS {
            match self.look(limits.max_mask_steps, mask)? {
                Found::Exceeds(error) => exceeds = Some(error),
                _ => return Ok(()),
            }
            self.grant_look(limits.max_mask_steps);
        }
        exceeds.map_or(Ok(()), Err)
    }

    /// Refuses a schema with a value that can't be served.
    pub(super) fn check_values(&mut self, schema: &mut Compiled) -> Result<(), CompileError> {
        if !schema.compiler.may_be_dear() {
            return Ok(());
        }
        let mut seen = HashSet::new();
        // Each with the one around it.
        let mut met: Vec<(Part, Option<usize>)> = Vec::new();
        let whole = schema.compiler.whole();
        let mut pending: Vec<_> = whole.into_iter().map(|whole| (whole, None)).collect();
        while let Some((part, around)) = pending.pop() {
            if !seen.insert(part.key()) {
                continue;
            }
            if schema.compiler.may_part_be_dear(&part) {
                match self.look_at(schema, &part)? {
                    Found::Answer(true) => {}
                    // Nothing in it is ever met.
                    Found::Answer(false) => continue,
                    Found::Unknown => return Ok(()),
                    Found::Exceeds(_) if self.is_without_value(schema, &met, around)? => continue,
                    Found::Exceeds(first) => {
                        self.check_parts(schema, &part)?;
                        let again = self.look_at(schema, &part)?;
                        if let Some(error) = self.still_exceeds(first, again) {
                            return Err(too_dear(schema, Some(&part), error));
                        }
                    }
                }
            }
            let inner = schema.compiler.values_within(&part);
            met.push((part, around));
            let around = Some(met.len() - 1);
            pending.extend(inner.into_iter().rev().map(|part| (part, around)));
        }
        Ok(())
    }

    /// The limit that a call exceeds which exceeded one before, with less known. Where no steps are left to
    /// tell, it is the one before; where others fill the memory, it is found out without them.
    fn still_exceeds<T>(&self, first: CompileError, again: Found<T>) -> Option<CompileError> {
        match again {
            Found::Answer(_) => None,
            Found::Exceeds(error) => Some(error),
            Found::Unknown => (!self.lacked_room()).then_some(first),
        }
    }

    /// Whether one of the schemas around a place allows no value, so that nobody comes there.
    fn is_without_value(
        &mut self,
        schema: &Compiled,
        met: &[(Part, Option<usize>)],
        mut around: Option<usize>,
    ) -> Result<bool, CompileError> {
        while let Some((part, next)) = around.and_then(|at| met.get(at)) {
            if matches!(self.look_at(schema, part)?, Found::Answer(false)) {
                return Ok(true);
            }
            around = *next;
        }
        Ok(false)
    }

    /// Finds the innermost schema that is too dear by itself, in one that is.
    fn check_parts(&mut self, schema: &mut Compiled, part: &Part) -> Result<(), CompileError> {
        self.grant_looks();
        let parts = schema.compiler.parts_within(part);
        for inner in parts {
            match self.look_at(schema, &inner)? {
                Found::Answer(_) => {}
                Found::Exceeds(error) => return Err(too_dear(schema, Some(&inner), error)),
                Found::Unknown => break,
            }
        }
        Ok(())
    }

    /// Does a part of the compilation; if it takes too many steps, once more with all schemas known that are
    /// not too dear by themselves. Else, or if it takes too much memory, that is an error with the innermost
    /// one that is, or the whole.
    pub(super) fn with_parts_known<T>(
        &mut self,
        schema: &mut Compiled,
        mut work: impl FnMut(&mut Self) -> Result<T, CompileError>,
    ) -> Result<T, CompileError> {
        let steps = self.steps;
        let mut outcome = work(self);
        if let Err(CompileError::LimitExceeded { limit, .. }) = outcome
            && !self.is_dear()
            && let Some(whole) = schema.compiler.whole()
        {
            let is_memory = matches!(limit, "max_states" | "max_bytes");
            match self.check_parts(schema, &whole) {
                Err(CompileError::LimitExceeded { place, .. }) if !self.is_dear() => {
                    let place = place.unwrap_or_else(whole_schema);
                    return outcome.map_err(|error| at(error, Some(place)));
                }
                checked => checked?,
            }
            if !is_memory {
                self.steps = steps;
                outcome = work(self);
            }
        }
        outcome.map_err(|error| at(error, Some(whole_schema())))
    }

    fn look_at(&mut self, schema: &Compiled, part: &Part) -> Result<Found<bool>, CompileError> {
        let (node, style) = (part.node, schema.style.embedded());
        let has_keys = schema.compiler.may_keys_be_dear(part);
        self.look(schema.max_mask_steps, |engine, allowance| {
            engine.open_value(node, style, has_keys, allowance)
        })
    }

    /// Makes a matcher's call.
    fn look<T>(
        &mut self,
        max_mask_steps: u64,
        call: impl Fn(&Engine, &Allowance) -> Result<T, MatcherError>,
    ) -> Result<Found<T>, CompileError> {
        for _ in 0..MAX_ATTEMPTS {
            self.check_cancelled()?;
            let Some(granted) = self.steps_to_look(max_mask_steps)? else {
                return Ok(Found::Unknown);
            };
            let max_bytes = self.bytes_left();
            let allowance = Allowance::patient(granted)
                .with_max_call_steps(max_mask_steps)
                .with_max_bytes(max_bytes);
            let found = call(self.engine, &allowance);
            self.note_look(granted - allowance.left().unwrap_or(0));
            self.charge_bytes(max_bytes - allowance.bytes_left())?;
            if let (Err(_), Some((what, max))) = (&found, allowance.beyond()) {
                // However many steps there are.
                return Ok(Found::Exceeds(exceeded(what, max)));
            }
            match found {
                Ok(answer) => return Ok(Found::Answer(answer)),
                Err(MatcherError::StepsExhausted { max }) => {
                    return Ok(Found::Exceeds(exceeded("max_mask_steps", max)));
                }
                Err(MatcherError::AllowanceSpent) => self.engine.let_others_pass(),
                Err(MatcherError::BytesExhausted { .. }) => {
                    let error = self.out_of_bytes();
                    return match self.is_dear() {
                        true => Err(error),
                        false => Ok(Found::Exceeds(error)),
                    };
                }
                Err(MatcherError::StatesExhausted { max }) if !self.lacks_room() => {
                    return Ok(Found::Exceeds(exceeded("cache_bytes", max as u64)));
                }
                Err(_) => return Ok(Found::Unknown),
            }
        }
        self.goes_on_apart()?;
        Ok(Found::Unknown)
    }
}

/// The whole schema, for an error.
pub(super) fn whole_schema() -> ProblemPlace {
    ProblemPlace::at_pointer(String::new())
}

/// An error of a limit at a place, if it names none.
pub(super) fn at(error: CompileError, place: Option<ProblemPlace>) -> CompileError {
    match error {
        CompileError::LimitExceeded {
            limit,
            max,
            place: None,
        } => CompileError::LimitExceeded { limit, max, place },
        error => error,
    }
}

/// The error of a limit at a schema.
fn too_dear(schema: &Compiled, part: Option<&Part>, error: CompileError) -> CompileError {
    let place = part.map_or_else(whole_schema, |part| schema.compiler.place_of(part));
    at(error, Some(place))
}
