//! The clients that run the list, and their order in the table of `docs/peers.md`.

/// A client of the control plane, and the variant of ADS that it speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    EnvoySotw,
    EnvoyDelta,
    CCore,
    GrpcNode,
    GrpcGo,
    CrowflySotw,
    CrowflyDelta,
}

impl Kind {
    /// All of them, in the order of the table.
    pub(super) const ALL: [Self; 7] = [
        Self::EnvoySotw,
        Self::EnvoyDelta,
        Self::CCore,
        Self::GrpcNode,
        Self::GrpcGo,
        Self::CrowflySotw,
        Self::CrowflyDelta,
    ];

    /// The clients that fail over by health alone.
    pub(super) const ENVOYS: &[Self] = &[Self::EnvoySotw, Self::EnvoyDelta];

    /// The clients that do not say what they have when they come back.
    pub(super) const BY_STATE_OF_THE_WORLD: &[Self] = &[
        Self::EnvoySotw,
        Self::CCore,
        Self::GrpcNode,
        Self::GrpcGo,
        Self::CrowflySotw,
    ];

    /// Its name in the table.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::EnvoySotw => "Envoy",
            Self::EnvoyDelta => "Envoy, delta",
            Self::CCore => "`grpcio`",
            Self::GrpcNode => "`@grpc/grpc-js-xds`",
            Self::GrpcGo => "gRPC-Go",
            Self::CrowflySotw => "Crowfly",
            Self::CrowflyDelta => "Crowfly, delta",
        }
    }

    /// The id by which it introduces itself.
    pub(super) fn node(self) -> &'static str {
        match self {
            Self::EnvoySotw => "envoy-sotw",
            Self::EnvoyDelta => "envoy-delta",
            Self::CCore => "c-core",
            Self::GrpcNode => "grpc-node",
            Self::GrpcGo => "grpc-go",
            Self::CrowflySotw => "crowfly-sotw",
            Self::CrowflyDelta => "crowfly-delta",
        }
    }

    pub(super) fn is_envoy(self) -> bool {
        Self::ENVOYS.contains(&self)
    }
}
