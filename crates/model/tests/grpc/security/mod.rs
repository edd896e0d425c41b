//! Tests of the TLS that a cluster asks for (gRFC A29, A82, A101): what is read of it, and what is recorded.
//!
//! A setting that is not supported must be refused (`refused.rs`), because a client must not connect with less security
//! than asked for.
#![allow(deprecated, reason = "control planes still send the old fields")]

mod refused;

use crowfly_model::{
    Features, ResourceType,
    grpc::{
        Cluster,
        cluster::{ClusterKind, ProviderNames, Sni, TrustedRoots, UpstreamTls},
    },
};
use envoy_types::pb::{
    envoy::{
        config::{
            cluster::v3 as pb,
            core::v3::{
                DataSource, TransportSocket, WatchedDirectory, transport_socket::ConfigType,
            },
        },
        extensions::transport_sockets::tls::v3::{
            CertificateProviderPluginInstance, CertificateValidationContext, CommonTlsContext,
            SubjectAltNameMatcher, TlsKeyLog, UpstreamTlsContext,
            certificate_validation_context::{SystemRootCerts, TrustChainVerification},
            common_tls_context::{
                CertificateProviderInstance, CombinedCertificateValidationContext,
                ValidationContextType,
            },
        },
        r#type::matcher::v3::{RegexMatcher, StringMatcher, string_matcher::MatchPattern},
    },
    google::protobuf::{BoolValue, UInt32Value},
};
use prost::Message;

use crate::{
    accept,
    messages::{aggregate, any, cluster},
    reject,
};

/// S15-01: providers for CA and identity, matchers of names, and the line that people read.
#[test]
fn mutual_tls() {
    let mut tls = upstream();
    common(&mut tls).tls_certificate_provider_instance = Some(instance("mesh"));
    validation(&mut tls).match_subject_alt_names = vec![
        matcher(
            MatchPattern::Exact("spiffe://mesh/payments".to_owned()),
            false,
        ),
        matcher(MatchPattern::Suffix(".MESH".to_owned()), true),
    ];
    let parsed = security(&tls);
    assert_eq!(parsed.roots, TrustedRoots::Provider("mesh-ca".to_owned()));
    assert_eq!(parsed.identity.as_deref(), Some("mesh"));
    assert!(parsed.san_matchers[0].matches(b"spiffe://mesh/payments"));
    assert!(parsed.san_matchers[1].matches(b"payments.mesh"));
    assert_eq!(parsed.sni, Sni::default());
    assert_eq!(
        parsed.to_string(),
        "mtls, san exact \"spiffe://mesh/payments\" or suffix \".MESH\" (any case)"
    );
}

/// gRFC A29: all five kinds of matchers.
#[test]
fn matchers_of_names() {
    let mut tls = upstream();
    let regex = RegexMatcher {
        regex: r"spiffe://mesh/\w+".to_owned(),
        ..Default::default()
    };
    validation(&mut tls).match_subject_alt_names = [
        MatchPattern::Exact("spiffe://mesh/payments".to_owned()),
        MatchPattern::Prefix("spiffe://mesh/".to_owned()),
        MatchPattern::Suffix("/payments".to_owned()),
        MatchPattern::Contains("mesh".to_owned()),
        MatchPattern::SafeRegex(regex),
    ]
    .map(|pattern| matcher(pattern, false))
    .to_vec();
    for matcher in &security(&tls).san_matchers {
        assert!(matcher.matches(b"spiffe://mesh/payments"), "{matcher}");
        assert!(!matcher.matches(b"spiffe://other/orders"), "{matcher}");
    }
}

/// A cluster without `transport_socket` asks for no TLS.
#[test]
fn no_transport_socket() {
    let ClusterKind::Leaf(leaf) = accept::<Cluster>(&cluster()).kind else {
        panic!("a leaf");
    };
    assert_eq!(leaf.security, None);
}

