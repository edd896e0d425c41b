//! The times at which names are looked up; without I/O, so that tests run in simulated time.
//!
//! A name is looked up once. The name is looked up again when the balancer asks (gRFC A37, A74), because only
//! connections show if its addresses still work. An interval set by the user causes a lookup too. A balancer whose
//! backends are down asks often, so requests cause one lookup in 30 seconds at most.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crowfly_model::grpc::cluster::DnsName;

/// The least time between the starts of two lookups of a name on request. gRPC's own DNS resolvers
/// have the same interval.
pub(super) const MINIMUM_INTERVAL: Duration = Duration::from_secs(30);

/// The names that are watched. Each is looked up by one lookup at a time.
#[derive(Debug)]
pub(super) struct Schedule {
    minimum_interval: Duration,
    refresh: Option<Duration>,
    names: BTreeMap<DnsName, Entry>,
    under_way: BTreeMap<Ticket, DnsName>,
    next_ticket: Ticket,
}

/// The number of a lookup, by which it differs from an earlier one of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Ticket(u64);

#[derive(Debug, Default)]
struct Entry {
    /// The start of the last lookup; `None` if there was none.
    started: Option<Instant>,
    /// The lookup that is under way.
    ticket: Option<Ticket>,
    /// True if another lookup was asked for.
    requested: bool,
}

impl Schedule {
    pub(super) fn new(minimum_interval: Duration, refresh: Option<Duration>) -> Self {
        Self {
            minimum_interval,
            refresh,
            names: BTreeMap::new(),
            under_way: BTreeMap::new(),
            next_ticket: Ticket(0),
        }
    }

    /// Begins to look `name` up at once, unless it is watched already. Nothing is remembered of an earlier
    /// watch.
    pub(super) fn watch(&mut self, name: &DnsName) {
        if !self.names.contains_key(name) {
            self.names.insert(name.clone(), Entry::default());
        }
    }

    /// Forgets `name`, and returns its lookup under way, which is to be aborted.
    pub(super) fn unwatch(&mut self, name: &DnsName) -> Option<Ticket> {
        let ticket = self.names.remove(name)?.ticket?;
        self.under_way.remove(&ticket);
        Some(ticket)
    }

    /// Asks for another lookup of every name, because a balancer's request does not name one (gRFC A74).
    pub(super) fn request(&mut self) {
        for entry in self.names.values_mut() {
            // The first lookup is due in any case, and asking for it is no reason for a second.
            entry.requested |= entry.started.is_some();
        }
    }

    /// The next lookup that should start now.
    pub(super) fn poll(&mut self, now: Instant) -> Option<(Ticket, DnsName)> {
        let (minimum_interval, refresh) = (self.minimum_interval, self.refresh);
        let is_due = |entry: &Entry| match entry.due(minimum_interval, refresh) {
            Due::At(at) => at <= now,
            Due::Never => false,
            Due::Now => true,
        };
        let (name, entry) = self.names.iter_mut().find(|(_, entry)| is_due(entry))?;
        let ticket = self.next_ticket;
        self.next_ticket = Ticket(ticket.0 + 1);
        *entry = Entry {
            started: Some(now),
            ticket: Some(ticket),
            requested: false,
        };
        self.under_way.insert(ticket, name.clone());
        Some((ticket, name.clone()))
    }

    /// Records the end of a lookup. `None` if the watch that began it has ended.
    ///
    /// A failed lookup is a request for another.
    pub(super) fn finished(&mut self, ticket: Ticket, is_success: bool) -> Option<DnsName> {
        let name = self.under_way.remove(&ticket)?;
        let entry = self.names.get_mut(&name)?;
        entry.ticket = None;
        entry.requested |= !is_success;
        Some(name)
    }

    /// The time to call [`poll`](Self::poll) again, if nothing else happens before.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let due = |entry: &Entry| match entry.due(self.minimum_interval, self.refresh) {
            Due::At(at) => Some(at),
            Due::Never | Due::Now => None,
        };
        self.names.values().filter_map(due).min()
    }
}

