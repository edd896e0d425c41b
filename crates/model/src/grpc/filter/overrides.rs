//! Overrides of filters: `typed_per_filter_config` of a virtual host, a route or a weighted cluster.
//!
//! An override may name a filter that no chain has. Such an override is valid, because routes and listeners change
//! independently of each other (gRFC A39).

use std::collections::{BTreeMap, HashMap};

use envoy_types::pb::{envoy::config::route::v3::FilterConfig as Wrapper, google::protobuf::Any};
use prost::Name;

use super::{
    CustomFilters, FilterConfig,
    kind::{self, Reading},
};
use crate::{Validator, grpc::any::Extension};

/// The overrides of one place, by the names of the filters that they are for.
///
/// ```
/// # use crowfly_model::grpc::filter::{FilterOverride, FilterOverrides};
/// let off = FilterOverride { disabled: true, config: None };
/// let overrides: FilterOverrides = [("fault".to_owned(), off.clone())].into_iter().collect();
/// assert_eq!(overrides.get("fault"), Some(&off));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilterOverrides(BTreeMap<String, FilterOverride>);

/// The override of one filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterOverride {
    /// True if calls do not pass the filter. If false, they pass it even if the chain disables it.
    pub disabled: bool,
    /// The configuration in place of the one in the chain; `None` if the override only disables the filter.
    pub config: Option<FilterConfig>,
}

impl FilterOverrides {
    /// The override for the filter of this name.
    pub fn get(&self, filter: &str) -> Option<&FilterOverride> {
        self.0.get(filter)
    }

    /// True if no filter is overridden.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(String, FilterOverride)> for FilterOverrides {
    fn from_iter<I: IntoIterator<Item = (String, FilterOverride)>>(overrides: I) -> Self {
        Self(overrides.into_iter().collect())
    }
}

/// Reads the map at `typed_per_filter_config` of the current path.
pub(in crate::grpc) fn parse(
    map: &HashMap<String, Any>,
    custom: &CustomFilters,
    v: &mut Validator,
) -> FilterOverrides {
    // Sorted, so that errors have the same order every time.
    let sorted: BTreeMap<_, _> = map.iter().collect();
    v.field("typed_per_filter_config", |v| {
        let entries = sorted.into_iter().filter_map(|(name, any)| {
            let parsed = v.key(name, |v| {
                if name.is_empty() {
                    v.error("expected the name of a filter, got none");
                }
                parse_entry(any, custom, v)
            });
            Some((name.clone(), parsed?))
        });
        entries.collect()
    })
}

/// Reads one entry; `None` if it is left out, or after an error.
fn parse_entry(any: &Any, custom: &CustomFilters, v: &mut Validator) -> Option<FilterOverride> {
    let extension = unwrap(any, v)?;
    if extension.type_name != Wrapper::full_name() {
        return parse_config(extension, false, custom, v);
    }
    let wrapper: Wrapper = extension.decode(v)?;
    if wrapper.disabled {
        // Envoy's rule for the field: the configuration is ignored.
        let (disabled, config) = (true, None);
        return Some(FilterOverride { disabled, config });
    }
    let optional = wrapper.is_optional;
    match wrapper.config {
        Some(config) => v.field("config", |v| {
            parse_config(unwrap(&config, v)?, optional, custom, v)
        }),
        None if optional => {
            v.unsupported("left out: it is optional and has no config");
            None
        }
        None => {
            v.error_at("config", "expected a configuration, got none");
            None
        }
    }
}

fn parse_config(
    extension: Extension,
    optional: bool,
    custom: &CustomFilters,
    v: &mut Validator,
) -> Option<FilterOverride> {
    match kind::read_override(extension, optional, custom, v) {
        Reading::Filter(config) => Some(FilterOverride {
            disabled: false,
            config: Some(config),
        }),
        Reading::LeftOut | Reading::Rejected | Reading::Router => None,
    }
}

fn unwrap(any: &Any, v: &mut Validator) -> Option<Extension> {
    let extension = Extension::unwrap(any.clone());
    extension.map_err(|message| v.error(message)).ok()
}
