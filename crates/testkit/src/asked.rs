//! Which names a client asks for, in either variant of the protocol.

use std::collections::BTreeSet;

use envoy_types::pb::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};

/// A request, whichever variant it is of.
pub(crate) trait Asks {
    /// The type it is about.
    fn type_url(&self) -> &str;
    /// The response it answers, if any.
    fn nonce(&self) -> &str;
    /// Why it refuses that.
    fn error(&self) -> Option<&str>;
    /// From the names before it to those after it.
    fn change(&self, names: &mut BTreeSet<String>);
}

impl Asks for DiscoveryRequest {
    fn type_url(&self) -> &str {
        &self.type_url
    }

    fn nonce(&self) -> &str {
        &self.response_nonce
    }

    fn error(&self) -> Option<&str> {
        self.error_detail.as_ref().map(|error| &*error.message)
    }

    fn change(&self, names: &mut BTreeSet<String>) {
        *names = self.resource_names.iter().cloned().collect();
    }
}

impl Asks for DeltaDiscoveryRequest {
    fn type_url(&self) -> &str {
        &self.type_url
    }

    fn nonce(&self) -> &str {
        &self.response_nonce
    }

    fn error(&self) -> Option<&str> {
        self.error_detail.as_ref().map(|error| &*error.message)
    }

    fn change(&self, names: &mut BTreeSet<String>) {
        for name in &self.resource_names_unsubscribe {
            names.remove(name);
        }
        names.extend(self.resource_names_subscribe.iter().cloned());
    }
}
