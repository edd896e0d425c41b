//! The reasons why a call ends early, made from the errors of resolution and routing.
//!
//! Each names the resource, the reason and the next step, because a status alone does not.

use crowfly_model::grpc::{Endpoints, RouteConfig};
use crowfly_xds::{
    ClusterError, ClusterState, MAX_DEPTH, Missing, ResolveError, ResourceError, XdsConfig,
};

use super::{
    MismatchReport, RouteReport, Stop, StopPart, Verdict, VirtualHostReport, advice,
    find::best_priority,
};

impl Stop {
    /// The call ends because there is no configuration.
    pub(super) fn no_config(error: &ResolveError, routes: Option<&RouteConfig>) -> Self {
        let hosts = routes.map_or(&[][..], |routes| &routes.virtual_hosts);
        let domains = hosts.iter().flat_map(|host| &host.domains);
        let domains: Vec<String> = domains.map(ToString::to_string).collect();
        let next = advice::for_base(error, &domains);
        match error {
            ResolveError::Resource(error) => Self::resource(error),
            ResolveError::NoVirtualHost { routes, authority } => Self {
                part: StopPart::RouteConfiguration,
                at: format!("route configuration {routes}"),
                why: format!("no virtual host is for authority {authority}"),
                next,
            },
            ResolveError::SocketListener(name) => Self {
                part: StopPart::Listener,
                at: format!("listener {name}"),
                why: "is a socket listener, expected an API listener".to_owned(),
                next,
            },
            other => Self {
                part: StopPart::Whole,
                at: "the configuration".to_owned(),
                why: other.to_string(),
                next,
            },
        }
    }

    /// The call ends because answers were missing when time was up.
    pub(super) fn waiting(missing: &Missing) -> Self {
        Self {
            part: StopPart::Whole,
            at: missing.to_string(),
            why: "still no answer when time was up; calls wait until there is one".to_owned(),
            next: Some("give it more time with --timeout, or look at the server's log".to_owned()),
        }
    }

    /// The call ends because no route matches its path.
    pub(super) fn no_route(host: &VirtualHostReport, path: &str, routes: &[RouteReport]) -> Self {
        let list = |which: &dyn Fn(&RouteReport) -> bool| {
            let routes = routes.iter().filter(|route| which(route));
            let names: Vec<String> = routes.map(|r| format!("routes[{}]", r.index)).collect();
            names.join(", ")
        };
        let is_by_case = |mismatch: &MismatchReport| mismatch.differs_in_case;
        let by_case = list(&|route| route.mismatch.as_ref().is_some_and(is_by_case));
        let left_out = list(&|route| route.verdict == Some(Verdict::LeftOut));
        let by_chance = list(&|route| route.verdict == Some(Verdict::ByChance));
        let next = if !by_chance.is_empty() {
            "add a route after them that takes all calls".to_owned()
        } else if !by_case.is_empty() {
            format!("does --path have the right case? It would match {by_case}")
        } else if !left_out.is_empty() {
            format!("it might be meant for {left_out}, which this client cannot honour")
        } else {
            "add a route for it, or correct --path and --header".to_owned()
        };
        let why = match &*by_chance {
            "" => format!("no route matches {path}"),
            some => format!("no route takes the calls of {path} that {some} leave"),
        };
        Self {
            part: StopPart::VirtualHost,
            at: format!("virtual host {}", host.name),
            why,
            next: Some(next),
        }
    }

    /// The call ends at a route that a proxy would answer itself.
    pub(super) fn not_forwarded(route: &RouteReport) -> Self {
        Self {
            part: StopPart::Route { index: route.index },
            at: format!("routes[{}]", route.index),
            why: "does not lead to a cluster".to_owned(),
            next: Some(
                "a gRPC client does not redirect or answer by itself: route to a cluster"
                    .to_owned(),
            ),
        }
    }

