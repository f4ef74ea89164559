//! The members of an object as tags, which is how some models write the arguments of a call.
//!
//! Strings stand as they are, up to the tag that ends them; all else is JSON, but for the styles that
//! write arrays and objects as tags within tags (`xml_nested`). Members come in the schema's order,
//! those that it doesn't name last, or in any order. White space is free around tags, JSON, and strings
//! that a schema restricts.

use super::super::ast::{NodeId, NodeKind, RuleBuilder, RuleId};
use super::fields::{Fields, refuse, shown};
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
    /// `<arg_key>name</arg_key><arg_value>value</arg_value>`
    Glm,
    /// `<|open|>argument key="name" type="string"<|sep|>value<|close|>argument<|sep|>`, with the name
    /// of the value's type.
    KimiK3,
    /// `<cofl:value name="name" type="raw">value</cofl:value>`: `raw` for strings, `json` for other
    /// scalars, `dict` and `list` for objects and arrays, whose members and items are such tags again,
    /// items without a name.
    Cohere,
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
    /// By any name but some.
    ByOther(&'a [&'a str]),
    /// An item of an array.
    Unnamed,
}

impl XmlStyle {
    /// By the name that XGrammar gives it.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "qwen_xml" => Self::Qwen,
            "minimax_xml" => Self::MiniMax,
            "deepseek_xml" => Self::DeepSeek,
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
            Self::DeepSeek if kind == Kind::String => (
                "<｜DSML｜parameter name=\"",
                [Some("\" string=\"true\">"), Some(""), Some("")],
            ),
            Self::DeepSeek => (
                "<｜DSML｜parameter name=\"",
                [Some("\" string=\"false\">"), Some(""), Some("")],
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

    /// What ends a value.
    pub(super) fn close(self) -> &'static str {
        match self {
            Self::Qwen | Self::MiniMax => "</parameter>",
            Self::DeepSeek => "</｜DSML｜parameter>",
            Self::Glm => "</arg_value>",
            Self::KimiK3 => "<|close|>argument<|sep|>",
            Self::Cohere => "</cofl:value>",
        }
    }

    /// Whether what stands around a value tells strings from all else.
    pub(super) fn tells_strings(self) -> bool {
        matches!(self, Self::DeepSeek | Self::KimiK3 | Self::Cohere)
    }

    /// Whether white space around a string belongs to it. In all others but this one models write
    /// strings on lines of their own.
    fn keeps_space(self) -> bool {
        self == Self::DeepSeek
    }

    /// Whether arrays and objects are tags within tags.
    pub(super) fn nests(self) -> bool {
        self == Self::Cohere
    }

    /// Whether it tells all types.
    pub(super) fn tells_types(self) -> bool {
        self == Self::KimiK3
    }

    /// A name as it is written.
    fn name(self, name: &str) -> String {
        match self {
            Self::KimiK3 => name.replace('&', "&amp;").replace('"', "&quot;"),
            _ => name.to_owned(),
        }
    }
}

impl Parser<'_> {
    /// The members of an object, by the schema of a format.
    pub(super) fn xml_members(
        &mut self,
        fields: &Fields<'_>,
        schema: &Value,
        style: XmlStyle,
        any_order: bool,
        rule: &mut RuleBuilder,
    ) -> Result<NodeId, TagError> {
        let scope = Scope::new(schema, style, any_order, fields);
        let pointer = scope.pointer.clone();
        let mut ways = Vec::new();
        for members in self.alternatives(&scope, schema, pointer, true)? {
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
        let rule = self.declare(pointer)?;
        let mut builder = RuleBuilder::default();
        let mut ways = Vec::new();
        let outer = std::mem::take(&mut self.read);
        let values = self.xml_values(scope, schema, pointer, &mut builder)?;
        self.read = outer;
        for Way { kind, node } in values {
            let (before, mut between) = scope.style.open(kind);
            let mut items = vec![space(&mut builder)];
            let mut text = before.to_owned();
            match called {
                Called::By(name) => text.push_str(&scope.style.name(name)),
                Called::ByOther(names) => {
                    let pieces = self.grammar.pieces(&text);
                    items.push(builder.pieces(0, &pieces));
                    text.clear();
                    items.push(self.other_name(names, &mut builder)?);
                }
                // Only one style has items.
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
                        items.push(space(&mut builder));
                    }
                }
            }
            let pieces = self.grammar.pieces(&text);
            items.push(builder.pieces(0, &pieces));
            // Text that may be anything has white space of its own.
            let is_any_text = matches!(builder.kind(node), NodeKind::TextWithout(_));
            if is_any_text || (kind == Kind::String && scope.style.keeps_space()) {
                items.push(node);
            } else {
                items.push(space(&mut builder));
                items.push(node);
                items.push(space(&mut builder));
            }
            let close = self.grammar.pieces(scope.style.close());
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

    /// A name as programs have them, but for some.
    fn other_name(&self, but: &[&str], rule: &mut RuleBuilder) -> Result<NodeId, TagError> {
        let any = self.limits.regex("[a-zA-Z_][a-zA-Z0-9_]*", "", 0);
        let any = any.map_err(|error| super::at("", error))?;
        let any = rule.push(0, any);
        if but.is_empty() {
            return Ok(any);
        }
        let literals = but
            .iter()
            .map(|name| rule.push(0, NodeKind::Literal((*name).into())))
            .collect();
        let known = rule.alternate(0, literals);
        let other = rule.push(0, NodeKind::Not(known));
        Ok(rule.push(0, NodeKind::And(vec![any, other])))
    }
}

/// Up to so many times.
pub(super) fn repeated(rule: &mut RuleBuilder, inner: NodeId, max: u32) -> NodeId {
    let kind = NodeKind::Repeat { inner, min: 0, max };
    rule.push(0, kind)
}

/// White space, or none.
pub(super) fn space(rule: &mut RuleBuilder) -> NodeId {
    let blanks = [' ', '\n', '\r', '\t']
        .map(|blank| regex_syntax::hir::ClassUnicodeRange::new(blank, blank));
    let class = NodeKind::Class(regex_syntax::hir::ClassUnicode::new(blanks));
    let blank = rule.push(0, class);
    repeated(rule, blank, UNBOUNDED)
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
            "is {}: supported are `json`, `qwen_xml`, `minimax_xml`, `deepseek_xml`, `glm_xml`, \
             `kimi_k3_xml` and `cohere_xml`",
            shown(style)
        ),
    )
}
