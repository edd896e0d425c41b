//! One step of a [`Mesh`](super::Mesh): what its driver has to do after some news.

use std::collections::BTreeSet;

use bytes::Bytes;
use crowfly_source::Event;

use crate::services::ServiceEvent;

/// The largest number of log lines of one step, because one listing may have thousands of mistakes.
const MAX_NOTES: usize = 20;

/// The outcome of one piece of news from etcd, for the driver and the agent.
#[derive(Debug, Default)]
pub struct Step {
    /// Prefixes to follow from now on.
    pub follow: Vec<Bytes>,
    /// Prefixes to follow no more.
    pub unfollow: Vec<Bytes>,
    /// Events for the agent, which belong together.
    pub events: Vec<ServiceEvent>,
    /// Lines for the log.
    pub notes: Vec<LogLine>,
    /// The keys whose services have to be told anew.
    pub(super) touched: BTreeSet<Bytes>,
}

/// A line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogLine {
    /// A change in the mesh.
    Info(String),
    /// A mistake or a failure.
    Warn(String),
}

impl Step {
    /// True if the source has failed in this step.
    pub fn is_failure(&self) -> bool {
        let mut events = self.events.iter();
        events.any(|event| matches!(event, Event::Failed(_)))
    }

    pub(super) fn info(&mut self, text: String) {
        self.notes.push(LogLine::Info(text));
    }

    pub(super) fn warn(&mut self, text: String) {
        self.notes.push(LogLine::Warn(text));
    }

    pub(super) fn shorten_notes(&mut self) {
        let more = self.notes.len().saturating_sub(MAX_NOTES);
        if more > 0 {
            self.notes.truncate(MAX_NOTES);
            self.warn(format!("and {more} more of the kind"));
        }
    }
}
