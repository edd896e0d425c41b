//! A proxy that ends TLS in front of a server in plaintext, because the server of the tests has no
//! TLS.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// Terminates TLS and passes on what is inside. Dropping it cuts all connections.
pub(crate) struct Front {
    address: SocketAddr,
    config: watch::Sender<Arc<ServerConfig>>,
}

impl Front {
    pub(crate) async fn start(config: ServerConfig, behind: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (config, configs) = watch::channel(Arc::new(config));
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                tokio::spawn(pass(tcp, behind, configs.clone()));
            }
        });
        Self { address, config }
    }

    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Cuts all connections; new ones see other certificates.
    pub(crate) fn present(&self, config: ServerConfig) {
        self.config.send_replace(Arc::new(config));
    }
}

async fn pass(tcp: TcpStream, behind: SocketAddr, mut configs: watch::Receiver<Arc<ServerConfig>>) {
    let config = configs.borrow_and_update().clone();
    let talk = async {
        let mut outside = TlsAcceptor::from(config).accept(tcp).await?;
        let mut inside = TcpStream::connect(behind).await?;
        copy_bidirectional(&mut outside, &mut inside).await
    };
    tokio::select! {
        // Whatever goes wrong here is for the client to tell.
        _ = talk => {}
        _ = configs.changed() => {}
    }
}
