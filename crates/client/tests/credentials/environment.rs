//! Tests of settings in the environment. Each test runs once more in a process of its own, because
//! the environment belongs to the whole process.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use crowfly_client::XdsClient;
use crowfly_model::Bootstrap;
use crowfly_model::bootstrap::{CALL_CREDENTIALS_VARIABLE, ServerConfig, TlsFiles};
use crowfly_model::grpc::Cluster;
use crowfly_testkit::AdsServer;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::client;
use crate::front::Front;
use crate::jwt::Gate;
use crate::pki::Ca;

/// rustls-native-certs reads the system's roots from here, if it is set.
const ROOTS: &str = "SSL_CERT_FILE";
const INNER: &str = "CROWFLY_TEST_INNER";

/// Runs the test called `name` again with these variables and its own system roots, or says that
/// this is that run.
fn is_inner(name: &str, variables: &[(&str, OsString)]) -> bool {
    if env::var_os(INNER).is_some() {
        return true;
    }
    let dir = TempDir::new().unwrap();
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(INNER, "1")
        .env(ROOTS, dir.path().join("roots.pem"))
        .env_remove("SSL_CERT_DIR")
        .env("HOME", dir.path())
        .env_remove("GOOGLE_APPLICATION_CREDENTIALS")
        .envs(variables.iter().cloned())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    assert!(text.contains("1 passed"), "{text}{errors}");
    false
}

/// The CA that is all there is in the system's roots.
fn system_ca() -> Ca {
    let ca = Ca::new();
    ca.write(&PathBuf::from(env::var_os(ROOTS).unwrap()));
    ca
}

/// gRFC A65: without a CA file it is the system's roots.
#[test]
fn the_systems_roots_are_the_default() {
    if !is_inner("environment::the_systems_roots_are_the_default", &[]) {
        return;
    }
    Runtime::new().unwrap().block_on(async {
        let mut ads = AdsServer::start();
        let front = Front::start(system_ca().server(), ads.address()).await;
        let server = ServerConfig::builder(front.address()).tls(TlsFiles::default());
        let client = client(server);
        let _watch = client.watch::<Cluster>("payments").unwrap();
        ads.next_stream().await;
    });
}

/// gRFC A27: tokens are left out where a server has no credentials of its own.
#[test]
fn a_server_without_credentials_is_sent_no_token() {
    let name = "environment::a_server_without_credentials_is_sent_no_token";
    if !is_inner(name, &[(CALL_CREDENTIALS_VARIABLE, "true".into())]) {
        return;
    }
    Runtime::new().unwrap().block_on(async {
        let ca = system_ca();
        let mut gate = Gate::start();
        let front = Front::start(ca.server(), gate.address()).await;
        let token = env::var(ROOTS).unwrap() + ".token";
        std::fs::write(&token, "a.b.c").unwrap();
        let server = front.address();
        let text = format!(
            r#"{{"xds_servers": [{{"server_uri": "{server}", "call_creds": [
                {{"type": "jwt_token_file", "config": {{"jwt_token_file": "{token}"}}}}
            ]}}]}}"#
        );
        let bootstrap = Bootstrap::from_json(&text).unwrap();
        assert_eq!(bootstrap.servers[0].call_credentials.len(), 1);
        let client = XdsClient::builder(bootstrap.into()).backend_tls(ca.client());
        let client = client.build().unwrap();
        let _watch = client.watch::<Cluster>("payments").unwrap();
        assert!(gate.next().await.is_empty());
    });
}

#[cfg(feature = "google-default")]
mod google {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::thread;

    use crowfly_model::bootstrap::ChannelCredentials;

    use super::*;

    /// A machine's metadata server, with one token.
    fn metadata_server() -> OsString {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = connection.unwrap();
                let reader = BufReader::new(connection.try_clone().unwrap());
                let head: Vec<String> = reader
                    .lines()
                    .map_while(Result::ok)
                    .take_while(|line| !line.is_empty())
                    .collect();
                let head = head.join("\n").to_ascii_lowercase();
                let is_token = head.contains("/service-accounts/default/token")
                    && head.contains("metadata-flavor: google");
                let (status, body) = if is_token {
                    let body = r#"{"access_token": "of-the-machine", "expires_in": 3600, "token_type": "Bearer"}"#;
                    ("200 OK", body)
                } else {
                    ("404 Not Found", "")
                };
                let length = body.len();
                let _ = write!(
                    connection,
                    "HTTP/1.1 {status}\r\nmetadata-flavor: Google\r\n\
                     content-type: application/json\r\ncontent-length: {length}\r\n\
                     connection: close\r\n\r\n{body}"
                );
            }
        });
        address.to_string().into()
    }

    /// gRFC A27: TLS with the system's roots, and a token of the application default credentials.
    #[test]
    fn google_default_sends_the_machines_token() {
        let name = "environment::google::google_default_sends_the_machines_token";
        if !is_inner(name, &[("GCE_METADATA_HOST", metadata_server())]) {
            return;
        }
        Runtime::new().unwrap().block_on(async {
            let mut gate = Gate::start();
            let front = Front::start(system_ca().server(), gate.address()).await;
            let server = ServerConfig::builder(front.address())
                .channel_credentials(ChannelCredentials::GoogleDefault)
                .channel_credentials(ChannelCredentials::Insecure);
            let client = client(server);
            let _watch = client.watch::<Cluster>("payments").unwrap();
            assert_eq!(gate.next().await, ["Bearer of-the-machine"]);
        });
    }
}
