//! The pace of new connections, for all addresses together and for each of them.
//!
//! Each address has a pace of its own, because one address must not use up the pace of all others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::quota::network;
use super::{Limits, Pacer};

/// The longest time that a connection waits until it is taken. A client that waits longer tries
/// again anyway.
const PATIENCE: Duration = Duration::from_secs(5);

/// The seconds' worth of connections that are taken at once, because all clients of a control plane
/// that was restarted come at once.
const BURST_SECONDS: u32 = 5;

/// The number of addresses from which idle ones are looked for.
const MANY: usize = 1_024;

/// The pace of new connections.
#[derive(Debug)]
pub(crate) struct Gate {
    all: Pacer,
    of_address: u32,
    by_address: HashMap<IpAddr, Pacer>,
    /// The number of addresses at which idle ones are forgotten.
    forget_at: usize,
}

impl Gate {
    pub(crate) fn new(limits: &Limits) -> Self {
        let all = limits.connects_per_second;
        let total = usize::try_from(all).unwrap_or(usize::MAX);
        Self {
            all: Pacer::new(all, BURST_SECONDS),
            of_address: limits.of_address(total).try_into().unwrap_or(all),
            by_address: HashMap::new(),
            forget_at: MANY,
        }
    }

    /// The time at which a connection from `address` may ask to be taken; `None` if it is refused.
    pub(crate) fn reserve(&mut self, address: IpAddr, now: Instant) -> Option<Instant> {
        self.forget_idle(now);
        let of_address = self.of_address;
        let pacer = self.by_address.entry(network(address));
        let pacer = pacer.or_insert_with(|| Pacer::new(of_address, BURST_SECONDS));
        pacer.reserve(1, PATIENCE, now)
    }

    /// The time at which a connection whose address has waited is taken; `None` if it is refused. It
    /// is asked for after that wait, because connections that wait must not take the place of others.
    pub(crate) fn enter(&mut self, now: Instant) -> Option<Instant> {
        self.all.reserve(1, PATIENCE, now)
    }

    fn forget_idle(&mut self, now: Instant) {
        if self.by_address.len() >= self.forget_at {
            self.by_address.retain(|_, pacer| !pacer.is_idle(now));
            self.forget_at = MANY.max(self.by_address.len() * 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate() -> Gate {
        Gate::new(&Limits {
            connects_per_second: 100,
            ..Limits::default()
        })
    }

    /// L-06: an address that connects without end is refused, and others are taken at once.
    #[test]
    fn an_address_takes_its_share_alone() {
        let (mut gate, now) = (gate(), Instant::now());
        let [loud, quiet] = [1, 2].map(|host| IpAddr::from([10, 0, 0, host]));
        let taken: Vec<Instant> = (0..10_000)
            .filter_map(|_| gate.reserve(loud, now))
            .collect();
        assert_eq!(
            taken.len(),
            500,
            "five seconds' worth at once, and five that wait"
        );
        let at_once = taken.iter().filter(|at| **at == now).count();
        assert_eq!(at_once, 250);
        assert!((0..at_once).all(|_| gate.enter(now) == Some(now)));
        assert_eq!(gate.reserve(quiet, now), Some(now));
        assert_eq!(gate.enter(now), Some(now));
    }

    /// L-06: addresses that keep their pace each do not exceed that of all together.
    #[test]
    fn all_addresses_share_a_pace() {
        let (mut gate, now) = (gate(), Instant::now());
        let taken: Vec<Instant> = (0..10_000).filter_map(|_| gate.enter(now)).collect();
        assert_eq!(taken.len(), 1_000);
        assert_eq!(taken.iter().filter(|at| **at == now).count(), 500);
    }

    /// L-06: an address that has taken its share is not forgotten because of others.
    #[test]
    fn busy_addresses_are_remembered() {
        let (mut gate, now) = (gate(), Instant::now());
        let loud = IpAddr::from([10, 0, 0, 1]);
        while gate.reserve(loud, now).is_some() {}
        for host in 0..10 * u32::try_from(MANY).unwrap() {
            gate.reserve(IpAddr::from(host.to_be_bytes()), now);
        }
        assert_eq!(gate.reserve(loud, now), None);
    }

    #[test]
    fn addresses_are_forgotten() {
        let (mut gate, mut now) = (gate(), Instant::now());
        for host in 0..100_000_u32 {
            now += Duration::from_millis(20);
            gate.reserve(IpAddr::from(host.to_be_bytes()), now);
        }
        assert!(gate.by_address.len() <= MANY, "{}", gate.by_address.len());
    }
}
