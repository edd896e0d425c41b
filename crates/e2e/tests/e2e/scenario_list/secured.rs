//! ADS over TLS.
//!
//! The TLS of the foreign clients is BoringSSL, OpenSSL or that of Go. They share nothing with
//! ours, so both sides cannot have the same mistake.

use crowfly_e2e::admin;
use crowfly_e2e::credentials::Credentials;
use crowfly_e2e::process::Signal;
use crowfly_e2e::product::Control;
use crowfly_e2e::tap::Tap;
use crowfly_testkit::{Ca, CertificateFolder};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::kind::Kind;
use super::peer::{self, settle};
use super::stage::{Mesh, Stage, clients_of, endpoint};
use super::traffic::Traffic;
use crate::CROWFLY;

const SERVICE: &str = "secured";
const CLIENT: &str = "spiffe://mesh/web";
const NEW_CLIENT: &str = "spiffe://mesh/new-web";
const SERVER: &str = "127.0.0.1";
const NO_CERTIFICATE: &str = "the client presented no certificate, and one is required";
const REFUSED: &str = "crowfly_control_refused_connections_total{reason=\"handshake\"}";

/// The files of a client or of the control plane.
struct Files {
    folder: CertificateFolder,
    dir: TempDir,
}

impl Files {
    /// The files of a side with this name, which trusts the CA.
    fn new(ca: &Ca, name: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let folder = CertificateFolder::new(dir.path());
        folder.trust(&[ca]);
        folder.present(&ca.issue(&[name]));
        Self { folder, dir }
    }

    /// A control plane with these certificates, and with the flags that name those of clients if they need
    /// some.
    fn control(&self, mesh: &Mesh, needs_client_certificates: bool) -> Control {
        let [certificate, key, ca] = ["cert.pem", "key.pem", "ca.pem"].map(|name| {
            let path = self.folder.path(name);
            path.to_str().unwrap().to_owned()
        });
        let mut flags = vec!["--tls-cert", &certificate, "--tls-key", &key];
        if needs_client_certificates {
            flags.extend(["--tls-client-ca", &ca]);
        }
        CROWFLY.control_with("127.0.0.1:0", &mesh.to_yaml(), &flags)
    }

    fn mutual_tls(&self) -> Credentials {
        Credentials::mutual_tls(self.dir.path())
    }
}

/// A client that trusts the CA of the control plane is served, and follows a change. One without TLS is not
/// served, and the control plane says why.
pub(super) fn over_tls(stage: &mut Stage) {
    let ca = Ca::new();
    let (server, trusting) = (Files::new(&ca, SERVER), Files::new(&ca, CLIENT));
    let control = server.control(&mesh(stage, 0), false);
    let node = stage.kind.node();
    let insecure = Credentials::insecure();
    assert_refuses(
        &control,
        stage.kind,
        &insecure,
        "the client does not speak TLS",
    );

    let credentials = Credentials::tls(trusting.dir.path());
    let mut peer = peer::start_with(stage.kind, node, control.address, &credentials).unwrap();
    settle(peer.as_mut(), SERVICE, &["b1"]);
    control.configure_with(&mesh(stage, 1).to_yaml());
    settle(peer.as_mut(), SERVICE, &["b2"]);
    assert_eq!(identities(&control, node), json!([[]]));
}

/// A client with a certificate is served and known by it. One without, and one with that of another CA, are
/// not served, and the control plane says why.
pub(super) fn over_mutual_tls(stage: &mut Stage) {
    let (ca, stranger) = (Ca::new(), Ca::new());
    let server = Files::new(&ca, SERVER);
    let control = server.control(&mesh(stage, 0), true);
    let without = Files::new(&ca, CLIENT);
    let of_stranger = Files::new(&ca, CLIENT);
    of_stranger.folder.present(&stranger.issue(&[CLIENT]));
    for (credentials, reason) in [
        (Credentials::tls(without.dir.path()), NO_CERTIFICATE),
        (of_stranger.mutual_tls(), reason_for_a_stranger(stage.kind)),
    ] {
        assert_refuses(&control, stage.kind, &credentials, reason);
    }

    let files = Files::new(&ca, CLIENT);
    let node = stage.kind.node();
    let credentials = files.mutual_tls();
    let mut peer = peer::start_with(stage.kind, node, control.address, &credentials).unwrap();
    settle(peer.as_mut(), SERVICE, &["b1"]);
    assert_eq!(identities(&control, node), json!([[CLIENT]]));
}

