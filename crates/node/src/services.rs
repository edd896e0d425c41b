//! The services of all sources as one table of frontends.
//!
//! A ClusterIP belongs to the first source that has it, on every port. Otherwise a service could be half of one source
//! and half of another. Others that claim it are shadowed: they take over when the owner goes. A service may prefer
//! another source than its own: it yields while that source has a service with the ClusterIP. Readers of this table do
//! not see sources.
//!
//! A global service also has the backends of services of the same name that other sources share. They are
//! found by name at each change, so a change costs what it touches.

mod nameless;
mod owner;
mod size;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use crowfly_source::{Claimant, Event, Merged, Status};

use crate::model::{Place, Protocol, RemoteBackends, Service, ServiceName};
use crate::select::{Frontend, Pool, Route, Selection, select};
use nameless::Nameless;
pub use owner::{Owner, Shadow, Shadowed};
use size::Limit;

/// The slots of maps of the usual size.
const DEFAULT_SLOTS: u32 = 262_144;

type Claims = fn(&Arc<Service>) -> Vec<IpAddr>;

/// One thing that a source says about services.
pub type ServiceEvent = Event<ServiceName, Arc<Service>>;

/// A frontend that is to be routed otherwise; `None` if it is to be routed no more.
pub type Change = (Frontend, Option<Arc<Route>>);

/// The services of all sources, and the routes that follow from them.
#[derive(Debug)]
pub struct Services {
    sources: Vec<Arc<str>>,
    merged: Merged<ServiceName, Arc<Service>, IpAddr, Claims>,
    place: Place,
    routes: BTreeMap<Frontend, Arc<Route>>,
    /// Services that prefer a source which does not exist, with its name.
    unknown_preferences: BTreeMap<(usize, ServiceName), Arc<str>>,
    nameless: Nameless,
    limit: Limit,
    /// Services that are too large to be routed, with the reason.
    refused: BTreeMap<(usize, ServiceName), Arc<str>>,
    warnings: Vec<String>,
    /// ClusterIPs whose services were told otherwise since somebody asked.
    touched: BTreeSet<IpAddr>,
}

impl Services {
    /// No services yet, of these sources. The first source wins.
    pub fn new(sources: Vec<Arc<str>>, place: Place) -> Self {
        let claims: Claims = |service| service.cluster_ips().to_vec();
        Self {
            merged: Merged::new(sources.len(), claims),
            sources,
            place,
            routes: BTreeMap::new(),
            unknown_preferences: BTreeMap::new(),
            nameless: Nameless::default(),
            limit: Limit::of(DEFAULT_SLOTS),
            refused: BTreeMap::new(),
            warnings: Vec::new(),
            touched: BTreeSet::new(),
        }
    }

    /// Sets the room of the maps for slots. One service may have a quarter of it.
    pub fn set_room(&mut self, slots: u32) {
        self.limit = Limit::of(slots);
    }

    /// Takes events of a source, and returns the frontends that they change.
    pub fn handle(&mut self, source: usize, events: Vec<ServiceEvent>) -> Vec<Change> {
        let mut addresses = BTreeSet::new();
        for event in events {
            let effect = self.merged.apply(source, event);
            addresses.extend(effect.winners);
            let shadowed = effect.shadowed.into_iter();
            addresses.extend(shadowed.filter(|address| self.yielded_to(address) == Some(source)));
            for name in effect.keys {
                addresses.extend(self.dependents(source, &name));
                if self.merged.get(source, &name).is_none() {
                    self.refused.remove(&(source, name.clone()));
                }
                let service = self.merged.get(source, &name).map(Arc::as_ref);
                self.nameless.note((source, &name), service, &self.place);
                self.check_preference(source, name);
            }
        }
        self.warnings.extend(self.nameless.warning());
        self.follow(addresses)
    }

    /// The source that the first claimant of an address prefers, if there is such a source.
    fn yielded_to(&self, address: &IpAddr) -> Option<usize> {
        self.rank_of(
            self.merged
                .winner(address)?
                .value
                .preferred_source
                .as_ref()?,
        )
    }

    fn rank_of(&self, source: &Arc<str>) -> Option<usize> {
        self.sources.iter().position(|name| name == source)
    }

    /// The ClusterIPs of global services that may have the backends of a service in this source.
    fn dependents(&self, source: usize, name: &ServiceName) -> BTreeSet<IpAddr> {
        let others = (0..self.sources.len()).filter(|rank| *rank != source);
        let services = others.filter_map(|rank| self.merged.get(rank, name));
        let global = services.filter(|service| service.remote != RemoteBackends::Ignored);
        global
            .flat_map(|service| service.cluster_ips())
            .copied()
            .collect()
    }

