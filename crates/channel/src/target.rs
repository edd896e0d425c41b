//! The target of a channel: `xds:///payments` or, as gRFC A27 allows, `xds:payments:50051`. A target with an
//! authority of the control plane is `xds://traffic.example.com/payments` (gRFC A47).
//!
//! Targets are parsed here and not by a URI library, because two rules are gRPC's own. The service is the
//! decoded path: `xds:///shop/payments` and `xds:///shop%2Fpayments` are one service. Its encoded form is
//! the `:authority` of calls.

use std::str::FromStr;
use std::sync::Arc;

use crowfly_model::names::percent_decode;
use thiserror::Error;

use crate::authority::CallAuthority;

/// The parsed target of a channel.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Target {
    /// The xDS authority that has the listener; `None` is the default one.
    pub(crate) xds_authority: Option<String>,
    /// The service, from which the bootstrap makes the name of the listener.
    pub(crate) service: Arc<str>,
    /// The service as calls carry it in `:authority`.
    pub(crate) authority: CallAuthority,
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(target: &str) -> Result<Self, TargetError> {
        let malformed = |reason| TargetError {
            target: target.to_owned(),
            reason,
        };
        let rest = target
            .strip_prefix("xds:")
            .ok_or_else(|| malformed(Malformed::Scheme))?;
        // A query or a fragment has no meaning in a target, and ignoring it would hide a mistake.
        if rest.contains(['?', '#']) {
            return Err(malformed(Malformed::Query));
        }
        let (xds_authority, path) = match rest.strip_prefix("//") {
            Some(rest) => match rest.split_once('/') {
                Some(("", path)) => (None, path),
                Some((authority, path)) => (Some(percent_decode(authority).into_owned()), path),
                None => return Err(malformed(Malformed::NoService)),
            },
            None => (None, rest.strip_prefix('/').unwrap_or(rest)),
        };
        let service = percent_decode(path);
        if service.is_empty() || service.ends_with('/') {
            return Err(malformed(Malformed::NoService));
        }
        Ok(Self {
            xds_authority,
            authority: CallAuthority::of_service(&service),
            service: service.into(),
        })
    }
}

/// A channel's target is malformed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("target `{target}`: {reason}")]
pub struct TargetError {
    target: String,
    reason: Malformed,
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
enum Malformed {
    #[error("expected a service, as in xds:///payments")]
    NoService,
    #[error("expected neither `?` nor `#`, unless percent-encoded")]
    Query,
    #[error("expected the scheme xds, as in xds:///payments")]
    Scheme,
}

#[cfg(test)]
mod tests {
    use http::Extensions;

    use super::*;
    use crate::transport::AuthorityField;

    #[test]
    fn both_forms_of_a27_name_a_service() {
        for (target, service) in [
            ("xds:///payments", "payments"),
            ("xds:payments", "payments"),
            ("xds:payments:50051", "payments:50051"),
            (
                "xds:///payments.example.com:50051",
                "payments.example.com:50051",
            ),
        ] {
            let parsed: Target = target.parse().unwrap();
            assert_eq!(&*parsed.service, service);
            assert_eq!(parsed.authority.as_str(), service);
        }
    }

    /// gRFC A47: the service is the path, decoded and without its first slash; the authority is the
    /// service, encoded.
    #[test]
    fn a_service_may_be_a_path_or_percent_encoded() {
        for (target, service, authority) in [
            ("xds:/payments", "payments", "payments"),
            ("xds:///a/b", "a/b", "a%2Fb"),
            ("xds:///a%2Fb", "a/b", "a%2Fb"),
            ("xds:a/b", "a/b", "a%2Fb"),
            ("xds:////a", "/a", "%2Fa"),
            ("xds:///a%3Fb", "a?b", "a%3Fb"),
            ("xds:///pay ments", "pay ments", "pay%20ments"),
            ("xds:///pay%20ments", "pay ments", "pay%20ments"),
            ("xds:///a%3a1", "a:1", "a:1"),
            ("xds:///100%", "100%", "100%25"),
            ("xds:///[::1]:80", "[::1]:80", "[::1]:80"),
        ] {
            let parsed: Target = target.parse().unwrap();
            assert_eq!(&*parsed.service, service, "{target}");
            assert_eq!(parsed.authority.as_str(), authority, "{target}");
            let mut extensions = Extensions::new();
            parsed.authority.tell(&mut extensions);
            let said = extensions.get().map(|AuthorityField(said)| said);
            let in_uri = parsed.authority.in_uri();
            match said {
                Some(said) => assert_eq!(said, authority),
                None => assert_eq!(in_uri.as_str(), authority),
            }
        }
    }

    #[test]
    fn an_authority_is_for_the_control_plane_only() {
        for (target, authority) in [
            ("xds://traffic.example.com/payments", "traffic.example.com"),
            ("xds://a%2Fb/payments", "a/b"),
        ] {
            let parsed: Target = target.parse().unwrap();
            assert_eq!(parsed.xds_authority.as_deref(), Some(authority));
            assert_eq!(parsed.authority.as_str(), "payments");
        }
    }

    #[test]
    fn a_malformed_target_says_what_was_expected() {
        for (target, reason) in [
            ("http://payments", "expected the scheme xds"),
            ("payments", "expected the scheme xds"),
            ("xds:", "expected a service"),
            ("xds:///", "expected a service"),
            ("xds://payments", "expected a service"),
            ("xds://control/", "expected a service"),
            ("xds:/", "expected a service"),
            ("xds:///a/", "expected a service"),
            ("xds:///a?b", "expected neither"),
            ("xds:///a#b", "expected neither"),
        ] {
            let error = target.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
            assert!(error.contains(target), "{error}");
        }
    }
}
