//! Members by patterns of their names (`patternProperties`), in the styles that write members as tags.
//!
//! A name may match several patterns, and its value is valid under the schemas of all. So there is a member for each set
//! of patterns that some name matches, and no others.

use std::sync::Arc;

use super::super::ast::{NodeId, NodeKind, RuleBuilder, SyntaxLimits};
use super::TagError;
use super::fields::refuse;
use super::xml_strings::and;
use crate::error::line_and_column;
use crate::json::Value;
use crate::lexical::search::{DEAD, nearest_end};
use crate::lexical::{Chars, EMPTY, ExprId, Fuel, Lexicon};
use crate::regex::{self, Ast, Dialect, Spelling, Translator};

/// As many patterns as may be told apart.
const MAX_PATTERNS: usize = 3;

/// Steps to find out which names match.
const MAX_STEPS: u64 = 200_000;

/// Names as programs have them.
const PROGRAM_NAME: &str = "[a-zA-Z_][a-zA-Z0-9_]*";

/// Names that match a pattern: they hold no sign that a tag is made of.
const PATTERN_NAME: &str = "[^\\s<>\"&|]+";

/// A pattern of names.
#[derive(Clone)]
pub(super) struct Pattern {
    source: String,
    /// What the values of such members are valid under.
    schema: Value,
    /// The pointer of the schema.
    pub(super) at: String,
}

/// Patterns of names, with their languages.
pub(super) struct Patterns {
    list: Vec<Pattern>,
    languages: Vec<ExprId>,
    lexicon: Lexicon,
    fuel: Fuel,
}

/// Some of the patterns, as bits.
pub(super) type Matched = usize;

impl Pattern {
    /// Those of `patternProperties`, which stands at a pointer.
    pub(super) fn list(
        value: Option<&Value>,
        at: &str,
        escaped: impl Fn(&str) -> String,
    ) -> Result<Vec<Self>, TagError> {
        let list = match value {
            None => return Ok(Vec::new()),
            Some(Value::Object(list)) => list,
            Some(_) => return refuse(at, "`patternProperties` must be an object"),
        };
        if list.len() > MAX_PATTERNS {
            let message = format!(
                "`patternProperties` has {} patterns: up to {MAX_PATTERNS} are supported in this style",
                list.len()
            );
            return refuse(at, message);
        }
        let pattern = |(source, schema): &(String, Value)| Self {
            source: source.clone(),
            schema: schema.clone(),
            at: format!("{at}/{}", escaped(source)),
        };
        Ok(list.iter().map(pattern).collect())
    }

    fn parsed(&self, limits: &SyntaxLimits) -> Result<Ast, TagError> {
        match regex::parse(&self.source, Dialect::Ecma, limits.regex) {
            Ok(ast) => Ok(ast.search(Chars::ANY).0),
            Err(error) => {
                let (_, column) = line_and_column(&self.source, error.offset);
                refuse(&self.at, format!("column {column}: {}", error.message))
            }
        }
    }
}

impl Patterns {
    pub(super) fn new(list: &[Pattern], limits: &SyntaxLimits) -> Result<Self, TagError> {
        let mut patterns = Self {
            list: list.to_vec(),
            languages: Vec::new(),
            lexicon: Lexicon::new(Vec::new(), 8),
            fuel: Fuel::new(MAX_STEPS),
        };
        for pattern in list {
            let ast = pattern.parsed(limits)?;
            let language =
                Translator::new(ast, Spelling::Utf8).run(&mut patterns.lexicon, usize::MAX);
            match language {
                Ok(language) => patterns.languages.push(language.unwrap_or(EMPTY)),
                Err(error) => return refuse(&pattern.at, error.message),
            }
        }
        Ok(patterns)
    }

