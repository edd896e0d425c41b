//! The backends and the control plane, as processes.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use futures_util::future::try_join_all;

use super::{
    DemoError,
    scene::{BackendView, Status, Zone},
};
use crate::child::{Child, ChildError, Program};

/// Who is where: three zones with two backends each.
const ZONES: [(&str, [&str; 2]); 3] = [
    ("a", ["a1", "a2"]),
    ("b", ["b1", "b2"]),
    ("c", ["c1", "c2"]),
];

/// How long a backend takes to answer: long enough that some calls are open at any moment, or there
/// would be nothing to lose.
pub(super) const DELAY: Duration = Duration::from_millis(20);

/// How often a port that is still in use is tried again, for whom it belonged to before.
const BIND_ATTEMPTS: u32 = 20;
const BIND_PAUSE: Duration = Duration::from_millis(100);

/// The backends.
#[derive(Debug)]
pub(super) struct Cast {
    program: Program,
    logs: PathBuf,
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    name: &'static str,
    addr: SocketAddr,
    /// Absent while it is stopped or killed.
    child: Option<Child>,
}

impl Cast {
    /// Starts all of them; what they log goes to files in `logs`.
    pub(super) async fn start(program: Program, logs: &Path) -> Result<Self, DemoError> {
        let names = ZONES.iter().flat_map(|(_, names)| names);
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let members = try_join_all(names.map(|&name| start(&program, logs, name, any))).await?;
        Ok(Self {
            program,
            logs: logs.to_owned(),
            members,
        })
    }

    /// The zones as they are at the beginning.
    pub(super) fn zones(&self) -> Vec<Zone> {
        let view = |name: &&'static str| {
            let member = self.members.iter().find(|member| member.name == *name)?;
            Some(BackendView {
                name,
                addr: member.addr,
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

    /// Where `name` listens.
    pub(super) fn addr(&self, name: &str) -> Option<SocketAddr> {
        self.members
            .iter()
            .find(|member| member.name == name)
            .map(|member| member.addr)
    }

    /// Takes a backend's process out, to be ended.
    pub(super) fn take(&mut self, name: &str) -> Option<Child> {
        self.members
            .iter_mut()
            .find(|member| member.name == name)?
            .child
            .take()
    }

    /// Starts a backend again, on the port that it had.
    pub(super) async fn bring_back(&mut self, name: &str) -> Result<(), DemoError> {
        let Some(member) = self.members.iter_mut().find(|member| member.name == name) else {
            return Ok(());
        };
        let mut attempt = 1;
        *member = loop {
            match start(&self.program, &self.logs, member.name, member.addr).await {
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
) -> Result<Member, ChildError> {
    let listen = listen.to_string();
    let delay = humantime::format_duration(DELAY).to_string();
    let args = [
        "backend", "--name", name, "--listen", &listen, "--delay", &delay,
    ];
    let log = logs.join(name).with_extension("log");
    let mut child = program.spawn(name, args, Some(&log))?;
    let addr = child.announced("listening on").await?;
    Ok(Member {
        name,
        addr,
        child: Some(child),
    })
}

/// The control plane.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) listen: SocketAddr,
    pub(super) admin: SocketAddr,
    _child: Child,
}

impl Control {
    /// Serves the configuration at `config`.
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
