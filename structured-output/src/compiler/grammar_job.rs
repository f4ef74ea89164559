//! Compiling grammars with rules: EBNF, Lark, structural tags.

use std::sync::Arc;

use super::job::{Job, SLICE_PARTS, exceeded};
use super::opening::whole_schema;
use super::vocabulary::Vocabulary;
use crate::automaton::GrammarState;
use crate::earley::{Compilation, LazyError, LowerError, Lowered, NamedToken, no_token};
use crate::error::{CompileError, ProblemPlace, line_and_column};
use crate::grammar_syntax::{
    EmbeddedSchema, Grammar, RuleId, SchemaPlace, SyntaxError, SyntaxLimits, TagError, TokenSet,
    parse_ebnf, parse_lark, parse_structural_tag,
};
use crate::index::{ROOT, TokenizerIndex};
use crate::lexical::search::{DEAD, Search};
use crate::lexical::{Fuel, Stop};
use crate::options::Limits;

/// Expressions that take as long to be asked for as a step of derivation.
const ASKED_PER_STEP: u64 = 4;

/// What is wrong at an offset of a rule's source, as the caller is told.
type Locate<'a> = &'a dyn Fn(RuleId, usize, String) -> CompileError;

impl SyntaxLimits {
    pub(super) fn of(limits: &Limits) -> Self {
        Self {
            max_rules: limits.max_rules,
            max_nodes: limits.max_grammar_nodes,
            max_nesting: limits.max_nesting,
            max_repetition: limits.max_repetition,
            max_trigger_overlaps: limits.max_trigger_overlaps,
            max_nested_grammars: limits.max_nested_grammars,
            regex: limits.regex(),
        }
    }
}

