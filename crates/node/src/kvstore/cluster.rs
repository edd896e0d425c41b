//! One cluster of the mesh: the stage that its reading is in, and its services.
//!
//! Each cluster has a stage of its own, because one may be listed while the configuration of another is missing.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use crowfly_source::{Event, Table};

use super::keys::{self, shortened, shown};
use super::value::{ClusterConfig, ClusterService};

/// The number of services that are taken of one cluster.
const MAX_SERVICES: usize = 200_000;

/// A value, or the mistake in it.
///
/// The last good value stays beside the mistake, because a bad one is no reason to take away what works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known<T> {
    pub(super) good: Option<Arc<T>>,
    pub(super) refused: Option<Arc<str>>,
}

impl<T> Known<T> {
    pub(super) fn new(read: Result<T, String>, before: Option<&Self>) -> Self {
        match read {
            Ok(good) => Self {
                good: Some(Arc::new(good)),
                refused: None,
            },
            Err(reason) => Self {
                good: before.and_then(|before| before.good.clone()),
                refused: Some(reason.into()),
            },
        }
    }
}

/// A cluster whose services are read.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) name: Arc<str>,
    pub(super) stage: Stage,
    /// The services by `NAMESPACE/NAME`.
    pub(super) services: Table<Bytes, Known<ClusterService>>,
    /// True while the source waits for the cluster before it counts as listed.
    pub(super) is_awaited: bool,
    /// The beginning of that wait.
    pub(super) since: Instant,
    /// The number of keys whose value is refused now.
    pub(super) refused: usize,
    /// The number of keys that were not taken, because there were too many.
    pub(super) overflow: u64,
}

/// The stage of reading a cluster: first its configuration, then its canary, then its services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its configuration is not known.
    Unknown,
    /// The key that says that all services are written is waited for.
    Canary(ClusterConfig),
    /// Its services are followed.
    Services(ClusterConfig),
}

/// A change of the services of a cluster.
#[derive(Debug, Default)]
pub(super) struct Changed {
    /// The keys with another good value.
    pub(super) keys: Vec<Bytes>,
    /// A line about a mistake that was not there before.
    pub(super) refused: Option<String>,
    /// True if this change is the first that goes beyond the number of services that are taken.
    pub(super) is_overflowing: bool,
    /// True if a port was left out because of its protocol.
    pub(super) has_sctp: bool,
}

impl Cluster {
    pub(super) fn new(name: Arc<str>, now: Instant) -> Self {
        Self {
            name,
            stage: Stage::Unknown,
            services: Table::default(),
            is_awaited: true,
            since: now,
            refused: 0,
            overflow: 0,
        }
    }

    /// The prefix that is followed for it.
    pub(super) fn prefix(&self) -> Option<Bytes> {
        match &self.stage {
            Stage::Unknown => None,
            Stage::Canary(_) => Some(keys::synced(&self.name).into()),
            Stage::Services(config) => Some(keys::services(&self.name, config.is_cached)),
        }
    }

    pub(super) fn config(&self) -> Option<&ClusterConfig> {
        match &self.stage {
            Stage::Unknown => None,
            Stage::Canary(config) | Stage::Services(config) => Some(config),
        }
    }

    /// True if its services are complete.
    pub(super) fn is_complete(&self) -> bool {
        matches!(self.stage, Stage::Services(_)) && self.services.has_synced()
    }

    /// Takes all services away, and returns their keys.
    pub(super) fn drain(&mut self) -> Vec<Bytes> {
        let services = std::mem::take(&mut self.services);
        self.refused = 0;
        self.overflow = 0;
        services.iter().map(|(key, _)| key.clone()).collect()
    }

    /// Takes an event of the prefix of its services.
    pub(super) fn take(&mut self, prefix: &Bytes, event: Event<Bytes, Bytes>) -> Changed {
        let mut changed = Changed::default();
        // A copy, because a part of the key would keep the whole message that it came in.
        let rest = |key: Bytes| Bytes::copy_from_slice(&key[prefix.len().min(key.len())..]);
        let event = match event {
            Event::Upsert(key, value) => {
                let key = rest(key);
                match self.read(prefix, &key, &value, &mut changed) {
                    Some(known) => Event::Upsert(key, known),
                    None => return changed,
                }
            }
            Event::Delete(key) => Event::Delete(rest(key)),
            Event::Init => Event::Init,
            Event::InitDone => Event::InitDone,
            Event::Failed(reason) => Event::Failed(reason),
        };
        for replaced in self.services.handle(event) {
            let after = self.services.get(&replaced.key);
            let before = replaced.before.as_ref();
            self.refused += count_refused(after);
            self.refused -= count_refused(before);
            let good = |known: Option<&Known<ClusterService>>| known.and_then(|it| it.good.clone());
            if good(after) != good(before) {
                changed.keys.push(replaced.key);
            }
        }
        changed
    }

    fn read(
        &mut self,
        prefix: &[u8],
        key: &Bytes,
        value: &[u8],
        changed: &mut Changed,
    ) -> Option<Known<ClusterService>> {
        let id = self.config()?.id;
        let before = self.services.get(key);
        if before.is_none() && self.services.len() >= MAX_SERVICES {
            changed.is_overflowing = self.overflow == 0;
            self.overflow += 1;
            return None;
        }
        let read = ClusterService::read(&self.name, id, key, value);
        changed.has_sctp = read.as_ref().is_ok_and(|service| service.has_sctp);
        let known = Known::new(read, before);
        let said = before.and_then(|before| before.refused.as_ref());
        if let Some(reason) = known
            .refused
            .as_ref()
            .filter(|reason| Some(*reason) != said)
        {
            let key = shortened(&format!("{}{}", shown(prefix), shown(key)));
            let kept = match known.good {
                Some(_) => "; the last good value stays",
                None => "",
            };
            changed.refused = Some(format!("{key}: refused: {reason}{kept}"));
        }
        Some(known)
    }
}

fn count_refused<T>(known: Option<&Known<T>>) -> usize {
    usize::from(known.is_some_and(|known| known.refused.is_some()))
}
