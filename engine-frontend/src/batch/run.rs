//! From the command line to the last line.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, OnceLock};

use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use super::args::BatchArgs;
use super::error::BatchError;
use super::input::{InputLine, InputReader};
use super::line::{BatchRequestInput, BatchRequestOutput};
use super::output::{OutputFile, OutputPolicy, refuse_same_file};
use super::progress::{EngineProgress, Progress};
use super::prompts::run_prompts;
use super::resume::{ResumePoint, resume};
use super::runner::{LineResult, RunEnd, RunnerConfig, run_lines};
use super::serve::LineServing;
use crate::arg_utils::EngineArgs;
use crate::async_llm::AsyncLLM;
use crate::error::EngineDeadError;
use crate::openai::OpenAIServing;
use crate::startup::fetch_and_start_engine;

/// Bytes that the lines that are served and the results that wait for an earlier one may hold
/// together; as many may be read ahead.
const MAX_HELD_BYTES: usize = 128 << 20;

/// Does what the command line asks for. For a file of requests SIGINT and SIGTERM become orderly
/// ends for as long as the process runs.
///
/// Reading standard input happens on a blocking thread and may never end: a runtime that is
/// dropped afterwards would wait for it.
///
/// # Errors
/// Why not all of it was done; [`BatchError::exit_code`] is the process's.
pub async fn run(args: &BatchArgs) -> Result<(), BatchError> {
    args.verify()?;
    if let Some(input) = &args.input_file {
        return run_file(args, input, stop_signal()).await;
    }
    let (_, engine, defaults) = fetch_and_start_engine(&args.engine).await?;
    let done = run_prompts(args, &engine, &defaults).await;
    end_core(&engine).await;
    done
}

/// Answers a file. `stop` ends it: at once while the model loads, in order afterwards.
async fn run_file(
    args: &BatchArgs,
    input_path: &Path,
    stop: impl Future<Output = ()>,
) -> Result<(), BatchError> {
    let output_path = args
        .output_file
        .clone()
        .unwrap_or_else(|| PathBuf::from("-"));
    let policy = match (args.resume, args.overwrite) {
        (true, _) => OutputPolicy::Resume,
        (_, true) => OutputPolicy::Overwrite,
        _ => OutputPolicy::Refuse,
    };
    // All that can be wrong with the files is found before a model is loaded.
    refuse_same_file(input_path, &output_path)?;
    let mut input = InputReader::open(input_path)?;
    let mut output = OutputFile::open(&output_path, policy)?;
    let point = match (policy, output.reader()?) {
        (OutputPolicy::Resume, Some(reader)) => {
            resume(reader, &output_path, &mut input, input_path)?
        }
        _ => ResumePoint::default(),
    };
    let mut stop = pin!(stop);
    let started = tokio::select! {
        biased;
        () = &mut stop => Err(BatchError::Interrupted {
            written: point.done,
            advice: "nothing was changed; the same command starts again",
        }),
        started = fetch_and_start_engine(&args.engine) => started.map_err(BatchError::from),
    };
    let (engine_args, engine, defaults) = match started {
        Ok(started) => started,
        Err(error) => {
            output.discard();
            return Err(error);
        }
    };
    let engine = Arc::new(engine);
    let names = served_model_names(&engine_args, &engine);
    let running = names.first().map_or("", String::as_str);
    if let Err(error) = verify_model(&output_path, point.model.as_deref(), running) {
        end_core(&engine).await;
        return Err(error);
    }
    output.start_at(point.length)?;
    let max_inflight = args.max_inflight.unwrap_or_else(|| {
        let max_num_seqs = engine.ready_response().max_num_seqs;
        // As many again wait, so that a place that becomes free is filled at once.
        let max_waiting = args.engine.max_num_queued_reqs.unwrap_or(max_num_seqs);
        max_num_seqs.saturating_add(max_waiting.min(max_num_seqs))
    });
    let config = RunnerConfig {
        max_inflight: max_inflight as usize,
        max_held_bytes: MAX_HELD_BYTES,
    };
    let total_bytes = input_path
        .metadata()
        .ok()
        .filter(std::fs::Metadata::is_file)
        .map(|metadata| metadata.len());
    let mut progress = Progress::new(total_bytes, &point, {
        let engine = engine.clone();
        move || EngineProgress {
            num_generation_tokens: engine.num_generation_tokens(),
            num_queued_grammars: engine.num_queued_grammars(),
        }
    });
    progress = match (args.no_progress, total_bytes) {
        (true, _) => progress.hidden(),
        (false, Some(_)) => progress.with_total(count_lines(input_path)),
        (false, None) => progress,
    };
    let mut serving = OpenAIServing::new(engine.clone(), names, defaults);
    if let Some(model) = &engine_args.model {
        serving = serving.with_model_folder(model);
    }
    let lines = LineServing::new(
        serving,
        args.engine.seed.unwrap_or(0),
        max_inflight,
        args.engine.engine_core_address.is_none(),
    );
    let lines = Arc::new(lines.strictly(args.strict_requests));
    let as_text = args.output_file.is_none();
    let serve = |line: InputLine| {
        let lines = lines.clone();
        async move { serve_to_bytes(&lines, line, as_text).await }
    };
    let end = run_lines(
        input,
        input_path,
        &mut output,
        config,
        serve,
        stop,
        &mut progress,
    )
    .await;
    if let Some(summary) = engine.metrics().structured_output_summary() {
        tracing::info!("{summary}");
    }
    progress.finish();
    end_core(&engine).await;
    let written = progress.written();
    let advice = output.advice();
    match end? {
        RunEnd::Complete => match progress.failed() {
            failed @ 1.. if args.fail_on_error => Err(BatchError::LinesFailed {
                failed,
                lines: written,
            }),
            _ => Ok(()),
        },
        RunEnd::Interrupted => Err(BatchError::Interrupted { written, advice }),
        RunEnd::EngineDead(error) => Err(BatchError::EngineDead {
            error,
            written,
            advice,
        }),
    }
}

