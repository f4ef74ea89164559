//! What the server's process may do, and with it every engine core that it starts.

use std::path::{Path, PathBuf};

use sandbox::{Access, FileRules, SystemCalls, Tcp, confine_files, deny_system_calls};

use super::args::ServeArgs;
use crate::engine_core_client::core_executable;

/// Confines the process to what serving takes. Call it before any thread is started, when the log and
/// the pid file are open.
pub fn confine(args: &ServeArgs) {
    if args.engine.no_sandbox {
        tracing::warn!("not confined: files, network and programs are the user's (--no-sandbox)");
        return;
    }
    // A core that it starts is confined by this too, and further by itself.
    let files = confine_files(&file_rules(args), &tcp(args));
    let calls = deny_system_calls(&[SystemCalls::NeverUsed]);
    let (files_in_force, calls_in_force) = (files.in_words(), calls.in_words());
    if files.is_full() && calls.is_full() {
        tracing::info!("confined: {files_in_force}; {calls_in_force}");
    } else {
        tracing::warn!("confined in part: {files_in_force}; {calls_in_force}");
    }
}

/// The files that the process, and a core that it starts, may reach.
fn file_rules(args: &ServeArgs) -> FileRules {
    let (server, engine) = (&args.server, args.engine_args());
    let mut rules = FileRules::system();
    rules.allow_names_and_time();
    if let Some(model) = &engine.model {
        rules.allow_model(model, !engine.no_weight_cache);
    }
    if engine.engine_core_address.is_none() {
        if let Ok(executable) = core_executable(engine.engine_core.as_deref()) {
            rules.allow_program(&executable);
        }
        // Where a core's socket is made, in a folder of its own.
        rules.allow(std::env::temp_dir(), Access::MakeSockets);
    }
    let read = [
        engine.chat_template.as_ref().map(PathBuf::from),
        server.ssl_certfile.clone(),
        server.ssl_keyfile.clone(),
        server.ssl_ca_certs.clone(),
    ];
    for path in read.into_iter().flatten() {
        rules.allow(path, Access::Read);
    }
    if let Some(socket) = &server.uds {
        rules.allow(folder_of(socket), Access::MakeSockets);
    }
    if let Some(pid_file) = &server.pid_file {
        rules.allow(folder_of(pid_file), Access::RemoveFiles);
    }
    rules
}

/// A collector of traces is all that a server connects to.
fn tcp(args: &ServeArgs) -> Tcp {
    const HTTP: u16 = 80;
    let endpoint = args.server.otlp_traces_endpoint.as_ref();
    let ports = endpoint.map(|endpoint| endpoint.uri().port_u16().unwrap_or(HTTP));
    Tcp::ConnectTo(ports.into_iter().collect())
}

/// The folder that a file is in.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}
