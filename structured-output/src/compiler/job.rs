//! One compilation, under a budget. The automaton is locked for slices of the work only.

use std::sync::Arc;

use super::opening::{at, whole_schema};
use crate::automaton::{GrammarState, State, TokenAutomaton};
use crate::engine::Engine;
use crate::error::{CompileError, ProblemPlace};
use crate::grammar::CompiledGrammar;
use crate::lexical::search::{DEAD, Search};
use crate::lexical::{ChoiceTree, Fuel, Lexicon, Stop};
use crate::metered::MeteredAllocator;
use crate::options::{CancelFlag, CompileBudget, Limits};
use crate::regex::{self, Dialect, Spelling, Translator};
use crate::specification::GrammarSpecification;

pub(super) fn exceeded(limit: &'static str, max: u64) -> CompileError {
    let place = None;
    CompileError::LimitExceeded { limit, max, place }
}

/// How a compilation ended, and whether that is in doubt: in memory where nothing was known before it
/// might have exceeded its budget.
pub(super) type Verdict = (Result<CompiledGrammar, CompileError>, bool);

/// How much of its budget a compilation may spend where others wait.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Steps of one slice.
    pub(super) max_slice_steps: u64,
    /// Steps in all.
    pub(super) max_steps: u64,
    /// Bytes of states that it may add.
    pub(super) max_bytes: usize,
}

impl Patience {
    /// As much as the budget allows.
    pub(super) const ENDLESS: Self = Self {
        max_slice_steps: u64::MAX,
        max_steps: u64::MAX,
        max_bytes: usize::MAX,
    };

    /// Whether it is that.
    pub(super) fn is_endless(self) -> bool {
        self.max_slice_steps == u64::MAX
            && self.max_steps == u64::MAX
            && self.max_bytes == usize::MAX
    }
}

/// In what memory a compilation is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Memory {
    /// Among others.
    Shared,
    /// Nothing else is there.
    Alone,
}

/// Compiles a specification in a generation of the engine. `None` where that takes more than the patience
/// allows.
pub(super) fn compile(
    specification: &Arc<(GrammarSpecification, CompileBudget)>,
    engine: Arc<Engine>,
    limits: &Limits,
    patience: Patience,
    memory: Memory,
    cancel: &CancelFlag,
) -> Option<Verdict> {
    let mut job = Job {
        engine: &engine,
        budget: specification.1,
        patience,
        is_dear: false,
        cancel,
        states: 0,
        bytes: 0,
        thread_bytes: MeteredAllocator::thread_bytes(),
        spare_bytes: 0,
        steps: 0,
        looked: 0,
        max_looked: specification.1.max_steps,
        num_known: 0,
        was_fresh: engine.is_fresh(),
        lacks_room: false,
        memory,
    };
    let root = job.root_of(&specification.0, limits);
    let (is_dear, is_in_doubt) = (job.is_dear, job.is_in_doubt());
    let size = (job.states, job.bytes);
    // Tables that all share are made anew where they grow, which whoever comes then is charged for.
    let has_spent_less = !job.was_fresh && job.bytes <= job.budget.max_bytes;
    if is_dear {
        return None;
    }
    let is_closed = engine.is_closed();
    let specification = Arc::clone(specification);
    let compiled = root.map(|root| CompiledGrammar::new(engine, root, size, specification));
    let is_in_doubt = match &compiled {
        _ if is_closed => true,
        Ok(_) => is_in_doubt,
        Err(CompileError::LimitExceeded {
            limit: "max_bytes" | "max_mask_bytes",
            ..
        }) => has_spent_less,
        Err(_) => false,
    };
    Some((compiled, is_in_doubt))
}

/// What a compilation has spent so far.
pub(super) struct Job<'a> {
    pub(super) engine: &'a Engine,
    pub(super) budget: CompileBudget,
    patience: Patience,
    /// Whether it would have taken more than that.
    is_dear: bool,
    cancel: &'a CancelFlag,
    states: usize,
    pub(super) bytes: usize,
    /// What the thread held when it began.
    thread_bytes: isize,
    /// Bytes beyond the budget, to find out which schema is at fault.
    spare_bytes: usize,
    pub(super) steps: u64,
    /// Steps of calls that matchers would make.
    looked: u64,
    /// As many as there may be.
    max_looked: u64,
    /// Expressions that it asked for and that were there already, at most: of others, or its own.
    num_known: usize,
    /// Whether nobody was there before it.
    was_fresh: bool,
    /// Whether a matcher's call had too little memory, which others may have filled.
    lacks_room: bool,
    pub(super) memory: Memory,
}

