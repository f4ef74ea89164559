//! Tokens per second of decode and prefill on the shape of Qwen2.5-0.5B, and where a step's time
//! goes, side by side with the candle backend and with llama.cpp.
//!
//! All engines take turns: one round measures each of them once, so that what disturbs the
//! machine disturbs all alike. Figures are medians over the rounds.

mod checkpoint;
mod engine;
mod llama_cpp;
mod loading;
mod report;
mod shares;
mod timed_model;
mod work;

use std::path::PathBuf;

use anyhow::Context;
use benchmarks::machine;
use clap::Parser;

use crate::engine::{DECODE_PROMPT_TOKENS, Engine, EngineSpec, Sampling};
use crate::llama_cpp::{Gguf, LlamaCpp};
use crate::report::Report;
use crate::shares::{MachineShares, Round};
use crate::work::{Probe, Shape, Work};

/// Times whole steps of the engine, scheduler and sampler included, in this process.
#[derive(Debug, Parser)]
struct Arguments {
    /// Engine to measure, BACKEND:DTYPE, with :q8 behind it for keys and values in 8 bits; may be
    /// repeated. Ratios are to the first
    #[arg(
        long = "engine",
        value_name = "ENGINE",
        default_values = ["cpu:bfloat16", "cpu:float32", "candle:float32"]
    )]
    engines: Vec<EngineSpec>,
    /// Compute threads [default: one per core]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    threads: Option<u32>,
    /// Rounds; each measures every engine once
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Requests that decode together; may be repeated
    #[arg(long = "batch", default_values_t = [1, 4, 16])]
    batches: Vec<usize>,
    /// Steps of decode to time
    #[arg(long, default_value_t = 16)]
    steps: usize,
    /// Tokens before one request that decodes alone; may be repeated. 0 leaves it out
    #[arg(long = "context", default_values_t = [4096])]
    contexts: Vec<usize>,
    /// Tokens of the prompt of the prefill
    #[arg(long, default_value_t = 512)]
    prefill: usize,
    /// Where the checkpoint is, or is made: 1 GB [default: a folder for temporary files]
    #[arg(long, value_name = "FOLDER")]
    checkpoint: Option<PathBuf>,
    /// Make the checkpoint and measure nothing
    #[arg(long)]
    only_checkpoint: bool,
    /// Measure how long loading takes and how much memory, and nothing else
    #[arg(long)]
    only_loading: bool,
    /// llama.cpp's llama-bench, for the prefill
    #[arg(long, value_name = "PATH", requires = "ggufs")]
    llama_bench: Option<PathBuf>,
    /// llama.cpp's llama-batched-bench, for decode
    #[arg(long, value_name = "PATH", requires = "ggufs")]
    llama_batched_bench: Option<PathBuf>,
    /// The checkpoint as GGUF, for the engines of the same format: bfloat16=FILE.gguf from
    /// benchmarks/llama/make_gguf.py, q8_0=FILE.gguf and q4_0=FILE.gguf from llama-quantize
    #[arg(long = "gguf", value_name = "FORMAT=PATH")]
    ggufs: Vec<Gguf>,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let folder = arguments
        .checkpoint
        .clone()
        .unwrap_or_else(|| std::env::temp_dir().join("formwork-qwen2.5-0.5b-random"));
    checkpoint::make(&folder).with_context(|| folder.display().to_string())?;
    if arguments.only_checkpoint {
        return Ok(());
    }

    let num_threads = arguments.threads.unwrap_or(machine::num_cores() as u32);
    println!(
        "{}; {num_threads} compute threads\n",
        machine::description()
    );
    if arguments.only_loading {
        loading::print_head();
        for spec in &arguments.engines {
            loading::measure(&folder, *spec, num_threads)?;
        }
        return Ok(());
    }
    let mut engines = Vec::new();
    for spec in &arguments.engines {
        eprintln!("loading {spec}");
        engines.push(Engine::load(&folder, *spec, num_threads, true)?);
    }

    let mut report = Report::default();
    let mut shares = MachineShares::default();
    let shape = Shape::of_checkpoint();
    for round in 1..=arguments.rounds {
        for engine in &mut engines {
            let probe = Probe::run(engine.spec(), num_threads as usize);
            println!(
                "round {round}, {}: load average {}, {:.1} GB/s read",
                engine.spec(),
                machine::load_average(),
                probe.read / 1e9
            );
            let work = Work::of(shape, engine.spec());
            let round = measure(engine, &arguments, &mut report, work, probe)?;
            shares.add(&engine.spec().to_string(), round);
            // The peer of the same format, at once: memory may be slower a minute later.
            let format = engine.spec().format();
            if let Some(gguf) = arguments.ggufs.iter().find(|gguf| gguf.format == format) {
                let llama_cpp = LlamaCpp {
                    gguf,
                    llama_bench: arguments.llama_bench.as_deref(),
                    llama_batched_bench: arguments.llama_batched_bench.as_deref(),
                    num_threads,
                };
                let (batches, steps) = (&arguments.batches, arguments.steps);
                let peer = format!("llama.cpp {format}");
                for (case, rate) in llama_cpp.measure(batches, steps, arguments.prefill)? {
                    report.add_rate(&peer, case, rate);
                }
                report.add_pair(&engine.spec().to_string(), &peer);
            }
        }
    }
    println!("\n{report}\n{shares}");
    Ok(())
}

