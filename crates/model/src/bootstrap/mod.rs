//! The bootstrap: the xDS servers to ask, and the node by which the client identifies itself.
//!
//! The bootstrap comes from `GRPC_XDS_BOOTSTRAP` (a file), `GRPC_XDS_BOOTSTRAP_CONFIG` (the JSON itself) or code. The
//! environment is read when a bootstrap is first needed, because a program that opens no `xds:` channel needs none
//! (S2-04). Every error names the place that the bootstrap came from.

mod authority;
mod builder;
mod certificate_provider;
mod credentials;
mod duration;
mod error;
mod features;
mod json;
mod node;
mod server;
mod uri;

use std::{collections::BTreeMap, ffi::OsString, fs, path::Path, sync::Arc};

pub use envoy_types::pb::envoy::config::core::v3::Node;

use self::json::Guards;
pub use self::{
    authority::{AuthorityBuilder, AuthorityConfig, UnknownAuthority},
    builder::BootstrapBuilder,
    certificate_provider::CertificateProvider,
    credentials::{CallCredentials, ChannelCredentials, IdentityFiles, TlsFiles},
    error::{BootstrapError, Origin},
    features::ServerFeature,
    server::{ServerBuilder, ServerConfig},
    uri::ServerAddress,
};
use crate::names::{Authority, authority_of, expand_template};

/// The environment variable with the path of the bootstrap file.
pub const FILE_VARIABLE: &str = "GRPC_XDS_BOOTSTRAP";

/// The environment variable with the JSON of the bootstrap.
pub const INLINE_VARIABLE: &str = "GRPC_XDS_BOOTSTRAP_CONFIG";

/// The environment variable that must be true for `call_creds` to be read (gRFC A97). The variable does not concern
/// call credentials that a program sets in code.
pub const CALL_CREDENTIALS_VARIABLE: &str = "GRPC_EXPERIMENTAL_XDS_BOOTSTRAP_CALL_CREDS";

/// The xDS servers to ask, and the node by which the client identifies itself.
///
/// ```
/// # use crowfly_model::Bootstrap;
/// let bootstrap = Bootstrap::from_json(
///     r#"{
///         "xds_servers": [
///             {"server_uri": "dns:///control:18000", "channel_creds": [{"type": "insecure"}]}
///         ],
///         "node": {"id": "web-1", "locality": {"zone": "a"}}
///     }"#,
/// )?;
/// assert_eq!(bootstrap.servers[0].authority(), "control:18000");
/// assert_eq!(bootstrap.node.id, "web-1");
/// # Ok::<(), crowfly_model::bootstrap::BootstrapError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Bootstrap {
    /// The servers, in order of preference (gRFC A71); at least one.
    pub servers: Vec<ServerConfig>,
    /// The authorities of new-style names, by name (gRFC A47).
    pub authorities: BTreeMap<String, AuthorityConfig>,
    /// The template that makes a listener's name from a target without an authority.
    pub listener_template: String,
    /// The certificate providers that clusters may name, by name (gRFC A29).
    pub certificate_providers: BTreeMap<String, CertificateProvider>,
    /// The node that the client sends to servers, complete.
    pub node: Arc<Node>,
}

impl Bootstrap {
    /// Reads the bootstrap that the environment names.
    ///
    /// `GRPC_XDS_BOOTSTRAP` is used before `GRPC_XDS_BOOTSTRAP_CONFIG`, even if its file is broken (gRFC A27). An empty
    /// variable counts as unset.
    pub fn from_env() -> Result<Self, BootstrapError> {
        Self::from_lookup(process_env)
    }