/// Counts a file's lines, on a thread of its own: a large file takes a while. Where it can't be read the
/// count stays open.
fn count_lines(path: &Path) -> Arc<OnceLock<u64>> {
    let total = Arc::<OnceLock<u64>>::default();
    let (path, counted) = (path.to_owned(), total.clone());
    std::thread::spawn(move || {
        if let Ok(Ok(count)) = InputReader::open(&path).map(InputReader::count) {
            let _ = counted.set(count);
        }
    });
    total
}

/// Nothing is in flight any more. That a core doesn't end well changes no result.
async fn end_core(engine: &AsyncLLM) {
    if engine.errored().is_none()
        && let Err(error) = engine.shutdown(0.0).await
    {
        tracing::warn!("{error}");
    }
}

/// The model's names, the first of which is in results: that on the Hub as the command line has it, or that
/// of its folder, and the folder as the command line has it.
fn served_model_names(args: &EngineArgs, engine: &AsyncLLM) -> Vec<String> {
    if let Some(name) = &args.hub_name {
        return vec![name.clone()];
    }
    let mut names = vec![engine.ready_response().model_name.clone()];
    if let Some(model) = &args.model {
        let given = model.display().to_string();
        if !names.contains(&given) {
            names.push(given);
        }
    }
    names
}

/// Refuses to go on with results of another model than the one that runs.
fn verify_model(
    output_path: &Path,
    made_with: Option<&str>,
    running: &str,
) -> Result<(), BatchError> {
    match made_with {
        Some(made_with) if made_with != running => Err(BatchError::OtherModel {
            path: output_path.to_owned(),
            made_with: made_with.to_owned(),
            running: running.to_owned(),
        }),
        _ => Ok(()),
    }
}

async fn serve_to_bytes(
    lines: &LineServing,
    line: InputLine,
    as_text: bool,
) -> Result<LineResult, EngineDeadError> {
    let question = if as_text {
        question(&line)
    } else {
        String::new()
    };
    let output = lines.serve(line).await?;
    let custom_id = output.custom_id.clone();
    let error = output.error_message().map(str::to_owned);
    let bytes = if as_text {
        text_of(&question, &output).into_bytes()
    } else {
        let mut bytes = serde_json::to_vec(&output).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    };
    Ok(LineResult {
        bytes,
        custom_id,
        error,
    })
}

/// What a person would call the question of a line.
fn question(line: &InputLine) -> String {
    let Ok(request) = BatchRequestInput::parse(line) else {
        return format!("line {}", line.number);
    };
    let last_message = request
        .body
        .get("messages")
        .and_then(Value::as_array)
        .and_then(|messages| messages.last())
        .and_then(|message| message.get("content"));
    let question = request.body.get("prompt").or(last_message);
    match question.and_then(Value::as_str) {
        Some(question) => question.to_owned(),
        None => request.custom_id,
    }
}

