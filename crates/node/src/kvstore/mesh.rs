//! The rules of reading a ClusterMesh, without I/O and without a clock.
//!
//! A cluster is read in stages, because its services are complete only when it says so. Meanwhile the etcd may fail and
//! come back. [`Mesh`] has the state of all clusters, and tells the agent one table of services.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use crowfly_source::etcd::News;
use crowfly_source::{Event, Table};

use super::cluster::{Changed, Cluster, Known, Stage};
use super::keys::{self, shown};
use super::merge::merge;
use super::step::Step;
use super::value::ClusterConfig;
use crate::model::{Service, ServiceName};
use crate::services::ServiceEvent;

/// The time that the source waits for a cluster before it counts as listed. Until then, services that the agent routed
/// before a restart stay.
const PATIENCE: Duration = Duration::from_secs(60);

/// The number of configurations that are taken. A mesh has at most 511 clusters.
const MAX_CONFIGS: usize = 1024;

/// The clusters that are read, and the use of them.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The names of the clusters that are read; all if there is no list.
    pub clusters: Option<Vec<String>>,
    /// The name of the agent's own cluster, which is not read.
    pub own_cluster: Option<String>,
    /// True if the virtual addresses of other clusters are ClusterIPs here.
    pub frontends: bool,
}

/// The state of a mesh.
#[derive(Debug)]
pub struct Mesh {
    layout: Layout,
    configs: Table<Bytes, Known<ClusterConfig>>,
    clusters: BTreeMap<Arc<str>, Cluster>,
    /// The services as they were told, by `NAMESPACE/NAME`.
    told: BTreeMap<Bytes, Arc<Service>>,
    /// The prefixes that cannot be read, and why.
    failures: BTreeMap<Bytes, Arc<str>>,
    status: Status,
    said: Said,
    refusals: u64,
}

/// The state of the source, as it was told.
#[derive(Debug, PartialEq, Eq)]
enum Status {
    Silent,
    Listing,
    Synced,
    Failed(Arc<str>),
}

/// The warnings that were logged already, because each is logged once.
#[derive(Debug, Default)]
struct Said {
    endpoint_slices: bool,
    sctp: bool,
    /// Services that several clusters have and none shares.
    unshared: BTreeSet<Bytes>,
}

/// The kind of keys under a prefix that is followed.
enum Role {
    Configs,
    Canary(Arc<str>),
    Services(Arc<str>),
}

impl Mesh {
    /// A mesh of which nothing is known. The clusters in the list are waited for from `now` on.
    pub fn new(layout: Layout, now: Instant) -> (Self, Step) {
        let names = layout.clusters.iter().flatten();
        let names = names.filter(|name| Some(*name) != layout.own_cluster.as_ref());
        let clusters = names.map(|name| {
            let name: Arc<str> = name.as_str().into();
            (Arc::clone(&name), Cluster::new(name, now))
        });
        let mesh = Self {
            clusters: clusters.collect(),
            layout,
            configs: Table::default(),
            told: BTreeMap::new(),
            failures: BTreeMap::new(),
            status: Status::Silent,
            said: Said::default(),
            refusals: 0,
        };
        let step = Step {
            follow: vec![Bytes::from_static(keys::CONFIG.as_bytes())],
            ..Step::default()
        };
        (mesh, step)
    }

    /// Takes news of prefixes, in order.
    pub fn handle(&mut self, news: Vec<(Bytes, News)>, now: Instant) -> Step {
        let mut step = Step::default();
        for (prefix, news) in news {
            let Some(role) = self.role(&prefix) else {
                continue;
            };
            self.note_state(&prefix, &news, now);
            let News::Event(event) = news else { continue };
            match role {
                Role::Configs => self.take_config(&prefix, event, now, &mut step),
                Role::Canary(name) => self.take_canary(&name, &event, &mut step),
                Role::Services(name) => self.take_service(&name, &prefix, event, &mut step),
            }
        }
        self.finish(now, step)
    }

    /// Stops waiting for clusters whose time is over at `now`.
    pub fn tick(&mut self, now: Instant) -> Step {
        self.finish(now, Step::default())
    }

