//! Tests of a server without `channel_creds`, which gRFC A27 once allowed. The client connects to
//! it as to backends, by the fallback credentials of its program.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use crowfly_client::XdsClient;
use crowfly_model::Bootstrap;
use crowfly_model::grpc::Cluster;
use crowfly_testkit::AdsServer;
use tracing_subscriber::fmt;

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
    let _watch = client.watch::<Cluster>("payments").unwrap();
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
    let _watch = client.watch::<Cluster>("payments").unwrap();
    assert_eq!(ads.next_request().await.resource_names, ["payments"]);

    // Whoever trusts another CA shares neither client nor connection.
    let other = XdsClient::builder(bootstrap.into()).backend_tls(Ca::new().client());
    let other = other.shared().unwrap();
    let mut watch = other.watch::<Cluster>("payments").unwrap();
    error_with(&mut watch, "its CA is not trusted").await;
}

/// Newer texts of gRFC A27 require the field, so that it is missing is said.
#[tokio::test]
async fn missing_credentials_are_a_warning() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = fmt()
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .finish();
    let uri = "127.0.0.1:1";
    tracing::subscriber::with_default(subscriber, || XdsClient::new(&unsaid(uri)).unwrap());
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    for part in ["WARN", "no channel_creds", "in plaintext", uri] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
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
