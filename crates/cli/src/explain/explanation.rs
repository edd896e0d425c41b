//! The explanation as data, because text and JSON are two ways to print it.
//!
//! Each type is a report on one xDS resource or on a part of one, as this client sees it.

use serde::Serialize;

use super::{LoadReportsReport, OutlierReport, RouteReport, SecurityReport};

/// The call that is asked about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExplainedCall {
    /// The channel's target, `xds:///NAME`.
    pub target: String,
    /// `/service/method`; without it, every route is explained.
    pub path: Option<String>,
    /// The metadata of the call.
    pub headers: Vec<Header>,
}

/// One entry of metadata.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Header {
    /// The name, in lower case.
    pub name: String,
    /// The value, unchanged.
    pub value: String,
}

/// The way of a call from the listener to the endpoints, and the place where it ends early.
///
/// The JSON form is one object, with the names of the fields as keys. Every key is always there. A value that is
/// unknown or does not apply is `null` or `[]`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The channel's target.
    pub target: String,
    /// The id of this client's node.
    pub node: String,
    /// The authority, which chooses the virtual host.
    pub authority: String,
    /// The path that was asked about.
    pub path: Option<String>,
    /// The headers that were asked about.
    pub headers: Vec<Header>,
    /// True if every cluster that the call may go to has an endpoint; without a path, if the calls of every
    /// route have one.
    pub reachable: bool,
    /// The first reason why the call goes nowhere; `null` if it is reachable.
    pub stop: Option<Stop>,
    /// The resources and DNS names without an answer when time was up.
    pub waiting_for: Vec<String>,
    /// The listener resource.
    pub listener: ResourceReport,
    /// The route configuration; `INLINE` if it is part of the listener, `null` if the listener
    /// names none.
    pub route_configuration: Option<ResourceReport>,
    /// The virtual host that the authority chose.
    pub virtual_host: Option<VirtualHostReport>,
    /// The routes of that virtual host, in the order in which they are tried.
    pub routes: Vec<RouteReport>,
    /// The clusters of the routes that the call may take; without a path, those of all routes.
    pub clusters: Vec<Destination>,
}

/// The place where a call ends early, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stop {
    /// The part of the explanation that has the reason.
    pub part: StopPart,
    /// The resource or part of one that ends the call, such as `endpoints payments`.
    pub at: String,
    /// The reason.
    pub why: String,
    /// The advice on the next step, if it is obvious.
    pub next: Option<String>,
}

/// The part of an explanation where a call ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum StopPart {
    /// A cluster, which cannot be used although its resource can be read.
    Cluster {
        /// The name of the cluster.
        name: String,
    },
    /// The listener, which is not for clients.
    Listener,
    /// A resource or a DNS name that is missing or cannot be used. The report of the resource or the name has the
    /// error.
    Resource,
    /// A route that does not forward calls.
    Route {
        /// The index of the route.
        index: usize,
    },
    /// The route configuration, which has no virtual host for the authority.
    RouteConfiguration,
    /// The virtual host, which has no route for the call.
    VirtualHost,
    /// No part: answers were missing when time was up, or the whole configuration failed.
    Whole,
}

/// The state of a resource or of a DNS name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ResourceReport {
    /// The name of the resource, or the DNS name.
    pub name: String,
    /// The state. A resource has the states of CSDS: `ACKED`, `DOES_NOT_EXIST`, `NACKED`,
    /// `RECEIVED_ERROR`, `REQUESTED` and `TIMEOUT`, and also `INLINE` and `NOT_REQUESTED`. A DNS
    /// name has `REQUESTED`, `RESOLVED` and `FAILED`.
    pub state: &'static str,
    /// The version in use.
    pub version: Option<String>,
    /// The version that was refused, if it is the newest.
    pub refused_version: Option<String>,
    /// The reason why the resource cannot be used.
    pub error: Option<String>,
    /// A problem that does not keep the resource from being used.
    pub note: Option<String>,
    /// Fields of the cluster that are set and have no effect yet, such as `outlier_detection: ...`.
    pub unsupported: Vec<String>,
}