    /// The time at which [`Self::tick`] has something to do.
    pub fn deadline(&self) -> Option<Instant> {
        let is_waiting = self.failures.is_empty() && self.configs.has_synced();
        let clusters = self.clusters.values().filter(|_| is_waiting);
        let late = clusters.filter(|cluster| cluster.is_awaited && !cluster.is_complete());
        late.map(|cluster| cluster.since + PATIENCE).min()
    }

    /// The number of clusters whose services are complete.
    pub fn clusters(&self) -> usize {
        let clusters = self.clusters.values();
        clusters.filter(|cluster| cluster.is_complete()).count()
    }

    /// The number of services.
    pub fn services(&self) -> usize {
        self.told.len()
    }

    /// The number of keys whose value is refused now.
    pub fn refused(&self) -> usize {
        let configs = self.configs.iter();
        let configs = configs.filter(|(_, known)| known.refused.is_some()).count();
        let services = self.clusters.values().map(|cluster| cluster.refused);
        configs + services.sum::<usize>()
    }

    /// The number of times that a value was refused.
    pub fn refusals(&self) -> u64 {
        let overflow = self.clusters.values().map(|cluster| cluster.overflow);
        self.refusals + overflow.sum::<u64>()
    }

    fn role(&self, prefix: &Bytes) -> Option<Role> {
        if prefix == keys::CONFIG {
            return Some(Role::Configs);
        }
        // The prefixes of a cluster have its name in one place.
        let name = prefix.strip_suffix(b"/")?;
        let name = name.rsplit(|byte| *byte == b'/').next()?;
        let cluster = self.clusters.get(std::str::from_utf8(name).ok()?)?;
        let role = match &cluster.stage {
            Stage::Unknown => return None,
            Stage::Canary(_) => Role::Canary(Arc::clone(&cluster.name)),
            Stage::Services(_) => Role::Services(Arc::clone(&cluster.name)),
        };
        // News of a prefix that was left may still come.
        (cluster.prefix().as_ref() == Some(prefix)).then_some(role)
    }

    /// Remembers which prefixes cannot be read.
    fn note_state(&mut self, prefix: &Bytes, news: &News, now: Instant) {
        match news {
            News::Event(Event::Failed(reason)) => {
                self.failures.insert(prefix.clone(), Arc::clone(reason));
            }
            News::Resumed | News::Event(Event::InitDone) => self.heal(prefix, now),
            News::Event(Event::Init | Event::Upsert(..) | Event::Delete(_)) => {}
        }
    }

    /// A prefix can be read. The wait for each cluster begins anew, because nothing could be read meanwhile.
    fn heal(&mut self, prefix: &Bytes, now: Instant) {
        if self.failures.remove(prefix).is_some() && self.failures.is_empty() {
            for cluster in self.clusters.values_mut() {
                cluster.since = now;
            }
        }
    }

    fn take_config(
        &mut self,
        prefix: &Bytes,
        event: Event<Bytes, Bytes>,
        now: Instant,
        step: &mut Step,
    ) {
        let rest = |key: Bytes| key.slice(prefix.len().min(key.len())..);
        let event = match event {
            Event::Upsert(key, value) => {
                let name = rest(key.clone());
                let before = self.configs.get(&name);
                if before.is_none() && self.configs.len() >= MAX_CONFIGS {
                    self.refusals += 1;
                    return step.warn(format!(
                        "{}: refused: there are more than {MAX_CONFIGS} configurations",
                        shown(&key)
                    ));
                }
                let text = String::from_utf8_lossy(&name);
                let known = Known::new(ClusterConfig::read(&text, &value), before);
                if let Some(reason) = &known.refused {
                    self.refusals += 1;
                    if before.and_then(|before| before.refused.as_ref()) != Some(reason) {
                        step.warn(format!("{}: refused: {reason}", shown(&key)));
                    }
                }
                Event::Upsert(name, known)
            }
            Event::Delete(key) => Event::Delete(rest(key)),
            Event::Init => Event::Init,
            Event::InitDone => Event::InitDone,
            Event::Failed(reason) => Event::Failed(reason),
        };
        for replaced in self.configs.handle(event) {
            let name: Arc<str> = String::from_utf8_lossy(&replaced.key).into();
            let config = self.configs.get(&replaced.key);
            let config = config.and_then(|known| known.good.as_deref()).cloned();
            self.configure(&name, config, now, step);
        }
    }