    /// Reads a bootstrap file.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, BootstrapError> {
        let path = path.as_ref();
        read(path, &Origin::File(path.to_owned()), guards(process_env))
    }

    /// Reads a bootstrap from its JSON form.
    pub fn from_json(text: &str) -> Result<Self, BootstrapError> {
        json::parse(text, &Origin::Json, guards(process_env))
    }

    /// Starts a bootstrap in code, with this server: a URI, for one in plaintext, or a
    /// [`ServerConfig::builder`].
    ///
    /// ```
    /// # use crowfly_model::{Bootstrap, grpc::endpoints::LocalityId};
    /// let bootstrap = Bootstrap::builder("127.0.0.1:18000")?
    ///     .node_id("web-1")
    ///     .cluster("web")
    ///     .locality(&LocalityId::new("eu", "a", ""))
    ///     .build();
    /// assert_eq!(bootstrap.node.cluster, "web");
    /// # Ok::<(), crowfly_model::bootstrap::BootstrapError>(())
    /// ```
    pub fn builder(server: impl Into<ServerBuilder>) -> Result<BootstrapBuilder, BootstrapError> {
        BootstrapBuilder::new(server.into())
    }

    /// The name of the listener of `service`, of a target `xds://authority/service` or
    /// `xds:///service` (gRFC A47).
    pub fn listener_name(
        &self,
        authority: Option<&str>,
        service: &str,
    ) -> Result<String, UnknownAuthority> {
        if let Some(authority) = authority {
            let config = self.authorities.get(authority);
            let config = config.ok_or_else(|| self.unknown(authority))?;
            return Ok(expand_template(&config.listener_template, service));
        }
        let name = expand_template(&self.listener_template, service);
        match authority_of(&name) {
            Authority::Named(authority) if !self.authorities.contains_key(&*authority) => {
                Err(self.unknown(&authority))
            }
            _ => Ok(name),
        }
    }

    /// The servers to ask for the new-style names of an authority, in order of preference. `None` if the
    /// authority is not in the bootstrap. For old-style names, ask [`servers`](Self::servers).
    pub fn servers_of(&self, authority: &str) -> Option<&[ServerConfig]> {
        let own = &self.authorities.get(authority)?.servers;
        Some(if own.is_empty() { &self.servers } else { own })
    }

    /// True if the bootstrap lists no channel credentials for some server. The connection to such a server
    /// has the credentials of connections to backends.
    pub fn leaves_credentials_unsaid(&self) -> bool {
        let authorities = self.authorities.values();
        let servers = authorities.flat_map(|authority| &authority.servers);
        let mut servers = servers.chain(&self.servers);
        servers.any(|server| server.channel_credentials.is_empty())
    }

    fn unknown(&self, authority: &str) -> UnknownAuthority {
        UnknownAuthority {
            authority: authority.to_owned(),
            known: self.authorities.keys().cloned().collect(),
        }
    }

    /// [`from_env`](Self::from_env) for any environment.
    fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self, BootstrapError> {
        let lookup = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let guards = guards(lookup);
        if let Some(path) = lookup(FILE_VARIABLE) {
            let path = Path::new(&path);
            return read(path, &Origin::FileVariable(path.to_owned()), guards);
        }
        let Some(text) = lookup(INLINE_VARIABLE) else {
            return Err(BootstrapError::Missing);
        };
        match text.to_str() {
            Some(text) => json::parse(text, &Origin::InlineVariable, guards),
            None => Err(BootstrapError::NotUtf8 {
                origin: Origin::InlineVariable,
            }),
        }
    }
}

/// The template if the bootstrap has none: the listener has the name of the service (gRFC A47).
const DEFAULT_TEMPLATE: &str = "%s";

fn process_env(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

fn guards(lookup: impl Fn(&str) -> Option<OsString>) -> Guards {
    Guards {
        call_credentials: is_true(lookup(CALL_CREDENTIALS_VARIABLE)),
    }
}

/// True if the environment variable of an experimental feature switches it on.
pub fn is_switched_on(variable: &str) -> bool {
    is_true(process_env(variable))
}

/// True if the environment variable of a feature that is on by default switches it off.
pub fn is_switched_off(variable: &str) -> bool {
    is_false(process_env(variable))
}

/// True if gRPC reads this value of such a variable as true.
fn is_true(value: Option<OsString>) -> bool {
    is_one_of(&["1", "t", "true", "y", "yes"], value)
}

/// True if gRPC reads this value as false. A value that is neither true nor false has no effect.
fn is_false(value: Option<OsString>) -> bool {
    is_one_of(&["0", "f", "false", "n", "no"], value)
}

fn is_one_of(words: &[&str], value: Option<OsString>) -> bool {
    let value = value.unwrap_or_default().to_ascii_lowercase();
    words.iter().any(|word| value == **word)
}

fn read(path: &Path, origin: &Origin, guards: Guards) -> Result<Bootstrap, BootstrapError> {
    let text = fs::read_to_string(path).map_err(|source| BootstrapError::Read {
        origin: origin.clone(),
        source: Arc::new(source),
    })?;
    json::parse(&text, origin, guards)
}

#[cfg(test)]
mod tests;
