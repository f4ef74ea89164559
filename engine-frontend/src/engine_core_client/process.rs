//! The core as a child process.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use protocol::handshake::{HandshakeError, wait_for_engine_startup};
use protocol::transport::tokio::{FrameReader, FrameWriter, Listener};
use protocol::transport::{PrivateAddress, TransportError};
use protocol::{EngineConfig, EngineCoreReadyResponse, EngineHandshakeMetadata, LoadProgress};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::error::EngineCoreStartupError;
use super::shared_weights::SharedWeights;

/// Name of the core's executable.
const EXECUTABLE: &str = "formwork-engine-core";

/// Variables that the core gets: its own, and what the loader, the allocator, the runtime and drivers
/// read. Nothing else reaches it, so no key does, whatever its variable is called.
const INHERITED: [&str; 17] = [
    "FORMWORK_CPU_LEVEL",
    "FORMWORK_LOG",
    "HOME",
    "LANG",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "LLVM_PROFILE_FILE",
    "NO_COLOR",
    "PATH",
    "POISON_REQUEST_ID",
    "RUST_BACKTRACE",
    "RUST_LIB_BACKTRACE",
    "RUST_MIN_STACK",
    "TERM",
    "TMPDIR",
    "TZ",
    // Where the compiler of a GPU's kernels may be.
    "VIRTUAL_ENV",
];

/// Beginnings of more such variables.
const INHERITED_PREFIXES: [&str; 7] = [
    "ASAN_", "CUDA_", "DYLD_", "GLIBC_", "LC_", "MALLOC_", "NVIDIA_",
];

/// How a core is started.
#[derive(Debug, Clone)]
pub struct LaunchOptions {
    /// The core's executable; `None` is `formwork-engine-core` beside this program's own.
    pub engine_core: Option<PathBuf>,
    /// Longest silence of the core while it starts. Loading a model is not silent.
    pub startup_timeout: Duration,
    /// How long a core that has nothing left to do may take to end before it is killed.
    pub exit_grace: Duration,
    /// Whether its log is JSON.
    pub json_logs: bool,
    /// Whether it doesn't confine itself.
    pub no_sandbox: bool,
    /// Memory for the weights that this core shares with others.
    pub shared_weights: Option<SharedWeights>,
}

impl Default for LaunchOptions {
    /// The core beside this program, and vLLM's ten minutes and five seconds.
    fn default() -> Self {
        Self {
            engine_core: None,
            startup_timeout: Duration::from_secs(600),
            exit_grace: Duration::from_secs(5),
            json_logs: false,
            no_sandbox: false,
            shared_weights: None,
        }
    }
}

/// A core that is ready.
pub(super) struct StartedEngineCore {
    /// Where this frontend started it.
    pub(super) process: Option<EngineCoreProcess>,
    pub(super) reader: FrameReader,
    pub(super) writer: FrameWriter,
    pub(super) ready: EngineCoreReadyResponse,
}

/// A core that this frontend started. Dropping it kills the core.
#[derive(Debug)]
pub(super) struct EngineCoreProcess {
    child: Child,
    /// See [`LaunchOptions::exit_grace`].
    exit_grace: Duration,
}

impl EngineCoreProcess {
    /// Starts a core and waits until it is ready.
    pub(super) async fn launch(
        options: &LaunchOptions,
        config: EngineConfig,
        on_progress: impl FnMut(LoadProgress),
    ) -> Result<StartedEngineCore, EngineCoreStartupError> {
        let executable = core_executable(options.engine_core.as_deref())?;
        let address = PrivateAddress::new()?;
        let listener = Listener::bind(address.path())?;
        let mut process = Self::spawn(&executable, address.path(), options)?;

        let stream = tokio::select! {
            accepted = timeout(options.startup_timeout, listener.accept()) => match accepted {
                Ok(stream) => stream?,
                Err(_) => return Err(TransportError::Timeout(options.startup_timeout).into()),
            },
            exit_status = process.wait() => {
                return Err(EngineCoreStartupError::Exited { exit_status });
            }
        };
        // Nobody else is to connect, and nothing to be left behind, however long the model loads.
        drop((listener, address));
        let (mut reader, mut writer) = stream.split();
        let metadata = EngineHandshakeMetadata {
            config: Some(config),
        };
        let timeout = options.startup_timeout;
        match wait_for_engine_startup(&mut reader, &mut writer, &metadata, timeout, on_progress)
            .await
        {
            Ok(ready) => Ok(StartedEngineCore {
                process: Some(process),
                reader,
                writer,
                ready,
            }),
            Err(error) => {
                drop((reader, writer));
                Err(process.startup_error(error).await)
            }
        }
    }

