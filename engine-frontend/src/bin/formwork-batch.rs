//! `formwork-batch`: see [`engine_frontend::batch`].

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use engine_frontend::batch::{BatchArgs, BatchError, run};
use engine_frontend::{StartupError, frontend_runtime, with_flag_names};

fn main() -> ExitCode {
    let args = BatchArgs::parse();
    engine_frontend::init_logging();
    match run_to_end(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let message = with_flag_names(&error.to_string(), &BatchArgs::command());
            eprintln!("error: {message}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn run_to_end(args: &BatchArgs) -> Result<(), BatchError> {
    let runtime = frontend_runtime().map_err(StartupError::Runtime)?;
    let done = runtime.block_on(run(args));
    // The process ends next, and reading standard input may never do. Shutting the runtime down
    // in the background would detach threads that are about to exit, which glibc before 2.37 turns
    // into a crash now and then (its bug 19951).
    std::mem::forget(runtime);
    done
}
