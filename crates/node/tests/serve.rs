//! The driver of an agent. The maps are in memory, so the tests need no kernel.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use crowfly_node::agent::Agent;
use crowfly_node::file::{FileSource, no_settings};
use crowfly_node::maps::memory::MemoryMaps;
use crowfly_node::metrics;
use crowfly_node::model::Place;
use crowfly_node::serve::{self, Start, Told};
use crowfly_node::services::Services;
use crowfly_node::view::View;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixListener, UnixStream};
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

/// N-84: an agent whose loop does not answer is not alive, although its port answers. One whose loop works is.
#[tokio::test(start_paused = true)]
async fn a_loop_that_does_not_answer_is_not_alive() {
    let (tell, mut told) = mpsc::channel(1);
    let listener = metrics::listen(([127, 0, 0, 1], 0).into()).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(listener.serve(tell.downgrade()));
    // Time is simulated: it goes on once nothing else is under way.
    let stuck = health(address).await;
    assert!(stuck.starts_with("HTTP/1.1 503 "), "{stuck}");
    assert!(
        stuck.ends_with("the agent has not answered for 5 s\n"),
        "{stuck}"
    );

    tokio::spawn(async move {
        while let Some(told) = told.recv().await {
            if let Told::Awaited(answer) = told {
                // Whoever asked first may have gone.
                let _ = answer.send(Vec::new()).await;
            }
        }
    });
    let alive = health(address).await;
    assert!(alive.starts_with("HTTP/1.1 200 "), "{alive}");
}

async fn health(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let question = "GET /healthz HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n";
    stream.write_all(question.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
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
