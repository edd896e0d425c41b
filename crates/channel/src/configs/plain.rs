//! The configurations of a channel without a control plane: one cluster, and one route to it. These
//! configurations have the form of xDS configurations, so that the driver handles both alike.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crowfly_model::Errors;
use crowfly_model::grpc::cluster::DnsName;
use crowfly_model::grpc::listener::{ListenerKind, RouteSource};
use crowfly_model::grpc::plain::{self, PlainPolicy};
use crowfly_model::grpc::route::VirtualHost;
use crowfly_model::grpc::{Cluster, Endpoints, Listener, RouteConfig};
use crowfly_xds::{
    ClusterState, Members, Missing, Resolved, ResourceError, TroubleReason, XdsConfig,
};

use crate::dns::{Names, Resolve};
use crate::target::{Place, PlainTarget, UNIX_PLACEHOLDER};

/// The source of such configurations.
#[derive(Debug)]
pub(crate) struct PlainSource {
    parts: Arc<Parts>,
    dns_resolver: Arc<dyn Resolve>,
    dns_refresh: Option<Duration>,
}

/// The parts of a configuration that never change.
#[derive(Debug)]
struct Parts {
    name: Arc<str>,
    listener: Arc<Listener>,
    cluster: Arc<Cluster>,
    /// The name to look up, if the addresses are not known.
    dns: Option<DnsName>,
    addresses: Vec<SocketAddr>,
}

impl Parts {
    /// The routes in the listener, and their only virtual host.
    fn routes(&self) -> Option<(&Arc<RouteConfig>, &Arc<VirtualHost>)> {
        let ListenerKind::Api(api) = &self.listener.kind else {
            return None;
        };
        let RouteSource::Inline(routes) = &api.routes else {
            return None;
        };
        Some((routes, routes.virtual_hosts.first()?))
    }
}

impl PlainSource {
    /// The source for a target. Names are looked up as those of xDS clusters are.
    pub(crate) fn new(
        target: &PlainTarget,
        policy: PlainPolicy,
        dns_resolver: Arc<dyn Resolve>,
        dns_refresh: Option<Duration>,
    ) -> Result<Self, Errors> {
        let (dns, addresses) = match &target.place {
            Place::Addresses(addresses) => (None, addresses.clone()),
            Place::Dns(name) => (Some(name.clone()), Vec::new()),
            Place::Unix(_) => (None, vec![UNIX_PLACEHOLDER]),
        };
        let parts = Parts {
            name: target.name.as_str().into(),
            listener: Arc::new(plain::listener(&target.name)?),
            cluster: Arc::new(plain::cluster(&target.name, dns.as_ref(), policy)?),
            dns,
            addresses,
        };
        Ok(Self {
            parts: Arc::new(parts),
            dns_resolver,
            dns_refresh,
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.parts.name
    }

    pub(crate) fn watch(&self) -> PlainConfigs {
        let parts = Arc::clone(&self.parts);
        let mut names = Names::new(Arc::clone(&self.dns_resolver), self.dns_refresh);
        let endpoints = match &parts.dns {
            Some(name) => {
                names.watch(name);
                None
            }
            None => Some(Arc::new(plain::endpoints(&parts.name, &parts.addresses))),
        };
        PlainConfigs {
            parts,
            names,
            endpoints,
            trouble: None,
            is_stale: true,
        }
    }
}

/// The configurations, one after the other.
#[derive(Debug)]
pub(crate) struct PlainConfigs {
    parts: Arc<Parts>,
    names: Names,
    endpoints: Option<Arc<Endpoints>>,
    /// The error of the last lookup. The error leaves the last good answer in use.
    trouble: Option<ResourceError>,
    /// True if something changed since the last configuration.
    is_stale: bool,
}

impl PlainConfigs {
    pub(super) async fn next(&mut self) -> Resolved {
        while !self.is_stale {
            if self.parts.dns.is_none() {
                return pending().await;
            }
            let (name, outcome) = self.names.next().await;
            self.looked_up(&name, outcome);
        }
        self.is_stale = false;
        self.resolved()
    }

    pub(super) fn reresolve(&mut self) {
        self.names.request();
    }

    fn looked_up(&mut self, name: &DnsName, outcome: Result<Vec<SocketAddr>, Arc<str>>) {
        let before = (self.endpoints.clone(), self.trouble.take());
        match outcome {
            Ok(addresses) => {
                let found = plain::endpoints(&self.parts.name, &addresses);
                if self.endpoints.as_deref() != Some(&found) {
                    self.endpoints = Some(Arc::new(found));
                }
            }
            Err(why) => {
                self.trouble = Some(ResourceError {
                    noun: "DNS name",
                    name: name.to_string().into(),
                    reason: TroubleReason::Dns(why),
                    node: "".into(),
                });
            }
        }
        self.is_stale = before.0 != self.endpoints || before.1 != self.trouble;
    }

    fn resolved(&self) -> Resolved {
        let parts = &self.parts;
        let is_known = self.endpoints.is_some() || self.trouble.is_some();
        let Some((routes, host)) = parts.routes().filter(|_| is_known) else {
            return self.waiting();
        };
        let state = ClusterState {
            cluster: Arc::clone(&parts.cluster),
            members: Members::Endpoints(self.endpoints.clone()),
            notes: self.trouble.iter().cloned().collect(),
        };
        Resolved::Ready(Arc::new(XdsConfig {
            listener: Arc::clone(&parts.listener),
            routes: Arc::clone(routes),
            virtual_host: Arc::clone(host),
            clusters: BTreeMap::from([(Arc::clone(&parts.name), Ok(Arc::new(state)))]),
            notes: Vec::new(),
        }))
    }

    fn waiting(&self) -> Resolved {
        let name = self.parts.dns.iter();
        let missing = name.map(|name| format!("the addresses of {name}"));
        Resolved::Waiting {
            missing: Missing(BTreeSet::from_iter(missing)),
            in_use: None,
        }
    }
}
