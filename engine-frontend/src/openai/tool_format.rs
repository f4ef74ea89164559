//! How models write calls: the formats of chat templates, as literal text around the arguments.
//!
//! A format gives two things that must agree: the constraint that an answer is under, a structural
//! tag, and the [`Openings`] by which [`ToolParser`](super::tool_parser::ToolParser) finds the calls
//! in it. Everything of a call but its arguments is fixed text, so the parser compares and never
//! guesses.

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokenizer::ChatTemplate;

/// Names of `--tool-call-parser`, and the formats that they stand for.
const NAMES: [(&str, ToolCallFormat); 5] = [
    ("hermes", ToolCallFormat::Hermes),
    ("llama3_json", ToolCallFormat::Llama3Json),
    ("llama4_json", ToolCallFormat::Llama3Json),
    ("mistral", ToolCallFormat::Mistral),
    ("mistral_args", ToolCallFormat::MistralArgs),
];

/// How a model writes calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolCallFormat {
    /// Hermes and Qwen: `<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>`, anywhere.
    Hermes,
    /// Llama 3.1 and 3.2: the answer is `{"name": "f", "parameters": {}}`, several divided by `; `,
    /// with or without `<|python_tag|>` before.
    Llama3Json,
    /// Mistral up to version 7 of its tokenizer: `[TOOL_CALLS] [{"name": "f", "arguments": {}}]`
    /// ends the answer.
    Mistral,
    /// Mistral since version 11: `[TOOL_CALLS]f[ARGS]{}`, one after another.
    MistralArgs,
    /// No model's own: the answer is `[{"name": "f", "parameters": {}}]`. What calls that are asked
    /// for look like where the model's format isn't known.
    List,
}

/// Whether an answer must have calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Calls {
    /// Where the model begins one.
    Possible,
    /// Nothing else.
    Only,
}

