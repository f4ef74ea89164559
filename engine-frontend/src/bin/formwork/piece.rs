//! What a stream's events bring, of chat and of completions alike.

use anyhow::bail;
use serde::Deserialize;

/// An event, as far as the commands look at it.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Piece {
    #[serde(default)]
    choices: Vec<Choice>,
    pub(crate) usage: Option<Usage>,
    error: Option<Error>,
}

/// Tokens of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) struct Usage {
    pub(crate) prompt_tokens: u64,
    #[serde(default)]
    pub(crate) completion_tokens: u64,
}

#[derive(Debug, Default, Deserialize)]
struct Choice {
    text: Option<String>,
    delta: Option<Delta>,
    finish_reason: Option<String>,
    structured_output_complete: Option<bool>,
    structured_output_completed_by_budget: Option<bool>,
    structured_output_repetition_closed: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
struct Delta {
    content: Option<String>,
    #[serde(alias = "reasoning")]
    reasoning_content: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Error {
    message: String,
}

impl Piece {
    /// Reads an event.
    ///
    /// # Errors
    /// It is none of the API's, or says that the request failed.
    pub(crate) fn parse(data: &str) -> anyhow::Result<Self> {
        let piece: Self = serde_json::from_str(data)?;
        match piece.error {
            Some(error) => bail!("{}", error.message),
            None => Ok(piece),
        }
    }

    fn choice(&self) -> Option<&Choice> {
        self.choices.first()
    }

    /// More of the answer; may be empty.
    pub(crate) fn content(&self) -> &str {
        let choice = self.choice();
        let delta = || choice?.delta.as_ref()?.content.as_deref();
        let text = choice.and_then(|choice| choice.text.as_deref());
        text.or_else(delta).unwrap_or_default()
    }

    /// More of the thinking before the answer; may be empty.
    pub(crate) fn reasoning(&self) -> &str {
        let delta = self.choice().and_then(|choice| choice.delta.as_ref());
        let reasoning = delta.and_then(|delta| delta.reasoning_content.as_deref());
        reasoning.unwrap_or_default()
    }

    /// Why the answer ends, in its last piece.
    pub(crate) fn finish_reason(&self) -> Option<&str> {
        self.choice()?.finish_reason.as_deref()
    }

    /// What was done to end a constrained answer, in words; in its last piece.
    pub(crate) fn how_it_was_led(&self) -> Vec<&'static str> {
        let Some(choice) = self.choice() else {
            return Vec::new();
        };
        let told = [
            (
                choice.structured_output_completed_by_budget,
                "led to its end by max_tokens",
            ),
            (
                choice.structured_output_repetition_closed,
                "a loop in it was closed",
            ),
        ];
        let told = told.into_iter().filter(|(is_so, _)| *is_so == Some(true));
        told.map(|(_, words)| words).collect()
    }

    /// Whether a constrained answer is whole, where the server says so.
    pub(crate) fn is_complete(&self) -> Option<bool> {
        self.choice()?.structured_output_complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_streams() {
        let chat = r#"{"id": "x", "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": null}]}"#;
        let chat = Piece::parse(chat).unwrap();
        assert_eq!((chat.content(), chat.finish_reason()), ("a", None));
        let thinking = r#"{"choices": [{"delta": {"reasoning": "hm", "content": null}}]}"#;
        let thinking = Piece::parse(thinking).unwrap();
        assert_eq!((thinking.reasoning(), thinking.content()), ("hm", ""));
        let completion = r#"{"choices": [{"text": "b", "finish_reason": "length"}]}"#;
        let completion = Piece::parse(completion).unwrap();
        assert_eq!(completion.content(), "b");
        assert_eq!(completion.finish_reason(), Some("length"));
        let last = r#"{"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}"#;
        let usage = Piece::parse(last).unwrap().usage.unwrap();
        assert_eq!((usage.prompt_tokens, usage.completion_tokens), (3, 4));
    }

    #[test]
    fn the_last_piece_says_how_an_answer_was_led() {
        let led = |choice: &str| {
            let piece = Piece::parse(&format!(r#"{{"choices": [{choice}]}}"#)).unwrap();
            piece.how_it_was_led()
        };
        assert!(led(r#"{"structured_output_complete": true}"#).is_empty());
        assert!(led(r#"{"structured_output_completed_by_budget": false}"#).is_empty());
        assert_eq!(
            led(r#"{"structured_output_completed_by_budget": true,
                    "structured_output_repetition_closed": true}"#),
            ["led to its end by max_tokens", "a loop in it was closed"]
        );
        let no_choice = Piece::parse(r#"{"choices": []}"#).unwrap();
        assert!(no_choice.how_it_was_led().is_empty());
    }

    #[test]
    fn errors_in_streams_are_errors() {
        let error = Piece::parse(r#"{"error": {"message": "gone", "code": 500}}"#).unwrap_err();
        assert_eq!(error.to_string(), "gone");
        assert!(Piece::parse("nonsense").is_err());
    }
}
