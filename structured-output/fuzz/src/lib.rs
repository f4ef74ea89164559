//! Fuzz targets of the grammar engine: one per front end, and one for the matcher.
//!
//! A target takes bytes and panics where a promise is broken. `cargo fuzz` calls it from
//! `fuzz_targets/`; the `fuzz` program, which needs no other toolchain, makes its inputs from seeds;
//! and a test runs every seed and every input that was ever found to break something.

// A broken promise is a panic here.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod generate;
mod mutate;
mod places;
mod random;
mod schemas;
mod seeds;
mod vocabulary;

use structured_output::{
    CompileBudget, CompileError, CompiledGrammar, CompilerOptions, GrammarCompiler, GrammarMatcher,
    JsonSchemaOptions, Limits,
};

pub use mutate::Mutator;
pub use random::Random;
pub use seeds::{findings, seeds};

/// What is fuzzed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Target {
    /// `compile_ebnf`: EBNF and GBNF.
    Ebnf,
    /// `compile_lark`.
    Lark,
    /// `compile_structural_tag`, both forms.
    StructuralTag,
    /// `compile_regex`.
    Regex,
    /// `compile_json_schema`.
    JsonSchema,
    /// A grammar of any kind, a zero byte, and choices of tokens.
    Matcher,
}

impl Target {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Ebnf,
        Self::Lark,
        Self::StructuralTag,
        Self::Regex,
        Self::JsonSchema,
        Self::Matcher,
    ];

    /// As on the command line, and the name of its folders.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ebnf => "ebnf",
            Self::Lark => "lark",
            Self::StructuralTag => "structural_tag",
            Self::Regex => "regex",
            Self::JsonSchema => "json_schema",
            Self::Matcher => "matcher",
        }
    }

    /// Runs one input. The result says roughly what happened: inputs with another one are worth
    /// mutating further.
    ///
    /// # Panics
    /// Where the engine breaks a promise.
    pub fn run(self, data: &[u8]) -> String {
        let (source, choices) = match self {
            Self::Matcher => {
                let end = data.iter().position(|&byte| byte == 0);
                let end = end.unwrap_or(data.len());
                (&data[..end], data.get(end + 1..).unwrap_or_default())
            }
            _ => (data, &[][..]),
        };
        let Ok(source) = std::str::from_utf8(source) else {
            return "no text".to_owned();
        };
        // Front ends take a few tokens that the text itself decides.
        let mut own = Random::new(random::hash(source.as_bytes()));
        let own: Vec<u8> = (0..5).map(|_| own.below(256) as u8).collect();
        let choices = match self {
            Self::Matcher => choices,
            _ => &own,
        };
        let vocabulary = match self {
            Self::Matcher => vocabulary::of_kind(choices.first().copied().unwrap_or(0)),
            _ => vocabulary::of_kind(0),
        };
        let compiler = GrammarCompiler::new(vocabulary.info(), options());
        let outcome = self.compile(&compiler, source);
        match &outcome {
            Ok(grammar) => {
                let is_json = self.is_json(source);
                let oracle = match self {
                    Self::Regex => plain_regex(source),
                    _ => None,
                };
                // Where a grammar names tokens, a text's bytes are not all that counts.
                let names_tokens = ["oken", "<[", "!<"]
                    .iter()
                    .any(|sign| source.contains(sign));
                let bytewise = (!names_tokens).then(|| GrammarMatcher::new(grammar));
                let seen =
                    places::walk(grammar, &vocabulary, choices, bytewise, |text, is_whole| {
                        if is_json && is_whole {
                            check_json(text);
                        }
                        if let Some(regex) = &oracle
                            && let Ok(text) = std::str::from_utf8(text)
                        {
                            assert_eq!(regex.is_match(text), is_whole, "{source:?} and {text:?}");
                        }
                    });
                format!("compiled, {seen}")
            }
            Err(error) => {
                check_error(error, source);
                sketch(&error.to_string())
            }
        }
    }

    fn compile(
        self,
        compiler: &GrammarCompiler,
        source: &str,
    ) -> Result<CompiledGrammar, CompileError> {
        let schema = |source| compiler.compile_json_schema(source, &JsonSchemaOptions::default());
        match self {
            Self::Ebnf => compiler.compile_ebnf(source, "root"),
            Self::Lark => compiler.compile_lark(source),
            Self::StructuralTag => compiler.compile_structural_tag(source),
            Self::Regex => compiler.compile_regex(source),
            Self::JsonSchema => schema(source),
            Self::Matcher => match source.as_bytes().first() {
                Some(b'{') if is_structural_tag(source) => compiler.compile_structural_tag(source),
                Some(b'{') => schema(source),
                Some(b'^') => compiler.compile_regex(source),
                _ => compiler.compile_grammar(source),
            },
        }
    }

    /// Whether the grammar's texts are JSON.
    fn is_json(self, source: &str) -> bool {
        match self {
            Self::JsonSchema => true,
            Self::Matcher => source.starts_with('{') && !is_structural_tag(source),
            _ => false,
        }
    }
}

/// A structural tag rather than a schema.
fn is_structural_tag(source: &str) -> bool {
    source.contains("\"structural_tag\"") || source.contains("\"structures\"")
}

/// Small enough that an input takes milliseconds.
fn options() -> CompilerOptions {
    CompilerOptions {
        cache_bytes: 32 << 20,
        budget: CompileBudget {
            max_states: 50_000,
            max_bytes: 8 << 20,
            max_steps: 200_000,
        },
        limits: Limits {
            max_items: 200,
            max_mask_steps: 300_000,
            ..Limits::default()
        },
        // Some are compiled in memory apart.
        max_shared_steps: Some(5_000),
        ..CompilerOptions::default()
    }
}

/// What an error says is in the source.
fn check_error(error: &CompileError, source: &str) {
    if let CompileError::Regex { offset, .. }
    | CompileError::Grammar { offset, .. }
    | CompileError::JsonSyntax { offset, .. } = error
    {
        assert!(source.is_char_boundary(*offset), "{error:?} of {source:?}");
    }
    assert!(!error.to_string().is_empty());
}

/// A message without what it quotes and counts.
fn sketch(message: &str) -> String {
    let mut is_quoted = false;
    let kept = message.chars().filter(|&c| {
        is_quoted ^= c == '`';
        !is_quoted && !c.is_ascii_digit()
    });
    kept.take(120).collect()
}

fn check_json(text: &[u8]) {
    if let Err(error) = serde_json::from_slice::<serde_json::Value>(text) {
        let text = String::from_utf8_lossy(text);
        // JSON has numbers that no machine has.
        let is_far = error.to_string().starts_with("number out of range");
        assert!(is_far, "{error}: {text}");
    }
}

/// The same pattern for a peer, where both mean the same by it: it is to match the whole text.
fn plain_regex(pattern: &str) -> Option<regex::Regex> {
    // Groups with signs, classes of classes, anchors, and what isn't ASCII differ.
    if pattern.contains("(?") || !pattern.is_ascii() || pattern.contains(['&', '~', '#', '$', '^'])
    {
        return None;
    }
    let backslash = pattern.match_indices('\\').all(|(at, _)| {
        let next = pattern.as_bytes().get(at + 1);
        next.is_some_and(|next| br"nrtdswDSW.*+?()[]{}|\-".contains(next))
    });
    if !backslash || pattern.matches('[').count() != pattern.matches(']').count() {
        return None;
    }
    let whole = format!(r"\A(?:{pattern})\z");
    regex::RegexBuilder::new(&whole)
        .size_limit(1 << 20)
        .build()
        .ok()
}
