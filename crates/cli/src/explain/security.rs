//! The report on the security of a cluster's connections (gRFC A29, A82, A101), because wrong TLS settings are a common
//! reason for failed calls.

use std::fmt::{self, Display, Formatter};

use crowfly_model::grpc::cluster::{TrustedRoots, UpstreamTls};
use serde::Serialize;

/// TLS of the connections to the endpoints of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SecurityReport {
    /// The certificate provider with the authorities that are trusted; `null` if they are those of the
    /// system.
    pub ca: Option<String>,
    /// The certificate provider with the certificate of the client; `null` if the client has none.
    pub identity: Option<String>,
    /// The conditions on the names of a server, of which one must hold. Without them, every certificate of
    /// the authorities is accepted.
    pub san: Vec<String>,
    /// The name that the client asks the server for.
    pub sni: Option<String>,
    /// True if the client asks for the host name of an endpoint, where there is one.
    pub sni_from_host: bool,
    /// True if the server must have the name that was asked for. Then `san` does not count.
    pub san_is_sni: bool,
}

impl From<&UpstreamTls> for SecurityReport {
    fn from(tls: &UpstreamTls) -> Self {
        Self {
            ca: match &tls.roots {
                TrustedRoots::Provider(name) => Some(name.clone()),
                TrustedRoots::System => None,
            },
            identity: tls.identity.clone(),
            san: tls.san_matchers.iter().map(ToString::to_string).collect(),
            sni: tls.sni.name.clone(),
            sni_from_host: tls.sni.from_host,
            san_is_sni: tls.sni.validates_san,
        }
    }
}

impl Display for SecurityReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.ca {
            Some(provider) => write!(f, "TLS: CA of provider {provider}")?,
            None => f.write_str("TLS: CA of the system")?,
        }
        match &self.identity {
            Some(provider) => write!(f, ", own certificate of provider {provider}")?,
            None => f.write_str(", no own certificate")?,
        }
        match (self.san_is_sni, self.san.as_slice()) {
            (true, _) => f.write_str(", SAN as SNI")?,
            (false, []) => f.write_str(", any SAN")?,
            (false, names) => write!(f, ", SAN {}", names.join(" or "))?,
        }
        match (&self.sni, self.sni_from_host) {
            (Some(name), true) => write!(f, ", SNI of the host or {name}"),
            (Some(name), false) => write!(f, ", SNI {name}"),
            (None, true) => f.write_str(", SNI of the host"),
            (None, false) => f.write_str(", no SNI"),
        }
    }
}
