//! An API server, and the credentials for it.
//!
//! Credentials come from options, from a kubeconfig or from the service account of a pod. A node
//! agent may run in a pod or on the machine itself, so all three are needed.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper_util::rt::TokioExecutor;
use kube::client::ConfigExt;
use kube::config::{AuthInfo, Cluster, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;
use thiserror::Error;
use tower::Layer;

use super::address;
use super::connect::{Certificates, Connector, Pem, check};
use super::transport::{BoxError, Signals, Transport};

/// The files of a service account, as the kubelet gives them to a pod.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The way to an API server.
///
/// All is optional: a pod has the files of its service account. What is said here wins over a
/// kubeconfig, and a kubeconfig wins over the files of a pod. There are no secrets in here, but
/// paths to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiServerOptions {
    /// The address, such as `https://10.0.0.1:6443`. A node agent should be given one, because the
    /// address that pods know is a ClusterIP, which the agent itself may have to route.
    pub address: Option<String>,
    /// A kubeconfig.
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig, if it is not its current one.
    pub context: Option<String>,
    /// A file with a bearer token. It is read for each request.
    pub token_file: Option<PathBuf>,
    /// A file with the certificates that sign the server's.
    pub ca_file: Option<PathBuf>,
    /// A file with a client certificate.
    pub client_certificate: Option<PathBuf>,
    /// The file with its key.
    pub client_key: Option<PathBuf>,
}

/// An API server that can be asked.
#[derive(Clone)]
pub struct ApiServer {
    base: Arc<str>,
    certificates: Arc<Certificates>,
    token: Option<Arc<TokenFile>>,
    /// Credentials of a kubeconfig that are not a file.
    user: Option<AuthInfo>,
}

/// The reason why an API server cannot be asked.
#[derive(Debug, Error)]
#[error("{what}: {reason}")]
pub struct ApiServerError {
    what: String,
    reason: String,
}

impl ApiServerError {
    fn new(what: impl fmt::Display, reason: impl fmt::Display) -> Self {
        let (what, reason) = (what.to_string(), reason.to_string());
        Self { what, reason }
    }
}

impl ApiServer {
    /// Reads the options, and the files that they name. Nothing is asked for yet.
    ///
    /// # Errors
    /// An option, a file or a field of a kubeconfig is wrong or missing.
    pub fn new(options: &ApiServerOptions) -> Result<Self, ApiServerError> {
        let mut server = match &options.kubeconfig {
            Some(path) => Self::of_kubeconfig(path, options)?,
            None => Self::of_pod(options)?,
        };
        if let Some(path) = &options.token_file {
            server.token = Some(Arc::new(TokenFile::new(path)?));
            server.user = None;
        }
        let certificates = Arc::make_mut(&mut server.certificates);
        if let Some(path) = &options.ca_file {
            certificates.roots = Some(Pem::File(path.clone()));
        }
        match (&options.client_certificate, &options.client_key) {
            (Some(certificate), Some(key)) => {
                let [certificate, key] = [certificate, key].map(|path| Pem::File(path.clone()));
                certificates.identity = Some((certificate, key));
            }
            (None, None) => {}
            _ => {
                let reason = "expected both a certificate and its key, got one of them";
                return Err(ApiServerError::new("client certificate", reason));
            }
        }
        if server.base.starts_with("https:") {
            check(certificates).map_err(|error| ApiServerError::new("TLS", error))?;
        }
        Ok(server)
    }

    /// The server that a pod knows. Files of its account are used if they are there.
    fn of_pod(options: &ApiServerOptions) -> Result<Self, ApiServerError> {
        let base = match &options.address {
            Some(address) => read_address(address)?,
            None => {
                let [host, port] = ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"]
                    .map(|name| env::var(name).map_err(|_| name));
                let (host, port) = host.and_then(|host| Ok((host, port?))).map_err(|missing| {
                    let reason = format!(
                        "expected an address or a kubeconfig, since this is no pod of a cluster \
                         ({missing} is not set)"
                    );
                    ApiServerError::new("Kubernetes API server", reason)
                })?;
                let address = address::of_pod(&host, &port);
                address.map_err(|reason| ApiServerError::new("KUBERNETES_SERVICE_HOST", reason))?
            }
        };
        let account = Path::new(ACCOUNT);
        let [token, ca] = ["token", "ca.crt"].map(|name| account.join(name));
        // A token goes to the server that it is for, and over TLS alone.
        let is_tls = base.starts_with("https:");
        let token = (is_tls && options.token_file.is_none() && token.exists())
            .then(|| TokenFile::new(&token));
        Ok(Self {
            base: base.into(),
            certificates: Arc::new(Certificates {
                roots: ca.exists().then_some(Pem::File(ca)),
                ..Certificates::default()
            }),
            token: token.transpose()?.map(Arc::new),
            user: None,
        })
    }

