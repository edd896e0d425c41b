//! What a channel leads to: `xds:///payments` or, as gRFC A27 allows, `xds:payments:50051`; with an
//! authority for the control plane (gRFC A47), `xds://traffic.example.com/payments`.

use std::str::FromStr;
use std::sync::Arc;

use http::uri::Authority;
use thiserror::Error;

/// The parsed target of a channel.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Target {
    /// Whose listener it is, if not the default's.
    pub(crate) xds_authority: Option<String>,
    /// The service, from which the bootstrap makes the name of the listener.
    pub(crate) service: Arc<str>,
    /// The same name as calls carry it in `:authority`.
    pub(crate) authority: Authority,
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
        let (xds_authority, service) = match rest.strip_prefix("//") {
            Some(rest) => match rest.split_once('/') {
                Some(("", service)) => (None, service),
                Some((authority, service)) => (Some(authority.to_owned()), service),
                None => return Err(malformed(Malformed::NoService)),
            },
            None => (None, rest),
        };
        if service.is_empty() {
            return Err(malformed(Malformed::NoService));
        }
        let authority =
            parse_authority(service).map_err(|reason| malformed(Malformed::Service(reason)))?;
        Ok(Self {
            xds_authority,
            service: service.into(),
            authority,
        })
    }
}

/// Checks what goes into `:authority`.
pub(crate) fn parse_authority(text: &str) -> Result<Authority, String> {
    Authority::from_str(text)
        .map_err(|error| format!("`{text}` is not of the form host or host:port: {error}"))
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
    #[error("expected the scheme xds, as in xds:///payments")]
    Scheme,
    #[error("{0}")]
    Service(String),
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn an_authority_is_for_the_control_plane_only() {
        let parsed: Target = "xds://traffic.example.com/payments".parse().unwrap();
        assert_eq!(parsed.xds_authority.as_deref(), Some("traffic.example.com"));
        assert_eq!(parsed.authority.as_str(), "payments");
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
            ("xds:///pay ments", "not of the form host or host:port"),
            ("xds:///a/b", "not of the form host or host:port"),
        ] {
            let error = target.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
            assert!(error.contains(target), "{error}");
        }
    }
}
