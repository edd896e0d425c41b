//! The target of a channel: `xds:///payments` or, as gRFC A27 allows, `xds:payments:50051`. A target with an
//! authority of the control plane is `xds://traffic.example.com/payments` (gRFC A47). Targets without a control
//! plane are in [`plain`].
//!
//! Targets are parsed here and not by a URI library, because two rules are gRPC's own. The service is the decoded path:
//! `xds:///shop/payments` and `xds:///shop%2Fpayments` are one service. The encoded form of the service is the
//! `:authority` of calls.

mod plain;

use std::str::FromStr;
use std::sync::Arc;

use crowfly_model::names::percent_decode;
use thiserror::Error;

use self::plain::Scheme;
pub(crate) use self::plain::{Place, PlainTarget, UNIX_PLACEHOLDER};
use crate::authority::CallAuthority;

/// The parsed target of a channel.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Target {
    /// The target itself names the backends.
    Plain(PlainTarget),
    /// A control plane names the backends.
    Xds(XdsTarget),
}

impl Target {
    /// The name of the target in logs.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Plain(plain) => &plain.name,
            Self::Xds(xds) => &xds.service,
        }
    }

    /// The `:authority` of calls, unless the program sets another one.
    pub(crate) fn authority(&self) -> &CallAuthority {
        match self {
            Self::Plain(plain) => &plain.authority,
            Self::Xds(xds) => &xds.authority,
        }
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(target: &str) -> Result<Self, TargetError> {
        let parsed = match Scheme::of(target) {
            Some((scheme, rest)) => scheme.parse(target, rest).map(Self::Plain),
            None => XdsTarget::parse(target).map(Self::Xds),
        };
        parsed.map_err(|reason| TargetError {
            target: target.to_owned(),
            reason,
        })
    }
}

/// A target whose backends a control plane knows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct XdsTarget {
    /// The xDS authority that has the listener; `None` is the default one.
    pub(crate) xds_authority: Option<String>,
    /// The service, from which the bootstrap makes the name of the listener.
    pub(crate) service: Arc<str>,
    /// The service as calls carry it in `:authority`.
    pub(crate) authority: CallAuthority,
}

impl XdsTarget {
    fn parse(target: &str) -> Result<Self, Malformed> {
        let rest = target.strip_prefix("xds:").ok_or(Malformed::Scheme)?;
        // A query or a fragment has no meaning in a target, and ignoring it would hide a mistake.
        if rest.contains(['?', '#']) {
            return Err(Malformed::Query);
        }
        let (xds_authority, path) = match rest.strip_prefix("//") {
            Some(rest) => match rest.split_once('/') {
                Some(("", path)) => (None, path),
                Some((authority, path)) => (Some(percent_decode(authority).into_owned()), path),
                None => return Err(Malformed::NoService),
            },
            None => (None, rest.strip_prefix('/').unwrap_or(rest)),
        };
        let service = percent_decode(path);
        if service.is_empty() || service.ends_with('/') {
            return Err(Malformed::NoService);
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
    #[error("expected a host and perhaps a port, as in dns:///payments:50051")]
    Dns,
    #[error(
        "expected IPv4 addresses, each perhaps with a port, as in ipv4:10.0.0.1:80,10.0.0.2:80"
    )]
    Ipv4,
    #[error(
        "expected IPv6 addresses, each perhaps with a port, as in ipv6:[fd00::1]:80,[fd00::2]:80"
    )]
    Ipv6,
    #[error(
        "expected no name server, as in dns:///payments: the resolver of the channel has its own"
    )]
    NameServer,
    #[error("expected another scheme than unix, because this system has no Unix sockets")]
    NoUnixSockets,
    #[error("expected a service, as in xds:///payments")]
    NoService,
    #[error("expected neither `?` nor `#`, unless percent-encoded")]
    Query,
    #[error("expected the scheme xds, dns, ipv4, ipv6 or unix, as in xds:///payments")]
    Scheme,
    #[error("expected the path of a socket, as in unix:///run/payments.sock")]
    Unix,
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
            let parsed = XdsTarget::parse(target).unwrap();
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
            let parsed = XdsTarget::parse(target).unwrap();
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
            let parsed = XdsTarget::parse(target).unwrap();
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
