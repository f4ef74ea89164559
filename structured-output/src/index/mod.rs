//! Layer 0: the vocabulary as tries, built once per tokenizer.
//!
//! A mask asks for each token whether the automaton survives its bytes. Tokens with a common
//! beginning share the answer for it, hence a trie. And where the automaton doesn't tell two bytes
//! apart (say, letters within a JSON string), tokens that differ in them share the answer too,
//! hence a trie over *byte classes*, in which all such tokens are one word: for Llama 3's
//! vocabulary 7,000 nodes in place of 275,000.
//!
//! Which classes a grammar needs is not known in advance, so there are a few alphabets, from coarse
//! to fine, and a walk uses the coarsest that keeps apart what its states keep apart. After a
//! backslash the language of JSON strings keeps almost every byte apart, and so do a few others
//! ([`TURNING_BYTES`]), so tokens with such a byte have a trie of bytes of their own: the coarse tries
//! are of the others.

mod alphabet;
mod cached;
mod trie;

use std::path::Path;
use std::sync::Arc;

use crate::TokenizerInfo;
use crate::lexical::{ByteSet, TURNING_BYTES};
use cached::CacheFile;

pub(crate) use trie::{ROOT, Trie};

/// Everything that is computed from the vocabulary alone. Immutable.
pub(crate) struct TokenizerIndex {
    info: Arc<TokenizerInfo>,
    /// From the coarsest alphabet to the finest.
    coarse: Vec<Coarse>,
    /// All text tokens, by their bytes.
    bytes: Trie,
    /// Of each token in the order of `bytes`, how many characters it begins.
    num_chars: Box<[u16]>,
    /// Text tokens with one of [`TURNING_BYTES`], by their bytes.
    escapes: Trie,
    /// Bit per id: tokens that are text. Stop tokens, control tokens, tokens without bytes and
    /// padding are not.
    text_tokens: Box<[u32]>,
    num_text_tokens: usize,
    /// The bytes that are tokens by themselves.
    single_bytes: ByteSet,
    /// Length of the longest text token, in bytes.
    max_token_bytes: u32,
    /// Texts of tokens that are never text, in their order.
    control_texts: Arc<[Box<str>]>,
}

/// A coarse alphabet, and the text tokens without any of [`TURNING_BYTES`] as words over it.
pub(crate) struct Coarse {
    classes: Vec<ByteSet>,
    trie: Trie,
    /// A byte of each class.
    representatives: Vec<u8>,
}

impl Coarse {
    /// An alphabet with the trie that `make` makes of its classes.
    fn new(classes: Vec<ByteSet>, make: impl FnOnce(&[u8; 256]) -> Trie) -> Self {
        let mut class_of = [0_u8; 256];
        for (class, bytes) in (0..=255).zip(&classes) {
            for byte in bytes.iter() {
                class_of[usize::from(byte)] = class;
            }
        }
        Self {
            trie: make(&class_of),
            representatives: classes.iter().filter_map(|c| c.iter().next()).collect(),
            classes,
        }
    }

    /// The tokens, by their classes.
    pub(crate) fn trie(&self) -> &Trie {
        &self.trie
    }

    /// A byte of each class, by the trie's labels.
    pub(crate) fn representatives(&self) -> &[u8] {
        &self.representatives
    }
}

impl TokenizerIndex {
    /// Indexes a vocabulary. Time: a sort of the tokens per alphabet, unless the tries are read from
    /// a file in `cache`, a folder; they are written there where they aren't yet. A folder that
    /// can't be read or written is as good as none.
    pub(crate) fn new(info: Arc<TokenizerInfo>, cache: Option<&Path>) -> Self {
        let is_text = |id: u32, bytes: &[u8]| {
            !bytes.is_empty() && !info.is_special_token(id) && !info.is_stop_token(id)
        };
        let tokens: Vec<(u32, &[u8])> = info
            .tokens()
            .filter(|&(id, bytes)| is_text(id, bytes))
            .collect();
        let mut text_tokens = vec![0; crate::bitmask_words(info.vocab_size())].into_boxed_slice();
        let mut single_bytes = ByteSet::EMPTY;
        let mut max_token_bytes = 0;
        for &(id, bytes) in &tokens {
            text_tokens[id as usize / 32] |= 1 << (id % 32);
            if let &[byte] = bytes {
                single_bytes.insert(byte);
            }
            max_token_bytes = max_token_bytes.max(bytes.len() as u32);
        }
        let alphabets = alphabet::coarse_alphabets();
        let file = cache.map(|folder| CacheFile::new(folder, &info));
        let known = file
            .as_ref()
            .and_then(|file| file.read(alphabets.len() + 2, info.vocab_size()));
        let is_known = known.is_some();
        // In the order of `tries`.
        let mut known = known.unwrap_or_default().into_iter();
        let escaped = |bytes: &[u8]| bytes.iter().any(|byte| TURNING_BYTES.contains(byte));
        let select = |with: bool| tokens.iter().copied().filter(move |t| escaped(t.1) == with);
        let coarse = alphabets.into_iter().map(|classes| {
            Coarse::new(classes, |class_of| {
                let make = || Trie::new(select(false), |byte| class_of[usize::from(byte)]);
                known.next().unwrap_or_else(make)
            })
        });
        let coarse = coarse.collect();
        let of_bytes = || Trie::of_bytes(tokens.iter().copied());
        let mut index = Self {
            coarse,
            bytes: known.next().unwrap_or_else(of_bytes),
            escapes: known.next().unwrap_or_else(|| Trie::of_bytes(select(true))),
            num_chars: Box::default(),
            text_tokens,
            num_text_tokens: tokens.len(),
            single_bytes,
            max_token_bytes,
            control_texts: control_texts(&info),
            info: Arc::clone(&info),
        };
        if let Some(file) = file.filter(|_| !is_known) {
            // The next start builds them again.
            let _ = file.write(index.tries());
        }
        index.bytes.find_labels_below();
        let ids = index.bytes.tokens().iter();
        index.num_chars = ids.map(|&id| num_chars(info.token_bytes(id))).collect();
        index
    }

