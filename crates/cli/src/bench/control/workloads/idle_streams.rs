//! 20,000 idle streams over 2,000 connections.
//!
//! Streams that are added to connections which have one already cost the memory of a stream. The first stream of
//! a connection costs that and the connection's own. So the two are told apart.

use futures_util::{StreamExt, TryStreamExt, stream};

use super::super::super::BenchError;
use super::super::books::Books;
use super::super::client::{Client, Spec};
use super::super::fleet::{Fleet, connect, in_time};
use super::super::plane::Load;
use super::super::report::Figure;
use super::super::resources::Kind;
use super::{Rig, memory_each};

/// The aim for the memory of a stream, in bytes. It is for our own state, and the figure has that of tonic, hyper and h2
/// in it, too.
const STREAM: f64 = 4_096.0;

pub(super) async fn run(rig: &Rig) -> Result<Vec<Figure>, BenchError> {
    let (connections, streams_each) = rig.size((2_000, 10), (20, 3));
    let load = Load {
        clusters: 0,
        endpoints: 1,
        connections,
    };
    let mut plane = rig.plane(load).await?;
    let empty = plane.usage()?;
    let books = Books::default();
    let spec = |_| Spec::of_endpoints(0..1);
    let clients = connect(plane.ads, connections, &books, spec).await?;
    let one_each = plane.usage()?;
    let added = (streams_each - 1) * connections;
    let clients = in_time("opening the streams", add(clients, streams_each - 1)).await?;
    let all = plane.usage()?;
    let streams = streams_each * connections;
    let per_stream = memory_each(one_each, all, added);
    let per_connection = memory_each(empty, one_each, connections) - per_stream;
    // All streams are alive: a change reaches each of them.
    let mut fleet = Fleet::follow(clients, &books, streams);
    let latencies = fleet
        .deliver(&mut plane, 1, rig.pause(), |_| (Kind::Endpoints, 0))
        .await?;
    Ok(vec![
        Figure::new("streams", streams as f64, ""),
        Figure::new("memory per stream, all layers", per_stream, "B").at_most(STREAM),
        Figure::new("memory per connection, apart", per_connection, "B"),
        Figure::new("change to all streams, p99", latencies.p99_ms, "ms"),
    ])
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
