//! Sends calls at a steady rate.
//!
//! The pace does not depend on the answers (an open loop): call `k` is due at `k / rps` after the
//! start. So a server that stalls later gets all calls that it missed, up to the limit on
//! concurrent ones.
//!
//! Workers take the number of the next call from a shared counter. So workers share only one atomic
//! and the statistics.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use crowfly::WaitForReady;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep_until, timeout},
};
use tonic::{
    Request, Status, body::Body, client::GrpcService, codegen::StdError, metadata::MetadataMap,
};

use super::{Outcome, Report, Stats, sessions::Sessions};
use crate::testing::{SimpleRequest, test_service_client::TestServiceClient};

/// The time after the deadline at which the generator ends a call itself, because the channel did
/// not.
const DEADLINE_GRACE: Duration = Duration::from_secs(1);

/// Anything that a tonic client can send calls through: tonic's channel, crowfly's, or a peer's.
pub trait Transport:
    GrpcService<
        Body,
        ResponseBody: http_body::Body<Data = Bytes, Error: Into<StdError> + Send> + Send + 'static,
        Error: Into<StdError> + Send,
        Future: Send,
    > + Clone
    + Send
    + 'static
{
}

impl<T> Transport for T where
    T: GrpcService<
            Body,
            ResponseBody: http_body::Body<Data = Bytes, Error: Into<StdError> + Send>
                              + Send
                              + 'static,
            Error: Into<StdError> + Send,
            Future: Send,
        > + Clone
        + Send
        + 'static
{
}

/// The load to send.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// The number of calls per second; 0 means as many as the workers can.
    pub rps: u32,
    /// The limit on calls that are open at once.
    pub concurrency: usize,
    /// The time to send calls.
    pub duration: Duration,
    /// The deadline of each call, from when it is sent.
    pub timeout: Duration,
    /// The metadata of each call.
    pub metadata: MetadataMap,
    /// True if calls wait for a server that can take them, and do not fail at once.
    pub wait_for_ready: bool,
    /// The number of sessions that the calls belong to, in turn; 0 if they belong to none.
    pub sessions: usize,
}

/// A running generator. Dropping it abandons the open calls.
#[derive(Debug)]
pub struct Generator {
    stats: Arc<Stats>,
    stop: watch::Sender<bool>,
    workers: JoinSet<()>,
}

impl Generator {
    /// Begins to send calls through `transport`.
    pub fn start<T: Transport>(transport: &T, options: LoadOptions) -> Self {
        let (stop, stopped) = watch::channel(false);
        let stats = Arc::new(match options.sessions {
            0 => Stats::new(),
            count => Stats::with_sessions(count),
        });
        let sessions = Arc::new(Sessions::new(options.sessions));
        let pace = Arc::new(Pace::new(options.rps, options.duration));
        let options = Arc::new(options);
        let mut workers = JoinSet::new();
        for _ in 0..options.concurrency {
            let worker = Worker {
                client: TestServiceClient::new(transport.clone()),
                options: Arc::clone(&options),
                pace: Arc::clone(&pace),
                sessions: Arc::clone(&sessions),
                stats: Arc::clone(&stats),
            };
            workers.spawn(worker.run(stopped.clone()));
        }
        Self {
            stats,
            stop,
            workers,
        }
    }

    /// The live counters.
    pub fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    /// Sends no more calls. Open calls go on.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Waits until the last call has ended.
    pub async fn finished(&mut self) -> Report {
        while self.workers.join_next().await.is_some() {}
        self.stats.report()
    }
}

/// The schedule of the calls.
struct Pace {
    start: Instant,
    end: Instant,
    rps: u32,
    next: AtomicU64,
}

impl Pace {
    fn new(rps: u32, duration: Duration) -> Self {
        let start = Instant::now();
        Self {
            start,
            end: start + duration,
            rps,
            next: AtomicU64::new(0),
        }
    }

    /// The time when the next call is due; `None` when there is none left.
    fn next(&self) -> Option<Instant> {
        let due = match self.rps {
            0 => Instant::now(),
            rps => {
                let number = self.next.fetch_add(1, Ordering::Relaxed);
                let nanos = u128::from(number) * 1_000_000_000 / u128::from(rps);
                self.start + Duration::from_nanos(u64::try_from(nanos).ok()?)
            }
        };
        (due < self.end).then_some(due)
    }
}

struct Worker<T> {
    client: TestServiceClient<T>,
    options: Arc<LoadOptions>,
    pace: Arc<Pace>,
    sessions: Arc<Sessions>,
    stats: Arc<Stats>,
}

impl<T: Transport> Worker<T> {
    async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        while let Some(due) = self.pace.next() {
            if due > Instant::now() {
                tokio::select! {
                    () = sleep_until(due) => {}
                    _ = stopped.wait_for(|stopped| *stopped) => return,
                }
            }
            if *stopped.borrow() {
                return;
            }
            self.call().await;
        }
    }

    async fn call(&mut self) {
        let mut session = self.sessions.next().await;
        let mut request = self.request();
        if let Some(session) = &session {
            session.identify(request.metadata_mut());
        }
        let start = Instant::now();
        self.stats.sent();
        let patience = self.options.timeout + DEADLINE_GRACE;
        let result = timeout(patience, self.client.unary_call(request)).await;
        let result = result.unwrap_or_else(|_| {
            Err(Status::deadline_exceeded(
                "the channel did not end the call at its deadline",
            ))
        });
        let latency = start.elapsed();
        if let Some(session) = &mut session {
            session.called(&result, &self.stats);
        }
        self.stats.ended(Outcome::from(result), latency);
    }

    fn request(&self) -> Request<SimpleRequest> {
        let mut request = Request::new(SimpleRequest::default());
        *request.metadata_mut() = self.options.metadata.clone();
        request.set_timeout(self.options.timeout);
        if self.options.wait_for_ready {
            request.extensions_mut().insert(WaitForReady(true));
        }
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn calls_are_due_at_even_distances_until_the_end() {
        let pace = Pace::new(4, Duration::from_secs(1));
        let due: Vec<_> = std::iter::from_fn(|| pace.next())
            .map(|due| due - pace.start)
            .collect();
        assert_eq!(due, [0, 250, 500, 750].map(Duration::from_millis));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_rate_calls_are_due_at_once_until_the_end() {
        let pace = Pace::new(0, Duration::from_secs(1));
        assert_eq!(pace.next(), Some(Instant::now()));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(pace.next(), None);
    }
}
