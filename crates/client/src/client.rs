//! The public handle of a client, and its builder.
//!
//! The handle holds no state of the protocol: it sends commands to the client's task, so that clones of it need
//! no lock.

use std::collections::BTreeMap;
use std::sync::Arc;

use crowfly_model::bootstrap::{Bootstrap, Node, ServerConfig, ServerFeature, is_switched_on};
use crowfly_model::grpc::cluster::{CustomPolicies, ProviderNames};
use crowfly_model::grpc::filter::CustomFilters;
use crowfly_model::{Features, ResourceType};
use crowfly_xds::{
    Authorities, CacheEntry, DataErrors, Discovery, Key, Kind, Protocol, ReadingError, Readings,
    ServerId, SessionConfig,
};
use futures_channel::mpsc;
use thiserror::Error;
use tokio::sync::oneshot;
use tokio_rustls::rustls::ClientConfig;

use crate::credentials::{BackendCredentials, CredentialsError};
use crate::driver::{Command, Driver};
use crate::load_reports::{
    Identity, LoadRegistration, LoadReportStatus, LoadWake, Reporters, SharedLoadSource,
};
use crate::metrics::MetricsRecorder;
use crate::registry;
use crate::stream::Server;
use crate::subscriber::Subscriber;
use crate::transports::Transports;
use crate::watch::{Watch, WatchAll};

/// The default limit of a response. tonic's own 4 MiB is too little, because a state-of-the-world response
/// holds all clusters.
const MAX_RESPONSE_BYTES: usize = 64 << 20;

/// The environment variable that switches gRFC A88 on.
const DATA_ERROR_HANDLING: &str = "GRPC_EXPERIMENTAL_XDS_DATA_ERROR_HANDLING";

/// A client of the control plane. All watches of one client share its streams.
///
/// Clones are cheap and share the stream. The stream ends when the last watch is dropped. The client's task ends when
/// the last clone and the last watch are dropped.
#[derive(Clone, Debug)]
pub struct XdsClient {
    inner: Arc<Inner>,
}

/// The part of a client that its handles share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) target: Arc<str>,
    pub(crate) common: Arc<Common>,
    commands: mpsc::UnboundedSender<Command>,
    recorder: Option<Arc<dyn MetricsRecorder>>,
    load_reports: Reporters,
}

/// The part of a client that does not depend on its target. Clients that have it in common hold one
/// copy, because a process may have a thousand targets.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) bootstrap: Arc<Bootstrap>,
    /// The node of the bootstrap, with the features that the settings add.
    node: Arc<Node>,
    settings: Settings,
    pub(crate) readings: Readings,
    /// The readings of the resources of each server, which know the server.
    by_server: Vec<(ServerConfig, Readings)>,
}

/// The settings that must be equal, beside target and bootstrap, for two users to share a client.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    max_response_bytes: usize,
    data_error_handling: bool,
    features: Features,
    own_readings: Readings,
    backend: BackendCredentials,
}

impl Common {
    pub(crate) fn new(bootstrap: Arc<Bootstrap>, settings: Settings) -> Self {
        let named = bootstrap.authorities.keys();
        let named = named
            .filter_map(|name| bootstrap.servers_of(name))
            .flatten();
        let mut by_server: Vec<(ServerConfig, Readings)> = Vec::new();
        for server in bootstrap.servers.iter().chain(named) {
            if by_server.iter().all(|(known, _)| known != server) {
                let readings = settings.read(settings.features.for_server(server));
                by_server.push((server.clone(), readings));
            }
        }
        Self {
            readings: settings.read(settings.features.clone()),
            node: settings.features.announced_by(&bootstrap.node),
            bootstrap,
            settings,
            by_server,
        }
    }

    pub(crate) fn is_of(&self, bootstrap: &Arc<Bootstrap>, settings: &Settings) -> bool {
        self.bootstrap == *bootstrap && self.settings == *settings
    }

    /// The readings of the resources of one server of the bootstrap.
    fn readings_of(&self, server: &ServerConfig) -> Option<Readings> {
        let found = self.by_server.iter().find(|(known, _)| known == server);
        found.map(|(_, readings)| readings.clone())
    }
}

impl Settings {
    fn read(&self, features: Features) -> Readings {
        Readings::grpc(features).and(&self.own_readings)
    }
}

impl Inner {
    /// True if the client's task has ended, because the runtime that it was started in has.
    pub(crate) fn is_gone(&self) -> bool {
        self.commands.is_closed()
    }
}

impl XdsClient {
    /// A client of the servers of `bootstrap`, with the usual settings. The client connects when the first watch
    /// begins. So a server that cannot be reached is reported by the watches and not by this function.
    ///
    /// Must be called in a tokio runtime.
    pub fn new(bootstrap: &Bootstrap) -> Result<Self, XdsClientError> {
        Self::builder(Arc::new(bootstrap.clone())).build()
    }

