//! The credentials of a client for a control plane: none, or certificates in files.
//!
//! gRPC clients and Envoys name the same files in different words, so each form is made from one
//! value.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// The credentials of a client for the port of ADS.
#[derive(Clone, Debug, Default)]
pub struct Credentials(Option<Files>);

#[derive(Clone, Debug)]
struct Files {
    folder: PathBuf,
    has_identity: bool,
}

impl Credentials {
    /// No TLS.
    pub fn insecure() -> Self {
        Self::default()
    }

    /// TLS with a server of the CA in `folder/ca.pem`.
    pub fn tls(folder: &Path) -> Self {
        Self::of(folder, false)
    }

    /// TLS with a server of the CA in `folder/ca.pem`, to which the client presents the certificate `cert.pem` with its key
    /// `key.pem` in the same folder.
    pub fn mutual_tls(folder: &Path) -> Self {
        Self::of(folder, true)
    }

    fn of(folder: &Path, has_identity: bool) -> Self {
        Self(Some(Files {
            folder: folder.to_owned(),
            has_identity,
        }))
    }

    /// As `channel_creds` of a gRPC bootstrap.
    pub fn to_channel_creds(&self) -> Value {
        let Some(files) = &self.0 else {
            return json!([{ "type": "insecure" }]);
        };
        let path = |name: &str| files.folder.join(name);
        let mut config = json!({ "ca_certificate_file": path("ca.pem"), "refresh_interval": "1s" });
        if files.has_identity {
            config["certificate_file"] = json!(path("cert.pem"));
            config["private_key_file"] = json!(path("key.pem"));
        }
        json!([{ "type": "tls", "config": config }])
    }

    /// As the `transport_socket` of the control plane in an Envoy's bootstrap, and the `secrets` that it
    /// names. A secret in a file is read again when the files that it names are replaced.
    pub(crate) fn to_envoy(&self) -> Option<EnvoyTls> {
        let files = self.0.as_ref()?;
        let path = |name: &str| files.folder.join(name);
        let file = |name: &str| json!({ "filename": path(name) });
        let of = |name: &str| json!({ "name": name, "sds_config": { "path_config_source": { "path": path(&format!("{name}.sds.json")) } } });
        let secret = |name: &str, mut content: Value| {
            content["@type"] =
                json!("type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret");
            content["name"] = json!(name);
            (
                path(&format!("{name}.sds.json")),
                json!({ "resources": [content] }),
            )
        };
        let mut common = json!({ "alpn_protocols": ["h2"], "validation_context_sds_secret_config": of("trusted") });
        let mut secrets = vec![secret(
            "trusted",
            json!({ "validation_context": { "trusted_ca": file("ca.pem") } }),
        )];
        if files.has_identity {
            common["tls_certificate_sds_secret_configs"] = json!([of("own")]);
            let own =
                json!({ "certificate_chain": file("cert.pem"), "private_key": file("key.pem") });
            secrets.push(secret("own", json!({ "tls_certificate": own })));
        }
        Some(EnvoyTls {
            socket: json!({
                "name": "tls",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
                    "common_tls_context": common,
                },
            }),
            secrets,
        })
    }
}

/// TLS in an Envoy.
pub(crate) struct EnvoyTls {
    pub(crate) socket: Value,
    /// The files with its secrets.
    pub(crate) secrets: Vec<(PathBuf, Value)>,
}
