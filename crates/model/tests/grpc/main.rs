//! Tests of the resources that gRPC accepts or refuses, type by type. They compare all errors of a
//! message, because a NACK must name each of them (gRFC A46).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

mod aggregate;
mod cluster;
mod cluster_config;
mod cluster_lb_policy;
mod custom_filters;
mod custom_policies;
mod endpoint_policies;
mod endpoints;
mod faults;
mod filters;
mod hash_policies;
mod host_rewrite;
mod listener;
mod load_reporting;
mod logical_dns;
mod messages;
mod named_policies;
mod outlier_detection;
mod retry_policy;
mod robustness;
mod route;
mod route_match;
mod route_table;
mod rules;
mod security;
mod session_cookie;
mod sessions;
mod timeouts;
mod unsupported;
mod weighted_clusters;

use std::sync::Arc;

use crowfly_model::grpc::route::{CallHead, Route, RouteTable, VirtualHost};
use crowfly_model::{Features, ResourceType};
use prost::Message;

/// The valid form of a message that is valid.
fn accept<R: ResourceType<Context = Features>>(proto: &impl Message) -> R::Parsed {
    match R::parse(&proto.encode_to_vec(), &Features::ALL).value {
        Ok(value) => value,
        Err(errors) => panic!("a valid {} was rejected: {errors}", R::NOUN),
    }
}

/// Every error of a message that is not valid, as it would be read.
fn reject<R: ResourceType<Context = Features>>(proto: &impl Message) -> Vec<String> {
    match R::parse(&proto.encode_to_vec(), &Features::ALL).value {
        Ok(value) => panic!("an invalid {} was accepted: {value:?}", R::NOUN),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

/// A case of a table: what is wrong, how a valid message `P` gets so, and all errors expected.
type Case<P> = (&'static str, fn(&mut P), &'static [&'static str]);

/// Spoils a fresh `valid` message by each case and compares the errors.
fn check_rejections<R: ResourceType<Context = Features>, P: Message>(
    valid: fn() -> P,
    cases: &[Case<P>],
) {
    accept::<R>(&valid());
    for (what, spoil, expected) in cases {
        let mut proto = valid();
        spoil(&mut proto);
        assert_eq!(reject::<R>(&proto), *expected, "{what}");
    }
}

/// The route that a call with this path takes.
fn route_for<'a>(host: &'a Arc<VirtualHost>, path: &str) -> Option<&'a Route> {
    let table = RouteTable::compile(host, |_| ());
    let position = table.position(&CallHead::of_path(path), || 0);
    position.map(|position| &host.routes[position])
}
