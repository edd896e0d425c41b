//! The backends and the control plane as child processes.
//!
//! The backends are processes, not tasks, because the demo kills one: only then do sockets close as
//! in a real crash.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use futures_util::future::try_join_all;

use super::{
    DemoError,
    state::{BackendView, Status, Zone},
};
use crate::child::{Child, ChildError, Program};

/// The names of the zones, and of the two backends in each.
const ZONES: [(&str, [&str; 2]); 3] = [
    ("a", ["a1", "a2"]),
    ("b", ["b1", "b2"]),
    ("c", ["c1", "c2"]),
];

/// The time that a backend takes to answer. The time is long enough that calls are open at any
/// moment, so that a killed backend has calls to lose.
pub(super) const DELAY: Duration = Duration::from_millis(20);

/// The number of attempts to start a backend on the port that it had, because the kernel may not
/// have freed the port yet.
const BIND_ATTEMPTS: u32 = 20;
const BIND_PAUSE: Duration = Duration::from_millis(100);

/// The backends of all zones.
#[derive(Debug)]
pub(super) struct Backends {
    program: Program,
    logs: PathBuf,
    processes: Vec<BackendProcess>,
}

#[derive(Debug)]
struct BackendProcess {
    name: &'static str,
    addr: SocketAddr,
    /// Absent while the backend is stopped or killed.
    child: Option<Child>,
}

impl Backends {
    /// Starts all backends. The logs of the backends go to files in `logs`.
    pub(super) async fn start(program: Program, logs: &Path) -> Result<Self, DemoError> {
        let names = ZONES.iter().flat_map(|(_, names)| names);
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let processes = try_join_all(names.map(|&name| start(&program, logs, name, any))).await?;
        Ok(Self {
            program,
            logs: logs.to_owned(),
            processes,
        })
    }

    /// The zones as they are at the beginning.
    pub(super) fn zones(&self) -> Vec<Zone> {
        let view = |name: &&'static str| {
            let process = self
                .processes
                .iter()
                .find(|process| process.name == *name)?;
            Some(BackendView {
                name,
                addr: process.addr,
                status: Status::Up,
            })
        };
        let zone = |(name, backends): &(&'static str, [&'static str; 2])| Zone {
            name,
            weight: 1,
            backends: backends.iter().filter_map(view).collect(),
        };
        ZONES.iter().map(zone).collect()
    }

    /// The address on which the backend `name` listens.
    pub(super) fn addr(&self, name: &str) -> Option<SocketAddr> {
        self.processes
            .iter()
            .find(|process| process.name == name)
            .map(|process| process.addr)
    }

    /// Takes the process of a backend out, so that the caller can end it.
    pub(super) fn take(&mut self, name: &str) -> Option<Child> {
        self.processes
            .iter_mut()
            .find(|process| process.name == name)?
            .child
            .take()
    }

    /// Starts a backend again, on the port that it had.
    pub(super) async fn bring_back(&mut self, name: &str) -> Result<(), DemoError> {
        let Some(process) = self
            .processes
            .iter_mut()
            .find(|process| process.name == name)
        else {
            return Ok(());
        };
        let mut attempt = 1;
        *process = loop {
            match start(&self.program, &self.logs, process.name, process.addr).await {
                Err(ChildError::Ended { .. }) if attempt < BIND_ATTEMPTS => attempt += 1,
                result => break result?,
            }
            tokio::time::sleep(BIND_PAUSE).await;
        };
        Ok(())
    }
}

async fn start(
    program: &Program,
    logs: &Path,
    name: &'static str,
    listen: SocketAddr,
) -> Result<BackendProcess, ChildError> {
    let listen = listen.to_string();
    let delay = humantime::format_duration(DELAY).to_string();
    let args = [
        "backend", "--name", name, "--listen", &listen, "--delay", &delay,
    ];
    let log = logs.join(name).with_extension("log");
    let mut child = program.spawn(name, args, Some(&log))?;
    let addr = child.announced("listening on").await?;
    Ok(BackendProcess {
        name,
        addr,
        child: Some(child),
    })
}

/// The process of the control plane.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) listen: SocketAddr,
    pub(super) admin: SocketAddr,
    _child: Child,
}

impl Control {
    /// Starts the control plane with the configuration file `config`.
    pub(super) async fn start(
        program: &Program,
        logs: &Path,
        config: &Path,
    ) -> Result<Self, DemoError> {
        let any = "127.0.0.1:0";
        let args = ["control", "--listen", any, "--admin", any, "--config"];
        let args = args.iter().map(AsRef::as_ref).chain([config.as_os_str()]);
        let mut child = program.spawn("control", args, Some(&logs.join("control.log")))?;
        let listen = child.announced("listening on").await?;
        let admin = child.announced("admin on http://").await?;
        Ok(Self {
            listen,
            admin,
            _child: child,
        })
    }
}
