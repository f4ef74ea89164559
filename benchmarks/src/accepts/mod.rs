//! Whether a grammar accepts a text, byte by byte: for checking corpora of grammars and texts.
//!
//! The vocabulary is the 256 single bytes, so what is said holds for every tokenization, and places
//! are byte offsets.

mod request;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::{Value, json};
use structured_output::{
    CancelFlag, CompiledGrammar, CompilerOptions, GrammarCompiler, GrammarMatcher, MatcherError,
    RenewError,
};

use crate::maskbench::measure::panic_message;
use crate::vocabulary::byte_vocabulary;
use request::Request;

/// How a grammar takes a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It is a complete sentence.
    Accept,
    /// It begins a sentence, and more is needed.
    Prefix,
    /// It begins no sentence: the byte at this offset can't come there.
    Reject {
        /// Offset of the first refused byte.
        at: usize,
    },
    /// The grammar can't be compiled, the request is malformed, or a limit was met in the text.
    Refused {
        /// Why.
        error: String,
        /// Where it was met in the text: offset of the byte that failed. `None` before the text.
        at: Option<usize>,
    },
}

impl Answer {
    /// The answer as one JSON object.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Accept => json!({"result": "accept"}),
            Self::Prefix => json!({"result": "prefix"}),
            Self::Reject { at } => json!({"result": "reject", "at": at}),
            Self::Refused { error, at: None } => json!({"result": "refused", "error": error}),
            Self::Refused {
                error,
                at: Some(at),
            } => json!({"result": "refused", "error": error, "at": at}),
        }
    }

    fn refused(error: impl ToString) -> Self {
        Self::Refused {
            error: error.to_string(),
            at: None,
        }
    }
}

/// Answers requests. Equal grammars are compiled once.
pub struct Accepts {
    compiler: GrammarCompiler,
    /// Grammars and failures by kind, source and options.
    compiled: HashMap<String, Result<CompiledGrammar, String>>,
}

impl Accepts {
    /// An answerer that knows no grammar yet.
    ///
    /// # Errors
    /// As [`byte_vocabulary`].
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self {
            compiler: GrammarCompiler::new(byte_vocabulary()?, CompilerOptions::default()),
            compiled: HashMap::new(),
        })
    }

    /// Answers a request: a JSON object with `kind`, `source`, `options` and `input`. A panic of
    /// the engine is a refusal that says so.
    pub fn answer(&mut self, line: &str) -> Answer {
        let request = match Request::parse(line) {
            Ok(request) => request,
            Err(error) => return Answer::refused(format!("{error:#}")),
        };
        catch_unwind(AssertUnwindSafe(|| self.run(&request))).unwrap_or_else(|panic| {
            self.compiler.clear_cache();
            Answer::refused(format!("panic: {}", panic_message(&*panic)))
        })
    }

    fn run(&mut self, request: &Request) -> Answer {
        let key = request.grammar_key();
        if !self.compiled.contains_key(&key) {
            let compiled = request.compile(&self.compiler);
            let compiled = compiled.map_err(|error| format!("{error:#}"));
            self.compiled.insert(key.clone(), compiled);
        }
        match &self.compiled[&key] {
            Ok(grammar) => accepts(&self.compiler, grammar, request.input()),
            Err(error) => Answer::refused(error),
        }
    }
}

/// Accepts a text byte by byte. Where the grammars together fill their memory, the matcher goes on in
/// other memory: only a grammar that is too large alone is refused.
fn accepts(compiler: &GrammarCompiler, grammar: &CompiledGrammar, text: &str) -> Answer {
    let mut matcher = GrammarMatcher::new(grammar);
    for (at, byte) in text.bytes().enumerate() {
        match accepts_byte(compiler, &mut matcher, byte) {
            Ok(true) => {}
            Ok(false) => return Answer::Reject { at },
            Err(error) => {
                return Answer::Refused {
                    error: error.to_string(),
                    at: Some(at),
                };
            }
        }
    }
    match matcher.is_completed() {
        true => Answer::Accept,
        false => Answer::Prefix,
    }
}

fn accepts_byte(
    compiler: &GrammarCompiler,
    matcher: &mut GrammarMatcher,
    byte: u8,
) -> Result<bool, RenewError> {
    loop {
        match matcher.accept_token(u32::from(byte)) {
            Err(MatcherError::StatesExhausted { .. }) => {
                compiler.renew(matcher, &CancelFlag::new())?;
            }
            other => return Ok(other?),
        }
    }
}

#[cfg(test)]
mod tests {
    use structured_output::Limits;

    use super::*;

