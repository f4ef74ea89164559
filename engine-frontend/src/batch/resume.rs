//! How far an output file got, and whether it is this input's.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use serde::Deserialize;

use super::custom_ids::CustomIds;
use super::error::BatchError;
use super::input::InputReader;
use super::line::{AN_ERROR, BatchRequestInput, BatchRequestOutput};
use crate::error::cut_short;
use crate::json_problem::json_problem;

/// What every result begins with; see [`BatchRequestOutput::id_of`].
const RESULT_START: &[u8] = br#"{"id":"batch_req_"#;

/// Where to go on.
#[derive(Debug, Clone, Default)]
pub struct ResumePoint {
    /// Results that are complete.
    pub done: u64,
    /// Their bytes; what follows is half a line.
    pub length: u64,
    /// Bytes of the input that they answer.
    pub input_offset: u64,
    /// The model that they name; `None` where all are errors.
    pub model: Option<String>,
    /// Their names.
    pub custom_ids: CustomIds,
    /// Those that hold an error.
    pub failures: Failures,
}

/// Lines whose result is an error.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Failures {
    /// How many there are.
    pub count: u64,
    /// What the first says.
    pub first: Option<String>,
}

impl Failures {
    /// One more line's result is an error.
    pub fn add(&mut self, error: &str) {
        self.count += 1;
        self.first.get_or_insert_with(|| error.to_owned());
    }
}

/// What of a result tells which input line it answers, and with which model.
#[derive(Deserialize)]
struct ResultHead {
    id: String,
    custom_id: Option<String>,
    response: Option<ResponseHead>,
    error: Option<ErrorHead>,
}

#[derive(Deserialize)]
struct ResponseHead {
    status_code: u16,
    body: BodyHead,
}

#[derive(Deserialize)]
struct ErrorHead {
    message: String,
}

#[derive(Deserialize)]
struct BodyHead {
    model: Option<String>,
    error: Option<ErrorHead>,
}

impl ResultHead {
    /// Why the caller didn't get what was asked for, as
    /// [`BatchRequestOutput::error_message`] says of a whole result.
    fn error_message(&self) -> Option<&str> {
        if let Some(error) = &self.error {
            return Some(&error.message);
        }
        let response = self.response.as_ref().filter(|r| r.status_code != 200)?;
        let error = response.body.error.as_ref();
        Some(error.map_or(AN_ERROR, |error| &error.message))
    }
}

/// Compares the complete lines of an output with the input's beginning; leaves `input` at the
/// first line without a result. Takes the memory of one line of each.
///
/// A line is complete when its newline is there: lines are written at once, newline last, so a
/// kill can only leave the last one without.
///
/// # Errors
/// A line that isn't the result of the input line in its place, a last one without its newline
/// that isn't the beginning of a result, more results than requests, or results of more than one
/// model.
pub fn resume(
    output: impl Read,
    output_path: &Path,
    input: &mut InputReader,
    input_path: &Path,
) -> Result<ResumePoint, BatchError> {
    let mut output = BufReader::new(output);
    let mut point = ResumePoint::default();
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        let read = output
            .read_until(b'\n', &mut bytes)
            .map_err(|source| unreadable(output_path, source))?;
        let foreign = |problem: String| BatchError::ForeignOutput {
            path: output_path.to_owned(),
            line: point.done + 1,
            problem,
        };
        if bytes.last() != Some(&b'\n') {
            if is_cut_result(&bytes) {
                return Ok(point);
            }
            return Err(foreign("is not the beginning of a result".to_owned()));
        }
        let head: ResultHead = serde_json::from_slice(&bytes)
            .map_err(|error| foreign(format!("is not a result ({})", json_problem(&error))))?;
        let line = input
            .next_line()
            .map_err(|source| BatchError::Input {
                path: input_path.to_owned(),
                source,
            })?
            .ok_or_else(|| foreign("has no request: the input ends before it".to_owned()))?;
        let expected_id = BatchRequestOutput::id_of(line.number);
        let expected = BatchRequestInput::custom_id_of(&line);
        if head.custom_id != expected || head.id != expected_id {
            return Err(foreign(format!(
                "is {} with {}, and the input has line {} with {} there",
                cut_short(&head.id),
                custom_id_as_text(head.custom_id.as_deref()),
                line.number,
                custom_id_as_text(expected.as_deref()),
            )));
        }
        if let Some(error) = head.error_message() {
            point.failures.add(error);
        }
        let model = head.response.and_then(|response| response.body.model);
        match (&point.model, &model) {
            (Some(first), Some(other)) if first != other => {
                return Err(foreign(format!(
                    "is of the model {other:?}, and the lines before it are of {first:?}"
                )));
            }
            (None, Some(_)) => point.model = model,
            _ => {}
        }
        if let Some(custom_id) = &head.custom_id {
            point.custom_ids.add(custom_id);
        }
        point.done += 1;
        point.length += read as u64;
        point.input_offset = line.end_offset;
    }
}

fn custom_id_as_text(custom_id: Option<&str>) -> String {
    match custom_id {
        Some(custom_id) => format!("custom_id {:?}", cut_short(custom_id)),
        None => "no custom_id".to_owned(),
    }
}