impl Job<'_> {
    pub(super) fn ebnf(
        &mut self,
        source: &str,
        root: &str,
        limits: &Limits,
    ) -> Result<GrammarState, CompileError> {
        let mut grammar = self.empty_grammar();
        let root = parse_ebnf(source, root, &SyntaxLimits::of(limits), &mut grammar)
            .map_err(|error| syntax_error(source, error))?;
        self.grammar(grammar, root, limits, &|_, offset, message| {
            CompileError::grammar(source, offset, message)
        })
    }

    pub(super) fn lark(
        &mut self,
        source: &str,
        limits: &Limits,
    ) -> Result<GrammarState, CompileError> {
        let mut grammar = self.empty_grammar();
        let root = parse_lark(source, &SyntaxLimits::of(limits), &mut grammar)
            .map_err(|error| syntax_error(source, error))?;
        self.grammar(grammar, root, limits, &|_, offset, message| {
            CompileError::grammar(source, offset, message)
        })
    }

    pub(super) fn structural_tag(
        &mut self,
        source: &str,
        limits: &Limits,
    ) -> Result<GrammarState, CompileError> {
        let mut grammar = self.empty_grammar();
        let index = self.engine.index();
        let check = |set: &TokenSet| check_tokens(index, set);
        let parsed = parse_structural_tag(source, &SyntaxLimits::of(limits), &check, &mut grammar)
            .map_err(|error| match error {
                TagError::At { pointer, message } => {
                    CompileError::StructuralTag { pointer, message }
                }
                TagError::Limit { limit, max, place } => CompileError::LimitExceeded {
                    limit,
                    max,
                    place: Some(place),
                },
            })?;
        self.grammar(grammar, parsed.root, limits, &|rule, offset, message| {
            let (pointer, message) = parsed.located(rule, offset, message);
            CompileError::StructuralTag { pointer, message }
        })
    }

    /// A grammar without rules, that knows the texts of tokens that are never text.
    fn empty_grammar(&self) -> Grammar {
        Grammar {
            control_tokens: Arc::clone(self.engine.index().control_texts()),
            ..Grammar::default()
        }
    }

    /// A grammar from a rule on. A limit that no single rule is known to exceed is told at that rule.
    pub(super) fn grammar(
        &mut self,
        grammar: Grammar,
        root: RuleId,
        limits: &Limits,
        locate: Locate<'_>,
    ) -> Result<GrammarState, CompileError> {
        let start = grammar.rules.get(root);
        let (offset, name) = start.map_or((0, "".into()), |rule| (rule.offset, rule.name.clone()));
        let state = self.compiled_from_rule(grammar, root, limits, locate);
        let checked = state.and_then(|state| {
            self.check_grammar(state)?;
            self.check_first_mask(state, limits)?;
            Ok(state)
        });
        checked.map_err(|error| at_place(error, locate(root, offset, String::new()), Some(&name)))
    }

    fn compiled_from_rule(
        &mut self,
        grammar: Grammar,
        root: RuleId,
        limits: &Limits,
        locate: Locate<'_>,
    ) -> Result<GrammarState, CompileError> {
        self.steps += grammar.num_nodes as u64;
        let rules: Vec<(usize, Box<str>)> = grammar
            .rules
            .iter()
            .map(|rule| (rule.offset, rule.name.clone()))
            .collect();
        let offset_of = |rule: RuleId| rules.get(rule).map_or(0, |(offset, _)| *offset);
        let nothing = |rule: RuleId| {
            let message = "no text matches this rule".to_owned();
            locate(rule, offset_of(rule), message)
        };
        // A limit that is exceeded by a rule.
        let by_rule = |error: CompileError, rule: Option<RuleId>| match rule {
            Some(rule) => {
                let name = rules.get(rule).map(|(_, name)| &**name);
                at_place(error, locate(rule, offset_of(rule), String::new()), name)
            }
            None => error,
        };
        let index = Arc::clone(self.engine.index());
        let mut compilation =
            Compilation::new(grammar, root, |name| tokens_named(&index, name.as_bytes()));
        let lowered = loop {
            let mut asked = 0;
            let done = self.slice(|automaton| {
                let lexicon = &mut automaton.machine().lexicon;
                let before = lexicon.num_asked();
                let done = compilation.lower(lexicon, SLICE_PARTS);
                asked = lexicon.num_asked() - before;
                done
            });
            self.steps += (asked / ASKED_PER_STEP).max(SLICE_PARTS as u64);
            let done = done.map_err(|error| by_rule(error, compilation.last_lowered()))?;
            let located = |error: LowerError| locate(error.rule, error.offset, error.message);
            if let Some(lowered) = done.map_err(located)? {
                break lowered;
            }
        };
        if let Lowered::Regular(expr) = lowered {
            let start = self.slice(|automaton| automaton.machine().start_of_expression(expr))?;
            let checked = self.check_completable(start);
            checked.map_err(|error| match error {
                CompileError::Unsatisfiable => nothing(root),
                other => by_rule(other, Some(root)),
            })?;
            return Ok(GrammarState::Machine(start));
        }
        let schemas: Vec<(EmbeddedSchema, RuleId, usize)> = compilation
            .schemas()
            .map(|(schema, rule, offset)| (schema.clone(), rule, offset))
            .collect();
        let mut json = Vec::with_capacity(schemas.len());
        for (schema, rule, offset) in schemas {
            if !self.engine.lock().writes_any_text() {
                let message = "JSON in a grammar needs a vocabulary that can write any text";
                return Err(locate(rule, offset, message.to_owned()));
            }
            let state = self
                .embedded_json(&schema, limits)
                .map_err(|error| match &schema.place {
                    Some(place) => in_tag(error, place),
                    None => error,
                })
                .map_err(|error| match error {
                    CompileError::JsonSyntax { message, .. } => locate(rule, offset, message),
                    CompileError::JsonSchema { pointer, message } => {
                        locate(rule, offset, format!("schema, at `#{pointer}`: {message}"))
                    }
                    // That of a tag's schema is known already.
                    other if schema.place.is_some() => other,
                    other => in_schema(other, locate(rule, offset, String::new())),
                })?;
            json.push(state);
        }
        let mut vocabulary = Vocabulary::new(&index);
        let mut sets = Vec::new();
        for (set, rule, offset) in compilation.token_sets() {
            let tokens = self.metered(|fuel| vocabulary.tokens_of(set, fuel));
            let tokens = tokens.map_err(|error| by_rule(error, Some(rule)))?;
            sets.push(tokens.map_err(|message| locate(rule, offset, message))?);
        }
        self.metered(|fuel| compilation.build(json, sets, fuel))?;
        loop {
            self.steps += 1;
            let done = self.fuelled_slice(|automaton, fuel| {
                let lexicon = &mut automaton.machine().lexicon;
                match compilation.resolve_lazy(lexicon, SLICE_PARTS, fuel) {
                    Ok(is_done) => Ok(Ok(is_done)),
                    Err(LazyError::Refused(error)) => Ok(Err(error)),
                    Err(LazyError::Stopped(stop)) => Err(stop),
                }
            });
            if done?.map_err(|error| locate(error.rule, error.offset, error.message))? {
                break;
            }
        }
        loop {
            self.steps += 1;
            let done = self.fuelled_slice(|automaton, fuel| {
                let bytes = automaton.closed_bytes();
                let lexicon = &mut automaton.machine().lexicon;
                compilation.weigh(lexicon, bytes, SLICE_PARTS, fuel)
            });
            if done.map_err(|error| by_rule(error, compilation.rule_being_weighed()))? {
                break;
            }
        }
        if let Some(rule) = self.metered(|fuel| compilation.simplify(fuel))? {
            return Err(match self.engine.lock().closed_bytes() {
                None => nothing(rule),
                Some(_) => CompileError::NotWritable,
            });
        }
        let start = self.fuelled_slice(|automaton, fuel| {
            let (parser, machine) = automaton.parser();
            compilation.install(machine, parser, fuel)
        })?;
        Ok(GrammarState::Parser(start))
    }

    /// Work without the lock.
    fn metered<T>(
        &mut self,
        work: impl FnOnce(&mut Fuel) -> Result<T, Stop>,
    ) -> Result<T, CompileError> {
        let mut fuel = Fuel::new(self.steps_left());
        fuel.limit_thread_bytes(self.bytes_left());
        let before = fuel.left();
        // What has too little says so before the steps are counted.
        let done = work(&mut fuel).map_err(|stop| self.stopped(stop));
        self.steps += before - fuel.left();
        done
    }

    /// Refuses a grammar without any completion by tokens.
    pub(super) fn check_grammar(&mut self, root: GrammarState) -> Result<(), CompileError> {
        match root {
            GrammarState::Machine(state) => self.check_completable(state),
            GrammarState::Parser(state) => {
                let mut search = Search::new(state);
                let found = self.fuelled_slice(|automaton, fuel| {
                    automaton.run_parser_by_tokens(&mut search, fuel)
                })?;
                match found {
                    DEAD => Err(CompileError::NotWritable),
                    _ => Ok(()),
                }
            }
        }
    }
}

