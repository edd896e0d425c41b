//! Settings that all streams of a server share.
//!
//! Each stream holds a reference to them, because a server may have thousands of streams.

use std::collections::BTreeSet;

/// The settings of the streams of a server.
///
/// ```
/// use crowfly_xds::StreamSettings;
///
/// let cds = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
/// let settings = StreamSettings { named_only: [cds.to_owned()].into() };
/// assert!(!settings.has_legacy_wildcard(cds));
/// assert!(settings.has_legacy_wildcard("type.googleapis.com/x.Y"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamSettings {
    /// The type URLs for which a first request without names asks for nothing. For all other types
    /// it asks for everything, which is the old form of the wildcard `*`.
    pub named_only: BTreeSet<String>,
}

impl StreamSettings {
    /// True if a first request without names asks for all resources of this type.
    pub fn has_legacy_wildcard(&self, type_url: &str) -> bool {
        !self.named_only.contains(type_url)
    }
}
