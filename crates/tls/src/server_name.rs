//! The name that a server has to prove, taken from an authority.
//!
//! An authority may have a port or brackets, which no certificate has.

use rustls_pki_types::ServerName;

use crate::TlsError;

/// The host of an authority (`host`, `host:port`, `[IPv6]:port`), as TLS wants it.
///
/// ```
/// use crowfly_tls::server_name;
///
/// assert_eq!(server_name("control.example:443").unwrap().to_str(), "control.example");
/// assert_eq!(server_name("[::1]:443").unwrap().to_str(), "::1");
/// assert!(server_name("not a name").is_err());
/// ```
pub fn server_name(authority: &str) -> Result<ServerName<'static>, TlsError> {
    let host = host(authority);
    match ServerName::try_from(host) {
        Ok(name) => Ok(name.to_owned()),
        Err(source) => Err(TlsError::ServerName {
            name: host.to_owned(),
            source,
        }),
    }
}

/// The host of an authority. An IPv6 address without brackets has colons, but no port (RFC 3986, section
/// 3.2.2).
///
/// ```
/// assert_eq!(crowfly_tls::host("payments.example:443"), "payments.example");
/// ```
pub fn host(authority: &str) -> &str {
    let (_, authority) = authority.rsplit_once('@').unwrap_or(("", authority));
    if let Some(bracketed) = authority.strip_prefix('[')
        && let Some((host, _)) = bracketed.split_once(']')
    {
        return host;
    }
    match authority.split_once(':') {
        Some((host, port)) if !port.contains(':') => host,
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_name_is_the_host() {
        for (authority, expected) in [
            ("control.example:443", "control.example"),
            ("127.0.0.1:443", "127.0.0.1"),
            ("[::1]:443", "::1"),
            ("[::1]", "::1"),
            ("::1", "::1"),
            ("localhost", "localhost"),
            ("user@payments:50051", "payments"),
        ] {
            assert_eq!(server_name(authority).unwrap().to_str(), expected);
        }
    }

    #[test]
    fn an_authority_without_a_name_is_an_error_that_shows_it() {
        let error = server_name("not a name").unwrap_err();
        assert!(error.to_string().contains("not a name"), "{error}");
    }
}
