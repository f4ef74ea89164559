//! The tokens that a constrained output takes at least, and what is said where they don't fit.

use structured_output::TextSearch;

/// How many tokens a whole text of a grammar takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MinTokens {
    /// The tokens of the text of the fewest bytes, in as few as write it. A longer text may take fewer, where
    /// the vocabulary has long tokens for it.
    Counted(u32),
    /// The tokens of a text of few, and how it is found. Known where the text of the fewest bytes doesn't fit and
    /// little work finds one.
    Fewest(TextSearch, u32),
    /// At least so many, and more than there may be: they were not counted.
    AtLeast(u32),
}

impl MinTokens {
    /// The number, or a bound from below.
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Counted(number) | Self::Fewest(_, number) | Self::AtLeast(number) => number,
        }
    }

    /// How the text is found whose number it is, if that takes a search.
    pub(crate) fn search(self) -> Option<TextSearch> {
        match self {
            Self::Fewest(search, _) => Some(search),
            Self::Counted(_) | Self::AtLeast(_) => None,
        }
    }

    /// The same with some tokens before the text.
    pub(crate) fn after(self, tokens: u32) -> Self {
        match self {
            Self::Counted(number) => Self::Counted(number.saturating_add(tokens)),
            Self::Fewest(search, number) => Self::Fewest(search, number.saturating_add(tokens)),
            Self::AtLeast(number) => Self::AtLeast(number.saturating_add(tokens)),
        }
    }

    /// Why a request with room for `in_output` tokens is refused, and what would help. `in_context` is
    /// the room that a context of `max_model_len` leaves after the prompt.
    pub(crate) fn refusal(self, in_output: u32, in_context: u32, max_model_len: usize) -> String {
        let takes = match self {
            Self::Counted(number) | Self::Fewest(_, number) => {
                format!("is sure to fit in {number} tokens")
            }
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
        assert!(counted.contains("is sure to fit in 20 tokens, but max_tokens leaves 10: raise"));
        let fewest = of(MinTokens::Fewest(TextSearch::All, 18).after(2));
        assert!(fewest.contains("is sure to fit in 20 tokens, but max_tokens leaves 10: raise"));
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
