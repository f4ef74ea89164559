//! The draft model beside the target model: loaded as it is, and refused where it can't draft for it.

use std::sync::Arc;

use protocol::{BackendKind, LoadProgress, ModelSource, SpeculativeConfig, SpeculativeMethod};
use tokenizer::Tokenizer;

use crate::engine::memory::available_memory_bytes;
use crate::engine::startup::{StartupError, load_checkpoint};
use crate::model_executor::{ComputePool, LoadOptions, LoadedModel, SharedWeightsFile};

/// Why a model can't draft for another.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DraftModelError {
    /// Ids mean other tokens.
    #[error(
        "speculative_config.model is {draft}, whose vocabulary differs from that of {target}: {difference}; a draft \
         model must have the vocabulary of the model that it drafts for"
    )]
    Vocabulary {
        /// The draft model's name.
        draft: String,
        /// The target model's.
        target: String,
        /// The first difference.
        difference: String,
    },
    /// Sequences may be longer than the draft model can.
    #[error(
        "speculative_config.model is {draft}, which was made for sequences of {draft_len} tokens, and max_model_len is \
         {max_model_len}: it must be at most {draft_len} with this draft model"
    )]
    ModelLen {
        /// The draft model's name.
        draft: String,
        /// Its longest sequence.
        draft_len: usize,
        /// The longest sequence that is served.
        max_model_len: u32,
    },
    /// A device on which only one model runs.
    #[error(
        "speculative_config.method is draft_model, which runs on the processor alone so far: it must be ngram on a GPU"
    )]
    Device,
    /// The model that is served generates no text, or the draft model doesn't.
    #[error(
        "speculative_config is given, but {model} generates no text, so nothing can be drafted {purpose}: leave it \
         out, or name a model that generates"
    )]
    NoText {
        /// Which model.
        model: String,
        /// What it is for.
        purpose: &'static str,
    },
}

/// Whether a draft model proposes the tokens, and not the n-grams of the text.
pub(super) fn has_draft_model(config: &SpeculativeConfig) -> bool {
    config.method == SpeculativeMethod::DraftModel
}

/// Loads the draft model where one is configured; `None` otherwise.
///
/// `options` are the target model's. In memory that cores share, the draft model's weights follow the target
/// model's, and are the last.
///
/// # Errors
/// It can't be loaded, or not draft for `target`, whose tokenizer is `tokenizer`.
pub(super) fn load_draft_model(
    config: Option<&SpeculativeConfig>,
    options: &LoadOptions,
    (target, tokenizer): (&LoadedModel, &Tokenizer),
    pool: &Arc<ComputePool>,
    progress: &mut dyn FnMut(LoadProgress),
) -> Result<Option<LoadedModel>, StartupError> {
    let Some(config) = config.filter(|config| has_draft_model(config)) else {
        return Ok(None);
    };
    if matches!(
        options.backend,
        BackendKind::Cuda(_) | BackendKind::CudaSimulator
    ) {
        return Err(DraftModelError::Device.into());
    }
    let options = LoadOptions {
        shared_weights: (options.shared_weights.clone()).map(|weights| SharedWeightsFile {
            is_last: true,
            ..weights
        }),
        available_bytes: available_memory_bytes(),
        ..options.clone()
    };
    let loaded = load_checkpoint(&config.model, &options, pool, progress);
    let (draft_tokenizer, draft) = loaded.map_err(|source| StartupError::DraftModel {
        model: name_of(&config.model),
        source: Box::new(source),
    })?;
    if !draft.has_lm_head() {
        return Err(DraftModelError::NoText {
            model: draft.name().to_owned(),
            purpose: "by it",
        }
        .into());
    }
    match difference(&draft_tokenizer, tokenizer) {
        None => Ok(Some(draft)),
        Some(difference) => Err(DraftModelError::Vocabulary {
            draft: draft.name().to_owned(),
            target: target.name().to_owned(),
            difference,
        }
        .into()),
    }
}

/// Checks that the draft model's sequences may be as long as those that are served.
///
/// # Errors
/// [`DraftModelError::ModelLen`].
pub(super) fn check_length(draft: &LoadedModel, max_model_len: u32) -> Result<(), DraftModelError> {
    let draft_len = draft.config().max_position_embeddings;
    if max_model_len as usize <= draft_len {
        return Ok(());
    }
    Err(DraftModelError::ModelLen {
        draft: draft.name().to_owned(),
        draft_len,
        max_model_len,
    })
}

fn name_of(model: &ModelSource) -> String {
    match model {
        ModelSource::BuiltIn => "the built-in model".to_owned(),
        ModelSource::Path(path) => path.display().to_string(),
    }
}

/// The first difference between two vocabularies; `None` where each id is the same token in both.
fn difference(draft: &Tokenizer, target: &Tokenizer) -> Option<String> {
    /// Most bytes of a token that are shown.
    const MAX_SHOWN: usize = 24;
    let (num_draft, num_target) = (draft.vocab_size(), target.vocab_size());
    if num_draft != num_target {
        return Some(format!("it has {num_draft} tokens instead of {num_target}"));
    }
    if draft.fingerprint() == target.fingerprint() {
        return None;
    }
    let ids = 0..u32::try_from(num_target).unwrap_or(u32::MAX);
    let shown = |tokenizer: &Tokenizer, id| {
        let bytes = tokenizer.token_bytes(id);
        let shown = String::from_utf8_lossy(bytes.get(..MAX_SHOWN).unwrap_or(bytes)).into_owned();
        format!("{shown:?}")
    };
    let is_other = |&id: &u32| {
        draft.token_bytes(id) != target.token_bytes(id)
            || draft.is_special_token(id) != target.is_special_token(id)
    };
    ids.into_iter().find(is_other).map(|id| {
        format!(
            "its token {id} is {} instead of {}",
            shown(draft, id),
            shown(target, id)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokenizer(change: impl Fn(String) -> String) -> Tokenizer {
        let files: Vec<(&str, Vec<u8>)> = builtin_model::FILES
            .iter()
            .map(|(name, bytes)| match *name {
                "tokenizer.json" => {
                    let text = String::from_utf8(bytes.to_vec()).unwrap();
                    (*name, change(text).into_bytes())
                }
                _ => (*name, bytes.to_vec()),
            })
            .collect();
        let files: Vec<(&str, &[u8])> = (files.iter())
            .map(|(name, bytes)| (*name, bytes.as_slice()))
            .collect();
        Tokenizer::from_bytes(&files).unwrap()
    }

    #[test]
    fn a_vocabulary_is_compared_token_by_token() {
        let target = tokenizer(|text| text);
        assert_eq!(difference(&target, &target), None);
        // Other spacing is another file of the same tokens.
        let spaced = tokenizer(|text| text + "\n");
        assert_ne!(spaced.fingerprint(), target.fingerprint());
        assert_eq!(difference(&spaced, &target), None);
    }
}