impl ToolCallFormat {
    /// The format with this name of `--tool-call-parser`.
    ///
    /// # Errors
    /// The names that there are.
    pub fn from_name(name: &str) -> Result<Self, String> {
        let found = NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, format)| *format).ok_or_else(|| {
            let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
            format!("must be one of auto, {}", names.join(", "))
        })
    }

    /// The format that a chat template writes earlier calls in; `None` where it is none of those
    /// known here.
    pub fn of_template(template: &ChatTemplate) -> Option<Self> {
        let mentions = |text: &str| template.mentions(text);
        if mentions("[TOOL_CALLS]") {
            let args = mentions("[ARGS]");
            return Some(if args {
                Self::MistralArgs
            } else {
                Self::Mistral
            });
        }
        // Some models have the same markers around another language.
        if mentions("<tool_call>") && !mentions("<function=") && !mentions("<arg_key>") {
            return Some(Self::Hermes);
        }
        let is_llama = mentions("<|python_tag|>") || mentions("\"name\": function name");
        (is_llama && mentions("\"parameters\"")).then_some(Self::Llama3Json)
    }

    /// The literal text that tells a call from other text, by which it has begun for certain.
    fn triggers(self) -> &'static [&'static str] {
        match self {
            Self::Hermes => &["<tool_call>"],
            Self::Llama3Json => &["<|python_tag|>", "{\"name\": \""],
            Self::Mistral | Self::MistralArgs => &["[TOOL_CALLS]"],
            Self::List => &["["],
        }
    }

    /// What stands before the first call's arguments, in every spelling.
    fn first(self, name: &str) -> Vec<String> {
        let next = self.next(name);
        match self {
            Self::Hermes | Self::MistralArgs => vec![next],
            Self::Llama3Json => ["", "<|python_tag|>"]
                .map(|tag| format!("{tag}{}", call_head(name, "parameters")))
                .into(),
            Self::Mistral => ["", " "]
                .map(|space| format!("[TOOL_CALLS]{space}[{}", call_head(name, "arguments")))
                .into(),
            Self::List => vec![format!("[{}", call_head(name, "parameters"))],
        }
    }

    /// What stands before a later call's arguments.
    fn next(self, name: &str) -> String {
        match self {
            Self::Hermes => format!("<tool_call>\n{}", call_head(name, "arguments")),
            Self::Llama3Json => format!("; {}", call_head(name, "parameters")),
            Self::Mistral => format!(", {}", call_head(name, "arguments")),
            Self::MistralArgs => format!("[TOOL_CALLS]{name}[ARGS]"),
            Self::List => format!(", {}", call_head(name, "parameters")),
        }
    }

    /// What stands after a call's arguments.
    fn close(self) -> &'static str {
        match self {
            Self::Hermes => "}\n</tool_call>",
            Self::Llama3Json | Self::Mistral | Self::List => "}",
            Self::MistralArgs => "",
        }
    }

    /// Whether text may stand after a call.
    fn has_text_after(self) -> bool {
        matches!(self, Self::Hermes | Self::MistralArgs)
    }

    /// Whether an answer that doesn't begin with a call has none.
    fn is_whole_answer(self) -> bool {
        self == Self::Llama3Json
    }

    /// How calls' ids are spelled: Mistral's templates take nine letters and digits.
    pub(crate) fn has_short_ids(self) -> bool {
        matches!(self, Self::Mistral | Self::MistralArgs)
    }

    /// The structural tag of an answer with calls of these functions, each with its schema. `answer` is
    /// the format of an answer without: any text where absent. `parallel` says whether several calls
    /// will do.
    pub(super) fn structural_tag<'a>(
        self,
        functions: &[(&str, &'a RawValue)],
        calls: &Calls,
        answer: Option<Value>,
        parallel: bool,
    ) -> StructuralTag<'a> {
        let format = match (calls, answer) {
            (Calls::Only, _) => self.calls_only(functions, parallel),
            (Calls::Possible, Some(answer)) => {
                either(Format::Given(answer), self.calls_only(functions, parallel))
            }
            (Calls::Possible, None) if self.is_whole_answer() => {
                let answer = Format::Regex {
                    pattern: NO_LLAMA_CALL,
                };
                either(answer, self.calls_only(functions, parallel))
            }
            (Calls::Possible, None) => self.calls_in_text(functions, parallel),
        };
        StructuralTag::StructuralTag { format }
    }

    /// Text with calls in it.
    fn calls_in_text<'a>(self, functions: &[(&str, &'a RawValue)], parallel: bool) -> Format<'a> {
        let tags = match self {
            Self::Mistral => vec![Tag {
                begin: "[TOOL_CALLS]".to_owned(),
                content: self.list_of_calls(functions, parallel),
                end: "",
            }],
            _ => self.tags(functions),
        };
        Format::TriggeredTags {
            triggers: self.triggers(),
            tags,
            stop_after_first: !parallel || !self.has_text_after(),
        }
    }

    /// Nothing but calls, at least one.
    fn calls_only<'a>(self, functions: &[(&str, &'a RawValue)], parallel: bool) -> Format<'a> {
        let calls = self.list_of_calls(functions, parallel);
        match self {
            Self::Hermes | Self::MistralArgs | Self::List => calls,
            Self::Llama3Json => sequence([optional("<|python_tag|>"), calls]),
            Self::Mistral => sequence([text("[TOOL_CALLS]"), calls]),
        }
    }

    /// Calls one after the other, with what stands around all of them.
    fn list_of_calls<'a>(self, functions: &[(&str, &'a RawValue)], parallel: bool) -> Format<'a> {
        let calls = Format::TagsWithSeparator {
            tags: self.tags(functions),
            separator: match self {
                Self::Hermes => "\n",
                Self::Llama3Json => "; ",
                Self::Mistral | Self::List => ", ",
                Self::MistralArgs => "",
            },
            at_least_one: true,
            stop_after_first: !parallel,
        };
        match self {
            Self::Hermes | Self::MistralArgs | Self::Llama3Json => calls,
            Self::List => sequence([text("["), calls, text("]")]),
            Self::Mistral => sequence([optional(" "), text("["), calls, text("]")]),
        }
    }

    /// One tag per function, from its own opening on.
    fn tags<'a>(self, functions: &[(&str, &'a RawValue)]) -> Vec<Tag<'a>> {
        let tags = functions.iter().map(|&(name, json_schema)| Tag {
            begin: match self {
                Self::Hermes | Self::MistralArgs => self.next(name),
                Self::Mistral => call_head(name, "arguments"),
                Self::Llama3Json | Self::List => call_head(name, "parameters"),
            },
            content: Format::JsonSchema { json_schema },
            end: self.close(),
        });
        tags.collect()
    }
}

