//! `formwork-dynamo`: a worker of NVIDIA Dynamo.

use std::process::ExitCode;
use std::sync::Arc;

use formwork_dynamo::{Args, FormworkEngine};

fn main() -> ExitCode {
    let mut args = match Args::read(std::env::args_os()) {
        Ok(args) => args,
        Err(error) => error.exit(),
    };
    let config = match args.worker_config() {
        Ok(config) => config,
        Err(error) => return failed(&error.to_string()),
    };
    let engine = Arc::new(FormworkEngine::new(&args));
    let ended = dynamo_backend_common::run(engine.clone(), config);
    match (ended, engine.death()) {
        (Err(error), _) => failed(&error.to_string()),
        (Ok(()), Some(dead)) => failed(dead),
        (Ok(()), None) => ExitCode::SUCCESS,
    }
}

fn failed(message: &str) -> ExitCode {
    eprintln!("error: {message}");
    ExitCode::FAILURE
}
