//! The members of an object as tags, which is how some models write the arguments of a call.
//!
//! Strings stand as they are, up to the tag that ends them; all else is JSON, but for the styles that
//! write arrays and objects as tags within tags (`xml_nested`). Members come in the schema's order,
//! those that it doesn't name last, or in any order. White space is free around tags, JSON, and strings
//! that a schema restricts.

use std::collections::HashSet;

use super::super::ast::{NodeId, NodeKind, RuleBuilder, RuleId};
use super::super::cursor::cut;
use super::fields::{Fields, refuse, shown};
use super::format::Written;
use super::xml_object::Members;
use super::xml_patterns::{Matched, Patterns};
use super::xml_scope::Scope;
use super::xml_value::Way;
use super::{Parser, TagError};
use crate::json::Value;
use crate::lexical::UNBOUNDED;

/// How a member is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum XmlStyle {
    /// `<parameter=name>value</parameter>`
    Qwen,
    /// `<parameter name="name">value</parameter>`
    MiniMax,
    /// `<｜DSML｜parameter name="name" string="true">value</｜DSML｜parameter>`, with `false` for
    /// what is no string.
    DeepSeek,
    /// The same with a space after each `｜DSML｜`.
    DeepSeekV41,
    /// `<arg_key>name</arg_key><arg_value>value</arg_value>`
    Glm,
    /// `<|open|>argument key="name" type="string"<|sep|>value<|close|>argument<|sep|>`, with the name
    /// of the value's type.
    KimiK3,
    /// `<cofl:value name="name" type="raw">value</cofl:value>`: `raw` for strings, `json` for other
    /// scalars, `dict` and `list` for objects and arrays, whose members and items are such tags again,
    /// items without a name.
    Cohere,
    /// `]<]minimax[>[<name>value]<]minimax[>[</name>`, arrays and objects as such tags within tags, where an item's name
    /// is `item`.
    MiniMaxM3,
}

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    String,
    /// Anything else, with the name of its type where the style has such names.
    Other(Option<&'static str>),
}

/// How a member is called.
#[derive(Clone, Copy)]
pub(super) enum Called<'a> {
    By(&'a str),
    /// By any name but some that matches these patterns and no others.
    ByOther {
        but: &'a [&'a str],
        patterns: &'a Patterns,
        matched: Matched,
    },
    /// An item of an array.
    Unnamed,
}

