//! Sockets of all network namespaces of a cgroup, by netlink.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
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

const PATIENCE: Duration = Duration::from_secs(5);

/// Ends sockets in every network namespace that a process of the cgroup is in. A thread of its own enters
/// them one by one, and ends with that.
pub(crate) fn end(cgroup: PathBuf, sockets: Vec<Routed>, metrics: Metrics) {
    let begun = thread::Builder::new().spawn(move || {
        let mut left: HashMap<u64, Routed> = HashMap::new();
        left.extend(sockets.into_iter().map(|socket| (socket.cookie, socket)));
        let all = left.len();
        for namespace in namespaces(&cgroup) {
            if left.is_empty() {
                break;
            }
            if let Err(error) = end_in(&namespace, &mut left, &metrics) {
                warn!("sockets to backends that are gone cannot be ended: {error}");
            }
        }
        info!(
            "{} sockets were ended, because their backends are gone",
            all - left.len()
        );
    });
    if let Err(error) = begun {
        warn!("sockets to backends that are gone cannot be ended: {error}");
    }
}

/// The network namespaces of the processes of a cgroup and of those below it.
fn namespaces(cgroup: &Path) -> Vec<File> {
    let mut found = Vec::new();
    let mut known = HashSet::new();
    let mut folders = vec![cgroup.to_owned()];
    while let Some(folder) = folders.pop() {
        let processes = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        for process in processes.lines() {
            // A process that has ended meanwhile has no sockets.
            let namespace = File::open(format!("/proc/{process}/ns/net"));
            if let Ok(namespace) = namespace
                && let Ok(metadata) = namespace.metadata()
                && known.insert((metadata.dev(), metadata.ino()))
            {
                found.push(namespace);
            }
        }
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let below = entries.filter(|entry| entry.file_type().is_ok_and(|it| it.is_dir()));
        folders.extend(below.map(|entry| entry.path()));
    }
    found
}

fn end_in(namespace: &File, left: &mut HashMap<u64, Routed>, metrics: &Metrics) -> io::Result<()> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
    let socket = Socket::new(
        Domain::from(NETLINK.0),
        Type::DGRAM,
        Some(Number::from(NETLINK.1)),
    )?;
    socket.set_read_timeout(Some(PATIENCE))?;
    for protocol in [Protocol::Udp, Protocol::Tcp] {
        if !left.values().any(|it| it.protocol == protocol) {
            continue;
        }
        for family in FAMILIES {
            let (found, end) = ask(&socket, &diag::list(family, protocol.number()))?;
            if end != 0 {
                return Err(io::Error::from_raw_os_error(end));
            }
            for (family, id) in found {
                let cookie = diag::cookie(&id);
                if left.get(&cookie).is_none_or(|it| it.protocol != protocol) {
                    continue;
                }
                let destroy = diag::destroy(family, protocol.number(), &id);
                match ask(&socket, &destroy)?.1 {
                    0 => metrics.sockets_ended(protocol, 1),
                    // It has ended by itself.
                    libc::ENOENT => {}
                    error => return Err(io::Error::from_raw_os_error(error)),
                }
                left.remove(&cookie);
            }
        }
    }
    Ok(())
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
