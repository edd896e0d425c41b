//! The client status discovery service (gRFC A40): the resources that the clients of this process hold.
//!
//! The service answers from the caches of the clients, so it shows the resources that are in use. Each resource has the
//! bytes of the server, and the error of the last update that was refused. Each client is one `ClientConfig`, and its
//! `client_scope` is its target (gRFC A71).

use std::pin::Pin;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crowfly_xds::{CacheEntry, Key, LastFailure, ResourceStatus};
use envoy_types::pb::envoy::admin::v3::{ClientResourceStatus, UpdateFailureState};
use envoy_types::pb::envoy::service::status::v3::client_config::GenericXdsConfig;
use envoy_types::pb::envoy::service::status::v3::client_status_discovery_service_server::{
    ClientStatusDiscoveryService, ClientStatusDiscoveryServiceServer,
};
use envoy_types::pb::envoy::service::status::v3::{
    ClientConfig, ClientStatusRequest, ClientStatusResponse,
};
use envoy_types::pb::google::protobuf::{Any, Timestamp};
use futures_util::future::join_all;
use futures_util::{Stream, StreamExt};
use tokio::time::timeout;
use tonic::{Request, Response, Status, Streaming};
use tracing::warn;

use crate::client::XdsClient;
use crate::registry;

/// The time that a client has to answer. The time is short, because the caller has a deadline too.
const PATIENCE: Duration = Duration::from_secs(2);

/// The client status discovery service of this process, to mount on any tonic server.
///
/// The service shows every [`XdsClient`] that has not ended, including those of channels. `crowfly inspect --csds ADDR`
/// reads it.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// tonic::transport::Server::builder()
///     .add_service(crowfly_client::csds_service())
///     .serve("127.0.0.1:9901".parse()?)
///     .await?;
/// # Ok(())
/// # }
/// ```
pub fn csds_service() -> ClientStatusDiscoveryServiceServer<Csds> {
    ClientStatusDiscoveryServiceServer::new(Csds(()))
}

/// The implementation of the service; see [`csds_service`].
#[derive(Clone, Copy, Debug)]
pub struct Csds(());

#[tonic::async_trait]
impl ClientStatusDiscoveryService for Csds {
    type StreamClientStatusStream =
        Pin<Box<dyn Stream<Item = Result<ClientStatusResponse, Status>> + Send>>;

    async fn stream_client_status(
        &self,
        request: Request<Streaming<ClientStatusRequest>>,
    ) -> Result<Response<Self::StreamClientStatusStream>, Status> {
        let requests = request.into_inner();
        let responses = requests.then(async |request| status(&request?).await);
        Ok(Response::new(Box::pin(responses)))
    }

    async fn fetch_client_status(
        &self,
        request: Request<ClientStatusRequest>,
    ) -> Result<Response<ClientStatusResponse>, Status> {
        status(request.get_ref()).await.map(Response::new)
    }
}

async fn status(request: &ClientStatusRequest) -> Result<ClientStatusResponse, Status> {
    if !request.node_matchers.is_empty() {
        // Node matchers are for a control plane, because only that has many nodes.
        return Err(Status::invalid_argument(
            "node_matchers: expected none, this is a client with one node",
        ));
    }
    let clients = registry::all();
    let alive = clients.iter().filter(|client| !client.inner().is_gone());
    let configs = alive.map(|client| client_config(client, request.exclude_resource_contents));
    let configs = join_all(configs).await;
    Ok(ClientStatusResponse {
        config: configs.into_iter().flatten().collect(),
    })
}

/// The resources of one client. `None` if it does not answer, because its runtime may not run, and the
/// other clients must still be shown.
async fn client_config(client: &XdsClient, without_contents: bool) -> Option<ClientConfig> {
    let Ok(entries) = timeout(PATIENCE, client.dump()).await else {
        warn!(
            target = client.target(),
            node = client.node().id,
            "not shown in CSDS: the client does not answer within {PATIENCE:?}"
        );
        return None;
    };
    let clock = Clock::now();
    let mut generic_xds_configs = Vec::with_capacity(entries.len());
    for (key, entry) in entries {
        let mut config = generic_config(&key, &entry, clock);
        if without_contents {
            config.xds_config = None;
        }
        generic_xds_configs.push(config);
    }
    Some(ClientConfig {
        node: Some(client.node().clone()),
        generic_xds_configs,
        client_scope: client.target().to_owned(),
        ..ClientConfig::default()
    })
}

fn generic_config(key: &Key, entry: &CacheEntry, clock: Clock) -> GenericXdsConfig {
    let mut config = GenericXdsConfig {
        type_url: key.kind.type_url.to_owned(),
        name: key.name.to_string(),
        client_status: client_status(entry.state()).into(),
        error_state: entry.failure().map(|failure| error_state(failure, clock)),
        ..GenericXdsConfig::default()
    };
    if let Some(received) = entry.received() {
        config.version_info = received.version.to_string();
        config.last_updated = Some(clock.timestamp(received.at));
        config.xds_config = key.kind.keeps_bytes.then(|| Any {
            type_url: key.kind.type_url.to_owned(),
            value: received.raw.to_vec(),
        });
    }
    config
}

fn error_state(failure: &LastFailure, clock: Clock) -> UpdateFailureState {
    UpdateFailureState {
        // The cache does not keep refused resources, because they can be large and come repeatedly.
        failed_configuration: None,
        last_update_attempt: Some(clock.timestamp(failure.at)),
        details: failure.error.to_string(),
        version_info: failure.version.to_string(),
    }
}

fn client_status(state: ResourceStatus) -> ClientResourceStatus {
    match state {
        ResourceStatus::Acked => ClientResourceStatus::Acked,
        ResourceStatus::DoesNotExist => ClientResourceStatus::DoesNotExist,
        ResourceStatus::Nacked => ClientResourceStatus::Nacked,
        ResourceStatus::ReceivedError => ClientResourceStatus::ReceivedError,
        ResourceStatus::Requested => ClientResourceStatus::Requested,
        ResourceStatus::TimedOut => ClientResourceStatus::Timeout,
    }
}

/// One moment on both clocks, because entries carry the monotonic time, and the answer carries the wall-clock time.
#[derive(Clone, Copy)]
struct Clock {
    monotonic: Instant,
    wall: SystemTime,
}

impl Clock {
    fn now() -> Self {
        Self {
            // The clock of the clients' tasks, which a test can stop.
            monotonic: tokio::time::Instant::now().into_std(),
            wall: SystemTime::now(),
        }
    }

    fn timestamp(self, at: Instant) -> Timestamp {
        let age = self.monotonic.saturating_duration_since(at);
        let since_epoch = self
            .wall
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .saturating_sub(age);
        Timestamp {
            seconds: i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX),
            nanos: i32::try_from(since_epoch.subsec_nanos()).unwrap_or_default(),
        }
    }
}
