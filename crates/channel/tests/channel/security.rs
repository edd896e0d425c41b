//! TLS that clusters ask for (gRFC A29), over real sockets.
//!
//! The server notes names and schemes, so that a test sees both sides of a handshake.

use std::env;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crowfly::bootstrap::TlsFiles;
use crowfly::{BackendTls, Channel, ChannelBuilder};
use crowfly_testkit::builders::{
    Resources, TlsBuilder, cluster, endpoint, endpoints, upstream_tls,
};
use crowfly_testkit::{Ca, CertificateFolder, Issued, ResourceServer};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tonic::Code;

use crate::backend::Backend;
use crate::environment::is_inner;
use crate::support::{call, call_when_ready, payments, spread_until};
use crate::tls_backend::{TlsBackend, server_config};

const PAYMENTS: &str = "spiffe://mesh/payments";
const WEB: &str = "spiffe://mesh/web";

/// S15-03: mutual TLS. The server has the name that the cluster expects, whatever its address, and sees the
/// client's. Calls say `https`, and the tree shows the security.
#[tokio::test]
async fn mutual_tls_with_the_right_identity() {
    let mesh = Mesh::new();
    let backend = TlsBackend::start("a", mesh.mutual_server()).await;
    let server = ResourceServer::start(&secured(backend.address, mutual().san(PAYMENTS)));
    let channel = mesh.channel(&server);
    assert_eq!(call(&channel).await.unwrap(), "a");

    let seen = backend.seen();
    assert_eq!(seen.clients, [vec![WEB.to_owned()]]);
    assert_eq!(seen.server_names, [None]);
    assert_eq!(seen.schemes, ["https"]);
    let tree = channel.tree().await;
    let shown = "cluster_impl payments-cluster limit 1024, tls: mtls, san exact \
                 \"spiffe://mesh/payments\" READY";
    assert!(tree.contains(shown), "{tree}");
}

/// gRFC A29: without matchers every certificate of the CA is accepted, and without a provider of an identity
/// the client presents none.
#[tokio::test]
async fn tls_without_matchers_accepts_any_name() {
    let mesh = Mesh::new();
    let own = mesh.ca.issue(&["anything.example"]);
    let backend = TlsBackend::start("a", server_config(&own, &[])).await;
    let server = ResourceServer::start(&secured(backend.address, upstream_tls("mesh")));
    assert_eq!(call(&mesh.channel(&server)).await.unwrap(), "a");
    assert_eq!(backend.seen().clients, [Vec::<String>::new()]);
}

/// S15-04: a connection that cannot be secured as asked fails. The error names the cluster, the address, and
/// what a person has to mend.
#[tokio::test]
async fn handshakes_that_fail_say_why() {
    let mesh = Mesh::new();
    let stranger = Ca::new();
    let own = |ca: &Ca| server_config(&ca.issue(&[PAYMENTS]), &[]);
    let cases = [
        (
            "wrong name",
            server_config(&mesh.ca.issue(&["spiffe://mesh/orders"]), &[]),
            upstream_tls("mesh").san(PAYMENTS),
            "TLS handshake: invalid peer certificate: no subject alternative name matches: expected \
             exact \"spiffe://mesh/payments\"; the certificate has spiffe://mesh/orders",
        ),
        (
            "wrong CA",
            own(&stranger),
            upstream_tls("mesh").san(PAYMENTS),
            "TLS handshake: invalid peer certificate: its CA is not trusted (unknown issuer)",
        ),
        (
            "expired",
            server_config(&mesh.ca.issue_expired(&[PAYMENTS]), &[]),
            upstream_tls("mesh").san(PAYMENTS),
            "TLS handshake: invalid peer certificate: it expired ",
        ),
        (
            "no client certificate",
            mesh.mutual_server(),
            upstream_tls("mesh").san(PAYMENTS),
            "the server requires a client certificate, and we have none for it",
        ),
        (
            "client certificate of a CA that the server does not trust",
            server_config(&mesh.ca.issue(&[PAYMENTS]), &[&stranger]),
            mutual().san(PAYMENTS),
            "HTTP/2 SETTINGS: the server ",
        ),
        (
            "provider without a CA",
            own(&mesh.ca),
            upstream_tls("identity"),
            "TLS certificates: certificate provider \"identity\" of the bootstrap has no \
             ca_certificate_file",
        ),
        (
            "name that cannot be asked for",
            own(&mesh.ca),
            upstream_tls("mesh").edit(|tls| tls.sni = "not a name".to_owned()),
            "TLS certificates: SNI: server name \"not a name\": ",
        ),
    ];
    for (kind, config, tls, reason) in cases {
        let backend = TlsBackend::start("a", config).await;
        let server = ResourceServer::start(&secured(backend.address, tls));
        let status = call(&mesh.channel(&server)).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{kind}: {status}");
        for part in [
            "cluster payments-cluster: ",
            &backend.address.to_string(),
            reason,
        ] {
            let message = status.message();
            assert!(message.contains(part), "{kind}: {part:?} in {message:?}");
        }
    }
}

