//! Answers a question and prints the answer as it grows.
//!
//! ```sh
//! cargo build --release && cargo run --release -p engine-frontend --example stream -- [FOLDER]
//! ```
//! `FOLDER` is a Hugging Face model with a chat template; the built-in model where absent.

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;

use engine_frontend::{
    ChatPrompt, EngineArgs, GenerateRequest, Prompt, RequestOutputKind, SamplingParams,
    start_engine,
};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args = EngineArgs {
        model: std::env::args().nth(1).map(PathBuf::from),
        ..EngineArgs::default()
    };
    let (engine, defaults) = start_engine(&args).await?;
    let prompt = Prompt::Chat(ChatPrompt {
        messages: vec![json!({"role": "user", "content": "What is Formwork?"})],
        add_generation_prompt: true,
        ..ChatPrompt::default()
    });
    let params = SamplingParams {
        temperature: 0.0,
        max_tokens: Some(64),
        output_kind: RequestOutputKind::Delta,
        ..defaults.to_sampling_params()
    };
    let request = GenerateRequest::new("example".to_owned(), prompt, params);
    let mut stream = engine.generate(request).await?;
    while let Some(output) = stream.next().await {
        for completion in output?.outputs {
            print!("{}", completion.text);
            std::io::stdout().flush()?;
        }
    }
    println!();
    engine.shutdown(0.0).await?;
    Ok(())
}
