//! The driver of the Kubernetes source: three watches and one joiner.
//!
//! The driver has the connections and the clock, because the joiner is without I/O, so that tests need no API
//! server.

use std::sync::Arc;
use std::time::Duration;

use crowfly_source::Event;
use crowfly_source::kubernetes::{
    ApiServer, ApiServerError, ApiServerOptions, Object, Seen, Watch, WatchOptions,
};
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout_at};
use tracing::{error, warn};

use super::node::{NodeFacts, read_node};
use super::{Joiner, label_selector};
use crate::serve::Told;

/// The name of the source that is Kubernetes.
pub const KUBERNETES_SOURCE: &str = "kubernetes";

/// The most words that are taken together.
const MOST: usize = 4096;

/// All settings of the source. They hold paths to secrets, and no secret.
#[derive(Clone, Debug, Default)]
pub struct KubernetesOptions {
    /// The way to the API server.
    pub server: ApiServerOptions,
    /// The services to route: those whose label `service.kubernetes.io/service-proxy-name` is this.
    /// Without it, those without the label.
    pub service_proxy_name: Option<String>,
    /// The Node that the agent runs on. If it is given, its zone and the ranges of its pods are followed.
    pub node_name: Option<String>,
    /// The zone of the node, if it is a setting. Then the zone of the Node does not count.
    pub zone: Option<Arc<str>>,
    /// Events that come within this time are told together. Those that are there already are told
    /// together in any case, so that it may be zero.
    pub batch: Duration,
    /// Paging, streaming and pauses. The selectors in it are replaced.
    pub watch: WatchOptions,
}

/// A mistake in the settings.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KubernetesError {
    /// The API server cannot be asked.
    #[error(transparent)]
    Server(#[from] ApiServerError),
    /// A name that no object can have.
    #[error("{field}: expected letters, digits, '-', '_' and '.', got {found:?}")]
    Name {
        /// The setting.
        field: &'static str,
        /// Its value.
        found: String,
    },
}

/// Kubernetes as a source of services.
#[derive(Debug)]
pub struct KubernetesSource {
    options: KubernetesOptions,
    server: ApiServer,
    facts: watch::Sender<NodeFacts>,
}

impl KubernetesSource {
    /// Reads the settings, and the files that they name. Nothing is asked for yet.
    ///
    /// # Errors
    /// A setting or a file is wrong or missing.
    pub fn new(options: KubernetesOptions) -> Result<Self, KubernetesError> {
        let names = [
            ("service_proxy_name", &options.service_proxy_name),
            ("node_name", &options.node_name),
        ];
        for (field, name) in names {
            let name = name.as_deref().unwrap_or("unset");
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            // It becomes a part of a selector.
            if name.is_empty() || !name.bytes().all(is_plain) {
                let found = name.to_owned();
                return Err(KubernetesError::Name { field, found });
            }
        }
        Ok(Self {
            server: ApiServer::new(&options.server)?,
            options,
            facts: watch::Sender::default(),
        })
    }

    /// The address of the API server.
    pub fn address(&self) -> &str {
        self.server.address()
    }

    /// True if the Node that the agent runs on is followed. Then [`Told::NodeHeard`] is told once.
    pub fn follows_node(&self) -> bool {
        self.options.node_name.is_some()
    }

    /// The facts about the node that the cluster knows, as they change.
    pub fn node_facts(&self) -> watch::Receiver<NodeFacts> {
        self.facts.subscribe()
    }

