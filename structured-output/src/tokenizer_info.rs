//! The vocabulary as the grammar engine sees it: bytes per token, which tokens end the text,
//! which are control tokens.

/// A vocabulary: what each token writes, which tokens end the text, which are control tokens.
///
/// Immutable. Bytes lie in one block: memory is the sum of the tokens' lengths plus 4 bytes per
/// token, and a look-up is two loads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenizerInfo {
    bytes: Vec<u8>,
    /// Token `t` is `bytes[ends[t - 1]..ends[t]]`.
    ends: Vec<u32>,
    vocab_size: usize,
    stop_token_ids: Vec<u32>,
    special_token_ids: Vec<u32>,
    /// Ids of the vocabulary that this one stands for, see [`TokenizerInfo::over_bytes`].
    stands_for: Option<usize>,
}

/// The token of [`TokenizerInfo::over_bytes`] that stands for all that a grammar may name. Those before
/// it are the bytes.
const ANY_TOKEN: u32 = 256;

/// Why a vocabulary can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenizerInfoError {
    /// There are no tokens.
    #[error("vocab is empty: it needs at least one token")]
    EmptyVocab,
    /// The logits would be narrower than the vocabulary.
    #[error(
        "vocab_size is {vocab_size} but vocab has {num_tokens} tokens: \
         vocab_size is the width of the logits and must be at least the number of tokens"
    )]
    VocabSizeTooSmall {
        /// The width given.
        vocab_size: usize,
        /// Tokens given.
        num_tokens: usize,
    },
    /// Token ids are 32 bits wide.
    #[error("vocab_size is {vocab_size}: token ids are 32 bits, so at most {max} is possible", max = u32::MAX)]
    VocabSizeTooLarge {
        /// The width given.
        vocab_size: usize,
    },
    /// The tokens' bytes are not addressable by 32 bits.
    #[error("vocab holds more than {max} bytes of text", max = u32::MAX)]
    TooManyBytes,
    /// No token can end the text, so no constrained output could end.
    #[error("stop_token_ids is empty: name at least one token that ends the text")]
    NoStopToken,
    /// An id outside the logits.
    #[error("{field} holds {token_id}, but vocab_size is {vocab_size}: ids go from 0 to {}", vocab_size - 1)]
    TokenIdOutOfRange {
        /// `stop_token_ids` or `special_token_ids`.
        field: &'static str,
        /// The id given.
        token_id: u32,
        /// The width of the logits.
        vocab_size: usize,
    },
}

impl TokenizerInfo {
    /// A vocabulary from its tokens.
    ///
    /// * `vocab`: raw bytes by token id. An empty entry is a token that is never allowed under a
    ///   constraint. Added tokens carry their text.
    /// * `vocab_size`: the width of the logits, at least `vocab.len()` (models pad it). Ids from
    ///   `vocab.len()` on are never allowed.
    /// * `stop_token_ids`: tokens that end the text, at least one. Allowed only where the grammar
    ///   can end.
    /// * `special_token_ids`: control tokens (`special: true` in a `tokenizer.json`), which are
    ///   never text. Stop tokens need not be repeated here.
    ///
    /// Order and repetition of ids don't matter. Costs one pass over the bytes.
    ///
    /// # Errors
    /// [`TokenizerInfoError`], which names the field and the value.
    pub fn new(
        vocab: &[Vec<u8>],
        vocab_size: usize,
        stop_token_ids: &[u32],
        special_token_ids: &[u32],
    ) -> Result<Self, TokenizerInfoError> {
        if vocab.is_empty() {
            return Err(TokenizerInfoError::EmptyVocab);
        }
        if vocab_size < vocab.len() {
            return Err(TokenizerInfoError::VocabSizeTooSmall {
                vocab_size,
                num_tokens: vocab.len(),
            });
        }
        if u32::try_from(vocab_size).is_err() {
            return Err(TokenizerInfoError::VocabSizeTooLarge { vocab_size });
        }
        if stop_token_ids.is_empty() {
            return Err(TokenizerInfoError::NoStopToken);
        }

        let num_bytes = vocab.iter().map(Vec::len).fold(0, usize::saturating_add);
        if u32::try_from(num_bytes).is_err() {
            return Err(TokenizerInfoError::TooManyBytes);
        }
        let mut bytes = Vec::with_capacity(num_bytes);
        let mut ends = Vec::with_capacity(vocab.len());
        for token in vocab {
            bytes.extend_from_slice(token);
            // Exact: the sum was checked above.
            ends.push(bytes.len() as u32);
        }
        Ok(Self {
            bytes,
            ends,
            vocab_size,
            stop_token_ids: sorted_ids("stop_token_ids", stop_token_ids, vocab_size)?,
            special_token_ids: sorted_ids("special_token_ids", special_token_ids, vocab_size)?,
            stands_for: None,
        })
    }

