//! Tests of whole handshakes with a rustls server: names, reloads and ALPN. The parts of TLS are
//! checked together, because a gap between them would accept a wrong server.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crowfly_tls::{
    CertificateFiles, FileSource, HandshakeError, Identity, Material, RootSource, Roots,
    SanMatcher, ServerCheck, connect, provider, server_name,
};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType, date_time_ymd,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, server};

type Ends = (TlsStream<DuplexStream>, server::TlsStream<DuplexStream>);

/// gRFC A29: the matchers take the place of the host name, so a server may prove a name of its own.
#[tokio::test]
async fn a_server_is_known_by_its_spiffe_id_whatever_its_host() {
    let ca = Ca::new();
    let server = ca.server(vec![uri("spiffe://mesh/payments")]);
    let check = sans([exact("spiffe://mesh/payments")]);
    handshake(&ca.material(), &check, server).await.unwrap();
}

/// gRFC A29: any matcher and any name will do.
#[tokio::test]
async fn one_of_several_names_has_to_match_one_of_several_matchers() {
    let ca = Ca::new();
    let names = vec![
        uri("spiffe://mesh/payments"),
        SanType::IpAddress("2001:db8::68".parse().unwrap()),
    ];
    let check = sans([exact("orders.example"), prefix("2001:db8:")]);
    let server = ca.server(names);
    handshake(&ca.material(), &check, server).await.unwrap();
}

/// gRFC A29: a certificate without a matching name fails the attempt, be its host name right or not.
#[tokio::test]
async fn a_server_of_another_name_is_refused_with_both_names() {
    let ca = Ca::new();
    let names = vec![uri("spiffe://mesh/orders"), dns("backend.example")];
    let check = sans([prefix("spiffe://mesh/payments")]);
    let server = ca.server(names);
    let error = handshake(&ca.material(), &check, server).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid peer certificate: no subject alternative name matches: expected prefix \
         \"spiffe://mesh/payments\"; the certificate has spiffe://mesh/orders, backend.example"
    );
}

/// gRFC A29: without any name there is nothing that could match.
#[tokio::test]
async fn a_server_without_names_is_refused() {
    let ca = Ca::new();
    let check = sans([prefix("")]);
    let server = ca.server(Vec::new());
    let error = handshake(&ca.material(), &check, server).await.unwrap_err();
    assert!(error.to_string().ends_with("has none"), "{error}");
}

/// A name proves nothing by itself: the chain is verified whatever the matchers are.
#[tokio::test]
async fn matchers_do_not_replace_the_chain() {
    let (ours, theirs) = (Ca::new(), Ca::new());
    let accepting = exact("spiffe://mesh/payments");
    for check in [sans([accepting]), sans([])] {
        let server = theirs.server(vec![uri("spiffe://mesh/payments")]);
        let error = handshake(&ours.material(), &check, server)
            .await
            .unwrap_err();
        assert!(
            error.to_string().contains("its CA is not trusted"),
            "{error}"
        );
    }
}

/// gRFC A29: an empty list has nothing to match, and the chain alone counts.
#[tokio::test]
async fn without_matchers_any_certificate_of_the_roots_will_do() {
    let ca = Ca::new();
    let server = ca.server(vec![dns("anything.example")]);
    handshake(&ca.material(), &sans([]), server).await.unwrap();
}

#[tokio::test]
async fn without_matchers_from_xds_the_host_name_counts() {
    let ca = Ca::new();
    let check = ServerCheck::HostName;
    let server = ca.server(vec![dns("backend.example")]);
    handshake(&ca.material(), &check, server).await.unwrap();
    let server = ca.server(vec![uri("spiffe://mesh/payments")]);
    let error = handshake(&ca.material(), &check, server).await.unwrap_err();
    assert!(error.to_string().contains("not valid for name"), "{error}");
}

/// gRFC A101: the DNS name that was asked for replaces the matchers, and other kinds of names do not count.
#[tokio::test]
async fn a_server_has_the_dns_name_that_was_asked_for() {
    let ca = Ca::new();
    let check = ServerCheck::DnsName("payments.example".into());
    for name in ["payments.example", "*.example"] {
        let server = ca.server(vec![dns(name)]);
        handshake(&ca.material(), &check, server).await.unwrap();
    }
    let server = ca.server(vec![dns("backend.example"), uri("payments.example")]);
    let error = handshake(&ca.material(), &check, server).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid peer certificate: no subject alternative name matches: expected DNS name \
         payments.example; the certificate has backend.example, payments.example"
    );
}

/// An expired certificate is refused with the time that has passed, with every check.
#[tokio::test]
async fn an_expired_server_is_refused() {
    let ca = Ca::new();
    for check in [sans([]), ServerCheck::HostName] {
        let server = ca.expired_server(vec![dns("backend.example")]);
        let error = handshake(&ca.material(), &check, server).await.unwrap_err();
        let error = error.to_string();
        assert!(
            error.starts_with("invalid peer certificate: it expired "),
            "{error}"
        );
        assert!(error.ends_with(" days ago"), "{error}");
    }
}

