//! Tests of the TLS settings that are refused, each with its path (gRFC A29).
//!
//! A setting that gRPC cannot obey is refused and not ignored, because a connection would be less secure than asked for.

use crowfly_model::grpc::Cluster;
use envoy_types::pb::{
    envoy::{
        config::{
            cluster::v3::cluster::TransportSocketMatch,
            core::v3::{
                DataSource, TransportSocket, TypedExtensionConfig, transport_socket::ConfigType,
            },
        },
        extensions::transport_sockets::{
            raw_buffer::v3::RawBuffer,
            tls::v3::{
                SdsSecretConfig, SubjectAltNameMatcher, TlsCertificate, TlsParameters,
                UpstreamTlsContext,
                common_tls_context::{
                    CertificateProvider, CertificateProviderInstance,
                    CombinedCertificateValidationContext, ValidationContextType,
                },
            },
        },
        r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern},
    },
    google::protobuf::{Any, BoolValue},
};

use super::{common, matcher, secured, secured_aggregate, set_combined, upstream, validation};
use crate::{
    messages::{any, cluster},
    reject,
};

const WEAKENS: &str = "is not supported, and ignoring it would weaken security (gRFC A29)";

/// A case: the path below `common_tls_context`, the reason, and how a valid message gets so.
type Case = (&'static str, &'static str, fn(&mut UpstreamTlsContext));

/// S15-02, gRFC A29: sources of certificates that gRPC does not have, and settings that it cannot obey.
#[test]
fn certificates_from_elsewhere_are_refused() {
    let other = "is not supported: expected tls_certificate_provider_instance (gRFC A29)";
    check(&[
        (".tls_params", WEAKENS, |tls| {
            common(tls).tls_params = Some(TlsParameters::default());
        }),
        (".custom_handshaker", WEAKENS, |tls| {
            common(tls).custom_handshaker = Some(TypedExtensionConfig::default());
        }),
        (".tls_certificates", other, |tls| {
            common(tls).tls_certificates = vec![TlsCertificate::default()];
        }),
        (".tls_certificate_sds_secret_configs", other, |tls| {
            common(tls).tls_certificate_sds_secret_configs = vec![SdsSecretConfig::default()];
        }),
        (".tls_certificate_certificate_provider", other, |tls| {
            common(tls).tls_certificate_certificate_provider = Some(CertificateProvider::default());
        }),
        (".custom_tls_certificate_selector", other, |tls| {
            common(tls).custom_tls_certificate_selector = Some(TypedExtensionConfig::default());
        }),
    ]);
}

/// S15-02, gRFC A29: without a CA there is no TLS.
#[test]
fn a_context_without_a_ca_is_refused() {
    let no_ca = "expected ca_certificate_provider_instance or system_root_certs, got none";
    let no_context = "expected validation_context or combined_validation_context, got none";
    let context = "is not supported: expected validation_context or combined_validation_context";
    check(&[
        (".validation_context_sds_secret_config", context, |tls| {
            let sds = SdsSecretConfig::default();
            common(tls).validation_context_type =
                Some(ValidationContextType::ValidationContextSdsSecretConfig(sds));
        }),
        (".validation_context_certificate_provider", context, |tls| {
            let provider = CertificateProvider::default();
            common(tls).validation_context_type = Some(
                ValidationContextType::ValidationContextCertificateProvider(provider),
            );
        }),
        (
            ".validation_context_certificate_provider_instance",
            context,
            |tls| {
                let provider = CertificateProviderInstance::default();
                common(tls).validation_context_type = Some(
                    ValidationContextType::ValidationContextCertificateProviderInstance(provider),
                );
            },
        ),
        ("", no_context, |tls| {
            common(tls).validation_context_type = None;
        }),
        ("", no_context, |tls| tls.common_tls_context = None),
        (".validation_context", no_ca, |tls| {
            validation(tls).ca_certificate_provider_instance = None;
        }),
        (
            ".combined_validation_context.default_validation_context",
            no_ca,
            |tls| {
                set_combined(tls, CombinedCertificateValidationContext::default());
            },
        ),
    ]);
}