/// A structural tag as it is written. Schemas stand in it as text: as values they would take many times
/// the memory.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum StructuralTag<'a> {
    /// The only kind.
    StructuralTag {
        /// What an answer is.
        format: Format<'a>,
    },
}

/// A format of structural tags, of those that calls need.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Format<'a> {
    ConstString {
        value: &'static str,
    },
    Regex {
        pattern: &'static str,
    },
    JsonSchema {
        json_schema: &'a RawValue,
    },
    Optional {
        content: Box<Format<'a>>,
    },
    Sequence {
        elements: Vec<Format<'a>>,
    },
    Or {
        elements: Vec<Format<'a>>,
    },
    TagsWithSeparator {
        tags: Vec<Tag<'a>>,
        separator: &'static str,
        at_least_one: bool,
        stop_after_first: bool,
    },
    TriggeredTags {
        triggers: &'static [&'static str],
        tags: Vec<Tag<'a>>,
        stop_after_first: bool,
    },
    /// The request's own.
    #[serde(untagged)]
    Given(Value),
}

/// Text between two fixed ones.
#[derive(Debug, Serialize)]
pub(super) struct Tag<'a> {
    begin: String,
    content: Format<'a>,
    end: &'static str,
}

impl StructuralTag<'_> {
    /// Where the functions stand, in their order: a JSON pointer to the list.
    pub(super) fn place_of_functions(&self) -> String {
        let Self::StructuralTag { format } = self;
        format!("/format{}", format.place_of_functions().unwrap_or_default())
    }
}

impl Format<'_> {
    fn place_of_functions(&self) -> Option<String> {
        match self {
            Self::Sequence { elements } | Self::Or { elements } => {
                let places = elements.iter().enumerate();
                let mut places = places.filter_map(|(i, element)| {
                    Some(format!("/elements/{i}{}", element.place_of_functions()?))
                });
                places.next()
            }
            Self::TagsWithSeparator { tags, .. } | Self::TriggeredTags { tags, .. } => {
                let inner = tags
                    .first()
                    .and_then(|tag| tag.content.place_of_functions());
                Some(inner.map_or_else(
                    || "/tags".to_owned(),
                    |inner| format!("/tags/0/content{inner}"),
                ))
            }
            Self::ConstString { .. }
            | Self::Regex { .. }
            | Self::JsonSchema { .. }
            | Self::Optional { .. }
            | Self::Given(_) => None,
        }
    }
}

fn text<'a>(value: &'static str) -> Format<'a> {
    Format::ConstString { value }
}

fn optional<'a>(value: &'static str) -> Format<'a> {
    Format::Optional {
        content: Box::new(text(value)),
    }
}

fn sequence<'a, const N: usize>(elements: [Format<'a>; N]) -> Format<'a> {
    Format::Sequence {
        elements: elements.into(),
    }
}

fn either<'a>(one: Format<'a>, other: Format<'a>) -> Format<'a> {
    Format::Or {
        elements: vec![one, other],
    }
}

/// Where the answer without calls stands in a structural tag that has one.
pub(super) const PLACE_OF_ANSWER: &str = "/format/elements/0";

/// `{"name": "f", "arguments": `
fn call_head(name: &str, arguments: &str) -> String {
    let name = Value::from(name);
    format!("{{\"name\": {name}, \"{arguments}\": ")
}

