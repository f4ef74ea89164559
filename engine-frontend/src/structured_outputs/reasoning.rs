//! Where a prompt leaves the model's thinking.

use std::sync::{Arc, LazyLock};

use protocol::ThinkingTokens;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokenizer::{ChatTemplate, ChatTemplateRequest, Tokenizer};

use crate::detokenizer::ThinkingSplit;

/// The texts around a model's thinking, each one token, or several of which the first is a control token, so that
/// the text is always written with the same ones.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThinkingMarkers {
    /// Opens thinking.
    pub start: String,
    /// Closes it.
    pub end: String,
    /// Stands before an answer, of models that write each part of their output into a channel of its own; empty of
    /// others.
    #[serde(default)]
    pub answer: String,
}

/// How models think, by vLLM's names of reasoning parsers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReasoningFormat {
    names: Vec<String>,
    start: String,
    end: String,
    #[serde(default)]
    answer: String,
}

/// The formats in the order in which a vocabulary is compared with them. The names and texts are those of
/// `vllm/reasoning`.
static FORMATS: LazyLock<Vec<ReasoningFormat>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("reasoning_formats.json")).unwrap_or_default()
});

impl ThinkingMarkers {
    /// The markers of the reasoning parser with this name.
    pub(super) fn of_parser(name: &str) -> Option<Self> {
        let has_name = |format: &&ReasoningFormat| format.names.iter().any(|known| known == name);
        FORMATS.iter().find(has_name).map(ReasoningFormat::markers)
    }

    /// The names of all reasoning parsers.
    pub(super) fn parser_names() -> impl Iterator<Item = &'static str> {
        FORMATS
            .iter()
            .flat_map(|format| &format.names)
            .map(String::as_str)
    }
}

impl ReasoningFormat {
    fn markers(&self) -> ThinkingMarkers {
        ThinkingMarkers {
            start: self.start.clone(),
            end: self.end.clone(),
            answer: self.answer.clone(),
        }
    }
}

impl Default for ThinkingMarkers {
    fn default() -> Self {
        Self {
            start: "<think>".to_owned(),
            end: "</think>".to_owned(),
            answer: String::new(),
        }
    }
}

/// What is known of an answer ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerKind {
    /// Nothing.
    Free,
    /// The text under a constraint.
    Constrained,
    /// The constraint's text, which has the headers of the model's format itself.
    WithHeader,
}

/// How one model thinks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reasoning {
    markers: ThinkingMarkers,
    start_token_ids: Arc<[u32]>,
    end_token_ids: Arc<[u32]>,
    /// What stands between thinking and an answer: what the model's chat template writes there, or the header of an
    /// answer's channel.
    separator_token_ids: Arc<[u32]>,
}

impl Reasoning {
    /// The reasoning of a model with the markers of a format that its vocabulary has; `None` without any.
    pub fn found(tokenizer: &Tokenizer) -> Option<Self> {
        let mut formats = FORMATS.iter();
        formats.find_map(|format| Self::new(tokenizer, &format.markers()))
    }

    /// The reasoning of a model; `None` where its vocabulary doesn't have the markers' tokens.
    pub fn new(tokenizer: &Tokenizer, markers: &ThinkingMarkers) -> Option<Self> {
        let end_token_ids = marker_token_ids(tokenizer, &markers.end)?;
        let separator_token_ids = match markers.answer.as_str() {
            "" => separator(tokenizer, &markers.end, &end_token_ids).unwrap_or_default(),
            header => marker_token_ids(tokenizer, header)?,
        };
        Some(Self {
            start_token_ids: marker_token_ids(tokenizer, &markers.start)?,
            separator_token_ids,
            end_token_ids,
            markers: markers.clone(),
        })
    }

    /// The tokens as requests carry them.
    pub fn thinking_tokens(&self) -> ThinkingTokens {
        ThinkingTokens {
            start_token_ids: self.start_token_ids.to_vec(),
            end_token_ids: self.end_token_ids.to_vec(),
            separator_token_ids: self.separator_token_ids.to_vec(),
        }
    }

    /// How an output's thinking is told apart, where the prompt leaves it like this. Only a constrained
    /// answer is sure to come after a separator: a free one begins behind the marker, as in vLLM. A header comes
    /// before free answers too, and without thinking; not where the constraint has what is around answers.
    pub fn split(&self, ended: Option<bool>, answer: AnswerKind) -> ThinkingSplit {
        let has_header = !self.markers.answer.is_empty();
        let is_separated = match answer {
            AnswerKind::Free => has_header,
            AnswerKind::Constrained => true,
            AnswerKind::WithHeader => false,
        };
        let separator_token_ids = match is_separated {
            true => Arc::clone(&self.separator_token_ids),
            false => Arc::default(),
        };
        let (start, end) = (&self.start_token_ids, &self.end_token_ids);
        let split = ThinkingSplit::new(
            Arc::clone(start),
            Arc::clone(end),
            ended,
            separator_token_ids,
        );
        match has_header {
            true => split.with_header(),
            false => split,
        }
    }

