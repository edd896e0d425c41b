//! Ends sockets in all network namespaces of a cgroup, by netlink.
//!
//! A thread of its own does that, because netlink shows a thread only the sockets of the namespace that it is in.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use socket2::{Domain, Protocol as Number, Socket, Type};
use tracing::{info, warn};

use super::Routed;
use super::diag::{self, Answer, FAMILIES, SocketId};
use crate::metrics::Metrics;
use crate::model::Protocol;

/// `AF_NETLINK`, and its protocol `NETLINK_SOCK_DIAG`.
const NETLINK: (i32, i32) = (16, 4);

/// The number that `cgroup.procs` has for a process that the reader does not see.
const HIDDEN: &str = "0";

const PATIENCE: Duration = Duration::from_secs(5);

/// Ends sockets in every network namespace that a process of the cgroup is in. A thread of its own enters them one by
/// one, and returns the sockets that could not be ended. A socket is left alone if it is not connected to its backend,
/// or if `is_same` is false. Its program uses it for something else now.
///
/// # Errors
/// There is no such thread.
pub(crate) fn end(
    cgroup: PathBuf,
    sockets: Vec<Routed>,
    is_same: impl Fn(&Routed) -> bool + Send + 'static,
    metrics: Metrics,
) -> io::Result<JoinHandle<Vec<Routed>>> {
    thread::Builder::new().spawn(move || {
        let sockets = sockets.into_iter().map(|socket| (socket.cookie, socket));
        let mut work = Work {
            left: sockets.collect(),
            ended: 0,
            failed: Vec::new(),
            problem: None,
            is_blind: false,
            is_same,
            metrics,
        };
        for namespace in work.namespaces(&cgroup) {
            if work.left.is_empty() {
                break;
            }
            if let Err(error) = work.end_in(&namespace) {
                work.is_blind = true;
                work.problem = Some(error);
            }
        }
        work.report()
    })
}

/// Sockets that are being ended.
struct Work<F> {
    /// The sockets that were not found yet, by cookie.
    left: HashMap<u64, Routed>,
    /// The number of sockets that were ended.
    ended: usize,
    /// The sockets that the kernel did not end.
    failed: Vec<Routed>,
    /// The last reason for that.
    problem: Option<io::Error>,
    /// True if not all sockets were seen, so those that are left may be among them.
    is_blind: bool,
    is_same: F,
    metrics: Metrics,
}

impl<F: Fn(&Routed) -> bool> Work<F> {
    /// The network namespaces of the processes of a cgroup and of those below it.
    fn namespaces(&mut self, cgroup: &Path) -> Vec<File> {
        let mut found = Vec::new();
        let mut known = HashSet::new();
        for process in processes(cgroup) {
            if process == HIDDEN {
                self.is_blind = true;
                self.problem = Some(io::Error::other("not all processes are visible (hostPID)"));
                continue;
            }
            let namespace = File::open(format!("/proc/{process}/ns/net"));
            match namespace.and_then(|namespace| Ok((identity(&namespace)?, namespace))) {
                Ok((identity, namespace)) => {
                    if known.insert(identity) {
                        found.push(namespace);
                    }
                }
                // A process that has ended meanwhile has no sockets.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    self.is_blind = true;
                    self.problem = Some(error);
                }
            }
        }
        found
    }

    /// Ends the sockets of a namespace. It goes on after a list or a socket that the kernel refuses.
    ///
    /// # Errors
    /// The namespace cannot be entered, or the kernel does not answer.
    fn end_in(&mut self, namespace: &File) -> io::Result<()> {
        let own = File::open("/proc/thread-self/ns/net")?;
        // The right to enter is not needed where this thread is already.
        if identity(&own)? != identity(namespace)? {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        }
        let socket = Socket::new(
            Domain::from(NETLINK.0),
            Type::DGRAM,
            Some(Number::from(NETLINK.1)),
        )?;
        socket.set_read_timeout(Some(PATIENCE))?;
        for protocol in [Protocol::Udp, Protocol::Tcp] {
            for family in FAMILIES {
                if !self.left.values().any(|it| it.protocol == protocol) {
                    break;
                }
                let (found, end) = ask(&socket, &diag::list(family, protocol.number()))?;
                if end != 0 {
                    self.is_blind = true;
                    self.problem = Some(io::Error::from_raw_os_error(end));
                }
                for (family, id) in found {
                    self.end_one(&socket, family, protocol, &id)?;
                }
            }
        }
        Ok(())
    }

    fn end_one(
        &mut self,
        socket: &Socket,
        family: u8,
        protocol: Protocol,
        id: &SocketId,
    ) -> io::Result<()> {
        let cookie = diag::cookie(id);
        let Some(found) = self.left.get(&cookie).copied() else {
            return Ok(());
        };
        if found.protocol != protocol {
            return Ok(());
        }
        // No hook sees that a program takes the peer of a UDP socket away, so that the map may be out of date.
        let is_connected = diag::peer(family, id) == found.backend;
        if !is_connected || !(self.is_same)(&found) {
            self.left.remove(&cookie);
            return Ok(());
        }
        let destroy = diag::destroy(family, protocol.number(), id);
        match ask(socket, &destroy)?.1 {
            0 => {
                self.ended += 1;
                self.metrics.sockets_ended(protocol, 1);
            }
            // It has ended by itself.
            libc::ENOENT => {}
            error => {
                self.failed.push(found);
                self.problem = Some(io::Error::from_raw_os_error(error));
            }
        }
        self.left.remove(&cookie);
        Ok(())
    }

    /// Says what was done, and returns the sockets that could not be ended.
    fn report(mut self) -> Vec<Routed> {
        if self.ended > 0 {
            let ended = self.ended;
            info!("{ended} sockets were ended, because their backends are gone");
        }
        if self.is_blind {
            self.failed.extend(self.left.into_values());
        }
        if let Some(problem) = self.problem.filter(|_| !self.failed.is_empty()) {
            let failed = self.failed.len();
            warn!("{failed} sockets to backends that are gone cannot be ended: {problem}");
        }
        self.failed
    }
}

/// The processes of a cgroup and of those below it.
fn processes(cgroup: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![cgroup.to_owned()];
    while let Some(folder) = folders.pop() {
        let processes = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        found.extend(processes.lines().map(str::to_owned));
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let below = entries.filter(|entry| entry.file_type().is_ok_and(|it| it.is_dir()));
        folders.extend(below.map(|entry| entry.path()));
    }
    found
}

/// True if processes of a cgroup are in PID namespaces that this process does not see.
pub(crate) fn hides_processes(cgroup: &Path) -> bool {
    processes(cgroup).iter().any(|process| process == HIDDEN)
}

/// The numbers by which a namespace is known.
fn identity(namespace: &File) -> io::Result<(u64, u64)> {
    let metadata = namespace.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Sends a request, and reads to the end of its answer.
fn ask(socket: &Socket, request: &[u8]) -> io::Result<(Vec<(u8, SocketId)>, i32)> {
    socket.send(request)?;
    let mut found = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let mut reader = socket;
        let size = reader.read(&mut buffer)?;
        for answer in diag::read(&buffer[..size]) {
            match answer {
                Answer::Socket(family, id) => found.push((family, id)),
                Answer::End(error) => return Ok((found, error)),
            }
        }
    }
}
