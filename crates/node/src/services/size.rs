//! The size of a service, before routes are made of it.
//!
//! One value of a source may name thousands of frontends and thousands of endpoints. Their product would fill the
//! memory of the machine and the maps, so it is known before a list of targets is.

use std::net::IpAddr;
use std::sync::Arc;

use crate::model::{Backend, PortName, ServicePort};
use crate::select::Pool;

/// The share of the maps that one service may have. A change needs room for the old slots and the new ones, and other
/// services need room as well.
const SHARE: u64 = 4;

/// The least limit. A small map protects the memory by itself, and must not refuse small services.
const LEAST: u64 = 1024;

/// A selection goes over all endpoints of a service, also over those without its port. So there may be this many
/// times as many of them.
const LOOKS: u64 = 8;

/// The most pairs of a frontend and an endpoint that one service may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit(u64);

impl Limit {
    /// The limit for maps with room for so many slots.
    pub(super) fn of(slots: u32) -> Self {
        Self((u64::from(slots) / SHARE).max(LEAST))
    }

    /// The reason why a service is not routed; `None` if it is within the limit.
    pub(super) fn refuses(self, pool: &Pool<'_>) -> Option<Arc<str>> {
        let service = pool.service;
        let addresses = by_family(service.cluster_ips());
        let ports = count(service.ports.len());
        let frontends = ports.saturating_mul(addresses.iter().sum());
        let endpoints = backends(pool).map(|backend| count(backend.addresses.len()));
        let endpoints: u64 = endpoints.sum();
        let looks = frontends.saturating_mul(endpoints);
        let is_within = looks <= self.0
            || looks <= self.0.saturating_mul(LOOKS) && pairs(pool, addresses) <= self.0;
        if is_within {
            return None;
        }
        let reason = format!(
            "its {frontends} frontends with {endpoints} endpoints are too many: one service may have {} pairs of a \
             frontend and an endpoint (a quarter of --max-backends)",
            self.0
        );
        Some(reason.into())
    }
}

/// The pairs of a frontend and an endpoint of its port and IP family.
fn pairs(pool: &Pool<'_>, addresses: [u64; 2]) -> u64 {
    let pairs = pool.service.ports.iter().map(|port| {
        let key = key(port);
        let serving = backends(pool).filter(|backend| backend.ports.contains_key(&key));
        let pairs = serving.map(|backend| {
            let endpoints = by_family(&backend.addresses);
            addresses[0] * endpoints[0] + addresses[1] * endpoints[1]
        });
        pairs.sum::<u64>()
    });
    pairs.sum()
}

fn key(port: &ServicePort) -> PortName {
    PortName {
        name: Arc::clone(&port.name),
        protocol: port.protocol,
    }
}

fn backends<'a>(pool: &'a Pool<'_>) -> impl Iterator<Item = &'a Backend> {
    let own = pool.service.backends.iter();
    own.chain(pool.remote.iter().copied())
}

/// The number of IPv4 addresses, and of IPv6 addresses.
fn by_family(addresses: &[IpAddr]) -> [u64; 2] {
    let v4 = addresses.iter().filter(|address| address.is_ipv4()).count();
    [v4, addresses.len() - v4].map(count)
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
