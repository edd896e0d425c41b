//! The builder of the TLS settings of a cluster.
//!
//! The settings are valid until a test breaks them, so that a test names only the part that it is
//! about.

use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    CertificateProviderPluginInstance, CertificateValidationContext, CommonTlsContext,
    UpstreamTlsContext, certificate_validation_context::SystemRootCerts,
    common_tls_context::ValidationContextType,
};
use envoy_types::pb::envoy::r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern};

/// TLS with the CA of a certificate provider, and any name of a server.
pub fn upstream_tls(provider: &str) -> TlsBuilder {
    let context = CertificateValidationContext {
        ca_certificate_provider_instance: Some(instance(provider)),
        ..CertificateValidationContext::default()
    };
    TlsBuilder {
        context,
        tls: UpstreamTlsContext::default(),
        identity: None,
    }
}

/// Makes the TLS of a cluster.
#[derive(Clone, Debug)]
#[must_use]
pub struct TlsBuilder {
    context: CertificateValidationContext,
    tls: UpstreamTlsContext,
    identity: Option<CertificateProviderPluginInstance>,
}

impl TlsBuilder {
    /// Presents the certificate of this provider.
    pub fn identity(mut self, provider: &str) -> Self {
        self.identity = Some(instance(provider));
        self
    }

    /// Expects this subject alternative name, or one that was given before.
    #[expect(deprecated, reason = "the field that gRPC reads")]
    pub fn san(mut self, name: &str) -> Self {
        let matcher = StringMatcher {
            match_pattern: Some(MatchPattern::Exact(name.to_owned())),
            ignore_case: false,
        };
        self.context.match_subject_alt_names.push(matcher);
        self
    }

    /// Trusts the system's roots, and no provider's.
    pub fn system_roots(mut self) -> Self {
        self.context.ca_certificate_provider_instance = None;
        self.context.system_root_certs = Some(SystemRootCerts {});
        self
    }

    /// Edits the message, for fields that have no method of their own.
    pub fn edit(mut self, edit: impl FnOnce(&mut UpstreamTlsContext)) -> Self {
        edit(&mut self.tls);
        self
    }

    pub(super) fn build(self) -> UpstreamTlsContext {
        let context = ValidationContextType::ValidationContext(self.context);
        UpstreamTlsContext {
            common_tls_context: Some(CommonTlsContext {
                tls_certificate_provider_instance: self.identity,
                validation_context_type: Some(context),
                ..CommonTlsContext::default()
            }),
            ..self.tls
        }
    }
}

fn instance(name: &str) -> CertificateProviderPluginInstance {
    CertificateProviderPluginInstance {
        instance_name: name.to_owned(),
        certificate_name: String::new(),
    }
}
