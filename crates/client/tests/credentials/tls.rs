//! Tests of the credentials `tls` (gRFC A65): CAs, client certificates, and files that change while
//! the client runs.

use crowfly_model::bootstrap::{ServerBuilder, ServerConfig, TlsFiles};
use crowfly_model::grpc::Cluster;
use crowfly_testkit::AdsServer;

use crate::front::Front;
use crate::pki::{Ca, Folder};
use crate::{client, error_with};

fn server(front: &Front, files: TlsFiles) -> ServerBuilder {
    ServerConfig::builder(front.address()).tls(files)
}

#[tokio::test]
async fn a_server_of_the_given_ca_is_trusted() {
    let (ca, folder) = (Ca::new(), Folder::new());
    let mut ads = AdsServer::start();
    let front = Front::start(ca.server(), ads.address()).await;
    let client = client(server(
        &front,
        TlsFiles::default().ca_certificate(folder.trust(&ca)),
    ));
    let _watch = client.watch::<Cluster>("payments").unwrap();
    assert_eq!(ads.next_request().await.resource_names, ["payments"]);
}

#[tokio::test]
async fn a_server_of_another_ca_is_refused_with_a_reason() {
    let folder = Folder::new();
    let ads = AdsServer::start();
    let front = Front::start(Ca::new().server(), ads.address()).await;
    let client = client(server(
        &front,
        TlsFiles::default().ca_certificate(folder.trust(&Ca::new())),
    ));
    let mut watch = client.watch::<Cluster>("payments").unwrap();
    error_with(&mut watch, "its CA is not trusted").await;
}

#[tokio::test]
async fn a_server_of_another_name_is_refused_with_a_reason() {
    let (ca, folder) = (Ca::new(), Folder::new());
    let ads = AdsServer::start();
    let front = Front::start(ca.server_named("other.example"), ads.address()).await;
    let client = client(server(
        &front,
        TlsFiles::default().ca_certificate(folder.trust(&ca)),
    ));
    let mut watch = client.watch::<Cluster>("payments").unwrap();
    error_with(
        &mut watch,
        "invalid peer certificate: certificate not valid for name",
    )
    .await;
}

#[tokio::test]
async fn a_server_without_h2_is_refused_with_a_reason() {
    let (ca, folder) = (Ca::new(), Folder::new());
    let ads = AdsServer::start();
    let mut config = ca.server();
    config.alpn_protocols.clear();
    let front = Front::start(config, ads.address()).await;
    let client = client(server(
        &front,
        TlsFiles::default().ca_certificate(folder.trust(&ca)),
    ));
    let mut watch = client.watch::<Cluster>("payments").unwrap();
    error_with(&mut watch, "did not choose h2 by ALPN").await;
}

/// A file that is not there yet fails the attempt, and not the client.
#[tokio::test]
async fn a_missing_ca_is_told_and_found_later() {
    let (ca, folder) = (Ca::new(), Folder::new());
    let mut ads = AdsServer::start();
    let front = Front::start(ca.server(), ads.address()).await;
    let files = TlsFiles::default().ca_certificate(folder.path("ca.pem"));
    let client = client(server(&front, files));
    let mut watch = client.watch::<Cluster>("payments").unwrap();
    error_with(&mut watch, "ca.pem: ").await;
    folder.trust(&ca);
    ads.next_stream().await;
}

#[tokio::test]
async fn a_client_proves_itself_with_its_certificate() {
    let (ca, clients, folder) = (Ca::new(), Ca::new(), Folder::new());
    let mut ads = AdsServer::start();
    let front = Front::start(ca.server_with_clients_of(&clients), ads.address()).await;
    let (certificate, key) = folder.identity(&clients);
    let files = TlsFiles::default()
        .ca_certificate(folder.trust(&ca))
        .identity(certificate, key);
    let client = client(server(&front, files));
    let _watch = client.watch::<Cluster>("payments").unwrap();
    ads.next_stream().await;
}

#[tokio::test]
async fn a_client_without_a_certificate_hears_that_one_is_required() {
    let (ca, folder) = (Ca::new(), Folder::new());
    let ads = AdsServer::start();
    let front = Front::start(ca.server_with_clients_of(&Ca::new()), ads.address()).await;
    let client = client(server(
        &front,
        TlsFiles::default().ca_certificate(folder.trust(&ca)),
    ));
    let mut watch = client.watch::<Cluster>("payments").unwrap();
    error_with(&mut watch, "CertificateRequired").await;
}

/// All of it is replaced while the client runs: the server's CA, and that of clients.
#[tokio::test]
async fn new_certificates_on_disk_are_used_for_the_next_connection() {
    let (ca, clients, folder) = (Ca::new(), Ca::new(), Folder::new());
    let mut ads = AdsServer::start();
    let front = Front::start(ca.server_with_clients_of(&clients), ads.address()).await;
    let (certificate, key) = folder.identity(&clients);
    let files = TlsFiles::default()
        .ca_certificate(folder.trust(&ca))
        .identity(certificate, key);
    let client = client(server(&front, files));
    let mut watch = client.watch::<Cluster>("payments").unwrap();
    ads.next_stream().await;

    let (new_ca, new_clients) = (Ca::new(), Ca::new());
    front.present(new_ca.server_with_clients_of(&new_clients));
    error_with(&mut watch, "its CA is not trusted").await;

    folder.trust(&new_ca);
    folder.identity(&new_clients);
    ads.next_stream().await;
}

/// S2-02 (part): no supported credentials are an error that names the field.
#[cfg(not(feature = "google-default"))]
#[tokio::test]
async fn credentials_that_the_client_is_not_built_with() {
    use crowfly_client::XdsClient;
    use crowfly_model::bootstrap::Bootstrap;

    let text = |creds: &str| {
        format!(r#"{{"xds_servers": [{{"server_uri": "127.0.0.1:1", "channel_creds": {creds}}}]}}"#)
    };
    let bootstrap = Bootstrap::from_json(&text(r#"[{"type": "google_default"}]"#)).unwrap();
    assert_eq!(
        XdsClient::new(&bootstrap).unwrap_err().to_string(),
        "xDS server 127.0.0.1:1: channel_creds: expected a type that this client is built with \
         (insecure, tls), got google_default"
    );
    let list = r#"[{"type": "google_default"}, {"type": "insecure"}]"#;
    XdsClient::new(&Bootstrap::from_json(&text(list)).unwrap()).unwrap();
}
