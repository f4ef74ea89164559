//! The noise of sampling: a pure function of (seed, output index, token id).
//!
//! A counter-based generator has no state to advance. A draw that is skipped, a token that is
//! masked, a request that is batched with others or replayed after a crash: none of them changes
//! the noise of any other token.
//!
//! Generator: Philox-4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as
//! 1, 2, 3", SC 2011). The seed is its key; counter and output word name the token.

use super::math;

/// Tokens whose noise is made at once, and the grain of everything that walks a row.
pub(super) const BLOCK: usize = 64;

/// Counters per block: each gives four words.
const LANES: usize = BLOCK / 4;

/// No Gumbel value of [`Noise::gumbel`] is above this: `-ln(2^-65)`, rounded up.
pub(super) const GUMBEL_MAX: f64 = 45.06;

/// The noise of one position of one request's output.
#[derive(Debug, Clone, Copy)]
pub struct Noise {
    key: [u32; 2],
    index: [u32; 2],
}

/// Which half of a token's 64 random bits; the fourth counter word.
#[derive(Clone, Copy)]
enum Half {
    High = 0,
    Low = 1,
}

impl Noise {
    /// Noise for the output token number `index` (0 is the first generated one) under `seed`.
    pub fn new(seed: u64, index: u64) -> Self {
        Self {
            key: split(seed),
            index: split(index),
        }
    }

    /// A standard Gumbel variate for `token_id`: location 0, scale 1, within `-3.82..=45.06`.
    ///
    /// From 64 random bits as `-ln(-ln(1 - v))`, `v` the centre of one of 2^64 equal parts of
    /// `0..1`. The largest values have the finest grid: they decide who wins.
    pub fn gumbel(&self, token_id: u32) -> f64 {
        let bits = u64::from(self.word(token_id, Half::High)) << 32
            | u64::from(self.word(token_id, Half::Low));
        gumbel_of_bits(bits)
    }

    /// The upper half of the random bits of the tokens `block * 64 ..`, in order.
    ///
    /// A large Gumbel value needs a small upper half (see [`gumbel_of_bits`]), so most tokens
    /// are ruled out by these words before any logarithm.
    #[inline]
    pub(super) fn high_words(&self, block: u32) -> [u32; BLOCK] {
        let first = block * LANES as u32;
        let counters = [
            std::array::from_fn(|lane| first + lane as u32),
            [self.index[0]; LANES],
            [self.index[1]; LANES],
            [Half::High as u32; LANES],
        ];
        let words = philox(counters, self.key);
        let mut out = [0; BLOCK];
        for (chunk, word) in out.chunks_exact_mut(LANES).zip(&words) {
            chunk.copy_from_slice(word);
        }
        out
    }

    /// One word: token `b * 64 + w * 16 + l` is word `w` of counter `b * 16 + l`, the order in
    /// which a whole block comes out of [`philox`].
    fn word(&self, token_id: u32, half: Half) -> u32 {
        let (block, lane) = (token_id / BLOCK as u32, token_id % LANES as u32);
        let word = (token_id % BLOCK as u32) as usize / LANES;
        let counter = block * LANES as u32 + lane;
        let words = philox(
            [[counter], [self.index[0]], [self.index[1]], [half as u32]],
            self.key,
        );
        words[word][0]
    }
}

/// The Gumbel variate of 64 random bits; falling in `bits`.
fn gumbel_of_bits(bits: u64) -> f64 {
    const TWO_TO_MINUS_64: f64 = 1.0 / 18_446_744_073_709_551_616.0;
    let exponential = if bits < 1 << 63 {
        math::neg_ln_one_minus((bits as f64 + 0.5) * TWO_TO_MINUS_64)
    } else {
        // 1 - v from the complement of the bits: exact where v is near 1.
        -math::ln((!bits as f64 + 0.5) * TWO_TO_MINUS_64)
    };
    -math::ln(exponential)
}

/// Lower word first.
fn split(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

/// Philox-4x32-10 on `N` counters side by side; `counters[w][lane]` is word `w` of a counter.
#[inline(always)]
fn philox<const N: usize>(mut counters: [[u32; N]; 4], mut key: [u32; 2]) -> [[u32; N]; 4] {
    const ROUNDS: usize = 10;
    const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
    const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    for _ in 0..ROUNDS {
        let [a, b, c, d] = &mut counters;
        for (((a, b), c), d) in a.iter_mut().zip(b).zip(c).zip(d) {
            let first = u64::from(MULTIPLIERS[0]) * u64::from(*a);
            let second = u64::from(MULTIPLIERS[1]) * u64::from(*c);
            *a = (second >> 32) as u32 ^ *b ^ key[0];
            *b = second as u32;
            *c = (first >> 32) as u32 ^ *d ^ key[1];
            *d = first as u32;
        }
        key[0] = key[0].wrapping_add(WEYL[0]);
        key[1] = key[1].wrapping_add(WEYL[1]);
    }
    counters
}
