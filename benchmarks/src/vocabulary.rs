//! Vocabularies for the programs that run the grammar engine.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use structured_output::TokenizerInfo;
use tokenizer::Tokenizer;

/// Loads a `tokenizer.json`, with the `tokenizer_config.json` beside it where there is one.
///
/// # Errors
/// A file that can't be read, or that is no tokenizer that [`Tokenizer`] knows.
pub fn load_tokenizer(file: &Path) -> anyhow::Result<Tokenizer> {
    let json = fs::read(file).with_context(|| format!("reading {}", file.display()))?;
    let config_file = file.with_file_name("tokenizer_config.json");
    let config = fs::read(&config_file).ok();
    let mut files = vec![("tokenizer.json", json.as_slice())];
    if let Some(config) = &config {
        files.push(("tokenizer_config.json", config));
    }
    Tokenizer::from_bytes(&files).with_context(|| format!("loading {}", file.display()))
}

/// A tokenizer's vocabulary, as wide as it has ids. One that names no end-of-text token gets an id
/// for that on top.
///
/// # Errors
/// As [`TokenizerInfo::new`].
pub fn tokenizer_info(tokenizer: &Tokenizer) -> anyhow::Result<Arc<TokenizerInfo>> {
    let vocab_size = tokenizer.vocab_size();
    if !tokenizer.stop_token_ids().is_empty() {
        return Ok(Arc::new(tokenizer.tokenizer_info(vocab_size)?));
    }
    let ids = 0..u32::try_from(vocab_size)?;
    let vocab: Vec<Vec<u8>> = ids.map(|id| tokenizer.token_bytes(id).to_vec()).collect();
    let stop = [u32::try_from(vocab_size)?];
    let special = tokenizer.special_token_ids();
    Ok(Arc::new(TokenizerInfo::new(
        &vocab,
        vocab_size + 1,
        &stop,
        special,
    )?))
}

/// Every single byte as a token with the byte's value as id, and 256 as the stop token: positions
/// in tokens are positions in bytes.
///
/// # Errors
/// None with this vocabulary; as [`TokenizerInfo::new`].
pub fn byte_vocabulary() -> anyhow::Result<Arc<TokenizerInfo>> {
    let vocab: Vec<Vec<u8>> = (0..=u8::MAX).map(|byte| vec![byte]).collect();
    Ok(Arc::new(TokenizerInfo::new(&vocab, 257, &[256], &[])?))
}
