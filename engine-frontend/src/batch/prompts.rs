//! `--prompt`: answers on standard output, as they are written.

use std::io::{self, Write};

use protocol::{RequestOutputKind, SamplingParams};
use serde_json::json;

use super::args::BatchArgs;
use super::error::BatchError;
use crate::async_llm::{AsyncLLM, RequestStream};
use crate::input_processor::{ChatPrompt, GenerateRequest, Prompt};
use crate::openai::DefaultSamplingParams;

/// Answers the prompts of the command line side by side and prints the answers in order, the
/// first one that isn't complete as it grows.
pub(super) async fn run_prompts(
    args: &BatchArgs,
    engine: &AsyncLLM,
    defaults: &DefaultSamplingParams,
) -> Result<(), BatchError> {
    let has_template = engine.tokenizer().chat_templates().names().next().is_some();
    let params = sampling_params(args, defaults);
    let mut streams = Vec::with_capacity(args.prompts.len());
    for (i, text) in args.prompts.iter().enumerate() {
        let prompt = if has_template && !args.raw {
            Prompt::Chat(ChatPrompt {
                messages: vec![json!({"role": "user", "content": text})],
                add_generation_prompt: true,
                ..ChatPrompt::default()
            })
        } else {
            Prompt::Text(text.clone())
        };
        let request = GenerateRequest::new(format!("prompt-{i}"), prompt, params.clone());
        streams.push(engine.generate(request).await?);
    }
    let show_prompts = args.prompts.len() > 1;
    for (text, stream) in args.prompts.iter().zip(streams) {
        if show_prompts {
            print(&format!("> {}\n", text.replace('\n', "\n> ")))?;
        }
        print_answers(stream, params.n).await?;
        if show_prompts {
            print("\n")?;
        }
    }
    Ok(())
}

fn sampling_params(args: &BatchArgs, defaults: &DefaultSamplingParams) -> SamplingParams {
    let base = defaults.to_sampling_params();
    SamplingParams {
        n: args.n,
        max_tokens: Some(args.max_tokens),
        temperature: args.temperature.unwrap_or(base.temperature),
        top_p: args.top_p.unwrap_or(base.top_p),
        top_k: args.top_k.unwrap_or(base.top_k),
        seed: args.engine.seed,
        stop: args.stop.clone().into(),
        output_kind: if args.n == 1 {
            RequestOutputKind::Delta
        } else {
            RequestOutputKind::FinalOnly
        },
        ..base
    }
}

/// One answer as it grows, or all of several when they are complete.
async fn print_answers(mut stream: RequestStream, n: u32) -> Result<(), BatchError> {
    while let Some(output) = stream.next().await {
        for completion in &output?.outputs {
            print(&completion.text)?;
            if n > 1 {
                print("\n")?;
            }
        }
    }
    if n == 1 {
        print("\n")?;
    }
    Ok(())
}

fn print(text: &str) -> Result<(), BatchError> {
    let mut stdout = io::stdout().lock();
    stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
        .map_err(BatchError::Stdout)
}
