//! `formwork-dynamo`'s command line: Dynamo's flags of a worker, and the engine's.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{CommandFactory, FromArgMatches, Parser};
use dynamo_backend_common::{CommonArgs, DisaggregationMode, DynamoError, WorkerConfig};
use engine_frontend::{EngineArgs, fetch_model, with_flag_names};

use crate::error::{invalid, not_supported};

/// Most requests that wait, as in `formwork serve`.
const DEFAULT_MAX_NUM_QUEUED_REQS: u32 = 4096;

/// Seconds that requests in flight have when the worker ends. Dynamo gives a worker 30 to end in.
const DEFAULT_SHUTDOWN_TIMEOUT: &str = "20";

/// A worker of NVIDIA Dynamo whose engine is Formwork
#[derive(Debug, Clone, Parser)]
#[command(name = "formwork-dynamo", version)]
pub struct Args {
    /// Dynamo's.
    #[command(flatten, next_help_heading = "Dynamo")]
    pub common: CommonArgs,
    /// Name of the model for clients; as --model where absent
    #[arg(long, value_name = "NAME")]
    pub served_model_name: Option<String>,
    /// The engine's.
    #[command(flatten)]
    pub engine: EngineArgs,
}

impl Args {
    /// Reads a command line; the first of `args` is the program's name.
    ///
    /// # Errors
    /// It is wrong, or asks for help.
    pub fn read(args: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let matches = command().try_get_matches_from(args)?;
        Self::from_arg_matches(&matches)
    }

    /// What Dynamo is to know of the worker. The model is on this machine then: a name on the Hub is downloaded, and
    /// `self.engine` has its path.
    ///
    /// # Errors
    /// Flags that ask for what this worker isn't, or there is no such model.
    pub fn worker_config(&mut self) -> Result<WorkerConfig, DynamoError> {
        self.verify()?;
        let engine = &mut self.engine;
        if engine.engine_core_address.is_none() {
            engine
                .max_num_queued_reqs
                .get_or_insert(DEFAULT_MAX_NUM_QUEUED_REQS);
        }
        *engine = fetch_model(engine).map_err(|error| in_flags(&error.to_string()))?;
        let served_model_name = self.served_model_name();
        let common = self.common.clone();
        Ok(WorkerConfig {
            namespace: common.namespace,
            component: common.component,
            endpoint: common.endpoint,
            endpoint_types: common.endpoint_types,
            model_name: self.card_source()?,
            served_model_name: Some(served_model_name),
            custom_jinja_template: common.custom_jinja_template,
            tool_call_parser: common.dyn_tool_call_parser,
            reasoning_parser: common.dyn_reasoning_parser,
            exclude_tools_when_tool_choice_none: common.exclude_tools_when_tool_choice_none,
            runtime: common.runtime,
            enable_rl: common.enable_rl,
            ..WorkerConfig::default()
        })
    }

    /// The model's name for clients: as asked for, on the Hub, or its folder's.
    pub fn served_model_name(&self) -> String {
        let folder = || {
            let path = self.engine.model.as_deref()?;
            Some(path.file_name()?.to_string_lossy().into_owned())
        };
        let named = self.served_model_name.clone();
        let named = named
            .or_else(|| self.engine.hub_name.clone())
            .or_else(folder);
        named.unwrap_or_else(|| builtin_model::NAME.to_owned())
    }

    /// Where Dynamo's frontend reads the tokenizer and the chat template: a name on the Hub, which each machine
    /// downloads itself, else a folder, which all machines must have.
    fn card_source(&self) -> Result<String, DynamoError> {
        let plain_name = self
            .engine
            .hub_name
            .as_ref()
            .filter(|name| !name.contains(['@', ':']));
        match (plain_name, &self.engine.model) {
            (Some(name), _) => Ok(name.clone()),
            (None, Some(path)) => Ok(path.display().to_string()),
            (None, None) => {
                let folder = built_in_card().map_err(|error| {
                    invalid(format!(
                        "can't write the built-in model's tokenizer: {error}"
                    ))
                })?;
                Ok(folder.display().to_string())
            }
        }
    }

    fn verify(&self) -> Result<(), DynamoError> {
        let common = &self.common;
        if common.disaggregation_mode != DisaggregationMode::Aggregated {
            let given = common.disaggregation_mode.as_str();
            return Err(invalid(format!(
                "--disaggregation-mode must be agg, got {given}: the engine computes prompts and answers itself"
            )));
        }
        if common.route_to_encoder {
            return Err(not_supported(
                "--route-to-encoder",
                "the engine reads text alone",
            ));
        }
        let is_served = |kind: &str| matches!(kind.trim(), "chat" | "completions");
        if let Some(other) = common
            .endpoint_types
            .split(',')
            .find(|kind| !is_served(kind))
        {
            return Err(invalid(format!(
                "--endpoint-types must be of chat and completions, got {other:?}"
            )));
        }
        if self.engine.chat_template.is_some() {
            let instead = "Dynamo's frontend renders conversations; give --custom-jinja-template";
            return Err(not_supported("--chat-template", instead));
        }
        // A file's name, or that of a file on the Hub.
        let is_gguf = |path: &&Path| path.to_string_lossy().ends_with(".gguf");
        if let Some(path) = self.engine.model.as_deref().filter(is_gguf) {
            return Err(invalid(format!(
                "--model must be a folder or a name on the Hub, got {}: Dynamo's frontend reads tokenizer.json and no \
                 GGUF file",
                path.display()
            )));
        }
        self.engine
            .verify()
            .map_err(|error| in_flags(&error.to_string()))
    }
}

/// The command line, with what a worker decides otherwise than a server.
pub fn command() -> clap::Command {
    Args::command().mut_arg("shutdown_timeout", |flag| {
        flag.default_value(DEFAULT_SHUTDOWN_TIMEOUT)
    })
}

/// An error about the engine's settings, with the flags' names in place of the fields'.
pub(crate) fn in_flags(message: &str) -> DynamoError {
    invalid(with_flag_names(message, &command()))
}

/// Writes what Dynamo's frontend reads of the built-in model, all but the weights, into a folder of the user's and
/// returns it. The same files go to the same folder: several workers share it.
fn built_in_card() -> std::io::Result<PathBuf> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};

    let user = rustix::process::geteuid().as_raw();
    let folder = std::env::temp_dir().join(format!("formwork-dynamo-{user}"));
    match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            // Another user could have made it, with another tokenizer in it.
            let found = std::fs::symlink_metadata(&folder)?;
            if !found.is_dir() || found.uid() != user {
                let message = format!("{} belongs to somebody else", folder.display());
                return Err(std::io::Error::other(message));
            }
        }
        made => made?,
    }
    let folder = folder.join(builtin_model::NAME);
    std::fs::create_dir_all(&folder)?;
    for (name, bytes) in builtin_model::FILES
        .iter()
        .filter(|(name, _)| !name.ends_with(".safetensors"))
    {
        // Renamed into place: a reader never sees half a file.
        let unfinished = folder.join(format!(".{name}.{}", std::process::id()));
        std::fs::write(&unfinished, bytes)?;
        std::fs::rename(&unfinished, folder.join(name))?;
    }
    Ok(folder)
}