    /// A client with settings of your own.
    pub fn builder(bootstrap: Arc<Bootstrap>) -> XdsClientBuilder {
        XdsClientBuilder {
            bootstrap,
            target: "".into(),
            max_response_bytes: MAX_RESPONSE_BYTES,
            data_error_handling: None,
            aggregate_cluster_resources: None,
            authority_rewriting: None,
            custom_policies: CustomPolicies::NONE,
            custom_filters: CustomFilters::NONE,
            own_readings: Readings::default(),
            backend: BackendCredentials::default(),
            recorder: None,
        }
    }

    /// Watches the resource of type `R` named `name`. Dropping the watch ends it.
    ///
    /// The error says that the client reads the type URL of `R` by another type. A client has one reading for each URL:
    /// gRPC's, or the one set by [`XdsClientBuilder::reading`].
    pub fn watch<R: ResourceType>(&self, name: &str) -> Result<Watch<R>, ReadingError> {
        let subscriber = self.subscriber();
        subscriber.watch(Key::of::<R>(name))?;
        Ok(Watch::new(subscriber))
    }

    /// Watches every resource of type `R` that the servers have. Dropping the watch ends it.
    ///
    /// The error is that of [`watch`](Self::watch).
    pub fn watch_all<R: ResourceType>(&self) -> Result<WatchAll<R>, ReadingError> {
        let subscriber = self.subscriber();
        subscriber.watch_all(Kind::of::<R>())?;
        Ok(WatchAll::new(subscriber))
    }

    /// A subscriber, which watches many resources and gets those that changed together in one batch.
    pub fn subscriber(&self) -> Subscriber {
        Subscriber::new(self.clone())
    }

    /// Reports the load that a source counts to one of the client's servers (gRFC A27). `make` makes the source;
    /// it must wake the client when the use of a cluster begins or ends. All sources of one server share a
    /// stream, which is open while one of them is in use.
    ///
    /// When the registration is dropped, the rest of the counts is reported. Must be called in a tokio runtime.
    pub fn report_loads<S: SharedLoadSource>(
        &self,
        server: &ServerConfig,
        make: impl FnOnce(LoadWake) -> Arc<S>,
    ) -> Result<(Arc<S>, LoadRegistration), XdsClientError> {
        let inner = &self.inner;
        let connect = || {
            let link = Server {
                uri: server.uri.as_str().into(),
                transports: Transports::to(server, &inner.common.settings.backend)?,
                max_response_bytes: inner.common.settings.max_response_bytes,
            };
            let identity = Identity {
                target: Arc::clone(&inner.target),
                node: Arc::clone(&inner.common.node),
                recorder: inner.recorder.clone(),
            };
            Ok((link, identity))
        };
        inner.load_reports.register(server, connect, make)
    }

    /// The load reports of the client, by server.
    pub fn load_reports(&self) -> Vec<LoadReportStatus> {
        self.inner.load_reports.statuses()
    }

    /// The target of the channel that the client serves; empty if it serves none.
    pub fn target(&self) -> &str {
        &self.inner.target
    }

    /// The node that the client sends to its servers.
    pub fn node(&self) -> &Node {
        &self.inner.common.node
    }

    /// The client's cache: every watched resource with its state, ordered by type and name.
    pub async fn dump(&self) -> Vec<(Key, CacheEntry)> {
        let (reply, answer) = oneshot::channel();
        self.command(Command::Dump(reply));
        let mut entries = answer.await.unwrap_or_default();
        entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        entries
    }

    pub(crate) fn command(&self, command: Command) {
        // Sending fails only if the runtime of the task has ended. Then no task is left to take the command.
        let _ = self.inner.commands.unbounded_send(command);
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    pub(crate) fn from_inner(inner: Arc<Inner>) -> Self {
        Self { inner }
    }
}

/// The settings of an [`XdsClient`].
#[derive(Debug)]
#[must_use]
pub struct XdsClientBuilder {
    bootstrap: Arc<Bootstrap>,
    target: Arc<str>,
    max_response_bytes: usize,
    data_error_handling: Option<bool>,
    aggregate_cluster_resources: Option<bool>,
    authority_rewriting: Option<bool>,
    custom_policies: CustomPolicies,
    custom_filters: CustomFilters,
    own_readings: Readings,
    backend: BackendCredentials,
    recorder: Option<Arc<dyn MetricsRecorder>>,
}

impl XdsClientBuilder {
    /// Sets the target that the client serves. The target labels metrics and configuration dumps, and clients of one
    /// target can be shared.
    pub fn target(mut self, target: &str) -> Self {
        self.target = target.into();
        self
    }

