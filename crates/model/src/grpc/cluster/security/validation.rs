//! `validation_context_type`: the rules by which the certificate of a server is validated (gRFC
//! A29, A82). Two forms of the field are read, because gRFC A29 allows both.

use envoy_types::pb::envoy::{
    extensions::transport_sockets::tls::v3::{
        self as pb,
        certificate_validation_context::TrustChainVerification,
        common_tls_context::{CombinedCertificateValidationContext, ValidationContextType},
    },
    r#type::matcher::v3::StringMatcher as StringMatcherProto,
};

use super::{TrustedRoots, certificates::provider};
use crate::{
    Features, Validator,
    features::SYSTEM_ROOT_CERTS,
    grpc::{StringMatcher, StringPattern, decode::require_text, string_matcher},
};

/// A `CertificateValidationContext`, read.
pub(super) struct Validation {
    pub(super) roots: TrustedRoots,
    pub(super) san_matchers: Vec<StringMatcher>,
}

/// Reads the rules by which servers are validated; `None` after an error. A context without a CA is
/// an error.
#[allow(deprecated, reason = "control planes still send the old fields")]
pub(super) fn parse(
    proto: &pb::CommonTlsContext,
    features: &Features,
    v: &mut Validator,
) -> Option<Validation> {
    match proto.validation_context_type.as_ref() {
        Some(ValidationContextType::CombinedValidationContext(combined)) => v
            .field("combined_validation_context", |v| {
                parse_combined(combined, features, v)
            }),
        Some(ValidationContextType::ValidationContext(context)) => {
            v.field("validation_context", |v| {
                let san_matchers = check(context, v);
                let roots = match roots(context, features, v) {
                    Ca::None => return no_ca(features, v),
                    found => found.valid(),
                };
                Some(Validation {
                    roots: roots?,
                    san_matchers,
                })
            })
        }
        Some(other) => {
            let field = match other {
                ValidationContextType::ValidationContextSdsSecretConfig(_) => {
                    "validation_context_sds_secret_config"
                }
                ValidationContextType::ValidationContextCertificateProviderInstance(_) => {
                    "validation_context_certificate_provider_instance"
                }
                _ => "validation_context_certificate_provider",
            };
            let expected = "validation_context or combined_validation_context";
            v.error_at(field, format!("is not supported: expected {expected}"));
            None
        }
        None => {
            v.error("expected validation_context or combined_validation_context, got none");
            None
        }
    }
}

/// The CA of the default context counts. Without one, the provider of the old field counts, as in gRPC
/// C-core.
#[allow(deprecated, reason = "control planes still send the old fields")]
fn parse_combined(
    proto: &CombinedCertificateValidationContext,
    features: &Features,
    v: &mut Validator,
) -> Option<Validation> {
    if proto.validation_context_sds_secret_config.is_some() {
        let ignored = "not supported: default_validation_context alone counts";
        v.unsupported_at("validation_context_sds_secret_config", ignored);
    }
    let none = pb::CertificateValidationContext::default();
    let context = proto.default_validation_context.as_ref().unwrap_or(&none);
    let (san_matchers, found) = v.field("default_validation_context", |v| {
        (check(context, v), roots(context, features, v))
    });
    let old = proto
        .validation_context_certificate_provider_instance
        .as_ref();
    let roots = match (found, old) {
        (Ca::None | Ca::System, Some(instance)) => {
            let field = "validation_context_certificate_provider_instance";
            Ca::Provider(provider(&instance.instance_name, field, features, v))
        }
        (Ca::None, None) => {
            return v.field("default_validation_context", |v| no_ca(features, v));
        }
        (found, _) => found,
    };
    Some(Validation {
        roots: roots.valid()?,
        san_matchers,
    })
}

/// The CA that a context configures.
enum Ca {
    None,
    /// A provider, or `None` after an error.
    Provider(Option<String>),
    System,
}

impl Ca {
    fn valid(self) -> Option<TrustedRoots> {
        match self {
            Self::None => None,
            Self::Provider(name) => name.map(TrustedRoots::Provider),
            Self::System => Some(TrustedRoots::System),
        }
    }
}

/// gRFC A82: the system's roots count if no provider is set.
fn roots(proto: &pb::CertificateValidationContext, features: &Features, v: &mut Validator) -> Ca {
    if let Some(instance) = &proto.ca_certificate_provider_instance {
        let field = "ca_certificate_provider_instance";
        return Ca::Provider(provider(&instance.instance_name, field, features, v));
    }
    match proto.system_root_certs {
        Some(_) if features.system_root_certs => Ca::System,
        _ => Ca::None,
    }
}

