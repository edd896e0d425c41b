//! The connected clients, and whether they accepted what they were sent. The admin port shows them,
//! because a client that refuses its configuration tells nobody else.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crowfly_xds::RequestOutcome;
use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::config::core::v3::node::UserAgentVersionType;
use serde::Serialize;

use crate::metrics::Metrics;

/// All open streams.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clients {
    streams: Arc<Mutex<Streams>>,
    metrics: Metrics,
}

#[derive(Debug, Default)]
struct Streams {
    opened: u64,
    open: BTreeMap<u64, Client>,
}

/// One stream, as an operator sees it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Client {
    stream: u64,
    protocol: Protocol,
    peer: Option<SocketAddr>,
    connected_at: u64,
    node: Option<NodeView>,
    types: BTreeMap<String, TypeView>,
}

/// The variant of xDS that a stream speaks.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Protocol {
    StateOfTheWorld,
    Delta,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct NodeView {
    pub(crate) id: String,
    pub(crate) cluster: String,
    pub(crate) user_agent: String,
    locality: Option<[String; 3]>,
}

/// The state of one type on a stream: the version that was sent, and whether the client accepted
/// it.
#[derive(Clone, Debug, Default, Serialize)]
struct TypeView {
    state: State,
    sent_version: Option<String>,
    acked_version: Option<String>,
    last_nack: Option<NackView>,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    /// The client asked for the type, and was sent nothing yet.
    #[default]
    Subscribed,
    Sent,
    Acked,
    Nacked,
}

#[derive(Clone, Debug, Serialize)]
struct NackView {
    version: String,
    message: String,
    at: u64,
}

impl Clients {
    pub(crate) fn new(metrics: Metrics) -> Self {
        Self {
            streams: Arc::default(),
            metrics,
        }
    }

    /// Registers a new stream, which is removed when the handle is dropped.
    pub(crate) fn open(&self, protocol: Protocol, peer: Option<SocketAddr>) -> ClientHandle {
        self.metrics.stream_opened();
        let mut streams = self.lock();
        streams.opened += 1;
        let stream = streams.opened;
        let client = Client {
            stream,
            protocol,
            peer,
            connected_at: unix_now(),
            node: None,
            types: BTreeMap::new(),
        };
        streams.open.insert(stream, client);
        drop(streams);
        ClientHandle {
            clients: self.clone(),
            stream,
        }
    }

    /// All clients, the oldest stream first.
    pub(crate) fn list(&self) -> Vec<Client> {
        self.lock().open.values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One open stream.
#[derive(Debug)]
pub(crate) struct ClientHandle {
    clients: Clients,
    stream: u64,
}

impl ClientHandle {
    pub(crate) fn id(&self) -> u64 {
        self.stream
    }

    pub(crate) fn introduced(&self, node: &Node) {
        self.update(|client| client.node = Some(NodeView::new(node)));
    }

    pub(crate) fn sent(&self, type_url: &str, version: &str) {
        self.clients.metrics.response(type_url);
        self.update_type(type_url, |of| {
            of.sent_version = Some(version.to_owned());
            of.state = State::Sent;
        });
    }

    pub(crate) fn received(&self, outcome: &RequestOutcome) {
        let metrics = &self.clients.metrics;
        match outcome {
            RequestOutcome::Subscribed { type_url } => self.update_type(type_url, |_| ()),
            RequestOutcome::Stale { type_url } => metrics.stale(type_url),
            RequestOutcome::Ack { type_url, version } => {
                metrics.ack(type_url);
                self.update_type(type_url, |of| of.acked(version));
            }
            RequestOutcome::Nack {
                type_url,
                version,
                message,
            } => {
                metrics.nack(type_url);
                self.update_type(type_url, |of| of.nacked(version, message));
            }
        }
    }

    fn update_type(&self, type_url: &str, change: impl FnOnce(&mut TypeView)) {
        self.update(|client| change(client.types.entry(type_url.to_owned()).or_default()));
    }

    fn update(&self, change: impl FnOnce(&mut Client)) {
        if let Some(client) = self.clients.lock().open.get_mut(&self.stream) {
            change(client);
        }
    }
}

impl Drop for ClientHandle {
    fn drop(&mut self) {
        self.clients.lock().open.remove(&self.stream);
        self.clients.metrics.stream_closed();
    }
}

impl TypeView {
    /// Notes an ACK. After a NACK a client may repeat the version that it holds, which does not
    /// accept the newest.
    fn acked(&mut self, version: &str) {
        self.acked_version = Some(version.to_owned());
        if self.sent_version.as_deref() == Some(version) {
            self.state = State::Acked;
        }
    }

    fn nacked(&mut self, version: &str, message: &str) {
        self.state = State::Nacked;
        self.last_nack = Some(NackView {
            version: version.to_owned(),
            message: message.to_owned(),
            at: unix_now(),
        });
    }
}

impl NodeView {
    pub(crate) fn new(node: &Node) -> Self {
        let version = match &node.user_agent_version_type {
            Some(UserAgentVersionType::UserAgentVersion(version)) => version.clone(),
            Some(UserAgentVersionType::UserAgentBuildVersion(build)) => {
                let v = build.version.unwrap_or_default();
                format!("{}.{}.{}", v.major_number, v.minor_number, v.patch)
            }
            None => String::new(),
        };
        let locality = node.locality.as_ref();
        Self {
            id: node.id.clone(),
            cluster: node.cluster.clone(),
            user_agent: format!("{} {version}", node.user_agent_name)
                .trim()
                .to_owned(),
            locality: locality.map(|l| [l.region.clone(), l.zone.clone(), l.sub_zone.clone()]),
        }
    }
}

/// Now, in seconds since 1970.
pub(crate) fn unix_now() -> u64 {
    unix(SystemTime::now())
}

/// A time in seconds since 1970.
pub(crate) fn unix(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}
