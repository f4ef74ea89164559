//! The tokens that a constrained output takes at least, and what is said where they don't fit.

/// How many tokens a grammar's shortest text takes: the one of the fewest bytes, in as few tokens as
/// write it. A longer text may take fewer, where the vocabulary has long tokens for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MinTokens {
    /// So many.
    Counted(u32),
    /// So many, and those of the text that takes fewest.
    Both { shortest: u32, fewest: u32 },
    /// At least so many, and more than there may be: they were not counted.
    AtLeast(u32),
}

impl MinTokens {
    /// The number, or a bound from below.
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Counted(number)
            | Self::Both {
                shortest: number, ..
            }
            | Self::AtLeast(number) => number,
        }
    }

    /// The same with some tokens before the text.
    pub(crate) fn after(self, tokens: u32) -> Self {
        match self {
            Self::Counted(number) => Self::Counted(number.saturating_add(tokens)),
            Self::Both { shortest, fewest } => Self::Both {
                shortest: shortest.saturating_add(tokens),
                fewest: fewest.saturating_add(tokens),
            },
            Self::AtLeast(number) => Self::AtLeast(number.saturating_add(tokens)),
        }
    }

    /// Why a request with room for `in_output` tokens is refused, and what would help. `in_context` is
    /// the room that a context of `max_model_len` leaves after the prompt.
    pub(crate) fn refusal(self, in_output: u32, in_context: u32, max_model_len: usize) -> String {
        let takes = match self {
            // What masks lead to: the text of fewest bytes.
            Self::Counted(number) => {
                format!("is sure to fit in {number} tokens, though a longer text may take fewer")
            }
            Self::Both { shortest, fewest } if shortest == fewest => {
                format!("is sure to fit in {shortest} tokens, and in no fewer")
            }
            Self::Both { shortest, fewest } => format!(
                "is sure to fit in {shortest} tokens, though some text takes {fewest}, the fewest possible"
            ),
            Self::AtLeast(number) => format!("takes at least {number} tokens, perhaps far more"),
        };
        // What is allowed to be incomplete helps always.
        let otherwise = "or allow an incomplete output by \
                         structured_outputs.complete_within_max_tokens: false";
        if self.number() > in_context {
            return format!(
                "structured_outputs: a whole output {takes}, but the model's \
                 context (max_model_len {max_model_len}) leaves {in_context} after the prompt: allow \
                 shorter texts, shorten the prompt, {otherwise}"
            );
        }
        format!(
            "structured_outputs: a whole output {takes}, but max_tokens leaves \
             {in_output}: raise max_tokens, {otherwise}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_would_help() {
        let of = |tokens: MinTokens| tokens.refusal(10, 100, 128);
        let counted = of(MinTokens::Counted(20));
        assert!(counted.contains("fewer, but max_tokens leaves 10: raise max_tokens, or"));
        assert!(counted.contains("in 20 tokens, though a longer text may take fewer"));
        let both = |fewest| {
            let tokens = MinTokens::Both {
                shortest: 18,
                fewest,
            };
            of(tokens.after(2))
        };
        assert!(both(18).contains("in 20 tokens, and in no fewer, but"));
        assert!(both(3).contains("in 20 tokens, though some text takes 5, the fewest possible"));
        let bound = of(MinTokens::AtLeast(20));
        assert!(
            bound.contains("takes at least 20 tokens, perhaps far more, but max_tokens leaves")
        );
        // No budget would be enough.
        let beyond = of(MinTokens::Counted(101));
        assert!(beyond.contains("(max_model_len 128) leaves 100 after the prompt"));
        assert!(!beyond.contains("raise"));
    }
}
