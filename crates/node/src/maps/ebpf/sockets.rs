//! The map of sockets that were routed and may be ended.

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};

use aya::maps::{HashMap, MapData};

use super::InstallError;
use super::access::entries;
use super::reports::open;
use crate::maps::{MapError, layout};
use crate::metrics::Metrics;
use crate::sockets::{Routed, Sockets, kernel};

/// The sockets of a cgroup.
pub struct EbpfSockets {
    routed: HashMap<MapData, u64, [u8; 28]>,
    cgroup: PathBuf,
    /// Sockets that were ended. The map has them until their programs close them.
    ended: HashSet<Routed>,
}

impl fmt::Debug for EbpfSockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EbpfSockets").finish_non_exhaustive()
    }
}

impl EbpfSockets {
    pub(super) fn open(directory: &Path, cgroup: &Path) -> Result<Self, InstallError> {
        Ok(Self {
            routed: open(directory, "routed")?,
            cgroup: cgroup.to_owned(),
            ended: HashSet::new(),
        })
    }
}

impl Sockets for EbpfSockets {
    fn routed(&self) -> Result<Vec<Routed>, MapError> {
        let entries = entries("routed", self.routed.iter())?.into_iter();
        Ok(entries
            .filter_map(|(cookie, value)| layout::read_routed(cookie, &value))
            .collect())
    }

    fn end(&mut self, sockets: Vec<Routed>, metrics: &Metrics) {
        let all: HashSet<Routed> = sockets.into_iter().collect();
        let new: Vec<Routed> = all.difference(&self.ended).copied().collect();
        self.ended = all;
        if !new.is_empty() {
            kernel::end(self.cgroup.clone(), new, metrics.clone());
        }
    }
}
