//! The gRPC services on the port of ADS. Load reports are there too, because gRPC clients open them on
//! the connection of ADS (`lrs_server: self`).

use std::sync::Arc;
use std::time::Duration;

use tonic::server::NamedService;
use tonic::transport::Server;
use tonic::transport::server::Router;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::csds::{Csds, CsdsServer};
use crate::descriptors;
use crate::discovery::{Aggregated, Cds, Discovery, DiscoveryServer, Eds, Lds, Rds, Streams};
use crate::guarded::{Guard, MAX_REQUEST_BYTES};
use crate::limits::Limits;
use crate::lrs::{Lrs, LrsServer};
use crate::options::StartError;

/// The services of xDS, without CSDS.
const SERVICES: [&str; 6] = [
    Aggregated::SERVICE,
    Lds::SERVICE,
    Rds::SERVICE,
    Cds::SERVICE,
    Eds::SERVICE,
    <LrsServer as NamedService>::NAME,
];

/// The services of xDS that are served. Their health is that of the control plane.
fn served(has_csds: bool) -> impl Iterator<Item = &'static str> {
    let csds = has_csds.then_some(<CsdsServer as NamedService>::NAME);
    SERVICES.into_iter().chain(csds)
}

/// The interval of HTTP/2 keepalive pings. A connection that is lost without an error is noticed
/// within twice this time.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// All services, and the means to change their health. Without `csds` that service is not served.
pub(crate) async fn router(
    streams: Streams,
    lrs: Lrs,
    csds: Option<Csds>,
    guard: &Guard,
    limits: &Limits,
) -> Result<(Router, HealthReporter), StartError> {
    let (reporter, health) = tonic_health::server::health_reporter();
    let has_csds = csds.is_some();
    report(&reporter, has_csds, ServingStatus::Serving).await;
    let streams = Arc::new(streams);
    let v1 = reflection(has_csds).build_v1()?;
    let v1alpha = reflection(has_csds).build_v1alpha()?;
    let router = Server::builder()
        .max_concurrent_streams(limits.streams_per_connection)
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .add_service(DiscoveryServer::<Aggregated>::new(&streams))
        .add_service(DiscoveryServer::<Lds>::new(&streams))
        .add_service(DiscoveryServer::<Rds>::new(&streams))
        .add_service(DiscoveryServer::<Cds>::new(&streams))
        .add_service(DiscoveryServer::<Eds>::new(&streams))
        .add_service(LrsServer::new(lrs))
        .add_optional_service(csds.map(CsdsServer::new))
        .add_service(guard.before(health.max_decoding_message_size(MAX_REQUEST_BYTES)))
        .add_service(guard.before(v1.max_decoding_message_size(MAX_REQUEST_BYTES)))
        .add_service(guard.before(v1alpha.max_decoding_message_size(MAX_REQUEST_BYTES)));
    Ok((router, reporter))
}

/// The name under which health tells of the server as a whole.
const SERVER: &str = "";

/// Sets the health of the server and of all services of xDS.
pub(crate) async fn report(reporter: &HealthReporter, has_csds: bool, status: ServingStatus) {
    for service in served(has_csds).chain([SERVER]) {
        reporter.set_service_status(service, status).await;
    }
}

/// The reflection service. It has all messages, so that a tool can show the contents of an `Any`.
/// It lists only the services that are served.
fn reflection(has_csds: bool) -> tonic_reflection::server::Builder<'static> {
    let mut builder = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(descriptors::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .with_service_name("grpc.health.v1.Health")
        .with_service_name("grpc.reflection.v1.ServerReflection")
        .with_service_name("grpc.reflection.v1alpha.ServerReflection");
    for service in served(has_csds) {
        builder = builder.with_service_name(service);
    }
    builder
}
