//! The driver of a [`ResourceJoiner`]: an xDS client on one side, the agent on the other.
//!
//! The driver has the client and the clock, because the joiner is without I/O.

use std::sync::Arc;

use crowfly_client::{Batch, Subscriber, Update, XdsClient, XdsClientError};
use crowfly_model::ResourceType;
use crowfly_model::bootstrap::{Bootstrap, BootstrapError, Node, ServerBuilder, ServerConfig};
use crowfly_xds::{Changed, Key, Kind, ReadingError, ResourceError, TroubleReason};
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tracing::{debug, warn};

use super::cluster::NodeCluster;
use super::endpoints::NodeEndpoints;
use super::join::ResourceJoiner;
use super::listener::NodeListener;
use super::mapping::{Mapping, Pods};
use crate::kubernetes::NodeFacts;
use crate::loads::LoadServer;
use crate::serve::Told;
use crate::services::ServiceEvent;

/// The name by which an agent introduces itself to servers. They may send it what others cannot use.
const USER_AGENT: &str = "crowfly-node";

/// The settings of an xDS server as a source.
#[derive(Clone, Debug)]
pub struct XdsOptions {
    bootstrap: Arc<Bootstrap>,
    /// The settings of the mapping.
    pub mapping: Mapping,
    /// The pods on this node.
    pub pods: Pods,
}

impl XdsOptions {
    /// The servers and the node of a bootstrap.
    pub fn new(bootstrap: Bootstrap) -> Self {
        let node = Node {
            user_agent_name: USER_AGENT.to_owned(),
            ..Node::clone(&bootstrap.node)
        };
        let bootstrap = Bootstrap {
            node: Arc::new(node),
            ..bootstrap
        };
        Self {
            bootstrap: Arc::new(bootstrap),
            mapping: Mapping::default(),
            pods: Pods::default(),
        }
    }

    /// One server, and the id of the node.
    ///
    /// # Errors
    /// The address of the server is wrong.
    ///
    /// ```
    /// use crowfly_node::xds::XdsOptions;
    ///
    /// let options = XdsOptions::to_server("control:18000", "node-a")?;
    /// assert_eq!(options.bootstrap().node.id, "node-a");
    /// assert!(XdsOptions::to_server("", "node-a").is_err());
    /// # Ok::<(), crowfly_model::bootstrap::BootstrapError>(())
    /// ```
    pub fn to_server(
        server: impl Into<ServerBuilder>,
        node_id: &str,
    ) -> Result<Self, BootstrapError> {
        let bootstrap = Bootstrap::builder(server)?.node_id(node_id).build();
        Ok(Self::new(bootstrap))
    }

    /// Sets the mapping.
    #[must_use]
    pub fn mapping(mut self, mapping: Mapping) -> Self {
        self.mapping = mapping;
        self
    }

    /// Sets the pods on this node.
    #[must_use]
    pub fn pods(mut self, pods: Pods) -> Self {
        self.pods = pods;
        self
    }

    /// The bootstrap, with the node as servers see it.
    pub fn bootstrap(&self) -> &Arc<Bootstrap> {
        &self.bootstrap
    }
}

/// An xDS server as a source of services.
#[derive(Debug)]
pub struct XdsSource {
    client: XdsClient,
    bootstrap: Arc<Bootstrap>,
    subscriber: Subscriber,
    joiner: ResourceJoiner,
    /// The facts about this node that Kubernetes knows.
    node: Option<watch::Receiver<NodeFacts>>,
    /// The number of refused resources that the agent was not told of yet.
    refused: u64,
}

