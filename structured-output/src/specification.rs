//! What is to be compiled, as data: a kind, its source, its options.

use crate::error::CompileError;
use crate::json::{named, one_of};
use crate::options::{JsonSchemaOptions, Limits, PropertyOrder, Whitespace};
use crate::regex::{self, RegexNote};

/// A grammar's specification. Pure data, compared in full: equal ones are compiled once.
///
/// [`GrammarSpecification::by_name`] makes one from names, so that others can hold a constraint in
/// types of their own and speak of it without knowing these.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GrammarSpecification {
    /// A regular expression for the whole text.
    Regex(String),
    /// One of these strings.
    Choice(Vec<String>),
    /// One JSON value, valid under a JSON Schema.
    JsonSchema(String, JsonSchemaOptions),
    /// Any JSON object. Of the options those for white space count.
    JsonObject(JsonSchemaOptions),
    /// A sentence of a grammar in EBNF or GBNF.
    Ebnf {
        /// The rules.
        grammar: String,
        /// The rule to start with.
        root: String,
    },
    /// A sentence of a grammar in Lark, from its rule `start` on.
    Lark(String),
    /// Free text with tags in it.
    StructuralTag(String),
}

/// The kinds that [`GrammarSpecification::by_name`] knows.
const KINDS: &str = "regex, choice, json_schema, json_object, grammar, ebnf, lark, structural_tag";

/// The options that it knows.
const OPTIONS: &str = "whitespace, whitespace_pattern, property_order, strict";

impl GrammarSpecification {
    /// A grammar in EBNF or Lark: where a line has `::=`, comments apart, it is EBNF with `root` to
    /// start with, else Lark.
    pub fn grammar(grammar: &str) -> Self {
        match crate::grammar_syntax::is_lark(grammar) {
            true => Self::Lark(grammar.to_owned()),
            false => Self::Ebnf {
                grammar: grammar.to_owned(),
                root: "root".to_owned(),
            },
        }
    }

    /// A specification by the names of its parts.
    ///
    /// `kind` is one of `regex`, `choice`, `json_schema`, `json_object`, `grammar` (EBNF or Lark),
    /// `ebnf`, `lark` and `structural_tag`; `sources` the strings of a choice, none for `json_object`,
    /// else one. `options` are those of JSON, by the names and values of
    /// [`JsonSchemaOptions::from_json`]: `whitespace`, `whitespace_pattern`, `property_order` and
    /// `strict`; other kinds than the two of JSON have none.
    ///
    /// # Errors
    /// [`CompileError::InvalidOption`] with the name of what there is none of, or has another form.
    pub fn by_name<'a>(
        kind: &str,
        sources: &[String],
        options: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, CompileError> {
        let mut json = JsonSchemaOptions::default();
        for (name, value) in options {
            if !matches!(kind, "json_schema" | "json_object") {
                return Err(invalid(name, format!("{kind} has no options")));
            }
            set_option(&mut json, name, value)?;
        }
        if kind == "choice" {
            return Ok(Self::Choice(sources.to_vec()));
        }
        if kind == "json_object" && sources.is_empty() {
            return Ok(Self::JsonObject(json));
        }
        let [source] = sources else {
            let message = format!("{kind} takes one source, not {}", sources.len());
            return Err(invalid("sources", message));
        };
        let source = source.clone();
        Ok(match kind {
            "regex" => Self::Regex(source),
            "json_schema" => Self::JsonSchema(source, json),
            "grammar" => Self::grammar(&source),
            "ebnf" => Self::Ebnf {
                grammar: source,
                root: "root".to_owned(),
            },
            "lark" => Self::Lark(source),
            "structural_tag" => Self::StructuralTag(source),
            _ => {
                let message = format!("there is no kind `{kind}`; there are {KINDS}");
                return Err(invalid("kind", message));
            }
        })
    }

    /// Bytes of the texts in it.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Self::Choice(choices) => choices.iter().map(|c| c.len() + size_of::<String>()).sum(),
            other => other.source_bytes(),
        }
    }

    /// Bytes that were written by whoever asks.
    fn source_bytes(&self) -> usize {
        match self {
            Self::Regex(source) | Self::Lark(source) | Self::StructuralTag(source) => source.len(),
            Self::JsonSchema(source, options) => source.len() + options.memory_bytes(),
            Self::JsonObject(options) => options.memory_bytes(),
            Self::Ebnf { grammar, root } => grammar.len() + root.len(),
            Self::Choice(choices) => choices.iter().map(String::len).sum(),
        }
    }

    /// Refuses what is too large to be looked at.
    pub(crate) fn check_size(&self, limits: &Limits) -> Result<(), CompileError> {
        let own_limits = match self {
            Self::JsonSchema(_, options) | Self::JsonObject(options) => options.limits.as_ref(),
            _ => None,
        };
        let limits = own_limits.unwrap_or(limits);
        let exceeded = |limit, max: usize| CompileError::LimitExceeded {
            limit,
            max: max as u64,
            place: None,
        };
        match self {
            Self::Choice(choices) if choices.len() > limits.max_choices => {
                Err(exceeded("max_choices", limits.max_choices))
            }
            _ if self.source_bytes() > limits.max_source_bytes => {
                Err(exceeded("max_source_bytes", limits.max_source_bytes))
            }
            _ => Ok(()),
        }
    }
}

