//! The `/clients` page of the control plane's admin port, which shows the answers of the client.
//!
//! The demo reads it to prove that the client accepted a good configuration and refused a bad one.

use std::{io, net::SocketAddr, time::Duration};

use serde::Deserialize;
use tokio::time::{sleep, timeout};

use super::DemoError;
use crate::http;

const ENDPOINTS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";

/// The time that the client has to answer a configuration.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause between two looks at the page.
const PAUSE: Duration = Duration::from_millis(20);

/// The address of the admin port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Admin(pub(super) SocketAddr);

/// The client's last answer to the endpoints it was sent.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
pub(super) struct Taken {
    state: String,
    pub(super) acked_version: Option<String>,
    pub(super) last_nack: Option<Nack>,
}

impl Taken {
    /// True if the client accepted the newest version.
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
    /// Reads the client's last answer about its endpoints.
    pub(super) async fn taken(&self) -> Result<Taken, DemoError> {
        let page = timeout(PATIENCE, http::get(&self.0, "/clients"));
        let page = match page.await {
            Ok(page) => page.map_err(io::Error::other),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
        let page = page.and_then(|body| Ok(serde_json::from_slice::<Page>(&body)?));
        let mut clients = page.map_err(DemoError::Admin)?.clients;
        let client = clients
            .first_mut()
            .and_then(|client| client.types.remove(ENDPOINTS));
        Ok(client.unwrap_or_default())
    }

    /// Waits until the client's answer satisfies `done`; `None` if that takes too long.
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
