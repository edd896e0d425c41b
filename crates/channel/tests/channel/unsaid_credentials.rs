//! gRFC A27 as it was first written: a control plane without `channel_creds` gets the credentials
//! of backends.
//!
//! Older bootstraps may have no such field, although the newer text requires it.

use std::net::SocketAddr;
use std::sync::Arc;

use crowfly::{BackendTls, Bootstrap, Channel};
use crowfly_testkit::ResourceServer;
use crowfly_testkit::builders::Resources;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{ServerConfig, crypto::ring};

use crate::backend::Backend;
use crate::support::{call, payments};

#[tokio::test]
async fn a_control_plane_without_credentials_is_spoken_to_in_plaintext_as_backends_are() {
    let a = Backend::start("a").await;
    let server = ResourceServer::start(&payments(&[&a]));
    let control = server.bootstrap().servers[0].authority().to_owned();
    let channel = Channel::builder("xds:///payments").bootstrap(unsaid(&control));
    assert_eq!(call(&channel.build().unwrap()).await.unwrap(), "a");
}

#[tokio::test]
async fn a_control_plane_without_credentials_is_spoken_to_in_tls_as_backends_are() {
    let names = ["payments", "127.0.0.1"].map(str::to_owned);
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let key = made.signing_key.serialize_der().try_into().unwrap();
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let config = Arc::new(config);
    let a = Backend::start("a").await;
    let backend = in_front_of(a.address, &config).await;
    let server = ResourceServer::start(&Resources::service("payments", [backend]));
    let control = server.bootstrap().servers[0].authority().to_owned();
    let control = in_front_of(control.parse().unwrap(), &config).await;

    let tls = BackendTls::new().ca_pem(made.cert.pem()).unwrap();
    let channel = Channel::builder("xds:///payments")
        .bootstrap(unsaid(&control.to_string()))
        .backend_tls(tls);
    assert_eq!(call(&channel.build().unwrap()).await.unwrap(), "a");
}

fn unsaid(uri: &str) -> Bootstrap {
    let text = format!(r#"{{"xds_servers": [{{"server_uri": "{uri}"}}]}}"#);
    Bootstrap::from_json(&text).unwrap()
}

/// Terminates TLS and passes on what is inside.
async fn in_front_of(behind: SocketAddr, config: &Arc<ServerConfig>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = TlsAcceptor::from(Arc::clone(config));
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut outside = acceptor.accept(tcp).await?;
                let mut inside = TcpStream::connect(behind).await?;
                copy_bidirectional(&mut outside, &mut inside).await
            });
        }
    });
    address
}
