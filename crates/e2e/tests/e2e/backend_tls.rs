//! Mutual TLS that a cluster asks for (gRFC A29), against a server on gRPC C-core. Its TLS is BoringSSL, which
//! shares nothing with ours.

use std::path::Path;
use std::time::Duration;

use crowfly::Channel;
use crowfly::bootstrap::{CertificateProvider, TlsFiles};
use crowfly_e2e::echo::EchoClient;
use crowfly_e2e::echo_server::EchoServer;
use crowfly_e2e::peers;
use crowfly_testkit::builders::{Resources, TlsBuilder, cluster, upstream_tls};
use crowfly_testkit::{Ca, CertificateFolder, Issued, ResourceServer};
use tempfile::TempDir;
use tokio::time::Instant;
use tonic::{Code, Status};

const ECHO: &str = "spiffe://mesh/echo";
const WEB: &str = "spiffe://mesh/web";

/// S15-03: the server proves the name that the cluster expects, and the client has a certificate that the
/// server trusts.
#[tokio::test(flavor = "multi_thread")]
async fn c_core_accepts_the_right_identity() {
    let Some(python) = peers::python() else {
        return;
    };
    let ca = Ca::new();
    let (server, client) = (
        Side::new(&ca, &ca.issue(&[ECHO])),
        Side::new(&ca, &ca.issue(&[WEB])),
    );
    let echo = server.serve(python, &[]);
    let client = client.calls(&echo, mutual().san(ECHO));
    client.call().await.unwrap();
}

/// S15-04: a wrong certificate is refused with the reason, on either side.
#[tokio::test(flavor = "multi_thread")]
async fn c_core_and_we_refuse_what_is_wrong() {
    let Some(python) = peers::python() else {
        return;
    };
    let (ca, stranger) = (Ca::new(), Ca::new());
    let own = || ca.issue(&[ECHO]);
    let identity = || ca.issue(&[WEB]);
    let cases: [(&str, Issued, Issued, TlsBuilder, &[&str]); 6] = [
        (
            "wrong name",
            ca.issue(&["spiffe://mesh/orders"]),
            identity(),
            mutual().san(ECHO),
            &["expected exact \"spiffe://mesh/echo\"; the certificate has spiffe://mesh/orders"],
        ),
        (
            "wrong CA of the server",
            stranger.issue(&[ECHO]),
            identity(),
            mutual().san(ECHO),
            &["invalid peer certificate: its CA is not trusted"],
        ),
        (
            "expired server",
            ca.issue_expired(&[ECHO]),
            identity(),
            mutual().san(ECHO),
            &["invalid peer certificate: it expired ", " days ago"],
        ),
        (
            "missing client certificate",
            own(),
            identity(),
            upstream_tls("mesh").san(ECHO),
            &["does the server require a client certificate? we have none for it"],
        ),
        (
            "wrong CA of the client",
            own(),
            stranger.issue(&[WEB]),
            mutual().san(ECHO),
            &["does the server refuse our client certificate?"],
        ),
        (
            "expired client",
            own(),
            ca.issue_expired(&[WEB]),
            mutual().san(ECHO),
            &["does the server refuse our client certificate?"],
        ),
    ];
    for (kind, own, identity, tls, parts) in cases {
        let (server, client) = (Side::new(&ca, &own), Side::new(&ca, &identity));
        let echo = server.serve(python, &[]);
        let status = client.calls(&echo, tls).call().await.unwrap_err();
        println!("{kind}: {}", status.message());
        assert_eq!(status.code(), Code::Unavailable, "{kind}: {status}");
        let address = echo.address.to_string();
        let named = ["cluster echo-cluster: ", address.as_str()];
        for part in parts.iter().chain(&named) {
            assert!(
                status.message().contains(part),
                "{kind}: {part:?} in {status}"
            );
        }
    }
}

/// S15-07: both sides get other CAs and certificates while calls are made, and connections are replaced all
/// the time. No call fails.
#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_rotated_under_load_against_c_core() {
    let Some(python) = peers::python() else {
        return;
    };
    let (old, new) = (Ca::new(), Ca::new());
    let server = Side::new(&old, &old.issue(&[ECHO]));
    let client = Side::new(&old, &old.issue(&[WEB]));
    let age = [
        ("grpc.max_connection_age_ms", 300),
        ("grpc.max_connection_age_grace_ms", 5000),
    ];
    let echo = server.serve(python, &age);
    let calls = client.calls(&echo, mutual().san(ECHO));
    calls.call().await.unwrap();
    let mut made = 0;
    let trust = |all: &[&Ca]| {
        for side in [&server, &client] {
            side.folder.trust(all);
        }
    };
    let steps: [&dyn Fn(); 4] = [
        &|| trust(&[&old, &new]),
        &|| client.folder.present(&new.issue(&[WEB])),
        &|| server.folder.present(&new.issue(&[ECHO])),
        &|| trust(&[&new]),
    ];
    for step in steps {
        step();
        // Three times the age of a connection, which C-core makes longer or shorter by a tenth.
        let until = Instant::now() + Duration::from_millis(1000);
        while Instant::now() < until {
            calls.call().await.unwrap();
            made += 1;
        }
    }
    println!("{made} calls, none failed");
    // Nothing of the old CA would be accepted any more.
    let stale = Side::new(&old, &old.issue(&[WEB]));
    stale
        .calls(&echo, mutual().san(ECHO))
        .call()
        .await
        .unwrap_err();
}

/// A client or a server with its files.
struct Side {
    folder: CertificateFolder,
    dir: TempDir,
}

impl Side {
    fn new(ca: &Ca, own: &Issued) -> Self {
        let dir = TempDir::new().unwrap();
        let folder = CertificateFolder::new(dir.path());
        folder.trust(&[ca]);
        folder.present(own);
        Self { folder, dir }
    }

    fn serve(&self, python: &Path, options: &[(&str, u32)]) -> EchoServer {
        EchoServer::c_core_over_tls(python, "echo", self.dir.path(), options)
    }

    /// A client of a server, whose cluster asks for `tls`.
    fn calls(&self, server: &EchoServer, tls: TlsBuilder) -> Calls {
        let resources = Resources::service("echo", [server.address]);
        let secured = cluster("echo-cluster").eds("echo-eds").tls(tls);
        let control = ResourceServer::start(&resources.with(secured));
        let path = |name: &str| self.folder.path(name);
        let files = TlsFiles::default()
            .ca_certificate(path("ca.pem"))
            .identity(path("cert.pem"), path("key.pem"));
        let mut bootstrap = control.bootstrap();
        let provider = CertificateProvider::FileWatcher(files);
        bootstrap
            .certificate_providers
            .insert("mesh".to_owned(), provider);
        let channel = Channel::builder("xds:///echo").bootstrap(bootstrap);
        Calls {
            client: EchoClient::new(channel.build().unwrap()),
            _control: control,
        }
    }
}

struct Calls {
    client: EchoClient<Channel>,
    _control: ResourceServer,
}

impl Calls {
    async fn call(&self) -> Result<(), Status> {
        self.client.unary("Unary", "hello").await.map(|_| ())
    }
}

fn mutual() -> TlsBuilder {
    upstream_tls("mesh").identity("mesh")
}
