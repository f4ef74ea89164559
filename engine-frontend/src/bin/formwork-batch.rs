//! `formwork-batch`: see [`engine_frontend::batch`].

use std::process::ExitCode;

use clap::Parser;
use engine_frontend::batch::{BatchArgs, run};

fn main() -> ExitCode {
    let args = BatchArgs::parse();
    engine_frontend::init_logging();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
