//! The merges that a SentencePiece vocabulary's scores amount to.
//!
//! SentencePiece's BPE joins, of all neighbours that form a token, those whose token has the
//! highest score. A list of merges does the same: every split of every token into two tokens, the
//! highest score first, and of equal scores the longest, as the `transformers` library orders them
//! when it converts such a vocabulary.

use std::collections::HashMap;

use ::gguf::{GgufError, Metadata};
use serde_json::{Value, json};

use super::vocabulary::{TokenType, Vocabulary};

const TOKENS: &str = "tokenizer.ggml.tokens";
const SCORES: &str = "tokenizer.ggml.scores";

/// Longest token in bytes. Each split of a token is looked up, so a file with enormous ones would
/// take the square of its length.
const MAX_TOKEN_LEN: usize = 1024;

/// `[left, right]` of every merge, the first first.
pub(super) fn by_score(
    metadata: &Metadata,
    vocabulary: &Vocabulary<'_>,
) -> Result<Vec<Value>, GgufError> {
    let scores = metadata
        .numbers(SCORES)?
        .ok_or_else(|| GgufError::MissingKey {
            key: SCORES.to_owned(),
            expected: "an array of numbers",
        })?;
    if scores.len() != vocabulary.len() {
        return Err(metadata.wrong(SCORES, &format!("one per token ({})", vocabulary.len())));
    }
    let ids: HashMap<&str, u32> = vocabulary.used().map(|(id, text)| (text, id)).collect();
    let mut merges = Vec::new();
    for (id, text, token_type) in vocabulary.with_types() {
        let score = match token_type {
            TokenType::Normal => scores[id as usize],
            // They are never divided, so they come first, whatever number a converter gave them.
            TokenType::UserDefined => f64::INFINITY,
            _ => continue,
        };
        if text.len() > MAX_TOKEN_LEN {
            let expected = format!("tokens of at most {MAX_TOKEN_LEN} bytes, as {id} is not");
            return Err(metadata.wrong(TOKENS, &expected));
        }
        let first = merges.len();
        let num_chars = text.chars().count();
        for (left_chars, (at, _)) in text.char_indices().enumerate().skip(1) {
            let (left, right) = text.split_at(at);
            if let (Some(&left_id), Some(&right_id)) = (ids.get(left), ids.get(right)) {
                merges.push(Merge {
                    score,
                    left,
                    right,
                    chars: (left_chars, num_chars - left_chars),
                    ids: (left_id, right_id),
                });
            }
        }
        merges[first..].sort_unstable_by_key(|merge| merge.ids);
    }
    merges.sort_by(|a, b| b.score.total_cmp(&a.score).then(b.chars.cmp(&a.chars)));
    Ok(merges
        .iter()
        .map(|merge| json!([merge.left, merge.right]))
        .collect())
}

/// Two tokens that form a third.
struct Merge<'a> {
    /// The third's.
    score: f64,
    left: &'a str,
    right: &'a str,
    /// Lengths of both.
    chars: (usize, usize),
    ids: (u32, u32),
}