    #[test]
    fn each_kind_of_answer() {
        let mut accepts = Accepts::new().unwrap();
        let mut answer = |line: &str| accepts.answer(line).to_json().to_string();
        let number = |input: &str| {
            let source = r#"{\"const\": 12}"#;
            format!(r#"{{"kind": "json_schema", "source": "{source}", "input": "{input}"}}"#)
        };
        assert_eq!(answer(&number("12")), r#"{"result":"accept"}"#);
        assert_eq!(answer(&number("1")), r#"{"result":"prefix"}"#);
        assert_eq!(answer(&number("1x")), r#"{"result":"reject","at":1}"#);
        let regex = r#"{"kind": "regex", "source": "é+", "input": "éèx"}"#;
        assert_eq!(answer(regex), r#"{"result":"reject","at":3}"#);
        let choice = r#"{"kind": "choice", "source": "[\"a\", \"bc\"]", "input": "b"}"#;
        assert_eq!(answer(choice), r#"{"result":"prefix"}"#);
        let object = r#"{"kind": "json_object", "source": "", "input": "{\"a\": [1]}"}"#;
        assert_eq!(answer(object), r#"{"result":"accept"}"#);
        let nested = r#"{"kind": "ebnf", "source": "a ::= \"(\" a \")\" | \"\"",
            "options": {"root": "a"}, "input": "((" }"#;
        assert_eq!(answer(nested), r#"{"result":"prefix"}"#);
        let lark = r#"{"kind": "lark", "source": "start: \"x\" start | \"y\"", "input": "xy"}"#;
        assert_eq!(answer(lark), r#"{"result":"accept"}"#);
        let tag = r#"{"kind": "structural_tag", "source": {"format": {"type": "regex",
            "pattern": "[0-9]+"}}, "input": "7a"}"#;
        assert_eq!(answer(tag), r#"{"result":"reject","at":1}"#);
        let compact = r#"{"kind": "json_schema", "source": "true",
            "options": {"whitespace": "compact"}, "input": "[1, 2]"}"#;
        assert_eq!(answer(compact), r#"{"result":"reject","at":3}"#);
    }

    #[test]
    fn what_is_wrong_with_a_request_is_said() {
        let mut accepts = Accepts::new().unwrap();
        let mut error = |line: &str| match accepts.answer(line) {
            Answer::Refused { error, at: None } => error,
            other => panic!("{other:?}"),
        };
        assert!(error("{").starts_with("not a JSON object"));
        let unknown = r#"{"kind": "yaml", "source": "", "input": ""}"#;
        assert_eq!(error(unknown), "kind: \"yaml\" is not known");
        let option =
            r#"{"kind": "json_schema", "source": "true", "options": {"wide": 1}, "input": ""}"#;
        assert!(error(option).starts_with("option `wide`: there is no such option"));
        let option = r#"{"kind": "regex", "source": "a", "options": {"flags": "i"}, "input": ""}"#;
        assert_eq!(error(option), "options: flags is not an option of regex");
        let regex = r#"{"kind": "regex", "source": "(", "input": ""}"#;
        assert!(error(regex).contains("line 1"));
    }

    /// A grammar whose text is read in more and more ways that differ in what may follow.
    #[test]
    fn a_limit_that_is_met_in_the_text_is_told_with_its_place() {
        let mut accepts = Accepts::new().unwrap();
        let options = CompilerOptions {
            limits: Limits {
                max_items: 64,
                ..Limits::default()
            },
            ..CompilerOptions::default()
        };
        accepts.compiler = GrammarCompiler::new(byte_vocabulary().unwrap(), options);
        let request = |input: &str| {
            let names: Vec<String> = (0..100).map(|n| format!("r{n}")).collect();
            let rules = names
                .iter()
                .map(|name| format!(r#"\n{name} ::= \"(\" {name} \")\" | \"{name}\""#));
            let source = format!(
                r#"root ::= \"ab\" root | \"\" | \"!\" ({}){}"#,
                names.join(" | "),
                rules.collect::<String>()
            );
            format!(r#"{{"kind": "ebnf", "source": "{source}", "input": "{input}"}}"#)
        };
        assert_eq!(accepts.answer(&request("abab")), Answer::Accept);
        let long = format!("{}!((", "ab".repeat(500));
        let answer = accepts.answer(&request(&long));
        let Answer::Refused {
            at: Some(at),
            error,
        } = &answer
        else {
            panic!("{answer:?}");
        };
        assert!(error.contains("max_items"), "{error}");
        assert_eq!(answer.to_json()["at"], *at);
        // What comes before the place is read.
        assert_eq!(
            accepts.answer(&request(&long[..*at / 2 * 2])),
            Answer::Accept
        );
    }
}
