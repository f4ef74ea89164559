//! Templates: rules with parameters, as `_separated{x, sep}: x (sep x)*`.
//!
//! A use is a rule of its own, made by reading the template's body again with its parameters standing
//! for the arguments. Equal arguments make one rule, so templates may use themselves. Uses are made
//! after all statements, since a template may be defined after it is used, and one after the other,
//! not one within the other.

use hashbrown::{HashMap, HashSet};

use super::super::ast::{NodeKind, RuleId, SyntaxError};
use super::super::cursor::{Cursor, cut};
use super::{Parser, is_terminal};

/// How deep uses may stand within the arguments of others.
const MAX_NESTED_USES: usize = 32;

/// The most source that uses of templates may read again, in bytes.
const MAX_EXPANDED_BYTES: usize = 4 << 20;

/// The name of rules for arguments that are no rules.
const ARGUMENT: &str = "%argument";

/// A template that was defined.
struct Template<'a> {
    offset: usize,
    parameters: Vec<&'a str>,
    /// At its body, and how long that is.
    body: Cursor<'a>,
    num_bytes: usize,
}

/// A use that is to become a rule.
struct Use<'a> {
    offset: usize,
    template: &'a str,
    arguments: Vec<RuleId>,
    rule: RuleId,
}

/// The templates of a grammar.
#[derive(Default)]
pub(super) struct Templates<'a> {
    defined: HashMap<&'a str, Template<'a>>,
    /// Rules of uses.
    uses: HashMap<(&'a str, Vec<RuleId>), RuleId>,
    pending: Vec<Use<'a>>,
    /// Rules of arguments that are no rules, by what is written.
    arguments: HashMap<&'a str, RuleId>,
    /// What the parameters of the body that is being read stand for.
    bound: HashMap<&'a str, RuleId>,
    /// Whether a body is read only to find its end.
    is_unused: bool,
    /// How many uses the one being read is within.
    nesting: usize,
    expanded_bytes: usize,
}

impl<'a> Templates<'a> {
    /// What a parameter stands for, where the name is one.
    pub(super) fn bound(&self, name: &str) -> Option<RuleId> {
        self.bound.get(name).copied()
    }

    /// Whether a template has this name.
    pub(super) fn is_defined(&self, name: &str) -> bool {
        self.defined.contains_key(name)
    }
}

