//! Connections to xDS servers, shared by all clients of the process that mean the same server.
//!
//! gRFC A71 gives each target a client of its own, so a program with many targets has many streams to one server. Those
//! streams share connections. A stream whose watchers are busy is not read, and holds a part of the connection's
//! window. So a connection carries no more streams than its window has room for. Then a paused stream never blocks
//! another one.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use crowfly_model::bootstrap::ServerConfig;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use tonic::Status;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;

use crate::client::XdsClientError;
use crate::credentials::{BackendCredentials, Dialer};

/// The bytes that a server may send on one stream before they are read.
pub(crate) const STREAM_WINDOW: u32 = 1 << 20;
const STREAMS_PER_CONNECTION: u32 = 16;
pub(crate) const CONNECTION_WINDOW: u32 = STREAM_WINDOW * STREAMS_PER_CONNECTION;

type Key = (ServerConfig, BackendCredentials);

static SHARED: LazyLock<Mutex<HashMap<Key, Weak<Transports>>>> = LazyLock::new(Mutex::default);

/// The connections to one server.
#[derive(Debug)]
pub(crate) struct Transports {
    dialer: Arc<Dialer>,
    connections: Mutex<Vec<Connection>>,
}

/// A connection, or the attempt to make one. Streams that need it during the attempt wait for its result.
#[derive(Debug)]
struct Connection {
    dial: Dial,
    id: u64,
    streams: u32,
}

type Dial = Shared<BoxFuture<'static, Result<Channel, Arc<str>>>>;

impl Transports {
    /// The connections to `server`. Clients share them if their bootstrap entries and credentials for the
    /// server are equal.
    pub(crate) fn to(
        server: &ServerConfig,
        backend: &BackendCredentials,
    ) -> Result<Arc<Self>, XdsClientError> {
        let key = (server.clone(), backend.of(server));
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.retain(|_, transports| transports.strong_count() > 0);
        if let Some(transports) = shared.get(&key).and_then(Weak::upgrade) {
            return Ok(transports);
        }
        let transports = Arc::new(Self {
            dialer: Arc::new(Dialer::new(server, backend)?),
            connections: Mutex::default(),
        });
        shared.insert(key, Arc::downgrade(&transports));
        Ok(transports)
    }

    /// Reserves a place on a connection, and makes a connection if none has room. The error is the reason.
    pub(crate) async fn lease(self: &Arc<Self>) -> Result<Lease, Arc<str>> {
        let (place, dial) = self.place();
        match dial.await {
            Ok(channel) => Ok(Lease { place, channel }),
            Err(reason) => {
                place.discard();
                Err(reason)
            }
        }
    }

    fn place(self: &Arc<Self>) -> (Place, Dial) {
        let mut connections = self.connections();
        let has_room = |connection: &&mut Connection| connection.streams < STREAMS_PER_CONNECTION;
        let (connection, dial) = match connections.iter_mut().find(has_room) {
            Some(connection) => {
                connection.streams += 1;
                (connection.id, connection.dial.clone())
            }
            None => {
                let connection = Connection {
                    dial: self.dial(),
                    id: fastrand::u64(..),
                    streams: 1,
                };
                let made = (connection.id, connection.dial.clone());
                connections.push(connection);
                made
            }
        };
        let place = Place {
            transports: Arc::clone(self),
            connection,
        };
        (place, dial)
    }

    fn dial(&self) -> Dial {
        let dialer = Arc::clone(&self.dialer);
        let dial = async move { dialer.connect().await.map_err(Into::into) };
        dial.boxed().shared()
    }

    fn connections(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place on a connection that was made. The connection may have failed since.
#[derive(Debug)]
pub(crate) struct Lease {
    place: Place,
    channel: Channel,
}

impl Lease {
    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Adds the call credentials to a request's metadata.
    pub(crate) async fn authorize(&self, metadata: &mut MetadataMap) -> Result<(), Status> {
        self.place.transports.dialer.authorize(metadata).await
    }

    /// Takes the connection out of use for new streams, because it has failed.
    pub(crate) fn discard(&self) {
        self.place.discard();
    }
}

/// A place on a connection. Dropping the last place closes the connection.
#[derive(Debug)]
struct Place {
    transports: Arc<Transports>,
    connection: u64,
}

impl Place {
    fn discard(&self) {
        let mut connections = self.transports.connections();
        connections.retain(|connection| connection.id != self.connection);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut connections = self.transports.connections();
        let mine = connections.iter_mut().find(|c| c.id == self.connection);
        if let Some(connection) = mine {
            connection.streams -= 1;
        }
        connections.retain(|connection| connection.streams > 0);
    }
}
