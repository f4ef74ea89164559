//! What is read of the text of calls.

mod tags;

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::*;
use crate::openai::tool_format::ToolCallFormat;
use crate::openai::tool_format::tests::{FORMATS, arb_function, written};

/// Content, and calls with their arguments.
type Answer = (String, Vec<(String, String)>);

fn openings(format: &str, functions: &[(&str, Value)]) -> Openings {
    let format = ToolCallFormat::from_name(format).unwrap();
    openings_of(format, functions)
}

fn openings_of(format: Arc<ToolCallFormat>, functions: &[(&str, Value)]) -> Openings {
    let functions = functions.iter();
    let functions =
        functions.map(|(name, schema)| (*name, serde_json::value::to_raw_value(schema).unwrap()));
    let functions: Vec<(&str, Box<RawValue>)> = functions.collect();
    Openings::new(
        format,
        functions.iter().map(|(name, schema)| (*name, &**schema)),
    )
}

fn read(openings: &Openings, pieces: &[&str]) -> Answer {
    let mut parser = ToolParser::new(openings.clone());
    let (mut content, mut calls) = (String::new(), Vec::<(String, String)>::new());
    for (i, piece) in pieces.iter().enumerate() {
        for part in parser.push(piece, i + 1 == pieces.len()) {
            match part {
                AnswerPart::Content(text) => content.push_str(&text),
                AnswerPart::Call { name, .. } => calls.push((name, String::new())),
                AnswerPart::Arguments(text) => calls.last_mut().unwrap().1.push_str(&text),
            }
        }
    }
    assert_eq!(parser.has_calls(), !calls.is_empty());
    (content, calls)
}

/// The same however the text is cut: in two, and in single characters.
fn read_in_all_cuts(openings: &Openings, text: &str) -> Answer {
    let whole = read(openings, &[text]);
    for (cut, _) in text.char_indices() {
        let (a, b) = text.split_at(cut);
        assert_eq!(read(openings, &[a, b]), whole, "{a}|{b}");
    }
    let mut buffer = [0; 4];
    let characters: Vec<String> = text
        .chars()
        .map(|c| c.encode_utf8(&mut buffer).to_owned())
        .collect();
    let mut characters: Vec<&str> = characters.iter().map(String::as_str).collect();
    characters.push("");
    assert_eq!(read(openings, &characters), whole, "{text}");
    whole
}

fn values(answer: Answer) -> (String, Vec<(String, Value)>) {
    let calls = answer.1.into_iter();
    let calls = calls.map(|(name, text)| {
        let value = serde_json::from_str(&text);
        (
            name,
            value.unwrap_or_else(|error| panic!("{error}: {text}")),
        )
    });
    (answer.0, calls.collect())
}

/// Functions one of whose names begins another's.
fn functions() -> Vec<(&'static str, Value)> {
    let weather = json!({
        "type": "object",
        "properties": {
            "city": {"type": "string"}, "days": {"type": "integer"}, "unit": {"enum": ["c", "f"]},
            "code": {"type": "string", "pattern": "^[a-z]+$"}, "zip": {"type": ["string", "integer"]},
            "tags": {"type": "array", "items": {"type": "boolean"}}, "place": {"type": "object"},
        },
    });
    vec![
        ("get", weather.clone()),
        ("get_weather", weather),
        ("stop-it", json!({"type": "object"})),
    ]
}

const HARD: &str = "}],\"{ \n</par )]<";

fn hard_arguments() -> Value {
    json!({
        "city": HARD, "days": -3, "unit": "c", "code": "abc", "zip": 5, "tags": [true, false],
        "place": {"a": "x, )]}", "b": [null, 1.5e3, {"c": "</parameter>\"\\"}]},
    })
}

/// Calls that a format may write: one where it has no more.
fn calls(format: &str) -> Vec<(&'static str, Value)> {
    let all = vec![
        ("get_weather", hard_arguments()),
        ("stop-it", json!({})),
        ("get", json!({"city": "Lisbon", "zip": "1100-200"})),
    ];
    match format {
        "openai" => all.into_iter().take(1).collect(),
        _ => all,
    }
}

fn owned(calls: &[(&str, Value)]) -> Vec<(String, Value)> {
    calls
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect()
}

#[test]
fn calls_of_each_format_are_the_same_however_they_are_cut() {
    for format in FORMATS.into_iter().chain(["list"]) {
        let openings = openings(format, &functions());
        for calls in [
            calls(format),
            calls(format)[..1].to_vec(),
            vec![("stop-it", json!({}))],
        ] {
            let answer = read_in_all_cuts(&openings, &written(format, &calls));
            assert_eq!(values(answer), (String::new(), owned(&calls)), "{format}");
        }
    }
}