/// gRFC A29 and gRPC C-core: the fields that were there before the present ones are read if those are unset.
#[test]
fn old_names_of_fields() {
    let old = |name: &str| CertificateProviderInstance {
        instance_name: name.to_owned(),
        certificate_name: String::new(),
    };
    let mut tls = upstream();
    let combined = CombinedCertificateValidationContext {
        validation_context_certificate_provider_instance: Some(old("old-ca")),
        ..Default::default()
    };
    common(&mut tls).tls_certificate_certificate_provider_instance = Some(old("old"));
    set_combined(&mut tls, combined.clone());
    let parsed = security(&tls);
    assert_eq!(parsed.roots, TrustedRoots::Provider("old-ca".to_owned()));
    assert_eq!(parsed.identity.as_deref(), Some("old"));

    common(&mut tls).tls_certificate_provider_instance = Some(instance("new"));
    let new = CertificateValidationContext {
        ca_certificate_provider_instance: Some(instance("new-ca")),
        ..Default::default()
    };
    set_combined(
        &mut tls,
        CombinedCertificateValidationContext {
            default_validation_context: Some(new),
            ..combined
        },
    );
    let parsed = security(&tls);
    assert_eq!(parsed.roots, TrustedRoots::Provider("new-ca".to_owned()));
    assert_eq!(parsed.identity.as_deref(), Some("new"));
}

/// gRFC A82: the system's roots count if no provider is set, and the variable can switch them off.
#[test]
fn system_roots() {
    let mut tls = upstream();
    validation(&mut tls).system_root_certs = Some(SystemRootCerts {});
    let provider = TrustedRoots::Provider("mesh-ca".to_owned());
    assert_eq!(security(&tls).roots, provider);
    validation(&mut tls).ca_certificate_provider_instance = None;
    assert_eq!(security(&tls).roots, TrustedRoots::System);
    assert_eq!(security(&tls).to_string(), "tls, system roots");

    let off = Features {
        system_root_certs: false,
        ..Features::ALL
    };
    let at = "transport_socket.typed_config.common_tls_context.validation_context";
    assert_eq!(
        refused(&secured(&tls), &off),
        [format!(
            "{at}: expected ca_certificate_provider_instance (system_root_certs is switched off by \
             GRPC_EXPERIMENTAL_XDS_SYSTEM_ROOT_CERTS), got none"
        )]
    );
}

/// gRFC A101: SNI and its check, which the variable can switch off; the latter is recorded.
#[test]
fn server_name_indication() {
    let mut tls = upstream();
    tls.sni = "payments.example".to_owned();
    tls.auto_host_sni = true;
    tls.auto_sni_san_validation = true;
    let parsed = security(&tls);
    let expected = Sni {
        from_host: true,
        name: Some("payments.example".to_owned()),
        validates_san: true,
    };
    assert_eq!(parsed.sni, expected);
    assert_eq!(
        parsed.to_string(),
        "tls, sni of the host or payments.example, san as sni"
    );

    let off = Features {
        sni: false,
        ..Features::ALL
    };
    let parsed = Cluster::parse(&secured(&tls).encode_to_vec(), &off);
    let parsed = parsed.value.unwrap();
    assert_eq!(
        parsed.unsupported[0].path,
        "transport_socket.typed_config.sni"
    );
    let ClusterKind::Leaf(leaf) = parsed.kind else {
        panic!("a leaf");
    };
    assert_eq!(leaf.security.unwrap().sni, Sni::default());

    tls.sni = "x".repeat(256);
    assert_eq!(
        reject::<Cluster>(&secured(&tls)),
        ["transport_socket.typed_config.sni: expected at most 255 bytes, got 256"]
    );
}

/// S15-02, gRFC A29: an instance that the bootstrap does not have.
#[test]
fn an_unknown_provider_is_refused() {
    let mut tls = upstream();
    common(&mut tls).tls_certificate_provider_instance = Some(instance("mesh"));
    let features = |names: &[&str]| Features {
        certificate_providers: ProviderNames::of(names.iter().copied()),
        ..Features::ALL
    };
    let proto = secured(&tls);
    let both = Cluster::parse(&proto.encode_to_vec(), &features(&["mesh", "mesh-ca"]));
    assert!(both.value.is_ok());
    let at = "transport_socket.typed_config.common_tls_context";
    let expected = "expected a certificate provider of the bootstrap that is supported";
    let identity = format!("{at}.tls_certificate_provider_instance.instance_name: {expected}");
    let ca = format!(
        "{at}.validation_context.ca_certificate_provider_instance.instance_name: {expected}"
    );
    assert_eq!(
        refused(&proto, &features(&[])),
        [
            format!("{identity} (none), got \"mesh\""),
            format!("{ca} (none), got \"mesh-ca\""),
        ]
    );
    assert_eq!(
        refused(&proto, &features(&["mesh", "other"])),
        [format!("{ca} (mesh, other), got \"mesh-ca\"")]
    );
}

