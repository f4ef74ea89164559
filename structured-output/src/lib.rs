//! Structured output: which tokens of a vocabulary may come next.
//!
//! What stands here so far is the half that needs no grammar: the vocabulary as the engine sees
//! it ([`TokenizerInfo`]) and the bitmask that carries "allowed" from a grammar to the logits
//! ([`allocate_token_bitmask`], [`apply_token_bitmask_inplace`]). The compiler and the matcher
//! that fill such a bitmask are not written yet.
//!
//! What it is not: it reads no `tokenizer.json`, knows no tensor type, no async runtime and none
//! of the engine's messages. The caller brings token bytes and logits as plain slices.
//!
//! ```
//! use structured_output::{
//!     TokenizerInfo, allocate_token_bitmask, apply_token_bitmask_inplace,
//! };
//!
//! // Four tokens, of which the last ends the text; the model's logits are padded to 40.
//! let vocab = [b"yes".to_vec(), b"no".to_vec(), b" ".to_vec(), b"<eos>".to_vec()];
//! let info = TokenizerInfo::new(&vocab, 40, &[3], &[3])?;
//! assert_eq!(info.token_bytes(1), b"no");
//!
//! // One row of the mask; here only token 1 is allowed.
//! let mut bitmask = allocate_token_bitmask(1, info.vocab_size());
//! bitmask.fill(0);
//! bitmask[0] |= 1 << 1;
//!
//! let mut logits = vec![0.5_f32; info.vocab_size()];
//! apply_token_bitmask_inplace(&mut logits, &bitmask);
//! assert_eq!(logits[1], 0.5);
//! assert_eq!(logits.iter().filter(|&&logit| logit == f32::NEG_INFINITY).count(), 39);
//! # Ok::<(), structured_output::TokenizerInfoError>(())
//! ```

#![deny(unsafe_code)]

mod bitmask;
mod tokenizer_info;

pub use bitmask::{
    BITS_PER_WORD, allocate_token_bitmask, apply_token_bitmask_inplace, bitmask_words,
};
pub use tokenizer_info::{TokenizerInfo, TokenizerInfoError};
