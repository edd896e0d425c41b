//! TLS to the endpoints of a cluster, as gRPC takes it: by the names of certificate providers (gRFC
//! A29). Envoys are sent another form.

use envoy_types::pb::envoy::config::core::v3::{TransportSocket, transport_socket};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3 as pb;
use pb::certificate_validation_context::SystemRootCerts;
use pb::common_tls_context::ValidationContextType;

use super::{matchers, packed};
use crate::service::tls::{Authority, Names, Tls};

/// The name of the transport socket, which both gRPC and Envoy require.
const SOCKET_NAME: &str = "envoy.transport_sockets.tls";

/// The transport socket of a cluster.
pub(super) fn of_cluster(tls: &Tls) -> TransportSocket {
    let identity = tls.identity.as_ref().map(|identity| provider(&identity.0));
    let context = pb::UpstreamTlsContext {
        common_tls_context: Some(pb::CommonTlsContext {
            tls_certificate_provider_instance: identity,
            validation_context_type: Some(ValidationContextType::ValidationContext(validation(
                tls,
            ))),
            ..pb::CommonTlsContext::default()
        }),
        sni: tls.sni.clone().unwrap_or_default(),
        ..pb::UpstreamTlsContext::default()
    };
    TransportSocket {
        name: SOCKET_NAME.to_owned(),
        config_type: Some(transport_socket::ConfigType::TypedConfig(packed(&context))),
    }
}

/// gRPC reads `match_subject_alt_names` only, though Envoy calls that field deprecated.
#[allow(deprecated, reason = "the field that gRPC reads (gRFC A29)")]
fn validation(tls: &Tls) -> pb::CertificateValidationContext {
    let names = match &tls.san {
        Names::Any => Vec::new(),
        Names::OneOf(names) => names.iter().map(matchers::of_text).collect(),
    };
    let (ca, system) = match &tls.ca {
        Authority::Provider(name) => (Some(provider(name)), None),
        Authority::System => (None, Some(SystemRootCerts {})),
    };
    pb::CertificateValidationContext {
        ca_certificate_provider_instance: ca,
        system_root_certs: system,
        match_subject_alt_names: names,
        ..pb::CertificateValidationContext::default()
    }
}

fn provider(name: &str) -> pb::CertificateProviderPluginInstance {
    pb::CertificateProviderPluginInstance {
        instance_name: name.to_owned(),
        ..pb::CertificateProviderPluginInstance::default()
    }
}