/// An answer with calls as chat templates write it.
#[derive(serde::Deserialize)]
struct PublishedAnswer {
    format: String,
    /// The templates that write it: those of llama-cpp-python 0.3.36's source, and of vLLM 0.33's.
    templates: Vec<String>,
    text: String,
    content: String,
    calls: Vec<(String, Value)>,
}

/// `published.json` has what models' own chat templates make of an answer with calls, rendered by Jinja2: the texts that
/// models learned to write. Left out are templates that don't write calls in the form that their models answer in
/// (Python's without quotes, Mistral's with the ids of a conversation).
#[test]
fn what_published_templates_write_is_read() {
    let answers: Vec<PublishedAnswer> =
        serde_json::from_str(include_str!("published.json")).unwrap();
    let functions = functions();
    for answer in &answers {
        let openings = openings(&answer.format, &functions);
        let (content, calls) = values(read_in_all_cuts(&openings, &answer.text));
        let what = format!("{} {:?}", answer.format, answer.templates);
        assert_eq!(content.trim(), answer.content, "{what}");
        assert_eq!(calls, answer.calls, "{what}");
    }
    let formats: std::collections::BTreeSet<&str> =
        answers.iter().map(|answer| &*answer.format).collect();
    assert_eq!(formats.len(), 15);
}

#[test]
fn text_before_calls_is_content() {
    for format in FORMATS {
        let openings = openings(format, &functions());
        let calls = calls(format);
        let text = format!("Well <tool, [ \n\n{}", written(format, &calls));
        let answer = read_in_all_cuts(&openings, &text);
        match ToolCallFormat::from_name(format).unwrap().position {
            crate::openai::tool_format::Position::Whole => assert_eq!(answer, (text, Vec::new())),
            _ => assert_eq!(
                values(answer),
                ("Well <tool, [".to_owned(), owned(&calls)),
                "{format}"
            ),
        }
        let plain = format!("Hello {HARD}  ");
        assert_eq!(
            read_in_all_cuts(&openings, &plain),
            (plain, Vec::new()),
            "{format}"
        );
    }
}

#[test]
fn what_has_come_of_a_cut_off_answer_is_there() {
    for format in FORMATS {
        let openings = openings(format, &functions());
        let text = written(format, &calls(format));
        let (_, whole) = read(&openings, &[&text]);
        for (end, _) in text.char_indices() {
            let (_, so_far) = read(&openings, &[&text[..end]]);
            for ((name, arguments), whole) in so_far.iter().zip(&whole) {
                assert!(
                    whole.0.starts_with(name.as_str()),
                    "{format}: {}",
                    &text[..end]
                );
                if *name == whole.0 {
                    assert!(
                        whole.1.starts_with(arguments.as_str()),
                        "{format}: {}",
                        &text[..end]
                    );
                }
            }
        }
    }
    let cut = read(
        &openings("hermes", &functions()),
        &["Well.\n<tool_call>\n{\"na"],
    );
    assert_eq!(cut, ("Well.".to_owned(), Vec::new()));
}

#[test]
fn spellings_of_a_format_are_all_read() {
    let stop = vec![("stop-it".to_owned(), json!({}))];
    let json = r#"{"name": "stop-it", "parameters": {}}"#;
    let list = json.replace("parameters", "arguments");
    for (format, text) in [
        ("llama3_json", format!("<|python_tag|>{json}")),
        ("mistral", format!("[TOOL_CALLS][{list}]")),
        (
            "llama4_pythonic",
            "<|python_start|>[stop-it()]<|python_end|>".to_owned(),
        ),
        ("glm45", "<tool_call>stop-it</tool_call>".to_owned()),
        (
            "openai",
            "<|channel|>commentary to=functions.stop-it <|constrain|>json<|message|>{}".to_owned(),
        ),
    ] {
        let answer = read_in_all_cuts(&openings(format, &functions()), &text);
        assert_eq!(values(answer), (String::new(), stop.clone()), "{format}");
    }
}

#[test]
fn text_around_calls_is_content_where_calls_stand_by_themselves() {
    let hermes = openings("hermes", &functions());
    let call = written("hermes", &[("stop-it", json!({}))]);
    let text = format!("Well \n\n{call}\n{call} \nDone. ");
    let (content, calls) = read_in_all_cuts(&hermes, &text);
    assert_eq!((content.as_str(), calls.len()), ("WellDone. ", 2));
    let text = " A <tool_cal>, <b> and {\"name\": \"get\", \"arguments\": <tool_";
    assert_eq!(
        read_in_all_cuts(&hermes, text),
        (text.to_owned(), Vec::new())
    );
    assert_eq!(read(&hermes, &[" \n "]), (" \n ".to_owned(), Vec::new()));
}

