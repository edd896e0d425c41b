//! The services of all sources as one table of frontends.
//!
//! A ClusterIP belongs to the first source that has it, on every port, because half of a service from
//! one source and half from another would be neither. Others that claim it are shadowed: they take over
//! when the owner goes. Which sources there are is known to nobody behind this table.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crowfly_source::{Event, Merged, Status};

use crate::model::{Place, Protocol, Service, ServiceName, ServicePort};
use crate::select::{Frontend, Route, Selection, select};

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
}

/// The service that a frontend belongs to.
#[derive(Clone, Debug)]
pub struct Owner<'a> {
    /// The service.
    pub service: &'a Arc<Service>,
    /// The port of it that the frontend is.
    pub port: &'a ServicePort,
    /// The name of its source.
    pub source: &'a Arc<str>,
    /// Services that claim the ClusterIP in vain, with their sources.
    pub shadowed: Vec<(&'a ServiceName, &'a Arc<str>)>,
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
        }
    }

    /// Takes events of a source, and returns the frontends that they change.
    pub fn handle(&mut self, source: usize, events: Vec<ServiceEvent>) -> Vec<Change> {
        let mut addresses = BTreeSet::new();
        for event in events {
            addresses.extend(self.merged.handle(source, event));
        }
        self.follow(addresses)
    }

    /// Takes note that the node is elsewhere, and returns the frontends that this changes.
    pub fn move_to(&mut self, place: Place) -> Vec<Change> {
        self.place = place;
        let all = self.merged.claims().copied().collect();
        self.follow(all)
    }

    fn follow(&mut self, addresses: BTreeSet<IpAddr>) -> Vec<Change> {
        let mut changes = Vec::new();
        for address in addresses {
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

    fn routes_of(&self, address: IpAddr) -> BTreeMap<Frontend, Arc<Route>> {
        let Some(winner) = self.merged.winner(&address) else {
            return BTreeMap::new();
        };
        let ports = winner.value.ports.iter().map(|port| {
            let frontend = Frontend {
                address,
                port: port.port,
                protocol: port.protocol,
            };
            let selection = select(winner.value, port, address, &self.place);
            (frontend, Arc::new(selection.route))
        });
        ports.collect()
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

    /// Every frontend with its route.
    pub fn routes(&self) -> &BTreeMap<Frontend, Arc<Route>> {
        &self.routes
    }

    /// The service behind a frontend.
    pub fn owner(&self, frontend: &Frontend) -> Option<Owner<'_>> {
        let mut claimants = self.merged.claimants(&frontend.address);
        let winner = claimants.next()?;
        let mut ports = winner.value.ports.iter();
        let port =
            ports.find(|port| (port.port, port.protocol) == (frontend.port, frontend.protocol))?;
        let shadowed = claimants.filter_map(|it| Some((it.key, self.sources.get(it.source)?)));
        Some(Owner {
            service: winner.value,
            port,
            source: self.sources.get(winner.source)?,
            shadowed: shadowed.collect(),
        })
    }

    /// The choice for a frontend, with the backends that were left out.
    pub fn selection(&self, frontend: &Frontend) -> Option<Selection> {
        let owner = self.owner(frontend)?;
        let address = frontend.address;
        Some(select(owner.service, owner.port, address, &self.place))
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

    /// The node.
    pub fn place(&self) -> &Place {
        &self.place
    }
}
