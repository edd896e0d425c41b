//! The admin port: is it well, what does it serve, and who took it how.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use crowfly_xds::{Snapshot, SnapshotResource};
use serde_json::{Map, Value, json};

use crate::clients::{Clients, unix};
use crate::descriptors;
use crate::metrics::Metrics;
use crate::store::Store;

const INDEX: &str = "\
crowfly control plane

/healthz   200 while it serves
/metrics   for Prometheus
/snapshot  what is served, and what came of the last reload (JSON)
/clients   who is connected, and what they accepted and refused (JSON)
";

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the pages are made from.
#[derive(Clone, Debug)]
pub(crate) struct Admin {
    pub(crate) store: Arc<Store>,
    pub(crate) clients: Clients,
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
            .with_state(self)
    }
}

async fn metrics(State(admin): State<Admin>) -> Result<impl IntoResponse, StatusCode> {
    let text = admin.metrics.encode();
    let text = text.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(header::CONTENT_TYPE, OPEN_METRICS)], text))
}

async fn clients(State(admin): State<Admin>) -> impl IntoResponse {
    Json(json!({ "clients": admin.clients.list() }))
}

async fn snapshot(State(admin): State<Admin>) -> impl IntoResponse {
    let types = types_of(&admin.store.snapshot());
    Json(json!({ "last_reload": last_reload(&admin.store), "types": types }))
}

fn types_of(snapshot: &Snapshot) -> Map<String, Value> {
    let mut types = Map::new();
    for (type_url, of) in snapshot.types() {
        let resources: Map<String, Value> = of
            .resources()
            .iter()
            .map(|(name, resource)| (name.to_string(), shown(resource)))
            .collect();
        let of = json!({ "version": of.version(), "resources": resources });
        types.insert(type_url.to_owned(), of);
    }
    types
}

fn shown(resource: &SnapshotResource) -> Value {
    json!({
        "version": &*resource.version,
        "wrapped": resource.wrapped,
        "resource": descriptors::to_json(&resource.any),
    })
}

fn last_reload(store: &Store) -> Value {
    let reload = store.reloads().borrow().clone();
    let (changes, errors) = match &reload.result {
        Ok(changes) => (Some(changes.to_string()), Vec::new()),
        Err(errors) => (None, errors.iter().map(ToString::to_string).collect()),
    };
    json!({ "at": unix(reload.at), "ok": errors.is_empty(), "changes": changes, "errors": errors })
}
