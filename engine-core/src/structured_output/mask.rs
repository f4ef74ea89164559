//! The masks of one step, by reference.

use std::sync::Arc;

use structured_output::{MaskRef, MaskView};

use crate::sample::RowMask;

/// Which tokens one position may get. Cheap to clone: nothing is copied.
#[derive(Debug, Clone)]
pub enum TokenMask {
    /// What the grammar allows.
    Grammar(MaskRef),
    /// The same and another token, as words: bit `t % 32` of word `t / 32` is token `t`.
    Words(Arc<[u32]>),
    /// The same and another token, as a list.
    Ids(Arc<[u32]>),
    /// One token.
    Only(u32),
    /// Every token but these.
    Without(Arc<[u32]>),
}

impl TokenMask {
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

    /// All allowed tokens where they are few, at most 65: those whose logits are enough.
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