/// A result as text: the question, then the answers.
fn text_of(question: &str, output: &BatchRequestOutput) -> String {
    let mut text = format!("> {}\n", question.replace('\n', "\n> "));
    let body = output.response.as_ref().map(|response| &response.body);
    let choices = body
        .and_then(|body| body.get("choices"))
        .and_then(Value::as_array);
    for choice in choices.into_iter().flatten() {
        let answer = choice
            .get("text")
            .or_else(|| choice.pointer("/message/content"));
        let answer = answer.and_then(Value::as_str).map(str::trim);
        let calls = choice.pointer("/message/tool_calls");
        let calls: Vec<String> = calls
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .map(call_text)
            .collect();
        let lines = answer.into_iter().chain(calls.iter().map(String::as_str));
        for line in lines {
            text.push_str(line);
            text.push('\n');
        }
    }
    if let Some(error) = output.error_message() {
        text.push_str(&format!("error: {error}\n"));
    }
    text.push('\n');
    text
}

/// A call as programmers write it.
fn call_text(call: &Value) -> String {
    let part = |name: &str| {
        let part = call.get("function").and_then(|function| function.get(name));
        part.and_then(Value::as_str).unwrap_or_default()
    };
    format!("{}({})", part("name"), part("arguments"))
}

/// Resolves at the first SIGINT or SIGTERM; at the second the process ends at once.
fn stop_signal() -> impl Future<Output = ()> {
    let interrupt = signal(SignalKind::interrupt());
    let terminate = signal(SignalKind::terminate());
    let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
    tokio::spawn(async move {
        let (Ok(mut interrupt), Ok(mut terminate)) = (interrupt, terminate) else {
            // The signals keep their own meaning: the process ends.
            return std::future::pending().await;
        };
        let mut sender = Some(sender);
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            match sender.take() {
                Some(sender) => drop(sender.send(())),
                None => std::process::exit(1),
            }
        }
    });
    async {
        let _ = receiver.await;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use clap::Parser;

    use super::*;
    use crate::test_support::fake_engine;

    /// A folder with an input, and a core that never connects.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("in"), "{}\n").unwrap();
        let core = folder.path().join("core");
        fs::write(&core, "#!/bin/sh\nexec sleep 100000\n").unwrap();
        fs::set_permissions(&core, fs::Permissions::from_mode(0o755)).unwrap();
        folder
    }

    async fn run_in(folder: &Path, output: &str, stop: impl Future<Output = ()>) -> BatchError {
        let path = |name: &str| folder.join(name).display().to_string();
        let (input, output, core) = (path("in"), path(output), path("core"));
        let args = ["x", "-i", &input, "-o", &output, "--engine-core", &core];
        let args = BatchArgs::try_parse_from(args).unwrap();
        run_file(&args, Path::new(&input), stop).await.unwrap_err()
    }

    #[tokio::test]
    async fn a_stop_while_the_model_loads_leaves_no_file() {
        let folder = folder();
        let error = run_in(folder.path(), "out", std::future::ready(())).await;
        assert!(matches!(error, BatchError::Interrupted { .. }), "{error}");
        assert!(error.to_string().contains("nothing was changed"), "{error}");
        assert!(!folder.path().join("out").exists());
    }

    #[tokio::test]
    async fn an_output_that_is_the_input_is_wrong_usage() {
        let folder = folder();
        for exists in [true, false] {
            if !exists {
                fs::remove_file(folder.path().join("in")).unwrap();
            }
            let error = run_in(folder.path(), "in", std::future::pending()).await;
            assert!(matches!(error, BatchError::SameFile { .. }), "{error}");
            assert_eq!(error.exit_code(), 2);
        }
    }

    #[tokio::test]
    async fn results_of_another_model_are_refused() {
        let (engine, _core) = fake_engine(64);
        let mut args = EngineArgs {
            model: Some("a/test-model".into()),
            ..EngineArgs::default()
        };
        let names = served_model_names(&args, &engine);
        assert_eq!(names, ["test-model", "a/test-model"]);
        args.hub_name = Some("org/test@v1".to_owned());
        assert_eq!(served_model_names(&args, &engine), ["org/test@v1"]);
        let verify = |made_with| verify_model(Path::new("out"), made_with, &names[0]);
        assert!(verify(None).is_ok());
        assert!(verify(Some("test-model")).is_ok());
        let error = verify(Some("other")).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("made with the model \"other\", and this run has \"test-model\""),
            "{error}"
        );
        assert_eq!(error.exit_code(), 1);
    }
}
