//! The TLS of all parts of Crowfly.
//!
//! The xDS client, the channel, the control plane and the sources etcd and Kubernetes use TLS for different
//! reasons, but by the same rules. The rules are here once, because a rule in two places can be forgotten in one of
//! them:
//!
//! - cryptography is ring's, and is never taken from the process's global state ([`provider`]);
//! - roots are the system's or given ones, and no roots at all are an error ([`Roots`]);
//! - certificates on disk may change while connections use them ([`FileSource`]);
//! - a server proves its host name, or one of the names that xDS expects ([`ServerCheck`]);
//! - a server that does not choose HTTP/2 by ALPN is refused ([`connect`]);
//! - a server that knows the CA of its clients refuses those without a certificate ([`ServerFiles`]).
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use crowfly_tls::{Material, Roots, ServerCheck, connect, server_name};
//! use tokio::net::TcpStream;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let material = Material::new(Roots::system()?);
//! let config = material.client_config(&ServerCheck::HostName)?;
//! let socket = TcpStream::connect("control.example:443").await?;
//! let stream = connect(Arc::new(config), server_name("control.example:443")?, socket).await?;
//! # let _ = stream;
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod error;
mod files;
mod handshake;
mod material;
mod pem;
mod provider;
mod reason;
mod roots;
mod san;
mod server;
mod server_name;

pub use error::TlsError;
pub use files::{CertificateFiles, FileSource, RootSource};
pub use handshake::{HandshakeError, connect, for_h2};
pub use material::{Identity, Material, ServerCheck};
pub use provider::{install_default_provider, provider};
pub use reason::{is_told_by_server, reason};
pub use roots::Roots;
pub use san::{SanMatcher, sans_of};
pub use server::{ServerFiles, ServerSource, accept, client_names};
pub use server_name::{host, server_name};
