//! `bad_words`: token sequences that must not be completed.

/// The last tokens of those sequences that the output is about to complete: those whose other
/// tokens are the output's tail. A sequence of one token is always about to be completed. The
/// prompt plays no part.
pub(super) fn about_to_complete<'a>(
    bad_words_token_ids: &'a [Vec<u32>],
    output_token_ids: &'a [u32],
) -> impl Iterator<Item = u32> + 'a {
    bad_words_token_ids.iter().filter_map(move |word| {
        let (&last, prefix) = word.split_last()?;
        output_token_ids.ends_with(prefix).then_some(last)
    })
}
