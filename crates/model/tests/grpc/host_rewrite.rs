//! Tests of routes that rewrite the authority of calls, and of the host names of endpoints (gRFC
//! A81). Only a trusted server may ask for a rewrite.

use crowfly_model::{
    Features, ResourceType,
    grpc::{Endpoints, RouteConfig, route::RouteAction},
};
use envoy_types::pb::{
    envoy::config::{
        endpoint::v3::lb_endpoint::HostIdentifier,
        route::v3::{route::Action, route_action::HostRewriteSpecifier},
    },
    google::protobuf::BoolValue,
};
use prost::Message;

use crate::{
    accept,
    messages::{assignment, route_config},
};

/// gRFC A81: only a trusted server may ask for it. A wish that has no effect is recorded.
#[test]
fn authority_of_a_route() {
    let auto = |value| HostRewriteSpecifier::AutoHostRewrite(BoolValue { value });
    let literal = HostRewriteSpecifier::HostRewriteLiteral("b.example".to_owned());
    for (specifier, is_trusted, expected, recorded) in [
        (None, true, false, None),
        (Some(auto(true)), true, true, None),
        (
            Some(auto(true)),
            false,
            false,
            Some("auto_host_rewrite: ignored: the server is no trusted"),
        ),
        (Some(auto(false)), true, false, None),
        (Some(auto(false)), false, false, None),
        (
            Some(literal),
            true,
            false,
            Some("host_rewrite_literal: ignored: only auto_host_rewrite"),
        ),
    ] {
        let mut proto = route_config();
        let what = format!("{specifier:?} {is_trusted}");
        match &mut proto.virtual_hosts[0].routes[0].action {
            Some(Action::Route(action)) => action.host_rewrite_specifier = specifier,
            other => panic!("expected a route action, got {other:?}"),
        }
        let features = Features {
            authority_rewriting: is_trusted,
            ..Features::ALL
        };
        let config = RouteConfig::parse(&proto.encode_to_vec(), &features);
        let config = config.value.unwrap();
        let RouteAction::Forward(forward) = &config.virtual_hosts[0].routes[0].action else {
            panic!("the route forwards");
        };
        assert_eq!(forward.auto_host_rewrite, expected, "{what}");
        let wishes: Vec<String> = config.unsupported.iter().map(ToString::to_string).collect();
        match recorded {
            None => assert_eq!(wishes, Vec::<String>::new(), "{what}"),
            Some(text) => {
                let expected = format!("virtual_hosts[0].routes[0].route.{text}");
                assert!(
                    wishes.len() == 1 && wishes[0].starts_with(&expected),
                    "{wishes:?}"
                );
            }
        }
    }
}

/// gRFC A81: an empty host name is none.
#[test]
fn host_name_of_an_endpoint() {
    for (name, expected) in [("", None), ("b.example:80", Some("b.example:80"))] {
        let mut proto = assignment();
        let first = &mut proto.endpoints[0].lb_endpoints[0];
        match &mut first.host_identifier {
            Some(HostIdentifier::Endpoint(endpoint)) => name.clone_into(&mut endpoint.hostname),
            other => panic!("expected an endpoint, got {other:?}"),
        }
        let parsed = accept::<Endpoints>(&proto);
        let mut endpoints = parsed
            .priorities
            .iter()
            .flatten()
            .flat_map(|l| &l.endpoints);
        let found = endpoints.find_map(|endpoint| endpoint.hostname.as_deref());
        assert_eq!(found, expected);
    }
}
