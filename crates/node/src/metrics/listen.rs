//! The port that Prometheus asks.

use std::io;
use std::net::SocketAddr;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::Scrape;
use crate::serve::Told;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const INDEX: &str =
    "crowfly node\n\n/metrics  for Prometheus\n/healthz  200 while the agent runs\n";

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
            .route("/metrics", get(metrics))
            .with_state(agent);
        axum::serve(self.0, router).await
    }
}

/// The agent's state; `None` if it has ended.
async fn ask(agent: &mpsc::WeakSender<Told>) -> Option<Box<Scrape>> {
    let (answer, mut answers) = mpsc::channel(1);
    let asked = agent.upgrade()?.send(Told::Scrape(answer)).await;
    asked.ok()?;
    answers.recv().await
}

async fn healthz(State(agent): State<mpsc::WeakSender<Told>>) -> impl IntoResponse {
    match agent.upgrade().is_none_or(|agent| agent.is_closed()) {
        false => (StatusCode::OK, "ok\n"),
        true => (StatusCode::SERVICE_UNAVAILABLE, "the agent has ended\n"),
    }
}

/// Writes the metrics on a thread of its own, because thousands of rows take a while.
async fn metrics(
    State(agent): State<mpsc::WeakSender<Told>>,
) -> Result<impl IntoResponse, StatusCode> {
    let scrape = ask(&agent).await;
    let scrape = scrape.ok_or(StatusCode::SERVICE_UNAVAILABLE)?;
    let text = spawn_blocking(move || scrape.encode());
    let text = text.await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    let text = text.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(header::CONTENT_TYPE, OPEN_METRICS)], text))
}
