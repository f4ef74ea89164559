//! A template's source, before minijinja parses it.

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;

use super::error::ChatTemplateError;

/// Most bytes of a template: ten times the longest that is published with a model.
pub(super) const MAX_SOURCE_BYTES: usize = 256 << 10;
/// Most operators, brackets, branches and blocks within each other. minijinja's parser, its compiler and
/// the destructor of its tree call themselves for each, with about 1 KiB of stack.
const MAX_NESTING: usize = 400;
/// Most bytes of all constants together that minijinja computes while it compiles (`'-' * 40`), and keeps.
const MAX_CONSTANT_BYTES: u64 = 1 << 20;
/// Most `{% block %}`s. minijinja compiles each on its own, into 27 KiB at least; no template that is published with a
/// model has one.
const MAX_BLOCKS: usize = 64;
/// Bytes of a list's item.
const ITEM_BYTES: u64 = 24;

/// The source as minijinja is to compile it.
///
/// # Errors
/// [`ChatTemplateError::TooLong`]; [`ChatTemplateError::Syntax`] where it is nested too deep, or
/// computes too large a constant. Other errors of syntax are left to the parser.
pub(super) fn prepare(source: &str, syntax: &SyntaxConfig) -> Result<String, ChatTemplateError> {
    if source.len() > MAX_SOURCE_BYTES {
        return Err(ChatTemplateError::TooLong {
            bytes: source.len(),
            max_bytes: MAX_SOURCE_BYTES,
        });
    }
    let source = replace_generation_tags(source);
    let mut scan = Scan::default();
    for token in tokenize(&source, false, syntax.clone()) {
        let Ok((token, span)) = token else {
            break;
        };
        scan.take(&token)
            .map_err(|message| ChatTemplateError::Syntax {
                line: span.start_line.into(),
                message,
            })?;
    }
    Ok(source)
}

/// Follows a template token by token, with bounds on what the parser makes of it.
#[derive(Default)]
struct Scan {
    /// One number for each open block: its branches.
    blocks: Vec<usize>,
    /// The tag that is open, and the brackets in it.
    brackets: Vec<Bracket>,
    /// Sum of all `blocks` and of the operators of all `brackets`: no more calls are within each other.
    nesting: usize,
    constant: Constant,
    /// Bytes of the constants of tags before.
    constant_bytes: u64,
    num_blocks: usize,
    tag: Tag,
}

/// Items of one bracket, or of a tag outside of its brackets.
#[derive(Default)]
struct Bracket {
    /// Operators of the item that is open, with all in its brackets: a bound on its tree's depth.
    operators: usize,
    /// The most of an item before.
    deepest: usize,
}

/// What a tag does to the blocks.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Tag {
    /// Its first token comes next.
    #[default]
    New,
    Opens,
    /// `set`, which opens a block unless it assigns.
    Set,
    Other,
}

/// A bound on the constants that the operators of one tag can make.
struct Constant {
    /// Bytes of the literals.
    literals: u64,
    /// Product of the integers, each plus one: no sum or product of them is larger.
    product: u64,
    multiplies: bool,
    has_items: bool,
    tokens: u64,
    /// True where an argument begins: `*` there passes a list on, and multiplies nothing.
    begins_item: bool,
}

impl Default for Constant {
    fn default() -> Self {
        Self {
            literals: 0,
            product: 1,
            multiplies: false,
            has_items: false,
            tokens: 0,
            begins_item: false,
        }
    }
}

impl Constant {
    fn take(&mut self, token: &Token<'_>) {
        self.tokens += 1;
        let begins_item = std::mem::replace(
            &mut self.begins_item,
            matches!(token, Token::ParenOpen | Token::Comma),
        );
        match token {
            Token::Mul | Token::Pow if begins_item => {}
            Token::Str(text) => self.literals += text.len() as u64,
            Token::String(text) => self.literals += text.len() as u64,
            Token::Int(value) => {
                self.product = self.product.saturating_mul(value.saturating_add(1));
            }
            Token::Int128(_) => self.product = u64::MAX,
            Token::Mul => self.multiplies = true,
            Token::Pow => {
                self.multiplies = true;
                self.product = u64::MAX;
            }
            Token::Comma => self.has_items = true,
            _ => {}
        }
    }

    fn bytes(&self) -> u64 {
        let items = if self.has_items { self.tokens } else { 0 };
        match self.multiplies {
            true => (self.literals + items * ITEM_BYTES).saturating_mul(self.product),
            false => 0,
        }
    }
}

