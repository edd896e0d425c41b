//! A number of things that all clients share, of which one address may take a part. So one machine
//! that opens connections without end leaves some for the others.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A number of things. Each is taken by a [`Ticket`], and free again when that is dropped.
#[derive(Debug)]
pub(crate) struct Quota {
    all: usize,
    of_address: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// The total that has none left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spent {
    All(usize),
    OfAddress(usize),
}

impl Quota {
    pub(crate) fn new(all: usize, of_address: usize) -> Arc<Self> {
        Arc::new(Self {
            all,
            of_address,
            taken: Mutex::default(),
        })
    }

    /// Takes one for a client at `address`.
    pub(crate) fn take(self: &Arc<Self>, address: IpAddr) -> Result<Ticket, Spent> {
        let address = network(address);
        let mut taken = self.lock();
        if taken.all >= self.all {
            return Err(Spent::All(self.all));
        }
        let of_address = taken.by_address.entry(address).or_default();
        if *of_address >= self.of_address {
            return Err(Spent::OfAddress(self.of_address));
        }
        *of_address += 1;
        taken.all += 1;
        drop(taken);
        Ok(Ticket {
            quota: Arc::clone(self),
            address,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One thing that is taken.
#[derive(Debug)]
pub(crate) struct Ticket {
    quota: Arc<Quota>,
    address: IpAddr,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut taken = self.quota.lock();
        taken.all -= 1;
        if let Some(of_address) = taken.by_address.get_mut(&self.address) {
            *of_address -= 1;
            if *of_address == 0 {
                taken.by_address.remove(&self.address);
            }
        }
    }
}

/// The address by which a client is counted. A client with IPv6 has a whole network of 64 bits.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// L-09: of any sequence of takings and returns, no total is exceeded, and nothing that was
        /// returned stays taken.
        #[test]
        fn totals_hold(steps in prop::collection::vec((any::<bool>(), 0_u8..4, 0_usize..20), 0..200)) {
            let quota = Quota::new(10, 4);
            let mut held: Vec<(IpAddr, Ticket)> = Vec::new();
            for (takes, host, index) in steps {
                let address = IpAddr::from([127, 0, 0, host]);
                if !takes {
                    if !held.is_empty() {
                        held.swap_remove(index % held.len());
                    }
                    continue;
                }
                let of_address = held.iter().filter(|(at, _)| *at == address).count();
                match quota.take(address) {
                    Ok(ticket) => {
                        prop_assert!(held.len() < 10 && of_address < 4);
                        held.push((address, ticket));
                    }
                    Err(Spent::All(10)) => prop_assert_eq!(held.len(), 10),
                    Err(Spent::OfAddress(4)) => prop_assert_eq!(of_address, 4),
                    Err(other) => prop_assert!(false, "{:?}", other),
                }
            }
            drop(held);
            let taken = quota.lock();
            prop_assert!(taken.all == 0 && taken.by_address.values().all(|count| *count == 0));
        }
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let of = |text: &str| network(text.parse().unwrap()).to_string();
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(of("::ffff:10.0.0.1"), "10.0.0.1");
        assert_eq!(of("10.0.0.1"), "10.0.0.1");
    }
}
