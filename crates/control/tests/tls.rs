//! TLS on the port of ADS, with our own xDS client on the other side.

#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use crowfly_client::{Watch, WatchEvent, XdsClient};
use crowfly_control::tls::ServerFiles;
use crowfly_control::{ControlPlane, Limits, Ports};
use crowfly_model::bootstrap::{Bootstrap, ServerConfig, TlsFiles};
use crowfly_model::grpc::Endpoints;
use crowfly_testkit::{Ca, CertificateFolder};
use support::log::LogLines;
use support::{any_port, get_json, metric, service, snapshot, soon, until};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

const CLIENT: &str = "spiffe://mesh/web";

/// A folder of certificates that are made for the test.
struct Folder {
    _dir: TempDir,
    files: CertificateFolder,
}

impl Folder {
    /// The files of somebody with these names, who trusts `trusted`.
    fn new(issuer: &Ca, names: &[&str], trusted: &Ca) -> Self {
        let dir = TempDir::new().unwrap();
        let files = CertificateFolder::new(dir.path());
        files.trust(&[trusted]);
        files.present(&issuer.issue(names));
        Self { _dir: dir, files }
    }

    fn of_server(ca: &Ca) -> Self {
        Self::new(ca, &["127.0.0.1"], ca)
    }

    fn of_client(ca: &Ca) -> Self {
        Self::new(ca, &[CLIENT], ca)
    }

    fn server(&self) -> ServerFiles {
        let path = |name| self.files.path(name);
        ServerFiles::new(path("cert.pem"), path("key.pem"))
            .client_ca(path("ca.pem"))
            // They are read again when a test asks for it, and not before.
            .refresh_interval(Duration::from_secs(3600))
    }

    fn trusting(&self) -> TlsFiles {
        TlsFiles::default().ca_certificate(self.files.path("ca.pem"))
    }

    fn client(&self) -> TlsFiles {
        let path = |name| self.files.path(name);
        self.trusting().identity(path("cert.pem"), path("key.pem"))
    }
}

async fn plane(server: &Folder) -> ControlPlane {
    let ports = Ports::new(any_port())
        .admin(any_port())
        .tls(server.server());
    ControlPlane::with_ports(snapshot(&service("payments", 1)), ports)
        .await
        .unwrap()
}

fn connect(address: SocketAddr, files: TlsFiles) -> XdsClient {
    let server = ServerConfig::builder(address.to_string()).tls(files);
    let bootstrap = Bootstrap::builder(server).unwrap().node_id("web-1").build();
    XdsClient::new(&bootstrap).unwrap()
}

/// Waits until the only endpoint has this port.
async fn port(watch: &mut Watch<Endpoints>, expected: u16) {
    let found = async {
        loop {
            if let Some(WatchEvent::ResourceChanged(Ok(endpoints))) = watch.next().await
                && format!("{endpoints:?}").contains(&format!("10.0.0.1:{expected}"))
            {
                return;
            }
        }
    };
    soon(found).await;
}

/// Waits until a watch is told of an error with these words.
async fn error_with(watch: &mut Watch<Endpoints>, words: &str) {
    let found = async {
        loop {
            let text = match watch.next().await.unwrap() {
                WatchEvent::ResourceChanged(Err(error)) => error.to_string(),
                WatchEvent::AmbientError(error) => format!("{error:?}"),
                WatchEvent::ResourceChanged(Ok(_)) => panic!("it was served"),
            };
            if text.contains(words) {
                return;
            }
            eprintln!("not yet {words:?}: {text}");
        }
    };
    soon(found).await;
}

async fn handshakes_refused(plane: &ControlPlane) -> f64 {
    let name = "crowfly_control_refused_connections_total{reason=\"handshake\"}";
    metric(plane.admin_addr().unwrap(), name).await
}

/// L-02: a client with a certificate of the CA is served, and known by its names.
#[tokio::test]
async fn a_client_with_a_certificate_is_served_and_known() {
    let ca = Ca::new();
    let (server, web) = (Folder::of_server(&ca), Folder::of_client(&ca));
    let plane = plane(&server).await;
    let client = connect(plane.listen_addr(), web.client());
    let mut watch = client.watch::<Endpoints>("payments").unwrap();
    port(&mut watch, 1).await;
    plane.set_snapshot(snapshot(&service("payments", 2)));
    port(&mut watch, 2).await;

    let shown = get_json(plane.admin_addr().unwrap(), "/clients").await;
    let shown = &shown["clients"][0];
    assert_eq!(shown["identity"], serde_json::json!([CLIENT]), "{shown}");
    assert_eq!(shown["node"]["id"], "web-1", "{shown}");
    soon(plane.shutdown()).await;
}

/// L-02: a client without a good certificate is refused and counted, and others are served.
#[tokio::test]
async fn clients_without_a_good_certificate_are_refused() {
    let (ca, stranger) = (Ca::new(), Ca::new());
    let server = Folder::of_server(&ca);
    let plane = plane(&server).await;
    let without = Folder::of_client(&ca);
    let of_stranger = Folder::new(&stranger, &[CLIENT], &ca);
    let trusts_stranger = Folder::new(&ca, &[CLIENT], &stranger);
    for (files, words) in [
        (
            without.trusting(),
            "received fatal alert: CertificateRequired",
        ),
        (of_stranger.client(), "received fatal alert: UnknownCA"),
        (trusts_stranger.client(), "its CA is not trusted"),
    ] {
        let refused = handshakes_refused(&plane).await;
        let client = connect(plane.listen_addr(), files);
        let mut watch = client.watch::<Endpoints>("payments").unwrap();
        error_with(&mut watch, words).await;
        until(async || handshakes_refused(&plane).await > refused).await;
    }

    let good = Folder::of_client(&ca);
    let client = connect(plane.listen_addr(), good.client());
    port(&mut client.watch::<Endpoints>("payments").unwrap(), 1).await;
}

