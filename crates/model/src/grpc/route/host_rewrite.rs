//! The rewriting of `:authority` (gRFC A81).
//!
//! The field has a file of its own, because it is a matter of security: only a trusted server may rewrite the
//! authority.

use envoy_types::pb::envoy::config::route::v3::route_action::HostRewriteSpecifier;

use crate::{Features, Validator};

/// Returns whether calls have the host name of their endpoint as `:authority`.
pub(super) fn parse(
    proto: Option<&HostRewriteSpecifier>,
    features: &Features,
    v: &mut Validator,
) -> bool {
    let other = match proto {
        None => return false,
        Some(HostRewriteSpecifier::AutoHostRewrite(flag)) => {
            if flag.value && !features.authority_rewriting {
                let message = "ignored: the server is no trusted_xds_server in the bootstrap, \
                               GRPC_EXPERIMENTAL_XDS_AUTHORITY_REWRITE is off, or the program has set \
                               the TLS of backends (gRFC A81)";
                v.unsupported_at("auto_host_rewrite", message);
            }
            return flag.value && features.authority_rewriting;
        }
        Some(HostRewriteSpecifier::HostRewrite(_)) => "host_rewrite",
        Some(HostRewriteSpecifier::HostRewriteHeader(_)) => "host_rewrite_header",
        Some(HostRewriteSpecifier::HostRewriteLiteral(_)) => "host_rewrite_literal",
        Some(HostRewriteSpecifier::HostRewritePathRegex(_)) => "host_rewrite_path_regex",
    };
    v.unsupported_at(
        other,
        "ignored: only auto_host_rewrite is supported (gRFC A81)",
    );
    false
}
