//! Layer 0: the vocabulary as tries, built once per tokenizer.
//!
//! A mask asks for each token whether the automaton survives its bytes. Tokens with a common
//! beginning share the answer for it, hence a trie. And where the automaton doesn't tell two bytes
//! apart (say, letters within a JSON string), tokens that differ in them share the answer too,
//! hence a trie over *byte classes*, in which all such tokens are one word: for Llama 3's
//! vocabulary some 10,000 nodes in place of 275,000.
//!
//! Which classes a grammar needs is not known in advance, so there are a few alphabets, from coarse
//! to fine, and a state uses the coarsest that keeps apart what its expression keeps apart.

mod alphabet;
mod trie;

use std::sync::Arc;

use crate::TokenizerInfo;
use crate::lexical::ByteSet;

pub(crate) use trie::Trie;

/// Everything that is computed from the vocabulary alone. Immutable.
pub(crate) struct TokenizerIndex {
    info: Arc<TokenizerInfo>,
    /// From the coarsest alphabet to the finest, which is that of single bytes.
    tries: Vec<Trie>,
    /// Bit per id: tokens that are text. Stop tokens, control tokens, tokens without bytes and
    /// padding are not.
    text_tokens: Box<[u32]>,
    /// Token of each single byte, for bytes that have one.
    byte_tokens: [Option<u32>; 256],
    /// Length of the longest text token, in bytes.
    max_token_bytes: u32,
}

impl TokenizerIndex {
    /// Indexes a vocabulary. Time: a sort of the tokens per alphabet.
    pub(crate) fn new(info: Arc<TokenizerInfo>) -> Self {
        let is_text = |id: u32, bytes: &[u8]| {
            !bytes.is_empty() && !info.is_special_token(id) && !info.is_stop_token(id)
        };
        let tokens: Vec<(u32, &[u8])> = info
            .tokens()
            .filter(|&(id, bytes)| is_text(id, bytes))
            .collect();
        let mut text_tokens = vec![0; crate::bitmask_words(info.vocab_size())].into_boxed_slice();
        let mut byte_tokens = [None; 256];
        let mut max_token_bytes = 0;
        for &(id, bytes) in &tokens {
            text_tokens[id as usize / 32] |= 1 << (id % 32);
            if let &[byte] = bytes {
                byte_tokens[usize::from(byte)].get_or_insert(id);
            }
            max_token_bytes = max_token_bytes.max(bytes.len() as u32);
        }
        let tries = alphabet::alphabets()
            .into_iter()
            .map(|classes| Trie::new(&tokens, classes))
            .collect();
        Self {
            tries,
            text_tokens,
            byte_tokens,
            max_token_bytes,
            info,
        }
    }

    /// The vocabulary.
    pub(crate) fn info(&self) -> &Arc<TokenizerInfo> {
        &self.info
    }

    /// The classes of each alphabet, in the order of the tries.
    pub(crate) fn alphabets(&self) -> Vec<Vec<ByteSet>> {
        self.tries.iter().map(|t| t.classes().to_vec()).collect()
    }

    /// The trie of an alphabet.
    pub(crate) fn trie(&self, alphabet: usize) -> &Trie {
        &self.tries[alphabet]
    }

    /// How many alphabets there are; the last is that of single bytes.
    pub(crate) fn num_alphabets(&self) -> usize {
        self.tries.len()
    }

    /// The trie of single bytes.
    pub(crate) fn byte_trie(&self) -> &Trie {
        &self.tries[self.tries.len() - 1]
    }

    /// Bit per id: tokens that are text.
    pub(crate) fn text_tokens(&self) -> &[u32] {
        &self.text_tokens
    }

    /// Whether a token is text.
    pub(crate) fn is_text_token(&self, id: u32) -> bool {
        let word = self.text_tokens.get(id as usize / 32);
        word.is_some_and(|word| word >> (id % 32) & 1 == 1)
    }

    /// Length of the longest text token, in bytes.
    pub(crate) fn max_token_bytes(&self) -> u32 {
        self.max_token_bytes
    }

    /// Whether every byte that occurs in UTF-8 is a token: then any text can be written by tokens,
    /// and what can be completed by bytes can be completed by tokens.
    pub(crate) fn writes_any_text(&self) -> bool {
        let in_utf8 = |byte: u8| !matches!(byte, 0xc0 | 0xc1 | 0xf5..=0xff);
        (0..=255).all(|byte| !in_utf8(byte) || self.byte_tokens[usize::from(byte)].is_some())
    }

    /// The bytes that are tokens by themselves, if no token has others in it: then what can be
    /// completed by these bytes can be completed by tokens.
    pub(crate) fn closed_bytes(&self) -> Option<ByteSet> {
        let single = (0..=255).filter(|&byte: &u8| self.byte_tokens[usize::from(byte)].is_some());
        let single: ByteSet = single.collect();
        let mut texts = self.byte_trie().tokens().iter();
        let is_closed = texts.all(|&token| {
            let bytes = self.info.token_bytes(token);
            bytes.iter().all(|&byte| single.contains(byte))
        });
        is_closed.then_some(single)
    }

    /// Bytes of memory held, the vocabulary included.
    pub(crate) fn memory_bytes(&self) -> usize {
        let tries: usize = self.tries.iter().map(Trie::memory_bytes).sum();
        tries + size_of_val(&*self.text_tokens) + size_of::<Self>() + self.info.memory_bytes()
    }
}
