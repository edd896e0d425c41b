//! The endpoints of a plan, each with its weight.
//!
//! Weights depend on locality and policy (gRFC A113), so they are worked out before the plan is made.

use std::num::{NonZeroU32, NonZeroU64};

use crowfly_lb::{Endpoint, Policy};
use crowfly_model::bootstrap::is_switched_off;
use crowfly_model::grpc::endpoints::{self, EdsLocality, Health};

/// The environment variable of gRFC A113. Off means that endpoints have the weights from before A113. The variable is
/// on by default.
const WEIGHTED_SHUFFLING: &str = "GRPC_EXPERIMENTAL_PF_WEIGHTED_SHUFFLING";

/// 1 as a fixed-point number with 31 bits after the point.
const ONE: u64 = 1 << 31;

/// The rule for the weight of an endpoint among all endpoints of a priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weighing {
    /// All endpoints have the same weight.
    Equal,
    /// The weight is the weight of the locality times the endpoint's own weight (gRFC A42). So a locality with more
    /// endpoints gets more calls.
    Products,
    /// The weight is the share of the locality times the endpoint's share inside it. Calls are spread as if
    /// the locality were chosen first, and the endpoint then (gRFC A113).
    Shares,
}

impl Weighing {
    /// The rule that the environment variable of gRFC A113 chooses.
    pub(super) fn from_env() -> Self {
        Self::read(is_switched_off)
    }

    fn read(is_off: impl Fn(&str) -> bool) -> Self {
        if is_off(WEIGHTED_SHUFFLING) {
            Self::Products
        } else {
            Self::Shares
        }
    }

    /// The rule for the endpoints of a policy. The rule differs for `pick_first` alone, because `pick_first` shuffled
    /// without weights before A113 (gRFC A62).
    pub(super) fn under(self, policy: &Policy) -> Self {
        match (self, policy) {
            (Self::Products, Policy::PickFirst { .. }) => Self::Equal,
            (weighing, _) => weighing,
        }
    }

    /// The endpoints of one locality. The weight of the locality is left out, because all of them have it.
    pub(super) fn inside(self, locality: &EdsLocality) -> Vec<Endpoint> {
        let mut endpoints: Vec<_> = usable(locality).filter_map(endpoint).collect();
        if self == Self::Equal {
            for endpoint in &mut endpoints {
                endpoint.weight = NonZeroU64::MIN;
            }
        }
        endpoints
    }

    /// The endpoints of a priority, for a policy that sees those of all localities at once. Each has the id
    /// of its locality.
    pub(super) fn everywhere(self, localities: &[EdsLocality]) -> Vec<Endpoint> {
        let all = sum(localities.iter().map(|locality| locality.weight));
        let mut endpoints = Vec::new();
        for locality in localities {
            let id = locality.id.clone();
            let siblings = sum(usable(locality).map(|source| source.weight));
            endpoints.extend(usable(locality).filter_map(|source| {
                let mut endpoint = endpoint(source)?;
                endpoint.locality = Some(id.clone());
                endpoint.weight = match self {
                    Self::Equal => NonZeroU64::MIN,
                    Self::Products => {
                        NonZeroU64::from(locality.weight).saturating_mul(source.weight.into())
                    }
                    Self::Shares => {
                        product(share(locality.weight, all), share(source.weight, siblings))
                    }
                };
                Some(endpoint)
            }));
        }
        endpoints
    }
}

/// The draining endpoints of a priority, each with its locality.
pub(super) fn draining(localities: &[EdsLocality]) -> impl Iterator<Item = Endpoint> {
    localities.iter().flat_map(|locality| {
        let id = locality.id.clone();
        let draining = locality.endpoints.iter().filter(|e| !takes_calls(e));
        draining.filter_map(move |source| {
            let mut endpoint = endpoint(source)?;
            endpoint.locality = Some(id.clone());
            Some(endpoint)
        })
    })
}

/// True if an endpoint gets new calls. A draining endpoint gets only calls of its sessions (gRFC A55), so it does not
/// count in the share of its locality either.
pub(super) fn takes_calls(endpoint: &endpoints::EdsEndpoint) -> bool {
    endpoint.health != Health::Draining
}

fn usable(locality: &EdsLocality) -> impl Iterator<Item = &endpoints::EdsEndpoint> {
    locality.endpoints.iter().filter(|e| takes_calls(e))
}

fn endpoint(source: &endpoints::EdsEndpoint) -> Option<Endpoint> {
    let mut endpoint = Endpoint::new(source.addresses.clone())?;
    endpoint.weight = source.weight.into();
    endpoint.health = health(source.health);
    endpoint.hash_key = source.hash_key.as_deref().map(Into::into);
    Some(endpoint)
}

/// The balancer's form of a health.
pub(super) fn health(health: Health) -> crowfly_lb::Health {
    match health {
        Health::Draining => crowfly_lb::Health::Draining,
        Health::Healthy => crowfly_lb::Health::Healthy,
        Health::Unknown => crowfly_lb::Health::Unknown,
    }
}

