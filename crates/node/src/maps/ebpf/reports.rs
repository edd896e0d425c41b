//! The maps of load reports in the kernel.
//!
//! The ledger opens them from their pins, because load reports work on another thread than the agent and its maps.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use aya::maps::{HashMap, Map, MapData};

use super::InstallError;
use super::access::{CounterMap, MapFailure, done, entries, map_error, read_counters};
use crate::maps::reports::{LabelId, MAX_LABEL, ReportMaps, Reported};
use crate::maps::{CounterReader, Counters, MapError, Pair, layout};

/// The counters, and the memory of what was told of them. Dropping this leaves them as they are.
pub struct EbpfReports {
    /// Other threads read it as well.
    counters: Arc<CounterMap>,
    reported: HashMap<MapData, [u8; 8], [u8; 32]>,
    labels: HashMap<MapData, u32, [u8; MAX_LABEL]>,
}

impl fmt::Debug for EbpfReports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EbpfReports").finish_non_exhaustive()
    }
}

impl EbpfReports {
    pub(super) fn open(directory: &Path) -> Result<Self, InstallError> {
        Ok(Self {
            counters: Arc::new(open(directory, "stats")?),
            reported: open(directory, "reported")?,
            labels: open(directory, "labels")?,
        })
    }
}

/// Opens a pinned map once more.
pub(super) fn open<T>(directory: &Path, name: &'static str) -> Result<T, InstallError>
where
    T: TryFrom<Map, Error = aya::maps::MapError>,
{
    let map = MapData::from_pin(directory.join(name))
        .and_then(Map::from_map_data)
        .and_then(T::try_from);
    map.map_err(|source| InstallError::Map { name, source })
}

impl ReportMaps for EbpfReports {
    fn counters(&self) -> Result<Vec<(Pair, Counters)>, MapError> {
        read_counters(&self.counters)
    }

    fn counter_reader(&self) -> CounterReader {
        let counters = Arc::clone(&self.counters);
        Box::new(move || read_counters(&counters))
    }

    fn counters_of(&self, pair: Pair) -> Result<Counters, MapError> {
        match self.counters.get(&layout::pair(&pair), 0) {
            Ok(values) => Ok(layout::read_counters(&values)),
            Err(error) => match map_error("stats", &error) {
                MapFailure::Missing => Ok(Counters::default()),
                MapFailure::Failed(error) => Err(error),
            },
        }
    }

    fn reported(&self) -> Result<Vec<(Pair, Reported)>, MapError> {
        let entries = entries("reported", self.reported.iter())?.into_iter();
        let read = |(pair, told)| (layout::read_pair(&pair), layout::read_reported(&told));
        Ok(entries.map(read).collect())
    }

    fn labels(&self) -> Result<Vec<(LabelId, Vec<u8>)>, MapError> {
        let entries = entries("labels", self.labels.iter())?.into_iter();
        Ok(entries
            .map(|(id, text)| (LabelId(id), text.to_vec()))
            .collect())
    }

    fn set_reported(&mut self, pair: Pair, reported: Option<Reported>) -> Result<(), MapError> {
        let pair = layout::pair(&pair);
        let result = match reported {
            Some(reported) => self.reported.insert(pair, layout::reported(&reported), 0),
            None => self.reported.remove(&pair),
        };
        done("reported", result)
    }

    fn set_label(&mut self, id: LabelId, text: Option<&[u8]>) -> Result<(), MapError> {
        let result = match text {
            Some(text) => {
                let mut bytes = [0; MAX_LABEL];
                for (byte, from) in bytes.iter_mut().zip(text) {
                    *byte = *from;
                }
                self.labels.insert(id.0, bytes, 0)
            }
            None => self.labels.remove(&id.0),
        };
        done("labels", result)
    }
}
