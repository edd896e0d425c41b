//! The time from a change at a source to the first connection to the new backend, because operators see that time and
//! not its parts.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
};

use crowfly_control::{Catalog, ConfigFile, ControlPlane, translate};
use crowfly_xds::Snapshot;
use serde::Serialize;
use tokio::time::Instant;

use super::{
    BenchError,
    etcd::Etcd,
    kube::ApiServer,
    programming::millis,
    rig::{Rig, Way},
    shape::{self, BACKEND_PORT, CLUSTER, FRONTEND_PORT, Shape},
};
use crate::{
    bench::Quartiles,
    peer::{Order, Seen},
};

/// The services of each source. The services are few, because the time to read a large file is another figure.
const SHAPE: Shape = Shape {
    services: 10,
    backends: 3,
};

/// The time from a change at a source to the first connection to the new backend.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Reaction {
    pub(super) source: &'static str,
    pub(super) median_ms: f64,
    pub(super) slowest_ms: f64,
    /// Connections that failed meanwhile.
    pub(super) failed: u64,
}

/// A source that was not measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct LeftOut {
    pub(super) source: &'static str,
    pub(super) reason: String,
}

/// The sources, each after the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Reactions {
    pub(super) measured: Vec<Reaction>,
    pub(super) left_out: Vec<LeftOut>,
}

impl Reactions {
    /// Measures every source that is available. etcd is a program that may be missing.
    pub(super) async fn measure(
        rig: &mut Rig,
        rounds: usize,
        etcd: Option<&Path>,
    ) -> Result<Self, BenchError> {
        let mut all = Self::default();
        all.measured.push(to_file(rig, rounds).await?);
        all.measured.push(to_push(rig, rounds).await?);
        let program = etcd.unwrap_or_else(|| Path::new("etcd"));
        match Etcd::start(rig, program).await? {
            Some(etcd) => all.measured.push(to_put(rig, rounds, etcd).await?),
            None if etcd.is_some() => {
                let missing = format!("{}: there is no such program", program.display());
                return Err(BenchError::Etcd(missing));
            }
            None => all.left_out.push(LeftOut {
                source: "kvstore",
                reason: "there is no program etcd".to_owned(),
            }),
        }
        all.measured.push(to_event(rig, rounds).await?);
        Ok(all)
    }
}

impl Reaction {
    /// The change, in words.
    pub(super) fn change(&self) -> &'static str {
        match self.source {
            "xds" => "an EDS push",
            "kvstore" => "an etcd put",
            "kubernetes" => "an event of the API server",
            _ => "a changed file",
        }
    }
}

async fn to_file(rig: &mut Rig, rounds: usize) -> Result<Reaction, BenchError> {
    rig.route(&SHAPE).await?;
    react(rig, "file", rounds, async |rig, backends| {
        let text = SHAPE.file_with(0, backends);
        let begin = Instant::now();
        rig.write(&text)?;
        Ok(begin)
    })
    .await
}

/// The xDS server is in this process, and is given resources that are ready to send. So the time includes neither the
/// wait for a file that settles nor its translation.
async fn to_push(rig: &mut Rig, rounds: usize) -> Result<Reaction, BenchError> {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let snapshot_of = |changed, backends: &[Ipv4Addr]| snapshot(&SHAPE, changed, backends);
    let plane = ControlPlane::with_snapshot(snapshot_of(u32::MAX, &[])?, listen, None).await;
    let plane = plane.map_err(|error| BenchError::Programmed(error.to_string()))?;
    let server = plane.listen_addr().to_string();
    rig.start_agent(&["--xds-server", &server]).await?;
    let reaction = react(rig, "xds", rounds, async |_, backends| {
        let snapshot = snapshot_of(0, backends)?;
        let begin = Instant::now();
        plane.set_snapshot(snapshot);
        Ok(begin)
    });
    let reaction = reaction.await?;
    plane.shutdown().await;
    Ok(reaction)
}

/// The services as resources, where one has other backends.
pub(super) fn snapshot(
    shape: &Shape,
    changed: u32,
    backends: &[Ipv4Addr],
) -> Result<Snapshot, BenchError> {
    let mut text = "services:\n".to_owned();
    for service in 0..shape.services {
        let own = shape.backends_of(service);
        let backends = if service == changed { backends } else { &own };
        text.push_str(&shape::mesh_entry(service, backends));
    }
    let file = ConfigFile {
        path: "bench.yaml".into(),
        text,
    };
    let catalog = Catalog::read(&[file]);
    let snapshot = catalog.and_then(|catalog| translate(&catalog));
    snapshot.map_err(|errors| BenchError::Programmed(errors.to_string()))
}

/// The server is in this process, and answers as an API server of Kubernetes does: a listing in pages, and a watch.
async fn to_event(rig: &mut Rig, rounds: usize) -> Result<Reaction, BenchError> {
    let server = ApiServer::start(&SHAPE).await?;
    rig.start_agent(&["--kubernetes-server", &server.url])
        .await?;
    react(rig, "kubernetes", rounds, async |_, backends| {
        let begin = Instant::now();
        server.change(0, backends);
        Ok(begin)
    })
    .await
}

/// The time begins before the key is sent, so it includes etcd's own time.
async fn to_put(rig: &mut Rig, rounds: usize, mut etcd: Etcd) -> Result<Reaction, BenchError> {
    fill(&mut etcd, &SHAPE).await?;
    rig.start_agent(&["--kvstore-endpoints", &etcd.url]).await?;
    react(rig, "kvstore", rounds, async |_, backends| {
        let (key, value) = shape::mesh_key(0, backends);
        let begin = Instant::now();
        etcd.put(&key, &value).await?;
        Ok(begin)
    })
    .await
}

/// Writes services, as a cluster of a ClusterMesh does.
pub(super) async fn fill(etcd: &mut Etcd, shape: &Shape) -> Result<(), BenchError> {
    for service in 0..shape.services {
        let (key, value) = shape::mesh_key(service, &shape.backends_of(service));
        etcd.put(&key, &value).await?;
    }
    let config = format!("cilium/cluster-config/{CLUSTER}");
    etcd.put(&config, r#"{"id":1}"#).await
}

/// Changes the backends of a service over and over, while a client connects. `change` returns the time
/// at which the change began.
async fn react(
    rig: &mut Rig,
    source: &'static str,
    rounds: usize,
    mut change: impl AsyncFnMut(&Rig, &[Ipv4Addr]) -> Result<Instant, BenchError>,
) -> Result<Reaction, BenchError> {
    let target = SocketAddr::from((Shape::frontend(0), FRONTEND_PORT));
    let (mut times, mut failed) = (Vec::new(), 0);
    for turn in 0..u32::try_from(rounds).unwrap_or(u32::MAX) {
        let backends = Shape::spare_backends(turn);
        let names = backends.iter().map(|it| format!("{it}:{BACKEND_PORT}"));
        let names = names.collect();
        let client = rig.client(Way::Ours);
        client.order(&Order::Until { target, names }).await?;
        let begin = change(rig, &backends).await?;
        let seen: Seen = rig.client(Way::Ours).answer().await?;
        times.push(millis(begin.elapsed()));
        failed += seen.failures.values().sum::<u64>();
    }
    rig.stop_agent().await?;
    Ok(Reaction {
        source,
        median_ms: Quartiles::of(times.iter().copied()).median,
        slowest_ms: times.into_iter().fold(0.0, f64::max),
        failed,
    })
}
