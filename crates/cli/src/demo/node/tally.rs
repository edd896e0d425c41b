//! Counts the connections of the client so far. One task adds the reports of the client, and the
//! steps of the demo read the counts.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::peer::{Failure, Seen};

/// The counts, which the client's reports add to.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    counts: Arc<Mutex<Counts>>,
}

/// The connections until some moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) by_backend: BTreeMap<String, u64>,
    pub(super) failures: BTreeMap<String, u64>,
    /// The failures, each with its time.
    pub(super) failed: Vec<Failure>,
}

impl Tally {
    pub(super) fn add(&self, seen: Seen) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, count) in seen.answers {
            *counts.by_backend.entry(name).or_default() += count;
        }
        for (error, count) in seen.failures {
            *counts.failures.entry(error).or_default() += count;
        }
        counts.failed.extend(seen.failed);
    }

    pub(super) fn now(&self) -> Counts {
        let counts = self.counts.lock();
        counts.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Counts {
    pub(super) fn ok(&self) -> u64 {
        self.by_backend.values().sum()
    }

    pub(super) fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    pub(super) fn sent(&self) -> u64 {
        self.ok() + self.failed()
    }

    pub(super) fn of(&self, backend: &str) -> u64 {
        self.by_backend.get(backend).copied().unwrap_or(0)
    }

    /// The connections to each backend since another moment.
    pub(super) fn since(&self, before: &Self, backend: &str) -> u64 {
        self.of(backend) - before.of(backend)
    }
}