/// An error with the place where a limit was exceeded, if it is such and names none yet: that of an
/// error there without a message, and the rule's name in a grammar.
fn at_place(error: CompileError, there: CompileError, rule: Option<&str>) -> CompileError {
    let CompileError::LimitExceeded {
        limit,
        max,
        place: None,
    } = error
    else {
        return error;
    };
    let place = match there {
        CompileError::Grammar { line, column, .. } => {
            let rule = rule.map(|name| format!(" (rule `{name}`)"));
            ProblemPlace::at_line(line, column).with_words(&rule.unwrap_or_default())
        }
        CompileError::StructuralTag { pointer, message } => {
            let words = format!(", {message}");
            let words = words.trim_end_matches([',', ':', ' ']);
            ProblemPlace::at_pointer(pointer).with_words(words)
        }
        _ => return exceeded(limit, max),
    };
    CompileError::LimitExceeded {
        limit,
        max,
        place: Some(place),
    }
}

/// The error of a schema in a grammar, which may name a place in the schema.
fn in_schema(error: CompileError, there: CompileError) -> CompileError {
    let CompileError::LimitExceeded { limit, max, place } = error else {
        return error;
    };
    match (at_place(exceeded(limit, max), there, None), place) {
        (
            CompileError::LimitExceeded {
                place: Some(there), ..
            },
            Some(within),
        ) => CompileError::LimitExceeded {
            limit,
            max,
            place: Some(there.with_words(&format!(", schema {within}"))),
        },
        (error, _) => error,
    }
}

/// An error of a front end.
pub(super) fn syntax_error(source: &str, error: SyntaxError) -> CompileError {
    match error {
        SyntaxError::At { message, offset } => CompileError::grammar(source, offset, message),
        SyntaxError::Limit { limit, max, offset } => {
            let (line, column) = line_and_column(source, offset);
            CompileError::LimitExceeded {
                limit,
                max,
                place: Some(ProblemPlace::at_line(line, column)),
            }
        }
    }
}

/// The error of a schema in a structural tag: by one pointer, into the schema.
fn in_tag(error: CompileError, schema: &SchemaPlace) -> CompileError {
    match error {
        CompileError::JsonSchema { pointer, message } => CompileError::StructuralTag {
            pointer: schema.of(&pointer),
            message,
        },
        CompileError::LimitExceeded { limit, max, place } => {
            let place = place
                .unwrap_or_else(whole_schema)
                .map_pointer(|pointer| schema.of(pointer));
            CompileError::LimitExceeded {
                limit,
                max,
                place: Some(place),
            }
        }
        other => other,
    }
}

/// Whether a vocabulary has the tokens of a set, and by their ids may be used as the set says.
fn check_tokens(index: &TokenizerIndex, set: &TokenSet) -> Result<(), String> {
    let vocabulary = Vocabulary::new(index);
    for &(first, last) in &set.ranges {
        vocabulary.check(set, first, last)?;
    }
    let mut names = set.names.iter();
    match names.find(|name| tokens_named(index, name.as_bytes()).ids.is_empty()) {
        None => Ok(()),
        Some(name) => Err(no_token(name)),
    }
}

/// The tokens that write a text.
fn tokens_named(index: &TokenizerIndex, name: &[u8]) -> NamedToken {
    let info = index.info();
    let trie = index.byte_trie();
    let node = name
        .iter()
        .try_fold(ROOT, |node, &byte| trie.child(node, byte));
    let mut named = NamedToken::default();
    if let Some(node) = node.filter(|&node| node != ROOT) {
        named.ids.extend_from_slice(trie.ids(trie.own(node)));
    }
    // Those that are never text.
    let others = info.stop_token_ids().iter().chain(info.special_token_ids());
    named
        .ids
        .extend(others.filter(|&&id| !name.is_empty() && info.token_bytes(id) == name));
    if named.ids.is_empty() {
        named.ids.extend(info.any_token());
    }
    named.ids.sort_unstable();
    named.ids.dedup();
    for &id in &named.ids {
        if info.is_stop_token(id) {
            named.stop_ids.push(id);
        } else if info.is_special_token(id) {
            named.control_ids.push(id);
        }
    }
    named
}
