//! Certificate provider instances (gRFC A29).
//!
//! A resource has only the name of an instance. The bootstrap defines the instance, so that a control plane need not
//! know the files of its clients.

use std::{collections::BTreeSet, sync::Arc};

use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3 as pb;

use crate::{Features, Validator};

/// The names of the certificate providers that clusters may use. They come from a bootstrap, or are all names if
/// resources are read without one.
///
/// ```
/// use crowfly_model::grpc::cluster::ProviderNames;
///
/// let names = ProviderNames::of(["mesh"]);
/// assert!(names.contains("mesh") && !names.contains("other"));
/// assert!(ProviderNames::ANY.contains("other"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderNames(Option<Arc<BTreeSet<String>>>);

impl ProviderNames {
    /// All names, for a reader that does not know the bootstrap of the client.
    pub const ANY: Self = Self(None);

    /// Only these names.
    pub fn of<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        let names = names.into_iter().map(Into::into);
        Self(Some(Arc::new(names.collect())))
    }

    /// True if there is a provider of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.0.as_ref().is_none_or(|names| names.contains(name))
    }

    fn list(&self) -> String {
        let names = self.0.iter().flat_map(|names| names.iter());
        let names: Vec<&str> = names.map(String::as_str).collect();
        if names.is_empty() {
            return "none".to_owned();
        }
        names.join(", ")
    }
}

impl Default for ProviderNames {
    /// No name.
    fn default() -> Self {
        Self::of::<String>([])
    }
}

/// Reads everything in `CommonTlsContext` that is not about validation. Returns the provider of the
/// client's certificate, if there is one.
pub(super) fn parse(
    proto: &pb::CommonTlsContext,
    features: &Features,
    v: &mut Validator,
) -> Option<String> {
    const WEAKENS: &str = "is not supported, and ignoring it would weaken security (gRFC A29)";
    if proto.tls_params.is_some() {
        v.error_at("tls_params", WEAKENS);
    }
    if proto.custom_handshaker.is_some() {
        v.error_at("custom_handshaker", WEAKENS);
    }
    if proto.key_log.is_some() {
        v.unsupported_at("key_log", "not supported: no key is logged");
    }
    identity(proto, features, v)
}

/// The field's old name is read as gRPC C-core reads it: if the new one is not set.
#[allow(deprecated, reason = "control planes still send the old fields")]
fn identity(
    proto: &pb::CommonTlsContext,
    features: &Features,
    v: &mut Validator,
) -> Option<String> {
    if let Some(instance) = &proto.tls_certificate_provider_instance {
        let field = "tls_certificate_provider_instance";
        return provider(&instance.instance_name, field, features, v);
    }
    if let Some(instance) = &proto.tls_certificate_certificate_provider_instance {
        let field = "tls_certificate_certificate_provider_instance";
        return provider(&instance.instance_name, field, features, v);
    }
    let other = "is not supported: expected tls_certificate_provider_instance (gRFC A29)";
    if !proto.tls_certificates.is_empty() {
        v.error_at("tls_certificates", other);
    }
    if !proto.tls_certificate_sds_secret_configs.is_empty() {
        v.error_at("tls_certificate_sds_secret_configs", other);
    }
    if proto.tls_certificate_certificate_provider.is_some() {
        v.error_at("tls_certificate_certificate_provider", other);
    }
    if proto.custom_tls_certificate_selector.is_some() {
        v.error_at("custom_tls_certificate_selector", other);
    }
    None
}

/// The name of a provider that the bootstrap has; `None` after an error.
pub(super) fn provider(
    name: &str,
    field: &str,
    features: &Features,
    v: &mut Validator,
) -> Option<String> {
    let known = &features.certificate_providers;
    if known.contains(name) {
        return Some(name.to_owned());
    }
    let known = known.list();
    v.field(field, |v| {
        v.error_at(
            "instance_name",
            format!(
                "expected a certificate provider of the bootstrap that is supported ({known}), \
                 got {name:?}"
            ),
        );
    });
    None
}
