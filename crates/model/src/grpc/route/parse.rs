//! From the proto to a [`RouteConfig`].
//!
//! All rules of gRFC A28 are here: some mistakes refuse the whole resource, others only leave a route out.

use std::sync::Arc;

use envoy_types::pb::envoy::config::route::v3::{
    self as pb, route::Action, route_action::ClusterSpecifier,
};

use super::{
    ClusterChoice, Condition, Forward, Route, RouteAction, RouteConfig, SkippedRoute, VirtualHost,
    condition, hash_policy, host_rewrite, path, retry_policy::Setting, timeout, unsupported,
    weighted,
};
use crate::{
    Features, Validator,
    grpc::{decode::require_text, filter},
};

/// Reads a route configuration, inline or fetched. The result is valid only if `v` has no errors.
pub(in crate::grpc) fn parse(
    proto: &pb::RouteConfiguration,
    features: &Features,
    v: &mut Validator,
) -> RouteConfig {
    let (virtual_hosts, unsupported) = v.take_unsupported(|v| {
        v.field("virtual_hosts", |v| {
            let hosts = proto.virtual_hosts.iter().enumerate();
            hosts
                .map(|(i, host)| Arc::new(v.index(i, |v| parse_host(host, features, v))))
                .collect()
        })
    });
    RouteConfig {
        name: proto.name.clone(),
        virtual_hosts,
        unsupported,
    }
}

fn parse_host(proto: &pb::VirtualHost, features: &Features, v: &mut Validator) -> VirtualHost {
    let custom = &features.custom_filters;
    let domains = v.field("domains", |v| {
        if proto.domains.is_empty() {
            v.error("expected at least one domain, got none");
        }
        let domains = proto.domains.iter().enumerate();
        domains
            .filter_map(|(i, domain)| {
                let parsed = domain.parse();
                parsed
                    .map_err(|message: String| v.index(i, |v| v.error(message)))
                    .ok()
            })
            .collect()
    });
    unsupported::in_host(proto, v);
    let retry = Setting::parse(proto.retry_policy.as_ref(), v);
    let mut host = VirtualHost {
        name: proto.name.clone(),
        domains,
        routes: Vec::with_capacity(proto.routes.len()),
        skipped: Vec::new(),
        filters: filter::parse_overrides(&proto.typed_per_filter_config, custom, v),
    };
    v.field("routes", |v| {
        for (index, route) in proto.routes.iter().enumerate() {
            match v.index(index, |v| parse_route(route, features, &retry, v)) {
                Ok(parsed) => {
                    host.routes.push(parsed);
                    v.index(index, |v| unsupported::in_route(route, v));
                }
                Err(Rejected::Invalid) => {}
                Err(Rejected::Skip(reason)) => {
                    v.index(index, |v| v.unsupported(format!("left out: {reason}")));
                    host.skipped.push(SkippedRoute {
                        index,
                        name: route.name.clone(),
                        reason,
                    });
                }
            }
        }
    });
    host
}

/// The reason why a route is not in the list.
enum Rejected {
    /// An error was recorded; the whole resource is wrong.
    Invalid,
    /// The route is valid, but uses something that is not supported.
    Skip(String),
}

impl Rejected {
    fn unsupported(what: &str) -> Self {
        Self::Skip(format!("{what} is not supported"))
    }
}

fn parse_route(
    proto: &pb::Route,
    features: &Features,
    host_retry: &Setting,
    v: &mut Validator,
) -> Result<Route, Rejected> {
    let condition = v.field("match", |v| match &proto.r#match {
        Some(matcher) => parse_match(matcher, v),
        None => {
            v.error("expected a match, got none");
            Err(Rejected::Invalid)
        }
    });
    if let Err(skip @ Rejected::Skip(_)) = condition {
        return Err(skip);
    }
    // An error in the match does not hide those in the action and the overrides.
    let action = parse_action(proto.action.as_ref(), features, host_retry, v);
    if let Err(skip @ Rejected::Skip(_)) = action {
        return Err(skip);
    }
    let custom = &features.custom_filters;
    let filters = filter::parse_overrides(&proto.typed_per_filter_config, custom, v);
    Ok(Route {
        name: proto.name.clone(),
        condition: condition?,
        action: action?,
        filters,
    })
}

/// Reads the condition of a route.
///
/// The part `grpc` is not read, because every call of a gRPC client meets it. gRFC A28 ignores all other parts, such as
/// `tls_context`, so the route is valid without them.
fn parse_match(proto: &pb::RouteMatch, v: &mut Validator) -> Result<Condition, Rejected> {
    // Checked first, because gRPC ignores a route with query parameters, errors included (gRFC A28).
    if !proto.query_parameters.is_empty() {
        return Err(Rejected::unsupported("match.query_parameters"));
    }
    let path = path::parse(proto, v);
    if path.as_ref().is_some_and(|path| !path.can_match()) {
        return Err(Rejected::Skip(
            "its path can never be that of a call, /service/method".to_owned(),
        ));
    }
    condition::parse(path, proto, v).ok_or(Rejected::Invalid)
}

fn parse_action(
    proto: Option<&Action>,
    features: &Features,
    host_retry: &Setting,
    v: &mut Validator,
) -> Result<RouteAction, Rejected> {
    let Some(Action::Route(action)) = proto else {
        // An action that is unset or not known to this proto is no forwarding either.
        return Ok(RouteAction::NonForwarding);
    };
    v.field("route", |v| {
        let clusters = parse_clusters(action.cluster_specifier.as_ref(), features, v);
        // An error in the clusters does not hide those in the other fields.
        let retry = Setting::parse(action.retry_policy.as_ref(), v);
        let forward = Forward {
            max_duration: timeout::parse(action.max_stream_duration.as_ref(), v),
            hash_policies: hash_policy::parse(&action.hash_policy, v),
            auto_host_rewrite: host_rewrite::parse(
                action.host_rewrite_specifier.as_ref(),
                features,
                v,
            ),
            retry: retry.within(host_retry),
            clusters: clusters?,
        };
        Ok(RouteAction::Forward(Arc::new(forward)))
    })
}

/// Reads the cluster specifier. gRFC A28: a kind that is not supported takes the route out.
fn parse_clusters(
    proto: Option<&ClusterSpecifier>,
    features: &Features,
    v: &mut Validator,
) -> Result<ClusterChoice, Rejected> {
    let unsupported = match proto {
        Some(ClusterSpecifier::Cluster(name)) => {
            require_text(name, "cluster", v);
            return if name.is_empty() {
                Err(Rejected::Invalid)
            } else {
                Ok(ClusterChoice::Cluster(name.clone()))
            };
        }
        Some(ClusterSpecifier::WeightedClusters(clusters)) => {
            let clusters = v.field("weighted_clusters", |v| {
                weighted::parse(clusters, features, v)
            });
            return clusters
                .map(ClusterChoice::Weighted)
                .ok_or(Rejected::Invalid);
        }
        Some(ClusterSpecifier::ClusterHeader(_)) => "route.cluster_header",
        Some(ClusterSpecifier::ClusterSpecifierPlugin(_)) => "route.cluster_specifier_plugin",
        Some(ClusterSpecifier::InlineClusterSpecifierPlugin(_)) => {
            "route.inline_cluster_specifier_plugin"
        }
        None => "a route action without a known cluster specifier",
    };
    Err(Rejected::unsupported(unsupported))
}
