//! The alphabets: partitions of the 256 bytes, from coarse to fine.

use crate::lexical::ByteSet;

/// The coarse alphabets' classes, coarsest first. Each refines the one before, and has the backslash
/// as a class of its own.
pub(super) fn coarse_alphabets() -> Vec<Vec<ByteSet>> {
    let mut sets = utf8_sets();
    sets.extend(text_sets());
    let text = partition(&sets);
    sets.extend(word_sets());
    let words = partition(&sets);
    sets.extend(space_sets());
    let spaces = partition(&sets);
    vec![text, words, spaces]
}

/// What well-formed UTF-8 tells apart (The Unicode Standard, table 3-7).
fn utf8_sets() -> Vec<ByteSet> {
    let ranges = [
        (0x00, 0x7f),
        (0x80, 0x8f),
        (0x90, 0x9f),
        (0xa0, 0xbf),
        (0xc0, 0xc1),
        (0xc2, 0xdf),
        (0xe0, 0xe0),
        (0xe1, 0xec),
        (0xed, 0xed),
        (0xee, 0xef),
        (0xf0, 0xf0),
        (0xf1, 0xf3),
        (0xf4, 0xf4),
        (0xf5, 0xff),
    ];
    ranges.map(|(low, high)| ByteSet::range(low, high)).to_vec()
}

/// What a JSON string, `.` and ASCII white space tell apart.
fn text_sets() -> Vec<ByteSet> {
    vec![
        ByteSet::range(0x00, 0x1f),
        ByteSet::single(b'\n'),
        ByteSet::single(b'\r'),
        ByteSet::from_iter([b'\t', 0x0b, 0x0c]),
        ByteSet::from_iter([b'\t']),
        ByteSet::single(b' '),
        ByteSet::single(b'"'),
        ByteSet::single(b'\\'),
        ByteSet::single(0x7f),
    ]
}

/// What patterns of words, numbers, names and dates tell apart: cases, each digit, each sign.
fn word_sets() -> Vec<ByteSet> {
    let signs = (b'!'..=b'~').filter(|byte| !byte.is_ascii_alphanumeric());
    let mut sets = vec![ByteSet::range(b'a', b'z'), ByteSet::range(b'A', b'Z')];
    sets.extend((b'0'..=b'9').map(ByteSet::single));
    sets.extend(signs.map(ByteSet::single));
    sets
}

/// What Unicode's white space tells apart: U+0085, U+00A0, U+1680, U+2000 to U+200A, U+2028, U+2029,
/// U+202F, U+205F, U+3000, and the byte order mark, which ECMAScript adds.
fn space_sets() -> Vec<ByteSet> {
    let mut sets = vec![ByteSet::range(0x80, 0x8a), ByteSet::range(0x1c, 0x1f)];
    let bytes = [
        0xc2, 0xe1, 0xe2, 0xe3, 0xef, 0x80, 0x81, 0x85, 0x9a, 0x9f, 0xa0, 0xa8, 0xa9, 0xaf, 0xbb,
        0xbf,
    ];
    sets.extend(bytes.map(ByteSet::single));
    sets
}

/// The coarsest classes of which every set is a union, in the order of their first bytes.
fn partition(sets: &[ByteSet]) -> Vec<ByteSet> {
    let mut classes = vec![ByteSet::FULL];
    for set in sets {
        let outside = set.complement();
        let cut = classes
            .iter()
            .flat_map(|class| [class.intersection(set), class.intersection(&outside)]);
        classes = cut.filter(|class| !class.is_empty()).collect();
    }
    classes.sort_unstable_by_key(|class| class.iter().next());
    classes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_alphabet_is_a_partition_and_refines_the_one_before() {
        let alphabets = coarse_alphabets();
        for classes in &alphabets {
            let union = classes.iter().fold(ByteSet::EMPTY, |all, c| all.union(c));
            assert_eq!(union, ByteSet::FULL);
            assert_eq!(classes.iter().map(ByteSet::len).sum::<usize>(), 256);
            assert!(classes.contains(&ByteSet::single(b'\\')));
        }
        for pair in alphabets.windows(2) {
            assert!(pair[0].len() < pair[1].len());
            for fine in &pair[1] {
                let inside = |coarse: &&ByteSet| coarse.intersection(fine) == *fine;
                assert_eq!(pair[0].iter().filter(inside).count(), 1);
            }
        }
    }
}
