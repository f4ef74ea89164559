//! Structural tags: formats of text, each made of others, as XGrammar documents them.
//!
//! Each format becomes a rule, so that an error in it is told by its JSON pointer.
//!
//! | file | idea |
//! |---|---|
//! | `fields` | reading an object's fields |
//! | `format` | formats one by one |
//! | `tags` | tags, and free text with tags in it |
//! | `older` | the older form |
//! | `xml` | the members of an object as tags |
//! | `xml_value` | their values |
//! | `xml_object` | what a schema says of the members of an object |
//! | `xml_order` | members in order, counted, or in any order |
//! | `xml_patterns` | members by patterns of their names |
//! | `xml_scope` | a schema within the whole: what it refers to |
//! | `xml_strings` | the strings that a schema allows |
//! | `depth` | bounds on what references lead to |
//! | `xml_nested` | their values where arrays and objects are tags, too |

mod depth;
mod excludes;
mod fields;
mod format;
mod older;
mod tags;
mod xml;
mod xml_nested;
mod xml_object;
mod xml_order;
mod xml_patterns;
mod xml_scope;
mod xml_strings;
mod xml_value;

use std::collections::{HashMap, HashSet};

use super::Words;
use super::ast::{Grammar, RuleBuilder, RuleId, SyntaxError, SyntaxLimits, TokenSet};
use crate::error::{BYTE_ORDER_MARK, ProblemPlace, line_and_column};
use crate::json::Value;
use depth::Depth;
use fields::{Fields, refuse, token};
use older::in_structures;
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
        place: ProblemPlace,
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

/// Whether a vocabulary has the tokens of a set, or what is wrong with one of them.
pub(crate) type CheckTokens<'a> = &'a dyn Fn(&TokenSet) -> Result<(), String>;

/// Adds the rules of a structural tag to a grammar.
pub(crate) fn parse(
    source: &str,
    limits: &SyntaxLimits,
    check_tokens: CheckTokens<'_>,
    grammar: &mut Grammar,
) -> Result<Parsed, TagError> {
    let text = source.strip_prefix(BYTE_ORDER_MARK).unwrap_or(source);
    let value = Value::parse(text, limits.max_nesting).map_err(|error| TagError::At {
        pointer: String::new(),
        message: in_source(text, error.offset, &error.message),
    })?;
    let mut parser = Parser {
        limits,
        check_tokens,
        grammar,
        is_older: false,
        pointers: Vec::new(),
        nested_rules: NestedRules::new(),
        depth: Depth::default(),
        formats: HashMap::new(),
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
    check_tokens: CheckTokens<'g>,
    grammar: &'g mut Grammar,
    /// Whether it is the older form, from which today's is made.
    is_older: bool,
    pointers: Vec<Origin>,
    nested_rules: NestedRules,
    depth: Depth,
    /// Rules of the formats of strings.
    formats: HashMap<String, RuleId>,
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
    tokens: Vec<TokenSet>,
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
        let format = fields.nullable("format");
        let has_structures = fields.optional("structures").is_some();
        let root = match format {
            Some(Value::Null) | None if has_structures => self.structures(&mut fields)?,
            Some(format) => self.format(format, "/format", &Ends::default())?,
            None => return refuse("", fields.missing("format")),
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
            pointer: self.written(pointer),
            source: None,
        });
        Ok(rule)
    }

    /// A pointer as it is in what was written.
    fn written(&self, pointer: &str) -> String {
        match self.is_older {
            true => in_structures(pointer),
            false => pointer.to_owned(),
        }
    }

    /// A token by id or by text, which the vocabulary has; of those that are excluded, with `negated`.
    fn token_set(&self, value: &Value, pointer: &str, negated: bool) -> Result<TokenSet, TagError> {
        let mut set = token(value, pointer)?;
        set.negated = negated;
        (self.check_tokens)(&set).or_else(|message| refuse(pointer, message))?;
        set.negated = false;
        Ok(set)
    }

    /// Tokens of a field, by id or by text, in one set.
    fn tokens(&self, fields: &mut Fields<'_>, name: &str) -> Result<TokenSet, TagError> {
        let mut set = TokenSet::default();
        for (index, item) in fields.optional_array(name)?.iter().enumerate() {
            let pointer = format!("{}/{index}", fields.at(name));
            let one = self.token_set(item, &pointer, true)?;
            set.ranges.extend(one.ranges);
            set.names.extend(one.names);
        }
        Ok(set)
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
            place: ProblemPlace::at_pointer(pointer.to_owned()),
        },
    }
}
