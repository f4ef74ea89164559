//! Where cores come from, and whether one can stand in for another.

use std::path::PathBuf;
use std::time::Duration;

use protocol::{EngineConfig, EngineCoreReadyResponse, LoadProgress, Quantization};

use crate::engine_core_client::{EngineCoreClient, EngineCoreStartupError, LaunchOptions};
use crate::progress_display::ProgressDisplay;

/// Where another core comes from.
#[derive(Debug, Clone)]
pub enum CoreSource {
    /// It is started.
    Launch(Box<(LaunchOptions, EngineConfig)>),
    /// It was started by hand and listens here.
    Connect(PathBuf, Duration),
}

impl CoreSource {
    pub(crate) async fn client(&self) -> Result<EngineCoreClient, EngineCoreStartupError> {
        match self {
            Self::Launch(launch) => {
                let (options, config) = &**launch;
                let quantizes = config.model_config.quantization != Quantization::None;
                let mut progress = ProgressDisplay::of_a_load(quantizes);
                let on_progress = |loaded: LoadProgress| progress.update_load(&loaded);
                EngineCoreClient::launch(options, config.clone(), on_progress).await
            }
            Self::Connect(address, timeout) => {
                EngineCoreClient::connect(address, *timeout, |_| ()).await
            }
        }
    }
}

/// What keeps a core from going on with another's requests.
pub(crate) fn difference(
    first: &EngineCoreReadyResponse,
    other: &EngineCoreReadyResponse,
) -> Option<String> {
    let facts = |ready: &EngineCoreReadyResponse| {
        [
            ("model", ready.model_name.clone()),
            ("tokenizer", ready.tokenizer_fingerprint.clone()),
            (
                "weights",
                ready.weights_fingerprint.clone().unwrap_or_default(),
            ),
            ("vocabulary size", ready.vocab_size.to_string()),
            ("max_model_len", ready.max_model_len.to_string()),
        ]
    };
    let (first, other) = (facts(first), facts(other));
    let mut pairs = first.into_iter().zip(other);
    pairs
        .find(|(first, other)| first.1 != other.1)
        .map(|((name, first), (_, other))| format!("the {name} {other}, the first had {first}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_model_is_no_replacement() {
        let ready = crate::test_support::ready(64);
        let mut other = ready.clone();
        other.num_blocks += 1;
        assert_eq!(difference(&ready, &other), None);
        other.max_model_len = 32;
        let says = difference(&ready, &other).unwrap();
        assert_eq!(says, "the max_model_len 32, the first had 64");
    }
}
