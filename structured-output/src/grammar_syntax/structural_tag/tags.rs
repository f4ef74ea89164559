//! Tags, and free text with tags in it.

use std::sync::Arc;

use hashbrown::HashSet;

use super::super::Words;
use super::super::ast::{Among, NodeId, NodeKind, RuleBuilder, RuleId, TokenSet};
use super::super::cursor::cut;
use super::super::dispatch::{Dispatch, Tag, TokenDispatch, TokenTag};
use super::super::words::Beginnings;
use super::fields::{Fields, refuse, shown};
use super::{Ends, Parser, TagError, at};
use crate::json::Value;
use crate::lexical::UNBOUNDED;

/// What stands at a tag's begin or end.
enum Delimiter {
    Texts(Vec<Box<str>>),
    Token(Value, String),
}

impl Parser<'_> {
    /// A tag as a node: what it begins with, its content, and what ends it.
    pub(super) fn tag(
        &mut self,
        fields: &mut Fields<'_>,
        rule: &mut RuleBuilder,
    ) -> Result<NodeId, TagError> {
        let begin = match delimiter(fields, "begin", false)? {
            Delimiter::Texts(texts) => {
                let text = texts.first().map_or("", |text| &**text);
                let pieces = self.grammar.pieces(text);
                rule.pieces(0, &pieces)
            }
            Delimiter::Token(token, pointer) => self.token(&token, &pointer, rule)?,
        };
        let rest = self.content_and_end(fields)?;
        let rest = rule.push(0, NodeKind::Rule(rest));
        Ok(rule.concat(0, vec![begin, rest]))
    }

    /// A tag after what it begins with, as a rule.
    fn content_and_end(&mut self, fields: &mut Fields<'_>) -> Result<RuleId, TagError> {
        let content = fields.required("content")?;
        let content_pointer = fields.at("content");
        let end = delimiter(fields, "end", true)?;
        let rule = self.declare(fields.pointer)?;
        let mut builder = RuleBuilder::default();
        let ends = match &end {
            Delimiter::Texts(texts) => Ends {
                texts: Words::new(texts.iter().filter(|t| !t.is_empty()).cloned().collect()),
                tokens: Vec::new(),
            },
            Delimiter::Token(value, pointer) => Ends {
                texts: Words::default(),
                tokens: vec![self.token_set(value, pointer, false)?],
            },
        };
        let content = self.part(content, &content_pointer, &ends, &mut builder)?;
        let end = match end {
            Delimiter::Texts(texts) => {
                let mut ways = Vec::with_capacity(texts.len());
                for text in texts {
                    let pieces = self.grammar.pieces(&text);
                    ways.push(builder.pieces(0, &pieces));
                }
                builder.alternate(0, ways)
            }
            Delimiter::Token(value, pointer) => self.token(&value, &pointer, &mut builder)?,
        };
        let body = builder.concat(0, vec![content, end]);
        self.define(rule, fields.pointer, builder, body)?;
        Ok(rule)
    }

    /// Tags of a list: what each begins with, and the rule for the rest.
    fn tags(&mut self, fields: &mut Fields<'_>) -> Result<Vec<(Delimiter, RuleId)>, TagError> {
        let items = fields.filled_array("tags", "tag")?;
        let mut tags = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let pointer = format!("{}/{index}", fields.at("tags"));
            let mut tag = Fields::new(item, &pointer)?;
            if let Some(kind) = tag.optional("type")
                && *kind != Value::String("tag".into())
            {
                return tag.refuse("type", "must be `tag`");
            }
            let begin = delimiter(&mut tag, "begin", false)?;
            let rest = self.content_and_end(&mut tag)?;
            tag.finish()?;
            tags.push((begin, rest));
        }
        Ok(tags)
    }

    pub(super) fn triggered_tags(
        &mut self,
        fields: &mut Fields<'_>,
        rule: &mut RuleBuilder,
        ends: &Ends,
    ) -> Result<NodeId, TagError> {
        let triggers = fields.texts("triggers")?;
        if triggers.is_empty() {
            return fields.refuse("triggers", "must hold at least one string");
        }
        let tags = self.tags(fields)?;
        let mut dispatch = Dispatch::new(0);
        dispatch.at_least_one = fields.flag("at_least_one", false)?;
        dispatch.is_loop = !fields.flag("stop_after_first", false)?;
        dispatch.excludes = fields.texts("excludes")?;
        dispatch.excludes.extend_from_slice(&ends.texts);
        let beginnings = Beginnings::new(&triggers);
        let mut used: HashSet<&str> = HashSet::new();
        for (index, (begin, rest)) in tags.into_iter().enumerate() {
            let pointer = format!("{}/{index}/begin", fields.at("tags"));
            let Delimiter::Texts(begins) = begin else {
                return refuse(
                    &pointer,
                    "`begin` must be a string here: triggers are strings",
                );
            };
            let begin = begins.first().map_or("", |text| &**text);
            let Some(trigger) = beginnings.only_one_of(begin) else {
                return refuse(&pointer, not_one_of(begin, &triggers));
            };
            let content = rule.push(0, NodeKind::Rule(rest));
            used.insert(trigger);
            dispatch.tags.push(Tag {
                trigger: trigger.into(),
                rest: begin[trigger.len()..].into(),
                content,
            });
        }
        let unused = triggers
            .iter()
            .filter(|trigger| !used.contains(&***trigger));
        dispatch.unused.extend(unused.cloned());
        let kind = dispatch.build(rule, self.grammar, self.limits);
        Ok(rule.push(0, kind.map_err(|error| at(fields.pointer, error))?))
    }

    /// Unlike tags that are triggered it may hold what ends a tag around it, as in XGrammar: what may not occur
    /// is named by `excludes`.
    pub(super) fn dispatch(
        &mut self,
        fields: &mut Fields<'_>,
        rule: &mut RuleBuilder,
    ) -> Result<NodeId, TagError> {
        let mut dispatch = Dispatch::new(0);
        for (trigger, content, pointer) in self.rules(fields, rule)? {
            let Value::String(trigger) = trigger else {
                return refuse(
                    &pointer,
                    format!("a trigger is a string, not {}", shown(trigger)),
                );
            };
            if trigger.is_empty() {
                return refuse(&pointer, "a trigger is not empty: it would be everywhere");
            }
            dispatch.tags.push(Tag {
                trigger: trigger.as_str().into(),
                rest: "".into(),
                content,
            });
        }
        dispatch.is_loop = fields.flag("loop", true)?;
        dispatch.excludes = fields.texts("excludes")?;
        let kind = dispatch.build(rule, self.grammar, self.limits);
        Ok(rule.push(0, kind.map_err(|error| at(fields.pointer, error))?))
    }

    pub(super) fn token_dispatch(
        &mut self,
        fields: &mut Fields<'_>,
        rule: &mut RuleBuilder,
        ends: &Ends,
    ) -> Result<NodeId, TagError> {
        let mut dispatch = TokenDispatch::new(0);
        for (trigger, content, pointer) in self.rules(fields, rule)? {
            let trigger = self.token_set(trigger, &pointer, false)?;
            dispatch.tags.push(TokenTag {
                trigger,
                rule: None,
                content,
            });
        }
        dispatch.is_loop = fields.flag("loop", true)?;
        dispatch.excludes = with_ends(self.tokens(fields, "exclude_tokens")?, ends);
        let kind = dispatch.build(rule);
        Ok(rule.push(0, kind))
    }

    /// The pairs of a dispatch: a trigger, its content as a node, and the trigger's pointer.
    fn rules<'a>(
        &mut self,
        fields: &mut Fields<'a>,
        rule: &mut RuleBuilder,
    ) -> Result<Vec<(&'a Value, NodeId, String)>, TagError> {
        let mut rules = Vec::new();
        let pairs = fields.filled_array("rules", "pair of a trigger and a format")?;
        for (index, pair) in pairs.iter().enumerate() {
            let pointer = format!("{}/{index}", fields.at("rules"));
            let Value::Array(pair) = pair else {
                return refuse(&pointer, "a rule is a pair of a trigger and a format");
            };
            let [trigger, format] = &pair[..] else {
                return refuse(&pointer, "a rule is a pair of a trigger and a format");
            };
            let none = Ends::default();
            let content = self.part(format, &format!("{pointer}/1"), &none, rule)?;
            rules.push((trigger, content, format!("{pointer}/0")));
        }
        Ok(rules)
    }

    pub(super) fn token_triggered_tags(
        &mut self,
        fields: &mut Fields<'_>,
        rule: &mut RuleBuilder,
        ends: &Ends,
    ) -> Result<NodeId, TagError> {
        let triggers = self.tokens(fields, "trigger_tokens")?;
        if fields.optional_array("trigger_tokens")?.is_empty() {
            return fields.refuse("trigger_tokens", "must hold at least one token");
        }
        let tags = self.tags(fields)?;
        let mut dispatch = TokenDispatch::new(0);
        dispatch.at_least_one = fields.flag("at_least_one", false)?;
        dispatch.is_loop = !fields.flag("stop_after_first", false)?;
        dispatch.excludes = with_ends(self.tokens(fields, "exclude_tokens")?, ends);
        // Triggers don't occur between tags, with a tag or without.
        dispatch.excludes.ranges.extend_from_slice(&triggers.ranges);
        dispatch.excludes.names.extend_from_slice(&triggers.names);
        let triggers = Arc::new(triggers);
        let ids: HashSet<(u32, u32)> = triggers.ranges.iter().copied().collect();
        let names: HashSet<&str> = triggers.names.iter().map(|name| &**name).collect();
        for (index, (begin, rest)) in tags.into_iter().enumerate() {
            let pointer = format!("{}/{index}/begin", fields.at("tags"));
            let Delimiter::Token(value, token_pointer) = begin else {
                return refuse(
                    &pointer,
                    "`begin` must be a token here: triggers are tokens",
                );
            };
            let trigger = self.token_set(&value, &token_pointer, false)?;
            let is_written = trigger.ranges.iter().all(|id| ids.contains(id))
                && trigger.names.iter().all(|name| names.contains(&**name));
            // By name and by id, a token may be the same: only a vocabulary says.
            let of_trigger = match is_written {
                true => None,
                false => {
                    let token = shown(&value);
                    let otherwise =
                        format!("`begin` is the token {token} and must be one of `trigger_tokens`");
                    let among = Among {
                        set: Arc::clone(&triggers),
                        otherwise: otherwise.into(),
                    };
                    Some(self.trigger(&trigger, among, &pointer)?)
                }
            };
            let content = rule.push(0, NodeKind::Rule(rest));
            dispatch.tags.push(TokenTag {
                trigger,
                rule: of_trigger,
                content,
            });
        }
        let kind = dispatch.build(rule);
        Ok(rule.push(0, kind))
    }

    /// A rule for a token that must be among others.
    fn trigger(
        &mut self,
        trigger: &TokenSet,
        among: Among,
        pointer: &str,
    ) -> Result<RuleId, TagError> {
        let rule = self.declare(pointer)?;
        let mut builder = RuleBuilder::default();
        let tokens = TokenSet {
            among: Some(among),
            ..trigger.clone()
        };
        let body = builder.push(0, NodeKind::Tokens(tokens));
        self.define(rule, pointer, builder, body)?;
        Ok(rule)
    }

    pub(super) fn tags_with_separator(
        &mut self,
        fields: &mut Fields<'_>,
        rule: &mut RuleBuilder,
    ) -> Result<NodeId, TagError> {
        let tags = self.tags(fields)?;
        let separator = self.grammar.pieces(fields.string("separator")?);
        let at_least_one = fields.flag("at_least_one", false)?;
        let stop_after_first = fields.flag("stop_after_first", false)?;
        let mut ways = Vec::with_capacity(tags.len());
        for (begin, rest) in tags {
            let begin = match begin {
                Delimiter::Texts(texts) => {
                    let text = texts.first().map_or("", |text| &**text);
                    let pieces = self.grammar.pieces(text);
                    rule.pieces(0, &pieces)
                }
                Delimiter::Token(token, pointer) => self.token(&token, &pointer, rule)?,
            };
            let rest = rule.push(0, NodeKind::Rule(rest));
            ways.push(rule.concat(0, vec![begin, rest]));
        }
        let one = rule.alternate(0, ways);
        let mut list = one;
        if !stop_after_first {
            let separator = rule.pieces(0, &separator);
            let more = rule.concat(0, vec![separator, one]);
            let more = NodeKind::Repeat {
                inner: more,
                min: 0,
                max: UNBOUNDED,
            };
            let more = rule.push(0, more);
            list = rule.concat(0, vec![one, more]);
        }
        if !at_least_one {
            let maybe = NodeKind::Repeat {
                inner: list,
                min: 0,
                max: 1,
            };
            list = rule.push(0, maybe);
        }
        Ok(list)
    }
}