    fn of_kubeconfig(path: &Path, options: &ApiServerOptions) -> Result<Self, ApiServerError> {
        let wrong = |reason: String| ApiServerError::new(path.display(), reason);
        let config = Kubeconfig::read_from(path).map_err(|error| wrong(reasons(&error)))?;
        let (cluster, mut user) = choose(config, options.context.as_deref()).map_err(wrong)?;
        let address = options.address.as_ref().or(cluster.server.as_ref());
        let address = address.ok_or_else(|| wrong("the cluster has no `server`".to_owned()))?;
        for (field, is_set) in [
            (
                "insecure-skip-tls-verify",
                cluster.insecure_skip_tls_verify == Some(true),
            ),
            ("proxy-url", cluster.proxy_url.is_some()),
        ] {
            if is_set {
                return Err(wrong(format!("`{field}` is not supported")));
            }
        }
        let ca = (
            &cluster.certificate_authority,
            &cluster.certificate_authority_data,
        );
        let fields = serde_json::to_value(&user).map_err(|error| wrong(error.to_string()))?;
        let field = |name: &str| fields.get(name).and_then(Value::as_str).map(str::to_owned);
        let pem = |name, file: &Option<String>, data: &Option<String>| {
            pem(name, file.as_deref(), data.as_deref()).map_err(wrong)
        };
        let certificate = pem(
            "client-certificate-data",
            &user.client_certificate,
            &user.client_certificate_data,
        )?;
        let key = pem(
            "client-key-data",
            &user.client_key,
            &field("client-key-data"),
        )?;
        let token = user.token_file.take().filter(|_| user.token.is_none());
        let token = token
            .map(|path| TokenFile::new(path.as_ref()))
            .transpose()?;
        Ok(Self {
            base: read_address(address)?.into(),
            certificates: Arc::new(Certificates {
                roots: pem("certificate-authority-data", ca.0, ca.1)?,
                identity: certificate.zip(key),
                server_name: cluster.tls_server_name,
            }),
            token: token.map(Arc::new),
            user: Some(user),
        })
    }

    /// The address.
    pub fn address(&self) -> &str {
        &self.base
    }

    /// A client that tells `signals`. It must be made in a runtime.
    pub(super) fn client(&self, signals: Arc<Signals>) -> Result<Client, ApiServerError> {
        let connector = Connector(Arc::clone(&self.certificates));
        let executor = TokioExecutor::new();
        let transport = Transport {
            client: hyper_util::client::legacy::Client::builder(executor).build(connector),
            base: Arc::clone(&self.base),
            token: self.token.clone(),
            signals,
        };
        let Some(user) = &self.user else {
            return Ok(Client::new(transport, ""));
        };
        // What a kubeconfig can say besides files: a token, a password, a program that is asked.
        let mut config = Config::new(http::Uri::default());
        config.auth_info = user.clone();
        let layer = config.auth_layer();
        let layer = layer.map_err(|error| ApiServerError::new("kubeconfig", reasons(&error)))?;
        Ok(match layer {
            Some(layer) => Client::new(layer.layer(transport), ""),
            None => Client::new(transport, ""),
        })
    }
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("ApiServer");
        text.field("address", &self.base).finish_non_exhaustive()
    }
}

/// A file with a bearer token.
pub(super) struct TokenFile {
    path: PathBuf,
    /// The token that was read last. It is used while the file cannot be read.
    last: Mutex<Arc<str>>,
}

impl TokenFile {
    fn new(path: &Path) -> Result<Self, ApiServerError> {
        let token = read_token(path);
        let token = token.map_err(|reason| ApiServerError::new(path.display(), reason))?;
        Ok(Self {
            path: path.to_owned(),
            last: Mutex::new(token),
        })
    }

    /// The token, as the file has it now.
    pub(super) fn read(&self) -> Result<Arc<str>, BoxError> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(token) = read_token(&self.path) {
            *last = token;
        }
        Ok(Arc::clone(&last))
    }
}

fn read_token(path: &Path) -> Result<Arc<str>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    match text.trim() {
        "" => Err("expected a token, got an empty file".to_owned()),
        token => Ok(token.into()),
    }
}

fn read_address(text: &str) -> Result<String, ApiServerError> {
    address::read(text).map_err(|reason| ApiServerError::new("Kubernetes API server", reason))
}

/// The cluster and user of a context.
fn choose(config: Kubeconfig, context: Option<&str>) -> Result<(Cluster, AuthInfo), String> {
    let wanted = context.map(str::to_owned).or(config.current_context);
    let wanted = wanted.filter(|name| !name.is_empty());
    let wanted = wanted.ok_or("it has no current-context, and none was given")?;
    let names: Vec<&str> = config.contexts.iter().map(|it| it.name.as_str()).collect();
    let names = names.join(", ");
    let mut contexts = config.contexts.into_iter();
    let context = contexts.find(|context| context.name == wanted);
    let context = context.and_then(|context| context.context);
    let context = context.ok_or_else(|| format!("it has no context {wanted:?}, but: {names}"))?;
    let mut clusters = config.clusters.into_iter();
    let cluster = clusters.find(|cluster| cluster.name == context.cluster);
    let cluster = cluster.and_then(|cluster| cluster.cluster);
    let cluster = cluster.ok_or_else(|| format!("it has no cluster {:?}", context.cluster))?;
    let Some(user) = context.user else {
        return Ok((cluster, AuthInfo::default()));
    };
    let mut users = config.auth_infos.into_iter();
    let found = users.find(|named| named.name == user);
    let found = found.and_then(|named| named.auth_info);
    let found = found.ok_or_else(|| format!("it has no user {user:?}"))?;
    Ok((cluster, found))
}

/// PEM in base64, or else in a file.
fn pem(name: &'static str, file: Option<&str>, data: Option<&str>) -> Result<Option<Pem>, String> {
    let Some(data) = data.filter(|data| !data.is_empty()) else {
        let file = file.filter(|file| !file.is_empty());
        return Ok(file.map(|file| Pem::File(file.into())));
    };
    let pem = STANDARD.decode(data.trim());
    let pem = pem.map_err(|error| format!("{name}: expected base64: {error}"))?;
    Ok(Some(Pem::Inline(name, pem)))
}

/// An error with its causes.
pub(super) fn reasons(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let reason = error.to_string();
        if !text.contains(&reason) {
            text = format!("{text}: {reason}");
        }
        cause = error.source();
    }
    text
}
