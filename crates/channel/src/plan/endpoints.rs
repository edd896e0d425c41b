//! The endpoints of a plan, and how much each of them weighs.

use std::num::NonZeroU64;

use crowfly_lb::{Endpoint, LocalityId};
use crowfly_model::grpc::endpoints::{self, Health, Locality};

/// The endpoints of a locality for a policy that sees those of all: each knows where it is, and
/// weighs what its locality does (gRFC A42).
pub(super) fn everywhere(locality: &Locality) -> impl Iterator<Item = Endpoint> {
    let id = place(&locality.id);
    let share = NonZeroU64::from(locality.weight);
    inside(locality).map(move |mut endpoint| {
        endpoint.weight = share.saturating_mul(endpoint.weight);
        endpoint.locality = Some(id.clone());
        endpoint
    })
}

/// The endpoints of one locality.
pub(super) fn inside(locality: &Locality) -> impl Iterator<Item = Endpoint> {
    let endpoints = locality.endpoints.iter().filter(|e| takes_calls(e));
    endpoints.filter_map(|source| {
        let mut endpoint = Endpoint::new(source.addresses.clone())?;
        endpoint.weight = source.weight.into();
        endpoint.hash_key = source.hash_key.as_deref().map(Into::into);
        Some(endpoint)
    })
}

/// A draining endpoint keeps its sessions (gRFC A55) and gets no other calls.
pub(super) fn takes_calls(endpoint: &endpoints::Endpoint) -> bool {
    endpoint.health != Health::Draining
}

pub(super) fn place(id: &endpoints::LocalityId) -> LocalityId {
    LocalityId::new(&id.region, &id.zone, &id.sub_zone)
}
