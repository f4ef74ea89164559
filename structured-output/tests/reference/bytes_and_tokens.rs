//! A vocabulary of all bytes, then some tokens, then the end of text.

use std::sync::Arc;

use structured_output::{CompilerOptions, GrammarCompiler, Limits, TokenizerInfo};

/// A compiler for it, whose masks may take so many steps.
pub(crate) fn compiler(tokens: &[Vec<u8>], max_mask_steps: u64) -> GrammarCompiler {
    let mut vocab: Vec<Vec<u8>> = (0..=255_u8).map(|byte| vec![byte]).collect();
    vocab.extend_from_slice(tokens);
    vocab.push(b"<eos>".to_vec());
    let eos = vocab.len() as u32 - 1;
    let info = TokenizerInfo::new(&vocab, vocab.len(), &[eos], &[eos]).unwrap();
    let options = CompilerOptions {
        limits: Limits {
            max_mask_steps,
            ..Limits::default()
        },
        ..CompilerOptions::default()
    };
    GrammarCompiler::new(Arc::new(info), options)
}
