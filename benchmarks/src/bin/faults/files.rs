//! Processes that may open no more files.

use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, Signal};

use crate::fault::{Fault, Report, Setting};
use crate::load::Load;
use crate::server::{Launch, Server, wait_until};

pub(crate) const FAULTS: &[Fault] = &[
    Fault {
        name: "files-frontend",
        must_hold: "`RLIMIT_NOFILE` of 64 and 300 silent connections: requests wait and are then answered as before; a \
                    core that is killed meanwhile is replaced",
        run: frontend,
    },
    Fault {
        name: "files-core",
        must_hold: "a core that may open no further file: requests are answered as before",
        run: core,
    },
];

/// Silent connections, more than there are files.
const SILENT: usize = 300;

fn frontend(setting: &Setting) -> anyhow::Result<Report> {
    let launch = Launch {
        setup: Some("ulimit -n 64".to_owned()),
        ..Launch::default()
    };
    let mut server = Server::start(setting, &launch)?;
    let load = Load::learn(&server)?;
    let mut most = 0;
    let (result, tally) = load.beside(&server, 2, || {
        let address = server.address.parse()?;
        let mut silent = Vec::new();
        // The system takes connections for the server; beyond what it keeps they aren't made.
        for _ in 0..SILENT {
            silent.extend(TcpStream::connect_timeout(
                &address,
                Duration::from_millis(200),
            ));
        }
        most = server.frontend().num_files()?;
        server.core()?.signal(Signal::KILL);
        thread::sleep(setting.seconds(5));
        let num_silent = silent.len();
        drop(silent);
        wait_until("another core", || {
            Ok(server.is_healthy() && server.restarts()? == 1.0)
        })?;
        thread::sleep(Duration::from_secs(2));
        anyhow::Ok(num_silent)
    });
    let num_silent = result?;
    let mut report = Report::default();
    report.saw(format!(
        "{num_silent} silent connections, {most} of 64 files in use, core replaced"
    ));
    report.load(&tally);
    report.must(server.is_up(), "the server has ended");
    server.wait_until_idle()?;
    Ok(report)
}

fn core(setting: &Setting) -> anyhow::Result<Report> {
    let server = Server::start(setting, &Launch::default())?;
    let load = Load::learn(&server)?;
    let (result, tally) = load.beside(&server, 2, || {
        let core = server.core()?;
        core.limit(Resource::Nofile, core.num_files()? as u64)?;
        thread::sleep(setting.seconds(3));
        server.restarts()
    });
    let mut report = Report::default();
    let restarts = result?;
    report.saw(format!("{restarts} cores replaced"));
    report.must(restarts == 0.0, "a core was replaced");
    report.load(&tally);
    Ok(report)
}
