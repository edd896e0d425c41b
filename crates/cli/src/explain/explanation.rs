//! What there is to explain, as data: text and JSON are two ways to write it.

use serde::Serialize;

/// The call that is asked about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExplainedCall {
    /// The channel's target, `xds:///NAME`.
    pub target: String,
    /// `/service/method`; without it, every route is explained.
    pub path: Option<String>,
    /// Its metadata.
    pub headers: Vec<Header>,
}

/// One entry of metadata.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Header {
    /// In lower case.
    pub name: String,
    /// As it was given.
    pub value: String,
}

/// Where a call would go, and where it would not get any further.
///
/// As JSON it is one object with the names of the fields as keys. All keys are there at all times; what
/// there is nothing to say about is `null` or `[]`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The channel's target.
    pub target: String,
    /// The id of this client's node.
    pub node: String,
    /// What chooses the virtual host.
    pub authority: String,
    /// The path that was asked about.
    pub path: Option<String>,
    /// The headers that were asked about. No route is chosen by them: see [`RouteReport::note`].
    pub headers: Vec<Header>,
    /// Whether the call has somewhere to go; without a path, whether all routed calls have.
    pub reachable: bool,
    /// If not, the first thing that is in the way.
    pub stop: Option<Stop>,
    /// What had not been answered when time was up.
    pub waiting_for: Vec<String>,
    /// The listener.
    pub listener: ResourceReport,
    /// The routes; `INLINE` if they are part of the listener, `null` if the listener does not say.
    pub route_configuration: Option<ResourceReport>,
    /// The virtual host that the authority chose.
    pub virtual_host: Option<VirtualHostReport>,
    /// The routes of that virtual host, in the order in which they are tried.
    pub routes: Vec<RouteReport>,
    /// The cluster of the route that matches; without a path, those of all routes.
    pub clusters: Vec<Destination>,
}

/// Why a call gets no further.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stop {
    /// The thing that is in the way, such as `endpoints payments`.
    pub at: String,
    /// What is wrong with it.
    pub why: String,
    /// What to look at next, if that is obvious.
    pub next: Option<String>,
}

/// A resource or a DNS name, and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ResourceReport {
    /// Its name.
    pub name: String,
    /// Of a resource as in CSDS: `ACKED`, `DOES_NOT_EXIST`, `NACKED`, `RECEIVED_ERROR`,
    /// `REQUESTED`, `TIMEOUT`; also `INLINE` and `NOT_REQUESTED`. Of a DNS name: `REQUESTED`,
    /// `RESOLVED`, `FAILED`.
    pub state: &'static str,
    /// The version in use.
    pub version: Option<String>,
    /// The version that was refused, if that is the newest.
    pub refused_version: Option<String>,
    /// Why there is nothing to use.
    pub error: Option<String>,
    /// Trouble that leaves what is in use standing.
    pub note: Option<String>,
    /// Fields of the cluster that are set and have no effect yet, such as `outlier_detection: ...`.
    pub unsupported: Vec<String>,
}

/// A virtual host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VirtualHostReport {
    /// Its name.
    pub name: String,
    /// The authorities that it is for.
    pub domains: Vec<String>,
    /// Fields of the virtual host that are set and have no effect yet, apart from its routes.
    pub unsupported: Vec<String>,
}

/// One route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RouteReport {
    /// Its place in the resource's list.
    pub index: usize,
    /// Its name, as far as it is known.
    pub name: Option<String>,
    /// The calls it is for, such as `prefix /pkg.Service/`; `null` if it was left out.
    #[serde(rename = "match")]
    pub matcher: Option<String>,
    /// Where it leads; `null` if it was left out, or does not forward.
    pub cluster: Option<String>,
    /// What became of it for this path; `null` without a path.
    pub verdict: Option<Verdict>,
    /// Why, where it is not plain.
    pub why: Option<String>,
    /// What other clients may make of it.
    pub note: Option<String>,
    /// Fields of the route that are set and have no effect yet; `why` tells of a route that was left out.
    pub unsupported: Vec<String>,
}

/// What became of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// This client cannot honour it, and behaves as if it were not there.
    LeftOut,
    /// It is the first that matches.
    Matches,
    /// One before it matches.
    NotReached,
    /// It does not match.
    PassedOver,
}

/// A cluster that a route leads to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Destination {
    /// Where its calls go first; `null` if they cannot.
    pub uses: Option<Uses>,
    /// If they cannot, why.
    pub stop: Option<Stop>,
    /// The cluster and all below it.
    #[serde(flatten)]
    pub cluster: ClusterReport,
}

/// The endpoints that get calls for as long as they can be reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Uses {
    /// The leaf cluster that has them.
    pub cluster: String,
    /// Their priority in it.
    pub priority: usize,
    /// How many they are.
    pub endpoints: usize,
    /// The number of calls, of a million, that are dropped before an endpoint is chosen.
    pub dropped_per_million: u32,
}

/// A cluster and all below it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClusterReport {
    /// The resource.
    #[serde(flatten)]
    pub resource: ResourceReport,
    /// `aggregate`, `eds` or `logical_dns`; `null` while it is not known.
    pub kind: Option<&'static str>,
    /// Where it stands below an aggregate.
    pub place: Place,
    /// Of a leaf, how calls are spread inside a priority, the outermost policy first.
    pub lb_policy: Vec<String>,
    /// Whether the last of these is a policy of the program's own (gRFC A52). Which ones a program has
    /// is not known here, nor what it makes of their configuration: every one is taken for good.
    pub is_custom: bool,
    /// The resource that holds the list of an aggregate (gRFC A99).
    pub list: Option<ResourceReport>,
    /// The clusters of an aggregate, best first.
    pub children: Vec<Self>,
    /// Of a leaf, the endpoints resource or the DNS name.
    pub source: Option<ResourceReport>,
    /// The endpoints, highest priority first. A DNS name is one endpoint with many addresses.
    pub priorities: Vec<PriorityReport>,
    /// Shares of calls that the control plane wants dropped.
    pub drops: Vec<DropReport>,
    /// Of a leaf, how many calls may be open at a time (gRFC A32).
    pub max_concurrent_requests: Option<u32>,
}

/// Where a cluster stands below an aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// Where it is used.
    Here,
    /// It was seen before, and counts there.
    Repeated,
    /// Deeper than aggregates may be inside of each other.
    TooDeep,
}

/// The localities of one priority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PriorityReport {
    /// The localities.
    pub localities: Vec<LocalityReport>,
}

/// The endpoints of one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LocalityReport {
    /// `region/zone/sub_zone`, or `-` if it has no name.
    pub name: String,
    /// Its share of calls.
    pub weight: u32,
    /// The endpoints that are not called unhealthy.
    pub endpoints: Vec<EndpointReport>,
}

/// One backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EndpointReport {
    /// Its addresses, the main one first.
    pub addresses: Vec<String>,
    /// Its share of calls.
    pub weight: u32,
    /// `unknown`, `healthy` or `draining`.
    pub health: &'static str,
}

/// A share of calls that the control plane wants dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DropReport {
    /// Why.
    pub category: String,
    /// How many of a million calls.
    pub per_million: u32,
}
