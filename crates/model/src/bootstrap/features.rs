//! Features that the bootstrap says a server has.
//!
//! A client must not guess these features, because they change the protocol and the errors that make a resource
//! unusable.

use std::fmt;

/// A feature of a server that the client knows. Unknown features are ignored (gRFC A30). So two entries that differ
/// only in unknown features are one server (gRFC A47).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ServerFeature {
    /// `xds.delta`: the server speaks the incremental protocol.
    Delta,
    /// `fail_on_data_errors`: the client drops a resource if its update is bad or it is deleted (gRFC A88).
    FailOnDataErrors,
    /// `ignore_resource_deletion`: the client keeps using a resource that was deleted (gRFC A53).
    IgnoreResourceDeletion,
    /// `resource_timer_is_transient_error`: a resource that does not arrive in time is a transient error. The
    /// server reports resources that do not exist itself (gRFC A88).
    ResourceTimerIsTransientError,
    /// `trusted_xds_server`: the server may say which name calls are sent to (gRFC A81).
    TrustedXdsServer,
}

impl ServerFeature {
    const ALL: [Self; 5] = [
        Self::Delta,
        Self::FailOnDataErrors,
        Self::IgnoreResourceDeletion,
        Self::ResourceTimerIsTransientError,
        Self::TrustedXdsServer,
    ];

    /// The name of the feature in a bootstrap.
    pub fn name(self) -> &'static str {
        match self {
            Self::Delta => "xds.delta",
            Self::FailOnDataErrors => "fail_on_data_errors",
            Self::IgnoreResourceDeletion => "ignore_resource_deletion",
            Self::ResourceTimerIsTransientError => "resource_timer_is_transient_error",
            Self::TrustedXdsServer => "trusted_xds_server",
        }
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        // gRFC A88 spells this one both ways.
        if name == "resource_timer_is_transient_failure" {
            return Some(Self::ResourceTimerIsTransientError);
        }
        Self::ALL.into_iter().find(|feature| feature.name() == name)
    }
}

impl fmt::Display for ServerFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
