//! The tokens that a constrained output takes at least, and what is said where they don't fit.

use protocol::{GrammarLimit, GrammarProblem, RequestError, RequestErrorCode};
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
    pub(crate) fn refusal(
        self,
        in_output: u32,
        in_context: u32,
        max_model_len: usize,
    ) -> RequestError {
        let takes = match self {
            Self::Counted(number) | Self::Fewest(_, number) => {
                format!("is sure to fit in {number} tokens")
            }
            Self::AtLeast(number) => format!("takes at least {number} tokens, perhaps far more"),
        };
        let whole = format!("a whole output {takes}");
        // Helps always.
        let otherwise = "or allow an incomplete output by \
                         structured_outputs.complete_within_max_tokens: false";
        let (message, name, value, help) = match self.number() > in_context {
            true => (
                format!(
                    "{whole}, but the model's context (max_model_len {max_model_len}) leaves {in_context} \
                     after the prompt"
                ),
                "max_model_len",
                max_model_len as u64,
                format!("allow shorter texts, shorten the prompt, {otherwise}"),
            ),
            false => (whole, "max_tokens", in_output.into(), otherwise.to_owned()),
        };
        RequestError {
            field: Some("structured_outputs".to_owned()),
            problem: Some(Box::new(GrammarProblem {
                limit: Some(GrammarLimit {
                    name: name.to_owned(),
                    value,
                }),
                help: Some(help),
                ..GrammarProblem::default()
            })),
            ..RequestError::new(RequestErrorCode::GrammarRefused, message)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_would_help() {
        let of = |tokens: MinTokens| {
            let error = tokens.refusal(10, 100, 128);
            let problem = error.problem.unwrap();
            let limit = problem.limit.unwrap();
            (
                error.message,
                limit.name,
                limit.value,
                problem.help.unwrap(),
            )
        };
        for (tokens, takes) in [
            (MinTokens::Counted(20), "is sure to fit in 20 tokens"),
            (
                MinTokens::Fewest(TextSearch::All, 18).after(2),
                "is sure to fit in 20 tokens",
            ),
            (
                MinTokens::AtLeast(20),
                "takes at least 20 tokens, perhaps far more",
            ),
        ] {
            let (message, limit, value, help) = of(tokens);
            assert_eq!(message, format!("a whole output {takes}"));
            assert_eq!((limit.as_str(), value), ("max_tokens", 10));
            assert!(help.starts_with("or allow an incomplete output"), "{help}");
        }
        // No budget would be enough.
        let (beyond, limit, value, help) = of(MinTokens::Counted(101));
        assert!(beyond.ends_with("(max_model_len 128) leaves 100 after the prompt"));
        assert_eq!((limit.as_str(), value), ("max_model_len", 128));
        assert!(help.starts_with("allow shorter texts, "), "{help}");
    }
}