/// L-02: a client without TLS is refused and counted.
#[tokio::test]
async fn a_client_without_tls_is_refused() {
    let ca = Ca::new();
    let server = Folder::of_server(&ca);
    let plane = plane(&server).await;
    let bootstrap = Bootstrap::builder(plane.listen_addr().to_string().as_str());
    let client = XdsClient::new(&bootstrap.unwrap().node_id("web-1").build()).unwrap();
    let _watch = client.watch::<Endpoints>("payments").unwrap();
    until(async || handshakes_refused(&plane).await > 0.0).await;
}

/// L-03: certificates that change on disk are those of new connections, and no stream is lost. Files that do
/// not belong together change nothing.
#[tokio::test]
async fn certificates_change_while_streams_go_on() {
    let (old, new) = (Ca::new(), Ca::new());
    let (server, web) = (Folder::of_server(&old), Folder::of_client(&old));
    let plane = plane(&server).await;
    let admin = plane.admin_addr().unwrap();
    let client = connect(plane.listen_addr(), web.client());
    let mut watch = client.watch::<Endpoints>("payments").unwrap();
    port(&mut watch, 1).await;
    let stream = get_json(admin, "/clients").await["clients"][0]["stream"].clone();

    let lines = LogLines::beginning("cannot use the certificates");
    let guard = tracing::subscriber::set_default(lines.clone());
    std::fs::write(server.files.path("key.pem"), "half a file").unwrap();
    plane.reload();
    until(async || lines.count() > 0).await;
    drop(guard);
    // Clients with the same files would share a connection.
    let also = Folder::of_client(&old);
    let again = connect(plane.listen_addr(), also.client());
    port(&mut again.watch::<Endpoints>("payments").unwrap(), 1).await;

    server.files.present(&new.issue(&["127.0.0.1"]));
    server.files.trust(&[&new]);
    let newcomer = Folder::of_client(&new);
    for turn in 2..50 {
        plane.set_snapshot(snapshot(&service("payments", turn)));
        plane.reload();
        port(&mut watch, turn).await;
    }
    let late = connect(plane.listen_addr(), newcomer.client());
    let mut of_late = late.watch::<Endpoints>("payments").unwrap();
    port(&mut of_late, 49).await;
    plane.set_snapshot(snapshot(&service("payments", 50)));
    port(&mut watch, 50).await;
    port(&mut of_late, 50).await;
    let shown = get_json(admin, "/clients").await;
    assert_eq!(
        shown["clients"][0]["stream"], stream,
        "the first stream lives"
    );
    let outdated = Folder::of_client(&old);
    let refused = connect(plane.listen_addr(), outdated.client());
    error_with(
        &mut refused.watch::<Endpoints>("payments").unwrap(),
        "its CA is not trusted",
    )
    .await;
}

/// L-03: a client that says nothing is cut off after a time, and holds back no other.
#[tokio::test]
async fn silent_clients_hold_back_nobody() {
    let ca = Ca::new();
    let (server, web) = (Folder::of_server(&ca), Folder::of_client(&ca));
    let limits = || Limits {
        handshake_timeout: Duration::from_secs(3),
        ..Limits::default()
    };
    let ports = || Ports::new(any_port()).admin(any_port()).limits(limits());
    let of =
        |reason: &str| format!("crowfly_control_refused_connections_total{{reason=\"{reason}\"}}");
    let config = || snapshot(&service("payments", 1));

    let with_tls = ControlPlane::with_ports(config(), ports().tls(server.server()))
        .await
        .unwrap();
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(TcpStream::connect(with_tls.listen_addr()).await.unwrap());
    }
    let client = connect(with_tls.listen_addr(), web.client());
    port(&mut client.watch::<Endpoints>("payments").unwrap(), 1).await;
    for mut socket in silent {
        // The end may be a reset.
        assert!(matches!(
            soon(socket.read(&mut [0; 100])).await,
            Ok(0) | Err(_)
        ));
    }
    let admin = with_tls.admin_addr().unwrap();
    until(async || metric(admin, &of("handshake")).await >= 50.0).await;

    let without = ControlPlane::with_ports(config(), ports()).await.unwrap();
    let mut socket = TcpStream::connect(without.listen_addr()).await.unwrap();
    // It is sent settings, and then the end.
    let mut read = Vec::new();
    let _end = soon(socket.read_to_end(&mut read)).await;
    until(async || metric(without.admin_addr().unwrap(), &of("silent")).await >= 1.0).await;
}

/// L-01: files that cannot be used are an error at the start, which names the file.
#[tokio::test]
async fn bad_certificates_are_errors_at_the_start() {
    let ca = Ca::new();
    let server = Folder::of_server(&ca);
    std::fs::write(server.files.path("cert.pem"), "nothing").unwrap();
    let ports = Ports::new(any_port()).tls(server.server());
    let error = ControlPlane::with_ports(snapshot(""), ports)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("cert.pem"), "{error}");
}
