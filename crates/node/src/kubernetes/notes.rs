//! Fields of objects that the agent does not follow. They are logged, because their authors would expect them to work.

use std::collections::BTreeSet;
use std::fmt;

use tracing::{info, warn};

use crate::model::ServiceName;

/// A field of an object that has no effect here.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Note {
    /// It has node ports.
    NodePorts,
    /// It is reached through a load balancer.
    LoadBalancer,
    /// It has external addresses.
    ExternalIps,
    /// This port is for SCTP.
    Sctp(u16),
    /// It wants remote backends used in a way that this agent does not know.
    Affinity(String),
}

impl Note {
    /// True if it tells a limit of the agent. Then the first service that meets it is enough to name,
    /// because thousands of others may meet it too.
    fn is_general(&self) -> bool {
        match self {
            Self::NodePorts | Self::LoadBalancer | Self::ExternalIps => true,
            Self::Sctp(_) | Self::Affinity(_) => false,
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodePorts => f.write_str("node ports are not served, its ClusterIP is"),
            Self::LoadBalancer => {
                f.write_str("addresses of load balancers are not served, its ClusterIP is")
            }
            Self::ExternalIps => f.write_str("external IPs are not served, its ClusterIP is"),
            Self::Sctp(port) => write!(f, "port {port} is for SCTP, which is not routed"),
            Self::Affinity(value) => write!(
                f,
                "service.cilium.io/affinity {value:?} is not known; \
                 expected none, local or remote, and none is used"
            ),
        }
    }
}

/// Says each note once.
#[derive(Debug, Default)]
pub(super) struct Notes {
    said: BTreeSet<Note>,
}

impl Notes {
    /// Says the notes of a service that its last version did not have.
    pub(super) fn say(&mut self, service: &ServiceName, notes: &[Note], before: &[Note]) {
        for note in notes.iter().filter(|note| !before.contains(note)) {
            if !note.is_general() {
                warn!("Service {service}: {note}");
            } else if self.said.insert(note.clone()) {
                info!("Service {service}: {note}. Others like it are not named");
            }
        }
    }
}
