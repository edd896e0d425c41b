//! The client's handshake.
//!
//! Errors of the handshake have a reason and a hint, because the most common mistake is TLS on one side alone.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use rustls_pki_types::ServerName;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::{ClientConfig, Error};

use crate::reason::{reason, rustls_error};

pub(crate) const ALPN_H2: &[u8] = b"h2";

/// Makes settings offer HTTP/2, and nothing else, by ALPN. If they do so already, the same object is
/// returned, without a copy.
///
/// ```
/// use std::sync::Arc;
///
/// use crowfly_tls::for_h2;
/// use tokio_rustls::rustls::ClientConfig;
///
/// fn prepared(config: Arc<ClientConfig>) -> Arc<ClientConfig> {
///     let config = for_h2(config);
///     assert!(Arc::ptr_eq(&config, &for_h2(Arc::clone(&config))));
///     config
/// }
/// ```
pub fn for_h2(mut config: Arc<ClientConfig>) -> Arc<ClientConfig> {
    if config.alpn_protocols != [ALPN_H2] {
        offer_h2(Arc::make_mut(&mut config));
    }
    config
}

pub(crate) fn offer_h2(config: &mut ClientConfig) {
    config.alpn_protocols = vec![ALPN_H2.to_vec()];
}

/// Makes a TLS connection over `socket`. The server must prove `name`, or a name that the verifier in the settings asks
/// for instead. The server must choose HTTP/2 by ALPN.
///
/// The crate's page has an example.
pub async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    socket: S,
) -> Result<TlsStream<S>, HandshakeError> {
    let connected = TlsConnector::from(config).connect(name, socket).await;
    let stream = connected.map_err(HandshakeError::Tls)?;
    // gRPC requires ALPN: a server that does not choose h2 would read the HTTP/2 preface as nonsense.
    match stream.get_ref().1.alpn_protocol() {
        Some(ALPN_H2) => Ok(stream),
        _ => Err(HandshakeError::Alpn),
    }
}

/// The reason why a handshake failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The server speaks TLS, but has not chosen HTTP/2.
    #[error("the server did not choose h2 by ALPN")]
    Alpn,
    /// TLS itself failed, or the connection did.
    #[error("{}{}", reason(.0), hint(.0))]
    Tls(io::Error),
}

/// A hint for the reader of the error, if the server's answer to a handshake is not TLS.
fn hint(error: &io::Error) -> &'static str {
    match (rustls_error(error), error.kind()) {
        (Some(Error::InvalidMessage(_)), _)
        | (None, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => {
            " (we speak TLS: does the server speak plaintext?)"
        }
        _ => "",
    }
}