/// S15-04: a file that is missing or broken is named.
#[tokio::test]
async fn missing_and_broken_files_are_named() {
    let mesh = Mesh::new();
    let backend = TlsBackend::start("a", mesh.mutual_server()).await;
    let server = ResourceServer::start(&secured(backend.address, mutual()));
    for name in ["ca.pem", "cert.pem", "key.pem"] {
        let path = mesh.folder.path(name);
        let content = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let status = call(&mesh.channel(&server)).await.unwrap_err();
        let expected = format!("TLS certificates: {}: ", path.display());
        assert!(status.message().contains(&expected), "{status}");

        std::fs::write(&path, "no certificate").unwrap();
        let status = call(&mesh.channel(&server)).await.unwrap_err();
        let broken = if name == "key.pem" { "cert.pem" } else { name };
        let expected = mesh.folder.path(broken).display().to_string();
        assert!(status.message().contains(&expected), "{status}");
        assert!(
            status.message().contains("cluster payments-cluster: "),
            "{status}"
        );
        std::fs::write(&path, content).unwrap();
    }
    assert_eq!(call(&mesh.channel(&server)).await.unwrap(), "a");
}

/// gRFC A29: an error of a cluster's security is never answered with plaintext, and a server that speaks
/// plaintext gets no call.
#[tokio::test]
async fn a_cluster_that_asks_for_tls_is_never_spoken_to_in_plaintext() {
    let mesh = Mesh::new();
    let backend = Backend::start("plain").await;
    let server = ResourceServer::start(&secured(backend.address, mutual()));
    let status = call(&mesh.channel(&server)).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(
        status
            .message()
            .contains("does the server speak plaintext?"),
        "{status}"
    );

    // The bootstrap has no provider, so the cluster is refused.
    let channel = Channel::builder("xds:///payments").bootstrap(server.bootstrap());
    let status = call(&channel.build().unwrap()).await.unwrap_err();
    let expected = "ca_certificate_provider_instance.instance_name: expected a certificate provider \
                    of the bootstrap that is supported (none), got \"mesh\"";
    assert!(status.message().contains(expected), "{status}");
}

/// S15-05: other security of a cluster applies to the next calls: connections that were made before take no
/// more of them.
#[tokio::test]
async fn changed_security_applies_to_the_next_calls() {
    let mesh = Mesh::new();
    let backend = TlsBackend::start("a", mesh.mutual_server()).await;
    let to = |tls: TlsBuilder| secured(backend.address, tls);
    let server = ResourceServer::start(&to(mutual().san("spiffe://mesh/orders")));
    let channel = mesh.channel(&server);
    call(&channel).await.unwrap_err();
    server.set(&to(mutual().san(PAYMENTS)));
    spread_until_ok(&channel).await;

    server.set(&to(mutual().san("spiffe://mesh/other")));
    let refused = async {
        loop {
            if let Err(status) = call(&channel).await {
                return status;
            }
            tokio::task::yield_now().await;
        }
    };
    let status = tokio::time::timeout(Duration::from_secs(60), refused)
        .await
        .unwrap();
    assert!(
        status
            .message()
            .contains("expected exact \"spiffe://mesh/other\""),
        "{status}"
    );
}

/// S15-05: from plaintext to TLS and back, on endpoints that stay, no call fails.
#[tokio::test]
async fn security_comes_and_goes_without_a_failed_call() {
    let mesh = Mesh::new();
    let plain = Backend::start("plain").await;
    let secure = TlsBackend::start("secure", mesh.mutual_server()).await;
    let server = ResourceServer::start(&payments(&[&plain]));
    let channel = mesh.channel(&server);
    assert_eq!(call(&channel).await.unwrap(), "plain");
    server.set(&secured(secure.address, mutual().san(PAYMENTS)));
    spread_until(&channel, 4, |answers| answers.get("secure") == Some(&4)).await;
    server.set(&payments(&[&plain]));
    spread_until(&channel, 4, |answers| answers.get("plain") == Some(&4)).await;
}

