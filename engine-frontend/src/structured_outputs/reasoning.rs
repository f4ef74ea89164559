//! Where a prompt leaves the model's thinking.

use std::sync::{Arc, LazyLock};

use protocol::ThinkingTokens;
use serde::Deserialize;
use serde_json::json;
use tokenizer::{ChatTemplate, ChatTemplateRequest, TemplateMessage, TemplateVariables, Tokenizer};

use crate::thinking_split::{SplitMarkers, ThinkingSplit};

/// The texts around a model's thinking: each one token, or several of which the first is a control token, so that the
/// text is always written with the same ones; or, with `text`, plain text in whatever tokens.
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
    /// Stands behind an answer; empty of models that only end their text there.
    #[serde(default)]
    pub answer_end: String,
    /// Stands before text for the user that comes before the answer, and ends as thinking does; empty of models without
    /// such a channel. Only with `answer`.
    #[serde(default)]
    pub preamble: String,
    /// True if the markers are plain text.
    #[serde(default)]
    pub text: bool,
    /// Other spellings of `start` and `end`. Only with `text`.
    #[serde(default)]
    pub other_spellings: Vec<(String, String)>,
}

/// How models think, by vLLM's names of reasoning parsers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReasoningFormat {
    names: Vec<String>,
    markers: ThinkingMarkers,
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
        let format = FORMATS.iter().find(has_name);
        format.map(|format| format.markers.clone())
    }

    /// The names of all reasoning parsers.
    pub(super) fn parser_names() -> impl Iterator<Item = &'static str> {
        FORMATS
            .iter()
            .flat_map(|format| &format.names)
            .map(String::as_str)
    }

    /// All spellings of what opens thinking.
    pub(super) fn starts(&self) -> impl Iterator<Item = &str> {
        let others = self.other_spellings.iter().map(|(start, _)| start);
        std::iter::once(&self.start)
            .chain(others)
            .map(String::as_str)
    }

    /// All spellings of what closes it.
    pub(super) fn ends(&self) -> impl Iterator<Item = &str> {
        let others = self.other_spellings.iter().map(|(_, end)| end);
        std::iter::once(&self.end).chain(others).map(String::as_str)
    }
}

