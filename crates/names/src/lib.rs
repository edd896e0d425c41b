//! Names and counts that configuration and balancing have in common.
//!
//! The model reads localities out of protos, and the balancer keeps state by them, but neither crate knows the other.
//! So the names that both use are in this crate, which both depend on. Names are compared and copied often, so a clone
//! only counts a reference and allocates nothing. The map for a few entries, [`FewOrMany`], is in this crate, too.

#![forbid(unsafe_code)]
// No clock, no sleep, no randomness of the process, no runtime: clippy.toml says why.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod few;
mod load;

use std::{
    borrow::Borrow,
    fmt,
    sync::{Arc, LazyLock},
};

pub use few::FewOrMany;
pub use load::{
    ClusterLoad, ConnectionLoad, LocalityLoad, MAX_METRIC_NAMES, MetricSum, MetricTotals,
};

/// The name of a cluster; cheap to clone.
///
/// ```
/// let name = crowfly_names::ClusterName::from("payments");
/// assert_eq!(name.as_str(), "payments");
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ClusterName(Arc<str>);

impl ClusterName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for ClusterName {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

impl From<String> for ClusterName {
    fn from(name: String) -> Self {
        Self(name.into())
    }
}

impl From<Arc<str>> for ClusterName {
    fn from(name: Arc<str>) -> Self {
        Self(name)
    }
}

impl Borrow<str> for ClusterName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for ClusterName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The place of endpoints: region, zone and sub-zone. Each part may be empty. A clone is cheap.
///
/// Prints as `us/a/1`, without the empty parts at the end.
///
/// ```
/// use crowfly_names::LocalityId;
///
/// assert_eq!(LocalityId::new("us", "a", "").to_string(), "us/a");
/// assert_eq!(LocalityId::default().to_string(), "(no locality)");
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct LocalityId(Arc<Parts>);

impl LocalityId {
    /// A locality from its three parts.
    pub fn new(region: &str, zone: &str, sub_zone: &str) -> Self {
        Self(Arc::new(Parts {
            region: region.into(),
            zone: zone.into(),
            sub_zone: sub_zone.into(),
        }))
    }

    /// The region, such as `us-east1`.
    pub fn region(&self) -> &str {
        &self.0.region
    }

    /// The zone within the region.
    pub fn zone(&self) -> &str {
        &self.0.zone
    }

    /// The sub-zone within the zone.
    pub fn sub_zone(&self) -> &str {
        &self.0.sub_zone
    }
}

/// No locality: all three parts are empty. The value allocates nothing, because every tree has places without a
/// locality.
impl Default for LocalityId {
    fn default() -> Self {
        static NOWHERE: LazyLock<LocalityId> = LazyLock::new(|| LocalityId::new("", "", ""));
        NOWHERE.clone()
    }
}

impl fmt::Display for LocalityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parts {
            region,
            zone,
            sub_zone,
        } = &*self.0;
        match (&**region, &**zone, &**sub_zone) {
            ("", "", "") => f.write_str("(no locality)"),
            (region, "", "") => f.write_str(region),
            (region, zone, "") => write!(f, "{region}/{zone}"),
            (region, zone, sub_zone) => write!(f, "{region}/{zone}/{sub_zone}"),
        }
    }
}

#[derive(PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
struct Parts {
    region: Box<str>,
    zone: Box<str>,
    sub_zone: Box<str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locality_prints_without_the_empty_parts_at_its_end() {
        let printed = |region, zone, sub_zone| LocalityId::new(region, zone, sub_zone).to_string();
        assert_eq!(printed("us", "a", "1"), "us/a/1");
        assert_eq!(printed("us", "a", ""), "us/a");
        assert_eq!(printed("us", "", ""), "us");
        assert_eq!(printed("", "a", ""), "/a");
        assert_eq!(printed("", "", ""), "(no locality)");
    }
}