/// Rotation of everything: the connection made before goes on, the next one uses the new files.
#[tokio::test]
async fn new_files_are_for_new_connections_and_old_connections_stay() {
    let (old, new) = (Ca::new(), Ca::new());
    let folder = TempDir::new().unwrap();
    let write = |ca: &Ca| {
        let (certificate, key) = ca.issue(vec![dns("client")]);
        for (name, pem) in [("ca", &ca.pem), ("cert", &certificate), ("key", &key)] {
            std::fs::write(folder.path().join(name), pem).unwrap();
        }
    };
    let path = |name: &str| -> PathBuf { folder.path().join(name) };
    let files =
        CertificateFiles::new(RootSource::File(path("ca"))).identity(path("cert"), path("key"));
    let source = FileSource::start(files);

    write(&old);
    let before = source.current().await.unwrap();
    let mut first = handshake(&before, &ServerCheck::HostName, old.mutual_server())
        .await
        .unwrap();

    write(&new);
    let after = source.current().await.unwrap();
    let mut second = handshake(&after, &ServerCheck::HostName, new.mutual_server())
        .await
        .unwrap();
    exchange(&mut first).await;
    exchange(&mut second).await;
    // The old files are of no use with the new server, so the second handshake shows the change.
    handshake(&before, &ServerCheck::HostName, new.mutual_server())
        .await
        .unwrap_err();
}

/// A server that did not agree to HTTP/2 would read its preface as nonsense.
#[tokio::test]
async fn a_server_that_does_not_choose_h2_is_refused() {
    let ca = Ca::new();
    let mut server = ca.server(vec![dns("backend.example")]);
    server.alpn_protocols.clear();
    let error = handshake(&ca.material(), &ServerCheck::HostName, server)
        .await
        .unwrap_err();
    assert!(matches!(error, HandshakeError::Alpn), "{error}");
}

#[tokio::test]
async fn a_server_in_plaintext_gets_a_hint() {
    let ca = Ca::new();
    let (client, mut server) = duplex(1 << 16);
    server
        .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        .await
        .unwrap();
    let config = ca.material().client_config(&ServerCheck::HostName).unwrap();
    let name = server_name("backend.example").unwrap();
    let error = connect(Arc::new(config), name, client).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("does the server speak plaintext?"),
        "{error}"
    );
}

async fn handshake(
    material: &Material,
    check: &ServerCheck,
    server: ServerConfig,
) -> Result<Ends, HandshakeError> {
    let config = material.client_config(check).unwrap();
    let (client, socket) = duplex(1 << 16);
    let accepted = tokio::spawn(TlsAcceptor::from(Arc::new(server)).accept(socket));
    let name = server_name("backend.example").unwrap();
    let mut client = connect(Arc::new(config), name, client).await?;
    // In TLS 1.3 the client is done before the server has seen its certificate.
    let server = accepted.await.unwrap();
    if let Err(error) = &server {
        let told = client.read_u8().await.unwrap_err();
        return Err(HandshakeError::Tls(std::io::Error::other(format!(
            "{error}: {told}"
        ))));
    }
    Ok((client, server.unwrap()))
}

async fn exchange((client, server): &mut Ends) {
    client.write_u8(7).await.unwrap();
    client.flush().await.unwrap();
    assert_eq!(server.read_u8().await.unwrap(), 7);
}

fn sans<const N: usize>(patterns: [Pattern; N]) -> ServerCheck {
    let matchers = patterns.map(|pattern| Box::new(pattern) as Box<dyn SanMatcher>);
    ServerCheck::SubjectAltNames(Arc::new(matchers))
}

#[derive(Debug)]
struct Pattern {
    text: &'static str,
    is_whole: bool,
}

fn exact(text: &'static str) -> Pattern {
    let is_whole = true;
    Pattern { text, is_whole }
}

fn prefix(text: &'static str) -> Pattern {
    let is_whole = false;
    Pattern { text, is_whole }
}

impl SanMatcher for Pattern {
    fn exact(&self) -> Option<&str> {
        self.is_whole.then_some(self.text)
    }

    fn matches(&self, name: &str) -> bool {
        name.starts_with(self.text) && (!self.is_whole || name == self.text)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_whole { "exact" } else { "prefix" };
        write!(f, "{kind} {:?}", self.text)
    }
}

fn uri(text: &str) -> SanType {
    SanType::URI(text.try_into().unwrap())
}

fn dns(text: &str) -> SanType {
    SanType::DnsName(text.try_into().unwrap())
}

struct Ca {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Ca {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);

        let mut params = CertificateParams::default();
        // Of two CAs with one name, a client could only say that a signature is wrong.
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

    /// A certificate and its key, in PEM.
    fn issue(&self, names: Vec<SanType>) -> (String, String) {
        let mut params = CertificateParams::default();
        params.subject_alt_names = names;
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// A client that trusts this CA and has a certificate of it.
    fn material(&self) -> Material {
        let roots = Roots::default().add_pem("CA", self.pem.as_bytes()).unwrap();
        let (certificate, key) = self.issue(vec![dns("client")]);
        let identity = Identity::from_pem("client", certificate.as_bytes(), key.as_bytes());
        Material::new(roots).with_identity(identity.unwrap())
    }

    fn server(&self, names: Vec<SanType>) -> ServerConfig {
        let (chain, key) = self.certified(names);
        self.serve(chain, key)
    }

    fn serve(
        &self,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> ServerConfig {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth();
        let mut config = builder.with_single_cert(chain, key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        config
    }

    fn expired_server(&self, names: Vec<SanType>) -> ServerConfig {
        let mut params = CertificateParams::default();
        params.subject_alt_names = names;
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(2001, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
        self.serve(vec![certificate.der().clone()], key)
    }

    /// A server that wants to see a certificate of this CA.
    fn mutual_server(&self) -> ServerConfig {
        let mut roots = RootCertStore::empty();
        roots.add(certificate(&self.pem)).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap());
        let (chain, key) = self.certified(vec![dns("backend.example")]);
        let mut config = builder.with_single_cert(chain, key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        config
    }

    fn certified(
        &self,
        names: Vec<SanType>,
    ) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let (pem, key) = self.issue(names);
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        (vec![certificate(&pem)], key)
    }
}

fn certificate(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}
