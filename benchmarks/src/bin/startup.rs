//! Time from starting the core's process to its word that it is ready, on the built-in model.

use std::path::PathBuf;
use std::time::Instant;

use benchmarks::machine;
use benchmarks::statistics::Summary;
use clap::Parser;
use engine_frontend::engine_core_client::{EngineCoreClient, LaunchOptions};
use protocol::{EngineConfig, ModelSource};

/// Times EngineCoreClient::launch: process, handshake, model, KV cache.
#[derive(Debug, Parser)]
struct Arguments {
    /// Starts to time, after one that is not counted
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// The core's executable [default: formwork-engine-core beside this program]
    #[arg(long, value_name = "PATH")]
    engine_core: Option<PathBuf>,
    /// Hugging Face folder of the model [default: the built-in model]
    #[arg(long, value_name = "FOLDER")]
    model: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let options = LaunchOptions {
        engine_core: arguments.engine_core,
        ..LaunchOptions::default()
    };
    let mut config = EngineConfig::default();
    if let Some(folder) = arguments.model {
        config.model_config.model = ModelSource::Path(folder);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    println!("{}\n", machine::description());
    let mut times = Vec::with_capacity(arguments.rounds);
    for round in 0..=arguments.rounds {
        let started = Instant::now();
        let client =
            runtime.block_on(EngineCoreClient::launch(&options, config.clone(), |_| ()))?;
        let time = started.elapsed();
        runtime.block_on(client.shutdown(0.0))?;
        if round > 0 {
            times.push(time);
        }
    }
    let summary = Summary::of(times);
    let [p50, max] =
        [summary.p50, summary.max].map(|time| format!("{:.0}", time.as_secs_f64() * 1e3));
    println!("| starts | p50 ms | max ms |\n|---:|---:|---:|");
    println!("| {} | {p50} | {max} |", summary.count);
    Ok(())
}
