//! Formats one by one.

use super::super::ast::{
    EmbeddedSchema, NodeId, NodeKind, RuleBuilder, RuleId, SchemaPlace, SyntaxError,
};
use super::super::cursor::cut;
use super::super::ebnf::parse as parse_ebnf;
use super::super::ebnf_atom::any_char;
use super::super::{Words, is_lark, lark};
use super::fields::Fields;
use super::xml::{XmlStyle, unknown_style};
use super::{Ends, Origin, Parser, TagError, at, in_source};
use crate::error::{ProblemPlace, line_and_column};
use crate::json::Value;
use crate::lexical::UNBOUNDED;
use crate::options::{JsonSchemaOptions, PropertyOrder};
use crate::regex::Dialect;

/// All formats by name.
const FORMATS: [&str; 21] = [
    "const_string",
    "json_schema",
    "qwen_xml_parameter",
    "grammar",
    "regex",
    "any_text",
    "sequence",
    "or",
    "optional",
    "plus",
    "star",
    "repeat",
    "tag",
    "triggered_tags",
    "tags_with_separator",
    "dispatch",
    "token",
    "exclude_token",
    "any_tokens",
    "token_triggered_tags",
    "token_dispatch",
];

/// The formats that there are, for an error.
fn known_formats() -> String {
    let names: Vec<String> = FORMATS.iter().map(|name| format!("`{name}`")).collect();
    format!("formats are {}", names.join(", "))
}

/// How a schema's texts are written.
#[derive(Clone, Copy)]
pub(super) struct Written {
    /// Whether members come in any order.
    pub(super) any_order: bool,
    /// At most so many signs of white space at a place, [`UNBOUNDED`] for any number; `None` where nothing is said.
    pub(super) max_whitespace: Option<u32>,
}

impl Written {
    /// The same of JSON.
    pub(super) fn options(self) -> JsonSchemaOptions {
        JsonSchemaOptions {
            property_order: match self.any_order {
                true => PropertyOrder::Any,
                false => PropertyOrder::Schema,
            },
            whitespace_pattern: self.max_whitespace.map(|max| match max {
                UNBOUNDED => "[ \\n\\r\\t]*".to_owned(),
                max => format!("[ \\n\\r\\t]{{0,{max}}}"),
            }),
            ..JsonSchemaOptions::default()
        }
    }
}

