//! The port that Prometheus and the kubelet ask.
//!
//! The port has a task of its own and asks the agent by messages, because the agent's task alone owns its state.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::serve::Told;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const INDEX: &str = "crowfly node\n\n/metrics  for Prometheus\n/healthz  200 while the agent works\n\
                     /readyz   200 once every source has listed its services\n";

const ENDED: &str = "the agent has ended\n";

/// The time in which the agent answers, if it works. It is less than the kubelet waits.
const PATIENCE: Duration = Duration::from_secs(5);

/// A port that waits for questions.
#[derive(Debug)]
pub struct Listener(TcpListener);

/// Opens the port, so that an address that is taken is known before anything is routed.
///
/// # Errors
/// The address cannot be used.
pub async fn listen(address: SocketAddr) -> io::Result<Listener> {
    TcpListener::bind(address).await.map(Listener)
}

impl Listener {
    /// The address, with the port that the kernel chose.
    ///
    /// # Errors
    /// The socket is broken.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Answers with the state of the agent that listens to `agent`.
    ///
    /// # Errors
    /// The socket is broken.
    pub async fn serve(self, agent: mpsc::WeakSender<Told>) -> io::Result<()> {
        let router = Router::new()
            .route("/", get(INDEX))
            .route("/healthz", get(healthz))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .with_state(agent);
        axum::serve(self.0, router).await
    }
}

/// The agent's answer to a question; `None` if it has ended.
async fn ask<T>(
    agent: &mpsc::WeakSender<Told>,
    question: impl FnOnce(mpsc::Sender<T>) -> Told,
) -> Option<T> {
    let (answer, mut answers) = mpsc::channel(1);
    let asked = agent.upgrade()?.send(question(answer)).await;
    asked.ok()?;
    answers.recv().await
}

/// A loop that does not answer routes no change, so the agent does not count as alive.
async fn healthz(State(agent): State<mpsc::WeakSender<Told>>) -> (StatusCode, String) {
    let text = match timeout(PATIENCE, ask(&agent, Told::Awaited)).await {
        Ok(Some(_)) => return (StatusCode::OK, "ok\n".to_owned()),
        Ok(None) => ENDED.to_owned(),
        Err(_) => format!("the agent has not answered for {} s\n", PATIENCE.as_secs()),
    };
    (StatusCode::SERVICE_UNAVAILABLE, text)
}

/// An agent that has not heard a source is not ready, however long it has waited. So a rollout with a wrong address stops
/// at its first pods. A source that fails later does not count, because its last services stay in force.
async fn readyz(State(agent): State<mpsc::WeakSender<Told>>) -> (StatusCode, String) {
    match ask(&agent, Told::Awaited).await {
        Some(awaited) if awaited.is_empty() => (StatusCode::OK, "ok\n".to_owned()),
        Some(awaited) => {
            let awaited = awaited.join(", ");
            let text = format!("sources that have not listed their services: {awaited}\n");
            (StatusCode::SERVICE_UNAVAILABLE, text)
        }
        None => (StatusCode::SERVICE_UNAVAILABLE, ENDED.to_owned()),
    }
}

/// Writes the metrics on a thread of its own, because thousands of rows take a while.
async fn metrics(
    State(agent): State<mpsc::WeakSender<Told>>,
) -> Result<impl IntoResponse, StatusCode> {
    let scrape = ask(&agent, Told::Scrape).await;
    let scrape = scrape.ok_or(StatusCode::SERVICE_UNAVAILABLE)?;
    let text = spawn_blocking(move || scrape.encode());
    let text = text.await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    let text = text.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(header::CONTENT_TYPE, OPEN_METRICS)], text))
}
