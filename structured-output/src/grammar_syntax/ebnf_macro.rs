//! XGrammar's macros in EBNF: `Regex`, `Substring`, `Token`, `ExcludeToken`, `TagDispatch`,
//! `TokenTagDispatch`.

use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

use super::ast::{NodeId, NodeKind, SyntaxError, TokenSet};
use super::cursor::cut;
use super::dispatch::{Dispatch, Tag, TokenDispatch, TokenTag};
use super::ebnf::Parser;
use super::substring::Substrings;
use crate::lexical::UNBOUNDED;

const MACROS: [&str; 6] = [
    "Regex",
    "Substring",
    "Token",
    "ExcludeToken",
    "TagDispatch",
    "TokenTagDispatch",
];

/// An argument. Tuples hold no tuples.
enum Argument<'a> {
    Text(String),
    Number(u32),
    Flag(bool),
    Rule(&'a str, usize),
    Tuple(Vec<Argument<'a>>),
}

/// An argument with its name, if any, and its place.
struct Given<'a> {
    name: Option<&'a str>,
    offset: usize,
    value: Argument<'a>,
}

impl<'a> Parser<'a, '_> {
    /// Whether a name that was just read is that of a macro that is called.
    pub(super) fn is_macro(&self, name: &str) -> bool {
        MACROS.contains(&name)
            && self.cursor.rest().trim_start().starts_with('(')
            && !self.defines(name)
    }

    /// Whether a rule has the name of a macro.
    fn defines(&self, name: &str) -> bool {
        let mut lines = self.cursor.source().lines();
        lines.any(|line| {
            let rest = line.trim_start().strip_prefix(name).map(str::trim_start);
            rest.is_some_and(|rest| rest.starts_with("::=") || rest.starts_with('['))
        })
    }

    /// A macro's meaning, from the parenthesis on.
    pub(super) fn call(&mut self, name: &str, offset: usize) -> Result<NodeKind, SyntaxError> {
        let arguments = self.arguments()?;
        match name {
            "Regex" => self.regex_macro(arguments, offset),
            "Substring" => {
                let mut chunks = Vec::new();
                for given in arguments {
                    match given {
                        Given {
                            name: None,
                            value: Argument::Text(text),
                            ..
                        } => chunks.push(text.into()),
                        other => return unexpected(&other, "`Substring` takes strings"),
                    }
                }
                self.grammar.charge(chunks.len(), offset, self.limits)?;
                Ok(NodeKind::Substring(Substrings::new(&chunks)))
            }
            "Token" | "ExcludeToken" => {
                let mut ranges = Vec::new();
                for given in arguments {
                    match given {
                        Given {
                            name: None,
                            value: Argument::Number(id),
                            ..
                        } => ranges.push((id, id)),
                        other => return unexpected(&other, "tokens are given by id"),
                    }
                }
                if ranges.is_empty() && name == "Token" {
                    let message = "`Token` needs at least one token id";
                    return Err(SyntaxError::new(offset, message));
                }
                Ok(NodeKind::Tokens(TokenSet {
                    ranges,
                    negated: name == "ExcludeToken",
                    ..TokenSet::default()
                }))
            }
            _ => self.dispatch_macro(arguments, offset, name == "TokenTagDispatch"),
        }
    }

    fn regex_macro(
        &mut self,
        arguments: Vec<Given<'a>>,
        offset: usize,
    ) -> Result<NodeKind, SyntaxError> {
        let mut pattern = None;
        // Without the argument, `.` is any character.
        let mut flags = "s".to_owned();
        let mut is_of_json = false;
        for given in arguments {
            match (given.name, &given.value) {
                (None, Argument::Text(text)) if pattern.is_none() => {
                    pattern = Some((text.clone(), given.offset));
                }
                (Some("flags"), Argument::Text(text)) => {
                    if let Some(other) = text.chars().find(|c| !"isu".contains(*c)) {
                        return Err(SyntaxError::new(
                            given.offset,
                            format!("flag `{other}` is not known: flags are i, s and u"),
                        ));
                    }
                    flags.clone_from(text);
                }
                (Some("json_string"), &Argument::Flag(flag)) => is_of_json = flag,
                _ => {
                    return unexpected(
                        &given,
                        "`Regex` takes a pattern, `flags` and `json_string`",
                    );
                }
            }
        }
        let Some((pattern, at)) = pattern else {
            return Err(SyntaxError::new(offset, "`Regex` needs a pattern"));
        };
        // The source may spell the pattern with escapes: the place is that of the string.
        let regex = self.limits.regex(&pattern, &flags, 0);
        let regex = regex.map_err(|error| match error {
            SyntaxError::At { message, .. } => SyntaxError::new(at, message),
            limit => limit,
        })?;
        if !is_of_json {
            return Ok(regex);
        }
        // Its texts that stand between the quotes of a string in JSON as they are.
        let plain = [(' ', '!'), ('#', '['), (']', char::MAX)];
        let plain = plain.map(|(low, high)| ClassUnicodeRange::new(low, high));
        let plain = NodeKind::Class(ClassUnicode::new(plain));
        let inner = self.rule.push(offset, plain);
        let plain = NodeKind::Repeat {
            inner,
            min: 0,
            max: UNBOUNDED,
        };
        let operands = vec![self.rule.push(offset, regex), self.rule.push(offset, plain)];
        Ok(NodeKind::And(operands))
    }

    fn dispatch_macro(
        &mut self,
        arguments: Vec<Given<'a>>,
        offset: usize,
        by_token: bool,
    ) -> Result<NodeKind, SyntaxError> {
        let mut texts = Dispatch::new(offset);
        let mut tokens = TokenDispatch::new(offset);
        for given in arguments {
            let Given {
                name,
                offset,
                value,
            } = given;
            match (name, value) {
                (None, Argument::Tuple(pair)) => match (&pair[..], by_token) {
                    ([Argument::Text(tag), Argument::Rule(rule, at)], false) => {
                        let content = self.reference(rule, *at)?;
                        texts.tags.push(Tag {
                            trigger: tag.as_str().into(),
                            rest: "".into(),
                            content,
                        });
                    }
                    ([Argument::Number(id), Argument::Rule(rule, at)], true) => {
                        let content = self.reference(rule, *at)?;
                        tokens.tags.push(TokenTag {
                            trigger: TokenSet::of_id(*id),
                            rule: None,
                            content,
                        });
                    }
                    _ => {
                        return Err(SyntaxError::new(
                            offset,
                            "expected a pair of a trigger and a rule",
                        ));
                    }
                },
                (Some("loop_after_dispatch"), Argument::Flag(flag)) => {
                    texts.is_loop = flag;
                    tokens.is_loop = flag;
                }
                (Some("excludes"), Argument::Tuple(list)) => {
                    for item in list {
                        match item {
                            Argument::Text(text) if !by_token => texts.excludes.push(text.into()),
                            Argument::Number(id) if by_token => {
                                tokens.excludes.ranges.push((id, id));
                            }
                            _ => {
                                return Err(SyntaxError::new(
                                    offset,
                                    "`excludes` holds what the triggers are: strings or token ids",
                                ));
                            }
                        }
                    }
                }
                (name, value) => {
                    let given = Given {
                        name,
                        offset,
                        value,
                    };
                    return unexpected(
                        &given,
                        "a dispatch takes pairs, `loop_after_dispatch` and `excludes`",
                    );
                }
            }
        }
        if by_token {
            Ok(tokens.build(&mut self.rule))
        } else {
            texts.build(&mut self.rule, self.grammar, self.limits)
        }
    }

    fn reference(&mut self, name: &'a str, offset: usize) -> Result<NodeId, SyntaxError> {
        let rule = self.rule_named(name, offset)?;
        Ok(self.rule.push(offset, NodeKind::Rule(rule)))
    }

    /// Arguments in parentheses.
    fn arguments(&mut self) -> Result<Vec<Given<'a>>, SyntaxError> {
        self.skip_blanks();
        self.cursor.skip(1);
        let mut arguments = Vec::new();
        loop {
            self.skip_blanks();
            if self.cursor.peek() == Some(')') && arguments.is_empty() {
                self.cursor.skip(1);
                return Ok(arguments);
            }
            let offset = self.cursor.offset();
            let mut name = None;
            let mut value = self.argument(true)?;
            self.skip_blanks();
            if let Argument::Rule(text, _) = value
                && self.cursor.take_str("=")
            {
                name = Some(text);
                self.skip_blanks();
                value = self.argument(true)?;
                self.skip_blanks();
            }
            arguments.push(Given {
                name,
                offset,
                value,
            });
            if self.cursor.take_str(")") {
                return Ok(arguments);
            }
            self.comma()?;
        }
    }

    fn comma(&mut self) -> Result<(), SyntaxError> {
        if self.cursor.take_str(",") {
            return Ok(());
        }
        let found = self.cursor.found();
        self.cursor.error(format!(
            "expected `,` or `)` among arguments, found {found}"
        ))
    }

    fn argument(&mut self, may_be_tuple: bool) -> Result<Argument<'a>, SyntaxError> {
        let offset = self.cursor.offset();
        match self.cursor.peek() {
            Some('"') => Ok(Argument::Text(self.string()?)),
            Some('0'..='9') => {
                let id = self.cursor.take_number(u32::MAX - 1, "token id")?;
                Ok(Argument::Number(id))
            }
            Some('(') if may_be_tuple => {
                self.cursor.skip(1);
                let mut items = Vec::new();
                loop {
                    self.skip_blanks();
                    if self.cursor.take_str(")") {
                        return Ok(Argument::Tuple(items));
                    }
                    items.push(self.argument(false)?);
                    self.skip_blanks();
                    if self.cursor.peek() != Some(')') {
                        self.comma()?;
                    }
                }
            }
            _ => {
                let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
                match self.cursor.take_while(is_name) {
                    "true" => Ok(Argument::Flag(true)),
                    "false" => Ok(Argument::Flag(false)),
                    "" => {
                        let found = self.cursor.found();
                        self.cursor.error(format!(
                            "expected a string, a number, `true`, `false` or a rule, found {found}"
                        ))
                    }
                    name => Ok(Argument::Rule(name, offset)),
                }
            }
        }
    }
}

fn unexpected<T>(given: &Given<'_>, takes: &str) -> Result<T, SyntaxError> {
    let what = match (given.name, &given.value) {
        (Some(name), _) => format!("argument `{}`", cut(name)),
        (None, Argument::Text(text)) => format!("`\"{}\"`", cut(text)),
        (None, Argument::Number(number)) => format!("`{number}`"),
        (None, Argument::Flag(flag)) => format!("`{flag}`"),
        (None, Argument::Rule(name, _)) => format!("`{}`", cut(name)),
        (None, Argument::Tuple(_)) => "a tuple".to_owned(),
    };
    Err(SyntaxError::new(
        given.offset,
        format!("{what} is not expected here: {takes}"),
    ))
}
