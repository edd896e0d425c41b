//! From the proto to a [`RouteConfig`].

use std::sync::Arc;

use envoy_types::pb::envoy::config::route::v3::{
    self as pb, route::Action, route_action::ClusterSpecifier, route_match::PathSpecifier,
};

use super::{PathMatcher, Route, RouteAction, RouteConfig, SkippedRoute, VirtualHost};
use crate::{Validator, grpc::decode::require_text};

/// Reads a route configuration, inline or fetched; what it returns is valid if `v` has no errors.
pub(in crate::grpc) fn parse(proto: &pb::RouteConfiguration, v: &mut Validator) -> RouteConfig {
    let virtual_hosts = v.field("virtual_hosts", |v| {
        let hosts = proto.virtual_hosts.iter().enumerate();
        hosts
            .map(|(i, host)| Arc::new(v.index(i, |v| parse_host(host, v))))
            .collect()
    });
    RouteConfig {
        name: proto.name.clone(),
        virtual_hosts,
    }
}

fn parse_host(proto: &pb::VirtualHost, v: &mut Validator) -> VirtualHost {
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
    let mut host = VirtualHost {
        name: proto.name.clone(),
        domains,
        routes: Vec::with_capacity(proto.routes.len()),
        skipped: Vec::new(),
    };
    v.field("routes", |v| {
        for (index, route) in proto.routes.iter().enumerate() {
            match v.index(index, |v| parse_route(route, v)) {
                Ok(route) => host.routes.push(route),
                Err(Rejected::Invalid) => {}
                Err(Rejected::Skip(reason)) => host.skipped.push(SkippedRoute {
                    index,
                    name: route.name.clone(),
                    reason,
                }),
            }
        }
    });
    host
}

/// Why a route is not in the list.
enum Rejected {
    /// An error was recorded; the whole resource is wrong.
    Invalid,
    /// It is valid and cannot be honoured.
    Skip(String),
}

impl Rejected {
    fn unsupported(what: &str) -> Self {
        Self::Skip(format!("{what} is not supported"))
    }
}

fn parse_route(proto: &pb::Route, v: &mut Validator) -> Result<Route, Rejected> {
    let path = v.field("match", |v| match &proto.r#match {
        Some(matcher) => parse_match(matcher, v),
        None => {
            v.error("expected a match, got none");
            Err(Rejected::Invalid)
        }
    });
    if let Err(skip @ Rejected::Skip(_)) = path {
        return Err(skip);
    }
    // An error in the match does not hide those in the action.
    let action = parse_action(proto.action.as_ref(), v);
    Ok(Route {
        path: path?,
        action: action?,
    })
}

fn parse_match(proto: &pb::RouteMatch, v: &mut Validator) -> Result<PathMatcher, Rejected> {
    // gRFC A28: before all else, as a route with query parameters is none that gRPC looks at.
    if !proto.query_parameters.is_empty() {
        return Err(Rejected::unsupported("match.query_parameters"));
    }
    let Some(path) = &proto.path_specifier else {
        v.error("expected a path specifier (prefix, path, ...), got none");
        return Err(Rejected::Invalid);
    };
    if let Some(condition) = unsupported_condition(proto) {
        return Err(Rejected::unsupported(condition));
    }
    let case_sensitive = proto.case_sensitive.is_none_or(|flag| flag.value);
    let path = match path {
        PathSpecifier::Prefix(text) => PathMatcher::Prefix {
            text: text.clone(),
            case_sensitive,
        },
        PathSpecifier::Path(text) => PathMatcher::Exact {
            text: text.clone(),
            case_sensitive,
        },
        PathSpecifier::SafeRegex(_) => return Err(Rejected::unsupported("match.safe_regex")),
        PathSpecifier::ConnectMatcher(_) => {
            return Err(Rejected::unsupported("match.connect_matcher"));
        }
        PathSpecifier::PathSeparatedPrefix(_) => {
            return Err(Rejected::unsupported("match.path_separated_prefix"));
        }
        PathSpecifier::PathMatchPolicy(_) => {
            return Err(Rejected::unsupported("match.path_match_policy"));
        }
    };
    if !path.can_match() {
        return Err(Rejected::Skip(
            "its path can never be that of a call, /service/method".to_owned(),
        ));
    }
    Ok(path)
}

/// A condition besides the path that a call would have to meet.
///
/// `match.grpc` is not one of them: every call of a gRPC client meets it.
fn unsupported_condition(proto: &pb::RouteMatch) -> Option<&'static str> {
    let conditions = [
        (!proto.headers.is_empty(), "match.headers"),
        (proto.runtime_fraction.is_some(), "match.runtime_fraction"),
        (!proto.cookies.is_empty(), "match.cookies"),
        (proto.tls_context.is_some(), "match.tls_context"),
        (!proto.dynamic_metadata.is_empty(), "match.dynamic_metadata"),
        (!proto.filter_state.is_empty(), "match.filter_state"),
    ];
    conditions
        .into_iter()
        .find_map(|(present, name)| present.then_some(name))
}

fn parse_action(proto: Option<&Action>, v: &mut Validator) -> Result<RouteAction, Rejected> {
    let Some(Action::Route(action)) = proto else {
        // An action that is unset or not known to this proto is no forwarding either.
        return Ok(RouteAction::NonForwarding);
    };
    let unsupported = match &action.cluster_specifier {
        Some(ClusterSpecifier::Cluster(name)) => {
            v.field("route", |v| require_text(name, "cluster", v));
            return if name.is_empty() {
                Err(Rejected::Invalid)
            } else {
                Ok(RouteAction::Cluster(name.clone()))
            };
        }
        Some(ClusterSpecifier::ClusterHeader(_)) => "route.cluster_header",
        Some(ClusterSpecifier::WeightedClusters(_)) => "route.weighted_clusters",
        Some(ClusterSpecifier::ClusterSpecifierPlugin(_)) => "route.cluster_specifier_plugin",
        Some(ClusterSpecifier::InlineClusterSpecifierPlugin(_)) => {
            "route.inline_cluster_specifier_plugin"
        }
        None => "a route action without a known cluster specifier",
    };
    Err(Rejected::unsupported(unsupported))
}