    /// Whether thinking has ended in a prompt that went through no template: it has, unless the
    /// last of the two markers opens it.
    pub fn ended_in_tokens(&self, prompt_token_ids: &[u32]) -> bool {
        let last = |marker: &[u32]| {
            let mut places = prompt_token_ids.windows(marker.len().max(1));
            places.rposition(|window| window == marker)
        };
        last(&self.start_token_ids) <= last(&self.end_token_ids)
    }

    /// Whether thinking has ended where a template opens the answer; `None` where the model may
    /// yet begin to think.
    ///
    /// `without_opening` is the same conversation rendered without the answer's opening: what
    /// people wrote in the messages decides nothing. A template that closes thinking in the
    /// opening has switched it off. One that neither opens nor closes it there, but knows the
    /// tokens, leaves it to the model.
    pub fn ended_in_opening(
        &self,
        rendered: &str,
        without_opening: &str,
        template: &ChatTemplate,
    ) -> Option<bool> {
        let opening = after_common_start(rendered, without_opening, self.markers.end.len());
        match self.ended_in_text(opening) {
            None if !template.mentions(&self.markers.start) => Some(true),
            ended => ended,
        }
    }

    /// Whether thinking has ended in an answer that is to be continued: one that has begun
    /// without thinking goes on without.
    pub fn ended_in_answer(&self, answer: Option<&Value>) -> bool {
        let content = answer
            .and_then(|message| message.get("content"))
            .and_then(Value::as_str)
            .unwrap_or_default();
        self.ended_in_text(content).unwrap_or(true)
    }

    /// What the last of the two markers says; `None` without any.
    fn ended_in_text(&self, text: &str) -> Option<bool> {
        let start = text.rfind(&self.markers.start);
        let end = text.rfind(&self.markers.end);
        match (start, end) {
            (None, None) => None,
            (start, end) => Some(end > start),
        }
    }
}

/// The tokens that a model's chat template writes between the end of thinking and an answer: mostly line
/// ends. They stand in the answer's opening where thinking is switched off, or in an answer of an earlier
/// turn with its thinking. `None` where no template shows them.
fn separator(tokenizer: &Tokenizer, end: &str, end_token_ids: &[u32]) -> Option<Arc<[u32]>> {
    const TEXT: &str = "formwork-probe";
    let template = tokenizer.chat_templates().select(false).ok()?;
    let question = json!({"role": "user", "content": "a"});
    let answer = json!({"role": "assistant", "content": TEXT, "reasoning_content": "b"});
    let switched_off = Map::from_iter([("enable_thinking".to_owned(), json!(false))]);
    let opening = template.render(&ChatTemplateRequest {
        messages: std::slice::from_ref(&question),
        chat_template_kwargs: Some(&switched_off),
        add_generation_prompt: true,
        ..ChatTemplateRequest::default()
    });
    let turn = template.render(&ChatTemplateRequest {
        messages: &[question, answer],
        ..ChatTemplateRequest::default()
    });
    let after_end = |text: &str| Some(text.rsplit_once(end)?.1.to_owned());
    let before_answer = |text: &str| after_end(text.split_once(TEXT)?.0);
    let is_space = |text: &String| !text.is_empty() && text.trim().is_empty();
    let opening = opening.ok().and_then(|text| after_end(&text));
    let turn = turn.ok().and_then(|text| before_answer(&text));
    let text = [opening, turn].into_iter().flatten().find(is_space)?;
    // Behind the marker, since some tokenizers write the beginning of a text in another way.
    let token_ids = tokenizer.encode(&format!("{end}{text}"), false).ok()?;
    Some(token_ids.strip_prefix(end_token_ids)?.into())
}

/// The tokens of a marker: itself, or those that write it, beginning with a control token.
fn marker_token_ids(tokenizer: &Tokenizer, marker: &str) -> Option<Arc<[u32]>> {
    if let Some(token_id) = tokenizer.token_to_id(marker) {
        return Some([token_id].into());
    }
    let token_ids = tokenizer.encode(marker, false).ok()?;
    let is_control = tokenizer.is_special_token(*token_ids.first()?);
    (is_control && tokenizer.decode(&token_ids, false) == marker).then(|| token_ids.into())
}

