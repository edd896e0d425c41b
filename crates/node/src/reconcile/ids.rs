//! Numbers that are given out once.
//!
//! Counters and sockets in the kernel refer to services and backends by number. A number that came back
//! too early would give one's connections to another.

use std::collections::HashSet;

/// Gives out numbers from 1, and none that is in use.
#[derive(Debug, Default)]
pub(super) struct Ids {
    last: u32,
    used: HashSet<u32>,
}

impl Ids {
    /// A number that nobody uses. Numbers go up, so one returns after 2^32 others at the earliest.
    pub(super) fn take(&mut self) -> u32 {
        loop {
            self.last = self.last.wrapping_add(1);
            if self.last != 0 && self.used.insert(self.last) {
                return self.last;
            }
        }
    }

    /// Takes note of a number that is in use already.
    pub(super) fn found(&mut self, id: u32) {
        self.last = self.last.max(id);
        self.used.insert(id);
    }

    /// Frees a number that nothing in the kernel ever referred to.
    pub(super) fn give_back(&mut self, id: u32) {
        self.used.remove(&id);
    }

    /// The count of numbers that are in use.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.used.len()
    }

    /// Frees all others.
    pub(super) fn retain(&mut self, in_use: HashSet<u32>) {
        self.used = in_use;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_in_use_is_not_given_out_again() {
        let mut ids = Ids::default();
        ids.found(u32::MAX - 1);
        ids.found(1);
        assert_eq!(ids.take(), u32::MAX);
        assert_eq!(ids.take(), 2, "neither 0 nor 1");
        ids.retain(HashSet::from([2]));
        assert_eq!(ids.take(), 3, "numbers go up, whatever is free");
    }
}
