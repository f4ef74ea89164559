//! Answers some questions and prints the answers.
//!
//! ```sh
//! cargo build --release && cargo run --release -p engine-frontend --example generate -- [FOLDER]
//! ```
//! `FOLDER` is a Hugging Face model with a chat template; the built-in model where absent.

use std::error::Error;
use std::path::PathBuf;

use engine_frontend::{EngineArgs, LLM, SamplingParams};
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    let args = EngineArgs {
        model: std::env::args().nth(1).map(PathBuf::from),
        ..EngineArgs::default()
    };
    let llm = LLM::new(&args)?;
    let params = SamplingParams {
        temperature: 0.0,
        max_tokens: Some(64),
        ..llm.default_sampling_params()
    };
    for question in [
        "Classify this sentiment: Formwork is wonderful!",
        "Generate an SQL query to show the 'username' and 'email' from the 'users' table.",
    ] {
        let output = llm.chat(&[json!({"role": "user", "content": question})], &params)?;
        for completion in output.outputs {
            println!("{question}\n{}\n", completion.text);
        }
    }
    Ok(())
}