    /// A small vocabulary that stands for this one where a constraint is checked and no text is made: the
    /// 256 bytes, and this one's stop and control tokens.
    ///
    /// Whether a grammar can be met by bytes is the same for all vocabularies that can write any text. What
    /// grammars name beyond that, by its text or its id, is taken for granted as long as its id is one of
    /// this vocabulary. So nothing is refused that this vocabulary could serve.
    pub fn over_bytes(&self) -> Self {
        let bytes = (0..=u8::MAX).map(|byte| vec![byte]);
        // A single sign, so that no grammar's text is taken for it.
        let mut vocab: Vec<Vec<u8>> = bytes.chain([vec![0]]).collect();
        let mut add = |ids: &[u32]| -> Vec<u32> {
            let first = vocab.len();
            vocab.extend(ids.iter().map(|&id| self.token_bytes(id).to_vec()));
            (first as u32..vocab.len() as u32).collect()
        };
        let stop_token_ids = add(&self.stop_token_ids);
        let mut special_token_ids = vec![ANY_TOKEN];
        special_token_ids.extend(add(&self.special_token_ids));
        let mut ends = Vec::with_capacity(vocab.len());
        for token in &vocab {
            let start: u32 = ends.last().copied().unwrap_or(0);
            ends.push(start.saturating_add(token.len() as u32));
        }
        Self {
            bytes: vocab.concat(),
            ends,
            vocab_size: vocab.len(),
            stop_token_ids,
            special_token_ids,
            stands_for: Some(self.vocab_size),
        }
    }

    /// The token that stands for all that a grammar may name, where this vocabulary stands for another.
    pub(crate) fn any_token(&self) -> Option<u32> {
        self.stands_for.map(|_| ANY_TOKEN)
    }

    /// The ids that a grammar may name go from 0 to below this.
    pub(crate) fn num_ids(&self) -> usize {
        // Names are turned into ids of this vocabulary.
        self.vocab_size.max(self.stands_for.unwrap_or(0))
    }

    /// Width of the logits.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// Tokens with an entry in the vocabulary; ids from here to `vocab_size` are padding.
    pub fn num_tokens(&self) -> usize {
        self.ends.len()
    }

    /// What a token writes; empty for ids that are never allowed, padding and beyond included.
    pub fn token_bytes(&self, token_id: u32) -> &[u8] {
        let token = token_id as usize;
        let Some(&end) = self.ends.get(token) else {
            return &[];
        };
        let start = match token.checked_sub(1) {
            Some(previous) => self.ends[previous],
            None => 0,
        };
        &self.bytes[start as usize..end as usize]
    }

    /// All tokens with an entry, in order of their ids.
    pub fn tokens(&self) -> impl Iterator<Item = (u32, &[u8])> {
        (0..self.ends.len() as u32).map(|token_id| (token_id, self.token_bytes(token_id)))
    }

    /// Tokens that end the text, ascending, each once.
    pub fn stop_token_ids(&self) -> &[u32] {
        &self.stop_token_ids
    }

    /// Control tokens, ascending, each once.
    pub fn special_token_ids(&self) -> &[u32] {
        &self.special_token_ids
    }

    /// Whether a token ends the text.
    pub fn is_stop_token(&self, token_id: u32) -> bool {
        self.stop_token_ids.binary_search(&token_id).is_ok()
    }

    /// Whether a token is a control token, which is never text.
    pub fn is_special_token(&self, token_id: u32) -> bool {
        self.special_token_ids.binary_search(&token_id).is_ok()
    }