    /// The core connects to `address`. It has a process group of its own, since an interrupt at
    /// the terminal is the frontend's to handle, and no standard output, which is the frontend's.
    fn spawn(
        executable: &Path,
        address: &Path,
        options: &LaunchOptions,
    ) -> Result<Self, EngineCoreStartupError> {
        let exit_grace = options.exit_grace;
        let spawn_error = |error| EngineCoreStartupError::Spawn {
            path: executable.to_owned(),
            error,
        };
        let stdin = match &options.shared_weights {
            Some(weights) => weights.to_stdio().map_err(spawn_error)?,
            None => Stdio::null(),
        };
        let log_format = if options.json_logs { "json" } else { "human" };
        let child = Command::new(executable)
            .arg("--connect")
            .arg(address)
            .args((options.shared_weights.is_some()).then_some("--shared-weights-on-stdin"))
            .args(options.no_sandbox.then_some("--no-sandbox"))
            .env_clear()
            .envs(env::vars_os().filter(|(name, _)| is_inherited(name)))
            .env("FORMWORK_LOG_FORMAT", log_format)
            .stdin(stdin)
            .stdout(Stdio::null())
            .process_group(0)
            .kill_on_drop(true)
            .spawn();
        match child {
            Ok(child) => Ok(Self { child, exit_grace }),
            Err(error) => Err(spawn_error(error)),
        }
    }

    /// What a failed handshake means. The core ends by itself: its connection is closed.
    async fn startup_error(&mut self, error: HandshakeError) -> EngineCoreStartupError {
        let exit_status = self.end().await;
        match error {
            // A core without a word for it: how it ended says more than that it did.
            HandshakeError::Closed { .. }
            | HandshakeError::Transport {
                error: TransportError::Io(_),
                ..
            } => EngineCoreStartupError::Exited { exit_status },
            error => error.into(),
        }
    }

    /// The process's id, until it has ended.
    pub(super) fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits until the process ends. `None` where the system doesn't tell how (a program that
    /// ignores `SIGCHLD` never learns it). A dropped future loses nothing.
    pub(super) async fn wait(&mut self) -> Option<ExitStatus> {
        self.child.wait().await.ok()
    }

    /// How long the process may take to end by itself.
    pub(super) fn exit_grace(&self) -> Duration {
        self.exit_grace
    }

    /// Waits for as long as the process may take to end, and then kills it.
    pub(super) async fn end(&mut self) -> Option<ExitStatus> {
        match timeout(self.exit_grace, self.wait()).await {
            Ok(exit_status) => exit_status,
            Err(_) => self.kill().await,
        }
    }

    /// Kills the process, where it hasn't ended yet.
    pub(super) async fn kill(&mut self) -> Option<ExitStatus> {
        // It fails only for a process that has ended.
        let _ = self.child.start_kill();
        self.wait().await
    }
}

/// The core's executable: `given`, or the one beside this program's own.
pub(crate) fn core_executable(given: Option<&Path>) -> Result<PathBuf, EngineCoreStartupError> {
    let path = match given {
        Some(path) => path.to_owned(),
        None => {
            let own = env::current_exe().map_err(|error| EngineCoreStartupError::Spawn {
                path: PathBuf::from(EXECUTABLE),
                error,
            })?;
            beside(&own)
        }
    };
    if path.is_file() {
        Ok(path)
    } else {
        Err(EngineCoreStartupError::NotFound { path })
    }
}

/// True for a variable of this process that the core gets.
fn is_inherited(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| {
        INHERITED.contains(&name)
            || INHERITED_PREFIXES
                .iter()
                .any(|prefix| name.starts_with(prefix))
    })
}

/// Where the core's executable is expected, for the program at `own`. Cargo puts examples and
/// tests one folder below the executables.
fn beside(own: &Path) -> PathBuf {
    let folder = own.parent().unwrap_or(Path::new(""));
    let folder = match folder.file_name().and_then(|name| name.to_str()) {
        Some("deps" | "examples") => folder.parent().unwrap_or(folder),
        _ => folder,
    };
    folder.join(format!("{EXECUTABLE}{}", env::consts::EXE_SUFFIX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_lies_beside_the_program() {
        let beside = |own| beside(Path::new(own));
        assert_eq!(
            beside("/opt/bin/formwork"),
            Path::new("/opt/bin/formwork-engine-core")
        );
        let debug = Path::new("/x/target/debug/formwork-engine-core");
        assert_eq!(beside("/x/target/debug/formwork-batch"), debug);
        assert_eq!(beside("/x/target/debug/examples/generate"), debug);
        assert_eq!(beside("/x/target/debug/deps/batch-0123456789abcdef"), debug);
    }

    #[test]
    fn a_missing_core_is_named() {
        let error = core_executable(Some(Path::new("/nonexistent/core"))).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no engine core at /nonexistent/core: build it with `cargo build --release -p \
             engine-core`, or name it with --engine-core PATH"
        );
    }
}
