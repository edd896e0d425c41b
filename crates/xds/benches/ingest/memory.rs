//! The bytes that clients hold: allocated and not freed, without the allocator's own overhead. A
//! client holds its whole configuration, so they grow with it.

use std::sync::Arc;
use std::thread;

use allocation_counter::measure;
use crowfly_client::{Watch, XdsClient};
use crowfly_model::Bootstrap;
use crowfly_model::grpc::{Endpoints, Listener};
use crowfly_testkit::builders::listener;
use crowfly_testkit::{AdsServer, response};
use crowfly_xds::Protocol;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, oneshot};

use crate::client::Client;
use crate::messages::Resources;

const CLIENTS: usize = 50;

pub(crate) fn print(endpoints: &Resources, each: usize) {
    println!("\nbytes held");
    for (label, protocol) in [
        ("state of the world", Protocol::StateOfTheWorld),
        ("delta", Protocol::Delta),
    ] {
        let resources = endpoints.names().len();
        let (watched, cached) = held(endpoints, protocol);
        let per_endpoint = cached / (resources * each);
        println!(
            "{label:<44}{per_endpoint:>8} per cached endpoint, {:>5} per resource, of which {} for \
             the watch",
            (watched + cached) / resources,
            watched / resources,
        );
    }
    println!(
        "{:<44}{:>8}",
        "client of one server that wants nothing",
        idle_protocol()
    );
    let (own, streaming) = idle_clients();
    println!("{:<44}{own:>8}", "XdsClient, not connected");
    println!(
        "{:<44}{streaming:>8}",
        "XdsClient with one watch, its stream quiet"
    );
}

/// The bytes of the watches, and the bytes that their resources add.
fn held(endpoints: &Resources, protocol: Protocol) -> (usize, usize) {
    let response = endpoints.response(protocol, "1", 0..endpoints.names().len());
    let mut client = None;
    let watched = measure(|| {
        client = Some(Client::watching::<Endpoints>(protocol, endpoints.names()));
    });
    let mut client = client.unwrap();
    let cached = measure(|| {
        client.receive(&response);
    });
    (current(&watched), current(&cached))
}

fn idle_protocol() -> usize {
    let mut client = None;
    let held = measure(|| {
        client = Some(Client::watching::<Listener>(Protocol::Delta, &[]));
    });
    drop(client);
    current(&held)
}

/// Many clients of one server, each with a target of its own, before and after it has what it
/// watches. All run on this thread, whose allocations are counted; the server has one of its own.
fn idle_clients() -> (usize, usize) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let server = Server::start(CLIENTS + 1);
    // The first client pays for what all of them share.
    let first = server.connect(&runtime, server.clients(&runtime, 1));
    let mut clients = Vec::new();
    let own = measure(|| clients = server.clients(&runtime, CLIENTS));
    let mut watches = Vec::new();
    let streaming = measure(|| watches = server.connect(&runtime, clients));
    drop((first, watches));
    let own = current(&own);
    (own / CLIENTS, (own + current(&streaming)) / CLIENTS)
}

/// Gives each client the listener it asks for.
struct Server {
    bootstrap: Arc<Bootstrap>,
    accepted: Arc<Semaphore>,
    _end: oneshot::Sender<()>,
}

impl Server {
    fn start(clients: usize) -> Self {
        let accepted = Arc::new(Semaphore::new(0));
        let (to_bootstrap, bootstrap) = oneshot::channel();
        let (end, ended) = oneshot::channel::<()>();
        let counter = Arc::clone(&accepted);
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut server = AdsServer::start();
                to_bootstrap.send(server.bootstrap()).unwrap();
                for _ in 0..clients {
                    server.next_request().await;
                    let listener = listener("svc").rds("routes").any();
                    server.send(response::<Listener>("1", "1", [listener]));
                    server.next_request().await;
                    counter.add_permits(1);
                }
                let _ = ended.await;
            });
        });
        Self {
            bootstrap: Arc::new(bootstrap.blocking_recv().unwrap()),
            accepted,
            _end: end,
        }
    }

    fn clients(&self, runtime: &Runtime, count: usize) -> Vec<XdsClient> {
        runtime.block_on(async {
            let client = |index| {
                XdsClient::builder(Arc::clone(&self.bootstrap))
                    .target(&format!("xds:///svc-{index}"))
                    .build()
                    .unwrap()
            };
            (0..count).map(client).collect()
        })
    }

    /// Each client in turn watches a listener, and has it.
    fn connect(&self, runtime: &Runtime, clients: Vec<XdsClient>) -> Vec<Watch<Listener>> {
        runtime.block_on(async {
            let mut watches = Vec::new();
            for client in clients {
                let mut watch = client.watch::<Listener>("svc").unwrap();
                watch.next().await.unwrap();
                self.accepted.acquire().await.unwrap().forget();
                watches.push(watch);
            }
            watches
        })
    }
}

fn current(info: &allocation_counter::AllocationInfo) -> usize {
    usize::try_from(info.bytes_current).unwrap()
}