/// Both sides get another CA and other certificates. The stream goes on, and the next connection is made with
/// the new ones. No call fails.
pub(super) fn certificates_change(stage: &mut Stage) {
    let (old, new) = (Ca::new(), Ca::new());
    let (server, client) = (Files::new(&old, SERVER), Files::new(&old, CLIENT));
    let [before, meanwhile, after] = [0, 1, 2].map(|backend| mesh(stage, backend));
    let control = server.control(&before, true);
    let tap = Tap::start(control.address);
    let (kind, node) = (stage.kind, stage.kind.node());
    let mut peer = peer::start_with(kind, node, tap.address, &client.mutual_tls()).unwrap();
    settle(peer.as_mut(), SERVICE, &["b1"]);
    let stream = streams(&control, node);

    Traffic::of(peer.as_mut(), SERVICE, |traffic| {
        server.folder.present(&new.issue(&[SERVER]));
        server.folder.trust(&[&new]);
        client.folder.trust(&[&new]);
        client.folder.present(&new.issue(&[NEW_CLIENT]));
        control.process.signal(Signal::HUP);
        control
            .process
            .wait_for_error("certificates on disk have changed");
        control.configure_with(&meanwhile.to_yaml());
        traffic.until_served_by(&["b2"]);
        assert_eq!(streams(&control, node), stream, "the stream went on");

        tap.cut();
        admin::until(control.admin, "/clients", "new identity", |page| {
            identities_of(page, node) == json!([[NEW_CLIENT]])
        });
        control.configure_with(&after.to_yaml());
        traffic.until_served_by(&["b3"]);
    });

    // The control plane does not accept the old certificate any more.
    let outdated = Files::new(&old, CLIENT);
    outdated.folder.trust(&[&new]);
    assert_refuses(
        &control,
        kind,
        &outdated.mutual_tls(),
        reason_for_a_stranger(kind),
    );
}

/// Checks that a client with these credentials is not served, and that the control plane tells and counts it.
fn assert_refuses(control: &Control, kind: Kind, credentials: &Credentials, reason: &str) {
    let before = admin::metric(control.admin, REFUSED);
    let mut peer = peer::start_with(kind, "refused", control.address, credentials).unwrap();
    peer.assert_unserved(SERVICE);
    let line = control.process.wait_for_error(reason);
    println!("  {line}");
    assert!(line.contains("connection refused"), "{line}");
    assert!(line.contains("the TLS handshake failed"), "{line}");
    admin::until_metric(control.admin, REFUSED, |count| count > before);
    // An Envoy may not have been that far before.
    peer.assert_unserved(SERVICE);
    assert_eq!(identities(control, "refused"), json!([]));
}

/// The words of the control plane about a client with a certificate of another CA. The TLS of Go presents none that
/// the server would not accept.
fn reason_for_a_stranger(kind: Kind) -> &'static str {
    match kind {
        Kind::GrpcGo => NO_CERTIFICATE,
        _ => "its CA is not trusted",
    }
}

/// The names in the certificates of a node, by stream.
fn identities(control: &Control, node: &str) -> Value {
    identities_of(&admin::page(control.admin, "/clients"), node)
}

fn identities_of(page: &Value, node: &str) -> Value {
    of_streams(page, node, "identity")
}

/// The numbers of the streams of a node.
fn streams(control: &Control, node: &str) -> Value {
    of_streams(&admin::page(control.admin, "/clients"), node, "stream")
}

fn of_streams(page: &Value, node: &str, key: &str) -> Value {
    let clients = clients_of(page, node);
    clients.iter().map(|client| client[key].clone()).collect()
}

/// A configuration with one service, which has one backend.
fn mesh(stage: &Stage, backend: usize) -> Mesh {
    let endpoint = endpoint(&stage.backends[backend]);
    Mesh::of([json!({ "name": SERVICE, "endpoints": [endpoint] })])
}
