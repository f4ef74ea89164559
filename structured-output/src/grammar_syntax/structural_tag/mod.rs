//! Structural tags: formats of text, each made of others, as XGrammar documents them.
//!
//! Each format becomes a rule, so that an error in it is told by its JSON pointer.
//!
//! | file | idea |
//! |---|---|
//! | `fields` | reading an object's fields |
//! | `format` | formats one by one |
//! | `tags` | tags, and free text with tags in it |
//! | `xml` | the members of an object as tags |
//! | `xml_value` | their values |
//! | `depth` | bounds on what references lead to |
//! | `xml_nested` | their values where arrays and objects are tags, too |

mod depth;
mod fields;
mod format;
mod tags;
mod xml;
mod xml_nested;
mod xml_value;

use std::collections::HashSet;

use super::Words;
use super::ast::{Grammar, RuleBuilder, RuleId, SyntaxError, SyntaxLimits};
use crate::error::{BYTE_ORDER_MARK, line_and_column};
use crate::json::Value;
use depth::Depth;
use fields::{Fields, refuse};
use xml_nested::NestedRules;

/// Why a structural tag was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TagError {
    /// At a JSON pointer.
    At { pointer: String, message: String },
    /// A limit would be exceeded, at a place in words.
    Limit {
        limit: &'static str,
        max: u64,
        place: String,
    },
}

/// A structural tag's rules.
pub(crate) struct Parsed {
    pub(crate) root: RuleId,
    /// Where each rule comes from: from that rule on.
    pointers: Vec<Origin>,
}

/// Where rules come from.
struct Origin {
    /// The first of them.
    first: RuleId,
    pointer: String,
    /// The grammar in which they stand, if it is one.
    source: Option<Box<str>>,
}

impl Parsed {
    /// What is wrong at an offset of a rule: its JSON pointer, and the message, with line and column
    /// where the rule stands in a grammar.
    pub(crate) fn located(&self, rule: RuleId, offset: usize, message: String) -> (String, String) {
        let after = self.pointers.partition_point(|origin| origin.first <= rule);
        let at = after.checked_sub(1).and_then(|at| self.pointers.get(at));
        let Some(origin) = at else {
            return (String::new(), message);
        };
        let message = match &origin.source {
            Some(source) => in_source(source, offset, &message),
            None => message,
        };
        (origin.pointer.clone(), message)
    }
}

/// Adds the rules of a structural tag to a grammar.
pub(crate) fn parse(
    source: &str,
    limits: &SyntaxLimits,
    grammar: &mut Grammar,
) -> Result<Parsed, TagError> {
    let text = source.strip_prefix(BYTE_ORDER_MARK).unwrap_or(source);
    let value = Value::parse(text, limits.max_nesting).map_err(|error| TagError::At {
        pointer: String::new(),
        message: in_source(text, error.offset, &error.message),
    })?;
    let mut parser = Parser {
        limits,
        grammar,
        pointers: Vec::new(),
        nested_rules: NestedRules::new(),
        depth: Depth::default(),
        read: HashSet::new(),
    };
    let root = parser.document(&value)?;
    Ok(Parsed {
        root,
        pointers: parser.pointers,
    })
}

struct Parser<'g> {
    limits: &'g SyntaxLimits,
    grammar: &'g mut Grammar,
    pointers: Vec<Origin>,
    nested_rules: NestedRules,
    depth: Depth,
    /// Schemas whose ways are among those of the value that is being read.
    read: HashSet<String>,
}

/// A message with the place in a source.
fn in_source(source: &str, offset: usize, message: &str) -> String {
    let (line, column) = line_and_column(source, offset);
    format!("line {line}, column {column}: {message}")
}

/// What ends the text around a format: free text at its end doesn't contain it.
#[derive(Clone, Default)]
struct Ends {
    texts: Words,
    tokens: Vec<super::ast::TokenSet>,
}

impl Parser<'_> {
    /// The whole: `format`, or the older `structures` and `triggers`.
    fn document(&mut self, value: &Value) -> Result<RuleId, TagError> {
        let mut fields = Fields::new(value, "")?;
        if let Some(kind) = fields.optional("type")
            && *kind != Value::String("structural_tag".into())
        {
            return fields.refuse("type", "must be `structural_tag`");
        }
        let root = match fields.optional("format") {
            Some(format) => self.format(format, "/format", &Ends::default())?,
            None if fields.optional("structures").is_none() => {
                return refuse("", "the field `format` is missing");
            }
            None => self.structures(&mut fields)?,
        };
        fields.finish()?;
        Ok(root)
    }

    /// A rule for the format at a pointer.
    fn declare(&mut self, pointer: &str) -> Result<RuleId, TagError> {
        let rule = self
            .grammar
            .declare(pointer, 0, self.limits)
            .map_err(|error| at(pointer, error))?;
        self.pointers.push(Origin {
            first: rule,
            pointer: pointer.to_owned(),
            source: None,
        });
        Ok(rule)
    }

    /// Ends a rule.
    fn define(
        &mut self,
        rule: RuleId,
        pointer: &str,
        builder: RuleBuilder,
        body: usize,
    ) -> Result<(), TagError> {
        let nodes = builder.finish(body);
        self.grammar
            .define(rule, nodes, self.limits)
            .map_err(|error| at(pointer, error))
    }
}

/// A front end's error as one at a pointer.
fn at(pointer: &str, error: SyntaxError) -> TagError {
    match error {
        SyntaxError::At { message, .. } => TagError::At {
            pointer: pointer.to_owned(),
            message,
        },
        SyntaxError::Limit { limit, max, .. } => TagError::Limit {
            limit,
            max,
            place: format!("`#{pointer}`"),
        },
    }
}