/// S15-06: a program that sets plaintext or TLS decides for all clusters. A cluster's TLS is validated, not
/// used, and shown as such.
#[tokio::test]
async fn a_program_that_decides_is_obeyed_and_the_tree_says_so() {
    let mesh = Mesh::new();
    let plain = Backend::start("plain").await;
    let server = ResourceServer::start(&secured(plain.address, mutual().san(PAYMENTS)));
    let channel = mesh.builder(&server).plaintext().build().unwrap();
    assert_eq!(call(&channel).await.unwrap(), "plain");
    let tree = channel.tree().await;
    let shown = "tls: ! not used, the program has set plaintext (the cluster asks for mtls, san \
                 exact \"spiffe://mesh/payments\")";
    assert!(tree.contains(shown), "{tree}");

    let own = mesh.ca.issue(&["payments"]);
    let secure = TlsBackend::start("secure", server_config(&own, &[])).await;
    let server = ResourceServer::start(&secured(secure.address, mutual().san(PAYMENTS)));
    let tls = BackendTls::new().ca_pem(&mesh.ca.pem).unwrap();
    let channel = mesh.builder(&server).backend_tls(tls).build().unwrap();
    assert_eq!(call(&channel).await.unwrap(), "secure");
    assert_eq!(secure.seen().clients, [Vec::<String>::new()]);
    assert!(channel.tree().await.contains("the program has set TLS"));

    // It is validated all the same (gRFC A29).
    let unknown = secured(plain.address, upstream_tls("unknown"));
    let server = ResourceServer::start(&unknown);
    let channel = mesh.builder(&server).plaintext().build().unwrap();
    call(&channel).await.unwrap_err();
}

/// gRFC A101: the name of the cluster is in SNI, and must be in the certificate if the cluster says so. The
/// matchers do not count then.
#[tokio::test]
async fn server_name_indication() {
    let mesh = Mesh::new();
    let own = mesh.ca.issue(&["payments.example"]);
    let backend = TlsBackend::start("a", server_config(&own, &[])).await;
    let asking = |name: &str| {
        let tls = upstream_tls("mesh").san("spiffe://mesh/other");
        tls.edit(|tls| {
            tls.sni = name.to_owned();
            tls.auto_sni_san_validation = true;
        })
    };
    let server = ResourceServer::start(&secured(backend.address, asking("payments.example")));
    assert_eq!(call(&mesh.channel(&server)).await.unwrap(), "a");
    let expected = Some("payments.example".to_owned());
    assert_eq!(backend.seen().server_names, [expected]);

    let server = ResourceServer::start(&secured(backend.address, asking("orders.example")));
    let status = call(&mesh.channel(&server)).await.unwrap_err();
    let expected = "expected DNS name orders.example; the certificate has payments.example";
    assert!(status.message().contains(expected), "{status}");

    // Without a name the matchers count.
    let server = ResourceServer::start(&secured(backend.address, asking("")));
    let status = call(&mesh.channel(&server)).await.unwrap_err();
    assert!(status.message().contains("spiffe://mesh/other"), "{status}");
}

/// gRFC A101: `auto_host_sni` asks for the host name of the endpoint, without its port. An endpoint without one
/// is asked for the name of the cluster.
#[tokio::test]
async fn the_host_name_of_an_endpoint_is_its_sni() {
    let mesh = Mesh::new();
    let own = mesh.ca.issue(&["a.example", "payments.example"]);
    let backend = TlsBackend::start("a", server_config(&own, &[])).await;
    let tls = upstream_tls("mesh").edit(|tls| {
        tls.sni = "payments.example".to_owned();
        tls.auto_host_sni = true;
        tls.auto_sni_san_validation = true;
    });
    let named = endpoint(&backend.address.to_string()).hostname("a.example:443");
    let resources = secured(backend.address, tls);
    let server = ResourceServer::start(&resources);
    assert_eq!(call(&mesh.channel(&server)).await.unwrap(), "a");
    let named = endpoints("payments-eds").locality("region/zone", 1, [named]);
    server.set(&resources.with(named));
    assert_eq!(call(&mesh.channel(&server)).await.unwrap(), "a");
    let asked = ["payments.example", "a.example"].map(|name| Some(name.to_owned()));
    assert_eq!(backend.seen().server_names, asked);
}

/// S15-08, gRFC A82: the system's roots are those that the system's own variable names, in a process of its
/// own. The provider's CA does not count then.
#[test]
fn the_roots_of_the_system_are_trusted() {
    let name = "security::the_roots_of_the_system_are_trusted";
    let system = Mesh::new();
    let own = system.ca.issue(&["payments.example"]);
    system.folder.present(&own);
    let roots = system.folder.path("ca.pem");
    if !is_inner(name, ("SSL_CERT_FILE", roots.to_str().unwrap())) {
        return;
    }
    Runtime::new().unwrap().block_on(async {
        let roots = PathBuf::from(env::var_os("SSL_CERT_FILE").unwrap());
        let folder = CertificateFolder::new(roots.parent().unwrap());
        let read = |name: &str| std::fs::read_to_string(folder.path(name)).unwrap();
        let own = Issued {
            certificate: read("cert.pem"),
            key: read("key.pem"),
        };
        let backend = TlsBackend::start("a", server_config(&own, &[])).await;
        let tls = upstream_tls("mesh").system_roots().san("payments.example");
        let server = ResourceServer::start(&secured(backend.address, tls.clone()));
        let mesh = Mesh::new();
        let channel = mesh.channel(&server);
        assert_eq!(call(&channel).await.unwrap(), "a");
        assert!(
            channel
                .tree()
                .await
                .contains("tls: tls, system roots, san exact")
        );

        let own = mesh.ca.issue(&["payments.example"]);
        let backend = TlsBackend::start("b", server_config(&own, &[])).await;
        let server = ResourceServer::start(&secured(backend.address, tls));
        let status = call(&mesh.channel(&server)).await.unwrap_err();
        assert!(
            status.message().contains("its CA is not trusted"),
            "{status}"
        );
    });
}

