//! The filters that this client knows, by the message types of their configurations.
//!
//! gRFC A39 calls this the filter registry. A filter has a type for the chain, and may have another one for overrides.
//! So each has a lookup of its own. Filters of gRPC come first, then those of the program.

use envoy_types::pb::envoy::extensions::filters::http::{
    fault::v3::HttpFault,
    rbac::v3::{Rbac, RbacPerRoute},
    router::v3::Router,
    stateful_session::v3::{StatefulSession, StatefulSessionPerRoute},
};
use prost::Name;

use super::{CustomFilters, FilterConfig, custom, fault, stateful_session};
use crate::{Validator, grpc::any::Extension};

/// The meaning of a message in a chain or in an override.
pub(super) enum Reading {
    Filter(FilterConfig),
    /// The message is not used, which has been recorded.
    LeftOut,
    /// An error has been recorded.
    Rejected,
    Router,
}

/// Reads the configuration of a filter in a chain.
pub(super) fn read_config(
    extension: Extension,
    optional: bool,
    custom: &CustomFilters,
    v: &mut Validator,
) -> Reading {
    let name = &extension.type_name;
    if *name == Router::full_name() {
        // The message says nothing that a client uses, but it must be one: its JSON form is an error.
        extension.decode::<Router>(v);
        return Reading::Router;
    }
    if *name == HttpFault::full_name() {
        return or_rejected(fault::parse(&extension, v));
    }
    if *name == StatefulSession::full_name() {
        return or_rejected(stateful_session::parse(&extension, v));
    }
    if custom.reads_config(name) {
        return or_rejected(custom::read_config(extension, custom, v));
    }
    let is_for_servers = *name == Rbac::full_name();
    match (optional, is_for_servers) {
        // S3-02
        (true, false) => left_out(&format!("{name} is optional, and not supported"), v),
        (true, true) => left_out(&format!("{name} is optional, and for servers"), v),
        (false, false) => {
            v.error(format!("expected a supported filter, got {name}"));
            Reading::Rejected
        }
        // gRFC A39: a client has a set of filters of its own.
        (false, true) => {
            v.error(format!("expected a filter for clients, got {name}"));
            Reading::Rejected
        }
    }
}

/// Reads the configuration of a filter in an override.
pub(super) fn read_override(
    extension: Extension,
    optional: bool,
    custom: &CustomFilters,
    v: &mut Validator,
) -> Reading {
    let name = &extension.type_name;
    if *name == HttpFault::full_name() {
        return or_rejected(fault::parse(&extension, v));
    }
    if *name == StatefulSessionPerRoute::full_name() {
        return or_rejected(stateful_session::parse_override(&extension, v));
    }
    if custom.reads_override(name) {
        return or_rejected(custom::read_override(extension, custom, v));
    }
    if *name == RbacPerRoute::full_name() {
        // gRFC A39: no error, because a server may use the same routes.
        return left_out(&format!("{name} is for servers"), v);
    }
    if optional {
        return left_out(&format!("{name} is optional, and not supported"), v);
    }
    v.error(format!(
        "expected the override of a supported filter, got {name}"
    ));
    Reading::Rejected
}

fn or_rejected(config: Option<FilterConfig>) -> Reading {
    config.map_or(Reading::Rejected, Reading::Filter)
}

fn left_out(why: &str, v: &mut Validator) -> Reading {
    v.unsupported(format!("left out: {why}"));
    Reading::LeftOut
}
