//! The one backend: the crate `structured-output`.

use std::sync::Arc;

use protocol::{PropertyOrder, StructuredOutputsConstraint, StructuredOutputsParams, Whitespace};
use structured_output::{
    CancelFlag, CompileBudget, CompiledGrammar, CompilerOptions, GrammarCompiler, GrammarMatcher,
    JsonSchemaOptions, Limits, MaskRef, MatcherError, TokenizerInfo,
};

use super::backend::{
    CompileGrammarError, GrammarMemory, StructuredOutputBackend, StructuredOutputGrammar,
};

/// Steps of one call on a grammar: some tenths of a second, in which the busy loop does nothing else.
///
/// Of every sixteenth schema of MaskBench, each with no other compiled before it, one call took 806,000
/// at the most, and those of 99 in 100 schemas stay below 272,000. Two of 104 that were written to be
/// hard need more.
const MAX_MASK_STEPS: u64 = 2_000_000;

/// Compiles every constraint for one vocabulary, and caches what it compiled.
pub struct FormworkBackend {
    compiler: GrammarCompiler,
    budget: CompileBudget,
}

impl FormworkBackend {
    /// A backend that keeps at most `cache_bytes` of grammars, states and masks. Builds the
    /// vocabulary's index: 0.2 seconds for 128,000 tokens.
    pub fn new(info: TokenizerInfo, cache_bytes: usize) -> Self {
        let limits = Limits {
            max_mask_steps: MAX_MASK_STEPS,
            ..Limits::default()
        };
        let options = CompilerOptions {
            cache_bytes,
            limits,
            ..CompilerOptions::default()
        };
        Self {
            budget: options.budget,
            compiler: GrammarCompiler::new(Arc::new(info), options),
        }
    }

    fn compile(
        &self,
        compiler: &GrammarCompiler,
        params: &StructuredOutputsParams,
        cancel: &CancelFlag,
    ) -> Result<CompiledGrammar, CompileGrammarError> {
        let budget = self.budget;
        let compiled = match &params.constraint {
            StructuredOutputsConstraint::Json(schema) => {
                let options = json_schema_options(params);
                compiler.compile_json_schema_with(schema, &options, budget, cancel)
            }
            StructuredOutputsConstraint::JsonObject => {
                // Of a schema's options only white space has a meaning here.
                let options = JsonSchemaOptions {
                    strict: false,
                    ..json_schema_options(params)
                };
                let any_object = r#"{"type": "object"}"#;
                compiler.compile_json_schema_with(any_object, &options, budget, cancel)
            }
            StructuredOutputsConstraint::Regex(pattern) => {
                compiler.compile_regex_with(pattern, budget, cancel)
            }
            StructuredOutputsConstraint::Choice(choices) => {
                compiler.compile_choice_with(choices, budget, cancel)
            }
            StructuredOutputsConstraint::Grammar(grammar) => {
                compiler.compile_grammar_with(grammar, budget, cancel)
            }
            StructuredOutputsConstraint::StructuralTag(tag) => {
                compiler.compile_structural_tag_with(tag, budget, cancel)
            }
        };
        Ok(compiled?)
    }
}

/// How JSON is to be read and written, as the compiler takes it.
fn json_schema_options(params: &StructuredOutputsParams) -> JsonSchemaOptions {
    use structured_output as compiler;
    let mut options = JsonSchemaOptions {
        property_order: match params.property_order {
            PropertyOrder::Schema => compiler::PropertyOrder::Schema,
            PropertyOrder::Any => compiler::PropertyOrder::Any,
        },
        strict: params.disable_additional_properties,
        ..JsonSchemaOptions::default()
    };
    match &params.whitespace {
        Whitespace::Flexible => options.whitespace = compiler::Whitespace::Flexible,
        Whitespace::Spaced => options.whitespace = compiler::Whitespace::Spaced,
        Whitespace::Compact => options.whitespace = compiler::Whitespace::Compact,
        Whitespace::Pattern(pattern) => options.whitespace_pattern = Some(pattern.clone()),
    }
    options
}

impl StructuredOutputBackend for FormworkBackend {
    fn compile_grammar(
        &self,
        params: &StructuredOutputsParams,
        stop_token_ids: &[u32],
        memory: GrammarMemory,
        cancel: &CancelFlag,
    ) -> Result<Box<dyn StructuredOutputGrammar>, CompileGrammarError> {
        let grammar = match memory {
            GrammarMemory::Shared => self.compile(&self.compiler, params, cancel)?,
            // Goes with the grammar.
            GrammarMemory::Own => self.compile(&self.compiler.separate(), params, cancel)?,
        };
        let matcher = GrammarMatcher::with_stop_tokens(&grammar, stop_token_ids);
        Ok(Box::new(matcher))
    }

    fn num_compilations(&self) -> u64 {
        self.compiler.num_compilations()
    }

    fn stop_token_ids(&self) -> &[u32] {
        self.compiler.tokenizer_info().stop_token_ids()
    }
}

impl StructuredOutputGrammar for GrammarMatcher {
    fn accept_token(&mut self, token_id: u32) -> Result<bool, MatcherError> {
        GrammarMatcher::accept_token(self, token_id)
    }

    fn validate_tokens(&self, token_ids: &[u32]) -> Result<usize, MatcherError> {
        GrammarMatcher::validate_tokens(self, token_ids)
    }

    fn rollback(&mut self, num_tokens: usize) -> Result<(), MatcherError> {
        GrammarMatcher::rollback(self, num_tokens)
    }

    fn next_token_mask(&self) -> Result<MaskRef, MatcherError> {
        GrammarMatcher::next_token_mask(self)
    }

    fn next_token_mask_within(&self, num_tokens: u32) -> Result<MaskRef, MatcherError> {
        GrammarMatcher::next_token_mask_within(self, num_tokens)
    }

    fn next_token_mask_completing(&self, num_tokens: u32) -> Result<MaskRef, MatcherError> {
        GrammarMatcher::next_token_mask_completing(self, num_tokens)
    }

    fn min_bytes_to_complete(&self) -> Result<u32, MatcherError> {
        GrammarMatcher::min_bytes_to_complete(self)
    }

    fn min_tokens_bound(&self) -> Result<u32, MatcherError> {
        GrammarMatcher::min_tokens_bound(self)
    }

    fn min_tokens_to_complete(&self) -> Result<u32, MatcherError> {
        GrammarMatcher::min_tokens_to_complete(self)
    }

    fn has_forced_byte(&self) -> Result<bool, MatcherError> {
        GrammarMatcher::has_forced_byte(self)
    }

    fn find_jump_forward_string(&self) -> Result<String, MatcherError> {
        GrammarMatcher::find_jump_forward_string(self)
    }

    fn is_completed(&self) -> bool {
        GrammarMatcher::is_completed(self)
    }

    fn is_terminated(&self) -> bool {
        GrammarMatcher::is_terminated(self)
    }

    fn reset(&mut self) {
        GrammarMatcher::reset(self);
    }
}