/// S15-07: certificates and CAs are rotated on both sides while calls are made and connections come and go:
/// no call fails. In the end nothing of the old CA is in use.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_rotated_under_load_fail_no_call() {
    let mesh = Mesh::new();
    let new = Ca::new();
    let serve = |ca: &Ca, clients: &[&Ca]| server_config(&ca.issue(&[PAYMENTS]), clients);
    let age = Duration::from_millis(250);
    let backend = TlsBackend::with_age("a", serve(&mesh.ca, &[&mesh.ca]), age).await;
    let server = ResourceServer::start(&secured(backend.address, mutual().san(PAYMENTS)));
    let channel = mesh.channel(&server);
    call(&channel).await.unwrap();

    // Both CAs are trusted before any certificate of the new one is in use.
    mesh.folder.trust(&[&mesh.ca, &new]);
    until_reconnected(&channel, &backend).await;
    backend.set(serve(&mesh.ca, &[&mesh.ca, &new]));
    mesh.folder.present(&new.issue(&["spiffe://mesh/web-2"]));
    until_reconnected(&channel, &backend).await;
    backend.set(serve(&new, &[&mesh.ca, &new]));
    until_reconnected(&channel, &backend).await;
    // Nothing of the old CA is left.
    mesh.folder.trust(&[&new]);
    backend.set(serve(&new, &[&new]));
    until_reconnected(&channel, &backend).await;
    let last = backend.seen().clients.pop().unwrap();
    assert_eq!(last, ["spiffe://mesh/web-2"]);
}

/// Calls until three more connections were made after this. The first may have been on its way before.
async fn until_reconnected(channel: &Channel, backend: &TlsBackend) {
    let before = backend.seen().clients.len();
    while backend.seen().clients.len() < before + 3 {
        call(channel).await.unwrap();
    }
}

async fn spread_until_ok(channel: &Channel) {
    assert_eq!(call_when_ready(channel).await.unwrap(), "a");
}

/// A CA, and a client with a certificate of it.
struct Mesh {
    ca: Ca,
    folder: CertificateFolder,
    _dir: TempDir,
}

impl Mesh {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let (ca, folder) = (Ca::new(), CertificateFolder::new(dir.path()));
        folder.trust(&[&ca]);
        folder.present(&ca.issue(&[WEB]));
        Self {
            ca,
            folder,
            _dir: dir,
        }
    }

    /// A server that requires a client certificate.
    fn mutual_server(&self) -> tokio_rustls::rustls::ServerConfig {
        let own: Issued = self.ca.issue(&[PAYMENTS, "payments.example"]);
        server_config(&own, &[&self.ca])
    }

    fn channel(&self, server: &ResourceServer) -> Channel {
        self.builder(server).build().unwrap()
    }

    /// A channel whose bootstrap has the providers `mesh`, and `identity` without a CA.
    fn builder(&self, server: &ResourceServer) -> ChannelBuilder {
        let path = |name: &str| self.folder.path(name);
        let identity = TlsFiles::default().identity(path("cert.pem"), path("key.pem"));
        let mesh = identity.clone().ca_certificate(path("ca.pem"));
        let mut bootstrap = server.bootstrap();
        for (name, files) in [("mesh", mesh), ("identity", identity)] {
            let provider = crowfly::bootstrap::CertificateProvider::FileWatcher(files);
            bootstrap
                .certificate_providers
                .insert(name.to_owned(), provider);
        }
        Channel::builder("xds:///payments").bootstrap(bootstrap)
    }
}

fn mutual() -> TlsBuilder {
    upstream_tls("mesh").identity("mesh")
}

/// The service `payments` with one backend, whose cluster asks for TLS.
fn secured(address: SocketAddr, tls: TlsBuilder) -> Resources {
    let resources = Resources::service("payments", [address]);
    resources.with(cluster("payments-cluster").eds("payments-eds").tls(tls))
}