/// Parts of a syntax tree, or strings of a choice, per slice.
pub(super) const SLICE_PARTS: usize = 64;

/// Steps of a search per slice: about a millisecond, in which matchers wait.
const SLICE_STEPS: u64 = 2_000;

impl Job<'_> {
    /// The start of the grammar that is specified, which has a completion by tokens.
    fn root_of(
        &mut self,
        what: &GrammarSpecification,
        limits: &Limits,
    ) -> Result<GrammarState, CompileError> {
        use GrammarSpecification::{
            Choice, Ebnf, JsonObject, JsonSchema, Lark, Regex, StructuralTag,
        };
        let machine = GrammarState::Machine;
        let mut compiled = None;
        let root = match what {
            Regex(pattern) => machine(self.regex(pattern, limits)?),
            Choice(choices) => machine(self.choice(choices)?),
            JsonSchema(schema, options) => {
                let (root, schema) = self.json_schema(schema, options, limits)?;
                compiled = Some((root, schema));
                machine(root)
            }
            JsonObject(options) => machine(self.json_object(options, limits)?),
            Ebnf { grammar, root } => return self.ebnf(grammar, root, limits),
            Lark(grammar) => return self.lark(grammar, limits),
            StructuralTag(tag) => return self.structural_tag(tag, limits),
        };
        let Some((start, mut schema)) = compiled else {
            self.check_grammar(root)?;
            return match self.check_first_mask(root, limits) {
                Ok(()) => Ok(root),
                Err(error) => Err(at(error, Some(ProblemPlace::beginning()))),
            };
        };
        match self.with_parts_known(&mut schema, |job| job.check_completable(start)) {
            Err(CompileError::Unsatisfiable) => Err(self.no_value(schema.compiler)),
            checked => checked
                .and_then(|()| self.check_schema(start, &mut schema))
                .map_err(|error| at(error, Some(whole_schema())))
                .map(|()| root),
        }
    }

    /// What is left of the compilation's steps.
    pub(super) fn steps_left(&self) -> u64 {
        self.max_steps().saturating_sub(self.steps)
    }

    /// Bytes of states that the compilation may still add.
    pub(super) fn bytes_left(&self) -> usize {
        self.max_bytes().saturating_sub(self.taken_bytes())
    }

    /// Bytes that it has taken: by what was charged, or by what the thread has allocated, whichever is more.
    fn taken_bytes(&self) -> usize {
        let allocated = MeteredAllocator::thread_bytes().saturating_sub(self.thread_bytes);
        self.bytes.max(usize::try_from(allocated).unwrap_or(0))
    }

    /// Bytes of states that it may add in all.
    fn max_bytes(&self) -> usize {
        let granted = self.budget.max_bytes.saturating_add(self.spare_bytes);
        granted.min(self.patience.max_bytes)
    }

    /// The error of a compilation that needs more bytes of states than it may add. It is dear if its budget
    /// has more of them.
    pub(super) fn out_of_bytes(&mut self) -> CompileError {
        self.is_dear |= self.patience.max_bytes < self.budget.max_bytes;
        exceeded("max_bytes", self.budget.max_bytes as u64)
    }

    /// Steps that it may take in all.
    fn max_steps(&self) -> u64 {
        self.budget.max_steps.min(self.patience.max_steps)
    }

    /// What is left of the compilation's steps, as far as one slice may take them.
    pub(super) fn fuel(&self) -> Fuel {
        Fuel::new(self.steps_left().min(self.patience.max_slice_steps))
    }

    /// What it means that a slice has used up the steps it had, or the compilation all of them.
    pub(super) fn out_of_steps(&mut self) -> CompileError {
        let left = self.budget.max_steps.saturating_sub(self.steps);
        self.is_dear |= left > self.patience.max_slice_steps || self.steps_left() < left;
        exceeded("max_steps", self.budget.max_steps)
    }

    /// What it means that a piece of its work ended early.
    pub(super) fn stopped(&mut self, stop: Stop) -> CompileError {
        match stop {
            Stop::Steps => self.out_of_steps(),
            Stop::Bytes(_) => self.out_of_bytes(),
            Stop::Items => exceeded("max_items", self.engine.max_items() as u64),
            Stop::Bound(bound) => exceeded(bound.what(), bound.max() as u64),
        }
    }

    /// Whether it takes more than its patience.
    pub(super) fn is_dear(&self) -> bool {
        self.is_dear
    }

    /// Steps that a matcher's call may take, of as many for all of them as for the compilation. `None` where
    /// these are spent.
    pub(super) fn steps_to_look(
        &mut self,
        max_mask_steps: u64,
    ) -> Result<Option<u64>, CompileError> {
        let left = self.max_looked.saturating_sub(self.looked);
        let patience = self.patience.max_steps;
        let patience_left = patience.saturating_sub(self.steps.saturating_add(self.looked));
        if left == 0 {
            return Ok(None);
        }
        if patience_left == 0 {
            self.goes_on_apart()?;
        }
        let at_once = self.patience.max_slice_steps.min(max_mask_steps);
        Ok(Some(left.min(patience_left).min(at_once)))
    }

    /// As many steps once more and an eighth of the bytes, to find out which schema is at fault.
    pub(super) fn grant_looks(&mut self) {
        self.max_looked = self.budget.max_steps.saturating_mul(2);
        self.spare_bytes = self.budget.max_bytes / 8;
    }

    /// As many steps as one call may take, for another one, if the budget has as many at all.
    pub(super) fn grant_look(&mut self, max_mask_steps: u64) {
        if self.budget.max_steps >= max_mask_steps {
            let needed = self.looked.saturating_add(max_mask_steps);
            self.max_looked = self.max_looked.max(needed);
        }
    }

    /// Takes note of what such a call has taken.
    pub(super) fn note_look(&mut self, steps: u64) {
        self.looked += steps;
    }

    /// Ends a compilation that would take more than its patience, if that has an end.
    pub(super) fn goes_on_apart(&mut self) -> Result<(), CompileError> {
        if self.patience.is_endless() {
            return Ok(());
        }
        self.is_dear = true;
        Err(exceeded("max_steps", self.budget.max_steps))
    }

    /// Ends a compilation that nobody waits for.
    pub(super) fn check_cancelled(&self) -> Result<(), CompileError> {
        match self.cancel.is_cancelled() {
            true => Err(CompileError::Cancelled),
            false => Ok(()),
        }
    }

    /// One slice of work that takes steps.
    pub(super) fn fuelled_slice<T>(
        &mut self,
        work: impl FnOnce(&mut TokenAutomaton, &mut Fuel) -> Result<T, Stop>,
    ) -> Result<T, CompileError> {
        let mut fuel = self.fuel();
        let before = fuel.left();
        let max_bytes = self.bytes_left();
        let result = self.slice(|automaton| {
            fuel.limit_bytes(automaton.state_bytes().saturating_add(max_bytes));
            fuel.limit_thread_bytes(max_bytes);
            work(automaton, &mut fuel)
        })?;
        let result = result.map_err(|stop| self.stopped(stop))?;
        self.steps += before - fuel.left();
        Ok(result)
    }

    /// One slice of the work: locks the automaton, and charges what the slice added.
    pub(super) fn slice<T>(
        &mut self,
        work: impl FnOnce(&mut TokenAutomaton) -> T,
    ) -> Result<T, CompileError> {
        self.check_cancelled()?;
        let mut num_known = 0;
        let done = self.engine.slice(|automaton| {
            let before = (automaton.num_states(), automaton.state_bytes());
            let num_asked = automaton.num_asked();
            let result = work(automaton);
            let states = automaton.num_states() - before.0;
            let num_asked = (automaton.num_asked() - num_asked) as usize;
            num_known = num_asked.saturating_sub(states);
            // Some of it may have been forgotten.
            let bytes = automaton.state_bytes().saturating_sub(before.1);
            (result, states, bytes)
        });
        let Some((result, states, bytes)) = done else {
            // The caller sees that the engine is closed, and doubts it.
            return Err(exceeded("max_states", self.budget.max_states as u64));
        };
        self.states += states;
        self.bytes += bytes;
        self.num_known += num_known;
        let max_states = self.budget.max_states;
        if self.states > max_states {
            return Err(exceeded("max_states", max_states as u64));
        }
        self.check_bytes()?;
        if self.steps > self.max_steps() {
            return Err(self.out_of_steps());
        }
        Ok(result)
    }

    /// Adds bytes that a matcher's call took, or that a schema's values take, to those of the compilation.
    ///
    /// # Errors
    /// The limit on them.
    pub(super) fn charge_bytes(&mut self, bytes: usize) -> Result<(), CompileError> {
        self.bytes = self.bytes.saturating_add(bytes);
        self.check_bytes()
    }

    fn check_bytes(&mut self) -> Result<(), CompileError> {
        match self.taken_bytes() > self.max_bytes() {
            true => Err(self.out_of_bytes()),
            false => Ok(()),
        }
    }

    /// Takes note that there was too little memory for a matcher's call. Whether that may be because of
    /// others.
    pub(super) fn lacks_room(&mut self) -> bool {
        self.lacks_room = self.memory == Memory::Shared;
        self.lacks_room
    }

    /// Whether there was too little memory for one, maybe because of others.
    pub(super) fn lacked_room(&self) -> bool {
        self.lacks_room
    }

    /// Whether what others have left in the engine may be why the budget was enough, or why not all was
    /// looked at.
    fn is_in_doubt(&self) -> bool {
        let bytes = Lexicon::bytes_of(self.num_known);
        self.lacks_room
            || self.states.saturating_add(self.num_known) > self.budget.max_states
            || self.taken_bytes().saturating_add(bytes) > self.budget.max_bytes
    }

    fn regex(&mut self, pattern: &str, limits: &Limits) -> Result<State, CompileError> {
        let error =
            |error: regex::RegexError| CompileError::regex(pattern, error.offset, error.message);
        let ast = regex::parse(pattern, Dialect::Python, limits.regex()).map_err(error)?;
        let mut translator = Translator::new(ast, Spelling::Utf8);
        loop {
            self.steps += SLICE_PARTS as u64;
            let done = self
                .slice(|automaton| translator.run(&mut automaton.machine().lexicon, SLICE_PARTS))?;
            if let Some(root) = done.map_err(error)? {
                return self.slice(|automaton| automaton.machine().start_of_expression(root));
            }
        }
    }

    fn choice(&mut self, choices: &[String]) -> Result<State, CompileError> {
        if choices.is_empty() {
            return Err(CompileError::EmptyChoice);
        }
        let mut words: Vec<&[u8]> = choices.iter().map(|choice| choice.as_bytes()).collect();
        words.sort_unstable();
        words.dedup();
        let mut tree = ChoiceTree::default();
        for some in words.chunks(SLICE_PARTS) {
            self.steps += some.iter().map(|word| 1 + word.len() as u64).sum::<u64>();
            self.slice(|automaton| {
                let lexicon = &mut automaton.machine().lexicon;
                some.iter().for_each(|word| tree.push(lexicon, word));
            })?;
        }
        self.slice(|automaton| {
            let root = tree.finish(&mut automaton.machine().lexicon);
            automaton.machine().start_of_expression(root)
        })
    }

    /// Refuses a grammar without any completion.
    pub(super) fn check_completable(&mut self, root: State) -> Result<(), CompileError> {
        let mut slice_steps = SLICE_STEPS;
        let mut by_bytes = Search::new(root.lexeme);
        let mut by_tokens = Search::new(root);
        let mut text_exists = false;
        loop {
            if slice_steps > self.patience.max_slice_steps {
                return Err(self.out_of_steps());
            }
            let steps = slice_steps.min(self.steps_left() + 1);
            let mut fuel = Fuel::new(steps);
            let num_seen = by_bytes.num_seen() + by_tokens.num_seen();
            let max_bytes = self.bytes_left();
            let found = self.slice(|automaton| {
                fuel.limit_bytes(automaton.state_bytes().saturating_add(max_bytes));
                fuel.limit_thread_bytes(max_bytes);
                if !text_exists
                    && by_bytes.run(&mut automaton.machine().lexicon, &mut fuel)? == DEAD
                {
                    return Ok(Err(CompileError::Unsatisfiable));
                }
                text_exists = true;
                Ok(match automaton.run_by_tokens(&mut by_tokens, &mut fuel)? {
                    DEAD => Err(CompileError::NotWritable),
                    _ => Ok(()),
                })
            })?;
            match found {
                Ok(outcome) => return outcome,
                Err(Stop::Steps) => {}
                Err(stop) => return Err(self.stopped(stop)),
            }
            self.steps += steps;
            // Doubling where a slice brought nothing: one step may need a whole walk of the
            // vocabulary.
            slice_steps = match by_bytes.num_seen() + by_tokens.num_seen() > num_seen {
                true => SLICE_STEPS,
                false => slice_steps.saturating_mul(2),
            };
        }
    }
}
