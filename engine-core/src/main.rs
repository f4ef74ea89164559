//! `formwork-engine-core`: process 1.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{ArgGroup, Parser};
use engine_core::engine::{Confine, run_connected, run_listening};
use logging::LogSettings;
use protocol::{EngineConfig, ModelSource};
use structured_output::MeteredAllocator;

/// So that what a grammar takes is known to the byte.
#[global_allocator]
static ALLOCATOR: MeteredAllocator = MeteredAllocator;

/// Formwork's engine core: schedules requests, runs the model, samples.
///
/// Frontends start it by themselves. Started by hand with --listen it stays and serves several.
#[derive(Debug, Parser)]
#[command(name = "formwork-engine-core", version, args_override_self = true)]
#[command(group = ArgGroup::new("address").required(true).args(["listen", "connect"]))]
struct Arguments {
    /// Socket of the frontend that starts this process and configures it (for frontends).
    #[arg(long, value_name = "PATH")]
    connect: Option<PathBuf>,

    /// Socket to listen on: starts a core that several frontends share.
    #[arg(long, value_name = "PATH")]
    listen: Option<PathBuf>,

    /// Standard input is a file in memory for the weights, which other cores have too (for frontends).
    #[arg(long, requires = "connect")]
    shared_weights_on_stdin: bool,

    /// Hugging Face folder or GGUF file of the model [default: the built-in model].
    #[arg(long, value_name = "PATH", conflicts_with = "connect")]
    model: Option<PathBuf>,

    /// Configuration as JSON, such as '{"scheduler_config": {"max_num_seqs": 8}}'.
    #[arg(long, value_name = "JSON", conflicts_with = "connect", value_parser = parse_engine_config)]
    engine_config: Option<EngineConfig>,

    /// Don't confine this process. It can then read and write whatever its user can, open network
    /// connections and start programs, should a model or a request find a hole in it.
    #[arg(long)]
    no_sandbox: bool,
}

/// Two arenas for all threads: the allocator would give each its own, and keep there what grammars have freed,
/// where no other thread finds it. And tables from 256 KiB on are mapped by themselves: as a table that grows leaves
/// its smaller self behind, those would fill the arenas with holes, half again of what a compilation may take.
fn share_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: each call takes two numbers, and no other thread runs yet.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 2);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 256 << 10);
        // Set with the other one, as that alone would have each free at an arena's end give pages back.
        libc::mallopt(libc::M_TRIM_THRESHOLD, 4 << 20);
    }
}

fn main() -> ExitCode {
    // A file that may not grow (`ulimit -f`), such as that of quantized weights, is an error where it is
    // written, not the process's end.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    share_freed_memory();
    logging::init(LogSettings {
        filter_variable: "FORMWORK_LOG",
        // As the frontend that started it writes them.
        json: std::env::var("FORMWORK_LOG_FORMAT").as_deref() == Ok("json"),
        with_target: true,
        file: None,
    });
    let arguments = Arguments::parse();
    let result = match (&arguments.connect, &arguments.listen) {
        (Some(address), _) => {
            let confine = match arguments.no_sandbox {
                true => Confine::No,
                false => Confine::Connected,
            };
            let shared_weights = match arguments.shared_weights_on_stdin {
                true => std::io::stdin().as_fd().try_clone_to_owned().ok(),
                false => None,
            };
            run_connected(address, shared_weights.map(File::from), &confine)
        }
        (None, Some(address)) => {
            let mut config = arguments.engine_config.unwrap_or_default();
            if let Some(path) = arguments.model {
                config.model_config.model = ModelSource::Path(path);
            }
            let confine = match arguments.no_sandbox {
                true => Confine::No,
                false => Confine::Listening(address.clone()),
            };
            run_listening(address, &config, &confine)
        }
        (None, None) => return ExitCode::from(2),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if error.is_told() {
                tracing::debug!("{error}");
            } else {
                tracing::error!("{error}");
            }
            ExitCode::FAILURE
        }
    }
}

fn parse_engine_config(json: &str) -> Result<EngineConfig, String> {
    serde_json::from_str(json).map_err(|error| error.to_string())
}
