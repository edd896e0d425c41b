//! All clients of a workload, and the changes that they are sent. Each step has a time limit, so
//! that a server that sends nothing ends the benchmark with an error.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::super::BenchError;
use super::books::{Books, Latencies};
use super::client::{Client, Spec};
use super::plane::Plane;
use super::resources::{Change, Kind};

/// The number of clients that connect at once.
const AT_ONCE: usize = 64;

/// The time that a step may take. It is far longer than any step that works takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Connects so many clients, each with one stream, and returns them when they have all that they asked for.
pub(super) async fn connect(
    address: SocketAddr,
    count: usize,
    books: &Books,
    spec: impl Fn(usize) -> Spec,
) -> Result<Vec<Client>, BenchError> {
    let connecting = stream::iter(0..count).map(|id| {
        let (spec, books) = (spec(id), books.clone());
        async move {
            let mut client = Client::connect(address, id, spec, books).await?;
            client.open();
            client.sync().await?;
            io::Result::Ok(client)
        }
    });
    let connected = connecting.buffer_unordered(AT_ONCE).try_collect();
    in_time("connecting the clients", connected).await
}

/// Waits for a step of the benchmark.
pub(super) async fn in_time<T>(
    step: &'static str,
    work: impl Future<Output = io::Result<T>>,
) -> Result<T, BenchError> {
    match timeout(PATIENCE, work).await {
        Ok(done) => done.map_err(|source| BenchError::Client { step, source }),
        Err(_) => Err(BenchError::Slow { step }),
    }
}

/// Clients that take what the server sends.
#[derive(Debug)]
pub(super) struct Fleet {
    tasks: JoinSet<io::Result<()>>,
    books: Books,
    /// The number of streams that a change reaches.
    streams: usize,
}

impl Fleet {
    /// Lets the clients follow the server. A change reaches `streams` streams.
    pub(super) fn follow(clients: Vec<Client>, books: &Books, streams: usize) -> Self {
        let mut tasks = JoinSet::new();
        for mut client in clients {
            tasks.spawn(async move { client.follow().await });
        }
        Self {
            tasks,
            books: books.clone(),
            streams,
        }
    }

    /// Hands the server changes of one resource after the other, one per `pause`. Each is handed over when all clients
    /// have the one before.
    pub(super) async fn deliver(
        &mut self,
        plane: &mut Plane,
        changes: usize,
        pause: Duration,
        resource: impl Fn(usize) -> (Kind, usize),
    ) -> Result<Latencies, BenchError> {
        let mut ticks = interval(pause);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for turn in 0..changes {
            ticks.tick().await;
            self.hand(plane, resource(turn)).await?;
            self.arrived().await?;
        }
        Ok(self.books.take_latencies())
    }

    /// Hands the server a change, without waiting for the clients.
    pub(super) async fn hand(
        &mut self,
        plane: &mut Plane,
        (kind, index): (Kind, usize),
    ) -> Result<(), BenchError> {
        let number = self.books.hand();
        let change = Change {
            kind,
            index,
            number,
        };
        plane.change(&change).await
    }

    /// Waits until all clients have the newest change.
    pub(super) async fn arrived(&mut self) -> Result<(), BenchError> {
        let step = "delivering a change";
        tokio::select! {
            reached = self.books.reached(self.streams, PATIENCE) => {
                reached.map_err(|had_it| BenchError::Undelivered { had_it, of: self.streams })
            }
            Some(ended) = self.tasks.join_next() => {
                let ended = ended.map_err(BenchError::Task)?;
                let source = ended.err().unwrap_or_else(|| io::Error::other("a client ended"));
                Err(BenchError::Client { step, source })
            }
        }
    }

    pub(super) fn books(&self) -> &Books {
        &self.books
    }
}
