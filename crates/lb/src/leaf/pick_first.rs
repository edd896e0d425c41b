//! `pick_first` (A61, A62, A113): one connection for all calls.
//!
//! The driver sees all endpoints of the leaf as one endpoint with all of their addresses. Its
//! [`Race`](crate::Race) decides which address is dialled when, as for every endpoint. So a new
//! list of addresses is a new [`Command::Connect`](crate::Command::Connect) for the same endpoint.
//! The endpoint keeps its connection if the connected address stays. If it is failing, it stays so
//! until it is READY. A call is counted to the endpoint that has the connected address, because
//! outlier detection and session affinity ask which endpoint it was (A75).

use std::{borrow::Borrow, net::SocketAddr, num::NonZeroU64, sync::Arc};

use super::{
    LeafChoice, Outcome,
    members::{Members, describe},
};
use crate::{
    Connectivity,
    endpoint::{Owner, Pool, State},
    plan::Endpoint,
};

/// All endpoints as one, in the order in which they are to be tried; `None` if there are none.
pub(super) fn flatten(
    endpoints: &[Endpoint],
    shuffle: bool,
    rng: &mut fastrand::Rng,
) -> Option<Endpoint> {
    match shuffle {
        true => joined(&shuffled(endpoints, rng)),
        false => joined(endpoints),
    }
}

/// Connects at once, and after a connection is lost only when a call comes.
pub(super) fn refresh<T>(members: &mut Members, owner: &Owner, pool: &mut Pool<T>) -> Outcome<T> {
    members.looked(0, 0);
    let only = members.current.held.members.first().map(|list| list.id);
    if let Some(id) = only {
        pool.connect_new(id);
    }
    let Some(record) = only.and_then(|id| pool.get(id)) else {
        return Outcome::failing(describe(owner, None));
    };
    match &record.state {
        State::Connecting => Outcome::connecting(),
        State::Failing(failed) => {
            Outcome::failing(describe(owner, Some((&record.addresses, failed))))
        }
        State::Idle(wish) => Outcome {
            state: Connectivity::Idle,
            choice: LeafChoice::Wake(wish.clone()),
        },
        State::Ready(connection) => Outcome {
            state: Connectivity::Ready,
            choice: LeafChoice::One(connection.any().clone()),
        },
    }
}

/// An endpoint with the addresses of all endpoints, in order, and with their locality if it is one.
fn joined(endpoints: &[impl Borrow<Endpoint>]) -> Option<Endpoint> {
    let first: &Endpoint = endpoints.first()?.borrow();
    let mut is_one_locality = true;
    let mut have_one_address = true;
    let each = endpoints.iter().map(Borrow::borrow);
    // Endpoints mostly have one address. Then one look at each is enough, and a list whose length is known before is made
    // in its place.
    let firsts = each.clone().map(|endpoint: &Endpoint| {
        is_one_locality &= endpoint.locality == first.locality;
        have_one_address &= endpoint.addresses().len() == 1;
        endpoint.addresses()[0]
    });
    let mut addresses: Arc<[SocketAddr]> = firsts.collect();
    if !have_one_address {
        let all = each.flat_map(|endpoint| endpoint.addresses().iter().copied());
        addresses = all.collect();
    }
    let mut only = Endpoint::new(addresses)?;
    if is_one_locality {
        only.locality = first.locality.clone();
    }
    Some(only)
}

/// The endpoints in random order, in which a greater weight is likely to come earlier (A113).
fn shuffled<'a>(endpoints: &'a [Endpoint], rng: &mut fastrand::Rng) -> Vec<&'a Endpoint> {
    let keyed = endpoints.iter().map(|e| (random_key(e.weight, rng), e));
    let mut order: Vec<(f64, &Endpoint)> = keyed.collect();
    order.sort_by(|(left, _), (right, _)| left.total_cmp(right));
    order.into_iter().map(|(_, endpoint)| endpoint).collect()
}

/// The key of A113, `u^(1/weight)` in descending order, by its logarithm: the smallest is that of an
/// endpoint with the probability of its weight.
fn random_key(weight: NonZeroU64, rng: &mut fastrand::Rng) -> f64 {
    // In (0, 1]: the logarithm of 0 is not a number to divide.
    let uniform = 1.0 - rng.f64();
    -uniform.ln() / weight.get() as f64
}
