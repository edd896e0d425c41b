//! The short form of a service: its endpoints, how load is spread over them, and its routes.
//!
//! It exists because raw xDS needs four resources for what most services say in a few lines.

pub(crate) mod cluster_ip;
pub(crate) mod drops;
pub(crate) mod fault;
pub(crate) mod hash;
pub(crate) mod limits;
pub(crate) mod load_reports;
pub(crate) mod matching;
pub(crate) mod outlier;
pub(crate) mod patch;
pub(crate) mod pattern;
pub(crate) mod policy;
pub(crate) mod retry;
pub(crate) mod route;
pub(crate) mod session;
mod setting;
pub(crate) mod text;
pub(crate) mod tls;

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;

use crowfly_model::{Errors, Validator};
use serde::de::Deserializer;
use serde::{Deserialize, Serialize};

use crate::fallback::{Fallback, ListForm};
use cluster_ip::{ClientIpAffinity, InternalTrafficPolicy, ServicePort, TrafficDistribution};
use drops::Drops;
use fault::Fault;
use hash::HashPart;
use limits::Limits;
use load_reports::{LoadReports, Metric};
use outlier::OutlierDetection;
use policy::Policy;
use retry::Retry;
use route::Route;
use session::{Cookie, SessionAffinity};
use setting::Setting;
use text::{Time, parsed, unlike};
use tls::Tls;

/// The largest priority, because Envoy accepts no more.
const MAX_PRIORITY: u32 = 128;

/// A gRPC service, reached as `xds:///name`.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, expecting = "a service")]
pub(crate) struct Service {
    pub(crate) name: String,
    #[serde(default)]
    localities: Vec<Locality>,
    /// Endpoints without a locality; they form one unnamed locality.
    #[serde(default)]
    endpoints: Vec<Endpoint>,
    /// The services and hosts that serve when these endpoints cannot, the preferred one first.
    #[serde(default)]
    pub(crate) fallback: Vec<Fallback>,
    #[serde(default)]
    pub(crate) fallback_as: ListForm,
    #[serde(default)]
    pub(crate) policy: Policy,
    #[serde(default)]
    pub(crate) limits: Option<Limits>,
    /// The share of calls that clients fail at once, by category.
    #[serde(default)]
    pub(crate) drops: Option<Drops>,
    #[serde(default)]
    pub(crate) outlier_detection: Option<OutlierDetection>,
    #[serde(default)]
    pub(crate) session_affinity: Option<SessionAffinity>,
    #[serde(default)]
    pub(crate) load_reports: Option<LoadReports>,
    #[serde(default)]
    pub(crate) tls: Option<Tls>,
    /// The routes, the first one for a call decides. All other calls go to the service itself.
    #[serde(default)]
    pub(crate) routes: Vec<Route>,
    /// The settings of every route that has none of its own.
    #[serde(default)]
    timeout: Setting<Time>,
    #[serde(default)]
    retry: Setting<Retry>,
    #[serde(default)]
    fault: Setting<Fault>,
    #[serde(default)]
    hash: Setting<Vec<HashPart>>,
    /// The addresses that node agents route, and their ports.
    #[serde(default)]
    cluster_ip: Option<IpAddr>,
    #[serde(default)]
    cluster_ips: Vec<IpAddr>,
    #[serde(default)]
    pub(crate) ports: Vec<ServicePort>,
    #[serde(default)]
    pub(crate) client_ip_affinity: Option<ClientIpAffinity>,
    #[serde(default)]
    pub(crate) internal_traffic_policy: Option<InternalTrafficPolicy>,
    #[serde(default)]
    pub(crate) traffic_distribution: Option<TrafficDistribution>,
}

/// All that is done to the calls of a route.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Treatment<'a> {
    pub(crate) timeout: Option<Time>,
    pub(crate) retry: Option<&'a Retry>,
    pub(crate) fault: Option<&'a Fault>,
    pub(crate) hash: &'a [HashPart],
    /// The cookie of a session.
    pub(crate) cookie: Option<&'a Cookie>,
}

