//! The admission of new streams, for all services of the port of ADS alike.
//!
//! All services share one number of streams, because a client could else take each of them in turn.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tonic::Status;
use tonic::codegen::http::Extensions;
use tracing::warn;

use crate::incoming::Peer;
use crate::limits::{Beyond, Hush, Limit, Limits, Quota, Spent, Ticket};

/// The longest time that a new stream waits for its turn. Each counts as a request of the client.
const PATIENCE: Duration = Duration::from_secs(5);

/// The log lines about clients that come, in a second. An operator sees all clients of a small fleet.
const ARRIVALS_PER_SECOND: u32 = 10;

/// The seconds' worth of such lines at once, because clients come together when the control plane starts.
const ARRIVALS_BURST: u32 = 30;

/// Admits streams, up to a number.
#[derive(Debug)]
pub(crate) struct Admission {
    streams: Arc<Quota>,
    arrivals: Arc<Hush>,
}

/// A stream that was admitted. It counts until it is dropped.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) peer: Peer,
    /// The time from which the stream is read.
    pub(crate) from: Instant,
    pub(crate) ticket: Ticket,
}

impl Admission {
    pub(crate) fn new(limits: &Limits) -> Arc<Self> {
        let of_address = limits.of_address(limits.streams);
        Arc::new(Self {
            streams: Quota::new(limits.streams, of_address),
            arrivals: Arc::new(Hush::new(ARRIVALS_PER_SECOND, ARRIVALS_BURST)),
        })
    }

    /// The log lines about clients that come, for all services together.
    pub(crate) fn arrivals(&self) -> &Arc<Hush> {
        &self.arrivals
    }

    /// Admits a stream whose request has these extensions.
    ///
    /// # Errors
    /// There are too many streams, or the client opens too many in a short time.
    pub(crate) fn admit(&self, extensions: &Extensions) -> Result<Admitted, Status> {
        let peer = Peer::of(extensions)?;
        let admitted = self.check(peer.clone());
        admitted.map_err(|beyond| {
            // The client has not said its name yet.
            peer.reached(beyond.limit, "");
            if let Some(left_out) = peer.may_tell() {
                let (limit, reason) = (beyond.limit.name(), &beyond.text);
                warn!(peer = %peer.address(), limit, reason, left_out, "stream refused");
            }
            beyond.status()
        })
    }

    fn check(&self, peer: Peer) -> Result<Admitted, Beyond> {
        let ticket = self.streams.take(peer.address().ip()).map_err(|spent| {
            let text = match spent {
                Spent::All(most) => format!("there are {most} streams"),
                Spent::OfAddress(most) => format!("there are {most} streams of this address"),
            };
            Beyond::new(Limit::Streams, text)
        })?;
        let from = peer.pace(0, PATIENCE, Instant::now()).ok_or_else(|| {
            let text = "too many new streams and requests on this connection".to_owned();
            Beyond::new(Limit::RequestsPerSecond, text)
        })?;
        Ok(Admitted { peer, from, ticket })
    }
}
