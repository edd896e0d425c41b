//! TLS to the endpoints of a cluster, in the form that Envoys take.
//!
//! gRPC finds keys and roots by the names of certificate providers in its bootstrap (gRFC A29). Envoy
//! ignores these names, and would then accept every certificate. But an Envoy's bootstrap can have
//! secrets, which have names, too. So each name of a provider becomes the name of a secret. An Envoy
//! refuses a cluster with a secret that it does not have.

use envoy_types::pb::envoy::config::cluster::v3::Cluster as ClusterProto;
use envoy_types::pb::envoy::config::core::v3::transport_socket::ConfigType;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3 as pb;
use envoy_types::pb::google::protobuf::Any;
use pb::common_tls_context::{CombinedCertificateValidationContext, ValidationContextType};
use prost::{Message, Name};

/// The secret that has the roots of the machine, for clusters that gRPC clients check by these.
const SYSTEM: &str = "system";

/// Changes the TLS of a cluster. Returns false if it needs no change.
pub(super) fn adapt(cluster: &mut ClusterProto) -> bool {
    let socket = cluster.transport_socket.as_mut();
    let Some(ConfigType::TypedConfig(any)) = socket.and_then(|it| it.config_type.as_mut()) else {
        return false;
    };
    let Some(context) = read(any).and_then(for_envoy) else {
        return false;
    };
    any.value = context.encode_to_vec();
    true
}

fn read(any: &Any) -> Option<pb::UpstreamTlsContext> {
    let (_, name) = any.type_url.rsplit_once('/')?;
    let is_tls = name == pb::UpstreamTlsContext::full_name();
    is_tls.then(|| pb::UpstreamTlsContext::decode(any.value.as_slice()).ok())?
}

/// The context with secrets; `None` if it names no provider and no roots of the machine.
fn for_envoy(mut context: pb::UpstreamTlsContext) -> Option<pb::UpstreamTlsContext> {
    let common = context.common_tls_context.as_mut()?;
    let identity = common.tls_certificate_provider_instance.take();
    let authority = common
        .validation_context_type
        .as_mut()
        .and_then(take_authority);
    if identity.is_none() && authority.is_none() {
        return None;
    }
    if let Some(identity) = identity {
        common.tls_certificate_sds_secret_configs = vec![secret(identity.instance_name)];
    }
    if let Some((authority, rest)) = authority {
        let combined = CombinedCertificateValidationContext {
            default_validation_context: Some(rest),
            validation_context_sds_secret_config: Some(secret(authority)),
            ..CombinedCertificateValidationContext::default()
        };
        common.validation_context_type =
            Some(ValidationContextType::CombinedValidationContext(combined));
    }
    if common.alpn_protocols.is_empty() {
        common.alpn_protocols = vec!["h2".to_owned()];
    }
    Some(context)
}

/// Takes the name of the authority out of a validation context. Returns it and the rest.
fn take_authority(
    context: &mut ValidationContextType,
) -> Option<(String, pb::CertificateValidationContext)> {
    let context = match context {
        ValidationContextType::ValidationContext(context) => context,
        ValidationContextType::CombinedValidationContext(combined) => {
            combined.default_validation_context.as_mut()?
        }
        _ => return None,
    };
    let provider = context.ca_certificate_provider_instance.take();
    let system = context.system_root_certs.take();
    let name = match (provider, system) {
        (Some(provider), _) => provider.instance_name,
        (None, Some(_)) => SYSTEM.to_owned(),
        (None, None) => return None,
    };
    Some((name, std::mem::take(context)))
}

/// A secret of the Envoy's bootstrap, because there is no `sds_config`.
fn secret(name: String) -> pb::SdsSecretConfig {
    pb::SdsSecretConfig {
        name,
        sds_config: None,
    }
}
