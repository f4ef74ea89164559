//! The strings that a schema allows, as a language of text without quotes and escapes.
//!
//! JSON Schema's boolean operators are those of languages: `allOf` is an intersection, `not` a complement. What a schema
//! says of other values says nothing here. Each part is a rule of its own, so that one that is asked for twice (`oneOf`
//! asks for each branch and for its complement) is written once.

use super::super::ast::{NodeId, NodeKind, RuleBuilder, RuleId};
use super::super::ebnf_atom::any_char;
use super::fields::{Fields, refuse, shown};
use super::xml_scope::Scope;
use super::{Parser, TagError};
use crate::json::{Value, format_pattern};
use crate::lexical::{Chars, UNBOUNDED};
use crate::regex::{self, Dialect};

/// Strings of text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Strings {
    None,
    All,
    /// Those of a rule. Of a complement these may be bytes that are no text.
    Of(RuleId),
}

impl Parser<'_> {
    /// The strings that are valid under a schema. Recursion is bounded by [`super::depth::Depth`].
    pub(super) fn xml_strings(
        &mut self,
        scope: &Scope<'_>,
        schema: &Value,
        pointer: &str,
    ) -> Result<Strings, TagError> {
        match schema {
            Value::Bool(true) => return Ok(Strings::All),
            Value::Bool(false) => return Ok(Strings::None),
            _ => {}
        }
        self.depth.count(pointer)?;
        self.depth.enter(pointer)?;
        let strings = self.object_strings(scope, schema, pointer);
        self.depth.leave();
        strings
    }

    fn object_strings(
        &mut self,
        scope: &Scope<'_>,
        schema: &Value,
        pointer: &str,
    ) -> Result<Strings, TagError> {
        let mut fields = Fields::new(schema, pointer)?;
        let mut all = Vec::new();
        match fields.optional("type") {
            Some(Value::String(kind)) if kind != "string" => all.push(Strings::None),
            Some(Value::Array(kinds)) if !kinds.contains(&Value::String("string".into())) => {
                all.push(Strings::None);
            }
            _ => {}
        }
        match fields.optional("enum") {
            None => {}
            Some(Value::Array(values)) => all.push(self.listed_strings(values.iter(), pointer)?),
            Some(_) => return fields.refuse("enum", "must be an array"),
        }
        if let Some(value) = fields.nullable("const") {
            all.push(self.listed_strings([value].into_iter(), pointer)?);
        }
        for name in ["$dynamicRef", "$recursiveRef"] {
            if fields.optional(name).is_some() {
                return fields.refuse(name, "is not supported in this style");
            }
        }
        let mut rule = RuleBuilder::default();
        let parts = self.string_parts(&mut fields, &mut rule)?;
        if !parts.is_empty() {
            all.push(self.rule_of(pointer, rule, |rule| and(rule, parts))?);
        }
        if schema.get("$ref").is_some() {
            let (referred, at) = scope.referred(schema, pointer)?;
            all.push(self.xml_strings(scope, referred, &at)?);
        }
        if let Some(branches) = self.branches(scope, &mut fields, "allOf")? {
            all.extend(branches);
        }
        if let Some(branches) = self.branches(scope, &mut fields, "anyOf")? {
            all.push(self.union(&branches, pointer)?);
        }
        if let Some(branches) = self.branches(scope, &mut fields, "oneOf")? {
            all.push(self.exactly_one(&branches, pointer)?);
        }
        if let Some(not) = fields.optional("not") {
            let inner = self.xml_strings(scope, not, &fields.at("not"))?;
            all.push(self.complement(inner, pointer)?);
        }
        if let Some(condition) = fields.optional("if") {
            let condition = self.xml_strings(scope, condition, &fields.at("if"))?;
            let unmet = self.complement(condition, pointer)?;
            for (name, unless) in [("then", unmet), ("else", condition)] {
                if let Some(schema) = fields.optional(name) {
                    let then = self.xml_strings(scope, schema, &fields.at(name))?;
                    all.push(self.union(&[unless, then], pointer)?);
                }
            }
        }
        self.intersection(&all, pointer)
    }

    /// The strings of each branch of a keyword, if it is there.
    fn branches(
        &mut self,
        scope: &Scope<'_>,
        fields: &mut Fields<'_>,
        name: &str,
    ) -> Result<Option<Vec<Strings>>, TagError> {
        let Some(list) = fields.optional(name) else {
            return Ok(None);
        };
        let Value::Array(list) = list else {
            return fields.refuse(name, "must be an array");
        };
        let mut branches = Vec::with_capacity(list.len());
        for (index, branch) in list.iter().enumerate() {
            let pointer = format!("{}/{index}", fields.at(name));
            branches.push(self.xml_strings(scope, branch, &pointer)?);
        }
        Ok(Some(branches))
    }

    /// What `minLength`, `maxLength`, `pattern` and `format` say of a string.
    pub(super) fn string_parts(
        &mut self,
        fields: &mut Fields<'_>,
        rule: &mut RuleBuilder,
    ) -> Result<Vec<NodeId>, TagError> {
        let mut parts = Vec::new();
        let most = i32::MAX as u32;
        let min = fields.count("minLength", most)?;
        let max = fields.count("maxLength", most)?;
        if min.is_some() || max.is_some() {
            parts.push(of_length(rule, min.unwrap_or(0), max.unwrap_or(UNBOUNDED)));
        }
        if let Some(pattern) = fields.optional("pattern") {
            let pointer = fields.at("pattern");
            let Value::String(pattern) = pattern else {
                return refuse(&pointer, format!("{} is no pattern", shown(pattern)));
            };
            let ast = regex::parse(pattern, Dialect::Ecma, self.limits.regex).map_err(|error| {
                let (_, column) = crate::error::line_and_column(pattern, error.offset);
                TagError::At {
                    pointer,
                    message: format!("column {column}: {}", error.message),
                }
            })?;
            parts.push(rule.push(0, NodeKind::Regex(ast.search(Chars::ANY).0)));
        }
        if let Some(Value::String(format)) = fields.optional("format")
            && let Some(format) = self.format_rule(format, &fields.at("format"))?
        {
            parts.push(rule.push(0, NodeKind::Rule(format)));
        }
        fields.take(&["contentEncoding", "contentMediaType", "contentSchema"]);
        Ok(parts)
    }

    /// The rule of a format's texts, each format's once; `None` where it is an annotation.
    fn format_rule(&mut self, name: &str, pointer: &str) -> Result<Option<RuleId>, TagError> {
        if let Some(&known) = self.formats.get(name) {
            return Ok(Some(known));
        }
        let Some((ast, max)) = format_pattern(name) else {
            return Ok(None);
        };
        let charged = self.grammar.charge(ast.len(), 0, self.limits);
        charged.map_err(|error| super::at(pointer, error))?;
        let mut rule = RuleBuilder::default();
        let mut parts = vec![rule.push(0, NodeKind::Regex(ast))];
        if max != UNBOUNDED {
            parts.push(of_length(&mut rule, 0, max));
        }
        let Strings::Of(rule) = self.rule_of(pointer, rule, |rule| and(rule, parts))? else {
            return Ok(None);
        };
        self.formats.insert(name.to_owned(), rule);
        Ok(Some(rule))
    }

    fn listed_strings<'a>(
        &mut self,
        values: impl Iterator<Item = &'a Value>,
        pointer: &str,
    ) -> Result<Strings, TagError> {
        let texts = values.filter_map(|value| match value {
            Value::String(text) => Some(text.as_str().into()),
            _ => None,
        });
        let texts: Vec<Box<str>> = texts.collect();
        if texts.is_empty() {
            return Ok(Strings::None);
        }
        self.rule_of(pointer, RuleBuilder::default(), |rule| {
            let texts = texts
                .into_iter()
                .map(|text| rule.push(0, NodeKind::Literal(text)));
            let texts = texts.collect();
            rule.alternate(0, texts)
        })
    }

    fn intersection(&mut self, parts: &[Strings], pointer: &str) -> Result<Strings, TagError> {
        if parts.contains(&Strings::None) {
            return Ok(Strings::None);
        }
        self.combined(parts, pointer, Strings::All, and)
    }

    fn union(&mut self, parts: &[Strings], pointer: &str) -> Result<Strings, TagError> {
        if parts.contains(&Strings::All) {
            return Ok(Strings::All);
        }
        self.combined(parts, pointer, Strings::None, |rule, parts| {
            rule.alternate(0, parts)
        })
    }

    /// Those of rules, combined; others are left out.
    fn combined(
        &mut self,
        parts: &[Strings],
        pointer: &str,
        nothing: Strings,
        combine: impl FnOnce(&mut RuleBuilder, Vec<NodeId>) -> NodeId,
    ) -> Result<Strings, TagError> {
        let rules = parts.iter().filter_map(|part| match *part {
            Strings::Of(rule) => Some(rule),
            Strings::None | Strings::All => None,
        });
        match rules.collect::<Vec<_>>()[..] {
            [] => Ok(nothing),
            [only] => Ok(Strings::Of(only)),
            ref rules => self.rule_of(pointer, RuleBuilder::default(), |rule| {
                let parts = rules.iter().map(|&part| rule.push(0, NodeKind::Rule(part)));
                let parts = parts.collect();
                combine(rule, parts)
            }),
        }
    }

    fn complement(&mut self, strings: Strings, pointer: &str) -> Result<Strings, TagError> {
        match strings {
            Strings::None => Ok(Strings::All),
            Strings::All => Ok(Strings::None),
            Strings::Of(inner) => self.rule_of(pointer, RuleBuilder::default(), |rule| {
                let inner = rule.push(0, NodeKind::Rule(inner));
                rule.push(0, NodeKind::Not(inner))
            }),
        }
    }

    /// Strings of exactly one of some branches.
    fn exactly_one(&mut self, branches: &[Strings], pointer: &str) -> Result<Strings, TagError> {
        let (mut none, mut one) = (Strings::All, Strings::None);
        for &branch in branches {
            let other = self.complement(branch, pointer)?;
            let first = self.intersection(&[none, branch], pointer)?;
            let before = self.intersection(&[one, other], pointer)?;
            one = self.union(&[first, before], pointer)?;
            none = self.intersection(&[none, other], pointer)?;
        }
        Ok(one)
    }

    /// A rule with a body.
    fn rule_of(
        &mut self,
        pointer: &str,
        mut builder: RuleBuilder,
        body: impl FnOnce(&mut RuleBuilder) -> NodeId,
    ) -> Result<Strings, TagError> {
        let rule = self.declare(pointer)?;
        let body = body(&mut builder);
        self.define(rule, pointer, builder, body)?;
        Ok(Strings::Of(rule))
    }
}

/// Text of all of them, of which there is one at least.
pub(super) fn and(rule: &mut RuleBuilder, parts: Vec<NodeId>) -> NodeId {
    match parts[..] {
        [only] => only,
        _ => rule.push(0, NodeKind::And(parts)),
    }
}

/// Text of so many characters.
fn of_length(rule: &mut RuleBuilder, min: u32, max: u32) -> NodeId {
    let inner = rule.push(0, NodeKind::Class(any_char()));
    rule.push(0, NodeKind::Repeat { inner, min, max })
}
