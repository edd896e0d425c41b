//! Targets without a control plane: a DNS name, addresses, or a Unix socket.
//!
//! The syntax and the default port 443 are those of gRPC's naming document, because a target must mean the same in
//! every language.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use crowfly_model::grpc::cluster::DnsName;
use crowfly_model::names::percent_decode;

use super::Malformed;
use crate::authority::CallAuthority;

const DEFAULT_PORT: u16 = 443;

/// A target without a control plane.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlainTarget {
    /// The target, as errors name it.
    pub(crate) name: String,
    pub(crate) authority: CallAuthority,
    pub(crate) place: Place,
}

/// The place of a target's backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// At these addresses, at least one.
    Addresses(Vec<SocketAddr>),
    /// At the addresses of a host name.
    Dns(DnsName),
    /// At a Unix socket.
    Unix(PathBuf),
}

/// The schemes of such targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    Dns,
    Ipv4,
    Ipv6,
    Unix,
}

impl Scheme {
    /// Splits a target into its scheme and the rest; `None` if it has no scheme of these.
    pub(super) fn of(target: &str) -> Option<(Self, &str)> {
        let (scheme, rest) = target.split_once(':')?;
        let scheme = match scheme {
            "dns" => Self::Dns,
            "ipv4" => Self::Ipv4,
            "ipv6" => Self::Ipv6,
            "unix" => Self::Unix,
            _ => return None,
        };
        Some((scheme, rest))
    }

    /// Reads the rest of a target.
    pub(super) fn parse(self, target: &str, rest: &str) -> Result<PlainTarget, Malformed> {
        let (authority, place) = match self {
            Self::Dns => dns(rest)?,
            Self::Ipv4 => addresses(rest, is_v4).ok_or(Malformed::Ipv4)?,
            Self::Ipv6 => addresses(rest, |ip| !is_v4(ip)).ok_or(Malformed::Ipv6)?,
            Self::Unix => unix(rest)?,
        };
        Ok(PlainTarget {
            name: target.to_owned(),
            authority: CallAuthority::of_service(&authority),
            place,
        })
    }
}

/// `host:port` or `///host:port`; the host and the port are the authority, as they are written.
fn dns(rest: &str) -> Result<(String, Place), Malformed> {
    let path = match rest.strip_prefix("//") {
        Some(rest) => match rest.split_once('/') {
            Some(("", path)) => path,
            // The resolver of the channel knows which name servers to ask.
            Some(_) => return Err(Malformed::NameServer),
            None => return Err(Malformed::Dns),
        },
        None => rest.strip_prefix('/').unwrap_or(rest),
    };
    let path = percent_decode(path);
    let (host, port) = host_and_port(&path).ok_or(Malformed::Dns)?;
    let host = host.to_owned();
    Ok((path.into_owned(), Place::Dns(DnsName { host, port })))
}

/// Addresses with commas in between; the first is the authority, as it is written.
fn addresses(rest: &str, is_right: impl Fn(IpAddr) -> bool) -> Option<(String, Place)> {
    let rest = rest.strip_prefix("///").unwrap_or(rest);
    let mut found = Vec::new();
    for text in rest.split(',') {
        let (host, port) = host_and_port(text)?;
        let ip: IpAddr = host.parse().ok().filter(|ip| is_right(*ip))?;
        let address = SocketAddr::new(ip, port);
        if !found.contains(&address) {
            found.push(address);
        }
    }
    let first = rest.split(',').next()?;
    Some((first.to_owned(), Place::Addresses(found)))
}

fn is_v4(ip: IpAddr) -> bool {
    ip.is_ipv4()
}

/// `path` or `///path`, which must be absolute in the second form.
fn unix(rest: &str) -> Result<(String, Place), Malformed> {
    if cfg!(not(unix)) {
        return Err(Malformed::NoUnixSockets);
    }
    let path = match rest.strip_prefix("//") {
        Some(path) if path.starts_with('/') => path,
        Some(_) => return Err(Malformed::Unix),
        None => rest,
    };
    if path.is_empty() {
        return Err(Malformed::Unix);
    }
    let path = PathBuf::from(percent_decode(path).into_owned());
    Ok(("localhost".to_owned(), Place::Unix(path)))
}

