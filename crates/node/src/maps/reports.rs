//! The maps in which the agent remembers what it has reported.
//!
//! They are beside the counters in the kernel. So the agent after one that was killed knows which counts were reported
//! already. No program reads them.

use std::collections::BTreeMap;
use std::fmt;

use super::{CounterReader, Counters, MapError, Pair};

/// The number of a label. 0 is no label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LabelId(pub u32);

/// The longest text of a label, in bytes.
pub const MAX_LABEL: usize = 512;

/// The part of a pair's counters that load reports have told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reported {
    /// The label that the rest is to be told under.
    pub label: LabelId,
    /// Connections that were told to be opened.
    pub opened: u64,
    /// Connections that were told to have failed.
    pub failed: u64,
    /// Connections that were told to have ended otherwise.
    pub closed: u64,
}

impl Reported {
    /// All of these counters, under a label.
    pub fn all(label: LabelId, counters: &Counters) -> Self {
        Self {
            label,
            opened: counters.opened,
            failed: counters.failed,
            closed: counters.closed,
        }
    }
}

/// The counters, and the memory of what was told of them.
pub trait ReportMaps: fmt::Debug + Send {
    /// Reads the counters of all pairs.
    ///
    /// # Errors
    /// The map cannot be read.
    fn counters(&self) -> Result<Vec<(Pair, Counters)>, MapError>;

    /// A reader of the counters for another thread. Without one of their own, maps read them now.
    fn counter_reader(&self) -> CounterReader {
        let counters = self.counters();
        Box::new(move || counters)
    }

    /// Reads the counters of a pair. They are zero if there are none.
    ///
    /// # Errors
    /// The map cannot be read.
    fn counters_of(&self, pair: Pair) -> Result<Counters, MapError>;

    /// Reads what was told of each pair.
    ///
    /// # Errors
    /// The map cannot be read.
    fn reported(&self) -> Result<Vec<(Pair, Reported)>, MapError>;

    /// Reads the labels.
    ///
    /// # Errors
    /// The map cannot be read.
    fn labels(&self) -> Result<Vec<(LabelId, Vec<u8>)>, MapError>;

    /// Stores what was told of a pair; `None` forgets it.
    ///
    /// # Errors
    /// The change was not made.
    fn set_reported(&mut self, pair: Pair, reported: Option<Reported>) -> Result<(), MapError>;

    /// Stores a label of at most [`MAX_LABEL`] bytes; `None` forgets it.
    ///
    /// # Errors
    /// The change was not made.
    fn set_label(&mut self, id: LabelId, text: Option<&[u8]>) -> Result<(), MapError>;
}

impl<M: ReportMaps + ?Sized> ReportMaps for Box<M> {
    fn counters(&self) -> Result<Vec<(Pair, Counters)>, MapError> {
        (**self).counters()
    }

    fn counter_reader(&self) -> CounterReader {
        (**self).counter_reader()
    }

    fn counters_of(&self, pair: Pair) -> Result<Counters, MapError> {
        (**self).counters_of(pair)
    }

    fn reported(&self) -> Result<Vec<(Pair, Reported)>, MapError> {
        (**self).reported()
    }

    fn labels(&self) -> Result<Vec<(LabelId, Vec<u8>)>, MapError> {
        (**self).labels()
    }

    fn set_reported(&mut self, pair: Pair, reported: Option<Reported>) -> Result<(), MapError> {
        (**self).set_reported(pair, reported)
    }

    fn set_label(&mut self, id: LabelId, text: Option<&[u8]>) -> Result<(), MapError> {
        (**self).set_label(id, text)
    }
}

/// The maps in memory, for tests.
#[derive(Clone, Debug, Default)]
pub struct MemoryReports {
    /// The counters.
    pub counters: BTreeMap<Pair, Counters>,
    /// The counts that were told.
    pub reported: BTreeMap<Pair, Reported>,
    /// The labels.
    pub labels: BTreeMap<LabelId, Vec<u8>>,
    /// True if there is no room for the counts of another pair.
    pub is_full: bool,
    /// True if there is no room for another label.
    pub has_full_labels: bool,
    /// True if no change is to succeed.
    pub is_broken: bool,
    /// True if the counters cannot be read.
    pub is_unreadable: bool,
}

impl MemoryReports {
    fn may_change(&self) -> Result<(), MapError> {
        fault("reported", self.is_broken, true)
    }

    fn may_read(&self) -> Result<(), MapError> {
        fault("stats", self.is_unreadable, false)
    }
}

impl ReportMaps for MemoryReports {
    fn counters(&self) -> Result<Vec<(Pair, Counters)>, MapError> {
        self.may_read()?;
        Ok(self.counters.clone().into_iter().collect())
    }

    fn counters_of(&self, pair: Pair) -> Result<Counters, MapError> {
        self.may_read()?;
        Ok(self.counters.get(&pair).copied().unwrap_or_default())
    }

    fn reported(&self) -> Result<Vec<(Pair, Reported)>, MapError> {
        Ok(self.reported.clone().into_iter().collect())
    }

    fn labels(&self) -> Result<Vec<(LabelId, Vec<u8>)>, MapError> {
        Ok(self.labels.clone().into_iter().collect())
    }

    fn set_reported(&mut self, pair: Pair, reported: Option<Reported>) -> Result<(), MapError> {
        self.may_change()?;
        let is_new = reported.is_some() && !self.reported.contains_key(&pair);
        fault("reported", self.is_full && is_new, true)?;
        match reported {
            Some(reported) => self.reported.insert(pair, reported),
            None => self.reported.remove(&pair),
        };
        Ok(())
    }

    fn set_label(&mut self, id: LabelId, text: Option<&[u8]>) -> Result<(), MapError> {
        self.may_change()?;
        let is_new = text.is_some() && !self.labels.contains_key(&id);
        fault("labels", self.has_full_labels && is_new, true)?;
        match text {
            Some(text) => self.labels.insert(id, text.to_owned()),
            None => self.labels.remove(&id),
        };
        Ok(())
    }
}

fn fault(map: &'static str, is_now: bool, is_full: bool) -> Result<(), MapError> {
    if !is_now {
        return Ok(());
    }
    Err(MapError {
        map,
        is_full,
        reason: "a fault of the test".to_owned(),
    })
}
