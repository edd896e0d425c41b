//! The bootstrap: which xDS servers to ask, and as whom.
//!
//! It comes from `GRPC_XDS_BOOTSTRAP` (a file), `GRPC_XDS_BOOTSTRAP_CONFIG` (the JSON itself) or
//! code. It is read when it is first needed, so a program without one has no problem until it opens
//! an `xds:` channel (S2-04); and every error says where the bootstrap came from.

mod builder;
mod error;
mod json;
mod node;
mod server;

use std::{ffi::OsString, fs, path::Path, sync::Arc};

pub use envoy_types::pb::envoy::config::core::v3::Node;

pub use self::{
    builder::BootstrapBuilder,
    error::{BootstrapError, Origin},
    server::{ChannelCredentials, ServerConfig},
};

/// Names the bootstrap file.
pub const FILE_VARIABLE: &str = "GRPC_XDS_BOOTSTRAP";

/// Holds the bootstrap itself.
pub const INLINE_VARIABLE: &str = "GRPC_XDS_BOOTSTRAP_CONFIG";

/// Which xDS servers to ask, and as whom.
///
/// ```
/// use crowfly_model::Bootstrap;
///
/// let bootstrap = Bootstrap::from_json(
///     r#"{
///         "xds_servers": [
///             {"server_uri": "dns:///control:18000", "channel_creds": [{"type": "insecure"}]}
///         ],
///         "node": {"id": "web-1", "locality": {"zone": "a"}}
///     }"#,
/// )?;
/// assert_eq!(bootstrap.servers[0].endpoint_uri(), "http://control:18000");
/// assert_eq!(bootstrap.node.id, "web-1");
/// # Ok::<(), crowfly_model::bootstrap::BootstrapError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Bootstrap {
    /// The servers, in order of preference; at least one.
    pub servers: Vec<ServerConfig>,
    /// How the client introduces itself, complete as it is sent.
    pub node: Node,
}

impl Bootstrap {
    /// Reads the bootstrap that the environment names.
    ///
    /// `GRPC_XDS_BOOTSTRAP` wins over `GRPC_XDS_BOOTSTRAP_CONFIG`, also if its file is broken
    /// (gRFC A27). An empty variable counts as unset.
    pub fn from_env() -> Result<Self, BootstrapError> {
        Self::from_lookup(|name| std::env::var_os(name))
    }

    /// Reads a bootstrap file.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, BootstrapError> {
        let path = path.as_ref();
        read(path, &Origin::File(path.to_owned()))
    }

    /// Reads a bootstrap from its JSON form.
    pub fn from_json(text: &str) -> Result<Self, BootstrapError> {
        json::parse(text, &Origin::Json)
    }

    /// Starts a bootstrap in code, with the server at `uri`, in plaintext.
    ///
    /// ```
    /// use crowfly_model::{Bootstrap, grpc::endpoints::LocalityId};
    ///
    /// let bootstrap = Bootstrap::builder("127.0.0.1:18000")?
    ///     .node_id("web-1")
    ///     .cluster("web")
    ///     .locality(LocalityId::new("eu", "a", ""))
    ///     .build();
    /// assert_eq!(bootstrap.node.cluster, "web");
    /// # Ok::<(), crowfly_model::bootstrap::BootstrapError>(())
    /// ```
    pub fn builder(uri: &str) -> Result<BootstrapBuilder, BootstrapError> {
        BootstrapBuilder::new(uri)
    }

    /// [`from_env`](Self::from_env) for any environment.
    fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self, BootstrapError> {
        let lookup = |name| lookup(name).filter(|value| !value.is_empty());
        if let Some(path) = lookup(FILE_VARIABLE) {
            let path = Path::new(&path);
            return read(path, &Origin::FileVariable(path.to_owned()));
        }
        let Some(text) = lookup(INLINE_VARIABLE) else {
            return Err(BootstrapError::Missing);
        };
        match text.to_str() {
            Some(text) => json::parse(text, &Origin::InlineVariable),
            None => Err(BootstrapError::NotUtf8 {
                origin: Origin::InlineVariable,
            }),
        }
    }
}

fn read(path: &Path, origin: &Origin) -> Result<Bootstrap, BootstrapError> {
    let text = fs::read_to_string(path).map_err(|source| BootstrapError::Read {
        origin: origin.clone(),
        source: Arc::new(source),
    })?;
    json::parse(&text, origin)
}

#[cfg(test)]
mod tests;
