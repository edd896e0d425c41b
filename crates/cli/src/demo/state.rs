//! The state of the demo that views show: zones, backends, and a log of events.
//!
//! The state is a value of its own, because the runner changes it while a view draws it.

use std::{
    fmt,
    net::SocketAddr,
    time::{Duration, Instant},
};

/// The zones and the log at one moment. The runner makes it, and views show it.
#[derive(Clone, Debug)]
pub(super) struct DemoState {
    pub(super) start: Instant,
    pub(super) zones: Vec<Zone>,
    pub(super) log: Vec<LogLine>,
}

#[derive(Clone, Debug)]
pub(super) struct Zone {
    pub(super) name: &'static str,
    pub(super) weight: u32,
    pub(super) backends: Vec<BackendView>,
}

#[derive(Clone, Debug)]
pub(super) struct BackendView {
    pub(super) name: &'static str,
    pub(super) addr: SocketAddr,
    pub(super) status: Status,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Draining,
    Killed,
    Stopped,
    Up,
}

/// One event, and the time when it happened.
#[derive(Clone, Debug)]
pub(super) struct LogLine {
    pub(super) at: Duration,
    pub(super) text: String,
}

impl DemoState {
    pub(super) fn say(&mut self, text: impl Into<String>) {
        self.log.push(LogLine {
            at: self.start.elapsed(),
            text: text.into(),
        });
    }

    pub(super) fn set_status(&mut self, name: &str, status: Status) {
        let backends = self.zones.iter_mut().flat_map(|zone| &mut zone.backends);
        for backend in backends.filter(|backend| backend.name == name) {
            backend.status = status;
        }
    }

    /// Returns the weight before.
    pub(super) fn set_weight(&mut self, name: &str, weight: u32) -> Option<u32> {
        let zone = self.zones.iter_mut().find(|zone| zone.name == name)?;
        Some(std::mem::replace(&mut zone.weight, weight))
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Draining => "draining",
            Self::Killed => "killed",
            Self::Stopped => "stopped",
            Self::Up => "up",
        })
    }
}
