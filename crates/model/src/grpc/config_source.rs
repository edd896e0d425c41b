//! The source that a resource names for another resource.
//!
//! gRPC has one source, the ADS stream the first resource came from, so every `ConfigSource` must
//! say `ads` or `self` (gRFC A27, A30).

use envoy_types::pb::envoy::config::core::v3::{
    ConfigSource, config_source::ConfigSourceSpecifier as Specifier,
};

use crate::Validator;

/// Records an error at `field` unless `source` is `ads` or `self`.
pub fn require_ads_or_self(source: Option<&ConfigSource>, field: &str, v: &mut Validator) {
    match source.and_then(|source| source.config_source_specifier.as_ref()) {
        Some(Specifier::Ads(_) | Specifier::Self_(_)) => {}
        other => v.error_at(field, format!("expected ads or self, got {}", noun(other))),
    }
}

/// Records an error at `field` unless `source` is `self`.
pub fn require_self(source: &ConfigSource, field: &str, v: &mut Validator) {
    match source.config_source_specifier.as_ref() {
        Some(Specifier::Self_(_)) => {}
        other => v.error_at(field, format!("expected self, got {}", noun(other))),
    }
}

fn noun(specifier: Option<&Specifier>) -> &'static str {
    match specifier {
        None => "none",
        Some(Specifier::Ads(_)) => "ads",
        Some(Specifier::ApiConfigSource(_)) => "api_config_source",
        Some(Specifier::PathConfigSource(_)) => "path_config_source",
        Some(Specifier::Self_(_)) => "self",
        // The deprecated form of the above.
        Some(_) => "path",
    }
}
