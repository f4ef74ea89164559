//! Constraints as the commands take them: from a file or a flag, into a request, over the bytes of
//! an answer.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use clap::ValueEnum;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use structured_output::{
    CompileError, CompiledGrammar, CompilerOptions, GrammarCompiler, GrammarMatcher,
    JsonSchemaOptions, PropertyOrder, TokenizerInfo,
};

/// The only token of [`byte_compiler`]'s vocabulary that isn't a byte: it ends a text.
pub(crate) const END: u32 = 256;

/// What a constraint is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// A JSON Schema
    Json,
    /// A regular expression
    Regex,
    /// One string per line, of which one is the text
    Choice,
    /// A grammar in EBNF, GBNF or Lark
    Grammar,
    /// A structural tag
    StructuralTag,
}

impl Kind {
    /// For people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Json => "JSON Schema",
            Self::Regex => "regular expression",
            Self::Choice => "choice",
            Self::Grammar => "grammar",
            Self::StructuralTag => "structural tag",
        }
    }

    /// What a file is likely to hold, by its name or by its text.
    pub(crate) fn guess(path: &Path, text: &str) -> Self {
        let extension = path.extension().and_then(|extension| extension.to_str());
        match extension {
            Some("lark" | "ebnf" | "gbnf") => return Self::Grammar,
            Some("regex" | "re") => return Self::Regex,
            _ => {}
        }
        if let Ok(value) = serde_json::from_str::<Value>(text) {
            let kind = value.get("type").and_then(Value::as_str);
            return match kind {
                Some("structural_tag") => Self::StructuralTag,
                _ => Self::Json,
            };
        }
        // JSON with a slip of the pen in it.
        if extension == Some("json") || text.trim_start().starts_with('{') {
            return Self::Json;
        }
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let has_rule = |line: &str| {
            let line = line.strip_prefix(['?', '!']).unwrap_or(line);
            let rest = line.trim_start_matches(is_name);
            let name = line.strip_suffix(rest).unwrap_or_default();
            let rest = rest.trim_start();
            !name.is_empty()
                && (rest.starts_with("::=") || (name == "start" && rest.starts_with(':')))
        };
        match text.lines().any(has_rule) {
            true => Self::Grammar,
            false => Self::Regex,
        }
    }
}

/// A constraint on the whole answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Constraint {
    /// JSON, valid under this schema.
    Json(Value),
    /// A match of a regular expression.
    Regex(String),
    /// One of these.
    Choice(Vec<String>),
    /// A sentence of a grammar.
    Grammar(String),
    /// Text with tagged parts.
    StructuralTag(Value),
}

impl Constraint {
    /// What the text of a file says.
    ///
    /// # Errors
    /// It has to be JSON and isn't.
    pub(crate) fn new(kind: Kind, text: String) -> anyhow::Result<Self> {
        let json = |text: &str| serde_json::from_str(text).context("it is not JSON");
        Ok(match kind {
            Kind::Json => Self::Json(json(&text)?),
            Kind::StructuralTag => Self::StructuralTag(json(&text)?),
            // A line end at the end is the editor's.
            Kind::Regex => Self::Regex(text.strip_suffix('\n').unwrap_or(&text).to_owned()),
            Kind::Choice => Self::Choice(text.lines().map(str::to_owned).collect()),
            Kind::Grammar => Self::Grammar(text),
        })
    }

