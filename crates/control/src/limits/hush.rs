//! Log lines that a client can cause at will, and that must not fill the disk. Some are left out and
//! counted, because an operator needs the first lines and the number, and not all of them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Pacer;
use super::quota::network;

/// The most addresses whose lines are counted apart.
const MOST: usize = 4_096;

/// The lines of one kind.
#[derive(Debug)]
pub(crate) struct Hush(Mutex<State>);

/// The lines about clients, by the address of the client, because a client that comes back would else begin anew. One a
/// second is written, after ten at once, and the number of those that were left out.
#[derive(Debug, Default)]
pub(crate) struct Hushes(Mutex<States>);

#[derive(Debug)]
struct State {
    pacer: Pacer,
    left_out: u64,
}

#[derive(Debug, Default)]
struct States {
    by_address: HashMap<IpAddr, State>,
    /// The lines about the addresses that came when there were too many.
    others: State,
}

impl Hush {
    /// Lines of which so many are written in a second, with `seconds` worth at once.
    pub(crate) fn new(per_second: u32, seconds: u32) -> Self {
        Self(Mutex::new(State::new(per_second, seconds)))
    }

    /// The number of lines that were left out before this one; `None` if this one is left out, too.
    pub(crate) fn may_tell(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.may_tell(now)
    }
}

impl Hushes {
    /// The number of lines about this address that were left out before this one; `None` if this one is left out, too.
    pub(crate) fn may_tell(&self, address: IpAddr, now: Instant) -> Option<u64> {
        let mut states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        states.of(network(address), now).may_tell(now)
    }
}

impl States {
    fn of(&mut self, address: IpAddr, now: Instant) -> &mut State {
        let is_new = !self.by_address.contains_key(&address);
        if is_new && self.by_address.len() >= MOST {
            self.by_address.retain(|_, state| !state.pacer.is_idle(now));
            if self.by_address.len() >= MOST {
                return &mut self.others;
            }
        }
        self.by_address.entry(address).or_default()
    }
}

impl State {
    fn new(per_second: u32, seconds: u32) -> Self {
        Self {
            pacer: Pacer::new(per_second, seconds),
            left_out: 0,
        }
    }

    fn may_tell(&mut self, now: Instant) -> Option<u64> {
        if self.pacer.reserve(1, Duration::ZERO, now).is_none() {
            self.left_out += 1;
            return None;
        }
        Some(std::mem::take(&mut self.left_out))
    }
}

impl Default for State {
    fn default() -> Self {
        Self::new(1, 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_pace_are_counted() {
        let (hush, now) = (Hush::new(1, 10), Instant::now());
        let told = (0..1_000).filter_map(|_| hush.may_tell(now)).count();
        assert_eq!(told, 10);
        assert_eq!(hush.may_tell(now + Duration::from_secs(1)), Some(990));
        assert_eq!(hush.may_tell(now + Duration::from_secs(2)), Some(0));
    }

    /// L-15: an address has its lines, on however many connections, and so has a network of IPv6.
    #[test]
    fn lines_are_counted_by_address() {
        let (hushes, now) = (Hushes::default(), Instant::now());
        let loud = |host: u16| IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, host]);
        let told = (0..1_000).filter_map(|host| hushes.may_tell(loud(host), now));
        assert_eq!(told.count(), 10);
        let quiet = IpAddr::from([10, 0, 0, 1]);
        assert_eq!(hushes.may_tell(quiet, now), Some(0));
        let later = now + Duration::from_secs(1);
        assert_eq!(hushes.may_tell(loud(7), later), Some(990));
    }

    /// L-15: more addresses than are counted apart share their lines, and are counted once others are idle.
    #[test]
    fn addresses_of_lines_are_bounded() {
        let (hushes, now) = (Hushes::default(), Instant::now());
        let host = |number: usize| IpAddr::from(u32::try_from(number).unwrap().to_be_bytes());
        let told = |hosts: std::ops::Range<usize>, now| {
            let told = hosts.filter_map(|number| hushes.may_tell(host(number), now));
            told.count()
        };
        assert_eq!(told(0..10 * MOST, now), MOST + 10);
        assert_eq!(hushes.0.lock().unwrap().by_address.len(), MOST);
        let later = now + Duration::from_secs(60);
        assert_eq!(told(MOST..2 * MOST, later), MOST);
        assert!(hushes.0.lock().unwrap().by_address.len() <= MOST);
    }
}