/// One round of one engine.
fn measure(
    engine: &mut Engine,
    arguments: &Arguments,
    report: &mut Report,
    work: Work,
    probe: Probe,
) -> anyhow::Result<Round> {
    let name = engine.spec().to_string();
    // One that is not counted, as llama.cpp's programs begin.
    engine.prefill(arguments.prefill)?;
    let prefill = engine.prefill(arguments.prefill)?;
    let rate = arguments.prefill as f64 / prefill.as_secs_f64();
    report.add_rate(&name, prefill_case(arguments.prefill), rate);
    let mut round = Round {
        work,
        probe,
        prefill: (prefill.as_secs_f64(), arguments.prefill),
        step: None,
        step_in_context: None,
    };
    for &batch in &arguments.batches {
        let times = engine.decode(
            batch,
            DECODE_PROMPT_TOKENS,
            arguments.steps,
            Sampling::Greedy,
        )?;
        let rate = (batch * arguments.steps) as f64 / times.step.as_secs_f64();
        if batch == 1 {
            round.step = Some(1.0 / rate);
        }
        report.add_rate(&name, decode_case(batch), rate);
        report.add_times(
            &name,
            &format!("{}, {}", decode_case(batch), Sampling::Greedy),
            times,
        );
    }
    for &context in arguments.contexts.iter().filter(|context| **context > 0) {
        let times = engine.decode(1, context, arguments.steps, Sampling::Greedy)?;
        let rate = arguments.steps as f64 / times.step.as_secs_f64();
        round.step_in_context = Some(1.0 / rate);
        let case = format!("{}, context {context}", decode_case(1));
        report.add_times(&name, &format!("{case}, {}", Sampling::Greedy), times);
        report.add_rate(&name, case, rate);
    }
    // Choosing among 151,936 tokens costs more than taking the most probable one.
    if let Some(&batch) = arguments.batches.iter().max() {
        for sampling in [Sampling::Temperature, Sampling::TopK, Sampling::TopP] {
            let times = engine.decode(batch, DECODE_PROMPT_TOKENS, arguments.steps, sampling)?;
            let case = format!("{}, {sampling}", decode_case(batch));
            report.add_times(&name, &case, times);
        }
    }
    Ok(round)
}

fn decode_case(batch: usize) -> String {
    format!("decode, batch {batch}")
}

fn prefill_case(num_tokens: usize) -> String {
    format!("prefill, {num_tokens} tokens")
}
