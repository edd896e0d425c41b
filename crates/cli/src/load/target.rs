//! The target of a load: a name that xDS resolves, or one address.
//!
//! The second uses tonic's own channel, so that a user can tell a problem of a server from one of
//! the mesh.

use std::{fmt, net::SocketAddr, str::FromStr};

use http::Uri;

/// A parsed `--target`.
#[derive(Clone, Debug)]
pub enum LoadTarget {
    /// One server, without xDS: `http://ADDR`.
    Http(Uri),
    /// A name that the control plane resolves: `xds:///NAME`.
    Xds(String),
}

impl FromStr for LoadTarget {
    type Err = LoadTargetError;

    fn from_str(text: &str) -> Result<Self, LoadTargetError> {
        if text.starts_with("xds:") {
            return Ok(Self::Xds(text.to_owned()));
        }
        if !text.starts_with("http://") {
            return Err(LoadTargetError::Scheme);
        }
        let uri: Uri = text.parse().map_err(|_| LoadTargetError::Address)?;
        match uri.port() {
            Some(_) => Ok(Self::Http(uri)),
            None => Err(LoadTargetError::Address),
        }
    }
}

impl fmt::Display for LoadTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(uri) => uri.fmt(f),
            Self::Xds(name) => f.write_str(name),
        }
    }
}

/// The reasons why a `--target` is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadTargetError {
    /// `http://` is not followed by an address.
    #[error("expected http://HOST:PORT")]
    Address,
    /// The scheme is neither of the two.
    #[error("expected xds:///NAME or http://HOST:PORT")]
    Scheme,
}

/// The reasons why no load can be generated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The channel cannot be made: the target is malformed, or there is no usable bootstrap.
    #[error("cannot make a channel")]
    Channel(#[source] crowfly::BuildError),
    /// The port for `crowfly inspect` cannot be opened.
    #[error("cannot listen on {listen}")]
    Debug {
        /// The address asked for.
        listen: SocketAddr,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// `--debug` needs an xDS channel, and the target is an address.
    #[error("--debug shows an xDS channel: expected an xds:/// target")]
    NothingToShow,
    /// The process cannot listen to signals.
    #[error("cannot listen to signals")]
    Signals(#[source] std::io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_and_ports_are_checked() {
        assert!(matches!(
            "http://127.0.0.1:80".parse(),
            Ok(LoadTarget::Http(_))
        ));
        assert!(
            matches!("xds:///payments".parse(), Ok(LoadTarget::Xds(name)) if name == "xds:///payments")
        );
        for (text, expected) in [
            ("127.0.0.1:80", LoadTargetError::Scheme),
            ("https://127.0.0.1:80", LoadTargetError::Scheme),
            ("http://127.0.0.1", LoadTargetError::Address),
            ("http://", LoadTargetError::Address),
        ] {
            assert_eq!(text.parse::<LoadTarget>().unwrap_err(), expected, "{text}");
        }
    }
}
