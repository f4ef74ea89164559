//! Random numbers for ids and for seeds that a caller left open.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A number that differs from call to call and from process to process.
///
/// The standard library's hash keys are the source: seeded by the operating system, advanced with
/// every use. Good enough to tell requests apart and to seed sampling; not a secret.
pub(crate) fn random_u64() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Mixes two numbers into one that looks unrelated to both (the finaliser of splitmix64).
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let mut z = a
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(b)
        .wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn numbers_do_not_repeat() {
        let drawn: HashSet<u64> = (0..1000).map(|_| random_u64()).collect();
        assert_eq!(drawn.len(), 1000);
        let mixed: HashSet<u64> = (0..40)
            .flat_map(|a| (0..40).map(move |b| mix(a, b)))
            .collect();
        assert_eq!(mixed.len(), 1600);
    }
}