impl XmlStyle {
    /// By the name that XGrammar gives it.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "qwen_xml" => Self::Qwen,
            "minimax_xml" => Self::MiniMax,
            "minimax_m3_xml" => Self::MiniMaxM3,
            "deepseek_xml" => Self::DeepSeek,
            "deepseek_v4_1_xml" => Self::DeepSeekV41,
            "glm_xml" => Self::Glm,
            "kimi_k3_xml" => Self::KimiK3,
            "cohere_xml" => Self::Cohere,
            _ => return None,
        })
    }

    /// What stands before a name, and between it and a value; `None` for white space in it.
    fn open(self, kind: Kind) -> (&'static str, [Option<&'static str>; 3]) {
        match self {
            Self::Qwen => ("<parameter=", [Some(">"), Some(""), Some("")]),
            Self::MiniMax => ("<parameter name=\"", [Some("\">"), Some(""), Some("")]),
            Self::DeepSeek | Self::DeepSeekV41 => (
                match self {
                    Self::DeepSeek => "<｜DSML｜parameter name=\"",
                    _ => "<｜DSML｜ parameter name=\"",
                },
                match kind {
                    Kind::String => [Some("\" string=\"true\">"), Some(""), Some("")],
                    Kind::Other(_) => [Some("\" string=\"false\">"), Some(""), Some("")],
                },
            ),
            Self::Glm => ("<arg_key>", [Some("</arg_key>"), None, Some("<arg_value>")]),
            Self::KimiK3 => (
                "<|open|>argument key=\"",
                [Some("\" type=\""), Some(self.kind(kind)), Some("\"<|sep|>")],
            ),
            Self::Cohere => (
                "<cofl:value name=\"",
                [Some("\" type=\""), Some(self.kind(kind)), Some("\">")],
            ),
            Self::MiniMaxM3 => ("]<]minimax[>[<", [Some(">"), Some(""), Some("")]),
        }
    }

    /// The name of a value's type.
    fn kind(self, kind: Kind) -> &'static str {
        match kind {
            Kind::String if self == Self::Cohere => "raw",
            Kind::String => "string",
            Kind::Other(name) => name.unwrap_or_default(),
        }
    }

    /// What ends a value, but for the name in it where the style has such ends.
    pub(super) fn close(self) -> &'static str {
        match self {
            Self::Qwen | Self::MiniMax => "</parameter>",
            Self::DeepSeek => "</｜DSML｜parameter>",
            Self::DeepSeekV41 => "</｜DSML｜ parameter>",
            Self::Glm => "</arg_value>",
            Self::KimiK3 => "<|close|>argument<|sep|>",
            Self::Cohere => "</cofl:value>",
            Self::MiniMaxM3 => "]<]minimax[>[",
        }
    }

    /// Whether the end of a value repeats the member's name.
    fn ends_by_name(self) -> bool {
        self == Self::MiniMaxM3
    }

    /// Whether what stands around a value tells strings from all else.
    pub(super) fn tells_strings(self) -> bool {
        matches!(
            self,
            Self::DeepSeek | Self::DeepSeekV41 | Self::KimiK3 | Self::Cohere
        )
    }

    /// Whether white space around a string belongs to it. In all others but these models write
    /// strings on lines of their own.
    fn keeps_space(self) -> bool {
        matches!(self, Self::DeepSeek | Self::DeepSeekV41)
    }

    /// Whether arrays and objects are tags within tags.
    pub(super) fn nests(self) -> bool {
        matches!(self, Self::Cohere | Self::MiniMaxM3)
    }

    /// Whether it tells all types.
    pub(super) fn tells_types(self) -> bool {
        self == Self::KimiK3
    }

    /// What ends a name: whoever reads the tag takes the first of these for its end, unless the name is known.
    fn after_name(self) -> &'static str {
        match self {
            Self::Qwen | Self::MiniMaxM3 => ">",
            Self::MiniMax => "\">",
            Self::DeepSeek | Self::DeepSeekV41 => "\" string=\"",
            Self::Glm => "</arg_key>",
            Self::KimiK3 | Self::Cohere => "\" type=\"",
        }
    }

    /// The names that a tag with this one begins with: where it has what ends a name in it.
    pub(super) fn names_before(self, name: &str) -> impl Iterator<Item = &str> {
        let end = self.after_name();
        let written = format!("{name}{end}");
        let ends = name.char_indices().filter(move |(at, _)| {
            let rest = written.get(*at..).unwrap_or_default();
            self != Self::KimiK3 && rest.starts_with(end)
        });
        ends.filter_map(|(at, _)| name.get(..at))
    }

    /// A name as it is written.
    fn name(self, name: &str) -> String {
        match self {
            Self::KimiK3 => name.replace('&', "&amp;").replace('"', "&quot;"),
            _ => name.to_owned(),
        }
    }
}

/// The name of an item, where the style has one.
const ITEM: &str = "item";

impl XmlStyle {
    /// What ends a member's value.
    fn end_of(self, called: Called<'_>, pointer: &str) -> Result<String, TagError> {
        let close = self.close();
        let name = match called {
            _ if !self.ends_by_name() => return Ok(close.to_owned()),
            Called::Unnamed => ITEM,
            Called::By(name)
                if name.trim().is_empty() || name.starts_with('/') || name.contains('>') =>
            {
                let message = format!(
                    "a member `{}` can't be written as a tag: its name is blank, begins with `/` or has a `>`",
                    cut(name)
                );
                return refuse(pointer, message);
            }
            Called::By(name) => name,
            Called::ByOther { .. } => {
                let message = "members that the schema doesn't name are not supported in this style, whose tags end with \
                               the name again: write `additionalProperties: false` and what is in each object";
                return refuse(pointer, message);
            }
        };
        Ok(format!("{close}</{name}>"))
    }
}

