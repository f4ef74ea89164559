//! Tokens per second and per step with drafts, over those without: none, prompt lookup, and draft models of
//! which all layers are at work, all but one, and none.
//!
//! The pair of models is made of the built-in one. A layer whose output projections are zero changes nothing and costs
//! what a layer costs: behind the six layers of the built-in model stand 54 such layers in the large one, so that both
//! say the same. How often the small one is right with fewer of its layers depends on the text.

use std::fs;
use std::path::Path;

use anyhow::Context;
use benchmarks::statistics::{median, quartiles};
use protocol::{
    EngineConfig, ModelSource, SpeculativeConfig, SpeculativeMethod, StructuredOutputsConstraint,
};
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use serde_json::Value;

use crate::engine::{Engine, Measured};
use crate::{Arguments, CHARACTER, config, list_of};

/// Layers of the built-in model.
const NUM_LAYERS: usize = 6;
/// Layers of the large model.
const NUM_LARGE_LAYERS: usize = 60;
/// Tokens of a draft.
const NUM_SPECULATIVE_TOKENS: u32 = 4;

/// An engine with one kind of drafts.
struct Drafting {
    name: &'static str,
    engine: Engine,
}

/// Prints a table for the built-in model as its own draft model, and one for the pair.
pub(crate) fn measure(arguments: &Arguments, folder: &Path) -> anyhow::Result<()> {
    let of = |num_layers, num_working| {
        let path = folder.join(format!(
            "built-in-{num_layers}-layers-{num_working}-at-work"
        ));
        write_model(&path, num_layers, num_working)?;
        anyhow::Ok(ModelSource::Path(path))
    };
    println!("The built-in model, and itself as its draft model:\n");
    let own = [("draft_model, itself", ModelSource::BuiltIn)];
    print_table(arguments, &ModelSource::BuiltIn, &own)?;
    println!(
        "\nThe same with {NUM_LARGE_LAYERS} layers instead of {NUM_LAYERS}, which say the same:\n"
    );
    let drafts = [
        ("draft_model, all layers", ModelSource::BuiltIn),
        (
            "draft_model, 5 of 6 layers",
            of(NUM_LAYERS, NUM_LAYERS - 1)?,
        ),
        ("draft_model, no layer", of(NUM_LAYERS, 0)?),
    ];
    print_table(arguments, &of(NUM_LARGE_LAYERS, NUM_LAYERS)?, &drafts)
}

fn print_table(
    arguments: &Arguments,
    target: &ModelSource,
    drafts: &[(&'static str, ModelSource)],
) -> anyhow::Result<()> {
    let load = |name, speculative_config| {
        let config = EngineConfig {
            speculative_config,
            ..config(&ModelSource::BuiltIn, arguments.threads, true)
        };
        let engine = Engine::load(&with_model(config, target))?;
        anyhow::Ok(Drafting { name, engine })
    };
    let ngram = SpeculativeConfig {
        num_speculative_tokens: NUM_SPECULATIVE_TOKENS,
        ..SpeculativeConfig::default()
    };
    let mut engines = vec![load("none", None)?, load("ngram", Some(ngram.clone()))?];
    for (name, model) in drafts {
        engines.push(load(
            name,
            Some(SpeculativeConfig {
                method: SpeculativeMethod::DraftModel,
                model: model.clone(),
                ..ngram.clone()
            }),
        )?);
    }
    println!("| text | batch | drafts | tokens per step | tokens/s over none (quartiles) |");
    println!("|---|---|---|---|---|");
    let objects = list_of(CHARACTER, &ModelSource::BuiltIn);
    for (text, constraint) in [("free", None), ("objects", Some(&objects))] {
        for &batch in &arguments.batches {
            measure_batch(arguments, &mut engines, text, constraint, batch)?;
        }
    }
    Ok(())
}

/// The engines take turns in each round, so that a machine that drifts drifts for all.
fn measure_batch(
    arguments: &Arguments,
    engines: &mut [Drafting],
    text: &str,
    constraint: Option<&StructuredOutputsConstraint>,
    batch: usize,
) -> anyhow::Result<()> {
    let steps = arguments.steps.div_ceil(if batch < 16 { 1 } else { 4 });
    let mut measured: Vec<Vec<Measured>> = engines.iter().map(|_| Vec::new()).collect();
    for _ in 0..=arguments.rounds {
        for (drafting, measured) in engines.iter_mut().zip(&mut measured) {
            measured.push(drafting.engine.decode(constraint, batch, steps)?);
        }
    }
    let none = measured.first().context("no engine")?.clone();
    for (drafting, measured) in engines.iter().zip(&measured) {
        // The first round meets masks that nobody has met.
        let pairs = measured.iter().zip(&none).skip(1);
        let ratios: Vec<f64> = pairs
            .map(|(with, without)| with.tokens_per_second() / without.tokens_per_second())
            .collect();
        let per_step = measured.iter().skip(1);
        let per_step = per_step.map(|of| of.tokens_per_step() / batch as f64);
        let [low, middle, high] = quartiles(ratios);
        println!(
            "| {text} | {batch} | {} | {:.2} | {:.2} ({low:.2}-{high:.2}) |",
            drafting.name,
            median(per_step.collect()).unwrap_or_default(),
            middle,
        );
    }
    Ok(())
}

fn with_model(mut config: EngineConfig, model: &ModelSource) -> EngineConfig {
    config.model_config.model = model.clone();
    config
}

/// Writes the built-in model with `num_layers` layers, of which the first `num_working` do something: weights of the
/// others are those of the first six in turn, with zeros in place of both output projections.
fn write_model(folder: &Path, num_layers: usize, num_working: usize) -> anyhow::Result<()> {
    fs::create_dir_all(folder)?;
    for (name, bytes) in builtin_model::FILES {
        let bytes = match *name {
            "config.json" => {
                let mut config: Value = serde_json::from_slice(bytes)?;
                config["num_hidden_layers"] = num_layers.into();
                serde_json::to_vec(&config)?
            }
            "model.safetensors" => with_layers(bytes, num_layers, num_working)?,
            _ => bytes.to_vec(),
        };
        fs::write(folder.join(name), bytes)?;
    }
    Ok(())
}

fn with_layers(bytes: &[u8], num_layers: usize, num_working: usize) -> anyhow::Result<Vec<u8>> {
    const PREFIX: &str = "model.layers.";
    let tensors = SafeTensors::deserialize(bytes)?;
    let zeros = vec![0; bytes.len()];
    let mut all: Vec<(String, TensorView<'_>)> = Vec::new();
    for (name, tensor) in tensors.tensors() {
        let Some((layer, rest)) = name.strip_prefix(PREFIX).and_then(|of| of.split_once('.'))
        else {
            all.push((name, tensor));
            continue;
        };
        let layer: usize = layer.parse()?;
        let is_output = rest == "self_attn.o_proj.weight" || rest == "mlp.down_proj.weight";
        for number in (layer..num_layers).step_by(NUM_LAYERS) {
            let of_layer = match is_output && number >= num_working {
                true => TensorView::new(
                    tensor.dtype(),
                    tensor.shape().to_vec(),
                    &zeros[..tensor.data().len()],
                )?,
                false => tensor.clone(),
            };
            all.push((format!("{PREFIX}{number}.{rest}"), of_layer));
        }
    }
    Ok(safetensors::serialize(all, None)?)
}