/// What `text` has after the beginning that it shares with `other`; where `other` goes on in
/// another way, `margin` bytes of the beginning too, since they may be part of a marker.
fn after_common_start<'a>(text: &'a str, other: &str, margin: usize) -> &'a str {
    if let Some(rest) = text.strip_prefix(other) {
        return rest;
    }
    let shared = text.bytes().zip(other.bytes()).take_while(|(a, b)| a == b);
    let mut start = shared.count().saturating_sub(margin);
    while !text.is_char_boundary(start) {
        start -= 1;
    }
    &text[start..]
}

#[cfg(test)]
mod tests {
    use protocol::{EngineCoreRequest, SamplingParams};
    use serde_json::json;

    use super::*;
    use crate::detokenizer::IncrementalDetokenizer;
    use crate::stop_strings::StopStrings;
    use crate::test_support::{
        IM_END, THINK_END, THINK_START, tokenizer, tokenizer_with, tokenizer_with_template,
    };

    fn reasoning() -> Reasoning {
        Reasoning::new(&tokenizer(), &ThinkingMarkers::default()).unwrap()
    }

    #[test]
    fn a_model_without_the_tokens_does_not_think() {
        let markers = ThinkingMarkers::default();
        assert_eq!(
            Reasoning::new(&tokenizer_with("[256]", false), &markers),
            None
        );
    }

    #[test]
    fn every_parser_has_two_markers() {
        assert_eq!(FORMATS.len(), 6);
        for name in ThinkingMarkers::parser_names() {
            let markers = ThinkingMarkers::of_parser(name).unwrap();
            assert_ne!(markers.start, markers.end, "{name}");
        }
        assert_eq!(
            ThinkingMarkers::of_parser("qwen3"),
            Some(ThinkingMarkers::default())
        );
        assert_eq!(ThinkingMarkers::of_parser("foo"), None);
    }

    #[test]
    fn a_marker_may_be_several_tokens() {
        let markers = ThinkingMarkers {
            start: "<|im_end|>hm".to_owned(),
            ..ThinkingMarkers::default()
        };
        let reasoning = Reasoning::new(&tokenizer(), &markers).unwrap();
        let start = &reasoning.start_token_ids;
        assert_eq!(start[..], [IM_END, u32::from(b'h'), u32::from(b'm')]);
        assert!(!reasoning.ended_in_tokens(start));
        assert!(reasoning.ended_in_tokens(&start[..2]));
        assert!(reasoning.ended_in_tokens(&[&start[..], &[THINK_END]].concat()));
        for start in ["Let me think:", "<think>hm"] {
            let text = ThinkingMarkers {
                start: start.to_owned(),
                ..markers.clone()
            };
            assert_eq!(Reasoning::new(&tokenizer(), &text), None, "{start}");
        }
    }

    #[test]
    fn the_separator_is_what_templates_write_behind_thinking() {
        let separator = |template: &str| {
            let tokenizer = tokenizer_with_template(template);
            let reasoning = Reasoning::new(&tokenizer, &ThinkingMarkers::default()).unwrap();
            reasoning.separator_token_ids.to_vec()
        };
        let off = "{% if add_generation_prompt and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}";
        assert_eq!(
            separator(&format!("{{{{ messages[0].content }}}}{off}")),
            [10, 10]
        );
        let turns = "{% for m in messages %}{% if m.reasoning_content %}<think>{{ m.reasoning_content }}\
                     </think>\n{% endif %}{{ m.content }}{% endfor %}";
        assert_eq!(separator(turns), [10]);
        // Nothing between, no thinking, and an answer that begins in words.
        for template in [
            "{{ messages[0].content }}<think></think>",
            "{{ messages[0].content }}",
            "{{ messages[0].content }}<think></think>So",
            "{{ raise_exception('no') }}",
        ] {
            assert_eq!(separator(template), [0; 0], "{template}");
        }
    }

    #[test]
    fn only_constrained_answers_are_separated() {
        let mut reasoning = reasoning();
        reasoning.separator_token_ids = [10, 10].into();
        assert_eq!(reasoning.thinking_tokens().separator_token_ids, [10, 10]);
        let split = reasoning.split(Some(false), AnswerKind::Constrained);
        assert_eq!(
            (split.separator_token_ids(), split.num_separating()),
            (&[10, 10][..], 0)
        );
        let ended = reasoning.split(Some(true), AnswerKind::Constrained);
        assert_eq!(ended.num_separating(), 2);
        let free = reasoning.split(Some(false), AnswerKind::Free);
        assert!(free.separator_token_ids().is_empty());
    }

