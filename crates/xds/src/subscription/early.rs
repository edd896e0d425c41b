//! The clusters that a delta stream sent before the client asked for endpoints.
//!
//! After a reconnect, a changed cluster may be sent before the first EDS request of the client
//! arrives. That request says which endpoints the client has, and those of the changed clusters are
//! sent again (xDS protocol: Resource warming).

use std::sync::Arc;

use crate::sorted::SortedSet;

/// The largest number of names that are kept, because many streams never ask for endpoints.
const MAX_NAMES: usize = 64;

/// The clusters that were sent before the first request for endpoints.
#[derive(Debug)]
pub(super) enum EarlyClusters {
    Names(SortedSet<Arc<str>>),
    /// More than are kept. The endpoints of any cluster may have to be sent again.
    Many,
}

impl EarlyClusters {
    pub(super) fn add(&mut self, clusters: impl IntoIterator<Item = Arc<str>>) {
        for cluster in clusters {
            let Self::Names(names) = self else {
                return;
            };
            names.add(cluster);
            if names.len() > MAX_NAMES {
                *self = Self::Many;
            }
        }
    }
}

impl Default for EarlyClusters {
    fn default() -> Self {
        Self::Names(SortedSet::default())
    }
}
