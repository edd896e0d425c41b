//! gRFC A27 as it was first written: a server without `channel_creds` is spoken to as backends are.

use crowfly_client::XdsClient;
use crowfly_model::Bootstrap;
use crowfly_model::grpc::Cluster;
use crowfly_testkit::AdsServer;

use crate::error_with;
use crate::front::Front;
use crate::pki::Ca;

pub(crate) fn unsaid(uri: &str) -> Bootstrap {
    let text = format!(r#"{{"xds_servers": [{{"server_uri": "{uri}"}}]}}"#);
    Bootstrap::from_json(&text).unwrap()
}

#[tokio::test]
async fn a_server_without_credentials_is_spoken_to_in_plaintext_as_backends_are() {
    let mut ads = AdsServer::start();
    let client = XdsClient::new(&unsaid(&ads.address().to_string())).unwrap();
    let _watch = client.watch::<Cluster>("payments");
    assert_eq!(ads.next_request().await.resource_names, ["payments"]);
}

#[tokio::test]
async fn a_server_without_credentials_is_spoken_to_in_tls_as_backends_are() {
    let ca = Ca::new();
    let mut ads = AdsServer::start();
    let front = Front::start(ca.server(), ads.address()).await;
    let bootstrap = unsaid(&front.address());
    let client = XdsClient::builder(bootstrap.clone().into()).backend_tls(ca.client());
    let client = client.shared().unwrap();
    let _watch = client.watch::<Cluster>("payments");
    assert_eq!(ads.next_request().await.resource_names, ["payments"]);

    // Whoever trusts another CA shares neither client nor connection.
    let other = XdsClient::builder(bootstrap.into()).backend_tls(Ca::new().client());
    let other = other.shared().unwrap();
    let mut watch = other.watch::<Cluster>("payments");
    error_with(&mut watch, "invalid peer certificate: UnknownIssuer").await;
}

/// To ask for TLS and get plaintext would be the worst of readings.
#[tokio::test]
async fn https_without_credentials_needs_tls_to_backends() {
    let error = XdsClient::new(&unsaid("https://127.0.0.1:1")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "xDS server https://127.0.0.1:1: server_uri: expected channel_creds for https, or TLS to backends"
    );
}