/// Records that no CA is configured.
fn no_ca(features: &Features, v: &mut Validator) -> Option<Validation> {
    let expected = if features.system_root_certs {
        "ca_certificate_provider_instance or system_root_certs".to_owned()
    } else {
        format!(
            "ca_certificate_provider_instance (system_root_certs is switched off by {SYSTEM_ROOT_CERTS})"
        )
    };
    v.error(format!("expected {expected}, got none"));
    None
}

/// Reads the matchers, and refuses or records the fields that gRPC does not support.
fn check(proto: &pb::CertificateValidationContext, v: &mut Validator) -> Vec<StringMatcher> {
    const WEAKENS: &str = "is not supported, and ignoring it would weaken security (gRFC A29)";
    let must_have_timestamp = proto.require_signed_certificate_timestamp.as_ref();
    let weakening = [
        (
            "verify_certificate_spki",
            !proto.verify_certificate_spki.is_empty(),
        ),
        (
            "verify_certificate_hash",
            !proto.verify_certificate_hash.is_empty(),
        ),
        (
            "require_signed_certificate_timestamp",
            must_have_timestamp.is_some_and(|required| required.value),
        ),
        ("crl", proto.crl.is_some()),
        (
            "custom_validator_config",
            proto.custom_validator_config.is_some(),
        ),
    ];
    for (field, _) in weakening.into_iter().filter(|(_, is_set)| *is_set) {
        v.error_at(field, WEAKENS);
    }
    record_ignored(proto, v);
    san_matchers(proto, v)
}

/// Records the fields that gRFC A29 says to ignore.
fn record_ignored(proto: &pb::CertificateValidationContext, v: &mut Validator) {
    let verification = proto.trust_chain_verification();
    let is_lenient = verification != TrustChainVerification::VerifyTrustChain;
    let ignored = [
        (
            "trusted_ca",
            proto.trusted_ca.is_some(),
            "CAs come from providers alone",
        ),
        (
            "watched_directory",
            proto.watched_directory.is_some(),
            "providers watch their files",
        ),
        (
            "allow_expired_certificate",
            proto.allow_expired_certificate,
            "never allowed",
        ),
        (
            "trust_chain_verification",
            is_lenient,
            "chains are always verified",
        ),
        (
            "max_verify_depth",
            proto.max_verify_depth.is_some(),
            "the usual limit counts",
        ),
    ];
    for (field, _, effect) in ignored.into_iter().filter(|(_, is_set, _)| *is_set) {
        v.unsupported_at(field, format!("not supported: {effect} (gRFC A29)"));
    }
}

/// The matchers of names. gRFC A29 is older than matchers with a type, which Envoy has now. Typed
/// matchers alone are an error, because without other matchers every name would be accepted.
#[allow(
    deprecated,
    reason = "the field that gRPC reads is the one that Envoy calls deprecated"
)]
fn san_matchers(proto: &pb::CertificateValidationContext, v: &mut Validator) -> Vec<StringMatcher> {
    let typed = "match_typed_subject_alt_names";
    if !proto.match_typed_subject_alt_names.is_empty() {
        if proto.match_subject_alt_names.is_empty() {
            let message = "is not supported: expected match_subject_alt_names, without which every \
                           name would be accepted";
            v.error_at(typed, message);
        } else {
            v.unsupported_at(
                typed,
                "not supported: match_subject_alt_names counts (gRFC A29)",
            );
        }
    }
    v.field("match_subject_alt_names", |v| {
        let matchers = proto.match_subject_alt_names.iter().enumerate();
        matchers
            .filter_map(|(i, matcher)| v.index(i, |v| san_matcher(matcher, v)))
            .collect()
    })
}

/// An empty prefix, suffix or part is an error, because every name would match.
fn san_matcher(proto: &StringMatcherProto, v: &mut Validator) -> Option<StringMatcher> {
    let matcher = string_matcher::parse(proto, v)?;
    let (field, text) = match matcher.pattern() {
        StringPattern::Contains(text) => ("contains", text),
        StringPattern::Prefix(text) => ("prefix", text),
        StringPattern::Suffix(text) => ("suffix", text),
        StringPattern::Exact(_) | StringPattern::Regex(_) => return Some(matcher),
    };
    require_text(text, field, v);
    Some(matcher)
}
