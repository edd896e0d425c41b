//! The counters of connections, read on another thread.
//!
//! There may be hundreds of thousands of counters, and each takes a system call. Changes of services must not wait
//! for that.

use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};
use tracing::warn;

use super::{Journal, questions};
use crate::agent::Agent;
use crate::maps::{Counters, MapError, Maps, Pair};
use crate::metrics::{self, Scrape};

/// A use of the counters.
#[derive(Debug)]
pub(super) enum Purpose {
    /// Prometheus asks.
    Scrape(mpsc::Sender<Box<Scrape>>),
    /// `services` or `trace` asks.
    Answer(UnixStream),
    /// Counters that nothing refers to are forgotten.
    Prune,
}

/// The counters of all pairs.
pub(super) type Counted = Result<Vec<(Pair, Counters)>, MapError>;

/// A reading that has ended, and its purposes.
pub(super) type Reading = (Counted, Vec<Purpose>);

/// A reading of the counters, and who waits for one.
#[derive(Debug, Default)]
pub(super) struct Readings {
    /// The purposes of the next reading. The one under way began before they came, so it may be too old for them.
    wanted: Vec<Purpose>,
    under_way: Option<(JoinHandle<Counted>, Vec<Purpose>)>,
}

impl Readings {
    /// Reads the counters for a purpose, now or after the reading that is under way.
    pub(super) fn want<M: Maps>(&mut self, purpose: Purpose, maps: &M) {
        self.wanted.push(purpose);
        self.begin(maps);
    }

    /// Begins a reading if one is wanted and none is under way.
    fn begin<M: Maps>(&mut self, maps: &M) {
        if self.under_way.is_none() && !self.wanted.is_empty() {
            let reading = spawn_blocking(maps.counter_reader());
            self.under_way = Some((reading, std::mem::take(&mut self.wanted)));
        }
    }

    /// Waits for the end of a reading, and for ever if there is none. Nothing is lost if the future is dropped.
    pub(super) async fn next(&mut self) -> Reading {
        let Some((reading, _)) = &mut self.under_way else {
            return std::future::pending().await;
        };
        // A thread that panicked has said so.
        let counted = reading.await.unwrap_or_else(|error| {
            Err(MapError {
                map: "stats",
                is_full: false,
                reason: error.to_string(),
            })
        });
        let purposes = self.under_way.take().map(|(_, purposes)| purposes);
        (counted, purposes.unwrap_or_default())
    }

    /// Uses a reading, and begins the next one if somebody waits for it.
    pub(super) fn use_for<M: Maps>(
        &mut self,
        (counted, purposes): Reading,
        agent: &mut Agent<M>,
        journal: &mut Journal,
    ) {
        match counted {
            Ok(counters) => {
                for purpose in purposes {
                    purpose.serve(&counters, agent, journal);
                }
            }
            // Whoever asks has no answer, and sees that the connection ends.
            Err(error) => warn!("the counters cannot be read: {error}"),
        }
        self.begin(agent.reconciler().maps());
    }
}

impl Purpose {
    fn serve<M: Maps>(
        self,
        counters: &[(Pair, Counters)],
        agent: &mut Agent<M>,
        journal: &mut Journal,
    ) {
        match self {
            Self::Scrape(answer) => {
                let scrape = metrics::read_with(agent, counters);
                journal.report_left_out(scrape.left_out);
                // Whoever asked may have gone.
                drop(answer.try_send(Box::new(scrape)));
            }
            Self::Answer(stream) => questions::answer(agent.view_with(counters), stream),
            Self::Prune => {
                if let Err(error) = agent.prune_counters_with(counters) {
                    warn!("{error}");
                }
            }
        }
    }
}
