//! A schema under test, and the validator that it is compared with.

use std::sync::{Arc, LazyLock};

use serde_json::Value;
use structured_output::{
    CompileError, CompiledGrammar, CompilerOptions, Draft, Format, GrammarCompiler, GrammarMatcher,
    JsonSchemaOptions, Limits, MatcherError, PropertyOrder, TokenizerInfo,
};

use crate::place::{Place, within_memory};
use crate::random::Random;

/// Tokens across the borders of lexemes, beside one per byte.
pub(crate) const PIECES: &[&str] = &[
    "{\"", "\":", "\": ", "\":\"", "\",\"", "\", \"", "\"}", "\"},{\"", "},", "}]", "[]", "{}",
    "[[", "]]", ", ", "null", "true", "false", "12", "1.5", ".5", "0,", "1]", ",1", "-1", "ab",
    "aa", "a\":", "\"a", "\"a\":", "{\"a\":", "\"b\":", "\"ab\":", ":1,\"", "\\n", "\\\"", "\n  ",
    "  ", " \"", "é", "\"\"", "\"\":", ":{},\"", "1}", "a\",\"b",
];
/// Words of strings and keys that are long beside what schemas count.
const NUM_WORDS: u32 = 2_000;
/// Those come after the pieces.
pub(crate) const FIRST_WORD: u32 = 256 + PIECES.len() as u32;
pub(crate) const EOS: u32 = FIRST_WORD + NUM_WORDS;
/// Of a call.
pub(crate) const MAX_STEPS: u64 = 8_000_000;

/// All tokens but the last, by id.
static TOKENS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let mut random = Random(1);
    let mut tokens: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    tokens.extend(PIECES.iter().map(|piece| piece.as_bytes().to_vec()));
    for _ in 0..NUM_WORDS {
        let letters = *random.of(&["ab", "abcdefgh", "ABCabc", "0123456789", "aB1 /"]);
        let length = 2 + random.below(11);
        let word = (0..length).map(|_| *random.of(letters.as_bytes()));
        tokens.push(word.collect());
    }
    tokens
});

/// The bytes of a token.
pub(crate) fn bytes_of(token: u32) -> &'static [u8] {
    &TOKENS[token as usize]
}

/// What all tests share, and so the memory of its states.
pub(crate) static COMPILER: LazyLock<GrammarCompiler> = LazyLock::new(new_compiler);

/// Another one, for a test that has to have memory.
pub(crate) fn new_compiler() -> GrammarCompiler {
    compiler(false)
}

/// One whose strings may have any escapes or not.
pub(crate) fn compiler(any_escapes: bool) -> GrammarCompiler {
    let mut vocab = TOKENS.clone();
    vocab.push(Vec::new());
    let info = TokenizerInfo::new(&vocab, vocab.len(), &[EOS], &[]).unwrap();
    // A mask within a number of tokens asks what each of 2,000 words leaves to be written.
    let limits = Limits {
        max_mask_steps: MAX_STEPS,
        ..Limits::default()
    };
    let options = CompilerOptions {
        limits,
        any_escapes,
        ..CompilerOptions::default()
    };
    GrammarCompiler::new(Arc::new(info), options)
}

pub(crate) struct Validator(jsonschema::Validator);

impl Validator {
    /// `None` for a schema that it doesn't take.
    pub(crate) fn new(schema: &Value, draft: Draft) -> Option<Self> {
        let draft = match draft {
            Draft::Draft4 => jsonschema::Draft::Draft4,
            Draft::Draft6 => jsonschema::Draft::Draft6,
            Draft::Draft7 => jsonschema::Draft::Draft7,
            Draft::Draft2019_09 => jsonschema::Draft::Draft201909,
            _ => jsonschema::Draft::Draft202012,
        };
        let options = jsonschema::options().with_draft(draft);
        let validator = options.should_validate_formats(false).build(schema);
        validator.ok().map(Self)
    }

    pub(crate) fn is_valid(&self, document: &Value) -> bool {
        self.0.is_valid(document)
    }
}

/// A compiled schema; one that no value meets accepts nothing.
pub(crate) struct Subject(Option<CompiledGrammar>);

impl Subject {
    /// `None` where the schema is refused.
    pub(crate) fn new(schema: &Value, draft: Draft, property_order: PropertyOrder) -> Option<Self> {
        Self::by(&COMPILER, schema, draft, property_order)
    }

    /// The same by a compiler of its own.
    pub(crate) fn by(
        compiler: &GrammarCompiler,
        schema: &Value,
        draft: Draft,
        property_order: PropertyOrder,
    ) -> Option<Self> {
        let options = JsonSchemaOptions {
            draft,
            property_order,
            ..JsonSchemaOptions::default()
        };
        Self::with(compiler, schema, options)
    }

    /// The same by options of its own, of which `format` is the validator's.
    pub(crate) fn with(
        compiler: &GrammarCompiler,
        schema: &Value,
        options: JsonSchemaOptions,
    ) -> Option<Self> {
        let options = JsonSchemaOptions {
            format: Format::Annotate,
            ..options
        };
        match compiler.compile_json_schema(&schema.to_string(), &options) {
            Ok(grammar) => Some(Self(Some(grammar))),
            Err(CompileError::NoValue { .. }) => Some(Self(None)),
            Err(error) => {
                // That is no word to who wrote the schema.
                let is_internal = error.to_string().contains("was not compiled");
                assert!(!is_internal, "{error}: {schema}");
                eprintln!("refused: {error}: {schema}");
                None
            }
        }
    }