    /// Warns once of a preference that cannot be followed.
    fn check_preference(&mut self, source: usize, name: ServiceName) {
        let service = self.merged.get(source, &name);
        let preferred = service.and_then(|service| service.preferred_source.as_ref());
        let unknown = preferred.filter(|preferred| self.rank_of(preferred).is_none());
        let Some(unknown) = unknown.cloned() else {
            self.unknown_preferences.remove(&(source, name));
            return;
        };
        let warning = format!(
            "{name} ({}) prefers the source {unknown:?}, which is none of {}; that is ignored",
            self.sources[source],
            self.sources.join(", ")
        );
        let told = self
            .unknown_preferences
            .insert((source, name), Arc::clone(&unknown));
        if told != Some(unknown) {
            self.warnings.push(warning);
        }
    }

    /// The warnings since the last call.
    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// Takes note that the node is elsewhere, and returns the frontends that this changes.
    pub fn move_to(&mut self, place: Place) -> Vec<Change> {
        self.place = place;
        let all = self.merged.claims().copied().collect();
        self.follow(all)
    }

    fn follow(&mut self, addresses: BTreeSet<IpAddr>) -> Vec<Change> {
        let mut changes = Vec::new();
        self.touched.extend(&addresses);
        let mut is_judged = HashMap::new();
        for address in addresses {
            if self.refuses(address, &mut is_judged) {
                // As after a change that fails in the maps, its frontends are as they were.
                continue;
            }
            let mut routes = self.routes_of(address);
            let known: Vec<Frontend> = self.frontends_of(address).collect();
            for frontend in known {
                if !routes.contains_key(&frontend) {
                    self.routes.remove(&frontend);
                    changes.push((frontend, None));
                }
            }
            routes.retain(|frontend, route| {
                self.routes.get(frontend).map(Arc::as_ref) != Some(&**route)
            });
            for (frontend, route) in routes {
                self.routes.insert(frontend, Arc::clone(&route));
                changes.push((frontend, Some(route)));
            }
        }
        changes
    }

    /// True if the owner of an address is too large to be routed. Each service is judged once for all of its addresses.
    fn refuses(
        &mut self,
        address: IpAddr,
        is_judged: &mut HashMap<(usize, ServiceName), bool>,
    ) -> bool {
        let Some(owner) = self.claimant(&address) else {
            return false;
        };
        let key = (owner.source, owner.key.clone());
        if let Some(is_refused) = is_judged.get(&key) {
            return *is_refused;
        }
        let reason = self.limit.refuses(&self.pool(owner.source, owner.value));
        is_judged.insert(key.clone(), reason.is_some());
        let Some(reason) = reason else {
            self.refused.remove(&key);
            return false;
        };
        let (source, name) = (&self.sources[key.0], &key.1);
        let warning = format!(
            "{name} ({source}): {reason}; it is not routed anew, and its former routes stay"
        );
        if self.refused.insert(key, reason).is_none() {
            self.warnings.push(warning);
        }
        true
    }

    /// The services that are too large to be routed, with their sources and the reasons.
    pub fn refused(&self) -> impl Iterator<Item = (&ServiceName, &Arc<str>, &Arc<str>)> {
        let refused = self.refused.iter();
        refused
            .filter_map(|((source, name), reason)| Some((name, self.sources.get(*source)?, reason)))
    }

    /// True if the service that has this address is too large to be routed.
    pub fn is_refused(&self, address: &IpAddr) -> bool {
        !self.refused.is_empty()
            && self.claimant(address).is_some_and(|owner| {
                self.refused
                    .contains_key(&(owner.source, owner.key.clone()))
            })
    }

    fn routes_of(&self, address: IpAddr) -> BTreeMap<Frontend, Arc<Route>> {
        let Some(owner) = self.claimant(&address) else {
            return BTreeMap::new();
        };
        let pool = self.pool(owner.source, owner.value);
        let ports = owner.value.ports.iter().map(|port| {
            let frontend = Frontend {
                address,
                port: port.port,
                protocol: port.protocol,
            };
            let selection = select(&pool, port, address, &self.place);
            (frontend, Arc::new(selection.route))
        });
        ports.collect()
    }

