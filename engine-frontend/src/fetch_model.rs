//! From a model as it was named to a folder or a file on this machine.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use hub::{FetchProgress, Hub, HubError, HubName, HubSettings};

use crate::arg_utils::EngineArgs;
use crate::progress_display::ProgressDisplay;
use crate::startup_error::StartupError;

/// The name on the Hub that flags name their model by. `None` where the model is on this machine: a folder
/// or file of that name wins.
///
/// # Errors
/// What is named is neither.
pub fn hub_name_of(args: &EngineArgs) -> Result<Option<HubName>, StartupError> {
    hub_name_at(args.model.as_deref())
}

/// The same of the draft model of `--speculative-config`.
///
/// # Errors
/// As there.
pub fn draft_hub_name_of(args: &EngineArgs) -> Result<Option<HubName>, StartupError> {
    hub_name_at(args.draft_model()).map_err(of_draft_model)
}

fn hub_name_at(path: Option<&Path>) -> Result<Option<HubName>, StartupError> {
    let Some(path) = path.filter(|path| !path.exists()) else {
        return Ok(None);
    };
    match path.to_str().and_then(HubName::parse) {
        Some(name) => Ok(Some(name)),
        None => Err(StartupError::NoModel {
            path: path.to_owned(),
        }),
    }
}

fn of_draft_model(error: StartupError) -> StartupError {
    StartupError::DraftModel(Box::new(error))
}

/// Flags whose model is on this machine, and the draft model too. A name on the Hub becomes a path in the Hub's cache,
/// after a download of what the cache lacks; `hub_name` then keeps the model's name.
///
/// It blocks, and starts threads that have ended when it returns: call it before the process is confined.
///
/// # Errors
/// The flags are wrong, there is no such model, or it can't be downloaded.
pub fn fetch_model(args: &EngineArgs) -> Result<EngineArgs, StartupError> {
    let (name, draft_name) = (hub_name_of(args)?, draft_hub_name_of(args)?);
    let mut fetched = args.clone();
    if name.is_some() || draft_name.is_some() {
        // Not after a long download.
        args.verify()?;
    }
    if let Some(name) = name {
        fetched.model = Some(pull(&name)?);
        fetched.hub_name = Some(name.to_string());
    }
    match draft_name {
        None => Ok(fetched),
        Some(name) => Ok(fetched.with_draft_model(pull(&name).map_err(of_draft_model)?)),
    }
}

fn pull(name: &HubName) -> Result<PathBuf, StartupError> {
    pull_model(name).map_err(|error| match error {
        HubError::NotFound { .. } => StartupError::NotOnTheHub {
            name: name.to_string(),
            source: Box::new(error),
        },
        error => StartupError::Hub(Box::new(error)),
    })
}

/// Downloads what the Hub's cache lacks of a model, with progress on standard error. Returns its folder or
/// its GGUF file.
///
/// # Errors
/// [`HubError`].
pub fn pull_model(name: &HubName) -> Result<PathBuf, HubError> {
    let display = Mutex::new(ProgressDisplay::new(format!("downloading {name}")));
    let on_progress = |progress: FetchProgress| {
        let mut display = display.lock().unwrap_or_else(PoisonError::into_inner);
        display.update(progress.done_bytes, progress.total_bytes);
    };
    Hub::new(HubSettings::from_env()?).fetch(name, &on_progress)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(model: &str) -> Result<Option<HubName>, StartupError> {
        hub_name_of(&EngineArgs {
            model: Some(model.into()),
            ..EngineArgs::default()
        })
    }

    #[test]
    fn a_path_that_exists_is_no_name() {
        assert_eq!(hub_name_of(&EngineArgs::default()).unwrap(), None);
        // Of this crate, where its tests run.
        assert_eq!(of("src/openai").unwrap(), None);
        let name = of("org/openai@v1").unwrap().unwrap();
        assert_eq!(name.to_string(), "org/openai@v1");
        for path in [
            "/none/openai",
            "./none",
            "none",
            "models/none.gguf",
            "a/b/c",
        ] {
            assert_eq!(
                of(path).unwrap_err().to_string(),
                format!(
                    "no model at {path}: give a folder, a GGUF file, or a name on the Hub such as Qwen/Qwen3-0.6B"
                )
            );
        }
        let args = EngineArgs {
            model: Some("src".into()),
            ..EngineArgs::default()
        };
        assert_eq!(fetch_model(&args).unwrap(), args);
    }

    #[test]
    fn a_draft_model_is_looked_for_where_a_model_is() {
        let args = |model: &str| EngineArgs {
            speculative_config: Some(protocol::SpeculativeConfig {
                model: protocol::ModelSource::Path(model.into()),
                ..protocol::SpeculativeConfig::default()
            }),
            ..EngineArgs::default()
        };
        assert_eq!(fetch_model(&args("src")).unwrap(), args("src"));
        let name = draft_hub_name_of(&args("org/small")).unwrap().unwrap();
        assert_eq!(name.to_string(), "org/small");
        assert_eq!(
            fetch_model(&args("/none/small")).unwrap_err().to_string(),
            "--speculative-config: no model at /none/small: give a folder, a GGUF file, or a name on the Hub such as \
             Qwen/Qwen3-0.6B"
        );
    }
}
