//! Tests of gRFC A97: a JSON web token from a file goes with each stream.

use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use crowfly_client::XdsClient;
use crowfly_model::bootstrap::{ServerConfig, TlsFiles};
use crowfly_model::grpc::Cluster;
use crowfly_testkit::AdsServer;
use tonic::Status;

use crate::front::Front;
use crate::pki::{Ca, Folder};
use crate::{bootstrap, client, error_with};

/// An ADS server that notes the `authorization` of every stream and then ends it.
pub(crate) struct Gate(AdsServer);

impl Gate {
    pub(crate) fn start() -> Self {
        Self(AdsServer::start())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// The `authorization` of the next stream.
    pub(crate) async fn next(&mut self) -> Vec<String> {
        let metadata = self.0.next_stream().await;
        self.0.close_stream(Status::unavailable("try again"));
        let values = metadata.get_all("authorization").iter();
        let values = values.map(|value| value.to_str().unwrap().to_owned());
        values.collect()
    }
}

/// A token that expires in `seconds`.
fn token(seconds: u64, id: &str) -> String {
    let exp = SystemTime::now() + Duration::from_secs(seconds);
    let exp = exp.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let claims = format!(r#"{{"exp": {}, "jti": "{id}"}}"#, exp.as_secs());
    format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims))
}

#[tokio::test]
async fn the_token_goes_with_each_stream_and_is_read_again_before_it_expires() {
    let (ca, folder) = (Ca::new(), Folder::new());
    let mut gate = Gate::start();
    let front = Front::start(ca.server(), gate.address()).await;
    // So close to its end that each stream reads it again.
    let first = token(60, "first");
    fs::write(folder.path("token"), format!("{first}\n")).unwrap();
    let files = TlsFiles::default().ca_certificate(folder.trust(&ca));
    let server = ServerConfig::builder(front.address())
        .tls(files)
        .jwt_token_file(folder.path("token"));
    let client = client(server);
    let _watch = client.watch::<Cluster>("payments").unwrap();
    assert_eq!(gate.next().await, [format!("Bearer {first}")]);

    let second = token(3600, "second");
    fs::write(folder.path("token"), &second).unwrap();
    assert_eq!(gate.next().await, [format!("Bearer {second}")]);
}

#[tokio::test]
async fn without_a_token_no_stream_is_opened_and_the_reason_is_told() {
    let (ca, folder) = (Ca::new(), Folder::new());
    let mut gate = Gate::start();
    let front = Front::start(ca.server(), gate.address()).await;
    let files = TlsFiles::default().ca_certificate(folder.trust(&ca));
    let path = folder.path("token");
    let server = ServerConfig::builder(front.address())
        .tls(files)
        .jwt_token_file(&path);
    let client = client(server);
    let mut watch = client.watch::<Cluster>("payments").unwrap();
    let missing = format!("jwt_token_file {}: No such file", path.display());
    error_with(&mut watch, &missing).await;

    let token = token(3600, "late");
    fs::write(&path, &token).unwrap();
    assert_eq!(gate.next().await, [format!("Bearer {token}")]);
}

/// A token in plaintext is anybody's.
#[tokio::test]
async fn a_token_is_not_sent_in_plaintext() {
    let ads = AdsServer::start();
    let address = ads.address().to_string();
    let server = ServerConfig::builder(&address).jwt_token_file("/token");
    assert_eq!(
        XdsClient::new(&bootstrap(server)).unwrap_err().to_string(),
        format!(
            "xDS server {address}: call_creds: expected TLS to send a token over, \
             got channel_creds of type insecure"
        )
    );
}
