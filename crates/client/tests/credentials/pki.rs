//! CAs and certificates, made for each test, so that none expires and no key is in the repository.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

pub(crate) struct Ca {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Ca {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);

        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // Of two CAs with one name, clients could only say that a signature is wrong.
        let name = format!("CA {}", COUNT.fetch_add(1, Ordering::Relaxed));
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            pem,
            issuer: Issuer::new(params, key),
        }
    }

    /// A certificate for `name`, and its key.
    fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// A server with a certificate of this CA for 127.0.0.1, which accepts anybody.
    pub(crate) fn server(&self) -> ServerConfig {
        self.server_for(None, "127.0.0.1")
    }

    /// A server with a certificate of this CA for 127.0.0.1, whose clients must show a certificate
    /// of `clients`.
    pub(crate) fn server_with_clients_of(&self, clients: &Self) -> ServerConfig {
        self.server_for(Some(clients), "127.0.0.1")
    }

    /// A server that proves to be `name`.
    pub(crate) fn server_named(&self, name: &str) -> ServerConfig {
        self.server_for(None, name)
    }

    fn server_for(&self, clients: Option<&Self>, name: &str) -> ServerConfig {
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(ca) => {
                let mut roots = RootCertStore::empty();
                roots.add(certificate(&ca.pem)).unwrap();
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let (pem, key) = self.issue(name);
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let mut config = builder
            .with_single_cert(vec![certificate(&pem)], key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        config
    }

    /// A client that trusts this CA.
    pub(crate) fn client(&self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(certificate(&self.pem)).unwrap();
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Arc::new(config)
    }

    pub(crate) fn write(&self, path: &Path) {
        std::fs::write(path, &self.pem).unwrap();
    }
}

fn certificate(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

/// A folder with what a client reads.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn trust(&self, ca: &Ca) -> PathBuf {
        let path = self.path("ca.pem");
        ca.write(&path);
        path
    }

    /// A client certificate of `ca` and its key.
    pub(crate) fn identity(&self, ca: &Ca) -> (PathBuf, PathBuf) {
        let (certificate, key) = ca.issue("client");
        let paths = (self.path("cert.pem"), self.path("key.pem"));
        std::fs::write(&paths.0, certificate).unwrap();
        std::fs::write(&paths.1, key).unwrap();
        paths
    }
}