impl Parser<'_> {
    /// The members of an object, by the schema of a format.
    pub(super) fn xml_members(
        &mut self,
        fields: &Fields<'_>,
        schema: &Value,
        style: XmlStyle,
        written: Written,
        rule: &mut RuleBuilder,
    ) -> Result<NodeId, TagError> {
        let scope = Scope::new(schema, style, written, fields);
        let pointer = scope.pointer.clone();
        let mut ways = Vec::new();
        let all = self.alternatives(&scope, schema, pointer, true)?;
        check_names_differ(style, all.iter().flat_map(Members::names))?;
        for members in all {
            ways.push(self.members_in_order(&scope, &members, rule)?);
        }
        Ok(rule.alternate(0, ways))
    }

    /// A member as a rule, white space before it included.
    pub(super) fn xml_member(
        &mut self,
        scope: &Scope<'_>,
        called: Called<'_>,
        schema: &Value,
        pointer: &str,
    ) -> Result<RuleId, TagError> {
        let end = scope.style.end_of(called, pointer)?;
        let rule = self.declare(pointer)?;
        let mut builder = RuleBuilder::default();
        let mut ways = Vec::new();
        let outer = std::mem::take(&mut self.read);
        let values = self.xml_values(scope, schema, pointer, &mut builder)?;
        self.read = outer;
        for Way { kind, node } in values {
            let (before, mut between) = scope.style.open(kind);
            let mut items = vec![space(scope, &mut builder)];
            let mut text = before.to_owned();
            match called {
                Called::By(name) => text.push_str(&scope.style.name(name)),
                Called::ByOther {
                    but,
                    patterns,
                    matched,
                } => {
                    let pieces = self.grammar.pieces(&text);
                    items.push(builder.pieces(0, &pieces));
                    text.clear();
                    items.push(patterns.name(matched, but, self.limits, &mut builder)?);
                }
                Called::Unnamed if scope.style.ends_by_name() => text.push_str(ITEM),
                // Only one other style has items.
                Called::Unnamed => {
                    text = "<cofl:value".to_owned();
                    between[0] = Some(" type=\"");
                }
            }
            for part in between {
                match part {
                    Some(part) => text.push_str(part),
                    None => {
                        let pieces = self.grammar.pieces(&text);
                        items.push(builder.pieces(0, &pieces));
                        text.clear();
                        items.push(space(scope, &mut builder));
                    }
                }
            }
            let pieces = self.grammar.pieces(&text);
            items.push(builder.pieces(0, &pieces));
            // Text that may be anything has white space of its own, and so has what holds tags.
            let is_any_text = matches!(builder.kind(node), NodeKind::TextWithout(_));
            let is_nested =
                scope.style.nests() && matches!(kind, Kind::Other(Some("list" | "dict")));
            if is_any_text || is_nested || (kind == Kind::String && scope.style.keeps_space()) {
                items.push(node);
            } else {
                items.push(space(scope, &mut builder));
                items.push(node);
                items.push(space(scope, &mut builder));
            }
            let close = self.grammar.pieces(&end);
            items.push(builder.pieces(0, &close));
            ways.push(builder.concat(0, items));
        }
        let body = match ways.is_empty() {
            true => return refuse(pointer, "no value meets this schema"),
            false => builder.alternate(0, ways),
        };
        self.define(rule, pointer, builder, body)?;
        Ok(rule)
    }
}

/// Refuses a name that a tag of another one begins with: nobody could tell from the tag which one is meant.
fn check_names_differ<'m>(
    style: XmlStyle,
    names: impl Iterator<Item = (&'m str, &'m str)> + Clone,
) -> Result<(), TagError> {
    let known: HashSet<&str> = names.clone().map(|(name, _)| name).collect();
    // Looked up first: a name of many signs has as many before it, which are long.
    let lengths: HashSet<usize> = known.iter().map(|name| name.len()).collect();
    for (name, pointer) in names {
        let mut before = style.names_before(name);
        let is_known = |other: &&str| lengths.contains(&other.len()) && known.contains(other);
        if let Some(other) = before.find(is_known) {
            let message = format!(
                "a tag of the member `{}` reads as one of `{}` and a value, in this style",
                cut(name),
                cut(other)
            );
            return refuse(pointer, message);
        }
    }
    Ok(())
}

/// Up to so many times.
pub(super) fn repeated(rule: &mut RuleBuilder, inner: NodeId, max: u32) -> NodeId {
    let kind = NodeKind::Repeat { inner, min: 0, max };
    rule.push(0, kind)
}

/// White space, or none.
pub(super) fn space(scope: &Scope<'_>, rule: &mut RuleBuilder) -> NodeId {
    let blanks = [' ', '\n', '\r', '\t']
        .map(|blank| regex_syntax::hir::ClassUnicodeRange::new(blank, blank));
    let class = NodeKind::Class(regex_syntax::hir::ClassUnicode::new(blanks));
    let blank = rule.push(0, class);
    repeated(
        rule,
        blank,
        scope.written.max_whitespace.unwrap_or(UNBOUNDED),
    )
}

/// A name as a part of a JSON pointer.
pub(super) fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// A style that isn't known.
pub(super) fn unknown_style<T>(fields: &Fields<'_>, style: &Value) -> Result<T, TagError> {
    fields.refuse(
        "style",
        &format!(
            "is {}: supported are `json`, `qwen_xml`, `minimax_xml`, `minimax_m3_xml`, `deepseek_xml`, \
             `deepseek_v4_1_xml`, `glm_xml`, `kimi_k3_xml` and `cohere_xml`",
            shown(style)
        ),
    )
}
