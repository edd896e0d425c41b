//! An API server of the benchmark's own: it lists Services and EndpointSlices in pages, and sends changes.
//!
//! The server holds objects that are ready to send. So the measured time is that of an event in the agent, and not that
//! of a server's storage.

use std::{
    collections::BTreeMap,
    io,
    net::Ipv4Addr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

use super::{
    BenchError,
    shape::{BACKEND_PORT, FRONTEND_PORT, Shape},
};

/// The namespace of all objects.
const NAMESPACE: &str = "bench";

/// A running API server. The server ends when this value is dropped.
pub(super) struct ApiServer {
    pub(super) url: String,
    objects: Arc<Objects>,
    _tasks: JoinSet<()>,
}

#[derive(Debug)]
struct Objects {
    services: Vec<Value>,
    slices: Vec<Value>,
    /// The changes since the start. A version is the number of changes before it.
    changes: Mutex<Vec<Change>>,
    version: watch::Sender<usize>,
}

#[derive(Clone, Debug)]
struct Change {
    resource: &'static str,
    line: String,
}

const SERVICES: &str = "services";
const SLICES: &str = "endpointslices";

impl ApiServer {
    /// Starts a server that has these services.
    pub(super) async fn start(shape: &Shape) -> Result<Self, BenchError> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.map_err(BenchError::Config)?;
        let address = listener.local_addr().map_err(BenchError::Config)?;
        let services = 0..shape.services;
        let objects = Arc::new(Objects {
            services: services.clone().map(service).collect(),
            slices: services
                .map(|number| slice(number, &shape.backends_of(number), 0))
                .collect(),
            changes: Mutex::new(Vec::new()),
            version: watch::Sender::new(0),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&objects)));
        Ok(Self {
            url: format!("http://{address}"),
            objects,
            _tasks: tasks,
        })
    }

    /// Gives a service other backends.
    pub(super) fn change(&self, service: u32, backends: &[Ipv4Addr]) {
        let mut changes = self.objects.changes();
        let version = changes.len() + 1;
        let object = slice(service, backends, version);
        changes.push(Change {
            resource: SLICES,
            line: format!("{}\n", json!({ "type": "MODIFIED", "object": object })),
        });
        self.objects.version.send_replace(version);
    }
}

impl Objects {
    fn changes(&self) -> MutexGuard<'_, Vec<Change>> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn service(number: u32) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": format!("s{number}"), "namespace": NAMESPACE, "resourceVersion": "0" },
        "spec": {
            "type": "ClusterIP", "clusterIP": Shape::frontend(number),
            "clusterIPs": [Shape::frontend(number)],
            "ports": [{ "name": "http", "port": FRONTEND_PORT, "protocol": "TCP" }],
        },
    })
}

fn slice(number: u32, backends: &[Ipv4Addr], version: usize) -> Value {
    let endpoints = backends.iter().map(|backend| {
        json!({
            "addresses": [backend], "nodeName": format!("node-{}", backend.octets()[3]),
            "conditions": { "ready": true, "serving": true, "terminating": false },
        })
    });
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {
            "name": format!("s{number}-1"), "namespace": NAMESPACE, "resourceVersion": version.to_string(),
            "labels": { "kubernetes.io/service-name": format!("s{number}") },
        },
        "ports": [{ "name": "http", "port": BACKEND_PORT, "protocol": "TCP" }],
        "endpoints": endpoints.collect::<Vec<_>>(),
    })
}

async fn accept(listener: TcpListener, objects: Arc<Objects>) {
    let mut connections = JoinSet::new();
    while let Ok((connection, _)) = listener.accept().await {
        let objects = Arc::clone(&objects);
        // An agent that is killed breaks its connections.
        connections.spawn(async move { drop(answer(connection, &objects).await) });
        while connections.try_join_next().is_some() {}
    }
}

/// Answers one request, and closes the connection.
async fn answer(connection: TcpStream, objects: &Objects) -> io::Result<()> {
    let mut connection = BufReader::new(connection);
    let mut first = String::new();
    connection.read_line(&mut first).await?;
    let mut line = String::new();
    while connection.read_line(&mut line).await? > 2 {
        line.clear();
    }
    let target = first.split(' ').nth(1).unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let query = query.split('&').filter_map(|pair| pair.split_once('='));
    let query: BTreeMap<&str, &str> = query.collect();
    let resource = match path.rsplit('/').next() {
        Some(SERVICES) => SERVICES,
        Some(SLICES) => SLICES,
        _ => return whole(&mut connection, "404 Not Found", "").await,
    };
    match query.get("watch") {
        Some(_) => tell(&mut connection, objects, resource, &query).await,
        None => {
            let page = page(objects, resource, &query).to_string();
            whole(&mut connection, "200 OK", &page).await
        }
    }
}

/// A page of the objects at the start. A watch from its version sends the changes since then.
fn page(objects: &Objects, resource: &str, query: &BTreeMap<&str, &str>) -> Value {
    let (all, kind) = match resource {
        SERVICES => (&objects.services, "ServiceList"),
        _ => (&objects.slices, "EndpointSliceList"),
    };
    let number = |key: &str| query.get(key).and_then(|text| text.parse().ok());
    let from = number("continue").unwrap_or(0_usize).min(all.len());
    let to = from.saturating_add(number("limit").unwrap_or(all.len()));
    let to = to.min(all.len());
    let next = match to < all.len() {
        true => to.to_string(),
        false => String::new(),
    };
    json!({
        "kind": kind, "metadata": { "resourceVersion": "0", "continue": next },
        "items": all[from..to],
    })
}

async fn whole(connection: &mut BufReader<TcpStream>, status: &str, body: &str) -> io::Result<()> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n"
    );
    connection.write_all(head.as_bytes()).await?;
    connection.write_all(body.as_bytes()).await?;
    connection.flush().await
}

/// Sends changes of a resource as they happen, until the agent closes the connection.
async fn tell(
    connection: &mut BufReader<TcpStream>,
    objects: &Objects,
    resource: &str,
    query: &BTreeMap<&str, &str>,
) -> io::Result<()> {
    let from = query.get("resourceVersion");
    let mut told = from.and_then(|from| from.parse().ok()).unwrap_or(0);
    let mut version = objects.version.subscribe();
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    connection.write_all(head.as_bytes()).await?;
    connection.flush().await?;
    loop {
        let changes: Vec<Change> = objects.changes().iter().skip(told).cloned().collect();
        told += changes.len();
        for Change { line, .. } in changes.iter().filter(|it| it.resource == resource) {
            let chunk = format!("{:x}\r\n{line}\r\n", line.len());
            connection.write_all(chunk.as_bytes()).await?;
        }
        connection.flush().await?;
        if version.changed().await.is_err() {
            return Ok(());
        }
    }
}