impl<'a> Parser<'a, '_> {
    /// A template, from the bracket before its parameters on.
    pub(super) fn template(&mut self, name: &'a str, offset: usize) -> Result<(), SyntaxError> {
        if is_terminal(name) {
            return self.cursor.error(
                "terminals have no parameters: name templates like rules, in small letters",
            );
        }
        let is_rule = self.names.get(name).is_some_and(|known| known.is_defined);
        if is_rule || self.templates.is_defined(name) {
            let message = format!("`{}` is defined twice", cut(name));
            return Err(SyntaxError::new(offset, message));
        }
        let parameters = self.parameters()?;
        self.priority()?;
        self.take_colon(name)?;
        let body = self.cursor.clone();
        // Read with parameters that stand for anything, to find the end and what is wrong.
        let anything = self.ignored;
        self.templates.bound = parameters.iter().map(|name| (*name, anything)).collect();
        self.templates.is_unused = true;
        let read = self.expression(false);
        self.templates.is_unused = false;
        self.templates.bound.clear();
        read?;
        self.rule = Default::default();
        let template = Template {
            offset,
            parameters,
            num_bytes: self.cursor.offset() - body.offset(),
            body,
        };
        self.templates.defined.insert(name, template);
        Ok(())
    }

    /// `{x, y}` after a template's name.
    fn parameters(&mut self) -> Result<Vec<&'a str>, SyntaxError> {
        let mut parameters = Vec::new();
        let mut seen = HashSet::new();
        self.cursor.skip(1);
        loop {
            self.skip_lines();
            let offset = self.cursor.offset();
            match self.take_name() {
                Some(name) if is_terminal(name) => {
                    let message = format!("parameter `{}` is written in capitals", cut(name));
                    return Err(SyntaxError::new(offset, message));
                }
                Some(name) if !seen.insert(name) => {
                    let message = format!("parameter `{}` stands twice", cut(name));
                    return Err(SyntaxError::new(offset, message));
                }
                Some(name) => parameters.push(name),
                None => {
                    let found = self.cursor.found();
                    return self
                        .cursor
                        .error(format!("expected a parameter's name, found {found}"));
                }
            }
            if self.ends_list("parameters")? {
                return Ok(parameters);
            }
        }
    }

    /// Moves over `,` or `}`; whether it is the latter.
    fn ends_list(&mut self, of: &str) -> Result<bool, SyntaxError> {
        self.skip_lines();
        if self.cursor.take_str("}") {
            return Ok(true);
        }
        if self.cursor.take_str(",") {
            return Ok(false);
        }
        let found = self.cursor.found();
        self.cursor
            .error(format!("expected `,` or `}}` among {of}, found {found}"))
    }

    /// A template with its arguments, from the bracket before these on.
    pub(super) fn template_use(
        &mut self,
        template: &'a str,
        offset: usize,
    ) -> Result<NodeKind, SyntaxError> {
        if self.templates.bound.contains_key(template) {
            let message = format!("parameter `{}` has no parameters itself", cut(template));
            return Err(SyntaxError::new(offset, message));
        }
        if self.templates.nesting >= MAX_NESTED_USES {
            let message = format!("templates are nested deeper than {MAX_NESTED_USES}");
            return Err(SyntaxError::new(offset, message));
        }
        self.templates.nesting += 1;
        let arguments = self.arguments();
        self.templates.nesting -= 1;
        let arguments = arguments?;
        if self.templates.is_unused {
            return Ok(NodeKind::Rule(self.ignored));
        }
        let key = (template, arguments);
        if let Some(&rule) = self.templates.uses.get(&key) {
            return Ok(NodeKind::Rule(rule));
        }
        let rule = self.grammar.declare(template, offset, self.limits)?;
        self.templates.pending.push(Use {
            offset,
            template,
            arguments: key.1.clone(),
            rule,
        });
        self.templates.uses.insert(key, rule);
        Ok(NodeKind::Rule(rule))
    }

    /// `{x, ","}` after the name of a template in use.
    fn arguments(&mut self) -> Result<Vec<RuleId>, SyntaxError> {
        let mut arguments = Vec::new();
        self.cursor.skip(1);
        loop {
            self.skip_lines();
            arguments.push(self.argument()?);
            if self.ends_list("arguments")? {
                return Ok(arguments);
            }
        }
    }

    /// An argument as a rule.
    fn argument(&mut self) -> Result<RuleId, SyntaxError> {
        let offset = self.cursor.offset();
        let kind = self.value(false)?;
        if let NodeKind::Rule(rule) = kind {
            return Ok(rule);
        }
        if self.templates.is_unused {
            return Ok(self.ignored);
        }
        let written = &self.cursor.source()[offset..self.cursor.offset()];
        if let Some(&rule) = self.templates.arguments.get(written) {
            return Ok(rule);
        }
        let rule = self.grammar.declare(ARGUMENT, offset, self.limits)?;
        // Not part of the rule that is being read.
        let outer = std::mem::take(&mut self.rule);
        let node = self.rule.push_lexeme(offset, kind);
        let body = self.with_ignored(offset, node);
        self.set_body(rule, body)?;
        self.rule = outer;
        self.templates.arguments.insert(written, rule);
        Ok(rule)
    }

    /// Makes rules of all uses.
    pub(super) fn expand_templates(&mut self) -> Result<(), SyntaxError> {
        let end = self.cursor.clone();
        while let Some(used) = self.templates.pending.pop() {
            let Some(template) = self.templates.defined.get(used.template) else {
                let message = format!("template `{}` is not defined", cut(used.template));
                return Err(SyntaxError::new(used.offset, message));
            };
            let (wanted, given) = (template.parameters.len(), used.arguments.len());
            if wanted != given {
                let message = format!(
                    "template `{}` has {wanted} parameters, not {given}",
                    cut(used.template)
                );
                return Err(SyntaxError::new(used.offset, message));
            }
            self.templates.expanded_bytes += template.num_bytes;
            if self.templates.expanded_bytes > MAX_EXPANDED_BYTES {
                let message = format!(
                    "templates write more than {MAX_EXPANDED_BYTES} bytes out, among them `{}`",
                    cut(used.template)
                );
                return Err(SyntaxError::new(used.offset, message));
            }
            let bound = template.parameters.iter().copied().zip(used.arguments);
            self.templates.bound = bound.collect();
            self.cursor = template.body.clone();
            self.grammar.rules[used.rule].offset = template.offset;
            let body = self.expression(false)?;
            self.set_body(used.rule, body)?;
        }
        self.templates.bound.clear();
        self.cursor = end;
        Ok(())
    }
}
