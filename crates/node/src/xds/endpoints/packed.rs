//! Endpoints in little memory.
//!
//! The cache keeps the endpoints of every cluster, for as long as they are in force. They differ in their addresses, and
//! often in nothing else. So what they have in common is kept once.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crowfly_names::LocalityId;

use super::{NodeEndpoint, Share};
use crate::model::Health;

/// The number of earlier endpoints that each one is compared with, because a resource may have very many.
const NEAR: usize = 4;

/// A list of endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Packed {
    addresses: Box<[Place]>,
    commons: Box<[Common]>,
}

/// An address of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    ip: IpAddr,
    /// False if it is an alternative to the address before it.
    is_first: bool,
    port: u16,
    /// The index of what it has in common with others.
    common: u32,
}

/// The parts of an endpoint beside its addresses, which it may share with others.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Common {
    health: Health,
    node: Option<Arc<str>>,
    locality: LocalityId,
    priority: u32,
    share: Share,
}

impl Packed {
    pub(super) fn new(endpoints: &[NodeEndpoint]) -> Self {
        let mut addresses = Vec::new();
        let mut commons: Vec<Common> = Vec::new();
        for endpoint in endpoints {
            let common = Common::of(endpoint);
            let near = commons.len().saturating_sub(NEAR);
            let found = commons[near..].iter().position(|known| *known == common);
            let at = found.map_or(commons.len(), |found| near + found);
            if found.is_none() {
                commons.push(common);
            }
            let places = endpoint.addresses.iter().enumerate();
            addresses.extend(places.map(|(nth, address)| Place {
                ip: address.ip(),
                is_first: nth == 0,
                port: address.port(),
                // A response is far too short for so many.
                common: u32::try_from(at).unwrap_or(u32::MAX),
            }));
        }
        Self {
            addresses: addresses.into(),
            commons: commons.into(),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = NodeEndpoint> {
        let endpoints = self.addresses.chunk_by(|_, next| !next.is_first);
        endpoints.filter_map(|places| {
            let common = usize::try_from(places.first()?.common).ok()?;
            let common = self.commons.get(common)?.clone();
            let addresses = places.iter();
            let addresses = addresses.map(|place| SocketAddr::new(place.ip, place.port));
            Some(NodeEndpoint {
                addresses: addresses.collect(),
                health: common.health,
                node: common.node,
                locality: common.locality,
                priority: common.priority,
                share: common.share,
            })
        })
    }
}

impl Common {
    fn of(endpoint: &NodeEndpoint) -> Self {
        Self {
            health: endpoint.health,
            node: endpoint.node.clone(),
            locality: endpoint.locality.clone(),
            priority: endpoint.priority,
            share: endpoint.share,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(last: u8, node: Option<&str>, others: u8) -> NodeEndpoint {
        let address = |port| SocketAddr::from(([10, 0, 0, last], port));
        NodeEndpoint {
            addresses: (0..=u16::from(others))
                .map(|nth| address(80 + nth))
                .collect(),
            health: Health::Healthy,
            node: node.map(Into::into),
            locality: LocalityId::new("r", "z", ""),
            priority: 1,
            share: Share {
                numerator: 2,
                denominator: 3,
            },
        }
    }

    /// Equal endpoints after each other are endpoints of their own, and each has its own addresses.
    #[test]
    fn endpoints_come_out_as_they_went_in() {
        let mut degraded = endpoint(3, Some("b"), 0);
        degraded.health = Health::Degraded;
        let all = [
            endpoint(1, None, 0),
            endpoint(1, None, 0),
            endpoint(2, Some("a"), 2),
            degraded,
            endpoint(2, Some("a"), 1),
            endpoint(4, None, 0),
        ];
        for length in 0..=all.len() {
            let packed = Packed::new(&all[..length]);
            assert!(
                packed.iter().eq(all[..length].iter().cloned()),
                "{packed:?}"
            );
        }
        assert_eq!(Packed::new(&all).commons.len(), 3);
    }
}
