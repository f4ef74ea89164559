//! Vocabularies of all bytes and some tokens, the end of text behind them or before.

use std::ops::RangeInclusive;
use std::sync::Arc;

use structured_output::{
    CompiledGrammar, CompilerOptions, GrammarCompiler, GrammarMatcher, Limits, TokenizerInfo,
};

/// The end of text where it comes first: bytes have one more than their values then.
pub(crate) const EOS: u32 = 0;

/// A compiler for all bytes, then some tokens, then the end of text, whose masks may take so many steps.
pub(crate) fn compiler(tokens: &[Vec<u8>], max_mask_steps: u64) -> GrammarCompiler {
    let mut vocab: Vec<Vec<u8>> = (0..=255_u8).map(|byte| vec![byte]).collect();
    vocab.extend_from_slice(tokens);
    vocab.push(b"<eos>".to_vec());
    let eos = vocab.len() as u32 - 1;
    let info = TokenizerInfo::new(&vocab, vocab.len(), &[eos], &[eos]).unwrap();
    compiler_of(info, max_mask_steps)
}

/// A compiler for a vocabulary that begins with the end of text.
pub(crate) fn compiler_after_end(vocab: &[Vec<u8>], max_mask_steps: u64) -> GrammarCompiler {
    let info = TokenizerInfo::new(vocab, vocab.len(), &[EOS], &[]).unwrap();
    compiler_of(info, max_mask_steps)
}

fn compiler_of(info: TokenizerInfo, max_mask_steps: u64) -> GrammarCompiler {
    let options = CompilerOptions {
        limits: Limits {
            max_mask_steps,
            ..Limits::default()
        },
        ..CompilerOptions::default()
    };
    GrammarCompiler::new(Arc::new(info), options)
}

/// The end of text, all bytes, and words of two letters with what stands around them, in place of `@`.
pub(crate) fn words_after_end(letters: RangeInclusive<u8>, arounds: &[&str]) -> Vec<Vec<u8>> {
    let mut vocab = vec![b"<eos>".to_vec()];
    vocab.extend((0..=255_u8).map(|byte| vec![byte]));
    for a in letters.clone() {
        for b in letters.clone() {
            for around in arounds {
                let word = String::from_utf8(vec![a, b]).unwrap();
                vocab.push(around.replace('@', &word).into_bytes());
            }
        }
    }
    vocab
}

/// A matcher of such a vocabulary after a text, byte by byte.
#[track_caller]
pub(crate) fn after(grammar: &CompiledGrammar, source: &str, text: &str) -> GrammarMatcher {
    let mut matcher = GrammarMatcher::new(grammar);
    let bytes: Vec<u32> = text.bytes().map(|byte| u32::from(byte) + 1).collect();
    assert!(matcher.accept_tokens(&bytes).unwrap(), "{source}: {text:?}");
    matcher
}