    /// Every call ends, because no route leads to a cluster.
    pub(super) fn no_cluster(host: &VirtualHostReport) -> Self {
        Self {
            part: StopPart::VirtualHost,
            at: format!("virtual host {}", host.name),
            why: "no route leads to a cluster".to_owned(),
            next: None,
        }
    }

    /// The call ends because the cluster cannot be used.
    pub(super) fn cluster(error: &ClusterError) -> Self {
        match error {
            ClusterError::List { error, .. } | ClusterError::Resource(error) => {
                Self::resource(error)
            }
            ClusterError::NoLeaf {
                cluster, missing, ..
            } => match &**missing {
                [] => Self {
                    part: StopPart::cluster(cluster),
                    at: format!("cluster {cluster}"),
                    why: "is an aggregate that only leads back to itself".to_owned(),
                    next: Some("give it a cluster that has endpoints".to_owned()),
                },
                [first, ..] => Self::resource(first),
            },
            ClusterError::TooDeep { cluster, at, .. } => Self {
                part: StopPart::cluster(at),
                at: format!("cluster {at}"),
                why: format!("is too deep below the aggregate {cluster}"),
                next: Some(format!(
                    "take out aggregates between them: {MAX_DEPTH} levels is the most"
                )),
            },
            other => Self {
                part: StopPart::Whole,
                at: "the cluster".to_owned(),
                why: other.to_string(),
                next: None,
            },
        }
    }

    /// The call ends because the leaf drops every call: a category takes all, or the limit is 0.
    pub(super) fn dropped(leaf: &str, category: Option<&str>) -> Self {
        let (why, next) = match category {
            Some(category) => (
                format!("every call is dropped (category {category})"),
                format!("take category {category} out of its drop_overloads"),
            ),
            None => (
                "every call is dropped (limit 0)".to_owned(),
                "raise max_requests in its circuit_breakers".to_owned(),
            ),
        };
        Self {
            part: StopPart::cluster(leaf),
            at: format!("cluster {leaf}"),
            why,
            next: Some(next),
        }
    }

    /// The call ends because no leaf of the cluster has an endpoint. `why` is the text of the
    /// failed call.
    pub(super) fn no_endpoint(state: &ClusterState, config: &XdsConfig, why: &str) -> Self {
        let leaf = state.leaves().first();
        let leaf = leaf.and_then(|name| config.clusters.get(name));
        match leaf {
            Some(Err(error)) => Self::cluster(error),
            Some(Ok(leaf)) => Self::bare(leaf, why),
            None => Self::bare(state, why),
        }
    }

    fn bare(leaf: &ClusterState, why: &str) -> Self {
        match (leaf.endpoints(), leaf.notes.last()) {
            (Some(endpoints), _) if best_priority(endpoints).is_none() => Self::unusable(endpoints),
            (None, Some(note)) => Self::resource(note),
            _ => Self {
                part: StopPart::cluster(&leaf.cluster.name),
                at: format!("cluster {}", leaf.cluster.name),
                why: why.to_owned(),
                next: None,
            },
        }
    }

    fn unusable(endpoints: &Endpoints) -> Self {
        let (why, next) = if endpoints.priorities.iter().all(Vec::is_empty) {
            (
                "lists no localities",
                "does the control plane know any backends?",
            )
        } else {
            (
                "lists no endpoint that may get calls",
                "are all of them unhealthy or draining?",
            )
        };
        Self {
            part: StopPart::Resource,
            at: format!("endpoints {}", endpoints.name),
            why: why.to_owned(),
            next: Some(next.to_owned()),
        }
    }

    fn resource(error: &ResourceError) -> Self {
        Self {
            part: StopPart::Resource,
            at: format!("{} {}", error.noun, error.name),
            why: error.reason.to_string(),
            next: advice::for_resource(error),
        }
    }
}

impl StopPart {
    fn cluster(name: &str) -> Self {
        Self::Cluster {
            name: name.to_owned(),
        }
    }
}