    /// The constraint that a request's body asks for, in the spellings of OpenAI and vLLM.
    pub(crate) fn of_request(body: &Map<String, Value>) -> Option<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let strings = |value: &Value| value.as_array()?.iter().map(text).collect();
        let format = body.get("response_format");
        match format.and_then(|f| f.get("type")?.as_str()) {
            Some("json_schema") => {
                let schema = format?.get("json_schema")?.get("schema")?;
                return Some(Self::Json(schema.clone()));
            }
            Some("json_object") => return Some(Self::Json(json!({"type": "object"}))),
            Some("structural_tag") => return Some(Self::StructuralTag(format?.clone())),
            _ => {}
        }
        let outputs = body.get("structured_outputs");
        let find = |name: &str| {
            let nested = outputs.and_then(|outputs| outputs.get(name));
            nested.or_else(|| body.get(&format!("guided_{name}")))
        };
        if let Some(schema) = find("json") {
            return Some(Self::Json(match schema.as_str() {
                Some(text) => serde_json::from_str(text).ok()?,
                None => schema.clone(),
            }));
        }
        None.or_else(|| find("regex").and_then(text).map(Self::Regex))
            .or_else(|| find("choice").and_then(strings).map(Self::Choice))
            .or_else(|| find("grammar").and_then(text).map(Self::Grammar))
    }

    /// Removes what [`Self::put_into`] put into a request's body.
    pub(crate) fn take_out_of(body: &mut Map<String, Value>) {
        for field in ["response_format", "structured_outputs"] {
            body.remove(field);
        }
    }

    /// Puts this into a request's body: a schema as every server reads it, the others as vLLM does.
    pub(crate) fn put_into(&self, body: &mut Map<String, Value>) {
        let (field, value) = match self {
            Self::Json(schema) => (
                "response_format",
                json!({"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}),
            ),
            Self::Regex(pattern) => ("structured_outputs", json!({"regex": pattern})),
            Self::Choice(choices) => ("structured_outputs", json!({"choice": choices})),
            Self::Grammar(grammar) => ("structured_outputs", json!({"grammar": grammar})),
            Self::StructuralTag(tag) => {
                let tag = tag.as_str().map_or_else(|| tag.to_string(), str::to_owned);
                ("structured_outputs", json!({"structural_tag": tag}))
            }
        };
        body.insert(field.to_owned(), value);
    }

    /// Compiles it over single bytes. Properties may come in any order.
    pub(crate) fn compile(
        &self,
        compiler: &GrammarCompiler,
    ) -> Result<CompiledGrammar, CompileError> {
        match self {
            Self::Json(schema) => {
                let options = JsonSchemaOptions {
                    property_order: PropertyOrder::Any,
                    ..JsonSchemaOptions::default()
                };
                compiler.compile_json_schema(&schema.to_string(), &options)
            }
            Self::Regex(pattern) => compiler.compile_regex(pattern),
            Self::Choice(choices) => compiler.compile_choice(choices),
            Self::Grammar(grammar) => compiler.compile_grammar(grammar),
            Self::StructuralTag(tag) => compiler.compile_structural_tag(&tag.to_string()),
        }
    }

    /// Whether `text` is an answer under this constraint, whose grammar over bytes is `grammar`. JSON
    /// is judged as a value: white space, and how a number or a string is spelled, are the server's.
    ///
    /// # Errors
    /// Why it isn't one.
    pub(crate) fn verify(&self, grammar: &CompiledGrammar, text: &str) -> anyhow::Result<()> {
        let text = match self {
            Self::Json(_) => {
                let _: IgnoredAny = serde_json::from_str(text).context("it is not JSON")?;
                // A number may be beyond all that a value of ours holds, such as 1e999.
                let value = serde_json::from_str::<Value>(text);
                value.map_or_else(|_| without_white_space(text), |value| value.to_string())
            }
            _ => text.to_owned(),
        };
        let mut matcher = GrammarMatcher::new(grammar);
        for (at, byte) in text.bytes().enumerate() {
            anyhow::ensure!(
                matcher.accept_token(u32::from(byte))?,
                "byte {at} ({:?}) can't stand there",
                char::from(byte)
            );
        }
        anyhow::ensure!(matcher.is_completed(), "it breaks off");
        Ok(())
    }
}

/// JSON without the white space between its parts.
fn without_white_space(json: &str) -> String {
    let mut in_string = false;
    let mut is_escaped = false;
    let is_kept = |c: &char| {
        let is_quote = *c == '"' && !is_escaped;
        is_escaped = in_string && *c == '\\' && !is_escaped;
        in_string ^= is_quote;
        in_string || !c.is_ascii_whitespace()
    };
    json.chars().filter(is_kept).collect()
}

/// A compiler over single bytes: what is enforced doesn't depend on a model's vocabulary.
pub(crate) fn byte_compiler() -> anyhow::Result<GrammarCompiler> {
    let mut vocab: Vec<Vec<u8>> = (0..=u8::MAX).map(|byte| vec![byte]).collect();
    vocab.push(b"</s>".to_vec());
    let info = TokenizerInfo::new(&vocab, vocab.len(), &[END], &[END])?;
    Ok(GrammarCompiler::new(
        Arc::new(info),
        CompilerOptions::default(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_recognised() {
        for (name, text, kind) in [
            ("a.json", "{\"type\": \"object\"}", Kind::Json),
            (
                "a",
                "{\"type\": \"structural_tag\", \"format\": {}}",
                Kind::StructuralTag,
            ),
            ("a", "true", Kind::Json),
            ("a", "{\"type\": }", Kind::Json),
            ("a", "{\"type\":", Kind::Json),
            ("a.json", "[\"type\"", Kind::Json),
            ("a.lark", "start: x", Kind::Grammar),
            ("a", "// words\nstart: WORD\nWORD: /a/\n", Kind::Grammar),
            ("a", "?start: sum\n", Kind::Grammar),
            ("a", "root ::= \"a\"\n", Kind::Grammar),
            ("a", "[a-c]{3}\n", Kind::Regex),
            ("a", "(start|end): [0-9]+", Kind::Regex),
            ("a.regex", "start: a", Kind::Regex),
        ] {
            assert_eq!(Kind::guess(Path::new(name), text), kind, "{name}: {text}");
        }
    }

    #[test]
    fn a_request_says_what_it_was_given() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
        for constraint in [
            Constraint::Json(schema.clone()),
            Constraint::Regex("a+".to_owned()),
            Constraint::Choice(vec!["a".to_owned(), "b".to_owned()]),
            Constraint::Grammar("root ::= \"a\"".to_owned()),
        ] {
            let mut body = Map::new();
            constraint.put_into(&mut body);
            assert_eq!(Constraint::of_request(&body), Some(constraint));
        }
        for body in [
            json!({"guided_json": schema}),
            json!({"guided_json": schema.to_string()}),
            json!({"structured_outputs": {"json": schema}}),
        ] {
            let found = Constraint::of_request(body.as_object().unwrap());
            assert_eq!(found, Some(Constraint::Json(schema.clone())), "{body}");
        }
        let body = json!({"prompt": "a", "response_format": {"type": "text"}});
        assert_eq!(Constraint::of_request(body.as_object().unwrap()), None);
    }

    #[test]
    fn answers_are_judged() {
        let compiler = byte_compiler().unwrap();
        let schema = json!({
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
            "required": ["a", "b"],
        });
        let judge = |constraint: &Constraint, text: &str| {
            let grammar = constraint.compile(&compiler).unwrap();
            constraint.verify(&grammar, text).map_err(|e| e.to_string())
        };
        let constraint = Constraint::Json(schema);
        assert_eq!(
            judge(&constraint, "{\n\t\"b\" :\"\\u0041\",   \"a\": 1}\n"),
            Ok(())
        );
        assert_eq!(
            judge(&constraint, "{\"a\": 1"),
            Err("it is not JSON".to_owned())
        );
        assert!(judge(&constraint, "{\"a\": \"1\", \"b\": \"\"}").is_err());
        let text = "{\"a\": 1e999, \"b\": \" \\\" \"} ";
        assert_eq!(without_white_space(text), "{\"a\":1e999,\"b\":\" \\\" \"}");
        let numbers = Constraint::Json(json!({"type": "array", "items": {"type": "number"}}));
        assert_eq!(judge(&numbers, "[\n 2e3222, 1]"), Ok(()));
        assert!(judge(&numbers, "[\n 2e3222, true]").is_err());
        let constraint = Constraint::Regex("[ab]{2}".to_owned());
        assert_eq!(judge(&constraint, "ab"), Ok(()));
        assert_eq!(judge(&constraint, "a"), Err("it breaks off".to_owned()));
        assert_eq!(
            judge(&constraint, "ac"),
            Err("byte 1 ('c') can't stand there".to_owned())
        );
    }
}