fn set_option(
    options: &mut JsonSchemaOptions,
    name: &str,
    value: &str,
) -> Result<(), CompileError> {
    fn chosen<T: Copy>(
        name: &str,
        value: &str,
        choices: &[(&'static str, T)],
    ) -> Result<T, CompileError> {
        named(value, choices).ok_or_else(|| wrong(name, &one_of(choices), value))
    }
    match name {
        "whitespace" => options.whitespace = chosen(name, value, &Whitespace::NAMES)?,
        "whitespace_pattern" => options.whitespace_pattern = Some(value.to_owned()),
        "property_order" => options.property_order = chosen(name, value, &PropertyOrder::NAMES)?,
        "strict" => {
            let strict = value.parse();
            options.strict = strict.map_err(|_| wrong(name, "true or false", value))?;
        }
        _ => {
            let message = format!("there is no such option; there are {OPTIONS}");
            return Err(invalid(name, message));
        }
    }
    Ok(())
}

fn wrong(option: &str, right: &str, value: &str) -> CompileError {
    invalid(option, format!("expected {right}, not `{value}`"))
}

fn invalid(option: &str, message: String) -> CompileError {
    CompileError::InvalidOption {
        option: option.to_owned(),
        message,
    }
}

/// Where a pattern that is a whole constraint, which is read as Python's `re` reads it, means something else in other
/// dialects: at most 16 places, in the order in which they are met. None of a pattern that is refused.
///
/// ```
/// let notes = structured_output::regex_notes(r"[\w.[\]-]+");
/// assert_eq!(notes[0].offset, 4);
/// assert_eq!(structured_output::regex_notes("[a-z]+"), []);
/// ```
#[must_use]
pub fn regex_notes(pattern: &str) -> Vec<RegexNote> {
    regex::notes(pattern, Limits::default().regex())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_name(
        kind: &str,
        sources: &[&str],
        options: &[(&'static str, &'static str)],
    ) -> Result<GrammarSpecification, String> {
        let sources: Vec<String> = sources.iter().map(|&source| source.to_owned()).collect();
        GrammarSpecification::by_name(kind, &sources, options.iter().copied())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn each_kind_has_its_name() {
        use GrammarSpecification::{
            Choice, Ebnf, JsonObject, JsonSchema, Lark, Regex, StructuralTag,
        };
        let (text, plain) = (|| "x".to_owned(), JsonSchemaOptions::default);
        let options = JsonSchemaOptions {
            whitespace: Whitespace::Compact,
            whitespace_pattern: Some(" ".to_owned()),
            property_order: PropertyOrder::Any,
            strict: true,
            ..plain()
        };
        let named = [
            ("whitespace", "compact"),
            ("whitespace_pattern", " "),
            ("property_order", "any"),
            ("strict", "true"),
        ];
        let ebnf = |grammar: &str| Ebnf {
            grammar: grammar.to_owned(),
            root: "root".to_owned(),
        };
        let one: &[&str] = &["x"];
        for (found, expected) in [
            (by_name("regex", one, &[]), Regex(text())),
            (by_name("choice", one, &[]), Choice(vec![text()])),
            (by_name("choice", &[], &[]), Choice(Vec::new())),
            (
                by_name("json_schema", one, &[]),
                JsonSchema(text(), plain()),
            ),
            (
                by_name("json_schema", one, &named),
                JsonSchema(text(), options.clone()),
            ),
            (by_name("json_object", &[], &named), JsonObject(options)),
            (by_name("grammar", one, &[]), Lark(text())),
            (by_name("grammar", &["a ::= b"], &[]), ebnf("a ::= b")),
            (by_name("ebnf", one, &[]), ebnf("x")),
            (by_name("lark", one, &[]), Lark(text())),
            (by_name("structural_tag", one, &[]), StructuralTag(text())),
        ] {
            assert_eq!(found, Ok(expected));
        }
    }

    #[test]
    fn what_there_is_none_of_is_named() {
        let error = |kind: &str, sources: &[&str], option: (&'static str, &'static str)| {
            by_name(kind, sources, &[option]).unwrap_err()
        };
        let kind = by_name("yaml", &["x"], &[]).unwrap_err();
        assert!(kind.contains("`yaml`") && kind.contains("lark"), "{kind}");
        let sources = by_name("regex", &["x", "y"], &[]).unwrap_err();
        assert!(sources.contains("not 2"), "{sources}");
        let spaces = error("json_schema", &["{}"], ("whitespace", "wide"));
        assert!(spaces.contains("`wide`"), "{spaces}");
        let name = error("json_object", &[], ("wide", "true"));
        assert!(name.starts_with("option `wide`"), "{name}");
        let none = error("regex", &["x"], ("strict", "true"));
        assert!(none.contains("regex has no options"), "{none}");
    }
}
