//! How models write calls: the formats of chat templates, as literal text around the arguments.
//!
//! A format gives two things that must agree: the constraint that an answer is under, a structural
//! tag, and the [`Openings`] by which [`ToolParser`](super::tool_parser::ToolParser) finds the calls
//! in it. Everything of a call but its arguments is fixed text, so the parser compares and never
//! guesses.

use serde_json::{Value, json};
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
            format!("must be one of auto, {}, got {name:?}", names.join(", "))
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
    pub(super) fn has_short_ids(self) -> bool {
        matches!(self, Self::Mistral | Self::MistralArgs)
    }

    /// The structural tag of an answer with calls of these functions. `answer` is the format of an
    /// answer without: any text where absent. `parallel` says whether several calls will do.
    pub(super) fn structural_tag(
        self,
        functions: Vec<(&str, Value)>,
        calls: &Calls,
        answer: Option<Value>,
        parallel: bool,
    ) -> Value {
        let format = match (calls, answer) {
            (Calls::Only, _) => self.calls_only(functions, parallel),
            (Calls::Possible, Some(answer)) => either(answer, self.calls_only(functions, parallel)),
            (Calls::Possible, None) if self.is_whole_answer() => {
                let answer = json!({"type": "regex", "pattern": NO_LLAMA_CALL});
                either(answer, self.calls_only(functions, parallel))
            }
            (Calls::Possible, None) => self.calls_in_text(functions, parallel),
        };
        object([("type", "structural_tag".into()), ("format", format)])
    }

    /// Text with calls in it.
    fn calls_in_text(self, functions: Vec<(&str, Value)>, parallel: bool) -> Value {
        let tags = match self {
            Self::Mistral => vec![object([
                ("begin", "[TOOL_CALLS]".into()),
                ("content", self.list_of_calls(functions, parallel)),
                ("end", "".into()),
            ])],
            _ => self.tags(functions),
        };
        object([
            ("type", "triggered_tags".into()),
            ("triggers", json!(self.triggers())),
            ("tags", tags.into()),
            (
                "stop_after_first",
                (!parallel || !self.has_text_after()).into(),
            ),
        ])
    }

    /// Nothing but calls, at least one.
    fn calls_only(self, functions: Vec<(&str, Value)>, parallel: bool) -> Value {
        let calls = self.list_of_calls(functions, parallel);
        match self {
            Self::Hermes | Self::MistralArgs | Self::List => calls,
            Self::Llama3Json => sequence(vec![optional("<|python_tag|>"), calls]),
            Self::Mistral => sequence(vec![text("[TOOL_CALLS]"), calls]),
        }
    }

    /// Calls one after the other, with what stands around all of them.
    fn list_of_calls(self, functions: Vec<(&str, Value)>, parallel: bool) -> Value {
        let separator = match self {
            Self::Hermes => "\n",
            Self::Llama3Json => "; ",
            Self::Mistral | Self::List => ", ",
            Self::MistralArgs => "",
        };
        let calls = object([
            ("type", "tags_with_separator".into()),
            ("tags", self.tags(functions).into()),
            ("separator", separator.into()),
            ("at_least_one", true.into()),
            ("stop_after_first", (!parallel).into()),
        ]);
        match self {
            Self::Hermes | Self::MistralArgs | Self::Llama3Json => calls,
            Self::List => sequence(vec![text("["), calls, text("]")]),
            Self::Mistral => sequence(vec![optional(" "), text("["), calls, text("]")]),
        }
    }

    /// One tag per function, from its own opening on.
    fn tags(self, functions: Vec<(&str, Value)>) -> Vec<Value> {
        let tags = functions.into_iter().map(|(name, schema)| {
            let begin = match self {
                Self::Hermes | Self::MistralArgs => self.next(name),
                Self::Mistral => call_head(name, "arguments"),
                Self::Llama3Json | Self::List => call_head(name, "parameters"),
            };
            let content = object([("type", "json_schema".into()), ("json_schema", schema)]);
            object([
                ("begin", begin.into()),
                ("content", content),
                ("end", self.close().into()),
            ])
        });
        tags.collect()
    }
}

/// An object of these members. `json!` would copy them, and schemas may be large.
fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    let members = members.map(|(name, value)| (name.to_owned(), value));
    Value::Object(members.into_iter().collect())
}

fn text(value: &str) -> Value {
    json!({"type": "const_string", "value": value})
}

fn optional(value: &str) -> Value {
    object([("type", "optional".into()), ("content", text(value))])
}

fn sequence(elements: Vec<Value>) -> Value {
    object([("type", "sequence".into()), ("elements", elements.into())])
}

fn either(one: Value, other: Value) -> Value {
    object([("type", "or".into()), ("elements", vec![one, other].into())])
}

/// Where the answer without calls stands in a structural tag that has one.
pub(super) const PLACE_OF_ANSWER: &str = "/format/elements/0";

/// Where the functions stand in a tag of [`ToolCallFormat::structural_tag`], in their order: a JSON
/// pointer to the list.
pub(super) fn place_of_functions(tag: &Value) -> String {
    let mut place = "/format".to_owned();
    // As deep as the formats are. Calls stand behind all else that could have a list of tags.
    while let Some(format) = tag.pointer(&place) {
        let content = format.pointer("/tags/0/content/type");
        if content.is_some_and(|kind| kind == "json_schema") {
            return place + "/tags";
        }
        let elements = format.get("elements").and_then(Value::as_array);
        let calls = elements.and_then(|elements| {
            let has_calls = |element: &Value| {
                element.get("tags").is_some() || element.get("elements").is_some()
            };
            elements.iter().rposition(has_calls)
        });
        place += &match calls {
            Some(i) => format!("/elements/{i}"),
            None => "/tags/0/content".to_owned(),
        };
    }
    place
}

/// `{"name": "f", "arguments": `
fn call_head(name: &str, arguments: &str) -> String {
    let name = Value::from(name);
    format!("{{\"name\": {name}, \"{arguments}\": ")
}

/// Any text that doesn't begin as a call of [`ToolCallFormat::Llama3Json`] does.
const NO_LLAMA_CALL: &str = r#"(?!\{"name": "|<\|python_tag\|>)[\s\S]*"#;

/// The openings of the calls in an answer.
#[derive(Debug, Clone)]
pub(super) struct Openings {
    pub(super) format: ToolCallFormat,
    /// Each with its function's name.
    first: Vec<(String, String)>,
    next: Vec<(String, String)>,
}

impl Openings {
    /// The openings of these functions' calls.
    pub(super) fn new<'a>(
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
    use super::*;

    #[test]
    fn names_are_vllms() {
        assert_eq!(
            ToolCallFormat::from_name("hermes"),
            Ok(ToolCallFormat::Hermes)
        );
        let error = ToolCallFormat::from_name("pythonic").unwrap_err();
        assert!(
            error.contains("hermes") && error.contains("pythonic"),
            "{error}"
        );
    }

    #[test]
    fn functions_are_found_where_they_stand() {
        let schema = json!({"type": "object"});
        let functions = [("f", schema.clone()), ("g", schema)];
        // With a list of tags of its own.
        let answer = json!({"type": "sequence", "elements": [{"type": "tag", "tags": []}]});
        for (_, format) in NAMES.into_iter().chain([("list", ToolCallFormat::List)]) {
            for calls in [Calls::Only, Calls::Possible] {
                for answer in [None, Some(answer.clone())] {
                    let tag = format.structural_tag(functions.to_vec(), &calls, answer, true);
                    let place = place_of_functions(&tag);
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
