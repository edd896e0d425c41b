//! The socket for questions without a file descriptor for them. A process of its own, because it uses up its
//! descriptors.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

use std::fs;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crowfly_node::agent::Agent;
use crowfly_node::maps::memory::MemoryMaps;
use crowfly_node::model::Place;
use crowfly_node::serve::{self, Start};
use crowfly_node::services::Services;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::AsyncReadExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

/// A process without free descriptors says so once, does not try as fast as it can, and answers when there is one.
#[tokio::test(start_paused = true)]
async fn a_lack_of_descriptors_is_said_once() {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .init();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let questions = UnixListener::bind(&path).unwrap();
    // It waits in the queue of the listener.
    let mut asker = UnixStream::connect(&path).await.unwrap();
    let services = Services::new(vec!["file".into()], Place::default());
    let agent = Agent::new(services, MemoryMaps::default()).unwrap();
    let (_told, sources) = mpsc::channel(1);
    let (ready, _) = oneshot::channel();
    let start = Start {
        patience: Duration::from_secs(3600),
        ready,
    };

    let before = getrlimit(Resource::Nofile);
    let used = fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    // The directory itself was one of them while it was read. Numbers may have holes, so that all are taken.
    let mut taken = Vec::new();
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(used + 16),
            ..before
        },
    )
    .unwrap();
    while let Ok(file) = fs::File::open("/dev/null") {
        taken.push(file);
    }
    tokio::spawn(serve::run(agent, sources, questions, start));
    // Time is simulated: a minute of attempts.
    for _ in 0..600 {
        sleep(Duration::from_millis(100)).await;
    }
    let said = log.count("the socket for questions: Too many open files");
    assert_eq!(said, 1, "{}", log.text());

    taken.clear();
    let mut answer = String::new();
    asker.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("\"sources\""), "{answer}");
}

#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }

    fn count(&self, words: &str) -> usize {
        self.text().matches(words).count()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