    /// A cluster has this configuration, or none.
    ///
    /// The loss of a configuration takes no services away, because its key has a lease that may end while the
    /// cluster works. The keys of services have leases of their own.
    fn configure(
        &mut self,
        name: &Arc<str>,
        config: Option<ClusterConfig>,
        now: Instant,
        step: &mut Step,
    ) {
        if !self.clusters.contains_key(name) {
            let is_listed = self.layout.clusters.is_some();
            let is_own = self.layout.own_cluster.as_deref() == Some(&**name);
            if is_listed || is_own || config.is_none() {
                return;
            }
            let cluster = Cluster::new(Arc::clone(name), now);
            self.clusters.insert(Arc::clone(name), cluster);
        }
        let Some(cluster) = self.clusters.get_mut(name) else {
            return;
        };
        if cluster.config() == config.as_ref() {
            return;
        }
        let Some(config) = config else {
            cluster.is_awaited = false;
            if !cluster.services.is_empty() {
                step.warn(format!(
                    "cluster {name}: its configuration is gone; its services stay as long as their own keys"
                ));
            }
            return self.leave_if_gone(name, step);
        };
        if let Some(left) = cluster.prefix() {
            self.failures.remove(&left);
            step.unfollow.push(left);
        }
        if let Some(before) = cluster.config().map(|config| config.id)
            && config.id != before
        {
            let id = config.id;
            step.info(format!(
                "cluster {name}: drained: its id is {id}, no longer {before}"
            ));
            step.touched.extend(cluster.drain());
        }
        if config.has_endpoint_slices && !std::mem::replace(&mut self.said.endpoint_slices, true) {
            step.warn(format!(
                "cluster {name}: its EndpointSlices (cilium/state/endpointslices/v1) are not read; its \
                 services are"
            ));
        }
        cluster.stage = if config.has_canaries {
            Stage::Canary(config)
        } else {
            Stage::Services(config)
        };
        step.follow.extend(cluster.prefix());
    }

    /// Leaves a cluster that has neither a configuration nor services. It may come back.
    fn leave_if_gone(&mut self, name: &Arc<str>, step: &mut Step) {
        let config = self.configs.get(name.as_bytes());
        let is_configured = config.is_some_and(|known| known.good.is_some());
        let Some(cluster) = self.clusters.get_mut(name) else {
            return;
        };
        if is_configured || !cluster.services.is_empty() {
            return;
        }
        if let Some(left) = cluster.prefix() {
            self.failures.remove(&left);
            step.unfollow.push(left);
            step.info(format!(
                "cluster {name}: left, because it has neither a configuration nor services"
            ));
        }
        if self.layout.clusters.is_some() {
            cluster.stage = Stage::Unknown;
        } else {
            self.clusters.remove(name);
        }
    }

    fn take_canary(&mut self, name: &Arc<str>, event: &Event<Bytes, Bytes>, step: &mut Step) {
        let Some(cluster) = self.clusters.get_mut(name) else {
            return;
        };
        let (Event::Upsert(key, _), Stage::Canary(config)) = (event, &cluster.stage) else {
            return;
        };
        if key != &keys::canary(name, config.is_cached) {
            return;
        }
        let config = config.clone();
        if let Some(left) = cluster.prefix() {
            self.failures.remove(&left);
            step.unfollow.push(left);
        }
        cluster.stage = Stage::Services(config);
        step.follow.extend(cluster.prefix());
    }

