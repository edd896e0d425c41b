//! The settings of a connection, as the part of its identity that is not the address.
//!
//! Channels share connections, and may do so only where every setting is equal.

use std::hash::{Hash, Hasher};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use crowfly_tls::TlsError;

use super::dial::{Connector, Dialled, connect_tcp};
use super::http2::{Backend, Config};
use super::keepalive::Keepalive;
use super::tls::{BackendTls, TlsClient};

/// All settings of a connection besides its address. Channels share a connection if its address and its profile are
/// equal, because connections differ in nothing else.
///
/// A profile with TLS or a connector equals its clones only, because neither can be compared.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    tls: Option<Arc<TlsClient>>,
    keepalive: Option<Keepalive>,
    windows: Windows,
    max_header_list_size: Option<u32>,
    backend: Backend,
    connector: Option<Connector>,
}

/// Flow control that differs from the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Windows {
    /// The window of each stream. A window that is set here is fixed, and does not follow the path.
    pub stream: Option<u32>,
    /// The window of a connection.
    pub connection: Option<u32>,
    /// The bytes that may be under way or unread on all streams of a connection together.
    pub max_unread: Option<u32>,
}

impl Windows {
    /// Makes these the windows of a connection.
    pub(super) fn apply(self, config: &mut Config) {
        if let Some(size) = self.stream {
            (config.stream_window, config.is_adaptive) = (size, false);
        }
        if let Some(limit) = self.max_unread {
            config.max_unread = limit;
            config.connection_window = config.connection_window.min(limit);
        }
        if let Some(size) = self.connection {
            config.connection_window = size;
        }
    }
}

impl Profile {
    /// HTTP/2 with prior knowledge over plain TCP.
    pub fn plaintext() -> Self {
        Self::default()
    }

    /// TLS. `authority` is the target's name. The backend's certificate must be valid for its host, unless
    /// [`BackendTls::server_name`] is set.
    pub fn with_tls(tls: &BackendTls, authority: &str) -> Result<Self, TlsError> {
        Ok(Self {
            tls: Some(Arc::new(tls.client(authority)?)),
            ..Self::default()
        })
    }

    /// The profile with the TLS that a cluster asks for, in place of its own.
    pub(crate) fn secured(&self, tls: TlsClient) -> Self {
        Self {
            tls: Some(Arc::new(tls)),
            ..self.clone()
        }
    }

    /// Sends PINGs to silent servers.
    pub fn with_keepalive(mut self, keepalive: Keepalive) -> Self {
        self.keepalive = Some(keepalive);
        self
    }

    /// Uses other windows.
    pub fn with_windows(mut self, windows: Windows) -> Self {
        self.windows = windows;
        self
    }

    /// Takes response headers and trailers up to this size, as HTTP/2 counts it (RFC 9113, section
    /// 6.5.2).
    pub fn with_max_header_list_size(mut self, max_size: u32) -> Self {
        self.max_header_list_size = Some(max_size);
        self
    }

    /// Uses another implementation of HTTP/2.
    pub fn with_backend(mut self, backend: Backend) -> Self {
        self.backend = backend;
        self
    }

    /// Makes sockets with a connector of the program, and not by TCP.
    pub fn with_connector(mut self, connector: Connector) -> Self {
        self.connector = Some(connector);
        self
    }

    /// The profile with the time between PINGs doubled `times` times.
    pub(crate) fn slowed(&self, times: u32) -> Self {
        Self {
            keepalive: self.keepalive.map(|keepalive| keepalive.slowed(times)),
            ..self.clone()
        }
    }

    pub(super) async fn dial(&self, address: SocketAddr) -> io::Result<Dialled> {
        match &self.connector {
            Some(connector) => connector.connect(address).await,
            None => connect_tcp(address, self.keepalive.map(|keepalive| keepalive.timeout)).await,
        }
    }

    pub(super) fn keepalive(&self) -> Option<Keepalive> {
        self.keepalive
    }

    pub(super) fn http2(&self) -> Config {
        let mut config = Config::default();
        self.windows.apply(&mut config);
        if let Some(max_size) = self.max_header_list_size {
            config.max_header_list_size = max_size;
        }
        config
    }

    pub(super) fn backend(&self) -> Backend {
        self.backend
    }

    pub(super) fn tls(&self) -> Option<&TlsClient> {
        self.tls.as_deref()
    }

    fn key(&self) -> impl Eq + Hash + use<> {
        (
            self.tls.as_ref().map(Arc::as_ptr),
            self.keepalive,
            self.connector.as_ref().map(Connector::identity),
            self.max_header_list_size,
            self.backend,
            self.windows,
        )
    }
}

impl PartialEq for Profile {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Profile {}

impl Hash for Profile {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plaintext_profiles_are_equal() {
        assert_eq!(Profile::plaintext(), Profile::plaintext());
    }

    #[test]
    fn windows_that_were_set_are_fixed_and_make_another_profile() {
        let windows = Windows {
            stream: Some(70_000),
            max_unread: Some(1_000_000),
            connection: None,
        };
        let mut config = Config::default();
        assert!(config.is_adaptive);
        windows.apply(&mut config);
        assert!(!config.is_adaptive);
        assert_eq!(config.stream_window, 70_000);
        assert_eq!(
            (config.max_unread, config.connection_window),
            (1_000_000, 1_000_000)
        );
        let profile = Profile::plaintext();
        assert_ne!(profile.clone().with_windows(windows), profile);
    }
}
