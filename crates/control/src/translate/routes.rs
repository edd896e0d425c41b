//! The route configuration of a service, which gRPC clients and Envoys read alike. Where their
//! defaults differ, as for timeouts, the value is written.

use std::time::Duration;

use envoy_types::pb::envoy::config::route::v3 as pb;
use envoy_types::pb::envoy::r#type::matcher::v3::{RegexMatchAndSubstitute, RegexMatcher};
use envoy_types::pb::google::protobuf::{self, UInt32Value};
use pb::route_action::{ClusterSpecifier, HashPolicy, MaxStreamDuration, hash_policy};

use super::{faults, matchers, packed, sessions};
use crate::service::hash::{HashPart, Hashed};
use crate::service::matching::Match;
use crate::service::retry::Retry;
use crate::service::route::{Split, Target};
use crate::service::{Service, Treatment};

/// The key of a channel's number in the state of its filters (gRFC A42).
const CHANNEL_ID: &str = "io.grpc.channel_id";

/// The routes of a service. They accept any `:authority`, because the listener's name has chosen
/// the service and a client may set its own.
pub(super) fn of_service(service: &Service) -> pb::RouteConfiguration {
    let own = Target::Service(service.name.clone());
    let routes = service.routes.iter().map(|route| {
        let target = route.target.as_ref().unwrap_or(&own);
        route_to(target, &route.matches, service.treatment_of(route))
    });
    let last = service
        .needs_last_route()
        .then(|| route_to(&own, &Match::default(), service.treatment()));
    pb::RouteConfiguration {
        name: service.name.clone(),
        virtual_hosts: vec![pb::VirtualHost {
            name: service.name.clone(),
            domains: vec!["*".to_owned()],
            routes: routes.chain(last).collect(),
            ..pb::VirtualHost::default()
        }],
        ..pb::RouteConfiguration::default()
    }
}

fn route_to(target: &Target, matches: &Match, treatment: Treatment<'_>) -> pb::Route {
    let fault = treatment.fault.map(|fault| {
        let config = packed(&faults::of_route(fault));
        (faults::FILTER_NAME.to_owned(), config)
    });
    let session = treatment.cookie.map(|cookie| {
        let config = packed(&sessions::of_route(cookie));
        (sessions::FILTER_NAME.to_owned(), config)
    });
    pb::Route {
        r#match: Some(matchers::of_route(matches)),
        action: Some(pb::route::Action::Route(action_of(target, treatment))),
        typed_per_filter_config: fault.into_iter().chain(session).collect(),
        ..pb::Route::default()
    }
}

/// The action of a route. An Envoy ends a call after 15 s if `timeout` is not given, and gRPC does
/// not look at that field. So it is zero, which means no such end, and `max_stream_duration` has the
/// timeout for both.
fn action_of(target: &Target, treatment: Treatment<'_>) -> pb::RouteAction {
    let clusters = match target {
        Target::Service(name) => ClusterSpecifier::Cluster(name.clone()),
        Target::Split(split) => ClusterSpecifier::WeightedClusters(weighted(split)),
    };
    let max_stream_duration = treatment.timeout.map(|timeout| MaxStreamDuration {
        max_stream_duration: Some(duration(timeout.0)),
        ..MaxStreamDuration::default()
    });
    pb::RouteAction {
        cluster_specifier: Some(clusters),
        timeout: Some(protobuf::Duration::default()),
        max_stream_duration,
        retry_policy: treatment.retry.map(retry_policy),
        hash_policy: treatment.hash.iter().map(hash_policy).collect(),
        ..pb::RouteAction::default()
    }
}

fn weighted(split: &Split) -> pb::WeightedCluster {
    let clusters = split.0.iter();
    let clusters = clusters.map(|(name, weight)| pb::weighted_cluster::ClusterWeight {
        name: name.clone(),
        weight: Some(UInt32Value { value: *weight }),
        ..pb::weighted_cluster::ClusterWeight::default()
    });
    pb::WeightedCluster {
        clusters: clusters.collect(),
        ..pb::WeightedCluster::default()
    }
}

fn retry_policy(retry: &Retry) -> pb::RetryPolicy {
    let names: Vec<_> = retry.when.iter().map(|status| status.name()).collect();
    let backoff = retry.backoff.map(|backoff| pb::retry_policy::RetryBackOff {
        base_interval: Some(duration(backoff.base.0)),
        max_interval: backoff.max.map(|max| duration(max.0)),
    });
    pb::RetryPolicy {
        retry_on: names.join(","),
        num_retries: Some(UInt32Value {
            value: retry.attempts.saturating_sub(1),
        }),
        retry_back_off: backoff,
        ..pb::RetryPolicy::default()
    }
}

fn hash_policy(part: &HashPart) -> HashPolicy {
    use hash_policy::{FilterState, Header, PolicySpecifier};
    let of = match &part.of {
        Hashed::Channel => PolicySpecifier::FilterState(FilterState {
            key: CHANNEL_ID.to_owned(),
        }),
        Hashed::Header(name, rewrite) => PolicySpecifier::Header(Header {
            header_name: name.0.clone(),
            regex_rewrite: rewrite.as_ref().map(|rewrite| RegexMatchAndSubstitute {
                pattern: Some(RegexMatcher {
                    regex: rewrite.regex.0.clone(),
                    ..RegexMatcher::default()
                }),
                substitution: rewrite.with.clone(),
            }),
        }),
    };
    HashPolicy {
        terminal: part.terminal,
        policy_specifier: Some(of),
    }
}

/// A duration as protobuf writes it. Durations in files are so short that nothing is cut off.
pub(crate) fn duration(duration: Duration) -> protobuf::Duration {
    protobuf::Duration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(duration.subsec_nanos()).unwrap_or(0),
    }
}
