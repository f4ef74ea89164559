//! What two tests of grammars with rules have in common.

/// All texts of a and b up to a length.
pub(crate) fn texts(max: usize) -> Vec<Vec<u8>> {
    let mut all = vec![Vec::new()];
    let mut from = 0;
    for _ in 0..max {
        let to = all.len();
        for at in from..to {
            for byte in [b'a', b'b'] {
                let mut longer: Vec<u8> = all[at].clone();
                longer.push(byte);
                all.push(longer);
            }
        }
        from = to;
    }
    all
}