impl Scan {
    fn take(&mut self, token: &Token<'_>) -> Result<(), String> {
        match token {
            Token::TemplateData(_) => {}
            Token::VariableStart | Token::BlockStart => {
                self.brackets.push(Bracket::default());
                self.constant = Constant::default();
                self.tag = match token {
                    Token::BlockStart => Tag::New,
                    _ => Tag::Other,
                };
            }
            Token::VariableEnd | Token::BlockEnd => {
                for bracket in self.brackets.drain(..) {
                    self.nesting -= bracket.operators;
                }
                if matches!(self.tag, Tag::Opens | Tag::Set) {
                    self.open_block();
                }
                self.constant_bytes = self.constant_bytes.saturating_add(self.constant.bytes());
                if self.constant_bytes > MAX_CONSTANT_BYTES {
                    return Err(format!(
                        "constants are too large: all together may have {MAX_CONSTANT_BYTES} bytes"
                    ));
                }
            }
            token => self.take_in_tag(token),
        }
        if self.num_blocks > MAX_BLOCKS {
            return Err(format!("more than {MAX_BLOCKS} blocks"));
        }
        if self.nesting > MAX_NESTING {
            return Err(format!("nested more than {MAX_NESTING} levels deep"));
        }
        Ok(())
    }

    fn take_in_tag(&mut self, token: &Token<'_>) {
        self.constant.take(token);
        if self.tag == Tag::New {
            self.tag = self.take_keyword(token);
            return;
        }
        match token {
            Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => {
                self.operator();
                self.brackets.push(Bracket::default());
            }
            Token::ParenClose | Token::BracketClose | Token::BraceClose => {
                // One too many is for the parser to refuse.
                if self.brackets.len() > 1
                    && let Some(closed) = self.brackets.pop()
                    && let Some(outer) = self.brackets.last_mut()
                {
                    let inside = closed.deepest.max(closed.operators);
                    outer.operators += inside;
                    self.nesting = self.nesting - closed.operators + inside;
                }
            }
            Token::Comma | Token::Colon => {
                if let Some(bracket) = self.brackets.last_mut() {
                    bracket.deepest = bracket.deepest.max(bracket.operators);
                    self.nesting -= std::mem::take(&mut bracket.operators);
                }
            }
            Token::Assign => {
                if self.brackets.len() == 1 && self.tag == Tag::Set {
                    self.tag = Tag::Other;
                }
            }
            Token::Ident(word) => {
                if ["not", "and", "or", "if", "else", "in", "is"].contains(word) {
                    self.operator();
                }
            }
            Token::Str(_)
            | Token::String(_)
            | Token::Int(_)
            | Token::Int128(_)
            | Token::Float(_) => {}
            _ => self.operator(),
        }
    }

    /// The first token of a tag.
    fn take_keyword(&mut self, token: &Token<'_>) -> Tag {
        if matches!(token, Token::Ident("block")) {
            self.num_blocks += 1;
        }
        match token {
            Token::Ident(
                "for" | "if" | "with" | "autoescape" | "filter" | "block" | "macro" | "call",
            ) => Tag::Opens,
            Token::Ident("set") => Tag::Set,
            Token::Ident("elif") => {
                if let Some(branches) = self.blocks.last_mut() {
                    *branches += 1;
                    self.nesting += 1;
                }
                Tag::Other
            }
            Token::Ident(word) if word.starts_with("end") => {
                self.nesting -= self.blocks.pop().unwrap_or(0);
                Tag::Other
            }
            _ => Tag::Other,
        }
    }

    fn open_block(&mut self) {
        self.blocks.push(1);
        self.nesting += 1;
    }

    fn operator(&mut self) {
        if let Some(bracket) = self.brackets.last_mut() {
            bracket.operators += 1;
            self.nesting += 1;
        }
    }
}

