//! Repetition at the end of an output.

use protocol::RepetitionDetection;

/// The size of a pattern, within bounds, that the tail of `token_ids` is `min_count` times.
///
/// Tries each size, leaves it at the first difference. Costs at worst
/// `max_pattern_size * token_ids.len()`, on ordinary text about one comparison per size.
pub(crate) fn ends_in_repetition(
    token_ids: &[u32],
    detection: RepetitionDetection,
) -> Option<usize> {
    // Once is no repetition, and an empty pattern is everywhere.
    let min_count = detection.min_count.max(2) as usize;
    let smallest = detection.min_pattern_size.max(1) as usize;
    let largest = (detection.max_pattern_size as usize).min(token_ids.len() / min_count);
    (smallest..=largest).find(|&size| {
        let tail = &token_ids[token_ids.len() - size * min_count..];
        tail.iter()
            .rev()
            .zip(tail.iter().rev().skip(size))
            .all(|(token, before)| token == before)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn detection(min: u32, max: u32, count: u32) -> RepetitionDetection {
        RepetitionDetection {
            min_pattern_size: min,
            max_pattern_size: max,
            min_count: count,
        }
    }

    #[test]
    fn a_repeated_tail_is_found() {
        assert!(ends_in_repetition(&[5, 1, 2, 1, 2, 1, 2], detection(1, 4, 3)).is_some());
        assert!(ends_in_repetition(&[5, 1, 2, 1, 2, 1, 2], detection(1, 4, 4)).is_none());
        assert!(ends_in_repetition(&[5, 1, 2, 1, 2, 1, 2], detection(1, 1, 2)).is_none());
        assert!(ends_in_repetition(&[5, 1, 2, 1, 2, 1, 2], detection(3, 4, 2)).is_none());
        assert!(ends_in_repetition(&[9, 9, 9], detection(1, 1, 3)).is_some());
        assert!(ends_in_repetition(&[9, 9, 9, 1], detection(1, 4, 2)).is_none());
        assert!(ends_in_repetition(&[], detection(0, 4, 0)).is_none());
        // Once is no repetition.
        assert!(ends_in_repetition(&[1, 2, 3], detection(0, u32::MAX, 0)).is_none());
        assert!(ends_in_repetition(&[3, 3], detection(0, u32::MAX, 0)).is_some());
    }

    proptest! {
        /// Against the definition: the tail is some pattern, repeated.
        #[test]
        fn repetition_is_as_defined(
            token_ids in prop::collection::vec(0u32..3, 0..14),
            min in 1usize..4,
            max in 1usize..6,
            count in 2usize..5,
        ) {
            let expected = (min..=max).any(|size| {
                token_ids.len() >= size * count
                    && token_ids.ends_with(&token_ids[token_ids.len() - size..].repeat(count))
            });
            let detection = detection(min as u32, max as u32, count as u32);
            prop_assert_eq!(ends_in_repetition(&token_ids, detection).is_some(), expected);
        }
    }
}
