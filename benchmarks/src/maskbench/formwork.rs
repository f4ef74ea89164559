//! Formwork as the benchmark sees it.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use structured_output::{
    CompilerOptions, GrammarCompiler, GrammarMatcher, JsonSchemaOptions, MaskRef, MatcherError,
    TokenizerInfo, allocate_token_bitmask,
};

use super::{Case, EngineError, MaskEngine, MaskMatcher};

/// How Formwork is run.
#[derive(Debug, Clone, Default)]
pub struct FormworkOptions {
    /// How schemas are compiled.
    pub schema: JsonSchemaOptions,
    /// Takes masks without a copy (`next_token_mask`) in place of writing a dense row.
    pub zero_copy: bool,
}

/// Formwork's grammar engine.
pub struct Formwork {
    compiler: GrammarCompiler,
    options: FormworkOptions,
}

impl Formwork {
    /// An engine with the default limits and caches.
    pub fn new(info: Arc<TokenizerInfo>, options: FormworkOptions) -> Self {
        let compiler = GrammarCompiler::new(info, CompilerOptions::default());
        compiler.prepare();
        Self { compiler, options }
    }
}

/// What a vocabulary's index costs.
#[derive(Debug, Clone, Copy)]
pub struct IndexCosts {
    /// Bytes held, the vocabulary included.
    pub bytes: usize,
    /// Building it.
    pub build: Duration,
    /// Reading it from a file that the system has in memory, and checking it.
    pub read: Duration,
    /// [`GrammarCompiler::prepare`].
    pub prepare: Duration,
}

impl IndexCosts {
    /// Builds a vocabulary's index, writes it to a folder and reads it again; of each the smallest
    /// time of three.
    pub fn measure(info: &Arc<TokenizerInfo>, folder: &Path) -> Self {
        let smallest = |options: &CompilerOptions| {
            let times = (0..3).map(|_| {
                let started = Instant::now();
                let compiler = GrammarCompiler::new(Arc::clone(info), options.clone());
                let time = started.elapsed();
                compiler.prepare();
                (time, started.elapsed() - time)
            });
            let (made, prepared): (Vec<_>, Vec<_>) = times.unzip();
            [made, prepared].map(|times| times.into_iter().min().unwrap_or_default())
        };
        let plain = CompilerOptions::default();
        let kept = CompilerOptions {
            index_cache: Some(folder.to_owned()),
            ..CompilerOptions::default()
        };
        let [build, prepare] = smallest(&plain);
        let compiler = GrammarCompiler::new(Arc::clone(info), kept.clone());
        compiler.prepare();
        let [read, _] = smallest(&kept);
        Self {
            bytes: compiler.index_bytes(),
            build,
            read,
            prepare,
        }
    }
}

impl MaskEngine for Formwork {
    fn name(&self) -> &str {
        match self.options.zero_copy {
            true => "formwork-zero-copy",
            false => "formwork",
        }
    }

    fn compile(&mut self, case: &Case) -> Result<Box<dyn MaskMatcher>, EngineError> {
        let grammar = self
            .compiler
            .compile_json_schema(&case.schema_text, &self.options.schema)
            .map_err(|error| EngineError(error.to_string()))?;
        let matcher = GrammarMatcher::new(&grammar);
        if self.options.zero_copy {
            return Ok(Box::new(ZeroCopy {
                matcher,
                mask: None,
            }));
        }
        Ok(Box::new(Rows {
            row: allocate_token_bitmask(1, grammar.tokenizer_info().vocab_size()),
            matcher,
        }))
    }

    fn drop_caches(&mut self) {
        self.compiler.clear_cache();
    }
}

fn failed(error: MatcherError) -> EngineError {
    EngineError(error.to_string())
}

/// A matcher that writes its masks as rows.
struct Rows {
    matcher: GrammarMatcher,
    row: Vec<u32>,
}

impl MaskMatcher for Rows {
    fn start(&mut self) -> Result<(), EngineError> {
        self.matcher.reset();
        Ok(())
    }

    fn compute_mask(&mut self) -> Result<(), EngineError> {
        self.matcher
            .fill_next_token_bitmask(&mut self.row)
            .map_err(failed)?;
        Ok(())
    }

    fn is_allowed(&self, token_id: u32) -> bool {
        let word = self.row.get(token_id as usize / 32);
        word.is_some_and(|word| word >> (token_id % 32) & 1 == 1)
    }

    fn accept_token(&mut self, token_id: u32) -> Result<bool, EngineError> {
        self.matcher.accept_token(token_id).map_err(failed)
    }
}

/// A matcher that shares its masks.
struct ZeroCopy {
    matcher: GrammarMatcher,
    mask: Option<MaskRef>,
}

impl MaskMatcher for ZeroCopy {
    fn start(&mut self) -> Result<(), EngineError> {
        self.matcher.reset();
        Ok(())
    }

    fn compute_mask(&mut self) -> Result<(), EngineError> {
        self.mask = Some(self.matcher.next_token_mask().map_err(failed)?);
        Ok(())
    }

    fn is_allowed(&self, token_id: u32) -> bool {
        self.mask
            .as_ref()
            .is_some_and(|mask| mask.is_allowed(token_id))
    }

    fn accept_token(&mut self, token_id: u32) -> Result<bool, EngineError> {
        self.matcher.accept_token(token_id).map_err(failed)
    }
}
