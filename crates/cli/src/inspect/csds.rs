//! Reads CSDS, the client status discovery service (gRFC A40). CSDS is the first choice for any
//! gRPC program, because gRPC of every language can serve it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use envoy_types::pb::{
    envoy::{
        admin::v3::{ClientResourceStatus, UpdateFailureState},
        service::status::v3::{
            ClientConfig, ClientStatusRequest, ClientStatusResponse, ConfigStatus, PerXdsConfig,
            client_config::GenericXdsConfig,
            client_status_discovery_service_client::ClientStatusDiscoveryServiceClient,
            per_xds_config::PerXdsConfig as Dump,
        },
    },
    google::protobuf::Timestamp,
};
use envoy_types::util::pack_any;

use super::{
    Address, InspectError, envoy,
    grpc::{self, MAX_RESPONSE_BYTES, Service},
    view::{Client, Failure, Node, Resource, View, non_empty},
};

/// Asks the service at `address`. With `whole`, the answer has the content of every resource.
pub(super) async fn read(address: &Address, whole: bool) -> Result<View, InspectError> {
    let response = fetch(address, whole).await?;
    let clients = response.config.iter().map(|config| client(config, whole));
    Ok(View {
        clients: clients.collect(),
    })
}

async fn fetch(address: &Address, whole: bool) -> Result<ClientStatusResponse, InspectError> {
    let channel = grpc::connect(address).await?;
    let mut client = ClientStatusDiscoveryServiceClient::new(channel)
        .max_decoding_message_size(MAX_RESPONSE_BYTES);
    let request = ClientStatusRequest {
        exclude_resource_contents: !whole,
        ..ClientStatusRequest::default()
    };
    let response = client.fetch_client_status(request).await;
    Ok(response
        .map_err(|status| grpc::refused(address, Service::Csds, status))?
        .into_inner())
}

fn client(config: &ClientConfig, whole: bool) -> Client {
    let node = config.node.as_ref();
    let generic = config.generic_xds_configs.iter();
    let mut resources: Vec<_> = generic.map(|config| resource(config, whole)).collect();
    // Servers sent these messages before CSDS had generic ones.
    #[allow(deprecated, reason = "servers of that time are still about")]
    for config in &config.xds_config {
        resources.extend(older(config, whole));
    }
    let mut client = Client {
        scope: config.client_scope.clone(),
        node: node.map_or_else(Node::default, |node| Node {
            id: node.id.clone(),
            cluster: node.cluster.clone(),
        }),
        resources,
    };
    client.sort();
    client
}

fn resource(config: &GenericXdsConfig, whole: bool) -> Resource {
    let content = config.xds_config.as_ref().filter(|_| whole);
    Resource {
        type_url: config.type_url.clone(),
        name: config.name.clone(),
        state: state(config).to_owned(),
        version: non_empty(&config.version_info),
        updated: config.last_updated.as_ref().and_then(time),
        error: config.error_state.as_ref().and_then(failure),
        config: content.map(crowfly_control::to_json),
    }
}

/// The state of a resource. A client sends its own state, and a control plane sends the state that
/// it knows of the client.
fn state(config: &GenericXdsConfig) -> &'static str {
    match (config.client_status(), config.config_status()) {
        // The client may have an older version, so its own state would hide this one.
        (_, status @ (ConfigStatus::NotSent | ConfigStatus::Stale)) => status.as_str_name(),
        (ClientResourceStatus::Unknown, ConfigStatus::Unknown) => "UNKNOWN",
        (ClientResourceStatus::Unknown, status) => status.as_str_name(),
        (status, _) => status.as_str_name(),
    }
}

fn failure(error: &UpdateFailureState) -> Option<Failure> {
    if *error == UpdateFailureState::default() {
        return None;
    }
    Some(Failure {
        version: non_empty(&error.version_info),
        at: error.last_update_attempt.as_ref().and_then(time),
        details: error.details.clone(),
    })
}

fn older(config: &PerXdsConfig, whole: bool) -> Vec<Resource> {
    let any = match &config.per_xds_config {
        Some(Dump::ListenerConfig(dump)) => pack_any(dump.clone()),
        Some(Dump::ClusterConfig(dump)) => pack_any(dump.clone()),
        Some(Dump::RouteConfig(dump)) => pack_any(dump.clone()),
        Some(Dump::EndpointConfig(dump)) => pack_any(dump.clone()),
        Some(Dump::ScopedRouteConfig(_)) | None => return Vec::new(),
    };
    envoy::resources(&crowfly_control::to_json(&any), whole)
}

fn time(timestamp: &Timestamp) -> Option<SystemTime> {
    let seconds = u64::try_from(timestamp.seconds).ok()?;
    let nanos = u32::try_from(timestamp.nanos).ok()?;
    UNIX_EPOCH.checked_add(Duration::new(seconds, nanos.min(999_999_999)))
}