/// Endpoints of one locality.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, expecting = "a locality")]
pub(crate) struct Locality {
    #[serde(default)]
    pub(crate) region: String,
    #[serde(default)]
    pub(crate) zone: String,
    #[serde(default)]
    pub(crate) sub_zone: String,
    /// The share of this locality in the load of its priority; 0 leaves the locality out.
    #[serde(default = "one")]
    pub(crate) weight: u32,
    /// The priority; the lowest is used first. Only the order counts, so numbers may be skipped.
    #[serde(default)]
    pub(crate) priority: u32,
    #[serde(default)]
    pub(crate) endpoints: Vec<Endpoint>,
}

/// One backend.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(
    deny_unknown_fields,
    expecting = "an endpoint, such as {address: \"10.0.0.1:80\"}"
)]
pub(crate) struct Endpoint {
    #[serde(deserialize_with = "address")]
    pub(crate) address: SocketAddr,
    #[serde(default = "non_zero_one")]
    pub(crate) weight: NonZeroU32,
    #[serde(default)]
    pub(crate) health: Health,
    /// The node that it is on, for node agents.
    #[serde(default)]
    pub(crate) node: Option<String>,
}

/// The health of a backend, as far as it is known. Clients use healthy and unknown backends.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Health {
    Draining,
    Healthy,
    Unhealthy,
    #[default]
    Unknown,
}

impl Service {
    /// All localities. The `endpoints` of the service itself are one without a name.
    pub(crate) fn localities(&self) -> Vec<Locality> {
        let mut localities = self.localities.clone();
        if !self.endpoints.is_empty() {
            localities.push(Locality {
                region: String::new(),
                zone: String::new(),
                sub_zone: String::new(),
                weight: 1,
                priority: 0,
                endpoints: self.endpoints.clone(),
            });
        }
        localities
    }

    /// True if the cluster of the service is an aggregate. A list that is a resource counts even if
    /// it is empty, because it may change without the cluster.
    pub(crate) fn is_aggregate(&self) -> bool {
        !self.fallback.is_empty() || self.fallback_as == ListForm::Resource
    }

