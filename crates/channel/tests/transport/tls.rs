//! TLS to backends.
//!
//! The certificates are made for each test, so that no file is kept that could expire.

use std::net::SocketAddr;
use std::sync::Arc;

use crowfly::transport::{BackendTls, ConnectError, ConnectPhase, Connection, Profile};
use h2::server;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls_pki_types::PrivateKeyDer;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::BACKEND;
use crate::support::{TIMEOUT, collect, echo, listen, plaintext, run, unary};

#[tokio::test]
async fn calls_go_over_tls_to_the_host_of_the_authority() {
    let ca = Ca::new();
    let address = serve(ca.server_config(&[b"h2"])).await;
    let tls = BackendTls::new().ca_pem(ca.pem()).unwrap();
    assert_echoes(address, &profile(&tls, "payments:50051")).await;
}

#[tokio::test]
async fn the_server_name_can_differ_from_the_authority() {
    let ca = Ca::new();
    let address = serve(ca.server_config(&[b"h2"])).await;
    let tls = BackendTls::new().ca_pem(ca.pem()).unwrap();
    let error = connect_error(address, &profile(&tls, "orders")).await;
    assert_eq!(error.phase, ConnectPhase::Tls);

    let tls = tls.server_name("payments").unwrap();
    assert_echoes(address, &profile(&tls, "orders")).await;
}

#[tokio::test]
async fn a_server_of_another_ca_is_not_trusted() {
    let address = serve(Ca::new().server_config(&[b"h2"])).await;
    let tls = BackendTls::new().ca_pem(Ca::new().pem()).unwrap();
    let error = connect_error(address, &profile(&tls, "payments")).await;
    assert_eq!(error.phase, ConnectPhase::Tls);
    assert!(error.to_string().contains("TLS handshake"), "{error}");
}

#[tokio::test]
async fn a_server_without_alpn_is_not_spoken_to() {
    let ca = Ca::new();
    let address = serve(ca.server_config(&[])).await;
    let tls = BackendTls::new().ca_pem(ca.pem()).unwrap();
    let error = connect_error(address, &profile(&tls, "payments")).await;
    assert_eq!(error.phase, ConnectPhase::Tls);
    assert!(error.reason.contains("did not choose h2"), "{error}");
}

#[tokio::test]
async fn a_client_certificate_is_presented_when_the_server_asks() {
    let ca = Ca::new();
    let mut roots = RootCertStore::empty();
    roots.add(ca.certificate.der().clone()).unwrap();
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider)
        .build()
        .unwrap();
    let (chain, key) = ca.issue("payments");
    let mut config = server_builder()
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![chain.der().clone()], private_key(&key))
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let address = serve(config).await;

    let tls = BackendTls::new().ca_pem(ca.pem()).unwrap();
    let (client, key) = ca.issue("web-1");
    let tls = tls.identity_pem(client.pem(), key.serialize_pem()).unwrap();
    assert_echoes(address, &profile(&tls, "payments")).await;
}

#[tokio::test]
async fn a_given_config_is_used_with_alpn_h2() {
    let ca = Ca::new();
    let address = serve(ca.server_config(&[b"h2"])).await;
    let mut roots = RootCertStore::empty();
    roots.add(ca.certificate.der().clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let tls = BackendTls::from_config(Arc::new(config));
    assert_echoes(address, &profile(&tls, "payments")).await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_times_out_in_the_tls_handshake() {
    let (_listener, address) = listen().await;
    let tls = BackendTls::new().ca_pem(Ca::new().pem()).unwrap();
    let error = connect_error(address, &profile(&tls, "payments")).await;
    assert_eq!(error.phase, ConnectPhase::Tls);
    assert!(error.reason.contains("timed out"), "{error}");
}

#[test]
fn a_tls_profile_equals_its_clones_only() {
    let tls = BackendTls::new().ca_pem(Ca::new().pem()).unwrap();
    let first = profile(&tls, "payments");
    assert_eq!(first, first.clone());
    assert_ne!(first, profile(&tls, "payments"));
    assert_ne!(first, plaintext());
}

fn profile(tls: &BackendTls, authority: &str) -> Profile {
    let profile = Profile::with_tls(tls, authority).unwrap();
    profile.with_backend(BACKEND)
}

async fn assert_echoes(address: SocketAddr, profile: &Profile) {
    let connection = Connection::connect(address, profile, TIMEOUT)
        .await
        .unwrap();
    let response = connection.sender().send(unary("hello")).await.unwrap();
    assert_eq!(collect(response).await.to_bytes(), "hello");
}

async fn connect_error(address: SocketAddr, profile: &Profile) -> ConnectError {
    Connection::connect(address, profile, TIMEOUT)
        .await
        .unwrap_err()
}

/// An echo server over TLS; failed handshakes are the client's to report.
async fn serve(config: ServerConfig) -> SocketAddr {
    let (listener, address) = listen().await;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            let Ok(stream) = acceptor.accept(tcp).await else {
                continue;
            };
            tokio::spawn(async move {
                if let Ok(connection) = server::handshake(stream).await {
                    run(connection, echo).await;
                }
            });
        }
    });
    address
}

struct Ca {
    certificate: rcgen::Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl Ca {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        Self {
            certificate,
            issuer: Issuer::new(params, key),
        }
    }

    fn pem(&self) -> String {
        self.certificate.pem()
    }

    fn issue(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    /// The config of a server named `payments`.
    fn server_config(&self, alpn: &[&[u8]]) -> ServerConfig {
        let (chain, key) = self.issue("payments");
        let mut config = server_builder()
            .with_no_client_auth()
            .with_single_cert(vec![chain.der().clone()], private_key(&key))
            .unwrap();
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        config
    }
}

fn server_builder()
-> tokio_rustls::rustls::ConfigBuilder<ServerConfig, tokio_rustls::rustls::WantsVerifier> {
    ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
}

fn private_key(key: &KeyPair) -> PrivateKeyDer<'static> {
    PrivateKeyDer::try_from(key.serialize_der()).unwrap()
}
