//! The grammar engine: a front end for each kind of constraint, and the matcher.

mod generate;
mod places;
mod schemas;
mod vocabulary;

use structured_output::{
    CompileBudget, CompileError, CompiledGrammar, CompilerOptions, GrammarCompiler, GrammarMatcher,
    JsonSchemaOptions, Limits,
};

use crate::random::hash;
use crate::{Random, Target, sketch};

pub(crate) use generate::{many, text};
pub(crate) use schemas::schema;

/// An input that is mostly well formed.
pub(crate) fn generate(target: Target, random: &mut Random) -> Vec<u8> {
    let mut input = generate::generate(target, random).into_bytes();
    if target == Target::Matcher {
        input.push(0);
        input.extend((0..random.below(20)).map(|_| random.below(256) as u8));
    }
    input
}

/// Compiles one constraint and walks through its texts.
pub(crate) fn run(target: Target, data: &[u8]) -> String {
    let (source, choices) = match target {
        Target::Matcher => {
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
    let mut own = Random::new(hash(source.as_bytes()));
    let own: Vec<u8> = (0..5).map(|_| own.below(256) as u8).collect();
    let (choices, kind) = match target {
        Target::Matcher => (choices, choices.first().copied().unwrap_or(0)),
        _ => (&own[..], 0),
    };
    let vocabulary = vocabulary::of_kind(kind);
    let compiler = GrammarCompiler::new(vocabulary.info(), options());
    match &compile(target, &compiler, source) {
        Ok(grammar) => {
            let is_json = is_json(target, source);
            let oracle = match target {
                Target::Regex => plain_regex(source),
                _ => None,
            };
            // Where a grammar names tokens, a text's bytes are not all that counts.
            let names_tokens = ["oken", "<[", "!<"]
                .iter()
                .any(|sign| source.contains(sign));
            let bytewise = (!names_tokens).then(|| GrammarMatcher::new(grammar));
            let seen = places::walk(grammar, &vocabulary, choices, bytewise, |text, is_whole| {
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
    target: Target,
    compiler: &GrammarCompiler,
    source: &str,
) -> Result<CompiledGrammar, CompileError> {
    let schema = |source| compiler.compile_json_schema(source, &JsonSchemaOptions::default());
    match target {
        Target::Ebnf => compiler.compile_ebnf(source, "root"),
        Target::Lark => compiler.compile_lark(source),
        Target::StructuralTag => compiler.compile_structural_tag(source),
        Target::Regex => compiler.compile_regex(source),
        Target::JsonSchema => schema(source),
        _ => match source.as_bytes().first() {
            Some(b'{') if is_structural_tag(source) => compiler.compile_structural_tag(source),
            Some(b'{') => schema(source),
            Some(b'^') => compiler.compile_regex(source),
            _ => compiler.compile_grammar(source),
        },
    }
}

/// True if the grammar's texts are JSON.
fn is_json(target: Target, source: &str) -> bool {
    match target {
        Target::JsonSchema => true,
        Target::Matcher => source.starts_with('{') && !is_structural_tag(source),
        _ => false,
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