impl Default for ThinkingMarkers {
    fn default() -> Self {
        Self {
            start: "<think>".to_owned(),
            end: "</think>".to_owned(),
            answer: String::new(),
            answer_end: String::new(),
            preamble: String::new(),
            text: false,
            other_spellings: Vec::new(),
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
    /// The markers as tokens, or as characters. The separator is what the model's chat template writes between thinking
    /// and an answer, or the header of an answer's channel.
    units: SplitMarkers,
}

impl Reasoning {
    /// The reasoning of a model with the markers of a format that its vocabulary has; `None` without any. Markers of
    /// plain text could be anyone's, and have to be named.
    pub fn found(tokenizer: &Tokenizer) -> Option<Self> {
        let mut formats = FORMATS.iter().filter(|format| !format.markers.text);
        formats.find_map(|format| Self::new(tokenizer, &format.markers))
    }

    /// The reasoning of a model; `None` where its vocabulary doesn't have the markers' tokens, or has control tokens in
    /// markers of plain text.
    pub fn new(tokenizer: &Tokenizer, markers: &ThinkingMarkers) -> Option<Self> {
        let unit_list = |text: &str| match (text.is_empty(), markers.text) {
            (true, _) => Some(Vec::new()),
            (false, true) => characters(tokenizer, text),
            (false, false) => marker_token_ids(tokenizer, text),
        };
        let all = |texts: Vec<&str>| texts.into_iter().map(unit_list).collect::<Option<Vec<_>>>();
        let (starts, ends) = (
            all(markers.starts().collect())?,
            all(markers.ends().collect())?,
        );
        if starts.iter().chain(&ends).any(Vec::is_empty) {
            return None;
        }
        let separator = match (markers.answer.as_str(), ends.first()) {
            ("", Some(end)) if !markers.text => {
                separator(tokenizer, &markers.end, end).unwrap_or_default()
            }
            (header, _) => unit_list(header)?,
        };
        Some(Self {
            units: SplitMarkers {
                starts,
                ends,
                separator,
                has_header: !markers.answer.is_empty(),
                preamble: unit_list(&markers.preamble)?,
                answer_end: unit_list(&markers.answer_end)?,
                is_text: markers.text,
            },
            markers: markers.clone(),
        })
    }

    /// The tokens as requests carry them; `None` where the markers are plain text, which no tokens are.
    pub fn thinking_tokens(&self) -> Option<ThinkingTokens> {
        let first = |markers: &[Vec<u32>]| markers.first().cloned().unwrap_or_default();
        (!self.units.is_text).then(|| ThinkingTokens {
            start_token_ids: first(&self.units.starts),
            end_token_ids: first(&self.units.ends),
            separator_token_ids: self.units.separator.clone(),
        })
    }

    /// The markers where they are plain text.
    pub(crate) fn text_markers(&self) -> Option<&ThinkingMarkers> {
        self.units.is_text.then_some(&self.markers)
    }

    /// The tokens that close thinking in a prompt and lead to the answer.
    ///
    /// # Errors
    /// The tokenizer fails.
    pub(crate) fn closing_token_ids(
        &self,
        tokenizer: &Tokenizer,
    ) -> Result<Vec<u32>, tokenizer::TokenizerError> {
        match self.thinking_tokens() {
            Some(tokens) => Ok([tokens.end_token_ids, tokens.separator_token_ids].concat()),
            None => {
                let closing = format!("{}{}", self.markers.end, self.markers.answer);
                tokenizer.encode(&closing, false)
            }
        }
    }

    /// How an output's thinking is told apart, where the prompt leaves it like this. Only a constrained
    /// answer is sure to come after a separator: a free one begins behind the marker, as in vLLM. A header comes
    /// before free answers too, and without thinking; not where the constraint has what is around answers. Only free
    /// answers have preambles, and a mark behind them.
    pub fn split(&self, ended: Option<bool>, answer: AnswerKind) -> ThinkingSplit {
        let mut units = self.units.clone();
        if answer != AnswerKind::Free {
            units.preamble.clear();
            units.answer_end.clear();
        }
        match answer {
            AnswerKind::Free if !units.has_header => units.separator.clear(),
            AnswerKind::Free => {}
            // Text may begin like a header of plain text: what the constraint's own text is, is no header.
            AnswerKind::Constrained => units.has_header &= !units.is_text,
            AnswerKind::WithHeader => {
                units.separator.clear();
                units.has_header = false;
            }
        }
        ThinkingSplit::new(Arc::new(units), ended)
    }

    /// Whether thinking has ended in a prompt that went through no template: it has, unless the
    /// last of the two markers opens it.
    pub fn ended_in_tokens(&self, tokenizer: &Tokenizer, prompt_token_ids: &[u32]) -> bool {
        if self.units.is_text {
            let text = tokenizer.decode(prompt_token_ids, false);
            return self.ended_in_text(&text).unwrap_or(true);
        }
        let last = |markers: &[Vec<u32>]| {
            let places = markers.iter().filter_map(|marker| {
                let mut windows = prompt_token_ids.windows(marker.len().max(1));
                windows.rposition(|window| window == marker)
            });
            places.max()
        };
        last(&self.units.starts) <= last(&self.units.ends)
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
            None if !self.markers.starts().any(|start| template.mentions(start)) => Some(true),
            ended => ended,
        }
    }

    /// Whether thinking has ended in an answer that is to be continued: one that has begun
    /// without thinking goes on without.
    pub fn ended_in_answer(&self, text: &str) -> bool {
        self.ended_in_text(text).unwrap_or(true)
    }

    /// What the last of the two markers says, or an answer's header; `None` without any.
    fn ended_in_text(&self, text: &str) -> Option<bool> {
        let header = Some(self.markers.answer.as_str()).filter(|header| !header.is_empty());
        let ends = self.markers.ends().chain(header);
        let end = ends.filter_map(|marker| text.rfind(marker)).max();
        let starts = self.markers.starts();
        let start = starts.filter_map(|marker| text.rfind(marker)).max();
        match (start, end) {
            (None, None) => None,
            (start, end) => Some(end > start),
        }
    }
}

/// The tokens that a model's chat template writes between the end of thinking and an answer: mostly line
/// ends. They stand in the answer's opening where thinking is switched off, or in an answer of an earlier
/// turn with its thinking. `None` where no template shows them.
fn separator(tokenizer: &Tokenizer, end: &str, end_token_ids: &[u32]) -> Option<Vec<u32>> {
    const TEXT: &str = "formwork-probe";
    let template = tokenizer.chat_templates().select(false).ok()?;
    let question = json!({"role": "user", "content": "a"});
    let answer = json!({"role": "assistant", "content": TEXT, "reasoning_content": "b"});
    let mut switched_off = TemplateVariables::default();
    switched_off.insert("enable_thinking", json!(false));
    let messages = TemplateMessage::list(vec![question, answer]).ok()?;
    let opening = template.render(&ChatTemplateRequest {
        messages: messages.get(..1)?,
        chat_template_kwargs: Some(&switched_off),
        add_generation_prompt: true,
        ..ChatTemplateRequest::default()
    });
    let turn = template.render(&ChatTemplateRequest {
        messages: &messages,
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
    Some(token_ids.strip_prefix(end_token_ids)?.to_vec())
}

/// The tokens of a marker: itself, or those that write it, beginning with a control token.
fn marker_token_ids(tokenizer: &Tokenizer, marker: &str) -> Option<Vec<u32>> {
    if let Some(token_id) = tokenizer.token_to_id(marker) {
        return Some(vec![token_id]);
    }
    let token_ids = tokenizer.encode(marker, false).ok()?;
    let is_control = tokenizer.is_special_token(*token_ids.first()?);
    (is_control && tokenizer.decode(&token_ids, false) == marker).then_some(token_ids)
}

/// The characters of a marker of plain text. `None` where the vocabulary has a control token in it, which is no text.
fn characters(tokenizer: &Tokenizer, marker: &str) -> Option<Vec<u32>> {
    let token_ids = tokenizer.encode(marker, false).ok()?;
    let has_control = token_ids.iter().any(|&id| tokenizer.is_special_token(id));
    (!has_control).then(|| marker.chars().map(u32::from).collect())
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
        assert_eq!(FORMATS.len(), 9);
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
        let start = &reasoning.units.starts[0];
        assert_eq!(start[..], [IM_END, u32::from(b'h'), u32::from(b'm')]);
        let ended = |token_ids: &[u32]| reasoning.ended_in_tokens(&tokenizer(), token_ids);
        assert!(!ended(start));
        assert!(ended(&start[..2]));
        assert!(ended(&[&start[..], &[THINK_END]].concat()));
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
            reasoning.units.separator
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
            assert!(separator(template).is_empty(), "{template}");
        }
    }

    /// The thinking and the answer of an output, taken token by token, so that what is held back is told in time.
    fn told_apart(
        reasoning: &Reasoning,
        answer: AnswerKind,
        ended: Option<bool>,
        output: &[u32],
    ) -> (String, String) {
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
        let (mut thought, mut text) = (String::new(), String::new());
        for (i, token_id) in output.iter().enumerate() {
            detokenizer.update(&[*token_id], false);
            let is_last = i + 1 == output.len();
            text.push_str(&detokenizer.get_next_output_text(is_last, true));
            thought.push_str(
                &detokenizer
                    .get_next_reasoning_text(true)
                    .unwrap_or_default(),
            );
        }
        (thought, text)
    }

    fn both(thought: &str, text: &str) -> (String, String) {
        (thought.to_owned(), text.to_owned())
    }

    #[test]
    fn only_constrained_answers_are_separated() {
        let mut reasoning = reasoning();
        reasoning.units.separator = vec![10, 10];
        let tokens = reasoning.thinking_tokens().unwrap();
        assert_eq!(tokens.separator_token_ids, [10, 10]);
        let thinking = [104, THINK_END, 10, 10, 111];
        for (answer, ended, output, expected) in [
            (
                AnswerKind::Constrained,
                Some(false),
                &thinking[..],
                both("h", "o"),
            ),
            (
                AnswerKind::Constrained,
                Some(true),
                &thinking[2..],
                both("", "\n\no"),
            ),
            (
                AnswerKind::Free,
                Some(false),
                &thinking[..],
                both("h", "\n\no"),
            ),
        ] {
            assert_eq!(told_apart(&reasoning, answer, ended, output), expected);
        }
    }

    /// Channels, as Harmony has them: `<|im_end|>` stands for its control tokens.
    #[test]
    fn a_header_stands_before_answers_of_every_kind() {
        let markers = ThinkingMarkers {
            start: "<|im_end|>t:".to_owned(),
            end: "</think>".to_owned(),
            answer: "<|im_end|>a:".to_owned(),
            ..ThinkingMarkers::default()
        };
        let reasoning = Reasoning::new(&tokenizer(), &markers).unwrap();
        let [t, a, colon] = [b't', b'a', b':'].map(u32::from);
        let header = [IM_END, a, colon];
        let tokens = reasoning.thinking_tokens().unwrap();
        assert_eq!(tokens.separator_token_ids, header);
        let thinking = [IM_END, t, colon, 104, THINK_END];
        let text = |answer, ended, output: &[&[u32]]| {
            told_apart(&reasoning, answer, ended, &output.concat())
        };
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
        let ended = |ids: &[u32]| reasoning().ended_in_tokens(&tokenizer(), ids);
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
            let ended = reasoning().ended_in_answer(content);
            assert_eq!(ended, expected, "{content}");
        }
        assert!(reasoning().ended_in_answer(""));
    }
}
