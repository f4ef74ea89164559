//! A vocabulary in which token `n` is byte `n`.

use std::sync::Arc;

use structured_output::{CompilerOptions, GrammarCompiler, TokenizerInfo};

/// The end of text.
pub(crate) const EOS: u32 = 256;

/// A compiler for it.
pub(crate) fn compiler(options: CompilerOptions) -> GrammarCompiler {
    let mut vocab: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    vocab.push(b"<eos>".to_vec());
    let info = TokenizerInfo::new(&vocab, vocab.len(), &[EOS], &[EOS]).unwrap();
    GrammarCompiler::new(Arc::new(info), options)
}
