//! Rules of members: in their order, so many of them, or in any order.

use super::super::ast::{NodeId, NodeKind, RuleBuilder, RuleId};
use super::fields::refuse;
use super::xml::{repeated, space};
use super::xml_scope::Scope;
use super::{Parser, TagError};
use crate::lexical::UNBOUNDED;

/// As many members as may come in any order.
const MAX_ANY_ORDER: usize = 8;

/// As many places as members beside how many came before them.
const MAX_COUNTED: usize = 4096;

/// A member's rule.
pub(super) struct Member {
    pub(super) rule: RuleId,
    pub(super) is_required: bool,
}

/// Rules of members, and of all others if there may be others.
pub(super) struct MemberRules {
    pub(super) named: Vec<Member>,
    pub(super) additional: Option<RuleId>,
    pub(super) min: u32,
    pub(super) max: u32,
}

impl Parser<'_> {
    /// A rule for each member and number of members before it.
    pub(super) fn counted(
        &mut self,
        scope: &Scope<'_>,
        members: &MemberRules,
        rule: &mut RuleBuilder,
    ) -> Result<NodeId, TagError> {
        let num_named = members.named.len();
        if (num_named + 1) * (num_named + 2) / 2 > MAX_COUNTED {
            return refuse(
                &scope.pointer,
                "`minProperties` and `maxProperties` are supported for up to 89 properties in this style",
            );
        }
        // Of those after the last one that is named.
        let mut after: Vec<Option<RuleId>> = Vec::with_capacity(num_named + 1);
        for written in 0..=num_named as u32 {
            let (min, max) = (members.min.saturating_sub(written), members.max);
            if written > max || (members.additional.is_none() && min > 0) {
                after.push(None);
                continue;
            }
            let mut builder = RuleBuilder::default();
            let mut items = Vec::new();
            if let Some(additional) = members.additional {
                let inner = builder.push(0, NodeKind::Rule(additional));
                let max = match max {
                    UNBOUNDED => UNBOUNDED,
                    max => max - written,
                };
                items.push(builder.push(0, NodeKind::Repeat { inner, min, max }));
            }
            items.push(space(scope, &mut builder));
            let body = builder.concat(0, items);
            after.push(Some(self.tag_rule(scope, builder, body)?));
        }
        for (at, member) in members.named.iter().enumerate().rev() {
            let mut here = Vec::with_capacity(at + 1);
            for written in 0..=at {
                let mut builder = RuleBuilder::default();
                let mut ways = Vec::new();
                if let Some(next) = after[written + 1] {
                    let own = builder.push(0, NodeKind::Rule(member.rule));
                    let next = builder.push(0, NodeKind::Rule(next));
                    ways.push(builder.concat(0, vec![own, next]));
                }
                if let Some(next) = after[written].filter(|_| !member.is_required) {
                    ways.push(builder.push(0, NodeKind::Rule(next)));
                }
                here.push(match ways.is_empty() {
                    true => None,
                    false => {
                        let body = builder.alternate(0, ways);
                        Some(self.tag_rule(scope, builder, body)?)
                    }
                });
            }
            after = here;
        }
        match after.first().copied().flatten() {
            Some(first) => Ok(rule.push(0, NodeKind::Rule(first))),
            None => refuse(&scope.pointer, "no object has as many members"),
        }
    }

    /// A rule of the whole's.
    pub(super) fn tag_rule(
        &mut self,
        scope: &Scope<'_>,
        builder: RuleBuilder,
        body: NodeId,
    ) -> Result<RuleId, TagError> {
        let rule = self.declare(&scope.format)?;
        self.define(rule, &scope.format, builder, body)?;
        Ok(rule)
    }

    /// A rule for each set of members that have been written.
    pub(super) fn in_any_order(
        &mut self,
        scope: &Scope<'_>,
        members: &MemberRules,
        is_counted: bool,
        rule: &mut RuleBuilder,
    ) -> Result<NodeId, TagError> {
        let MemberRules {
            named,
            additional,
            min,
            max,
        } = members;
        if named.len() > MAX_ANY_ORDER {
            return refuse(
                &format!("{}/any_order", scope.format),
                format!(
                    "`any_order` is supported for up to {MAX_ANY_ORDER} properties in this style, \
                     not for {}",
                    named.len()
                ),
            );
        }
        if is_counted && additional.is_some() {
            return refuse(
                &format!("{}/any_order", scope.format),
                "`any_order` beside `minProperties` or `maxProperties` needs \
                 `additionalProperties: false` in this style",
            );
        }
        let mut after = Vec::with_capacity(1 << named.len());
        for _ in 0..1_usize << named.len() {
            after.push(self.declare(&scope.format)?);
        }
        // Whether a whole object may end there.
        let may_end = |written: usize| {
            let mut required = named.iter().enumerate();
            let is_all = required.all(|(at, member)| written >> at & 1 == 1 || !member.is_required);
            is_all && (!is_counted || (*min..=*max).contains(&written.count_ones()))
        };
        let mut leads_on = vec![false; after.len()];
        for written in (0..after.len()).rev() {
            let more = (0..named.len()).map(|at| written | 1 << at);
            let can_grow = !is_counted || written.count_ones() < *max;
            leads_on[written] = may_end(written)
                || (can_grow
                    && more
                        .filter(|more| *more != written)
                        .any(|more| leads_on[more]));
        }
        for (written, &own) in after.iter().enumerate() {
            let mut builder = RuleBuilder::default();
            let mut ways = Vec::new();
            let is_written = |at: usize| written >> at & 1 == 1;
            let mut next = |member: RuleId, after: RuleId, builder: &mut RuleBuilder| {
                let member = builder.push(0, NodeKind::Rule(member));
                let after = builder.push(0, NodeKind::Rule(after));
                ways.push(builder.concat(0, vec![member, after]));
            };
            for (at, member) in named.iter().enumerate() {
                if !is_written(at) && leads_on[written] && leads_on[written | 1 << at] {
                    next(member.rule, after[written | 1 << at], &mut builder);
                }
            }
            if let Some(additional) = *additional {
                next(additional, own, &mut builder);
            }
            // One from where no object ends is led to by no other.
            if may_end(written) || ways.is_empty() {
                ways.push(space(scope, &mut builder));
            }
            let body = builder.alternate(0, ways);
            self.define(own, &scope.format, builder, body)?;
        }
        let first = after.first().copied().unwrap_or_default();
        Ok(rule.push(0, NodeKind::Rule(first)))
    }
}

/// Members one after the other.
pub(super) fn in_order(scope: &Scope<'_>, members: &MemberRules, rule: &mut RuleBuilder) -> NodeId {
    let mut items = Vec::with_capacity(members.named.len() + 2);
    for member in &members.named {
        let inner = rule.push(0, NodeKind::Rule(member.rule));
        items.push(match member.is_required {
            true => inner,
            false => repeated(rule, inner, 1),
        });
    }
    if let Some(additional) = members.additional {
        let inner = rule.push(0, NodeKind::Rule(additional));
        items.push(repeated(rule, inner, UNBOUNDED));
    }
    items.push(space(scope, rule));
    rule.concat(0, items)
}
