//! The driver of an agent. The maps are in memory, so the tests need no kernel.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

use std::fs;
use std::path::Path;
use std::time::Duration;

use crowfly_node::agent::Agent;
use crowfly_node::file::{FileSource, no_settings};
use crowfly_node::maps::memory::MemoryMaps;
use crowfly_node::model::Place;
use crowfly_node::serve::{self, Start};
use crowfly_node::services::Services;
use crowfly_node::view::View;
use tokio::io::AsyncReadExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(20);

/// A file must rest before it is read. Questions that never stop must not begin that time anew.
#[tokio::test]
async fn questions_do_not_hold_up_a_change() {
    let folder = tempfile::tempdir().unwrap();
    let (config, socket) = (
        folder.path().join("node.yaml"),
        folder.path().join("socket"),
    );
    fs::write(&config, services("10.244.1.1")).unwrap();
    let mut file = FileSource::new(config.clone(), no_settings);
    let first = file.first().await.unwrap().listing(&config).unwrap();
    let table = Services::new(vec!["file".into()], Place::default());
    let mut agent = Agent::new(table, MemoryMaps::default()).unwrap();
    agent.handle(0, first);
    let questions = UnixListener::bind(&socket).unwrap();
    let (again, reread) = mpsc::channel(1);
    let (told, sources) = mpsc::channel(1);
    let (ready, is_ready) = oneshot::channel();
    let start = Start {
        patience: Start::PATIENCE,
        ready,
    };
    tokio::spawn(file.run(Some(0), reread, told));
    tokio::spawn(serve::run(agent, sources, questions, start));
    assert_eq!(is_ready.await, Ok(1));

    assert_eq!(backend(&ask(&socket).await), "10.244.1.1:8080");
    fs::write(&config, services("10.244.1.2")).unwrap();
    let changed = async {
        while backend(&ask(&socket).await) != "10.244.1.2:8080" {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, changed)
        .await
        .expect("the change is seen");

    // To read the file again changes nothing.
    again.send(()).await.unwrap();
    assert_eq!(ask(&socket).await.sources[0].status, "synced");
}

fn services(backend: &str) -> String {
    format!(
        "services:\n- name: web\n  cluster_ips: [10.96.0.1]\n  ports: [{{ port: 80 }}]\n  \
         endpoints: [{{ addresses: [{backend}], ports: [{{ port: 8080 }}] }}]\n"
    )
}

fn backend(view: &View) -> String {
    view.frontends[0].backends[0].address.to_string()
}

async fn ask(socket: &Path) -> View {
    let mut stream = UnixStream::connect(socket).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    serde_json::from_slice(&answer).unwrap()
}
