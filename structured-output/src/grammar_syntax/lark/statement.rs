//! Rules, terminals and directives.

use super::super::ast::{NodeKind, SyntaxError};
use super::super::cursor::cut;
use super::super::ebnf_atom::any_char;
use super::atom::Name;
use super::{Parser, common, is_terminal};
use crate::json::Value;

impl<'a> Parser<'a, '_> {
    /// All statements up to the end, or up to the brace that ends a nested grammar.
    pub(super) fn statements(&mut self) -> Result<(), SyntaxError> {
        loop {
            self.skip_lines();
            match self.cursor.peek() {
                None if self.nesting == 0 => return Ok(()),
                None => return self.cursor.error("`%lark {` without `}`"),
                Some('}') if self.nesting > 0 => {
                    self.cursor.skip(1);
                    return Ok(());
                }
                Some('%') => self.directive()?,
                Some(_) => self.definition()?,
            }
            self.skip_blanks();
            match self.cursor.peek() {
                None | Some('\n' | '\r') => {}
                Some('}') if self.nesting > 0 => {}
                Some(_) => {
                    let found = self.cursor.found();
                    return self
                        .cursor
                        .error(format!("expected the end of the line, found {found}"));
                }
            }
        }
    }

    /// A rule or terminal.
    fn definition(&mut self) -> Result<(), SyntaxError> {
        let offset = self.cursor.offset();
        // What keeps a parse tree small changes no language.
        self.cursor.take_while(|c| matches!(c, '!' | '?'));
        let Some(name) = self.take_name() else {
            let found = self.cursor.found();
            return self.cursor.error(format!(
                "expected a rule, a terminal or a directive, found {found}"
            ));
        };
        if self.cursor.peek() == Some('{') {
            return self.template(name, offset);
        }
        if self.cursor.rest().starts_with("::") {
            return self
                .cursor
                .error("rules with a parameter (`::`) are not supported");
        }
        self.priority()?;
        let rule = self.define(name, offset)?;
        let attributes = self.attributes()?;
        self.take_colon(name)?;
        let is_lexeme =
            attributes.is_lazy || attributes.max_chars.is_some() || attributes.max_tokens.is_some();
        self.only_text = match (is_lexeme && !is_terminal(name), attributes.is_lazy) {
            (false, _) => None,
            (true, true) => Some("lazy"),
            (true, false) => Some("max_chars` or `max_tokens"),
        };
        let mut body = self.expression(is_terminal(name) || is_lexeme)?;
        self.only_text = None;
        if let Some(max) = attributes.max_chars {
            let inner = self.rule.push(offset, NodeKind::Class(any_char()));
            let short = self
                .rule
                .push(offset, NodeKind::Repeat { inner, min: 0, max });
            body = self.rule.push(offset, NodeKind::And(vec![body, short]));
        }
        if let Some((max, at)) = attributes.max_tokens {
            if is_terminal(name) || attributes.is_lazy {
                let message = "`max_tokens` is for rules without `lazy`, `suffix` and `stop`";
                return Err(SyntaxError::new(at, message));
            }
            let inner = body;
            body = self.rule.push(
                at,
                NodeKind::WithinTokens {
                    inner,
                    max,
                    is_checked: false,
                },
            );
            body = self.with_ignored(offset, body);
        } else if is_lexeme && !attributes.is_lazy && !is_terminal(name) {
            // Parts of a rule are terminals.
            let kind = NodeKind::Concat(vec![body]);
            body = self.rule.push_lexeme(offset, kind);
            body = self.with_ignored(offset, body);
        }
        if attributes.is_lazy {
            if let Some(suffix) = attributes.suffix {
                let suffix = self.rule.push(offset, suffix);
                body = self.rule.concat(offset, vec![body, suffix]);
            }
            let kind = NodeKind::Shortest(body);
            if is_terminal(name) {
                self.grammar.rules[rule].is_lazy = true;
                body = self.rule.push(offset, kind);
            } else {
                body = self.rule.push_lexeme(offset, kind);
                body = self.with_ignored(offset, body);
            }
        }
        self.set_body(rule, body)
    }

    /// `.1` after a name. Priorities choose among the ways to read a text; which texts can be read
    /// doesn't depend on them.
    pub(super) fn priority(&mut self) -> Result<(), SyntaxError> {
        if !self.cursor.take_str(".") {
            return Ok(());
        }
        if !self.cursor.take_str("-") {
            self.cursor.take_str("+");
        }
        match self.cursor.take_while(|c| c.is_ascii_digit()) {
            "" => self
                .cursor
                .error("expected a priority after `.`, as in `NAME.1`"),
            _ => Ok(()),
        }
    }

    /// The colon after the name of what is defined.
    pub(super) fn take_colon(&mut self, name: &str) -> Result<(), SyntaxError> {
        self.skip_blanks();
        if self.cursor.take_str(":") {
            return Ok(());
        }
        let found = self.cursor.found();
        self.cursor.error(format!(
            "expected `:` after the name `{}`, found {found}",
            cut(name)
        ))
    }

    /// `[lazy, suffix="x"]` after a name.
    fn attributes(&mut self) -> Result<Attributes, SyntaxError> {
        let mut attributes = Attributes::default();
        if !self.cursor.take_str("[") {
            return Ok(attributes);
        }
        loop {
            self.skip_blanks();
            let offset = self.cursor.offset();
            match self.take_name().unwrap_or_default() {
                "lazy" => attributes.is_lazy = true,
                // Captures apart, which aren't given back, the two are one.
                name @ ("suffix" | "stop") => {
                    self.skip_blanks();
                    if !self.cursor.take_str("=") {
                        return self
                            .cursor
                            .error(format!("expected `=` and a terminal after `{name}`"));
                    }
                    self.skip_blanks();
                    if attributes.suffix.is_some() {
                        let message = "a rule has one `suffix` or `stop`";
                        return Err(SyntaxError::new(offset, message));
                    }
                    attributes.is_lazy = true;
                    let suffix = self.value(true)?;
                    if matches!(&suffix, NodeKind::Literal(text) if text.is_empty()) {
                        let message = format!(
                            "an empty `{name}` is not supported: text up to the end is a rule without it"
                        );
                        return Err(SyntaxError::new(offset, message));
                    }
                    attributes.suffix = Some(suffix);
                }
                "max_chars" if attributes.max_chars.is_none() => {
                    attributes.max_chars = Some(self.attribute_count("max_chars", 0)?);
                }
                "max_tokens" if attributes.max_tokens.is_none() => {
                    attributes.max_tokens = Some((self.attribute_count("max_tokens", 1)?, offset));
                }
                name @ ("max_chars" | "max_tokens") => {
                    return Err(SyntaxError::new(offset, format!("a rule has one `{name}`")));
                }
                // What is asked for and isn't given back would be missed by the caller.
                name @ ("capture" | "stop_capture" | "temperature") => {
                    let message = format!(
                        "attribute `{name}` is not supported, since nothing reports it: leave it out, the texts are the same"
                    );
                    return Err(SyntaxError::new(offset, message));
                }
                other => {
                    return Err(SyntaxError::new(
                        offset,
                        format!(
                            "attribute `{}` is not supported: `lazy`, `suffix`, `stop`, `max_chars` and `max_tokens` are",
                            cut(other)
                        ),
                    ));
                }
            }
            self.skip_blanks();
            if self.cursor.take_str("]") {
                return Ok(attributes);
            }
            if !self.cursor.take_str(",") {
                let found = self.cursor.found();
                return self.cursor.error(format!(
                    "expected `,` or `]` among attributes, found {found}"
                ));
            }
        }
    }

    /// `=10` after an attribute.
    fn attribute_count(&mut self, name: &'static str, least: u32) -> Result<u32, SyntaxError> {
        self.skip_blanks();
        if !self.cursor.take_str("=") {
            let message = format!("expected `=` and a number after `{name}`");
            return self.cursor.error(message);
        }
        self.skip_blanks();
        let offset = self.cursor.offset();
        let count = self.cursor.take_number(i32::MAX as u32, name)?;
        match count >= least {
            true => Ok(count),
            false => Err(SyntaxError::new(
                offset,
                format!("`{name}` must be at least {least}"),
            )),
        }
    }

    fn directive(&mut self) -> Result<(), SyntaxError> {
        let offset = self.cursor.offset();
        self.cursor.skip(1);
        let name = self
            .cursor
            .take_while(|c| c.is_ascii_alphabetic() || c == '_');
        match name {
            "ignore" => {
                let rule = self.grammar.declare("%ignore", offset, self.limits)?;
                let body = self.expression(true)?;
                self.ignores.push(rule);
                self.set_body(rule, body)
            }
            "import" => self.import(),
            "llguidance" | "grammar_options" => self.options(),
            other => Err(SyntaxError::new(
                offset,
                format!(
                    "`%{}` is not supported here: directives are `%ignore`, `%import`, \
                     `%grammar_options` and `%llguidance`",
                    cut(other)
                ),
            )),
        }
    }

    /// `%import common.NAME`, `%import common.NAME -> OTHER`, `%import common (A, B)`.
    fn import(&mut self) -> Result<(), SyntaxError> {
        self.skip_blanks();
        let offset = self.cursor.offset();
        let module = self
            .cursor
            .take_while(|c| c.is_ascii_alphanumeric() || c == '_');
        let module = if self.cursor.peek() == Some('.') || module == "common" {
            module
        } else {
            ""
        };
        if module != "common" {
            return Err(SyntaxError::new(
                offset,
                "only terminals of `common` can be imported, as `%import common.INT`",
            ));
        }
        if self.cursor.take_str(".") {
            let at = self.cursor.offset();
            let imported = self.take_name().unwrap_or_default();
            self.skip_blanks();
            let mut name = imported;
            let mut named_at = at;
            if self.cursor.take_str("->") {
                self.skip_blanks();
                named_at = self.cursor.offset();
                name = self.take_name().unwrap_or_default();
            }
            return self.import_one(imported, at, name, named_at);
        }
        self.skip_blanks();
        if !self.cursor.take_str("(") {
            return self
                .cursor
                .error("expected `.` and a terminal, or a list in parentheses");
        }
        loop {
            self.skip_lines();
            let at = self.cursor.offset();
            let name = self.take_name().unwrap_or_default();
            self.import_one(name, at, name, at)?;
            self.skip_lines();
            if self.cursor.take_str(")") {
                return Ok(());
            }
            if !self.cursor.take_str(",") {
                let found = self.cursor.found();
                return self
                    .cursor
                    .error(format!("expected `,` or `)` among imports, found {found}"));
            }
        }
    }

    fn import_one(
        &mut self,
        imported: &str,
        offset: usize,
        name: Name<'a>,
        named_at: usize,
    ) -> Result<(), SyntaxError> {
        let Some(pattern) = common::common_terminal(imported) else {
            return Err(SyntaxError::new(
                offset,
                format!(
                    "`common` has no terminal `{}`: it has {}",
                    cut(imported),
                    common::names().collect::<Vec<_>>().join(", ")
                ),
            ));
        };
        if !is_terminal(name) {
            let message = format!("`{}` is no name of a terminal", cut(name));
            return Err(SyntaxError::new(named_at, message));
        }
        let rule = self.define(name, named_at)?;
        let kind = self.limits.regex(pattern, "", offset)?;
        let body = self.rule.push(offset, kind);
        self.set_body(rule, body)
    }

    /// `%grammar_options { … }`, `%llguidance { … }`.
    fn options(&mut self) -> Result<(), SyntaxError> {
        let (options, offset) = self.json()?;
        let Value::Object(members) = options else {
            return Err(SyntaxError::new(offset, "options are a JSON object"));
        };
        for (name, value) in members.iter() {
            match (name.as_str(), value) {
                ("allow_initial_skip", Value::Bool(flag)) => self.allow_initial_skip |= flag,
                ("ignore_once", Value::Bool(flag)) => self.ignore_once |= flag,
                // How tokens are chosen is not the grammar's to say; the language is the same.
                ("no_forcing", Value::Bool(_)) | ("allow_invalid_utf8", Value::Bool(false)) => {}
                _ => {
                    return Err(SyntaxError::new(
                        offset,
                        format!(
                            "option `{}` is not supported: options are `allow_initial_skip`, `ignore_once` and \
                             `no_forcing`, true or false, and `allow_invalid_utf8`, false",
                            cut(name)
                        ),
                    ));
                }
            }
        }
        Ok(())
    }
}

#[derive(Default)]
struct Attributes {
    is_lazy: bool,
    suffix: Option<NodeKind>,
    max_chars: Option<u32>,
    /// With the attribute's place.
    max_tokens: Option<(u32, usize)>,
}
