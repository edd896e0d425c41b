//! The fallbacks of a service: other services, and hosts known by a DNS name.
//!
//! Clients use them when no endpoint of the service itself can take a call. The list is checked
//! here and not by clients, because clients differ in how they treat a circle of services.

mod graph;
mod levels;

use std::fmt;
use std::net::Ipv6Addr;

use crowfly_model::grpc::cluster::DnsName;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};

use crate::service::text::{parsed, unlike};
pub(crate) use graph::{Reference, check};
pub(crate) use levels::{Levels, Shape};

/// One entry of a service's `fallback`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fallback {
    /// Another service: first its endpoints, then its own fallbacks.
    Service(String),
    /// The addresses of a host name.
    Dns(DnsName),
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(name) => f.write_str(name),
            Self::Dns(name) => write!(f, "{name}"),
        }
    }
}

/// The place where clients find the list of fallbacks of a service.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ListForm {
    /// The list is in the cluster (gRFC A37).
    #[default]
    Inline,
    /// The list is in a resource of its own, which changes without the cluster (gRFC A99).
    Resource,
}

impl<'de> Deserialize<'de> for Fallback {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FallbackVisitor)
    }
}

struct FallbackVisitor;

impl<'de> Visitor<'de> for FallbackVisitor {
    type Value = Fallback;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a service or {dns: \"host:port\"}")
    }

    fn visit_str<E>(self, name: &str) -> Result<Fallback, E> {
        Ok(Fallback::Service(name.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Fallback, A::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Dns {
            #[serde(deserialize_with = "dns_name")]
            dns: DnsName,
        }

        let Dns { dns } = Dns::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Fallback::Dns(dns))
    }
}

fn dns_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DnsName, D::Error> {
    parsed(deserializer, "\"host:port\"", |text| {
        parse_dns_name(text).map_or_else(unlike, Ok)
    })
}

/// Reads `host:port`; an IPv6 address is in brackets.
fn parse_dns_name(text: &str) -> Option<DnsName> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port > 0)?;
    let bracketed = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    let host = match bracketed {
        Some(ip) => ip.parse::<Ipv6Addr>().ok()?.to_string(),
        None => is_host(host).then(|| host.to_owned())?,
    };
    Some(DnsName { host, port })
}

/// True if the text is a valid host name (RFC 1035, 2.3.4). Underscores are allowed because they
/// are in use. IPv4 addresses pass too.
pub(crate) fn is_host(text: &str) -> bool {
    let is_label = |label: &str| {
        let mut bytes = label.bytes();
        (1..=63).contains(&label.len())
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    let text = text.strip_suffix('.').unwrap_or(text);
    text.len() <= 253 && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dns_name_has_a_host_and_a_port() {
        let cases = [
            ("payments.example.com:443", "payments.example.com", 443),
            (
                "db_1.svc.cluster.local.:65535",
                "db_1.svc.cluster.local.",
                65535,
            ),
            ("localhost:1", "localhost", 1),
            ("10.0.0.1:80", "10.0.0.1", 80),
            ("[2001:DB8::1]:80", "2001:db8::1", 80),
        ];
        for (text, host, port) in cases {
            let host = host.to_owned();
            assert_eq!(parse_dns_name(text), Some(DnsName { host, port }), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_host_and_a_port_is_refused() {
        let long_label = format!("{}.com:80", "a".repeat(64));
        let long_name = format!("{}com:80", "a.".repeat(126));
        let cases = [
            "",
            ":80",
            ".:80",
            "a..b:80",
            "payments.example.com",
            "payments.example.com:",
            "payments.example.com:0",
            "payments.example.com:65536",
            "payments.example.com:https",
            "https://payments.example.com:443",
            "payments example:80",
            "2001:db8::1:80",
            "[10.0.0.1]:80",
            "[::1:80",
            &long_label,
            &long_name,
        ];
        for text in cases {
            assert_eq!(parse_dns_name(text), None, "{text}");
        }
    }
}