    /// Sets the limit of a response; the default is 64 MiB. A larger response ends the stream, and
    /// watches get the error.
    pub fn max_response_bytes(mut self, bytes: usize) -> Self {
        self.max_response_bytes = bytes;
        self
    }

    /// Handles errors in the data as gRFC A88 says if `on`, and as A53 and A57 say if not. The default is
    /// the value of `GRPC_EXPERIMENTAL_XDS_DATA_ERROR_HANDLING`.
    pub fn data_error_handling(mut self, on: bool) -> Self {
        self.data_error_handling = Some(on);
        self
    }

    /// Allows an aggregate cluster to have its list of clusters in a resource of its own (gRFC A99). The
    /// default is the value of `GRPC_EXPERIMENTAL_XDS_AGGREGATE_CLUSTER_RESOURCE`.
    pub fn aggregate_cluster_resources(mut self, on: bool) -> Self {
        self.aggregate_cluster_resources = Some(on);
        self
    }

    /// Allows servers that the bootstrap calls `trusted_xds_server` to rewrite the authority of calls
    /// (gRFC A81). The default is the value of `GRPC_EXPERIMENTAL_XDS_AUTHORITY_REWRITE`.
    pub fn authority_rewriting(mut self, on: bool) -> Self {
        self.authority_rewriting = Some(on);
        self
    }

    /// Sets the balancing policies of the program, which clusters may name (gRFC A52). Only clients with
    /// equal policies are shared.
    pub fn custom_policies(mut self, policies: CustomPolicies) -> Self {
        self.custom_policies = policies;
        self
    }

    /// Sets the HTTP filters of the program, which listeners and routes may configure (gRFC A39). Only clients
    /// with equal filters are shared.
    pub fn custom_filters(mut self, filters: CustomFilters) -> Self {
        self.custom_filters = filters;
        self
    }

    /// Reads the type URL of `R` with `R` and this context, in place of gRPC's rules. Clients with such
    /// readings are not shared.
    ///
    /// ```
    /// use crowfly_client::XdsClientBuilder;
    /// use crowfly_model::{Decoded, ResourceType};
    ///
    /// /// Runtime settings, of which only the size is of interest.
    /// struct Runtime;
    ///
    /// impl ResourceType for Runtime {
    ///     type Parsed = usize;
    ///     type Context = ();
    ///
    ///     const TYPE_URL: &'static str = "type.googleapis.com/envoy.service.runtime.v3.Runtime";
    ///     const NOUN: &'static str = "runtime";
    ///     const ALL_IN_SOTW: bool = false;
    ///
    ///     fn parse(bytes: &[u8], (): &()) -> Decoded<usize> {
    ///         Decoded { name: None, value: Ok(bytes.len()) }
    ///     }
    /// }
    ///
    /// fn sized(builder: XdsClientBuilder) -> XdsClientBuilder {
    ///     builder.reading::<Runtime>(())
    /// }
    /// ```
    pub fn reading<R: ResourceType>(mut self, context: impl Into<Arc<R::Context>>) -> Self {
        self.own_readings = self.own_readings.with::<R>(context);
        self
    }

    /// Sets the TLS of backends. These settings are used for servers whose bootstrap entry has no `channel_creds`. The
    /// default is plaintext, as for a channel. ALPN of `config` is replaced by `h2`.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use crowfly_client::XdsClientBuilder;
    /// use tokio_rustls::rustls::ClientConfig;
    ///
    /// fn secured(builder: XdsClientBuilder, config: Arc<ClientConfig>) -> XdsClientBuilder {
    ///     builder.backend_tls(config)
    /// }
    /// ```
    pub fn backend_tls(mut self, config: Arc<ClientConfig>) -> Self {
        self.backend = BackendCredentials::tls(config);
        self
    }

    /// Reports metrics to `recorder`.
    pub fn recorder(mut self, recorder: Arc<dyn MetricsRecorder>) -> Self {
        self.recorder = Some(recorder);
        self
    }

    /// The client that this process has for the same target, bootstrap and settings, or else a new one. gRFC A71 wants
    /// one client per target. A client that exists keeps the recorder it has.
    pub fn shared(self) -> Result<XdsClient, XdsClientError> {
        let (target, bootstrap) = (Arc::clone(&self.target), Arc::clone(&self.bootstrap));
        let settings = self.settings();
        registry::find_or_insert(&target, bootstrap, settings, |common| self.start(common))
    }

    /// A client of its own.
    pub fn build(self) -> Result<XdsClient, XdsClientError> {
        let common = Common::new(Arc::clone(&self.bootstrap), self.settings());
        let client = self.start(Arc::new(common))?;
        registry::insert(&client);
        Ok(client)
    }