#[test]
fn the_final_channel_is_content() {
    let openai = openings("openai", &functions());
    let text = "<|channel|>final<|message|>Hello <|channel|>";
    assert_eq!(
        read_in_all_cuts(&openai, text),
        ("Hello <|channel|>".to_owned(), Vec::new())
    );
}

/// Harmony's `commentary` without a recipient is text for the user, before the answer or a call.
#[test]
fn preambles_are_content() {
    const BEGIN: &str = "<|channel|>commentary<|message|>";
    const END: &str = "<|end|><|start|>assistant";
    let openai = openings("openai", &functions());
    let stop = || vec![("stop-it".to_owned(), "{}".to_owned())];
    let call = written("openai", &[("stop-it", json!({}))]);
    let final_text = "<|channel|>final<|message|>Done.".to_owned();
    for (text, content, calls) in [
        (format!("{BEGIN}I look.{END}{call}"), "I look.", stop()),
        (format!("{BEGIN}I look. \n{END}{call}"), "I look.", stop()),
        (format!("{BEGIN}A{END}{BEGIN}B{END}{call}"), "A\nB", stop()),
        (format!("{BEGIN}A{END}{final_text}"), "A\nDone.", Vec::new()),
        (
            format!("{BEGIN}a < b <|end|> {END}{call}"),
            "a < b <|end|>",
            stop(),
        ),
        // Cut off.
        (format!("{BEGIN}A<|end|><|st"), "A<|end|><|st", Vec::new()),
        (format!("{BEGIN}A{END}"), "A", Vec::new()),
    ] {
        let found = read_in_all_cuts(&openai, &text);
        assert_eq!(found, (content.to_owned(), calls), "{text}");
    }
}

#[test]
fn ids_are_of_the_formats_form() {
    let ids = |format: &str| -> Vec<Option<String>> {
        let two = [("get", json!({})), ("stop-it", json!({}))];
        let mut parser = ToolParser::new(openings(format, &functions()));
        let parts = parser.push(&written(format, &two), true).into_iter();
        let ids = parts.filter_map(|part| match part {
            AnswerPart::Call { id, .. } => Some(id),
            _ => None,
        });
        ids.collect()
    };
    assert_eq!(ids("hermes"), [None, None]);
    let own = [
        Some("functions.get:0".to_owned()),
        Some("functions.stop-it:1".to_owned()),
    ];
    assert_eq!(ids("kimi_k2"), own);
    for id in ids("mistral") {
        let id = id.unwrap();
        assert!(
            id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric()),
            "{id}"
        );
    }
}

#[test]
fn a_call_has_the_id_that_the_model_wrote() {
    let openings = openings("mistral_call_id", &functions());
    let mut parser = ToolParser::new(openings);
    let parts = parser.push("[TOOL_CALLS]get[CALL_ID]abcDEF123[ARGS]{}", true);
    let ids = parts.iter().filter_map(|part| match part {
        AnswerPart::Call { id, .. } => id.as_deref(),
        _ => None,
    });
    assert_eq!(ids.collect::<Vec<_>>(), ["abcDEF123"]);
}

#[test]
fn a_format_of_ones_own_is_read() {
    let file = r#"{"names": ["mine"], "position": "end", "begin": ["<calls>"], "end": ["</calls>"],
                   "call": ["{index"], "separator": ";", "arguments": "minimax_xml"}"#;
    let file = file.replace("{index", "#{name}/{index}: {arguments}.");
    let format = Arc::new(ToolCallFormat::from_json(&file).unwrap());
    let openings = openings_of(format, &functions());
    let text = "So<calls>#get/12: <parameter name=\"days\">3</parameter>.;#stop-it/1: .</calls>";
    let (content, calls) = values(read_in_all_cuts(&openings, text));
    assert_eq!(content, "So");
    assert_eq!(
        calls,
        owned(&[("get", json!({"days": 3})), ("stop-it", json!({}))])
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arguments_come_back(function in arb_function(), other in arb_function(), cuts in proptest::collection::vec(any::<u16>(), 0..6)) {
        let functions = [("f", function.0), ("f2", other.0)];
        let mut calls = vec![("f2", other.1), ("f", function.1)];
        for format in FORMATS {
            if format == "openai" {
                calls.truncate(1);
            }
            let text = written(format, &calls);
            let openings = openings(format, &functions);
            let mut ends: Vec<usize> = cuts.iter().map(|cut| usize::from(*cut) % text.len()).collect();
            ends.retain(|end| text.is_char_boundary(*end));
            ends.push(text.len());
            ends.sort_unstable();
            let mut start = 0;
            let mut pieces = Vec::new();
            for end in ends {
                pieces.push(&text[start..end]);
                start = end;
            }
            let answer = read(&openings, &pieces);
            prop_assert_eq!(values(answer), (String::new(), owned(&calls)), "{}: {}", format, text);
        }
    }
}
