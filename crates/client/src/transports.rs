//! Connections to xDS servers, shared by all clients of the process that mean the same server.
//!
//! gRFC A71 gives each target a client of its own, so a program with many targets has many streams to
//! one server. They share connections, but not without limit: a stream whose watchers are busy is not
//! read, and holds up to a stream's window of the connection's window. A connection therefore carries
//! no more streams than its window has room for, and a paused stream never starves another.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use crowfly_model::bootstrap::ServerConfig;
use tonic::Status;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;

use crate::client::ConfigError;
use crate::credentials::Dialer;

/// How much of a stream may be under way unread.
pub(crate) const STREAM_WINDOW: u32 = 1 << 20;
const STREAMS_PER_CONNECTION: u32 = 16;
pub(crate) const CONNECTION_WINDOW: u32 = STREAM_WINDOW * STREAMS_PER_CONNECTION;

static SHARED: LazyLock<Mutex<HashMap<ServerConfig, Weak<Transports>>>> =
    LazyLock::new(Mutex::default);

/// The connections to one server.
#[derive(Debug)]
pub(crate) struct Transports {
    dialer: Dialer,
    connections: Mutex<Vec<Connection>>,
}

#[derive(Debug)]
struct Connection {
    channel: Channel,
    id: u64,
    streams: u32,
}

impl Transports {
    /// The connections to `server`: the same for all who mean the same server.
    pub(crate) fn to(server: &ServerConfig) -> Result<Arc<Self>, ConfigError> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.retain(|_, transports| transports.strong_count() > 0);
        if let Some(transports) = shared.get(server).and_then(Weak::upgrade) {
            return Ok(transports);
        }
        let transports = Arc::new(Self {
            dialer: Dialer::new(server)?,
            connections: Mutex::default(),
        });
        shared.insert(server.clone(), Arc::downgrade(&transports));
        Ok(transports)
    }

    /// A place on a connection, which is made if none has room. The error is the reason.
    pub(crate) async fn lease(self: &Arc<Self>) -> Result<Lease, String> {
        if let Some(lease) = self.lease_existing() {
            return Ok(lease);
        }
        let channel = self.dialer.connect().await?;
        let id = fastrand::u64(..);
        let lease = Lease {
            transports: Arc::clone(self),
            channel: channel.clone(),
            connection: id,
        };
        self.connections().push(Connection {
            channel,
            id,
            streams: 1,
        });
        Ok(lease)
    }

    fn lease_existing(self: &Arc<Self>) -> Option<Lease> {
        let mut connections = self.connections();
        let has_room = |connection: &&mut Connection| connection.streams < STREAMS_PER_CONNECTION;
        let connection = connections.iter_mut().find(has_room)?;
        connection.streams += 1;
        Some(Lease {
            transports: Arc::clone(self),
            channel: connection.channel.clone(),
            connection: connection.id,
        })
    }

    fn connections(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place on a connection. The connection goes with its last lease.
#[derive(Debug)]
pub(crate) struct Lease {
    transports: Arc<Transports>,
    channel: Channel,
    connection: u64,
}

impl Lease {
    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Adds what the server wants to see of the caller.
    pub(crate) async fn authorize(&self, metadata: &mut MetadataMap) -> Result<(), Status> {
        self.transports.dialer.authorize(metadata).await
    }

    /// The connection does not work: nobody else shall try it.
    pub(crate) fn discard(&self) {
        let mut connections = self.transports.connections();
        connections.retain(|connection| connection.id != self.connection);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut connections = self.transports.connections();
        let mine = connections.iter_mut().find(|c| c.id == self.connection);
        if let Some(connection) = mine {
            connection.streams -= 1;
        }
        connections.retain(|connection| connection.streams > 0);
    }
}
