//! What the control plane knows of the client: the admin port's `/clients` page.

use std::{io, net::SocketAddr, time::Duration};

use serde::Deserialize;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{sleep, timeout},
};

use super::DemoError;

const ENDPOINTS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";

/// How long the client may take to answer a configuration, and how often to look.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// The admin port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Admin(pub(super) SocketAddr);

/// How the client took the endpoints it was sent.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
pub(super) struct Taken {
    state: String,
    pub(super) acked_version: Option<String>,
    pub(super) last_nack: Option<Nack>,
}

impl Taken {
    /// Whether the newest version was accepted.
    pub(super) fn is_acked(&self) -> bool {
        self.state == "acked"
    }
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(super) struct Nack {
    pub(super) version: String,
    pub(super) message: String,
}

#[derive(Deserialize)]
struct Page {
    clients: Vec<Client>,
}

#[derive(Deserialize)]
struct Client {
    types: std::collections::BTreeMap<String, Taken>,
}

impl Admin {
    /// What the client said last about its endpoints.
    pub(super) async fn taken(&self) -> Result<Taken, DemoError> {
        let page = timeout(PATIENCE, get(self.0, "/clients"));
        let page = page
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let page = page.and_then(|body| Ok(serde_json::from_slice::<Page>(&body)?));
        let mut clients = page.map_err(DemoError::Admin)?.clients;
        let client = clients
            .first_mut()
            .and_then(|client| client.types.remove(ENDPOINTS));
        Ok(client.unwrap_or_default())
    }

    /// Waits until what the client said satisfies `done`; `None` if that takes too long.
    pub(super) async fn wait_for(
        &self,
        done: impl Fn(&Taken) -> bool,
    ) -> Result<Option<Taken>, DemoError> {
        let wait = async {
            loop {
                let taken = self.taken().await?;
                if done(&taken) {
                    return Ok(taken);
                }
                sleep(PAUSE).await;
            }
        };
        timeout(PATIENCE, wait).await.ok().transpose()
    }
}

/// An HTTP/1.0 GET, for which a client library would be much.
async fn get(addr: SocketAddr, path: &str) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(addr).await?;
    stream
        .write_all(format!("GET {path} HTTP/1.0\r\nhost: {addr}\r\n\r\n").as_bytes())
        .await?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await?;
    let head = response.windows(4).position(|window| window == b"\r\n\r\n");
    match head {
        Some(end)
            if response.starts_with(b"HTTP/1.0 200") || response.starts_with(b"HTTP/1.1 200") =>
        {
            Ok(response.split_off(end + 4))
        }
        _ => Err(io::Error::other("the admin port did not answer with 200")),
    }
}
