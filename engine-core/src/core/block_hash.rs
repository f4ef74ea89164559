//! The hash chain that names full blocks: equal names, equal tokens from the start on.

use std::num::NonZeroUsize;
use std::sync::{Arc, LazyLock};

use crate::shared_prefix::SharedPrefix;

/// Name of a full block: a hash of its tokens and of everything before them.
///
/// 256 bits of BLAKE3, so that no caller can make two prefixes collide and read the keys and
/// values of another's prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockHash([u8; 32]);

/// What stands before the first block. Fixed, so that equal prompts have equal hashes in every
/// process.
static NONE_HASH: LazyLock<BlockHash> =
    LazyLock::new(|| BlockHash(*blake3::hash(b"formwork none hash").as_bytes()));

/// Hashes the full blocks of a request.
///
/// `Copy` and without state: each request carries one, the input thread hashes its prompt and
/// the scheduler its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHasher {
    /// Tokens per block; `None` where prefix caching is off and nothing needs a hash.
    block_size: Option<NonZeroUsize>,
}

impl BlockHasher {
    /// Hashes blocks of `block_size` tokens.
    pub fn new(block_size: NonZeroUsize) -> Self {
        Self {
            block_size: Some(block_size),
        }
    }

    /// Hashes nothing: prefix caching is off.
    pub fn disabled() -> Self {
        Self { block_size: None }
    }

    /// Appends to `hashes` the hash of every full block of `token_ids` that has none yet.
    ///
    /// `H_i = hash(H_{i-1}, tokens_i, cache_salt where i = 0)`, with `NONE_HASH` before the first.
    /// Costs one BLAKE3 call over 4 * `block_size` bytes per new full block.
    pub(crate) fn hash_new_full_blocks(
        &self,
        token_ids: &[u32],
        cache_salt: Option<&str>,
        hashes: &mut SharedPrefix<BlockHash>,
    ) {
        let Some(block_size) = self.block_size else {
            return;
        };
        let block_size = block_size.get();
        let unhashed = token_ids.get(hashes.len() * block_size..).unwrap_or(&[]);
        for tokens in unhashed.chunks_exact(block_size) {
            let salt = if hashes.is_empty() { cache_salt } else { None };
            let parent = hashes.last().copied().unwrap_or(*NONE_HASH);
            hashes.extend([hash_block(parent, tokens, salt)]);
        }
    }

    /// The hashes of all full blocks of `token_ids`.
    pub fn hash_full_blocks(&self, token_ids: &[u32], cache_salt: Option<&str>) -> Vec<BlockHash> {
        let mut hashes = SharedPrefix::new(Arc::new([]));
        self.hash_new_full_blocks(token_ids, cache_salt, &mut hashes);
        hashes.to_vec()
    }
}

/// The hash of one block. The tokens have a fixed length, so what follows them is the salt and
/// nothing else; a marker tells an empty salt from none.
fn hash_block(parent: BlockHash, token_ids: &[u32], cache_salt: Option<&str>) -> BlockHash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&parent.0);
    for token_id in token_ids {
        hasher.update(&token_id.to_le_bytes());
    }
    if let Some(salt) = cache_salt {
        hasher.update(b"salt");
        hasher.update(salt.as_bytes());
    }
    BlockHash(*hasher.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(token_ids: &[u32], salt: Option<&str>) -> Vec<BlockHash> {
        BlockHasher::new(NonZeroUsize::new(4).unwrap()).hash_full_blocks(token_ids, salt)
    }

    #[test]
    fn only_full_blocks_have_a_hash() {
        assert_eq!(hashes(&[1, 2, 3], None).len(), 0);
        assert_eq!(hashes(&[1, 2, 3, 4], None).len(), 1);
        assert_eq!(hashes(&[1, 2, 3, 4, 5, 6, 7], None).len(), 1);
        assert_eq!(hashes(&[1, 2, 3, 4, 5, 6, 7, 8], None).len(), 2);
    }

    #[test]
    fn a_hash_depends_on_its_tokens_and_on_all_before() {
        let base = hashes(&[1, 2, 3, 4, 5, 6, 7, 8], None);
        assert_eq!(base, hashes(&[1, 2, 3, 4, 5, 6, 7, 8, 9], None)[..2]);
        let other_end = hashes(&[1, 2, 3, 4, 5, 6, 7, 9], None);
        assert_eq!(base[0], other_end[0]);
        assert_ne!(base[1], other_end[1]);
        let other_start = hashes(&[0, 2, 3, 4, 5, 6, 7, 8], None);
        assert_ne!(base[0], other_start[0]);
        assert_ne!(base[1], other_start[1]);
        // The same four tokens, first and second: a different place, a different name.
        let twice = hashes(&[1, 2, 3, 4, 1, 2, 3, 4], None);
        assert_ne!(twice[0], twice[1]);
    }

    #[test]
    fn a_salt_changes_the_whole_chain() {
        let tokens = [1, 2, 3, 4, 5, 6, 7, 8];
        let (none, empty) = (hashes(&tokens, None), hashes(&tokens, Some("")));
        let (a, b) = (hashes(&tokens, Some("a")), hashes(&tokens, Some("b")));
        for block in 0..2 {
            let all = [none[block], empty[block], a[block], b[block]];
            for (index, left) in all.iter().enumerate() {
                assert!(all[index + 1..].iter().all(|right| left != right));
            }
        }
        assert_eq!(a, hashes(&tokens, Some("a")));
    }

    #[test]
    fn hashing_piece_by_piece_is_hashing_at_once() {
        let tokens: Vec<u32> = (0..30).collect();
        let hasher = BlockHasher::new(NonZeroUsize::new(4).unwrap());
        let mut piecewise = SharedPrefix::new(Arc::new([]));
        for end in 0..=tokens.len() {
            hasher.hash_new_full_blocks(&tokens[..end], Some("s"), &mut piecewise);
        }
        assert_eq!(*piecewise, hashes(&tokens, Some("s")));
    }

    #[test]
    fn a_disabled_hasher_hashes_nothing() {
        let hashes = BlockHasher::disabled().hash_full_blocks(&[1; 100], None);
        assert_eq!(hashes, []);
    }
}