fn sum(weights: impl Iterator<Item = NonZeroU32>) -> u64 {
    weights.map(|weight| u64::from(weight.get())).sum()
}

/// The share of `weight` in `sum`, as a fixed-point number. `sum` is not 0, because `weight` is part of it.
fn share(weight: NonZeroU32, sum: u64) -> u64 {
    u64::from(weight.get()) * ONE / sum
}

/// The product of two shares, rounded down, but at least the smallest share, so that it is never 0.
fn product(left: u64, right: u64) -> NonZeroU64 {
    NonZeroU64::new((left * right) >> 31).unwrap_or(NonZeroU64::MIN)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "test code")]

    use std::net::SocketAddr;

    use super::*;

    /// A locality with endpoints of these weights.
    fn locality(zone: &str, weight: u32, endpoints: &[u32]) -> EdsLocality {
        let endpoint = |weight: &u32| endpoints::EdsEndpoint {
            addresses: vec![SocketAddr::from(([10, 0, 0, 1], 80))],
            weight: NonZeroU32::new(*weight).unwrap(),
            health: Health::Unknown,
            hash_key: None,
            hostname: None,
        };
        EdsLocality {
            id: endpoints::LocalityId::new("eu", zone, ""),
            weight: NonZeroU32::new(weight).unwrap(),
            endpoints: endpoints.iter().map(endpoint).collect(),
        }
    }

    fn weights(endpoints: &[Endpoint]) -> Vec<u64> {
        endpoints.iter().map(|e| e.weight.get()).collect()
    }

    /// A113: the share of a locality does not depend on the number and the weights of its endpoints. The share is a
    /// fixed-point number, as in every other gRPC client.
    #[test]
    fn a_locality_has_its_share() {
        let localities = [
            locality("a", 1, &[1, 1, 1, 1]),
            locality("b", 2, &[100]),
            locality("c", 1, &[30, 10]),
        ];
        let all = Weighing::Shares.everywhere(&localities);
        let expected = [
            1 << 27,
            1 << 27,
            1 << 27,
            1 << 27,
            1 << 30,
            3 << 27,
            1 << 27,
        ];
        assert_eq!(weights(&all), expected);
        let places = all.iter().map(|e| e.locality.as_ref().unwrap().to_string());
        let zones = ["eu/a", "eu/a", "eu/a", "eu/a", "eu/b", "eu/c", "eu/c"];
        assert_eq!(places.collect::<Vec<_>>(), zones);
    }

    /// A113: fractions are rounded down, but never to zero.
    #[test]
    fn shares_are_rounded_down_to_one_at_least() {
        let thirds = Weighing::Shares.everywhere(&[locality("a", 7, &[1, 1, 1])]);
        assert_eq!(weights(&thirds), [715_827_882; 3]);
        let much = u32::MAX - 1;
        let localities = [locality("a", 1, &[1, much]), locality("b", much, &[1])];
        let tiny = Weighing::Shares.everywhere(&localities);
        assert_eq!(weights(&tiny), [1, 1, (1 << 31) - 1]);
    }

    /// A draining endpoint has no part in the share of its locality, because it gets no new calls. The other
    /// endpoints have the whole share.
    #[test]
    fn draining_endpoints_have_no_share() {
        let mut localities = [locality("a", 1, &[1, 1]), locality("b", 1, &[1, 1])];
        localities[0].endpoints[0].health = Health::Draining;
        let all = Weighing::Shares.everywhere(&localities);
        assert_eq!(weights(&all), [1 << 30, 1 << 29, 1 << 29]);
        assert_eq!(Weighing::Shares.inside(&localities[0]).len(), 1);
    }

    /// Inside of a locality the weights are those that the server gives.
    #[test]
    fn a_locality_alone_needs_no_shares() {
        let inside = Weighing::Shares.inside(&locality("a", 7, &[3, 1]));
        assert_eq!(weights(&inside), [3, 1]);
        assert_eq!(inside[0].locality, None);
    }

    /// The variable of A113 brings back the products of A42, and for `pick_first` the shuffle of A62.
    #[test]
    fn the_variable_turns_shares_off() {
        let named = |variable: &str| variable == "GRPC_EXPERIMENTAL_PF_WEIGHTED_SHUFFLING";
        assert_eq!(
            Weighing::read(|variable| !named(variable)),
            Weighing::Shares
        );
        let off = Weighing::read(named);

        let localities = [locality("a", 2, &[3, 1]), locality("b", 5, &[4])];
        let by = |weighing: Weighing, policy: &Policy| {
            let weighing = weighing.under(policy);
            let inside = weights(&weighing.inside(&localities[0]));
            (weights(&weighing.everywhere(&localities)), inside)
        };
        let shuffle = Policy::PickFirst { shuffle: true };
        assert_eq!(by(off, &Policy::RoundRobin), (vec![6, 2, 20], vec![3, 1]));
        assert_eq!(by(off, &shuffle), (vec![1, 1, 1], vec![1, 1]));
        assert_eq!(by(Weighing::Shares, &shuffle).1, [3, 1]);
    }
}
