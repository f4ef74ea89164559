//! What tests of languages have in common.

/// Random numbers, each below a bound: the same ones for the same seed, which isn't 0 (xorshift).
pub(crate) fn numbers_below(mut seed: u64) -> impl FnMut(u32) -> u32 {
    move |below| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % u64::from(below)) as u32
    }
}

/// All texts of at most seven `a` and `b`.
pub(super) fn short_texts() -> Vec<Vec<u8>> {
    (0..=7)
        .flat_map(|len| (0..1_u32 << len).map(move |bits| (len, bits)))
        .map(|(len, bits)| (0..len).map(|at| b'a' + (bits >> at & 1) as u8).collect())
        .collect()
}