    fn take_service(
        &mut self,
        name: &Arc<str>,
        prefix: &Bytes,
        event: Event<Bytes, Bytes>,
        step: &mut Step,
    ) {
        let Some(cluster) = self.clusters.get_mut(name) else {
            return;
        };
        let Changed {
            keys,
            refused,
            is_overflowing,
            has_sctp,
        } = cluster.take(prefix, event);
        step.touched.extend(keys);
        if let Some(line) = refused {
            self.refusals += 1;
            step.warn(line);
        }
        if is_overflowing {
            step.warn(format!(
                "cluster {name}: it has more services than are read; the others are left out"
            ));
        }
        if has_sctp && !std::mem::replace(&mut self.said.sctp, true) {
            step.warn(format!(
                "cluster {name}: ports of SCTP are not routed; those of TCP and UDP are"
            ));
        }
        self.leave_if_gone(name, step);
    }

    /// Tells the agent what has changed.
    fn finish(&mut self, now: Instant, mut step: Step) -> Step {
        if self.status == Status::Silent {
            self.status = Status::Listing;
            step.events.push(Event::Init);
        }
        for key in std::mem::take(&mut step.touched) {
            let event = self.settle(key, &mut step);
            step.events.extend(event);
        }
        if let Some(reason) = self.failures.values().next() {
            let reason = Arc::clone(reason);
            let failed = Status::Failed(Arc::clone(&reason));
            if self.status != failed {
                step.warn(format!("{reason}; the last state stays"));
                step.events.push(Event::Failed(reason));
                self.status = failed;
            }
        } else if self.is_complete(now, &mut step) && self.status != Status::Synced {
            if matches!(self.status, Status::Failed(_)) {
                self.list(&mut step);
                step.info("it can be read again".to_owned());
            }
            step.events.push(Event::InitDone);
            self.status = Status::Synced;
        }
        step.shorten_notes();
        step
    }

    /// True if all clusters are complete, but for those that had their time.
    fn is_complete(&mut self, now: Instant, step: &mut Step) -> bool {
        if !self.configs.has_synced() {
            return false;
        }
        let mut is_complete = true;
        for cluster in self.clusters.values_mut() {
            if cluster.is_complete() {
                cluster.is_awaited = false;
            } else if cluster.is_awaited && cluster.since + PATIENCE <= now {
                cluster.is_awaited = false;
                let missing = match &cluster.stage {
                    Stage::Unknown => format!("{}{}", keys::CONFIG, cluster.name),
                    Stage::Canary(config) => keys::canary(&cluster.name, config.is_cached),
                    Stage::Services(_) => "its listing".to_owned(),
                };
                step.warn(format!(
                    "cluster {}: {missing} is still missing after {PATIENCE:?}; its services follow \
                     when it is there",
                    cluster.name
                ));
            }
            is_complete &= !cluster.is_awaited;
        }
        is_complete
    }

    /// Begins a listing of all services, because only a listing ends a failure for the agent.
    fn list(&self, step: &mut Step) {
        step.events.push(Event::Init);
        let all = self.told.values();
        let all = all.map(|service| Event::Upsert(service.name.clone(), Arc::clone(service)));
        step.events.extend(all);
    }

    /// The event that a key leads to, if the service of that key is not what it was.
    fn settle(&mut self, key: Bytes, step: &mut Step) -> Option<ServiceEvent> {
        let clusters = self.clusters.values().filter_map(|cluster| {
            let known = cluster.services.get(&key)?;
            Some((&*cluster.name, known.good.as_deref()?))
        });
        let (clusters, services): (Vec<_>, Vec<_>) = clusters.unzip();
        if services.is_empty() {
            self.said.unshared.remove(&key);
            let before = self.told.remove(&key)?;
            return Some(Event::Delete(before.name.clone()));
        }
        let text = std::str::from_utf8(&key).ok()?;
        let (namespace, name) = text.split_once('/')?;
        let name = ServiceName::new(namespace, name);
        let service = merge(name.clone(), &services, self.layout.frontends);
        if let ([first, _, ..], false, true) =
            (&clusters[..], service.shared, self.layout.frontends)
            && self.said.unshared.insert(key.clone())
        {
            step.warn(format!(
                "{name}: the clusters {} have it and none shares it; that of {first} alone is routed",
                clusters.join(", ")
            ));
        }
        let service = Arc::new(service);
        if self.told.get(&key) == Some(&service) {
            return None;
        }
        self.told.insert(key, Arc::clone(&service));
        Some(Event::Upsert(name, service))
    }
}