    /// Tells services and the place of the node, for as long as somebody listens.
    pub async fn run(self, rank: usize, told: mpsc::Sender<Told>) {
        let mut watches = match Watches::new(&self.server, &self.options) {
            Ok(watches) => watches,
            Err(error) => {
                error!("Kubernetes: {error}");
                let failed = Event::Failed(error.to_string().into());
                let _ = told.send(Told::Services(rank, vec![failed])).await;
                return;
            }
        };
        let proxy_name = self.options.service_proxy_name.as_deref();
        let mut joiner = Joiner::new(proxy_name.map(Arc::from));
        let mut told_refused = 0;
        let mut refused_nodes = 0;
        let mut is_node_told = false;
        loop {
            let mut place = None;
            let mut is_node_heard = false;
            let mut word = watches.next().await;
            let end = Instant::now() + self.options.batch;
            for room in (0..MOST).rev() {
                match word {
                    Word::Service(seen) => joiner.see_service(seen),
                    Word::Slice(seen) => joiner.see_slice(seen),
                    Word::Node(seen) => {
                        // A Node that does not exist is an answer, too.
                        is_node_heard |= matches!(seen, Seen::Event(Event::InitDone));
                        match self.see_node(seen) {
                            Ok(moved) => place = moved.or(place),
                            Err(Refused) => refused_nodes += 1,
                        }
                    }
                }
                if room == 0 {
                    break;
                }
                word = match timeout_at(end, watches.next()).await {
                    Ok(word) => word,
                    Err(_) => break,
                };
            }
            let services = joiner.take();
            let services = (!services.is_empty()).then_some(Told::Services(rank, services));
            let refused = joiner.refused();
            let refused = refused.services + refused.slices + refused_nodes;
            let more = refused - told_refused;
            told_refused = refused;
            let refused = (more > 0).then_some(Told::Refused(rank, more));
            let node_heard = (is_node_heard && !is_node_told).then_some(Told::NodeHeard);
            is_node_told |= is_node_heard;
            let messages = refused.into_iter().chain(place).chain(services);
            for message in messages.chain(node_heard) {
                if told.send(message).await.is_err() {
                    return;
                }
            }
        }
    }

    /// Takes a word about the node. A node that is gone, or cannot be read, is where it was.
    fn see_node(&self, seen: Seen<Node>) -> Result<Option<Told>, Refused> {
        let Seen::Event(Event::Upsert(key, object)) = seen else {
            return Ok(None);
        };
        let read = match object {
            Object::Valid(node) => read_node(&node).map_err(|refusal| refusal.to_string()),
            Object::Malformed(reason) => Err(reason.to_string()),
        };
        let mut facts = match read {
            Ok(facts) => facts,
            Err(reason) => {
                error!("Node {key} is refused: {reason}; its last good version stays");
                return Err(Refused);
            }
        };
        if self.options.zone.is_some() {
            facts.place.zone.clone_from(&self.options.zone);
        }
        if facts.place.zone.is_none() {
            warn!("Node {key} has no label topology.kubernetes.io/zone: no zone is preferred");
        }
        let moved = self.facts.borrow().place != facts.place;
        let place = moved.then(|| Told::Place(facts.place.clone()));
        self.facts.send_if_modified(|known| {
            let is_new = *known != facts;
            *known = facts;
            is_new
        });
        Ok(place)
    }
}

/// A Node cannot be read, which was logged.
struct Refused;

enum Word {
    Service(Seen<Service>),
    Slice(Seen<EndpointSlice>),
    Node(Seen<Node>),
}

struct Watches {
    services: Watch<Service>,
    slices: Watch<EndpointSlice>,
    node: Option<Watch<Node>>,
}

impl Watches {
    fn new(server: &ApiServer, options: &KubernetesOptions) -> Result<Self, ApiServerError> {
        let selected = WatchOptions {
            labels: Some(label_selector(options.service_proxy_name.as_deref())),
            fields: None,
            ..options.watch.clone()
        };
        let node = options.node_name.as_ref().map(|name| {
            let options = WatchOptions {
                labels: None,
                fields: Some(format!("metadata.name={name}")),
                ..options.watch.clone()
            };
            Watch::new(server, options)
        });
        Ok(Self {
            services: Watch::new(server, selected.clone())?,
            slices: Watch::new(server, selected)?,
            node: node.transpose()?,
        })
    }

    /// The next word of any of them. Nothing is lost if the future is dropped.
    async fn next(&mut self) -> Word {
        let node = async {
            match &mut self.node {
                Some(node) => node.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            seen = self.services.next() => Word::Service(seen),
            seen = self.slices.next() => Word::Slice(seen),
            seen = node => Word::Node(seen),
        }
    }
}