/// Splits `host`, `host:port`, `[v6]` or `[v6]:port`. An IPv6 address without brackets has no port.
fn host_and_port(text: &str) -> Option<(&str, u16)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            host.parse::<Ipv6Addr>().ok()?;
            match rest {
                "" => (host, ""),
                rest => (
                    host,
                    rest.strip_prefix(':').filter(|port| !port.is_empty())?,
                ),
            }
        }
        None if text.parse::<Ipv6Addr>().is_ok() => (text, ""),
        None => match text.split_once(':') {
            Some((_, "")) => return None,
            Some(parts) => parts,
            None => (text, ""),
        },
    };
    let port = match port {
        "" => DEFAULT_PORT,
        port => port.parse().ok().filter(|port| *port != 0)?,
    };
    let is_host = !host.is_empty() && !host.contains(['/', '?', '#', ' ', ',']);
    is_host.then_some((host, port))
}

/// The address of a Unix socket for the balancer, which knows addresses of IP alone.
pub(crate) const UNIX_PLACEHOLDER: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;

    fn parse(target: &str) -> PlainTarget {
        match target.parse::<Target>().unwrap() {
            Target::Plain(plain) => plain,
            Target::Xds(other) => panic!("{target}: {other:?}"),
        }
    }

    #[test]
    fn a_dns_target_has_a_host_and_a_port() {
        for (target, host, port, authority) in [
            ("dns:///payments:50051", "payments", 50051, "payments:50051"),
            ("dns:payments:50051", "payments", 50051, "payments:50051"),
            ("dns:/payments", "payments", 443, "payments"),
            (
                "dns:payments.example.com",
                "payments.example.com",
                443,
                "payments.example.com",
            ),
            ("dns:///[::1]:80", "::1", 80, "[::1]:80"),
            ("dns:///[::1]", "::1", 443, "[::1]"),
            ("dns:///127.0.0.1:80", "127.0.0.1", 80, "127.0.0.1:80"),
        ] {
            let parsed = parse(target);
            let host = host.to_owned();
            assert_eq!(parsed.place, Place::Dns(DnsName { host, port }), "{target}");
            assert_eq!(parsed.authority.as_str(), authority, "{target}");
            assert_eq!(parsed.name, target);
        }
    }

    #[test]
    fn a_target_of_addresses_has_some() {
        for (target, addresses, authority) in [
            ("ipv4:10.0.0.1:80", &["10.0.0.1:80"][..], "10.0.0.1:80"),
            ("ipv4:10.0.0.1", &["10.0.0.1:443"], "10.0.0.1"),
            (
                "ipv4:10.0.0.1:80,10.0.0.2:81,10.0.0.1:80",
                &["10.0.0.1:80", "10.0.0.2:81"],
                "10.0.0.1:80",
            ),
            (
                "ipv6:[::1]:80,[::2]",
                &["[::1]:80", "[::2]:443"],
                "[::1]:80",
            ),
            ("ipv6:::1", &["[::1]:443"], "::1"),
        ] {
            let parsed = parse(target);
            let addresses = addresses.iter().map(|a| a.parse().unwrap()).collect();
            assert_eq!(parsed.place, Place::Addresses(addresses), "{target}");
            assert_eq!(parsed.authority.as_str(), authority, "{target}");
        }
    }

    #[test]
    fn a_unix_target_has_a_path() {
        for (target, path) in [
            ("unix:///run/a.sock", "/run/a.sock"),
            ("unix:/run/a.sock", "/run/a.sock"),
            ("unix:a.sock", "a.sock"),
            ("unix:a%20b.sock", "a b.sock"),
        ] {
            let parsed = parse(target);
            assert_eq!(parsed.place, Place::Unix(path.into()), "{target}");
            assert_eq!(parsed.authority.as_str(), "localhost");
        }
    }

    #[test]
    fn a_malformed_target_says_what_was_expected() {
        for (target, reason) in [
            ("dns:", "expected a host"),
            ("dns:///", "expected a host"),
            ("dns://payments", "expected a host"),
            ("dns:///payments:", "expected a host"),
            ("dns:///payments:0", "expected a host"),
            ("dns:///payments:http", "expected a host"),
            ("dns:///a/b", "expected a host"),
            ("dns:///[::1", "expected a host"),
            ("dns:///[::1]80", "expected a host"),
            ("dns://10.0.0.53/payments", "expected no name server"),
            ("ipv4:", "expected IPv4 addresses"),
            ("ipv4:payments:80", "expected IPv4 addresses"),
            ("ipv4:[::1]:80", "expected IPv4 addresses"),
            ("ipv4:10.0.0.1:80,", "expected IPv4 addresses"),
            ("ipv6:10.0.0.1:80", "expected IPv6 addresses"),
            ("unix:", "expected the path"),
            ("unix://a.sock", "expected the path"),
        ] {
            let error = target.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
            assert!(error.contains(target), "{error}");
        }
    }
}
