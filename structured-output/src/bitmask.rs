//! The token bitmask: one row of `u32` words per sequence, bit 1 = allowed.
//!
//! Token `t` is bit `t % 32` of word `t / 32`, as XGrammar and vLLM lay it out.

/// Tokens per word of a bitmask.
pub const BITS_PER_WORD: usize = u32::BITS as usize;

/// Words of one bitmask row: `ceil(vocab_size / 32)`.
pub const fn bitmask_words(vocab_size: usize) -> usize {
    vocab_size.div_ceil(BITS_PER_WORD)
}

/// A bitmask `[batch, ceil(vocab_size / 32)]`, row after row, in which every token of the
/// vocabulary is allowed. The bits beyond `vocab_size` in each row's last word are 0.
///
/// # Panics
/// Where that many words don't fit the address space, as `Vec` does.
pub fn allocate_token_bitmask(batch: usize, vocab_size: usize) -> Vec<u32> {
    let words = bitmask_words(vocab_size);
    let mut bitmask = vec![u32::MAX; batch.saturating_mul(words)];
    let tail_bits = vocab_size % BITS_PER_WORD;
    if tail_bits != 0 {
        let tail_word = (1_u32 << tail_bits) - 1;
        for last in bitmask.iter_mut().skip(words - 1).step_by(words) {
            *last = tail_word;
        }
    }
    bitmask
}

/// Sets every logit whose bit is 0 to negative infinity, in one row.
///
/// `logits` is `[width]`, `bitmask` one row of words. Logits beyond the row's last bit are not
/// allowed either (a model's logits may be wider than its vocabulary); words beyond the last
/// logit are ignored. Allowed logits keep their value, NaN included.
///
/// Takes 32 logits per word: a word of all ones costs one comparison, a word of zeros one fill.
pub fn apply_token_bitmask_inplace(logits: &mut [f32], bitmask: &[u32]) {
    let masked = logits
        .len()
        .min(bitmask.len().saturating_mul(BITS_PER_WORD));
    let (inside, beyond) = logits.split_at_mut(masked);
    for (chunk, &word) in inside.chunks_mut(BITS_PER_WORD).zip(bitmask) {
        match word {
            u32::MAX => {}
            0 => chunk.fill(f32::NEG_INFINITY),
            _ => {
                // A select without a branch, which the compiler turns into vector code.
                for (bit, logit) in chunk.iter_mut().enumerate() {
                    let allowed = (word >> bit) & 1 == 1;
                    *logit = if allowed { *logit } else { f32::NEG_INFINITY };
                }
            }
        }
    }
    beyond.fill(f32::NEG_INFINITY);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_are_rounded_up() {
        assert_eq!(bitmask_words(0), 0);
        assert_eq!(bitmask_words(1), 1);
        assert_eq!(bitmask_words(32), 1);
        assert_eq!(bitmask_words(33), 2);
        assert_eq!(bitmask_words(128_256), 4008);
    }

    #[test]
    fn a_new_bitmask_allows_the_vocabulary_and_nothing_beyond() {
        assert_eq!(allocate_token_bitmask(0, 40), Vec::<u32>::new());
        assert_eq!(allocate_token_bitmask(3, 0), Vec::<u32>::new());
        assert_eq!(allocate_token_bitmask(2, 32), vec![u32::MAX; 2]);
        assert_eq!(
            allocate_token_bitmask(2, 40),
            vec![u32::MAX, 0xff, u32::MAX, 0xff]
        );
        assert_eq!(allocate_token_bitmask(3, 1), vec![1, 1, 1]);
    }

    #[test]
    fn only_allowed_logits_survive() {
        let mut logits: Vec<f32> = (0..70_u8).map(f32::from).collect();
        apply_token_bitmask_inplace(&mut logits, &[u32::MAX, 0b101]);
        let survivors: Vec<usize> = (0..70).filter(|&t| logits[t].is_finite()).collect();
        let expected: Vec<usize> = (0..32).chain([32, 34]).collect();
        assert_eq!(survivors, expected);
        assert!(survivors.iter().all(|&t| logits[t] == t as f32));
    }

    #[test]
    fn an_empty_bitmask_allows_nothing() {
        let mut logits = [1.0_f32, f32::INFINITY, f32::NAN];
        apply_token_bitmask_inplace(&mut logits, &[]);
        assert_eq!(logits, [f32::NEG_INFINITY; 3]);
    }

    #[test]
    fn an_allowed_nan_stays() {
        let mut logits = [f32::NAN, f32::NAN];
        apply_token_bitmask_inplace(&mut logits, &[0b01]);
        assert!(logits[0].is_nan());
        assert_eq!(logits[1], f32::NEG_INFINITY);
    }

    /// Words of each kind that the function treats apart.
    fn word() -> impl Strategy<Value = u32> {
        prop_oneof![Just(0), Just(u32::MAX), any::<u32>()]
    }

    proptest! {
        /// Bit by bit, with a look-up that shares no code with the function.
        #[test]
        fn equals_the_bit_by_bit_reference(
            logits in prop::collection::vec(any::<f32>(), 0..200),
            bitmask in prop::collection::vec(word(), 0..8),
        ) {
            let mut masked = logits.clone();
            apply_token_bitmask_inplace(&mut masked, &bitmask);
            for (token, (&before, &after)) in logits.iter().zip(&masked).enumerate() {
                let allowed = bitmask.get(token / 32).is_some_and(|w| w & (1 << (token % 32)) != 0);
                let expected = if allowed { before } else { f32::NEG_INFINITY };
                prop_assert_eq!(after.to_bits(), expected.to_bits(), "token {}", token);
            }
        }

        #[test]
        fn a_new_bitmask_has_vocab_size_bits_per_row(batch in 0_usize..5, vocab_size in 0_usize..300) {
            let bitmask = allocate_token_bitmask(batch, vocab_size);
            let words = bitmask_words(vocab_size);
            prop_assert_eq!(bitmask.len(), batch * words);
            for row in 0..batch {
                for token in 0..words * 32 {
                    let bit = bitmask[row * words + token / 32] >> (token % 32) & 1;
                    prop_assert_eq!(bit == 1, token < vocab_size);
                }
            }
        }
    }
}