impl Parser<'_> {
    /// A format's rule. Recursion is bounded by the nesting of the JSON text.
    pub(super) fn format(
        &mut self,
        value: &Value,
        pointer: &str,
        ends: &Ends,
    ) -> Result<RuleId, TagError> {
        let mut fields = Fields::new(value, pointer)?;
        let kind = fields.string("type")?;
        if kind == "grammar" {
            return self.nested_grammar(fields);
        }
        let rule = self.declare(pointer)?;
        let mut builder = RuleBuilder::default();
        let body = self.body(kind, &mut fields, &mut builder, ends)?;
        fields.finish()?;
        // Rules that were made meanwhile come after this one: what follows them is its own again.
        self.define(rule, pointer, builder, body)?;
        Ok(rule)
    }

    fn body(
        &mut self,
        kind: &str,
        fields: &mut Fields<'_>,
        rule: &mut RuleBuilder,
        ends: &Ends,
    ) -> Result<NodeId, TagError> {
        let body = match kind {
            "const_string" => {
                let pieces = self.grammar.pieces(fields.string("value")?);
                return Ok(rule.pieces(0, &pieces));
            }
            "json_schema" => return self.json_schema(fields, rule),
            "qwen_xml_parameter" => {
                let schema = fields.required("json_schema")?;
                let written = self.written_as(fields)?;
                return self.xml_members(fields, schema, XmlStyle::Qwen, written, rule);
            }
            "regex" => {
                let pattern = fields.string("pattern")?;
                let regex = self.limits.regex_of(Dialect::Python, pattern, "", 0);
                regex.map_err(|error| regex_error(&fields.at("pattern"), pattern, error))?
            }
            "any_text" => return self.any_text(fields, rule, ends),
            "sequence" => {
                let elements = fields.array("elements")?;
                let mut items = Vec::with_capacity(elements.len());
                for (index, element) in elements.iter().enumerate() {
                    let pointer = format!("{}/{index}", fields.at("elements"));
                    let is_last = index + 1 == elements.len();
                    let none = Ends::default();
                    let ends = if is_last { ends } else { &none };
                    items.push(self.part(element, &pointer, ends, rule)?);
                }
                NodeKind::Concat(items)
            }
            "or" => {
                let elements = fields.filled_array("elements", "format")?;
                let mut ways = Vec::with_capacity(elements.len());
                for (index, element) in elements.iter().enumerate() {
                    let pointer = format!("{}/{index}", fields.at("elements"));
                    ways.push(self.part(element, &pointer, ends, rule)?);
                }
                NodeKind::Alternate(ways)
            }
            "optional" => self.repeat(fields, rule, ends, 0, 1)?,
            "plus" => self.repeat(fields, rule, ends, 1, UNBOUNDED)?,
            "star" => self.repeat(fields, rule, ends, 0, UNBOUNDED)?,
            "repeat" => {
                let limit = self.limits.max_repetition;
                let min = fields.count("min", limit)?;
                let is_open = fields.optional("max") == Some(&Value::Number("-1".into()));
                let max = match is_open {
                    true => Some(UNBOUNDED),
                    false => fields.count_or("max", limit, ", or -1 for no bound")?,
                };
                match (min, max) {
                    (Some(min), Some(max)) if min <= max => {
                        self.repeat(fields, rule, ends, min, max)?
                    }
                    (Some(_), Some(_)) => return fields.refuse("max", "is less than `min`"),
                    (None, _) => return fields.refuse("min", "is missing"),
                    (_, None) => return fields.refuse("max", "is missing"),
                }
            }
            "tag" => return self.tag(fields, rule),
            "triggered_tags" => return self.triggered_tags(fields, rule, ends),
            "tags_with_separator" => return self.tags_with_separator(fields, rule),
            "dispatch" => return self.dispatch(fields, rule),
            "token" => {
                let token_pointer = fields.at("token");
                return self.token(fields.required("token")?, &token_pointer, rule);
            }
            "exclude_token" | "any_tokens" => return self.any_tokens(fields, rule, ends, kind),
            "token_triggered_tags" => return self.token_triggered_tags(fields, rule, ends),
            "token_dispatch" => return self.token_dispatch(fields, rule, ends),
            other => {
                return fields.refuse(
                    "type",
                    &format!(
                        "is `{}`, which is no format: {}",
                        cut(other),
                        known_formats()
                    ),
                );
            }
        };
        Ok(rule.push(0, body))
    }

    /// A format within another, as a node of the other's rule.
    pub(super) fn part(
        &mut self,
        value: &Value,
        pointer: &str,
        ends: &Ends,
        rule: &mut RuleBuilder,
    ) -> Result<NodeId, TagError> {
        let part = self.format(value, pointer, ends)?;
        Ok(rule.push(0, NodeKind::Rule(part)))
    }

    fn repeat(
        &mut self,
        fields: &mut Fields<'_>,
        rule: &mut RuleBuilder,
        ends: &Ends,
        min: u32,
        max: u32,
    ) -> Result<NodeKind, TagError> {
        let pointer = fields.at("content");
        let inner = self.part(fields.required("content")?, &pointer, ends, rule)?;
        Ok(NodeKind::Repeat { inner, min, max })
    }

    fn json_schema(
        &mut self,
        fields: &mut Fields<'_>,
        rule: &mut RuleBuilder,
    ) -> Result<NodeId, TagError> {
        let schema = fields.required("json_schema")?;
        let written = self.written_as(fields)?;
        match fields.optional("style") {
            None => {}
            Some(Value::String(style)) if style == "json" => {}
            Some(style) => {
                let named = match style {
                    Value::String(name) => XmlStyle::named(name),
                    _ => None,
                };
                return match named {
                    Some(named) => self.xml_members(fields, schema, named, written, rule),
                    None => unknown_style(fields, style),
                };
            }
        }
        let place = SchemaPlace {
            own: self.written(&fields.at("json_schema")).into(),
            definitions: None,
        };
        let schema = EmbeddedSchema {
            text: self.without_marks(schema, fields)?.to_text().into(),
            options: Box::new(written.options()),
            place: Some(place),
        };
        Ok(rule.push(0, NodeKind::Json(schema)))
    }

    /// How members and white space are written, by the fields of a format.
    fn written_as(&self, fields: &mut Fields<'_>) -> Result<Written, TagError> {
        let name = "max_whitespace_cnt";
        let is_open = fields.optional(name) == Some(&Value::Number("-1".into()));
        Ok(Written {
            any_order: fields.flag("any_order", false)?,
            max_whitespace: match is_open {
                true => Some(UNBOUNDED),
                false => {
                    let max = self.limits.max_repetition;
                    fields.count_or(name, max, ", or -1 for no bound")?
                }
            },
        })
    }

    /// A format that is a grammar in EBNF or Lark.
    fn nested_grammar(&mut self, mut fields: Fields<'_>) -> Result<RuleId, TagError> {
        let source = fields.string("grammar")?;
        let pointer = fields.at("grammar");
        self.pointers.push(Origin {
            first: self.grammar.rules.len(),
            pointer: pointer.clone(),
            source: Some(source.into()),
        });
        let root = match is_lark(source) {
            true => lark::parse(source, self.limits, self.grammar),
            false => parse_ebnf(source, "root", self.limits, self.grammar),
        };
        fields.finish()?;
        root.map_err(|error| match error {
            SyntaxError::At { message, offset } => TagError::At {
                pointer,
                message: in_source(source, offset, &message),
            },
            SyntaxError::Limit { limit, max, offset } => {
                let (line, column) = line_and_column(source, offset);
                let words = format!(", line {line}, column {column}");
                let place = ProblemPlace::at_pointer(pointer).with_words(&words);
                TagError::Limit { limit, max, place }
            }
        })
    }

    fn any_text(
        &mut self,
        fields: &mut Fields<'_>,
        rule: &mut RuleBuilder,
        ends: &Ends,
    ) -> Result<NodeId, TagError> {
        let excludes = fields.texts("excludes")?;
        let without = match excludes.is_empty() {
            true => ends.texts.clone(),
            false => {
                let without = Words::new([&*excludes, &*ends.texts].concat());
                let charged = self.grammar.charge(without.len(), 0, self.limits);
                charged.map_err(|error| at(fields.pointer, error))?;
                without
            }
        };
        let max_tokens = fields.count("max_tokens", i32::MAX as u32)?;
        let max_chars = fields.count("max_chars", i32::MAX as u32)?;
        let mut text = rule.push(0, NodeKind::TextWithout(without));
        if let Some(max) = max_chars {
            let any = rule.push(0, NodeKind::Class(any_char()));
            let short = NodeKind::Repeat {
                inner: any,
                min: 0,
                max,
            };
            let short = rule.push(0, short);
            text = rule.push(0, NodeKind::And(vec![text, short]));
        }
        if let Some(max) = max_tokens {
            text = rule.push(
                0,
                NodeKind::WithinTokens {
                    inner: text,
                    max,
                    is_checked: true,
                },
            );
        }
        Ok(text)
    }

    /// One token: by its id exactly, by its text it or its text.
    pub(super) fn token(
        &mut self,
        value: &Value,
        pointer: &str,
        rule: &mut RuleBuilder,
    ) -> Result<NodeId, TagError> {
        let set = self.token_set(value, pointer, false)?;
        let kind = match set.names.first() {
            Some(name) => NodeKind::NamedToken(name.clone()),
            None => NodeKind::Tokens(set),
        };
        Ok(rule.push(0, kind))
    }

    /// Tokens but some.
    fn any_tokens(
        &self,
        fields: &mut Fields<'_>,
        rule: &mut RuleBuilder,
        ends: &Ends,
        kind: &str,
    ) -> Result<NodeId, TagError> {
        let mut set = self.tokens(fields, "exclude_tokens")?;
        for end in &ends.tokens {
            set.ranges.extend_from_slice(&end.ranges);
            set.names.extend_from_slice(&end.names);
        }
        set.negated = true;
        let one = rule.push(0, NodeKind::Tokens(set));
        if kind == "exclude_token" {
            return Ok(one);
        }
        let max = fields.count("max_tokens", i32::MAX as u32)?;
        let many = NodeKind::Repeat {
            inner: one,
            min: 0,
            max: max.unwrap_or(UNBOUNDED),
        };
        Ok(rule.push(0, many))
    }
}

fn regex_error(pointer: &str, pattern: &str, error: SyntaxError) -> TagError {
    match error {
        SyntaxError::At { message, offset } => {
            let (_, column) = line_and_column(pattern, offset);
            TagError::At {
                pointer: pointer.to_owned(),
                message: format!("column {column}: {message}"),
            }
        }
        limit @ SyntaxError::Limit { .. } => at(pointer, limit),
    }
}
