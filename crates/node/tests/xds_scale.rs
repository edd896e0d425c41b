//! An xDS server with many services: the memory that they take. A process of its own, because it counts what is
//! allocated.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;

use crowfly_control::{Catalog, ConfigFile, ControlPlane, translate};
use crowfly_model::bootstrap::{ServerConfig, ServerFeature};
use crowfly_node::loads::Ledger;
use crowfly_node::maps::reports::{LabelId, MemoryReports, ReportMaps, Reported};
use crowfly_node::maps::{BackendId, Counters, Pair, ServiceId};
use crowfly_node::model::Place;
use crowfly_node::services::Services;
use crowfly_node::xds::{XdsOptions, XdsSource};
use crowfly_xds::Protocol;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

const SERVICES: usize = 2000;
const ENDPOINTS: usize = 10;

/// The most bytes for a service with ten backends: in the client with its cache, in the source and in the table of
/// services. Delta needs more, because the client knows the version of each resource.
const MOST: [(Protocol, i64); 2] = [(Protocol::StateOfTheWorld, 4800), (Protocol::Delta, 5050)];

/// The agent has 100 MB for 10,000 services with 10 backends each, and a part of it is for the maps. Memory is what is
/// allocated, because what is resident depends on the machine and its load.
#[test]
fn services_of_an_xds_server_take_little_memory() {
    for (protocol, most) in MOST {
        let server = Server::start();
        let runtime = runtime();
        let mut agent = None;
        // All of the client runs on this thread, and the server on another one.
        let memory = allocation_counter::measure(|| {
            agent = Some(runtime.block_on(settled(server.address, protocol)));
        });
        let services = i64::try_from(SERVICES).unwrap();
        let live = memory.bytes_current / services;
        let peak = i64::try_from(memory.bytes_max).unwrap() / services;
        eprintln!("{protocol:?}: {live} bytes for a service (peak {peak})");
        drop((agent, runtime));
        assert!(live < most, "{protocol:?}: {live} bytes for a service");
    }
}

/// A source that has told all services, and the table of them.
async fn settled(server: SocketAddr, protocol: Protocol) -> (XdsSource, Services) {
    let server = ServerConfig::builder(server.to_string());
    let server = match protocol {
        Protocol::Delta => server.feature(ServerFeature::Delta),
        Protocol::StateOfTheWorld => server,
    };
    let options = XdsOptions::to_server(server, "node-a").unwrap();
    let mut source = XdsSource::new(options).unwrap();
    let mut services = Services::new(vec!["xds".into()], Place::default());
    while services.routes().len() < SERVICES {
        let events = source.next().await.unwrap();
        services.handle(0, events);
    }
    // The client has answered all that it was sent when it answers this.
    drop(source.client().dump().await);
    (source, services)
}

/// The agent of an xDS server has a ledger of all pairs, although most servers ask for no report. A hash map may have
/// twice the places that it needs.
#[test]
fn a_pair_of_which_nothing_is_told_takes_little_memory() {
    let pairs: Vec<Pair> = (0..50_000)
        .map(|number| Pair {
            service: ServiceId(number / 10),
            backend: BackendId(number),
        })
        .collect();
    let nothing = Reported::all(LabelId::default(), &Counters::default());
    let mut maps = MemoryReports::default();
    let of_maps = allocation_counter::measure(|| {
        for pair in &pairs {
            maps.set_reported(*pair, Some(nothing)).unwrap();
        }
    });
    let mut ledger = Ledger::adopt(MemoryReports::default()).unwrap();
    let of_both = allocation_counter::measure(|| {
        for pair in &pairs {
            ledger.label(*pair, None).unwrap();
        }
    });
    assert_eq!(ledger.pairs().count(), pairs.len());
    let bytes = of_both.bytes_current - of_maps.bytes_current;
    let each = bytes / i64::try_from(pairs.len()).unwrap();
    assert!(each < 30, "{each} bytes for a pair");
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A control plane on a thread of its own.
struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Server {
    fn start() -> Self {
        let (listening, address) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let serve = async move {
            let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
            let snapshot = translate(&Catalog::read(&[services()]).unwrap()).unwrap();
            let plane = ControlPlane::with_snapshot(snapshot, anywhere, None);
            let plane = plane.await.unwrap();
            listening.send(plane.listen_addr()).unwrap();
            let _ = stopped.await;
            plane.shutdown().await;
        };
        let thread = thread::spawn(|| runtime().block_on(serve));
        Self {
            address: address.recv().unwrap(),
            stop: Some(stop),
            thread: Some(thread),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().map(thread::JoinHandle::join);
        assert!(thread::panicking() || matches!(ended, Some(Ok(()))));
    }
}

fn services() -> ConfigFile {
    let mut text = "services:\n".to_owned();
    for number in 0..SERVICES {
        let (high, low) = (number / 250, number % 250 + 1);
        write!(
            text,
            "- name: service-{number}\n  cluster_ip: 10.96.{high}.{low}\n  ports: [{{ port: 80 }}]\n  endpoints:\n"
        )
        .unwrap();
        for nth in 0..ENDPOINTS {
            let at = number * ENDPOINTS + nth;
            let (middle, low) = (at >> 8, at & 255);
            writeln!(text, "  - address: 10.128.{middle}.{low}:8080").unwrap();
        }
    }
    ConfigFile {
        path: "control.yaml".into(),
        text,
    }
}