/// Any text that doesn't begin as a call of [`ToolCallFormat::Llama3Json`] does.
const NO_LLAMA_CALL: &str = r#"(?!\{"name": "|<\|python_tag\|>)[\s\S]*"#;

/// The openings of the calls in an answer.
#[derive(Debug, Clone)]
pub(crate) struct Openings {
    pub(super) format: ToolCallFormat,
    /// Each with its function's name.
    first: Vec<(String, String)>,
    next: Vec<(String, String)>,
}

impl Openings {
    /// The openings of these functions' calls.
    pub(crate) fn new<'a>(
        format: ToolCallFormat,
        functions: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let (mut first, mut next) = (Vec::new(), Vec::new());
        for name in functions {
            let spellings = format.first(name).into_iter();
            first.extend(spellings.map(|opening| (opening, name.to_owned())));
            next.push((format.next(name), name.to_owned()));
        }
        Self {
            format,
            first,
            next,
        }
    }

    /// The openings of the first call, or of a later one, each with its function's name.
    pub(super) fn get(&self, is_first: bool) -> &[(String, String)] {
        if is_first { &self.first } else { &self.next }
    }

    /// Whether a call may begin after `text_before` has come.
    pub(super) fn may_begin(&self, is_first: bool, text_before: bool) -> bool {
        !(is_first && text_before && self.format.is_whole_answer())
    }

    /// What stands after a call's arguments.
    pub(super) fn close(&self) -> &'static str {
        self.format.close()
    }

    /// Whether what stands between calls, and after them, is text for the reader.
    pub(super) fn has_text_after(&self) -> bool {
        self.format.has_text_after()
    }

    /// Whether the beginning of a call can be nothing else any more.
    pub(super) fn is_certain(&self, beginning: &str) -> bool {
        let triggers = self.format.triggers();
        triggers.iter().any(|t| beginning.starts_with(t))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_vllms() {
        assert_eq!(
            ToolCallFormat::from_name("hermes"),
            Ok(ToolCallFormat::Hermes)
        );
        let error = ToolCallFormat::from_name("pythonic").unwrap_err();
        assert!(error.contains("hermes"), "{error}");
    }

    #[test]
    fn functions_are_found_where_they_stand() {
        let schema = RawValue::from_string(r#"{"type": "object"}"#.to_owned()).unwrap();
        let functions = [("f", &*schema), ("g", &*schema)];
        // With a list of tags of its own.
        let answer = json!({"type": "sequence", "elements": [{"type": "tag", "tags": []}]});
        for (_, format) in NAMES.into_iter().chain([("list", ToolCallFormat::List)]) {
            for calls in [Calls::Only, Calls::Possible] {
                for answer in [None, Some(answer.clone())] {
                    let tag = format.structural_tag(&functions, &calls, answer, true);
                    let place = tag.place_of_functions();
                    let tag = serde_json::to_value(&tag).unwrap();
                    for (i, name) in ["f", "g"].into_iter().enumerate() {
                        let tag = tag.pointer(&format!("{place}/{i}")).unwrap();
                        assert!(tag["begin"].as_str().unwrap().contains(name), "{tag}");
                        assert_eq!(tag["content"]["type"], "json_schema");
                    }
                }
            }
        }
    }

    #[test]
    fn formats_are_known_by_their_templates() {
        let format = |template: &str| {
            ToolCallFormat::of_template(&ChatTemplate::new(template, Vec::new()).unwrap())
        };
        assert_eq!(
            format("<tool_call>\\n{}</tool_call>"),
            Some(ToolCallFormat::Hermes)
        );
        assert_eq!(format("<tool_call><function=f></tool_call>"), None);
        assert_eq!(
            format("{{ '<|python_tag|>' }} \"parameters\": "),
            Some(ToolCallFormat::Llama3Json)
        );
        assert_eq!(format("[TOOL_CALLS] ["), Some(ToolCallFormat::Mistral));
        assert_eq!(
            format("[TOOL_CALLS]f[ARGS]"),
            Some(ToolCallFormat::MistralArgs)
        );
        assert_eq!(format("{{ messages }}"), None);
    }
}