/// Whether a kill may have left these bytes of a result. A machine that goes down may leave zeros
/// where a file had already grown but its data was not on the disk yet.
fn is_cut_result(tail: &[u8]) -> bool {
    let zeros = tail.iter().rev().take_while(|&&byte| byte == 0).count();
    let (written, _) = tail.split_at(tail.len() - zeros);
    written.starts_with(RESULT_START) || RESULT_START.starts_with(written)
}

fn unreadable(path: &Path, source: io::Error) -> BatchError {
    BatchError::Output {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    const INPUT: &str = "{\"custom_id\":\"a\"}\n\nnot json\n{\"custom_id\":\"b\"}\n";

    fn results() -> Vec<u8> {
        let mut input = InputReader::new(Cursor::new(INPUT));
        let mut output = Vec::new();
        while let Some(line) = input.next_line().unwrap() {
            let bad = BatchRequestInput::parse(&line).unwrap_err();
            let result = BatchRequestOutput::bad_line(line.number, bad);
            serde_json::to_writer(&mut output, &result).unwrap();
            output.push(b'\n');
        }
        output
    }

    fn point(output: &[u8], input: &'static str) -> Result<ResumePoint, BatchError> {
        let mut input = InputReader::new(Cursor::new(input));
        resume(output, Path::new("out"), &mut input, Path::new("in"))
    }

    #[test]
    fn every_cut_is_accepted_at_its_last_complete_line() {
        let output = results();
        for cut in 0..=output.len() {
            let kept = output.get(..cut).unwrap();
            let newlines = kept.iter().filter(|&&b| b == b'\n').count();
            let length = kept
                .iter()
                .rposition(|&b| b == b'\n')
                .map_or(0, |at| at + 1);
            let point = point(kept, INPUT).unwrap();
            assert_eq!((point.done, point.length), (newlines as u64, length as u64));
            assert_eq!(point.failures.count, newlines as u64);
        }
    }

    #[test]
    fn the_input_is_left_at_the_first_open_line() {
        let output = results();
        let first = output.iter().position(|&b| b == b'\n').unwrap() + 1;
        let mut input = InputReader::new(Cursor::new(INPUT));
        let point = resume(
            output.get(..first + 5).unwrap(),
            Path::new("out"),
            &mut input,
            Path::new("in"),
        )
        .unwrap();
        assert_eq!((point.done, point.input_offset), (1, 18));
        assert_eq!(input.next_line().unwrap().unwrap().number, 3);
    }

    #[test]
    fn foreign_outputs_are_refused() {
        let output = results();
        for (output, input, says) in [
            (
                &output[..],
                "{\"custom_id\":\"x\"}\n",
                "line 1 is batch_req_1",
            ),
            (
                &output[..],
                "\n{\"custom_id\":\"a\"}\n",
                "its line 1 is batch_req_1 with custom_id \"a\", and the input has line 2 with \
                 custom_id \"a\" there",
            ),
            (
                &output[..],
                "{\"custom_id\":\"a\"}\n",
                "line 2 has no request",
            ),
            (&b"hello\n"[..], INPUT, "line 1 is not a result"),
            (&b"\n"[..], INPUT, "line 1 is not a result"),
            (
                &b"important note"[..],
                INPUT,
                "line 1 is not the beginning of a result",
            ),
            (&b"{\"id\":\"other_"[..], INPUT, "line 1 is not the"),
            (&b"\0\0note"[..], INPUT, "line 1 is not the"),
        ] {
            let error = point(output, input).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
            assert_eq!(error.exit_code(), 1);
        }
    }

    #[test]
    fn zeros_after_the_last_line_are_half_a_line() {
        for tail in [
            &b"\0\0\0"[..],
            b"{\"id\"\0\0",
            b"{\"id\":\"batch_req_3\",\0",
        ] {
            let whole = results();
            let output = [&whole[..], tail].concat();
            let point = point(&output, INPUT).unwrap();
            assert_eq!((point.done, point.length), (3, whole.len() as u64));
        }
    }

    /// A result of the request in line `number` of [`INPUT`].
    fn answer(number: u64, custom_id: &str, model: &str) -> String {
        let body = serde_json::json!({"model": model, "choices": []});
        let (custom_id, id) = (custom_id.to_owned(), "r".to_owned());
        let result = BatchRequestOutput::response(number, custom_id, id, 200, body);
        serde_json::to_string(&result).unwrap() + "\n"
    }

    #[test]
    fn the_model_is_read_from_the_results() {
        let results = String::from_utf8(results()).unwrap();
        let broken = results.split_inclusive('\n').nth(1).unwrap();
        let model = |first: &str, last: &str| {
            let output = answer(1, "a", first) + broken + &answer(4, "b", last);
            point(output.as_bytes(), INPUT)
        };
        assert_eq!(model("m", "m").unwrap().model.as_deref(), Some("m"));
        assert_eq!(point(results.as_bytes(), INPUT).unwrap().model, None);
        let error = model("m", "other").unwrap_err().to_string();
        assert!(
            error
                .contains("line 3 is of the model \"other\", and the lines before it are of \"m\""),
            "{error}"
        );
    }
}
