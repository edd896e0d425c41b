//! TLS to the endpoints of a service (gRFC A29).
//!
//! Keys and certificates are never in the configuration. It has names only, and each client has the
//! files of these names in its own bootstrap.

use std::fmt;
use std::net::IpAddr;

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};

use super::pattern::TextPattern;
use super::text::{NonEmpty, parsed, unlike};

/// TLS to the endpoints of a service.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(
    deny_unknown_fields,
    expecting = "TLS settings, such as {ca: mesh, san: [\"spiffe://prod/payments\"]}"
)]
pub(crate) struct Tls {
    /// The authority that signs the certificates of the endpoints.
    pub(crate) ca: Authority,
    /// The certificate provider with the certificate and the key of the client.
    #[serde(default)]
    pub(crate) identity: Option<NonEmpty>,
    /// The names of which the certificate of an endpoint must have one.
    pub(crate) san: Names,
    /// The host name that the client sends in the handshake.
    #[serde(default, deserialize_with = "host_name")]
    pub(crate) sni: Option<String>,
}

/// The roots of trust of a client.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Authority {
    /// A certificate provider of the client's bootstrap.
    Provider(String),
    /// The roots of the client's machine (gRFC A82).
    System,
}

/// The names that are accepted in a certificate.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Names {
    /// Every certificate of the authority is accepted.
    Any,
    OneOf(Vec<TextPattern>),
}

impl<'de> Deserialize<'de> for Authority {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "the name of a certificate provider, or system";
        parsed(deserializer, expected, |text| match text {
            "" => unlike(),
            "system" => Ok(Self::System),
            name => Ok(Self::Provider(name.to_owned())),
        })
    }
}

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NamesVisitor)
    }
}

struct NamesVisitor;

impl<'de> Visitor<'de> for NamesVisitor {
    type Value = Names;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of names, or any")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Names, E> {
        match text {
            "any" => Ok(Names::Any),
            other => Err(E::custom(format_args!(
                "expected a list of names, or any, got string {other:?}"
            ))),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Names, A::Error> {
        let mut names = Vec::new();
        while let Some(name) = seq.next_element()? {
            names.push(name);
        }
        if names.is_empty() {
            let message = "expected a list of names, got none; `any` accepts all names";
            return Err(A::Error::custom(message));
        }
        Ok(Names::OneOf(names))
    }
}

fn host_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    parsed(deserializer, "a host name", |text| {
        let is_host = crate::fallback::is_host(text) && text.parse::<IpAddr>().is_err();
        if is_host {
            Ok(Some(text.to_owned()))
        } else {
            unlike()
        }
    })
}
