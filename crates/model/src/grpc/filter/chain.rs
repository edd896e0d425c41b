//! The chain of filters of an API listener, from the proto to a [`FilterChain`].
//!
//! The rules about names, order and unknown filters are those of gRFC A39. Those rules are about the chain as a whole.
//! `kind.rs` has the rules about each filter.

use std::{collections::HashSet, sync::Arc};

use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpFilter as Proto, http_filter::ConfigType,
};

use super::{
    CustomFilters, FilterConfig,
    kind::{self, Reading},
};
use crate::{Validator, grpc::any::Extension};

/// The filters of a listener before its router, in the order in which calls pass them.
///
/// Names are unique. Clones share the filters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilterChain(Arc<[ChainedFilter]>);

/// One filter of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainedFilter {
    /// The name by which overrides find the filter; never empty.
    pub name: String,
    /// The configuration of the filter.
    pub config: FilterConfig,
    /// True if calls pass the filter only where an override enables it.
    pub disabled: bool,
}

impl FilterChain {
    /// The filters, in the order in which calls pass them.
    pub fn iter(&self) -> impl Iterator<Item = &ChainedFilter> {
        self.0.iter()
    }

    /// True if there is no filter but the router.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<ChainedFilter> for FilterChain {
    fn from_iter<I: IntoIterator<Item = ChainedFilter>>(filters: I) -> Self {
        Self(filters.into_iter().collect())
    }
}

/// Reads the chain at `http_filters` of the current path. The result is valid only if `v` has no errors.
pub(in crate::grpc) fn parse(
    filters: &[Proto],
    custom: &CustomFilters,
    v: &mut Validator,
) -> FilterChain {
    v.field("http_filters", |v| {
        if filters.is_empty() {
            v.error("expected at least one filter, got none");
            return FilterChain::default();
        }
        check_names(filters, v);
        let kept: Vec<_> = filters
            .iter()
            .enumerate()
            .filter_map(|(i, filter)| Some((i, v.index(i, |v| parse_filter(filter, custom, v))?)))
            .collect();
        check_order(&kept, v);
        let filters = kept.into_iter().filter_map(|(_, kept)| match kept {
            Kept::Filter(filter) => Some(filter),
            Kept::Rejected | Kept::Router => None,
        });
        filters.collect()
    })
}

/// Overrides find a filter by its name, so names must tell filters apart.
fn check_names(filters: &[Proto], v: &mut Validator) {
    let mut seen = HashSet::new();
    for (i, Proto { name, .. }) in filters.iter().enumerate() {
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

/// Checks that the router, which is the only terminal filter, ends the chain and is nowhere else in it.
///
/// Optional filters that are not known are no longer in the list, because they are not in the chain that runs.
fn check_order(kept: &[(usize, Kept)], v: &mut Validator) {
    let is_router = |kept: &Kept| matches!(kept, Kept::Router);
    if !kept.iter().any(|(_, kept)| is_router(kept)) {
        v.error("expected a router as the last filter, got none");
    }
    let others = kept.split_last().map_or(kept, |(_, others)| others);
    for (i, _) in others.iter().filter(|(_, kept)| is_router(kept)) {
        v.index(*i, |v| {
            v.error("expected the router last in the chain, got it here");
        });
    }
}

/// An entry of the list that has a place in the chain.
enum Kept {
    Filter(ChainedFilter),
    /// An error has been recorded for the filter.
    Rejected,
    Router,
}

/// Reads one entry; `None` if it is left out of the chain.
fn parse_filter(proto: &Proto, custom: &CustomFilters, v: &mut Validator) -> Option<Kept> {
    let optional = proto.is_optional;
    let any = match &proto.config_type {
        Some(ConfigType::TypedConfig(any)) => any.clone(),
        Some(ConfigType::ConfigDiscovery(_)) if !optional => {
            v.error("expected typed_config, got config_discovery");
            return Some(Kept::Rejected);
        }
        None if !optional => {
            v.error("expected typed_config, got none");
            return Some(Kept::Rejected);
        }
        Some(ConfigType::ConfigDiscovery(_)) | None => {
            v.unsupported("left out: it is optional and has no typed_config");
            return None;
        }
    };
    let reading = v.field("typed_config", |v| match Extension::unwrap(any) {
        Ok(extension) => kind::read_config(extension, optional, custom, v),
        Err(message) => {
            v.error(message);
            Reading::Rejected
        }
    });
    match reading {
        Reading::Filter(config) => Some(Kept::Filter(ChainedFilter {
            name: proto.name.clone(),
            config,
            disabled: proto.disabled,
        })),
        Reading::LeftOut => None,
        Reading::Rejected => Some(Kept::Rejected),
        Reading::Router => {
            if proto.disabled {
                v.unsupported_at("disabled", "ignored: the router cannot be disabled");
            }
            Some(Kept::Router)
        }
    }
}