enum Due {
    At(Instant),
    Never,
    Now,
}

impl Entry {
    fn due(&self, minimum_interval: Duration, refresh: Option<Duration>) -> Due {
        let Some(started) = self.started else {
            return Due::Now;
        };
        if self.ticket.is_some() {
            return Due::Never;
        }
        let requested = self.requested.then_some(minimum_interval);
        let interval = requested.into_iter().chain(refresh).min();
        // An interval too long to add is one that does not end.
        match interval.and_then(|interval| started.checked_add(interval)) {
            Some(at) => Due::At(at),
            None => Due::Never,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    struct Sim {
        schedule: Schedule,
        now: Instant,
    }

    impl Sim {
        fn new(refresh: Option<Duration>) -> Self {
            Self {
                schedule: Schedule::new(MINIMUM_INTERVAL, refresh),
                now: Instant::now(),
            }
        }

        fn watching(refresh: Option<Duration>, hosts: &[&str]) -> Self {
            let mut sim = Self::new(refresh);
            hosts
                .iter()
                .for_each(|host| sim.schedule.watch(&name(host)));
            sim
        }

        /// Starts the lookups that are due.
        fn started(&mut self) -> Vec<(Ticket, DnsName)> {
            std::iter::from_fn(|| self.schedule.poll(self.now)).collect()
        }

        /// Starts the lookups that are due, and ends them at once.
        fn looked_up(&mut self, is_success: bool) -> Vec<String> {
            let started = self.started().into_iter();
            started
                .map(|(ticket, _)| self.schedule.finished(ticket, is_success).unwrap().host)
                .collect()
        }

        fn wait(&mut self, time: Duration) {
            self.now += time;
        }

        fn due_in(&self) -> Option<Duration> {
            let timeout = self.schedule.next_timeout()?;
            Some(timeout.saturating_duration_since(self.now))
        }
    }

    fn name(host: &str) -> DnsName {
        DnsName {
            host: host.to_owned(),
            port: 80,
        }
    }

    #[test]
    fn a_name_is_looked_up_once_and_then_never() {
        let mut sim = Sim::watching(None, &["a"]);
        assert_eq!(sim.looked_up(true), ["a"]);
        assert_eq!(sim.due_in(), None);
        sim.wait(1000 * SECOND);
        sim.schedule.watch(&name("a"));
        assert!(sim.started().is_empty());
    }

    #[test]
    fn many_requests_inside_the_window_are_one_lookup_at_its_end() {
        let mut sim = Sim::watching(None, &["a"]);
        sim.looked_up(true);
        for _ in 0..29 {
            sim.wait(SECOND);
            sim.schedule.request();
            assert!(sim.started().is_empty());
        }
        assert_eq!(sim.due_in(), Some(SECOND));
        sim.wait(SECOND);
        assert_eq!(sim.looked_up(true), ["a"]);
        assert_eq!(sim.due_in(), None);
    }

    #[test]
    fn a_request_after_the_window_is_done_at_once_and_opens_the_next_window() {
        let mut sim = Sim::watching(None, &["a"]);
        sim.looked_up(true);
        sim.wait(31 * SECOND);
        sim.schedule.request();
        assert_eq!(sim.due_in(), Some(Duration::ZERO));
        assert_eq!(sim.looked_up(true), ["a"]);
        sim.schedule.request();
        assert!(sim.started().is_empty());
        assert_eq!(sim.due_in(), Some(30 * SECOND));
    }

    #[test]
    fn a_request_goes_to_every_name_and_each_has_its_own_window() {
        let mut sim = Sim::watching(None, &["a"]);
        sim.looked_up(true);
        sim.wait(20 * SECOND);
        sim.schedule.watch(&name("b"));
        assert_eq!(sim.looked_up(true), ["b"]);
        sim.wait(15 * SECOND);
        sim.schedule.request();
        assert_eq!(sim.looked_up(true), ["a"]);
        assert_eq!(sim.due_in(), Some(15 * SECOND));
        sim.wait(15 * SECOND);
        assert_eq!(sim.looked_up(true), ["b"]);
    }

    #[test]
    fn a_request_before_the_first_lookup_adds_nothing() {
        let mut sim = Sim::watching(None, &["a"]);
        sim.schedule.request();
        assert_eq!(sim.looked_up(true), ["a"]);
        assert_eq!(sim.due_in(), None);
    }

    #[test]
    fn a_failed_lookup_is_repeated_when_the_window_ends() {
        let mut sim = Sim::watching(None, &["a"]);
        let [(ticket, _)] = sim.started()[..] else {
            panic!("expected one lookup");
        };
        sim.wait(10 * SECOND);
        assert_eq!(sim.schedule.finished(ticket, false), Some(name("a")));
        assert_eq!(sim.due_in(), Some(20 * SECOND));
        sim.wait(20 * SECOND);
        assert_eq!(sim.looked_up(false), ["a"]);
        sim.wait(30 * SECOND);
        assert_eq!(sim.looked_up(true), ["a"]);
        assert_eq!(sim.due_in(), None);
    }

    #[test]
    fn lookups_of_a_name_never_overlap() {
        let mut sim = Sim::watching(Some(5 * SECOND), &["a"]);
        let [(ticket, _)] = sim.started()[..] else {
            panic!("expected one lookup");
        };
        sim.schedule.request();
        sim.wait(40 * SECOND);
        assert!(sim.started().is_empty());
        assert_eq!(sim.due_in(), None);
        sim.schedule.finished(ticket, true).unwrap();
        assert_eq!(sim.looked_up(true), ["a"]);
    }

    #[test]
    fn the_refresh_interval_counts_from_the_start_of_the_last_lookup() {
        let mut sim = Sim::watching(Some(45 * SECOND), &["a"]);
        sim.looked_up(true);
        assert_eq!(sim.due_in(), Some(45 * SECOND));
        sim.wait(SECOND);
        sim.schedule.request();
        assert_eq!(sim.due_in(), Some(29 * SECOND));
        sim.wait(29 * SECOND);
        assert_eq!(sim.looked_up(true), ["a"]);
        assert_eq!(sim.due_in(), Some(45 * SECOND));
    }

    #[test]
    fn a_refresh_interval_under_the_minimum_is_the_users_choice() {
        let mut sim = Sim::watching(Some(5 * SECOND), &["a"]);
        for _ in 0..3 {
            assert_eq!(sim.looked_up(false), ["a"]);
            sim.wait(5 * SECOND);
        }
    }

    #[test]
    fn the_answer_to_a_name_that_was_let_go_is_not_wanted() {
        let mut sim = Sim::watching(None, &["a"]);
        let [(ticket, _)] = sim.started()[..] else {
            panic!("expected one lookup");
        };
        assert_eq!(sim.schedule.unwatch(&name("a")), Some(ticket));
        assert_eq!(sim.schedule.finished(ticket, true), None);
        assert_eq!(sim.due_in(), None);
        assert_eq!(sim.schedule.unwatch(&name("a")), None);
    }

    #[test]
    fn to_watch_again_is_to_start_anew() {
        let mut sim = Sim::watching(None, &["a"]);
        let [(first, _)] = sim.started()[..] else {
            panic!("expected one lookup");
        };
        sim.schedule.unwatch(&name("a"));
        sim.schedule.watch(&name("a"));
        let [(second, _)] = sim.started()[..] else {
            panic!("expected one lookup");
        };
        assert_eq!(sim.schedule.finished(first, true), None);
        assert_eq!(sim.schedule.finished(second, true), Some(name("a")));
    }
}
