//! From the command line to the last line.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::args::BatchArgs;
use super::error::BatchError;
use super::input::{InputLine, InputReader};
use super::line::{BatchRequestInput, BatchRequestOutput};
use super::output::{OutputFile, OutputPolicy};
use super::progress::Progress;
use super::prompts::run_prompts;
use super::resume::{ResumePoint, resume};
use super::runner::{LineResult, RunEnd, RunnerConfig, run_lines};
use super::serve::serve_line;
use crate::async_llm::AsyncLLM;
use crate::error::EngineDeadError;
use crate::openai::OpenAIServing;
use crate::startup::{StartupError, start_engine};

/// Does what the command line asks for.
///
/// # Errors
/// Why not all of it was done; [`BatchError::exit_code`] is the process's.
pub fn run(args: &BatchArgs) -> Result<(), BatchError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(StartupError::Runtime)?;
    let done = runtime.block_on(async {
        match &args.input_file {
            Some(input) => run_file(args, input).await,
            None => {
                let (engine, defaults) = start_engine(&args.engine).await?;
                let done = run_prompts(args, &engine, &defaults).await;
                end_core(&engine).await;
                done
            }
        }
    });
    // Reading standard input may never end; nothing else waits.
    runtime.shutdown_background();
    done
}

async fn run_file(args: &BatchArgs, input_path: &Path) -> Result<(), BatchError> {
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
    let mut input = InputReader::open(input_path)?;
    let mut output = OutputFile::open(&output_path, input_path, policy)?;
    let point = match (policy, output.reader()?) {
        (OutputPolicy::Resume, Some(reader)) => {
            resume(reader, &output_path, &mut input, input_path)?
        }
        _ => ResumePoint::default(),
    };
    let (engine, defaults) = start_engine(&args.engine).await?;
    let engine = Arc::new(engine);
    // From here on signals are ours: before, they may simply end the process.
    let stop = stop_signal();
    output.start_at(point.length)?;
    let max_num_seqs = engine.ready_response().max_num_seqs;
    let config = RunnerConfig {
        max_inflight: args.max_inflight.unwrap_or(max_num_seqs.saturating_mul(2)) as usize,
    };
    let total_bytes = input_path
        .metadata()
        .ok()
        .filter(std::fs::Metadata::is_file)
        .map(|metadata| metadata.len());
    let mut progress = Progress::new(total_bytes, point.done, point.input_offset, {
        let engine = engine.clone();
        move || engine.num_generation_tokens()
    });
    let serving = Arc::new(OpenAIServing::new(
        engine.clone(),
        served_model_names(args, &engine),
        defaults,
    ));
    let as_text = args.output_file.is_none();
    let seed = args.engine.seed.unwrap_or(0);
    let serve = |line: InputLine| {
        let serving = serving.clone();
        async move { serve_to_bytes(serving, line, seed, as_text).await }
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
    progress.finish();
    end_core(&engine).await;
    let written = progress.written();
    let advice = output.advice();
    match end? {
        RunEnd::Complete => Ok(()),
        RunEnd::Interrupted => Err(BatchError::Interrupted { written, advice }),
        RunEnd::EngineDead(error) => Err(BatchError::EngineDead {
            error,
            written,
            advice,
        }),
    }
}

/// Nothing is in flight any more. That a core doesn't end well changes no result.
async fn end_core(engine: &AsyncLLM) {
    if engine.errored().is_none()
        && let Err(error) = engine.shutdown(0.0).await
    {
        tracing::warn!("{error}");
    }
}

/// The model's name, and its folder as the command line has it.
fn served_model_names(args: &BatchArgs, engine: &AsyncLLM) -> Vec<String> {
    let mut names = vec![engine.ready_response().model_name.clone()];
    if let Some(model) = &args.engine.model {
        let given = model.display().to_string();
        if !names.contains(&given) {
            names.push(given);
        }
    }
    names
}

async fn serve_to_bytes(
    serving: Arc<OpenAIServing>,
    line: InputLine,
    seed: u64,
    as_text: bool,
) -> Result<LineResult, EngineDeadError> {
    let question = if as_text {
        question(&line)
    } else {
        String::new()
    };
    let output = serve_line(serving, line, seed).await?;
    let success = output.is_success();
    let bytes = if as_text {
        text_of(&question, &output).into_bytes()
    } else {
        let mut bytes = serde_json::to_vec(&output).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    };
    Ok(LineResult { bytes, success })
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
        text.push_str(answer.and_then(Value::as_str).unwrap_or_default().trim());
        text.push('\n');
    }
    let api_error = body
        .and_then(|body| body.pointer("/error/message"))
        .and_then(Value::as_str);
    let line_error = output.error.as_ref().map(|error| error.message.as_str());
    if let Some(error) = line_error.or(api_error) {
        text.push_str(&format!("error: {error}\n"));
    }
    text.push('\n');
    text
}

/// Resolves at the first SIGINT or SIGTERM; at the second the process ends at once.
#[cfg(unix)]
fn stop_signal() -> impl Future<Output = ()> {
    use tokio::signal::unix::{SignalKind, signal};
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

/// Resolves at the first Ctrl-C; at the second the process ends at once.
#[cfg(not(unix))]
fn stop_signal() -> impl Future<Output = ()> {
    let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
    tokio::spawn(async move {
        let mut sender = Some(sender);
        while tokio::signal::ctrl_c().await.is_ok() {
            match sender.take() {
                Some(sender) => drop(sender.send(())),
                None => std::process::exit(1),
            }
        }
        std::future::pending::<()>().await;
    });
    async {
        let _ = receiver.await;
    }
}