    /// Gives everything that makes the vocabulary to a hash.
    pub(crate) fn hash_into(&self, mut update: impl FnMut(&[u8])) {
        let ids = [&self.ends, &self.stop_token_ids, &self.special_token_ids];
        update(&(self.vocab_size as u64).to_le_bytes());
        for list in ids {
            let bytes: Vec<u8> = list.iter().flat_map(|id| id.to_le_bytes()).collect();
            update(&(list.len() as u64).to_le_bytes());
            update(&bytes);
        }
        update(&self.bytes);
    }

    /// Bytes of memory that this holds.
    pub fn memory_bytes(&self) -> usize {
        let ids = self.ends.len() + self.stop_token_ids.len() + self.special_token_ids.len();
        self.bytes.len() + ids * size_of::<u32>()
    }
}

/// `ids` ascending without repetition, all below `vocab_size`.
fn sorted_ids(
    field: &'static str,
    ids: &[u32],
    vocab_size: usize,
) -> Result<Vec<u32>, TokenizerInfoError> {
    if let Some(&token_id) = ids.iter().find(|&&id| id as usize >= vocab_size) {
        return Err(TokenizerInfoError::TokenIdOutOfRange {
            field,
            token_id,
            vocab_size,
        });
    }
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn vocab(tokens: &[&str]) -> Vec<Vec<u8>> {
        tokens.iter().map(|t| t.as_bytes().to_vec()).collect()
    }

    #[test]
    fn accessors_give_back_what_was_given() {
        let info =
            TokenizerInfo::new(&vocab(&["a", "", "bcd", "<eos>"]), 6, &[5, 3, 3], &[3, 1]).unwrap();
        assert_eq!(info.vocab_size(), 6);
        assert_eq!(info.num_tokens(), 4);
        assert_eq!(info.token_bytes(0), b"a");
        assert_eq!(info.token_bytes(1), b"");
        assert_eq!(info.token_bytes(2), b"bcd");
        assert_eq!(info.token_bytes(3), b"<eos>");
        assert_eq!(info.token_bytes(4), b"");
        assert_eq!(info.token_bytes(u32::MAX), b"");
        assert_eq!(info.stop_token_ids(), [3, 5]);
        assert_eq!(info.special_token_ids(), [1, 3]);
        assert!(info.is_stop_token(5) && !info.is_stop_token(1));
        assert!(info.is_special_token(1) && !info.is_special_token(5));
        assert_eq!(info.memory_bytes(), 9 + 8 * 4);
    }

    #[test]
    fn each_wrong_argument_is_named() {
        let tokens = vocab(&["a", "b"]);
        let error = |vocab: &[Vec<u8>], size, stop: &[u32], special: &[u32]| {
            TokenizerInfo::new(vocab, size, stop, special)
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            error(&[], 2, &[0], &[]),
            "vocab is empty: it needs at least one token"
        );
        assert_eq!(
            error(&tokens, 1, &[0], &[]),
            "vocab_size is 1 but vocab has 2 tokens: vocab_size is the width of the logits \
             and must be at least the number of tokens"
        );
        assert_eq!(
            error(&tokens, 1 << 32, &[0], &[]),
            "vocab_size is 4294967296: token ids are 32 bits, so at most 4294967295 is possible"
        );
        assert_eq!(
            error(&tokens, 2, &[], &[]),
            "stop_token_ids is empty: name at least one token that ends the text"
        );
        assert_eq!(
            error(&tokens, 2, &[2], &[]),
            "stop_token_ids holds 2, but vocab_size is 2: ids go from 0 to 1"
        );
        assert_eq!(
            error(&tokens, 3, &[2], &[0, 9]),
            "special_token_ids holds 9, but vocab_size is 3: ids go from 0 to 2"
        );
    }

    proptest! {
        #[test]
        fn tokens_come_back_in_order(
            vocab in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..6), 1..40),
            padding in 0_usize..40,
        ) {
            let info = TokenizerInfo::new(&vocab, vocab.len() + padding, &[0], &[]).unwrap();
            let back: Vec<Vec<u8>> = info.tokens().map(|(_, bytes)| bytes.to_vec()).collect();
            prop_assert_eq!(&back, &vocab);
            for token_id in 0..(vocab.len() + padding) as u32 {
                let expected = vocab.get(token_id as usize).map_or(&[][..], Vec::as_slice);
                prop_assert_eq!(info.token_bytes(token_id), expected);
            }
        }
    }
}
