//! Counters are read beside the work of the agent, because the kernel may take long to read them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc as blocking};
use std::time::Duration;

use crowfly_model::bootstrap::Bootstrap;
use crowfly_node::agent::Agent;
use crowfly_node::file;
use crowfly_node::loads::Loads;
use crowfly_node::maps::memory::MemoryMaps;
use crowfly_node::maps::reports::{LabelId, MemoryReports, ReportMaps, Reported};
use crowfly_node::maps::{CounterReader, Counters, Dump, MapError, Maps, Operation, Pair};
use crowfly_node::model::Place;
use crowfly_node::serve::{self, Start, Told};
use crowfly_node::services::{ServiceEvent, Services};
use crowfly_node::view::View;
use crowfly_source::Event;
use tokio::io::AsyncReadExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

/// N-23: a change of endpoints is in the maps at once, although the kernel takes long to read its counters for `services`
/// and for Prometheus. Both get their answer, with the state of its time.
#[tokio::test]
async fn a_change_does_not_wait_for_the_counters() {
    let (release, released) = blocking::channel();
    let maps = SlowMaps {
        maps: Arc::default(),
        released: Arc::new(Mutex::new(released)),
    };
    let table = Services::new(vec!["file".into()], Place::default());
    let agent = Agent::new(table, maps.clone()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let questions = UnixListener::bind(&socket).unwrap();
    let (tell, told) = mpsc::channel(1);
    let (ready, is_ready) = oneshot::channel();
    let patience = Start::PATIENCE;
    tokio::spawn(serve::run(
        agent,
        told,
        questions,
        Start { patience, ready },
    ));
    tell.send(Told::Services(0, listing("10.244.0.1")))
        .await
        .unwrap();
    assert_eq!(is_ready.await, Ok(1));

    let mut question = UnixStream::connect(&socket).await.unwrap();
    let (scrape, mut scraped) = mpsc::channel(1);
    tell.send(Told::Scrape(scrape)).await.unwrap();
    tell.send(Told::Services(0, listing("10.244.0.2")))
        .await
        .unwrap();
    let changed = async {
        while !maps.has_backend("10.244.0.2:8080") {
            sleep(Duration::from_millis(5)).await;
        }
    };
    let changed = timeout(Duration::from_secs(20), changed).await;
    // A test that fails must not leave a thread that waits.
    for _ in 0..10 {
        release.send(()).unwrap();
    }
    changed.expect("the change does not wait");
    assert_eq!(scraped.recv().await.unwrap().frontends, 1);
    let mut answer = Vec::new();
    question.read_to_end(&mut answer).await.unwrap();
    let view: View = serde_json::from_slice(&answer).unwrap();
    let backend = view.frontends[0].backends[0].address.to_string();
    assert_eq!(backend, "10.244.0.2:8080");
}

/// N-23: a change of endpoints is in the maps at once, although the kernel takes long to read its counters for a load
/// report. Its label is known at once, too.
#[tokio::test]
async fn a_change_does_not_wait_for_a_load_report() {
    let (release, released) = blocking::channel();
    let released = Arc::new(Mutex::new(released));
    let maps = SlowMaps {
        maps: Arc::default(),
        released: Arc::clone(&released),
    };
    let (begun, mut has_begun) = mpsc::unbounded_channel();
    let reports = SlowReports {
        maps: Arc::default(),
        is_adopted: AtomicBool::new(false),
        begun,
        released,
        has_given_up: Arc::default(),
    };
    let stored = Arc::clone(&reports.maps);
    let has_given_up = Arc::clone(&reports.has_given_up);
    let table = Services::new(vec!["file".into()], Place::default());
    let mut agent = Agent::new(table, maps.clone()).unwrap();
    let loads = Loads::adopt(Box::new(reports), true).unwrap();
    agent.report_loads(loads.clone());
    // Nobody listens there. The client looks at the loads all the same.
    let bootstrap = Bootstrap::builder("127.0.0.1:9").unwrap().build();
    let _registration = loads.report_to(&bootstrap).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let questions = UnixListener::bind(folder.path().join("socket")).unwrap();
    let (tell, told) = mpsc::channel(1);
    let (ready, _is_ready) = oneshot::channel();
    let patience = Start::PATIENCE;
    has_begun.recv().await.unwrap();
    tokio::spawn(serve::run(
        agent,
        told,
        questions,
        Start { patience, ready },
    ));
    tell.send(Told::Services(0, listing("10.244.0.2")))
        .await
        .unwrap();
    let changed = async {
        while !maps.has_backend("10.244.0.2:8080") || stored.lock().unwrap().labels.is_empty() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    let changed = timeout(Duration::from_secs(20), changed).await;
    for _ in 0..10 {
        release.send(()).unwrap();
    }
    changed.expect("the change does not wait");
    assert!(
        !has_given_up.load(Ordering::Relaxed),
        "the counters are read beside the work"
    );
    assert_eq!(stored.lock().unwrap().reported.len(), 1);
}

fn listing(backend: &str) -> Vec<ServiceEvent> {
    let text = format!(
        "services:\n- name: web\n  cluster_ips: [10.96.0.1]\n  ports: [{{ port: 80 }}]\n  \
         endpoints: [{{ addresses: [{backend}], ports: [{{ port: 8080 }}] }}]\n"
    );
    let services = file::read("node.yaml".as_ref(), &text).unwrap().into_iter();
    let services = services.map(|it| Event::Upsert(it.name.clone(), Arc::new(it)));
    let events = [Event::Init].into_iter().chain(services);
    events.chain([Event::InitDone]).collect()
}

/// Maps whose counters take until the test releases them.
#[derive(Clone, Debug)]
struct SlowMaps {
    maps: Arc<Mutex<MemoryMaps>>,
    released: Arc<Mutex<blocking::Receiver<()>>>,
}

impl SlowMaps {
    fn has_backend(&self, address: &str) -> bool {
        let address = address.parse().unwrap();
        let maps = self.maps.lock().unwrap();
        maps.backends.values().any(|it| *it == address)
    }
}

impl Maps for SlowMaps {
    fn apply(&mut self, operation: &Operation) -> Result<(), MapError> {
        self.maps.lock().unwrap().apply(operation)
    }

    fn dump(&self) -> Result<Dump, MapError> {
        self.maps.lock().unwrap().dump()
    }

    fn counters(&self) -> Result<Vec<(Pair, Counters)>, MapError> {
        self.counter_reader()()
    }

    fn counter_reader(&self) -> CounterReader {
        let released = Arc::clone(&self.released);
        Box::new(move || {
            let patience = Duration::from_secs(30);
            released.lock().unwrap().recv_timeout(patience).unwrap();
            Ok(Vec::new())
        })
    }
}

/// Maps of load reports whose counters take until the test releases them, but for the first time.
#[derive(Debug)]
struct SlowReports {
    maps: Arc<Mutex<MemoryReports>>,
    is_adopted: AtomicBool,
    begun: mpsc::UnboundedSender<()>,
    released: Arc<Mutex<blocking::Receiver<()>>>,
    /// True if the test did nothing while the counters were read.
    has_given_up: Arc<AtomicBool>,
}

impl ReportMaps for SlowReports {
    fn counters(&self) -> Result<Vec<(Pair, Counters)>, MapError> {
        if self.is_adopted.swap(true, Ordering::Relaxed) {
            return self.counter_reader()();
        }
        Ok(Vec::new())
    }

    fn counter_reader(&self) -> CounterReader {
        let (begun, released) = (self.begun.clone(), Arc::clone(&self.released));
        let has_given_up = Arc::clone(&self.has_given_up);
        Box::new(move || {
            // The test may be over.
            let _ = begun.send(());
            let patience = Duration::from_secs(30);
            if released.lock().unwrap().recv_timeout(patience).is_err() {
                has_given_up.store(true, Ordering::Relaxed);
            }
            Ok(Vec::new())
        })
    }

    fn counters_of(&self, pair: Pair) -> Result<Counters, MapError> {
        self.maps.lock().unwrap().counters_of(pair)
    }

    fn reported(&self) -> Result<Vec<(Pair, Reported)>, MapError> {
        self.maps.lock().unwrap().reported()
    }

    fn labels(&self) -> Result<Vec<(LabelId, Vec<u8>)>, MapError> {
        self.maps.lock().unwrap().labels()
    }

    fn set_reported(&mut self, pair: Pair, reported: Option<Reported>) -> Result<(), MapError> {
        self.maps.lock().unwrap().set_reported(pair, reported)
    }

    fn set_label(&mut self, id: LabelId, text: Option<&[u8]>) -> Result<(), MapError> {
        self.maps.lock().unwrap().set_label(id, text)
    }
}