    fn start(self, common: Arc<Common>) -> Result<XdsClient, XdsClientError> {
        let (configs, authorities) = self.servers()?;
        let uniform = common.settings.data_error_handling;
        let session = |config: &&ServerConfig| SessionConfig {
            node: Arc::clone(&common.node),
            protocol: protocol(config),
            data_errors: data_errors(config, uniform),
            readings: common.readings_of(config),
            seed: fastrand::u64(..),
        };
        let sessions = configs.iter().map(session).collect();
        let discovery = Discovery::new(sessions, authorities, common.readings.clone());
        let server = |config: &ServerConfig| {
            Ok(Server {
                uri: config.uri.as_str().into(),
                transports: Transports::to(config, &self.backend)?,
                max_response_bytes: self.max_response_bytes,
            })
        };
        let servers: Result<Vec<Server>, XdsClientError> =
            configs.into_iter().map(server).collect();
        let (commands, receiver) = mpsc::unbounded();
        let target = Arc::clone(&self.target);
        let recorder = self.recorder.clone();
        let mut driver = Driver::new(target, servers?, discovery, receiver, recorder);
        // `run` takes a reference, because a future keeps an argument by value in two places.
        tokio::spawn(async move { driver.run().await });
        Ok(XdsClient::from_inner(Arc::new(Inner {
            target: self.target,
            common,
            commands,
            recorder: self.recorder,
            load_reports: Reporters::default(),
        })))
    }

    fn settings(&self) -> Settings {
        let asked = self.data_error_handling;
        Settings {
            max_response_bytes: self.max_response_bytes,
            data_error_handling: asked.unwrap_or_else(|| is_switched_on(DATA_ERROR_HANDLING)),
            features: self.features(),
            own_readings: self.own_readings.clone(),
            backend: if self.bootstrap.leaves_credentials_unsaid() {
                self.backend.clone()
            } else {
                BackendCredentials::default()
            },
        }
    }

    fn features(&self) -> Features {
        let mut features = Features::from_env();
        features.custom_policies = self.custom_policies.clone();
        let providers = self.bootstrap.certificate_providers.iter();
        let supported = providers.filter(|(_, provider)| provider.is_supported());
        features.certificate_providers = ProviderNames::of(supported.map(|(name, _)| name));
        features.custom_filters = self.custom_filters.clone();
        if let Some(on) = self.aggregate_cluster_resources {
            features.aggregate_cluster_resource = on;
        }
        if let Some(on) = self.authority_rewriting {
            features.authority_rewriting = on;
        }
        features
    }

    /// Every distinct server once, and the servers of each authority.
    fn servers(&self) -> Result<(Vec<&ServerConfig>, Authorities), XdsClientError> {
        let mut distinct: Vec<&ServerConfig> = Vec::new();
        let mut list = |servers| Self::number(servers, &mut distinct);
        let default = list(&self.bootstrap.servers);
        if default.is_empty() {
            return Err(XdsClientError::NoServer);
        }
        let mut named = BTreeMap::new();
        for name in self.bootstrap.authorities.keys() {
            let servers = self.bootstrap.servers_of(name).unwrap_or_default();
            named.insert(name.clone(), list(servers));
        }
        Ok((distinct, Authorities { default, named }))
    }

    fn number<'a>(
        servers: &'a [ServerConfig],
        distinct: &mut Vec<&'a ServerConfig>,
    ) -> Vec<ServerId> {
        let number = |server: &'a ServerConfig| {
            let known = distinct.iter().position(|known| *known == server);
            ServerId(known.unwrap_or_else(|| {
                distinct.push(server);
                distinct.len() - 1
            }))
        };
        servers.iter().map(number).collect()
    }
}

/// The reason why a client cannot be made from a bootstrap.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum XdsClientError {
    /// No credentials of a server can be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The bootstrap lists no server.
    #[error("xds_servers: expected at least one server")]
    NoServer,
}

fn protocol(server: &ServerConfig) -> Protocol {
    if server.has_feature(ServerFeature::Delta) {
        Protocol::Delta
    } else {
        Protocol::StateOfTheWorld
    }
}

fn data_errors(server: &ServerConfig, uniform: bool) -> DataErrors {
    if uniform {
        DataErrors::Uniform {
            fail: server.has_feature(ServerFeature::FailOnDataErrors),
            timer_is_transient: server.has_feature(ServerFeature::ResourceTimerIsTransientError),
        }
    } else {
        DataErrors::Classic {
            ignore_deletion: server.has_feature(ServerFeature::IgnoreResourceDeletion),
        }
    }
}
