//! TLS with client certificates, and etcd's own users.
//!
//! An etcd may ask for a certificate, for a password or for both, and the reason of a refusal must
//! be told.

use std::time::Duration;

use crowfly_e2e::etcd::Etcd;
use crowfly_e2e::peers;
use crowfly_node::kvstore::KvstoreOptions;
use crowfly_source::etcd::{Credentials, Password};
use crowfly_testkit::{Ca, CertificateFolder};
use crowfly_tls::{CertificateFiles, RootSource};

use crate::reader::Reader;
use crate::{EAST, put_service};

/// N-59: a mesh is read with client certificates; without one, or with the wrong CA, the reason is told.
/// Files that are replaced are read for the next connection.
#[tokio::test(flavor = "multi_thread")]
async fn tls_with_client_certificates_and_files_that_change() {
    let Some(program) = peers::etcd() else { return };
    let folder = tempfile::tempdir().unwrap();
    let files = |name: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir(&path).unwrap();
        CertificateFolder::new(&path)
    };
    let (ca, stranger) = (Ca::new(), Ca::new());
    let server = files("server");
    server.trust(&[&ca]);
    server.present(&ca.issue(&["127.0.0.1", "mesh.example"]));
    let flag = |name: &str, file: &str| format!("--{name}={}", server.path(file).display());
    let etcd = Etcd::start_with(
        program,
        "https",
        &[
            flag("cert-file", "cert.pem"),
            flag("key-file", "key.pem"),
            flag("trusted-ca-file", "ca.pem"),
            "--client-cert-auth=true".to_owned(),
        ],
        &[
            flag("cert", "cert.pem"),
            flag("key", "key.pem"),
            flag("cacert", "ca.pem"),
        ],
    );
    etcd.put(EAST, r#"{"id":3}"#);
    put_service(&etcd, "east", 3, "web", "10.96.0.1", "10.244.0.1");

    let client = files("client");
    client.trust(&[&stranger]);
    client.present(&ca.issue(&["remote"]));
    let roots = || RootSource::File(client.path("ca.pem"));
    let options = |tls: CertificateFiles| KvstoreOptions {
        tls: Some(tls),
        server_name: Some("mesh.example".to_owned()),
        ..KvstoreOptions::new([format!("https://{}", etcd.address)])
    };
    let identity =
        CertificateFiles::new(roots()).identity(client.path("cert.pem"), client.path("key.pem"));
    let mut reader = Reader::start(options(identity.clone()));
    let reason = reader.until_failed().await;
    assert!(reason.contains("TLS handshake"), "{reason}");
    client.trust(&[&ca]);
    reader
        .until_targets("10.96.0.1", &["10.244.0.1:8080"])
        .await;
    reader.until_synced().await;

    let mut without = Reader::start(options(CertificateFiles::new(roots())));
    let reason = without.until_failed().await;
    assert!(reason.contains("ertificate"), "{reason}");

    let mut other = options(identity);
    other.server_name = Some("other.example".to_owned());
    let reason = Reader::start(other).until_failed().await;
    assert!(reason.contains("TLS handshake"), "{reason}");
}

/// N-59: a user with a password reads the mesh, also after its token has expired. A wrong password and
/// a prefix that the user may not read are told by name.
#[tokio::test(flavor = "multi_thread")]
async fn users_of_etcd_and_tokens_that_expire() {
    let Some(program) = peers::etcd() else { return };
    let ttl = ["--auth-token-ttl=1".to_owned()];
    let mut etcd = Etcd::start_with(program, "http", &ttl, &[]);
    etcd.put(EAST, r#"{"id":3}"#);
    put_service(&etcd, "east", 3, "web", "10.96.0.1", "10.244.0.1");
    for arguments in [
        &["user", "add", "root:rootpw"][..],
        &["user", "grant-role", "root", "root"],
        &["role", "add", "reader"],
        &[
            "role",
            "grant-permission",
            "reader",
            "read",
            "--prefix",
            "cilium/",
        ],
        &["user", "add", "remote:secret"],
        &["user", "grant-role", "remote", "reader"],
        &["role", "add", "configs"],
        &[
            "role",
            "grant-permission",
            "configs",
            "read",
            "--prefix",
            "cilium/cluster-config/",
        ],
        &[
            "role",
            "grant-permission",
            "configs",
            "read",
            "cilium/.heartbeat",
        ],
        &["user", "add", "half:secret"],
        &["user", "grant-role", "half", "configs"],
        &["auth", "enable"],
    ] {
        etcd.control(arguments);
    }
    etcd.log_in("root:rootpw");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, "wrong\n").unwrap();
    let with = |user: &str, password| KvstoreOptions {
        credentials: Some(Credentials {
            user: user.to_owned(),
            password,
        }),
        ..crate::options(&etcd)
    };

    let mut reader = Reader::start(with("remote", Password::File(file.clone())));
    let reason = reader.until_failed().await;
    assert!(
        reason.contains("login of \"remote\"") && reason.contains("invalid user ID or password"),
        "{reason}"
    );
    std::fs::write(&file, "secret\n").unwrap();
    reader
        .until_targets("10.96.0.1", &["10.244.0.1:8080"])
        .await;

    // The token goes after a second without use, and nothing tells when. A new cluster needs a new one.
    tokio::time::sleep(Duration::from_secs(3)).await;
    etcd.put("cilium/cluster-config/west", r#"{"id":4}"#);
    put_service(&etcd, "west", 4, "other", "10.96.0.2", "10.244.0.2");
    reader
        .until_targets("10.96.0.2", &["10.244.0.2:8080"])
        .await;
    reader.until_synced().await;

    let mut half = Reader::start(with("half", Password::Given("secret".into())));
    let reason = half.until_failed().await;
    assert!(
        reason.contains("cilium/state/services/v1/") && reason.contains("permission denied"),
        "{reason}"
    );
    // Its listing and its watch of the heartbeat are refused, and either may be the first.
    let reason = Reader::start(crate::options(&etcd)).until_failed().await;
    assert!(
        reason.contains("user name is empty") || reason.contains("permission denied"),
        "{reason}"
    );
}
