//! The map of sockets that were routed and may be ended.

use std::fmt;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use aya::maps::{HashMap, MapData};
use tracing::warn;

use super::InstallError;
use super::access::entries;
use super::reports::open;
use crate::maps::{MapError, layout};
use crate::metrics::Metrics;
use crate::sockets::attempts::Attempts;
use crate::sockets::{Routed, Sockets, kernel};

/// The sockets of a cgroup.
pub struct EbpfSockets {
    routed: HashMap<MapData, u64, [u8; 28]>,
    cgroup: PathBuf,
    attempts: Attempts,
    /// The threads that end sockets.
    ending: Vec<JoinHandle<Vec<Routed>>>,
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
            attempts: Attempts::default(),
            ending: Vec::new(),
        })
    }

    fn note_failed(&mut self, sockets: Vec<Routed>) {
        let given_up = self.attempts.failed(sockets);
        if given_up > 0 {
            warn!(
                "{given_up} sockets to backends that are gone stay, because no attempt ended them"
            );
        }
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
        let now = self.attempts.begin(sockets);
        if now.is_empty() {
            return;
        }
        match kernel::end(self.cgroup.clone(), now.clone(), metrics.clone()) {
            Ok(thread) => self.ending.push(thread),
            Err(error) => {
                warn!("sockets to backends that are gone cannot be ended: {error}");
                self.note_failed(now);
            }
        }
    }

    fn is_ending(&self) -> bool {
        !self.ending.is_empty() || self.attempts.is_due()
    }

    fn must_try_again(&mut self) -> bool {
        for thread in self
            .ending
            .extract_if(.., |thread| thread.is_finished())
            .collect::<Vec<_>>()
        {
            // A thread that panicked has said so.
            self.note_failed(thread.join().unwrap_or_default());
        }
        self.attempts.is_due()
    }
}
