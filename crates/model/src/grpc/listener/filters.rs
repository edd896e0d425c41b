//! The HTTP filter chain of an API listener (gRFC A39).
//!
//! The router is the one filter known so far, and it says nothing that a client needs to keep; so
//! the chain is checked, not stored.

use std::collections::HashSet;

use envoy_types::pb::envoy::extensions::filters::{
    http::router::v3::Router,
    network::http_connection_manager::v3::{HttpFilter, http_filter::ConfigType},
};
use prost::Name;

use crate::{Validator, grpc::any::Extension};

/// Records the errors of the chain at `http_filters` of the current path.
pub(super) fn check(filters: &[HttpFilter], v: &mut Validator) {
    v.field("http_filters", |v| {
        if filters.is_empty() {
            v.error("expected at least one filter, got none");
            return;
        }
        check_names(filters, v);
        let kept = filters
            .iter()
            .enumerate()
            .filter_map(|(i, filter)| Some((i, v.index(i, |v| parse(filter, v))?)))
            .collect::<Vec<_>>();
        check_order(&kept, v);
    });
}

/// Names are how per-route overrides find a filter, so they must tell filters apart.
fn check_names(filters: &[HttpFilter], v: &mut Validator) {
    let mut seen = HashSet::new();
    for (i, HttpFilter { name, .. }) in filters.iter().enumerate() {
        v.index(i, |v| {
            if name.is_empty() {
                v.error_at("name", "expected a non-empty string, got none");
            } else if !seen.insert(name) {
                v.error_at(
                    "name",
                    format!("expected a unique name, got {name:?} again"),
                );
            }
        });
    }
}

/// The router is the terminal filter: it ends the chain and stands nowhere else.
///
/// Judged after optional filters that are not known have been left out, as those play no part in
/// the chain that runs.
fn check_order(kept: &[(usize, Filter)], v: &mut Validator) {
    if !kept.iter().any(|(_, filter)| *filter == Filter::Router) {
        v.error("expected a router as the last filter, got none");
    }
    let others = kept.split_last().map_or(kept, |(_, others)| others);
    for (i, filter) in others {
        if *filter == Filter::Router {
            v.index(*i, |v| {
                v.error("expected the router last in the chain, got it here");
            });
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filter {
    Router,
    /// An error has been recorded for it; it still holds its place in the chain.
    Rejected,
}

/// The filter, or `None` if it is left out of the chain.
fn parse(filter: &HttpFilter, v: &mut Validator) -> Option<Filter> {
    let optional = filter.is_optional;
    let any = match &filter.config_type {
        Some(ConfigType::TypedConfig(any)) => any.clone(),
        Some(ConfigType::ConfigDiscovery(_)) if !optional => {
            v.error("expected typed_config, got config_discovery");
            return Some(Filter::Rejected);
        }
        None if !optional => {
            v.error("expected typed_config, got none");
            return Some(Filter::Rejected);
        }
        Some(ConfigType::ConfigDiscovery(_)) | None => {
            v.unsupported("left out: it is optional and has no typed_config");
            return None;
        }
    };
    v.field("typed_config", |v| match Extension::unwrap(any) {
        Ok(extension) if extension.type_name == Router::full_name() => {
            check_router(&extension, v);
            Some(Filter::Router)
        }
        // S3-02
        Ok(Extension { type_name, .. }) if optional => {
            v.unsupported(format!(
                "left out: {type_name} is optional, and not supported"
            ));
            None
        }
        Ok(Extension { type_name, .. }) => {
            v.error(format!("expected a supported filter, got {type_name}"));
            Some(Filter::Rejected)
        }
        Err(message) => {
            v.error(message);
            Some(Filter::Rejected)
        }
    })
}

/// The router's configuration is a message: there is no reading of it as JSON, hence a
/// `TypedStruct` of it is a config of the wrong kind (gRFC A39).
fn check_router(extension: &Extension, v: &mut Validator) {
    extension.decode::<Router>(v);
}