    /// The place after a text that begins one of the schema's; `None` where the grammar's states
    /// take more memory than there is.
    pub(crate) fn after(&self, text: &str) -> Option<Place> {
        let grammar = self.0.as_ref().expect("valid documents, but no text");
        let mut matcher = GrammarMatcher::new(grammar);
        let tokens: Vec<u32> = text.bytes().map(u32::from).collect();
        let accepted = within_memory(matcher.accept_tokens(&tokens))?;
        assert!(accepted, "{text} begins a valid document");
        Some(Place {
            matcher,
            text: text.to_owned(),
        })
    }

    /// Whether a text is accepted: byte by byte, and cut into tokens at random.
    pub(crate) fn accepts(&self, text: &str, random: &mut Random) -> Result<bool, MatcherError> {
        let Some(grammar) = &self.0 else {
            return Ok(false);
        };
        let mut matcher = GrammarMatcher::new(grammar);
        let by_bytes: Vec<u32> = text.bytes().map(u32::from).collect();
        let accepted = matcher.accept_tokens(&by_bytes)? && matcher.is_completed();
        matcher.reset();
        let mut by_tokens = true;
        let mut rest = text.as_bytes();
        while by_tokens && let Some(&first) = rest.first() {
            let begins = |&token: &u32| rest.starts_with(bytes_of(token));
            let pieces: Vec<u32> = (256..EOS).filter(begins).collect();
            let token = match random.below(pieces.len() + 1) {
                0 => u32::from(first),
                at => pieces[at - 1],
            };
            by_tokens = matcher.next_token_mask()?.is_allowed(token);
            assert_eq!(matcher.accept_token(token)?, by_tokens, "{text}");
            rest = &rest[bytes_of(token).len()..];
        }
        by_tokens &= matcher.is_completed();
        assert_eq!(accepted, by_tokens, "{text} by bytes and by tokens");
        Ok(accepted)
    }

    /// A text that the masks lead to at random; after some tokens only those that end in time.
    /// `None` where there is none, or where its states take more memory than there is.
    pub(crate) fn walk(&self, random: &mut Random) -> Result<Option<String>, String> {
        let Some(grammar) = &self.0 else {
            return Ok(None);
        };
        match Self::walk_grammar(grammar, random) {
            Some(walked) => walked.map(Some),
            None => Ok(None),
        }
    }

    /// See [`Self::walk`]; `None` where the grammar's states take more memory than there is.
    fn walk_grammar(
        grammar: &CompiledGrammar,
        random: &mut Random,
    ) -> Option<Result<String, String>> {
        let mut matcher = GrammarMatcher::new(grammar);
        let mut text = Vec::new();
        let free = random.below(24);
        let mut left = 0;
        for at in 0.. {
            if at >= free {
                left = match at == free {
                    true => within_memory(matcher.min_tokens_to_complete())?,
                    false => left - 1,
                };
                if left == 0 {
                    let text = String::from_utf8_lossy(&text);
                    return Some(Err(format!("no end within the bound: {text}")));
                }
            }
            let mask = match left {
                0 => matcher.next_token_mask(),
                left => matcher.next_token_mask_within(left),
            };
            let ids = within_memory(mask)?.token_ids();
            let mut pieces = ids.clone();
            // Those that a text gets somewhere with.
            pieces.retain(|&id| {
                (256..FIRST_WORD).contains(&id)
                    || (id < 128 && b"{}[]\",:ab01".contains(&(id as u8)))
            });
            let token = match pieces.is_empty() || random.below(6) == 0 {
                true if ids.is_empty() => {
                    let text = String::from_utf8_lossy(&text);
                    return Some(Err(format!("an empty mask after {text}")));
                }
                true => *random.of(&ids),
                false => *random.of(&pieces),
            };
            assert!(within_memory(matcher.accept_token(token))?);
            if matcher.is_terminated() {
                break;
            }
            text.extend_from_slice(grammar.tokenizer_info().token_bytes(token));
        }
        Some(String::from_utf8(text).map_err(|error| error.to_string()))
    }
}

/// The document that a text writes; `None` where a number in it is not exactly what the other
/// validator sees, or a string has an end of a line that `.` matches there and not in ECMA-262.
pub(crate) fn document(text: &str) -> Option<Value> {
    fn is_one_line(text: &str) -> bool {
        !text.contains(['\r', '\u{2028}', '\u{2029}'])
    }
    fn is_exact(value: &Value) -> bool {
        match value {
            // Minus zero is a float there.
            Value::Number(number) => number.as_f64().is_some_and(|value| {
                value.abs() < 1e9 && (value * 64.0).fract() == 0.0 && value.to_bits() != 1 << 63
            }),
            Value::Array(items) => items.iter().all(is_exact),
            Value::Object(members) => members
                .iter()
                .all(|(key, value)| is_one_line(key) && is_exact(value)),
            Value::String(text) => is_one_line(text),
            _ => true,
        }
    }
    let document = serde_json::from_str(text).ok()?;
    is_exact(&document).then_some(document)
}
