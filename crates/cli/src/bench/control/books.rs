//! The deliveries of a workload: the time at which each change was handed to the server, and the
//! time until each client had it. All clients share one record, because a workload waits until they
//! all have a change.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// The record of all deliveries, which all clients share.
#[derive(Clone, Debug, Default)]
pub(super) struct Books(Arc<SharedPages>);

#[derive(Debug, Default)]
struct SharedPages {
    pages: Mutex<Pages>,
    /// Tells that one more client has the change that is waited for.
    changed: Notify,
}

#[derive(Debug)]
struct Pages {
    /// The time at which each change was handed to the server, by its number.
    handed: Vec<Instant>,
    /// The time that each delivery took.
    microseconds: Vec<u32>,
    refusals: u64,
    /// The change that is waited for, and the number of clients that have it or a later one.
    awaited: u32,
    reached: usize,
}

impl Default for Pages {
    fn default() -> Self {
        Self {
            handed: vec![Instant::now()],
            microseconds: Vec::new(),
            refusals: 0,
            awaited: 0,
            reached: 0,
        }
    }
}

/// The latencies of the deliveries since the workload began, or since they were last taken.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Latencies {
    pub(super) deliveries: usize,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
}

impl Books {
    /// Notes that the next change is handed to the server now, and returns its number. It is waited for from now on.
    pub(super) fn hand(&self) -> u32 {
        let mut pages = self.lock();
        pages.handed.push(Instant::now());
        pages.awaited = u32::try_from(pages.handed.len() - 1).unwrap_or(u32::MAX);
        pages.reached = 0;
        pages.awaited
    }

    /// Notes that a client has these changes, and had all up to `before`.
    pub(super) fn delivered(&self, numbers: &[u32], before: u32) {
        let now = Instant::now();
        let mut pages = self.lock();
        let mut newest = before;
        for &number in numbers.iter().filter(|&&number| number > before) {
            newest = newest.max(number);
            if let Some(&handed) = pages.handed.get(number as usize) {
                let taken = now.saturating_duration_since(handed).as_micros();
                pages
                    .microseconds
                    .push(taken.try_into().unwrap_or(u32::MAX));
            }
        }
        if before < pages.awaited && newest >= pages.awaited {
            pages.reached += 1;
            self.0.changed.notify_one();
        }
    }

    /// Notes that a client refused a response.
    pub(super) fn refused(&self) {
        self.lock().refusals += 1;
    }

    /// Waits until so many clients have the newest change. Returns the number that have it if that takes too long.
    pub(super) async fn reached(&self, clients: usize, patience: Duration) -> Result<(), usize> {
        let all = async {
            while self.lock().reached < clients {
                self.0.changed.notified().await;
            }
        };
        let waited = tokio::time::timeout(patience, all).await;
        waited.map_err(|_| self.lock().reached)
    }

    /// Takes the latencies of the deliveries so far. The next call returns those of later
    /// deliveries.
    pub(super) fn take_latencies(&self) -> Latencies {
        Latencies::of(std::mem::take(&mut self.lock().microseconds))
    }

    /// The number of responses that clients refused.
    pub(super) fn refusals(&self) -> u64 {
        self.lock().refusals
    }

    fn lock(&self) -> MutexGuard<'_, Pages> {
        self.0.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Latencies {
    fn of(mut microseconds: Vec<u32>) -> Self {
        microseconds.sort_unstable();
        let at = |percent: usize| {
            let index =
                (microseconds.len() * percent / 100).min(microseconds.len().saturating_sub(1));
            let found = microseconds.get(index).copied().unwrap_or_default();
            f64::from(found) / 1e3
        };
        Self {
            deliveries: microseconds.len(),
            p50_ms: at(50),
            p99_ms: at(99),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_sorted_times() {
        let latencies = Latencies::of((0..1_000).rev().map(|each| each * 1_000).collect());
        assert_eq!(latencies.deliveries, 1_000);
        assert_eq!((latencies.p50_ms, latencies.p99_ms), (500.0, 990.0));
        assert_eq!(Latencies::of(Vec::new()).deliveries, 0);
    }

    #[tokio::test]
    async fn a_change_is_reached_when_all_clients_have_it_or_a_later_one() {
        let books = Books::default();
        assert_eq!((books.hand(), books.hand()), (1, 2));
        // One client skips the first change, because the server merged both.
        books.delivered(&[2], 0);
        books.delivered(&[1], 0);
        let short = Duration::from_millis(1);
        assert_eq!(books.reached(2, short).await, Err(1));
        books.delivered(&[2], 1);
        assert_eq!(books.reached(2, short).await, Ok(()));
        assert_eq!(books.take_latencies().deliveries, 3);
        assert_eq!(books.take_latencies().deliveries, 0);
    }

    #[test]
    fn an_older_change_is_not_delivered_twice() {
        let books = Books::default();
        books.hand();
        books.delivered(&[1, 0], 0);
        books.delivered(&[1], 1);
        assert_eq!(books.take_latencies().deliveries, 1);
    }
}
