//! Tests of the TLS of a server: files that change, and clients that must present a certificate.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::fs;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crowfly_testkit::{Ca, CertificateFolder, Issued};
use crowfly_tls::{
    HandshakeError, Identity, Material, Roots, ServerCheck, ServerFiles, ServerSource, TlsError,
    accept, client_names, connect, server_name,
};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio_rustls::{client, server};

const SERVER: &str = "control.example";
const CLIENT: &str = "spiffe://mesh/web";

/// The files of a server, whose certificate is of `ca`.
struct Fixture {
    _dir: TempDir,
    folder: CertificateFolder,
    ca: Ca,
}

impl Fixture {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let folder = CertificateFolder::new(dir.path());
        let ca = Ca::new();
        folder.trust(&[&ca]);
        folder.present(&ca.issue(&[SERVER]));
        Self {
            _dir: dir,
            folder,
            ca,
        }
    }

    fn files(&self) -> ServerFiles {
        let path = |name| self.folder.path(name);
        ServerFiles::new(path("cert.pem"), path("key.pem"))
    }

    fn mutual(&self) -> ServerFiles {
        self.files().client_ca(self.folder.path("ca.pem"))
    }

    fn client(&self, identity: Option<&Issued>) -> Material {
        let roots = Roots::default()
            .add_pem("CA", self.ca.pem.as_bytes())
            .unwrap();
        let material = Material::new(roots);
        match identity {
            None => material,
            Some(Issued { certificate, key }) => {
                let identity =
                    Identity::from_pem("client", certificate.as_bytes(), key.as_bytes()).unwrap();
                material.with_identity(identity)
            }
        }
    }
}

type Client = Result<client::TlsStream<DuplexStream>, HandshakeError>;
type Server = io::Result<server::TlsStream<DuplexStream>>;

async fn handshake(source: &ServerSource, material: &Material) -> (Client, Server) {
    let (near, far) = duplex(1 << 16);
    let config = material.client_config(&ServerCheck::HostName).unwrap();
    let name = server_name(SERVER).unwrap();
    tokio::join!(
        connect(Arc::new(config), name, near),
        accept(source.current(), far)
    )
}

async fn refusal(source: &ServerSource, material: &Material) -> String {
    let (_client, server) = handshake(source, material).await;
    server.unwrap_err().to_string()
}

async fn start_error(files: ServerFiles) -> TlsError {
    ServerSource::start(files).await.unwrap_err()
}

#[tokio::test]
async fn a_client_that_trusts_the_ca_speaks_http2() {
    let fixture = Fixture::new();
    let source = ServerSource::start(fixture.files()).await.unwrap();
    let (client, server) = handshake(&source, &fixture.client(None)).await;
    let (mut client, mut server) = (client.unwrap(), server.unwrap());
    assert_eq!(client_names(&server), [""; 0]);
    client.write_all(b"hello").await.unwrap();
    client.flush().await.unwrap();
    let mut read = [0; 5];
    server.read_exact(&mut read).await.unwrap();
    assert_eq!(&read, b"hello");
}

#[tokio::test]
async fn a_client_with_a_certificate_is_known_by_its_names() {
    let fixture = Fixture::new();
    let source = ServerSource::start(fixture.mutual()).await.unwrap();
    let identity = fixture.ca.issue(&[CLIENT, "web.example"]);
    let (_, server) = handshake(&source, &fixture.client(Some(&identity))).await;
    assert_eq!(client_names(&server.unwrap()), [CLIENT, "web.example"]);
}

#[tokio::test]
async fn clients_without_a_good_certificate_are_refused_with_the_reason() {
    let fixture = Fixture::new();
    let source = ServerSource::start(fixture.mutual()).await.unwrap();
    let (stranger, expired) = (
        Ca::new().issue(&[CLIENT]),
        fixture.ca.issue_expired(&[CLIENT]),
    );
    for (identity, expected) in [
        (None, "presented no certificate, and one is required"),
        (Some(&stranger), "its CA is not trusted"),
        (Some(&expired), "it expired "),
    ] {
        let reason = refusal(&source, &fixture.client(identity)).await;
        assert!(reason.contains(expected), "{expected}: {reason}");
    }
}