    /// The patterns that a name matches.
    pub(super) fn of_name(&mut self, name: &str) -> Result<Matched, TagError> {
        let mut matched = 0;
        for at in 0..self.languages.len() {
            let mut state = self.languages[at];
            for byte in name.bytes() {
                state = match self.lexicon.derivative(state, byte, &mut self.fuel) {
                    Ok(state) => state,
                    Err(_) => return self.too_dear(at),
                };
            }
            matched |= usize::from(self.lexicon.is_nullable(state)) << at;
        }
        Ok(matched)
    }

    /// The sets of patterns that a name but some matches, and no others.
    pub(super) fn sets(
        &mut self,
        but: &[&str],
        limits: &SyntaxLimits,
    ) -> Result<Vec<Matched>, TagError> {
        let mut sets = Vec::new();
        for matched in 1..1 << self.list.len() {
            let name = program(limits, PATTERN_NAME)?;
            let name = Translator::new(name, Spelling::Utf8).run(&mut self.lexicon, usize::MAX);
            let mut all = vec![name.ok().flatten().unwrap_or(EMPTY)];
            for (at, &language) in self.languages.iter().enumerate() {
                all.push(match matched >> at & 1 {
                    1 => language,
                    _ => self.lexicon.not(language),
                });
            }
            for known in but {
                let known = self.lexicon.literal(known.as_bytes());
                all.push(self.lexicon.not(known));
            }
            let names = self.lexicon.and(&all);
            match nearest_end(&mut self.lexicon, names, &mut self.fuel) {
                Ok(DEAD) => {}
                Ok(_) => sets.push(matched),
                Err(_) => return self.too_dear(0),
            }
        }
        Ok(sets)
    }

    fn too_dear<T>(&self, at: usize) -> Result<T, TagError> {
        let message = "it takes too many steps to tell which names match this pattern";
        refuse(&self.list[at].at, message)
    }

    /// The schema that all of some patterns and of a member ask for, with a pointer.
    pub(super) fn schema(&self, matched: Matched, own: Option<(&Value, &str)>) -> (Value, String) {
        let more = self.list.iter().enumerate();
        let more = more.filter(|(at, _)| matched >> at & 1 == 1);
        let more = more.map(|(_, pattern)| (&pattern.schema, pattern.at.as_str()));
        let all: Vec<(&Value, &str)> = own.into_iter().chain(more).collect();
        if all.iter().any(|(schema, _)| **schema == Value::Bool(false)) {
            return (Value::Bool(false), String::new());
        }
        match all[..] {
            [] => (Value::Bool(true), String::new()),
            [(schema, at)] => (schema.clone(), at.to_owned()),
            [(_, at), ..] => {
                let all = all.iter().map(|(schema, _)| (*schema).clone()).collect();
                let schema = vec![("allOf".to_owned(), Value::Array(Arc::new(all)))];
                (Value::Object(Arc::new(schema)), at.to_owned())
            }
        }
    }

    /// A name that matches these patterns and no others, and is none of some.
    pub(super) fn name(
        &self,
        matched: Matched,
        but: &[&str],
        limits: &SyntaxLimits,
        rule: &mut RuleBuilder,
    ) -> Result<NodeId, TagError> {
        let source = match matched {
            0 => PROGRAM_NAME,
            _ => PATTERN_NAME,
        };
        let mut all = vec![rule.push(0, NodeKind::Regex(program(limits, source)?))];
        for (at, pattern) in self.list.iter().enumerate() {
            let own = rule.push(0, NodeKind::Regex(pattern.parsed(limits)?));
            all.push(match matched >> at & 1 {
                1 => own,
                _ => rule.push(0, NodeKind::Not(own)),
            });
        }
        if !but.is_empty() {
            let known = but
                .iter()
                .map(|name| rule.push(0, NodeKind::Literal((*name).into())));
            let known = known.collect();
            let known = rule.alternate(0, known);
            all.push(rule.push(0, NodeKind::Not(known)));
        }
        Ok(and(rule, all))
    }
}

fn program(limits: &SyntaxLimits, source: &str) -> Result<Ast, TagError> {
    regex::parse(source, Dialect::Common, limits.regex).or_else(|error| refuse("", error.message))
}
