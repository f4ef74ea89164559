//! Whether a JSON text is valid under a schema, by the grammar engine over single bytes.

use std::sync::{Arc, LazyLock};

use structured_output::{
    CancelFlag, CompileBudget, CompilerOptions, GrammarCompiler, GrammarMatcher, JsonSchemaOptions,
    TokenizerInfo,
};

/// What a compilation may spend: the steps of some 20 ms, since answers are read where others wait.
const BUDGET: CompileBudget = CompileBudget {
    max_states: 100_000,
    max_bytes: 8 << 20,
    max_steps: 200_000,
};

/// Memory for schemas that were compiled before.
const CACHE_BYTES: usize = 16 << 20;

/// `None` only if a vocabulary of all bytes is refused.
static COMPILER: LazyLock<Option<GrammarCompiler>> = LazyLock::new(|| {
    const STOP: u32 = 256;
    let mut vocabulary: Vec<Vec<u8>> = (0..=u8::MAX).map(|byte| vec![byte]).collect();
    vocabulary.push(b"</s>".to_vec());
    let info = TokenizerInfo::new(&vocabulary, vocabulary.len(), &[STOP], &[STOP]).ok()?;
    let options = CompilerOptions {
        cache_bytes: CACHE_BYTES,
        budget: BUDGET,
        ..CompilerOptions::default()
    };
    Some(GrammarCompiler::new(Arc::new(info), options))
});

/// Whether a text is valid under a schema; `None` where the schema takes more to compile than [`BUDGET`]. Linear in the
/// text.
pub(super) fn is_valid(schema: &str, json: &str) -> Option<bool> {
    let compiler = COMPILER.as_ref()?;
    let options = JsonSchemaOptions::default();
    let compiled = compiler.compile_json_schema_with(schema, &options, BUDGET, &CancelFlag::new());
    let grammar = compiled.ok()?;
    let mut matcher = GrammarMatcher::new(&grammar);
    matcher.set_allowance(Some(BUDGET.max_steps));
    for byte in json.bytes() {
        match matcher.accept_token(u32::from(byte)) {
            Ok(true) => {}
            Ok(false) => return Some(false),
            Err(_) => return None,
        }
    }
    Some(matcher.is_completed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_valid_or_not() {
        let schema = r#"{"type": ["string", "integer"], "minimum": 5}"#;
        for (json, wanted) in [
            ("5", true),
            ("4", false),
            ("\"4\"", true),
            ("[]", false),
            ("", false),
        ] {
            assert_eq!(is_valid(schema, json), Some(wanted), "{json}");
        }
        assert_eq!(is_valid(r#"{"type": "strnig"}"#, "5"), None);
    }
}