    /// The service that has an address: the first that claims it, or one of the source that it prefers.
    fn claimant(&self, address: &IpAddr) -> Option<Claimant<'_, ServiceName, Arc<Service>>> {
        let preferred = self.yielded_to(address).and_then(|rank| {
            let mut all = self.merged.claimants(address);
            all.find(|claimant| claimant.source == rank)
        });
        preferred.or_else(|| self.merged.winner(address))
    }

    /// A service with the backends that other sources share under its name.
    fn pool<'a>(&'a self, source: usize, service: &'a Service) -> Pool<'a> {
        let sources = match service.remote {
            RemoteBackends::Ignored => 0..0,
            _ => 0..self.sources.len(),
        };
        let others = sources.filter(|rank| *rank != source);
        let shared = others.filter_map(|rank| self.merged.get(rank, &service.name));
        let shared = shared.filter(|other| other.shared);
        Pool {
            service,
            remote: shared.flat_map(|other| other.backends.iter()).collect(),
        }
    }

    fn frontends_of(&self, address: IpAddr) -> impl Iterator<Item = Frontend> {
        let from = Frontend {
            address,
            port: 0,
            protocol: Protocol::Tcp,
        };
        let to = Frontend {
            address,
            port: u16::MAX,
            protocol: Protocol::Udp,
        };
        let routes = self.routes.range(from..=to);
        routes.map(|(frontend, _)| *frontend)
    }

    /// The frontends whose services were told otherwise since the last call, although their routes may be
    /// the same.
    pub fn take_touched(&mut self) -> Vec<Frontend> {
        let touched = std::mem::take(&mut self.touched).into_iter();
        let frontends = touched.flat_map(|address| self.frontends_of(address));
        frontends.collect()
    }

    /// Every frontend with its route.
    pub fn routes(&self) -> &BTreeMap<Frontend, Arc<Route>> {
        &self.routes
    }

    /// The choice for a frontend, with the backends that were left out.
    pub fn selection(&self, frontend: &Frontend) -> Option<Selection<'_>> {
        let owner = self.owner(frontend)?;
        let pool = self.pool(owner.rank, owner.service);
        Some(select(&pool, owner.port, frontend.address, &self.place))
    }

    /// The name of the source of a rank.
    pub fn source(&self, rank: usize) -> Option<&Arc<str>> {
        self.sources.get(rank)
    }

    /// Every source with its state and the number of its services.
    pub fn sources(&self) -> impl Iterator<Item = (&Arc<str>, &Status, usize)> {
        let sources = self.sources.iter().enumerate();
        sources.map(|(rank, name)| {
            let services = self.merged.values(rank).count();
            (name, self.merged.status(rank), services)
        })
    }

    /// True once every source has listed its services. Until then, a frontend that is missing here may
    /// be one that was not told yet.
    pub fn has_synced(&self) -> bool {
        self.merged.has_synced()
    }

    /// The sources that have not listed their services yet, and that may change the route of a frontend when they do.
    /// They are those before its owner's, and the one that its owner prefers. A frontend of a global service, or
    /// without an owner, waits for all of them.
    pub fn waits_for(&self, frontend: &Frontend) -> Vec<&Arc<str>> {
        if self.has_synced() {
            return Vec::new();
        }
        let address = &frontend.address;
        let owner = self.claimant(address);
        let preferred = self.yielded_to(address);
        let matters = |rank: usize| match &owner {
            Some(owner) if owner.value.remote == RemoteBackends::Ignored => {
                rank < owner.source || Some(rank) == preferred
            }
            _ => true,
        };
        let sources = self.sources.iter().enumerate();
        let sources = sources.filter(|(rank, _)| !self.merged.has_listed(*rank) && matters(*rank));
        sources.map(|(_, name)| name).collect()
    }

    /// The sources that have not listed their services, with their state.
    pub fn silent(&self) -> impl Iterator<Item = (&Arc<str>, &Status)> {
        let sources = self.sources.iter().enumerate();
        let silent = sources.filter(|(rank, _)| !self.merged.has_listed(*rank));
        silent.map(|(rank, name)| (name, self.merged.status(rank)))
    }

    /// The names and states of the sources that have not listed their services.
    pub fn awaited(&self) -> Vec<String> {
        let silent = self.silent();
        silent
            .map(|(name, status)| format!("{name} ({status})"))
            .collect()
    }

    /// The number of sources that have listed their services.
    pub fn heard(&self) -> usize {
        let ranks = 0..self.sources.len();
        ranks.filter(|rank| self.merged.has_listed(*rank)).count()
    }

    /// The node.
    pub fn place(&self) -> &Place {
        &self.place
    }
}
