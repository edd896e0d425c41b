//! 200 clients that come at once and get 2,000 resources each, as when a control plane restarts.
//! Then they come back with the versions that they have, and the server should send them little.

use std::time::Instant;

use futures_util::{StreamExt, TryStreamExt, stream};

use super::super::super::BenchError;
use super::super::books::Books;
use super::super::client::{Client, Spec, Variant, Versions};
use super::super::fleet::{Fleet, connect, in_time};
use super::super::machine::Usage;
use super::super::plane::{Load, Plane};
use super::super::report::Figure;
use super::super::resources::{Change, Kind};
use super::{Rig, cpu_each, memory_each, percentiles};

pub(super) async fn run(rig: &Rig) -> Result<Vec<Figure>, BenchError> {
    let (clients, clusters) = rig.size((200, 1_000), (10, 50));
    let cold = Cold { clients, clusters };
    let mut figures = cold.delta(rig).await?;
    figures.extend(cold.sotw(rig).await?);
    Ok(figures)
}

struct Cold {
    clients: usize,
    clusters: usize,
}

/// The server before and after all clients have all resources, and the seconds between.
struct Synced {
    empty: Usage,
    full: Usage,
    seconds: f64,
}

impl Cold {
    fn spec(&self, variant: Variant) -> Spec {
        Spec {
            variant,
            clusters: self.clusters,
            endpoints: 0..self.clusters,
            refuses: false,
        }
    }

    async fn plane(&self, rig: &Rig) -> Result<Plane, BenchError> {
        let load = Load {
            clusters: self.clusters,
            endpoints: self.clusters,
            // Connections that end and those that begin may overlap.
            connections: 2 * self.clients,
        };
        rig.plane(load).await
    }

    async fn sync(
        &self,
        plane: &Plane,
        variant: Variant,
        books: &Books,
    ) -> Result<(Vec<Client>, Synced), BenchError> {
        let empty = plane.usage()?;
        let begin = Instant::now();
        let clients = connect(plane.ads, self.clients, books, |_| self.spec(variant)).await?;
        let seconds = begin.elapsed().as_secs_f64();
        let full = plane.usage()?;
        let synced = Synced {
            empty,
            full,
            seconds,
        };
        Ok((clients, synced))
    }

    async fn delta(&self, rig: &Rig) -> Result<Vec<Figure>, BenchError> {
        let mut plane = self.plane(rig).await?;
        let books = Books::default();
        let (connected, synced) = self.sync(&plane, Variant::Delta, &books).await?;
        let mut fleet = Fleet::follow(connected, &books, self.clients);
        let resource = |turn: usize| (Kind::Endpoints, turn % self.clusters);
        let latencies = fleet
            .deliver(&mut plane, rig.changes(), rig.pause(), resource)
            .await?;
        let end = plane.usage()?;
        drop(fleet);
        let returned = self.come_back(&mut plane).await?;
        let [p50, p99] = percentiles(&latencies, [112.0, 226.0]);
        let megabytes = memory_each(synced.empty, synced.full, self.clients) / 1e6;
        let named = |mut figure: Figure| {
            figure.name = format!("delta: {}", figure.name);
            figure
        };
        let figures = [
            Figure::new("all clients have all", synced.seconds, "s").recorded(2.5),
            Figure::new("CPU of the server", synced.full.cpu - synced.empty.cpu, "s").recorded(2.2),
            Figure::new("peak memory", synced.full.peak / 1e6, "MB"),
            Figure::new("memory per client", megabytes, "MB")
                .recorded(1.5)
                .at_most(0.375),
            p50,
            p99,
            cpu_each(synced.full, end, &latencies).recorded(1_800.0),
            Figure::new("bytes to a client that comes back", returned, "B"),
        ];
        Ok(figures.into_iter().map(named).collect())
    }

    /// Returns the bytes that a client is sent when it comes back and has everything.
    async fn come_back(&self, plane: &mut Plane) -> Result<f64, BenchError> {
        let books = Books::default();
        let address = plane.ads;
        let spec = self.spec(Variant::Delta);
        let first = stream::iter(0..self.clients).map(|id| {
            let (spec, books) = (spec.clone(), books.clone());
            async move {
                let client = Client::connect(address, id, spec, books).await?;
                let mut client = client.remembering(Versions::new());
                client.open();
                client.sync().await?;
                std::io::Result::Ok(client.into_versions())
            }
        });
        let first = first.buffer_unordered(16).try_collect();
        let known: Vec<Versions> = in_time("filling the clients", first).await?;
        let again = stream::iter(known.into_iter().enumerate()).map(|(id, versions)| {
            let (spec, books) = (spec.clone(), books.clone());
            async move {
                let client = Client::connect(address, id, spec, books).await?;
                let mut client = client.remembering(versions);
                client.open();
                client.flush().await?;
                std::io::Result::Ok(client)
            }
        });
        let again = again.buffer_unordered(16).try_collect();
        let again: Vec<Client> = in_time("coming back", again).await?;
        // The server answers requests in order: a client that has this change was sent all that was due before.
        let number = 1_000_000;
        let change = Change {
            kind: Kind::Endpoints,
            index: 0,
            number,
        };
        plane.change(&change).await?;
        let reached =
            stream::iter(again).map(|mut client| async move { client.reach(number).await });
        let reached = reached.buffer_unordered(self.clients).try_collect();
        let bytes: Vec<usize> = in_time("a change after coming back", reached).await?;
        Ok(bytes.iter().sum::<usize>() as f64 / self.clients as f64)
    }

    async fn sotw(&self, rig: &Rig) -> Result<Vec<Figure>, BenchError> {
        let plane = self.plane(rig).await?;
        let books = Books::default();
        let (_clients, synced) = self.sync(&plane, Variant::Sotw, &books).await?;
        let megabytes = memory_each(synced.empty, synced.full, self.clients) / 1e6;
        Ok(vec![
            Figure::new("SotW: all clients have all", synced.seconds, "s"),
            Figure::new(
                "SotW: CPU of the server",
                synced.full.cpu - synced.empty.cpu,
                "s",
            ),
            Figure::new("SotW: peak memory", synced.full.peak / 1e6, "MB"),
            Figure::new("SotW: memory per client", megabytes, "MB"),
        ])
    }
}
