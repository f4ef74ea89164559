//! Masks: setting logits to -inf, and what holds when nothing would be left.
//!
//! The grammar's mask stands whatever it leaves. Any other mask that would take the last token
//! is not applied at all, and the row is flagged: earlier stages win over later ones.

/// A masked logit.
pub(super) const MASKED: f32 = f32::NEG_INFINITY;

/// The grammar's mask for one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowMask<'a> {
    /// Bit `i % 32` of word `i / 32` is token `i`, 1 for allowed; `ceil(vocab.num_tokens() / 32)`
    /// words at least.
    Bitmask(&'a [u32]),
    /// These tokens alone.
    Only(&'a [u32]),
    /// Every token but these.
    Without(&'a [u32]),
}

impl RowMask<'_> {
    /// True if a token is allowed.
    pub(super) fn allows(self, token_id: u32) -> bool {
        match self {
            Self::Bitmask(words) => {
                let word = words.get(token_id as usize / 32).copied();
                word.unwrap_or_default() >> (token_id % 32) & 1 == 1
            }
            Self::Only(ids) => ids.contains(&token_id),
            Self::Without(ids) => !ids.contains(&token_id),
        }
    }

    /// The allowed ones of `num_tokens` tokens.
    pub(super) fn num_allowed(self, num_tokens: usize) -> usize {
        let num_inside = |ids: &[u32]| ids.iter().filter(|&&id| (id as usize) < num_tokens).count();
        match self {
            Self::Bitmask(words) => {
                let whole = words.iter().take(num_tokens / 32);
                let whole: u32 = whole.map(|word| word.count_ones()).sum();
                let rest = words.get(num_tokens / 32).copied().unwrap_or_default();
                let rest = rest & ((1 << (num_tokens % 32)) - 1);
                (whole + rest.count_ones()) as usize
            }
            Self::Only(ids) => num_inside(ids),
            Self::Without(ids) => num_tokens - num_inside(ids),
        }
    }
}

/// Whether a mask was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Masking {
    /// The row has the mask.
    Applied,
    /// The mask would have emptied the row, which is as it was.
    Restored,
}

/// Masks every token but `ids`. `saved` is scratch.
pub(super) fn keep_only(row: &mut [f32], ids: &[u32], saved: &mut Vec<(usize, f32)>) -> Masking {
    saved.clear();
    saved.extend(ids.iter().filter_map(|&id| {
        let id = id as usize;
        row.get(id)
            .filter(|&&logit| logit > MASKED)
            .map(|&logit| (id, logit))
    }));
    if saved.is_empty() {
        return Masking::Restored;
    }
    row.fill(MASKED);
    for &(id, logit) in saved.iter() {
        row[id] = logit;
    }
    Masking::Applied
}

/// Masks every token but `ids`, which ascend. One pass over the row, which reads as far as the first of them
/// that isn't masked already, and writes the rest.
pub(super) fn keep_ascending(row: &mut [f32], ids: &[u32]) -> Masking {
    let is_left = |id: &u32| row.get(*id as usize).is_some_and(|&logit| logit > MASKED);
    if !ids.iter().any(is_left) {
        return Masking::Restored;
    }
    let mut first = 0;
    for id in ids.iter().map(|&id| id as usize).chain([row.len()]) {
        // An id behind the row leaves nothing to keep there.
        let end = id.min(row.len());
        if let Some(gap) = row.get_mut(first..end) {
            gap.fill(MASKED);
        }
        first = end + 1;
    }
    Masking::Applied
}

/// Masks `ids`; ids outside the row have no logit to mask. `saved` is scratch.
pub(super) fn mask_tokens(
    row: &mut [f32],
    ids: impl IntoIterator<Item = u32>,
    saved: &mut Vec<(usize, f32)>,
) -> Masking {
    saved.clear();
    for id in ids {
        let id = id as usize;
        if let Some(logit) = row.get_mut(id)
            && *logit > MASKED
        {
            saved.push((id, *logit));
            *logit = MASKED;
        }
    }
    // Stops at the first token that is left, mostly the row's first.
    if saved.is_empty() || row.iter().any(|&logit| logit > MASKED) {
        return Masking::Applied;
    }
    for &(id, logit) in saved.iter() {
        row[id] = logit;
    }
    Masking::Restored
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ascending_ids_are_kept_as_any_others_are() {
        let row = [1.0, MASKED, 3.0, 4.0, MASKED];
        for ids in [
            &[0][..],
            &[4],
            &[1, 4],
            &[0, 1, 2, 3, 4],
            &[2, 3],
            &[1, 3, 9],
            &[9],
            &[0, 9, 10],
        ] {
            let (mut ascending, mut any) = (row, row);
            let masking = keep_ascending(&mut ascending, ids);
            assert_eq!(
                masking,
                keep_only(&mut any, ids, &mut Vec::new()),
                "{ids:?}"
            );
            assert_eq!(ascending, any, "{ids:?}");
        }
    }
}
