//! 20,000 idle streams over 2,000 connections. They show the memory that a stream costs while
//! nothing changes.
//!
//! The first stream of a connection costs the memory of a stream and of the connection. Each
//! further one costs that of a stream alone. The difference is the memory of the connection.
//!
//! A server that does nothing with its streams shows the memory of HTTP/2 and gRPC. The rest of a
//! stream's memory is the control plane's own state.

use futures_util::{StreamExt, TryStreamExt, stream};

use super::super::super::BenchError;
use super::super::books::Books;
use super::super::client::{Client, Spec};
use super::super::fleet::{Fleet, connect, in_time};
use super::super::plane::{Load, Plane};
use super::super::report::Figure;
use super::super::resources::Kind;
use super::{Rig, memory_each};

/// The most memory of our own state of a stream, in bytes.
const OWN: f64 = 4_096.0;

/// The memory of a server, in bytes.
struct Memory {
    stream: f64,
    connection: f64,
}

pub(super) async fn run(rig: &Rig) -> Result<Vec<Figure>, BenchError> {
    let (connections, streams_each) = rig.size((2_000, 10), (20, 3));
    let load = Load {
        clusters: 0,
        endpoints: 1,
        connections,
    };
    let books = Books::default();
    let plane = rig.bare_plane(load).await?;
    let (bare, _) = open(&plane, connections, streams_each, &books).await?;
    drop(plane);
    let mut plane = rig.plane(load).await?;
    let (memory, clients) = open(&plane, connections, streams_each, &books).await?;
    // All streams are alive: a change reaches each of them.
    let streams = streams_each * connections;
    let mut fleet = Fleet::follow(clients, &books, streams);
    let latencies = fleet
        .deliver(&mut plane, 1, rig.pause(), |_| (Kind::Endpoints, 0))
        .await?;
    let own = Figure::new("of it our own state", memory.stream - bare.stream, "B");
    // The memory of few streams is less than the noise of a process, so it is not judged.
    let own = rig.size(own.clone().at_most(OWN), own);
    Ok(vec![
        Figure::new("streams", streams as f64, ""),
        Figure::new("memory per stream, all layers", memory.stream, "B"),
        Figure::new("of it HTTP/2 and gRPC", bare.stream, "B"),
        own,
        Figure::new("memory per connection, apart", memory.connection, "B"),
        Figure::new("change to all streams, p99", latencies.p99_ms, "ms"),
    ])
}

/// Opens all streams, and returns the memory that they take, and their clients.
async fn open(
    plane: &Plane,
    connections: usize,
    streams_each: usize,
    books: &Books,
) -> Result<(Memory, Vec<Client>), BenchError> {
    let empty = plane.usage()?;
    let spec = |_| Spec::of_endpoints(0..1);
    let clients = connect(plane.ads, connections, books, spec).await?;
    let one_each = plane.usage()?;
    let added = streams_each - 1;
    let clients = in_time("opening the streams", add(clients, added)).await?;
    let all = plane.usage()?;
    let stream = memory_each(one_each, all, added * connections);
    let connection = memory_each(empty, one_each, connections) - stream;
    Ok((Memory { stream, connection }, clients))
}

async fn add(clients: Vec<Client>, streams: usize) -> std::io::Result<Vec<Client>> {
    let opening = stream::iter(clients).map(|mut client| async move {
        for _ in 0..streams {
            client.open();
        }
        client.sync().await?;
        std::io::Result::Ok(client)
    });
    opening.buffer_unordered(16).try_collect().await
}
