//! The section `kubernetes`: an API server as a source of services. The file switches it on by the
//! section alone, because in a pod no setting is needed.

use std::path::PathBuf;

use clap::Args;
use crowfly_node::{
    kubernetes::{KubernetesOptions, KubernetesSource},
    model::Place,
};
use crowfly_source::kubernetes::{ApiServerOptions, WatchOptions};
use serde::Deserialize;

use super::{super::NodeError, value::Span};

/// The API server of Kubernetes.
#[derive(Args, Clone, Debug, Default, PartialEq, Deserialize)]
#[command(next_help_heading = "The source kubernetes")]
#[serde(default, deny_unknown_fields)]
pub struct KubernetesSettings {
    /// Asks the API server; in a pod nothing else is needed
    #[arg(
        id = "kubernetes", long = "kubernetes",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        env = "CROWFLY_NODE_KUBERNETES"
    )]
    pub enabled: Option<bool>,

    /// The address of the API server, as https://HOST:PORT. It is no ClusterIP, because the agent
    /// may have to route that itself [default: that of the kubeconfig or of the pod]
    #[arg(
        id = "kubernetes-server",
        long = "kubernetes-server",
        value_name = "URL",
        env = "CROWFLY_NODE_KUBERNETES_SERVER"
    )]
    pub server: Option<String>,

    /// A kubeconfig [default: the service account of the pod]
    #[arg(
        id = "kubernetes-kubeconfig",
        long = "kubernetes-kubeconfig",
        value_name = "FILE",
        env = "CROWFLY_NODE_KUBERNETES_KUBECONFIG"
    )]
    pub kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig [default: its current one]
    #[arg(
        id = "kubernetes-context",
        long = "kubernetes-context",
        value_name = "NAME",
        env = "CROWFLY_NODE_KUBERNETES_CONTEXT"
    )]
    pub context: Option<String>,

    /// A file with a bearer token, read again for each request
    #[arg(
        id = "kubernetes-token-file",
        long = "kubernetes-token-file",
        value_name = "FILE",
        env = "CROWFLY_NODE_KUBERNETES_TOKEN_FILE"
    )]
    pub token_file: Option<PathBuf>,

    /// A file with the certificates that sign the server's
    #[arg(
        id = "kubernetes-ca",
        long = "kubernetes-ca",
        value_name = "FILE",
        env = "CROWFLY_NODE_KUBERNETES_CA"
    )]
    pub ca: Option<PathBuf>,

    /// A file with the certificate to present
    #[arg(
        id = "kubernetes-cert",
        long = "kubernetes-cert",
        value_name = "FILE",
        env = "CROWFLY_NODE_KUBERNETES_CERT"
    )]
    pub cert: Option<PathBuf>,

    /// The file with its key
    #[arg(
        id = "kubernetes-key",
        long = "kubernetes-key",
        value_name = "FILE",
        env = "CROWFLY_NODE_KUBERNETES_KEY"
    )]
    pub key: Option<PathBuf>,

    /// Routes the services whose label service.kubernetes.io/service-proxy-name is this
    /// [default: those without the label]
    #[arg(
        id = "kubernetes-service-proxy-name",
        long = "kubernetes-service-proxy-name",
        value_name = "NAME",
        env = "CROWFLY_NODE_KUBERNETES_SERVICE_PROXY_NAME"
    )]
    pub service_proxy_name: Option<String>,

    /// Events within this time are applied together [default: those that are there already]
    #[arg(
        id = "kubernetes-batch",
        long = "kubernetes-batch",
        value_name = "DURATION",
        env = "CROWFLY_NODE_KUBERNETES_BATCH"
    )]
    pub batch: Option<Span>,

    /// Asks for listings as a part of the watch, as Kubernetes 1.32 and later can [default: false]
    #[arg(
        id = "kubernetes-streaming-lists", long = "kubernetes-streaming-lists",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        env = "CROWFLY_NODE_KUBERNETES_STREAMING_LISTS"
    )]
    pub streaming_lists: Option<bool>,
}

impl KubernetesSettings {
    /// Fills each setting that is absent here with that of `other`.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            enabled: self.enabled.or(other.enabled),
            server: self.server.or(other.server),
            kubeconfig: self.kubeconfig.or(other.kubeconfig),
            context: self.context.or(other.context),
            token_file: self.token_file.or(other.token_file),
            ca: self.ca.or(other.ca),
            cert: self.cert.or(other.cert),
            key: self.key.or(other.key),
            service_proxy_name: self.service_proxy_name.or(other.service_proxy_name),
            batch: self.batch.or(other.batch),
            streaming_lists: self.streaming_lists.or(other.streaming_lists),
        }
    }

    /// The section of a file: its presence is enough.
    pub(super) fn switched_on(mut self) -> Self {
        self.enabled = self.enabled.or(Some(true));
        self
    }

    /// The source, if one is wanted. Another source may need the ranges of this node's pods.
    pub(in super::super) fn source(
        self,
        place: &Place,
        needs_pods: bool,
    ) -> Result<Option<KubernetesSource>, NodeError> {
        if self == Self::default() || self.enabled == Some(false) {
            return Ok(None);
        }
        let defaults = WatchOptions::default();
        let options = KubernetesOptions {
            server: ApiServerOptions {
                address: self.server,
                kubeconfig: self.kubeconfig,
                context: self.context,
                token_file: self.token_file,
                ca_file: self.ca,
                client_certificate: self.cert,
                client_key: self.key,
            },
            service_proxy_name: self.service_proxy_name,
            // The Node is asked for only if it has something to say, because that needs a right.
            node_name: match place.zone.is_none() || needs_pods {
                true => place.node.as_deref().map(str::to_owned),
                false => None,
            },
            zone: place.zone.clone(),
            batch: self.batch.map(|batch| batch.0).unwrap_or_default(),
            watch: WatchOptions {
                streaming_lists: self.streaming_lists.unwrap_or(defaults.streaming_lists),
                ..defaults
            },
        };
        let source = KubernetesSource::new(options);
        let wrong = |message: String| NodeError::Setting("kubernetes", message);
        source.map(Some).map_err(|error| wrong(error.to_string()))
    }
}