/// The reason why an xDS server cannot be a source.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum XdsSourceError {
    /// No client can be made of the settings.
    #[error(transparent)]
    Client(#[from] XdsClientError),
    /// The client reads resources by other rules.
    #[error(transparent)]
    Reading(#[from] ReadingError),
}

impl XdsSource {
    /// Begins to ask for listeners and clusters. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// The credentials of a server cannot be used.
    pub fn new(options: XdsOptions) -> Result<Self, XdsSourceError> {
        let XdsOptions {
            bootstrap,
            mapping,
            pods,
        } = options;
        let mut joiner = ResourceJoiner::default();
        joiner.pods(pods);
        let mapping = Arc::new(mapping);
        let client = XdsClient::builder(Arc::clone(&bootstrap))
            .target(USER_AGENT)
            .reading::<NodeListener>(Arc::clone(&mapping))
            .reading::<NodeCluster>(Arc::clone(&mapping))
            .reading::<NodeEndpoints>(mapping)
            .build()?;
        let subscriber = client.subscriber();
        subscriber.watch_all(Kind::of::<NodeCluster>())?;
        subscriber.watch_all(Kind::of::<NodeListener>())?;
        Ok(Self {
            client,
            bootstrap,
            subscriber,
            joiner,
            node: None,
            refused: 0,
        })
    }

    /// The client, for others that ask the same server.
    pub fn client(&self) -> XdsClient {
        self.client.clone()
    }

    /// The server that is asked first, to which load is reported.
    pub fn server(&self) -> Option<&ServerConfig> {
        self.bootstrap.servers.first()
    }

    /// The client and that server.
    pub fn load_server(&self) -> Option<LoadServer> {
        let server = self.server()?.clone();
        let client = self.client();
        Some(LoadServer { client, server })
    }

    /// Follows the pods of this node as Kubernetes knows them, instead of those that are a setting.
    pub fn follow_node(&mut self, facts: watch::Receiver<NodeFacts>) {
        self.node = Some(facts);
    }

    /// Tells the agent what the server has, until one of both is gone.
    pub async fn run(mut self, rank: usize, told: mpsc::Sender<Told>) {
        while let Some(events) = self.next().await {
            let refused = std::mem::take(&mut self.refused);
            let refused = (refused > 0).then_some(Told::Refused(rank, refused));
            let services = (!events.is_empty()).then_some(Told::Services(rank, events));
            for message in refused.into_iter().chain(services) {
                if told.send(message).await.is_err() {
                    return;
                }
            }
        }
    }

    /// Takes the next changes of the server, and returns what follows from them. `None` once the client is
    /// gone. Cancel-safe.
    pub async fn next(&mut self) -> Option<Vec<ServiceEvent>> {
        tokio::select! {
            batch = self.subscriber.next() => Some(self.take(&batch?)),
            pods = told(&mut self.node) => {
                self.joiner.pods(pods);
                Some(self.join())
            }
        }
    }

    fn take(&mut self, batch: &Batch) -> Vec<ServiceEvent> {
        for update in &batch.updates {
            if is_refused(update) {
                self.refused += 1;
            }
            if update.changed == Changed::Data {
                self.update(update);
            }
        }
        for kind in &batch.answered {
            match kind.type_url {
                NodeListener::TYPE_URL => self.joiner.listeners_listed(),
                NodeCluster::TYPE_URL => self.joiner.clusters_listed(),
                _ => {}
            }
        }
        let mut events = Vec::new();
        if let Some(reason) = &batch.unreachable {
            events = self.joiner.reach(Some(Arc::clone(reason)));
        } else if is_heard(batch) {
            events = self.joiner.reach(None);
        }
        events.extend(self.join());
        events
    }

    /// Works out what follows, and asks for the endpoints that are needed now.
    fn join(&mut self) -> Vec<ServiceEvent> {
        let joined = self.joiner.poll();
        for name in &joined.watch {
            let watched = self.subscriber.watch(Key::of::<NodeEndpoints>(name));
            if let Err(error) = watched {
                warn!("{error}");
            }
        }
        for name in &joined.unwatch {
            self.subscriber.unwatch(Key::of::<NodeEndpoints>(name));
        }
        for problem in &joined.problems {
            warn!("{problem}");
        }
        joined.events
    }

    fn update(&mut self, update: &Update) {
        let name = &update.key.name;
        let (entry, joiner) = (&update.entry, &mut self.joiner);
        match update.key.kind.type_url {
            NodeListener::TYPE_URL => {
                joiner.listener(name, entry.read::<NodeListener>().and_then(usable));
            }
            NodeCluster::TYPE_URL => {
                joiner.cluster(name, entry.read::<NodeCluster>().and_then(usable));
            }
            _ => match entry.read::<NodeEndpoints>() {
                Some(Ok(endpoints)) => joiner.endpoints(name, Ok(endpoints)),
                // Endpoints that cannot be asked for now may exist.
                Some(Err(error)) if matches!(error.reason, TroubleReason::Connectivity(_)) => {}
                Some(Err(error)) => {
                    let reason = error.reason.to_string();
                    joiner.endpoints(name, Err(reason.into()));
                }
                None => {}
            },
        }
    }
}

/// Waits until Kubernetes says other pods of this node. It waits for ever if nobody says any.
async fn told(node: &mut Option<watch::Receiver<NodeFacts>>) -> Pods {
    if let Some(facts) = node
        && facts.changed().await.is_ok()
    {
        let NodeFacts { place, pod_cidrs } = facts.borrow_and_update().clone();
        return Pods {
            node: place.node,
            cidrs: pod_cidrs,
        };
    }
    std::future::pending().await
}

/// True if a batch is the work of a server that can be reached. After a reconnect, a server sends only what changed,
/// so the first news may be of endpoints.
fn is_heard(batch: &Batch) -> bool {
    let is_cut = |error: &ResourceError| matches!(error.reason, TroubleReason::Connectivity(_));
    let mut entries = batch.updates.iter().map(|update| &update.entry);
    let is_sound = entries.any(|entry| entry.has_value() && !entry.ambient().is_some_and(is_cut));
    is_sound || !batch.answered.is_empty()
}

/// True if an update says that the server sent a resource that is not valid.
fn is_refused(update: &Update) -> bool {
    let is_invalid = |error: &ResourceError| matches!(error.reason, TroubleReason::Invalid(_));
    let entry = &update.entry;
    match (update.changed, entry.has_value()) {
        (Changed::Nothing, _) => false,
        (_, true) => entry.ambient().is_some_and(is_invalid),
        // Without a value, the error is the same for every type.
        (_, false) => {
            matches!(entry.read::<NodeListener>(), Some(Err(error)) if is_invalid(&error))
        }
    }
}

/// The resource, if there is one. The client has logged the reason if there is none.
fn usable<T>(read: Result<Arc<T>, ResourceError>) -> Option<Arc<T>> {
    read.inspect_err(|error| debug!("{error}")).ok()
}