    /// The treatment of calls that no route of the service is for.
    pub(crate) fn treatment(&self) -> Treatment<'_> {
        Treatment {
            timeout: self.timeout.value().copied(),
            retry: self.retry.value(),
            fault: self.fault.value(),
            hash: self.hash.value().map_or(&[], Vec::as_slice),
            cookie: self.cookie(),
        }
    }

    /// The treatment of the calls of a route.
    pub(crate) fn treatment_of<'a>(&'a self, route: &'a Route) -> Treatment<'a> {
        Treatment {
            timeout: route.timeout.or(&self.timeout).copied(),
            retry: route.retry.or(&self.retry),
            fault: route.fault.or(&self.fault),
            hash: route.hash.or(&self.hash).map_or(&[], Vec::as_slice),
            cookie: match &route.session_affinity {
                Setting::Absent => self.cookie(),
                Setting::None => None,
                Setting::Some(affinity) => Some(&affinity.cookie),
            },
        }
    }

    fn cookie(&self) -> Option<&Cookie> {
        let affinity = self.session_affinity.as_ref();
        affinity.and_then(|affinity| affinity.cookie.as_ref())
    }

    /// The measurements that load reports pass on; `None` if the service asks for no reports.
    pub(crate) fn reported(&self) -> Option<&[Metric]> {
        match &self.load_reports {
            Some(LoadReports::On { metrics }) => Some(metrics),
            Some(LoadReports::Off) | None => None,
        }
    }

    /// The treatments of all calls, in no order.
    pub(crate) fn treatments(&self) -> impl Iterator<Item = Treatment<'_>> {
        let routes = self.routes.iter().map(|route| self.treatment_of(route));
        let last = self.needs_last_route().then(|| self.treatment());
        routes.chain(last)
    }

    /// True if some calls that the routes are not for may remain.
    pub(crate) fn needs_last_route(&self) -> bool {
        !self
            .routes
            .iter()
            .any(|route| route.matches.is_everything())
    }

    /// Checks the rules that the types cannot express.
    pub(crate) fn validate(&self) -> Result<(), Errors> {
        let mut v = Validator::default();
        if self.name.is_empty() {
            v.error_at("name", "expected a name, got an empty string");
        }
        if !self.endpoints.is_empty() && !self.localities.is_empty() {
            v.error_at(
                "endpoints",
                "expected either `endpoints` or `localities`, got both",
            );
        }
        let mut addresses = HashSet::new();
        v.field("endpoints", |v| {
            unique_addresses(v, &self.endpoints, &mut addresses);
        });
        v.field("localities", |v| {
            self.validate_localities(v, &mut addresses);
        });
        v.field("fallback", |v| self.validate_fallback(v));
        if self.outlier_detection.is_some() && matches!(self.policy, Policy::PickFirst { .. }) {
            // gRFC A61
            let message = "expected another policy than pick_first, which ignores ejections";
            v.error_at("outlier_detection", message);
        }
        v.field("routes", |v| {
            self.validate_routes(v);
            self.validate_cookies(v);
        });
        self.validate_cluster_ips(&mut v);
        v.finish(())
    }

    fn validate_localities<'a>(
        &'a self,
        v: &mut Validator,
        addresses: &mut HashSet<&'a SocketAddr>,
    ) {
        let mut ids = HashSet::new();
        for (index, locality) in self.localities.iter().enumerate() {
            v.index(index, |v| {
                if !ids.insert(locality.id()) {
                    let Locality {
                        region,
                        zone,
                        sub_zone,
                        priority,
                        ..
                    } = locality;
                    v.error(format!(
                        "locality {region}/{zone}/{sub_zone} of priority {priority} is given twice"
                    ));
                }
                if locality.priority > MAX_PRIORITY {
                    let message =
                        format!("expected at most {MAX_PRIORITY}, got {}", locality.priority);
                    v.error_at("priority", message);
                }
                v.field("endpoints", |v| {
                    unique_addresses(v, &locality.endpoints, addresses);
                });
            });
        }
    }

    fn validate_fallback(&self, v: &mut Validator) {
        let mut seen = HashSet::new();
        for (index, fallback) in self.fallback.iter().enumerate() {
            if !seen.insert(fallback) {
                let message = format!("{fallback} is given twice in this list");
                v.index(index, |v| v.error(message));
            }
        }
    }

    /// Checks that calls can come to every route.
    fn validate_routes(&self, v: &mut Validator) {
        let mut routes = self.routes.iter();
        let Some(last) = routes.position(|route| route.matches.is_everything()) else {
            return;
        };
        if last + 1 < self.routes.len() {
            let message = format!("never used, because routes[{last}] is for all calls");
            v.index(last + 1, |v| v.error(message));
        }
    }

    /// Checks that the calls of a route can have the cookie of the route (gRFC A55).
    fn validate_cookies(&self, v: &mut Validator) {
        for (index, route) in self.routes.iter().enumerate() {
            let Setting::Some(affinity) = &route.session_affinity else {
                continue;
            };
            if !affinity.cookie.is_for(&route.matches.path) {
                let message = "never used, because no call of this route has this path";
                v.index(index, |v| {
                    v.error_at("session_affinity.cookie.path", message);
                });
            }
        }
    }
}

impl Locality {
    fn id(&self) -> (u32, &str, &str, &str) {
        (self.priority, &self.region, &self.zone, &self.sub_zone)
    }
}

/// Checks that no address occurs twice, because gRPC refuses that.
fn unique_addresses<'a>(
    v: &mut Validator,
    endpoints: &'a [Endpoint],
    seen: &mut HashSet<&'a SocketAddr>,
) {
    for (index, endpoint) in endpoints.iter().enumerate() {
        if !seen.insert(&endpoint.address) {
            let message = format!("{} is given twice in this service", endpoint.address);
            v.index(index, |v| v.error_at("address", message));
        }
    }
}

fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    parsed(deserializer, "\"ip:port\"", |text| {
        text.parse().map_or_else(|_| unlike(), Ok)
    })
}

fn one() -> u32 {
    1
}

fn non_zero_one() -> NonZeroU32 {
    NonZeroU32::MIN
}