/// S15-02, gRFC A29: every field of validation whose neglect would weaken security, each at its path.
#[test]
fn validation_that_is_not_supported_is_refused() {
    check(&[
        (
            ".validation_context.verify_certificate_spki",
            WEAKENS,
            |tls| {
                validation(tls).verify_certificate_spki = vec!["hash".to_owned()];
            },
        ),
        (
            ".validation_context.verify_certificate_hash",
            WEAKENS,
            |tls| {
                validation(tls).verify_certificate_hash = vec!["hash".to_owned()];
            },
        ),
        (
            ".validation_context.require_signed_certificate_timestamp",
            WEAKENS,
            |tls| {
                validation(tls).require_signed_certificate_timestamp =
                    Some(BoolValue { value: true });
            },
        ),
        (".validation_context.crl", WEAKENS, |tls| {
            validation(tls).crl = Some(DataSource::default());
        }),
        (
            ".validation_context.custom_validator_config",
            WEAKENS,
            |tls| {
                validation(tls).custom_validator_config = Some(TypedExtensionConfig::default());
            },
        ),
    ]);
}

/// S15-02, gRFC A29: matchers that cannot be read, or that would accept every name.
#[test]
fn matchers_that_accept_everything_are_refused() {
    check(&[
        (
            ".validation_context.match_typed_subject_alt_names",
            "is not supported: expected match_subject_alt_names, without which every name would be \
             accepted",
            |tls| {
                validation(tls).match_typed_subject_alt_names =
                    vec![SubjectAltNameMatcher::default()];
            },
        ),
        (
            ".validation_context.match_subject_alt_names[0]",
            "expected exact, prefix, suffix, contains or safe_regex, got none",
            |tls| validation(tls).match_subject_alt_names = vec![StringMatcher::default()],
        ),
        (
            ".validation_context.match_subject_alt_names[0].prefix",
            "expected a non-empty string, got none",
            |tls| {
                let everything = matcher(MatchPattern::Prefix(String::new()), false);
                validation(tls).match_subject_alt_names = vec![everything];
            },
        ),
        (
            ".validation_context.match_subject_alt_names[0].suffix",
            "expected a non-empty string, got none",
            |tls| {
                let everything = matcher(MatchPattern::Suffix(String::new()), false);
                validation(tls).match_subject_alt_names = vec![everything];
            },
        ),
        (
            ".validation_context.match_subject_alt_names[0].contains",
            "expected a non-empty string, got none",
            |tls| {
                let everything = matcher(MatchPattern::Contains(String::new()), false);
                validation(tls).match_subject_alt_names = vec![everything];
            },
        ),
    ]);
}

fn check(cases: &[Case]) {
    for (field, reason, spoil) in cases {
        let mut tls = upstream();
        spoil(&mut tls);
        let at = format!("transport_socket.typed_config.common_tls_context{field}");
        // gRPC validates the security of an aggregate too, though it does not use it.
        for proto in [secured(&tls), secured_aggregate(&tls)] {
            assert_eq!(reject::<Cluster>(&proto), [format!("{at}: {reason}")]);
        }
    }
}

/// gRFC A29 and gRPC C-core: any transport socket but UpstreamTlsContext is refused, plaintext too, because
/// the channel's fallback credentials decide about that.
#[test]
fn other_transport_sockets_are_refused() {
    let expected = "expected envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";
    let at = "transport_socket.typed_config";
    let start_tls = Any {
        type_url: "type.googleapis.com/envoy.extensions.transport_sockets.starttls.v3.\
                   UpstreamStartTlsConfig"
            .to_owned(),
        value: Vec::new(),
    };
    for (config, got) in [
        (None, "none"),
        (
            Some(any(&RawBuffer::default())),
            "envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer",
        ),
        (
            Some(start_tls),
            "envoy.extensions.transport_sockets.starttls.v3.UpstreamStartTlsConfig",
        ),
    ] {
        let mut proto = cluster();
        proto.transport_socket = Some(TransportSocket {
            name: "envoy.transport_sockets.raw_buffer".to_owned(),
            config_type: config.map(ConfigType::TypedConfig),
        });
        assert_eq!(
            reject::<Cluster>(&proto),
            [format!("{at}: {expected}, got {got}")]
        );
    }
    let mut proto = secured(&upstream());
    let Some(ConfigType::TypedConfig(config)) =
        &mut proto.transport_socket.as_mut().unwrap().config_type
    else {
        panic!("a configuration");
    };
    config.value = vec![0x0f];
    let errors = reject::<Cluster>(&proto);
    assert!(
        errors[0].contains("UpstreamTlsContext cannot be decoded"),
        "{errors:?}"
    );
}

/// Endpoints with sockets of their own could mean plaintext where TLS is asked for. grpc-go refuses it too.
#[test]
fn transport_socket_matches_are_refused() {
    let mut proto = cluster();
    proto.transport_socket_matches = vec![TransportSocketMatch::default()];
    assert_eq!(
        reject::<Cluster>(&proto),
        ["transport_socket_matches: is not supported: expected transport_socket alone"]
    );
}
