//! What the server's process may do, and with it every engine core that it starts.

use std::path::{Path, PathBuf};

use sandbox::{Access, FileRules, SystemCalls, Tcp, confine_files, deny_system_calls};

use super::args::ServeArgs;
use crate::arg_utils::DeviceArg;
use crate::engine_core_client::core_executable;
use crate::kv_events::Endpoint;

/// Confines the process to what serving takes. Call it before any thread is started, when the log and
/// the pid file are open.
pub fn confine(args: &ServeArgs) {
    if args.engine.no_sandbox {
        tracing::warn!(
            "the frontend is not confined: files, network and programs are the user's (--no-sandbox)"
        );
        return;
    }
    if matches!(args.engine.device, DeviceArg::Cuda(_)) {
        tracing::warn!(
            "the frontend is not confined: the engine core that it starts would be too, and the driver of CUDA needs \
             more"
        );
        return;
    }
    // A core that it starts is confined by this too, and further by itself.
    let files = confine_files(&file_rules(args), &tcp(args));
    let calls = deny_system_calls(&[SystemCalls::NeverUsed]);
    let (files_in_force, calls_in_force) = (files.in_words(), calls.in_words());
    if files.is_full() && calls.is_full() {
        tracing::info!("the frontend is confined: {files_in_force}; {calls_in_force}");
    } else {
        tracing::warn!("the frontend is confined in part: {files_in_force}; {calls_in_force}");
    }
}

/// The files that the process, and a core that it starts, may reach.
fn file_rules(args: &ServeArgs) -> FileRules {
    let (server, engine) = (&args.server, args.engine_args());
    let mut rules = FileRules::system();
    rules.allow_names_and_time();
    for model in [engine.model.as_deref(), engine.draft_model()]
        .into_iter()
        .flatten()
    {
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
    if let Some(keys) = &server.access.api_keys {
        // What takes its place is read again at SIGHUP.
        rules.allow(folder_of(keys), Access::Read);
        rules.allow(keys, Access::Read);
    }
    if let Some(audit_log) = &server.access.audit_log {
        rules.allow(folder_of(audit_log), Access::MakeFiles);
    }
    if let Some(socket) = &server.uds {
        rules.allow(folder_of(socket), Access::MakeSockets);
    }
    if let Some(events) = engine.kv_events() {
        for endpoint in [Some(&events.endpoint), events.replay_endpoint.as_ref()] {
            if let Some(socket) = endpoint.and_then(Endpoint::path) {
                rules.allow(folder_of(socket), Access::MakeSockets);
            }
        }
    }
    if let Some(pid_file) = &server.pid_file {
        rules.allow(folder_of(pid_file), Access::RemoveFiles);
    }
    rules
}

/// A collector of traces, and of KV events, is all that a server connects to.
fn tcp(args: &ServeArgs) -> Tcp {
    const HTTP: u16 = 80;
    let endpoint = args.server.otlp_traces_endpoint.as_ref();
    let traces = endpoint.map(|endpoint| endpoint.uri().port_u16().unwrap_or(HTTP));
    let engine = args.engine_args();
    let events = engine
        .kv_events()
        .and_then(|events| events.endpoint.connects_to());
    // Each core has the next port.
    let num_cores = u16::try_from(engine.data_parallel_size).unwrap_or(u16::MAX);
    let events = events.map(|first| first..=first.saturating_add(num_cores.saturating_sub(1)));
    Tcp::ConnectTo(
        traces
            .into_iter()
            .chain(events.into_iter().flatten())
            .collect(),
    )
}

/// The folder that a file is in.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        args: ServeArgs,
    }

    #[test]
    fn what_flags_name_can_be_reached() {
        let flags = [
            "serve",
            "--model=/m",
            "--no-weight-cache",
            r#"--speculative-config={"model": "/d"}"#,
            "--api-keys=/k/keys.json",
            "--audit-log=/a/audit.log",
            "--uds=/u/socket",
            "--pid-file=/p/pid",
            "--chat-template=/c/t.jinja",
        ];
        let command = Command::try_parse_from(flags).unwrap();
        let rules = file_rules(&command.args);
        for (path, access) in [
            ("/m", Access::Read),
            ("/d", Access::Read),
            ("/k", Access::Read),
            ("/a", Access::MakeFiles),
            ("/u", Access::MakeSockets),
            ("/p", Access::RemoveFiles),
            ("/c/t.jinja", Access::Read),
        ] {
            let expected = (Path::new(path), access);
            assert!(rules.iter().any(|rule| rule == expected), "{expected:?}");
        }
        // Nothing may be written where the model is, and nothing is readable as a whole.
        for (path, access) in rules.iter() {
            assert!(path != Path::new("/"), "{access:?}");
            assert!(path != Path::new("/m") || access == Access::Read);
        }
        assert_eq!(tcp(&command.args), Tcp::ConnectTo(Vec::new()));
    }

    #[test]
    fn kv_events_may_go_where_they_are_sent() {
        let parse = |flags: &[&str]| Command::try_parse_from(flags).unwrap().args;
        let connects = r#"--kv-events-config={"enable_kv_cache_events": true, "endpoint": "tcp://c:5557",
            "replay_endpoint": "ipc:///r/replay"}"#;
        let args = parse(&["serve", "--data-parallel-size=2", connects]);
        assert_eq!(tcp(&args), Tcp::ConnectTo(vec![5557, 5558]));
        let rules = file_rules(&args);
        let expected = (Path::new("/r"), Access::MakeSockets);
        assert!(rules.iter().any(|rule| rule == expected));
        let listens = r#"--kv-events-config={"enable_kv_cache_events": true}"#;
        assert_eq!(tcp(&parse(&["serve", listens])), Tcp::ConnectTo(Vec::new()));
    }
}
