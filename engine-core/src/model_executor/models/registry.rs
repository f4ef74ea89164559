//! Which class name in `config.json` is which family.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use protocol::Quantization;

use super::LoadedWeights;
use super::decoder::DecoderWeights;
use super::encoder::EncoderWeights;
use super::gemma2::Gemma2;
use super::gemma3::Gemma3;
use super::llama::Llama;
use super::mistral::Mistral;
use super::mixtral::Mixtral;
use super::phi3::Phi3;
use super::qwen2::Qwen2;
use super::qwen3::Qwen3;
use super::qwen3_moe::Qwen3Moe;
use super::smollm3::SmolLm3;
use crate::model_executor::LoadProgress;
use crate::model_executor::backend::Backend;
use crate::model_executor::checkpoint::Checkpoint;
use crate::model_executor::config::{ENCODERS, HfConfig};
use crate::model_executor::error::{ModelError, cut};

/// One line per family: the class that `architectures` names, and the type that loads it.
macro_rules! families {
    ($($architecture:literal => $family:ty,)*) => {
        /// The entries of `architectures` that generate text.
        fn decoders() -> &'static [&'static str] {
            &[$($architecture),*]
        }

        /// Loads the family that `config` names.
        pub(super) fn load<B: Backend>(
            config: &HfConfig,
            checkpoint: &Checkpoint,
            backend: B,
            quantization: Quantization,
            heartbeat: Arc<AtomicU64>,
            progress: &mut dyn FnMut(LoadProgress),
        ) -> Result<Box<dyn LoadedWeights>, ModelError> {
            if let Some(encoder) = config.encoder {
                return Ok(Box::new(EncoderWeights::<B>::load(
                    config, encoder, checkpoint, backend, quantization, heartbeat, progress,
                )?));
            }
            match config.architecture.as_str() {
                $($architecture => Ok(Box::new(DecoderWeights::<B, $family>::load(
                    config, checkpoint, backend, quantization, heartbeat, progress,
                )?)),)*
                other => Err(unknown(other)),
            }
        }
    };
}

families! {
    "Gemma2ForCausalLM" => Gemma2,
    "Gemma3ForCausalLM" => Gemma3,
    "LlamaForCausalLM" => Llama,
    "MistralForCausalLM" => Mistral,
    "MixtralForCausalLM" => Mixtral,
    "Phi3ForCausalLM" => Phi3,
    "Qwen2ForCausalLM" => Qwen2,
    "Qwen3ForCausalLM" => Qwen3,
    "Qwen3MoeForCausalLM" => Qwen3Moe,
    "SmolLM3ForCausalLM" => SmolLm3,
}

/// The entries of `architectures` that can be loaded: those that generate text, then encoders. Each of the first may
/// also end in `ForSequenceClassification`.
pub fn supported_architectures() -> Vec<&'static str> {
    let encoders = ENCODERS.iter().map(|(name, _)| *name);
    decoders().iter().copied().chain(encoders).collect()
}

/// Refuses a decoder that no family has by the name `named` of the checkpoint, which may end in a classifier, before
/// anything else of its configuration is read.
pub(crate) fn check_decoder(architecture: &str, named: &str) -> Result<(), ModelError> {
    if decoders().contains(&architecture) {
        return Ok(());
    }
    Err(unknown(named))
}

fn unknown(architecture: &str) -> ModelError {
    ModelError::UnknownArchitecture {
        found: cut(architecture),
        supported: supported_architectures(),
    }
}