    /// All tries, in the order in which they are kept in a file.
    fn tries(&self) -> impl Iterator<Item = &Trie> {
        let coarse = self.coarse.iter().map(Coarse::trie);
        coarse.chain([&self.bytes, &self.escapes])
    }

    /// The vocabulary.
    pub(crate) fn info(&self) -> &Arc<TokenizerInfo> {
        &self.info
    }

    /// The classes of each coarse alphabet, from the coarsest on.
    pub(crate) fn alphabets(&self) -> Vec<Vec<ByteSet>> {
        self.coarse.iter().map(|c| c.classes.clone()).collect()
    }

    /// The coarse alphabets with their tries, from the coarsest on.
    pub(crate) fn coarse(&self) -> &[Coarse] {
        &self.coarse
    }

    /// All text tokens, by their bytes.
    pub(crate) fn byte_trie(&self) -> &Trie {
        &self.bytes
    }

    /// Of each token in the order of the trie of bytes, how many characters of UTF-8 it begins.
    pub(crate) fn num_chars(&self) -> &[u16] {
        &self.num_chars
    }

    /// The bytes of a token at or below a node of the trie of bytes.
    pub(crate) fn text_below(&self, node: u32) -> &[u8] {
        let token = self.bytes.ids(self.bytes.below(node)).first();
        token.map_or(&[], |&token| self.info.token_bytes(token))
    }

    /// The text tokens that the coarse tries leave out, by their bytes.
    pub(crate) fn escape_trie(&self) -> &Trie {
        &self.escapes
    }

    /// Bit per id: tokens that are text.
    pub(crate) fn text_tokens(&self) -> &[u32] {
        &self.text_tokens
    }

    /// How many tokens are text.
    pub(crate) fn num_text_tokens(&self) -> usize {
        self.num_text_tokens
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

    /// The texts of several characters of tokens that are never text, in their order and each once.
    pub(crate) fn control_texts(&self) -> &Arc<[Box<str>]> {
        &self.control_texts
    }

    /// Whether every byte that occurs in UTF-8 is a token: then any text can be written by tokens,
    /// and what can be completed by bytes can be completed by tokens.
    pub(crate) fn writes_any_text(&self) -> bool {
        let in_utf8 = |byte: u8| !matches!(byte, 0xc0 | 0xc1 | 0xf5..=0xff);
        (0..=255).all(|byte| !in_utf8(byte) || self.single_bytes.contains(byte))
    }

    /// The bytes that are tokens by themselves, if no token has others in it: then what can be
    /// completed by these bytes can be completed by tokens.
    pub(crate) fn closed_bytes(&self) -> Option<ByteSet> {
        let single = self.single_bytes;
        let mut texts = self.byte_trie().tokens().iter();
        let is_closed = texts.all(|&token| {
            let bytes = self.info.token_bytes(token);
            bytes.iter().all(|&byte| single.contains(byte))
        });
        is_closed.then_some(single)
    }

    /// The bytes that occur in tokens.
    pub(crate) fn written_bytes(&self) -> ByteSet {
        let mut written = ByteSet::EMPTY;
        for &token in self.byte_trie().tokens() {
            for &byte in self.info.token_bytes(token) {
                written.insert(byte);
            }
        }
        written
    }

    /// Bytes of memory held, the vocabulary included.
    pub(crate) fn memory_bytes(&self) -> usize {
        let tries: usize = self.tries().map(Trie::memory_bytes).sum();
        tries
            + size_of_val(&*self.num_chars)
            + size_of_val(&*self.text_tokens)
            + size_of::<Self>()
            + size_of_val(&*self.control_texts)
            + self
                .control_texts
                .iter()
                .map(|text| text.len())
                .sum::<usize>()
            + self.info.memory_bytes()
    }
}

/// See [`TokenizerIndex::control_texts`].
fn control_texts(info: &TokenizerInfo) -> Arc<[Box<str>]> {
    let ids = info.special_token_ids().iter().chain(info.stop_token_ids());
    let texts = ids.filter_map(|&id| std::str::from_utf8(info.token_bytes(id)).ok());
    let texts = texts.filter(|text| text.chars().count() > 1);
    let mut texts: Vec<Box<str>> = texts.map(Into::into).collect();
    texts.sort_unstable();
    texts.dedup();
    texts.into()
}

/// How many characters of UTF-8 some bytes begin.
pub(crate) fn num_chars(bytes: &[u8]) -> u16 {
    let firsts = bytes.iter().filter(|&&byte| byte & 0xc0 != 0x80);
    u16::try_from(firsts.count()).unwrap_or(u16::MAX)
}