/// The virtual host that an authority chose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VirtualHostReport {
    /// The name of the virtual host.
    pub name: String,
    /// The domains of the virtual host.
    pub domains: Vec<String>,
    /// Fields of the virtual host that are set and have no effect yet, apart from its routes.
    pub unsupported: Vec<String>,
}

/// A cluster that a route leads to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Destination {
    /// The endpoints that get the calls; `null` if there are none.
    pub uses: Option<Uses>,
    /// The reason why there are none.
    pub stop: Option<Stop>,
    /// The cluster and everything below it.
    #[serde(flatten)]
    pub cluster: ClusterReport,
}

/// The endpoints that get calls as long as they can be reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Uses {
    /// The leaf cluster of the endpoints.
    pub cluster: String,
    /// The priority of the endpoints in the leaf cluster.
    pub priority: usize,
    /// The number of endpoints.
    pub endpoints: usize,
    /// The number of calls, of a million, that are dropped before an endpoint is chosen.
    pub dropped_per_million: u32,
}

/// A cluster and everything below it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClusterReport {
    /// The cluster resource.
    #[serde(flatten)]
    pub resource: ResourceReport,
    /// `aggregate`, `eds` or `logical_dns`; `null` while it is not known.
    pub kind: Option<&'static str>,
    /// The position of the cluster below an aggregate.
    pub place: Place,
    /// The policies of a leaf cluster that spread calls inside a priority, the outermost first.
    pub lb_policy: Vec<String>,
    /// True if the last policy is a custom one (gRFC A52). The policy is taken as known and its configuration as good,
    /// because only the program knows its policies.
    pub is_custom: bool,
    /// The resource that holds the list of an aggregate (gRFC A99).
    pub list: Option<ResourceReport>,
    /// The clusters of an aggregate, best first.
    pub children: Vec<Self>,
    /// The endpoints resource or the DNS name of a leaf cluster.
    pub source: Option<ResourceReport>,
    /// The endpoints, highest priority first. A DNS name is one endpoint with many addresses.
    pub priorities: Vec<PriorityReport>,
    /// Shares of calls that the control plane wants dropped.
    pub drops: Vec<DropReport>,
    /// The limit on open calls of a leaf cluster (gRFC A32).
    pub max_concurrent_requests: Option<u32>,
    /// TLS of connections to the endpoints; `null` if the cluster asks for none.
    pub security: Option<SecurityReport>,
    /// Outlier detection; `null` if no endpoint is ejected.
    pub outlier_detection: Option<OutlierReport>,
    /// The time in seconds for which a connection is kept for a session that makes no call (gRFC A75).
    pub session_idle_seconds: Option<f64>,
    /// The load reports of the cluster; `null` if it asks for none.
    pub load_reports: Option<LoadReportsReport>,
}

/// The position of a cluster below an aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// The cluster is used at this place.
    Here,
    /// The cluster was seen before, and is used there.
    Repeated,
    /// The cluster is below more aggregates than allowed.
    TooDeep,
}

/// The localities of one priority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PriorityReport {
    /// The localities of the priority.
    pub localities: Vec<LocalityReport>,
}

/// The endpoints of one locality.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LocalityReport {
    /// `region/zone/sub_zone`, or `(no locality)` if it has no name.
    pub name: String,
    /// The share of calls of the locality.
    pub weight: u32,
    /// The endpoints of the locality, without those that are UNHEALTHY.
    pub endpoints: Vec<EndpointReport>,
}

/// One backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EndpointReport {
    /// The addresses of the backend, the main one first.
    pub addresses: Vec<String>,
    /// The share of calls of the backend.
    pub weight: u32,
    /// `unknown`, `healthy` or `draining`.
    pub health: &'static str,
}

/// A share of calls that the control plane wants dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DropReport {
    /// The category that load reports name.
    pub category: String,
    /// The number of calls that are dropped, of a million.
    pub per_million: u32,
}