/// Why a tag begins with no trigger, or with several.
fn not_one_of(begin: &str, triggers: &[Box<str>]) -> String {
    /// So many are named.
    const MOST: usize = 8;
    let list = |triggers: &[&str]| {
        let named = triggers.iter().take(MOST);
        let named: Vec<String> = named.map(|trigger| format!("`{}`", cut(trigger))).collect();
        let more = if triggers.len() > MOST { ", …" } else { "" };
        format!("{}{more}", named.join(", "))
    };
    let all = triggers.iter().map(|trigger| &**trigger);
    let several: Vec<&str> = all
        .clone()
        .filter(|trigger| begin.starts_with(trigger))
        .collect();
    let begin = cut(begin);
    match several.is_empty() {
        true => format!(
            "`begin` is `{begin}` and must start with one of the triggers: {}",
            list(&all.collect::<Vec<_>>())
        ),
        false => format!(
            "`begin` is `{begin}` and must start with one of the triggers only, not with each of {}",
            list(&several)
        ),
    }
}

fn with_ends(mut set: TokenSet, ends: &Ends) -> TokenSet {
    for end in &ends.tokens {
        set.ranges.extend_from_slice(&end.ranges);
        set.names.extend_from_slice(&end.names);
    }
    set
}

/// A tag's `begin` or `end`: a string, a token, and at the end several strings.
fn delimiter(
    fields: &mut Fields<'_>,
    name: &str,
    may_be_list: bool,
) -> Result<Delimiter, TagError> {
    let value = fields.required(name)?;
    match value {
        Value::String(text) => Ok(Delimiter::Texts(vec![text.as_str().into()])),
        Value::Array(items) if may_be_list && !items.is_empty() => {
            let mut texts: Vec<Box<str>> = Vec::with_capacity(items.len());
            for (index, item) in items.iter().enumerate() {
                match item {
                    Value::String(text) => texts.push(text.as_str().into()),
                    other => {
                        let pointer = format!("{}/{index}", fields.at(name));
                        return refuse(
                            &pointer,
                            format!("`{name}` holds strings, not {}", shown(other)),
                        );
                    }
                }
            }
            Ok(Delimiter::Texts(texts))
        }
        Value::Array(items) if may_be_list && items.is_empty() => fields.refuse(
            name,
            "must hold at least one string: `\"\"` where the content's end is the tag's",
        ),
        Value::Object(_) => {
            let pointer = fields.at(name);
            let mut token = Fields::new(value, &pointer)?;
            if token.string("type")? != "token" {
                return token.refuse("type", "must be `token`");
            }
            let token_pointer = token.at("token");
            let value = token.required("token")?.clone();
            token.finish()?;
            Ok(Delimiter::Token(value, token_pointer))
        }
        other => {
            let list = if may_be_list {
                ", an array of strings"
            } else {
                ""
            };
            let message = format!(
                "must be a string{list} or a token (`{{\"type\": \"token\", \"token\": …}}`), not {}",
                shown(other)
            );
            fields.refuse(name, &message)
        }
    }
}