    /// Channels, as Harmony has them: `<|im_end|>` stands for its control tokens.
    #[test]
    fn a_header_stands_before_answers_of_every_kind() {
        let markers = ThinkingMarkers {
            start: "<|im_end|>t:".to_owned(),
            end: "</think>".to_owned(),
            answer: "<|im_end|>a:".to_owned(),
        };
        let reasoning = Reasoning::new(&tokenizer(), &markers).unwrap();
        let [t, a, colon] = [b't', b'a', b':'].map(u32::from);
        let header = [IM_END, a, colon];
        assert_eq!(reasoning.thinking_tokens().separator_token_ids, header);
        let thinking = [IM_END, t, colon, 104, THINK_END];
        let text = |answer, ended, output: &[&[u32]]| {
            let tokenizer = tokenizer();
            let request = EngineCoreRequest {
                sampling_params: SamplingParams {
                    skip_special_tokens: false,
                    ..SamplingParams::default()
                },
                ..EngineCoreRequest::default()
            };
            let stop = Arc::new(StopStrings::new(&request.sampling_params.stop));
            let split = reasoning.split(ended, answer);
            let mut detokenizer =
                IncrementalDetokenizer::with_thinking(&tokenizer, &request, Some(split), stop);
            let output = output.concat();
            // Token by token, so that what is held back is told in time.
            for token_id in output {
                detokenizer.update(&[token_id], false);
            }
            let text = detokenizer.get_next_output_text(true, false);
            let thought = detokenizer.get_next_reasoning_text(false);
            (thought.unwrap_or_default(), text)
        };
        let both = |thought: &str, text: &str| (thought.to_owned(), text.to_owned());
        for answer in [AnswerKind::Free, AnswerKind::Constrained] {
            for ended in [None, Some(false)] {
                let found = text(answer, ended, &[&thinking, &header, &[111, 107]]);
                assert_eq!(found, both("h", "ok"), "{answer:?} {ended:?}");
            }
            for ended in [None, Some(true)] {
                assert_eq!(text(answer, ended, &[&header, &[111, 107]]), both("", "ok"));
                assert_eq!(text(answer, ended, &[&[111, 107]]), both("", "ok"));
            }
        }
        let kept = text(AnswerKind::WithHeader, None, &[&thinking, &header, &[111]]);
        assert_eq!(kept, both("h", "<|im_end|>a:o"));
        let kept = text(AnswerKind::WithHeader, None, &[&header, &[111]]);
        assert_eq!(kept, both("", "<|im_end|>a:o"));
        let unknown = ThinkingMarkers {
            answer: "Answer:".to_owned(),
            ..markers
        };
        assert_eq!(Reasoning::new(&tokenizer(), &unknown), None);
    }

    #[test]
    fn the_last_token_decides_in_tokens() {
        let ended = |ids: &[u32]| reasoning().ended_in_tokens(ids);
        assert!(ended(&[1, 2]));
        assert!(!ended(&[1, THINK_START, 2]));
        assert!(ended(&[1, THINK_START, 2, THINK_END, 3]));
        assert!(!ended(&[1, THINK_END, THINK_START]));
    }

    #[test]
    fn the_template_decides_in_conversations() {
        const KNOWS: &str = "{% if not enable_thinking %}<think>\n\n</think>{% endif %}";
        for (content, opening, template, expected) in [
            // DeepSeek-R1 opens it, Qwen3 leaves it to the model or closes it.
            ("hi", "[assistant]<think>\n", KNOWS, Some(false)),
            ("hi", "[assistant]", KNOWS, None),
            (
                "hi",
                "[assistant]<think>\n\n</think>\n\n",
                KNOWS,
                Some(true),
            ),
            // This one knows nothing of thinking.
            ("hi", "[assistant]", "{{ messages }}", Some(true)),
            // What a person wrote is no thinking.
            ("what is <think>?", "[assistant]", KNOWS, None),
            ("</think>", "[assistant]<think>", KNOWS, Some(false)),
        ] {
            let before = format!("[user]{content}");
            let rendered = format!("{before}{opening}");
            let template = ChatTemplate::new(template, Vec::new()).unwrap();
            let ended = reasoning().ended_in_opening(&rendered, &before, &template);
            assert_eq!(ended, expected, "{rendered}");
        }
        // A template that ends a conversation without an opening in its own way.
        let rendered = "[user]<think>!<think>";
        let template = ChatTemplate::new(KNOWS, Vec::new()).unwrap();
        let ended = reasoning().ended_in_opening(rendered, "[user]<think>!<eos>", &template);
        assert_eq!(ended, Some(false));
    }

    #[test]
    fn a_continued_answer_decides_itself() {
        for (content, expected) in [
            ("The answer is", true),
            ("<think>Let me see", false),
            ("<think>a</think>It is", true),
        ] {
            let message = json!({"role": "assistant", "content": content});
            let ended = reasoning().ended_in_answer(Some(&message));
            assert_eq!(ended, expected, "{content}");
        }
        assert!(reasoning().ended_in_answer(None));
    }
}