/// `{% generation %}` marks what an assistant wrote, for training; it changes no text. minijinja
/// doesn't know the tag, so it becomes an `if true`, which keeps lines and whitespace control.
fn replace_generation_tags(source: &str) -> String {
    let mut replaced = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start);
        let Some(end) = tag.find("%}") else {
            break;
        };
        let (tag, after) = tag.split_at(end);
        replaced.push_str(before);
        let name = tag
            .trim_start_matches(['{', '%', '-', '+'])
            .trim_end_matches(['-', '+'])
            .trim();
        match name {
            "generation" => replaced.push_str(&tag.replace("generation", "if true")),
            "endgeneration" => replaced.push_str(&tag.replace("endgeneration", "endif")),
            _ => replaced.push_str(tag),
        }
        rest = after;
    }
    replaced.push_str(rest);
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(source: &str) -> Option<String> {
        let error = prepare(source, &SyntaxConfig::default()).err()?;
        Some(error.to_string())
    }

    const TOO_DEEP: &str = "chat template, line 1: nested more than 400 levels deep";

    #[test]
    fn nesting_is_counted_within_one_item() {
        let n = MAX_NESTING;
        for (one, what) in [
            ("-", "minus"),
            ("not ", "not"),
            ("(", "parentheses"),
            ("[", "brackets"),
            ("{'a':", "braces"),
            ("a|", "filters"),
            ("a.", "dots"),
            ("a[", "subscripts"),
            ("a~", "concatenations"),
            ("a+", "sums"),
            ("a<", "comparisons"),
            ("a if b else ", "ternaries"),
        ] {
            let of = |levels: usize| format!("{{{{ {}a", one.repeat(levels));
            let per_level = if one == "a if b else " { 2 } else { 1 };
            assert_eq!(refusal(&of(n / per_level)), None, "{what}");
            assert_eq!(refusal(&of(n + 1)).as_deref(), Some(TOO_DEEP), "{what}");
        }
        // Items beside each other are not within each other.
        let list = format!("{{{{ [{}] }}}}", "a.b, ".repeat(1000));
        assert_eq!(refusal(&list), None);
        let tags = "{{ a.b }}{% if a.b %}{% else %}{% endif %}{% set x = a.b %}".repeat(1000);
        assert_eq!(refusal(&tags), None);
        // What a bracket has in it counts after it is closed too.
        let sum = "+(a+a)".repeat(150);
        assert_eq!(
            refusal(&format!("{{{{ {sum} }}}}")).as_deref(),
            Some(TOO_DEEP)
        );
    }

    #[test]
    fn blocks_and_branches_count() {
        let n = MAX_NESTING;
        for (tag, what) in [
            ("{% if a %}", "if"),
            ("{% for a in b %}", "for"),
            ("{% set a %}", "set"),
            ("{% macro f() %}", "macro"),
        ] {
            assert_eq!(refusal(&tag.repeat(n)), None, "{what}");
            assert_eq!(
                refusal(&tag.repeat(n + 1)).as_deref(),
                Some(TOO_DEEP),
                "{what}"
            );
        }
        let branches = |count: usize| "{% if a %}".to_owned() + &"{% elif a %}".repeat(count);
        assert_eq!(refusal(&branches(n - 1)), None);
        assert_eq!(refusal(&branches(n)).as_deref(), Some(TOO_DEEP));
    }

    #[test]
    fn constants_are_bounded_before_they_are_computed() {
        let large =
            "chat template, line 1: constants are too large: all together may have 1048576 bytes";
        for source in [
            "{{ 'x' * 1000000000 }}",
            "{{ 'x' * 1000 * 1000 * 1000 }}",
            "{{ 'x' * (1000 + 9000000) }}",
            "{{ 'x' * 2 ** 30 }}",
            "{% set x = (1, 2) * 10000000 %}",
        ] {
            assert_eq!(refusal(source).as_deref(), Some(large), "{source}");
        }
        for source in [
            "{{ '-' * 80 }}",
            "{{ 'x' * 1000000 }}",
            "{{ 7 * 1000000000 }}",
            "{{ [1000, 2000, 3000, 4000] }}",
            "{{ f(*[1000000, 2], **{'a': 3000000}) }}",
        ] {
            assert_eq!(refusal(source), None, "{source}");
        }
    }

    #[test]
    fn constants_and_blocks_of_all_tags_are_bounded_together() {
        let constants = |count: usize| "{% set a = 'x' * 1000 %}".repeat(count);
        assert_eq!(refusal(&constants(1000)), None);
        let error = refusal(&constants(1100)).unwrap();
        assert!(error.contains("constants are too large"), "{error}");
        let blocks = |count: usize| -> String {
            let block = |i| format!("{{% block b{i} %}}{{% endblock %}}");
            (0..count).map(block).collect()
        };
        assert_eq!(refusal(&blocks(MAX_BLOCKS)), None);
        assert_eq!(
            refusal(&blocks(MAX_BLOCKS + 1)).as_deref(),
            Some("chat template, line 1: more than 64 blocks")
        );
    }

    #[test]
    fn a_source_that_is_too_long_is_named() {
        let longest = "x".repeat(MAX_SOURCE_BYTES);
        assert_eq!(refusal(&longest), None);
        assert_eq!(
            refusal(&(longest + "x")).as_deref(),
            Some("chat template: its source has 262145 bytes; it may have 262144")
        );
    }

    #[test]
    fn generation_tags_become_ifs() {
        let source = "a{%- generation -%}\n{% if x %}b{% endif %}{%+ endgeneration%}c{% d";
        assert_eq!(
            replace_generation_tags(source),
            "a{%- if true -%}\n{% if x %}b{% endif %}{%+ endif%}c{% d"
        );
        assert_eq!(replace_generation_tags("no {{ tags }}"), "no {{ tags }}");
    }
}
