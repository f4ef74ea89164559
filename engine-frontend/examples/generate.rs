//! Continues some prompts and prints the answers.
//!
//! ```sh
//! cargo build --release && cargo run --release -p engine-frontend --example generate -- [FOLDER]
//! ```
//! `FOLDER` is a Hugging Face model; the built-in model where absent.

use std::error::Error;
use std::path::PathBuf;

use engine_frontend::{EngineArgs, LLM, SamplingParams};

fn main() -> Result<(), Box<dyn Error>> {
    let args = EngineArgs {
        model: std::env::args().nth(1).map(PathBuf::from),
        engine_core: engine_core(),
        ..EngineArgs::default()
    };
    let llm = LLM::new(&args)?;
    let params = SamplingParams {
        temperature: 0.0,
        max_tokens: Some(32),
        ..llm.default_sampling_params()
    };
    let prompts = ["Once upon a time", "The capital of France is"];
    for (prompt, output) in prompts.iter().zip(llm.generate(&prompts, &params)?) {
        for completion in output?.outputs {
            println!("{prompt}{}", completion.text);
        }
    }
    Ok(())
}

/// Examples lie one folder below the executables that `cargo build` makes.
fn engine_core() -> Option<PathBuf> {
    let beside = std::env::current_exe().ok()?;
    let core = beside.parent()?.parent()?.join("formwork-engine-core");
    core.exists().then_some(core)
}
