//! What the core's process may do: before the model's files are read, and once it is loaded.
//!
//! Files are confined before the first thread starts, so the parsers of a model's files run confined
//! too. What only loading does, such as keeping quantized weights beside the model, is denied after it
//! by its system calls, which all threads lose at once.

use std::path::{Path, PathBuf};

use protocol::{BackendKind, EngineConfig, ModelConfig, ModelSource};
use sandbox::{Access, FileRules, SystemCalls, Tcp, confine_files, deny_system_calls};

/// Whether, and for which life, the process confines itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Confine {
    /// Not at all.
    No,
    /// For one frontend that started it.
    Connected,
    /// For frontends that come to this socket, which is removed in the end.
    Listening(PathBuf),
}

impl Confine {
    /// Confines the process to what loading these models takes. Call it before any thread is started.
    pub fn before_loading(&self, config: &EngineConfig) {
        if *self == Self::No {
            tracing::warn!(
                "the engine core is not confined: files, network and programs are the user's (--no-sandbox)"
            );
            return;
        }
        if matches!(config.model_config.backend, BackendKind::Cuda(_)) {
            tracing::warn!("the engine core is not confined: the driver of CUDA needs more");
            return;
        }
        let files = confine_files(&self.file_rules(config), &Tcp::None);
        let calls = deny_system_calls(&[
            SystemCalls::NeverUsed,
            SystemCalls::Programs,
            SystemCalls::Network,
        ]);
        let (files_in_force, calls_in_force) = (files.in_words(), calls.in_words());
        if files.is_full() && calls.is_full() {
            tracing::info!("the engine core is confined: {files_in_force}; {calls_in_force}");
        } else {
            tracing::warn!(
                "the engine core is confined in part: {files_in_force}; {calls_in_force}"
            );
        }
    }

    /// Takes from the process what only loading needed.
    pub fn after_loading(&self, config: &ModelConfig) {
        let calls: &[_] = match self {
            Self::No => return,
            _ if matches!(config.backend, BackendKind::Cuda(_)) => return,
            Self::Connected => &[
                SystemCalls::Sockets,
                SystemCalls::FileChanges,
                SystemCalls::FileRemoval,
            ],
            Self::Listening(_) => &[SystemCalls::Sockets, SystemCalls::FileChanges],
        };
        let calls = deny_system_calls(calls);
        if !calls.is_full() {
            tracing::warn!("files can still be written: {}", calls.in_words());
        }
    }

    /// The files that the process may reach.
    pub fn file_rules(&self, config: &EngineConfig) -> FileRules {
        let mut rules = FileRules::system();
        let draft = (config.speculative_config.as_ref()).map(|config| &config.model);
        for model in [Some(&config.model_config.model), draft]
            .into_iter()
            .flatten()
        {
            if let ModelSource::Path(model) = model {
                rules.allow_model(model, config.model_config.weight_cache);
            }
        }
        if let Self::Listening(socket) = self {
            let folder = match socket.parent() {
                Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
                Some(parent) => parent,
                None => return rules,
            };
            rules.allow(folder, Access::RemoveFiles);
        }
        rules
    }
}

#[cfg(test)]
mod tests {
    use protocol::SpeculativeConfig;

    use super::*;

    #[test]
    fn a_core_reaches_its_model_and_little_else() {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("model");
        std::fs::create_dir(&model).unwrap();
        let mut config = EngineConfig {
            model_config: ModelConfig {
                model: ModelSource::Path(model.clone()),
                ..ModelConfig::default()
            },
            ..EngineConfig::default()
        };
        let added = |confine: &Confine, config: &EngineConfig| {
            let rules = confine.file_rules(config);
            let system = FileRules::system().iter().count();
            let added = rules.iter().skip(system);
            added
                .map(|(path, access)| (path.to_owned(), access))
                .collect::<Vec<_>>()
        };
        let read = (model.clone(), Access::Read);
        let keep = (model, Access::MakeFiles);
        assert_eq!(added(&Confine::Connected, &config), [read.clone(), keep]);
        config.model_config.weight_cache = false;
        assert_eq!(
            added(&Confine::Connected, &config),
            std::slice::from_ref(&read)
        );
        let listening = Confine::Listening("/run/formwork/core.sock".into());
        let socket = ("/run/formwork".into(), Access::RemoveFiles);
        assert_eq!(added(&listening, &config), [read, socket]);
        config.model_config.model = ModelSource::BuiltIn;
        assert_eq!(added(&Confine::Connected, &config), []);
        config.speculative_config = Some(SpeculativeConfig {
            model: ModelSource::Path("/draft".into()),
            ..SpeculativeConfig::default()
        });
        let draft = ("/draft".into(), Access::Read);
        assert_eq!(added(&Confine::Connected, &config), [draft]);
    }
}
