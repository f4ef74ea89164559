//! The hash chain that names full blocks: equal names, equal tokens from the start on.

use std::num::NonZeroUsize;
use std::sync::Arc;

use protocol::PrefixCachingHashAlgo;

use crate::shared_prefix::SharedPrefix;

/// Name of a full block: a hash of its tokens and of everything before them.
///
/// 256 bits, so that no caller can make two prefixes collide and read the keys and values of another's
/// prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockHash([u8; 32]);

impl BlockHash {
    /// The name outside of this process: the last 64 bits, as vLLM's `ExternalBlockHash` is by default.
    pub fn external(self) -> u64 {
        let [.., a, b, c, d, e, f, g, h] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

/// How blocks are hashed, and what stands before the first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHashFunction {
    algorithm: Algorithm,
    none_hash: BlockHash,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Algorithm {
    Blake3,
    Sha256Cbor,
}

impl BlockHashFunction {
    /// The function that a configuration names. Equal configurations give equal names in every process.
    pub fn new(algo: &PrefixCachingHashAlgo) -> Self {
        let (algorithm, none_hash) = match algo {
            PrefixCachingHashAlgo::Blake3 => (
                Algorithm::Blake3,
                BlockHash(*blake3::hash(b"formwork none hash").as_bytes()),
            ),
            PrefixCachingHashAlgo::Sha256Cbor { seed } => {
                let mut cbor = Vec::new();
                put_text(&mut cbor, seed);
                (Algorithm::Sha256Cbor, sha256(&cbor))
            }
        };
        Self {
            algorithm,
            none_hash,
        }
    }

    /// The hash of one block behind `parent`.
    fn hash_block(
        &self,
        parent: BlockHash,
        token_ids: &[u32],
        cache_salt: Option<&str>,
    ) -> BlockHash {
        match self.algorithm {
            Algorithm::Blake3 => blake3_of_block(parent, token_ids, cache_salt),
            Algorithm::Sha256Cbor => sha256_cbor_of_block(parent, token_ids, cache_salt),
        }
    }
}

/// BLAKE3.
impl Default for BlockHashFunction {
    fn default() -> Self {
        Self::new(&PrefixCachingHashAlgo::Blake3)
    }
}

/// Hashes the full blocks of a request.
///
/// `Copy` and without state: each request carries one, the input thread hashes its prompt and
/// the scheduler its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHasher {
    /// Tokens per block; `None` where prefix caching is off and nothing needs a hash.
    block_size: Option<NonZeroUsize>,
    function: BlockHashFunction,
}

impl BlockHasher {
    /// Hashes blocks of `block_size` tokens.
    pub fn new(block_size: NonZeroUsize) -> Self {
        Self {
            block_size: Some(block_size),
            function: BlockHashFunction::default(),
        }
    }

    /// Hashes nothing: prefix caching is off.
    pub fn disabled() -> Self {
        Self {
            block_size: None,
            function: BlockHashFunction::default(),
        }
    }

    /// Replaces the hash function; the block size stays.
    pub fn with_function(self, function: BlockHashFunction) -> Self {
        Self { function, ..self }
    }

    /// Appends to `hashes` the hash of every full block of `token_ids` that has none yet.
    ///
    /// `H_i = hash(H_{i-1}, tokens_i, cache_salt where i = 0)`, with `NONE_HASH` before the first.
    /// By default it costs one BLAKE3 call over 4 * `block_size` bytes per new full block.
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
            let parent = hashes.last().copied().unwrap_or(self.function.none_hash);
            hashes.extend([self.function.hash_block(parent, tokens, salt)]);
        }
    }

    /// The hashes of all full blocks of `token_ids`.
    pub fn hash_full_blocks(&self, token_ids: &[u32], cache_salt: Option<&str>) -> Vec<BlockHash> {
        let mut hashes = SharedPrefix::new(Arc::new([]));
        self.hash_new_full_blocks(token_ids, cache_salt, &mut hashes);
        hashes.to_vec()
    }
}

