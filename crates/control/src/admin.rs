//! The admin port: health, metrics, the snapshot that is served, the state of each client, and the
//! loads that clients report.
//!
//! It has an address of its own, so that it can be closed to clients.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio_stream::wrappers::ReceiverStream;

use crate::clients::{Clients, unix};
use crate::dump::{Dump, Filter};
use crate::lrs::LoadBooks;
use crate::metrics::Metrics;
use crate::store::Store;

const INDEX: &str = "\
crowfly control plane

/healthz   200 while it serves
/metrics   for Prometheus
/snapshot  what is served, and what came of the last reload (JSON; secrets are left out)
           ?type=Cluster&name=payments shows a part of it, and ?view=canary what the clients of a view get
/clients   who is connected, and what they accepted and refused (JSON)
           ?node=web-1 shows each resource of the clients with that node id
/loads     the calls, errors and drops that clients report, by service and locality (JSON)
";

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const JSON: [(HeaderName, &str); 1] = [(header::CONTENT_TYPE, "application/json")];

/// The parts of the control plane that the pages show.
#[derive(Clone, Debug)]
pub(crate) struct Admin {
    pub(crate) store: Arc<Store>,
    pub(crate) clients: Clients,
    pub(crate) loads: LoadBooks,
    pub(crate) metrics: Metrics,
}

impl Admin {
    pub(crate) fn router(self) -> Router {
        Router::new()
            .route("/", get(INDEX))
            .route("/healthz", get("ok\n"))
            .route("/metrics", get(metrics))
            .route("/snapshot", get(snapshot))
            .route("/clients", get(clients))
            .route("/loads", get(loads))
            .with_state(self)
    }
}

/// Writes the metrics, on a thread of its own, because thousands of loads take a while.
async fn metrics(State(admin): State<Admin>) -> Result<impl IntoResponse, StatusCode> {
    let text = spawn_blocking(move || admin.metrics.encode(&admin.loads.view()));
    let text = text.await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    let text = text.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(header::CONTENT_TYPE, OPEN_METRICS)], text))
}

/// The clients to show.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// The id of a node; all clients without it.
    node: Option<String>,
}

/// Lists the clients, on a thread of its own, because thousands of clients take a while.
async fn clients(
    State(admin): State<Admin>,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<impl IntoResponse, (StatusCode, String)> {
    let Query(wanted) = wanted.map_err(|error| (error.status(), format!("{error}\n")))?;
    let failed = |error: String| (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n"));
    let text = spawn_blocking(move || {
        let list = match &wanted.node {
            Some(id) => admin
                .clients
                .of_node(id)
                .map_err(|near| absent(id, &near))?,
            None => admin.clients.list(),
        };
        serde_json::to_string(&list).map_err(|error| failed(error.to_string()))
    });
    let text = text.await.map_err(|error| failed(error.to_string()))??;
    Ok((JSON, text))
}

/// The answer for a node that is not connected.
fn absent(id: &str, near: &[String]) -> (StatusCode, String) {
    let mut text = format!("no client with the node id {id:?} is connected");
    if !near.is_empty() {
        let near: Vec<_> = near.iter().map(|id| format!("{id:?}")).collect();
        text = format!("{text}; did you mean {}?", near.join(" or "));
    }
    (StatusCode::NOT_FOUND, text + "\n")
}

/// Shows the loads, on a thread of its own, because thousands of them take a while.
async fn loads(State(admin): State<Admin>) -> Result<impl IntoResponse, StatusCode> {
    let text = spawn_blocking(move || serde_json::to_string(&admin.loads.view()));
    let text = text.await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    let text = text.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok((JSON, text))
}

async fn snapshot(
    State(admin): State<Admin>,
    filter: Result<Query<Filter>, QueryRejection>,
) -> Result<impl IntoResponse, (StatusCode, String)> {
    let Query(filter) = filter.map_err(|error| (error.status(), format!("{error}\n")))?;
    let absent = (StatusCode::NOT_FOUND, format!("{filter}\n"));
    let last_reload = last_reload(&admin.store);
    let snapshot = match &filter.view {
        Some(view) => {
            let no_view = || {
                (
                    StatusCode::NOT_FOUND,
                    format!("there is no view {view:?}\n"),
                )
            };
            admin.store.snapshot_of_view(view).ok_or_else(no_view)?
        }
        None => admin.store.snapshot(),
    };
    let dump = Dump::new(snapshot, filter, last_reload).ok_or(absent)?;
    let (sender, pieces) = mpsc::channel(1);
    tokio::spawn(send(dump, sender));
    Ok((JSON, Body::from_stream(ReceiverStream::new(pieces))))
}

/// Sends a dump. A piece is made when the one before it was taken, so that no thread waits for a
/// slow reader.
async fn send(mut dump: Dump, sender: mpsc::Sender<Result<Vec<u8>, Infallible>>) {
    while let Ok(place) = sender.reserve().await {
        let made = spawn_blocking(move || (dump.next_piece(), dump));
        let Ok((Some(piece), rest)) = made.await else {
            return;
        };
        dump = rest;
        place.send(Ok(piece));
    }
}

fn last_reload(store: &Store) -> Value {
    let reload = store.reloads().borrow().clone();
    let (changes, errors) = match &reload.result {
        Ok(changes) => (Some(changes.to_string()), Vec::new()),
        Err(errors) => (None, errors.iter().map(ToString::to_string).collect()),
    };
    json!({ "at": unix(reload.at), "ok": errors.is_empty(), "changes": changes, "errors": errors })
}
