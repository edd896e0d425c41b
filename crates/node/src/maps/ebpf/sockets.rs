//! The map of sockets that were routed and may be ended.
//!
//! Threads of their own read the map and end sockets. The map may have hundreds of thousands of entries, and changes
//! of services must not wait for that.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use aya::maps::{HashMap, MapData, MapInfo};
use tracing::warn;

use super::access::entries;
use super::reports::open;
use super::{InstallError, Settings};
use crate::maps::{MapError, layout};
use crate::metrics::Metrics;
use crate::model::Protocol;
use crate::sockets::attempts::Attempts;
use crate::sockets::{Found, Routed, Sockets, kernel};

type RoutedMap = HashMap<MapData, u64, [u8; 28]>;

/// The sockets of a cgroup.
pub struct EbpfSockets {
    routed: Arc<RoutedMap>,
    /// The most entries of the map.
    room: usize,
    looking: Option<JoinHandle<Result<Found, MapError>>>,
    settings: Settings,
    attempts: Attempts,
    /// The threads that end sockets.
    ending: Vec<JoinHandle<Vec<Routed>>>,
}

impl fmt::Debug for EbpfSockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EbpfSockets").finish_non_exhaustive()
    }
}

impl EbpfSockets {
    pub(super) fn open(directory: &Path, settings: &Settings) -> Result<Self, InstallError> {
        let name = "routed";
        let info = MapInfo::from_pin(directory.join(name));
        let info = info.map_err(|source| InstallError::Map { name, source })?;
        Ok(Self {
            routed: Arc::new(open(directory, name)?),
            room: info.max_entries() as usize,
            looking: None,
            settings: settings.clone(),
            attempts: Attempts::default(),
            ending: Vec::new(),
        })
    }

    fn note_failed(&mut self, sockets: Vec<Routed>) {
        let given_up = self.attempts.failed(sockets);
        if given_up > 0 {
            warn!(
                "{given_up} sockets to backends that are gone stay, because no attempt ended them"
            );
        }
    }
}

impl Sockets for EbpfSockets {
    fn look(&mut self) {
        if self.is_looking() {
            return;
        }
        let (routed, room) = (Arc::clone(&self.routed), self.room);
        let ends_tcp = self.settings.ends_tcp;
        match thread::Builder::new().spawn(move || read(&routed, room, ends_tcp)) {
            Ok(thread) => self.looking = Some(thread),
            Err(error) => warn!("sockets to backends that are gone are not ended: {error}"),
        }
    }

    fn is_looking(&self) -> bool {
        self.looking.is_some()
    }

    fn found(&mut self) -> Result<Option<Found>, MapError> {
        match self.looking.take_if(|thread| thread.is_finished()) {
            // A thread that panicked has said so.
            Some(thread) => thread
                .join()
                .unwrap_or_else(|_| Ok(Found::default()))
                .map(Some),
            None => Ok(None),
        }
    }

    fn end(&mut self, sockets: Vec<Routed>, metrics: &Metrics) {
        let now = self.attempts.begin(sockets);
        if now.is_empty() {
            return;
        }
        let routed = Arc::clone(&self.routed);
        let is_same = move |socket: &Routed| {
            let now = routed.get(&socket.cookie, 0);
            now.is_ok_and(|now| layout::read_routed(socket.cookie, &now) == Some(*socket))
        };
        let (cgroup, metrics) = (self.settings.cgroup.clone(), metrics.clone());
        match kernel::end(cgroup, now.clone(), is_same, metrics) {
            Ok(thread) => self.ending.push(thread),
            Err(error) => {
                warn!("sockets to backends that are gone cannot be ended: {error}");
                self.note_failed(now);
            }
        }
    }

    fn is_ending(&self) -> bool {
        !self.ending.is_empty() || self.attempts.is_due()
    }

    fn must_try_again(&mut self) -> bool {
        for thread in self
            .ending
            .extract_if(.., |thread| thread.is_finished())
            .collect::<Vec<_>>()
        {
            // A thread that panicked has said so.
            self.note_failed(thread.join().unwrap_or_default());
        }
        self.attempts.is_due()
    }
}

/// Reads the map. A socket that is closed meanwhile may make the kernel begin anew, so there is a bound. The map may have TCP
/// sockets although they are not to be ended, because a former agent had another setting.
fn read(routed: &RoutedMap, room: usize, ends_tcp: bool) -> Result<Found, MapError> {
    let mut steps = 0;
    let all = routed.iter().take(room + 1).inspect(|_| steps += 1);
    let all: BTreeMap<u64, [u8; 28]> = entries("routed", all)?.into_iter().collect();
    let mut found = Found {
        is_whole: steps <= room,
        is_full: all.len() >= room,
        ..Found::default()
    };
    for (cookie, value) in all {
        if let Some(socket) = layout::read_routed(cookie, &value)
            && (ends_tcp || socket.protocol != Protocol::Tcp)
        {
            found.sockets.entry(socket.pair).or_default().push(socket);
        }
    }
    Ok(found)
}
