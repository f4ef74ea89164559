//! The noise of sampling: a pure function of (seed, output index, token id).
//!
//! A counter-based generator has no state to advance. A draw that is skipped, a token that is
//! masked, a request that is batched with others or replayed after a crash: none of them changes
//! the noise of any other token.
//!
//! Generator: Philox-4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as
//! 1, 2, 3", SC 2011). The seed is its key, output index and token its counter.
//!
//! Every token gets an exponential variate. So that a search for the smallest can pass over 64
//! tokens by one number, they are made per block: the smallest of 64 variates of rate 1 has rate
//! 64, each token is equally likely to have it, and, an exponential having no memory, what the
//! others have beyond it is again of rate 1. The 64 are independent, as if drawn one by one.

use super::math;

/// Tokens that share a smallest variate, and the grain of everything that walks a row.
pub(super) const BLOCK: usize = 64;

/// Blocks whose random words are made side by side.
pub(super) const GROUP: usize = 16;

/// What the counter's last word says about the use of the output.
#[derive(Clone, Copy)]
enum Purpose {
    Token = 0,
    Block = 1,
}

/// The noise of one position of one request's output.
#[derive(Debug, Clone, Copy)]
pub struct Noise {
    key: [u32; 2],
    index: [u32; 2],
}

/// What the tokens of one block have in common.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct BlockNoise {
    /// The smallest variate of the block.
    pub(super) smallest: f64,
    /// The token that has it.
    owner: u32,
}

impl Noise {
    /// Noise for the output token number `index` (0 is the first generated one) under `seed`.
    pub fn new(seed: u64, index: u64) -> Self {
        Self {
            key: split(seed),
            index: split(index),
        }
    }

    /// An exponential variate of rate 1 for `token_id`, independent between tokens, indices and
    /// seeds; above 0, at most about 46.
    pub fn exponential(&self, token_id: u32) -> f64 {
        self.exponential_within(self.block(token_id / BLOCK as u32), token_id)
    }

    /// The same, for a token of this block.
    pub(super) fn exponential_within(&self, block: BlockNoise, token_id: u32) -> f64 {
        if token_id == block.owner {
            return block.smallest;
        }
        let [[low], [high], _, _] = self.words([token_id], Purpose::Token);
        block.smallest + exponential_of_bits(low, high)
    }

    /// What the tokens `block * 64 ..` have in common.
    pub(super) fn block(&self, block: u32) -> BlockNoise {
        let [[low], [high], [owner], _] = self.words([block], Purpose::Block);
        BlockNoise {
            smallest: exponential_of_bits(low, high) / BLOCK as f64,
            owner: block * BLOCK as u32 + owner % BLOCK as u32,
        }
    }

    /// A lower bound of the variates of each of the blocks `first_block ..`, without a logarithm.
    #[inline(always)]
    pub(super) fn lower_bounds(&self, first_block: u32) -> [f64; GROUP] {
        let blocks = std::array::from_fn(|lane| first_block + lane as u32);
        let [_, high, _, _] = self.words(blocks, Purpose::Block);
        // -ln(1 - v) >= v, and v is at least its upper 32 bits.
        high.map(|high| f64::from(high) * (TWO_TO_MINUS_32 / BLOCK as f64))
    }

    /// A lower bound of the variates of each of the tokens `first_id ..` of this block, likewise.
    #[inline(always)]
    pub(super) fn lower_bounds_within(&self, block: BlockNoise, first_id: u32) -> [f64; GROUP] {
        let token_ids: [u32; GROUP] = std::array::from_fn(|lane| first_id + lane as u32);
        let [_, high, _, _] = self.words(token_ids, Purpose::Token);
        std::array::from_fn(|lane| {
            let beyond = f64::from(high[lane]) * TWO_TO_MINUS_32;
            if token_ids[lane] == block.owner {
                block.smallest
            } else {
                block.smallest + beyond
            }
        })
    }

    #[inline(always)]
    fn words<const N: usize>(&self, numbers: [u32; N], purpose: Purpose) -> [[u32; N]; 4] {
        philox(
            [
                numbers,
                [self.index[0]; N],
                [self.index[1]; N],
                [purpose as u32; N],
            ],
            self.key,
        )
    }
}

const TWO_TO_MINUS_32: f64 = 1.0 / 4_294_967_296.0;
const TWO_TO_MINUS_64: f64 = TWO_TO_MINUS_32 * TWO_TO_MINUS_32;

/// The exponential variate of 64 random bits, rising in them: `-ln(1 - v)`, `v` the centre of one
/// of 2^64 equal parts of `0..1`. Small variates have the finest grid: they decide who wins.
fn exponential_of_bits(low: u32, high: u32) -> f64 {
    let bits = u64::from(high) << 32 | u64::from(low);
    if bits < 1 << 63 {
        math::neg_ln_one_minus((bits as f64 + 0.5) * TWO_TO_MINUS_64)
    } else {
        // 1 - v from the complement of the bits: exact where v is near 1.
        -math::ln((!bits as f64 + 0.5) * TWO_TO_MINUS_64)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The generator's published test vectors (Random123, `kat_vectors`).
    #[test]
    fn philox_is_the_published_one() {
        let cases = [
            (
                [0; 4],
                [0; 2],
                [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8],
            ),
            (
                [u32::MAX; 4],
                [u32::MAX; 2],
                [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd],
            ),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, words) in cases {
            assert_eq!(
                philox(counter.map(|word| [word]), key),
                words.map(|word| [word])
            );
        }
    }

    #[test]
    fn exponentials_are_the_quantiles_of_their_bits() {
        let ln_2 = std::f64::consts::LN_2;
        assert!((exponential_of_bits(0, 1 << 31) - ln_2).abs() < 1e-15);
        assert!((exponential_of_bits(u32::MAX, (1 << 31) - 1) - ln_2).abs() < 1e-15);
        assert_eq!(exponential_of_bits(0, 0), TWO_TO_MINUS_64 / 2.0);
        let largest = exponential_of_bits(u32::MAX, u32::MAX);
        assert!((largest - 65.0 * ln_2).abs() < 1e-13, "{largest}");
    }
}