/// The tokens have a fixed length, so what follows them is the salt and nothing else; a marker tells
/// an empty salt from none.
fn blake3_of_block(parent: BlockHash, token_ids: &[u32], cache_salt: Option<&str>) -> BlockHash {
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

/// SHA-256 of what vLLM hashes, the tuple `(parent, tokens, extra keys)`, as canonical CBOR (RFC 8949): the
/// extra keys are a tuple of the salt, or None.
fn sha256_cbor_of_block(
    parent: BlockHash,
    token_ids: &[u32],
    cache_salt: Option<&str>,
) -> BlockHash {
    // At most 5 bytes for a number.
    let mut cbor = Vec::with_capacity(64 + 5 * token_ids.len());
    put_head(&mut cbor, ARRAY, 3);
    put_head(&mut cbor, BYTES, parent.0.len() as u64);
    cbor.extend_from_slice(&parent.0);
    put_head(&mut cbor, ARRAY, token_ids.len() as u64);
    for &token_id in token_ids {
        put_head(&mut cbor, UNSIGNED, u64::from(token_id));
    }
    match cache_salt {
        Some(salt) => {
            put_head(&mut cbor, ARRAY, 1);
            put_text(&mut cbor, salt);
        }
        None => cbor.push(NULL),
    }
    sha256(&cbor)
}

fn sha256(bytes: &[u8]) -> BlockHash {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    let mut hash = [0; 32];
    hash.copy_from_slice(digest.as_ref());
    BlockHash(hash)
}

/// Major types of CBOR, in the three upper bits of an item's first byte.
const UNSIGNED: u8 = 0 << 5;
const BYTES: u8 = 2 << 5;
const TEXT: u8 = 3 << 5;
const ARRAY: u8 = 4 << 5;
const NULL: u8 = 0xf6;

fn put_text(cbor: &mut Vec<u8>, text: &str) {
    put_head(cbor, TEXT, text.len() as u64);
    cbor.extend_from_slice(text.as_bytes());
}

/// An item's type and its number or length, which is as short as it can be.
#[allow(clippy::cast_possible_truncation, reason = "each is in its range")]
fn put_head(cbor: &mut Vec<u8>, major: u8, value: u64) {
    match value {
        0..24 => cbor.push(major | value as u8),
        24..=0xff => cbor.extend([major | 24, value as u8]),
        0x100..=0xffff => {
            cbor.push(major | 25);
            cbor.extend((value as u16).to_be_bytes());
        }
        0x1_0000..=0xffff_ffff => {
            cbor.push(major | 26);
            cbor.extend((value as u32).to_be_bytes());
        }
        _ => {
            cbor.push(major | 27);
            cbor.extend(value.to_be_bytes());
        }
    }
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

    /// By Python's hashlib and cbor2 6.3, as vLLM makes them:
    ///
    /// ```text
    /// def sha256_cbor(value): return sha256(cbor2.dumps(value, canonical=True)).digest()
    /// parent = sha256_cbor(seed)
    /// parent = sha256_cbor((parent, tuple(block), (salt,) if salt and is_first else None))
    /// ```
    #[test]
    fn sha256_cbor_is_that_of_vllm() {
        // A number of every length.
        let widths = [0, 23, 24, 255, 256, 65_535, 65_536, u32::MAX];
        let three_hundred: Vec<u32> = (0..300).collect();
        let long_salt = "ä".repeat(64);
        // Seed, tokens, block size, salt, and the hashes in hexadecimal digits.
        type Case<'a> = (&'a str, &'a [u32], usize, Option<&'a str>, &'a [&'a str]);
        let cases: [Case<'_>; 5] = [
            (
                "0",
                &widths,
                4,
                None,
                &[
                    "ca90027d467f8ae0c02e71aa4eff29f116d1b74ca16446a60ab640f53e976f43",
                    "fabd8e12e7d8d54418d0a583d8a28c5d5739bff376f10eb24575cf52e0e0a83a",
                ],
            ),
            (
                "0",
                &widths,
                4,
                Some("team"),
                &[
                    "3a1b73408b7d2b3051ed590bc5f1b664572a52ec7d6157172a36ef11da3a2ae1",
                    "0d20f1aa47bb382d230b9d13ef799a4f3bd715beaad457e4fb142878bd066814",
                ],
            ),
            (
                "0",
                &widths,
                4,
                Some(&long_salt),
                &[
                    "facead159a3edf0ec71f8d0599ecba665e15cb74ba633768279fe3f966c23790",
                    "2f5bada00c5cf28951b37348ee0998d2c375b5dd0b09e4585c2ccab69d185588",
                ],
            ),
            (
                "a seed that is longer than 23 bytes",
                &widths,
                4,
                None,
                &[
                    "9d7a796b07cac95d2c89728163c4ee5340ed9d935c30bee9d776d0384f1a7b4d",
                    "d39ecfede0fd25376b5f80c843f111743cdc3e26ab4f16e7c293c9610a81dd8c",
                ],
            ),
            (
                "",
                &three_hundred,
                300,
                None,
                &["4f5d1c6f3722ea2e1eba501fdbbd02e655ebdc3aa7b270fafece519c8b7bfb26"],
            ),
        ];
        for (seed, tokens, block_size, salt, expected) in cases {
            let seed = seed.to_owned();
            let algo = PrefixCachingHashAlgo::Sha256Cbor { seed };
            let hasher = BlockHasher::new(NonZeroUsize::new(block_size).unwrap())
                .with_function(BlockHashFunction::new(&algo));
            let hashes = hasher.hash_full_blocks(tokens, salt);
            let hex = |hash: &BlockHash| hash.0.iter().map(|b| format!("{b:02x}")).collect();
            let hex: Vec<String> = hashes.iter().map(hex).collect();
            assert_eq!(hex, expected);
            // Python: int.from_bytes(hash, "big") & ((1 << 64) - 1).
            let last = u64::from_str_radix(&expected[0][48..], 16).unwrap();
            assert_eq!(hashes[0].external(), last);
        }
    }

    #[test]
    fn a_disabled_hasher_hashes_nothing() {
        let hashes = BlockHasher::disabled().hash_full_blocks(&[1; 100], None);
        assert_eq!(hashes, []);
    }
}
