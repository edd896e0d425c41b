//! `envoy.config.route.v3.RouteConfiguration`: the rules that choose the cluster of a call.
//!
//! The authority of a channel chooses a virtual host ([`RouteConfig::virtual_host`]), and a [`RouteTable`]
//! of its routes then chooses one for each call. Both choices are made here and nowhere else.
//!
//! A route whose condition or action is not supported yet is left out, and named in
//! [`VirtualHost::skipped`]. A match without the condition would send calls to a cluster that the
//! condition keeps them from. An error would refuse all other routes of the resource too.

mod action;
mod call_head;
mod condition;
mod domain;
mod hash_policy;
mod header_matcher;
mod host_rewrite;
mod index;
mod parse;
mod path;
mod retry_policy;
mod table;
mod timeout;
mod unsupported;
mod visible_header;
mod weighted;

use std::{fmt, sync::Arc};

use envoy_types::pb::envoy::config::route::v3 as pb;

pub use self::{
    action::{ClusterChoice, Forward, RouteAction},
    call_head::{CallHead, Headers},
    condition::{Condition, Mismatch},
    domain::DomainPattern,
    hash_policy::{HashPolicies, HashPolicy},
    header_matcher::{HeaderCondition, HeaderMatcher, HeaderMismatch},
    path::{PathMatcher, PathMismatch},
    retry_policy::{RetryPolicy, StatusCodes},
    table::{NoRoute, RouteTable},
    timeout::MaxDuration,
    weighted::{InvalidWeights, WeightedCluster, WeightedClusters},
};
pub(super) use self::{parse::parse, timeout::parse_field as parse_max_duration};
use super::{decode::decode, filter::FilterOverrides};
use crate::{Decoded, Features, ResourceType, Unsupported};

/// A route configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteConfig {
    /// The resource's name. If it came inside a listener without a name, it has the listener's name.
    pub name: String,
    /// The virtual hosts, in the order of the resource.
    pub virtual_hosts: Vec<Arc<VirtualHost>>,
    /// Fields of the virtual hosts that are set and have no effect yet, and routes that are left out.
    pub unsupported: Box<[Unsupported]>,
}

impl RouteConfig {
    /// The virtual host that matches `authority` best (gRFC A27).
    ///
    /// An exact domain comes before a suffix (`*.x`), a suffix before a prefix (`x.*`), and a prefix before `*`. Of the
    /// same kind the longest wins, and of equal patterns the first.
    pub fn virtual_host(&self, authority: &str) -> Option<&Arc<VirtualHost>> {
        let mut best = None;
        for host in &self.virtual_hosts {
            let rank = host.domains.iter().filter_map(|d| d.rank(authority)).max();
            if rank > best.map(|(rank, _)| rank) {
                best = rank.map(|rank| (rank, host));
            }
        }
        best.map(|(_, host)| host)
    }
}

impl ResourceType for RouteConfig {
    type Parsed = Self;
    type Context = Features;

    const TYPE_URL: &'static str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
    const NOUN: &'static str = "route configuration";
    const ALL_IN_SOTW: bool = false;

    fn parse(bytes: &[u8], features: &Features) -> Decoded<Self> {
        decode(
            bytes,
            "name",
            |proto: &pb::RouteConfiguration| &proto.name,
            |proto, v| Some(parse(&proto, features, v)),
        )
    }

    fn unsupported(parsed: &Self) -> Vec<Unsupported> {
        parsed.unsupported.to_vec()
    }
}

/// The routes of some authorities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualHost {
    /// The name of the virtual host in messages; it need not be unique.
    pub name: String,
    /// The authorities whose calls take these routes; at least one pattern.
    pub domains: Vec<DomainPattern>,
    /// The routes, in the order in which they are tried.
    pub routes: Vec<Route>,
    /// The routes of the resource that are not in `routes`, each with the reason.
    pub skipped: Vec<SkippedRoute>,
    /// Filters with other settings for the calls of this virtual host (gRFC A39).
    pub filters: FilterOverrides,
}

impl VirtualHost {
    /// The place, in the list of the resource, of the route in this position of `routes`.
    ///
    /// ```
    /// # use crowfly_model::grpc::route::{SkippedRoute, VirtualHost};
    /// let skipped = SkippedRoute { index: 0, name: String::new(), reason: String::new() };
    /// # let (name, domains, routes, filters) = (String::new(), vec![], vec![], Default::default());
    /// let host = VirtualHost { name, domains, routes, skipped: vec![skipped], filters };
    /// assert_eq!(host.index_of(0), 1);
    /// ```
    pub fn index_of(&self, position: usize) -> usize {
        let skipped = self.skipped.iter().map(|route| route.index);
        skipped.fold(position, |index, skipped| {
            index + usize::from(skipped <= index)
        })
    }
}

/// One route: a condition on calls, and an action for the calls that meet it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The name of the route in messages, often empty.
    pub name: String,
    /// The condition on a call.
    pub condition: Condition,
    /// The action for a call that meets the condition.
    pub action: RouteAction,
    /// Filters with other settings for the calls of this route (gRFC A39).
    pub filters: FilterOverrides,
}

/// A route that was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedRoute {
    /// The route's place in the virtual host's list.
    pub index: usize,
    /// The route's name, often empty.
    pub name: String,
    /// The reason why the route was left out.
    pub reason: String,
}

impl fmt::Display for SkippedRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "routes[{}]", self.index)?;
        if !self.name.is_empty() {
            write!(f, " ({})", self.name)?;
        }
        write!(f, ": {}", self.reason)
    }
}
