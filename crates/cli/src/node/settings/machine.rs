//! The section `machine`: the cgroup, the pins and the maps in the kernel, and the socket of the
//! agent. `crowfly node check` and `crowfly node clean` have the same defaults, so that they find
//! what the agent made.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use serde::Deserialize;

use super::value::{Limit, Room};

/// The directory for pins, unless one is given.
pub(in super::super) const PINS: &str = "/sys/fs/bpf/crowfly";

/// The agent's socket, unless one is given.
pub(in super::super) const SOCKET: &str = "/run/crowfly/node.sock";

const MAX_FRONTENDS: Room = Room(65_536);
const MAX_BACKENDS: Room = Room(262_144);
const COMPARE_INTERVAL: Limit = Limit(Some(Duration::from_secs(30 * 60)));

/// The kernel's side of the agent, and its socket.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MachineSettings {
    /// The directory of a cgroup v2: its programs are routed, and those below it [default: the root]
    #[arg(long, value_name = "DIR", env = "CROWFLY_NODE_CGROUP")]
    pub cgroup: Option<PathBuf>,

    /// The directory for pinned maps and programs, in a bpffs [default: /sys/fs/bpf/crowfly]
    #[arg(long, value_name = "DIR", env = "CROWFLY_NODE_PINS")]
    pub pins: Option<PathBuf>,

    /// The socket on which the agent answers `services` and `trace` [default: /run/crowfly/node.sock]
    #[arg(long, value_name = "PATH", env = "CROWFLY_NODE_SOCKET")]
    pub socket: Option<PathBuf>,

    /// The room in the maps for frontends; maps that exist keep theirs [default: 65536]
    #[arg(long, value_name = "N", env = "CROWFLY_NODE_MAX_FRONTENDS")]
    pub max_frontends: Option<Room>,

    /// The room in the maps for backends, summed over all frontends; maps that exist keep theirs
    /// [default: 262144]
    #[arg(long, value_name = "N", env = "CROWFLY_NODE_MAX_BACKENDS")]
    pub max_backends: Option<Room>,

    /// End TCP connections too when their backend is gone; those of UDP always are [default: false]
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        default_missing_value = "true",
        require_equals = true,
        env = "CROWFLY_NODE_END_TCP"
    )]
    pub end_tcp: Option<bool>,

    /// The time between two comparisons of the maps and programs with what they should be; 0 is never [default: 30m]
    #[arg(long, value_name = "DURATION", env = "CROWFLY_NODE_COMPARE_INTERVAL")]
    pub compare_interval: Option<Limit>,
}

impl MachineSettings {
    /// Fills each setting that is absent here with that of `other`.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            cgroup: self.cgroup.or(other.cgroup),
            pins: self.pins.or(other.pins),
            socket: self.socket.or(other.socket),
            max_frontends: self.max_frontends.or(other.max_frontends),
            max_backends: self.max_backends.or(other.max_backends),
            end_tcp: self.end_tcp.or(other.end_tcp),
            compare_interval: self.compare_interval.or(other.compare_interval),
        }
    }

    /// The time between two comparisons; `None` is never.
    pub(in super::super) fn compare_interval(&self) -> Option<Duration> {
        self.compare_interval.unwrap_or(COMPARE_INTERVAL).0
    }

    /// The directory for pins.
    pub(in super::super) fn pins(&self) -> PathBuf {
        self.pins.clone().unwrap_or_else(|| PINS.into())
    }

    /// The agent's socket.
    pub(in super::super) fn socket(&self) -> PathBuf {
        self.socket.clone().unwrap_or_else(|| SOCKET.into())
    }

    /// The room for frontends, and for backends.
    pub(in super::super) fn room(&self) -> (u32, u32) {
        let frontends = self.max_frontends.unwrap_or(MAX_FRONTENDS);
        (frontends.0, self.max_backends.unwrap_or(MAX_BACKENDS).0)
    }
}