/// gRFC A29, A69: a field that is set to what gRPC does anyway is no error.
#[test]
fn a_timestamp_that_is_not_required_is_no_error() {
    let mut tls = upstream();
    validation(&mut tls).require_signed_certificate_timestamp = Some(BoolValue { value: false });
    accept::<Cluster>(&secured(&tls));
}

/// gRFC A29: the fields that are ignored. They leave security as strong as it is, and are recorded.
#[test]
fn ignored_fields_are_recorded() {
    let mut tls = upstream();
    tls.allow_renegotiation = true;
    common(&mut tls).alpn_protocols = vec!["h2".to_owned()];
    common(&mut tls).key_log = Some(TlsKeyLog::default());
    let lax = validation(&mut tls);
    lax.trusted_ca = Some(DataSource::default());
    lax.watched_directory = Some(WatchedDirectory::default());
    lax.allow_expired_certificate = true;
    lax.set_trust_chain_verification(TrustChainVerification::AcceptUntrusted);
    lax.max_verify_depth = Some(UInt32Value { value: 1 });
    lax.match_typed_subject_alt_names = vec![SubjectAltNameMatcher::default()];
    lax.match_subject_alt_names = vec![matcher(MatchPattern::Exact("a".to_owned()), false)];
    let parsed = accept::<Cluster>(&secured(&tls));
    let paths: Vec<_> = parsed
        .unsupported
        .iter()
        .map(|wish| wish.path.as_str())
        .collect();
    let at = "transport_socket.typed_config";
    let context = format!("{at}.common_tls_context.validation_context");
    assert_eq!(
        paths,
        [
            format!("{at}.allow_renegotiation"),
            format!("{at}.common_tls_context.key_log"),
            format!("{context}.trusted_ca"),
            format!("{context}.watched_directory"),
            format!("{context}.allow_expired_certificate"),
            format!("{context}.trust_chain_verification"),
            format!("{context}.max_verify_depth"),
            format!("{context}.match_typed_subject_alt_names"),
        ]
    );
}

fn upstream() -> UpstreamTlsContext {
    let context = CertificateValidationContext {
        ca_certificate_provider_instance: Some(instance("mesh-ca")),
        ..Default::default()
    };
    UpstreamTlsContext {
        common_tls_context: Some(CommonTlsContext {
            validation_context_type: Some(ValidationContextType::ValidationContext(context)),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn instance(name: &str) -> CertificateProviderPluginInstance {
    CertificateProviderPluginInstance {
        instance_name: name.to_owned(),
        certificate_name: "ignored by file_watcher".to_owned(),
    }
}

fn common(tls: &mut UpstreamTlsContext) -> &mut CommonTlsContext {
    tls.common_tls_context.as_mut().unwrap()
}

fn validation(tls: &mut UpstreamTlsContext) -> &mut CertificateValidationContext {
    match &mut common(tls).validation_context_type {
        Some(ValidationContextType::ValidationContext(context)) => context,
        other => panic!("expected a validation context, got {other:?}"),
    }
}

fn set_combined(tls: &mut UpstreamTlsContext, combined: CombinedCertificateValidationContext) {
    common(tls).validation_context_type =
        Some(ValidationContextType::CombinedValidationContext(combined));
}

fn matcher(pattern: MatchPattern, ignore_case: bool) -> StringMatcher {
    StringMatcher {
        match_pattern: Some(pattern),
        ignore_case,
    }
}

fn socket(tls: &UpstreamTlsContext) -> Option<TransportSocket> {
    Some(TransportSocket {
        name: "envoy.transport_sockets.tls".to_owned(),
        config_type: Some(ConfigType::TypedConfig(any(tls))),
    })
}

fn secured(tls: &UpstreamTlsContext) -> pb::Cluster {
    pb::Cluster {
        transport_socket: socket(tls),
        ..cluster()
    }
}

fn secured_aggregate(tls: &UpstreamTlsContext) -> pb::Cluster {
    pb::Cluster {
        transport_socket: socket(tls),
        ..aggregate()
    }
}

fn security(tls: &UpstreamTlsContext) -> UpstreamTls {
    match accept::<Cluster>(&secured(tls)).kind {
        ClusterKind::Leaf(leaf) => (*leaf.security.unwrap()).clone(),
        other => panic!("expected a leaf, got {other:?}"),
    }
}

fn refused(proto: &pb::Cluster, features: &Features) -> Vec<String> {
    let errors = Cluster::parse(&proto.encode_to_vec(), features).value;
    let errors = errors.expect_err("a refusal");
    errors.iter().map(ToString::to_string).collect()
}
