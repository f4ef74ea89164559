//! How many tokens of an object with five fixed keys come from the built-in model.

use anyhow::Context;
use protocol::{JumpForward, ModelSource, StructuredOutputsConstraint};

use crate::engine::Engine;
use crate::{CHARACTER, config};

/// Prints the count without forced tokens, with single ones, and with forced text.
pub(crate) fn count() -> anyhow::Result<()> {
    let tokenizer = tokenizer::Tokenizer::from_bytes(builtin_model::FILES)?;
    tokenizer.eos_token_id().context("no end of text")?;
    println!("\nAn object with five fixed keys on the built-in model:\n");
    println!("| jump-forward | tokens | of them from the model |\n|---|---|---|");
    for jump_forward in [
        JumpForward::Off,
        JumpForward::SingleToken,
        JumpForward::Text,
    ] {
        let mut config = config(&ModelSource::BuiltIn, None, true);
        config.structured_outputs_config.jump_forward = jump_forward;
        let mut engine = Engine::load(&config)?;
        let prompt = "<|im_start|>user\nCreate a game character: name, age, armor, weapon, strength. \
                      Answer as JSON.<|im_end|>\n<|im_start|>assistant\n";
        let constraint = StructuredOutputsConstraint::Json(CHARACTER.to_owned());
        engine.ask(&tokenizer.encode(prompt, false)?, constraint);
        engine.wait_for_grammars();
        let (mut token_ids, mut num_forced) = (Vec::new(), 0);
        while engine.has_work() {
            let (outputs, stats) = engine.step()?;
            for output in outputs {
                token_ids.extend(output.new_token_ids);
            }
            num_forced += stats.num_forced_tokens as usize;
        }
        println!(
            "| {jump_forward:?} | {} | {} |",
            token_ids.len(),
            token_ids.len() - num_forced
        );
        eprintln!("{}", tokenizer.decode(&token_ids, true));
    }
    Ok(())
}
