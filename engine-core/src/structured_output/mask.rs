//! The masks of one step, by reference.

use std::sync::Arc;

use structured_output::{MaskRef, MaskView};

use crate::sample::RowMask;

/// Masks with at most so many tokens are lists: the logits of these tokens alone are computed. At this
/// number they cost a fortieth of a row of the LM head at batch 1 and a fifth at batch 32, and at 1,024
/// more than a row there; the benchmark `structured_output` measures it (`--part head`).
const MAX_FEW_TOKENS: usize = 512;

/// Which tokens one position may get. Cheap to clone: nothing is copied.
#[derive(Debug, Clone)]
pub enum TokenMask {
    /// What the grammar allows.
    Grammar(MaskRef),
    /// The same and another token, as words: bit `t % 32` of word `t / 32` is token `t`.
    Words(Arc<[u32]>),
    /// The same, perhaps with another token, as a list.
    Ids(Arc<[u32]>),
    /// One token.
    Only(u32),
    /// Every token but these.
    Without(Arc<[u32]>),
}

impl TokenMask {
    /// What the grammar allows.
    pub(super) fn of(mask: MaskRef) -> Self {
        match mask.view() {
            MaskView::Dense(words) if mask.num_allowed() <= MAX_FEW_TOKENS => {
                Self::Ids(ids_of(words).collect())
            }
            MaskView::Dense(_) | MaskView::Sparse(_) => Self::Grammar(mask),
        }
    }

    /// What the grammar allows, and one more token.
    pub(super) fn and_also(mask: &MaskRef, token_id: u32) -> Self {
        match mask.view() {
            MaskView::Dense(words) => {
                let mut words = words.to_vec();
                if let Some(word) = words.get_mut(token_id as usize / 32) {
                    *word |= 1 << (token_id % 32);
                }
                Self::Words(words.into())
            }
            MaskView::Sparse(ids) if mask.is_allowed(token_id) => Self::Ids(ids.into()),
            MaskView::Sparse(ids) => {
                let others = ids.iter().copied();
                Self::Ids(others.chain([token_id]).collect())
            }
        }
    }

    /// The one token that is allowed, where it is only one.
    pub fn forced_token(&self) -> Option<u32> {
        match self {
            Self::Grammar(mask) => mask.forced_token(),
            Self::Only(token_id) => Some(*token_id),
            Self::Words(_) | Self::Ids(_) | Self::Without(_) => None,
        }
    }

    /// All allowed tokens where they are few: those whose logits are enough.
    pub fn few_tokens(&self) -> Option<&[u32]> {
        match self {
            Self::Grammar(mask) => match mask.view() {
                MaskView::Sparse(ids) => Some(ids),
                MaskView::Dense(_) => None,
            },
            Self::Ids(ids) => Some(ids),
            Self::Only(token_id) => Some(std::slice::from_ref(token_id)),
            Self::Words(_) | Self::Without(_) => None,
        }
    }

    /// Whether a token is allowed.
    pub fn is_allowed(&self, token_id: u32) -> bool {
        match self {
            Self::Grammar(mask) => mask.is_allowed(token_id),
            Self::Words(words) => words
                .get(token_id as usize / 32)
                .is_some_and(|word| word >> (token_id % 32) & 1 == 1),
            Self::Ids(ids) => ids.contains(&token_id),
            Self::Only(only) => *only == token_id,
            Self::Without(ids) => !ids.contains(&token_id),
        }
    }

    /// What no other words of this process have or will have, where the grammar engine keeps them.
    pub(crate) fn number(&self) -> Option<u64> {
        match self {
            Self::Grammar(mask) => mask.number(),
            _ => None,
        }
    }

    /// The mask as the sampler takes it.
    pub(crate) fn as_row_mask(&self) -> RowMask<'_> {
        match self {
            Self::Grammar(mask) => match mask.view() {
                MaskView::Dense(words) => RowMask::Bitmask(words),
                MaskView::Sparse(ids) => RowMask::Only(ids),
            },
            Self::Words(words) => RowMask::Bitmask(words),
            Self::Ids(ids) => RowMask::Only(ids),
            Self::Only(token_id) => RowMask::Only(std::slice::from_ref(token_id)),
            Self::Without(ids) => RowMask::Without(ids),
        }
    }
}

/// The tokens whose bits are set, ascending.
fn ids_of(words: &[u32]) -> impl Iterator<Item = u32> + '_ {
    (0u32..).zip(words).flat_map(|(index, &word)| {
        let mut rest = word;
        std::iter::from_fn(move || {
            let bit = (rest != 0).then(|| rest.trailing_zeros())?;
            rest &= rest - 1;
            Some(index * 32 + bit)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_bits_are_tokens() {
        let words = [0b101, 0, u32::MAX, 1 << 31];
        let expected: Vec<u32> = [0, 2].into_iter().chain(64..96).chain([127]).collect();
        assert_eq!(ids_of(&words).collect::<Vec<_>>(), expected);
        assert_eq!(ids_of(&[]).count(), 0);
    }
}