/// A client that speaks plaintext, and one that goes away.
#[tokio::test]
async fn what_is_not_tls_is_refused_with_the_reason() {
    let fixture = Fixture::new();
    let source = ServerSource::start(fixture.files()).await.unwrap();
    for (sent, expected) in [
        (
            &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
            "does it speak plaintext?",
        ),
        (b"", "closed the connection during the handshake"),
    ] {
        let (mut near, far) = duplex(1 << 10);
        near.write_all(sent).await.unwrap();
        drop(near);
        let error = accept(source.current(), far).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// An error at the start names the file and the reason.
#[tokio::test]
async fn bad_files_are_an_error_at_the_start() {
    for (name, content, expected) in [
        ("cert.pem", None, "cert.pem: No such file"),
        ("key.pem", None, "key.pem: No such file"),
        ("ca.pem", None, "ca.pem: No such file"),
        ("cert.pem", Some("x"), "cert.pem: no items found"),
        ("key.pem", Some("x"), "key.pem: no items found"),
        ("ca.pem", Some("x"), "ca.pem: no items found"),
    ] {
        let fixture = Fixture::new();
        match content {
            None => fs::remove_file(fixture.folder.path(name)).unwrap(),
            Some(content) => fs::write(fixture.folder.path(name), content).unwrap(),
        }
        let error = start_error(fixture.mutual()).await.to_string();
        assert!(error.contains(expected), "{error}");
    }
    let fixture = Fixture::new();
    let key = fixture.ca.issue(&[SERVER]).key;
    fs::write(fixture.folder.path("key.pem"), key).unwrap();
    let error = start_error(fixture.files()).await;
    assert!(matches!(error, TlsError::Identity { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("cert.pem with the key ") && text.contains("key.pem: "),
        "{text}"
    );
}

/// New files are used by new connections, and broken ones by none. A connection that exists goes on.
#[tokio::test]
async fn files_are_read_again_and_broken_ones_change_nothing() {
    let mut fixture = Fixture::new();
    let source = ServerSource::start(fixture.files()).await.unwrap();
    let (client, server) = handshake(&source, &fixture.client(None)).await;
    let (mut old_client, mut old_server) = (client.unwrap(), server.unwrap());

    let before = source.current();
    fs::write(fixture.folder.path("key.pem"), "half of i").unwrap();
    source.read_again().await;
    assert!(Arc::ptr_eq(&before, &source.current()));

    fixture.ca = Ca::new();
    fixture.folder.present(&fixture.ca.issue(&[SERVER]));
    source.read_again().await;
    let (client, _) = handshake(&source, &fixture.client(None)).await;
    client.unwrap();

    old_server.write_all(b"still here").await.unwrap();
    old_server.flush().await.unwrap();
    let mut read = [0; 10];
    old_client.read_exact(&mut read).await.unwrap();
}

/// Settings change only with their files. A new CA of clients alone gives new settings.
#[tokio::test(start_paused = true)]
async fn files_are_read_at_their_interval() {
    let fixture = Fixture::new();
    let interval = Duration::from_secs(60);
    let files = fixture.mutual().refresh_interval(interval);
    let source = ServerSource::start(files).await.unwrap();
    let before = source.current();
    // The clock is simulated, and stands still while files are read.
    tokio::time::sleep(interval * 2).await;
    assert!(Arc::ptr_eq(&before, &source.current()));
    fixture.folder.trust(&[&Ca::new()]);
    tokio::time::sleep(interval * 2).await;
    assert!(!Arc::ptr_eq(&before, &source.current()));
    let identity = fixture.ca.issue(&[CLIENT]);
    let reason = refusal(&source, &fixture.client(Some(&identity))).await;
    assert!(reason.contains("its CA is not trusted"), "{reason}");
}
