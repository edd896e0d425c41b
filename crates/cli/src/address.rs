//! The address of a server to read from. The address has a type of its own, so that a wrong one is
//! refused with the flags.

use std::{
    fmt::{self, Display, Formatter},
    str::FromStr,
};

use http::uri::Authority;

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address(Authority);

impl FromStr for Address {
    type Err = &'static str;

    /// Parses `HOST:PORT`, and also `http://HOST:PORT/`, because people paste that.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "expected HOST:PORT";
        let text = text.strip_prefix("http://").unwrap_or(text);
        let text = text.strip_suffix('/').unwrap_or(text);
        let authority: Authority = text.parse().map_err(|_| EXPECTED)?;
        match authority.port_u16() {
            Some(_) if !authority.as_str().contains('@') => Ok(Self(authority)),
            _ => Err(EXPECTED),
        }
    }
}

impl Display for Address {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_host_and_a_port() {
        for text in ["127.0.0.1:9901", "http://127.0.0.1:9901/"] {
            assert_eq!(
                text.parse::<Address>().unwrap().to_string(),
                "127.0.0.1:9901"
            );
        }
        for text in ["[::1]:1", "payments.example:80"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in ["", "localhost", "9901", "a b:1", "h:99999", "me@h:1"] {
            assert_eq!(text.parse::<Address>(), Err("expected HOST:PORT"), "{text}");
        }
    }
}
